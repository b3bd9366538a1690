//! Arrays written by numpy are read, and what is written is read back; damaged files end in errors.

use layout::DType;
use shopfloor_data as data;
use std::path::{Path, PathBuf};
use tensor::Tensor;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/files")
        .join(name)
}

fn get<'a>(all: &'a [(String, Tensor)], name: &str) -> &'a Tensor {
    &all.iter()
        .find(|(n, _)| n == name)
        .unwrap_or_else(|| panic!("no array {name}"))
        .1
}

fn samples() -> Vec<(String, Tensor)> {
    DType::ALL
        .into_iter()
        .map(|d| {
            let mut t = Tensor::zeros(d, &[3, 2]).unwrap();
            (0..6).for_each(|i| t.set_i64(i, i as i64));
            (format!("a/{d}"), t)
        })
        .chain([("ü".to_string(), Tensor::zeros(DType::F32, &[]).unwrap())])
        .collect()
}

#[test]
fn archives_written_by_numpy() {
    for name in ["stored.npz", "deflated.npz"] {
        let all = data::read_npz(file(name)).unwrap();
        assert_eq!(all.len(), 18);
        assert_eq!(all[0].0, "fortran", "arrays come in the file's order");
        let types = [
            "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64",
        ];
        for (numpy, ours) in [
            "f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8",
        ]
        .iter()
        .zip(types)
        {
            assert_eq!(get(&all, &format!("t_{numpy}")).dtype().name(), ours);
        }
        for name in ["fortran", "big", "big_half"]
            .map(String::from)
            .into_iter()
            .chain(
                all.iter()
                    .map(|(n, _)| n.clone())
                    .filter(|n| n.starts_with("t_")),
            )
        {
            let t = get(&all, &name);
            assert_eq!(t.shape(), [2, 3, 4], "{name}");
            assert!((0..24).all(|i| t.get_f64(i) == i as f64), "{name}");
        }
        let t = get(&all, "bool");
        assert_eq!((t.dtype(), t.bytes()[0], t.bytes()[1]), (DType::Bool, 1, 0));
        let t = get(&all, "scalar");
        assert!(t.shape().is_empty() && t.get_f64(0) == 2.5);
        assert_eq!(get(&all, "empty").shape(), [0, 3]);
        assert_eq!(get(&all, "one").shape(), [3]);
    }
}

#[test]
fn every_type_survives_a_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npz");
    let all = samples();
    data::write_npz(&path, &all).unwrap();
    assert_eq!(
        std::fs::read(&path).unwrap(),
        data::npz_to_bytes(&all).unwrap()
    );
    for ((name, t), (back, b)) in all.iter().zip(data::read_npz(&path).unwrap()) {
        assert_eq!(*name, back);
        match t.dtype() {
            // Four-bit elements come back in bytes.
            DType::I4 | DType::U4 => assert!((0..6).all(|i| b.get_i64(i) == t.get_i64(i))),
            _ => assert_eq!(*t, b, "{name}"),
        }
        let path = dir.path().join("x.npy");
        data::write_npy(&path, t).unwrap();
        assert_eq!(data::read_npy(&path).unwrap(), b);
        assert_eq!(std::fs::read(&path).unwrap(), data::npy_to_bytes(t));
        assert_eq!(
            data::npy_to_bytes(t).len() % 64,
            t.bytes().len().max(b.bytes().len()) % 64
        );
    }
}

#[test]
fn types_without_counterpart_are_named() {
    for (name, what) in [("object.npy", "'|O'"), ("record.npy", "records")] {
        let e = data::read_npy(file(name)).unwrap_err().to_string();
        assert!(e.contains(what) && e.contains(name), "{e}");
    }
    let texts = data::read_npy(file("text.npy")).unwrap();
    assert_eq!(texts.text().map(<[String]>::len), Some(texts.len()));
}

/// A directory of more entries than 16 bits count.
#[test]
fn as_many_arrays_as_take_the_64_bit_end_record() {
    let t = Tensor::from_i32(&[1], &[7]).unwrap();
    let all: Vec<_> = (0..70_000).map(|i| (i.to_string(), t.clone())).collect();
    let bytes = data::npz_to_bytes(&all).unwrap();
    assert!(bytes.windows(4).any(|w| w == b"PK\x06\x06"));
    assert_eq!(data::npz_from_bytes("x", &bytes).unwrap(), all);
}

#[test]
fn names_used_twice_are_refused() {
    let t = Tensor::from_i32(&[1], &[1]).unwrap();
    let twice = [("a".to_string(), t.clone()), ("a".to_string(), t)];
    assert!(
        data::npz_to_bytes(&twice)
            .unwrap_err()
            .to_string()
            .contains("\"a\"")
    );
}

fn npy_with(header: &str, data: &[u8]) -> Vec<u8> {
    let mut b = b"\x93NUMPY\x01\x00".to_vec();
    b.extend_from_slice(&(header.len() as u16).to_le_bytes());
    b.extend_from_slice(header.as_bytes());
    b.extend_from_slice(data);
    b
}

#[test]
fn hostile_headers_are_errors() {
    let dims = |s: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({s}), }}");
    let deep = "[".repeat(60_000);
    let cases = [
        dims("1000000000000000, 4"),
        dims("18446744073709551615, 18446744073709551615"),
        dims("99999999999999999999999999"),
        dims("-1,"),
        dims("2 3"),
        dims(&"1,".repeat(100)),
        dims("2"),
        "{'descr': '<f4', 'fortran_order': True}".to_string(),
        format!("{{'descr': {deep}"),
        deep,
        "{'descr': '<f4".to_string(),
        "{'descr': 'é', 'fortran_order': False, 'shape': (1,)}".to_string(),
        "{'descr': '', 'fortran_order': False, 'shape': (1,)}".to_string(),
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}".to_string(),
        String::new(),
    ];
    for c in cases {
        let e = data::npy_from_bytes("x.npy", &npy_with(&c, &[0; 4]))
            .expect_err(&c[..c.len().min(80)])
            .to_string();
        assert!(e.contains("x.npy"), "{e}");
    }
    let overflowing = "{'descr': '<f4', 'fortran_order': True, 'shape': (0, 9223372036854775807, 9223372036854775807)}";
    // Nothing is in it, but a product of some of its extents would overflow in whoever reads it.
    assert!(data::npy_from_bytes("x", &npy_with(overflowing, &[])).is_err());
    let mut long = b"\x93NUMPY\x02\x00".to_vec();
    long.extend_from_slice(&u32::MAX.to_le_bytes());
    assert!(data::npy_from_bytes("x", &long).is_err());
}

#[test]
fn truncated_and_flipped_archives_never_panic_or_lie() {
    let small = std::fs::read(file("deflated.npz")).unwrap();
    for bytes in [data::npz_to_bytes(&samples()[..3]).unwrap(), small] {
        let want = data::npz_from_bytes("x", &bytes).unwrap();
        for n in 0..bytes.len() {
            assert!(
                data::npz_from_bytes("x", &bytes[..n]).is_err(),
                "cut at {n}"
            );
        }
        let mut b = bytes.clone();
        for i in 0..b.len() {
            for bit in [1u8, 0x10, 0x80, 0xFF] {
                b[i] ^= bit;
                // What is still accepted (a changed date) must not change what is read.
                if let Ok(got) = data::npz_from_bytes("x", &b) {
                    assert!(got == want, "byte {i} xor {bit:#x}");
                }
                b[i] ^= bit;
            }
        }
    }
}

#[test]
fn truncated_and_flipped_arrays_never_panic() {
    for (_, t) in samples() {
        let mut b = data::npy_to_bytes(&t);
        for n in 0..b.len() {
            assert!(data::npy_from_bytes("x", &b[..n]).is_err());
        }
        for i in 0..b.len() {
            for bit in 0..8 {
                b[i] ^= 1 << bit;
                let _ = data::npy_from_bytes("x", &b);
                b[i] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn paths_that_are_no_files_are_named() {
    let e = data::read_npz(env!("CARGO_MANIFEST_DIR"))
        .unwrap_err()
        .to_string();
    assert!(e.contains("not a regular file"), "{e}");
    let e = data::read_npy("no/such.npy").unwrap_err().to_string();
    assert!(e.contains("no/such.npy"), "{e}");
}

#[test]
fn arrays_that_nobody_wants_are_not_unpacked_and_sizes_are_asked_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npz");
    let large = Tensor::zeros(DType::F32, &[1 << 20]).unwrap();
    let small = Tensor::from_f32(&[2], &[1.0, 2.0]).unwrap();
    let all = [("large".to_string(), large), ("small".to_string(), small)];
    data::write_npz(&path, &all).unwrap();
    let read = |most: u64| {
        data::read_npz_of(&path, &mut |n| match n {
            "small" => Some(8),
            _ => Some(most).filter(|m| *m > 0),
        })
    };
    assert_eq!(read(0).unwrap(), all[1..]);
    assert_eq!(read(4 << 20).unwrap(), all);
    let e = read(1 << 20).unwrap_err().to_string();
    assert!(
        e.contains("\"large\"") && e.contains("at most 1048576 B"),
        "{e}"
    );
    // A size that so few bytes cannot have is refused before memory is asked for.
    let mut bytes = std::fs::read(&path).unwrap();
    let central = bytes.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    bytes[central + 10] = 8;
    bytes[central + 24..central + 28].copy_from_slice(&0xFFFF_FFF0u32.to_le_bytes());
    bytes[central + 20..central + 24].copy_from_slice(&100u32.to_le_bytes());
    let e = data::npz_from_bytes("b.npz", &bytes)
        .unwrap_err()
        .to_string();
    assert!(e.contains("a size that its data cannot have"), "{e}");
}
