//! ONNX tensors are written and read back; damaged ones end in errors.

use layout::DType;
use shopfloor_data as data;
use tensor::Tensor;

#[test]
fn every_type_survives_a_round_trip_and_damage_never_panics() {
    let dir = tempfile::tempdir().unwrap();
    for dtype in DType::ALL {
        for shape in [&[][..], &[3, 1], &[0, 2]] {
            let mut t = Tensor::zeros(dtype, shape).unwrap();
            (0..t.len()).for_each(|i| t.set_i64(i, i as i64 + 1));
            let path = dir.path().join("input_0.pb");
            data::write_pb(&path, "ü", &t).unwrap();
            assert_eq!(
                data::read_pb(&path).unwrap(),
                ("ü".to_string(), t.clone()),
                "{t:?}"
            );
            let mut b = data::pb_to_bytes("", &t);
            for n in 0..b.len() {
                // Cut between fields, what is left can be a tensor of other shape, never of ours.
                assert!(
                    data::pb_from_bytes("x", &b[..n])
                        .map_or(true, |(_, got)| got != t || t.is_empty())
                );
            }
            for i in 0..b.len() {
                for bit in 0..8 {
                    b[i] ^= 1 << bit;
                    let _ = data::pb_from_bytes("x", &b);
                    b[i] ^= 1 << bit;
                }
            }
        }
    }
}

#[test]
fn typed_fields_are_read() {
    // dims [2], data_type FLOAT, float_data [1.0, 2.0]
    let mut b = vec![0x08, 2, 0x10, 1, 0x22, 8];
    b.extend_from_slice(&[1.0f32, 2.0].map(f32::to_le_bytes).concat());
    let (_, t) = data::pb_from_bytes("x", &b).unwrap();
    assert_eq!(t.to_f32().unwrap(), [1.0, 2.0]);
}

#[test]
fn errors_say_what_is_wrong() {
    let complex = [0x08, 1, 0x10, 14, 0x4a, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    let e = data::pb_from_bytes("x.pb", &complex)
        .unwrap_err()
        .to_string();
    assert!(e.contains("x.pb") && e.contains("COMPLEX64"), "{e}");
    let huge = [
        0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0x10, 1,
    ];
    assert!(data::pb_from_bytes("x.pb", &huge).is_err());
    // raw_data that claims more than is there
    let e = data::pb_from_bytes("x.pb", &[0x10, 1, 0x4A, 100, 0])
        .unwrap_err()
        .to_string();
    assert!(e.contains("byte") && !e.contains("<memory>"), "{e}");
}

/// Found by fuzzing: a tensor of 2-bit integers whose extents multiply to more than there can be.
#[test]
fn extents_that_overflow_are_an_error() {
    let file = [
        0x0a, 0x0a, 0x0a, 0xf6, 0xf5, 0xf5, 0xf5, 0xf5, 0xf5, 0xf5, 0xf4, 0x0a, 0x0a, 0x0a, 0x28,
        0x08, 0x08, 0x27, 0x00, 0xff, 0x28, 0xf9, 0x08, 0x08, 0x10, 0x1a,
    ];
    // One of them is 0: the others must still be such that their product is a number.
    assert!(data::pb_from_bytes("damaged.pb", &file).is_err());
    // Two extents of 2^40 with one byte of data; type 26 is int2.
    let dim = [0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20];
    let file = [&dim[..], &dim, &[0x10, 26, 0x4a, 1, 0]].concat();
    assert!(data::pb_from_bytes("damaged.pb", &file).is_err());
    // One extent of 2^40 must not take a terabyte either.
    let file = [&dim[..], &[0x10, 26, 0x4a, 1, 0]].concat();
    assert!(data::pb_from_bytes("damaged.pb", &file).is_err());
}
