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

/// Rows and columns of tiles.
pub type Tiles = Vec<(u32, u32)>;

/// Kernels of products.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProductTable {
    /// What it says.
    pub meaning: String,
    /// Rows and columns of CTAs.
    pub tiles: Tiles,
    /// Cells of one thread.
    pub cells: u32,
    /// Fewest and most threads.
    pub threads: (u32, u32),
    /// Addends of one step.
    pub depth: i64,
    /// The same on matrix units.
    pub depth_matrix: i64,
    /// Parts that a long sum is cut into.
    pub parts: Vec<u32>,
    /// Fewest addends of a part.
    pub addends: u64,
    /// CTAs for each SM below which sums are cut.
    pub few: u64,
}

/// Tiles of one generation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generation {
    /// First compute capability.
    pub from: u32,
    /// The first that is another's.
    pub below: u32,
    /// Rows and columns of CTAs.
    pub tiles: Tiles,
}

/// Kernels of batched products.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchedTable {
    /// What it says.
    pub meaning: String,
    /// By compute capability.
    pub of: Vec<Generation>,
}

/// Kernels that reduce rows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowTable {
    /// What it says.
    pub meaning: String,
    /// Columns up to which a warp holds two rows.
    pub two: u64,
    /// Columns up to which a warp holds one.
    pub one: u64,
    /// Passes over longer rows.
    pub passes: u64,
    /// Most threads of a longer row's CTA.
    pub threads: u32,
    /// Its threads where warps have 64 lanes.
    pub threads_wide: u32,
    /// Threads of layer norm's CTA.
    pub threads_norm: u32,
}

/// Bits of stored weights.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormatTable {
    /// What it says.
    pub meaning: String,
    /// By the start of a format's name.
    pub bits: Vec<(String, f64)>,
    /// What ollama takes where nothing is said, by a part of the model's name.
    pub ollama: Vec<(String, f64)>,
}

/// A language model's shape.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedShape {
    /// Start of its name.
    pub name: String,
    /// Weights that a token passes through.
    pub active: f64,
    /// Layers.
    pub layers: f64,
    /// Width of the residual stream.
    pub width: f64,
    /// Keys' and values' share of the width.
    pub kv: f64,
}

/// Language models.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapeTable {
    /// What it says.
    pub meaning: String,
    /// Published ones.
    pub models: Vec<NamedShape>,
    /// Layers of a model of `weights`.
    pub layers: f64,
    /// Weights of a model of `layers`.
    pub weights: f64,
    /// Fewest layers.
    pub least: f64,
    /// Tokens that are generated where it is not said.
    pub tokens: u64,
}

/// Tables beside the single numbers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // Each says what it means itself.
pub struct Tables {
    pub products: ProductTable,
    pub batched: BatchedTable,
    pub rows: RowTable,
    pub formats: FormatTable,
    pub shapes: ShapeTable,
}

impl Tables {
    /// Name and meaning of each.
    pub fn meanings(&self) -> [(&'static str, &str); 5] {
        [
            ("products", &self.products.meaning),
            ("batched", &self.batched.meaning),
            ("rows", &self.rows.meaning),
            ("formats", &self.formats.meaning),
            ("shapes", &self.shapes.meaning),
        ]
    }
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constants {
    /// By name.
    pub all: BTreeMap<String, Constant>,
    /// The tables.
    pub tables: Tables,
    /// Their text in the file.
    written: String,
}

/// Where the tables' text begins.
const TABLES: &str = "\n# Tables:";

impl Constants {
    /// The file as it was built in.
    pub const TEXT: &'static str = include_str!("../constants.toml");

    /// Reads a file of constants.
    ///
    /// # Errors
    /// What does not read, by line.
    pub fn parse(text: &str) -> Result<Constants, PredictError> {
        #[derive(Deserialize)]
        struct File {
            tables: Tables,
            #[serde(flatten)]
            all: BTreeMap<String, Constant>,
        }
        let file: File =
            machine::toml::read(text).map_err(|e| PredictError::Constants(e.to_string()))?;
        let written = text.find(TABLES).map_or("", |at| &text[at..]);
        let all = Constants {
            all: file.all,
            tables: file.tables,
            written: written.into(),
        };
        let (p, r) = (&all.tables.products, &all.tables.rows);
        let whole = [
            p.cells,
            p.threads.0,
            r.threads,
            r.threads_wide,
            r.threads_norm,
        ];
        if whole.contains(&0) || p.threads.0 > p.threads.1 || p.depth < 1 || p.depth_matrix < 1 {
            return Err(PredictError::Constants(
                "tables.products and tables.rows have sizes that are 0 or out of order".into(),
            ));
        }
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
        out + &self.written
    }

    /// The published ones.
    pub fn published() -> &'static Constants {
        static ALL: OnceLock<Constants> = OnceLock::new();
        ALL.get_or_init(|| Constants::parse(Constants::TEXT).unwrap_or_default())
    }

    /// A value by name; 1 for a name that is not there (a test makes sure that there is none such).
    pub fn get(&self, name: &str) -> f64 {
        self.all.get(name).map_or(1.0, |c| c.value)
    }
}
