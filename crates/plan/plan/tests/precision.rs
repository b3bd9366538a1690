//! Precisions by name, and what they allow.
use kernel::Factors;
use shopfloor_plan::Precision;

#[test]
fn a_less_exact_precision_allows_what_a_more_exact_one_does() {
    for p in Precision::ALL {
        assert_eq!(p.name().parse(), Ok(p));
        for q in Precision::ALL.into_iter().filter(|q| *q >= p) {
            for f in [
                Factors::Whole,
                Factors::Tf32x3,
                Factors::Bf16x3,
                Factors::Tf32,
                Factors::Bf16,
            ] {
                assert!(!p.allows(f) || q.allows(f), "{p} {q} {f:?}");
            }
        }
    }
    assert!(!Precision::Exact.allows(Factors::Tf32x3));
    // A step is never less exact than was asked for.
    assert!(!Precision::F32.allows(Factors::Bf16x3));
    assert!(!Precision::Bf16x3.allows(Factors::Tf32));
    assert!(!Precision::Tf32.allows(Factors::Bf16));
    assert!("f16".parse::<Precision>().is_err());
}
