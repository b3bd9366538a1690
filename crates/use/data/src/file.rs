//! Files read up to a limit, with errors of this crate.
use crate::DataError;
use std::path::Path;

/// Bytes of a regular file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    let wrap = |source| DataError::Read {
        path: path.to_path_buf(),
        source,
    };
    let len = files::regular(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidInput => DataError::NotAFile {
            path: path.to_path_buf(),
        },
        _ => wrap(e),
    })?;
    files::read(path, len.len()).map_err(wrap)
}

/// `path` as error texts show it.
pub(crate) fn name(path: &Path) -> String {
    path.display().to_string()
}
