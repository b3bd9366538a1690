//! Comma-separated values, plain or gzipped, with the place of every field.

use crate::PredictError;
use flate2::bufread::MultiGzDecoder;
use std::io::Read;
use std::path::Path;

/// Bytes that a file may have, and open to.
const MOST: usize = 1 << 30;

/// One record: the line that it begins on, and its fields.
pub(crate) struct Record {
    pub line: usize,
    pub fields: Vec<String>,
}

/// The text of a file, opened where its first bytes are those of gzip.
pub(crate) fn text(path: &Path) -> Result<String, PredictError> {
    let read = |source| PredictError::Read {
        path: path.into(),
        source,
    };
    let length = files::regular(path).map_err(read)?.len();
    let gzip = |what: String| PredictError::Gzip {
        path: path.into(),
        what,
    };
    if length > MOST as u64 {
        return Err(gzip(format!("{length} bytes; at most {MOST} are read")));
    }
    let bytes = files::read(path, MOST as u64).map_err(read)?;
    let mut bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        inflate(&bytes).map_err(gzip)?
    } else {
        bytes
    };
    // What spreadsheets put before UTF-8.
    if bytes.starts_with(&[0xef, 0xbb, 0xbf]) {
        bytes.drain(..3);
    }
    String::from_utf8(bytes).map_err(|e| {
        let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
        let column = before.len()
            - before
                .iter()
                .rposition(|&b| b == b'\n')
                .map_or(0, |p| p + 1);
        PredictError::Field {
            file: path.display().to_string(),
            line,
            column: format!("at byte {}", column + 1),
            what: "this is no UTF-8 text".into(),
        }
    })
}

/// The members of a gzip file, one after the other.
fn inflate(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let read = MultiGzDecoder::new(bytes)
        .take(MOST as u64 + 1)
        .read_to_end(&mut out);
    match read {
        Ok(n) if n > MOST => Err(format!("it opens to more than {MOST} bytes")),
        Ok(_) => Ok(out),
        Err(e) => Err(format!(
            "it is damaged or cut off after {} bytes of text: {e}",
            out.len()
        )),
    }
}

/// The records of `text`; fields in quotes may hold commas, quotes (doubled) and ends of lines.
pub(crate) fn records(text: &str, file: &str) -> Result<Vec<Record>, PredictError> {
    let mut out = Vec::new();
    let mut fields: Vec<String> = Vec::new();
    let mut field = String::new();
    let (mut line, mut begun) = (1, 1);
    let (mut quoted, mut closed) = (false, false);
    let bad = |line: usize, column: usize, what: &str| PredictError::Field {
        file: file.into(),
        line,
        column: (column + 1).to_string(),
        what: what.into(),
    };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\n' {
            line += 1;
        }
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if quoted => (quoted, closed) = (false, true),
            _ if quoted => field.push(c),
            '"' if field.is_empty() && !closed => quoted = true,
            '"' => {
                return Err(bad(
                    line,
                    fields.len(),
                    "a quote within a field that has none around it",
                ));
            }
            ',' => {
                fields.push(std::mem::take(&mut field));
                closed = false;
            }
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' => {
                fields.push(std::mem::take(&mut field));
                closed = false;
                let fields = std::mem::take(&mut fields);
                if fields.len() > 1 || !fields[0].is_empty() {
                    out.push(Record {
                        line: begun,
                        fields,
                    });
                }
                begun = line;
            }
            _ if closed => return Err(bad(line, fields.len(), "text behind a closing quote")),
            c => field.push(c),
        }
    }
    if quoted {
        return Err(bad(begun, fields.len(), "its quotes are never closed"));
    }
    if !field.is_empty() || !fields.is_empty() || closed {
        fields.push(field);
        out.push(Record {
            line: begun,
            fields,
        });
    }
    Ok(out)
}
