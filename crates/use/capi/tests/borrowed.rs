//! Tensors over a caller's memory, which is how inputs come from C.
use shopfloor::{DType, Tensor};
use std::sync::Arc;

#[test]
fn memory_that_something_else_owns_is_read_where_it_lies() {
    let owner: Arc<[f32]> = vec![1.0, 2.0, 3.0, 4.0].into();
    let start = owner.as_ptr();
    // SAFETY: the numbers are the owner's, which the tensor holds, and nobody changes them.
    let made = unsafe { Tensor::from_raw_parts(DType::F32, &[2, 2], start.cast(), owner.clone()) };
    let mut t = made.expect("four numbers");
    assert_eq!(t.bytes().as_ptr(), start.cast());
    t.set_f64(3, 5.0);
    assert_eq!(t.as_slice::<f32>().expect("numbers"), [1.0, 2.0, 3.0, 5.0]);
    assert_eq!(owner[3], 4.0);
    drop(t);
    assert_eq!(Arc::strong_count(&owner), 1);
    // SAFETY: nothing is read of it.
    let none = unsafe { Tensor::from_raw_parts(DType::F32, &[0, 2], std::ptr::null(), ()) };
    assert!(none.expect("no numbers").bytes().is_empty());
}
