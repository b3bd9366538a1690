//! Files read and written whole, with errors that name them.
use crate::Error;
use std::path::Path;

/// The text of the regular file at `path`, which has at most `most` bytes ([`files::WRITTEN`], [`files::MADE`]).
///
/// # Errors
/// It is no regular file, longer, no text, or cannot be read.
pub fn read_text(path: impl AsRef<Path>, most: u64) -> Result<String, Error> {
    let path = path.as_ref();
    files::text(path, most).map_err(|e| io(path, e))
}

/// Gives the file at `path` these contents, as a whole: who has the old ones open keeps them.
///
/// # Errors
/// It cannot be written.
pub fn write_file(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<(), Error> {
    let path = path.as_ref();
    files::write(path, contents).map_err(|e| io(path, e))
}

fn io(path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        path: path.display().to_string(),
        source,
    }
}
