//! Scenarios as TOML.
use crate::SimError;
use machine::{Change, Machine};
use plan::Goal;
use serde::{Deserialize, Serialize};
use supervisor::supervise::{Mode, Options};

/// Requests of one scenario at most.
const MOST_REQUESTS: f64 = 2e7;
/// Workers of a simulated device at most.
const MOST_WORKERS: u32 = 64;
/// Virtual seconds at most: a day.
const MOST_SECONDS: f64 = 86_400.0;
/// Devices, models, sessions, steps of a variant, each at most.
const MOST_PARTS: usize = 4096;

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name.
    pub name: String,
    /// What it is about, for people.
    #[serde(default)]
    pub about: String,
    /// Seed of everything random.
    #[serde(default)]
    pub seed: u64,
    /// Virtual seconds during which requests come; those that are in flight then are run to their end.
    pub seconds: f64,
    /// Requests after which no more come; `None`: time alone ends it.
    #[serde(default)]
    pub requests: Option<u64>,
    /// How far the supervisor may go.
    #[serde(default)]
    pub supervise: Mode,
    /// What the supervisor decides by.
    #[serde(default)]
    pub options: Options,
    /// Seconds between windows.
    #[serde(default = "tick")]
    pub tick_s: f64,
    /// Seconds that the planner takes for proposals.
    #[serde(default = "planning")]
    pub planning_s: f64,
    /// Seconds that it takes to bind, verify and compile one.
    #[serde(default = "preparing")]
    pub preparing_s: f64,
    /// Every so many runs the plan is swapped for an equal one, whatever the supervisor says; 0: never.
    #[serde(default)]
    pub swap_every: u64,
    /// Devices.
    pub devices: Vec<DeviceSpec>,
    /// Models.
    pub models: Vec<ModelSpec>,
    /// Sessions.
    pub sessions: Vec<SessionSpec>,
    /// What must come out.
    #[serde(default)]
    pub expect: Vec<Expect>,
}

fn tick() -> f64 {
    0.1
}
fn planning() -> f64 {
    0.05
}
fn preparing() -> f64 {
    0.05
}
fn one() -> f64 {
    1.0
}
fn first() -> u32 {
    1
}
fn noise() -> f64 {
    0.02
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Name.
    pub name: String,
    /// The machine that it is described as: a name of the catalog, or a TOML file.
    pub machine: String,
    /// Workers; `None`: those of the machine, 64 at most. A GPU of more SMs than that is made of as many
    /// equal shares of it.
    #[serde(default)]
    pub workers: Option<u32>,
    /// What is wrong with the description: changes that turn it into the machine that is there, as
    /// `bandwidth=0.25x`, `l2=0.5x`, `clock=0.6x`.
    #[serde(default)]
    pub truth: Vec<String>,
    /// A GPU beside it: plans of model files are cut between the two.
    #[serde(default)]
    pub beside: Option<SecondDeviceSpec>,
    /// Seconds that a request and its answer take to get there and back: another host.
    #[serde(default)]
    pub away_s: f64,
    /// Deviation of measured times, as a share of them.
    #[serde(default = "noise")]
    pub noise: f64,
    /// What happens to it.
    #[serde(default)]
    pub faults: Vec<Fault>,
}

/// A GPU beside a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecondDeviceSpec {
    /// The machine that it is described as, as [`DeviceSpec::machine`]: its link to the host is the link
    /// between the two.
    pub machine: String,
    /// What is wrong with the description, as [`DeviceSpec::truth`].
    #[serde(default)]
    pub truth: Vec<String>,
}

/// Something that happens to a device for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// When it begins, seconds.
    pub at: f64,
    /// When it ends; `None`: never.
    #[serde(default)]
    pub until: Option<f64>,
    /// Seconds after which it comes back for as long as it was there, again and again; 0: it does not.
    #[serde(default)]
    pub every: f64,
    /// What.
    #[serde(flatten)]
    pub kind: FaultKind,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FaultKind {
    /// Somebody else uses a worker's core.
    Neighbour {
        /// Worker.
        worker: u32,
        /// Share of the core that is left.
        share: f64,
    },
    /// The clock runs at this share of what it was.
    Clock {
        /// Share.
        factor: f64,
    },
    /// Main memory gives this share of what it gave.
    Memory {
        /// Share.
        factor: f64,
    },
    /// A step panics in this share of the runs; the worker is back after a while.
    Panic {
        /// Share of the runs.
        rate: f64,
        /// Seconds until the worker is back.
        #[serde(default)]
        heal_s: f64,
    },
    /// The device is gone: what runs on it fails.
    Gone,
}

/// A model: given work, or a file that is planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// Name.
    pub name: String,
    /// An ONNX file or folder, relative to the scenario: its steps are those of its plans.
    #[serde(default)]
    pub path: Option<String>,
    /// Values of the file's symbolic dims, as in `--dim`.
    #[serde(default)]
    pub dims: Vec<String>,
    /// Ways to compute it, where no file is given; the first is in use at the start.
    #[serde(default)]
    pub variants: Vec<VariantSpec>,
    /// Size (a sequence length, say) that work is given for; a request of twice the size has twice the
    /// work.
    #[serde(default = "first")]
    pub size: u32,
    /// How many times longer requests take whose size nobody planned for.
    #[serde(default = "unplanned")]
    pub unplanned: f64,
}

fn unplanned() -> f64 {
    1.3
}

/// A way to compute a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantSpec {
    /// Name.
    pub name: String,
    /// Steps, in order.
    pub steps: Vec<StepSpec>,
}

/// The work of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// Name.
    pub name: String,
    /// Millions of f32 operations (a multiply-add is two) of one item.
    #[serde(default)]
    pub mflop: f64,
    /// Bytes that are read whatever the number of items (weights).
    #[serde(default)]
    pub weights: f64,
    /// Bytes read and written for each item.
    #[serde(default)]
    pub bytes: f64,
    /// Bytes that have to fit a cache so that it serves them: the nearest that holds them does. 0: main
    /// memory serves them.
    #[serde(default)]
    pub set: f64,
    /// Tasks of one item.
    #[serde(default = "tasks")]
    pub tasks: u64,
    /// How often it comes in a row.
    #[serde(default = "first")]
    pub times: u32,
}

fn tasks() -> u64 {
    16
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    /// Name.
    pub name: String,
    /// Model.
    pub model: String,
    /// Devices that may run it; empty: all.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Share.
    #[serde(default = "one")]
    pub weight: f64,
    /// Priority.
    #[serde(default)]
    pub priority: i32,
    /// Deadline, milliseconds.
    #[serde(default)]
    pub deadline_ms: Option<f64>,
    /// Requests that may wait.
    #[serde(default = "queue")]
    pub max_queued: usize,
    /// Goal.
    #[serde(default)]
    pub goal: Goal,
    /// Items of a run at most, whatever is chosen.
    #[serde(default = "first")]
    pub max_items: u32,
    /// Longest task while others share the device, milliseconds: the planner's bound.
    #[serde(default)]
    pub max_task_ms: Option<f64>,
    /// Workers of a run at the start; `None`: what predictions choose.
    #[serde(default)]
    pub workers: Option<u32>,
    /// Items of a run at the start.
    #[serde(default)]
    pub items: Option<u32>,
    /// Size that it is planned for at the start; `None`: that of its first traffic.
    #[serde(default)]
    pub size: Option<u32>,
    /// Variant at the start.
    #[serde(default)]
    pub variant: Option<String>,
    /// Whether the supervisor leaves it alone.
    #[serde(default)]
    pub fixed: bool,
    /// Who asks; several add up.
    pub traffic: Vec<Traffic>,
}

fn queue() -> usize {
    64
}

/// Requests that come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// From when, seconds.
    #[serde(default)]
    pub from: f64,
    /// Until when.
    #[serde(default)]
    pub until: Option<f64>,
    /// Size of the requests; `None`: the model's.
    #[serde(default)]
    pub size: Option<u32>,
    /// Items of a request.
    #[serde(default = "first")]
    pub items: u32,
    /// How.
    #[serde(flatten)]
    pub kind: TrafficKind,
}

/// How requests come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TrafficKind {
    /// One every `1 / rate` seconds.
    Steady {
        /// Requests per second.
        rate: f64,
    },
    /// Independent requests.
    Poisson {
        /// Requests per second.
        rate: f64,
    },
    /// Poisson, at `rate` for `on` seconds and not at all for `off`, in turn.
    Bursts {
        /// Requests per second while on.
        rate: f64,
        /// Seconds.
        on: f64,
        /// Seconds.
        off: f64,
    },
    /// Poisson at a rate that swings like a day: `rate * (1 + swing * sin)`.
    Diurnal {
        /// Mean requests per second.
        rate: f64,
        /// Between 0 and 1.
        swing: f64,
        /// Seconds of a day.
        period: f64,
    },
    /// Gaps with a heavy tail (Pareto): crowds and long silences.
    HeavyTail {
        /// Mean requests per second.
        rate: f64,
        /// Tail exponent, above 1.
        alpha: f64,
    },
    /// Recorded: seconds of the arrivals after `from`.
    Recorded {
        /// Rising seconds.
        times: Vec<f64>,
    },
    /// Callers that wait for their answer before they ask again.
    Callers {
        /// How many.
        callers: u32,
        /// Seconds between an answer and the next request.
        #[serde(default)]
        think: f64,
    },
}

/// A figure of a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Requests done per second.
    Throughput,
    /// Median latency, milliseconds.
    P50Ms,
    /// Latency that 99 of 100 requests keep, milliseconds.
    P99Ms,
    /// Share of admitted requests that were done within their deadline.
    Kept,
    /// Requests that were neither done nor refused nor failed.
    Lost,
    /// Requests turned away.
    Rejected,
    /// Requests that failed.
    Failed,
    /// Changes promoted, over the whole scenario.
    Promotions,
}

/// What must come out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Session; empty: all together.
    #[serde(default)]
    pub session: String,
    /// Figure.
    pub metric: Metric,
    /// Of requests that came from then on.
    #[serde(default)]
    pub from: f64,
    /// And before then.
    #[serde(default)]
    pub until: Option<f64>,
    /// At least.
    #[serde(default)]
    pub least: Option<f64>,
    /// At most.
    #[serde(default)]
    pub most: Option<f64>,
    /// The bounds are on the share of what the best static plan reaches in the same stretch.
    #[serde(default)]
    pub of_oracle: bool,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// Not a scenario, or one with figures that make no sense.
    pub fn from_toml(text: &str) -> Result<Scenario, SimError> {
        let s: Scenario = machine::toml::read(text).map_err(|e| SimError::Text(e.to_string()))?;
        s.names(text)?;
        s.check()?;
        Ok(s)
    }

    /// Faults and traffic are read by their kind, which takes whatever it does not know for somebody
    /// else's: names that nobody knows are found here.
    fn names(&self, text: &str) -> Result<(), SimError> {
        const LISTS: [(&str, &str, &str); 2] = [
            (
                "devices",
                "faults",
                "at until every kind worker share factor rate heal_s",
            ),
            (
                "sessions",
                "traffic",
                "from until size items kind rate on off swing period alpha times callers think",
            ),
        ];
        let table: serde_json::Value =
            machine::toml::read(text).map_err(|e| SimError::Text(e.to_string()))?;
        for (outer, inner, known) in LISTS {
            let outers = table
                .get(outer)
                .and_then(|o| o.as_array())
                .into_iter()
                .flatten();
            let inners = outers.filter_map(|o| o.get(inner)?.as_array()).flatten();
            for key in inners.filter_map(|t| t.as_object()).flat_map(|t| t.keys()) {
                if !known.split(' ').any(|k| k == key) {
                    return Err(self.wrong(
                        format!("{outer}.{inner}.{key}"),
                        format!("there is no such field; there are {known}"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn wrong(&self, field: impl Into<String>, why: impl Into<String>) -> SimError {
        SimError::Field {
            scenario: self.name.clone(),
            field: field.into(),
            why: why.into(),
        }
    }

    /// The machine that device `i` is described as, and the one that is there.
    ///
    /// # Errors
    /// An unknown machine, or a change that is none.
    pub fn machines(&self, i: usize) -> Result<(Machine, Machine), SimError> {
        let spec = &self.devices[i];
        self.told_and_true(&spec.name, &spec.machine, &spec.truth)
    }

    /// As [`Scenario::machines`] of the GPU beside device `i`, if there is one.
    ///
    /// # Errors
    /// As [`Scenario::machines`].
    pub fn beside(&self, i: usize) -> Result<Option<(Machine, Machine)>, SimError> {
        let spec = &self.devices[i];
        let Some(b) = &spec.beside else {
            return Ok(None);
        };
        let name = format!("{}.beside", spec.name);
        self.told_and_true(&name, &b.machine, &b.truth).map(Some)
    }

    fn told_and_true(
        &self,
        device: &str,
        machine: &str,
        changes: &[String],
    ) -> Result<(Machine, Machine), SimError> {
        let told = Machine::load(machine)?;
        let mut truth = told.clone();
        for text in changes {
            let change: Change = text
                .parse()
                .map_err(|e| self.wrong(format!("devices.{device}.truth"), e))?;
            change
                .apply(&mut truth)
                .map_err(|e| self.wrong(format!("devices.{device}.truth"), e))?;
        }
        Ok((told, truth))
    }

    /// Workers of device `i`.
    ///
    /// # Errors
    /// As [`Scenario::machines`].
    pub fn workers(&self, i: usize) -> Result<u32, SimError> {
        if let Some(n) = self.devices[i].workers {
            return Ok(n);
        }
        let count = self.machines(i)?.0.worker_count();
        Ok(u32::try_from(count)
            .unwrap_or(u32::MAX)
            .clamp(1, MOST_WORKERS))
    }

    fn positive(&self, field: &str, v: f64, most: f64) -> Result<(), SimError> {
        match v > 0.0 && v <= most {
            true => Ok(()),
            false => Err(self.wrong(field, format!("{v} should be above 0 and at most {most}"))),
        }
    }

    fn seconds_of(&self, field: String, v: f64) -> Result<(), SimError> {
        match (0.0..=MOST_SECONDS).contains(&v) {
            true => Ok(()),
            false => Err(self.wrong(
                field,
                format!("{v} should be seconds, at most {MOST_SECONDS}"),
            )),
        }
    }

    fn check(&self) -> Result<(), SimError> {
        self.positive("seconds", self.seconds, MOST_SECONDS)?;
        self.positive("tick_s", self.tick_s, 60.0)?;
        if self.seconds / self.tick_s > 1e6 {
            return Err(self.wrong("tick_s", "more than a million windows; make it longer"));
        }
        self.seconds_of("planning_s".into(), self.planning_s)?;
        self.seconds_of("preparing_s".into(), self.preparing_s)?;
        let parts = [
            ("devices", self.devices.len()),
            ("models", self.models.len()),
            ("sessions", self.sessions.len()),
        ];
        for (what, n) in parts {
            if n == 0 || n > MOST_PARTS {
                return Err(self.wrong(
                    what,
                    format!("there are {n}; 1 to {MOST_PARTS} can be simulated"),
                ));
            }
        }
        for d in &self.devices {
            self.check_device(d)?;
        }
        for m in &self.models {
            self.check_model(m)?;
        }
        let mut total = 0.0;
        for s in &self.sessions {
            self.check_session(s)?;
            for t in &s.traffic {
                total += self.check_traffic(s, t)?;
            }
        }
        if total > MOST_REQUESTS {
            return Err(self.wrong(
                "traffic",
                format!("about {total:.0} requests would come; at most {MOST_REQUESTS} can be simulated: shorten it or lower the rates"),
            ));
        }
        for e in &self.expect {
            if !e.session.is_empty() && !self.sessions.iter().any(|s| s.name == e.session) {
                return Err(self.wrong(
                    "expect.session",
                    format!("there is no session '{}'", e.session),
                ));
            }
            if e.least.is_none() && e.most.is_none() {
                return Err(self.wrong("expect", "give least, most or both"));
            }
        }
        Ok(())
    }

    fn check_device(&self, d: &DeviceSpec) -> Result<(), SimError> {
        let field = |f: &str| format!("devices.{}.{f}", d.name);
        if d.workers.is_some_and(|n| !(1..=MOST_WORKERS).contains(&n)) {
            return Err(self.wrong(field("workers"), format!("should be 1 to {MOST_WORKERS}")));
        }
        if !(0.0..=0.5).contains(&d.noise) {
            return Err(self.wrong(field("noise"), "should be 0 to 0.5"));
        }
        self.seconds_of(field("away_s"), d.away_s)?;
        if d.beside.is_some() && self.models.iter().any(|m| m.path.is_none()) {
            return Err(self.wrong(
                field("beside"),
                "only plans are cut between two devices; give every model a path",
            ));
        }
        for f in &d.faults {
            self.check_fault(d, f)?;
        }
        Ok(())
    }

    fn check_session(&self, s: &SessionSpec) -> Result<(), SimError> {
        let field = |f: &str| format!("sessions.{}.{f}", s.name);
        if !self.models.iter().any(|m| m.name == s.model) {
            return Err(self.wrong(field("model"), format!("there is no model '{}'", s.model)));
        }
        if let Some(d) = s
            .devices
            .iter()
            .find(|d| !self.devices.iter().any(|x| x.name == **d))
        {
            return Err(self.wrong(field("devices"), format!("there is no device '{d}'")));
        }
        self.positive(&field("weight"), s.weight, 1e6)?;
        if let Some(d) = s.deadline_ms {
            self.positive(&field("deadline_ms"), d, 1e9)?;
        }
        if s.max_items == 0
            || s.max_items > 4096
            || s.items.is_some_and(|i| i == 0 || i > s.max_items)
        {
            return Err(self.wrong(
                field("max_items"),
                "should be 1 to 4096, and items at most that",
            ));
        }
        if s.workers.is_some_and(|n| !(1..=MOST_WORKERS).contains(&n)) {
            return Err(self.wrong(field("workers"), format!("should be 1 to {MOST_WORKERS}")));
        }
        Ok(())
    }

    fn check_fault(&self, d: &DeviceSpec, f: &Fault) -> Result<(), SimError> {
        let field = format!("devices.{}.faults", d.name);
        let share = |v: f64| v > 0.0 && v <= 1e3;
        let fine = match &f.kind {
            FaultKind::Neighbour { worker, share } => {
                *worker < MOST_WORKERS && (0.0..=1.0).contains(share)
            }
            FaultKind::Clock { factor } | FaultKind::Memory { factor } => share(*factor),
            FaultKind::Panic { rate, heal_s } => {
                (0.0..=1.0).contains(rate) && (0.0..=MOST_SECONDS).contains(heal_s)
            }
            FaultKind::Gone => true,
        };
        let ends = f.until.is_none_or(|u| u >= f.at) && (f.every == 0.0 || f.every >= 0.01);
        if !fine || !f.at.is_finite() || f.at < 0.0 || !ends {
            return Err(self.wrong(
                field,
                "shares are 0 to 1, factors above 0, a fault ends after it begins, and comes back no faster than every 10 ms",
            ));
        }
        Ok(())
    }

    fn check_model(&self, m: &ModelSpec) -> Result<(), SimError> {
        let field = |f: &str| format!("models.{}.{f}", m.name);
        if m.path.is_none() && m.variants.is_empty() {
            return Err(self.wrong(
                field("variants"),
                "give steps in [[models.variants]], or a path",
            ));
        }
        if m.size == 0 || !(1.0..=1e3).contains(&m.unplanned) {
            return Err(self.wrong(
                field("size"),
                "size should be at least 1, unplanned 1 to 1000",
            ));
        }
        for v in &m.variants {
            let n: u64 = v.steps.iter().map(|s| u64::from(s.times)).sum();
            if n == 0 || n > MOST_PARTS as u64 {
                return Err(self.wrong(
                    field("steps"),
                    format!("{n} steps; 1 to {MOST_PARTS} can be simulated"),
                ));
            }
            for s in &v.steps {
                let sound = |v: f64| (0.0..=1e15).contains(&v);
                if ![s.mflop, s.weights, s.bytes, s.set].into_iter().all(sound) || s.tasks == 0 {
                    return Err(
                        self.wrong(field(&s.name), "work should be 0 to 1e15, tasks at least 1")
                    );
                }
            }
        }
        Ok(())
    }

    /// Requests that are to be expected of it.
    fn check_traffic(&self, s: &SessionSpec, t: &Traffic) -> Result<f64, SimError> {
        let until = t.until.unwrap_or(self.seconds).min(self.seconds);
        let lasts = (until - t.from).max(0.0);
        use TrafficKind as K;
        let rate = |v: f64| (0.0..=1e7).contains(&v);
        let (fine, n) = match &t.kind {
            K::Steady { rate: r } | K::Poisson { rate: r } => (rate(*r), r * lasts),
            K::Bursts { rate: r, on, off } => (
                rate(*r) && *on > 0.0 && *off >= 0.0 && on + off >= 1e-3,
                r * lasts * on / (on + off),
            ),
            K::Diurnal {
                rate: r,
                swing,
                period,
            } => (
                rate(*r) && (0.0..=1.0).contains(swing) && *period > 0.0,
                r * lasts,
            ),
            K::HeavyTail { rate: r, alpha } => {
                (rate(*r) && *alpha > 1.0 && *alpha <= 100.0, r * lasts)
            }
            K::Recorded { times } => (
                times.iter().all(|t| t.is_finite() && *t >= 0.0)
                    && times.windows(2).all(|w| w[0] <= w[1]),
                times.len() as f64,
            ),
            K::Callers { callers, think } => (
                *callers <= 100_000 && *think >= 0.0 && think.is_finite(),
                f64::from(*callers),
            ),
        };
        let sized =
            t.size.is_none_or(|s| s > 0) && t.items > 0 && t.from.is_finite() && t.from >= 0.0;
        if !fine || !sized || !n.is_finite() {
            return Err(self.wrong(
                format!("sessions.{}.traffic", s.name),
                "rates are requests per second up to 1e7, times seconds from 0 on, alpha above 1, swing 0 to 1, recorded times rising",
            ));
        }
        Ok(n)
    }
}
