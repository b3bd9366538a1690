//! Outputs against the references.

use super::error::ZooError;
use super::meta::dtype_named;
use super::model::ZooModel;
use crate::compare::{difference, sampled};
use std::fmt;
use tensor::Tensor;

/// How one output compares.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputReport {
    /// Name of the output.
    pub name: String,
    /// `max|got - want| / max|want|`; infinite when it could not be compared.
    pub difference: f64,
    /// Why it is wrong, where it is.
    pub problem: Option<String>,
}

/// How a model's outputs compare with its references.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Name of the model.
    pub model: String,
    /// Bound on the differences.
    pub tolerance: f64,
    /// Every output of the model, sorted by name.
    pub outputs: Vec<OutputReport>,
}

impl Report {
    /// True when every output is there and within the tolerance.
    pub fn passed(&self) -> bool {
        !self.outputs.is_empty() && self.outputs.iter().all(|o| o.problem.is_none())
    }

    /// The largest difference.
    pub fn worst(&self) -> f64 {
        self.outputs
            .iter()
            .map(|o| o.difference)
            .fold(0.0, f64::max)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.passed() { "ok" } else { "FAIL" };
        write!(
            f,
            "{word} {}: difference {:.2e}, tolerance {:.1e}",
            self.model,
            self.worst(),
            self.tolerance
        )?;
        self.outputs
            .iter()
            .filter_map(|o| o.problem.as_ref().map(|p| (&o.name, p)))
            .try_for_each(|(name, p)| write!(f, "; {name}: {p}"))
    }
}

pub(super) fn check(
    model: &ZooModel,
    outputs: &[(String, Tensor)],
    tolerance: f64,
) -> Result<Report, ZooError> {
    let references = model.references()?;
    let format = |reason: String| ZooError::Format {
        path: model.folder().join("model.json"),
        reason,
    };
    let mut report = Report {
        model: model.name().to_string(),
        tolerance,
        outputs: Vec::new(),
    };
    for (name, meta) in &model.meta().output {
        let want = references.iter().find(|(n, _)| n == name).map(|(_, t)| t);
        let want = want.ok_or_else(|| format(format!("outputs.npz lacks output {name:?}")))?;
        let dtype = dtype_named(&meta.dtype).map_err(format)?;
        let mut entry = OutputReport {
            name: name.clone(),
            difference: f64::INFINITY,
            problem: None,
        };
        match outputs.iter().find(|(n, _)| n == name) {
            None => entry.problem = Some("it is missing".into()),
            Some((_, got)) if got.shape() != meta.shape || got.dtype() != dtype => {
                entry.problem = Some(format!("it is {got:?}, not {dtype}{:?}", meta.shape));
            }
            Some((_, got)) => {
                entry.difference = match meta.stride {
                    Some(stride) => difference(&sampled(got, stride), want),
                    None => difference(got, want),
                };
                // Written so that a NaN fails.
                let within = entry.difference <= tolerance;
                if !within {
                    entry.problem = Some(format!("difference {:.3e}", entry.difference));
                }
            }
        }
        report.outputs.push(entry);
    }
    Ok(report)
}
