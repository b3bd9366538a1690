//! Elements: each dtype in each field that may hold it.

use shopfloor_onnx::Bytes;
use shopfloor_onnx::proto::DataType;

use crate::reader::encode::*;

fn bytes_of(tensor: Msg) -> Result<Vec<u8>, String> {
    let file = read(model(msg().sub(5, tensor))).map_err(|e| e.to_string())?;
    let tensor = &file.model.graph.initializers[0];
    file.tensor_bytes(tensor)
        .map(|b| b.to_vec())
        .map_err(|e| e.to_string())
}

fn doubles(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// dtype, dims, entries of int32_data, packed bytes.
type Case = (i64, &'static [i64], &'static [i64], &'static [u8]);

#[test]
fn int32_data_holds_every_small_type() {
    let cases: [Case; 20] = [
        (6, &[2], &[-2, 7], &[254, 255, 255, 255, 7, 0, 0, 0]),
        (5, &[2], &[-2, 300], &[254, 255, 44, 1]),
        (4, &[2], &[65535, 1], &[255, 255, 1, 0]),
        (3, &[2], &[-128, 127], &[128, 127]),
        (2, &[2], &[255, 0], &[255, 0]),
        (9, &[2], &[1, 0], &[1, 0]),
        (10, &[2], &[0x3c00, 0xbc00], &[0, 0x3c, 0, 0xbc]),
        (16, &[1], &[0x3f80], &[0x80, 0x3f]),
        (17, &[1], &[200], &[200]),
        (18, &[1], &[200], &[200]),
        (19, &[1], &[200], &[200]),
        (20, &[1], &[200], &[200]),
        (24, &[1], &[127], &[127]),
        (21, &[3], &[0x21, 0x03], &[0x21, 0x03]),
        (22, &[3], &[0xf8, -1], &[0xf8, 0xff]),
        (23, &[2], &[0x5a], &[0x5a]),
        (25, &[5], &[0xe4, 0x01], &[0xe4, 0x01]),
        (26, &[4], &[0xe4], &[0xe4]),
        (27, &[2], &[63, 1], &[0x7f, 0]),
        (28, &[0], &[], &[]),
    ];
    for (dtype, dims, values, expected) in cases {
        let head = || tensor("t", dtype, dims);
        assert_eq!(
            bytes_of(head().packed(5, values)).unwrap(),
            expected,
            "dtype {dtype} packed"
        );
        assert_eq!(
            bytes_of(head().ints(5, values)).unwrap(),
            expected,
            "dtype {dtype} single"
        );
        assert_eq!(
            bytes_of(head().bytes(9, expected)).unwrap(),
            expected,
            "dtype {dtype} raw"
        );
    }
    // A negative int32 in 32 bits, as some writers have it.
    let short = tensor("t", 6, &[1]).bytes(5, &[255, 255, 255, 255, 15]);
    assert_eq!(bytes_of(short).unwrap(), [255; 4]);
}

#[test]
fn wide_fields_hold_their_types() {
    let values = [1, -1, i64::MIN];
    let expected: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(
        bytes_of(tensor("t", 7, &[3]).packed(7, &values)).unwrap(),
        expected
    );
    assert_eq!(
        bytes_of(tensor("t", 7, &[3]).ints(7, &values)).unwrap(),
        expected
    );
    assert_eq!(
        bytes_of(tensor("t", 13, &[3]).packed(11, &values)).unwrap(),
        expected
    );
    assert_eq!(
        bytes_of(tensor("t", 12, &[1]).packed(11, &[0xffff_fffe])).unwrap(),
        [254, 255, 255, 255]
    );
    assert!(
        bytes_of(tensor("t", 12, &[1]).packed(11, &[1 << 32]))
            .unwrap_err()
            .contains("does not fit UINT32")
    );

    let f = floats(&[1.0, -2.5, 3.0]);
    assert_eq!(bytes_of(tensor("t", 1, &[3]).bytes(4, &f)).unwrap(), f);
    let single = tensor("t", 1, &[3])
        .fixed32(4, 1f32.to_le_bytes())
        .bytes(4, &f[4..8]);
    assert_eq!(bytes_of(single.fixed32(4, 3f32.to_le_bytes())).unwrap(), f);
    assert_eq!(
        bytes_of(tensor("t", 14, &[2]).bytes(4, &floats(&[1., 2., 3., 4.])))
            .unwrap()
            .len(),
        16
    );
    let d = doubles(&[1.0, 2.0]);
    assert_eq!(bytes_of(tensor("t", 11, &[2]).bytes(10, &d)).unwrap(), d);
    assert_eq!(
        bytes_of(tensor("t", 11, &[]).fixed64(10, 1f64.to_le_bytes())).unwrap(),
        doubles(&[1.0])
    );
    assert_eq!(bytes_of(tensor("t", 15, &[1]).bytes(10, &d)).unwrap(), d);
}

#[test]
fn whole_fields_are_borrowed() {
    let f = floats(&[1.0, 2.0]);
    let graph = msg()
        .sub(5, tensor("raw", 1, &[2]).bytes(9, &f))
        .sub(5, tensor("typed", 1, &[2]).bytes(4, &f))
        .sub(
            5,
            tensor("pieces", 1, &[2])
                .bytes(4, &f[..4])
                .bytes(4, &f[4..]),
        );
    let file = read(model(graph)).unwrap();
    let borrowed: Vec<bool> = file
        .model
        .graph
        .initializers
        .iter()
        .map(|t| file.tensor_bytes(t).unwrap())
        .map(|bytes: Bytes| bytes.same_owner(file.bytes()) && bytes[..] == f[..])
        .collect();
    assert_eq!(borrowed, [true, true, false]);
}

#[test]
fn strings_are_counted() {
    let graph = |dims: &[i64]| msg().sub(5, tensor("s", 8, dims).text(6, "ab").text(6, ""));
    let file = read(model(graph(&[2]))).unwrap();
    let tensor_data = &file.model.graph.initializers[0];
    let strings = file.tensor_strings(tensor_data).unwrap();
    assert_eq!((&strings[0][..], &strings[1][..]), (&b"ab"[..], &b""[..]));
    assert!(
        file.tensor_bytes(tensor_data)
            .unwrap_err()
            .to_string()
            .contains("holds strings")
    );
    let file = read(model(graph(&[3]))).unwrap();
    let error = file
        .tensor_strings(&file.model.graph.initializers[0])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("holds 2 values, but STRING [3] takes 3"),
        "{error}"
    );
    let file = read(model(msg().sub(5, tensor("n", 1, &[0])))).unwrap();
    assert!(
        file.tensor_strings(&file.model.graph.initializers[0])
            .is_err()
    );
}

#[test]
fn counts_dims_and_fields_must_agree() {
    let big = i64::MAX;
    for (message, part) in [
        (
            tensor("t", 1, &[3]).bytes(9, &[0; 8]),
            "holds 8 B, but FLOAT [3] takes 12 B",
        ),
        (tensor("t", 1, &[1]), "holds 0 B, but FLOAT [1] takes 4 B"),
        (tensor("t", 1, &[]), "takes 4 B"),
        (tensor("t", 1, &[-1]).bytes(9, &[0; 4]), "negative -1"),
        (tensor("t", 1, &[0, -1]), "negative -1"),
        (tensor("t", 1, &[big, 2]), "more than 2^63 elements"),
        (tensor("t", 15, &[big]), "exceeds 2^64 B"),
        (tensor("t", 2, &[big]), "takes 9223372036854775807 B"),
        (tensor("t", 2, &[big]).packed(5, &[1]), "holds 1 values"),
        (
            tensor("t", 0, &[1]).bytes(9, &[0; 4]),
            "data_type 0 is not known",
        ),
        (
            tensor("t", 99, &[1]).bytes(9, &[0; 4]),
            "data_type 99 is not known",
        ),
        (
            tensor("t", 1, &[1]).packed(5, &[1]),
            "FLOAT [1] cannot be stored in int32_data",
        ),
        (
            tensor("t", 7, &[1]).packed(5, &[1]),
            "cannot be stored in int32_data",
        ),
        (
            tensor("t", 6, &[1]).packed(7, &[1]),
            "cannot be stored in int64_data",
        ),
        (
            tensor("t", 6, &[1]).text(6, "x"),
            "cannot be stored in string_data",
        ),
        (
            tensor("t", 2, &[1]).packed(5, &[256]),
            "256, which does not fit UINT8",
        ),
        (
            tensor("t", 3, &[1]).packed(5, &[-129]),
            "-129, which does not fit INT8",
        ),
        (
            tensor("t", 9, &[1]).packed(5, &[2]),
            "2, which does not fit BOOL",
        ),
        (
            tensor("t", 10, &[1]).packed(5, &[-1]),
            "-1, which does not fit FLOAT16",
        ),
        (
            tensor("t", 1, &[1]).bytes(9, &[0; 4]).bytes(4, &[0; 4]),
            "two data fields",
        ),
        (
            tensor("t", 1, &[1]).sub(13, entry("location", "x")),
            "data_location says default",
        ),
        (tensor("t", 1, &[1]).int(14, 2), "neither 0 (default) nor 1"),
    ] {
        let error = bytes_of(message).unwrap_err();
        assert!(error.contains(part) && error.contains("'t'"), "{error}");
    }
    let empty: [u8; 0] = [];
    assert_eq!(
        bytes_of(tensor("t", 1, &[0, i64::MAX, i64::MAX])).unwrap(),
        empty
    );
    assert_eq!(bytes_of(tensor("t", 1, &[0]).bytes(9, &[])).unwrap(), empty);
}

#[test]
fn four_bit_tensors_round_up_to_bytes() {
    for (elements, bytes) in [(0, 0), (1, 1), (2, 1), (3, 2)] {
        let data = vec![0x11; bytes];
        let t = |dtype| tensor("t", dtype, &[elements]).bytes(9, &data);
        assert_eq!(bytes_of(t(21)).unwrap(), data);
        assert_eq!(bytes_of(t(22)).unwrap(), data);
    }
    assert_eq!(DataType::Int4.bits(), Some(4));
    assert!(
        bytes_of(tensor("t", 22, &[3]).bytes(9, &[0; 3]))
            .unwrap_err()
            .contains("takes 2 B")
    );
}

#[test]
fn sixes_form_one_bit_stream() {
    // 0b111111, 0b000001, 0b100000, 0b010101 and the first of the next group.
    let packed = bytes_of(tensor("t", 27, &[5]).packed(5, &[63, 1, 32, 21, 42])).unwrap();
    assert_eq!(packed, [0b0111_1111, 0b0000_0000, 0b0101_0110, 0b0010_1010]);
}
