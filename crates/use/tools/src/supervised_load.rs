//! Models under load with a supervisor beside them.
use plan::Timeline;
use report::{Align, HowRun, LatencyMs, Profile, ProfileInput, Style, Table, units};
use serde::Serialize;
use shopfloor::{
    Error, Model, ModelOptions, Session, SessionBuilder, SuperviseOptions, Supervision,
    SupervisionCost, inputs,
};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What one model's callers saw.
#[derive(Clone, Debug, Serialize)]
pub struct CallerStats {
    /// The model.
    pub model: String,
    /// How its steps reach the device, and how exactly they multiply.
    #[serde(flatten)]
    pub how: HowRun,
    /// Its callers.
    pub callers: usize,
    /// Requests that were answered.
    pub requests: usize,
    /// Requests that failed or were turned away.
    pub failed: usize,
    /// Requests per second in the first third of the time.
    pub first_third_per_s: f64,
    /// Requests per second in the last third of the time.
    pub last_third_per_s: f64,
    /// Latencies in the last third of the time; `None` where nothing was answered then.
    pub last_third_latency_ms: Option<LatencyMs>,
}

/// What came of models under load with a supervisor.
#[derive(Clone, Debug, Serialize)]
pub struct SupervisedLoad {
    /// Model by model.
    pub models: Vec<CallerStats>,
    /// Windows that the supervisor looked at.
    pub windows: u64,
    /// Seconds of a processor that its loop took, and that planning and comparing took.
    pub loop_s: f64,
    /// Likewise.
    pub planning_s: f64,
    /// Seconds that it lasted.
    pub seconds: f64,
    /// What the engine's workers did last, with every decision that is kept.
    #[serde(skip)]
    pub timeline: Timeline,
    /// Whether the device is emulated: times are then those of emulating it here, not its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub emulated: bool,
    /// Device, its machine and its workers.
    #[serde(skip)]
    device: (String, String, usize),
}

/// Answered requests of a caller: seconds since the beginning at their end, and latency in milliseconds.
type AnsweredRequests = Vec<(f64, f64)>;

/// Requests that a caller remembers at most.
const MOST: usize = 4_000_000;

/// Runs every model of `paths` under `callers` callers each, each with its next request as soon as the last
/// one is answered, for `seconds`, on one engine that is supervised as `options` say. `built` is given the
/// engine before anything runs.
///
/// # Errors
/// As [`SessionBuilder::commit_from_file`] and [`Supervision::start`].
pub fn supervised_load(
    builder: &SessionBuilder,
    paths: &[PathBuf],
    model_options: &ModelOptions,
    (callers, seconds): (usize, f64),
    options: SuperviseOptions,
    built: &mut dyn FnMut(&std::sync::Arc<shopfloor::Engine>) -> Result<(), Error>,
) -> Result<SupervisedLoad, Error> {
    let engine = builder.engine()?;
    built(&engine)?;
    let mut sessions: Vec<(Session, inputs::Named)> = Vec::new();
    for path in paths {
        let model = Model::open(path, model_options)?;
        let session = builder.clone().with_engine(engine.clone()).commit(model)?;
        let sizes = inputs::sizes(session.model()).0;
        let named = inputs::random_inputs(session.model(), &sizes)?;
        session.run(&inputs::borrowed(&named))?;
        sessions.push((session, named));
    }
    let supervision = Supervision::start(&engine, options)?;
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(seconds.clamp(0.0, 1e6));
    let stop = AtomicBool::new(false);
    let caller = |(session, named): &(Session, inputs::Named)| -> (AnsweredRequests, usize) {
        let (mut all, mut failed) = (Vec::new(), 0);
        let given = inputs::borrowed(named);
        while Instant::now() < end && !stop.load(Ordering::Relaxed) && all.len() < MOST {
            let start = Instant::now();
            match session.run(&given) {
                Ok(_) => {
                    let ms = start.elapsed().as_secs_f64() * 1e3;
                    all.push((began.elapsed().as_secs_f64(), ms));
                }
                Err(_) => {
                    failed += 1;
                    // Whoever is turned away comes back a little later.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        (all, failed)
    };
    let models = std::thread::scope(|scope| {
        let running: Vec<Vec<_>> = sessions
            .iter()
            .map(|s| {
                (0..callers.max(1))
                    .map(|_| scope.spawn(|| caller(s)))
                    .collect()
            })
            .collect();
        let mut out = Vec::new();
        for (s, threads) in sessions.iter().zip(running) {
            let (mut all, mut failed) = (Vec::new(), 0);
            for t in threads {
                // A caller that panicked has nothing to say.
                let (a, f) = t.join().unwrap_or_default();
                all.extend(a);
                failed += f;
            }
            out.push(saw(&s.0, callers.max(1), &all, failed, seconds));
        }
        out
    });
    let timeline = engine.timeline();
    let on = engine.device();
    let device = (on.name().into(), on.machine().name.clone(), on.workers());
    let SupervisionCost {
        windows,
        loop_s,
        planning_s,
        seconds,
    } = supervision.finish()?;
    Ok(SupervisedLoad {
        models,
        windows,
        loop_s,
        planning_s,
        seconds,
        timeline,
        emulated: on.emulated_ns().is_some(),
        device,
    })
}

fn saw(
    s: &Session,
    callers: usize,
    all: &[(f64, f64)],
    failed: usize,
    seconds: f64,
) -> CallerStats {
    let third = seconds / 3.0;
    let within = |from: f64, to: f64| -> Vec<f64> {
        let those = all.iter().filter(|a| from <= a.0 && a.0 < to);
        those.map(|a| a.1).collect()
    };
    let rate = |n: usize| n as f64 / third.max(1e-9);
    let (first, last) = (within(0.0, third), within(seconds - third, seconds));
    CallerStats {
        model: s.model().program().name.clone(),
        how: shopfloor::how_run(s),
        callers,
        requests: all.len(),
        failed,
        first_third_per_s: rate(first.len()),
        last_third_per_s: rate(last.len()),
        last_third_latency_ms: (!last.is_empty()).then(|| LatencyMs::of(&last)),
    }
}

impl SupervisedLoad {
    /// The timeline as a file that Perfetto opens: its own protobuf, or Chrome trace events.
    pub fn trace(&self, protobuf: bool) -> Vec<u8> {
        let names: Vec<&str> = self.models.iter().map(|m| m.model.as_str()).collect();
        let (device, machine, workers) = &self.device;
        let about = Profile::new(ProfileInput {
            model: &names.join(", "),
            device,
            machine,
            threads: *workers,
            warmup: 0,
            steps: vec![],
            timelines: &[],
            fates: &[],
            dims: String::new(),
        });
        match protobuf {
            true => report::perfetto_trace(&about, &self.timeline),
            false => report::chrome_trace(&about, &self.timeline).into_bytes(),
        }
    }

    /// As a table.
    pub fn render(&self, style: Style) -> String {
        let mut t = Table::new(&[
            ("model", Align::Wrap),
            ("launch", Align::Left),
            ("callers", Align::Right),
            ("requests", Align::Right),
            ("failed", Align::Right),
            ("first third", Align::Right),
            ("last third", Align::Right),
            ("its p50", Align::Right),
            ("its p99", Align::Right),
        ]);
        for m in &self.models {
            let ms = |of: fn(&LatencyMs) -> f64| {
                let l = m.last_third_latency_ms.as_ref();
                l.map_or("-".into(), |l| units::seconds(of(l) * 1e-3))
            };
            t.row(vec![
                m.model.clone(),
                m.how.launch.clone().unwrap_or_else(|| "-".into()),
                m.callers.to_string(),
                m.requests.to_string(),
                m.failed.to_string(),
                format!("{:.1}/s", m.first_third_per_s),
                format!("{:.1}/s", m.last_third_per_s),
                ms(|l| l.p50),
                ms(|l| l.p99),
            ]);
        }
        let (device, _, workers) = &self.device;
        let how = HowRun {
            launch: None,
            ..self
                .models
                .first()
                .map_or_else(HowRun::default, |m| m.how.clone())
        };
        let head = format!(
            "under load on {device}{}, {}",
            how.headline(),
            how.workers(*workers)
        );
        let clock = match self.emulated {
            true => {
                "These are times of emulating the device here, not its own: `shopfloor bench` tells those.\n"
            }
            false => "",
        };
        format!(
            "{}\n{}{clock}\nThe supervisor's loop took {:.2}% of a core over {} windows, planning and comparing {:.1}%.\n",
            style.headline(&head),
            t.render(style),
            100.0 * self.loop_s / self.seconds.max(1e-9),
            self.windows,
            100.0 * self.planning_s / self.seconds.max(1e-9),
        )
    }
}
