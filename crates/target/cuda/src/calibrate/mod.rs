//! Measures a GPU with kernels of its own: what its memory, its units, its link to the host and its
//! launches give, as a [`Machine`] whose figures say that they were measured.
//!
//! Everything that is timed by the GPU's clock is timed twice, with work and with twice of it or more, and
//! the difference counts: launches and events fall out. The best of several rounds is kept, for neighbours
//! only ever make a round slower; costs that depend on somebody else's state keep the median. On an emulated
//! GPU the times are emulated, and the amounts of work small.
mod figures;
mod text;

pub use figures::{Calibration, Figure};

use crate::driver::{Arg, Context, DevicePtr, FunctionId, Launch};
use crate::handles::{Event, Graph, Stream};
use crate::pool::{Block, Pool};
use crate::resident_owner::ResidentOwner;
use crate::spin_kernel;
use crate::{DriverError, Modules};
use device::EmptyShelf;
use machine::Machine;
use std::sync::Arc;
use std::time::{Duration, Instant};
use text::{CHASE_ROUND, END, FMA_ROUND, MMA_ROUND, UNDER_WAY};

/// Threads of a CTA that streams, of one that computes among others, and of one that has its SM alone.
const STREAM_THREADS: u32 = 1024;
const COMPUTE_THREADS: u32 = 256;
const ALONE_THREADS: u32 = 512;
/// Warps that an SM issues for at once.
const QUARTERS: u32 = 4;
/// How long an answer of the GPU may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(5);
/// A call of the driver's takes so long at most, in nanoseconds.
const CALL_NS: u64 = 10_000;
/// A word that no sum is.
const NEVER: u32 = 0x9e37_79b9;

/// How to calibrate.
#[derive(Clone, Debug)]
pub struct CalibrateOptions {
    /// About how long all measurements may take together. What is left when it has passed is measured
    /// once, and what takes long is left out.
    pub budget: Duration,
}

impl Default for CalibrateOptions {
    fn default() -> CalibrateOptions {
        CalibrateOptions {
            budget: Duration::from_secs(20),
        }
    }
}

/// The texts of all kernels for a GPU of architecture `arch` (75, 80, 90), with what they are for: what
/// an assembler may be asked about.
pub fn texts(arch: u32) -> Vec<(&'static str, String)> {
    text::modules(arch).into()
}

/// Amounts of work.
struct Effort {
    /// Bytes of the working set in device memory, a power of two.
    device_bytes: u64,
    /// The same of one that L2 holds.
    l2_bytes: u64,
    /// Times that a working set is gone through, the first time and the second.
    passes: (u64, u64),
    /// The same for one SM alone.
    alone: (u64, u64),
    /// Rounds of arithmetic.
    rounds: (u32, u32),
    /// Rounds of loads one after the other.
    chase: (u32, u32),
    /// Bytes of the largest working set that is chased through.
    chase_bytes: u64,
    /// Bytes of copies over the link.
    copies: (usize, usize),
    /// Launches.
    launches: (u32, u32),
    /// Round trips.
    trips: usize,
    /// Rounds of which the best counts, at most.
    most: usize,
}

/// The largest power of two that is at most `v`.
fn power(v: u64) -> u64 {
    1 << v.max(1).ilog2()
}

impl Effort {
    fn of(context: &dyn Context, free: u64) -> Effort {
        let l2 = context.info().l2_bytes.max(1 << 20);
        if context.emulated_ns().is_some() {
            return Effort {
                device_bytes: 4 << 20,
                l2_bytes: 1 << 20,
                passes: (1, 2),
                alone: (1, 2),
                rounds: (1, 3),
                chase: (8, 24),
                chase_bytes: 2 << 20,
                copies: (1 << 16, 1 << 20),
                launches: (4, 20),
                trips: 5,
                most: 1,
            };
        }
        let device_bytes = power((8 * l2).clamp(128 << 20, 1 << 30).min(free / 4));
        Effort {
            device_bytes,
            l2_bytes: power(l2 / 3),
            passes: (2, 6),
            alone: (1, 3),
            rounds: (2_000, 6_000),
            chase: (1 << 10, 1 << 12),
            chase_bytes: power(4 * l2).min(device_bytes),
            copies: (8 << 20, 64 << 20),
            launches: (200, 1000),
            trips: 1000,
            most: 7,
        }
    }
}

/// What kernels of nothing take, in seconds.
pub(crate) struct Launches {
    /// One behind another in a stream, as fast as the host calls.
    gap: f64,
    /// The same where the host is ahead.
    ahead: f64,
    /// One, until the host knows that it is over.
    alone: f64,
    /// One between two events, where the host is ahead.
    watched: f64,
    /// One behind another in a graph.
    node: f64,
    /// A graph of one, until the host knows that it is over.
    graph: f64,
}

/// A GPU that is being measured.
struct Measured<'a> {
    context: &'a Arc<dyn Context>,
    stream: Stream,
    from: Event,
    to: Event,
    pool: Arc<Pool>,
    modules: Modules,
    effort: Effort,
    until: Instant,
    arch: u32,
}

/// Rates need a time to divide by.
fn positive(seconds: f64, what: &'static str) -> Result<f64, DriverError> {
    match seconds > 0.0 && seconds.is_finite() {
        true => Ok(seconds),
        false => Err(DriverError::Argument {
            call: "calibrate",
            why: format!("{what} took no time that the GPU's clock shows"),
        }),
    }
}

/// The median.
fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(f64::NAN)
}

impl<'a> Measured<'a> {
    fn new(
        context: &'a Arc<dyn Context>,
        options: &CalibrateOptions,
    ) -> Result<Measured<'a>, DriverError> {
        // Whoever's kernel stays there would be measured with it, and be waited for by calls of the driver.
        if let Some(l) = ResidentOwner::of(&**context).change().take() {
            l.leave()?;
        }
        let compute = context.info().compute;
        Ok(Measured {
            context,
            stream: Stream::new(context, 0)?,
            from: Event::new(context)?,
            to: Event::new(context)?,
            pool: Pool::new(context.clone()),
            modules: Modules::new(context.clone(), 0),
            effort: Effort::of(&**context, context.memory()?.free),
            until: Instant::now() + options.budget,
            arch: compute.major * 10 + compute.minor,
        })
    }
}

impl Measured<'_> {
    fn function(&self, module: &str, entry: &str) -> Result<FunctionId, DriverError> {
        let all = text::modules(self.arch);
        let text = all.iter().find(|m| m.0 == module).map_or("", |m| &m.1);
        // The pool of modules keeps it loaded.
        self.modules.load(text, &EmptyShelf)?.function(entry)
    }

    fn launch(
        &self,
        f: FunctionId,
        (grid, threads): (u32, u32),
        args: &[Arg],
    ) -> Result<(), DriverError> {
        let shape = Launch {
            grid: [grid, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
            early: false,
        };
        self.context.launch(f, shape, args, self.stream.id())
    }

    /// Seconds of what `queue` queues, by the GPU's clock.
    fn time(&self, queue: &dyn Fn() -> Result<(), DriverError>) -> Result<f64, DriverError> {
        self.from.record(&self.stream)?;
        queue()?;
        self.to.record(&self.stream)?;
        self.to.synchronize()?;
        Ok(f64::from(self.to.since_ms(&self.from)?) * 1e-3)
    }

    /// Seconds by which the second amount of work takes longer than the first, at best.
    fn slope<N: Copy>(
        &self,
        (few, many): (N, N),
        queue: &dyn Fn(N) -> Result<(), DriverError>,
    ) -> Result<f64, DriverError> {
        let (mut a, mut b) = (f64::INFINITY, f64::INFINITY);
        queue(few)?;
        self.stream.synchronize()?;
        for _ in 0..self.effort.most {
            a = a.min(self.time(&|| queue(few))?);
            b = b.min(self.time(&|| queue(many))?);
            if Instant::now() > self.until {
                break;
            }
        }
        Ok(b - a)
    }

    fn memory(&self, bytes: u64) -> Result<Block, DriverError> {
        self.pool.take(bytes)
    }

    /// CTAs and threads that keep `sms` SMs at work, with one in `part` of the threads that they hold. CTAs
    /// spread over SMs: one SM alone gets one.
    fn compute(&self, sms: u32, part: u32) -> (u32, u32) {
        match sms {
            1 => (1, ALONE_THREADS),
            _ => {
                let own = self.context.info().threads_per_sm / COMPUTE_THREADS / part;
                (sms * own.max(1), COMPUTE_THREADS)
            }
        }
    }

    fn sms(&self) -> u32 {
        self.context.info().sms.max(1)
    }

    /// Bytes per second that `sms` SMs stream over `bytes` bytes (a power of two).
    fn stream(
        &self,
        read: bool,
        at: &Block,
        bytes: u64,
        sms: u32,
        passes: (u64, u64),
    ) -> Result<f64, DriverError> {
        let f = self.function("memory", if read { "read" } else { "write" })?;
        let per_sm = match sms {
            1 => 1,
            _ => (self.context.info().threads_per_sm / STREAM_THREADS).max(1),
        };
        let grid = sms * per_sm;
        let round = u64::from(grid) * u64::from(STREAM_THREADS) * 16 * UNDER_WAY as u64;
        let rounds = |passes: u64| (passes * bytes).div_ceil(round).max(passes) as u32;
        let (few, many) = (rounds(passes.0), rounds(passes.1));
        let took = self.slope((few, many), &|n| {
            let args = [
                Arg::Pointer(at.ptr()),
                Arg::U32((bytes - 1) as u32),
                Arg::U32(n),
                Arg::U32(NEVER),
            ];
            self.launch(f, (grid, STREAM_THREADS), &args)
        })?;
        let took = positive(took, "streaming")?;
        Ok(u64::from(many - few) as f64 * round as f64 / took)
    }

    /// Seconds of a load that needs the one before, over `bytes` bytes with one address in `stride`.
    fn latency(&self, entry: &str, bytes: u64, stride: u64) -> Result<f64, DriverError> {
        let f = self.function("memory", entry)?;
        let (at, out) = (self.memory(bytes)?, self.memory(8)?);
        let nodes = (bytes / stride).max(2);
        // A random way through all of them, the same each time.
        let mut order: Vec<u64> = (0..nodes).collect();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for i in (1..nodes as usize).rev() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            order.swap(i, (state % (i as u64 + 1)) as usize);
        }
        let mut image = vec![0u8; bytes as usize];
        for (n, &i) in order.iter().enumerate() {
            let next = at.ptr().0 + order[(n + 1) % order.len()] * stride;
            let here = (i * stride) as usize;
            image[here..here + 8].copy_from_slice(&next.to_le_bytes());
        }
        self.context.upload(at.ptr(), &image)?;
        if bytes > self.effort.l2_bytes {
            // What the copy left in L2 goes.
            let other = self.memory(self.effort.device_bytes)?;
            let s = self.stream.id();
            self.context
                .fill(other.ptr(), 0, self.effort.device_bytes, s)?;
            self.stream.synchronize()?;
        }
        // A small set is gone through before it counts; of a large one each run goes another part.
        let begin = std::cell::Cell::new(0usize);
        let (few, many) = self.effort.chase;
        let took = self.slope((few, many), &|n| {
            let first = order[begin.get() % order.len()];
            begin.set(begin.get() + n as usize * CHASE_ROUND);
            let args = [
                Arg::Pointer(at.ptr().offset(first * stride)),
                Arg::Pointer(out.ptr()),
                Arg::U32(n),
            ];
            self.launch(f, (1, 1), &args)
        })?;
        let steps = f64::from(many - few) * CHASE_ROUND as f64;
        Ok(positive(took, "a chase")? / steps)
    }

    /// Floating-point operations per second of `sms` SMs with f32 multiply-adds, and clocks per second
    /// meanwhile.
    fn fma(&self, sms: u32) -> Result<(f64, f64), DriverError> {
        let f = self.function("fma", "fma")?;
        let shape = self.compute(sms, 2);
        let threads = u64::from(shape.0 * shape.1);
        let (out, clocks) = (self.memory(threads * 4)?, self.memory(8)?);
        let launch = |shape: (u32, u32), n: u32| {
            let args = [
                Arg::Pointer(out.ptr()),
                Arg::Pointer(clocks.ptr()),
                Arg::U32(n),
                Arg::F32(0.999),
                Arg::F32(0.001),
            ];
            self.launch(f, shape, &args)
        };
        let (few, many) = self.effort.rounds;
        let slope = self.slope((few, many), &|n| launch(shape, n))?;
        let took = positive(slope, "multiply-adds")?;
        let each = 2 * FMA_ROUND as u64 * threads;
        let rate = f64::from(many - few) * each as f64 / took;
        // The first warp's clocks over the time of its rounds. It has its quarter of the SM alone: of
        // several there the oldest comes first, and is over long before the others.
        let alone = (sms, QUARTERS * 32);
        let counted = |n: u32| {
            let seconds = self.time(&|| launch(alone, n))?;
            let mut word = [0; 8];
            self.context.download(&mut word, clocks.ptr())?;
            Ok::<_, DriverError>((seconds, u64::from_le_bytes(word) as f64))
        };
        let (a, b) = (counted(few)?, counted(many)?);
        Ok((rate, (b.1 - a.1) / (b.0 - a.0)))
    }

    /// Floating-point operations per second of `sms` SMs' tensor cores on f16 with f32 sums.
    fn mma(&self, sms: u32) -> Result<f64, DriverError> {
        let f = self.function("mma", "mma")?;
        let shape = self.compute(sms, 4);
        let threads = u64::from(shape.0 * shape.1);
        let out = self.memory(threads * 4)?;
        let (few, many) = self.effort.rounds;
        let took = self.slope((few, many), &|n| {
            let args = [Arg::Pointer(out.ptr()), Arg::U32(n)];
            self.launch(f, shape, &args)
        })?;
        let each = 2 * 16 * 8 * u64::from(text::mma_k(self.arch)) * MMA_ROUND as u64;
        let warps = threads / 32;
        Ok(f64::from(many - few) * (each * warps) as f64 / positive(took, "products")?)
    }

    /// What kernels of nothing take.
    fn launches(&self) -> Result<Launches, DriverError> {
        let f = self.function("talk", "nothing")?;
        let nothing = || self.launch(f, (1, 32), &[]);
        let (few, many) = self.effort.launches;
        let each = |seconds: f64| seconds / f64::from(many - few);
        let gap = self.slope((few, many), &|n| (0..n).try_for_each(|_| nothing()))?;
        let waited = |queue: &dyn Fn() -> Result<(), DriverError>| {
            let mut all = vec![];
            for _ in 0..self.effort.trips.clamp(5, 200) {
                let (began, then) = (Instant::now(), self.context.emulated_ns());
                queue()?;
                self.stream.synchronize()?;
                let host = began.elapsed().as_secs_f64();
                let clock = self.context.emulated_ns().zip(then);
                all.push(clock.map_or(host, |(now, then)| (now - then) as f64 * 1e-9));
            }
            Ok::<_, DriverError>(median(all))
        };
        let alone = waited(&nothing)?;
        let graph = |n: u32| {
            let queue = || (0..n).try_for_each(|_| nothing());
            Graph::of(self.context, &self.stream, queue, |e| e)
        };
        let (one, short, long) = (graph(1)?, graph(few)?, graph(many)?);
        let node = self.slope((&short, &long), &|g: &Graph| g.launch(&self.stream))?;
        let whole = waited(&|| one.launch(&self.stream))?;
        // The same with the host's calls over before the GPU begins.
        let held = spin_kernel::function(&self.modules)?;
        let behind = |n: u32, queue: &dyn Fn() -> Result<(), DriverError>| {
            let ns = u64::from(n + 2) * CALL_NS;
            spin_kernel::launch(&**self.context, held, ns, self.stream.id())?;
            self.time(queue)
        };
        let ahead = |n: u32| behind(n, &|| (0..n).try_for_each(|_| nothing()));
        let ahead = each(ahead(many)? - ahead(few)?);
        let watched = (0..self.effort.trips.clamp(5, 200)).map(|_| behind(1, &nothing));
        let watched = watched.collect::<Result<Vec<f64>, _>>()?;
        Ok(Launches {
            gap: each(gap),
            ahead,
            alone,
            watched: median(watched),
            node: each(node),
            graph: whole,
        })
    }

    /// Seconds of a word to a kernel that stays and back, as the host sees it: from before its store to
    /// after its read of the answer.
    fn round_trip(&self) -> Result<f64, DriverError> {
        let f = self.function("talk", "answer")?;
        let words = self.context.pinned(256)?;
        let (ask, answer) = (0, 128);
        let args = [
            Arg::Pointer(words.device_ptr().offset(ask as u64)),
            Arg::Pointer(words.device_ptr().offset(answer as u64)),
            Arg::U32(END),
        ];
        self.launch(f, (1, 1), &args)?;
        let trip = |word: u32| {
            let (began, then) = (Instant::now(), self.context.emulated_ns());
            words.store_release(ask, word)?;
            while words.load_acquire(answer)? != word {
                if began.elapsed() > PATIENCE {
                    return Err(DriverError::Argument {
                        call: "calibrate",
                        why: "a kernel that stays did not answer".into(),
                    });
                }
                std::hint::spin_loop();
            }
            let host = began.elapsed().as_secs_f64();
            let clock = self.context.emulated_ns().zip(then);
            Ok(clock.map_or(host, |(now, then)| (now - then) as f64 * 1e-9))
        };
        let all: Result<Vec<f64>, DriverError> =
            (1..=self.effort.trips as u32 + 2).map(trip).collect();
        // Whatever came of it, the kernel is told to leave.
        words.store_release(ask, END)?;
        let all = all?;
        self.stream.synchronize()?;
        Ok(median(all[2..].to_vec()))
    }

    /// Seconds from one CTA to another, one way.
    fn handoff(&self) -> Result<f64, DriverError> {
        let f = self.function("talk", "hop")?;
        let at = self.memory(512)?;
        let (few, many) = self.effort.launches;
        let took = self.slope((few, many), &|n| {
            self.context.fill(at.ptr(), 0, 512, self.stream.id())?;
            self.launch(f, (2, 1), &[Arg::Pointer(at.ptr()), Arg::U32(n)])
        })?;
        Ok(positive(took, "handing over")? / (2.0 * f64::from(many - few)))
    }

    /// Bytes per second over the link and seconds besides, to the device and back.
    fn copies(&self) -> Result<[(f64, f64); 2], DriverError> {
        let (few, many) = self.effort.copies;
        let host = self.context.pinned(many)?;
        let at = self.memory(many as u64)?;
        let to: DevicePtr = at.ptr();
        let s = self.stream.id();
        let way = |up: bool| {
            let copy = |n: usize| match up {
                true => self.context.upload_from(to, &host, 0..n, s),
                false => self.context.download_into(&host, 0..n, to, s),
            };
            let took = positive(self.slope((few, many), &copy)?, "a copy")?;
            let rate = (many - few) as f64 / took;
            let mut small = f64::INFINITY;
            for _ in 0..self.effort.most {
                small = small.min(self.time(&|| copy(4096))?);
            }
            Ok::<_, DriverError>((rate, (small - 4096.0 / rate).max(0.0)))
        };
        Ok([way(true)?, way(false)?])
    }
}

/// Seconds that two events add to a kernel between them, beside others in a stream: what a timeline's kernels
/// are longer by than they take in a request that nobody times.
///
/// # Errors
/// The driver fails.
pub fn events_add(context: &Arc<dyn Context>) -> Result<f64, DriverError> {
    let l = Measured::new(context, &CalibrateOptions::default())?.launches()?;
    Ok((l.watched - l.ahead).max(0.0))
}

/// Measures the GPU of `context`, which `base` describes as far as that is known. `progress` hears the
/// share done (0 to 1) and what comes next. What could not be measured is in [`Calibration::failed`], and
/// keeps the figures of `base`.
///
/// # Errors
/// The driver fails before anything is measured.
pub fn calibrate(
    context: &Arc<dyn Context>,
    base: &Machine,
    options: &CalibrateOptions,
    progress: &mut dyn FnMut(f64, &str),
) -> Result<Calibration, DriverError> {
    let info = context.info().clone();
    let m = Measured::new(context, options)?;
    let mut out = Calibration::new(base, &info, context.emulated_ns().is_some());
    let sms = m.sms();
    let e = &m.effort;
    let levels = [("L2", e.l2_bytes), ("device", e.device_bytes)];
    let mut parts: Vec<(String, Box<Part<'_>>)> = vec![];
    for (level, bytes) in levels {
        for read in [true, false] {
            let what = format!("{} {level}", if read { "reading" } else { "writing" });
            let part = move |m: &Measured<'_>, out: &mut Calibration| {
                let at = m.memory(bytes)?;
                m.context.fill(at.ptr(), 0x5a, bytes, m.stream.id())?;
                // A cache is gone through so often that a launch does not count.
                let many = (m.effort.device_bytes / bytes).max(1);
                let passes = |p: (u64, u64)| (p.0 * many, p.1 * many);
                let all = m.stream(read, &at, bytes, sms, passes(m.effort.passes))?;
                let own = (bytes / 16).max(1 << 18).min(bytes);
                let one = match level {
                    // Nothing but the last level holds it, whatever an SM's share is.
                    "device" => m.stream(read, &at, bytes, 1, m.effort.alone)?,
                    _ => m.stream(read, &at, own, 1, passes(m.effort.alone))?,
                };
                out.bandwidth(level, read, bytes, (1, one), (u64::from(sms), all));
                Ok(())
            };
            parts.push((what, Box::new(part)));
        }
    }
    let chases = [
        ("L1", "chase_near", 8 << 10, 128),
        ("L2", "chase", e.l2_bytes.min(2 << 20), 128),
        ("device", "chase", e.chase_bytes, 256),
    ];
    for (level, entry, bytes, stride) in chases {
        let part = move |m: &Measured<'_>, out: &mut Calibration| {
            out.latency(level, bytes, m.latency(entry, bytes, stride)?);
            Ok(())
        };
        parts.push((format!("latency of {level}"), Box::new(part)));
    }
    let fma = move |m: &Measured<'_>, out: &mut Calibration| {
        let ((all, clock), (one, _)) = (m.fma(sms)?, m.fma(1)?);
        out.fma((1, one), (u64::from(sms), all), clock);
        Ok(())
    };
    parts.push(("f32 multiply-adds".into(), Box::new(fma)));
    let mma = move |m: &Measured<'_>, out: &mut Calibration| {
        let (all, one) = (m.mma(sms)?, m.mma(1)?);
        out.mma((1, one), (u64::from(sms), all));
        Ok(())
    };
    parts.push(("f16 products".into(), Box::new(mma)));
    let launches = |m: &Measured<'_>, out: &mut Calibration| {
        out.launches(&m.launches()?);
        Ok(())
    };
    parts.push(("launches".into(), Box::new(launches)));
    let copies = |m: &Measured<'_>, out: &mut Calibration| {
        out.copies(m.copies()?);
        Ok(())
    };
    parts.push(("copies over the link".into(), Box::new(copies)));
    let handoff = |m: &Measured<'_>, out: &mut Calibration| {
        out.handoff(m.handoff()?);
        Ok(())
    };
    parts.push(("hand-overs between CTAs".into(), Box::new(handoff)));
    let trip = |m: &Measured<'_>, out: &mut Calibration| {
        out.round_trip(m.round_trip()?);
        Ok(())
    };
    parts.push((
        "the round trip to a kernel that stays".into(),
        Box::new(trip),
    ));
    let count = parts.len();
    for (i, (what, part)) in parts.into_iter().enumerate() {
        progress(i as f64 / count as f64, &what);
        if let Err(e) = part(&m, &mut out) {
            let lost = matches!(e, DriverError::Lost { .. });
            out.failed.push(format!("{what}: {e}"));
            if lost {
                break;
            }
        }
        // Kernels of a part are over before the next one's memory is made.
        let _ = m.stream.synchronize();
    }
    out.finish(base);
    Ok(out)
}

type Part<'a> = dyn Fn(&Measured<'_>, &mut Calibration) -> Result<(), DriverError> + 'a;
