//! Pictures and sound for examples, as tensors.

use crate::{DataError, file};
use std::io::Cursor;
use std::path::Path;
use tensor::Tensor;

/// Most bytes a decoded picture may take.
const MAX_PICTURE: usize = 1 << 30;

/// Samples of a sound.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    /// Samples per second of each channel, in Hz.
    pub rate: u32,
    /// f32 samples in -1..1, shape `[channels, samples]`.
    pub samples: Tensor,
}

/// Reads the PNG picture at `path` as u8 `[height, width, channels]`: one channel for grey, three
/// (red, green, blue) for colour; alpha is dropped, 16-bit samples keep their upper byte.
///
/// # Errors
/// When the file cannot be read, is damaged, or is larger than 1 GiB decoded.
pub fn read_png(path: impl AsRef<Path>) -> Result<Tensor, DataError> {
    let path = path.as_ref();
    png_from_bytes(&file::name(path), &file::read(path)?)
}

/// Reads a PNG picture from `bytes` as [`read_png`] does; `name` is used in errors only.
///
/// # Errors
/// As [`read_png`].
pub fn png_from_bytes(name: &str, bytes: &[u8]) -> Result<Tensor, DataError> {
    let bad = |reason: String| DataError::Picture {
        name: name.to_string(),
        reason,
    };
    let damaged = |e: png::DecodingError| bad(format!("{e}; save it as an 8-bit grey or RGB PNG"));
    let mut decoder =
        png::Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: MAX_PICTURE });
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(damaged)?;
    let size = reader
        .output_buffer_size()
        .filter(|&n| n <= MAX_PICTURE)
        .ok_or_else(|| bad("it takes more than 1 GiB decoded; scale it down".into()))?;
    let mut pixels = vec![0; size];
    let info = reader.next_frame(&mut pixels).map_err(damaged)?;
    pixels.truncate(info.buffer_size());
    let have = info.color_type.samples();
    let keep = if have >= 3 { 3 } else { 1 };
    if have != keep {
        pixels = pixels
            .chunks_exact(have)
            .flat_map(|p| p[..keep].iter().copied())
            .collect();
    }
    let shape = [info.height as usize, info.width as usize, keep];
    Tensor::from_u8(&shape, &pixels).map_err(|e| bad(e.to_string()))
}

/// Reads the WAV file at `path`, 16-bit PCM; a sample s becomes s / 32768.
///
/// # Errors
/// When the file cannot be read, is damaged, or holds other than 16-bit PCM samples.
pub fn read_wav(path: impl AsRef<Path>) -> Result<Sound, DataError> {
    let path = path.as_ref();
    wav_from_bytes(&file::name(path), &file::read(path)?)
}

/// Reads a WAV sound from `bytes` as [`read_wav`] does; `name` is used in errors only.
///
/// # Errors
/// As [`read_wav`].
pub fn wav_from_bytes(name: &str, bytes: &[u8]) -> Result<Sound, DataError> {
    let bad = |reason: String| DataError::Sound {
        name: name.to_string(),
        reason,
    };
    let damaged = |e: hound::Error| bad(format!("{e}; save it as 16-bit PCM"));
    let reader = hound::WavReader::new(Cursor::new(bytes)).map_err(damaged)?;
    let spec = reader.spec();
    if spec.sample_format != hound::SampleFormat::Int
        || spec.bits_per_sample != 16
        || spec.channels == 0
    {
        return Err(bad(format!(
            "it holds {}-bit samples; save it as 16-bit PCM",
            spec.bits_per_sample
        )));
    }
    let channels = usize::from(spec.channels);
    let flat: Vec<i16> = reader
        .into_samples()
        .collect::<Result<_, _>>()
        .map_err(damaged)?;
    let n = flat.len() / channels;
    let samples: Vec<f32> = (0..channels)
        .flat_map(|c| (0..n).map(move |i| i * channels + c))
        .map(|i| f32::from(flat[i]) / 32768.0)
        .collect();
    let samples = Tensor::from_f32(&[channels, n], &samples).map_err(|e| bad(e.to_string()))?;
    Ok(Sound {
        rate: spec.sample_rate,
        samples,
    })
}
