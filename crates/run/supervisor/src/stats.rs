//! Statistics that a few outliers do not move.

/// The last `N` numbers.
#[derive(Clone, Debug)]
pub struct Recent<const N: usize> {
    values: [f64; N],
    len: usize,
    next: usize,
    median: f64,
    stale: usize,
}

impl<const N: usize> Default for Recent<N> {
    fn default() -> Self {
        Recent {
            values: [0.0; N],
            len: 0,
            next: 0,
            median: 0.0,
            stale: 0,
        }
    }
}

impl<const N: usize> Recent<N> {
    /// Adds a number; what is not finite is left out. The oldest goes when there are more than `N`.
    pub fn push(&mut self, v: f64) {
        if N == 0 || !v.is_finite() {
            return;
        }
        self.values[self.next] = v;
        self.next = (self.next + 1) % N;
        self.len = (self.len + 1).min(N);
        self.stale += 1;
        // Sorting for every number would cost more than a small request; a quarter of the window may
        // lag behind once it is full.
        if self.len < N || self.stale >= N / 4 {
            self.median = median(self.values()).unwrap_or(0.0);
            self.stale = 0;
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The numbers, in no particular order.
    pub fn values(&self) -> &[f64] {
        &self.values[..self.len]
    }

    /// Their median as of at most a quarter of the window ago; `None` when there are none.
    pub fn median(&self) -> Option<f64> {
        (self.len > 0).then_some(self.median)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Recent::default();
    }
}

/// The median of `values`, the mean of the two in the middle where they are even; `None` without any.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    let n = v.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(v[n / 2]),
        _ => Some((v[n / 2 - 1] + v[n / 2]) / 2.0),
    }
}

/// The value below which a share `q` of `values` lies (nearest rank); `None` without any.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    let at = (q.clamp(0.0, 1.0) * v.len() as f64).ceil() as usize;
    v.get(at.max(1) - 1).copied()
}

/// Median absolute deviation from the median, scaled to a normal distribution's standard deviation.
pub fn spread(values: &[f64]) -> Option<f64> {
    let m = median(values)?;
    let off: Vec<f64> = values.iter().map(|v| (v - m).abs()).collect();
    Some(1.4826 * median(&off)?)
}

/// The rank test of Mann and Whitney: how many standard deviations `b`'s ranks lie below those of
/// `a`, ties shared and corrected for, with the normal approximation. Positive: `b` is smaller. `None`
/// when a side is empty or all values are equal.
pub fn rank_test(a: &[f64], b: &[f64]) -> Option<f64> {
    let (n, m) = (a.len() as f64, b.len() as f64);
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let mut all: Vec<(f64, bool)> = a.iter().map(|v| (*v, false)).collect();
    all.extend(b.iter().map(|v| (*v, true)));
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (mut rank_b, mut ties, mut i) = (0.0, 0.0, 0);
    while i < all.len() {
        let mut end = i + 1;
        while end < all.len() && all[end].0 == all[i].0 {
            end += 1;
        }
        let t = (end - i) as f64;
        let rank = (i + 1 + end) as f64 / 2.0;
        rank_b += rank * all[i..end].iter().filter(|x| x.1).count() as f64;
        ties += t * t * t - t;
        i = end;
    }
    let u = rank_b - m * (m + 1.0) / 2.0;
    let total = n + m;
    let variance = n * m / 12.0 * ((total + 1.0) - ties / (total * (total - 1.0)));
    (variance > 0.0).then(|| (n * m / 2.0 - u) / variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0], 1.0), Some(2.0));
        assert!((spread(&[1.0, 1.1, 0.9, 50.0]).unwrap()) < 0.2);
    }

    #[test]
    fn recent_keeps_the_last_and_ignores_what_is_no_number() {
        let mut r = Recent::<4>::default();
        assert_eq!(r.median(), None);
        for v in [9.0, 1.0, f64::NAN, 2.0, 3.0, 4.0] {
            r.push(v);
        }
        assert_eq!(r.len(), 4);
        assert_eq!(r.median(), Some(2.5));
    }

    #[test]
    fn the_rank_test_tells_shifts_from_noise() {
        let a: Vec<f64> = (0..40).map(|i| 10.0 + f64::from(i * 7 % 11)).collect();
        let same: Vec<f64> = (0..40).map(|i| 10.0 + f64::from(i * 5 % 11)).collect();
        let less: Vec<f64> = a.iter().map(|v| v - 3.0).collect();
        assert!(rank_test(&a, &same).unwrap().abs() < 1.5);
        assert!(rank_test(&a, &less).unwrap() > 3.0);
        assert!(rank_test(&less, &a).unwrap() < -3.0);
        assert_eq!(rank_test(&[1.0, 1.0], &[1.0]), None);
        assert_eq!(rank_test(&[], &[1.0]), None);
        // An outlier of any size counts as one rank.
        let mut spoiled = less.clone();
        spoiled[0] = 1e9;
        assert!(rank_test(&a, &spoiled).unwrap() > 2.5);
    }
}
