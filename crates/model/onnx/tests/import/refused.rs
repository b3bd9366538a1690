//! Models that are refused: with one list, or one sentence.
use crate::import::encode::{msg, tensor};
use crate::import::made::*;
use shopfloor_onnx::ImportError;

fn why(g: G, version: i64) -> String {
    match g.import(version) {
        Ok(i) => panic!("accepted:\n{}", i.graph.to_text()),
        Err(e) => e.to_string(),
    }
}

#[test]
fn every_unsupported_node_is_listed_at_once() {
    let branch = |op: &str| {
        A::G(
            msg()
                .text(2, "g")
                .sub(1, node(op, "x", "t", vec![]))
                .sub(12, msg().text(1, "t")),
        )
    };
    let g = G::new()
        .input("x", "3")
        .typed("c", 9, "")
        .op("Gradient", "x", "a")
        .op("Neg", "a", "b")
        .op("com.microsoft::BeamSearch", "b", "d")
        .node(node(
            "If",
            "c",
            "e",
            vec![
                ("then_branch", branch("Adam")),
                ("else_branch", branch("Relu")),
            ],
        ))
        .op("Relu", "x", "y")
        .output("y");
    let Err(ImportError::Unsupported(list)) = g.import(14) else {
        panic!("accepted")
    };
    let ops: Vec<&str> = list.iter().map(|u| u.operator.as_str()).collect();
    assert_eq!(ops, ["Gradient", "Adam", "BeamSearch"]);
    assert!(list.iter().all(|u| !u.remedy.is_empty() && u.opset > 0));
    assert_eq!(list[2].domain, "com.microsoft");
    let new = why(
        G::new().input("x", "3").op("Relu", "x", "y").output("y"),
        99,
    );
    assert!(new.contains("opset 99") && new.contains("convert"), "{new}");
}

#[test]
fn attributes_that_nobody_reads_are_errors() {
    let e = why(
        G::new()
            .input("x", "3")
            .node(node("Relu", "x", "y", vec![("slope", A::F(1.0))]))
            .output("y"),
        13,
    );
    assert!(
        e.contains("'y'") && e.contains("'slope'") && e.contains("Relu"),
        "{e}"
    );
    let e = why(
        G::new()
            .input("x", "1 1 4")
            .node(node("MaxPool", "x", "y", vec![("kernel_shape", A::I(3))]))
            .output("y"),
        13,
    );
    assert!(
        e.contains("'kernel_shape'") && e.contains("integers"),
        "{e}"
    );
}

/// Nodes whose inputs, axes, shapes or windows do not fit, and a part of what is said; nothing: it is accepted.
fn wrong_inputs() -> Vec<(G, &'static str)> {
    let x = || G::new().input("x", "2 3 4 5");
    vec![
        (x().op("Relu", "x x", "y"), "at most 1"),
        (x().op("Add", "x", "y"), "input 1 is missing"),
        (x().op("Relu", "nobody", "y"), "'nobody'"),
        (
            x().node(node("Softmax", "x", "y", vec![("axis", A::I(9))])),
            "axis 9",
        ),
        (
            x().node(node("Softmax", "x", "y", vec![("axis", A::I(i64::MIN))])),
            "axis",
        ),
        (
            x().node(node(
                "Transpose",
                "x",
                "y",
                vec![("perm", A::Is(vec![0, 0, 1, 2]))],
            )),
            "perm",
        ),
        (
            x().weight(i64s("s", &[7, -1])).op("Reshape", "x s", "y"),
            "cannot bring",
        ),
        (
            x().weight(i64s("s", &[-1, -1])).op("Reshape", "x s", "y"),
            "wrong number",
        ),
        (
            x().weight(i64s("s", &[i64::MAX, i64::MAX]))
                .op("Reshape", "x s", "y"),
            "",
        ),
        (
            x().weight(i64s("s", &[i64::MAX]))
                .op("ConstantOfShape", "s", "y"),
            "",
        ),
        (
            x().weight(i64s("s", &[1, 1, 1, i64::MAX]))
                .op("Tile", "x s", "y"),
            "",
        ),
        (x().weight(i64s("p", &[1, 2])).op("Pad", "x p", "y"), "pads"),
        (
            x().weight(f32s("w", &[3, 3], &[0.0; 9]))
                .op("Conv", "x w", "y"),
            "rank",
        ),
        (
            x().weight(f32s("w", &[1, 2, 1, 1], &[0.0; 2]))
                .op("Conv", "x w", "y"),
            "",
        ),
        (
            x().weight(f32s("w", &[1, 3, 1, 1], &[0.0; 3])).node(node(
                "Conv",
                "x w",
                "y",
                vec![("strides", A::Is(vec![0, 1]))],
            )),
            "strides",
        ),
        (
            x().weight(f32s("w", &[1, 3, 1, 1], &[0.0; 3])).node(node(
                "Conv",
                "x w",
                "y",
                vec![("group", A::I(0))],
            )),
            "",
        ),
        (
            x().node(node(
                "AveragePool",
                "x",
                "y",
                vec![("kernel_shape", A::Is(vec![9, 9]))],
            )),
            "window",
        ),
        (
            x().node(node(
                "AveragePool",
                "x",
                "y",
                vec![("kernel_shape", A::Is(vec![i64::MAX, 2]))],
            )),
            "kernel",
        ),
    ]
}

/// Nodes with attributes, types and names that do not fit, and a part of what is said.
fn wrong_attributes() -> Vec<(G, &'static str)> {
    let x = || G::new().input("x", "2 3 4 5");
    vec![
        (
            x().weight(i64s("s", &[1, 1])).node(node(
                "Split",
                "x s",
                "y z",
                vec![("axis", A::I(1))],
            )),
            "add up",
        ),
        (
            x().node(node(
                "Einsum",
                "x x",
                "y",
                vec![("equation", A::S("ab,cd->ad"))],
            )),
            "rank",
        ),
        (
            x().node(node(
                "Einsum",
                "x",
                "y",
                vec![("equation", A::S("é...->..."))],
            )),
            "",
        ),
        (
            x().node(node("DepthToSpace", "x", "y", vec![("blocksize", A::I(0))])),
            "blocksize",
        ),
        (
            x().node(node("DepthToSpace", "x", "y", vec![("blocksize", A::I(2))])),
            "multiple",
        ),
        (
            x().node(node("Cast", "x", "y", vec![("to", A::I(14))])),
            "COMPLEX64",
        ),
        (
            x().node(node("Cast", "x", "y", vec![("to", A::I(i64::MAX))])),
            "unknown",
        ),
        (
            x().weight(tensor("w", 14, &[1]).bytes(9, &[0; 8]))
                .op("Add", "x w", "y"),
            "COMPLEX64",
        ),
        (x().weight(f32s("w", &[-1], &[])).op("Add", "x w", "y"), "w"),
        (x().node(node("Constant", "", "y", vec![])), "has no value"),
        (
            x().node(node(
                "If",
                "x",
                "y",
                vec![("then_branch", A::I(1)), ("else_branch", A::I(1))],
            )),
            "graph",
        ),
        (x().op("Relu", "x", "z"), "never computed"),
        (x().op("Relu", "x", "y z"), "output 1"),
        (x().op("other::Relu", "x", "y"), "does not import"),
        (
            x().node(node("LSTM", "x x x", "y", vec![("hidden_size", A::I(4))])),
            "",
        ),
        (
            x().weight(i64s("k", &[9])).op("TopK", "x k", "y z"),
            "9 of 5",
        ),
        (
            x().weight(scalar("a", 0))
                .weight(scalar("b", 5))
                .weight(scalar("d", 0))
                .op("Range", "a b d", "y"),
            "",
        ),
    ]
}

#[test]
fn contradictions_are_errors_not_panics() {
    let cases = wrong_inputs().into_iter().chain(wrong_attributes());
    for (i, (g, part)) in cases.enumerate() {
        match g.output("y").import(13) {
            Err(e) => assert!(e.to_string().contains(part), "case {i}: {e}"),
            Ok(m) => assert!(part.is_empty(), "case {i} accepted:\n{}", m.graph.to_text()),
        }
    }
}

/// A graph for an attribute: nodes, then the names of its outputs.
fn graph(nodes: Vec<crate::import::encode::Msg>, outputs: &[&str]) -> crate::import::encode::Msg {
    let g = nodes
        .into_iter()
        .fold(msg().text(2, "g"), |g, n| g.sub(1, n));
    outputs.iter().fold(g, |g, o| g.sub(12, msg().text(1, o)))
}

/// `y = c ? then : else` over `x: f32[3]`, after `before`.
fn choice(before: G, yes: crate::import::encode::Msg, no: crate::import::encode::Msg) -> G {
    let attributes = vec![("then_branch", A::G(yes)), ("else_branch", A::G(no))];
    before
        .typed("c", 9, "")
        .input("x", "3")
        .node(node("If", "c", "y", attributes))
        .output("y")
}

#[test]
fn names_are_defined_once_and_before_they_are_read() {
    let x = || G::new().input("x", "3");
    let neg = |i: &str, o: &str| node("Neg", i, o, vec![]);
    let own = || graph(vec![neg("x", "t")], &["t"]);
    let w = |v: f32| f32s("w", &[3], &[v; 3]);
    let y = |g: G| g.op("Neg", "a", "y").output("y");
    let before = "which is defined before it";
    for (what, g, part) in [
        (
            "two nodes",
            y(x().op("Neg", "x", "a").op("Abs", "x", "a")),
            before,
        ),
        ("one node", y(x().op("Split", "x", "a a")), before),
        ("an input", x().op("Neg", "x", "x").output("x"), before),
        (
            "an initialiser",
            y(x().weight(w(1.0)).op("Neg", "x", "w").op("Neg", "w", "a")),
            before,
        ),
        (
            "two inputs",
            y(x().input("x", "3").op("Neg", "x", "a")),
            "input 'x' is defined twice",
        ),
        (
            "two initialisers",
            y(x().weight(w(1.0)).weight(w(2.0)).op("Add", "x w", "a")),
            "initialiser 'w' is defined twice",
        ),
        (
            "a default of another type",
            y(x()
                .typed("k", 7, "1")
                .weight(f32s("k", &[1], &[1.0]))
                .op("Neg", "k", "a")),
            "initialiser 'k' is FLOAT, and the input of its name INT64",
        ),
        (
            "a name of nobody",
            y(x().op("Add", "x q", "a")),
            "reads 'q'",
        ),
        (
            "a name of nobody, unused",
            y(x().op("Neg", "x", "a").op("Neg", "q", "b")),
            "reads 'q'",
        ),
        (
            "in a branch",
            choice(G::new(), own(), graph(vec![neg("q", "t")], &["t"])),
            "reads 'q'",
        ),
        (
            "a branch's output",
            choice(G::new(), own(), graph(vec![neg("x", "t")], &["u"])),
            "output 'u' of graph 'g' is never computed",
        ),
        (
            "twice in a branch",
            choice(
                G::new(),
                own(),
                graph(vec![neg("x", "t"), neg("x", "t")], &["t"]),
            ),
            before,
        ),
        (
            "outside of a branch",
            choice(G::new(), own(), graph(vec![neg("x", "x")], &["x"])),
            before,
        ),
        (
            "after the branch",
            choice(G::new(), own(), graph(vec![neg("z", "t")], &["t"])).op("Neg", "x", "z"),
            "reads 'z'",
        ),
    ] {
        let e = why(g, 13);
        assert!(e.contains(part), "{what}: {e}");
    }
}

#[test]
fn names_may_hide_and_default() {
    let x = || G::new().input("x", "3");
    let neg = |i: &str, o: &str| node("Neg", i, o, vec![]);
    let own = || graph(vec![neg("x", "t")], &["t"]);
    let w = |v: f32| f32s("w", &[3], &[v; 3]);
    // Both branches and later nodes may use a name, and a branch that of its own If's output.
    let g = choice(
        G::new().weight(w(1.0)),
        graph(vec![neg("x", "y")], &["y"]),
        graph(vec![neg("x", "y")], &["y"]),
    );
    g.import(13).unwrap();
    // An initialiser of a body may have the name of an outer value, which it hides.
    let hides = graph(vec![neg("w", "t")], &["t"]).sub(5, w(2.0));
    choice(G::new().weight(w(1.0)), own(), hides)
        .import(13)
        .unwrap();
    // One of an input's name is its default.
    x().input("w", "3")
        .weight(w(1.0))
        .op("Add", "x w", "y")
        .output("y")
        .import(13)
        .unwrap();
}

#[test]
fn functions_are_defined_once_and_closed() {
    let function = |body: Vec<crate::import::encode::Msg>| {
        let f = msg().text(1, "F").text(4, "a").text(5, "b");
        let f = body.into_iter().fold(f, |f, n| f.sub(7, n));
        f.sub(9, crate::import::encode::opset("", 13))
            .text(10, "local")
    };
    let neg = |i: &str, o: &str| node("Neg", i, o, vec![]);
    let call = |functions: Vec<crate::import::encode::Msg>| {
        let m = G::new()
            .input("x", "3")
            .op("local::F", "x", "y")
            .output("y")
            .model(13);
        import_msg(functions.into_iter().fold(m, |m, f| m.sub(25, f)))
    };
    call(vec![function(vec![neg("a", "b")])]).unwrap();
    for (functions, part) in [
        (
            vec![
                function(vec![neg("a", "b")]),
                function(vec![node("Abs", "a", "b", vec![])]),
            ],
            "function 'local:F' is defined twice",
        ),
        (
            vec![function(vec![neg("a", "t"), neg("a", "t"), neg("t", "b")])],
            "which is defined before it",
        ),
        (vec![function(vec![neg("x", "b")])], "reads 'x'"),
    ] {
        let e = call(functions).unwrap_err().to_string();
        assert!(e.contains(part), "{e}");
    }
}

#[test]
fn parameters_out_of_range_are_refused() {
    let x = || G::new().input("x", "1 4 5");
    let number = |name: &str, v: f32| f32s(name, &[], &[v]);
    let range = |a: f32, b: f32, d: f32| {
        let g = G::new()
            .weight(number("a", a))
            .weight(number("b", b))
            .weight(number("d", d));
        g.op("Range", "a b d", "y").output("y")
    };
    let resize = |k: f32| {
        let node = node("Resize", "x _ k", "y", vec![("mode", A::S("nearest"))]);
        x().weight(f32s("k", &[3], &[1.0, 1.0, k]))
            .node(node)
            .output("y")
    };
    let conv = |op: &str, weight: &[i64], groups: i64| {
        let count = weight.iter().product::<i64>() as usize;
        let node = node(op, "x w", "y", vec![("group", A::I(groups))]);
        x().weight(f32s("w", weight, &vec![1.0; count]))
            .node(node)
            .output("y")
    };
    let pad = |mode: &'static str, pads: &[i64]| {
        let node = node("Pad", "x p", "y", vec![("mode", A::S(mode))]);
        x().weight(i64s("p", pads)).node(node).output("y")
    };
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for (what, g, part) in [
        ("a NaN step", range(0.0, 5.0, nan), "has no length"),
        ("a NaN start", range(nan, 5.0, 1.0), "has no length"),
        ("no end", range(0.0, inf, 1.0), "has no length"),
        ("no step", range(0.0, 0.0, 0.0), "has no length"),
        ("a NaN scale", resize(nan), "is not positive"),
        ("a negative scale", resize(-1.0), "is not positive"),
        (
            "uneven groups",
            conv("ConvTranspose", &[4, 2, 3], 3),
            "do not split into 3 groups",
        ),
        (
            "no groups",
            conv("Conv", &[4, 4, 3], 0),
            "0 groups are not positive",
        ),
        (
            "uneven outputs",
            conv("Conv", &[3, 2, 3], 2),
            "do not split into 2 groups",
        ),
        (
            "too wide a mirror",
            pad("reflect", &[0, 0, 0, 0, 0, 5]),
            "needs 6 or more",
        ),
        (
            "a mirror of what is cut",
            pad("reflect", &[0, 0, -2, 0, 0, 3]),
            "needs 4 or more",
        ),
    ] {
        let e = why(g, 18);
        assert!(e.contains(part), "{what}: {e}");
    }
    pad("reflect", &[0, 0, 4, 0, 0, 4]).import(18).unwrap();
    pad("wrap", &[0, 0, 9, 0, 0, 9]).import(18).unwrap();
}

#[test]
fn a_type_that_the_model_states_is_the_values() {
    let cast = || node("Cast", "x", "y", vec![("to", A::I(7))]);
    let made = |info: u32, name: &str, dtype: i64| {
        let g = G::new().input("x", "3").node(cast()).op("Neg", "y", "z");
        let other = G(g.0.sub(info, value(name, dtype, Some("3"))));
        if info == 12 { other } else { other.output("z") }
    };
    // 12 are outputs, 13 values in between.
    for (info, name) in [(12, "z"), (12, "y"), (13, "y")] {
        made(info, name, 7).import(13).unwrap();
        let e = why(made(info, name, 1), 13);
        let part = format!("'{name}' is a tensor of i64, and the model states a tensor of f32");
        assert!(e.contains(&part), "{e}");
    }
    let floats = graph(vec![node("Neg", "x", "t", vec![])], &["t"]);
    let stated = msg()
        .text(2, "g")
        .sub(1, node("Neg", "x", "t", vec![]))
        .sub(12, value("t", 7, None));
    for g in [
        choice(G::new(), floats.clone(), stated.clone()),
        choice(G::new(), stated, floats),
    ] {
        let e = why(g, 13);
        assert!(
            e.contains("'t' is a tensor of f32, and the model states a tensor of i64"),
            "{e}"
        );
    }
}

#[test]
fn deep_bodies_are_refused_without_overflow() {
    let mut g = msg()
        .text(2, "g")
        .sub(1, node("Relu", "x", "t", vec![]))
        .sub(12, msg().text(1, "t"));
    let mut depth = 0;
    while depth < 40 {
        g = msg()
            .text(2, "g")
            .sub(
                1,
                node(
                    "If",
                    "c",
                    "t",
                    vec![
                        ("then_branch", A::G(g.clone())),
                        (
                            "else_branch",
                            A::G(
                                msg()
                                    .text(2, "e")
                                    .sub(1, node("Neg", "x", "t", vec![]))
                                    .sub(12, msg().text(1, "t")),
                            ),
                        ),
                    ],
                ),
            )
            .sub(12, msg().text(1, "t"));
        depth += 1;
    }
    // Either answer is right; a crash is not.
    let _ = shopfloor_onnx::ModelFile::from_bytes(
        G(g.text(2, "g"))
            .typed("c", 9, "")
            .input("x", "3")
            .model(16)
            .0,
        None,
    )
    .map(|f| shopfloor_onnx::import_file(&f, &Default::default()).map(|_| ()));
}

#[test]
fn damaged_models_are_errors_never_panics() {
    let zoo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models");
    let share = testing::Share::of_run(4);
    println!("{share}");
    let mut drawn = fastrand::Rng::with_seed(7 + share.number);
    let mut tried = 0;
    for e in std::fs::read_dir(zoo).unwrap().flatten() {
        let Ok(whole) = std::fs::read(e.path().join("model.onnx")) else {
            continue;
        };
        let rounds = if whole.len() > 4_000_000 { 15 } else { 60 };
        for _ in 0..rounds {
            let mut bytes = whole.clone();
            for _ in 0..drawn.usize(1..=3) {
                let at = drawn.usize(..bytes.len());
                bytes[at] ^= 1 << drawn.u32(..8);
            }
            if let Ok(f) = shopfloor_onnx::ModelFile::from_bytes(bytes, None) {
                let _ = shopfloor_onnx::import_file(&f, &Default::default());
            }
            tried += 1;
        }
    }
    assert!(tried > 0);
}

#[test]
fn an_initialiser_that_nobody_reads_is_as_long_as_its_dims() {
    let with = |w: crate::import::encode::Msg| {
        let g = G::new().input("x", "3").weight(w);
        g.op("Neg", "x", "y").output("y").import(13)
    };
    with(f32s("w", &[2, 0], &[])).unwrap();
    for w in [
        f32s("w", &[1 << 62, 4], &[]),
        f32s("w", &[2, 2], &[1.0; 3]),
        crate::import::encode::tensor("w", 7, &[3]).packed(7, &[1, 2]),
        crate::import::encode::tensor("w", 10, &[3]).packed(5, &[1, 2]),
    ] {
        let e = with(w).unwrap_err().to_string();
        assert!(e.contains("tensor 'w'") && e.contains("export"), "{e}");
    }
}
