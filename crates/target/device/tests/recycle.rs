//! Memory of dropped outputs.
use shopfloor_device::{Recycled, Recycler};

#[test]
fn memory_comes_back_within_bounds() {
    let r = Recycler::new(10_000);
    let a = r.take(4_000, "a").unwrap();
    let at = a.as_ptr();
    assert_eq!(a.len(), 4_000);
    drop(a);
    assert!(r.bytes() >= 4_000);
    let b = r.take(3_900, "b").unwrap();
    assert_eq!((b.as_ptr(), b.len()), (at, 3_900));
    // Far smaller wants get memory of their own.
    let c = r.take(100, "c").unwrap();
    drop(b);
    drop(c);
    let held: Vec<Recycled> = (0..8).map(|_| r.take(4_000, "d").unwrap()).collect();
    drop(held);
    assert!(r.bytes() <= 10_000);
    drop(r.take(50_000, "e").unwrap());
    assert!(r.bytes() <= 10_000);
    let last = r.take(10, "f").unwrap();
    drop(r);
    drop(last);
}
