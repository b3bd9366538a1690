//! What it costs to hand one small task to another thread and to have its answer: through a slot of our
//! resident workers, and in the ways that programs use else, beside the machine's own cache-line
//! ping-pong.
use crate::exec::run as tasks;
use crate::isa::Isa;
use crate::job::Job;
use crate::pool::{Pool, Workspace};
use crate::steps::CompiledSteps;
use crate::ukr::kernels;
use device::{AlignedBytes, DeviceError, Permit};
use expr::{Binary, ExprBuilder};
use kernel::{AxisTile, CpuMapping, Family, KernelBuilder, Mapping, Place, Schedule, TileProgram};
use layout::Arrange;
use layout::{DType, Dim, DimBox};
use plan::{Bound, Params, Step, StepWork};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use workers::flow::{Flow, spin_until};
use workers::padded::CachePadded;
use workers::place::{pin, this_thread};

/// A way to hand work over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A cache line there and back between two pinned threads that spin: what the machine takes.
    PingPong,
    /// A slot that a resident worker looks at, as every request on the CPU is shown to workers.
    Ring,
    /// A channel there and one back, as the standard library has them.
    Channel,
    /// A parked thread that is woken, and wakes the caller in time slice.
    Parked,
    /// A thread that is started for the task, and joined.
    ForkJoin,
}

impl Way {
    /// All of them, the machine's first.
    pub const ALL: [Way; 5] = [
        Way::PingPong,
        Way::Ring,
        Way::Channel,
        Way::Parked,
        Way::ForkJoin,
    ];
}

/// What trips of one way took.
#[derive(Clone, Debug)]
pub struct Trips {
    /// Way.
    pub way: Way,
    /// Nanoseconds of every trip without the clock's own, ascending.
    pub ns: Vec<f64>,
    /// Medians of the rounds, in their order: all ways take a time slice in each.
    pub rounds: Vec<f64>,
}

impl Trips {
    /// The time that a share of the trips does not exceed.
    pub fn quantile(&self, q: f64) -> f64 {
        let at = ((self.ns.len() as f64 * q).ceil() as usize).saturating_sub(1);
        self.ns
            .get(at.min(self.ns.len().saturating_sub(1)))
            .copied()
            .unwrap_or(0.0)
    }

    /// How many times as long as those of `other` these take: the median over the rounds, in each of which
    /// both are measured within the same milliseconds. A guest's processors move, and what lay on two threads
    /// of one core in one round lies far apart in the next.
    pub fn times(&self, other: &Trips) -> f64 {
        let both = self.rounds.iter().zip(&other.rounds);
        let mut all: Vec<f64> = both.map(|(a, b)| a / b.max(1.0)).collect();
        all.arrange_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }
}

/// Elements of the task: one vector register.
const WIDTH: i64 = 16;
/// Trips of every way at least, and before they are looked at.
const LEAST: usize = 50;
/// Rounds over which every way's time is spread, so that what disturbs the machine disturbs all ways.
const ROUNDS: u32 = 15;

/// One task of a compiled step: `y = max(x, 0)` on one row.
struct Task {
    steps: CompiledSteps,
    p: Vec<i64>,
    x: AlignedBytes,
    y: AlignedBytes,
}

fn failed(why: String) -> DeviceError {
    DeviceError::Step {
        step: "hand-off".into(),
        nodes: "-".into(),
        why,
    }
}

impl Task {
    fn new() -> Result<Task, DeviceError> {
        let mut b = KernelBuilder::new("handed", Family::Map, &[("n", Dim::Known(WIDTH))]);
        let x = b.load_dense("x", DType::F32, &[0]);
        let mut e = ExprBuilder::new();
        let (v, zero) = (e.input(0, DType::F32), e.constant(0.0, DType::F32));
        let v = e.binary(Binary::Max, v, zero);
        let y = b.map("y", DType::F32, &[0], e.finish(&[v]), &[x]);
        b.store_dense("Y", y, &[0]);
        let schedule = Schedule {
            grid: vec![AxisTile {
                axis: 0,
                tile: WIDTH,
            }],
            loops: vec![],
            places: vec![Place::InPlace; 2],
            chunk: 1,
            raster: 1,
            mapping: Mapping::Cpu(CpuMapping {
                micro: None,
                rows: vec![],
                lanes: Some(0),
            }),
        };
        let program = TileProgram::new(b.k.clone(), schedule.clone())
            .map_err(|e| failed(format!("its tile program is refused: {e}")))?;
        let step = Step {
            name: "handed".into(),
            work: StepWork::Kernel {
                kernel: b.k.into(),
                schedule: schedule.into(),
                args: vec![0, 1],
            },
            device: 0,
            tasks: Dim::ONE,
            waits: vec![],
            scratch: 0,
            nodes: vec![],
            cost_work: machine::Work::default(),
            predicted: machine::Cost::zero(),
            taken: false,
            joined: false,
        };
        let dims = DimBox::new();
        let steps = CompiledSteps::compile(
            &[step],
            &[Some(program)],
            &dims,
            kernels::kernels(Isa::detect()),
            Params::new(),
        )?;
        let p = Bound::new(&steps.params, &[], &dims)?.at(&[])?.to_vec();
        let bytes = 4 * WIDTH as usize;
        Ok(Task {
            steps,
            p,
            x: AlignedBytes::new(bytes, "the task's input")?,
            y: AlignedBytes::new(bytes, "the task's output")?,
        })
    }

    fn bufs(&self) -> [*mut u8; 2] {
        [self.x.as_ptr(), self.y.as_ptr()]
    }

    fn workspace(&self) -> Result<Workspace, DeviceError> {
        let mut d = Workspace::new()?;
        d.grow(self.steps.scratch, self.steps.views)?;
        Ok(d)
    }

    /// Writes the input of trip `k`. The worker is not at work.
    fn put(&self, k: u32) {
        // SAFETY: WIDTH elements, which nobody else touches before the hand-off.
        unsafe { self.x.as_ptr().cast::<f32>().write(k as f32) };
    }

    /// Whether the output is that of trip `k`. The worker is done, and that was seen.
    fn is_answer(&self, k: u32) -> bool {
        // SAFETY: WIDTH elements, which nobody writes any more.
        unsafe { self.y.as_ptr().cast::<f32>().read() == k as f32 }
    }

    /// Runs the task on the calling thread.
    fn run(&self, workspace: &mut Workspace) {
        let crate::steps::CWork::Kernel(k) = &self.steps.work[0] else {
            return;
        };
        let bufs = self.bufs();
        let zeros = self.steps.zeros.as_ptr();
        let scratch = workspace.scratch.as_ptr();
        let mut ctx = tasks::context(k, &self.p, &bufs, scratch, &mut workspace.views, zeros);
        // What fails leaves no answer, and that is looked for.
        let _ = tasks::task(&mut ctx, 0);
    }
}

/// Takes trips until its time is over.
struct Meter {
    slice: Duration,
    clock_ns: f64,
    ns: Vec<f64>,
}

impl Meter {
    fn measure(
        &mut self,
        mut trip: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        for _ in 0..LEAST {
            trip()?;
        }
        let began = Instant::now();
        let mut last = began;
        let mut taken = 0;
        while taken < LEAST || last - began < self.slice {
            trip()?;
            let now = Instant::now();
            let ns = (now - last).as_nanos() as f64;
            self.ns.push((ns - self.clock_ns).max(0.0));
            last = now;
            taken += 1;
        }
        Ok(())
    }
}

/// What reading the clock takes, in nanoseconds.
fn clock_ns() -> f64 {
    const READS: u32 = 1000;
    let mut all: Vec<f64> = (0..9)
        .map(|_| {
            let began = Instant::now();
            for _ in 0..READS {
                std::hint::black_box(Instant::now());
            }
            began.elapsed().as_nanos() as f64 / f64::from(READS)
        })
        .collect();
    all.arrange_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Sets a flag when it goes, also by an error: who waits for the flag leaves.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn line() -> CachePadded<AtomicU64> {
    CachePadded::new(AtomicU64::new(0))
}

fn ping_pong(to: usize, m: &mut Meter) -> Result<(), DeviceError> {
    let (there, back) = (line(), line());
    let over = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            pin(this_thread(), to);
            let mut k = 1;
            loop {
                spin_until(|| there.load(Ordering::Acquire) >= k || over.load(Ordering::Relaxed));
                if over.load(Ordering::Relaxed) {
                    return;
                }
                back.store(k, Ordering::Release);
                k += 1;
            }
        });
        let _over = Ends(&over);
        let mut k = 0;
        m.measure(|| {
            k += 1;
            there.store(k, Ordering::Release);
            spin_until(|| back.load(Ordering::Acquire) >= k);
            Ok(())
        })
    })
}

/// The answer of trip `k`, which is over.
fn answered(task: &Task, k: u32, way: Way) -> Result<(), DeviceError> {
    match task.is_answer(k) {
        true => Ok(()),
        false => Err(failed(format!(
            "{way:?} gave another answer than that of trip {k}, which is a bug of this program; please report it"
        ))),
    }
}

/// The number of the next trip: small enough to be an f32 without rounding.
fn next(k: &Cell<u32>) -> u32 {
    k.set(k.get() % (1 << 23) + 1);
    k.get()
}

fn ring(task: &Task, cpus: &[usize], m: &mut Meter) -> Result<(), DeviceError> {
    let pool = Pool::new(2, &cpus[..2], None)?;
    pool.reserve(task.steps.scratch, task.steps.views)?;
    let permit = Permit::default();
    let lease = pool.acquire(permit)?;
    // One share: the only task is the resident's.
    let mut flow = Flow::new(1, 1);
    let error = Mutex::new(None);
    // What every trip writes of its own is not on a line that the resident reads.
    let bufs = CachePadded::new(task.bufs());
    let k = CachePadded::new(Cell::new(0));
    m.measure(|| {
        let k = next(&k);
        task.put(k);
        flow.reset();
        let job = Job {
            steps: &task.steps,
            flow: &flow,
            round: flow.round(),
            tasks: &[1],
            needs: &[],
            p: &task.p,
            bufs: &*bufs,
            error: &error,
            spans: None,
            leases: lease.leases(),
            permit,
            traces: None,
            fault: None,
        };
        pool.hand(&job)?;
        answered(task, k, Way::Ring)
    })
}

fn channel(task: &Task, to: usize, m: &mut Meter) -> Result<(), DeviceError> {
    let (there, work) = mpsc::channel::<u32>();
    let (done, back) = mpsc::channel::<u32>();
    let mut workspace = task.workspace()?;
    thread::scope(|s| {
        s.spawn(move || {
            pin(this_thread(), to);
            while let Ok(k) = work.recv() {
                task.run(&mut workspace);
                if done.send(k).is_err() {
                    return;
                }
            }
        });
        let k = Cell::new(0);
        let gone = |_| failed("the thread behind the channel ended early".into());
        // Taken by the closure, so that the thread ends with it.
        let there = there;
        m.measure(|| {
            let k = next(&k);
            task.put(k);
            there
                .send(k)
                .map_err(|_| failed("the thread behind the channel ended early".into()))?;
            back.recv().map_err(gone)?;
            answered(task, k, Way::Channel)
        })
    })
}

fn parked(task: &Task, to: usize, m: &mut Meter) -> Result<(), DeviceError> {
    let (asked, done) = (line(), line());
    let over = AtomicBool::new(false);
    let caller = thread::current();
    let mut workspace = task.workspace()?;
    thread::scope(|s| {
        let (asked, done, over_) = (&asked, &done, &over);
        let sleeper = s.spawn(move || {
            pin(this_thread(), to);
            let mut k = 1;
            loop {
                while asked.load(Ordering::Acquire) < k && !over_.load(Ordering::Acquire) {
                    thread::park();
                }
                if over_.load(Ordering::Acquire) {
                    return;
                }
                task.run(&mut workspace);
                done.store(k, Ordering::Release);
                caller.unpark();
                k += 1;
            }
        });
        let (k, trips) = (Cell::new(0), Cell::new(0));
        let r = m.measure(|| {
            let k = next(&k);
            task.put(k);
            trips.set(trips.get() + 1);
            asked.store(trips.get(), Ordering::Release);
            sleeper.thread().unpark();
            while done.load(Ordering::Acquire) < trips.get() {
                thread::park();
            }
            answered(task, k, Way::Parked)
        });
        over.store(true, Ordering::Release);
        sleeper.thread().unpark();
        r
    })
}

fn fork_join(task: &Task, m: &mut Meter) -> Result<(), DeviceError> {
    let mut workspace = task.workspace()?;
    let k = Cell::new(0);
    m.measure(|| {
        let k = next(&k);
        task.put(k);
        let workspace = &mut workspace;
        let joined = thread::scope(|s| {
            let t = thread::Builder::new().spawn_scoped(s, || task.run(workspace));
            t.map(|t| t.join().is_ok())
        });
        match joined {
            Ok(true) => answered(task, k, Way::ForkJoin),
            _ => Err(failed(
                "no thread can be started; allow this process more threads".into(),
            )),
        }
    })
}

/// Measures every way for about `slice`, between the first two of `cpus`; `progress` hears the share
/// that is done, 0 to 1.
///
/// # Errors
/// Fewer than two processors, or a thread that cannot be started.
pub fn handoffs(
    cpus: &[usize],
    slice: Duration,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Vec<Trips>, DeviceError> {
    let &[from, to, ..] = cpus else {
        return Err(failed(
            "a hand-off needs two processors, and this process may use one; allow it another"
                .into(),
        ));
    };
    let task = Task::new()?;
    // On a thread of its own: the caller's stays where it is allowed to be.
    let measure = || {
        pin(this_thread(), from);
        let clock_ns = clock_ns();
        let mut rounds = vec![Vec::new(); Way::ALL.len()];
        let mut meters: Vec<Meter> = Way::ALL
            .iter()
            .map(|_| Meter {
                slice: slice / ROUNDS,
                clock_ns,
                ns: Vec::new(),
            })
            .collect();
        for round in 0..ROUNDS {
            for (i, (way, m)) in Way::ALL.iter().zip(&mut meters).enumerate() {
                progress(
                    (round as usize * Way::ALL.len() + i) as f64
                        / (ROUNDS as usize * Way::ALL.len()) as f64,
                );
                let before = m.ns.len();
                match way {
                    Way::PingPong => ping_pong(to, m)?,
                    Way::Ring => ring(&task, cpus, m)?,
                    Way::Channel => channel(&task, to, m)?,
                    Way::Parked => parked(&task, to, m)?,
                    Way::ForkJoin => fork_join(&task, m)?,
                }
                let own = &mut m.ns[before..];
                own.arrange_by(f64::total_cmp);
                rounds[i].extend(own.get(own.len() / 2));
            }
        }
        let all = Way::ALL.iter().zip(meters).zip(rounds);
        let all = all.map(|((&way, mut m), rounds)| {
            m.ns.arrange_by(f64::total_cmp);
            let ns = m.ns;
            Trips { way, ns, rounds }
        });
        Ok(all.collect())
    };
    thread::scope(|s| {
        let t = thread::Builder::new()
            .spawn_scoped(s, measure)
            .map_err(|_| {
                failed("no thread can be started; allow this process more threads".into())
            })?;
        t.join()
            .unwrap_or_else(|_| Err(failed("the measurement ended early".into())))
    })
}
