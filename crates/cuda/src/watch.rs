//! What happened when, by the device's clock.
use crate::handles::{Event, Stream};
use crate::place::Gpu;
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

/// Collects events during a request and makes spans of them when all is done.
pub(crate) struct Watch {
    start: Instant,
    /// The device's clock's zero, and when it was set by the host's.
    zero: Event,
    zero_ns: u64,
    list: Vec<Watched>,
    host: Vec<(u32, u64, u64)>,
}

/// Names of the streams, in the order of their numbers in spans.
pub(crate) const LANES: [&str; 2] = ["compute", "copies"];

impl Watch {
    pub fn new(gpu: &Gpu, start: Instant, compute: &Stream) -> Result<Watch, DeviceError> {
        let zero = Event::new(&gpu.context).map_err(|e| gpu.failed("an event", e))?;
        zero.record(compute)
            .and_then(|()| zero.synchronize())
            .map_err(|e| gpu.failed("an event", e))?;
        Ok(Watch {
            start,
            zero,
            zero_ns: start.elapsed().as_nanos() as u64,
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

    /// Writes what was collected; every stream is done.
    pub fn write(self, gpu: &Gpu, t: &mut Timeline) -> Result<(), DeviceError> {
        t.lanes = LANES.iter().map(|l| format!("{} {l}", gpu.name)).collect();
        let since = |e: &Event| {
            let ms = e.since_ms(&self.zero);
            ms.map(|ms| (f64::from(ms).max(0.0) * 1e6) as u64)
                .map_err(|e| gpu.failed("an event", e))
        };
        for w in &self.list {
            let (from, to) = (since(&w.from)?, since(&w.to)?);
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
                    start_ns: self.zero_ns + from,
                    end_ns: self.zero_ns + to,
                });
            }
        }
        for (step, start_ns, end_ns) in self.host {
            t.spans.push(Span {
                step,
                worker: 0,
                first_task: 0,
                tasks: 1,
                start_ns,
                end_ns,
            });
        }
        Ok(())
    }
}
