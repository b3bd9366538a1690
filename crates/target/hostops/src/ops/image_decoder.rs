//! ImageDecoder: a file of a picture as its pixels, with the feature `pictures`.
use crate::args::Args;
use crate::error::R;
use tensor::Tensor;

/// Most bytes that a picture may take once it is decoded.
#[cfg(feature = "pictures")]
const MOST: u64 = 1 << 30;

#[cfg(feature = "pictures")]
pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    use crate::data::RawOut;
    use crate::error::Why;
    use image::{ImageDecoder as _, ImageReader, Limits};
    use layout::DType;

    let file = a.ranked(0, 1)?;
    if file.dtype() != DType::U8 {
        return Err(format!(
            "the encoded picture has elements of {}, not u8",
            file.dtype()
        )
        .into());
    }
    let format = a.text("pixel_format", "RGB")?;
    if !["RGB", "BGR", "Grayscale"].contains(&format) {
        return Err(format!("pixel_format '{format}' is none of RGB, BGR and Grayscale").into());
    }
    let fail = |e: &dyn std::fmt::Display| {
        Why(format!(
            "the picture cannot be decoded: {e}; give a file of BMP, JPEG, PNG, PNM, TIFF or WebP"
        ))
    };
    let mut reader = ImageReader::new(std::io::Cursor::new(file.bytes()))
        .with_guessed_format()
        .map_err(|e| fail(&e))?;
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MOST);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(|e| fail(&e))?;
    // The file says how large it is before anything is decoded.
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    let bytes = decoder.total_bytes().max(pixels.saturating_mul(3));
    if bytes > MOST {
        return Err(format!("the picture is {width} x {height}, {bytes} bytes once it is decoded; at most {MOST} are allowed").into());
    }
    let channels = if format == "Grayscale" { 1 } else { 3 };
    let mut out = RawOut::new(DType::U8, &[height as usize, width as usize, channels])?;
    let color = decoder.color_type();
    let depth = usize::from(color.bytes_per_pixel() / color.channel_count());
    let mut stored = vec![0; decoder.total_bytes() as usize];
    decoder.read_image(&mut stored).map_err(|e| fail(&e))?;
    let stored = stored.chunks_exact(color.bytes_per_pixel().into());
    for (to, p) in out.bytes.chunks_exact_mut(channels).zip(stored) {
        let at = |channel: usize| byte(&p[channel * depth..][..depth]);
        let [r, g, b] = match color.has_color() {
            true => [at(0), at(1), at(2)],
            false => [at(0); 3],
        };
        match to {
            [grey] => *grey = luma(r, g, b),
            to if format == "BGR" => to.copy_from_slice(&[b, g, r]),
            to => to.copy_from_slice(&[r, g, b]),
        }
    }
    Ok(vec![out.finish()?])
}

/// A channel's value, of 8 or 16 bits or a float from 0 to 1, in 8 bits and rounded. `DynamicImage` does the same, and
/// brings the conversions of all colour spaces with it.
#[cfg(feature = "pictures")]
fn byte(stored: &[u8]) -> u8 {
    match *stored {
        [a, b] => ((u32::from(u16::from_ne_bytes([a, b])) + 128) / 257) as u8,
        // What is above 1, and what is no number, is 255.
        [a, b, c, d] => match f32::from_ne_bytes([a, b, c, d]) {
            x if x < 1.0 => (x.max(0.0) * 255.0).round() as u8,
            _ => 255,
        },
        _ => stored[0],
    }
}

/// ITU-R 601-2's luma, rounded.
#[cfg(feature = "pictures")]
fn luma(r: u8, g: u8, b: u8) -> u8 {
    ((299 * u32::from(r) + 587 * u32::from(g) + 114 * u32::from(b) + 500) / 1000) as u8
}

#[cfg(not(feature = "pictures"))]
pub(crate) fn run(_: &Args) -> R<Vec<Tensor>> {
    Err("this build decodes no pictures; build it with the feature 'pictures'".into())
}
