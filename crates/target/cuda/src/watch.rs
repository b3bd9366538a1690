//! What happened when, by the device's clock.
use crate::handles::{Event, Stream};
use crate::place::Gpu;
use crate::spin_kernel;
use device::DeviceError;
use plan::{Activity, DeviceSpan, Span, Timeline};
use std::time::Instant;

/// Something between two events of a stream.
struct Watched {
    what: Activity,
    step: u32,
    lane: u32,
    tasks: u32,
    bytes: u64,
    from: Event,
    to: Event,
}

/// The host's calls for a step, two events among them, take so long at most: the queue is held up so that
/// the GPU never waits for them.
const CALLS_NS: u64 = 10_000;
/// It is not held up for longer.
const HELD_NS: u64 = 5_000_000;

/// Collects events during a request and makes spans of them when all is done.
pub(crate) struct Watch {
    start: Instant,
    /// The device's clock's zero.
    zero: Event,
    /// How long it is held up before that.
    held_ns: u64,
    list: Vec<Watched>,
    host: Vec<(u32, u64, u64)>,
}

/// Names of the streams, in the order of their numbers in spans.
pub(crate) const LANES: [&str; 2] = ["compute", "copies"];

impl Watch {
    /// Begins when the GPU comes to what is queued from now on, that of `steps` steps.
    pub fn new(
        gpu: &Gpu,
        start: Instant,
        [compute, copies]: [&Stream; 2],
        steps: usize,
    ) -> Result<Watch, DeviceError> {
        // An emulated host takes no time.
        let held_ns = match gpu.context.emulated_ns() {
            Some(_) => 0,
            None => (steps as u64).saturating_mul(CALLS_NS).min(HELD_NS),
        };
        let begin = || {
            let zero = Event::new(&gpu.context)?;
            if held_ns > 0 {
                let f = spin_kernel::function(&gpu.modules)?;
                spin_kernel::launch(&*gpu.context, f, held_ns, compute.id())?;
            }
            zero.record(compute)?;
            copies.wait(&zero)?;
            Ok(zero)
        };
        Ok(Watch {
            start,
            zero: begin().map_err(|e| gpu.failed("an event", e))?,
            held_ns,
            list: vec![],
            host: vec![],
        })
    }

    fn event(gpu: &Gpu, stream: &Stream) -> Result<Event, DeviceError> {
        let e = Event::new(&gpu.context);
        let e = e.and_then(|e| e.record(stream).map(|()| e));
        e.map_err(|e| gpu.failed("an event", e))
    }

    /// Puts events around what `queue` queues in `stream`, which is of number `lane`.
    pub fn around<T>(
        watch: &mut Option<Watch>,
        gpu: &Gpu,
        stream: &Stream,
        lane: u32,
        what: (Activity, usize, u64),
        queue: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let Some(w) = watch else { return queue() };
        let from = Self::event(gpu, stream)?;
        let out = queue()?;
        w.list.push(Watched {
            what: what.0,
            step: what.1 as u32,
            lane,
            tasks: 1,
            bytes: what.2,
            from,
            to: Self::event(gpu, stream)?,
        });
        Ok(out)
    }

    /// How many tasks the last one had.
    pub fn tasks(&mut self, tasks: u32) {
        if let Some(w) = self.list.last_mut() {
            w.tasks = tasks;
        }
    }

    /// A host step, by the host's clock.
    pub fn host_step(&mut self, step: usize, from: Instant) {
        let ns = |i: Instant| i.duration_since(self.start).as_nanos() as u64;
        let span = (step as u32, ns(from), ns(Instant::now()));
        self.host.push(span);
    }

    /// Writes what was collected; every stream is done. Times count from the zero of the device's clock, as
    /// the host's last look at its own has it.
    pub fn write(self, gpu: &Gpu, t: &mut Timeline) -> Result<(), DeviceError> {
        let now = self.start.elapsed().as_nanos() as u64;
        t.lanes = LANES.iter().map(|l| format!("{} {l}", gpu.name)).collect();
        let since = |e: &Event| {
            let ms = e.since_ms(&self.zero);
            ms.map(|ms| (f64::from(ms).max(0.0) * 1e6) as u64)
                .map_err(|e| gpu.failed("an event", e))
        };
        let mut last = 0;
        for w in &self.list {
            let (from, to) = (since(&w.from)?, since(&w.to)?);
            last = last.max(to);
            t.device.push(DeviceSpan {
                lane: w.lane,
                what: w.what,
                step: w.step,
                bytes: w.bytes,
                start_ns: from,
                end_ns: to,
            });
            if w.what == Activity::Kernel {
                t.spans.push(Span {
                    step: w.step,
                    worker: 0,
                    first_task: 0,
                    tasks: w.tasks,
                    start_ns: from,
                    end_ns: to,
                });
            }
        }
        // A step of the host behind all of the device's began when these were over.
        let device = self.list.iter().map(|w| w.step).max();
        let behind = self.host.iter().filter(|h| Some(h.0) > device);
        let over = behind.map(|h| h.1).min().unwrap_or(now);
        let zero = over.saturating_sub(last);
        for (step, start_ns, end_ns) in self.host {
            t.spans.push(Span {
                step,
                worker: 0,
                first_task: 0,
                tasks: 1,
                start_ns: start_ns.saturating_sub(zero),
                end_ns: end_ns.saturating_sub(zero),
            });
        }
        t.total_ns = now.saturating_sub(zero);
        t.held_ns = self.held_ns;
        Ok(())
    }
}
