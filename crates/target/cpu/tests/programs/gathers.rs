//! Loads through indices against the oracle.
use super::*;
use expr::ExprBuilder;
use kernel::Indexed;

#[test]
fn gathers() {
    for (vocab, rows, width, by_row, top) in [
        (11, 7, 33, true, 11),
        (11, 7, 5, false, 11),
        (4, 6, 3, true, 9),
    ] {
        let mut b = B::new("gather", Family::Move, &[("i", n(rows)), ("j", n(width))]);
        let ix = if by_row {
            at(&[(0, 1)])
        } else {
            at(&[(0, width), (1, 1)])
        };
        let oi = b.read(DType::I64, if by_row { rows } else { rows * width }, ix);
        let mut d = at(&[(1, 1)]);
        d.indexed = vec![Indexed {
            by: oi,
            stride: n(width),
            extent: n(vocab),
        }];
        let od = b.read(F, vocab * width, d);
        let oy = b.write(F, rows * width, at(&[(0, width), (1, 1)]));
        let t = b.load(od, &[0, 1]);
        b.store(oy, t);
        let s = [
            schedule(&b.k, &[(0, 2)], &[], true, None),
            schedule(&b.k, &[], &[], false, None),
        ];
        let t = tensors(&b.k, top);
        check(&b.k, &s, &[], t, 0.0);
    }
}

#[test]
fn gathers_by_several_indices_with_a_map() {
    // y[i, j, c] = 2 x[a[i], b[i, j], c], the channel innermost or outermost in memory.
    for (h, w, i, j, c) in [
        (5, 7, 3, 70, 9),
        (4, 6, 130, 2, 1),
        (3, 3, 1, 1, 13),
        (6, 2, 5, 2, 3),
    ] {
        for last in [true, false] {
            for types in [(DType::I64, DType::I32), (DType::I32, DType::I64)] {
                let axes = [("i", n(i)), ("j", n(j)), ("c", n(c))];
                let mut b = B::new("corner", Family::Map, &axes);
                let oa = b.read(types.0, i, at(&[(0, 1)]));
                let ob = b.read(types.1, i * j, at(&[(0, j), (1, 1)]));
                let (sh, sw, sc) = if last { (w * c, c, 1) } else { (w, 1, h * w) };
                let mut d = at(&[(2, sc)]);
                let top = h.min(w) as u64;
                for (by, stride, extent) in [(oa, sh, h), (ob, sw, w)] {
                    d.indexed.push(Indexed {
                        by,
                        stride: n(stride),
                        extent: n(extent),
                    });
                }
                let od = b.read(F, h * w * c, d);
                let y = at(&[(0, j * c), (1, c), (2, 1)]);
                let oy = b.write(F, i * j * c, y);
                let t = b.load(od, &[0, 1, 2]);
                let mut e = ExprBuilder::new();
                let x = e.input(0, F);
                let x = e.add(x, x);
                let e = e.finish(&[x]);
                let t = b.map(F, &[0, 1, 2], &[t], e);
                b.store(oy, t);
                let s = [
                    schedule(&b.k, &[(0, 2)], &[], true, None),
                    schedule(&b.k, &[(1, 3), (2, 4)], &[], false, None),
                    schedule(&b.k, &[], &[], false, None),
                ];
                let t = tensors(&b.k, top);
                check(&b.k, &s, &[], t, 0.0);
            }
        }
    }
}
