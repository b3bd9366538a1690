//! Programs as text.
use crate::common;
use common::*;
use kernel::TileProgram;
use layout::{DType, Dim};
use shopfloor_kernel as kernel;

#[test]
fn gemm_reads_like_the_page() {
    let d = Dim::Known;
    let p = TileProgram::new(
        gemm(Dim::sym("b"), d(4096), d(4096), DType::F16),
        gemm_gpu(),
    )
    .unwrap();
    let text = p.to_string();
    let expected = [
        "kernel gemm (Contract)",
        "  space  m: b  n: 4096  k: 4096",
        "  read   A f16 = m*(4096) + k*(1)",
        "grid m by 128, n by 128, chunk 1, raster 1",
        "  acc : f32 [m,n] in registers = 0",
        "  loop k by 32",
        "    a : f16 [m,k] in shared, 3 stages, swizzle(3,3,3) = load A",
        "    acc += contract a . b over k",
        "  store Y = y",
    ];
    let mut lines = text.lines();
    for e in expected {
        assert!(
            lines.any(|l| l.starts_with(e)),
            "'{e}' is missing or out of order in\n{text}"
        );
    }
}

#[test]
fn attention_shows_its_fold() {
    let d = Dim::Known;
    let p = TileProgram::new(attention(d(2), d(50), d(50), d(16)), attention_cpu(8, 16)).unwrap();
    let text = p.to_string();
    assert!(
        text.contains("m = fold max of s over t, rescaling l, o"),
        "{text}"
    );
    let p = TileProgram::new(conv(14, 14, 8, 16, 2), conv_cpu(2)).unwrap();
    assert!(
        p.to_string()
            .contains("where 0 <= oh*(2) + r*(1) + -1 < 14"),
        "{p}"
    );
    let p = TileProgram::new(gather(d(5), 10, 8), gather_cpu(4)).unwrap();
    assert!(p.to_string().contains("index[..]*(8) below 10"), "{p}");
}
