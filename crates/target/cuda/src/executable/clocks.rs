//! What the workers of a resident kernel wrote of their clocks, as a request's timeline.
use super::section::{Entry, Section};
use super::{COMPUTE, COPIES, CudaExecutable};
use crate::watch::LANES;
use machine::Way;
use plan::{Activity, DeviceSpan, Span, Timeline};
use std::time::Instant;
use workers::ring::{Answer, Times};

/// A timeline in the making: stretches of one request, with the host's steps between them.
pub(super) struct Clocks {
    start: Instant,
    /// The device's clock when it took the first stretch.
    zero: Option<u64>,
}

impl Clocks {
    /// Empties `t`, for the steps of `e`, of a request that began at `start`.
    pub fn new(e: &CudaExecutable, t: &mut Timeline, start: Instant) -> Clocks {
        t.steps = e.steps.names.clone();
        t.spans.clear();
        t.device.clear();
        t.launched.insert(Way::Resident);
        t.lanes = LANES
            .iter()
            .map(|l| format!("{} {l}", e.gpu.name))
            .collect();
        Clocks { start, zero: None }
    }

    fn ns(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_nanos() as u64
    }

    /// A step of the host.
    pub fn host(&self, t: &mut Timeline, step: usize, began: Instant) {
        t.spans.push(Span {
            step: step as u32,
            worker: 0,
            first_task: 0,
            tasks: 1,
            start_ns: self.ns(began),
            end_ns: self.ns(Instant::now()),
        });
    }

    /// A stretch under the parameters `p`, pushed at `pushed` and answered now: `times` is what its
    /// workers wrote. By the host's clock the device's time lies in the middle of the wait for it.
    pub fn stretch(
        &mut self,
        t: &mut Timeline,
        (e, s, p): (&CudaExecutable, &Section, &[i64]),
        (answer, times): (&Answer, &Times<'_>),
        pushed: Instant,
    ) {
        let (from, waited) = (self.ns(pushed), pushed.elapsed().as_nanos() as u64);
        let (began, ended) = answer.clock_ns;
        let took = ended.saturating_sub(began);
        let base = from + waited.saturating_sub(took) / 2;
        let zero = *self.zero.get_or_insert(began);
        let tasks: Vec<u64> = s.entries.iter().map(|x| x.tasks(e, p)).collect();
        for (i, (entry, &step)) in s.entries.iter().zip(&s.steps).enumerate() {
            let spans = times.of(i, &tasks);
            let ends =
                (spans.iter().map(|x| x.begin_ns).min()).zip(spans.iter().map(|x| x.end_ns).max());
            let Some((begin, end)) = ends else { continue };
            let (what, lane) = match entry {
                Entry::Step { .. } => (Activity::Kernel, COMPUTE),
                Entry::Copy { way, .. } => (*way, COPIES),
                Entry::Load { .. } => (Activity::Upload, COPIES),
            };
            t.device.push(DeviceSpan {
                lane,
                what,
                step: step as u32,
                bytes: entry.bytes(e, p),
                start_ns: begin.saturating_sub(zero),
                end_ns: end.saturating_sub(zero),
            });
            // Copies of inputs, outputs and streamed weights are no steps.
            if what != Activity::Kernel && !entry.is_plan_copy() {
                continue;
            }
            t.spans.extend(spans.iter().map(|x| Span {
                step: step as u32,
                worker: x.worker,
                first_task: x.first_task,
                tasks: x.tasks,
                start_ns: base + x.begin_ns.saturating_sub(began),
                end_ns: base + x.end_ns.saturating_sub(began),
            }));
        }
    }
}
