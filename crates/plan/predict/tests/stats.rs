//! Errors of predictions.
use shopfloor_predict::Errors;
use shopfloor_predict::internals::median;

/// By hand: errors +10%, -50%, +25% of 10, 4 and 8.
#[test]
fn errors_of_three_rows() {
    let e = Errors::of(5, &[(11.0, 10.0), (2.0, 4.0), (10.0, 8.0)]);
    let near = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-12, "{a:?} {b}");
    assert_eq!((e.rows, e.covered), (5, 3));
    near(e.mean_ape, (0.1 + 0.5 + 0.25) / 3.0);
    near(e.median_ape, 0.25);
    near(e.wape, 5.0 / 22.0);
    near(e.bias, (0.1 - 0.5 + 0.25) / 3.0);
    near(e.spearman, 1.0);
}

/// Ranks of 1 2 2 3 are 1 2.5 2.5 4; against 4 3 2 1 the sums are -4.5, 4.5 and 5.
#[test]
fn ties_share_their_rank() {
    let e = Errors::of(4, &[(1.0, 4.0), (2.0, 3.0), (2.0, 2.0), (3.0, 1.0)]);
    let want = -4.5 / (4.5f64 * 5.0).sqrt();
    assert!((e.spearman.unwrap() - want).abs() < 1e-12);
    assert_eq!(Errors::of(2, &[(1.0, 2.0), (1.0, 3.0)]).spearman, None);
}

#[test]
fn nothing_covered_has_no_errors() {
    let e = Errors::of(7, &[]);
    assert_eq!((e.rows, e.covered, e.mean_ape, e.wape), (7, 0, None, None));
    assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
}
