//! Decisions with their reasons and alternatives. The planner records one for every choice; the report prints
//! them.
use layout::Inserted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Something that could have been chosen instead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// What it is.
    pub what: String,
    /// Predicted time in seconds.
    pub predicted_s: f64,
}

/// A decision with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// Pass that decided (`fuse`, `schedule`, `layout`, `memory`, `host`, ...).
    pub pass: String,
    /// Step, node or value decided about.
    pub subject: String,
    /// What was chosen (or `not fused`, for a why-not).
    pub choice: String,
    /// What else there was, best first.
    pub alternatives: Vec<Alternative>,
    /// The reason in one sentence.
    pub reason: String,
}

/// Decisions by what they are about, so that each of many steps finds its own at once.
#[derive(Debug, Default)]
pub struct Decisions<'a>(BTreeMap<(&'a str, &'a str), &'a Why>);

impl<'a> Decisions<'a> {
    /// Those of `whys`.
    pub fn of(whys: &'a [Why]) -> Decisions<'a> {
        let keyed = whys.iter();
        Decisions(
            keyed
                .map(|w| ((w.subject.as_str(), w.pass.as_str()), w))
                .inserted(),
        )
    }

    /// The last decision of `pass` about `subject`.
    pub fn last(&self, pass: &str, subject: &str) -> Option<&'a Why> {
        self.0.get(&(subject, pass)).copied()
    }
}
