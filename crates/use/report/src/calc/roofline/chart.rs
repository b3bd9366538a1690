//! What the plots have in common: the window, in powers of ten, and the roofs in it.

use super::{PointView, RooflineView};
use crate::units;

/// The window: logarithms to base ten of intensity and of operations per second.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub x: (f64, f64),
    pub y: (f64, f64),
}

/// A place in the plot.
pub struct Place<'a> {
    pub point: &'a PointView,
    /// Level it is drawn for.
    pub level: usize,
    pub x: f64,
    pub y: f64,
    /// Whether it is the point of the farthest level that it reaches.
    pub main: bool,
}

/// A slanted line.
pub struct Line {
    pub names: Vec<String>,
    pub peak: f64,
    pub counts: bool,
    /// Number of its first level.
    pub color: usize,
}

impl Line {
    /// Levels and their peak.
    pub fn name(&self) -> String {
        format!("{} {}", self.names.join(", "), units::byte_rate(self.peak))
    }
}

impl RooflineView {
    /// The points of the plot: the farthest level that each reaches and, where there are few, the others.
    pub(super) fn places(&self) -> Vec<Place<'_>> {
        let mut out = Vec::new();
        let few = !self.is_model;
        for p in &self.points {
            let rate = p.rate();
            if p.mark == ' ' || rate <= 0.0 {
                continue;
            }
            let reached = p.reached().map(|l| l.level.as_str());
            for (i, l) in p.levels.iter().enumerate().rev() {
                let Some(x) = l.intensity.filter(|x| *x > 0.0 && l.counts) else {
                    continue;
                };
                let main = Some(l.level.as_str()) == reached;
                // Every operand once is the same intensity everywhere.
                if main || (few && p.predicted_s.is_some()) {
                    out.push(Place {
                        point: p,
                        level: i,
                        x: x.log10(),
                        y: rate.log10(),
                        main,
                    });
                }
            }
        }
        out
    }

    /// The window that holds every point and every ridge point of the roofs that count.
    pub(super) fn window(&self) -> Window {
        let top = self.ceilings.iter().map(|c| c.rate).fold(1.0, f64::max);
        let (mut x0, mut x1) = (f64::INFINITY, f64::NEG_INFINITY);
        let mut y0 = top.log10() - 2.0;
        for r in self.roofs.iter().filter(|r| r.counts && r.peak > 0.0) {
            for c in &self.ceilings {
                let x = (c.rate / r.peak).log10();
                (x0, x1) = (x0.min(x), x1.max(x));
            }
        }
        // Points that take next to no time do not widen the window; they stand at its rim.
        let total: f64 = self.points.iter().filter_map(|p| p.predicted_s).sum();
        let matters = |p: &Place| {
            let alike = self.points.iter().filter(|q| q.mark == p.point.mark);
            let s: f64 = alike.map(|q| q.predicted_s.unwrap_or(f64::INFINITY)).sum();
            s >= 0.005 * total
        };
        for p in self.places().iter().filter(|p| matters(p)) {
            (x0, x1) = (x0.min(p.x), x1.max(p.x));
            y0 = y0.min(p.y);
        }
        if !x0.is_finite() || !x1.is_finite() {
            (x0, x1) = (-1.0, 3.0);
        }
        // A kernel with next to no arithmetic does not get a plot of its own.
        let x0 = x0.max(x1 - 7.0);
        let y1 = top.log10();
        let y0 = y0.max(y1 - 7.0);
        let w = Window {
            x: (x0 - 0.4, x1 + 0.6),
            y: (y0 - 0.3, y1 + 0.35),
        };
        Window {
            x: (w.x.0, w.x.1.max(w.x.0 + 2.0)),
            y: (w.y.0, w.y.1.max(w.y.0 + 2.0)),
        }
    }

    /// The slanted roofs to draw: levels that are equally fast are one line with their names.
    pub(super) fn lines(&self) -> Vec<Line> {
        let mut out: Vec<Line> = Vec::new();
        for (i, r) in self.roofs.iter().enumerate() {
            match out.iter_mut().find(|l| l.peak == r.peak) {
                Some(l) => l.names.push(r.level.clone()),
                None => out.push(Line {
                    names: vec![r.level.clone()],
                    peak: r.peak,
                    counts: r.counts,
                    color: i,
                }),
            }
        }
        out
    }

    /// The highest roof.
    pub(super) fn top(&self) -> f64 {
        self.ceilings.iter().map(|c| c.rate).fold(1.0, f64::max)
    }

    /// The fastest level's peak.
    pub(super) fn fastest(&self) -> f64 {
        self.roofs.iter().map(|r| r.peak).fold(1.0, f64::max)
    }
}
