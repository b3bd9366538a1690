//! Texts as numpy keeps them: arrays of a fixed number of characters (`<U8`) or bytes (`|S8`),
//! padded with zeros.

use std::borrow::Cow;
use tensor::Tensor;

/// Longest text in characters that is read or written.
const MAX_CHARS: usize = 1 << 20;

/// Kind, characters per text and whether the bytes must be swapped, of a descr such as `<U8`.
pub(crate) fn width(descr: &str) -> Option<(char, usize, bool)> {
    let (order, kind) = match descr.as_bytes().first()? {
        c @ (b'<' | b'>' | b'|' | b'=') => (*c, &descr[1..]),
        _ => (b'=', descr),
    };
    let mut chars = kind.chars();
    let letter = chars.next().filter(|c| matches!(c, 'U' | 'S'))?;
    let n: usize = chars.as_str().parse().ok()?;
    (n <= MAX_CHARS).then_some((letter, n, order == b'>'))
}

/// Texts of `n` characters (`U`: of 4 bytes, `S`: of one byte of UTF-8) each.
pub(crate) fn read(
    data: &[u8],
    shape: &[usize],
    (letter, n, swap): (char, usize, bool),
) -> Result<Tensor, String> {
    let each = if letter == 'U' { 4 * n } else { n };
    let count = Tensor::byte_len(layout::DType::U8, shape).map_err(|e| e.to_string())?;
    if count.checked_mul(each) != Some(data.len()) {
        return Err(format!(
            "its header declares {count} texts of {each} bytes, but {} bytes follow; save it again",
            data.len()
        ));
    }
    let bad = || "a text in it is not Unicode; save it again".to_string();
    let mut texts = Vec::new();
    for i in 0..count {
        let b = &data[i * each..(i + 1) * each];
        let text = if letter == 'U' {
            b.chunks_exact(4)
                .map(|c| {
                    let c: [u8; 4] = c.try_into().unwrap_or_default();
                    let code = match swap {
                        true => u32::from_be_bytes(c),
                        false => u32::from_le_bytes(c),
                    };
                    char::from_u32(code).ok_or_else(bad)
                })
                .collect::<Result<String, String>>()?
        } else {
            String::from_utf8(b.to_vec()).map_err(|_| bad())?
        };
        texts.push(text.trim_end_matches('\0').to_string());
    }
    Tensor::from_text(shape, texts).map_err(|e| e.to_string())
}

/// The descr and the elements of texts.
pub(crate) fn write(texts: &[String]) -> (String, Cow<'static, [u8]>) {
    let n = texts.iter().map(|t| t.chars().count()).max().unwrap_or(0);
    let n = n.clamp(1, MAX_CHARS);
    let mut out = Vec::new();
    for t in texts {
        let from = out.len();
        for c in t.chars().take(n) {
            out.extend_from_slice(&(c as u32).to_le_bytes());
        }
        out.resize(from + 4 * n, 0);
    }
    (format!("<U{n}"), out.into())
}
