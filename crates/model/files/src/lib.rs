//! Files that are read whole and replaced whole.
//!
//! Reading asks first whether a path is a regular file and how long it is: opening a FIFO waits for its writer,
//! and a device need not end. Writing fills another file that is then renamed, so that readers and mappings see
//! either the old contents or the new ones.
//!
//! Never holds what a file means.
#![forbid(unsafe_code)]

use std::fs::{File, Metadata};
use std::io::{BufWriter, Error, ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Longest file in bytes of those that people write: machines, kernels, scenarios, lists of names.
pub const WRITTEN: u64 = 16 << 20;
/// Longest file in bytes of those that programs write as text: plans, PTX, pages.
pub const MADE: u64 = 256 << 20;

/// What is known of the regular file at `path`.
///
/// # Errors
/// There is none.
pub fn regular(path: &Path) -> Result<Metadata> {
    let meta = std::fs::metadata(path)?;
    match meta.is_file() {
        true => Ok(meta),
        false => Err(Error::new(
            ErrorKind::InvalidInput,
            "it is not a regular file; give the path of a file on disk",
        )),
    }
}

/// Opens the regular file at `path` for reading.
///
/// # Errors
/// There is none, or it cannot be opened.
pub fn open(path: &Path) -> Result<File> {
    regular(path)?;
    File::open(path)
}

/// The regular file at `path`, if it has at most `most` bytes.
///
/// # Errors
/// There is none, it cannot be read, or it is longer.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let long = |n: u64| {
        let why = format!("it has {n} B, and at most {most} B are read; give a smaller file");
        Error::new(ErrorKind::FileTooLarge, why)
    };
    let len = regular(path)?.len();
    if len > most {
        return Err(long(len));
    }
    let mut bytes = Vec::new();
    // It may have grown since.
    let mut file = File::open(path)?.take(most.saturating_add(1));
    file.read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= most {
        true => Ok(bytes),
        false => Err(long(file.get_ref().metadata()?.len())),
    }
}

/// As [`read`] for a text.
///
/// # Errors
/// As [`read`], and bytes that are no UTF-8.
pub fn text(path: &Path, most: u64) -> Result<String> {
    let bytes = read(path, most)?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let why = format!("it is no text: byte {at} is not UTF-8; give a text file");
        Error::new(ErrorKind::InvalidData, why)
    })
}

/// Gives `path` the contents that `fill` writes. What the path leads to is replaced as a whole once all is
/// written: other names of the old file keep the old contents. What is there and is no regular file, such as a
/// pipe, is written to.
///
/// # Errors
/// The contents cannot be written, or `fill` fails; what was there is left as it was.
pub fn replace<T>(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> Result<T>) -> Result<T> {
    // A link stays one.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let old = std::fs::metadata(path).ok();
    if old.as_ref().is_some_and(|m| !m.is_file()) {
        let mut to = BufWriter::new(File::options().write(true).open(path)?);
        let out = fill(&mut to)?;
        to.flush()?;
        return Ok(out);
    }
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
    let (file, scratch) = Scratch::create(folder.unwrap_or(Path::new(".")))?;
    let mut to = BufWriter::new(file);
    let out = fill(&mut to)?;
    let file = to
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error)?;
    if let Some(old) = old {
        file.set_permissions(old.permissions())?;
    }
    drop(file);
    scratch.rename(path)?;
    Ok(out)
}

/// Longest file in bytes that the system lets this process write; `None`: it sets no limit or does not say. A write
/// beyond it ends a process that does not handle the signal for that.
pub fn largest() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let mut lines = limits.lines();
    let now = lines.find_map(|l| l.strip_prefix("Max file size"))?;
    now.split_whitespace().next()?.parse().ok()
}

/// Beginning of the names of files that are not finished.
pub const SCRATCH: &str = ".new-";

/// The path of a file that is not finished; unless it is renamed, the file goes with this value.
struct Scratch(Option<PathBuf>);

impl Scratch {
    /// A new file in `folder` of a name that nobody has.
    fn create(folder: &Path) -> Result<(File, Scratch)> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // Processes that do not see each other may have the same number: the next name is tried.
        for _ in 0..1024 {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{SCRATCH}{}-{number}", std::process::id()));
            match File::options().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok((file, Scratch(Some(path)))),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    fn rename(mut self, to: &Path) -> Result<()> {
        if let Some(path) = &self.0 {
            std::fs::rename(path, to)?;
            self.0 = None;
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// As [`replace`] with contents that are there.
///
/// # Errors
/// As [`replace`].
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    replace(path, |to| to.write_all(contents.as_ref()))
}
