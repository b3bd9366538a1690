//! The npy format, versions 1 to 3: a magic, a Python dict as header, then the elements.
//!
//! numpy has no bfloat16 and no 4-bit types. bfloat16 is written as `<V2`, which is what numpy
//! writes for arrays of the ml_dtypes package, and `V2` is read as bfloat16; 4-bit elements are
//! written widened to one byte each, texts as characters of 4 bytes (`<U8`).

use crate::{DataError, file};
use layout::DType;
use std::io::Write;
use std::path::Path;
use tensor::Tensor;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header read; numpy's own default limit is 10,000 bytes.
pub(crate) const MAX_HEADER: usize = 64 * 1024;
/// Most dimensions read; numpy allows 64.
const MAX_RANK: usize = 64;

/// Reads one array from the npy file at `path`; Fortran order and big-endian elements come out row-major
/// and little endian.
///
/// # Errors
/// When the file cannot be read, is damaged, or holds an element type without counterpart.
pub fn read_npy(path: impl AsRef<Path>) -> Result<Tensor, DataError> {
    let path = path.as_ref();
    npy_from_bytes(&file::name(path), &file::read(path)?)
}

/// Reads one array from npy `bytes`; `name` is used in errors only.
///
/// # Errors
/// As [`read_npy`].
pub fn npy_from_bytes(name: &str, bytes: &[u8]) -> Result<Tensor, DataError> {
    let bad = |reason: String| DataError::Npy {
        name: name.to_string(),
        reason,
    };
    let (text, data) = split(bytes).map_err(bad)?;
    let header = Header::parse(text).map_err(bad)?;
    if let Some(width) = crate::text::width(&header.descr) {
        if header.fortran {
            return Err(bad(
                "its texts are in Fortran order; save them in C order".into()
            ));
        }
        return crate::text::read(data, &header.shape, width).map_err(bad);
    }
    let (dtype, swap) = element_type(&header.descr).ok_or_else(|| DataError::ElementType {
        name: name.to_string(),
        descr: header.descr.clone(),
    })?;
    let want = Tensor::byte_len(dtype, &header.shape).map_err(|e| bad(e.to_string()))?;
    if want != data.len() {
        return Err(bad(format!(
            "its header declares {dtype}{:?}, which takes {want} bytes, but {} follow; save it again",
            header.shape,
            data.len()
        )));
    }
    let width = dtype.bits() as usize / 8;
    let mut bytes = if header.fortran {
        from_fortran(data, &header.shape, width)
    } else {
        let mut own = Vec::new();
        let had = own.try_reserve_exact(data.len());
        had.map_err(|_| {
            bad(format!(
                "there is no memory for its {} B; save a smaller array",
                data.len()
            ))
        })?;
        own.extend_from_slice(data);
        own
    };
    if swap {
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
    if dtype == DType::Bool {
        bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
    Tensor::from_bytes(dtype, &header.shape, bytes).map_err(|e| bad(e.to_string()))
}

/// Writes `tensor` to the npy file at `path`, row-major and little endian; the same tensor gives the same bytes.
///
/// # Errors
/// When the file cannot be written.
pub fn write_npy(path: impl AsRef<Path>, tensor: &Tensor) -> Result<(), DataError> {
    let path = path.as_ref();
    let (header, data) = parts(tensor);
    let fill = |f: &mut dyn Write| f.write_all(&header).and_then(|()| f.write_all(&data));
    files::replace(path, |f| fill(f)).map_err(|source| DataError::Write {
        path: path.to_path_buf(),
        source,
    })
}

/// `tensor` in npy format.
pub fn npy_to_bytes(tensor: &Tensor) -> Vec<u8> {
    let (mut bytes, data) = parts(tensor);
    bytes.extend_from_slice(&data);
    bytes
}

/// Header and elements of `tensor` in npy format.
pub(crate) fn parts(tensor: &Tensor) -> (Vec<u8>, std::borrow::Cow<'_, [u8]>) {
    let descr = match tensor.dtype() {
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::F16 => "<f2",
        DType::BF16 => "<V2",
        DType::I8 | DType::I4 => "|i1",
        DType::U8 | DType::U4 => "|u1",
        DType::I16 => "<i2",
        DType::U16 => "<u2",
        DType::I32 => "<i4",
        DType::U32 => "<u4",
        DType::I64 => "<i8",
        DType::U64 => "<u8",
        DType::Bool => "|b1",
        // A sequence has no array: it is written as none.
        DType::Host => "|u1",
        DType::Str => "",
    };
    let (descr, texts) = match tensor.text() {
        Some(t) => {
            let (d, bytes) = crate::text::write(t);
            (d, Some(bytes))
        }
        None => (descr.to_string(), None),
    };
    let mut shape: String = tensor.shape().iter().map(|d| format!("{d}, ")).collect();
    // Python writes (3,) for one dimension and (3, 4) for more.
    shape.truncate(
        shape
            .len()
            .saturating_sub(if tensor.shape().len() > 1 { 2 } else { 1 }),
    );
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let (version, prefix) = if text.len() + 64 < 65_536 {
        (1u8, 10)
    } else {
        (2, 12)
    };
    let total = (prefix + text.len() + 1).next_multiple_of(64);
    text.extend(std::iter::repeat_n(' ', total - prefix - text.len() - 1));
    text.push('\n');
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&[version, 0]);
    match version {
        1 => header.extend_from_slice(&(text.len() as u16).to_le_bytes()),
        _ => header.extend_from_slice(&(text.len() as u32).to_le_bytes()),
    }
    header.extend_from_slice(text.as_bytes());
    let data = if let Some(texts) = texts {
        texts
    } else if matches!(tensor.dtype(), DType::I4 | DType::U4) {
        (0..tensor.len())
            .map(|i| tensor.get_i64(i) as u8)
            .collect::<Vec<u8>>()
            .into()
    } else {
        tensor.bytes().into()
    };
    (header, data)
}

/// Header text and elements.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let short = || "it ends inside its header; copy or save it again".to_string();
    if !bytes.starts_with(MAGIC) {
        return Err("it does not start with the npy magic; save it with numpy.save".into());
    }
    let version = (
        *bytes.get(6).ok_or_else(short)?,
        *bytes.get(7).ok_or_else(short)?,
    );
    let (len, start) = match version {
        (1, 0) => {
            let b: [u8; 2] = bytes
                .get(8..10)
                .and_then(|b| b.try_into().ok())
                .ok_or_else(short)?;
            (u16::from_le_bytes(b) as usize, 10)
        }
        (2 | 3, 0) => {
            let b: [u8; 4] = bytes
                .get(8..12)
                .and_then(|b| b.try_into().ok())
                .ok_or_else(short)?;
            (u32::from_le_bytes(b) as usize, 12)
        }
        (a, b) => {
            return Err(format!(
                "format version {a}.{b} is unknown; use 1.0, 2.0 or 3.0"
            ));
        }
    };
    if len > MAX_HEADER {
        return Err(format!(
            "its header of {len} bytes is longer than {MAX_HEADER}; save a plain array"
        ));
    }
    let text = bytes.get(start..start + len).ok_or_else(short)?;
    Ok((text, &bytes[start + len..]))
}

/// Element type of a descr such as `<f4`, and whether its bytes must be swapped.
fn element_type(descr: &str) -> Option<(DType, bool)> {
    let (order, kind) = match descr.as_bytes().first()? {
        c @ (b'<' | b'>' | b'|' | b'=') => (*c, &descr[1..]),
        _ => (b'=', descr),
    };
    let dtype = match kind {
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "V2" => DType::BF16,
        "i1" => DType::I8,
        "u1" => DType::U8,
        "i2" => DType::I16,
        "u2" => DType::U16,
        "i4" => DType::I32,
        "u4" => DType::U32,
        "i8" => DType::I64,
        "u8" => DType::U64,
        "b1" | "?" => DType::Bool,
        _ => return None,
    };
    Some((dtype, order == b'>' && dtype.bits() > 8))
}

/// Elements of `width` bytes reordered from column-major to row-major.
fn from_fortran(data: &[u8], shape: &[usize], width: usize) -> Vec<u8> {
    // An empty array may declare extents whose product overflows.
    if data.is_empty() {
        return Vec::new();
    }
    let rank = shape.len();
    let mut strides = vec![width; rank];
    for d in 1..rank {
        strides[d] = strides[d - 1] * shape[d - 1];
    }
    let mut out = Vec::with_capacity(data.len());
    let mut index = vec![0; rank];
    let mut at = 0;
    while out.len() < data.len() {
        out.extend_from_slice(&data[at..at + width]);
        for d in (0..rank).rev() {
            index[d] += 1;
            at += strides[d];
            if index[d] < shape[d] {
                break;
            }
            at -= strides[d] * shape[d];
            index[d] = 0;
        }
    }
    out
}

/// What the header's dict says.
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    fn parse(text: &[u8]) -> Result<Header, String> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        let mut p = Parser { text, at: 0 };
        p.expect(b'{')?;
        while !p.take(b'}') {
            let key = p.string()?;
            p.expect(b':')?;
            match key.as_str() {
                "descr" => descr = Some(p.descr()?),
                "fortran_order" => fortran = Some(p.boolean()?),
                "shape" => shape = Some(p.tuple()?),
                other => {
                    return Err(format!(
                        "its header has the unknown key {other:?}; save it with numpy.save"
                    ));
                }
            }
            if !p.take(b',') {
                p.expect(b'}')?;
                break;
            }
        }
        if p.peek().is_some() {
            return Err("text follows the dict in its header; save it with numpy.save".into());
        }
        let missing =
            |key: &str| format!("its header lacks the key '{key}'; save it with numpy.save");
        Ok(Header {
            descr: descr.ok_or_else(|| missing("descr"))?,
            fortran: fortran.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }
}

/// A reader of the few Python literals a header holds.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn take(&mut self, c: u8) -> bool {
        let found = self.peek() == Some(c);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, c: u8) -> Result<(), String> {
        if self.take(c) {
            return Ok(());
        }
        Err(format!(
            "'{}' is missing at byte {} of its header; save it with numpy.save",
            c as char, self.at
        ))
    }

    fn string(&mut self) -> Result<String, String> {
        let quote = if self.take(b'"') { b'"' } else { b'\'' };
        if quote == b'\'' {
            self.expect(quote)?;
        }
        let rest = &self.text[self.at..];
        let end = rest
            .iter()
            .position(|&c| c == quote)
            .ok_or("a text in its header does not end; save it again")?;
        self.at += end + 1;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    /// A type string; a record type comes back as its beginning, for the error that will follow.
    fn descr(&mut self) -> Result<String, String> {
        if self.peek() == Some(b'[') {
            return Err("it holds records; save one plain array per field".into());
        }
        self.string()
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.peek();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err("'fortran_order' is neither True nor False; save it with numpy.save".into())
    }

    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        self.expect(b'(')?;
        let mut dims = Vec::new();
        while !self.take(b')') {
            self.peek();
            let from = self.at;
            while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
                self.at += 1;
            }
            let digits = std::str::from_utf8(&self.text[from..self.at]).unwrap_or_default();
            let dim = digits.parse().map_err(|_| {
                format!("a dimension in its shape is no count of elements (byte {from} of the header); save it again")
            })?;
            dims.push(dim);
            if dims.len() > MAX_RANK {
                return Err(format!(
                    "its shape has more than {MAX_RANK} dimensions; reshape it"
                ));
            }
            // Python 2 wrote long integers as 3L.
            self.take(b'L');
            if !self.take(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(dims)
    }
}
