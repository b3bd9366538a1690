//! What a part says while it works: a line of JSON each, from the process it runs in to the one that
//! watches it, so that what was found before a crash or a kill is kept.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "line")]
pub enum Line {
    /// What comes next.
    Now { what: String },
    /// Something that was checked, and what is wrong where it is wrong.
    Check {
        what: String,
        wrong: Option<String>,
        note: String,
    },
    /// `n` more of `what`.
    Count { what: String, n: usize },
    /// Something that was not done, and why.
    Left { what: String, why: String },
    /// A figure or a name about the machine.
    Fact { name: String, value: String },
    /// A row of the part's table.
    Row { cells: Vec<String> },
    /// A kernel that was timed.
    Kernel(Timed),
    /// What PyTorch takes for an operation, in microseconds.
    Torch { key: String, us: f64 },
    /// A file to write.
    File { name: String, text: String },
    /// Items that a later start of this part leaves out, the present one among them: should it not come
    /// to its end, it would not the next time.
    Past { items: u64 },
    /// The part is over.
    End,
}

/// A kernel of a model, timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// The model it is of.
    pub model: String,
    /// The kernel's family.
    pub family: String,
    /// Its axes with their extents.
    pub shapes: String,
    /// Launches of it in a request.
    pub launches: usize,
    /// Predicted for one launch, microseconds.
    pub predicted_us: f64,
    /// Median of one launch, microseconds.
    pub us: f64,
    /// What the machine takes for it at best, microseconds.
    pub roof_us: f64,
    /// What gives that: a unit or a memory.
    pub roof: String,
    /// The same operation for PyTorch, where there is one.
    pub torch: Option<Torch>,
}

/// An operation as PyTorch has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "op")]
pub enum Torch {
    /// `batch` products of `m` by `k` with `k` by `n`.
    Matmul {
        dtype: String,
        batch: i64,
        m: i64,
        n: i64,
        k: i64,
    },
    /// A convolution over two axes, of an input that is padded already.
    Conv {
        dtype: String,
        batch: i64,
        groups: i64,
        channels: i64,
        filters: i64,
        size: [i64; 2],
        window: [i64; 2],
        stride: [i64; 2],
    },
}

impl Torch {
    /// By which its time is known.
    pub fn key(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Says `line` to whoever watches.
pub fn say(line: &Line) {
    let mut out = std::io::stdout().lock();
    if let Ok(text) = serde_json::to_string(line) {
        // Nobody listens any more when this fails.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }
}

/// Says what comes next.
pub fn now(what: impl Into<String>) {
    say(&Line::Now { what: what.into() });
}

/// Says that item `n` of a part begins, counted from 0.
pub fn item(n: u64, what: impl Into<String>) {
    say(&Line::Past { items: n + 1 });
    now(what);
}

/// Says what came of a check.
pub fn check(what: impl Into<String>, came: Result<String, String>) -> bool {
    let (wrong, note) = match came {
        Ok(note) => (None, note),
        Err(why) => (Some(why), String::new()),
    };
    let passed = wrong.is_none();
    say(&Line::Check {
        what: what.into(),
        wrong,
        note,
    });
    passed
}

/// Says that something was not done.
pub fn left(what: impl Into<String>, why: impl Into<String>) {
    say(&Line::Left {
        what: what.into(),
        why: why.into(),
    });
}

/// Says a fact.
pub fn fact(name: &str, value: impl ToString) {
    say(&Line::Fact {
        name: name.into(),
        value: value.to_string(),
    });
}

/// Says a row.
pub fn row(cells: Vec<String>) {
    say(&Line::Row { cells });
}

/// Everything that a part said.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// What it was at last.
    pub now: String,
    /// Checks that passed, with their notes.
    pub passed: Vec<(String, String)>,
    /// Checks that did not, with why.
    pub failed: Vec<(String, String)>,
    /// Counts by name.
    pub counts: BTreeMap<String, usize>,
    /// What was left out, with why.
    pub left: Vec<(String, String)>,
    /// Facts by name, in order.
    pub facts: Vec<(String, String)>,
    /// Rows of its table.
    pub rows: Vec<Vec<String>>,
    /// Kernels.
    pub kernels: Vec<Timed>,
    /// What PyTorch takes, by key.
    pub torch: BTreeMap<String, f64>,
    /// Files by name.
    pub files: Vec<(String, String)>,
    /// Items that a later start leaves out.
    pub past: u64,
    /// Whether it came to its end.
    pub ended: bool,
}

impl Said {
    /// Takes a line in.
    pub fn hear(&mut self, line: Line) {
        match line {
            Line::Now { what } => self.now = what,
            Line::Check {
                what,
                wrong: Some(why),
                ..
            } => self.failed.push((what, why)),
            Line::Check { what, note, .. } => self.passed.push((what, note)),
            Line::Count { what, n } => *self.counts.entry(what).or_default() += n,
            Line::Left { what, why } => self.left.push((what, why)),
            Line::Fact { name, value } => self.facts.push((name, value)),
            Line::Row { cells } => self.rows.push(cells),
            Line::Kernel(k) => self.kernels.push(k),
            Line::Torch { key, us } => {
                self.torch.insert(key, us);
            }
            Line::File { name, text } => self.files.push((name, text)),
            Line::Past { items } => self.past = items,
            Line::End => self.ended = true,
        }
    }

    /// A fact by its name.
    pub fn fact(&self, name: &str) -> Option<&str> {
        let f = self.facts.iter().find(|f| f.0 == name);
        f.map(|f| f.1.as_str())
    }
}
