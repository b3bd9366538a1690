//! Expressions that share their memory.
use shopfloor_layout::{Dim, DimMap, DimPool};

#[test]
fn equal_expressions_share_and_are_found() {
    let make = || Dim::sym("n") * Dim::Known(3) + Dim::ONE;
    let (mut a, mut b, mut other) = (make(), make(), Dim::sym("n"));
    let mut known = DimMap::default();
    assert!(known.insert(&a, 1));
    assert_eq!(known.get(&b), None, "they lie apart");
    let mut pool = DimPool::default();
    for d in [&mut a, &mut b, &mut other] {
        pool.share(d);
    }
    assert_eq!((known.get(&b), known.get(&other)), (Some(&1), None));
    assert!(!known.insert(&b, 2));
    assert_eq!(a, make());
    assert!(!known.insert(&Dim::Known(4), 3));
    assert_eq!(known.get(&Dim::Known(4)), None);
}
