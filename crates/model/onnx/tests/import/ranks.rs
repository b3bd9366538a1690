//! Loops whose carried values change their ranks, and sequences of tensors of several ranks.
use crate::import::encode::{Msg, msg};
use crate::import::made::{A, G, import_with, node, scalar, shape, value};
use graph::{Op, View};
use shopfloor_onnx::{
    CustomLowered, CustomNode, CustomOp, ImportError, ImportOptions, Imported, ModelFile,
    import_file,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A body that carries `a` and gives `a2`; `nodes` make it.
fn body(nodes: &[Msg]) -> Msg {
    let inputs = [("i", 7), ("c", 9), ("a", 1)];
    let m = msg().text(2, "body");
    let m = inputs.iter().fold(m, |m, (name, d)| {
        let shape = (*d != 1).then_some("");
        m.sub(11, value(name, *d, shape))
    });
    let m = nodes.iter().fold(m, |m, n| m.sub(1, n.clone()));
    m.sub(1, node("Identity", "c", "c2", vec![]))
        .sub(12, msg().text(1, "c2"))
        .sub(12, msg().text(1, "a2"))
}

fn unsqueezed() -> Msg {
    body(&[node("Unsqueeze", "a", "a2", vec![("axes", A::Is(vec![0]))])])
}

/// `y = Loop(t, x)` with `x: f32[n, 3]`, where `g` makes `t`.
fn looped(g: G, body: Msg, options: &ImportOptions) -> Result<Imported, ImportError> {
    let l = node("Loop", "t _ x", "y", vec![("body", A::G(body))]);
    let g = g.input("x", "n 3").node(l).output("y");
    import_with(g.model(11), options)
}

fn rounds(t: i64) -> Result<Imported, ImportError> {
    looped(
        G::new().weight(scalar("t", t)),
        unsqueezed(),
        &ImportOptions::default(),
    )
}

fn loops(i: &Imported) -> usize {
    let is_loop = |n: &&graph::Node| matches!(n.op, Op::Loop { .. });
    i.graph.nodes.iter().filter(is_loop).count()
}

#[test]
fn a_known_number_of_rounds_gives_its_rank() {
    for (t, want) in [
        (-1, "n x 3"),
        (0, "n x 3"),
        (1, "1 x n x 3"),
        (3, "1 x 1 x 1 x n x 3"),
    ] {
        let i = rounds(t).unwrap();
        assert_eq!((shape(&i).as_str(), loops(&i)), (want, 0), "{t} rounds");
    }
}

#[test]
fn rounds_that_the_request_tells_are_those_that_the_caller_says() {
    let asked = |taken: Option<i64>| {
        let taken = taken.map(|t| ("y".to_string(), t)).into_iter().collect();
        let options = ImportOptions {
            taken,
            ..Default::default()
        };
        looped(G::new().typed("t", 7, ""), unsqueezed(), &options).unwrap()
    };
    assert_eq!(shape(&asked(None)), "n x 3");
    let two = asked(Some(2));
    assert_eq!(shape(&two), "1 x 1 x n x 3");
    // Each round is checked before it runs, and the last one is the last.
    let text = two.graph.to_text();
    assert_eq!(text.matches("host \"Refuse\"").count(), 3, "{text}");
    assert!(text.contains("planned for 2 of its rounds"), "{text}");
}

#[test]
fn what_settles_after_a_round_stays_a_loop() {
    // The first round makes a row of the matrix, later ones keep it.
    let nodes = [
        node("ReduceSum", "a", "s", vec![("keepdims", A::I(0))]),
        node("Cast", "i", "f", vec![("to", A::I(1))]),
        node("Add", "s f", "t2", vec![]),
        node("Add", "t2 v", "a2", vec![]),
    ];
    let run = |g: G| looped(g.input("v", "4"), body(&nodes), &ImportOptions::default()).unwrap();
    let i = run(G::new().weight(scalar("t", 1000)));
    assert_eq!((shape(&i).as_str(), loops(&i)), ("4", 1));
    let text = i.graph.to_text();
    assert!(!text.contains("Refuse"), "{text}");
    // Rounds count on from the first.
    assert!(text.contains("i.from1"), "{text}");
}

#[test]
fn ranks_without_end_are_refused() {
    let e = rounds(65).unwrap_err().to_string();
    assert!(
        e.contains("'y/62/a2'") && e.contains("65 dimensions are more than 64"),
        "{e}"
    );
    // Two values that change places.
    let inputs = [("i", 7), ("c", 9), ("a", 1), ("b", 1)];
    let swap = inputs.iter().fold(msg().text(2, "body"), |m, (name, d)| {
        m.sub(11, value(name, *d, (*d != 1).then_some("")))
    });
    let swap = swap
        .sub(1, node("Identity", "c", "c2", vec![]))
        .sub(12, msg().text(1, "c2"))
        .sub(12, msg().text(1, "b"))
        .sub(12, msg().text(1, "a"));
    let swapped = |t: i64| {
        let l = node("Loop", "t _ x v", "y z", vec![("body", A::G(swap.clone()))]);
        let g = G::new().weight(scalar("t", t)).input("x", "n 3");
        g.input("v", "3").node(l).output("y").import(11)
    };
    assert_eq!(shape(&swapped(7).unwrap()), "3");
    assert_eq!(shape(&swapped(64).unwrap()), "n x 3");
    assert_eq!(shape(&swapped(1024).unwrap()), "n x 3");
    let e = swapped(1025).unwrap_err().to_string();
    assert!(
        e.contains("'y'") && e.contains("still after 1024 rounds"),
        "{e}"
    );
}

/// `y = SequenceAt([x, v], at)`, where `g` makes `at`.
fn taken_out(g: G, options: &ImportOptions) -> String {
    let g = g.input("x", "n 3").input("v", "3");
    let g = g
        .op("SequenceConstruct", "x v", "s")
        .op("SequenceAt", "s at", "y");
    shape(&import_with(g.output("y").model(11), options).unwrap())
}

#[test]
fn an_item_has_its_own_type_where_its_position_is_known() {
    let known = |at: i64| taken_out(G::new().weight(scalar("at", at)), &Default::default());
    assert_eq!([known(0), known(1), known(-2)], ["n x 3", "3", "n x 3"]);
}

#[test]
fn an_item_of_any_rank_has_the_one_that_the_caller_says() {
    let late = |taken: Option<i64>| {
        let taken = taken.map(|t| ("y".to_string(), t)).into_iter().collect();
        let options = ImportOptions {
            taken,
            ..Default::default()
        };
        taken_out(G::new().typed("at", 7, ""), &options)
    };
    assert_eq!([late(None), late(Some(2))], ["3", "n x 3"]);
    // One that none of them has is told by the items when they come.
    assert_eq!(late(Some(1)), "3");
    assert_eq!(late(Some(4)), "y.d0 x y.d1 x y.d2 x y.d3");
}

#[test]
fn the_rest_of_the_model_decides_what_rank_is_tried_first() {
    // A convolution takes no vector and no matrix.
    let g = G::new().input("b", "n 2 5").input("v", "3");
    let g = g.typed("at", 7, "").input("w", "4 2 1");
    let g = g
        .op("SequenceConstruct", "v b", "s")
        .op("SequenceAt", "s at", "p")
        .op("Conv", "p w", "y");
    assert_eq!(shape(&g.output("y").import(11).unwrap()), "n x 4 x 5");
}

#[test]
fn hostile_ranks_and_rounds_are_errors() {
    for taken in [i64::MIN, -1, 9, i64::MAX] {
        let options = ImportOptions {
            taken: [("y".to_string(), taken)].into(),
            ..Default::default()
        };
        let g = G::new()
            .typed("at", 7, "")
            .input("x", "n 3")
            .input("v", "3");
        let g = g
            .op("SequenceConstruct", "x v", "s")
            .op("SequenceAt", "s at", "y");
        let e = import_with(g.output("y").model(11), &options).unwrap_err();
        assert!(e.to_string().contains("more than 8 dimensions"), "{e}");
        let i = looped(G::new().typed("t", 7, ""), unsqueezed(), &options);
        match taken {
            ..=9 => assert_eq!(i.unwrap().graph.outputs.len(), 1),
            _ => assert!(i.unwrap_err().to_string().contains("more than 64")),
        }
    }
}

/// An operator that gives what it takes and counts how often it is lowered.
#[derive(Debug, Default)]
struct Counted(AtomicUsize);

impl CustomOp for Counted {
    fn lower(&self, node: &CustomNode) -> Result<CustomLowered, String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let (dtype, shape) = (node.inputs.first().cloned().flatten()).ok_or("takes one value")?;
        Ok(CustomLowered {
            op: Op::View(View::Reshape(shape.clone())),
            outputs: vec![("y".into(), dtype, shape.into_iter().map(Some).collect())],
            equal: vec![],
        })
    }
}

/// Loops in each other, each of `trip` rounds, that carry `carried` values of which the first is a matrix. A round
/// puts each value in the next one's place and the first in its own, so that it takes a round per value until all
/// are matrices, or, with `around`, the last in the first one's, so that ranks never settle.
fn nested(
    levels: usize,
    trip: i64,
    carried: usize,
    around: bool,
) -> (Result<Imported, ImportError>, usize) {
    let names = |p: &str| -> Vec<String> { (0..carried).map(|i| format!("{p}{i}")).collect() };
    let mut body: Option<Msg> = None;
    for level in (0..levels).rev() {
        let (own, made) = (names(&format!("a{level}_")), names(&format!("b{level}_")));
        let work = match body.take() {
            None => node("local::Count", &own[0], &made[0], vec![]),
            Some(b) => node(
                "Loop",
                &format!("t _ {}", own.join(" ")),
                &made.join(" "),
                vec![("body", A::G(b))],
            ),
        };
        let (go, goes) = (format!("c{level}"), format!("d{level}"));
        let m = msg().text(2, &format!("body{level}"));
        let m = m
            .sub(11, value(&format!("i{level}"), 7, Some("")))
            .sub(11, value(&go, 9, Some("")));
        let m = own
            .iter()
            .fold(m, |m, name| m.sub(11, value(name, 1, None)));
        let m = m.sub(1, work).sub(1, node("Identity", &go, &goes, vec![]));
        let first = if around { &own[carried - 1] } else { &made[0] };
        let m = m
            .sub(12, msg().text(1, &goes))
            .sub(12, msg().text(1, first));
        let last = own[..carried - 1].iter();
        body = Some(last.fold(m, |m, name| m.sub(12, msg().text(1, name))));
    }
    let outs = names("y");
    let ins = ["x".to_string()]
        .into_iter()
        .chain((1..carried).map(|_| "v".to_string()));
    let ins = format!("t _ {}", ins.collect::<Vec<_>>().join(" "));
    let outer = node(
        "Loop",
        &ins,
        &outs.join(" "),
        vec![("body", A::G(body.unwrap()))],
    );
    let g = G::new()
        .weight(scalar("t", trip))
        .input("x", "n 3")
        .input("v", "3");
    let counted = Arc::new(Counted::default());
    let customs = [(
        ("local".to_string(), "Count".to_string()),
        counted.clone() as Arc<dyn CustomOp>,
    )];
    let options = ImportOptions {
        customs: customs.into(),
        ..Default::default()
    };
    let file = ModelFile::from_bytes(g.node(outer).output("y0").model(11).0, None).unwrap();
    let i = import_file(&file, &options);
    (i, counted.0.load(Ordering::Relaxed))
}

#[test]
fn rounds_of_loops_in_each_other_have_one_limit() {
    if !testing::turn("rounds_of_loops_in_each_other_have_one_limit") {
        return;
    }
    // Below it each loop is lowered round by round, or as a loop once its ranks have settled.
    for (levels, trip, carried, around) in [(2, 64, 2, true), (3, 1000, 16, false)] {
        let (i, _) = nested(levels, trip, carried, around);
        assert!(i.is_ok(), "{i:?}");
    }
    // No loop of these has more than its own rounds, but their product is a quarter of a million.
    for (trip, carried, around) in [(64, 2, true), (1000, 60, false)] {
        let (i, lowered) = nested(3, trip, carried, around);
        let e = i.unwrap_err().to_string();
        assert!(lowered < 50_000, "{lowered} nodes of the innermost body");
        assert!(
            e.contains("ai.onnx::Loop")
                && e.contains("have 100000 nodes and carried values already; let ranks settle"),
            "{e}"
        );
    }
    // What ends at a loop's own limit counts all the same.
    let (i, lowered) = nested(3, 1000, 2, true);
    assert!(
        i.is_err() && lowered < 50_000,
        "{lowered} nodes of the innermost body"
    );
}
