//! How long requests take.
use crate::clock;
use report::{BenchReport, LatencyMs};
use shopfloor::{Error, ModelOptions, Session, SessionBuilder, UnifiedBuffer, inputs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tensor::Tensor;

/// Where inputs and outputs of the requests are that a benchmark measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// On the host: a request brings its inputs to the device and its outputs back.
    #[default]
    Host,
    /// In the device's memory: inputs are brought there once, before measuring, and outputs stay.
    Device,
}

/// How a benchmark runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BenchOptions {
    /// Requests before measuring, of every caller.
    pub warmup: usize,
    /// Requests to measure, of all callers together; `None`: as many as fit into `seconds`.
    pub iterations: Option<usize>,
    /// How long to measure when `iterations` is not given, in seconds.
    pub seconds: f64,
    /// Callers at once, each sending its next request when the last is answered.
    pub concurrency: usize,
    /// Where inputs and outputs are.
    pub bind: Bind,
}

impl Default for BenchOptions {
    fn default() -> BenchOptions {
        BenchOptions {
            warmup: 5,
            iterations: None,
            seconds: 2.0,
            concurrency: 1,
            bind: Bind::Host,
        }
    }
}

/// The inputs of one caller's requests, where `BenchOptions::bind` has them.
enum Bound<'a> {
    Host(Vec<(&'a str, &'a Tensor)>),
    Device(Vec<(String, UnifiedBuffer)>),
}

impl<'a> Bound<'a> {
    fn new(
        session: &Session,
        named: &'a [(String, Tensor)],
        bind: Bind,
    ) -> Result<Bound<'a>, Error> {
        if bind == Bind::Host {
            return Ok(Bound::Host(inputs::borrowed(named)));
        }
        let buffer = |(n, t): &(String, Tensor)| (n.clone(), UnifiedBuffer::from(t.clone()));
        let bound = Bound::Device(named.iter().map(buffer).collect());
        let device = session.runtime().engine().device();
        let stays = match device.place() {
            None => false,
            Some(place) => {
                let made = bound.request(session)?;
                let there = |b: &UnifiedBuffer| b.valid_in().iter().all(|p| *p == place.name());
                made.iter().all(|(_, b)| there(b))
            }
        };
        match stays {
            true => Ok(bound),
            false => Err(Error::Usage(format!(
                "inputs and outputs of this plan are on the host, where {} takes and leaves them: leave out --bind device",
                device.name()
            ))),
        }
    }

    /// Runs one request; gives the outputs that stay on the device.
    fn request(&self, session: &Session) -> Result<Vec<(String, UnifiedBuffer)>, Error> {
        match self {
            Bound::Host(inputs) => session.run(inputs).map(|_| vec![]),
            Bound::Device(inputs) => {
                let inputs: Vec<(&str, &UnifiedBuffer)> =
                    inputs.iter().map(|(n, b)| (n.as_str(), b)).collect();
                session.run_unified(&inputs)
            }
        }
    }
}

/// Latencies kept at most; a benchmark ends there.
const MOST: usize = 20_000_000;

/// What to measure.
pub enum Subject<'a> {
    /// The model in a file.
    File(&'a std::path::Path),
    /// One operator; see [`crate::op_model`].
    Op(&'a str),
}

/// Makes a session of `subject`, plans it for the sizes of the inputs and measures requests with
/// them. Without `given` inputs they are random ([`inputs::random_inputs`]) for sizes by
/// [`inputs::sizes`]. `progress` hears the share done, 0 to 1, at times.
///
/// # Errors
/// As [`shopfloor::Model::open`] and [`Session::run`].
pub fn bench(
    builder: SessionBuilder,
    subject: Subject<'_>,
    model_options: &ModelOptions,
    given: Option<Vec<(String, Tensor)>>,
    options: BenchOptions,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<BenchReport, Error> {
    let began = Instant::now();
    let concurrency = options.concurrency.clamp(1, 1024);
    let builder = builder.with_queue(concurrency.max(8), 1024);
    let session = match subject {
        Subject::File(path) => builder
            .with_model_options(model_options.clone())
            .commit_from_file(path)?,
        Subject::Op(text) => builder.commit(crate::op_model(text)?)?,
    };
    let made = began.elapsed();
    let mut assumed = vec![];
    let named = match given {
        Some(n) => n,
        None => {
            let sizes;
            (sizes, assumed) = inputs::sizes(session.model());
            inputs::random_inputs(session.model(), &sizes)?
        }
    };
    let sizes = inputs::sizes_of(session.model(), &named);
    let dims = inputs::box_of(session.model(), &sizes);
    let began = Instant::now();
    let plan = session.plan(&dims)?;
    let planned = began.elapsed();
    let more = report::bodies_us(&crate::planview::bodies(&session, &plan));
    let device = session.runtime().engine().device().clone();
    if device.emulated_ns().is_some() && concurrency > 1 {
        return Err(Error::Usage(
            "an emulated device has one clock for all callers: leave out --concurrency".into(),
        ));
    }
    let began = Instant::now();
    session.swap_plan(plan.clone())?;
    let load = made + began.elapsed();
    if let Some(asked) = plan.launch {
        crate::planview::took(&session, asked)?;
    }
    // What is predicted is of the way that was taken.
    let ran = session.runtime().launched();
    let way = match (ran.len(), ran.first()) {
        (1, Some(&way)) => plan.request_way(device.machine(), Some(way)),
        _ => None,
    };
    let predicted_s = way.map_or(plan.predicted.time_s, |w| w.seconds);
    let predicted_ms = predicted_s * 1e3 + more * 1e-3;
    let moved = match device.place() {
        Some(_) => {
            let out = session.run(&inputs::borrowed(&named))?.into_vec();
            let bytes = |t: &Tensor| t.bytes().len();
            let given = named.iter().map(|(_, t)| bytes(t)).collect::<Vec<_>>();
            Some((given, out.iter().map(|(_, t)| bytes(t)).collect::<Vec<_>>()))
        }
        None => None,
    };
    let emulated = clock::emulated_ns(&session).is_some();
    let copies_s = match (way, moved) {
        _ if options.bind == Bind::Device => 0.0,
        (Some(way), _) => way.copies_s,
        (None, _) if plan.leaves_gpu_idle() => 0.0,
        (None, Some((given, made))) => crate::ways::copies_s(&*device, given.iter().chain(&made)),
        (None, None) => 0.0,
    };
    let wall = Instant::now();
    let (ms, took) = measure(&session, &named, options, concurrency, progress)?;
    let requests = (ms.len() + options.warmup).max(1) as f64;
    let emulation_ms = emulated.then(|| wall.elapsed().as_secs_f64() * 1e3 / requests);
    let round_trip_us = crate::ways::round_trip_us(&*device)?;
    let how = shopfloor::how_run(&session);
    Ok(BenchReport {
        model: session.model().program().name.clone(),
        device: format!("{} ({})", device.name(), device.target().name),
        threads: how.threads(device.workers()),
        how,
        bound_to_device: options.bind == Bind::Device,
        iterations: ms.len(),
        latency_ms: LatencyMs::of(&ms),
        throughput_per_s: ms.len() as f64 / took.as_secs_f64().max(1e-12),
        predicted_ms,
        predicted_copies_ms: copies_s * 1e3,
        emulated,
        emulation_ms,
        round_trip_us,
        load_ms: load.as_secs_f64() * 1e3,
        plan_ms: planned.as_secs_f64() * 1e3,
        assumed,
        peak_rss_bytes: peak_rss(),
    })
}

/// One caller's latencies in milliseconds, and when it began and ended.
type Measured = (Vec<f64>, Instant, Instant);

/// Latencies in milliseconds of `concurrency` callers, and how long they took together.
pub(crate) fn measure(
    session: &Session,
    named: &[(String, Tensor)],
    options: BenchOptions,
    concurrency: usize,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<(Vec<f64>, Duration), Error> {
    let taken = AtomicUsize::new(0);
    let barrier = std::sync::Barrier::new(concurrency);
    let caller = |first: bool| -> Result<Measured, Error> {
        let bound = Bound::new(session, named, options.bind);
        let warm = bound.and_then(|bound| {
            (0..options.warmup).try_for_each(|_| bound.request(session).map(drop))?;
            Ok(bound)
        });
        // Every caller gets here, also one that failed, so that none waits for ever.
        barrier.wait();
        let bound = warm?;
        let began = Instant::now();
        let mut told = began;
        let mut ms = Vec::new();
        loop {
            let i = taken.fetch_add(1, Ordering::Relaxed);
            let now = Instant::now();
            let done = match options.iterations {
                Some(n) => i as f64 / n.max(1) as f64,
                None => now.duration_since(began).as_secs_f64() / options.seconds.max(1e-9),
            };
            if i >= MOST || (done >= 1.0 && i >= concurrency) {
                return Ok((ms, began, Instant::now()));
            }
            if first && now.duration_since(told) > Duration::from_millis(100) {
                progress(done.min(1.0));
                told = now;
            }
            // What a request gives is dropped when it was timed.
            let mut outputs = vec![];
            let ns = clock::timed_ns(session, || {
                outputs = bound.request(session)?;
                Ok(())
            })?;
            ms.push(ns * 1e-6);
        }
    };
    let results: Vec<Result<Measured, Error>> = std::thread::scope(|s| {
        let others: Vec<_> = (1..concurrency)
            .map(|_| s.spawn(|| caller(false)))
            .collect();
        let mut all = vec![caller(true)];
        all.extend(others.into_iter().map(|t| {
            t.join()
                .unwrap_or_else(|_| Err(Error::Internal("a calling thread panicked".into())))
        }));
        all
    });
    let (mut ms, mut first, mut last) = (Vec::new(), None::<Instant>, None::<Instant>);
    for r in results {
        let (m, b, e) = r?;
        ms.extend(m);
        first = Some(first.map_or(b, |f| f.min(b)));
        last = Some(last.map_or(e, |l| l.max(e)));
    }
    let took = match clock::emulated_ns(session) {
        Some(_) => Duration::from_secs_f64(ms.iter().sum::<f64>() * 1e-3),
        None => first
            .zip(last)
            .map_or(Duration::ZERO, |(f, l)| l.duration_since(f)),
    };
    Ok((ms, took))
}

/// Most memory this process ever had resident, in bytes; `None` where the system does not say.
pub fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace()
        .nth(1)?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}
