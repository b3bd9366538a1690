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
    use image::{DynamicImage, ImageDecoder as _, ImageReader, Limits};
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
    let rgb = DynamicImage::from_decoder(decoder)
        .map_err(|e| fail(&e))?
        .into_rgb8();
    for (to, p) in out.bytes.chunks_exact_mut(channels).zip(rgb.pixels()) {
        let [r, g, b] = p.0;
        match to {
            [grey] => *grey = luma(r, g, b),
            to if format == "BGR" => to.copy_from_slice(&[b, g, r]),
            to => to.copy_from_slice(&[r, g, b]),
        }
    }
    Ok(vec![out.finish()?])
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
