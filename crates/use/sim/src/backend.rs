//! Where steps' times and proposals come from.
use crate::SimError;
use crate::cost::StepTime;
use crate::scenario::{ModelSpec, Scenario, StepSpec};
use layout::Arrange;
use machine::{Change, Efficiencies, Machine, NumType, UnitClass, Work, explain, predict};
use plan::division::{self, Division, Prediction, ladder, on_shares, value};
use plan::{Goal, Observations, Why};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a session's requests are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// Variant of the model.
    pub variant: u32,
    /// Size that it was planned for.
    pub size: u32,
    /// Workers of a run.
    pub workers: u32,
    /// Items of a run at most.
    pub items: u32,
}

/// What is to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Index into [`Scenario::devices`].
    pub device: usize,
    /// Index into [`Scenario::models`].
    pub model: usize,
    /// Size.
    pub size: u32,
    /// Items.
    pub items: u32,
}

/// A session on a device, as it is served now.
#[derive(Clone, Debug)]
pub struct Served {
    /// Index into [`Scenario::sessions`].
    pub session: usize,
    /// Index into [`Scenario::models`].
    pub model: usize,
    /// How it is computed.
    pub way: Way,
    /// Runs at once.
    pub instances: u32,
    /// Size of most requests of late.
    pub size: u32,
}

/// A change that would pay.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Index into [`Scenario::sessions`].
    pub session: usize,
    /// The new way.
    pub way: Way,
    /// Runs at once.
    pub instances: u32,
    /// Seconds that a batch may be held back.
    pub max_delay_s: f64,
    /// What a further item adds.
    pub marginal: f64,
    /// Predicted time now over predicted time then, less 1.
    pub gain: f64,
    /// Reason.
    pub why: Why,
}

/// Where times and proposals come from.
pub trait Backend {
    /// Steps of a run of `request` in this way. The same arguments give the same steps.
    ///
    /// # Errors
    /// It cannot be computed so.
    fn steps(&mut self, request: Request, way: Way) -> Result<Vec<StepTime>, SimError>;

    /// Variants of a model that there are by now.
    fn variants(&self, model: usize) -> u32;

    /// The division that predictions choose for a session, before anything was observed.
    ///
    /// # Errors
    /// Nothing can be predicted.
    fn first(&mut self, device: usize, session: usize) -> Result<(Way, Division), SimError>;

    /// Changes of what is served on a device that would pay, best first.
    ///
    /// # Errors
    /// Nothing can be predicted.
    fn propose(
        &mut self,
        device: usize,
        seen: &Observations,
        served: &[Served],
    ) -> Result<Vec<Offer>, SimError>;
}

/// Predicts given work on the scenario's machines.
#[derive(Debug)]
pub struct WorkBackend {
    scenario: Arc<Scenario>,
    /// Per device: as described, and as it is.
    machines: Vec<(Machine, Machine)>,
    workers: Vec<u32>,
    eff: Efficiencies,
    corrected: BTreeMap<usize, Vec<Change>>,
}

/// The work of a step on a machine.
fn work(s: &StepSpec, m: &Machine, items: u32, size: f64) -> Work {
    let n = f64::from(items) * size;
    let mut w = Work {
        tasks: s.tasks.saturating_mul(u64::from(items)),
        steps: 1,
        unique_read: s.weights + s.bytes * n,
        ..Work::default()
    };
    // A set that fits no cache is served by the memory.
    let level = match s.set > 0.0 {
        true => m.nearest_holding_index(s.set * size),
        false => m.memory_index(),
    };
    w.add_traffic(level, s.weights + 0.75 * s.bytes * n, 0.25 * s.bytes * n);
    w.add_ops(UnitClass::Fma, NumType::F32, 1e6 * s.mflop * n);
    w
}

impl WorkBackend {
    /// For the models of `scenario` that are given as work.
    ///
    /// # Errors
    /// An unknown machine, or a change that is none.
    pub fn new(scenario: Arc<Scenario>) -> Result<WorkBackend, SimError> {
        let n = scenario.devices.len();
        let machines: Result<Vec<_>, _> = (0..n).map(|i| scenario.machines(i)).collect();
        let workers: Result<Vec<_>, _> = (0..n).map(|i| scenario.workers(i)).collect();
        Ok(WorkBackend {
            machines: machines?,
            workers: workers?,
            eff: Efficiencies::default(),
            corrected: BTreeMap::new(),
            scenario,
        })
    }

    /// How the description of a device is corrected by now.
    pub fn corrections(&self, device: usize) -> &[Change] {
        self.corrected.get(&device).map_or(&[], Vec::as_slice)
    }

    /// Workers of the machine that `n` simulated ones stand for.
    fn real(&self, device: usize, machine: &Machine, n: u32) -> usize {
        let all = machine.worker_count().max(1);
        let simulated = self.workers[device].max(1) as usize;
        if all <= simulated || self.scenario.devices[device].workers.is_some() {
            return (n as usize).min(all.max(simulated));
        }
        (all * n as usize).div_ceil(simulated)
    }

    fn model(&self, model: usize, variant: u32) -> Result<(&ModelSpec, &[StepSpec]), SimError> {
        let m = &self.scenario.models[model];
        match m.variants.get(variant as usize) {
            Some(v) => Ok((m, &v.steps)),
            None => Err(SimError::Field {
                scenario: self.scenario.name.clone(),
                field: format!("models.{}.path", m.name),
                why: "files are planned by `shopfloor simulate`; this simulator has no planner"
                    .into(),
            }),
        }
    }

    /// Seconds of the request on a machine, with those of main memory.
    fn seconds(
        &self,
        m: &Machine,
        r: Request,
        variant: u32,
        workers: u32,
    ) -> Result<(f64, f64), SimError> {
        let (spec, steps) = self.model(r.model, variant)?;
        let size = f64::from(r.size) / f64::from(spec.size);
        let n = self.real(r.device, m, workers);
        let memory = m.memory().name.clone();
        let (mut sum, mut shared) = (0.0, 0.0);
        for s in steps {
            let c = predict(m, &self.eff, &work(s, m, r.items, size), n);
            sum += f64::from(s.times) * c.time_s;
            let all = c
                .levels
                .iter()
                .filter(|l| l.name == memory)
                .map(|l| l.seconds);
            // One worker may not reach what all do: what is shared is the whole memory's time.
            let reach = m.memory().read.at(n) / m.memory().read.at(m.worker_count());
            shared += f64::from(s.times) * all.fold(0.0, f64::max) * reach.min(1.0);
        }
        Ok((sum, shared))
    }

    /// The machine of a device with what was found wrong with its description.
    fn believed(&self, device: usize) -> Machine {
        let mut m = self.machines[device].0.clone();
        for c in self.corrections(device) {
            // A change that applied to the description once applies again.
            let _ = c.apply(&mut m);
        }
        m
    }

    /// Longest task of a session's way.
    fn longest_task(&self, m: &Machine, r: Request, way: Way) -> Result<f64, SimError> {
        let (spec, steps) = self.model(r.model, way.variant)?;
        let size = f64::from(r.size) / f64::from(spec.size);
        let n = self.real(r.device, m, way.workers);
        let of = |s: &StepSpec| {
            let w = work(s, m, r.items, size);
            let rounds = w.tasks.div_ceil(n as u64).max(1) as f64;
            predict(m, &self.eff, &w, n).time_s / rounds
        };
        Ok(steps.iter().map(of).fold(0.0, f64::max))
    }

    /// The best way for a session on workers that have these shares of their cores.
    fn best(
        &self,
        m: &Machine,
        device: usize,
        session: usize,
        size: u32,
        shares: &[f64],
    ) -> Result<Option<(Way, Division)>, SimError> {
        let spec = &self.scenario.sessions[session];
        let model = self.model_of(session);
        let variants = self.scenario.models[model].variants.len() as u32;
        let mut best: Option<(Way, Division)> = None;
        for variant in 0..variants.max(1) {
            let mut list = Vec::new();
            for workers in ladder(self.workers[device]) {
                for items in ladder(spec.max_items) {
                    let r = Request {
                        device,
                        model,
                        size,
                        items,
                    };
                    let (s, memory_s) = self.seconds(m, r, variant, workers)?;
                    let way = Way {
                        variant,
                        size,
                        workers,
                        items,
                    };
                    if let Some(most) = spec.max_task_ms
                        && self.longest_task(m, r, way)? > 1e-3 * most
                    {
                        continue;
                    }
                    list.push(Prediction {
                        batch: items,
                        workers,
                        seconds: on_shares(s, workers, shares, self.count(model, variant)),
                        memory_s,
                    });
                }
            }
            let goal = goal(spec);
            let Some(d) = division::choose(&spec.name, &list, &goal, self.workers[device]) else {
                continue;
            };
            let better = |b: &(Way, Division)| value(&goal, &d) > value(&goal, &b.1) * 1.001;
            if best.as_ref().is_none_or(better) {
                let way = Way {
                    variant,
                    size,
                    workers: d.workers,
                    items: d.batch,
                };
                best = Some((way, d));
            }
        }
        Ok(best)
    }

    /// Steps of a run.
    fn count(&self, model: usize, variant: u32) -> u64 {
        let of = self.scenario.models[model].variants.get(variant as usize);
        of.map_or(0, |v| v.steps.iter().map(|s| u64::from(s.times)).sum())
    }

    fn model_of(&self, session: usize) -> usize {
        let name = &self.scenario.sessions[session].model;
        self.scenario
            .models
            .iter()
            .position(|m| m.name == *name)
            .unwrap_or(0)
    }

    fn no_way(&self, session: usize) -> SimError {
        SimError::Field {
            scenario: self.scenario.name.clone(),
            field: format!("sessions.{}", self.scenario.sessions[session].name),
            why: "no way to run it could be predicted; check the model's steps, and max_task_ms"
                .into(),
        }
    }
}

/// The goal of a session, with its deadline as the bound where it names none.
pub(crate) fn goal(spec: &crate::SessionSpec) -> Goal {
    match spec.goal {
        Goal::Throughput {
            max_latency_s: None,
        } => Goal::Throughput {
            max_latency_s: spec.deadline_ms.map(|d| 1e-3 * d),
        },
        g => g,
    }
}

impl Backend for WorkBackend {
    fn steps(&mut self, r: Request, way: Way) -> Result<Vec<StepTime>, SimError> {
        let (spec, steps) = self.model(r.model, way.variant)?;
        let (told, truth) = &self.machines[r.device];
        let size = f64::from(r.size) / f64::from(spec.size);
        let n = self.real(r.device, told, way.workers);
        // Schedules of another size.
        let off = if r.size == way.size {
            1.0
        } else {
            spec.unplanned
        };
        let memory = &truth.memory().name;
        let mut out = Vec::new();
        for s in steps {
            let a = predict(told, &self.eff, &work(s, told, r.items, size), n);
            let b = predict(truth, &self.eff, &work(s, truth, r.items, size), n);
            let tasks = s.tasks.saturating_mul(u64::from(r.items));
            let mut t = StepTime::of(s.name.as_str().into(), &a, &b, memory, tasks, way.workers);
            for v in [&mut t.compute_s, &mut t.memory_s, &mut t.fixed_s] {
                *v *= off;
            }
            out.extend((0..s.times).map(|_| t.clone()));
        }
        Ok(out)
    }

    fn variants(&self, model: usize) -> u32 {
        self.scenario.models[model].variants.len() as u32
    }

    fn first(&mut self, device: usize, session: usize) -> Result<(Way, Division), SimError> {
        let model = self.model_of(session);
        let size = self.scenario.sessions[session]
            .traffic
            .first()
            .and_then(|t| t.size)
            .unwrap_or(self.scenario.models[model].size);
        let quiet = vec![1.0; self.workers[device] as usize];
        let m = self.machines[device].0.clone();
        self.best(&m, device, session, size, &quiet)?
            .ok_or_else(|| self.no_way(session))
    }

    fn propose(
        &mut self,
        device: usize,
        seen: &Observations,
        served: &[Served],
    ) -> Result<Vec<Offer>, SimError> {
        self.explain(device, seen, served)?;
        let m = self.believed(device);
        let shares = match seen.load.shares.is_empty() {
            true => vec![1.0; self.workers[device] as usize],
            false => seen.load.shares.clone(),
        };
        let mut out = Vec::new();
        for s in served {
            let spec = &self.scenario.sessions[s.session];
            if spec.fixed {
                continue;
            }
            let Some((way, d)) = self.best(&m, device, s.session, s.size, &shares)? else {
                continue;
            };
            if way == s.way && d.instances == s.instances {
                continue;
            }
            // What it has now, by the same model.
            let r = Request {
                device,
                model: s.model,
                size: s.size,
                items: s.way.items,
            };
            let (seconds, memory_s) = self.seconds(&m, r, s.way.variant, s.way.workers)?;
            let steps = self.count(s.model, s.way.variant);
            let off = if s.way.size == s.size {
                1.0
            } else {
                self.scenario.models[s.model].unplanned
            };
            let now = Prediction {
                batch: s.way.items,
                workers: s.way.workers,
                seconds: off * on_shares(seconds, s.way.workers, &shares, steps),
                memory_s: off * memory_s,
            };
            let goal = goal(spec);
            let all = s.instances.saturating_mul(s.way.workers).max(s.way.workers);
            let Some(now) =
                division::choose(&spec.name, &[now], &goal, all.min(self.workers[device]))
            else {
                continue;
            };
            let gain = value(&goal, &d) / value(&goal, &now).max(1e-12) - 1.0;
            let variant = &self.scenario.models[s.model].variants[way.variant as usize].name;
            let corrected: Vec<String> = self
                .corrections(device)
                .iter()
                .map(ToString::to_string)
                .collect();
            let mut why = d.why.clone();
            why.pass = "propose".into();
            why.choice = format!("'{variant}' for size {}: {}", way.size, why.choice);
            if !corrected.is_empty() {
                why.reason = format!(
                    "{}; the machine is taken for {}",
                    why.reason,
                    corrected.join(", ")
                );
            }
            out.push(Offer {
                session: s.session,
                way,
                instances: d.instances,
                max_delay_s: d.max_delay_s,
                marginal: d.marginal,
                gain,
                why,
            });
        }
        out.arrange_by(|a, b| b.gain.total_cmp(&a.gain));
        Ok(out)
    }
}

impl WorkBackend {
    /// Finds what is wrong with a device's description from what its steps took.
    fn explain(
        &mut self,
        device: usize,
        seen: &Observations,
        served: &[Served],
    ) -> Result<(), SimError> {
        if seen.load.lost_workers > 0.0 {
            // Times say nothing about the machine while others are on it.
            return Ok(());
        }
        let told = self.machines[device].0.clone();
        let (mut steps, mut measured) = (Vec::new(), Vec::new());
        for s in served.iter().filter(|s| s.way.size == s.size) {
            let (spec, list) = self.model(s.model, s.way.variant)?;
            let size = f64::from(s.size) / f64::from(spec.size);
            let n = self.real(device, &told, s.way.workers);
            for step in list {
                let own =
                    |o: &&plan::Observation| o.session == s.session as u32 && o.step == step.name;
                let Some(o) = seen.steps.iter().find(own) else {
                    continue;
                };
                // Runs have any number of items: their ratio is taken for that of one.
                let one = predict(&told, &self.eff, &work(step, &told, 1, size), n).time_s;
                measured.push(one * o.measured_s / o.predicted_s.max(1e-15));
                steps.push((step.clone(), size, n));
            }
        }
        let eff = self.eff.clone();
        let predicted = |m: &Machine, i: usize| {
            let (s, size, n) = &steps[i];
            Some(predict(m, &eff, &work(s, m, 1, *size), *n).time_s)
        };
        let changes = explain(&told, &measured, &predicted);
        self.corrected.insert(device, changes);
        Ok(())
    }
}
