//! A block whose requests go to a kernel that stays on the GPU.
//!
//! Inputs and outputs are copied by the kernel itself, from and to pinned memory, as tasks before and
//! behind the plan's; so a request takes no call of the driver. All memory is made and the module is
//! loaded when the block is compiled. Requests take one of a few slots, and wait when none is free: the
//! ring has as many entries, so it is never more than full. A block with steps of the host is pushed in
//! stretches, with those steps between them ([`super::section`]). For a timeline the workers write down
//! what their clocks say ([`super::clocks`]). What needs the driver (values on the device, a run that ends
//! early) goes step by step, for which the kernel leaves first.
//!
//! Weights that do not fit are copied by the kernel too, from page-locked memory that holds them all, ahead
//! of the steps that read them. Copies that the driver makes in a stream of their own are allowed beside a
//! kernel that runs, and leave its workers free; but the host would have to start each of them in the middle
//! of a request, when it learns that a place is free, and tell the kernel of its end: two more ways over the
//! link per place, and a worker that waits for the host. Here a weight on its way is an entry like others,
//! its tasks are counted and waited for as theirs, and a request stays without a call of the driver. The
//! price: page-locked memory for all that is streamed, workers that copy instead of computing while they
//! do, and one request at a time, as there is one ring of places. A block for which the host cannot lock so
//! much runs step by step.
//!
//! Whoever waits for an answer only reads memory. After `CudaOptions::watchdog` without one the driver is
//! asked whether the kernel is still there, and the workers' own words are read twice: when nothing has
//! moved in between, they become the request's error and the kernel is told to leave.
//!
//! Whoever waits also looks whether the request was called off: it then says so in the ring, the workers
//! leave the rest of its tasks out, and the answer comes when those under way are done.
mod hang;

use super::clocks::Clocks;
use super::section::{self, Entry, From, PIECE, Phase, Section};
use super::slots::{Slots, Taken, wanted};
use super::{CudaExecutable, CudaFrame, StateBuffers, block_of};
use crate::driver::{DevicePtr, FunctionId, Launch, Pinned};
use crate::modules::Module;
use crate::place::Gpu;
use crate::pool::{Block as Memory, Pool};
use crate::resident::{Live, PinnedWords, Start, answer};
use crate::staging;
use crate::steps::{CopyDirection, Work};
use device::{Call, Tables};
use device::{
    DeviceError, Executable, Frame, HostMemory, HostView, Permit, Request, UnifiedRequest,
};
use emit::ptx::resident::{Abi, Idle, Resident};
use kernel::TileProgram;
use layout::Dim;
use machine::Way;
use plan::{Activity, Block, Bound, BufferKind, Params, Timeline};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use workers::ring::{Answer, Ring, RingError, Times, abi};

const NAME: &str = "the resident kernel";
/// Requests that may be under way in a kernel.
const SLOTS: usize = 4;
/// Tables that a kernel can have: what a ticket's word has room for.
const MOST_TABLES: usize = 2048;
/// Dynamic shared memory that a launch may have without asking.
const SHARED: u32 = 48 << 10;
/// Polls of a worker after which its wait is late and looks whether to leave: some milliseconds.
const PATIENCE: u32 = 1 << 13;
/// Polls of the host between looks at its clock.
const POLLS: u32 = 1024;

static OWNERS: AtomicU64 = AtomicU64::new(1);

/// Memory of a slot.
struct Slot {
    memory: Memory,
    pinned: Arc<dyn Pinned>,
}

impl Slot {
    fn of(e: &CudaExecutable) -> Result<Slot, DeviceError> {
        let failed = |error| e.gpu.failed(NAME, error);
        Ok(Slot {
            memory: e.gpu.pool.take(e.frame_bytes).map_err(failed)?,
            pinned: e
                .gpu
                .context
                .pinned(e.staged_bytes.max(16))
                .map_err(failed)?,
        })
    }
}

/// Device memory of `bytes` zeros.
fn zeroed(gpu: &Gpu, bytes: usize) -> Result<Memory, DeviceError> {
    let failed = |e| gpu.failed(NAME, e);
    let zeros = vec![0; bytes.max(16)];
    let m = gpu.pool.take(zeros.len() as u64).map_err(failed)?;
    gpu.context.upload(m.ptr(), &zeros).map_err(failed)?;
    Ok(m)
}

/// A compiled block with a resident kernel.
pub(crate) struct ResidentExecutable {
    inner: CudaExecutable,
    params: Params,
    stretches: Vec<Section>,
    phases: Vec<Phase>,
    /// Numbers of dimensions in waits.
    dims: BTreeMap<Dim, u32>,
    slots: Vec<Slot>,
    uses: Slots,
    /// Streamed buffers in page-locked memory, by buffer.
    streamed: Vec<Option<Arc<dyn Pinned>>>,
    start: Start,
    payloads: Arc<dyn Pinned>,
    ring: Arc<Mutex<Ring<PinnedWords>>>,
    owner: u64,
    workers: u32,
    /// Where workers write their times; one request at a time has it.
    times: Mutex<Arc<dyn Pinned>>,
    _memory: Vec<Memory>,
    _module: Arc<Module>,
}

/// A stretch to be pushed.
struct Push<'a, 'b> {
    stretch: usize,
    /// Whether its tables are to be written.
    fresh: bool,
    /// Parameters, and the states of the request.
    p: &'a [i64],
    kept: &'a StateBuffers<'b>,
    /// Where workers are to write their times.
    times: Option<&'a Arc<dyn Pinned>>,
    permit: Permit<'a>,
}

/// What a request says but for its states.
struct Asked<'a, 'b> {
    symbols: &'a [i64],
    inputs: &'a [&'a [u8]],
    outputs: &'a mut [&'b mut [u8]],
    timeline: Option<&'a mut Timeline>,
    permit: Permit<'a>,
}

/// A request in the slot that it has.
struct InSlot<'a, 'b> {
    taken: Taken<'a>,
    /// What tables that are written for it are for.
    key: Vec<i64>,
    p: &'a [i64],
    kept: &'a StateBuffers<'b>,
    timed: Option<Timed<'a>>,
    permit: Permit<'a>,
}

/// The timeline that a request wants.
struct Timed<'a> {
    times: MutexGuard<'a, Arc<dyn Pinned>>,
    clocks: Clocks,
    timeline: &'a mut Timeline,
}

/// A frame: parameters, what runs step by step, and the host's memory.
struct ResidentFrame {
    bound: Bound,
    other: Option<Frame>,
    host: Option<HostMemory>,
}

/// What became of a block that was to run in a kernel that stays.
pub(crate) enum ResidentStart {
    /// It runs, in such a kernel where that can be.
    Made(Arc<dyn Executable>),
    /// Its weights are streamed: it is to be made anew with so many bytes kept free.
    Short(u64),
}

/// Whether a kernel can stay for the block: it has steps on the GPU, none by the driver's calls and none
/// in PTX of its user's, whose plan says so.
fn possible(e: &CudaExecutable) -> bool {
    let mut work = e.steps.work.iter();
    let called = work.any(|w| matches!(w, Work::Host(_)));
    let some = e.steps.work.iter().any(|w| matches!(w, Work::Kernel(_)));
    let few = section::count(e) * (SLOTS + 1) < MOST_TABLES;
    let own = |w: &Work| matches!(w, Work::Kernel(k) if k.is_own());
    some && few && !called && !e.steps.work.iter().any(own) && !e.gpu.unified()
}

fn unsupported(gpu: &Gpu, why: String) -> DeviceError {
    DeviceError::Unsupported {
        device: gpu.name.clone(),
        step: NAME.into(),
        why,
    }
}

/// The kernel of a block, on the GPU.
struct Loaded {
    module: Arc<Module>,
    function: FunctionId,
    code: Resident,
    /// CTAs that are on the GPU at once.
    ctas: u64,
}

impl Loaded {
    /// The kernel of all steps of `e` that are kernels, for a ring of `capacity` entries.
    fn of(e: &CudaExecutable, capacity: u32) -> Result<Loaded, DeviceError> {
        let gpu = &e.gpu;
        let fail = |why: String| unsupported(gpu, why);
        let programs = e.plan.step_programs(e.block).iter();
        let own = programs.zip(&e.steps.work);
        let own = own.filter(|(_, w)| matches!(w, Work::Kernel(_)));
        let programs: Vec<&TileProgram> = own.filter_map(|(p, _)| p.as_ref()).collect();
        let abi = Abi::new(capacity, &abi::offsets(capacity))
            .ok_or_else(|| fail("an offset of the protocol is missing".into()))?;
        let optin = gpu.context.info().shared_per_block_optin;
        let code = emit::ptx::resident::emit(&programs, (gpu.arch, optin), &abi, Idle::default())
            .map_err(|e| fail(e.to_string()))?;
        let failed = |e| gpu.failed(NAME, e);
        let module = gpu.modules.load(&code.text).map_err(failed)?;
        let function = module.function(&code.entry).map_err(failed)?;
        let shape = code.shape;
        if shape.shared_bytes + code.static_shared > SHARED {
            let asked = gpu.context.allow_shared(function, shape.shared_bytes);
            asked.map_err(failed)?;
        }
        let per = gpu
            .context
            .blocks_per_sm(function, shape.threads, shape.shared_bytes)
            .map_err(failed)?;
        let ctas = u64::from(per) * u64::from(gpu.context.info().sms);
        if ctas < 2 {
            return Err(fail(format!(
                "{ctas} of its CTAs fit on the GPU, two are needed"
            )));
        }
        Ok(Loaded {
            module,
            function,
            code,
            ctas,
        })
    }
}

impl ResidentExecutable {
    /// `inner` with a kernel that stays, or as it is where that cannot be.
    pub fn over(inner: CudaExecutable) -> Result<ResidentStart, DeviceError> {
        if !possible(&inner) {
            return Ok(ResidentStart::Made(Arc::new(inner)));
        }
        match inner.kept.pinned(&inner.gpu) {
            Ok(streamed) => ResidentExecutable::made(inner, streamed),
            Err(_) => Ok(ResidentStart::Made(Arc::new(inner))),
        }
    }

    fn made(
        inner: CudaExecutable,
        streamed: Vec<Option<Arc<dyn Pinned>>>,
    ) -> Result<ResidentStart, DeviceError> {
        let gpu = inner.gpu.clone();
        let plan = inner.plan.clone();
        let b = block_of(&plan, inner.block)?;
        let fail = |why: String| unsupported(&gpu, why);
        let failed = |e| gpu.failed(NAME, e);
        // Streamed weights pass through places that only one request can have.
        let slots = match inner.kept.passes() {
            0 => SLOTS,
            _ => 1,
        };
        // One more slot is for requests without work.
        let capacity = (slots as u32 + 1).next_power_of_two();
        let Loaded {
            module,
            function,
            code,
            ctas,
        } = Loaded::of(&inner, capacity)?;
        let shape = code.shape;
        let mut params = inner.params.clone();
        let cut = section::cut(&inner, b, (&code, ctas - 1), &mut params)
            .map_err(|e| fail(e.to_string()))?;
        let tables = match cut.stretches.first() {
            Some(s) => &s.tables,
            None => return Err(fail("none of its steps is on the GPU".into())),
        };
        let workers = (ctas - 1).min(cut.most.max(1)) as u32;
        // A slot's tables for every stretch, and those of requests without work.
        let own = slots * cut.stretches.len();
        // Memory: what streaming left was counted without this.
        let sizes = [
            workers as usize * size_of::<abi::StatusEntry>(),
            abi::feed_bytes(capacity),
            tables.slot_bytes() * (own + 1),
        ];
        if inner.kept.passes() > 0 {
            // One frame was counted; what needs the driver has one of its own.
            let needs: u64 = sizes.iter().map(|&n| Pool::size(n as u64)).sum();
            let needs = needs + Pool::size(inner.frame_bytes);
            if needs > inner.spare {
                return Ok(ResidentStart::Short(needs));
            }
        }
        let pinned = |bytes: usize| gpu.context.pinned(bytes.max(16)).map_err(failed);
        let [status, feed, table] = sizes.map(|bytes| zeroed(&gpu, bytes));
        let (status, feed, table) = (status?, feed?, table?);
        let payloads = pinned(tables.payload_bytes() * (own + 1))?;
        let empty = section::nothing(code.copy_body()).map_err(|e| fail(e.to_string()))?;
        let at = tables.payload_bytes() * own;
        payloads.write(at, &empty).map_err(failed)?;
        let longest = cut.stretches.iter().map(|s| s.entries.len()).max();
        let times = pinned(Times::bytes(longest.unwrap_or(0), workers))?;
        let ring = Ring::new(PinnedWords(pinned(abi::ring_bytes(capacity))?), capacity);
        let all: Result<Vec<Slot>, DeviceError> = (0..slots).map(|_| Slot::of(&inner)).collect();
        Ok(ResidentStart::Made(Arc::new(ResidentExecutable {
            start: Start {
                function,
                shape: Launch {
                    grid: [workers + 1, 1, 1],
                    block: [shape.threads, 1, 1],
                    shared_bytes: shape.shared_bytes,
                    early: false,
                },
                feed: feed.ptr(),
                feed_bytes: abi::feed_bytes(capacity) as u64,
                slots: table.ptr(),
                payloads: payloads.device_ptr(),
                status: status.ptr(),
                slot_bytes: tables.slot_bytes() as u64,
                payload_bytes: tables.payload_bytes() as u64,
                cleared: tables.cleared(),
                patience: PATIENCE,
                empty: own as u32,
            },
            params,
            slots: all?,
            uses: Slots::new(slots, cut.stretches.len()),
            streamed,
            payloads,
            ring: Arc::new(Mutex::new(ring)),
            owner: OWNERS.fetch_add(1, Ordering::Relaxed),
            stretches: cut.stretches,
            phases: cut.phases,
            dims: cut.dims,
            workers,
            times: Mutex::new(times),
            _memory: vec![status, feed, table],
            _module: module,
            inner,
        })))
    }

    fn failed(&self, e: crate::DriverError) -> DeviceError {
        self.inner.gpu.failed("a request of the resident kernel", e)
    }

    /// Address of a buffer for a slot and the states of a request.
    fn address(&self, slot: &Slot, kept: &StateBuffers<'_>, buffer: usize) -> DevicePtr {
        if let Some(k) = kept.here.iter().find(|k| k.0 == buffer) {
            return k.1;
        }
        match self.inner.places[buffer] {
            Some(at) => slot.memory.ptr().offset(at),
            None => self.inner.kept.list[buffer].ptr().unwrap_or(DevicePtr(0)),
        }
    }

    /// Number of the tables of slot `n` for stretch `k`.
    fn table(&self, n: usize, k: usize) -> usize {
        n * self.stretches.len() + k
    }

    /// Writes the tables of a push.
    fn write(&self, n: usize, push: &Push<'_, '_>) -> Result<(), DeviceError> {
        let (e, p) = (&self.inner, push.p);
        let (slot, s) = (&self.slots[n], &self.stretches[push.stretch]);
        let number = self.table(n, push.stretch);
        let base = (number * s.tables.slot_bytes()) as u64;
        let base = self.start.slots.offset(base);
        let mut values: Vec<(u64, Vec<u64>)> = vec![];
        for (i, entry) in s.entries.iter().enumerate() {
            let list = match entry {
                Entry::Copy {
                    way,
                    staged,
                    buffer,
                    ..
                } => {
                    let host = slot.pinned.device_ptr().offset(*staged as u64).0;
                    let here = self.address(slot, push.kept, *buffer).0;
                    let (from, to) = match way {
                        Activity::Upload => (host, here),
                        _ => (here, host),
                    };
                    vec![from, to, entry.bytes(e, p), PIECE]
                }
                Entry::Load { buffer, bytes, to } => {
                    let from = self.streamed[*buffer].as_ref();
                    let from = from.map_or(0, |p| p.device_ptr().0);
                    vec![from, to.0, *bytes, PIECE]
                }
                Entry::Step { params, .. } => {
                    let one = |f: &From| match f {
                        From::Here(at) => at.0,
                        From::Buffer(b) => self.address(slot, push.kept, *b).0,
                        From::Param(d) => p[*d as usize] as u64,
                        From::Fault => base.offset(s.tables.fault(i).unwrap_or(0) as u64).0,
                    };
                    params.iter().map(one).collect()
                }
            };
            values.push((entry.tasks(e, p), list));
        }
        let calls: Vec<Call<'_>> = values
            .iter()
            .map(|(tasks, params)| Call {
                tasks: *tasks,
                params,
            })
            .collect();
        let value = |d: &Dim| match d.known() {
            Some(v) => Some(v),
            None => self.dims.get(d).map(|&i| p[i as usize]),
        };
        let mut payload = vec![];
        s.tables
            .fill(&calls, &value, &mut payload)
            .map_err(|e| self.inner.refused(&e.to_string()))?;
        if let Some(times) = push.times {
            Tables::timed(&mut payload, times.device_ptr().0);
        }
        self.payloads
            .write(number * s.tables.payload_bytes(), &payload)
            .map_err(|e| self.failed(e))
    }

    /// Pushes a stretch for a slot, with fresh tables where it has none for it, to this block's kernel,
    /// which is started where another one or none is there.
    fn push(
        &self,
        taken: &Taken<'_>,
        push: &Push<'_, '_>,
    ) -> Result<(u32, Arc<Live>), DeviceError> {
        let began = Instant::now();
        loop {
            wanted(push.permit)?;
            if let Some(pushed) = self.try_push(taken, push)? {
                return Ok(pushed);
            }
            if began.elapsed() > self.inner.gpu.options.watchdog {
                let why = "the ring stayed full; somebody does not take an answer";
                return Err(self.inner.refused(why));
            }
            std::thread::yield_now();
        }
    }

    /// The same, unless every entry of the ring is under way.
    fn try_push(
        &self,
        taken: &Taken<'_>,
        push: &Push<'_, '_>,
    ) -> Result<Option<(u32, Arc<Live>)>, DeviceError> {
        let gpu = &self.inner.gpu;
        let own =
            |live: &Option<Arc<Live>>| live.as_ref().filter(|l| l.owner == self.owner).cloned();
        let now = gpu.stays.now();
        gpu.alive()?;
        if let Some(l) = own(&now) {
            return self.push_to(l, taken, push);
        }
        drop(now);
        let mut live = gpu.stays.change();
        gpu.alive()?;
        let own = match own(&live) {
            Some(l) => l,
            None => {
                if let Some(l) = live.take() {
                    l.leave().map_err(|e| self.failed(e))?;
                }
                let new = Live::start(&gpu.context, &self.ring, &self.start, self.owner);
                let new = Arc::new(new.map_err(|e| self.failed(e))?);
                *live = Some(new.clone());
                new
            }
        };
        self.push_to(own, taken, push)
    }

    /// Pushes to a kernel that is not told to leave meanwhile.
    fn push_to(
        &self,
        own: Arc<Live>,
        taken: &Taken<'_>,
        push: &Push<'_, '_>,
    ) -> Result<Option<(u32, Arc<Live>)>, DeviceError> {
        // Slots are cleared by whoever tells a kernel to leave.
        let fresh = push.fresh || self.uses.cleared_since(taken);
        if fresh {
            self.write(taken.slot, push)?;
        }
        let number = self.table(taken.slot, push.stretch);
        let seq = own.push(number as u32, fresh);
        let seq = seq.map_err(|e| self.failed(e))?;
        Ok(seq.map(|seq| (seq, own)))
    }

    /// Waits for the answer to `seq`, a push of stretch `k`, by reading memory alone as long as all goes
    /// well, and tells the workers when the request is called off.
    fn wait(
        &self,
        seq: u32,
        k: usize,
        (live, permit): (&Arc<Live>, Permit<'_>),
    ) -> Result<Answer, DeviceError> {
        let gpu = &self.inner.gpu;
        let failed = |why: String| DeviceError::Failed {
            device: gpu.name.clone(),
            why: format!("the resident kernel: {why}"),
        };
        let ask = || match answer(&self.ring, seq) {
            Ok(a) => Ok(a),
            Err(RingError::Words(e)) => Err(self.failed(e)),
            Err(_) => Err(failed(
                "it was told to leave when another request stood still; ask again".into(),
            )),
        };
        let (mut since, mut polls, mut seen) = (Instant::now(), 0u32, None);
        let mut told = false;
        let found = loop {
            if let Some(a) = ask()? {
                break a;
            }
            if !told && permit.called_off() {
                live.call_off(seq).map_err(|e| self.failed(e))?;
                told = true;
            }
            polls = polls.wrapping_add(1);
            if !polls.is_multiple_of(POLLS) || since.elapsed() < gpu.options.watchdog {
                std::hint::spin_loop();
                continue;
            }
            since = Instant::now();
            let over = live.is_over(&gpu.context);
            let now = self.dump(k);
            if let Some(a) = ask()? {
                break a;
            }
            let table = now.as_ref().map_or(String::new(), |d| format!("\n{d}"));
            match over {
                Err(e) => return Err(failed(format!("{e}{table}"))),
                Ok(true) => return Err(failed(format!("it left without an answer{table}"))),
                Ok(false) if seen.is_some() && seen == now => {
                    return Err(failed(self.hang(live, &table)));
                }
                Ok(false) => seen = now,
            }
        };
        if found.called_off {
            return Err(DeviceError::Cancelled);
        }
        let Some(f) = found.failed else {
            return Ok(found);
        };
        let (s, step) = (&self.stretches[k], f.step as usize);
        let list = s.faults.get(step);
        let why = list.and_then(|l| l.get((f.fault as usize).wrapping_sub(1)).cloned());
        let why = why.unwrap_or_else(|| format!("fault {}", f.fault));
        let at = s.steps.get(step).copied().unwrap_or(0);
        Err(self.inner.steps.error(at, why))
    }

    /// Runs a request.
    fn resident(&self, f: &mut ResidentFrame, r: Request<'_>) -> Result<(), DeviceError> {
        let e = &self.inner;
        let b = block_of(&e.plan, e.block)?;
        if r.symbols.len() != b.symbols.len()
            || r.inputs.len() != e.inputs.len()
            || r.outputs.len() != e.outputs.len()
            || r.states.len() != b.states.len()
        {
            return Err(
                e.refused("symbols, inputs, outputs or states are not as many as the block has")
            );
        }
        let p = f.bound.at(r.symbols)?.to_vec();
        for (port, bytes) in e.inputs.iter().zip(r.inputs) {
            port.takes(&p, bytes.len())?;
        }
        for (port, bytes) in e.outputs.iter().zip(r.outputs.iter()) {
            port.takes(&p, bytes.len())?;
        }
        // Bringing state here may need the driver, which a kernel that stays would block.
        let mut kept = e.lent_states(r.states)?;
        kept.exchange(&mut f.host);
        let asked = Asked {
            symbols: r.symbols,
            inputs: r.inputs,
            outputs: r.outputs,
            timeline: r.timeline,
            permit: r.permit,
        };
        let done = self.phases(&mut f.host, asked, (&p, &kept));
        kept.exchange(&mut f.host);
        done
    }

    /// The host's steps and the stretches of a request, in their order.
    fn phases(
        &self,
        host: &mut Option<HostMemory>,
        mut r: Asked<'_, '_>,
        (p, kept): (&[i64], &StateBuffers<'_>),
    ) -> Result<(), DeviceError> {
        let (e, began) = (&self.inner, Instant::now());
        let b = block_of(&e.plan, e.block)?;
        // A timed request is the only one with times until it is over.
        let timed = r.timeline.take().map(|timeline| Timed {
            times: self.times.lock().unwrap_or_else(PoisonError::into_inner),
            clocks: Clocks::new(e, timeline, began),
            timeline,
        });
        let mut key = vec![i64::from(timed.is_some())];
        key.extend(r.symbols);
        key.extend(kept.here.iter().map(|k| k.1.0 as i64));
        let mut now = InSlot {
            taken: self.uses.take(&key, r.permit)?,
            key,
            p,
            kept,
            timed,
            permit: r.permit,
        };
        for (port, bytes) in e.inputs.iter().zip(r.inputs) {
            if !port.state && port.here {
                self.stage(&now, port.staged, bytes)?;
            }
        }
        let view = e.beside.as_ref().map(|h| HostView {
            inputs: r.inputs,
            weights: &h.weights,
            kept: Some(&h.kept),
        });
        for phase in &self.phases {
            match phase {
                Phase::Host(steps) => {
                    let own = host.as_mut().zip(view);
                    self.host_steps(&mut now, (b, steps), own, r.symbols)?;
                }
                Phase::Section(k) => {
                    self.send_roads(&now, (b, *k), host.as_ref().zip(view))?;
                    self.section(&mut now, *k)?;
                    self.fetch_roads(&now, *k, host.as_mut())?;
                }
            }
        }
        wanted(r.permit)?;
        self.read_outputs(&now, host.as_ref(), r.outputs)?;
        if let Some(t) = now.timed {
            t.timeline.total_ns = began.elapsed().as_nanos() as u64;
        }
        Ok(())
    }

    /// Writes `bytes` to the page-locked memory of the request's slot.
    fn stage(&self, now: &InSlot<'_, '_>, at: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.inner.gpu.sent(bytes.len() as u64);
        let pinned = &self.slots[now.taken.slot].pinned;
        staging::write(pinned, at, bytes).map_err(|e| self.failed(e))
    }

    /// Reads `bytes` from the page-locked memory of the request's slot.
    fn unstage(
        &self,
        now: &InSlot<'_, '_>,
        at: usize,
        bytes: &mut [u8],
    ) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.inner.gpu.fetched(bytes.len() as u64);
        let pinned = &self.slots[now.taken.slot].pinned;
        staging::read(pinned, at, bytes, |_| Ok(())).map_err(|e| self.failed(e))
    }

    /// Runs steps of the host.
    fn host_steps(
        &self,
        now: &mut InSlot<'_, '_>,
        (b, steps): (&Block, &[usize]),
        own: Option<(&mut HostMemory, HostView<'_>)>,
        symbols: &[i64],
    ) -> Result<(), DeviceError> {
        let e = &self.inner;
        let (h, (memory, view)) = e
            .beside
            .as_ref()
            .zip(own)
            .ok_or_else(|| e.refused("the plan gives steps to the host, which is missing"))?;
        for &step in steps {
            wanted(now.permit)?;
            let (began, block) = (Instant::now(), (b, now.permit.cancel));
            h.part.run(step, block, memory, view, symbols, now.p)?;
            if let Some(t) = &mut now.timed {
                t.clocks.host(t.timeline, step, began);
            }
        }
        Ok(())
    }

    /// Steps of stretch `k` that copy between the two sides: up to the GPU, or down from it.
    fn roads(&self, k: usize, up: bool) -> impl Iterator<Item = (usize, &CopyDirection)> {
        let (work, s) = (&self.inner.steps.work, &self.stretches[k]);
        let all = s.entries.iter().zip(&s.steps);
        all.filter_map(move |(x, &i)| match (x.is_road(), &work[i]) {
            (true, Work::CopyDirection(road)) if road.up == up => Some((i, road)),
            _ => None,
        })
    }

    fn short(&self, step: usize) -> DeviceError {
        let why = "what it copies is shorter than its shape";
        self.inner.steps.error(step, why.into())
    }

    /// Puts what stretch `k` copies from the host's memory to where its tasks read it.
    fn send_roads(
        &self,
        now: &InSlot<'_, '_>,
        (b, k): (&Block, usize),
        own: Option<(&HostMemory, HostView<'_>)>,
    ) -> Result<(), DeviceError> {
        for (i, road) in self.roads(k, true) {
            let n = road.bytes(now.p).ok_or_else(|| self.short(i))?;
            let bytes = own.and_then(|(m, view)| m.bytes(b, road.from, view).get(..n));
            let bytes = bytes.ok_or_else(|| self.short(i))?;
            self.stage(now, self.inner.roads[i], bytes)?;
        }
        Ok(())
    }

    /// Brings what stretch `k` copied to the host to its memory.
    fn fetch_roads(
        &self,
        now: &InSlot<'_, '_>,
        k: usize,
        mut host: Option<&mut HostMemory>,
    ) -> Result<(), DeviceError> {
        for (i, road) in self.roads(k, false) {
            let n = road.bytes(now.p).ok_or_else(|| self.short(i))?;
            let to = host.as_mut().map(|m| m.bytes_mut(road.to));
            let to = to.and_then(|to| to.get_mut(..n));
            self.unstage(now, self.inner.roads[i], to.ok_or_else(|| self.short(i))?)?;
        }
        Ok(())
    }

    /// Pushes stretch `k` and waits until it is over.
    fn section(&self, now: &mut InSlot<'_, '_>, k: usize) -> Result<(), DeviceError> {
        let (e, s) = (&self.inner, &self.stretches[k]);
        for x in &s.entries {
            if let Entry::Load { bytes, .. } = x {
                e.gpu.sent(*bytes);
            }
        }
        let push = Push {
            stretch: k,
            fresh: now.taken.written[k].take().as_deref() != Some(&now.key[..]),
            p: now.p,
            kept: now.kept,
            times: now.timed.as_ref().map(|t| &*t.times),
            permit: now.permit,
        };
        let pushed = Instant::now();
        let (seq, live) = self.push(&now.taken, &push)?;
        let done = self.wait(seq, k, (&live, now.permit));
        // Tables are on the device in any case that has an answer.
        match &done {
            Ok(_) | Err(DeviceError::Step { .. } | DeviceError::Cancelled) => {
                now.taken.written[k] = Some(now.key.clone())
            }
            Err(_) => {
                // What failed is not asked again.
                let mut stays = e.gpu.stays.change();
                if stays.take_if(|l| Arc::ptr_eq(l, &live)).is_some() {
                    live.abandon();
                }
            }
        }
        let answer = done?;
        if let Some(t) = &mut now.timed {
            let mut bytes = vec![0; Times::bytes(s.entries.len(), self.workers)];
            t.times.read(0, &mut bytes).map_err(|e| self.failed(e))?;
            let wrote = Times::new(&bytes, self.workers);
            let (of, said) = ((e, s, now.p), (&answer, &wrote));
            t.clocks.stretch(t.timeline, of, said, pushed);
        }
        Ok(())
    }

    /// Copies outputs to the caller's memory.
    fn read_outputs(
        &self,
        now: &InSlot<'_, '_>,
        host: Option<&HostMemory>,
        outputs: &mut [&mut [u8]],
    ) -> Result<(), DeviceError> {
        let e = &self.inner;
        for (port, out) in e.outputs.iter().zip(outputs) {
            if port.state {
                continue;
            }
            if port.here {
                self.unstage(now, port.staged, out)?;
                continue;
            }
            let made = host.and_then(|m| m.bytes_kept(port.buffer as u32).get(..out.len()));
            out.copy_from_slice(made.ok_or_else(|| e.refused("an output is missing"))?);
        }
        Ok(())
    }

    fn own<'a>(&self, frame: &'a mut Frame) -> Result<&'a mut ResidentFrame, DeviceError> {
        let f = frame.0.downcast_mut::<ResidentFrame>();
        f.ok_or_else(|| {
            self.inner
                .refused("the frame was made by another executable; make one with new_frame")
        })
    }
}

impl ResidentFrame {
    /// What runs step by step, made when it is first needed.
    fn step_by_step(&mut self, e: &CudaExecutable) -> Result<&mut Frame, DeviceError> {
        if self.other.is_none() {
            self.other = Some(e.new_frame()?);
        }
        let made = self.other.as_mut().filter(|f| f.0.is::<CudaFrame>());
        made.ok_or_else(|| e.refused("a frame could not be made"))
    }
}

impl Executable for ResidentExecutable {
    fn new_frame(&self) -> Result<Frame, DeviceError> {
        let e = &self.inner;
        let b = block_of(&e.plan, e.block)?;
        let bound = Bound::for_block(&self.params, b, &e.plan.plan().dims)?;
        let kept = |k: &BufferKind| matches!(k, BufferKind::Arena | BufferKind::Output(_));
        let beside = e.beside.as_ref();
        Ok(Frame(Box::new(ResidentFrame {
            bound,
            other: None,
            host: beside.map(|_| HostMemory::new(b, kept)).transpose()?,
        })))
    }

    fn frames_hold_device_memory(&self) -> bool {
        true
    }

    fn run(&self, frame: &mut Frame, request: Request<'_>) -> Result<(), DeviceError> {
        let f = self.own(frame)?;
        match request.stop_after.is_none() {
            true => self.resident(f, request),
            false => self.inner.run(f.step_by_step(&self.inner)?, request),
        }
    }

    fn run_unified(
        &self,
        frame: &mut Frame,
        request: UnifiedRequest<'_>,
    ) -> Result<(), DeviceError> {
        let f = self.own(frame)?;
        self.inner
            .run_unified(f.step_by_step(&self.inner)?, request)
    }

    fn way(&self) -> Option<Way> {
        Some(Way::Resident)
    }

    fn step_names(&self) -> Vec<String> {
        self.inner.step_names()
    }

    fn packed_bytes(&self) -> u64 {
        self.inner.packed_bytes()
    }
}

impl Drop for ResidentExecutable {
    fn drop(&mut self) {
        let gpu = &self.inner.gpu;
        let mut live = gpu.stays.change();
        if let Some(l) = live.take_if(|l| l.owner == self.owner) {
            // Its memory goes away: it must have left; a lost GPU has.
            if gpu.alive().is_ok() {
                let _ = l.leave();
            }
        }
    }
}
