//! Programs on the library: each is a function here, `cargo run --example NAME`, and a test.
//!
//! | example | model | inputs | answer |
//! |---|---|---|---|
//! | [`classify_digit`] | `digits_cnn` | `image` f32 [batch, 1, 8, 8] in 0..1 | `probabilities` f32 [batch, 10] |
//! | [`detect_speech`] | `silero_vad` | `input` f32 [1, 576], `state` f32 [2, 1, 128], `sr` i64 [] | `output` f32 [1, 1], `stateN` |
//! | [`read_line`] | `ppocr_rec` | `x` f32 [1, 3, 48, width] in -1..1 | f32 [1, columns, classes] |
//! | [`hear_many`] | `silero_vad` | as `detect_speech`, one stream per microphone | `output` f32 [1, 1] |
//! | [`sensor_windows`] | a kernel of one's own | `x` f32 `sensors x window` | `variance` f32 `sensors` |
//! | [`many_at_once`] | `digits_cnn` | as `classify_digit`, one image a request, all at once | as `classify_digit` |
//! | [`own_operator`] | one node | `x` f32 `[n]` | `y` f32 `[n]` |
//! | [`complete_tokens`] | one that is named | ids, mask and positions i64 [1, tokens] | `logits` f32 [1, tokens, 8192] |
#![forbid(unsafe_code)]

pub mod classify_digit;
pub mod complete_tokens;
pub mod detect_speech;
pub mod hear_many;
pub mod many_at_once;
pub mod own_operator;
pub mod read_line;
pub mod sensor_windows;

/// The code of that page.
#[cfg(doctest)]
#[doc = include_str!("../../docs/coming-from-ort.md")]
pub struct ComingFromOrt;

use shopfloor::Tensor;
use std::path::PathBuf;

/// What an example ends with when it fails.
pub type Failure = Box<dyn std::error::Error>;

/// A file of a bundled model.
pub fn bundled(model: &str, file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../models")
        .join(model)
        .join(file)
}

/// The largest of `n` entries from `first` on, counted from there.
pub fn argmax(t: &Tensor, first: usize, n: usize) -> usize {
    (0..n).fold(0, |best, i| {
        if t.get_f64(first + i) > t.get_f64(first + best) {
            i
        } else {
            best
        }
    })
}
