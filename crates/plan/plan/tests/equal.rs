//! Dimensions that every request makes equal.
use layout::{Dim, DimBox};
use shopfloor_plan::Constraint;
use shopfloor_plan::internals::Equal;

#[test]
fn a_product_that_is_a_number_is_taken_for_it() {
    let s = Dim::sym;
    let equal = |left: Dim, right: Dim| {
        let mut dims = DimBox::new();
        for n in ["a", "b", "c"] {
            dims.insert(n, 1, 100);
        }
        let node = "reshape".to_string();
        Equal::new(&[Constraint { node, left, right }], &dims)
    };
    let e = equal(Dim::Known(64) * s("a") * s("b"), Dim::Known(1024)).expect("a product");
    let wide = Dim::Known(64) * s("a") * s("b") * s("c") + s("a");
    let want = Dim::Known(1024) * s("c") + s("a");
    assert_eq!(e.canon(&wide), Some(want));
    assert_eq!(e.canon(&s("a")), Some(s("a")));
    assert_eq!(e.canon(&(s("a") * s("a"))), Some(s("a") * s("a")));
    // 15 is no multiple of 64, and no sizes up to 100 make 20,000.
    assert!(equal(Dim::Known(64) * s("a") * s("b"), Dim::Known(960 + 15)).is_none());
    assert!(equal(s("a") * s("b"), Dim::Known(20_000)).is_none());
    assert!(equal(s("a") * s("b"), Dim::Known(-4)).is_none());
    assert!(equal(s("a") * s("b") + s("c") * s("b"), Dim::Known(4)).is_none());
}
