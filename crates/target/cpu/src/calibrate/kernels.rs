//! Rates of what no single instruction does, measured with the kernels that plans run.
use super::rate::Rate;
use crate::exec::copy::strided_copy;
use crate::isa::Isa;
use crate::ukr::kernels::kernels;
use machine::{NumType, UnitClass};
use std::hint::black_box;

/// Elements of a row: with its result it lies in the nearest cache.
const ROW: usize = 2048;
/// Distance of neighbours that lie apart, in elements: no multiple of a cache line.
const APART: usize = 3;

/// The exponential, and elements moved one by one.
pub(crate) fn rates() -> Vec<Rate> {
    let rate = |class, run| Rate {
        class,
        dtype: NumType::F32,
        isa: "",
        lanes: (Isa::detect().lanes()) as u64,
        ops_per_pass: ROW as f64,
        run,
    };
    vec![
        rate(UnitClass::Transcendental, exponentials as fn(usize)),
        rate(UnitClass::Element, elements),
    ]
}

fn exponentials(passes: usize) {
    let f = kernels(Isa::detect()).exp;
    let x = black_box(vec![0.5f32; ROW]);
    let mut y = vec![0f32; ROW];
    for _ in 0..passes {
        // SAFETY: the kernels are those of an instruction set that is there; ROW elements each.
        unsafe { f(x.as_ptr(), y.as_mut_ptr(), ROW) };
    }
    black_box(y);
}

fn elements(passes: usize) {
    let k = kernels(Isa::detect());
    let x = black_box(vec![0.5f32; ROW * APART]);
    let mut y = vec![0f32; ROW];
    let (to, from, n) = ([1i64], [APART as i64], [ROW as i64]);
    for _ in 0..passes {
        // SAFETY: ROW elements of `y`, and of `x` every APART-th of ROW * APART.
        unsafe {
            strided_copy(
                k,
                4,
                y.as_mut_ptr().cast(),
                &to,
                x.as_ptr().cast(),
                &from,
                &n,
            )
        };
    }
    black_box(y);
}
