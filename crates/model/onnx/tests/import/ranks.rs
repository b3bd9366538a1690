//! Loops whose carried values change their ranks, and sequences of tensors of several ranks.
use crate::import::encode::{Msg, msg};
use crate::import::made::{A, G, import_with, node, scalar, shape, value};
use graph::Op;
use shopfloor_onnx::{ImportError, ImportOptions, Imported};

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
    let e = swapped(65).unwrap_err().to_string();
    assert!(
        e.contains("'y'") && e.contains("still after 64 rounds"),
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
