//! Where a calibration is kept between runs.

use super::error::CalibrateError;
use machine::{Machine, Measurements};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The file that holds the calibration of a machine: `shopfloor/machines/<identity>.toml` in the
/// user's data folder (`$XDG_DATA_HOME`, else `$HOME/.local/share`); `None` when there is no such folder.
pub fn calibration_path(m: &Machine) -> Option<PathBuf> {
    path_in(
        std::env::var_os("XDG_DATA_HOME"),
        std::env::var_os("HOME"),
        m,
    )
}

fn path_in(data: Option<OsString>, home: Option<OsString>, m: &Machine) -> Option<PathBuf> {
    let absolute = |v: Option<OsString>| v.map(PathBuf::from).filter(|p| p.is_absolute());
    let base = absolute(data).or_else(|| absolute(home).map(|h| h.join(".local/share")))?;
    Some(
        base.join("shopfloor")
            .join("machines")
            .join(format!("{}.toml", m.identity())),
    )
}

/// The stored calibration of a machine; `None` when there is none or it is of other hardware.
///
/// # Errors
/// [`CalibrateError::Io`] or [`CalibrateError::Text`] when there is a file that does not read.
pub fn load_calibration(m: &Machine) -> Result<Option<Measurements>, CalibrateError> {
    match calibration_path(m) {
        Some(path) => load_from(&path, m),
        None => Ok(None),
    }
}

fn load_from(path: &Path, m: &Machine) -> Result<Option<Measurements>, CalibrateError> {
    let text = match files::text(path, files::WRITTEN) {
        Ok(t) => t,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(CalibrateError::Io {
                path: path.to_path_buf(),
                source,
            });
        }
    };
    let found = Measurements::from_toml(&text, &path.display().to_string())?;
    Ok((found.machine == m.identity()).then_some(found))
}

/// Stores a calibration where [`load_calibration`] finds it and returns the file. The file is
/// replaced as a whole, so that a reader sees the old or the new one.
///
/// # Errors
/// [`CalibrateError::NoFolder`] or [`CalibrateError::Io`].
pub fn store_calibration(m: &Machine, c: &Measurements) -> Result<PathBuf, CalibrateError> {
    let path = calibration_path(m).ok_or(CalibrateError::NoFolder)?;
    store_at(&path, c)?;
    Ok(path)
}

/// Removes the stored calibration of a machine and gives the file that it was in; `None` where there was none.
///
/// # Errors
/// [`CalibrateError::Io`] when it cannot be removed.
pub fn forget_calibration(m: &Machine) -> Result<Option<PathBuf>, CalibrateError> {
    match calibration_path(m) {
        Some(path) => Ok(forget_at(&path)?.then_some(path)),
        None => Ok(None),
    }
}

fn forget_at(path: &Path) -> Result<bool, CalibrateError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(CalibrateError::Io {
            path: path.to_path_buf(),
            source,
        }),
    }
}

fn store_at(path: &Path, c: &Measurements) -> Result<(), CalibrateError> {
    let io = |source| CalibrateError::Io {
        path: path.to_path_buf(),
        source,
    };
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(io)?;
    }
    files::write(path, c.to_toml()?).map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_calibrations_come_back_for_their_machine_only() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let m = crate::detect::detect();
        let path = path_in(Some(dir.path().into()), None, &m).expect("a path");
        assert!(path.starts_with(dir.path().join("shopfloor/machines")));
        assert!(load_from(&path, &m).expect("no file is no error").is_none());
        let c = Measurements {
            machine: m.identity(),
            handoff_s: Some(1e-7),
            ..Measurements::default()
        };
        store_at(&path, &c).expect("stored");
        assert_eq!(load_from(&path, &m).expect("reads"), Some(c.clone()));
        store_at(
            &path,
            &Measurements {
                machine: "other".into(),
                ..c
            },
        )
        .expect("replaced");
        assert_eq!(load_from(&path, &m).expect("reads"), None);
        fs::write(&path, "machine = 3").expect("written");
        let e = load_from(&path, &m)
            .expect_err("a broken file is an error")
            .to_string();
        assert!(
            e.contains(":1: ") && e.ends_with("calibrate again to replace it"),
            "{e}"
        );
        assert!(forget_at(&path).expect("removed"));
        assert!(!path.exists() && !forget_at(&path).expect("nothing to remove"));
        assert_eq!(path_in(Some("relative".into()), None, &m), None);
        assert!(
            path_in(None, Some("/h".into()), &m)
                .expect("a path")
                .starts_with("/h/.local/share/shopfloor")
        );
    }
}
