//! The catalog of machines and the way from a name to one.
//!
//! A lookup reads the names at the head of every file and parses the one file that it needs;
//! [`catalog`] parses them all, once.

use crate::catalog_files::files;
use crate::{Machine, MachineError};
use layout::Arrange;
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

/// All machines of the catalog, in file-name order. A file that does not read is left out here; a
/// test makes sure there is none.
pub fn catalog() -> &'static [CatalogEntry] {
    static ALL: OnceLock<Vec<CatalogEntry>> = OnceLock::new();
    ALL.get_or_init(|| {
        files()
            .iter()
            .filter_map(|(file, text)| {
                Machine::from_toml(text, &format!("machines/{file}"))
                    .ok()
                    .map(|machine| CatalogEntry { file, machine })
            })
            .collect()
    })
}

/// What a machine is found by, without the rest of its file.
struct Names {
    /// Index into the files.
    file: usize,
    name: String,
    /// Keys of the name and of every alias.
    keys: Vec<String>,
}

/// The names of every file: the lines before its first section say them.
fn names() -> &'static [Names] {
    static ALL: OnceLock<Vec<Names>> = OnceLock::new();
    ALL.get_or_init(|| {
        #[derive(serde::Deserialize)]
        struct Head {
            name: String,
            #[serde(default)]
            aliases: Vec<String>,
        }
        let of = |(file, (_, text)): (usize, &(&str, &str))| {
            let head = &text[..text.find("\n[").unwrap_or(text.len())];
            let Head { name, aliases } = crate::toml::read(head).ok()?;
            let keys = [&name].into_iter().chain(&aliases);
            let keys = keys.map(|k| key(k)).collect();
            Some(Names { file, name, keys })
        };
        files().iter().enumerate().filter_map(of).collect()
    })
}

/// Names without case, vendor and punctuation.
fn key(name: &str) -> String {
    const VENDORS: &[&str] = &[
        "nvidia", "amd", "intel", "apple", "arm", "qualcomm", "geforce", "tesla", "quadro",
        "radeon", "instinct", "ryzen", "arc",
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

/// How alike two keys are: shared pairs of neighbouring characters, from 0 to 1 (Dice's measure).
fn likeness(a: &str, b: &str) -> f64 {
    let pairs = |s: &str| -> Vec<(char, char)> { s.chars().zip(s.chars().skip(1)).collect() };
    let (x, mut y) = (pairs(a), pairs(b));
    let all = x.len() + y.len();
    let mut shared = 0;
    for p in &x {
        if let Some(at) = y.iter().position(|q| q == p) {
            y.swap_remove(at);
            shared += 1;
        }
    }
    2.0 * shared as f64 / all.max(1) as f64
}

/// What to try instead of a name that nothing fits: the nearest names, or how to list them.
fn hint(asked: &str) -> String {
    // More characters than any name has say nothing more, and would take long to compare.
    let asked: String = asked.chars().take(80).collect();
    let mut near: Vec<(f64, &str)> = names()
        .iter()
        .map(|n| {
            let best = n.keys.iter().map(|k| likeness(k, &asked));
            (best.fold(0.0, f64::max), n.name.as_str())
        })
        .filter(|n| n.0 >= 0.4)
        .collect();
    near.arrange_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let near: Vec<&str> = near.into_iter().take(5).map(|n| n.1).collect();
    if near.is_empty() {
        "`shopfloor machines list` shows those that are known".into()
    } else {
        format!(
            "near it are {}; `shopfloor machines list` shows all",
            near.join(", ")
        )
    }
}

/// Finds a machine of the catalog by name or alias, ignoring case, vendor and punctuation. An exact
/// name or alias wins over one that only begins with, ends with, or holds, what was asked for.
///
/// # Errors
/// [`MachineError::Ambiguous`] with the candidates, or [`MachineError::Unknown`] with near names.
pub fn lookup(name: &str) -> Result<Machine, MachineError> {
    let asked = key(name);
    let unknown = || MachineError::Unknown {
        name: name.to_string(),
        hint: hint(&asked),
    };
    if asked.is_empty() {
        return Err(unknown());
    }
    type Rule = fn(&str, &str) -> bool;
    let rules: [Rule; 4] = [
        |n, a| n == a,
        |n, a| n.starts_with(a),
        |n, a| n.ends_with(a),
        |n, a| n.contains(a),
    ];
    for rule in rules {
        let hits: Vec<&Names> = names()
            .iter()
            .filter(|n| n.keys.iter().any(|k| rule(k, &asked)))
            .collect();
        match hits.as_slice() {
            [] => {}
            [one] => {
                let (file, text) = files()[one.file];
                return Machine::from_toml(text, &format!("machines/{file}"));
            }
            many => {
                return Err(MachineError::Ambiguous {
                    name: name.to_string(),
                    candidates: many.iter().map(|n| n.name.clone()).collect(),
                });
            }
        }
    }
    Err(unknown())
}

impl Machine {
    /// The shortest of the machine's names that is one word, in small letters, as commands take it (`h100`);
    /// its name where none is.
    pub fn short_name(&self) -> String {
        let names = std::iter::once(&self.name).chain(&self.aliases);
        let words = names.filter(|n| !n.contains(char::is_whitespace));
        match words.min_by_key(|n| n.len()) {
            Some(n) => n.to_lowercase(),
            None => self.name.clone(),
        }
    }

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
