//! Engines, callers and neighbours of drills.
use shopfloor::{
    Engine, Machine, Session, SessionBuilder, SuperviseOptions, Supervision, Tensor, Tolerance,
    compare, inputs,
};
use shopfloor_tools::supervisor::supervise::{Decision, Mode};
use std::collections::BTreeMap;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

/// First argument that makes this process a neighbour.
pub const SPIN: &str = "--spin";

/// Workers of the engines.
pub const WORKERS: usize = 2;

pub fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// An engine for `machine`, the present one when not said, on which `fault` may go wrong.
pub fn engine(
    machine: Option<Machine>,
    fault: Option<Arc<cpu::Fault>>,
) -> Result<Arc<Engine>, String> {
    let device = cpu::CpuDevice::new(cpu::CpuOptions {
        threads: Some(WORKERS),
        machine,
        fault,
        ..Default::default()
    })
    .map_err(text)?;
    let planner = planner::Planner::new(
        vec![(
            device::Device::machine(&device).clone(),
            device::Device::target(&device).clone(),
        )],
        planner::PlanOptions::default(),
    );
    Ok(Engine::new(Arc::new(device), Arc::new(planner)))
}

/// A bundled model's file.
pub fn bundled(name: &str) -> std::path::PathBuf {
    testkit::zoo::bundled().join(name).join("model.onnx")
}

/// A session of a bundled model on an engine.
pub fn session(
    engine: &Arc<Engine>,
    name: &str,
    more: impl FnOnce(SessionBuilder) -> SessionBuilder,
) -> Result<Session, String> {
    let b = Session::builder().with_engine(engine.clone());
    more(b).commit_from_file(bundled(name)).map_err(text)
}

/// Sizes of ppocr_cls's pictures.
const PICTURE: [(&str, i64); 2] = [("x.d2", 48), ("x.d3", 192)];

/// Inputs of a session; dims that are not in `sizes` are 1.
pub fn given(s: &Session, sizes: &[(&str, i64)]) -> Result<inputs::Named, String> {
    let mut all: BTreeMap<String, i64> = inputs::sizes(s.model()).0;
    // Of a bundled model's picture, which is open in its file.
    all.extend(PICTURE.iter().map(|(n, v)| ((*n).to_string(), *v)));
    all.extend(sizes.iter().map(|(n, v)| ((*n).to_string(), *v)));
    inputs::random_inputs(s.model(), &all).map_err(text)
}

/// Supervises an engine; its decisions are kept by it.
pub fn supervise(engine: &Arc<Engine>) -> Result<Supervision, String> {
    Supervision::start(engine, SuperviseOptions::of(Mode::On)).map_err(text)
}

/// The decisions of an engine that changed something, as text.
pub fn changes(all: &[Decision]) -> Vec<String> {
    let changed = |d: &&Decision| matches!(d.why.pass.as_str(), "promoted" | "workers");
    let each = all.iter().filter(changed);
    each.map(|d| {
        format!(
            "{:.1} s {} {}: {}",
            d.at, d.why.pass, d.why.subject, d.why.choice
        )
    })
    .collect()
}

/// Answered requests: seconds since the beginning at their end, and seconds that each took.
pub type Answers = Vec<(f64, f64)>;

/// Calls `call` from `callers` threads for `time`, each again as soon as it is answered. The first error
/// ends it.
pub fn closed(
    callers: usize,
    time: Duration,
    call: &(dyn Fn(usize) -> Result<(), String> + Sync),
) -> Result<Answers, String> {
    let began = Instant::now();
    let stop = AtomicBool::new(false);
    let one = |c: usize| -> Result<Answers, String> {
        let mut all = Vec::new();
        while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            if let Err(e) = call(c) {
                stop.store(true, Ordering::Relaxed);
                return Err(e);
            }
            all.push((began.elapsed().as_secs_f64(), start.elapsed().as_secs_f64()));
        }
        Ok(all)
    };
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..callers).map(|c| s.spawn(move || one(c))).collect();
        let mut all = Vec::new();
        for t in threads {
            all.extend(t.join().map_err(|_| "a caller panicked".to_string())??);
        }
        Ok(all)
    })
}

/// Calls `call` at the times `at` (seconds), from as many of `threads` threads as that takes; gives when each
/// was due and how long after that it was answered, with what `call` says of it. Time begins when every thread
/// has done `first`.
pub fn open<T: Send>(
    threads: usize,
    at: &[f64],
    first: &(dyn Fn() + Sync),
    call: &(dyn Fn(usize) -> T + Sync),
) -> Vec<(f64, f64, T)> {
    let (ready, began) = (Barrier::new(threads), OnceLock::new());
    let next = AtomicUsize::new(0);
    let one = || {
        first();
        ready.wait();
        let began = *began.get_or_init(Instant::now);
        let mut all = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(&due) = at.get(i) else {
                return all;
            };
            let wait = due - began.elapsed().as_secs_f64();
            if wait > 0.0 {
                std::thread::sleep(Duration::from_secs_f64(wait));
            }
            let out = call(i);
            all.push((due, began.elapsed().as_secs_f64() - due, out));
        }
    };
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..threads).map(|_| s.spawn(one)).collect();
        let mut all: Vec<_> = threads
            .into_iter()
            .flat_map(|t| t.join().unwrap_or_default())
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all
    })
}

/// Times of a Poisson process of `rate` per second from `from` to `to`, exact by seed.
pub fn poisson(rate: f64, from: f64, to: f64, seed: u64) -> Vec<f64> {
    let mut drawn = fastrand::Rng::with_seed(seed);
    let mut unit = || drawn.f64();
    let gap = |unit: f64| -(1.0 - unit).ln() / rate.max(f64::MIN_POSITIVE);
    let mut out = Vec::new();
    let mut at = from + gap(unit());
    while at < to {
        out.push(at);
        at += gap(unit());
    }
    out
}

/// Answers per second between two times.
pub fn rate(all: &[(f64, f64)], from: f64, to: f64) -> f64 {
    let n = all.iter().filter(|a| from <= a.0 && a.0 < to).count();
    n as f64 / (to - from).max(1e-9)
}

pub fn quantile(mut v: Vec<f64>, share: f64) -> f64 {
    v.sort_by(f64::total_cmp);
    let at = (share * v.len() as f64).ceil() as usize;
    v.get(at.clamp(1, v.len().max(1)) - 1)
        .copied()
        .unwrap_or(f64::NAN)
}

/// Whether outputs are those expected.
pub fn right(got: &[(String, Tensor)], want: &[(String, Tensor)]) -> bool {
    let t = Tolerance {
        rtol: 1e-4,
        atol: 1e-7,
    };
    compare(got, want, t).agrees
}

/// Resident bytes of this process now.
pub fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<f64>().ok());
    1024.0 * kib.unwrap_or(f64::NAN)
}

/// A busy process that is pinned to one core, until it is dropped.
pub struct Neighbour(Child);

impl Neighbour {
    pub fn on(cpu: usize) -> Result<Neighbour, String> {
        let me = std::env::current_exe().map_err(text)?;
        let mut c = Command::new(me);
        c.args(["drills", SPIN, &cpu.to_string()])
            .stdin(Stdio::null());
        Ok(Neighbour(c.spawn().map_err(text)?))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This process as a neighbour: it never ends by itself, but not for ever either.
pub fn spin(args: &[String]) -> ExitCode {
    let cpu = args.first().and_then(|a| a.parse::<usize>().ok());
    let Some(cpu) = cpu else {
        return ExitCode::from(2);
    };
    if !workers::place::pin(workers::place::this_thread(), cpu) {
        return ExitCode::FAILURE;
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(120) {
        for _ in 0..10_000 {
            std::hint::spin_loop();
        }
    }
    ExitCode::SUCCESS
}
