//! A computation under a machine's roofs: numbers, a table, a plot and the reasons.

mod chart;
mod explain;
mod plot;
mod svg;
mod tables;
mod view;

use crate::{BodyView, counted_inside, units};
use layout::{Arrange, DType, Inserted};
use machine::calc::{self, Ideal, Roofline};
use machine::{Bound, Machine, NumType, UnitClass};
use plan::{Plan, Step, StepWork};
pub use view::{
    CeilingView, IdealOp, LevelPointView, PointView, RoofView, RooflineSummary, RooflineView,
};

impl CeilingView {
    /// Unit and format.
    pub fn name(&self) -> String {
        format!("{} {}", self.unit, self.dtype)
    }
}

impl PointView {
    fn new(name: String, family: String, r: &Roofline) -> PointView {
        let rate = r.compute_rate();
        let most = r
            .units
            .iter()
            .max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        PointView {
            mark: ' ',
            name,
            family,
            ops: r.ops,
            unit: most.map_or_else(String::new, |u| format!("{} {}", u.unit, u.dtype)),
            compute_s: r.compute_s,
            levels: r
                .levels
                .iter()
                .map(|l| LevelPointView {
                    level: l.level.clone(),
                    bytes: l.bytes,
                    intensity: Some(l.ops_per_byte).filter(|v| v.is_finite()),
                    ridge: rate / l.peak,
                    roof: l.roof,
                    bytes_s: l.seconds,
                    time_s: l.seconds.max(r.compute_s),
                    bound: match l.seconds > r.compute_s {
                        true => "memory".into(),
                        false => "compute".into(),
                    },
                    counts: l.counts,
                })
                .collect(),
            roof_s: r.seconds,
            bound: match r.bound {
                Bound::Launch => "nothing".into(),
                ref b => b.to_string(),
            },
            predicted_s: None,
            predicted_bound: None,
        }
    }

    /// The same `times` in a request.
    fn repeat(&mut self, times: f64) {
        self.ops *= times;
        self.compute_s *= times;
        self.roof_s *= times;
        self.predicted_s = self.predicted_s.map(|s| s * times);
        for l in &mut self.levels {
            l.bytes *= times;
            l.bytes_s *= times;
            l.time_s *= times;
        }
    }

    /// Operations per second: as predicted, else at the roof.
    pub fn rate(&self) -> f64 {
        let s = self.predicted_s.unwrap_or(self.roof_s);
        if s > 0.0 { self.ops / s } else { 0.0 }
    }

    /// The farthest level that counts.
    pub fn memory(&self) -> Option<&LevelPointView> {
        self.levels.iter().rev().find(|l| l.counts)
    }

    /// The nearest level on the way to memory that bytes of it cross: memory itself unless all was found
    /// nearer.
    pub fn reached(&self) -> Option<&LevelPointView> {
        self.levels.iter().rev().find(|l| l.counts && l.bytes > 0.0)
    }

    /// The roof's time as a share of the predicted.
    pub fn share(&self) -> Option<f64> {
        let s = self.predicted_s.filter(|s| *s > 0.0)?;
        Some(self.roof_s / s)
    }
}

/// Marks of points, those that take longest together first.
const MARKS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The unit that a textbook puts the operations on: matrix units for products in a format they take.
fn unit_of(m: &Machine, op: &IdealOp) -> Option<(UnitClass, NumType)> {
    let tensor = op
        .contracts
        .then(|| m.unit(UnitClass::Tensor, op.dtype))
        .flatten();
    let fma = m.unit(UnitClass::Fma, op.dtype);
    match (tensor, fma) {
        (Some(t), Some(f)) if f.all.value >= t.all.value => Some((UnitClass::Fma, op.dtype)),
        (Some(_), _) => Some((UnitClass::Tensor, op.dtype)),
        (None, Some(_)) => Some((UnitClass::Fma, op.dtype)),
        // Formats without a unit are widened to f32.
        (None, None) => m
            .unit(UnitClass::Fma, NumType::F32)
            .map(|_| (UnitClass::Fma, NumType::F32)),
    }
}

/// Index of the device of `plan` that the machine of this name is.
fn device_of(plan: &Plan, machine: &Machine) -> u32 {
    let at = plan.devices.iter().rposition(|d| d.machine == machine.name);
    at.unwrap_or(plan.devices.len().saturating_sub(1)) as u32
}

impl RooflineView {
    fn empty(m: &Machine, subject: &str) -> RooflineView {
        RooflineView {
            machine: m.name.clone(),
            subject: subject.into(),
            dims: String::new(),
            kernels: "ours".into(),
            unvalidated: m.kind == machine::MachineKind::Gpu,
            how: crate::HowRun::default(),
            target: String::new(),
            summary: RooflineSummary::default(),
            ceilings: vec![],
            roofs: vec![],
            points: vec![],
            elsewhere: 0,
            elsewhere_s: 0.0,
            predicted_s: None,
            is_model: false,
            explanation: vec![],
        }
    }

    /// An operator as textbooks count it and, with a plan of it, as our kernels do. `None` when the
    /// machine has no unit for it.
    pub fn of_op(m: &Machine, op: &IdealOp, plan: Option<&Plan>) -> Option<RooflineView> {
        let (class, dtype) = unit_of(m, op)?;
        let r = calc::roofline_of(m, class, dtype, &op.ideal)?;
        let mut v = RooflineView::empty(m, &op.text);
        let mut point = PointView::new("every operand once".into(), String::new(), &r);
        point.mark = '*';
        let memory = r.memory();
        v.summary = RooflineSummary {
            ops: r.ops,
            bytes: op.ideal.bytes,
            intensity: point.memory().and_then(|l| l.intensity),
            ridge: memory.map_or(0.0, |l| l.ridge),
            bound: point.bound.clone(),
            time_s: r.seconds,
            compute_s: r.compute_s,
            memory_s: memory.map_or(0.0, |l| l.seconds),
        };
        v.points.push(point);
        if let Some(plan) = plan {
            v.predicted_s = Some(v.steps(m, plan, &|_| None));
            // What is moved between devices is no part of an operator.
            (v.elsewhere, v.elsewhere_s) = (0, 0.0);
        }
        v.finish(m, &[(class, dtype)]);
        v.explanation = explain::of_op(&v, op);
        Some(v)
    }

    /// Every step of a plan that runs on the machine, and of branches and loop bodies as often as they count.
    pub fn of_plan(m: &Machine, plan: &Plan, bodies: &[BodyView]) -> RooflineView {
        let bodies = counted_inside(bodies).into_iter();
        let bodies = bodies.filter_map(|(b, times)| Some((b.plan.as_deref()?, times)));
        let plans: Vec<(&Plan, f64)> = std::iter::once((plan, 1.0)).chain(bodies).collect();
        RooflineView::with_times(m, &plans, &|_| None)
    }

    /// Every step of the plans that ran, the first being the whole's and the others those of branches and loop bodies,
    /// with the seconds of one run that were measured in place of predicted ones, by step's name.
    pub fn of_profile(m: &Machine, plans: &[&Plan], profile: &crate::Profile) -> RooflineView {
        let measured: std::collections::BTreeMap<&str, f64> = profile
            .steps
            .iter()
            .map(|s| (s.step.name.as_str(), s.time_us * 1e-6 / s.runs.max(1.0)))
            .inserted();
        let plans: Vec<(&Plan, f64)> = plans.iter().map(|p| (*p, 1.0)).collect();
        RooflineView::with_times(m, &plans, &|s| measured.get(s.name.as_str()).copied())
    }

    /// The steps of `plans`, the first being the whole's, each with how often it runs in a request.
    fn with_times(
        m: &Machine,
        plans: &[(&Plan, f64)],
        seconds: &dyn Fn(&Step) -> Option<f64>,
    ) -> RooflineView {
        let mut v = RooflineView::empty(m, plans.first().map_or("", |p| &p.0.model));
        v.is_model = true;
        if let Some((plan, _)) = plans.first().filter(|p| !p.0.dims.is_empty()) {
            v.dims = plan.dims.to_string();
        }
        let mut predicted = 0.0;
        for (plan, times) in plans {
            let first = v.points.len();
            predicted += times * v.steps(m, plan, seconds);
            v.points[first..].iter_mut().for_each(|p| p.repeat(*times));
        }
        v.predicted_s = Some(predicted);
        let p = &v.points;
        let memory = |f: &dyn Fn(&LevelPointView) -> f64| -> f64 {
            p.iter().filter_map(PointView::memory).map(f).sum()
        };
        let sum = |f: &dyn Fn(&PointView) -> f64| p.iter().map(f).sum::<f64>();
        let (ops, bytes) = (sum(&|p| p.ops), memory(&|l| l.bytes));
        let (compute_s, memory_s) = (sum(&|p| p.compute_s), memory(&|l| l.bytes_s));
        let mut bounds: Vec<(&str, f64)> = Vec::new();
        for p in p {
            match bounds.iter_mut().find(|b| b.0 == p.bound) {
                Some(b) => b.1 += p.roof_s,
                None => bounds.push((&p.bound, p.roof_s)),
            }
        }
        let longest = bounds.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        v.summary = RooflineSummary {
            ops,
            bytes,
            intensity: (bytes > 0.0).then(|| ops / bytes),
            ridge: match compute_s > 0.0 {
                true => ops / compute_s / m.memory().peak(),
                false => 0.0,
            },
            bound: longest.map_or_else(|| "nothing".into(), |b| b.0.to_string()),
            time_s: sum(&|p| p.roof_s),
            compute_s,
            memory_s,
        };
        v.finish(m, &[]);
        v.explanation = explain::of_model(&v);
        v
    }

    /// Adds the steps of a plan, and gives the seconds of all of them.
    fn steps(&mut self, m: &Machine, plan: &Plan, seconds: &dyn Fn(&Step) -> Option<f64>) -> f64 {
        let own = device_of(plan, m);
        self.target = plan
            .devices
            .get(own as usize)
            .map_or_else(String::new, |d| d.target.clone());
        let mut total = 0.0;
        for block in plan.blocks() {
            for step in &block.steps {
                let s = seconds(step).unwrap_or(step.predicted.time_s);
                total += s;
                let kernel = match &step.work {
                    StepWork::Kernel { kernel, .. }
                        if step.device == own && !block.is_transfer(step) =>
                    {
                        kernel
                    }
                    _ => {
                        self.elsewhere += 1;
                        self.elsewhere_s += s;
                        continue;
                    }
                };
                let r = calc::roofline(m, &step.cost_work);
                let name = step.nodes.first().unwrap_or(&step.name).clone();
                let name = match step.nodes.len() {
                    0 | 1 => name,
                    n => format!("{name} +{}", n - 1),
                };
                let family = format!("{:?}", kernel.family).to_lowercase();
                let mut p = PointView::new(name, family, &r);
                p.predicted_s = Some(s);
                p.predicted_bound = Some(step.predicted.bound.to_string());
                self.points.push(p);
            }
        }
        total
    }

    /// Roofs, and marks for the slowest points that have a place in the plot.
    fn finish(&mut self, m: &Machine, units: &[(UnitClass, NumType)]) {
        let mut rows: Vec<(UnitClass, NumType)> = units.to_vec();
        let plain = |u: &machine::Unit| matches!(u.class, UnitClass::Fma | UnitClass::Tensor);
        for u in m.units.iter().filter(|u| plain(u)) {
            let name = format!("{} {}", u.name, u.dtype_in);
            let known = rows.contains(&(u.class, u.dtype_in));
            if self.points.iter().any(|p| p.unit == name) && !known {
                rows.push((u.class, u.dtype_in));
            }
        }
        // What there is above and below, for comparison.
        let half = (UnitClass::Tensor, NumType::F16);
        for extra in [(UnitClass::Fma, NumType::F32), half] {
            if m.unit(extra.0, extra.1).is_some() && !rows.contains(&extra) {
                rows.push(extra);
            }
        }
        self.ceilings = rows
            .iter()
            .filter_map(|&(c, d)| m.unit(c, d))
            .map(|u| CeilingView {
                unit: u.name.clone(),
                dtype: u.dtype_in.to_string(),
                rate: u.all.value,
            })
            .collect();
        self.ceilings.arrange_by(|a, b| b.rate.total_cmp(&a.rate));
        // Widths that do the same are one roof.
        self.ceilings
            .dedup_by(|a, b| a.rate == b.rate && a.unit == b.unit);
        let empty = calc::roofline(m, &machine::Work::default());
        self.roofs = empty
            .levels
            .iter()
            .map(|l| RoofView {
                level: l.level.clone(),
                peak: l.peak,
                ridge_points: self.ceilings.iter().map(|c| c.rate / l.peak).collect(),
                counts: l.counts,
            })
            .collect();
        // Steps that are alike share a mark, so that a letter stands for a kind of step.
        let groups = self.groups();
        let shown = |i: usize| {
            let p = &self.points[i];
            p.mark == ' ' && p.ops > 0.0 && p.reached().is_some()
        };
        let marks: Vec<(usize, char)> = groups
            .iter()
            .filter(|g| shown(g[0]))
            .enumerate()
            .flat_map(|(n, g)| {
                let mark = MARKS.chars().nth(n).unwrap_or('.');
                g.iter().map(move |&i| (i, mark))
            })
            .collect();
        for (i, mark) in marks {
            self.points[i].mark = mark;
        }
    }

    /// Points that are alike (family, operations, bytes and prediction), the group that takes longest
    /// first; in a group in plan order.
    fn groups(&self) -> Vec<Vec<usize>> {
        let alike = |a: &PointView, b: &PointView| {
            a.family == b.family
                && a.ops == b.ops
                && a.predicted_s == b.predicted_s
                && a.levels == b.levels
        };
        let mut out: Vec<Vec<usize>> = Vec::new();
        for (i, p) in self.points.iter().enumerate() {
            match out.iter_mut().find(|g| alike(&self.points[g[0]], p)) {
                Some(g) => g.push(i),
                None => out.push(vec![i]),
            }
        }
        let time = |g: &[usize]| -> f64 {
            let each = g.iter().filter_map(|&i| self.points[i].predicted_s);
            each.sum()
        };
        out.arrange_by(|a, b| time(b).total_cmp(&time(a)).then(a.cmp(b)));
        out
    }
}

/// The operator that `text` writes, as textbooks count it: `matmul:MxNxK:DTYPE` or `map:N:DTYPE:Kin`,
/// which adds up K vectors of N (K = 1: one operation on each element). `None` for other forms.
///
/// # Errors
/// A form of these two with a part that cannot be read, in one sentence.
pub fn ideal_op(text: &str) -> Result<Option<IdealOp>, String> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        ["matmul", sizes, dtype, ..] => {
            let p: calc::Product = format!("matmul:{sizes}:{dtype}").parse()?;
            let width = calc::bits(p.dtype) as f64 / 8.0;
            Ok(Some(IdealOp {
                text: text.into(),
                ideal: Ideal::matmul(p.m, p.n, p.k, width),
                dtype: p.dtype,
                contracts: true,
            }))
        }
        ["map", n, dtype, inputs] if inputs.ends_with("in") => {
            let wrong = || {
                format!(
                    "'{text}' should be map:N:DTYPE:Kin, such as map:1000000:f32:2in, with K from 1 to 64"
                )
            };
            let n: u64 = n.parse().ok().filter(|n| *n < 1 << 40).ok_or_else(wrong)?;
            let k: u64 = inputs.trim_end_matches("in").parse().map_err(|_| wrong())?;
            let dtype = NumType::from_name(dtype).ok_or_else(wrong)?;
            if !(1..=64).contains(&k) {
                return Err(wrong());
            }
            let width = calc::bits(dtype) as f64 / 8.0;
            let mut ideal = Ideal::map(n, k, width);
            ideal.ops *= (k.max(2) - 1) as f64;
            Ok(Some(IdealOp {
                text: text.into(),
                ideal,
                dtype,
                contracts: false,
            }))
        }
        _ => Ok(None),
    }
}

/// The same read off a plan's steps, for operators in other forms: operations and distinct bytes.
pub fn ideal_of_plan(text: &str, m: &Machine, plan: &Plan, dtype: DType) -> IdealOp {
    let own = device_of(plan, m);
    let steps = plan
        .blocks()
        .flat_map(|b| b.steps.iter().filter(move |s| !b.is_transfer(s)))
        .filter(|s| s.device == own);
    let (mut ops, mut flop, mut bytes) = (0.0, 0.0, 0.0);
    for s in steps {
        let w = &s.cost_work;
        ops += w.ops_total();
        flop += w.flop();
        bytes += w.unique_bytes();
    }
    let contracts = flop > 0.5 * ops;
    IdealOp {
        text: text.into(),
        ideal: Ideal {
            ops: if contracts { flop } else { ops },
            bytes,
        },
        dtype: NumType::from(dtype),
        contracts,
    }
}

/// A number with its unit as axes write it: `1 TFLOPS`.
fn rate_label(v: f64) -> String {
    units::flop_rate(v)
        .replace(".00", "")
        .replace("1000 ", "1 ")
}
