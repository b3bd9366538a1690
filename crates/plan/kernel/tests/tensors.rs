//! Operands as tensors: every element of a box is the one that its position reads, or outside where that is.
use crate::common::{attention, conv, gemm};
use crate::kernel::*;
use layout::{DType, Dim, Leaf};

fn known(d: &Dim) -> i64 {
    d.known().expect("a known number")
}

/// The element that an access has at these coordinates; `None` outside.
fn read(a: &Access, at: &[i64]) -> Option<i64> {
    let sum = |base: &Dim, terms: &[(AxisId, Dim)]| {
        let each = terms.iter().map(|(x, by)| at[*x as usize] * known(by));
        known(base) + each.sum::<i64>()
    };
    let inside = a
        .bounds
        .iter()
        .all(|b| (0..known(&b.extent)).contains(&sum(&b.base, &b.terms)));
    let terms: Vec<(AxisId, Dim)> = a
        .terms
        .iter()
        .map(|t| (t.axis, t.stride().expect("a plain stride").clone()))
        .collect();
    inside.then(|| sum(&a.offset, &terms))
}

/// The element at these coordinates of a tensor; `None` outside.
fn of_tensor(v: &TensorView, corner: &[i64], steps: &[i64]) -> Option<i64> {
    let mut at = known(&v.offset);
    for ((d, c), n) in v.dims.iter().zip(corner).zip(steps) {
        let x = c + n * d.step;
        if !(0..known(&d.extent)).contains(&x) {
            return None;
        }
        at += x * known(&d.stride);
    }
    Some(at)
}

/// Compares all boxes of pieces of so many positions along the axes of operand `o`, the last of them in lines of `line`.
fn check(k: &Kernel, o: usize, piece: &[(AxisId, i64)], (line, bits): (i64, u32)) {
    let access = &k.operands[o].access;
    let view = access.tensor(&k.axes, piece, line, bits).expect("a tensor");
    let extent = |a: AxisId| known(&k.axes[a as usize].extent);
    let mut corners = vec![vec![0; k.axes.len()]];
    for &(a, n) in piece {
        corners = corners
            .into_iter()
            .flat_map(|c| {
                let next = move |x: i64| {
                    let mut c = c.clone();
                    c[a as usize] = x * n;
                    c
                };
                (0..(extent(a) + n - 1) / n).map(next)
            })
            .collect();
    }
    for at in corners {
        let corner: Vec<i64> = view
            .dims
            .iter()
            .map(|d| {
                let each = d.terms.iter().map(|(a, by)| at[*a as usize] * by);
                known(&d.base) + each.sum::<i64>()
            })
            .collect();
        let all: i64 = view.dims.iter().map(|d| d.count).product();
        for n in 0..all {
            // Positions of the piece, the last axis innermost; of that one line.
            let (mut rest, mut position, mut exists) = (n, at.clone(), true);
            for (i, &(a, n)) in piece.iter().enumerate().rev() {
                let n = if i + 1 == piece.len() { line } else { n };
                position[a as usize] += rest % n;
                exists &= position[a as usize] < extent(a);
                rest /= n;
            }
            let mut rest = n;
            let mut steps = vec![];
            for d in &view.dims {
                steps.push(rest % d.count);
                rest /= d.count;
            }
            let got = of_tensor(&view, &corner, &steps);
            if exists {
                assert_eq!(got, read(access, &position), "{} at {position:?}", k.name);
            }
        }
    }
}

#[test]
fn boxes_have_what_positions_read() {
    let d = Dim::Known;
    let product = gemm(d(70), d(40), d(96), DType::F16);
    check(&product, 0, &[(0, 64), (2, 32)], (32, 16));
    check(&product, 0, &[(0, 16), (2, 64)], (64, 16));
    // Two lines beside each other.
    check(&product, 1, &[(1, 32), (2, 64)], (32, 16));
    for stride in [1, 2, 3] {
        let k = conv(9, 11, 32, 8, stride);
        check(&k, 0, &[(0, 1), (1, 4), (3, 1), (4, 1), (5, 32)], (32, 32));
        check(&k, 0, &[(0, 2), (1, 8), (3, 1), (4, 1), (5, 8)], (8, 32));
    }
    let k = attention(d(2), d(50), d(45), d(64));
    // Keys.
    check(&k, 1, &[(0, 1), (2, 16), (3, 32)], (32, 32));
}

#[test]
fn pieces_of_an_image_begin_where_copies_can() {
    let leaf = |extent, stride| Leaf {
        extent: Dim::Known(extent),
        stride: Dim::Known(stride),
    };
    let d = Dim::Known;
    let k = gemm(d(70), d(4096), d(512), DType::F16);
    let image = |panel: i64, offset: i64| {
        let mut a = k.operands[1].access.clone();
        a.offset = d(offset);
        for t in &mut a.terms {
            t.leaves = match t.axis {
                1 => vec![leaf(32, panel), leaf(128, 8)],
                _ => vec![leaf(64, 128 * 8), leaf(8, 1)],
            };
        }
        a.image(&k.axes, (1, 128), (2, 64), 16)
    };
    assert!(image(128 * 512, 0));
    assert!(image(128 * 512, 8));
    assert!(!image(7, 0));
    assert!(!image(128 * 512, 4));
}

/// Plans are read from files: a swizzle may stand beside any type.
#[test]
fn types_without_bits_have_no_lines() {
    for bytes in [32, 64, 128] {
        for bits in [8, 16, 32] {
            let lines = Swizzle::of_lines(bytes, bits).unwrap().line(bits);
            assert_eq!(lines, Some(i64::from(bytes * 8 / bits)));
        }
        assert_eq!(Swizzle::of_lines(bytes, 0).unwrap().line(0), None);
    }
}

#[test]
fn what_is_no_box_is_none() {
    let d = Dim::Known;
    let of = |k: &Kernel, o: usize, piece: &[(AxisId, i64)], line: i64, bits: u32| {
        let access = &k.operands[o].access;
        access.tensor(&k.axes, piece, line, bits).is_some()
    };
    let rows = |k: i64| gemm(d(70), d(40), d(k), DType::F16);
    assert!(of(&rows(96), 0, &[(0, 64), (2, 32)], 32, 16));
    // Rows that do not begin at multiples of 16 bytes.
    assert!(!of(&rows(100), 0, &[(0, 64), (2, 32)], 32, 16));
    // Lines of 16 bytes; boxes of more than 256 rows; lines across what lies together.
    assert!(!of(&rows(96), 0, &[(0, 64), (2, 8)], 8, 16));
    assert!(!of(&rows(96), 0, &[(0, 512), (2, 32)], 32, 16));
    assert!(!of(&rows(96), 0, &[(2, 32), (0, 32)], 32, 16));
    // A number of rows that only a request gives is as good as any, a distance between them is not.
    let open = gemm(Dim::sym("m"), d(40), d(96), DType::F16);
    assert!(of(&open, 0, &[(0, 64), (2, 32)], 32, 16));
    let open = gemm(d(70), d(40), Dim::sym("k"), DType::F16);
    assert!(!of(&open, 0, &[(0, 64), (2, 32)], 32, 16));
    let k = conv(9, 11, 32, 8, 1);
    let piece = [(0, 1), (1, 4), (3, 1), (4, 1), (5, 32)];
    assert!(of(&k, 0, &piece, 32, 32));
    // Two positions of a window beside its pixels; what is outside is no zero; steps of more than 8.
    let windows = [(0, 1), (1, 4), (3, 1), (4, 2), (5, 32)];
    assert!(!of(&k, 0, &windows, 32, 32));
    // Rows from the last to the first.
    let mut backwards = rows(96);
    let access = &mut backwards.operands[0].access;
    access.offset = d(69 * 96);
    access.terms[0] = Term::flat(0, d(70), d(-96));
    assert!(!of(&backwards, 0, &[(0, 64), (2, 32)], 32, 16));
    let mut ones = k.clone();
    ones.operands[0].access.outside = 1.0;
    assert!(!of(&ones, 0, &piece, 32, 32));
    assert!(!of(&conv(40, 40, 32, 8, 9), 0, &piece, 32, 32));
}
