//! The roofline as a picture that reads on a light and on a dark page.

use super::{RooflineView, rate_label};
use crate::units;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 600.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 72.0;

const STYLE: &str = "\
:root{--paper:#ffffff;--ink:#1b1f24;--soft:#5b6570;--grid:#e3e7eb;--c0:#0b62c4;--c1:#b34700;--c2:#1c7c3b;--c3:#7a3fb3;--c4:#a3123f;--roof:#1b1f24}\
@media (prefers-color-scheme:dark){:root{--paper:#12161b;--ink:#e8ecf0;--soft:#a3adb8;--grid:#2a3138;--c0:#6cb0ff;--c1:#ffa463;--c2:#6fd48e;--c3:#c9a2ff;--c4:#ff8aa8;--roof:#e8ecf0}}\
text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:var(--ink)}\
.paper{fill:var(--paper)}.grid{stroke:var(--grid);stroke-width:1}.tick{font-size:12px;fill:var(--soft)}\
.axis{font-size:13px;fill:var(--soft)}.title{font-size:17px;font-weight:600}.sub{font-size:13px;fill:var(--soft)}\
.line{fill:none;stroke-width:2}.roof{stroke:var(--roof)}.far{stroke-dasharray:3 5}\
.name{font-size:12px;font-weight:600;paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}\
.mark{font-size:11px;font-weight:600;text-anchor:middle;paint-order:stroke;stroke:var(--paper);stroke-width:3px}\
.dot{stroke:var(--paper);stroke-width:1.5}";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// `10` with a raised exponent.
fn power(d: i64) -> String {
    match d {
        0 => "1".into(),
        1 => "10".into(),
        2 => "100".into(),
        3 => "1000".into(),
        -1 => "0.1".into(),
        _ => format!("10<tspan dy=\"-5\" font-size=\"9\">{d}</tspan>"),
    }
}

impl RooflineView {
    /// The picture.
    pub fn svg(&self) -> String {
        let w = self.window();
        let px = |x: f64| LEFT + (x - w.x.0) / (w.x.1 - w.x.0) * (WIDTH - LEFT - RIGHT);
        let py = |y: f64| HEIGHT - BOTTOM - (y - w.y.0) / (w.y.1 - w.y.0) * (HEIGHT - TOP - BOTTOM);
        let mut s = String::new();
        self.head(&mut s);
        self.grid(&mut s, &px, &py);
        self.roofs(&mut s, &px, &py);
        self.ceilings(&mut s, &px, &py);
        self.dots(&mut s, &px, &py);
        self.key(&mut s);
        s.push_str("</svg>\n");
        s
    }

    /// What the picture is of.
    fn head(&self, s: &mut String) {
        let full = HEIGHT + 12.0 + 18.0 * self.lettered().count().div_ceil(2) as f64;
        let title = match self.dims.is_empty() {
            true => self.subject.clone(),
            false => format!("{} ({})", self.subject, self.dims),
        };
        let _ = writeln!(
            s,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {full}\" width=\"{WIDTH}\" height=\"{full}\" role=\"img\">\n<title>Roofline of {} on {}</title>\n<style>{STYLE}</style>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{full}\"/>",
            escaped(&title),
            escaped(&self.machine)
        );
        let _ = writeln!(
            s,
            "<text class=\"title\" x=\"{LEFT}\" y=\"28\">{} on {}</text>",
            escaped(&units::shortened(&title, 60)),
            escaped(&self.machine)
        );
        let sum = &self.summary;
        let kernels = match self.target.is_empty() {
            true => String::new(),
            false => format!(
                "; kernels: {} ({}), predicted",
                crate::study::label(&self.kernels, self.unvalidated),
                self.target
            ),
        };
        let _ = writeln!(
            s,
            "<text class=\"sub\" x=\"{LEFT}\" y=\"48\">{} FLOP/byte of memory, ridge point {}, bound by {}, {} at the roof{}</text>",
            sum.intensity.map_or("-".into(), units::number),
            units::number(sum.ridge),
            escaped(&sum.bound),
            units::seconds(sum.time_s),
            escaped(&kernels)
        );
    }

    /// The lines of the levels.
    fn roofs(&self, s: &mut String, px: &dyn Fn(f64) -> f64, py: &dyn Fn(f64) -> f64) {
        let w = self.window();
        let top = self.top().log10();
        for r in self.lines() {
            let peak = r.peak.log10();
            // From where it enters the window to the highest roof.
            let x0 = w.x.0.max(w.y.0 - peak);
            let x1 = w.x.1.min(top - peak);
            if x0 >= x1 {
                continue;
            }
            let color = format!("var(--c{})", r.color % 5);
            let _ = writeln!(
                s,
                "<line class=\"line{}\" style=\"stroke:{color}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
                if r.counts { "" } else { " far" },
                px(x0),
                py(x0 + peak),
                px(x1),
                py(x1 + peak)
            );
            // Names lie along their lines, which are parallel, so that none meets another.
            let (dx, dy) = (px(x1) - px(x0), py(x1 + peak) - py(x0 + peak));
            let turned = dy.atan2(dx).to_degrees();
            let x = x0 + (x1 - x0) * 0.06;
            let _ = writeln!(
                s,
                "<text class=\"name\" style=\"fill:{color}\" transform=\"translate({:.1} {:.1}) rotate({turned:.1})\" y=\"-5\">{}</text>",
                px(x),
                py(x + peak),
                escaped(&r.name())
            );
        }
    }

    /// The lines of the units.
    fn ceilings(&self, s: &mut String, px: &dyn Fn(f64) -> f64, py: &dyn Fn(f64) -> f64) {
        let (w, fastest) = (self.window(), self.fastest().log10());
        let mut above = f64::NEG_INFINITY;
        for c in &self.ceilings {
            let (y, x0) = (c.rate.log10(), w.x.0.max(c.rate.log10() - fastest));
            let _ = writeln!(
                s,
                "<line class=\"line roof\" x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>\n<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{} {}</text>",
                px(x0),
                px(w.x.1),
                px(w.x.1) - 4.0,
                // A roof close below another has its name below.
                match py(y) - above < 24.0 {
                    true => py(y) + 16.0,
                    false => py(y) - 6.0,
                },
                escaped(&c.name()),
                units::flop_rate(c.rate),
                y = py(y),
            );
            above = py(y);
        }
    }

    /// The points, those that take longest on top.
    fn dots(&self, s: &mut String, px: &dyn Fn(f64) -> f64, py: &dyn Fn(f64) -> f64) {
        let mut named = Vec::new();
        for p in self.places().iter().rev() {
            let l = &p.point.levels[p.level];
            let x = px(p.x).clamp(LEFT, WIDTH - RIGHT);
            let y = py(p.y).clamp(TOP, HEIGHT - BOTTOM);
            let about = format!(
                "{}: {} FLOP/byte at {}, {}, bound by {}",
                p.point.name,
                l.intensity.map_or("-".into(), units::number),
                l.level,
                units::flop_rate(p.point.rate()),
                p.point.bound
            );
            let color = format!("var(--c{})", p.level % 5);
            let _ = writeln!(
                s,
                "<g><title>{}</title><circle class=\"dot\" style=\"fill:{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{}\"/>{}</g>",
                escaped(&about),
                if p.main { 5.5 } else { 4.0 },
                match p.main && p.point.mark != '.' && !named.contains(&p.point.mark) {
                    true => format!(
                        "<text class=\"mark\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                        x + 11.0,
                        y + 4.0,
                        p.point.mark
                    ),
                    false => String::new(),
                }
            );
            if p.main {
                named.push(p.point.mark);
            }
        }
    }

    /// What the letters stand for, those that take longest first, in two columns.
    fn key(&self, s: &mut String) {
        for (n, g) in self.lettered().enumerate() {
            let p = &self.points[g[0]];
            let about = match (p.predicted_s, g.len()) {
                (Some(t), 1) => format!("predicted {}", units::seconds(t)),
                (Some(t), n) => format!("{n} steps, {}", units::seconds(t * n as f64)),
                (None, _) => format!("{} at the roof", units::seconds(p.roof_s)),
            };
            let _ = writeln!(
                s,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\"><tspan font-weight=\"600\">{}</tspan>  {}: {about}, roof {}</text>",
                LEFT + (n % 2) as f64 * (WIDTH - LEFT - RIGHT) / 2.0,
                HEIGHT + 4.0 + 18.0 * (n / 2) as f64,
                p.mark,
                escaped(&units::shortened(&p.name, 24)),
                escaped(&p.bound)
            );
        }
    }

    /// Groups of points that have a letter, the first ten.
    fn lettered(&self) -> impl Iterator<Item = Vec<usize>> {
        let mut all = self.groups();
        all.retain(|g| !matches!(self.points[g[0]].mark, ' ' | '.'));
        all.into_iter().take(10)
    }

    fn grid(&self, s: &mut String, px: &dyn Fn(f64) -> f64, py: &dyn Fn(f64) -> f64) {
        let w = self.window();
        let (left, right, low, high) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, TOP);
        let mut d = w.x.0.ceil();
        while d <= w.x.1 {
            let x = px(d);
            let _ = writeln!(
                s,
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{low}\" x2=\"{x:.1}\" y2=\"{high}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                low + 20.0,
                power(d as i64)
            );
            d += 1.0;
        }
        let mut d = w.y.0.ceil();
        while d <= w.y.1 {
            let y = py(d);
            let _ = writeln!(
                s,
                "<line class=\"grid\" x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                y + 4.0,
                rate_label(10f64.powf(d))
            );
            d += 1.0;
        }
        let _ = writeln!(
            s,
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">operations for each byte that crosses a level</text>",
            (left + right) / 2.0,
            low + 46.0
        );
    }
}
