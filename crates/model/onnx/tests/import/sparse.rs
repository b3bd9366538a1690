//! Constants in coordinate form.
use shopfloor_onnx::internals::positions;

#[test]
fn indices_count_elements_or_name_coordinates() {
    assert_eq!(positions(&[1, 7], &[2], 2, &[2, 4]), Ok(vec![1, 7]));
    assert_eq!(
        positions(&[0, 1, 1, 3], &[2, 2], 2, &[2, 4]),
        Ok(vec![1, 7])
    );
    assert_eq!(positions(&[], &[0], 0, &[0]), Ok(vec![]));
    assert!(positions(&[8], &[1], 1, &[2, 4]).is_err());
    assert!(positions(&[-1], &[1], 1, &[2, 4]).is_err());
    assert!(positions(&[0, 4], &[1, 2], 1, &[2, 4]).is_err());
    assert!(positions(&[0, 1], &[2], 1, &[2, 4]).is_err());
    assert!(positions(&[0], &[1, 1], 1, &[2, 4]).is_err());
    assert!(positions(&[0], &[1, 0], 1, &[]).is_err());
    let huge = [usize::MAX, usize::MAX, 0];
    assert!(positions(&[i64::MAX, i64::MAX, 0], &[1, 3], 1, &huge).is_err());
}
