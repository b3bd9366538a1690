//! Products and convolutions.
use super::Case;
use crate::Rng;
use crate::build::{B, at, blocked, bound, expr, n};
use expr::functions;
use kernel::{Access, Family, Kernel, Term};
use layout::{DType, Leaf};

const F: DType = DType::F32;

/// y[b, m, n] = f(a[b, m, k] w[b or not, k, n] + c[n]), in several layouts and types.
pub(super) fn product(rng: &mut Rng) -> Case {
    let types = [
        (F, F, F),
        (F, F, F),
        (DType::F16, DType::F16, F),
        (DType::BF16, DType::BF16, F),
        (DType::BF16, F, F),
        (DType::I8, DType::I8, DType::I32),
        (DType::U8, DType::I8, DType::I32),
    ];
    product_of(rng, &types)
}

/// The same in types that GPUs lack.
pub(super) fn wide_product(rng: &mut Rng) -> Case {
    let types = [DType::F64, DType::I64].map(|d| (d, d, d));
    product_of(rng, &types)
}

/// Types of the factors and of the sum are one of `types`.
fn product_of(rng: &mut Rng, types: &[(DType, DType, DType)]) -> Case {
    let (batch, m, nn, k) = (
        rng.of(&[1, 1, 3]),
        rng.extent(40),
        rng.extent(40),
        rng.extent(40),
    );
    let types = rng.of(types);
    product_sized(rng, [batch, m, nn, k], types, false)
}

/// The same of so many matrices, rows, columns and products, and types.
fn product_sized(
    rng: &mut Rng,
    [batch, m, nn, k]: [i64; 4],
    (ta, tw, acc): (DType, DType, DType),
    deep: bool,
) -> Case {
    // Tiles lie along their last axis: the columns, or what is summed.
    let (kx, nx) = if deep { (3, 2) } else { (2, 3) };
    let mut axes = [("b", n(batch)), ("m", n(m)), ("k", n(k)), ("n", n(nn))];
    if deep {
        axes.swap(2, 3);
    }
    let mut b = B::new("product", Family::Contract, &axes);
    let a = match rng.once_in(3) {
        true => at(&[(0, m * k), (1, 1), (kx, m)]),
        false => at(&[(0, m * k), (1, k), (kx, 1)]),
    };
    let shared = rng.once_in(2);
    let step = if shared { 0 } else { nn * k };
    let w = match rng.once_in(2) {
        true => at(&[(0, step), (nx, 1), (kx, nn)]),
        false => at(&[(0, step), (nx, k), (kx, 1)]),
    };
    let oa = b.read(ta, batch * m * k, a);
    let ow = b.read(tw, batch * nn * k, w);
    let y = b.fill(acc, &[0, 1, nx], 0.0);
    let x = b.load(oa, &[0, 1, kx]);
    let v = if shared {
        let access = &mut b.k.operands[ow as usize].access;
        access.terms.retain(|t| t.axis != 0);
        b.load(ow, &[2, 3])
    } else {
        b.load(ow, &[0, 2, 3])
    };
    b.contract(y, x, v, &[kx]);
    let mut last = y;
    if acc == F && rng.once_in(2) {
        let oc = b.read(F, nn, at(&[(nx, 1)]));
        let c = b.load(oc, &[nx]);
        last = b.map(
            F,
            &[0, 1, nx],
            &[y, c],
            expr(|e| {
                let (x, c) = (e.input(0, F), e.input(1, F));
                let s = e.add(x, c);
                functions::gelu_erf(e, s, F)
            }),
        );
    }
    let mut out = acc;
    if acc == F && rng.once_in(3) {
        out = DType::F16;
        last = b.map(
            out,
            &[0, 1, nx],
            &[last],
            expr(|e| {
                let x = e.input(0, F);
                e.cast(x, DType::F16)
            }),
        );
    }
    let oy = b.write(out, batch * m * nn, at(&[(0, m * nn), (1, nn), (nx, 1)]));
    b.store(oy, last);
    Case::new(b.0.k, if out == DType::F16 { 2e-3 } else { 2e-5 }).of_sums()
}

/// A product with its second factor in panels of 16 or 64 columns, as packing leaves it.
pub(super) fn panels(rng: &mut Rng) -> Case {
    let (m, nn, k) = (rng.extent(40), rng.extent(67), rng.extent(67));
    let (nr, gelu) = (rng.of(&[16, 64]), rng.once_in(2));
    Case::new(panels_of(m, nn, k, nr, gelu), 2e-5).of_sums()
}

/// `y[m, n] = a[m, k] w[k, n]`, or gelu of that and `c[n]`; `w` lies in panels of `nr` columns.
pub fn panels_of(m: i64, nn: i64, k: i64, nr: i64, gelu: bool) -> Kernel {
    let axes = [("m", n(m)), ("k", n(k)), ("n", n(nn))];
    let mut b = B::new("gemm", Family::Contract, &axes);
    let oa = b.read(F, m * k, at(&[(0, k), (1, 1)]));
    let blocks = (nn + nr - 1) / nr;
    let terms = vec![
        blocked(2, blocks, k * nr, nr, 1),
        Term::flat(1, n(k), n(nr)),
    ];
    let ow = b.read(F, blocks * nr * k, Access::strided(n(0), terms));
    let acc = b.fill(F, &[0, 2], 0.0);
    let (a, w) = (b.load(oa, &[0, 1]), b.load(ow, &[1, 2]));
    b.contract(acc, a, w, &[1]);
    let mut last = acc;
    if gelu {
        let oc = b.read(F, nn, at(&[(2, 1)]));
        let c = b.load(oc, &[2]);
        let e = expr(|e| {
            let (x, c) = (e.input(0, F), e.input(1, F));
            let s = e.add(x, c);
            functions::gelu_erf(e, s, F)
        });
        last = b.map(F, &[0, 2], &[acc, c], e);
    }
    let oy = b.write(F, m * nn, at(&[(0, nn), (2, 1)]));
    b.store(oy, last);
    b.0.k
}

/// A convolution, channels last or first.
pub(super) fn conv(rng: &mut Rng) -> Case {
    let (batch, c, oc) = (rng.of(&[0, 1, 1, 2]), rng.some(17), rng.some(33));
    let shape = rng.of(&[(3, 1, 1), (3, 2, 1), (1, 1, 0), (5, 2, 2), (7, 2, 3)]);
    let h = rng.some(9).max(shape.0);
    let first = rng.once_in(2);
    conv_of([batch, h, c, oc], shape, first, false)
}

/// Types of factors that matrix instructions take.
pub(super) const FACTORS: [DType; 3] = [DType::F16, DType::BF16, DType::F32];

/// Extents near those of fragments.
pub(super) fn fragment_extent(rng: &mut Rng) -> i64 {
    rng.of(&[1, 8, 15, 16, 17, 24, 32, 40, 64, 70])
}

/// A product for matrix instructions.
pub(super) fn matrix_product(rng: &mut Rng) -> Case {
    let integers = [
        (DType::U8, DType::I8),
        (DType::I8, DType::U8),
        (DType::I8, DType::I8),
    ];
    let types = match rng.once_in(3) {
        true => {
            let (a, b) = rng.of(&integers);
            (a, b, DType::I32)
        }
        false => {
            let d = rng.of(&FACTORS);
            (d, d, F)
        }
    };
    let (m, nn, k) = (
        fragment_extent(rng),
        fragment_extent(rng),
        fragment_extent(rng),
    );
    let batch = rng.of(&[1, 1, 2]);
    // Those of 8 bits are read along the depth alone.
    let deep = types.2 != F || rng.once_in(2);
    product_sized(rng, [batch, m, nn, k], types, deep)
}

/// A product for instructions of warpgroups, with whole pieces of the depth, along which both factors lie.
pub fn warpgroup_product(rng: &mut Rng) -> Case {
    let types = warpgroup_types(rng);
    let (m, nn, k) = (rng.some(150), rng.some(100), 128 * rng.some(4));
    // Lanes exchange what they store where eight neighbours lie together.
    let nn = if rng.once_in(2) { (nn + 7) / 8 * 8 } else { nn };
    product_sized(rng, [1, m, nn, k], types, true)
}

/// The same of more tasks, whose depth is no whole number of pieces now and then.
pub fn clustered_product(rng: &mut Rng) -> Case {
    let types = warpgroup_types(rng);
    let grain = i64::from(128 / types.0.bits());
    let (m, nn) = (rng.some(300), 8 * rng.some(24));
    let k = match rng.once_in(2) {
        true => 128 * rng.some(3),
        false => grain * rng.some(320 / grain),
    };
    let batch = rng.of(&[1, 1, 2]);
    product_sized(rng, [batch, m, nn, k], types, true)
}

/// Types of the factors of a product by warpgroups, and of its sums.
fn warpgroup_types(rng: &mut Rng) -> (DType, DType, DType) {
    rng.of(&[
        (F, F, F),
        (F, F, F),
        (DType::F16, DType::F16, F),
        (DType::BF16, DType::BF16, F),
        (DType::I8, DType::I8, DType::I32),
        (DType::U8, DType::U8, DType::I32),
        (DType::U8, DType::I8, DType::I32),
        (DType::I8, DType::U8, DType::I32),
    ])
}

/// A convolution for matrix instructions.
pub(super) fn matrix_conv(rng: &mut Rng) -> Case {
    let (batch, c, oc) = (
        rng.of(&[1, 2]),
        rng.of(&[3, 8, 16, 24, 32]),
        rng.of(&[16, 17, 32, 64]),
    );
    let shape = rng.of(&[(3, 1, 1), (3, 2, 1), (1, 1, 0), (5, 2, 2)]);
    let h = rng.some(12).max(shape.0);
    let d = rng.of(&FACTORS);
    let deep = rng.once_in(2);
    with_factors(conv_of([batch, h, c, oc], shape, false, deep), d)
}

/// A convolution whose factors have elements of another type.
fn with_factors(mut case: Case, d: DType) -> Case {
    for o in &mut case.kernel.operands[..2] {
        o.dtype = d;
    }
    for s in &case.kernel.body {
        if let kernel::Stmt::Load { dst, .. } = s {
            case.kernel.tiles[*dst as usize].dtype = d;
        }
    }
    case
}

/// A convolution for instructions of warpgroups, both of whose factors lie along the channels in: windows with padding and
/// strides, wider than what they move over now and then.
pub fn warpgroup_conv(rng: &mut Rng) -> Case {
    let (batch, c, oc) = (rng.of(&[1, 2, 3]), 16 * rng.some(5), rng.some(40));
    let shape = rng.of(&[
        (3, 1, 1),
        (3, 2, 1),
        (1, 1, 0),
        (1, 2, 0),
        (2, 1, 0),
        (2, 3, 1),
        (3, 1, 2),
    ]);
    let h = rng.some(14).max(shape.0 - 2 * shape.2).max(1);
    let mut case = conv_of([batch, h, c, oc], shape, false, true);
    let r = shape.0;
    case.kernel.operands[1].access = at(&[(4, r * c), (5, c), (6, 1), (3, r * r * c)]);
    with_factors(case, rng.of(&FACTORS))
}

/// A convolution whose weights' rows lie backwards: they can be taken while a piece of the channels has several, and
/// not in a last piece of one, from where the sum goes on statement by statement.
pub(super) fn backwards(rng: &mut Rng) -> Case {
    let (c, oc) = (rng.some(17), rng.some(33));
    let (r, pad) = rng.of(&[(3, 0), (3, 1), (2, 0)]);
    let h = rng.some(9).max(r);
    let mut case = conv_of([2, h, c, oc], (r, 1, pad), false, false);
    let w = &mut case.kernel.operands[1].access;
    let step = r * c * oc;
    *w = at(&[(3, -step), (4, c * oc), (5, oc), (6, 1)]);
    w.offset = n((r - 1) * step);
    case
}

/// Batch, extent, channels in and out; window, stride and pad.
fn conv_of(
    [batch, h, c, oc]: [i64; 4],
    (r, stride, pad): (i64, i64, i64),
    first: bool,
    deep: bool,
) -> Case {
    // The weights' tile lies along its last axis: the channels out, or in.
    let [rx, sx, cx, ox] = if deep { [4, 5, 6, 3] } else { [3, 4, 5, 6] };
    let o = (h + 2 * pad - r) / stride + 1;
    let mut axes = [
        ("b", n(batch)),
        ("oh", n(o)),
        ("ow", n(o)),
        ("r", n(r)),
        ("s", n(r)),
        ("c", n(c)),
        ("oc", n(oc)),
    ];
    if deep {
        axes[3..].rotate_right(1);
    }
    let mut b = B::new("conv", Family::Conv, &axes);
    let (ch, px) = if first { (h * h, 1) } else { (1, c) };
    let mut x = at(&[
        (0, h * h * c),
        (1, h * stride * px),
        (2, stride * px),
        (rx, h * px),
        (sx, px),
        (cx, ch),
    ]);
    x.offset = n(-pad * h * px - pad * px);
    x.bounds = vec![
        bound(&[(1, stride), (rx, 1)], -pad, h),
        bound(&[(2, stride), (sx, 1)], -pad, h),
    ];
    let input = b.read(F, batch * h * h * c, x);
    let ow = b.read(
        F,
        r * r * c * oc,
        at(&[(rx, r * c * oc), (sx, c * oc), (cx, oc), (ox, 1)]),
    );
    let oy = b.write(
        F,
        batch * o * o * oc,
        at(&[(0, o * o * oc), (1, o * oc), (2, oc), (ox, 1)]),
    );
    let acc = b.fill(F, &[0, 1, 2, ox], 0.0);
    let x = b.load(input, &[0, 1, 2, rx, sx, cx]);
    let w = b.load(ow, &[3, 4, 5, 6]);
    b.contract(acc, x, w, &[rx, sx, cx]);
    let y = b.map(
        F,
        &[0, 1, 2, ox],
        &[acc],
        expr(|e| {
            let x = e.input(0, F);
            functions::relu(e, x, F)
        }),
    );
    b.store(oy, y);
    Case::new(b.0.k, 2e-5).of_sums()
}

/// A depthwise convolution.
pub(super) fn depthwise(rng: &mut Rng) -> Case {
    let (r, stride, pad, apart) = rng.of(&[
        (3, 1, 1, 1),
        (5, 2, 2, 1),
        (3, 2, 2, 2),
        (5, 1, 4, 2),
        (7, 1, 5, 3),
    ]);
    let c = rng.some(33);
    let h = rng.some(9).max((r - 1) * apart + 1);
    let o = (h + 2 * pad - (r - 1) * apart - 1) / stride + 1;
    let axes = [
        ("oh", n(o)),
        ("ow", n(o)),
        ("r", n(r)),
        ("s", n(r)),
        ("c", n(c)),
    ];
    let mut b = B::new("depthwise", Family::Conv, &axes);
    let mut x = at(&[
        (0, h * stride * c),
        (1, stride * c),
        (4, 1),
        (2, apart * h * c),
        (3, apart * c),
    ]);
    x.offset = n(-pad * h * c - pad * c);
    x.bounds = vec![
        bound(&[(0, stride), (2, apart)], -pad, h),
        bound(&[(1, stride), (3, apart)], -pad, h),
    ];
    let ox = b.read(F, h * h * c, x);
    let ow = b.read(F, r * r * c, at(&[(2, r * c), (3, c), (4, 1)]));
    let oy = b.write(F, o * o * c, at(&[(0, o * c), (1, c), (4, 1)]));
    let acc = b.fill(F, &[0, 1, 4], 0.0);
    let x = b.load(ox, &[0, 1, 2, 3, 4]);
    let w = b.load(ow, &[2, 3, 4]);
    b.contract(acc, x, w, &[2, 3]);
    b.store(oy, acc);
    Case::new(b.0.k, 2e-5).of_sums()
}

/// A convolution of small groups: every channel is a lane that reads its group's channels in turn.
pub(super) fn grouped(rng: &mut Rng) -> Case {
    let q = rng.of(&[2, 4, 8]);
    let (r, stride, pad) = rng.of(&[(3, 1, 1), (5, 1, 2), (3, 2, 1), (1, 1, 0)]);
    let c = q * rng.some(9);
    let h = rng.some(9).max(r);
    let o = (h + 2 * pad - r) / stride + 1;
    let axes = [
        ("oh", n(o)),
        ("ow", n(o)),
        ("r", n(r)),
        ("s", n(r)),
        ("k", n(q)),
        ("c", n(c)),
    ];
    let mut b = B::new("grouped", Family::Conv, &axes);
    let mut x = at(&[
        (0, h * stride * c),
        (1, stride * c),
        (2, h * c),
        (3, c),
        (4, 1),
    ]);
    let leaf = |extent, stride| Leaf {
        extent: n(extent),
        stride: n(stride),
    };
    x.terms.push(Term {
        axis: 5,
        leaves: vec![leaf(c / q, q), leaf(q, 0)],
    });
    x.offset = n(-pad * h * c - pad * c);
    x.bounds = vec![
        bound(&[(0, stride), (2, 1)], -pad, h),
        bound(&[(1, stride), (3, 1)], -pad, h),
    ];
    let ox = b.read(F, h * h * c, x);
    let ow = b.read(
        F,
        r * r * q * c,
        at(&[(2, r * q * c), (3, q * c), (4, c), (5, 1)]),
    );
    let oy = b.write(F, o * o * c, at(&[(0, o * c), (1, c), (5, 1)]));
    let acc = b.fill(F, &[0, 1, 5], 0.0);
    let x = b.load(ox, &[0, 1, 2, 3, 4, 5]);
    let w = b.load(ow, &[2, 3, 4, 5]);
    b.contract(acc, x, w, &[2, 3, 4]);
    b.store(oy, acc);
    Case::new(b.0.k, 2e-5).of_sums()
}
