//! Kernels read back from their text.
mod common;
use common::*;
use kernel::{Kernel, KernelError, Stmt};
use layout::{DType, Dim};
use shopfloor_kernel as kernel;

/// `k` with its programs in the order in which a text gives them.
fn ordered(mut k: Kernel) -> Kernel {
    for s in &mut k.body {
        if let Stmt::Map { expr, .. } = s {
            *expr = expr.in_order();
        }
    }
    k
}

fn round_trip(k: &Kernel) {
    let text = k.to_string();
    let back = Kernel::parse(&text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    assert_eq!(ordered(back.clone()), ordered(k.clone()), "{text}");
    assert_eq!(back.to_string(), text);
}

#[test]
fn kernels_of_every_kind_are_read_back() {
    let d = Dim::Known;
    for k in [
        gemm(Dim::sym("b"), d(4096), d(4096), DType::F16),
        gemm(
            Dim::sym("b") * Dim::sym("s") - d(3),
            d(7),
            Dim::sym("k x"),
            DType::F32,
        ),
        attention(d(2), d(50), Dim::sym("past") + d(1), d(16)),
        conv(14, 14, 8, 16, 2),
        gather(d(5), 10, 8),
    ] {
        round_trip(&k);
    }
}

#[test]
fn a_kernel_written_by_hand_is_what_it_says() {
    let text = "
        # Comments and indentation do not matter.
        kernel window_mean (row)
        space  s: sensors  w: window
        read   x f32 = s*(window) + w*1
        write  mean f32 = s*(1) of sensors
        v : f32 [s,w] = load x
        sum : f32 [s] = 0
        sum = fold sum of v over w
        m : f32 [s] = sum/f32({window})
        store mean = m";
    let k = Kernel::parse(text).unwrap();
    k.verify().unwrap();
    let all = Dim::sym("sensors") * Dim::sym("window");
    assert_eq!(k.operands[0].elements, all);
    assert_eq!((k.axes.len(), k.tiles.len(), k.body.len()), (2, 3, 5));
    round_trip(&k);
}

#[test]
fn a_reduction_over_nothing_is_read_back() {
    let text = "kernel k (row)\n  space  n: 8\n  read   x f32 = n*(1)\n  write  y f32 = n*(1)
        a : f32 [n] = load x
        s : f32 [n] = 0
        s = fold sum of a over
        store y = s";
    let k = Kernel::parse(text).unwrap();
    assert!(k.body[2].over().is_empty());
    round_trip(&k);
}

#[test]
fn a_kernel_of_one_element_and_a_padded_stride_are_read_back() {
    let text = "kernel k (map)\n  space\n  read   x f32 = 3 of 8\n  write  y f32 = 0
        a : f32 [] = load x
        store y = a";
    let k = Kernel::parse(text).unwrap();
    k.verify().unwrap();
    assert!(k.axes.is_empty());
    round_trip(&k);
    // One stride that is not taken apart, over more than the axis has.
    let text =
        "kernel k (map)\n  space  n: 6\n  read   x f32 = n as (8)*(1)\n  write  y f32 = n*(1)
        a : f32 [n] = load x
        store y = a";
    let k = Kernel::parse(text).unwrap();
    k.verify().unwrap();
    assert_eq!(
        k.operands[0].access.terms[0].leaves[0].extent,
        Dim::Known(8)
    );
    round_trip(&k);
}

#[test]
fn faults_are_named_with_line_and_column() {
    let head = "kernel k (map)\nspace  n: 8\nread   x f32 = n*(1)\nwrite  y f32 = n*(1)\n";
    for (text, line, column, part) in [
        ("kernl k (map)", 1, 1, "begins with"),
        ("kernel k (frob)", 1, 11, "frob"),
        ("kernel k (map)\nspace  n; 8", 2, 8, "name: extent"),
        ("kernel k (map)\nspace  n: 8 +", 2, 11, "dimension"),
        ("kernel k (map)\n  read  x f33 = 0", 2, 11, "f33"),
        (&format!("{head}a : f32 [n] = load z"), 5, 20, "'z'"),
        (&format!("{head}a : f32 [q] = load x"), 5, 10, "'q'"),
        (
            &format!("{head}a : f32 [n] = load x\nb : f32 [n] = a + c"),
            6,
            19,
            "'c'",
        ),
        (&format!("{head}b : f32 [n] = b + 1"), 5, 15, "'b'"),
        (&format!("{head}store y = a"), 5, 11, "'a'"),
        (&format!("{head}a = fold frob of b over n"), 5, 1, "'a'"),
        (&format!("{head}hello"), 5, 1, "statement"),
        ("", 1, 1, "empty"),
    ] {
        match Kernel::parse(text) {
            Err(KernelError::Text {
                line: l,
                column: c,
                why,
            }) => {
                assert_eq!((l, c), (line, column), "{text}: {why}");
                assert!(why.contains(part), "{text}: {why}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn damaged_texts_are_refused_or_read_and_never_more() {
    let text = attention(Dim::Known(2), Dim::Known(50), Dim::sym("p"), Dim::Known(16)).to_string();
    // Bytes taken out, doubled and replaced, at every place.
    for at in 0..text.len() {
        for with in [
            "",
            "(",
            ")",
            "`",
            "[",
            "{",
            "*",
            " = ",
            "\n",
            "9999999999999999999",
            "é",
        ] {
            if let (Some(a), Some(b)) = (text.get(..at), text.get(at + 1..))
                && let Ok(k) = Kernel::parse(&format!("{a}{with}{b}"))
            {
                let _ = k.verify();
            }
        }
    }
}
