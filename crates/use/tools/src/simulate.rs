//! Scenarios in virtual time, with steps of real plans where a scenario names a model file.
use crate::targets;
use kernel::Target;
use layout::{Arrange, DimBox, Sym};
use plan::division::{self, Division, Prediction, ladder};
use plan::{Allotment, Observations, Plan, Planner as _, Serving, Why};
use planner::{Placement, PlanOptions, Planner};
use shopfloor::{Error, Goal, Machine, Model, ModelOptions, inputs};
use sim::{
    Backend, Offer, Outcome, Request, Scenario, Served, SimError, StepTime, Verdict, Way,
    WorkBackend,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use supervisor::supervise::{Mode, Replayed};

/// What came of a scenario.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// Figures and decisions.
    pub outcome: Outcome,
    /// What was expected of them.
    pub verdict: Verdict,
    /// What each device's supervisor was told and said, where that was asked for.
    pub logs: Vec<Vec<u8>>,
}

/// How a scenario is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimulateOptions {
    /// Another seed than the scenario's.
    pub seed: Option<u64>,
    /// Another reach of the supervisor than the scenario's.
    pub supervise: Option<Mode>,
    /// Whether logs are kept.
    pub log: bool,
}

/// A file that is not what it should be.
fn wrong(why: String) -> Error {
    Error::Other(why.into())
}

/// Runs the scenario in `path`; model files in it are relative to it.
///
/// # Errors
/// A file that is no scenario, a model or machine that is not there, or what planning gives.
pub fn simulate(path: &Path, options: SimulateOptions) -> Result<Simulation, Error> {
    let text = files::text(path, files::WRITTEN).map_err(|source| match source.kind() {
        std::io::ErrorKind::InvalidData => wrong(format!(
            "{} is no scenario: {source}, in TOML as scenarios/shift.toml has it",
            path.display()
        )),
        _ => Error::Io {
            path: path.display().to_string(),
            source,
        },
    })?;
    let named = |e: SimError| wrong(format!("{}: {e}", path.display()));
    let mut scenario = Scenario::from_toml(&text).map_err(named)?;
    scenario.seed = options.seed.unwrap_or(scenario.seed);
    scenario.supervise = options.supervise.unwrap_or(scenario.supervise);
    let scenario = Arc::new(scenario);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut backend = PlanBackend::new(scenario.clone(), folder)?;
    let (outcome, logs) = sim::simulate(&scenario, &mut backend, options.log).map_err(named)?;
    let verdict = sim::judge(&scenario, &outcome, &mut backend).map_err(named)?;
    Ok(Simulation {
        outcome,
        verdict,
        logs,
    })
}

/// Goes through a supervisor's log again: the same observations, and whether the decisions are the same.
///
/// # Errors
/// A file that cannot be read, or is no log.
pub fn replay(path: &Path) -> Result<Replayed, Error> {
    let file = files::open(path).map_err(|source| Error::Io {
        path: path.display().to_string(),
        source,
    })?;
    supervisor::supervise::replay(std::io::BufReader::new(file))
        .map_err(|e| wrong(format!("{}: {e}", path.display())))
}

/// A model file with its plans.
struct Planned {
    model: Model,
    dims: DimBox,
    batch: Option<Sym>,
    /// By device, variant, workers and items.
    plans: BTreeMap<(usize, u32, u32, u32), Plan>,
    /// Plans that were proposed: the device, workers and items that each is for.
    variants: u32,
}

/// Steps of real plans for models with files, given work for the others.
struct PlanBackend {
    scenario: Arc<Scenario>,
    work: WorkBackend,
    models: Vec<Option<Planned>>,
    /// Per device: as described, as it is, and its kernels; with the GPU beside it, if there is one.
    machines: Vec<Vec<Known>>,
}

/// A machine as described, as it is, and its kernels.
#[derive(Clone)]
struct Known {
    told: Machine,
    truth: Machine,
    target: Target,
}

impl Known {
    fn new((told, truth): (Machine, Machine)) -> Known {
        let target = targets::ours(&told);
        Known {
            told,
            truth,
            target,
        }
    }
}

impl PlanBackend {
    fn new(scenario: Arc<Scenario>, folder: &Path) -> Result<PlanBackend, Error> {
        let work = WorkBackend::new(scenario.clone()).map_err(Error::other)?;
        let mut machines = Vec::new();
        for d in 0..scenario.devices.len() {
            let own = scenario.machines(d).map_err(Error::other)?;
            let beside = scenario.beside(d).map_err(Error::other)?;
            let both = std::iter::once(own).chain(beside);
            machines.push(both.map(Known::new).collect::<Vec<Known>>());
        }
        let mut models = Vec::new();
        for m in &scenario.models {
            let Some(path) = &m.path else {
                models.push(None);
                continue;
            };
            if let Some(d) = machines
                .iter()
                .filter_map(|d| d.first())
                .find(|d| d.told.kind != machine::MachineKind::Cpu)
            {
                return Err(wrong(format!(
                    "scenario '{}': model '{}' is a file, and {} is no CPU; give the model's work in [[models.variants]] to simulate it there, or name it beside a CPU",
                    scenario.name, m.name, d.told.name
                )));
            }
            let mut file = folder.join(path);
            if file.is_dir() {
                file.push("model.onnx");
            }
            let model = Model::open(&file, &ModelOptions::default())?;
            let mut sizes = inputs::sizes(&model).0;
            for d in &m.dims {
                let no_size = || {
                    wrong(format!(
                        "scenario '{}', models.{}.dims: '{d}' should be NAME=SIZE, such as seq=128",
                        scenario.name, m.name
                    ))
                };
                let (name, value) = d.split_once('=').ok_or_else(no_size)?;
                let n: u32 = value.trim().parse().map_err(|_| no_size())?;
                sizes.insert(name.trim().to_string(), i64::from(n));
            }
            models.push(Some(Planned {
                dims: inputs::box_of(&model, &sizes),
                batch: crate::batch_of(&model).map(|b| Sym::from(b.as_str())),
                model,
                plans: BTreeMap::new(),
                variants: 1,
            }));
        }
        Ok(PlanBackend {
            scenario,
            work,
            models,
            machines,
        })
    }

    fn wrong(&self, model: usize, why: impl ToString) -> SimError {
        SimError::Field {
            scenario: self.scenario.name.clone(),
            field: format!("models.{}", self.scenario.models[model].name),
            why: why.to_string(),
        }
    }

    fn model_of(&self, session: usize) -> usize {
        let name = &self.scenario.sessions[session].model;
        let at = self.scenario.models.iter().position(|m| m.name == *name);
        at.unwrap_or(0)
    }

    /// Workers of device `d` by its description.
    fn most(&self, d: usize) -> u32 {
        let own = self.machines[d].first();
        own.map_or(1, |k| k.told.worker_count().max(1) as u32)
    }

    /// What plans for device `d`, and the GPU beside it.
    fn planner(&self, d: usize) -> Planner {
        let each = self.machines[d].iter();
        let devices: Vec<(Machine, Target)> =
            each.map(|k| (k.told.clone(), k.target.clone())).collect();
        let placement = match devices.len() {
            1 => Placement::default(),
            _ => Placement::Cut,
        };
        let options = PlanOptions {
            placement,
            ..PlanOptions::default()
        };
        Planner::new(devices, options)
    }

    /// What a run with `workers` of device `d` may use.
    fn allotment(&self, d: usize, workers: u32, goal: Goal) -> Allotment {
        let beside = self.machines[d].iter().skip(1);
        let beside = beside.map(|k| k.told.worker_count() as u32);
        Allotment {
            workers: std::iter::once(workers).chain(beside).collect(),
            memory: None,
            goal,
        }
    }

    /// The plan for `workers` and batches of `items`, of the first variant unless another was proposed for
    /// just these.
    fn plan(&mut self, d: usize, model: usize, way: Way, goal: Goal) -> Result<&Plan, SimError> {
        let workers = way.workers.min(self.most(d));
        let mut key = (d, way.variant, workers, way.items);
        let Some(m) = &self.models[model] else {
            return Err(self.wrong(model, "it has no file"));
        };
        if !m.plans.contains_key(&key) {
            key.1 = 0;
        }
        if !m.plans.contains_key(&key) {
            let planner = self.planner(d);
            let mut dims = m.dims.clone();
            if let Some(b) = &m.batch {
                dims.insert(b.clone(), 1, i64::from(way.items));
            }
            let allotment = self.allotment(d, workers, goal);
            let plan = planner
                .bind(m.model.program(), &dims, &allotment)
                .map_err(|e| self.wrong(model, e))?;
            if let Some(m) = &mut self.models[model] {
                m.plans.insert(key, plan);
            }
        }
        self.models[model]
            .as_ref()
            .and_then(|m| m.plans.get(&key))
            .ok_or_else(|| self.wrong(model, "it could not be planned"))
    }

    /// Steps of a batch of `items` in this way.
    fn plan_steps(
        &mut self,
        d: usize,
        model: usize,
        way: Way,
        items: u32,
    ) -> Result<Vec<StepTime>, SimError> {
        let truth = self.machines[d].iter();
        let truth: Vec<(Machine, Target)> =
            truth.map(|k| (k.truth.clone(), k.target.clone())).collect();
        let workers = way.workers.min(self.most(d));
        // A smaller batch than planned for takes its share of the work.
        let share = f64::from(items) / f64::from(way.items.max(1));
        let plan = self.plan(d, model, way, Goal::Latency)?;
        let real = planner::predict_over(plan, &truth);
        let own = truth.first().map_or("", |t| t.0.memory().name.as_str());
        let mut out = Vec::new();
        let steps = plan
            .blocks()
            .flat_map(|b| b.steps.iter().map(move |s| (s, b.is_transfer(s))));
        for ((step, link), real) in steps.zip(real) {
            // What is not the host's asks nothing of its workers and its memory.
            let (tasks, memory) = match step.device == 0 && !link {
                true => {
                    let tasks = plan.dims.at_top(&step.tasks).unwrap_or(1).max(1) as u64;
                    (tasks, own)
                }
                false => (1, ""),
            };
            let mut t = StepTime::of(
                step.name.as_str().into(),
                &step.predicted,
                &real,
                memory,
                tasks,
                workers,
            );
            if share < 1.0 {
                for v in [&mut t.compute_s, &mut t.memory_s, &mut t.predicted_s] {
                    *v *= share;
                }
            }
            out.push(t);
        }
        Ok(out)
    }
}

impl Backend for PlanBackend {
    fn steps(&mut self, r: Request, way: Way) -> Result<Vec<StepTime>, SimError> {
        match self.models[r.model] {
            None => self.work.steps(r, way),
            Some(_) => self.plan_steps(r.device, r.model, way, r.items),
        }
    }

    fn variants(&self, model: usize) -> u32 {
        match &self.models[model] {
            None => self.work.variants(model),
            Some(m) => m.variants,
        }
    }

    fn first(&mut self, d: usize, session: usize) -> Result<(Way, Division), SimError> {
        let model = self.model_of(session);
        let spec = &self.scenario.sessions[session];
        let (goal, most, name) = (spec.goal, spec.max_items, spec.name.clone());
        let Some(m) = &self.models[model] else {
            return self.work.first(d, session);
        };
        let most = if m.batch.is_some() { most } else { 1 };
        let size = self.scenario.models[model].size;
        let all = self.scenario.workers(d)?;
        let mut list = Vec::new();
        for workers in ladder(all) {
            for items in ladder(most) {
                let way = Way {
                    variant: 0,
                    size,
                    workers,
                    items,
                };
                let steps = self.plan_steps(d, model, way, items)?;
                list.push(Prediction {
                    batch: items,
                    workers,
                    seconds: steps.iter().map(|s| s.predicted_s).sum(),
                    memory_s: steps.iter().map(|s| s.memory_s.min(s.predicted_s)).sum(),
                });
            }
        }
        let division = division::choose(&name, &list, &goal, all)
            .ok_or_else(|| self.wrong(model, "no way to run it could be predicted"))?;
        let way = Way {
            variant: 0,
            size,
            workers: division.workers,
            items: division.batch,
        };
        Ok((way, division))
    }

    fn propose(
        &mut self,
        d: usize,
        seen: &Observations,
        served: &[Served],
    ) -> Result<Vec<Offer>, SimError> {
        let planned = |s: &&Served| self.models[s.model].is_some();
        let given: Vec<Served> = served.iter().filter(|s| !planned(s)).cloned().collect();
        let files: Vec<Served> = served.iter().filter(planned).cloned().collect();
        let mut out = match given.is_empty() {
            true => Vec::new(),
            false => self.work.propose(d, seen, &given)?,
        };
        let mut own: Vec<(Plan, Allotment)> = Vec::new();
        for s in &files {
            let goal = self.scenario.sessions[s.session].goal;
            let plan = self.plan(d, s.model, s.way, goal)?.clone();
            let allotment = self.allotment(d, s.way.workers, goal);
            own.push((plan, allotment));
        }
        let mut serving = Vec::new();
        for (s, (plan, allotment)) in files.iter().zip(&own) {
            let Some(m) = &self.models[s.model] else {
                continue;
            };
            if self.scenario.sessions[s.session].fixed {
                continue;
            }
            serving.push(Serving {
                session: s.session as u32,
                program: m.model.program(),
                plan,
                allotment,
                batch: m.batch.as_ref(),
                items: s.way.items,
                instances: s.instances,
            });
        }
        let found = self.planner(d).propose(seen, &serving);
        drop(serving);
        for c in found {
            let gain = c.now_s / (c.now_s - c.gain_s).max(1e-12) - 1.0;
            for change in c.changes {
                let session = change.session as usize;
                let model = self.model_of(session);
                let size = self.scenario.models[model].size;
                let workers = change.allotment.workers.first().copied().unwrap_or(1);
                let most = self.scenario.sessions[session].max_items;
                let items = change.items.min(most).max(1);
                let Some(m) = &mut self.models[model] else {
                    continue;
                };
                let variant = m.variants;
                m.variants += 1;
                m.plans.insert((d, variant, workers, items), change.plan);
                out.push(Offer {
                    session,
                    way: Way {
                        variant,
                        size,
                        workers,
                        items,
                    },
                    instances: change.instances,
                    max_delay_s: 0.0,
                    marginal: 1.0,
                    gain,
                    why: Why {
                        subject: self.scenario.sessions[session].name.clone(),
                        ..c.why.clone()
                    },
                });
            }
        }
        out.arrange_by(|a, b| b.gain.total_cmp(&a.gain));
        Ok(out)
    }
}
