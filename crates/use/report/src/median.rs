//! The median of measured times.

use layout::Arrange;
/// The median of `v`, which it sorts; 0 of nothing.
pub(crate) fn median(v: &mut [f64]) -> f64 {
    v.arrange_by(f64::total_cmp);
    match v.len() {
        0 => 0.0,
        n if n % 2 == 1 => v[n / 2],
        n => (v[n / 2 - 1] + v[n / 2]) / 2.0,
    }
}
