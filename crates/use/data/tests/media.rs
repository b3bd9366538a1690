//! Pictures and sound bundled with the models, and damaged ones.
#![cfg(feature = "media")]

use shopfloor_data as data;
use std::path::{Path, PathBuf};

fn bundled(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../models")
        .join(name)
}

#[test]
fn a_line_of_text_and_a_sentence() {
    let picture = data::read_png(bundled("ppocr_rec/line.png")).unwrap();
    assert_eq!(picture.shape(), [48, 335, 3]);
    let sound = data::read_wav(bundled("silero_vad/speech.wav")).unwrap();
    assert_eq!(sound.rate, 16_000);
    assert_eq!(sound.samples.shape(), [1, 79_015]);
    assert!(
        sound
            .samples
            .to_f32()
            .unwrap()
            .iter()
            .any(|s| s.abs() > 0.1)
    );
}

#[test]
fn damaged_files_never_panic() {
    let png = std::fs::read(bundled("magika/sample.png")).unwrap();
    let wav = std::fs::read(bundled("silero_vad/speech.wav")).unwrap();
    let wav = &wav[..400];
    for (bytes, picture) in [(&png[..], true), (wav, false)] {
        let read = |b: &[u8]| {
            if picture {
                data::png_from_bytes("x", b).is_ok()
            } else {
                data::wav_from_bytes("x", b).is_ok()
            }
        };
        for n in 0..bytes.len() {
            read(&bytes[..n]);
        }
        let mut b = bytes.to_vec();
        for i in 0..b.len() {
            for bit in 0..8 {
                b[i] ^= 1 << bit;
                read(&b);
                b[i] ^= 1 << bit;
            }
        }
    }
    assert!(
        data::png_from_bytes("x.png", wav)
            .unwrap_err()
            .to_string()
            .contains("x.png")
    );
    assert!(
        data::wav_from_bytes("x.wav", &png)
            .unwrap_err()
            .to_string()
            .contains("x.wav")
    );
}
