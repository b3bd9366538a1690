//! Lowerings, as graph text beside this file.
use crate::import::made::*;
use std::path::Path;

fn check(name: &str, g: G, version: i64) {
    let i = g.import(version).unwrap_or_else(|e| panic!("{name}: {e}"));
    let text = i.graph.to_text();
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/import/golden/{name}.txt"));
    if std::env::var_os("SHOPFLOOR_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        text, want,
        "{name}: the lowering changed; look at it, then set SHOPFLOOR_WRITE_GOLDEN=1"
    );
}

#[test]
fn lowerings_of_rows_and_products_are_as_written() {
    let x = |s: &str| G::new().input("x", s);
    check("softmax", x("b 8").op("Softmax", "x", "y").output("y"), 13);
    check(
        "softmax_before_13",
        x("b 3 4").op("Softmax", "x", "y").output("y"),
        11,
    );
    let w = |n: &str| f32s(n, &[4], &[1.0; 4]);
    check(
        "layer_norm",
        x("b 4")
            .weight(w("g"))
            .weight(w("h"))
            .op("LayerNormalization", "x g h", "y")
            .output("y"),
        17,
    );
    check(
        "rms_norm",
        x("b 4")
            .weight(w("g"))
            .op("RMSNormalization", "x g", "y")
            .output("y"),
        23,
    );
    check(
        "batch_norm",
        x("b 4 n")
            .weight(w("s"))
            .weight(w("t"))
            .weight(w("m"))
            .weight(w("v"))
            .op("BatchNormalization", "x s t m v", "y")
            .output("y"),
        15,
    );
    check(
        "matmul",
        x("b h s 16")
            .input("k", "h 16 t")
            .op("MatMul", "x k", "y")
            .output("y"),
        13,
    );
    check(
        "gemm",
        x("b 4")
            .weight(f32s("k", &[2, 4], &[0.0; 8]))
            .weight(f32s("c", &[2], &[0.0; 2]))
            .node(node(
                "Gemm",
                "x k c",
                "y",
                vec![("transB", A::I(1)), ("alpha", A::F(0.5))],
            ))
            .output("y"),
        13,
    );
}

#[test]
fn lowerings_of_windows_are_as_written() {
    let x = |s: &str| G::new().input("x", s);
    let w = |n: &str| f32s(n, &[4], &[1.0; 4]);
    check(
        "conv",
        x("b 2 h w")
            .weight(f32s("k", &[4, 1, 3, 3], &[0.0; 36]))
            .weight(w("c"))
            .node(node(
                "Conv",
                "x k c",
                "y",
                vec![("group", A::I(2)), ("auto_pad", A::S("SAME_UPPER"))],
            ))
            .output("y"),
        13,
    );
    check(
        "conv_transpose",
        x("b 2 h")
            .weight(f32s("k", &[2, 1, 4], &[0.0; 8]))
            .node(node(
                "ConvTranspose",
                "x k",
                "y",
                vec![
                    ("strides", A::Is(vec![2])),
                    ("output_padding", A::Is(vec![1])),
                ],
            ))
            .output("y"),
        13,
    );
    check(
        "average_pool_ceil",
        x("1 2 6")
            .node(node(
                "AveragePool",
                "x",
                "y",
                vec![
                    ("kernel_shape", A::Is(vec![3])),
                    ("strides", A::Is(vec![2])),
                    ("pads", A::Is(vec![1, 1])),
                    ("ceil_mode", A::I(1)),
                    ("count_include_pad", A::I(1)),
                ],
            ))
            .output("y"),
        13,
    );
}

#[test]
fn lowerings_of_the_rest_are_as_written() {
    let x = |s: &str| G::new().input("x", s);
    check(
        "argmax",
        x("b 8")
            .node(node(
                "ArgMax",
                "x",
                "y",
                vec![("axis", A::I(1)), ("keepdims", A::I(0))],
            ))
            .output("y"),
        13,
    );
    check(
        "one_hot",
        G::new()
            .typed("i", 7, "n")
            .weight(scalar("d", 3))
            .weight(f32s("v", &[2], &[0.0, 1.0]))
            .op("OneHot", "i d v", "y")
            .output("y"),
        13,
    );
    check(
        "attention",
        G::new()
            .input("q", "b 4 s 8")
            .input("k", "b 2 s 8")
            .input("v", "b 2 s 8")
            .input("pk", "b 2 p 8")
            .input("pv", "b 2 p 8")
            .node(node(
                "Attention",
                "q k v _ pk pv",
                "y nk nv",
                vec![("is_causal", A::I(1))],
            ))
            .output("y")
            .output("nk")
            .output("nv"),
        23,
    );
    check(
        "dequantize_blocked",
        x("b 4")
            .typed("q", 3, "8 4")
            .weight(f32s("s", &[2, 4], &[1.0; 8]))
            .node(node(
                "DequantizeLinear",
                "q s",
                "y",
                vec![("axis", A::I(0)), ("block_size", A::I(4))],
            ))
            .output("y"),
        21,
    );
    check("shape_of", x("b 3 n").op("Shape", "x", "y").output("y"), 13);
}
