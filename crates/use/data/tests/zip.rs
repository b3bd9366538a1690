//! Archives of arrays.
use shopfloor_data::internals::write_zip;
use shopfloor_data::npz_from_bytes;
use tensor::Tensor;

/// Sizes and offsets from here on take the 64-bit extension.
const ZIP64_FROM: u64 = 0xFFFF_FFFF;
/// What an entry of the directory begins with.
const CENTRAL: u32 = 0x0201_4B50;

#[test]
fn the_64_bit_extension_is_written_and_read() {
    let tensors: Vec<(String, Tensor)> = (0..3)
        .map(|i| (format!("a{i}"), Tensor::from_i32(&[2], &[i, -i]).unwrap()))
        .collect();
    for wide in [100, 150, 300, 400, 600] {
        let mut bytes = Vec::new();
        write_zip(&mut bytes, &tensors, wide).unwrap();
        assert_eq!(npz_from_bytes("x", &bytes).unwrap(), tensors);
    }
}

#[test]
fn members_that_share_bytes_are_refused() {
    let tensors: Vec<(String, Tensor)> = ["a", "b"]
        .map(|n| (n.to_string(), Tensor::from_i32(&[1], &[7]).unwrap()))
        .to_vec();
    let mut bytes = Vec::new();
    write_zip(&mut bytes, &tensors, ZIP64_FROM).unwrap();
    let second = bytes
        .windows(4)
        .rposition(|w| w == CENTRAL.to_le_bytes())
        .unwrap();
    // Both entries point at the first member now, and the names agree.
    bytes[second + 42..second + 46].copy_from_slice(&[0; 4]);
    bytes[second + 46] = b'a';
    let e = npz_from_bytes("x", &bytes).unwrap_err().to_string();
    assert!(e.contains("share bytes"), "{e}");
}
