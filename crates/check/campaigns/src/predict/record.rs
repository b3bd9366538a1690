//! What was measured, with the plans that ran: a file of it can be held against another cost model
//! without measuring again.
use kernel::Target;
use machine::{Cost, Machine};
use plan::{Decisions, Plan, Step, StepWork};
use serde::{Deserialize, Serialize};
use shopfloor::Session;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use testkit::zoo;

const WARMUP: usize = 3;
/// Requests of a round, of which a step's median counts, and rounds of each of two runs; the best
/// round counts, since neighbours only ever make one slower.
pub(super) const ACTIVE: usize = 5;
pub(super) const ROUNDS: usize = 3;

/// A step of a model as it ran.
#[derive(Clone, Serialize, Deserialize)]
pub struct Taken {
    /// The step's name in its plan.
    pub name: String,
    /// Its time in a request, all its runs together, microseconds: the best round's median.
    pub us: f64,
    /// The same of a second run like the first, whose rounds took turns with the first's.
    pub again_us: f64,
    /// Runs in a request.
    pub runs: f64,
}

/// A model as it ran.
#[derive(Clone, Serialize, Deserialize)]
pub struct Record {
    /// Name in the zoo.
    pub model: String,
    /// Workers.
    pub threads: usize,
    /// Median of a whole request, microseconds.
    pub request_us: f64,
    /// Steps that ran.
    pub steps: Vec<Taken>,
    /// Plans that they are from.
    pub plans: Vec<Plan>,
}

/// A step beside its prediction.
pub struct Held<'a> {
    /// What was measured.
    pub taken: &'a Taken,
    /// The step of the plan; `None` when no plan that is kept has it.
    pub step: Option<(&'a Plan, &'a Step)>,
    /// What was predicted of one run.
    pub cost: Option<Cost>,
}

impl Held<'_> {
    /// Predicted microseconds of all its runs in a request.
    pub fn predicted_us(&self) -> f64 {
        self.cost.as_ref().map_or(0.0, |c| c.time_s) * 1e6 * self.taken.runs
    }

    /// Extents of the kernel's axes at the top of the box, and its schedule in short form.
    pub fn shapes(&self) -> (String, String) {
        let Some((plan, step)) = self.step else {
            return Default::default();
        };
        let view =
            shopfloor_tools::report::StepView::new(0, step, &plan.dims, &Decisions::default());
        (view.shapes, view.schedule)
    }

    /// Kernel family, or `host`.
    pub fn family(&self) -> String {
        match self.step.map(|s| &s.1.work) {
            Some(StepWork::Kernel { kernel, .. }) => format!("{:?}", kernel.family).to_lowercase(),
            Some(StepWork::Host { .. }) => "host".into(),
            None => "?".into(),
        }
    }
}

impl Record {
    /// Runs a model; `folder` may hold it prepared as `NAME/model.onnx`.
    pub fn take(
        name: &str,
        threads: usize,
        machine: &Machine,
        folder: Option<&Path>,
    ) -> Result<Record, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let model = zoo::find(name).ok_or_else(|| format!("{name} is not at hand"))?;
        let there: Option<PathBuf> = folder.map(|f| f.join(name).join("model.onnx"));
        let there = there.filter(|p| p.is_file());
        let prepared = match there {
            Some(_) => None,
            None => Some(model.prepare_temporary().map_err(|e| text(&e))?),
        };
        let path = there.or(prepared.as_ref().map(|p| p.model.clone()));
        let path = path.unwrap_or_default();
        let named = model.inputs().map_err(|e| text(&e))?;
        let mut b = Session::builder()
            .with_threads(threads)
            .with_machine(machine.clone());
        for (n, t) in &named {
            b = b.with_shape(n, t.shape());
        }
        let session = b.commit_from_file(&path).map_err(|e| text(&e))?;
        let mut steps: Vec<Taken> = Vec::new();
        let mut request_us = f64::INFINITY;
        for round in 0..2 * ROUNDS {
            let warmup = if round == 0 { WARMUP } else { 0 };
            let profile = shopfloor::profile(&session, &named, warmup, ACTIVE);
            let (p, _) = profile.map_err(|e| text(&e))?;
            request_us = request_us.min(p.request_us);
            for s in &p.steps {
                let at = match steps.iter().position(|t| t.name == s.step.name) {
                    Some(at) => at,
                    None => {
                        steps.push(Taken {
                            name: s.step.name.clone(),
                            us: f64::INFINITY,
                            again_us: f64::INFINITY,
                            runs: s.runs,
                        });
                        steps.len() - 1
                    }
                };
                let t = &mut steps[at];
                let slot = match round % 2 {
                    0 => &mut t.us,
                    _ => &mut t.again_us,
                };
                *slot = slot.min(s.time_us);
            }
        }
        steps.retain(|t| t.us.is_finite() && t.again_us.is_finite());
        let mut plans: Vec<Plan> = Vec::new();
        for p in session.runtime().plans() {
            let mut p = p.plan().clone();
            p.whys.clear();
            plans.push(p);
        }
        Ok(Record {
            model: name.into(),
            threads,
            request_us,
            steps,
            plans,
        })
    }

    /// Every step beside what the plan says of it or, with a machine and a target, beside what the
    /// present cost model says.
    pub fn held<'a>(&'a self, again: Option<(&Machine, &Target)>) -> Vec<Held<'a>> {
        let find = |name: &str| {
            let in_plan = |p: &'a Plan| {
                let mut all = p.blocks().flat_map(|b| &b.steps);
                all.find(|s| s.name == name).map(|s| (p, s))
            };
            self.plans.iter().find_map(in_plan)
        };
        let one = |taken: &'a Taken| {
            let found = find(&taken.name);
            let cost = found.and_then(|(p, s)| match again {
                None => Some(s.predicted.clone()),
                Some(_) if matches!(s.work, StepWork::Host { .. }) => Some(s.predicted.clone()),
                Some((m, t)) => planner::predict_again(p, s, m, t, self.threads),
            });
            Held {
                taken,
                step: found,
                cost,
            }
        };
        self.steps.iter().map(one).collect()
    }

    /// Reads a file of records, one to a line.
    pub fn read(file: &Path) -> Result<Vec<Record>, String> {
        let fail = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
        let mut out = Vec::new();
        for line in BufReader::new(std::fs::File::open(file).map_err(|e| fail(&e))?).lines() {
            let line = line.map_err(|e| fail(&e))?;
            out.push(serde_json::from_str(&line).map_err(|e| fail(&e))?);
        }
        Ok(out)
    }

    /// Adds this record to `to` as a line.
    pub fn write(&self, to: &mut dyn Write) -> Result<(), String> {
        let line = serde_json::to_string(self).map_err(|e| e.to_string())?;
        writeln!(to, "{line}").map_err(|e| e.to_string())
    }
}
