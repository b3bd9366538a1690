//! What a drill is given, and what came of it.

use std::time::Duration;

/// How drills are run.
pub struct How {
    /// Shorter, with the same blocks.
    pub quick: bool,
    /// Turns of the supervised engine and the oracle.
    pub blocks: usize,
    /// A Python program, for the engine to compare with.
    pub python: String,
}

impl How {
    /// `long` seconds, or `short` ones where it is to be quick.
    pub fn seconds(&self, long: f64, short: f64) -> Duration {
        Duration::from_secs_f64(if self.quick { short } else { long })
    }
}

/// What one figure of a drill is held to.
#[derive(Clone, Copy)]
pub enum Aim {
    Least(f64),
    Most(f64),
    /// Only told.
    Told,
}

/// A figure of a drill, block by block.
pub struct Figure {
    pub what: String,
    pub aim: Aim,
    pub unit: &'static str,
    pub blocks: Vec<f64>,
}

impl Figure {
    pub fn new(what: &str, aim: Aim, unit: &'static str, blocks: Vec<f64>) -> Figure {
        Figure {
            what: what.into(),
            aim,
            unit,
            blocks,
        }
    }

    fn median(&self) -> f64 {
        let mut v = self.blocks.clone();
        v.sort_by(f64::total_cmp);
        match v.len() {
            0 => f64::NAN,
            n => 0.5 * (v[(n - 1) / 2] + v[n / 2]),
        }
    }

    /// Smallest and largest: with five blocks the median is between them in 15 of 16 cases.
    fn interval(&self) -> (f64, f64) {
        let of = |f: fn(f64, f64) -> f64| self.blocks.iter().copied().fold(f64::NAN, f);
        (of(f64::min), of(f64::max))
    }

    fn met(&self) -> Option<bool> {
        match self.aim {
            Aim::Least(v) => Some(self.median() >= v),
            Aim::Most(v) => Some(self.median() <= v),
            Aim::Told => None,
        }
    }

    pub(super) fn row(&self) -> String {
        let n = |v: f64| format!("{v:.3}{}", self.unit);
        let aim = match self.aim {
            Aim::Least(v) => format!("at least {v}{}", self.unit),
            Aim::Most(v) => format!("at most {v}{}", self.unit),
            Aim::Told => "–".into(),
        };
        let met = match self.met() {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "–",
        };
        let (lo, hi) = self.interval();
        format!(
            "| {} | {} | {} to {} | {aim} | {met} |",
            self.what,
            n(self.median()),
            n(lo),
            n(hi)
        )
    }
}

/// What came of a drill.
pub struct Outcome {
    pub figures: Vec<Figure>,
    /// What else is to be said of it.
    pub notes: Vec<String>,
}
