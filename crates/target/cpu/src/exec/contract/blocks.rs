//! Products of types without micro-kernels (f64, 32 and 64-bit integers): a few rows by a few vectors of lanes,
//! summed in registers along the summed axes in their order. Plain loops, compiled once per instruction set.
use super::job::{Job, next};
use crate::exec::{CContract, Ctx, MAX_AXES};
use crate::isa::Isa;

/// Rows of a block.
const ROWS: usize = 4;
/// Lanes of a block.
const LANES: usize = 16;

/// Elements that are multiplied and summed.
pub(super) trait Element: Copy {
    /// `sum + x * y`, rounded once where `fused`.
    fn step(sum: Self, x: Self, y: Self, fused: bool) -> Self;
}

impl Element for f64 {
    #[inline(always)]
    fn step(sum: f64, x: f64, y: f64, fused: bool) -> f64 {
        match fused {
            true => x.mul_add(y, sum),
            false => sum + x * y,
        }
    }
}

impl Element for i32 {
    #[inline(always)]
    fn step(sum: i32, x: i32, y: i32, _: bool) -> i32 {
        sum.wrapping_add(x.wrapping_mul(y))
    }
}

impl Element for i64 {
    #[inline(always)]
    fn step(sum: i64, x: i64, y: i64, _: bool) -> i64 {
        sum.wrapping_add(x.wrapping_mul(y))
    }
}

/// Where the elements of a block lie, and how far apart they are.
#[derive(Clone, Copy)]
struct Block<T> {
    a: *const T,
    b: *const T,
    c: *mut T,
    /// From one row to the next, in A and C.
    rows: (isize, isize),
    /// The summed axes but the innermost, outermost first, with their steps in A and B.
    outer: [(i64, isize, isize); MAX_AXES],
    outers: usize,
    /// The innermost one.
    inner: (i64, isize, isize),
}

/// Runs a product of whose lanes B and C are contiguous; false where they lie otherwise.
pub(super) fn run<T: Element>(ctx: &Ctx, c: &CContract, job: &Job) -> bool {
    let (len, isa) = (&ctx.len, ctx.kernel.kernels.isa);
    let Some(lane) = c.lane else { return false };
    let plain = job.b.block.is_none() && job.a.st[lane] == 0;
    if !plain || job.b.st[lane] != 1 || job.c.st[lane] != 1 || c.depthwise {
        return false;
    }
    let others = || c.rows.iter().chain(&c.columns).chain(&c.batch).copied();
    if others()
        .chain([lane])
        .chain(c.over.iter().copied())
        .any(|x| len[x] <= 0)
    {
        return true;
    }
    let row = c
        .rows
        .iter()
        .rev()
        .copied()
        .find(|&r| len[r] > 1 && job.b.st[r] == 0);
    let (mut axes, mut n) = ([0usize; MAX_AXES], 0);
    for x in others().filter(|x| Some(*x) != row) {
        axes[n] = x;
        n += 1;
    }
    let along = |x: usize| (len[x], job.a.st[x] as isize, job.b.st[x] as isize);
    let (inner, rest) = match c.over.split_last() {
        Some((&x, rest)) => (along(x), rest),
        None => ((1, 0, 0), &[][..]),
    };
    let mut outer = [(0, 0, 0); MAX_AXES];
    for (o, &x) in outer.iter_mut().zip(rest) {
        *o = along(x);
    }
    let strides = row.map_or((0, 0), |r| (job.a.st[r] as isize, job.c.st[r] as isize));
    let (rows, lanes) = (row.map_or(1, |r| len[r] as usize), len[lane] as usize);
    let mut i = [0i64; MAX_AXES];
    loop {
        let at =
            |st: &[i64; MAX_AXES]| axes[..n].iter().map(|&x| i[x] * st[x]).sum::<i64>() as isize;
        let whole = Block {
            a: job
                .a
                .ptr
                .cast::<T>()
                .cast_const()
                .wrapping_offset(at(&job.a.st)),
            b: job
                .b
                .ptr
                .cast::<T>()
                .cast_const()
                .wrapping_offset(at(&job.b.st)),
            c: job.c.ptr.cast::<T>().wrapping_offset(at(&job.c.st)),
            rows: strides,
            outer,
            outers: rest.len(),
            inner,
        };
        // A strip of B stays near while it meets all rows.
        let mut lane = 0;
        while lane < lanes {
            let wide = lanes - lane >= LANES;
            let mut r = 0;
            while r < rows {
                let many = rows - r >= ROWS;
                let b = Block {
                    a: whole.a.wrapping_offset(r as isize * strides.0),
                    b: whole.b.wrapping_add(lane),
                    c: whole
                        .c
                        .wrapping_offset(r as isize * strides.1)
                        .wrapping_add(lane),
                    ..whole
                };
                // SAFETY: rows and lanes of the current pieces; tiles are aligned to their elements; the
                // instruction set is the device's.
                unsafe {
                    match (many, wide) {
                        (true, true) => block::<T, ROWS, LANES>(isa, &b),
                        (true, false) => block::<T, ROWS, 1>(isa, &b),
                        (false, true) => block::<T, 1, LANES>(isa, &b),
                        (false, false) => block::<T, 1, 1>(isa, &b),
                    }
                }
                r += if many { ROWS } else { 1 };
            }
            lane += if wide { LANES } else { 1 };
        }
        if !next(&axes[..n], &mut i, len) {
            return true;
        }
    }
}

/// Sums one block.
///
/// # Safety
/// Its elements are there, C's are nobody else's, and the processor has the instructions of `isa`.
unsafe fn block<T: Element, const R: usize, const L: usize>(isa: Isa, b: &Block<T>) {
    // SAFETY: as the caller says.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => widest::<T, R, L>(b),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => wide::<T, R, L>(b),
            _ => sums::<T, R, L>(b, false),
        }
    }
}

/// # Safety
/// As [`block`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,fma,avx2")]
unsafe fn widest<T: Element, const R: usize, const L: usize>(b: &Block<T>) {
    // SAFETY: as the caller says.
    unsafe { sums::<T, R, L>(b, true) }
}

/// # Safety
/// As [`block`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn wide<T: Element, const R: usize, const L: usize>(b: &Block<T>) {
    // SAFETY: as the caller says.
    unsafe { sums::<T, R, L>(b, true) }
}

/// # Safety
/// As [`block`].
#[inline(always)]
unsafe fn sums<T: Element, const R: usize, const L: usize>(d: &Block<T>, fused: bool) {
    // SAFETY: as the caller says.
    unsafe {
        let row = |r: usize| d.c.wrapping_offset(r as isize * d.rows.1).cast::<[T; L]>();
        let mut sum: [[T; L]; R] = std::array::from_fn(|r| *row(r));
        let mut k = [0i64; MAX_AXES];
        let (n, sa, sb) = d.inner;
        loop {
            let outer = d.outer[..d.outers].iter().zip(&k);
            let (qa, qb) = outer.fold((0, 0), |(qa, qb), (o, k)| {
                (qa + *k as isize * o.1, qb + *k as isize * o.2)
            });
            let (mut a, mut b) = (d.a.wrapping_offset(qa), d.b.wrapping_offset(qb));
            for _ in 0..n {
                let y = *b.cast::<[T; L]>();
                for (r, sum) in sum.iter_mut().enumerate() {
                    let x = *a.wrapping_offset(r as isize * d.rows.0);
                    for (s, y) in sum.iter_mut().zip(y) {
                        *s = T::step(*s, x, y, fused);
                    }
                }
                (a, b) = (a.wrapping_offset(sa), b.wrapping_offset(sb));
            }
            let mut more = false;
            for x in (0..d.outers).rev() {
                k[x] += 1;
                if k[x] < d.outer[x].0 {
                    more = true;
                    break;
                }
                k[x] = 0;
            }
            if !more {
                break;
            }
        }
        for (r, s) in sum.iter().enumerate() {
            *row(r) = *s;
        }
    }
}
