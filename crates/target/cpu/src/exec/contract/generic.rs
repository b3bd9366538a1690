//! Contractions of any layout and type, element by element.
use super::blocks;
use super::job::{Job, next};
use crate::exec::{CContract, Ctx, MAX_AXES};
use expr::{Binary, Scalar};
use half::{bf16, f16};
use layout::{DType, to_odd_f32};

/// Runs a contraction; factors have the accumulator's type.
pub(in crate::exec) fn run(ctx: &Ctx, c: &CContract, job: &Job) {
    let done = match c.dtype {
        DType::F64 => blocks::run::<f64>(ctx, c, job),
        DType::I32 | DType::U32 => blocks::run::<i32>(ctx, c, job),
        DType::I64 | DType::U64 => blocks::run::<i64>(ctx, c, job),
        _ => false,
    };
    if done {
        return;
    }
    match c.dtype {
        DType::F32 => typed::<f32>(ctx, c, job, |x, y, z| x + y * z),
        DType::F64 => typed::<f64>(ctx, c, job, |x, y, z| x + y * z),
        DType::I32 | DType::U32 => {
            typed::<i32>(ctx, c, job, |x, y, z| x.wrapping_add(y.wrapping_mul(z)))
        }
        DType::I64 | DType::U64 => {
            typed::<i64>(ctx, c, job, |x, y, z| x.wrapping_add(y.wrapping_mul(z)))
        }
        DType::I16 | DType::U16 => {
            typed::<i16>(ctx, c, job, |x, y, z| x.wrapping_add(y.wrapping_mul(z)))
        }
        DType::I8 | DType::U8 | DType::I4 | DType::U4 => {
            typed::<i8>(ctx, c, job, |x, y, z| x.wrapping_add(y.wrapping_mul(z)))
        }
        DType::Bool => typed::<u8>(ctx, c, job, |x, y, z| x | (y & z)),
        DType::F16 => typed::<u16>(ctx, c, job, |x, y, z| {
            let f = |v: u16| Scalar::Float(f16::from_bits(v).to_f64());
            let d = DType::F16;
            let sum = f(x).binary(Binary::Add, f(y).binary(Binary::Mul, f(z), d), d);
            f16::from_f32(to_odd_f32(sum.as_f64())).to_bits()
        }),
        DType::BF16 => typed::<u16>(ctx, c, job, |x, y, z| {
            let f = |v: u16| Scalar::Float(bf16::from_bits(v).to_f64());
            let d = DType::BF16;
            let sum = f(x).binary(Binary::Add, f(y).binary(Binary::Mul, f(z), d), d);
            bf16::from_f32(to_odd_f32(sum.as_f64())).to_bits()
        }),
        // The verifier lets no kernel have these.
        DType::Str | DType::Host => {}
    }
}

fn typed<T: Copy>(ctx: &Ctx, c: &CContract, job: &Job, step: impl Fn(T, T, T) -> T) {
    let len = &ctx.len;
    let kept = || {
        c.rows
            .iter()
            .chain(&c.columns)
            .chain(&c.batch)
            .chain(&c.lane)
    };
    if kept().chain(&c.over).any(|&a| len[a] <= 0) {
        return;
    }
    let (mut axes, mut n) = ([0usize; MAX_AXES], 0);
    for &a in kept() {
        axes[n] = a;
        n += 1;
    }
    let axes = &axes[..n];
    let (inner, outer) = match c.over.split_last() {
        Some((i, o)) => (Some(*i), o),
        None => (None, &[][..]),
    };
    let (a, b, o) = (
        job.a.ptr.cast::<T>(),
        job.b.ptr.cast::<T>(),
        job.c.ptr.cast::<T>(),
    );
    // B may lie in blocks along one axis.
    let b_at = |x: usize, i: i64| match job.b.block {
        Some(k) if k.axis == x => i / k.size * k.stride + i % k.size * job.b.st[x],
        _ => i * job.b.st[x],
    };
    let mut i = [0i64; MAX_AXES];
    loop {
        let (mut pa, mut pb, mut po) = (0i64, 0i64, 0i64);
        for &x in axes {
            pa += i[x] * job.a.st[x];
            pb += b_at(x, i[x]);
            po += i[x] * job.c.st[x];
        }
        // SAFETY: coordinates of the current pieces; tiles are aligned to their elements.
        unsafe {
            let mut sum = *o.offset(po as isize);
            let mut k = [0i64; MAX_AXES];
            loop {
                let (mut qa, mut qb) = (pa, pb);
                for &x in outer {
                    qa += k[x] * job.a.st[x];
                    qb += b_at(x, k[x]);
                }
                match inner {
                    None => sum = step(sum, *a.offset(qa as isize), *b.offset(qb as isize)),
                    Some(x) => {
                        let (sa, sb) = (job.a.st[x] as isize, job.b.st[x] as isize);
                        for j in 0..len[x] as isize {
                            sum = step(
                                sum,
                                *a.offset(qa as isize + j * sa),
                                *b.offset(qb as isize + j * sb),
                            );
                        }
                    }
                }
                if !next(outer, &mut k, len) {
                    break;
                }
            }
            *o.offset(po as isize) = sum;
        }
        if !next(axes, &mut i, len) {
            return;
        }
    }
}
