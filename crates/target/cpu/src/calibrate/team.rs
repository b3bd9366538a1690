//! Pinned threads that run a loop together, and the measurements of one thread against another.

use super::error::CalibrateError;
use layout::Arrange;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use workers::padded::CachePadded;

/// About how long a round of a measurement takes; the best of several counts.
const ROUND: Duration = Duration::from_micros(400);

/// Pins the calling thread to one CPU; false where the system does not let it (the thread then runs
/// wherever the system puts it).
pub fn pin_current_thread(cpu: usize) -> bool {
    workers::place::pin(workers::place::this_thread(), cpu)
}

/// A barrier that spins, then yields so that it also ends where threads outnumber CPUs.
struct SpinBarrier {
    n: usize,
    arrived: CachePadded<AtomicUsize>,
}

impl SpinBarrier {
    fn new(n: usize) -> Self {
        SpinBarrier {
            n,
            arrived: CachePadded::new(AtomicUsize::new(0)),
        }
    }
    /// Waits for the `k`-th meeting (from 1) of all threads.
    fn wait(&self, k: usize) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0u32;
        while self.arrived.load(Ordering::Acquire) < self.n * k {
            spins += 1;
            if spins < 20_000 {
                spin_loop()
            } else {
                thread::yield_now()
            }
        }
    }
}

fn spawn_error(cpu: usize) -> impl Fn(std::io::Error) -> CalibrateError {
    move |e| CalibrateError::Thread {
        cpu,
        message: e.to_string(),
    }
}

fn died(cpu: usize) -> CalibrateError {
    CalibrateError::Thread {
        cpu,
        message: "it ended early".into(),
    }
}

/// A set of loops of one thread: runs the loop of a number for some passes.
pub(super) type Loops = Box<dyn FnMut(usize, usize)>;

/// What every thread measures by.
struct Team {
    barrier: SpinBarrier,
    /// Passes of a round of each loop, as the first thread finds them.
    passes: Vec<AtomicUsize>,
    zero: Instant,
    slice: Duration,
    rounds: usize,
    /// The round of each loop that is not run any more, as the first thread finds where a loop takes too long: on a
    /// busy machine rounds wait for their turns.
    last: Vec<AtomicUsize>,
}

/// How many times its slice a loop may take.
const TIMES: u32 = 3;

impl Team {
    /// Passes of loop `number` that take about a round.
    fn passes(&self, number: usize, run: &mut Loops) -> usize {
        let round = self.slice.as_secs_f64() / (self.rounds + 1) as f64;
        let mut n = 1usize;
        loop {
            let t = Instant::now();
            run(number, n);
            let took = t.elapsed().as_secs_f64();
            if took > round * 0.1 || n > 1 << 26 {
                return ((n as f64 * round / took.max(1e-9)) as usize).clamp(1, 1 << 28);
            }
            n *= 4;
        }
    }

    /// What thread `me` does: when it began and ended each round of each loop.
    fn work(&self, me: usize, run: &mut Loops) -> Vec<Vec<(f64, f64)>> {
        let mut meeting = 0;
        let mut meet = || {
            meeting += 1;
            self.barrier.wait(meeting);
        };
        let mut out = Vec::new();
        for (number, passes) in self.passes.iter().enumerate() {
            run(number, 1);
            meet();
            if me == 0 {
                passes.store(self.passes(number, run), Ordering::Release);
            }
            meet();
            let n = passes.load(Ordering::Acquire);
            let mut spans = Vec::with_capacity(self.rounds);
            let began = Instant::now();
            for round in 0..self.rounds {
                if me == 0 && round > 0 && began.elapsed() > self.slice * TIMES {
                    self.last[number].fetch_min(round, Ordering::AcqRel);
                }
                meet();
                // Who is late may see a later round named, never an earlier one.
                if round >= self.last[number].load(Ordering::Acquire) {
                    break;
                }
                let start = self.zero.elapsed().as_secs_f64();
                run(number, n);
                spans.push((start, self.zero.elapsed().as_secs_f64()));
            }
            out.push(spans);
        }
        out
    }
}

/// Runs `loops` loops, one after the other, on every CPU of `cpus` at once, each for about `slice`, and returns
/// for each the best rate of all threads together: `units_per_pass * passes * threads / (last end - first start)`.
/// `make` is called on the pinned thread, so that memory is touched where it is used.
///
/// Rounds are short: on a machine that is in use some of them fall between the turns of others.
pub(super) fn measure(
    cpus: &[usize],
    slice: Duration,
    loops: usize,
    units_per_pass: f64,
    make: &(dyn Fn() -> Loops + Sync),
) -> Result<Vec<f64>, CalibrateError> {
    let team = Team {
        barrier: SpinBarrier::new(cpus.len()),
        passes: (0..loops).map(|_| AtomicUsize::new(1)).collect(),
        zero: Instant::now(),
        slice,
        rounds: ((slice.as_secs_f64() / ROUND.as_secs_f64()) as usize).clamp(6, 50),
        last: (0..loops).map(|_| AtomicUsize::new(usize::MAX)).collect(),
    };
    // Threads wait for this before the first barrier, so that a failed spawn leaves nobody spinning.
    let go = AtomicU64::new(0);
    let spans: Vec<Vec<Vec<(f64, f64)>>> = thread::scope(|s| {
        let mut threads = Vec::with_capacity(cpus.len());
        let mut failed = None;
        for (i, &cpu) in cpus.iter().enumerate() {
            let (team, go) = (&team, &go);
            let body = move || {
                pin_current_thread(cpu);
                while go.load(Ordering::Acquire) == 0 {
                    thread::yield_now();
                }
                match go.load(Ordering::Acquire) {
                    1 => team.work(i, &mut make()),
                    _ => Vec::new(),
                }
            };
            match thread::Builder::new()
                .name(format!("calibrate-{cpu}"))
                .spawn_scoped(s, body)
            {
                Ok(t) => threads.push((cpu, t)),
                Err(e) => {
                    failed = Some(spawn_error(cpu)(e));
                    break;
                }
            }
        }
        go.store(if failed.is_some() { 2 } else { 1 }, Ordering::Release);
        let joined: Result<Vec<_>, _> = threads
            .into_iter()
            .map(|(cpu, t)| t.join().map_err(|_| died(cpu)))
            .collect();
        match failed {
            Some(e) => Err(e),
            None => joined,
        }
    })?;
    let best = |number: usize| {
        let n = team.passes[number].load(Ordering::Acquire) as f64;
        let rounds = spans.first().map_or(0, |t| t[number].len());
        let took = (0..rounds).map(|k| {
            let each = spans.iter().map(|t| t[number][k]);
            let (start, end) =
                each.fold((f64::INFINITY, 0.0f64), |a, s| (a.0.min(s.0), a.1.max(s.1)));
            end - start
        });
        let least = took.filter(|t| *t > 0.0).fold(f64::INFINITY, f64::min);
        units_per_pass * n * cpus.len() as f64 / least
    };
    Ok((0..loops).map(best).collect())
}

/// Runs a body on a thread of its own, pinned.
fn alone<T: Send>(cpu: usize, body: impl FnOnce() -> T + Send) -> Result<T, CalibrateError> {
    thread::scope(|s| {
        thread::Builder::new()
            .spawn_scoped(s, || {
                pin_current_thread(cpu);
                body()
            })
            .map_err(spawn_error(cpu))?
            .join()
            .map_err(|_| died(cpu))
    })
}

/// Seconds of one dependent load in a working set of `bytes`: a chase through its lines in random order.
pub(super) fn latency(cpu: usize, slice: Duration, bytes: f64) -> Result<f64, CalibrateError> {
    #[derive(Clone)]
    #[repr(align(64))]
    struct Node(u32);
    let n = ((bytes / 64.0) as usize).clamp(2, 1 << 26);
    alone(cpu, move || {
        let mut order: Vec<u32> = (0..n as u32).collect();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        // Sattolo's shuffle: a single cycle through all nodes.
        for i in (1..n).rev() {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let j = ((state >> 33) as usize * i) >> 31;
            order.swap(i, j);
        }
        let mut nodes = vec![Node(0); n];
        for (node, next) in nodes.iter_mut().zip(&order) {
            *node = Node(*next);
        }
        let chase = |mut at: u32, steps: usize| {
            for _ in 0..steps {
                at = nodes[at as usize].0;
            }
            black_box(at)
        };
        let mut at = chase(0, n.min(1 << 16));
        let (mut best, mut steps) = (f64::INFINITY, 1024usize);
        let start = Instant::now();
        while start.elapsed() < slice || best == f64::INFINITY {
            let t = Instant::now();
            at = chase(at, steps);
            let took = t.elapsed();
            best = best.min(took.as_secs_f64() / steps as f64);
            if took < slice / 16 && steps < 1 << 24 {
                steps *= 2;
            }
        }
        best
    })
}

fn median(mut v: Vec<f64>) -> f64 {
    v.arrange_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(0.0)
}

/// Seconds from one running thread to another through a flag and a payload on another cache line:
/// half a round trip of a hot ring.
pub(super) fn handoff(a: usize, b: usize, slice: Duration) -> Result<f64, CalibrateError> {
    let line = || CachePadded::new(AtomicU64::new(0));
    let (there, back, payload) = (line(), line(), line());
    let stop = AtomicBool::new(false);
    let wait = |flag: &AtomicU64, k: u64, stop: &AtomicBool| {
        let mut spins = 0u32;
        while flag.load(Ordering::Acquire) < k {
            spins += 1;
            if spins < 100_000 {
                spin_loop();
            } else {
                if stop.load(Ordering::Relaxed) {
                    return false;
                }
                thread::yield_now();
            }
        }
        true
    };
    const BATCH: u64 = 500;
    thread::scope(|s| {
        let echo = thread::Builder::new()
            .spawn_scoped(s, || {
                pin_current_thread(b);
                let mut k = 1;
                while wait(&there, k, &stop) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let v = payload.load(Ordering::Relaxed);
                    payload.store(v + 1, Ordering::Relaxed);
                    back.store(k, Ordering::Release);
                    k += 1;
                }
            })
            .map_err(spawn_error(b))?;
        let result = alone(a, || {
            let mut trips = Vec::new();
            let mut k = 0;
            let start = Instant::now();
            while start.elapsed() < slice || trips.len() < 5 {
                let t = Instant::now();
                for _ in 0..BATCH {
                    k += 1;
                    payload.store(k, Ordering::Relaxed);
                    there.store(k, Ordering::Release);
                    wait(&back, k, &stop);
                }
                trips.push(t.elapsed().as_secs_f64() / BATCH as f64);
            }
            stop.store(true, Ordering::Relaxed);
            there.store(k + 1, Ordering::Release);
            median(trips) / 2.0
        });
        stop.store(true, Ordering::Relaxed);
        echo.join().map_err(|_| died(b))?;
        result
    })
}

/// Seconds from waking a parked thread until its answer is seen, and of the wake call alone.
pub(super) fn wake(a: usize, b: usize, slice: Duration) -> Result<(f64, f64), CalibrateError> {
    let asked = CachePadded::new(AtomicU64::new(0));
    let answered = CachePadded::new(AtomicU64::new(0));
    thread::scope(|s| {
        let sleeper = thread::Builder::new()
            .spawn_scoped(s, || {
                pin_current_thread(b);
                let mut seen = 0;
                loop {
                    thread::park();
                    let k = asked.load(Ordering::Acquire);
                    if k == u64::MAX {
                        break;
                    }
                    if k > seen {
                        seen = k;
                        answered.store(k, Ordering::Release);
                    }
                }
            })
            .map_err(spawn_error(b))?;
        let handle = sleeper.thread().clone();
        let result = alone(a, || {
            let (mut trips, mut calls) = (Vec::new(), Vec::new());
            let start = Instant::now();
            let mut k = 0;
            while (start.elapsed() < slice || trips.len() < 9) && trips.len() < 400 {
                k += 1;
                // Long enough for the sleeper to park and its core to go idle.
                thread::sleep(Duration::from_micros(300));
                asked.store(k, Ordering::Release);
                let t = Instant::now();
                handle.unpark();
                calls.push(t.elapsed().as_secs_f64());
                while answered.load(Ordering::Acquire) < k {
                    spin_loop();
                }
                trips.push(t.elapsed().as_secs_f64());
            }
            (median(trips), median(calls))
        });
        asked.store(u64::MAX, Ordering::Release);
        handle.unpark();
        sleeper.join().map_err(|_| died(b))?;
        result
    })
}

/// Seconds a worker waits for a ticket while all workers draw from one counter.
pub(super) fn ticket(cpus: &[usize], slice: Duration) -> Result<f64, CalibrateError> {
    static COUNTER: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));
    let draws = measure(cpus, slice, 1, 64.0, &|| {
        Box::new(|_, passes| {
            for _ in 0..passes * 64 {
                black_box(COUNTER.fetch_add(1, Ordering::Relaxed));
            }
        })
    })?;
    Ok(cpus.len() as f64 / draws[0].max(1.0))
}
