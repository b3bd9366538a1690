//! The catalog of machines and the way from a name to one.

use crate::{Machine, MachineError};
use std::path::Path;
use std::sync::OnceLock;

/// One machine of the catalog.
#[derive(Clone, Debug)]
pub struct CatalogEntry {
    /// File name within `machines/`.
    pub file: &'static str,
    /// The machine, or what is wrong with the file.
    pub machine: Machine,
}

macro_rules! files {
    ($($f:literal),* $(,)?) => {
        &[$(($f, include_str!(concat!("../../../machines/", $f)))),*]
    };
}

const FILES: &[(&str, &str)] = files![
    "a100.toml",
    "h100.toml",
    "h200.toml",
    "zen4-2core.toml",
    "zen5-2core.toml"
];

/// All machines of the catalog, in file-name order. A file that does not read is left out here; a
/// test makes sure there is none.
pub fn catalog() -> &'static [CatalogEntry] {
    static ALL: OnceLock<Vec<CatalogEntry>> = OnceLock::new();
    ALL.get_or_init(|| {
        FILES
            .iter()
            .filter_map(|(file, text)| {
                Machine::from_toml(text, &format!("machines/{file}"))
                    .ok()
                    .map(|machine| CatalogEntry { file, machine })
            })
            .collect()
    })
}

/// Names without case, vendor and punctuation.
fn key(name: &str) -> String {
    const VENDORS: &[&str] = &[
        "nvidia", "amd", "intel", "apple", "qualcomm", "geforce", "tesla", "quadro", "radeon",
    ];
    let lower = name.to_lowercase();
    let words = lower
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty());
    let kept: String = words.clone().filter(|w| !VENDORS.contains(w)).collect();
    if kept.is_empty() {
        words.collect()
    } else {
        kept
    }
}

/// Finds a machine of the catalog by name or alias, ignoring case, vendor and punctuation. An exact
/// name or alias wins over one that only begins with, or holds, what was asked for.
///
/// # Errors
/// [`MachineError::Ambiguous`] with the candidates, or [`MachineError::Unknown`].
pub fn lookup(name: &str) -> Result<Machine, MachineError> {
    let asked = key(name);
    let names = |m: &Machine| -> Vec<String> {
        std::iter::once(&m.name)
            .chain(&m.aliases)
            .map(|n| key(n))
            .collect()
    };
    let unknown = || MachineError::Unknown {
        name: name.to_string(),
        hint: format!(
            "known are {}",
            catalog()
                .iter()
                .map(|e| e.machine.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        ),
    };
    if asked.is_empty() {
        return Err(unknown());
    }
    type Rule = fn(&str, &str) -> bool;
    let rules: [Rule; 3] = [|n, a| n == a, |n, a| n.starts_with(a), |n, a| n.contains(a)];
    for rule in rules {
        let hits: Vec<&Machine> = catalog()
            .iter()
            .map(|e| &e.machine)
            .filter(|m| names(m).iter().any(|n| rule(n, &asked)))
            .collect();
        match hits.as_slice() {
            [] => {}
            [one] => return Ok((*one).clone()),
            many => {
                return Err(MachineError::Ambiguous {
                    name: name.to_string(),
                    candidates: many.iter().map(|m| m.name.clone()).collect(),
                });
            }
        }
    }
    Err(unknown())
}

impl Machine {
    /// A machine by catalog name or by the path of a TOML file: what names a file (ends in `.toml`,
    /// holds a path separator, or is a file that exists) is read, everything else is looked up.
    ///
    /// # Errors
    /// Those of [`lookup`] and [`Machine::from_file`].
    pub fn load(name_or_path: &str) -> Result<Machine, MachineError> {
        let path = Path::new(name_or_path);
        let looks_like_file = path.extension().is_some_and(|e| e == "toml")
            || name_or_path.contains(std::path::MAIN_SEPARATOR)
            || path.is_file();
        if looks_like_file {
            Machine::from_file(path)
        } else {
            lookup(name_or_path)
        }
    }
}
