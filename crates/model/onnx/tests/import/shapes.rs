//! Shapes: symbolic sizes, every version's way to say them.
use crate::import::encode::{Msg, msg, opset};
use crate::import::made::*;
use graph::ValueSource;
use layout::Dim;
use shopfloor_onnx::{ImportError, ImportOptions};

fn one(op: Msg, weights: Vec<Msg>, x: &str, version: i64) -> String {
    let g = weights.into_iter().fold(G::new().input("x", x), G::weight);
    match g.node(op).output("y").import(version) {
        Ok(i) => shape(&i),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn slices() {
    let by_input = |starts: i64, ends: i64, step: i64, x: &str| {
        let w = vec![
            i64s("s", &[starts]),
            i64s("e", &[ends]),
            i64s("a", &[1]),
            i64s("k", &[step]),
        ];
        one(node("Slice", "x s e a k", "y", vec![]), w, x, 13)
    };
    assert_eq!(by_input(0, i64::MAX, 1, "b n"), "b x n");
    assert_eq!(by_input(1, i64::MAX, 1, "b n"), "b x n - 1");
    assert_eq!(by_input(0, -1, 1, "b n"), "b x n - 1");
    assert_eq!(by_input(-2, i64::MAX, 1, "b n"), "b x 2");
    assert_eq!(by_input(0, 5, 1, "b n"), "b x min(5, n)");
    assert_eq!(by_input(0, 5, 1, "b 4"), "b x 4");
    assert_eq!(by_input(3, 1, 1, "b 4"), "b x 0");
    assert_eq!(by_input(0, i64::MAX, 2, "b n"), "b x floordiv(n + 1, 2)");
    assert_eq!(by_input(-1, i64::MIN, -1, "b n"), "b x n");
    assert_eq!(by_input(i64::MAX, i64::MIN, -2, "b 5"), "b x 3");
    assert_eq!(by_input(0, i64::MAX, i64::MAX, "b 5"), "b x 1");
    assert_eq!(by_input(-1, i64::MIN, i64::MIN, "b 5"), "b x 1");
    assert_eq!(by_input(-(1 << 31), -9, -1, "b 5"), "b x 1");
    assert_eq!(by_input(i64::MIN, -9, -1, "b 5"), "b x 0");
    let by_attribute = node(
        "Slice",
        "x",
        "y",
        vec![
            ("starts", A::Is(vec![1])),
            ("ends", A::Is(vec![3])),
            ("axes", A::Is(vec![-1])),
        ],
    );
    assert_eq!(one(by_attribute, vec![], "b 7", 9), "b x 2");
}

#[test]
fn reshapes() {
    let to = |shape: &[i64], x: &str| {
        one(
            node("Reshape", "x s", "y", vec![]),
            vec![i64s("s", shape)],
            x,
            13,
        )
    };
    assert_eq!(to(&[0, -1], "b n 12"), "b x 12*n");
    assert_eq!(to(&[0, 0, 3, -1], "b n 12"), "b x n x 3 x 4");
    assert_eq!(to(&[-1], "2 3 4"), "24");
    assert_eq!(to(&[4, -1, 2], "2 3 4"), "4 x 3 x 2");
    assert_eq!(
        one(
            node("Flatten", "x", "y", vec![("axis", A::I(2))]),
            vec![],
            "b 3 n",
            13
        ),
        "3*b x n"
    );
    assert_eq!(
        one(
            node("Squeeze", "x", "y", vec![("axes", A::Is(vec![-2]))]),
            vec![],
            "b 1 n",
            11
        ),
        "b x n"
    );
    assert_eq!(
        one(
            node("Squeeze", "x a", "y", vec![]),
            vec![i64s("a", &[1])],
            "b 1 n",
            13
        ),
        "b x n"
    );
    assert_eq!(
        one(
            node("Unsqueeze", "x", "y", vec![("axes", A::Is(vec![0, 3]))]),
            vec![],
            "b n",
            11
        ),
        "1 x b x n x 1"
    );
    assert_eq!(
        one(
            node("Unsqueeze", "x a", "y", vec![]),
            vec![i64s("a", &[-1])],
            "b n",
            13
        ),
        "b x n x 1"
    );
}

#[test]
fn sizes_taken_through_floats_stay_sizes() {
    // Twice the height as exporters write it: shape, cast, times 2, floor, cast.
    let g = G::new()
        .input("x", "1 3 h w")
        .weight(i64s("two", &[2]))
        .weight(i64s("four", &[4]))
        .weight(f32s("k", &[1], &[2.0]))
        .weight(i64s("keep", &[1, 3]))
        .weight(i64s("nothing", &[]))
        .op("Shape", "x", "s")
        .op("Slice", "s two four", "hw")
        .node(node("Cast", "hw", "f", vec![("to", A::I(1))]))
        .op("Mul", "f k", "g")
        .op("Floor", "g", "fl")
        .node(node("Cast", "fl", "i", vec![("to", A::I(7))]))
        .node(node("Concat", "keep i", "sizes", vec![("axis", A::I(0))]))
        .node(node(
            "Resize",
            "x _ _ sizes",
            "y",
            vec![
                ("mode", A::S("nearest")),
                ("nearest_mode", A::S("floor")),
                ("coordinate_transformation_mode", A::S("asymmetric")),
            ],
        ))
        .output("y");
    let i = g.import(13).unwrap();
    assert_eq!(shape(&i), "1 x 3 x 2*h x 2*w");
    assert!(
        i.graph.to_text().contains("expand"),
        "{}",
        i.graph.to_text()
    );
}

#[test]
fn ceil_mode_pools_end_inside() {
    let pool = |op: &str, x: &str, pads: Vec<i64>, pad_counts: i64| {
        let mut a = vec![
            ("kernel_shape", A::Is(vec![3])),
            ("strides", A::Is(vec![2])),
            ("pads", A::Is(pads)),
            ("ceil_mode", A::I(1)),
        ];
        if op == "AveragePool" {
            a.push(("count_include_pad", A::I(pad_counts)));
        }
        one(node(op, "x", "y", a), vec![], x, 13)
    };
    assert_eq!(pool("MaxPool", "1 2 6", vec![0, 0], 0), "1 x 2 x 3");
    assert_eq!(pool("MaxPool", "1 2 5", vec![0, 0], 0), "1 x 2 x 2");
    // A fourth window would start in the padding behind.
    assert_eq!(pool("AveragePool", "1 2 6", vec![0, 2], 1), "1 x 2 x 3");
    assert_eq!(pool("AveragePool", "1 2 6", vec![1, 1], 1), "1 x 2 x 4");
    assert_eq!(pool("AveragePool", "1 2 6", vec![1, 1], 0), "1 x 2 x 4");
}

#[test]
fn old_and_new_forms_are_one_graph() {
    let clip = |g: G, n: Msg, v: i64| {
        g.input("x", "b 4")
            .node(n)
            .output("y")
            .import(v)
            .unwrap()
            .graph
            .to_text()
    };
    let old = clip(
        G::new(),
        node(
            "Clip",
            "x",
            "y",
            vec![("min", A::F(0.0)), ("max", A::F(6.0))],
        ),
        7,
    );
    let new = clip(
        G::new()
            .weight(f32s("lo", &[], &[0.0]))
            .weight(f32s("hi", &[], &[6.0])),
        node("Clip", "x lo hi", "y", vec![]),
        13,
    );
    let map = |t: &str| {
        t.lines()
            .filter(|l| !l.contains("weight"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert!(map(&new).contains("map"), "{new}");
    let sum_old = one(
        node(
            "ReduceSum",
            "x",
            "y",
            vec![("axes", A::Is(vec![1])), ("keepdims", A::I(0))],
        ),
        vec![],
        "b 4 n",
        11,
    );
    let sum_new = one(
        node("ReduceSum", "x a", "y", vec![("keepdims", A::I(0))]),
        vec![i64s("a", &[1])],
        "b 4 n",
        13,
    );
    assert_eq!(sum_old, sum_new);
    assert!(old.contains("map"));
    let split_old = node(
        "Split",
        "x",
        "y z",
        vec![("axis", A::I(1)), ("split", A::Is(vec![1, 3]))],
    );
    let split_new = node("Split", "x s", "y z", vec![("axis", A::I(1))]);
    assert_eq!(
        one(split_old, vec![], "b 4", 11),
        one(split_new, vec![i64s("s", &[1, 3])], "b 4", 13)
    );
}

#[test]
fn symbols_come_from_names_places_and_options() {
    let g = || {
        G::new()
            .input("x", "batch ?")
            .typed("mask", 7, "batch past+s")
            .input("p", "past s")
            .op("Relu", "x", "y")
            .output("y")
            .model(13)
    };
    assert_eq!(shape(&import_msg(g()).unwrap()), "batch x x.d1");
    let i = import_msg(g()).unwrap();
    assert_eq!(
        i.graph.value(i.graph.inputs[1]).shape[1].to_string(),
        "s + past"
    );
    let mut o = ImportOptions::default();
    o.dims.insert("batch".into(), 4);
    assert_eq!(shape(&import_with(g(), &o).unwrap()), "4 x x.d1");
    let mut o = ImportOptions::default();
    o.shapes
        .insert("x".into(), vec![Dim::Known(4), Dim::Known(7)]);
    let i = import_with(g(), &o).unwrap();
    assert_eq!(shape(&i), "4 x 7");
    assert_eq!(
        i.graph.value(i.graph.inputs[1]).shape[0],
        Dim::Known(4),
        "one symbol, one number"
    );
    o.shapes.insert("nobody".into(), vec![]);
    assert!(
        import_with(g(), &o)
            .unwrap_err()
            .to_string()
            .contains("'nobody'")
    );
    let mut o = ImportOptions::default();
    o.dims.insert("bach".into(), 4);
    let e = import_with(g(), &o).unwrap_err().to_string();
    assert!(e.contains("'bach'") && e.contains("batch"), "{e}");
}

#[test]
fn an_unknown_rank_asks_for_the_shape() {
    let m = || {
        G(msg().text(2, "g").sub(11, value("x", 1, None)))
            .op("Relu", "x", "y")
            .output("y")
            .model(13)
    };
    let e = import_msg(m()).unwrap_err();
    assert!(
        matches!(&e, ImportError::Input { .. }) && e.to_string().contains("--shape x="),
        "{e}"
    );
    let mut o = ImportOptions::default();
    o.shapes.insert("x".into(), vec![Dim::sym("n")]);
    assert_eq!(shape(&import_with(m(), &o).unwrap()), "n");
}

#[test]
fn functions_are_inlined_with_attributes_and_defaults() {
    let inner = msg()
        .text(1, "Inner")
        .text(10, "local")
        .text(4, "a")
        .text(5, "b")
        .text(6, "slope")
        .sub(
            7,
            node("LeakyRelu", "a", "b", vec![("alpha", A::Of("slope", 1))]),
        )
        .sub(9, opset("", 16));
    let outer = msg()
        .text(1, "Outer")
        .text(10, "local")
        .text(4, "a")
        .text(5, "b")
        .sub(11, attribute("k", A::F(0.25)))
        .sub(
            7,
            node("local::Inner", "a", "m", vec![("slope", A::Of("k", 1))]),
        )
        .sub(7, node("Neg", "m", "b", vec![]))
        .sub(9, opset("", 16))
        .sub(9, opset("local", 1));
    let m = G::new()
        .input("x", "3")
        .node(node("local::Outer", "x", "t", vec![]))
        .node(node("local::Outer", "t", "y", vec![("k", A::F(0.5))]))
        .output("y")
        .model(13)
        .sub(25, inner.clone())
        .sub(25, outer);
    let i = import_msg(m).unwrap();
    let text = i.graph.to_text();
    assert!(text.contains("0.25") && text.contains("0.5"), "{text}");
    let names: Vec<&str> = i.report.nodes.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(
        names,
        ["t", "t/m", "t/m/b", "t/b", "y", "y/m", "y/m/b", "y/b"]
    );
    assert_eq!(i.graph.value(i.graph.outputs[0]).name, "y");
    // A function that calls itself.
    let endless = msg()
        .text(1, "Inner")
        .text(10, "local")
        .text(4, "a")
        .text(5, "b")
        .sub(7, node("local::Inner", "a", "b", vec![]))
        .sub(9, opset("local", 1));
    let m = G::new()
        .input("x", "3")
        .op("local::Inner", "x", "y")
        .output("y")
        .model(13)
        .sub(25, endless);
    assert!(
        import_msg(m)
            .unwrap_err()
            .to_string()
            .contains("nested deeper")
    );
}

#[test]
fn a_known_condition_takes_one_branch_and_others_close_over_values() {
    let then = || {
        msg()
            .text(2, "t")
            .sub(1, node("Add", "x w", "t", vec![]))
            .sub(12, msg().text(1, "t"))
    };
    let other = || {
        msg()
            .text(2, "e")
            .sub(1, node("Mul", "x z", "e", vec![]))
            .sub(12, msg().text(1, "e"))
    };
    let branches = || {
        vec![
            ("then_branch", A::G(then())),
            ("else_branch", A::G(other())),
        ]
    };
    let base = || {
        G::new()
            .input("x", "n")
            .input("v", "n")
            .weight(f32s("w", &[1], &[1.0]))
            .op("Neg", "v", "z")
    };
    let known = base()
        .weight(scalar("one", 1))
        .op("Shape", "x", "s")
        .op("Size", "s", "rank")
        .op("Equal", "rank one", "c")
        .node(node("If", "c", "y", branches()))
        .output("y")
        .import(16)
        .unwrap();
    assert!(
        !known.graph.to_text().contains("if"),
        "{}",
        known.graph.to_text()
    );
    let open = base()
        .typed("c", 9, "")
        .node(node("If", "c", "y", branches()))
        .output("y")
        .import(16)
        .unwrap();
    let n = open.graph.nodes.last().unwrap();
    let graph::Op::If {
        then_branch,
        else_branch,
    } = &n.op
    else {
        panic!("{}", open.graph.to_text())
    };
    assert_eq!(n.inputs.len(), 3, "condition, x, z; the weight is shared");
    for b in [then_branch, else_branch] {
        assert_eq!(b.inputs.len(), 2);
        assert_eq!(b.value(b.inputs[0]).name, "x");
        assert_eq!(b.weights.len(), open.graph.weights.len());
    }
    assert_eq!(shape(&open), "n");
}

fn dims(v: &graph::Value) -> String {
    v.shape
        .iter()
        .map(Dim::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Initial states whose sizes nobody gave are those of the layer; other sizes are refused.
#[test]
fn a_recurrence_says_the_sizes_of_its_states() {
    let model = |state: &str| {
        let hidden = vec![("hidden_size", A::I(5))];
        G::new()
            .input("x", "t b w")
            .input("weights", "d g w2")
            .input("recurrence", "d2 g2 h2")
            .input("h", state)
            .node(node("GRU", "x weights recurrence _ _ h", "y", hidden))
            .output("y")
            .import(14)
    };
    let open = model("d3 b3 h3").unwrap();
    let layer = open.graph.nodes.last().expect("a recurrence");
    let shapes: Vec<String> = layer
        .inputs
        .iter()
        .map(|&v| dims(open.graph.value(v)))
        .collect();
    assert_eq!(shapes, ["t b w", "1 15 w", "1 15 5", "1 b 5"]);
    // One for each extent that is not of X, and what the views rely on.
    assert!(open.graph.assumptions.len() >= 9);
    let wrong = model("d3 b3 6").unwrap_err().to_string();
    assert!(wrong.contains("'h' has shape [d3, b3, 6]"), "{wrong}");
}

#[test]
fn loops_find_growing_extents() {
    let body = msg()
        .text(2, "body")
        .sub(11, value("i", 7, Some("")))
        .sub(11, value("c", 9, Some("")))
        .sub(11, value("acc", 1, None))
        .sub(1, node("Identity", "c", "c2", vec![]))
        .sub(1, node("Concat", "acc x", "acc2", vec![("axis", A::I(1))]))
        .sub(
            1,
            node("ReduceSum", "acc2", "total", vec![("keepdims", A::I(0))]),
        )
        .sub(12, msg().text(1, "c2"))
        .sub(12, msg().text(1, "acc2"))
        .sub(12, msg().text(1, "total"));
    let m = |trip: G| {
        trip.input("x", "b 2")
            .node(node(
                "Loop",
                "m _ x",
                "y all",
                vec![("body", A::G(body.clone()))],
            ))
            .output("y")
            .output("all")
            .import(11)
            .unwrap()
    };
    let open = m(G::new().typed("m", 7, ""));
    assert_eq!(shape(&open), "b x y.d1");
    let fixed = m(G::new().weight(scalar("m", 5)));
    assert_eq!(shape(&fixed), "b x 12");
    let all = fixed.graph.value(fixed.graph.outputs[1]);
    assert_eq!(all.shape, [Dim::Known(5)]);
}

#[test]
fn outputs_keep_their_names() {
    // The constant that fills is called 'value' where the attribute's tensor has no name.
    let fill = node(
        "ConstantOfShape",
        "s",
        "z",
        vec![("value", A::T(f32s("", &[1], &[2.5])))],
    );
    let i = G::new()
        .input("x", "n 2")
        .op("Shape", "x", "s")
        .node(fill)
        .op("Add", "x z", "value")
        .op("Identity", "value", "value.1")
        .output("value")
        .output("value.1")
        .import(13)
        .unwrap_or_else(|e| panic!("{e}"));
    let names: Vec<&str> = i
        .graph
        .outputs
        .iter()
        .map(|v| i.graph.value(*v).name.as_str())
        .collect();
    assert_eq!(names, ["value", "value.1"]);
}

#[test]
fn sparse_weights_are_written_out() {
    let made = |dims: &[i64], indices: &[i64]| {
        G::new()
            .input("x", "n 2")
            .sparse(f32s("w", &[2], &[2.5, -1.0]), i64s("i", indices), dims)
            .op("MatMul", "x w", "y")
            .output("y")
            .import(13)
    };
    let i = made(&[2, 3], &[1, 5]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(shape(&i), "n x 3");
    let w = i.graph.values.iter().find(|v| v.name == "w");
    let ValueSource::Weight(id) = w.expect("the weight is there").source else {
        panic!("it is no weight");
    };
    let t = i.graph.weights.tensor(id).expect("its elements");
    let all: Vec<f64> = (0..t.len()).map(|e| t.get_f64(e)).collect();
    assert_eq!(all, [0.0, 2.5, 0.0, 0.0, 0.0, -1.0]);
    for (dims, indices, why) in [
        (&[2, 3][..], &[1, 6][..], "index 6"),
        (&[2, 3], &[-1, 5], "index -1"),
        (&[2, 3], &[1], "indices"),
        (&[2, 1 << 40], &[1, 5], "written out"),
        (&[1 << 40, 1 << 40], &[1, 5], "sparse tensor"),
        (&[2, -3], &[1, 5], "negative"),
    ] {
        let e = made(dims, indices).map(|_| ()).expect_err(why).to_string();
        assert!(e.contains(why), "{e}");
    }
}

#[test]
fn a_function_passes_on_that_an_input_is_left_out() {
    let function = |name: &str, inner: Msg| {
        let f = msg().text(1, name).text(4, "a").text(4, "low").text(5, "b");
        let f = f
            .sub(7, inner)
            .sub(9, opset("", 13))
            .sub(9, opset("local", 1));
        f.text(10, "local")
    };
    for call in ["x", "x _"] {
        let m = G::new()
            .input("x", "3")
            .op("local::F", call, "y")
            .output("y")
            .model(13)
            .sub(25, function("F", node("local::G", "a low", "b", vec![])))
            .sub(25, function("G", node("Clip", "a low", "b", vec![])));
        assert_eq!(shape(&import_msg(m).unwrap()), "3");
    }
}

#[test]
fn an_output_that_is_listed_twice_is_given_twice() {
    let g = G::new().input("x", "3").op("Neg", "x", "y");
    let i = g.output("y").output("x").output("y").import(13).unwrap();
    let names = i
        .graph
        .outputs
        .iter()
        .map(|&v| i.graph.value(v).name.as_str());
    let names: Vec<&str> = names.collect();
    assert_eq!(names, ["y", "x", "y.again"]);
}

#[test]
fn a_dim_that_another_input_names_is_tied_to_the_sum_it_stands_for() {
    // What a decoder does with its mask: [rows past and new] + mask, in the graph, in both branches
    // of an If and in the body of a Loop. Exporters name the mask's length as they like.
    let masked = |prefix: &str| {
        let of = |name: &str| format!("{prefix}{name}");
        let all = node("Concat", "past ids", &of("all"), vec![("axis", A::I(1))]);
        let sum = node("Add", &format!("{} mask", of("all")), &of("y"), vec![]);
        [all, sum]
    };
    let branch = |prefix: &str| {
        let g = masked(prefix).into_iter().fold(msg(), |g, n| g.sub(1, n));
        g.text(2, prefix)
            .sub(12, msg().text(1, &format!("{prefix}y")))
    };
    let body = || {
        let head = msg()
            .text(2, "body")
            .sub(11, value("i", 7, Some("")))
            .sub(11, value("c", 9, Some("")))
            .sub(1, node("Identity", "c", "c2", vec![]));
        let g = masked("l").into_iter().fold(head, |g, n| g.sub(1, n));
        g.sub(12, msg().text(1, "c2")).sub(12, msg().text(1, "ly"))
    };
    let names = ["new", "past_length", "total_length", "past_length + new"];
    for (ids, past, mask) in names
        .iter()
        .flat_map(|a| names.iter().map(move |b| (a, b)))
        .flat_map(|(a, b)| names.iter().map(move |c| (a, b, c)))
    {
        let g = G::new()
            .input("mask", &format!("b {}", mask.replace(' ', "")))
            .input("ids", &format!("b {}", ids.replace(' ', "")))
            .input("past", &format!("b {}", past.replace(' ', "")));
        let branches = vec![
            ("then_branch", A::G(branch("t"))),
            ("else_branch", A::G(branch("e"))),
        ];
        let [all, sum] = masked("");
        for (what, g) in [
            ("graph", g.clone().node(all).node(sum).output("y")),
            (
                "If",
                g.clone()
                    .typed("c", 9, "")
                    .node(node("If", "c", "y", branches))
                    .output("y"),
            ),
            (
                "Loop",
                g.typed("m", 7, "")
                    .node(node("Loop", "m _", "y", vec![("body", A::G(body()))]))
                    .output("y"),
            ),
        ] {
            let i = g
                .import(13)
                .unwrap_or_else(|e| panic!("{what} of {ids}, {past}, {mask}: {e}"));
            assert_eq!(i.graph.inputs.len(), if what == "graph" { 3 } else { 4 });
        }
    }
}
