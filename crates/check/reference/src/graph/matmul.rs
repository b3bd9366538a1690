//! Plain matrix products with wide accumulators.

/// A type that products are summed in.
pub(crate) trait Wide: Copy {
    /// Zero.
    const ZERO: Self;
    /// `self + a * b`.
    fn add_product(self, a: Self, b: Self) -> Self;
    /// `self + a`.
    fn plus(self, a: Self) -> Self;
}

impl Wide for f64 {
    const ZERO: f64 = 0.0;
    #[inline]
    fn add_product(self, a: f64, b: f64) -> f64 {
        self + a * b
    }
    #[inline]
    fn plus(self, a: f64) -> f64 {
        self + a
    }
}

impl Wide for i64 {
    const ZERO: i64 = 0;
    #[inline]
    fn add_product(self, a: i64, b: i64) -> i64 {
        self.wrapping_add(a.wrapping_mul(b))
    }
    #[inline]
    fn plus(self, a: i64) -> i64 {
        self.wrapping_add(a)
    }
}

/// `c[m, n] += a[m, k] * b[k, n]`, all dense row-major. Every element sums over k in order.
pub(crate) fn matmul<T: Wide>(a: &[T], b: &[T], c: &mut [T], m: usize, k: usize, n: usize) {
    const ROWS: usize = 4;
    const COLUMNS: usize = 512;
    for j in (0..n).step_by(COLUMNS) {
        let width = COLUMNS.min(n - j);
        for i in (0..m).step_by(ROWS) {
            let rows = ROWS.min(m - i);
            if rows < ROWS {
                for r in i..i + rows {
                    let out = &mut c[r * n + j..][..width];
                    for q in 0..k {
                        let (x, row) = (a[r * k + q], &b[q * n + j..][..width]);
                        for (o, v) in out.iter_mut().zip(row) {
                            *o = o.add_product(x, *v);
                        }
                    }
                }
                continue;
            }
            let (c0, rest) = c[i * n..(i + ROWS) * n].split_at_mut(n);
            let (c1, rest) = rest.split_at_mut(n);
            let (c2, c3) = rest.split_at_mut(n);
            let (c0, c1) = (&mut c0[j..j + width], &mut c1[j..j + width]);
            let (c2, c3) = (&mut c2[j..j + width], &mut c3[j..j + width]);
            for q in 0..k {
                let row = &b[q * n + j..][..width];
                let x = [0, 1, 2, 3].map(|r| a[(i + r) * k + q]);
                for e in 0..width {
                    c0[e] = c0[e].add_product(x[0], row[e]);
                    c1[e] = c1[e].add_product(x[1], row[e]);
                    c2[e] = c2[e].add_product(x[2], row[e]);
                    c3[e] = c3[e].add_product(x[3], row[e]);
                }
            }
        }
    }
}
