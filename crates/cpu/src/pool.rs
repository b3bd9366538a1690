//! Resident workers: threads that start once per device and serve every request of every session.
use crate::exec::View;
use crate::executable::Job;
use crate::flow::{Bed, Slot};
use crate::place::{ThreadId, pin, this_cpu, this_thread};
use device::{AlignedBytes, DeviceError};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Jobs that may be shown at once; further callers work alone.
const SLOTS: usize = 16;
/// How long an idle worker looks for work before it parks.
const SPIN: Duration = Duration::from_micros(150);

/// Memory that a worker keeps from job to job.
pub(crate) struct Desk {
    pub scratch: AlignedBytes,
    pub views: Vec<View>,
}

// SAFETY: the pointers in views are only used while a task runs, by the thread that has the desk.
unsafe impl Send for Desk {}

impl Desk {
    pub(crate) fn new() -> Result<Desk, DeviceError> {
        Ok(Desk {
            scratch: AlignedBytes::new(0, "scratch")?,
            views: Vec::new(),
        })
    }

    /// Room for `scratch` bytes and `views` tiles.
    pub(crate) fn grow(&mut self, scratch: usize, views: usize) -> Result<(), DeviceError> {
        if self.scratch.len() < scratch {
            self.scratch = AlignedBytes::new(scratch, "a worker's scratch")?;
        }
        if self.views.len() < views {
            self.views.resize(views, View::EMPTY);
        }
        Ok(())
    }
}

struct Worker {
    bed: Bed,
    /// Processor that it is pinned to, with the thread's identity, once it runs.
    pinned: Mutex<Option<(ThreadId, usize)>>,
    thread: Mutex<Option<Thread>>,
    desk: Mutex<Desk>,
}

struct Shared {
    slots: Vec<Slot<Job<'static>>>,
    workers: Vec<Worker>,
    stop: AtomicBool,
    /// Jobs that are shown.
    shown: AtomicUsize,
    /// The processor left for the caller, where workers are pinned.
    free: AtomicUsize,
}

/// No processor in particular.
const ANY: usize = usize::MAX;

/// The resident workers of a device.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Starts `workers - 1` threads (the caller of a request is the remaining worker), pinned to
    /// `cpus[1..]` where there are enough of them.
    pub(crate) fn new(workers: usize, cpus: &[usize]) -> Result<Pool, DeviceError> {
        let residents = workers.saturating_sub(1);
        let shared = Arc::new(Shared {
            slots: (0..SLOTS).map(|_| Slot::new()).collect(),
            workers: (0..residents)
                .map(|_| {
                    Ok(Worker {
                        bed: Bed::new(),
                        pinned: Mutex::new(None),
                        thread: Mutex::new(None),
                        desk: Mutex::new(Desk::new()?),
                    })
                })
                .collect::<Result<_, DeviceError>>()?,
            stop: AtomicBool::new(false),
            shown: AtomicUsize::new(0),
            free: AtomicUsize::new(if workers <= cpus.len() { cpus[0] } else { ANY }),
        });
        let mut pool = Pool {
            shared,
            threads: Vec::new(),
        };
        for i in 0..residents {
            let shared = pool.shared.clone();
            let cpu = if workers <= cpus.len() {
                cpus.get(i + 1).copied()
            } else {
                None
            };
            let t = std::thread::Builder::new()
                .name(format!("shopfloor-{}", i + 1))
                .spawn(move || reside(&shared, i, cpu))
                .map_err(|_| DeviceError::Memory {
                    what: "a worker thread's stack".into(),
                    bytes: 2 << 20,
                })?;
            *lock(&pool.shared.workers[i].thread) = Some(t.thread().clone());
            pool.threads.push(t);
        }
        Ok(pool)
    }

    /// Workers, the caller included.
    pub(crate) fn workers(&self) -> usize {
        self.shared.workers.len() + 1
    }

    /// Gives every resident worker room for a plan.
    pub(crate) fn reserve(&self, scratch: usize, views: usize) -> Result<(), DeviceError> {
        self.shared
            .workers
            .iter()
            .try_for_each(|w| lock(&w.desk).grow(scratch, views))
    }

    /// Runs `job` to its end with the residents' help. The caller is worker 0 and brings its own
    /// scratch and views.
    pub(crate) fn run(&self, job: &Job, scratch: *mut u8, views: &mut [View]) {
        let slot = if self.shared.workers.is_empty() {
            None
        } else {
            self.shared.slots.iter().find(|s| s.claim())
        };
        let Some(slot) = slot else {
            job.work(0, scratch, views);
            return;
        };
        if self.shared.shown.fetch_add(1, Ordering::Relaxed) == 0 {
            self.make_way();
        }
        // The slot forgets the job's lifetime; `retire` returns before it ends.
        slot.publish(std::ptr::from_ref(job).cast());
        for w in &self.shared.workers {
            w.bed.wake(|| {
                if let Some(t) = &*lock(&w.thread) {
                    t.unpark();
                }
            });
        }
        job.work(0, scratch, views);
        job.finish();
        slot.retire();
        self.shared.shown.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// Moves a worker off the caller's processor, should the system have put the caller on one: the
    /// worker takes the processor that was left free for callers.
    fn make_way(&self) {
        let free = self.shared.free.load(Ordering::Relaxed);
        if free == ANY {
            return;
        }
        let Some(here) = this_cpu().filter(|&c| c != free) else {
            return;
        };
        for w in &self.shared.workers {
            let Ok(mut p) = w.pinned.try_lock() else {
                return;
            };
            if let Some((t, cpu)) = *p
                && cpu == here
            {
                if pin(t, free) {
                    *p = Some((t, free));
                    self.shared.free.store(here, Ordering::Relaxed);
                }
                return;
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for w in &self.shared.workers {
            w.bed.wake(|| {
                if let Some(t) = &*lock(&w.thread) {
                    t.unpark();
                }
            });
        }
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
    }
}

/// A worker's life: look for jobs, work, and after a while without any, sleep.
fn reside(shared: &Shared, me: usize, cpu: Option<usize>) {
    let worker = &shared.workers[me];
    if let Some(c) = cpu {
        let t = this_thread();
        if pin(t, c) {
            *lock(&worker.pinned) = Some((t, c));
        }
    }
    let mut seen = [0usize; SLOTS];
    let mut idle: Option<Instant> = None;
    let mut rounds = 0u32;
    while !shared.stop.load(Ordering::SeqCst) {
        let mut worked = false;
        // Workers start at different slots, so that several jobs are shared out.
        for j in 0..SLOTS {
            let s = (me + j) % SLOTS;
            let slot = &shared.slots[s];
            if !slot.has_other_than(seen[s]) {
                continue;
            }
            // Taken before the job is entered: room is made under this lock before a job is shown.
            let mut desk = lock(&worker.desk);
            let Desk { scratch, views } = &mut *desk;
            let scratch = scratch.as_ptr();
            if let Some(g) = slot.enter(seen[s], |job| job.work(me + 1, scratch, views)) {
                seen[s] = g;
                worked = true;
            }
        }
        if worked {
            idle = None;
            continue;
        }
        std::hint::spin_loop();
        rounds = rounds.wrapping_add(1);
        if !rounds.is_multiple_of(32) {
            continue;
        }
        let since = *idle.get_or_insert_with(Instant::now);
        if since.elapsed() > SPIN {
            let work = || {
                shared.stop.load(Ordering::SeqCst)
                    || shared
                        .slots
                        .iter()
                        .zip(&seen)
                        .any(|(s, &g)| s.has_other_than(g))
            };
            worker.bed.sleep(work, std::thread::park);
            idle = None;
        }
    }
}
