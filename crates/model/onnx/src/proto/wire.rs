//! The protobuf cursor: tags, lengths and scalars of one message, each length checked against
//! the bytes that are there.

use tensor::Bytes;

use crate::error::Error;

/// Messages nest at most this deep. Three levels make one subgraph; protobuf's own readers stop
/// at 100 too.
pub(super) const MAX_DEPTH: u32 = 100;

/// How a field's value is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Varint,
    Fixed64,
    Len,
    Fixed32,
}

/// A field's tag: its value comes next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub number: u32,
    wire: Wire,
    /// Where its tag begins, in the file.
    pub at: usize,
}

/// Reads one message; `pos..end` is what is left of it within the whole file.
pub(super) struct Cursor<'a> {
    file: &'a Bytes,
    /// The whole file as a slice, looked up once.
    data: &'a [u8],
    name: &'a str,
    pos: usize,
    end: usize,
    depth: u32,
    message: &'static str,
}

impl<'a> Cursor<'a> {
    pub fn new(file: &'a Bytes, name: &'a str, message: &'static str) -> Cursor<'a> {
        let data: &[u8] = file;
        Cursor {
            file,
            data,
            name,
            pos: 0,
            end: data.len(),
            depth: 0,
            message,
        }
    }

    /// Where the next byte is read, in the file.
    pub fn at(&self) -> usize {
        self.pos
    }

    /// The error for a field of this message, at the present position.
    pub fn error(&self, field: &str, problem: impl Into<String>) -> Error {
        self.error_at(field, self.pos, problem)
    }

    fn error_at(&self, field: &str, at: usize, problem: impl Into<String>) -> Error {
        Error::Malformed {
            file: self.name.to_string(),
            message: self.message,
            field: field.to_string(),
            offset: at as u64,
            problem: problem.into(),
        }
    }

    /// The next field's tag; `None` at the end of the message.
    pub fn next_field(&mut self) -> Result<Option<Field>, Error> {
        if self.pos == self.end {
            return Ok(None);
        }
        let at = self.pos;
        let tag = self.varint("tag")?;
        let number = match u32::try_from(tag >> 3) {
            Ok(n) if (1..1 << 29).contains(&n) => n,
            _ => return Err(self.error_at("tag", at, format!("{tag} is no field tag"))),
        };
        let wire = match tag & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Len,
            5 => Wire::Fixed32,
            other => {
                let problem = format!("field {number} has wire type {other}, which ONNX lacks");
                return Err(self.error_at("tag", at, problem));
            }
        };
        Ok(Some(Field { number, wire, at }))
    }

    /// Passes over a field that this reader does not know.
    pub fn skip(&mut self, field: Field) -> Result<(), Error> {
        let name = format_args!("field {}", field.number).to_string();
        match field.wire {
            Wire::Varint => self.varint(&name).map(drop),
            Wire::Fixed64 => self.take(8, &name).map(drop),
            Wire::Fixed32 => self.take(4, &name).map(drop),
            Wire::Len => self.length(&name).map(|len| self.pos += len),
        }
    }

    fn expect(&self, field: Field, wire: Wire, name: &str) -> Result<(), Error> {
        if field.wire == wire {
            return Ok(());
        }
        let problem = format!("wire type {:?} where {wire:?} is due", field.wire);
        Err(self.error_at(name, field.at, problem))
    }

    fn varint(&mut self, name: &str) -> Result<u64, Error> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            if self.pos == self.end {
                return Err(self.error(name, "the message ends within a number"));
            }
            let byte = self.data[self.pos];
            self.pos += 1;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.error(name, "a number has more than 64 bits"))
    }

    /// A length prefix, checked against what is left of the message.
    fn length(&mut self, name: &str) -> Result<usize, Error> {
        let at = self.pos;
        let len = self.varint(name)?;
        let left = self.end - self.pos;
        match usize::try_from(len) {
            Ok(len) if len <= left => Ok(len),
            _ => Err(self.error_at(name, at, format!("{len} B announced, {left} B left"))),
        }
    }

    fn take(&mut self, len: usize, name: &str) -> Result<&'a [u8], Error> {
        if len > self.end - self.pos {
            return Err(self.error(name, format!("{len} B due, {} B left", self.end - self.pos)));
        }
        let bytes = &self.data[self.pos..self.pos + len];
        self.pos += len;
        Ok(bytes)
    }

    fn slice(&mut self, field: Field, name: &str) -> Result<&'a [u8], Error> {
        self.expect(field, Wire::Len, name)?;
        let len = self.length(name)?;
        self.take(len, name)
    }

    /// A `bytes` field, borrowed from the file.
    pub fn bytes(&mut self, field: Field, name: &str) -> Result<Bytes, Error> {
        let len = self.slice(field, name)?.len();
        let range = self.pos - len..self.pos;
        self.file
            .slice(range)
            .ok_or_else(|| self.error(name, "lies outside the file"))
    }

    /// A `string` field that is a name, as it is known here: what would move a terminal's cursor or end a line is
    /// escaped, and what is longer than [`LONGEST_NAME`] is cut, with a hash of all that tells it from others.
    pub fn name(&mut self, field: Field, name: &str) -> Result<String, Error> {
        Ok(printable(self.string(field, name)?))
    }

    /// A `string` field, which must be UTF-8.
    pub fn string(&mut self, field: Field, name: &str) -> Result<String, Error> {
        let bytes = self.slice(field, name)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_string()),
            Err(_) => Err(self.error_at(name, field.at, "the text is not UTF-8")),
        }
    }

    /// A `string` field for people to read: what is not UTF-8 in it is replaced.
    pub fn prose(&mut self, field: Field, name: &str) -> Result<String, Error> {
        let bytes = self.slice(field, name)?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// A cursor over a field that is a message called `message`.
    pub fn message(
        &mut self,
        field: Field,
        name: &str,
        message: &'static str,
    ) -> Result<Cursor<'a>, Error> {
        let len = self.slice(field, name)?.len();
        if self.depth >= MAX_DEPTH {
            let problem = format!("messages nest deeper than {MAX_DEPTH}");
            return Err(self.error_at(name, field.at, problem));
        }
        let Cursor {
            file,
            data,
            name,
            pos,
            depth,
            ..
        } = *self;
        Ok(Cursor {
            file,
            data,
            name,
            pos: pos - len,
            end: pos,
            depth: depth + 1,
            message,
        })
    }

    /// An `int64` field.
    pub fn i64(&mut self, field: Field, name: &str) -> Result<i64, Error> {
        self.expect(field, Wire::Varint, name)?;
        Ok(self.varint(name)? as i64)
    }

    /// An `int32` or enum field. Negative values come with 64 or, from some writers, 32 bits.
    pub fn i32(&mut self, field: Field, name: &str) -> Result<i32, Error> {
        let value = self.i64(field, name)?;
        narrow(value).ok_or_else(|| self.error_at(name, field.at, format!("{value} is no int32")))
    }

    /// A `float` field.
    pub fn f32(&mut self, field: Field, name: &str) -> Result<f32, Error> {
        self.expect(field, Wire::Fixed32, name)?;
        let bytes = self.take(4, name)?;
        Ok(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Adds a repeated varint field's values, packed or single.
    pub fn varints<T>(
        &mut self,
        field: Field,
        name: &str,
        out: &mut Vec<T>,
        convert: impl Fn(u64) -> Option<T>,
    ) -> Result<(), Error> {
        let end = if field.wire == Wire::Varint {
            None
        } else {
            let packed = self.slice(field, name)?;
            let count = packed.iter().filter(|&&byte| byte < 0x80).count();
            out.reserve(count);
            let end = self.pos;
            self.pos -= packed.len();
            Some(end)
        };
        // The values of a packed field must not run past it.
        let outer = self.end;
        self.end = end.unwrap_or(outer);
        while end.is_none() || self.pos < self.end {
            let at = self.pos;
            let value = self.varint(name)?;
            match convert(value) {
                Some(value) => out.push(value),
                None => {
                    let problem = format!("{} is out of the field's range", value as i64);
                    return Err(self.error_at(name, at, problem));
                }
            }
            if end.is_none() {
                break;
            }
        }
        self.end = outer;
        Ok(())
    }

    /// Adds a repeated `int64` field's values.
    pub fn i64s(&mut self, field: Field, name: &str, out: &mut Vec<i64>) -> Result<(), Error> {
        self.varints(field, name, out, |v| Some(v as i64))
    }

    /// Adds a repeated `int32` field's values.
    pub fn i32s(&mut self, field: Field, name: &str, out: &mut Vec<i32>) -> Result<(), Error> {
        self.varints(field, name, out, |v| narrow(v as i64))
    }

    /// One piece of a repeated `float` (`width` 4) or `double` (8) field: little-endian values,
    /// borrowed whether they come packed or single.
    pub fn fixed(&mut self, field: Field, name: &str, width: usize) -> Result<Bytes, Error> {
        let single = if width == 4 {
            Wire::Fixed32
        } else {
            Wire::Fixed64
        };
        let len = if field.wire == single {
            self.take(width, name)?.len()
        } else {
            self.slice(field, name)?.len()
        };
        if len % width != 0 {
            let problem = format!("{len} B are no whole number of {width}-byte values");
            return Err(self.error_at(name, field.at, problem));
        }
        let range = self.pos - len..self.pos;
        self.file
            .slice(range)
            .ok_or_else(|| self.error(name, "lies outside the file"))
    }
}

fn narrow(value: i64) -> Option<i32> {
    match (i32::try_from(value), u32::try_from(value)) {
        (Ok(v), _) => Some(v),
        (_, Ok(v)) => Some(v as i32),
        _ => None,
    }
}

/// Longest name in bytes that is kept as it is.
const LONGEST_NAME: usize = 1024;

/// `text` as a name that may be shown anywhere.
fn printable(text: String) -> String {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    // Beside control characters those that turn the direction of what follows, and line breaks of Unicode.
    let moves =
        |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if text.len() <= LONGEST_NAME && !text.contains(moves) {
        return text;
    }
    let mut end = text.len().min(LONGEST_NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut out = String::new();
    for c in text[..end].chars() {
        match moves(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    if end < text.len() {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&text);
        out += &format!("...({} B, {hash:016x})", text.len());
    }
    out
}
