//! What stays: weights, and what init makes of them, in device memory where it fits, and on the host
//! to be streamed where it does not.
use crate::DriverError;
use crate::driver::{DevicePtr, Pinned};
use crate::handles::{Event, Stream};
use crate::place::{Constant, Gpu};
use crate::pool::Block as Memory;
use crate::steps::{CompiledSteps, CopyDirection, Words, Work};
use device::{Device, DeviceError, HostMemory, HostPart, HostView, Shelf};
use layout::Arrange;
use plan::{Block, Bound, BufferKind, Params, VerifiedPlan};
use std::sync::{Arc, Mutex};
use tensor::{Bytes, WeightStore};

/// What is smaller stays in device memory in any case.
const SMALL: u64 = 4 << 10;
/// Memory left to others where the limit is what the driver says is free.
const MARGIN: u64 = 1 << 20;
const ALIGN: u64 = 256;

/// Bytes on the host.
pub(crate) enum OnHost {
    /// In the model's file.
    Weight(Bytes, usize),
    /// Made by init.
    Made(Vec<u8>),
}

impl OnHost {
    pub fn bytes(&self) -> &[u8] {
        match self {
            OnHost::Weight(b, n) => &b[..*n],
            OnHost::Made(v) => v,
        }
    }
}

/// Where a buffer that stays lies.
pub(crate) enum PersistentBuffer {
    /// It is no buffer that stays, or no step of a request reads it.
    No,
    Device(Memory),
    /// A constant that plans of the same model share.
    Shared(Arc<Constant>),
    Host(OnHost),
}

impl PersistentBuffer {
    /// Its address, where it is in device memory.
    pub fn ptr(&self) -> Option<DevicePtr> {
        match self {
            PersistentBuffer::Device(m) => Some(m.ptr()),
            PersistentBuffer::Shared(c) => Some(c.memory.ptr()),
            PersistentBuffer::No | PersistentBuffer::Host(_) => None,
        }
    }
}

/// One of the places, two where there is room, that streamed buffers pass through.
pub(crate) struct Slot {
    pub at: DevicePtr,
    pub pinned: Arc<dyn Pinned>,
    /// Copies into it are done; the step that read it is.
    pub filled: Event,
    pub read: Event,
}

/// Weights on their way.
pub(crate) struct Ring {
    _memory: Memory,
    pub slots: Vec<Slot>,
    pub copies: Stream,
}

/// What stays of a block.
pub(crate) struct PersistentBuffers {
    pub list: Vec<PersistentBuffer>,
    /// Per step: buffers to be copied, with their offsets in a slot.
    pub loads: Vec<Vec<(usize, u64)>>,
    /// Taken by one request at a time.
    pub ring: Option<Mutex<Ring>>,
    /// Addresses of the ring's places.
    passes: Vec<DevicePtr>,
    pub device_bytes: u64,
    pub streamed_bytes: u64,
}

/// What the memory of a block comes to.
struct Budget<'a> {
    block: &'a Block,
    place: u32,
    steps: &'a CompiledSteps,
    /// Bytes that a request needs.
    frame: u64,
}

fn is_kept(b: &Block, i: usize, place: u32) -> bool {
    let buf = &b.buffers[i];
    buf.place == place && matches!(buf.kind, BufferKind::Weight(_) | BufferKind::Init)
}

impl Budget<'_> {
    /// Which buffers are streamed, the bytes of a slot, and how many there are.
    fn streamed(&self, gpu: &Gpu) -> Result<(Vec<bool>, u64, u64), DeviceError> {
        let n = self.block.buffers.len();
        let mut wanted = vec![false; n];
        for &r in self.steps.reads.iter().flatten() {
            wanted[r] = is_kept(self.block, r, self.place);
        }
        let outputs = self.block.outputs.iter().map(|o| o.buffer as usize);
        let mut fixed = vec![false; n];
        for o in outputs.filter(|&o| is_kept(self.block, o, self.place)) {
            (wanted[o], fixed[o]) = (true, true);
        }
        for (s, w) in self.steps.work.iter().enumerate() {
            // What the host reads is where it can be read.
            if let Work::Host(_) | Work::CopyDirection(_) = w {
                self.steps.reads[s].iter().for_each(|&r| fixed[r] = true);
            }
        }
        let size = |i: usize| {
            self.block.buffers[i]
                .bytes
                .next_multiple_of(ALIGN)
                .max(ALIGN)
        };
        let all: u64 = (0..n).filter(|&i| wanted[i]).map(size).sum();
        let limit = gpu.memory()?.saturating_sub(match gpu.options.memory {
            Some(_) => 0,
            None => MARGIN,
        });
        // Pool blocks are rounded up.
        let room = limit.saturating_sub(self.frame.saturating_add(n as u64 * 512));
        if all <= room {
            return Ok((vec![false; n], 0, 0));
        }
        let short = |what: &str, bytes: u64| {
            Err(DeviceError::Memory {
                what: format!(
                    "{what} (weights take {all} bytes, a request {}, of {limit} to be had on {})",
                    self.frame, gpu.name
                ),
                bytes,
            })
        };
        if !gpu.options.streaming {
            return short("the model without streaming its weights", all + self.frame);
        }
        let may = |i: usize| wanted[i] && !fixed[i] && size(i) >= SMALL;
        let of_step = |s: &Vec<usize>| {
            let mut own: Vec<usize> = s.iter().copied().filter(|&r| may(r)).collect();
            own.arrange();
            own.dedup();
            own.into_iter().map(size).sum::<u64>()
        };
        let slot = self.steps.reads.iter().map(of_step).max().unwrap_or(0);
        let stay: u64 = (0..n).filter(|&i| wanted[i] && !may(i)).map(size).sum();
        // With one slot, copies wait for the step before.
        let fit = [2, 1].into_iter().find_map(|slots| {
            let left = room.checked_sub(stay + slots * slot)?;
            Some((slots, left))
        });
        let Some((slots, mut left)) = fit else {
            return short(
                "the model even with its weights streamed",
                stay + slot + self.frame,
            );
        };
        // In the order of their use, so that what is at hand first needs no copy before it.
        let mut streamed: Vec<bool> = (0..n).map(may).collect();
        for &r in self.steps.reads.iter().flatten() {
            if streamed[r] && size(r) <= left {
                left -= size(r);
                streamed[r] = false;
            }
        }
        Ok((streamed, slot, slots))
    }
}

impl PersistentBuffers {
    /// Weights put where they stay, and init run.
    pub fn new(
        (gpu, shelf): (&Gpu, &dyn Shelf),
        (plan, block, place): (&VerifiedPlan, usize, u32),
        b: &Block,
        weights: &Arc<WeightStore>,
        steps: &CompiledSteps,
        frame: u64,
        beside: Option<(&dyn Device, &mut HostMemory)>,
    ) -> Result<PersistentBuffers, DeviceError> {
        let budget = Budget {
            block: b,
            place,
            steps,
            frame,
        };
        let (streamed, slot, slots) = budget.streamed(gpu)?;
        let n = b.buffers.len();
        let mut wanted = vec![false; n];
        let outputs = b.outputs.iter().map(|o| o.buffer as usize);
        for r in steps.reads.iter().flatten().copied().chain(outputs) {
            wanted[r] = is_kept(b, r, place);
        }
        let mut list: Vec<PersistentBuffer> = (0..n).map(|_| PersistentBuffer::No).collect();
        Init {
            gpu,
            shelf,
            plan,
            block,
            place,
            b,
            weights,
            wanted: &wanted,
            streamed: &streamed,
        }
        .run(&mut list, beside)?;
        for i in (0..n).filter(|&i| wanted[i]) {
            if let (PersistentBuffer::No, BufferKind::Weight(id)) = (&list[i], b.buffers[i].kind) {
                let w = weight(gpu, b, i, weights)?;
                let place = || placed(gpu, &b.buffers[i].name, w.bytes());
                list[i] = match streamed[i] {
                    false => PersistentBuffer::Shared(gpu.constant(weights, id, place)?),
                    true => PersistentBuffer::Host(w),
                };
            }
        }
        let mut loads = vec![];
        for s in &steps.reads {
            let mut own: Vec<usize> = s.iter().copied().filter(|&r| streamed[r]).collect();
            own.arrange();
            own.dedup();
            let mut at = 0;
            loads.push(
                own.into_iter()
                    .map(|r| {
                        let here = at;
                        at += b.buffers[r].bytes.next_multiple_of(ALIGN);
                        (r, here)
                    })
                    .collect(),
            );
        }
        let bytes = |f: &dyn Fn(&PersistentBuffer) -> bool| -> u64 {
            let of = list.iter().zip(&b.buffers).filter(|(k, _)| f(k));
            of.map(|(_, buf)| buf.bytes).sum()
        };
        let ring = match slot {
            0 => None,
            _ => Some(Ring::new(gpu, slot, slots)?),
        };
        Ok(PersistentBuffers {
            device_bytes: bytes(&|k| k.ptr().is_some()),
            streamed_bytes: bytes(&|k| matches!(k, PersistentBuffer::Host(_))),
            passes: ring.iter().flat_map(|r| &r.slots).map(|s| s.at).collect(),
            ring: ring.map(Mutex::new),
            loads,
            list,
        })
    }

    /// Places that streamed buffers pass through; none where nothing is streamed.
    pub fn passes(&self) -> usize {
        self.passes.len()
    }

    /// Streamed buffers that `step` reads, each with where it lies for that step.
    pub fn passing(&self, step: usize) -> Vec<(usize, DevicePtr)> {
        let loads = self.loads[..step].iter();
        let before = loads.filter(|l| !l.is_empty()).count();
        match self.passes.len() {
            0 => vec![],
            n => {
                let base = self.passes[before % n];
                let own = self.loads[step].iter();
                own.map(|&(b, at)| (b, base.offset(at))).collect()
            }
        }
    }

    /// Page-locked copies of the streamed buffers, by buffer.
    ///
    /// # Errors
    /// The host has not so much memory to lock.
    pub fn pinned(&self, gpu: &Gpu) -> Result<Vec<Option<Arc<dyn Pinned>>>, DriverError> {
        let one = |k: &PersistentBuffer| match k {
            PersistentBuffer::Host(h) => {
                let bytes = h.bytes();
                let p = gpu.context.pinned(bytes.len().max(1))?;
                p.write(0, bytes)?;
                Ok(Some(p))
            }
            _ => Ok(None),
        };
        self.list.iter().map(one).collect()
    }
}

impl Ring {
    fn new(gpu: &Gpu, slot: u64, slots: u64) -> Result<Ring, DeviceError> {
        let failed = |e| gpu.failed("room for streamed weights", e);
        let memory = gpu.pool.take(slots * slot).map_err(failed)?;
        let one = |n: u64| -> Result<Slot, DeviceError> {
            Ok(Slot {
                at: memory.ptr().offset(n * slot),
                pinned: gpu.context.pinned(slot as usize).map_err(failed)?,
                filled: Event::new(&gpu.context).map_err(failed)?,
                read: Event::new(&gpu.context).map_err(failed)?,
            })
        };
        Ok(Ring {
            slots: (0..slots).map(one).collect::<Result<_, _>>()?,
            copies: Stream::new(&gpu.context, 0).map_err(failed)?,
            _memory: memory,
        })
    }
}

/// Constant `i` where it lies on the host.
fn weight(gpu: &Gpu, b: &Block, i: usize, weights: &WeightStore) -> Result<OnHost, DeviceError> {
    let buf = &b.buffers[i];
    let BufferKind::Weight(id) = buf.kind else {
        return Ok(OnHost::Made(vec![]));
    };
    let found = weights.get(id);
    let w = found.filter(|w| w.bytes.len() as u64 >= buf.bytes);
    let w = w.ok_or_else(|| DeviceError::Unsupported {
        device: gpu.name.clone(),
        step: buf.name.clone(),
        why: format!(
            "the model has no constant {id} of {} bytes; the plan was made for another model",
            buf.bytes
        ),
    })?;
    Ok(OnHost::Weight(w.bytes.clone(), buf.bytes as usize))
}

/// `bytes` in device memory.
fn placed(gpu: &Gpu, name: &str, bytes: &[u8]) -> Result<Memory, DeviceError> {
    let failed = |e| gpu.failed(name, e);
    let m = gpu.pool.take(bytes.len() as u64).map_err(failed)?;
    gpu.context.upload(m.ptr(), bytes).map_err(failed)?;
    gpu.sent(bytes.len() as u64);
    Ok(m)
}

/// The init segment, step by step: no more of it is in device memory at once than a step needs and
/// later ones read.
struct Init<'a> {
    gpu: &'a Gpu,
    shelf: &'a dyn Shelf,
    plan: &'a VerifiedPlan,
    block: usize,
    place: u32,
    b: &'a Block,
    weights: &'a WeightStore,
    wanted: &'a [bool],
    streamed: &'a [bool],
}

impl Init<'_> {
    /// Copies `n` bytes between host and device; `None` where the host's memory is shorter.
    fn copy(
        &self,
        r: &CopyDirection,
        n: usize,
        (m, view): (&mut HostMemory, HostView<'_>),
        at: &dyn Fn(usize) -> DevicePtr,
    ) -> Result<Option<()>, DeviceError> {
        let failed = |e| self.gpu.failed("init", e);
        let (gpu, b) = (self.gpu, self.b);
        if r.up {
            let Some(bytes) = m.bytes(b, r.from, view).get(..n) else {
                return Ok(None);
            };
            gpu.sent(n as u64);
            let to = at(r.to as usize);
            gpu.context.upload(to, bytes).map_err(failed)?;
        } else {
            let Some(to) = m.bytes_mut(r.to).get_mut(..n) else {
                return Ok(None);
            };
            gpu.fetched(n as u64);
            let from = at(r.from as usize);
            gpu.context.download(to, from).map_err(failed)?;
        }
        Ok(Some(()))
    }

    /// Memory for buffer `t`, with its bytes where the model has them.
    fn brought(&self, t: usize) -> Result<Memory, DeviceError> {
        let (gpu, b) = (self.gpu, self.b);
        let buf = &b.buffers[t];
        match buf.kind {
            BufferKind::Weight(_) => {
                placed(gpu, &buf.name, weight(gpu, b, t, self.weights)?.bytes())
            }
            _ => gpu.pool.take(buf.bytes).map_err(|e| gpu.failed("init", e)),
        }
    }

    /// Where buffer `t` stays, which lies in `m` now.
    fn stays(&self, t: usize, m: Memory) -> Result<PersistentBuffer, DeviceError> {
        let failed = |e| self.gpu.failed("init", e);
        let (gpu, b) = (self.gpu, self.b);
        Ok(match self.streamed[t] {
            false => PersistentBuffer::Device(m),
            true => {
                let mut bytes = vec![0; b.buffers[t].bytes as usize];
                gpu.context.download(&mut bytes, m.ptr()).map_err(failed)?;
                gpu.fetched(bytes.len() as u64);
                PersistentBuffer::Host(OnHost::Made(bytes))
            }
        })
    }

    fn run(
        &self,
        list: &mut [PersistentBuffer],
        mut beside: Option<(&dyn Device, &mut HostMemory)>,
    ) -> Result<(), DeviceError> {
        let (gpu, b) = (self.gpu, self.b);
        if b.init.is_empty() {
            return Ok(());
        }
        let mut params = Params::new();
        let programs = self.plan.init_programs(self.block);
        let init = (b, &b.init[..], self.place);
        let steps = CompiledSteps::compile((gpu, self.shelf), init, programs, &mut params)?;
        let part = match &beside {
            Some((h, _)) => Some(HostPart::new(*h, self.plan, b, &b.init, &mut params)?),
            None => None,
        };
        let dims = &self.plan.plan().dims;
        let mut bound = Bound::new(&params, &b.symbols, dims)?;
        let top = b.largest_sizes(dims);
        let p = bound.at(&top)?;
        let view = HostView {
            inputs: &[],
            weights: self.weights,
            kept: None,
        };
        let failed = |e| gpu.failed("init", e);
        let stream = Stream::new(&gpu.context, 0).map_err(failed)?;
        let words = vec![0; b.init.len() * 4];
        let faults = placed(gpu, "words for faults", &words)?;
        let mut last = vec![0; b.buffers.len()];
        for (i, (r, w)) in steps.reads.iter().zip(&steps.writes).enumerate() {
            r.iter().chain(w).for_each(|&x| last[x] = i);
        }
        let mut now: Vec<Option<Memory>> = (0..b.buffers.len()).map(|_| None).collect();
        for i in 0..b.init.len() {
            let touched = || steps.reads[i].iter().chain(&steps.writes[i]).copied();
            for t in touched() {
                if now[t].is_none() {
                    now[t] = Some(self.brought(t)?);
                }
            }
            let at = |x: usize| now[x].as_ref().map_or(DevicePtr(0), Memory::ptr);
            match &steps.work[i] {
                Work::Kernel(_) => {
                    let words = Words {
                        faults: faults.ptr(),
                        arrivals: DevicePtr(0),
                    };
                    steps.launch(gpu, (i, false, false), p, &at, words, &stream)?;
                }
                Work::Host(h) => {
                    stream.synchronize().map_err(failed)?;
                    h.run(
                        p,
                        &|x, to| gpu.context.download(to, at(x)).map_err(failed),
                        &|x, from| gpu.context.upload(at(x), from).map_err(failed),
                        &|why| steps.error(i, why),
                    )?;
                }
                Work::Far => {
                    if let (Some(part), Some((_, m))) = (&part, &mut beside) {
                        part.run(i, (b, None), m, view, &top, p)?;
                    }
                }
                Work::CopyDirection(r) => {
                    let short =
                        || steps.error(i, "what it copies is shorter than its shape".into());
                    let Some((_, m)) = &mut beside else {
                        return Err(short());
                    };
                    stream.synchronize().map_err(failed)?;
                    let n = r.bytes(p).ok_or_else(short)?;
                    self.copy(r, n, (m, view), &at)?.ok_or_else(short)?;
                }
            }
            for t in touched() {
                if last[t] != i || now[t].is_none() {
                    continue;
                }
                // Its memory is used again as soon as it is let go of.
                stream.synchronize().map_err(failed)?;
                let Some(m) = now[t].take() else { continue };
                let file = matches!(b.buffers[t].kind, BufferKind::Weight(_));
                if !self.wanted[t] || file && self.streamed[t] {
                    continue;
                }
                list[t] = self.stays(t, m)?;
            }
        }
        let done = stream.synchronize();
        let mut words = words;
        let read = gpu.context.download(&mut words, faults.ptr());
        read.map_err(failed)?;
        steps.fault(&words)?;
        done.map_err(failed)
    }
}
