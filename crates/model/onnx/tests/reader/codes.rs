//! ONNX's codes of element types and of kinds of attributes.

use shopfloor_onnx::proto::{AttributeKind, DataType};

#[test]
fn table_stands_in_the_order_of_codes() {
    for code in 1..=28 {
        assert_eq!(DataType::from_code(code).map(DataType::code), Some(code));
    }
    for code in [0, -1, 29, i32::MIN, i32::MAX] {
        assert_eq!(DataType::from_code(code), None);
    }
}

#[test]
fn kinds_stand_in_the_order_of_codes() {
    for code in 1..=14 {
        let kind = AttributeKind::from_code(code);
        assert_eq!(kind.map(|k| k as i32), Some(code));
    }
    assert_eq!(AttributeKind::from_code(15), None);
    assert_eq!(AttributeKind::from_code(-1), None);
}
