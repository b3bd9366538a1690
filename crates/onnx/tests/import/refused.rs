//! Models that are refused: with one list, or one sentence.
use crate::encode::{msg, tensor};
use crate::made::*;
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
        .op("ImageDecoder", "x", "a")
        .op("Neg", "a", "b")
        .op("com.microsoft::Inverse", "b", "d")
        .node(node(
            "If",
            "c",
            "e",
            vec![
                ("then_branch", branch("Gradient")),
                ("else_branch", branch("Relu")),
            ],
        ))
        .op("Relu", "x", "y")
        .output("y");
    let Err(ImportError::Unsupported(list)) = g.import(14) else {
        panic!("accepted")
    };
    let ops: Vec<&str> = list.iter().map(|u| u.operator.as_str()).collect();
    assert_eq!(ops, ["ImageDecoder", "Gradient", "Inverse"]);
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

#[test]
fn contradictions_are_errors_not_panics() {
    let x = || G::new().input("x", "2 3 4 5");
    let cases: Vec<(G, &str)> = vec![
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
    ];
    for (i, (g, part)) in cases.into_iter().enumerate() {
        match g.output("y").import(13) {
            Err(e) => assert!(e.to_string().contains(part), "case {i}: {e}"),
            Ok(m) => assert!(part.is_empty(), "case {i} accepted:\n{}", m.graph.to_text()),
        }
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
    let zoo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let mut seed = 7u64;
    let mut next = move || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize
    };
    let mut tried = 0;
    for e in std::fs::read_dir(zoo).unwrap().flatten() {
        let Ok(whole) = std::fs::read(e.path().join("model.onnx")) else {
            continue;
        };
        let rounds = if whole.len() > 4_000_000 { 60 } else { 250 };
        for _ in 0..rounds {
            let mut bytes = whole.clone();
            for _ in 0..1 + next() % 3 {
                let at = next() % bytes.len();
                bytes[at] ^= 1 << (next() % 8);
            }
            if let Ok(f) = shopfloor_onnx::ModelFile::from_bytes(bytes, None) {
                let _ = shopfloor_onnx::import_file(&f, &Default::default());
            }
            tried += 1;
        }
    }
    assert!(tried > 0);
}
