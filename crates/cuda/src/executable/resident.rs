//! A block whose requests go to a kernel that stays on the GPU.
//!
//! Inputs and outputs are copied by the kernel itself, from and to pinned memory, as tasks before and
//! behind the plan's; so a request takes no call of the driver. All memory is made and the module is
//! loaded when the block is compiled. Requests take one of a few slots, and wait when none is free: the
//! ring has as many entries, so it is never more than full. What needs the driver (a timeline, values on
//! the device, a run that ends early) goes step by step, for which the kernel leaves first.
//!
//! Whoever waits for an answer only reads memory. After `CudaOptions::watchdog` without one the driver is
//! asked whether the kernel is still there, and the workers' own words are read twice: when nothing has
//! moved in between, they become the request's error and the kernel is told to leave.
use super::{CudaExecutable, CudaFrame, Kept, Port, block_of};
use crate::driver::{DevicePtr, Launch, Pinned};
use crate::modules::Module;
use crate::pool::Block as Memory;
use crate::resident::{Live, PinnedWords, Start, answer};
use crate::steps::Work;
use device::ring::{Call, Dump, Ring, RingError, StepShape, TableError, Tables, abi};
use device::{DeviceError, Executable, Frame, Request, UnifiedRequest};
use emit::ptx::ParamValue;
use emit::ptx::resident::{Abi, Idle};
use kernel::TileProgram;
use layout::Dim;
use plan::{Bound, Params, StepWork, Wait};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Requests that may be under way in a kernel.
const SLOTS: usize = 4;
/// Bytes that one task copies.
const PIECE: u64 = 16 << 10;
/// Dynamic shared memory that a launch may have without asking.
const SHARED: u32 = 48 << 10;
/// Polls of a worker after which its wait is late and looks whether to leave: some milliseconds.
const PATIENCE: u32 = 1 << 13;
/// Polls of the host between looks at its clock.
const POLLS: u32 = 1024;

static OWNERS: AtomicU64 = AtomicU64::new(1);

/// Where a parameter of a body comes from.
#[derive(Clone, Copy)]
enum From {
    Buffer(usize),
    Param(u32),
    Fault,
}

/// What a step of the tables is.
enum Entry {
    /// Pinned memory from `staged` on to `buffer`; bytes are those of input port so and so.
    In {
        port: usize,
        staged: usize,
        buffer: usize,
    },
    /// The plan's step.
    Step { params: Vec<From>, tasks: u32 },
    /// The other way, of an output port.
    Out {
        port: usize,
        staged: usize,
        buffer: usize,
    },
}

/// Memory of a slot.
struct Slot {
    memory: Memory,
    pinned: Arc<dyn Pinned>,
}

/// A compiled block with a resident kernel.
pub(crate) struct ResidentExecutable {
    inner: CudaExecutable,
    params: Params,
    entries: Vec<Entry>,
    /// The plan's step of every entry; copies have that of the port's first or last use.
    steps: Vec<usize>,
    tables: Tables,
    /// Numbers of dimensions in waits.
    dims: BTreeMap<Dim, u32>,
    slots: Vec<Slot>,
    uses: Mutex<Uses>,
    freed: Condvar,
    start: Start,
    payloads: Arc<dyn Pinned>,
    ring: Arc<Mutex<Ring<PinnedWords>>>,
    owner: u64,
    faults: Vec<Vec<String>>,
    workers: u32,
    _memory: Vec<Memory>,
    _module: Arc<Module>,
}

/// Who has which slot.
struct Uses {
    free: Vec<usize>,
    /// What each slot's tables were written for: symbols, then addresses of states.
    written: Vec<Option<Vec<i64>>>,
    /// Times that the slots were cleared: no tables from before count.
    cleared: u64,
}

/// A slot while a request has it.
struct Taken<'a> {
    of: &'a ResidentExecutable,
    slot: usize,
    /// What its tables on the device are for.
    written: Option<Vec<i64>>,
    cleared: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut uses = self.of.uses();
        let counts = uses.cleared == self.cleared;
        uses.written[self.slot] = self.written.take().filter(|_| counts);
        uses.free.push(self.slot);
        self.of.freed.notify_one();
    }
}

/// A frame: parameters, and what runs step by step.
struct ResidentFrame {
    bound: Bound,
    other: Option<Frame>,
}

/// Whether everything of the block can be in one kernel.
fn possible(e: &CudaExecutable) -> bool {
    let kernels = e.steps.work.iter().all(|w| matches!(w, Work::Kernel(_)));
    kernels && e.kept.ring.is_none() && !e.steps.work.is_empty() && !e.gpu.unified()
}

/// The tables of a request without work: one step of no tasks. Those of any block are as long.
fn nothing(body: u32) -> Result<Vec<u8>, TableError> {
    let tables = Tables::new(vec![StepShape {
        body,
        params: 4,
        top_tasks: 1,
        waits: vec![],
        faults: false,
    }])?;
    let call = Call {
        tasks: 0,
        params: &[0; 4],
    };
    let mut payload = vec![];
    tables.fill(&[call], &|d| d.known(), &mut payload)?;
    Ok(payload)
}

/// `list` of a step with every step's number moved by `by`.
fn moved(list: &[Wait], by: u32) -> Vec<Wait> {
    list.iter()
        .map(|w| match w {
            Wait::Step(s) => Wait::Step(s + by),
            Wait::Tiles { step, map } => Wait::Tiles {
                step: step + by,
                map: map.clone(),
            },
        })
        .collect()
}

impl ResidentExecutable {
    /// `inner` with a kernel that stays, or as it is where that cannot be.
    pub fn over(inner: CudaExecutable) -> Result<Arc<dyn Executable>, DeviceError> {
        match possible(&inner) {
            true => Ok(Arc::new(ResidentExecutable::new(inner)?)),
            false => Ok(Arc::new(inner)),
        }
    }

    fn new(inner: CudaExecutable) -> Result<ResidentExecutable, DeviceError> {
        let gpu = inner.gpu.clone();
        let plan = inner.plan.clone();
        let b = block_of(&plan, inner.block)?;
        let fail = |why: String| DeviceError::Unsupported {
            device: gpu.name.clone(),
            step: "the resident kernel".into(),
            why,
        };
        let programs = plan.step_programs(inner.block);
        let programs: Vec<&TileProgram> = programs.iter().flatten().collect();
        // One more slot is for requests without work.
        let all = SLOTS + 1;
        let capacity = (all as u32).next_power_of_two();
        let abi_ = Abi::new(capacity, &abi::offsets(capacity))
            .ok_or_else(|| fail("an offset of the protocol is missing".into()))?;
        let code = emit::ptx::resident::emit(&programs, gpu.arch, &abi_, Idle::default())
            .map_err(|e| fail(e.to_string()))?;
        let mut params = inner.params.clone();
        let top = |d: &Dim| -> u64 { plan.plan().dims.at_top(d).unwrap_or(0).max(0) as u64 };
        let (mut entries, mut steps, mut shapes, mut faults) = (vec![], vec![], vec![], vec![]);
        let copy = |bytes: u64, waits: Vec<Wait>| StepShape {
            body: code.copy_body(),
            params: 4,
            top_tasks: bytes.div_ceil(PIECE),
            waits,
            faults: false,
        };
        // What comes in.
        let mut comes: Vec<(usize, u32)> = vec![];
        let given = inner.inputs.iter().enumerate();
        let given = given.filter(|(_, p)| !p.state && inner.places[p.buffer].is_some());
        let given = given.map(|(i, p)| (i, p.staged, p.buffer, p.step));
        for (port, staged, buffer, step) in given {
            comes.push((buffer, entries.len() as u32));
            shapes.push(copy(b.buffers[buffer].bytes, vec![]));
            entries.push(Entry::In {
                port,
                staged,
                buffer,
            });
            steps.push(step.unwrap_or(0));
            faults.push(vec![]);
        }
        let by = entries.len() as u32;
        let mut dims = BTreeMap::new();
        for (i, s) in b.steps.iter().enumerate() {
            let StepWork::Kernel { args, .. } = &s.work else {
                return Err(fail(format!("'{}' runs on the host", s.name)));
            };
            let body = &code.bodies[code.of_program[i] as usize];
            let from = |p: &emit::ptx::ParamSpec, params: &mut Params| match &p.value {
                ParamValue::Operand(o) => From::Buffer(args[*o as usize] as usize),
                ParamValue::Dim(d) => From::Param(params.intern(d)),
                ParamValue::Fault => From::Fault,
            };
            let list = body.params.iter().map(|p| from(p, &mut params)).collect();
            let mut waits = moved(&s.waits, by);
            for (buffer, at) in &comes {
                let touched = inner.steps.reads[i].iter().chain(&inner.steps.writes[i]);
                if touched.into_iter().any(|t| t == buffer) {
                    waits.push(Wait::Step(*at));
                }
            }
            for w in &waits {
                if let Wait::Tiles { map, .. } = w {
                    for d in map.dims() {
                        dims.insert(d.clone(), params.intern(d));
                    }
                }
            }
            shapes.push(StepShape {
                body: code.of_program[i],
                params: body.params.len() as u32,
                top_tasks: top(&s.tasks),
                waits,
                faults: !body.faults.is_empty(),
            });
            faults.push(body.faults.clone());
            entries.push(Entry::Step {
                params: list,
                tasks: params.intern(&s.tasks),
            });
            steps.push(i);
        }
        let outs = inner.outputs.iter().enumerate().filter(|(_, p)| !p.state);
        let outs = outs.map(|(i, p)| (i, p.staged, p.buffer));
        for (port, staged, buffer) in outs {
            let writers = (0..b.steps.len()).filter(|&s| inner.steps.writes[s].contains(&buffer));
            let mut waits: Vec<Wait> = writers.map(|s| Wait::Step(s as u32 + by)).collect();
            let before = comes.iter().filter(|c| c.0 == buffer);
            waits.extend(before.map(|c| Wait::Step(c.1)));
            shapes.push(copy(b.buffers[buffer].bytes, waits));
            entries.push(Entry::Out {
                port,
                staged,
                buffer,
            });
            steps.push(b.steps.len() - 1);
            faults.push(vec![]);
        }
        let most = shapes.iter().map(|s| s.top_tasks).max().unwrap_or(1);
        let tables = Tables::new(shapes).map_err(|e| fail(e.to_string()))?;
        // The kernel, and how many of its CTAs are on the GPU at once.
        let failed = |e| gpu.failed("the resident kernel", e);
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
        let room = u64::from(per) * u64::from(gpu.context.info().sms);
        if room < 2 {
            return Err(fail(format!(
                "{room} of its CTAs fit on the GPU, two are needed"
            )));
        }
        let workers = (room - 1).min(most.max(1)) as u32;
        // Memory.
        let room = |bytes: usize| {
            let m = gpu.pool.take(bytes.max(16) as u64).map_err(failed)?;
            gpu.context
                .upload(m.ptr(), &vec![0; bytes.max(16)])
                .map_err(failed)?;
            Ok::<Memory, DeviceError>(m)
        };
        let pinned = |bytes: usize| gpu.context.pinned(bytes.max(16)).map_err(failed);
        let status = room(workers as usize * size_of::<abi::StatusEntry>())?;
        let feed = room(abi::feed_bytes(capacity))?;
        let table = room(tables.slot_bytes() * all)?;
        let payloads = pinned(tables.payload_bytes() * all)?;
        let empty = nothing(code.copy_body()).map_err(|e| fail(e.to_string()))?;
        let at = tables.payload_bytes() * SLOTS;
        payloads.write(at, &empty).map_err(failed)?;
        let ring = Ring::new(PinnedWords(pinned(abi::ring_bytes(capacity))?), capacity);
        let mut slots = vec![];
        for _ in 0..SLOTS {
            slots.push(Slot {
                memory: gpu.pool.take(inner.frame_bytes).map_err(failed)?,
                pinned: pinned(inner.staged_bytes)?,
            });
        }
        Ok(ResidentExecutable {
            start: Start {
                function,
                shape: Launch {
                    grid: [workers + 1, 1, 1],
                    block: [shape.threads, 1, 1],
                    shared_bytes: shape.shared_bytes,
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
                empty: SLOTS as u32,
            },
            params,
            entries,
            steps,
            tables,
            dims,
            slots,
            uses: Mutex::new(Uses {
                free: (0..SLOTS).rev().collect(),
                written: vec![None; SLOTS],
                cleared: 0,
            }),
            freed: Condvar::new(),
            payloads,
            ring: Arc::new(Mutex::new(ring)),
            owner: OWNERS.fetch_add(1, Ordering::Relaxed),
            faults,
            workers,
            _memory: vec![status, feed, table],
            _module: module,
            inner,
        })
    }

    fn failed(&self, e: crate::DriverError) -> DeviceError {
        self.inner.gpu.failed("a request of the resident kernel", e)
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot, one whose tables are those for `key` if there is; waits while none is free.
    fn take(&self, key: &[i64]) -> Taken<'_> {
        let mut uses = self.uses();
        loop {
            let has = |&n: &usize| uses.written[n].as_deref() == Some(key);
            let at = uses.free.iter().position(has);
            let last = uses.free.len().checked_sub(1);
            if let Some(at) = at.or(last) {
                let slot = uses.free.swap_remove(at);
                let written = uses.written[slot].take();
                return Taken {
                    of: self,
                    slot,
                    written,
                    cleared: uses.cleared,
                };
            }
            let woken = self.freed.wait(uses);
            uses = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Address of a buffer for a slot and the states of a request.
    fn address(&self, slot: &Slot, kept: &Kept<'_>, buffer: usize) -> DevicePtr {
        if let Some(k) = kept.here.iter().find(|k| k.0 == buffer) {
            return k.1;
        }
        match self.inner.places[buffer] {
            Some(at) => slot.memory.ptr().offset(at),
            None => self.inner.kept.list[buffer].ptr().unwrap_or(DevicePtr(0)),
        }
    }

    /// Writes the tables of slot `n` for parameters `p` and the states `kept`.
    fn write(&self, n: usize, p: &[i64], kept: &Kept<'_>) -> Result<(), DeviceError> {
        let e = &self.inner;
        let slot = &self.slots[n];
        let base = self
            .start
            .slots
            .offset((n * self.tables.slot_bytes()) as u64);
        let bytes = |ports: &[Port], i: usize| ports[i].size.bytes(p).unwrap_or(0) as u64;
        let mut values: Vec<(u64, Vec<u64>)> = vec![];
        for (i, entry) in self.entries.iter().enumerate() {
            values.push(match entry {
                Entry::In {
                    port,
                    staged,
                    buffer,
                } => {
                    let bytes = bytes(&e.inputs, *port);
                    let from = slot.pinned.device_ptr().offset(*staged as u64);
                    let list = vec![from.0, self.address(slot, kept, *buffer).0, bytes, PIECE];
                    (bytes.div_ceil(PIECE), list)
                }
                Entry::Out {
                    port,
                    staged,
                    buffer,
                } => {
                    let bytes = bytes(&e.outputs, *port);
                    let to = slot.pinned.device_ptr().offset(*staged as u64);
                    let list = vec![self.address(slot, kept, *buffer).0, to.0, bytes, PIECE];
                    (bytes.div_ceil(PIECE), list)
                }
                Entry::Step { params, tasks } => {
                    let one = |f: &From| match f {
                        From::Buffer(b) => self.address(slot, kept, *b).0,
                        From::Param(d) => p[*d as usize] as u64,
                        From::Fault => base.offset(self.tables.fault(i).unwrap_or(0) as u64).0,
                    };
                    let tasks = p[*tasks as usize].max(0) as u64;
                    (tasks, params.iter().map(one).collect())
                }
            });
        }
        let call = |(tasks, params): &(u64, Vec<u64>)| (*tasks, params.clone());
        let owned: Vec<(u64, Vec<u64>)> = values.iter().map(call).collect();
        let calls: Vec<Call<'_>> = owned
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
        self.tables
            .fill(&calls, &value, &mut payload)
            .map_err(|e| self.inner.refused(&e.to_string()))?;
        self.payloads
            .write(n * self.tables.payload_bytes(), &payload)
            .map_err(|e| self.failed(e))
    }

    /// Pushes a request for a slot, with tables for parameters `p` where it has none, to this block's kernel, which is started where another one or
    /// none is there.
    fn push(
        &self,
        taken: &Taken<'_>,
        fresh: bool,
        (p, kept): (&[i64], &Kept<'_>),
    ) -> Result<(u32, Arc<Live>), DeviceError> {
        let began = Instant::now();
        loop {
            if let Some(pushed) = self.try_push(taken, fresh, (p, kept))? {
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
        fresh: bool,
        (p, kept): (&[i64], &Kept<'_>),
    ) -> Result<Option<(u32, Arc<Live>)>, DeviceError> {
        let gpu = &self.inner.gpu;
        let mut live = gpu.live.lock().unwrap_or_else(PoisonError::into_inner);
        gpu.alive()?;
        let own = match live.as_ref().filter(|l| l.owner == self.owner) {
            Some(l) => l.clone(),
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
        // Slots are cleared while nobody else has the kernel.
        let fresh = fresh || self.uses().cleared != taken.cleared;
        if fresh {
            self.write(taken.slot, p, kept)?;
        }
        let seq = own.push(taken.slot as u32, fresh);
        let seq = seq.map_err(|e| self.failed(e))?;
        Ok(seq.map(|seq| (seq, own)))
    }

    /// What every worker is doing.
    fn dump(&self) -> Option<Dump> {
        let mut page = vec![0; self.workers as usize * size_of::<abi::StatusEntry>()];
        let context = &self.inner.gpu.context;
        context.download(&mut page, self.start.status).ok()?;
        let name = |(e, s): (&Entry, &usize)| match e {
            Entry::Step { .. } => self.inner.steps.names[*s].clone(),
            Entry::In { .. } => "copy of an input".into(),
            Entry::Out { .. } => "copy of an output".into(),
        };
        let names: Vec<String> = self.entries.iter().zip(&self.steps).map(name).collect();
        Some(Dump::read(&page, &names, &self.tables.counters()))
    }

    /// Waits for the answer to `seq`, by reading memory alone as long as all goes well.
    fn wait(&self, seq: u32, live: &Arc<Live>) -> Result<(), DeviceError> {
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
        let found = loop {
            if let Some(a) = ask()? {
                break a;
            }
            polls = polls.wrapping_add(1);
            if !polls.is_multiple_of(POLLS) || since.elapsed() < gpu.options.watchdog {
                std::hint::spin_loop();
                continue;
            }
            since = Instant::now();
            let over = live.is_over(&gpu.context);
            let now = self.dump();
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
        let Some(f) = found.failed else {
            return Ok(());
        };
        let step = f.step as usize;
        let list = self.faults.get(step);
        let why = list.and_then(|l| l.get((f.fault as usize).wrapping_sub(1)).cloned());
        let why = why.unwrap_or_else(|| format!("fault {}", f.fault));
        let at = self.steps.get(step).copied().unwrap_or(0);
        Err(self.inner.steps.error(at, why))
    }

    /// Ends a kernel that stands still, and says what it did.
    fn hang(&self, live: &Arc<Live>, table: &str) -> String {
        let gpu = &self.inner.gpu;
        let mut now = gpu.live.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = gpu.options.watchdog;
        let why = format!("nothing of it moved for {patience:?}; its workers:{table}");
        if !now.as_ref().is_some_and(|l| Arc::ptr_eq(l, live)) {
            return why;
        }
        *now = None;
        match live.abort(&gpu.context, patience) {
            // Slots were left as they were: they begin anew.
            Ok(true) => {
                let mut uses = self.uses();
                uses.cleared += 1;
                uses.written.fill(None);
                drop(uses);
                let zeros = vec![0; self.tables.slot_bytes() * (SLOTS + 1)];
                let zeroed = gpu.context.upload(self.start.slots, &zeros);
                zeroed.err().map_or(why.clone(), |e| format!("{why}{e}"))
            }
            Ok(false) => {
                let told = gpu.stuck.get_or_init(|| why);
                told.clone()
            }
            Err(e) => format!("{why}{e}"),
        }
    }

    /// Runs a request.
    fn resident(&self, f: &mut ResidentFrame, r: Request<'_>) -> Result<(), DeviceError> {
        let e = &self.inner;
        let b = block_of(&e.plan, e.block)?;
        let began = Instant::now();
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
        let kept = e.lent_states(r.states)?;
        let mut key = r.symbols.to_vec();
        key.extend(kept.here.iter().map(|k| k.1.0 as i64));
        let mut taken = self.take(&key);
        let n = taken.slot;
        let pinned = &self.slots[n].pinned;
        let put = |staged: usize, bytes: &[u8]| match bytes.is_empty() {
            true => Ok(()),
            false => {
                e.gpu.sent(bytes.len() as u64);
                pinned.write(staged, bytes).map_err(|e| self.failed(e))
            }
        };
        for (port, bytes) in e.inputs.iter().zip(r.inputs) {
            if !port.state {
                put(port.staged, bytes)?;
            }
        }
        let fresh = taken.written.take().as_deref() != Some(&key[..]);
        let (seq, live) = self.push(&taken, fresh, (&p, &kept))?;
        let done = self.wait(seq, &live);
        // Tables are on the device in any case that has an answer.
        match &done {
            Ok(()) | Err(DeviceError::Step { .. }) => taken.written = Some(key),
            Err(_) => {
                // What failed is not asked again.
                let mut now = e.gpu.live.lock().unwrap_or_else(PoisonError::into_inner);
                if now.take_if(|l| Arc::ptr_eq(l, &live)).is_some() {
                    live.abandon();
                }
            }
        }
        done?;
        let take = |staged: usize, bytes: &mut [u8]| match bytes.is_empty() {
            true => Ok(()),
            false => {
                e.gpu.fetched(bytes.len() as u64);
                pinned.read(staged, bytes).map_err(|e| self.failed(e))
            }
        };
        for (port, out) in e.outputs.iter().zip(r.outputs.iter_mut()) {
            if !port.state {
                take(port.staged, out)?;
            }
        }
        if let Some(t) = r.timeline {
            t.steps = e.steps.names.clone();
            t.spans.clear();
            t.total_ns = began.elapsed().as_nanos() as u64;
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
    fn other(&mut self, e: &CudaExecutable) -> Result<&mut Frame, DeviceError> {
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
        Ok(Frame(Box::new(ResidentFrame { bound, other: None })))
    }

    fn run(&self, frame: &mut Frame, request: Request<'_>) -> Result<(), DeviceError> {
        let f = self.own(frame)?;
        match request.stop_after.is_none() && request.timeline.is_none() {
            true => self.resident(f, request),
            false => self.inner.run(f.other(&self.inner)?, request),
        }
    }

    fn run_unified(
        &self,
        frame: &mut Frame,
        request: UnifiedRequest<'_>,
    ) -> Result<(), DeviceError> {
        let f = self.own(frame)?;
        self.inner.run_unified(f.other(&self.inner)?, request)
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
        let mut live = gpu.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(l) = live.take_if(|l| l.owner == self.owner) {
            // Its memory goes away: it must have left; a lost GPU has.
            if gpu.alive().is_ok() {
                let _ = l.leave();
            }
        }
    }
}
