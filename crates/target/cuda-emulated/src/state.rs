//! What an emulated GPU holds, and how its streams go on.
use crate::gpu::EmulatedGpu;
use crate::hook::{Happened, Told};
use crate::time;
use cuda::{DriverError, Pinned};
use ptx_emulator::{
    Finding, HostOrder, KernelInfo, Launch, Machine, Module, Outcome, PtxError, Running, Status,
    Unfinished,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Instructions of warps per turn of a kernel whose CTAs communicate.
const SLICE: u64 = 20_000;
/// Memory up to which a launch that finds something is made again, in order: its memory is copied.
const AGAIN: u64 = 16 << 20;

/// A kernel of a loaded module.
pub(crate) struct Function {
    pub module: u64,
    pub code: Arc<Module>,
    pub entry: String,
    pub info: KernelInfo,
    /// Dynamic shared memory that launches may ask for.
    pub allowed: u32,
}

/// What an event knows.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    /// Times it was recorded, and times that this has happened.
    pub asked: u64,
    pub happened: u64,
    /// Nanoseconds of the GPU's clock when it last happened.
    pub at: u64,
    /// Stream it was recorded in last.
    pub stream: u64,
}

pub(crate) type Event = Arc<Mutex<Moment>>;

/// An event's state, whoever holds it.
pub(crate) fn moment(e: &Event) -> MutexGuard<'_, Moment> {
    e.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something queued.
pub(crate) enum Work {
    /// What a graph may hold, queued by itself.
    Node(Node),
    /// Part of a graph that is under way.
    GraphNode(Node),
    Upload {
        to: u64,
        from: Arc<dyn Pinned>,
        at: u64,
        bytes: usize,
    },
    Download {
        to: Arc<dyn Pinned>,
        at: u64,
        from: u64,
        bytes: usize,
    },
    Record(Event, u64),
    Wait(Event, u64),
}

/// What a graph holds of a launch, a copy inside device memory or a fill.
#[derive(Clone)]
pub(crate) enum Node {
    Launch {
        code: Arc<Module>,
        launch: Box<Launch>,
        communicates: bool,
        early: bool,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
    Fill {
        at: u64,
        value: u8,
        bytes: usize,
    },
}

impl Node {
    /// The node that `work` is, or its name where a graph cannot hold it.
    fn of(work: Work) -> Result<Node, &'static str> {
        match work {
            Work::Node(node) => Ok(node),
            Work::Upload { .. } | Work::Download { .. } => Err("a copy over the link"),
            Work::Record(..) | Work::Wait(..) => Err("an event"),
            Work::GraphNode(_) => Err("a graph"),
        }
    }
}

struct Busy {
    running: Running,
    kernel: String,
    writes: u64,
}

/// A stream.
#[derive(Default)]
pub(crate) struct Queue {
    /// What is to be done, not before the time beside it.
    work: VecDeque<(u64, Work)>,
    busy: Option<Busy>,
    /// The GPU's clock when all before is done.
    now: u64,
    /// Launches that may be under way when one begins that depends on the last one.
    unfinished: Unfinished,
    /// Why something in it failed, until somebody asks.
    error: Option<DriverError>,
    pub dropped: bool,
    /// What is kept for a graph in place of being run, or why that is none.
    pub kept: Option<Result<Vec<Node>, &'static str>>,
}

impl Queue {
    pub fn is_idle(&self) -> bool {
        self.work.is_empty() && self.busy.is_none()
    }

    fn launches(&self) -> bool {
        let queued = self.work.iter();
        self.busy.is_some()
            || queued
                .into_iter()
                .any(|w| matches!(w.1, Work::Node(Node::Launch { .. }) | Work::GraphNode(_)))
    }
}

/// All that an emulated GPU holds.
pub(crate) struct State {
    pub gpu: EmulatedGpu,
    pub machine: Machine,
    pub modules: BTreeMap<u64, Arc<Module>>,
    pub functions: BTreeMap<u64, Function>,
    pub streams: BTreeMap<u64, Queue>,
    pub events: BTreeMap<u64, Event>,
    pub graphs: BTreeMap<u64, Vec<Node>>,
    /// Pinned memory by address, and device memory by address.
    pub pinned: BTreeMap<u64, usize>,
    pub allocations: BTreeMap<u64, u64>,
    pub used: u64,
    next: u64,
    pub lost: Option<DriverError>,
    /// When the engines for copies to and from the device are free.
    engines: [u64; 2],
    /// The GPU's clock as far as the host has waited for it.
    host: u64,
    /// Counts what the host wrote: a wait that saw none of it may be a deadlock.
    pub touched: u64,
    turn: usize,
    /// Calls of the driver so far, by name.
    pub calls: BTreeMap<&'static str, u64>,
    /// Who wants to know what happens.
    pub told: Told,
}

fn failed(call: &'static str, e: &PtxError) -> DriverError {
    DriverError::Call {
        call,
        code: "CUDA_ERROR_INVALID_VALUE".into(),
        why: e.to_string(),
    }
}

/// Notes what failed of a write to memory, which stands all the same.
fn wrote(q: &mut Queue, done: Result<(), PtxError>) -> bool {
    if let Err(e) = done {
        q.error.get_or_insert(failed("copy", &e));
    }
    true
}

impl State {
    pub fn new(gpu: EmulatedGpu) -> State {
        State {
            gpu,
            machine: Machine::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            streams: BTreeMap::from([(0, Queue::default())]),
            events: BTreeMap::new(),
            graphs: BTreeMap::new(),
            pinned: BTreeMap::new(),
            allocations: BTreeMap::new(),
            used: 0,
            next: 1,
            lost: None,
            engines: [0; 2],
            host: 0,
            touched: 0,
            turn: 0,
            calls: BTreeMap::new(),
            told: Told::default(),
        }
    }

    /// A number that nothing had before.
    pub fn id(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The GPU's clock in nanoseconds, as far as the host has waited for it.
    pub fn host_ns(&self) -> u64 {
        self.host
    }

    /// Fails once the GPU is lost.
    pub fn alive(&self) -> Result<(), DriverError> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    pub fn queue(&mut self, call: &'static str, stream: u64) -> Result<&mut Queue, DriverError> {
        match self.streams.get_mut(&stream) {
            Some(q) if !q.dropped => Ok(q),
            _ => Err(DriverError::Argument {
                call,
                why: format!("there is no stream {stream}"),
            }),
        }
    }

    /// Queues `work`; it cannot begin before what the host has seen happen.
    pub fn push(&mut self, call: &'static str, stream: u64, work: Work) -> Result<(), DriverError> {
        let host = self.host;
        let q = self.queue(call, stream)?;
        let Some(kept) = &mut q.kept else {
            q.work.push_back((host, work));
            return Ok(());
        };
        match (Node::of(work), &mut *kept) {
            (Ok(node), Ok(list)) => list.push(node),
            (Err(what), Ok(_)) => *kept = Err(what),
            (_, Err(_)) => {}
        }
        match kept {
            Ok(_) => Ok(()),
            Err(what) => Err(DriverError::Call {
                call,
                code: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED".into(),
                why: format!("{what} is no part of a graph"),
            }),
        }
    }

    /// Whether nothing that was launched is left to run.
    pub fn launches_done(&self) -> bool {
        self.streams.values().all(|q| !q.launches())
    }

    /// What failed in a stream whose work is done, and the clock's reading.
    pub fn settle(&mut self, stream: u64) -> Result<(), DriverError> {
        let Some(q) = self.streams.get_mut(&stream) else {
            return Ok(());
        };
        self.host = self.host.max(q.now);
        q.error.take().map_or(Ok(()), Err)
    }

    /// The same for an event; the stream's failure stays its own.
    pub fn settle_event(&mut self, e: &Event) -> Result<(), DriverError> {
        let m = moment(e);
        self.host = self.host.max(m.at);
        let failed = self.streams.get(&m.stream).and_then(|q| q.error.clone());
        failed.map_or(Ok(()), Err)
    }

    /// Gives every stream a turn; says whether anything moved.
    pub fn advance(&mut self) -> bool {
        let mut ids: Vec<u64> = self.streams.keys().copied().collect();
        let n = ids.len().max(1);
        ids.rotate_left(self.turn % n);
        self.turn = self.turn.wrapping_add(1);
        let mut moved = false;
        for id in ids {
            let Some(mut q) = self.streams.remove(&id) else {
                continue;
            };
            let (went, wrote) = self.go(&mut q);
            moved |= went;
            if !(q.dropped && q.is_idle()) {
                self.streams.insert(id, q);
            }
            if wrote {
                self.nudge(Some(id));
            }
        }
        moved
    }

    /// Kernels that poll look again: somebody else wrote.
    pub fn nudge(&mut self, but: Option<u64>) {
        for (id, q) in &mut self.streams {
            if let Some(b) = q.busy.as_mut().filter(|_| Some(*id) != but) {
                b.running.nudge();
            }
        }
    }

    /// A turn of one stream: whether it moved, and whether it wrote where others may look.
    fn go(&mut self, q: &mut Queue) -> (bool, bool) {
        if self.lost.is_some() {
            q.work.clear();
            q.busy = None;
            return (false, false);
        }
        if let Some(b) = &mut q.busy {
            let status = b.running.slice(&self.machine.memory, SLICE);
            let wrote = b.running.writes() != b.writes;
            b.writes = b.running.writes();
            match status {
                Status::Running => return (true, wrote),
                Status::Parked => return (wrote, wrote),
                Status::Done | Status::Fault => {}
            }
            if let Some(b) = q.busy.take() {
                let o = b.running.outcome();
                q.now = q.now.max(b.running.latest_ns() as u64);
                q.unfinished = o.unfinished;
                self.finish(q, &b.kernel, None, &o);
            }
            return (true, true);
        }
        if let Some((_, Work::Wait(e, n))) = q.work.front()
            && moment(e).happened < *n
        {
            return (false, false);
        }
        let Some((earliest, work)) = q.work.pop_front() else {
            return (false, false);
        };
        q.now = q.now.max(earliest);
        let before = std::mem::take(&mut q.unfinished);
        (true, self.work(q, work, before))
    }

    /// Does `work`, or begins it, behind launches that may be under way; says whether memory was written.
    fn work(&mut self, q: &mut Queue, work: Work, before: Unfinished) -> bool {
        let done = match work {
            Work::Node(node) => return self.node(q, node, before),
            Work::GraphNode(node) => {
                // A node begins sooner behind the one before than a launch.
                let early = matches!(node, Node::Launch { early: true, .. });
                q.now = q.now.saturating_sub(time::node_saves_ns(early));
                return self.node(q, node, before);
            }
            Work::Upload {
                to,
                from,
                at,
                bytes,
            } => {
                let from = from.device_ptr().0 + at;
                self.over_link(q, 0, bytes);
                self.moved(to, from, bytes)
            }
            Work::Download {
                to,
                at,
                from,
                bytes,
            } => {
                let to = to.device_ptr().0 + at;
                self.over_link(q, 1, bytes);
                self.moved(to, from, bytes)
            }
            Work::Record(e, n) => {
                let mut m = moment(&e);
                (m.happened, m.at) = (n, q.now);
                return false;
            }
            Work::Wait(e, _) => {
                q.now = q.now.max(moment(&e).at);
                return false;
            }
        };
        wrote(q, done)
    }

    /// Does what a graph may hold, or begins it; says whether memory was written.
    fn node(&mut self, q: &mut Queue, node: Node, before: Unfinished) -> bool {
        let done = match node {
            Node::Launch {
                code,
                mut launch,
                communicates,
                early,
            } => {
                if early {
                    launch.unfinished = before;
                }
                return self.launch(q, &code, *launch, communicates);
            }
            Node::Copy { to, from, bytes } => {
                q.now += time::inside_ns(&self.gpu.info, bytes as u64);
                self.moved(to, from, bytes)
            }
            Node::Fill { at, value, bytes } => {
                q.now += time::inside_ns(&self.gpu.info, bytes as u64);
                self.machine.memory.write(at, &vec![value; bytes])
            }
        };
        wrote(q, done)
    }

    fn over_link(&mut self, q: &mut Queue, way: usize, bytes: usize) {
        let start = q.now.max(self.engines[way]);
        q.now = start + time::copy_ns(&self.gpu.link, bytes as u64);
        self.engines[way] = q.now;
    }

    fn moved(&self, to: u64, from: u64, bytes: usize) -> Result<(), PtxError> {
        let data = self.machine.memory.read(from, bytes)?;
        self.machine.memory.write(to, &data)
    }

    fn launch(
        &mut self,
        q: &mut Queue,
        code: &Module,
        mut launch: Launch,
        communicates: bool,
    ) -> bool {
        self.told.tell(Happened::Began);
        let ctas = launch.grid.iter().map(|g| u64::from(*g)).product();
        let kernel = launch.kernel.clone();
        if communicates {
            let per_sm = (launch.grid.iter().map(|g| u64::from(*g)).product::<u64>())
                .min(launch.resident as u64)
                .div_ceil(u64::from(self.gpu.info.sms.max(1)));
            let begins = q.now + time::launch_own_ns();
            launch.pace = Some(time::pace(&self.gpu.info, &self.gpu.link, per_sm, begins));
            match self.machine.start(code, &launch) {
                Ok(running) => {
                    q.busy = Some(Busy {
                        running,
                        kernel,
                        writes: 0,
                    });
                }
                Err(e) => q.error = Some(failed("cuLaunchKernel", &e)),
            }
            return false;
        }
        launch.repeat_findings = self.machine.memory.in_use() <= AGAIN;
        match self.machine.run(code, &launch) {
            Ok(o) => {
                q.unfinished = o.unfinished;
                self.finish(q, &kernel, Some(ctas), &o);
            }
            Err(e) => q.error = Some(failed("cuLaunchKernel", &e)),
        }
        true
    }

    /// A launch has ended: its time, unless it kept that itself, and what was found wrong.
    fn finish(&mut self, q: &mut Queue, kernel: &str, ctas: Option<u64>, o: &Outcome) {
        q.now += ctas.map_or(0, |n| time::launch_ns(&self.gpu.info, &o.counters.total, n));
        // What nobody wrote to shared memory is undefined, not wrong: threads beyond a tile's rim read it
        // and drop what they make of it.
        let wrong = |r: &&ptx_emulator::Report| r.kind != Finding::UninitialisedShared;
        let mut reports = o.reports.iter().filter(wrong);
        let Some(first) = reports.next() else {
            return;
        };
        let fatal = o.reports.iter().find(|r| r.kind.fatal());
        let Some(r) = fatal else {
            let more = match reports.count() {
                0 => String::new(),
                n => format!(" (and {n} more)"),
            };
            q.error.get_or_insert(DriverError::Launch {
                kernel: kernel.into(),
                code: "EMULATOR_FINDING".into(),
                why: format!("{first}{more}"),
            });
            return;
        };
        let code = match r.kind {
            Finding::Misaligned => "CUDA_ERROR_MISALIGNED_ADDRESS",
            Finding::OutOfBounds | Finding::ReadOnly => "CUDA_ERROR_ILLEGAL_ADDRESS",
            Finding::Deadlock | Finding::StepLimit => "CUDA_ERROR_LAUNCH_TIMEOUT",
            _ => "CUDA_ERROR_LAUNCH_FAILED",
        };
        self.lost = Some(DriverError::Lost {
            code: code.into(),
            why: format!("kernel '{kernel}': {r}"),
        });
    }

    /// The host reads; kernels that run are told.
    pub fn host_load(
        &mut self,
        at: u64,
        bytes: usize,
        order: HostOrder,
    ) -> Result<Vec<u8>, DriverError> {
        self.alive()?;
        let memory = &self.machine.memory;
        let busy = self.streams.values_mut().filter_map(|q| q.busy.as_mut());
        for b in busy {
            b.running.set_host_ns(self.host as f64);
            b.running
                .load(memory, at, bytes, order)
                .map_err(|e| failed("read", &e))?;
            self.host = self.host.max(b.running.host_ns() as u64);
        }
        memory.read(at, bytes).map_err(|e| failed("read", &e))
    }

    /// The host writes; kernels that run are told.
    pub fn host_store(
        &mut self,
        at: u64,
        data: &[u8],
        order: HostOrder,
    ) -> Result<(), DriverError> {
        self.alive()?;
        self.touched += 1;
        let memory = &self.machine.memory;
        let busy = self.streams.values_mut().filter_map(|q| q.busy.as_mut());
        for b in busy {
            b.running.set_host_ns(self.host as f64);
            b.running
                .store(memory, at, data, order)
                .map_err(|e| failed("write", &e))?;
        }
        memory.write(at, data).map_err(|e| failed("write", &e))
    }

    /// Pinned memory is gone; nothing in a queue holds it any more.
    pub fn forget_pinned(&mut self, at: u64) {
        if self.pinned.remove(&at).is_some() {
            // It was allocated, so it can be freed.
            let _ = self.machine.memory.free(at);
        }
    }

    /// Why a wait is given up: what runs, and what each of its warps does.
    pub fn deadlock(&self, call: &'static str) -> DriverError {
        let mut why = String::from("nothing that was queued can go on");
        for (id, q) in &self.streams {
            if let Some(b) = &q.busy {
                why += &format!(
                    "; kernel '{}' of stream {id} runs and waits for what nobody does (load modules \
                     and get memory before a resident kernel starts, or stop it first)",
                    b.kernel
                );
                let lines = b.running.dump(&self.machine.memory);
                for l in lines.iter().take(32) {
                    why += "\n  ";
                    why += l;
                }
            } else if let Some((_, Work::Wait(..))) = q.work.front() {
                why += &format!("; stream {id} waits for an event that does not come");
            }
        }
        DriverError::Call {
            call,
            code: "EMULATED_DEADLOCK".into(),
            why,
        }
    }
}
