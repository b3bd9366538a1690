//! TOML files as tables.

use serde_json::{Map, Value};
use std::path::Path;

/// A table of a TOML file.
pub(crate) type Table = Map<String, Value>;

/// The file's outermost table.
pub(crate) fn parse(path: &Path) -> Result<Table, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    basic_toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// The table below these keys.
pub(crate) fn table<'a>(of: &'a Table, keys: &[&str]) -> Option<&'a Table> {
    keys.iter().try_fold(of, |t, k| t.get(*k)?.as_object())
}
