//! The numbers that were chosen after a look at measurements: `constants.toml`, with their meaning.

use crate::PredictError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// One number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Its value.
    pub value: f64,
    /// Where the fit begins: what one would have said without these rows.
    pub start: f64,
    /// What it cannot be above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
    /// Whether the fit sets it; else it was read off micro-benchmarks or chosen.
    pub fitted: bool,
    /// Families of rows that it is fitted on: those that it is about, so that it makes up for nothing else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of: Vec<String>,
    /// What it says, with its unit.
    pub meaning: String,
}

/// All of them by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Constants {
    /// By name.
    pub all: BTreeMap<String, Constant>,
}

impl Constants {
    /// The file as it was built in.
    pub const TEXT: &'static str = include_str!("../constants.toml");

    /// Reads a file of constants.
    ///
    /// # Errors
    /// What does not read, by line.
    pub fn parse(text: &str) -> Result<Constants, PredictError> {
        let all: Constants =
            toml::from_str(text).map_err(|e| PredictError::Constants(e.to_string()))?;
        match all
            .all
            .iter()
            .find(|c| !c.1.value.is_finite() || c.1.value < 0.0)
        {
            Some((name, c)) => Err(PredictError::Constants(format!(
                "{name} is {}; it must be finite and not below 0",
                c.value
            ))),
            None => Ok(all),
        }
    }

    /// The text of the file with these values.
    pub fn text(&self) -> String {
        let head = "# Every number of the predictions that was chosen after a look at measurements, with its meaning.\n\
            # `cargo xtask fit` writes `value` of those that are `fitted`, on rows of the families `of`; it begins at\n\
            # `start` and may not pass `most`. The others were read off published micro-benchmarks or chosen.\n\
            # Shares are of the data sheet's peak (bus width times pin speed, 2 x lanes x clock).\n";
        let mut out = String::from(head);
        for (name, c) in &self.all {
            out += &format!("\n[{name}]\nvalue = {:?}\nstart = {:?}\n", c.value, c.start);
            if let Some(m) = c.most {
                out += &format!("most = {m:?}\n");
            }
            out += &format!("fitted = {}\n", c.fitted);
            if !c.of.is_empty() {
                out += &format!("of = {:?}\n", c.of);
            }
            out += &format!("meaning = {:?}\n", c.meaning);
        }
        out
    }

    /// The published ones.
    pub fn published() -> &'static Constants {
        static ALL: OnceLock<Constants> = OnceLock::new();
        ALL.get_or_init(|| {
            Constants::parse(Constants::TEXT).unwrap_or(Constants {
                all: BTreeMap::new(),
            })
        })
    }

    /// A value by name; 1 for a name that is not there (a test makes sure that there is none such).
    pub fn get(&self, name: &str) -> f64 {
        self.all.get(name).map_or(1.0, |c| c.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_reads_and_says_what_each_means() {
        let c = Constants::parse(Constants::TEXT).unwrap();
        assert!(c.all.values().all(|c| c.meaning.len() > 20));
    }

    /// Every name that the sources ask for is in the file, and every name of the file is asked for.
    #[test]
    fn names_agree_with_the_sources() {
        let c = Constants::parse(Constants::TEXT).unwrap();
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut sources = String::new();
        for f in std::fs::read_dir(folder).unwrap() {
            let path = f.unwrap().path();
            if path.extension().is_some_and(|e| e == "rs") {
                sources += &std::fs::read_to_string(path).unwrap();
            }
        }
        for name in c.all.keys() {
            assert!(
                sources.contains(&format!("\"{name}\"")),
                "{name} is not used"
            );
        }
        for part in sources.split(concat!(".get", "(\"")).skip(1) {
            let name = part.split('"').next().unwrap();
            let like =
                name.contains('_') && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            let column = crate::measurements::KERNELS
                .iter()
                .chain(crate::measurements::MODELS)
                .chain(crate::measurements::DECODE);
            if like && !column.clone().any(|c| *c == name) {
                assert!(c.all.contains_key(name), "{name} is not in constants.toml");
            }
        }
    }
}
