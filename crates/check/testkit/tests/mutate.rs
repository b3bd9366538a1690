//! Damaged copies of files, and what keeps them nearly right.
use testkit::internals::{crc, fields, message, tokens};
use testkit::mutate::{damaged_proto, damaged_text, stored, unstored};
use testkit::random::Rng;

#[test]
fn messages_come_back_as_they_were() {
    let model = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../models/digits_cnn/model.onnx"
    );
    let bytes = std::fs::read(model).unwrap();
    assert_eq!(message(&fields(&bytes).unwrap()), bytes);
    // Damage leaves a message nearly always: that is what it is for.
    let whole = |s: &u64| fields(&damaged_proto(&bytes, &mut Rng::new(*s))).is_some();
    assert!((1..=100).filter(whole).count() > 90);
    assert!(fields(&[0xff; 11]).is_none() && fields(&[0x0a, 5, 1]).is_none());
}

#[test]
fn tokens_make_the_text_again() {
    let t = "{\"a\": [1, -2.5e3],\n \"b\": \"ü\"}";
    assert_eq!(tokens(t).concat(), t);
    assert!(tokens(t).contains(&"-2.5e3"));
    let changed = |s: u64| damaged_text(t.as_bytes(), &mut Rng::new(s));
    assert!((1..50).filter(|&s| changed(s) != t.as_bytes()).count() > 35);
}

#[test]
fn the_reader_takes_what_is_stored() {
    let t = tensor::Tensor::from_f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap();
    let entries = vec![
        ("a.npy".to_string(), data::npy_to_bytes(&t)),
        ("b.npy".to_string(), data::npy_to_bytes(&t)),
    ];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npz");
    let bytes = stored(&entries);
    std::fs::write(&path, &bytes).unwrap();
    let read = data::read_npz(&path).unwrap();
    assert_eq!(read, [("a".to_string(), t.clone()), ("b".to_string(), t)]);
    assert_eq!(unstored(&bytes).unwrap(), entries);
    assert_eq!(crc(b"123456789"), 0xcbf4_3926);
}
