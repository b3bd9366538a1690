use crate::DataError;
use std::io::Read;
use std::path::Path;

/// Bytes of a regular file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    let wrap = |source| DataError::Read {
        path: path.to_path_buf(),
        source,
    };
    // Asked before opening: opening a pipe can block for ever, reading a device need not end.
    let meta = std::fs::metadata(path).map_err(wrap)?;
    if !meta.is_file() {
        return Err(DataError::NotAFile {
            path: path.to_path_buf(),
        });
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|f| f.take(meta.len()).read_to_end(&mut bytes))
        .map_err(wrap)?;
    Ok(bytes)
}

/// `path` as error texts show it.
pub(crate) fn name(path: &Path) -> String {
    path.display().to_string()
}
