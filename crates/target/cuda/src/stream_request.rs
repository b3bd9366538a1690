//! A request on its way: what is queued in its two streams, step by step.
use crate::driver::{DevicePtr, Pinned};
use crate::executable::{COMPUTE, COPIES, CudaExecutable, HostSide, LARGE, Port};
use crate::graphs::Graphs;
use crate::handles::{Event, Graph, Stream};
use crate::persistent::{PersistentBuffer, Ring};
use crate::pool::Block as Memory;
use crate::staging;
use crate::steps::{CopyDirection, Words, Work};
use crate::watch::Watch;
use device::{DeviceError, HostMemory, HostView, Permit};
use plan::{Activity, Block, Timeline};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

/// A value given by a request.
pub(crate) enum In<'a> {
    Host(&'a [u8]),
    Device(DevicePtr),
}

/// Where a request wants a value.
pub(crate) enum Out<'a> {
    Host(&'a mut [u8]),
    /// With its bytes.
    Device(DevicePtr, usize),
}

impl Out<'_> {
    pub fn len(&self) -> usize {
        match self {
            Out::Host(b) => b.len(),
            Out::Device(_, n) => *n,
        }
    }
}

/// A request's ports and what else it says.
pub(crate) struct Asked<'a, 'b> {
    pub symbols: &'a [i64],
    pub inputs: Vec<In<'a>>,
    pub outputs: Vec<Out<'b>>,
    pub timeline: Option<&'a mut Timeline>,
    pub stop_after: Option<u32>,
    pub permit: Permit<'a>,
}

/// The host's side of a request.
pub(crate) struct Far<'a> {
    pub beside: &'a HostSide,
    pub block: &'a Block,
    pub memory: &'a mut HostMemory,
    pub inputs: &'a [&'a [u8]],
    pub symbols: &'a [i64],
}

impl Far<'_> {
    pub fn view(&self) -> HostView<'_> {
        HostView {
            inputs: self.inputs,
            weights: &self.beside.weights,
            kept: Some(&self.beside.init_results),
        }
    }
}

/// A request on its way.
pub(crate) struct StreamRequest<'a> {
    pub e: &'a CudaExecutable,
    pub memory: &'a Memory,
    /// Buffers that lie elsewhere for this request.
    pub lent: Vec<Option<DevicePtr>>,
    pub pinned: &'a Arc<dyn Pinned>,
    pub compute: &'a Stream,
    pub copies: &'a Stream,
    pub events: &'a mut Vec<Event>,
    pub used: usize,
    pub ring: Option<MutexGuard<'a, Ring>>,
    /// Streamed weights: steps that need some, and how many of them were begun.
    pub loads: Vec<usize>,
    pub begun: usize,
    pub watch: Option<Watch>,
    pub far: Option<Far<'a>>,
    pub permit: Permit<'a>,
    /// Events behind the launches that may not be done, where the request may be called off, with how many
    /// launches each stands for.
    pub ahead: VecDeque<(usize, usize)>,
    /// Graphs of the frame; none where every launch is queued by itself.
    pub graphs: Option<&'a mut Graphs>,
    /// One of these events that was waited for, to be recorded once more.
    pub reusable_event: Option<usize>,
    /// Values on their way to the host in pieces: where they are staged, and the first of the events behind the
    /// pieces, one each.
    pub fetched: Vec<(usize, usize)>,
}

/// Launches that a request which may be called off is ahead of the GPU at most: enough that it is never
/// idle, and no more than what goes on after the call.
const AHEAD: usize = 8;

impl StreamRequest<'_> {
    pub fn address(&self, buffer: usize, step: usize) -> DevicePtr {
        if let Some(at) = self.lent[buffer] {
            return at;
        }
        let base = self.memory.ptr();
        match (self.e.places[buffer], &self.e.persistent.list[buffer]) {
            (Some(at), _) => base.offset(at),
            (None, PersistentBuffer::Host(_)) => {
                let n = self.loads.iter().position(|&l| l == step);
                let own = self.e.persistent.loads[step].iter().find(|l| l.0 == buffer);
                match (n, own, &self.ring) {
                    (Some(n), Some((_, at)), Some(r)) => r.slots[n % r.slots.len()].at.offset(*at),
                    _ => DevicePtr(0),
                }
            }
            (None, kept) => kept.ptr().unwrap_or(DevicePtr(0)),
        }
    }

    /// Whether the request is still wanted; waits until the GPU has at most [`AHEAD`] launches to do, or one
    /// graph.
    pub fn wanted(&mut self) -> Result<(), DeviceError> {
        while self.ahead.len() > 1
            && self.ahead.iter().map(|a| a.1).sum::<usize>() > AHEAD
            && let Some((e, _)) = self.ahead.pop_front()
        {
            let done = self.events[e].synchronize();
            done.map_err(self.e.failed("a request"))?;
            self.reusable_event = Some(e);
        }
        match self.permit.called_off() {
            true => Err(DeviceError::Cancelled),
            false => Ok(()),
        }
    }

    /// An event recorded in `stream` now; its number.
    pub fn event(&mut self, stream: &Stream) -> Result<usize, DeviceError> {
        let failed = self.e.failed("an event");
        if self.used == self.events.len() {
            let new = Event::new(&self.e.gpu.context).map_err(&failed)?;
            self.events.push(new);
        }
        self.used += 1;
        let n = self.used - 1;
        self.events[n].record(stream).map_err(failed)?;
        Ok(n)
    }

    /// Queues the upload of `bytes` for `buffer`; the event after it where it has its own stream.
    pub fn send(
        &mut self,
        (buffer, staged, step): (usize, usize, usize),
        bytes: &[u8],
    ) -> Result<Option<usize>, DeviceError> {
        let n = bytes.len();
        if n == 0 {
            return Ok(None);
        }
        let failed = self.e.failed("an input");
        if self.e.gpu.unified() {
            staging::write(self.pinned, staged, bytes).map_err(&failed)?;
            self.lent[buffer] = Some(self.pinned.device_ptr().offset(staged as u64));
            return Ok(None);
        }
        let to = self.address(buffer, step);
        let large = n >= LARGE;
        let (stream, lane) = match large {
            true => (self.copies, COPIES),
            false => (self.compute, COMPUTE),
        };
        let what = (Activity::Upload, step, n as u64);
        let (gpu, pinned) = (&self.e.gpu, self.pinned);
        Watch::around(&mut self.watch, gpu, stream, lane, what, || {
            staging::upload(&gpu.context, (pinned, staged), bytes, to, stream.id()).map_err(failed)
        })?;
        gpu.sent(n as u64);
        large.then(|| self.event(stream)).transpose()
    }

    /// Queues the download of `n` bytes of `buffer`, after what is queued for the steps.
    pub fn fetch(
        &mut self,
        (buffer, staged, step): (usize, usize, usize),
        n: usize,
    ) -> Result<(), DeviceError> {
        if n == 0 {
            return Ok(());
        }
        let failed = self.e.failed("an output");
        let from = self.address(buffer, step);
        if from == self.pinned.device_ptr().offset(staged as u64) {
            return Ok(());
        }
        let (stream, lane) = match n >= LARGE {
            true => {
                let e = self.event(self.compute)?;
                self.copies.wait(&self.events[e]).map_err(&failed)?;
                (self.copies, COPIES)
            }
            false => (self.compute, COMPUTE),
        };
        let (gpu, pinned) = (&self.e.gpu, self.pinned);
        gpu.fetched(n as u64);
        let queue = |r: Range<usize>| {
            let from = from.offset(r.start as u64);
            let at = staged + r.start..staged + r.end;
            let queued = gpu.context.download_into(pinned, at, from, stream.id());
            queued.map_err(&failed)
        };
        if n >= LARGE && self.watch.is_none() {
            self.fetched.push((staged, self.used));
            for r in staging::pieces(n) {
                queue(r)?;
                self.event(stream)?;
            }
            return Ok(());
        }
        let what = (Activity::Download, step, n as u64);
        Watch::around(&mut self.watch, gpu, stream, lane, what, || queue(0..n))
    }

    /// Queues what brings `port` to where the request wants it.
    pub fn take(&mut self, port: &Port, step: usize, out: &Out<'_>) -> Result<(), DeviceError> {
        let from = self.address(port.buffer, step);
        match out {
            Out::Host(to) => self.fetch((port.buffer, port.staged, step), to.len()),
            Out::Device(to, _) if *to == from => Ok(()),
            Out::Device(_, 0) => Ok(()),
            Out::Device(to, n) => {
                let (e, id) = (self.e, self.compute.id());
                let queued = e.gpu.context.copy(*to, from, *n as u64, id);
                queued.map_err(e.failed("an output"))
            }
        }
    }

    /// Queues copies of the weights that streaming step `n` reads.
    pub fn prefetch(&mut self, n: usize) -> Result<(), DeviceError> {
        let (Some(&step), Some(ring)) = (self.loads.get(n), &self.ring) else {
            return Ok(());
        };
        let failed = self.e.failed("streamed weights");
        let (slot, gpu) = (&ring.slots[n % ring.slots.len()], &self.e.gpu);
        if n >= ring.slots.len() {
            // Its pinned memory is free when it was copied, its device memory when it was read.
            slot.filled.synchronize().map_err(&failed)?;
            ring.copies.wait(&slot.read).map_err(&failed)?;
        }
        for &(b, at) in &self.e.persistent.loads[step] {
            let PersistentBuffer::Host(h) = &self.e.persistent.list[b] else {
                continue;
            };
            let bytes = h.bytes();
            slot.pinned.write(at as usize, bytes).map_err(&failed)?;
            let what = (Activity::Upload, step, bytes.len() as u64);
            Watch::around(&mut self.watch, gpu, &ring.copies, COPIES, what, || {
                let r = at as usize..at as usize + bytes.len();
                gpu.context
                    .upload_from(slot.at.offset(at), &slot.pinned, r, ring.copies.id())
                    .map_err(&failed)
            })?;
            gpu.sent(bytes.len() as u64);
        }
        slot.filled.record(&ring.copies).map_err(failed)
    }

    /// Words that launches write beside buffers.
    fn words(&self) -> Words {
        let at = |offset| self.memory.ptr().offset(offset);
        Words {
            faults: at(self.e.faults),
            arrivals: at(self.e.arrivals),
        }
    }

    /// Queues the launches of `steps` one by one.
    pub fn kernels(&mut self, steps: Range<usize>, p: &[i64]) -> Result<(), DeviceError> {
        let mut step = steps.start;
        while step < steps.end {
            let held = self.e.steps.held(step, steps.end, p);
            self.kernel((step, held > 1), p)?;
            step += held;
        }
        Ok(())
    }

    fn kernel(&mut self, (step, next): (usize, bool), p: &[i64]) -> Result<(), DeviceError> {
        let streams = self.loads.get(self.begun) == Some(&step);
        let failed = self.e.failed("streamed weights");
        if streams && let Some(ring) = &self.ring {
            let filled = &ring.slots[self.begun % ring.slots.len()].filled;
            self.compute.wait(filled).map_err(&failed)?;
        }
        let (e, compute) = (self.e, self.compute);
        let mut watch = self.watch.take();
        let words = self.words();
        let at = |b: usize| self.address(b, step);
        let what = (Activity::Kernel, step, 0);
        let queued = Watch::around(&mut watch, &e.gpu, compute, COMPUTE, what, || {
            let which = (step, false, next);
            e.steps.launch(&e.gpu, which, p, &at, words, compute)
        });
        self.watch = watch;
        let tasks = queued?;
        if tasks.is_some() {
            self.behind(1)?;
        }
        if let Some(w) = &mut self.watch {
            w.tasks(tasks.unwrap_or(0));
        }
        if streams && let Some(ring) = &self.ring {
            let slots = ring.slots.len();
            let read = &ring.slots[self.begun % slots].read;
            read.record(self.compute).map_err(&failed)?;
            self.begun += 1;
            self.prefetch(self.begun + slots - 1)?;
        }
        Ok(())
    }

    /// Marks the end of `launches` that were queued, where the request may be called off.
    fn behind(&mut self, launches: usize) -> Result<(), DeviceError> {
        if self.permit.cancel.is_none() {
            return Ok(());
        }
        let compute = self.compute;
        let event = match self.reusable_event.take() {
            None => self.event(compute)?,
            Some(e) => {
                let again = self.events[e].record(compute);
                again.map_err(self.e.failed("an event"))?;
                e
            }
        };
        self.ahead.push_back((event, launches));
        Ok(())
    }

    /// Queues the launches of `steps`, by one call where there is a graph of them.
    pub fn graph(&mut self, steps: Range<usize>, p: &[i64]) -> Result<(), DeviceError> {
        let Some(graphs) = self.graphs.take() else {
            return self.kernels(steps, p);
        };
        let launched = self.launch_graph(graphs, steps.clone(), p);
        self.graphs = Some(graphs);
        match launched? {
            true => self.behind(steps.len()),
            false => self.kernels(steps, p),
        }
    }

    /// Whether there is a graph of `steps`, which is queued then.
    fn launch_graph(
        &self,
        graphs: &mut Graphs,
        steps: Range<usize>,
        p: &[i64],
    ) -> Result<bool, DeviceError> {
        let (e, compute) = (self.e, self.compute);
        let failed = e.failed("a graph");
        let queue = || {
            let (words, mut step) = (self.words(), steps.start);
            while step < steps.end {
                let held = self.e.steps.held(step, steps.end, p);
                let at = |b: usize| self.address(b, step);
                let which = (step, step > steps.start, held > 1);
                e.steps.launch(&e.gpu, which, p, &at, words, compute)?;
                step += held;
            }
            Ok(())
        };
        let make = || Graph::of(&e.gpu.context, compute, queue, &failed);
        match graphs.graph(steps.start, (p, &self.lent), make) {
            Some(graph) => graph.launch(compute).map(|()| true).map_err(&failed),
            None => Ok(false),
        }
    }

    /// A step of the host, on the host's memory: what it reads of the device's was waited for when it
    /// was copied.
    pub fn far(&mut self, step: usize, p: &[i64]) -> Result<(), DeviceError> {
        let began = Instant::now();
        if let Some(f) = &mut self.far {
            let view = HostView {
                inputs: f.inputs,
                weights: &f.beside.weights,
                kept: Some(&f.beside.init_results),
            };
            let part = &f.beside.part;
            let block = (f.block, self.permit.cancel);
            part.run(step, block, f.memory, view, f.symbols, p)?;
        }
        if let Some(w) = &mut self.watch {
            w.host_step(step, began);
        }
        Ok(())
    }

    /// A copy between the two memories, in the order of the steps.
    pub fn copy(
        &mut self,
        step: usize,
        copy: &CopyDirection,
        p: &[i64],
    ) -> Result<(), DeviceError> {
        let short = || {
            let why = "what it copies is shorter than its shape";
            self.e.steps.error(step, why.into())
        };
        let n = copy.bytes(p).ok_or_else(short)?;
        if n == 0 {
            return Ok(());
        }
        let failed = self.e.failed("a copy");
        let (gpu, pinned, compute) = (&self.e.gpu, self.pinned, self.compute);
        let staged = self.e.staging_offsets[step];
        if gpu.unified() && copy.up {
            // The kernels read it where the host put it.
            if let Some(f) = &self.far {
                let bytes = f.memory.bytes(f.block, copy.from, f.view());
                let bytes = bytes.get(..n).ok_or_else(short)?;
                staging::write(pinned, staged, bytes).map_err(&failed)?;
            }
            self.lent[copy.to as usize] = Some(pinned.device_ptr().offset(staged as u64));
            return Ok(());
        }
        let here = if copy.up { copy.to } else { copy.from };
        let at = self.address(here as usize, step);
        let what = match copy.up {
            true => (Activity::Upload, step, n as u64),
            false => (Activity::Download, step, n as u64),
        };
        let range = staged..staged + n;
        if copy.up {
            let Some(f) = &self.far else {
                return Ok(());
            };
            let bytes = f.memory.bytes(f.block, copy.from, f.view());
            let bytes = bytes.get(..n).ok_or_else(short)?;
            gpu.sent(n as u64);
            return Watch::around(&mut self.watch, gpu, compute, COMPUTE, what, || {
                staging::upload(&gpu.context, (pinned, staged), bytes, at, compute.id())
                    .map_err(&failed)
            });
        }
        // Where the kernels wrote into staging, it is there.
        if at != pinned.device_ptr().offset(staged as u64) {
            Watch::around(&mut self.watch, gpu, compute, COMPUTE, what, || {
                gpu.context
                    .download_into(pinned, range, at, compute.id())
                    .map_err(&failed)
            })?;
            gpu.fetched(n as u64);
        }
        compute.synchronize().map_err(&failed)?;
        let e = self.e;
        if let Some(f) = &mut self.far {
            let to = f.memory.bytes_mut(copy.to).get_mut(..n);
            let to = to.ok_or_else(|| {
                let why = "what it copies is shorter than its shape";
                e.steps.error(step, why.into())
            })?;
            staging::read(pinned, staged, to, |_| Ok(())).map_err(&failed)?;
        }
        Ok(())
    }

    pub fn host(&mut self, step: usize, p: &[i64]) -> Result<(), DeviceError> {
        let Work::Host(h) = &self.e.steps.work[step] else {
            return Ok(());
        };
        let failed = self.e.failed("a host step's operand");
        self.copies.synchronize().map_err(&failed)?;
        self.compute.synchronize().map_err(&failed)?;
        let began = Instant::now();
        let gpu = &self.e.gpu;
        h.run(
            p,
            &|b, to| {
                if let (None, PersistentBuffer::Host(k)) =
                    (self.e.places[b], &self.e.persistent.list[b])
                {
                    let n = to.len();
                    to.copy_from_slice(&k.bytes()[..n]);
                    return Ok(());
                }
                gpu.fetched(to.len() as u64);
                let from = self.address(b, step);
                match to.is_empty() {
                    true => Ok(()),
                    false => gpu.context.download(to, from).map_err(&failed),
                }
            },
            &|b, from| {
                gpu.sent(from.len() as u64);
                let to = self.address(b, step);
                match from.is_empty() {
                    true => Ok(()),
                    false => gpu.context.upload(to, from).map_err(&failed),
                }
            },
            &|why| self.e.steps.error(step, why),
        )?;
        if let Some(w) = &mut self.watch {
            w.host_step(step, began);
        }
        Ok(())
    }
}
