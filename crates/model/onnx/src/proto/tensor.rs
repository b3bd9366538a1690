//! `TensorProto` and `SparseTensorProto`: every way ONNX writes elements, brought to one form.

use tensor::Bytes;

use super::dtype::DataType;
use super::wire::{Cursor, Field};
use super::{parse_entry, set_once};
use crate::error::Error;

/// A tensor as stored in the model.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorData {
    /// The tensor's name; empty for most attribute values.
    pub name: String,
    /// ONNX's code of the element type (see [`DataType::from_code`]), as stated in the file.
    pub dtype: i32,
    /// The dims as stated in the file; [`TensorData::elements`] checks them.
    pub dims: Vec<i64>,
    /// The elements in row-major order, in the field that holds them.
    pub data: Data,
}

/// Where a tensor's elements are, and how they are written.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// No field holds anything: a tensor without elements.
    Empty,
    /// `raw_data`: packed little-endian elements, borrowed from the file.
    Raw(Bytes),
    /// `float_data` as little-endian bytes, borrowed where the file has them in one piece.
    Floats(Bytes),
    /// `double_data`, likewise.
    Doubles(Bytes),
    /// `int32_data`: integers of 32 bits and fewer, booleans, and the bits of small floats.
    Int32s(Vec<i32>),
    /// `int64_data`.
    Int64s(Vec<i64>),
    /// `uint64_data`: 64 and 32 bits.
    Uint64s(Vec<u64>),
    /// `string_data`.
    Strings(Vec<Bytes>),
    /// In another file.
    External(ExternalData),
}

/// A place in another file, as stated in the model; nothing of it is checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalData {
    /// Path relative to the model's folder.
    pub location: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes, where stated.
    pub length: Option<u64>,
}

/// A sparse tensor in coordinate form; import writes it out.
#[derive(Debug, Clone, PartialEq)]
pub struct SparseTensor {
    /// The values that are not zero; its name is the tensor's name.
    pub values: TensorData,
    /// Their positions.
    pub indices: TensorData,
    /// Dims of the dense form.
    pub dims: Vec<i64>,
}

impl TensorData {
    /// The element type.
    ///
    /// # Errors
    /// A sentence when the code is not one of ONNX's.
    pub fn data_type(&self) -> Result<DataType, String> {
        DataType::from_code(self.dtype).ok_or_else(|| {
            format!(
                "data_type {} is not known; export with a type of ONNX opset 26 or older",
                self.dtype
            )
        })
    }

    /// The number of elements: the product of the dims, 1 for a scalar.
    ///
    /// # Errors
    /// A sentence when a dim is negative or the product exceeds 2^63 - 1.
    pub fn elements(&self) -> Result<u64, String> {
        if let Some(dim) = self.dims.iter().find(|&&dim| dim < 0) {
            return Err(format!(
                "dims {:?} hold the negative {dim}; export the model again",
                self.dims
            ));
        }
        if self.dims.contains(&0) {
            return Ok(0);
        }
        let product = self
            .dims
            .iter()
            .try_fold(1i64, |n, &dim| n.checked_mul(dim));
        product.map(i64::unsigned_abs).ok_or_else(|| {
            format!(
                "dims {:?} hold more than 2^63 elements; export the model again",
                self.dims
            )
        })
    }

    /// Bytes that the packed elements take: `ceil(elements * bits / 8)`.
    ///
    /// # Errors
    /// As [`TensorData::elements`] and [`TensorData::data_type`]; strings have no such length.
    pub fn byte_len(&self) -> Result<u64, String> {
        let dtype = self.data_type()?;
        let bits = dtype
            .bits()
            .ok_or("holds strings, where numbers are needed")?;
        let total = u128::from(self.elements()?) * u128::from(bits);
        u64::try_from(total.div_ceil(8)).map_err(|_| {
            format!(
                "{} exceeds 2^64 B; export the model again",
                self.shape_text()
            )
        })
    }

    /// The name for messages.
    pub fn label(&self) -> &str {
        if self.name.is_empty() {
            "(unnamed)"
        } else {
            &self.name
        }
    }

    /// Element type and dims for messages, such as `FLOAT [2, 3]`.
    pub fn shape_text(&self) -> String {
        let name = DataType::from_code(self.dtype).map_or("UNDEFINED", DataType::name);
        format!("{name} {:?}", self.dims)
    }

    /// The texts of a tensor of strings, which must be UTF-8.
    ///
    /// # Errors
    /// When it holds something else, or not as many as its dims say.
    pub fn texts(&self) -> Result<Vec<String>, String> {
        self.strings()?
            .iter()
            .map(|s| {
                String::from_utf8(s.to_vec())
                    .map_err(|_| "holds a text that is not UTF-8; export it again".to_string())
            })
            .collect()
    }

    /// The elements of a string tensor.
    pub(crate) fn strings(&self) -> Result<&[Bytes], String> {
        if self.data_type()? != DataType::String {
            return Err(format!(
                "is {}, where strings are needed",
                self.shape_text()
            ));
        }
        let strings: &[Bytes] = match &self.data {
            Data::Strings(strings) => strings,
            Data::Empty => &[],
            _ => return Err(self.misplaced()),
        };
        self.count(strings.len(), self.elements()?)?;
        Ok(strings)
    }

    /// The elements as packed little-endian bytes, `want` of them; not for external data.
    pub(crate) fn inline_bytes(&self, want: u64) -> Result<Bytes, String> {
        use DataType as T;
        let dtype = self.data_type()?;
        let bytes = match (&self.data, dtype) {
            (Data::Empty, _) => Bytes::default(),
            (Data::Raw(bytes), _)
            | (Data::Floats(bytes), T::Float | T::Complex64)
            | (Data::Doubles(bytes), T::Double | T::Complex128) => bytes.clone(),
            (Data::Int64s(values), T::Int64) => Bytes::from(
                values
                    .iter()
                    .flat_map(|v| v.to_le_bytes())
                    .collect::<Vec<_>>(),
            ),
            (Data::Uint64s(values), T::Uint64) => Bytes::from(
                values
                    .iter()
                    .flat_map(|v| v.to_le_bytes())
                    .collect::<Vec<_>>(),
            ),
            (Data::Uint64s(values), T::Uint32) => {
                let mut out = Vec::with_capacity(values.len() * 4);
                for &value in values {
                    let value = u32::try_from(value).map_err(|_| misfit("uint64", value, dtype))?;
                    out.extend_from_slice(&value.to_le_bytes());
                }
                Bytes::from(out)
            }
            (Data::Int32s(values), _) => Bytes::from(self.pack_int32s(values, dtype)?),
            _ => return Err(self.misplaced()),
        };
        if bytes.len() as u64 != want {
            return Err(format!(
                "holds {} B, but {} takes {want} B; export the model again",
                bytes.len(),
                self.shape_text()
            ));
        }
        Ok(bytes)
    }

    fn pack_int32s(&self, values: &[i32], dtype: DataType) -> Result<Vec<u8>, String> {
        use DataType as T;
        // The range of one entry, how many bits of it are kept, and how many entries are due.
        let (low, high, bits) = match dtype {
            T::Int32 => (i32::MIN, i32::MAX, 32),
            T::Int16 => (i16::MIN.into(), i16::MAX.into(), 16),
            T::Uint16 | T::Float16 | T::Bfloat16 => (0, u16::MAX.into(), 16),
            T::Int8 => (i8::MIN.into(), i8::MAX.into(), 8),
            T::Bool => (0, 1, 8),
            T::Uint8
            | T::Float8E4M3Fn
            | T::Float8E4M3FnUz
            | T::Float8E5M2
            | T::Float8E5M2FnUz
            | T::Float8E8M0 => (0, u8::MAX.into(), 8),
            // An entry is one byte of packed elements; signed bytes are some writers' habit.
            T::Uint4 | T::Int4 | T::Float4E2M1 | T::Uint2 | T::Int2 => {
                (i8::MIN.into(), u8::MAX.into(), 8)
            }
            T::Float6E2M3 | T::Float6E3M2 => (0, 63, 6),
            _ => return Err(self.misplaced()),
        };
        self.count(values.len(), self.entries(dtype)?)?;
        if let Some(value) = values.iter().find(|&&v| v < low || v > high) {
            return Err(misfit("int32", value, dtype));
        }
        if bits == 6 {
            return Ok(pack_sixes(values));
        }
        let mut out = Vec::with_capacity(values.len() * (bits / 8));
        for value in values {
            out.extend_from_slice(&value.to_le_bytes()[..bits / 8]);
        }
        Ok(out)
    }

    /// Entries of `int32_data` that the elements take.
    fn entries(&self, dtype: DataType) -> Result<u64, String> {
        Ok(match dtype.bits() {
            Some(width @ (2 | 4)) => self.elements()?.div_ceil(u64::from(8 / width)),
            _ => self.elements()?,
        })
    }

    /// Checks that as much is stored as the dims say, without reading it; what another file holds is
    /// checked where it is mapped.
    pub(crate) fn check_length(&self) -> Result<(), String> {
        let Some(dtype) = DataType::from_code(self.dtype) else {
            return Ok(());
        };
        match &self.data {
            Data::External(_) => self.elements().map(drop),
            Data::Int32s(v) => self.count(v.len(), self.entries(dtype)?),
            Data::Int64s(v) => self.count(v.len(), self.elements()?),
            Data::Uint64s(v) => self.count(v.len(), self.elements()?),
            _ if dtype == DataType::String => self.strings().map(drop),
            _ => self.inline_bytes(self.byte_len()?).map(drop),
        }
    }

    fn count(&self, have: usize, want: u64) -> Result<(), String> {
        if have as u64 == want {
            return Ok(());
        }
        let shape = self.shape_text();
        Err(format!(
            "holds {have} values, but {shape} takes {want}; export the model again"
        ))
    }

    fn misplaced(&self) -> String {
        let field = match &self.data {
            Data::Empty => "no field",
            Data::Raw(_) => "raw_data",
            Data::Floats(_) => "float_data",
            Data::Doubles(_) => "double_data",
            Data::Int32s(_) => "int32_data",
            Data::Int64s(_) => "int64_data",
            Data::Uint64s(_) => "uint64_data",
            Data::Strings(_) => "string_data",
            Data::External(_) => "external_data",
        };
        let shape = self.shape_text();
        format!("{shape} cannot be stored in {field}; export the model again")
    }
}

fn misfit(field: &str, value: impl std::fmt::Display, dtype: DataType) -> String {
    let name = dtype.name();
    format!("{field}_data holds {value}, which does not fit {name}; export the model again")
}

/// Packs 6-bit values into one bit stream from the low bits up.
fn pack_sixes(values: &[i32]) -> Vec<u8> {
    let mut out = vec![0u8; (values.len() * 6).div_ceil(8)];
    for (index, &value) in values.iter().enumerate() {
        let (byte, shift) = (index * 6 / 8, index * 6 % 8);
        let bits = (value as u16) << shift;
        out[byte] |= bits as u8;
        if shift > 2 {
            out[byte + 1] |= (bits >> 8) as u8;
        }
    }
    out
}

/// Pieces of a fixed-width field: the first is borrowed, a second makes them one vector.
#[derive(Default)]
struct Pieces {
    first: Option<Bytes>,
    joined: Vec<u8>,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        if !self.joined.is_empty() {
            self.joined.extend_from_slice(&piece);
        } else if let Some(first) = self.first.take() {
            self.joined.extend_from_slice(&first);
            self.joined.extend_from_slice(&piece);
        } else {
            self.first = Some(piece);
        }
    }

    fn finish(self) -> Option<Bytes> {
        self.first
            .or_else(|| (!self.joined.is_empty()).then(|| Bytes::from(self.joined)))
    }
}

pub(super) fn parse_tensor(
    parent: &mut Cursor<'_>,
    field: Field,
    name: &str,
) -> Result<TensorData, Error> {
    let mut c = parent.message(field, name, "TensorProto")?;
    let mut tensor = TensorData {
        name: String::new(),
        dtype: 0,
        dims: Vec::new(),
        data: Data::Empty,
    };
    let (mut floats, mut doubles) = (Pieces::default(), Pieces::default());
    let (mut i32s, mut i64s, mut u64s) = (Vec::new(), Vec::new(), Vec::new());
    let (mut strings, mut raw, mut entries) = (Vec::new(), None, Vec::new());
    let mut location = 0;
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => c.i64s(f, "dims", &mut tensor.dims)?,
            2 => tensor.dtype = c.i32(f, "data_type")?,
            3 => return Err(c.error("segment", "tensors in segments are not supported")),
            4 => floats.push(c.fixed(f, "float_data", 4)?),
            5 => c.i32s(f, "int32_data", &mut i32s)?,
            6 => strings.push(c.bytes(f, "string_data")?),
            7 => c.i64s(f, "int64_data", &mut i64s)?,
            8 => tensor.name = c.name(f, "name")?,
            9 => raw = Some(c.bytes(f, "raw_data")?),
            10 => doubles.push(c.fixed(f, "double_data", 8)?),
            11 => c.varints(f, "uint64_data", &mut u64s, Some)?,
            13 => entries.push(parse_entry(&mut c, f, "external_data")?),
            14 => location = c.i32(f, "data_location")?,
            _ => c.skip(f)?,
        }
    }
    // Writers leave empty fields beside the one that counts, so emptiness tells nothing.
    let raw = raw.filter(|bytes| !bytes.is_empty());
    let found = [
        raw.map(Data::Raw),
        floats.finish().map(Data::Floats),
        doubles.finish().map(Data::Doubles),
        (!i32s.is_empty()).then_some(Data::Int32s(i32s)),
        (!i64s.is_empty()).then_some(Data::Int64s(i64s)),
        (!u64s.is_empty()).then_some(Data::Uint64s(u64s)),
        (!strings.is_empty()).then_some(Data::Strings(strings)),
    ];
    let mut found = found.into_iter().flatten();
    let data = found.next();
    let problem = match location {
        0 | 1 if found.next().is_some() => Some("two data fields hold elements"),
        0 if !entries.is_empty() => Some("external_data is there but data_location says default"),
        1 if data.is_some() => Some("data_location says external, but a data field holds elements"),
        0 | 1 => None,
        _ => Some("data_location is neither 0 (default) nor 1 (external)"),
    };
    if let Some(problem) = problem {
        let tensor = tensor.label();
        return Err(c.error("data_location", format!("tensor '{tensor}': {problem}")));
    }
    tensor.data = match location {
        1 => Data::External(parse_external(&c, &tensor, entries)?),
        _ => data.unwrap_or(Data::Empty),
    };
    Ok(tensor)
}

fn parse_external(
    c: &Cursor<'_>,
    tensor: &TensorData,
    entries: Vec<(String, String)>,
) -> Result<ExternalData, Error> {
    let fail = |problem: String| {
        c.error(
            "external_data",
            format!("tensor '{}': {problem}", tensor.label()),
        )
    };
    let (mut location, mut offset, mut length) = (None, None, None);
    for (key, value) in entries {
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| fail(format!("{key} '{value}' is no byte count")))
        };
        let twice = match key.as_str() {
            "location" => location.replace(value).is_some(),
            "offset" => offset.replace(number()?).is_some(),
            "length" => length.replace(number()?).is_some(),
            // Others, such as a checksum, do not say which bytes are meant.
            _ => false,
        };
        if twice {
            return Err(fail(format!("{key} is there twice")));
        }
    }
    let location = location.ok_or_else(|| fail("there is no location".to_string()))?;
    Ok(ExternalData {
        location,
        offset: offset.unwrap_or(0),
        length,
    })
}

pub(super) fn parse_sparse_tensor(
    parent: &mut Cursor<'_>,
    field: Field,
    name: &str,
) -> Result<SparseTensor, Error> {
    let mut c = parent.message(field, name, "SparseTensorProto")?;
    let (mut values, mut indices, mut dims) = (None, None, Vec::new());
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => {
                let value = parse_tensor(&mut c, f, "values")?;
                set_once(&mut values, &c, "values", value)?;
            }
            2 => {
                let value = parse_tensor(&mut c, f, "indices")?;
                set_once(&mut indices, &c, "indices", value)?;
            }
            3 => c.i64s(f, "dims", &mut dims)?,
            _ => c.skip(f)?,
        }
    }
    let values = values.ok_or_else(|| c.error("values", "the field is missing"))?;
    let indices = indices.ok_or_else(|| c.error("indices", "the field is missing"))?;
    Ok(SparseTensor {
        values,
        indices,
        dims,
    })
}
