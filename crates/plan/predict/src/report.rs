//! Rows against predictions, in groups.

use crate::measurements::{Measurements, Row};
use crate::ops::{Library, Walked};
use crate::{Constants, Errors, PredictError, gpus, rows};
use machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which rows count.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only rows of this GPU, as the file or the catalog calls it.
    pub gpu: Option<String>,
}

/// Errors of the rows of one source, GPU and operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Who measured.
    pub source: String,
    /// The GPU as the source calls it.
    pub gpu: String,
    /// The operator, a model's mode, or a test.
    pub op: String,
    /// How far off.
    #[serde(flatten)]
    pub errors: Errors,
}

/// How far off predictions are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Over all rows.
    pub overall: Errors,
    /// By source, GPU and operator.
    pub groups: Vec<Group>,
    /// Rows without a prediction by reason.
    pub uncovered: BTreeMap<String, usize>,
}

/// A row with what was predicted for it.
#[derive(Clone, Debug)]
pub struct Pair<'a> {
    /// The row.
    pub row: &'a Row,
    /// Predicted seconds, or why there are none.
    pub predicted: Result<f64, String>,
}

/// A prediction for every row that `options` let count.
///
/// # Errors
/// A field that does not read.
pub fn pairs<'a>(
    m: &'a Measurements,
    options: &Options,
    c: &Constants,
) -> Result<Vec<Pair<'a>>, PredictError> {
    pairs_with(m, options, c, &Walked::default())
}

/// [`pairs`] with the work that earlier calls read off.
pub(crate) fn pairs_with<'a>(
    m: &'a Measurements,
    options: &Options,
    c: &Constants,
    walked: &Walked,
) -> Result<Vec<Pair<'a>>, PredictError> {
    let mut machines: BTreeMap<&str, Result<Machine, String>> = BTreeMap::new();
    for row in &m.rows {
        let found = || gpus::machine_of(&row.gpu);
        machines.entry(&row.gpu).or_insert_with(found);
    }
    let wanted = |row: &Row| match &options.gpu {
        None => true,
        Some(g) => {
            row.gpu.eq_ignore_ascii_case(g)
                || matches!(&machines[row.gpu.as_str()], Ok(m) if gpus::machine_of(g).is_ok_and(|w| w.name == m.name))
        }
    };
    let rows: Vec<&Row> = m.rows.iter().filter(|r| wanted(r)).collect();
    // Two threads, each with libraries of its own: rows of one GPU go to one of them in turns.
    let half = |at: usize| -> Result<Vec<(usize, Pair<'a>)>, PredictError> {
        let mut libraries: BTreeMap<&str, Result<Library, String>> = BTreeMap::new();
        let mut out = vec![];
        for (i, &row) in rows.iter().enumerate().filter(|(i, _)| i % 2 == at) {
            let library =
                libraries
                    .entry(&row.gpu)
                    .or_insert_with(|| match &machines[row.gpu.as_str()] {
                        Ok(m) => Library::new(m, c, walked, at)
                            .ok_or_else(|| format!("{} is a CPU: no vendor's target", m.name)),
                        Err(e) => Err(e.clone()),
                    });
            let predicted = match library {
                Ok(l) => rows::seconds(&m.file, row, l, c)?,
                Err(e) => Err(e.clone()),
            };
            out.push((i, Pair { row, predicted }));
        }
        Ok(out)
    };
    let (a, b) = std::thread::scope(|s| {
        let other = s.spawn(|| half(1));
        let own = half(0);
        (own, other.join())
    });
    let b = b.unwrap_or_else(|p| std::panic::resume_unwind(p));
    // The first of the file's errors, whichever thread met one.
    let (mut all, b) = match (a, b) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(a), Err(b)) => {
            return Err(match (&a, &b) {
                (PredictError::Field { line: x, .. }, PredictError::Field { line: y, .. })
                    if y < x =>
                {
                    b
                }
                _ => a,
            });
        }
        (Err(e), _) | (_, Err(e)) => return Err(e),
    };
    all.extend(b);
    all.sort_by_key(|p| p.0);
    Ok(all.into_iter().map(|p| p.1).collect())
}

/// Rows of `m` against predictions with the constants `c`.
///
/// # Errors
/// A field that does not read.
pub fn compare(m: &Measurements, options: &Options, c: &Constants) -> Result<Report, PredictError> {
    Ok(Report::of(&pairs(m, options, c)?))
}

impl Report {
    /// Groups `pairs`.
    pub fn of(pairs: &[Pair]) -> Report {
        type Group2 = (usize, Vec<(f64, f64)>);
        let mut groups: BTreeMap<(&str, &str, &str), Group2> = BTreeMap::new();
        let mut uncovered: BTreeMap<String, usize> = BTreeMap::new();
        let mut all: Vec<(f64, f64)> = vec![];
        for p in pairs {
            let group = groups
                .entry((&p.row.source, &p.row.gpu, p.row.op()))
                .or_default();
            group.0 += 1;
            match &p.predicted {
                Ok(s) => {
                    let pair = (*s, p.row.seconds);
                    group.1.push(pair);
                    all.push(pair);
                }
                Err(why) => *uncovered.entry(why.clone()).or_default() += 1,
            }
        }
        let group = |((source, gpu, op), (rows, pairs)): ((&str, &str, &str), Group2)| Group {
            source: source.into(),
            gpu: gpu.into(),
            op: op.into(),
            errors: Errors::of(rows, &pairs),
        };
        Report {
            overall: Errors::of(pairs.len(), &all),
            groups: groups.into_iter().map(group).collect(),
            uncovered,
        }
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// None that a report can have.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}
