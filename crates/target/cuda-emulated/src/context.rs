//! The driver's calls.
use crate::faults::Faults;
use crate::gpu::EmulatedGpu;
use crate::hook::Happened;
use crate::pinned::PinnedHost;
use crate::state::{Function, Node, Queue, State, Work, moment};
use cuda::{
    Arg, Context, DeviceInfo, DevicePtr, DriverError, EventId, FunctionId, FunctionInfo, GraphId,
    Launch, MemoryInfo, ModuleCode, ModuleId, Pinned, StreamId, TensorMap,
};
use emit::ptx::TensorLayout;
use ptx_emulator::{MemoryKind, tensor_map};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Dynamic shared memory that every launch may have.
const SHARED: u32 = 48 << 10;
/// Device memory is counted in pieces of so many bytes.
const GRAIN: u64 = 512;
/// CTAs in flight of a kernel whose CTAs do not communicate: as many as help, not as many as fit.
const IN_FLIGHT: usize = 64;
/// What code of an emulated GPU begins with; the text that it is made of follows.
const BINARY: &str = "\u{7f}code of an emulated GPU\n";
/// Sleep between looks at a GPU on which nothing moves.
const NAP: Duration = Duration::from_micros(50);

/// An emulated GPU.
pub(crate) struct Emulated {
    gpu: EmulatedGpu,
    faults: Arc<Mutex<Faults>>,
    state: Mutex<State>,
    /// Threads that want the state: a wait makes room for them.
    wanting: AtomicUsize,
    /// Pinned memory that was dropped, perhaps by a queue while the state was taken.
    freed: Mutex<Vec<u64>>,
}

/// An open GPU.
pub(crate) struct Handle(pub Arc<Emulated>);

fn argument<T>(call: &'static str, why: String) -> Result<T, DriverError> {
    Err(DriverError::Argument { call, why })
}

impl Emulated {
    pub fn new(gpu: EmulatedGpu, faults: Arc<Mutex<Faults>>) -> Emulated {
        Emulated {
            state: Mutex::new(State::new(gpu.clone())),
            gpu,
            faults,
            wanting: AtomicUsize::new(0),
            freed: Mutex::default(),
        }
    }

    pub fn info(&self) -> &DeviceInfo {
        &self.gpu.info
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let mut s = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.wanting.fetch_sub(1, Ordering::Relaxed);
        for at in self.freed().drain(..) {
            s.forget_pinned(at);
        }
        s
    }

    /// Addresses of pinned memory that nobody holds any more.
    pub fn freed(&self) -> MutexGuard<'_, Vec<u64>> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call.
    fn enter(&self, call: &'static str) -> Result<MutexGuard<'_, State>, DriverError> {
        let mut s = self.lock();
        *s.calls.entry(call).or_default() += 1;
        s.alive()?;
        if let Some(e) = self.faults().call() {
            s.lost = Some(e);
        }
        s.alive()?;
        Ok(s)
    }

    /// Lets streams go on until `done` holds. Other threads get their turns in between.
    fn wait(
        &self,
        call: &'static str,
        done: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'_, State>, DriverError> {
        let mut still: Option<(Instant, u64)> = None;
        loop {
            let mut s = self.lock();
            s.alive()?;
            if done(&s) {
                return Ok(s);
            }
            if s.advance() {
                still = None;
                drop(s);
                if self.wanting.load(Ordering::Relaxed) > 0 {
                    std::thread::sleep(NAP);
                }
                continue;
            }
            s.alive()?;
            if done(&s) {
                return Ok(s);
            }
            match still {
                Some((since, seen)) if seen == s.touched => {
                    if since.elapsed() > self.gpu.patience {
                        return Err(s.deadlock(call));
                    }
                }
                _ => still = Some((Instant::now(), s.touched)),
            }
            drop(s);
            std::thread::sleep(NAP);
        }
    }

    /// Begins a call that may block behind running kernels, and does.
    fn enter_alone(&self, call: &'static str) -> Result<MutexGuard<'_, State>, DriverError> {
        drop(self.enter(call)?);
        self.wait(call, State::launches_done)
    }

    /// Waits for one stream.
    fn drained(
        &self,
        call: &'static str,
        stream: u64,
    ) -> Result<MutexGuard<'_, State>, DriverError> {
        self.wait(call, |s| s.streams.get(&stream).is_none_or(Queue::is_idle))
    }
}

impl Handle {
    /// CTAs of `f` on an SM at once.
    fn blocks(&self, f: &Function, threads: u32, shared: u32) -> u32 {
        let i = self.0.info();
        let threads = threads.max(1).next_multiple_of(32);
        let registers = f.info.registers.clamp(16, 255).next_multiple_of(8) * threads;
        // From sm_80 on the system keeps a kibibyte of each CTA's shared memory.
        let own = if i.compute.major >= 8 { 1024 } else { 0 };
        let shared = f.info.shared_bytes + shared + own;
        let by_shared = i.shared_per_sm.checked_div(shared).unwrap_or(u32::MAX);
        (i.threads_per_sm / threads)
            .min(i.blocks_per_sm)
            .min((i.registers_per_sm / registers).max(u32::from(threads <= 1024)))
            .min(by_shared)
    }

    /// The address of pinned memory of this GPU.
    fn own(s: &State, call: &'static str, p: &Arc<dyn Pinned>) -> Result<(), DriverError> {
        match s.pinned.get(&p.device_ptr().0) {
            Some(n) if *n == p.len() => Ok(()),
            _ => argument(call, "the pinned memory is not of this GPU".into()),
        }
    }

    fn inside(call: &'static str, r: &Range<usize>, len: usize) -> Result<(), DriverError> {
        match r.start <= r.end && r.end <= len {
            true => Ok(()),
            false => argument(call, format!("bytes {} to {} of {len}", r.start, r.end)),
        }
    }

    fn event(
        s: &State,
        call: &'static str,
        e: EventId,
    ) -> Result<crate::state::Event, DriverError> {
        match s.events.get(&e.0) {
            Some(e) => Ok(e.clone()),
            None => argument(call, format!("there is no event {}", e.0)),
        }
    }
}

impl Context for Handle {
    fn key(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn emulated_ns(&self) -> Option<u64> {
        Some(self.0.lock().host_ns())
    }

    fn memory(&self) -> Result<MemoryInfo, DriverError> {
        let s = self.0.enter("cuMemGetInfo")?;
        let total = self.info().memory_bytes;
        Ok(MemoryInfo {
            free: total.saturating_sub(s.used),
            total,
        })
    }

    fn allocate(&self, bytes: u64) -> Result<DevicePtr, DriverError> {
        let mut s = self.0.enter_alone("cuMemAlloc")?;
        let total = self.info().memory_bytes;
        let size = bytes.max(1).div_ceil(GRAIN).saturating_mul(GRAIN);
        let none = DriverError::OutOfMemory {
            asked: bytes,
            free: total.saturating_sub(s.used),
            total,
        };
        if self.0.faults().allocation(bytes) || s.used.saturating_add(size) > total {
            return Err(none);
        }
        let at = s.machine.memory.allocate(bytes.max(1), MemoryKind::Device);
        let at = at.map_err(|_| none)?;
        s.used += size;
        s.allocations.insert(at, size);
        Ok(DevicePtr(at))
    }

    fn free(&self, ptr: DevicePtr) -> Result<(), DriverError> {
        let mut s = self.0.enter_alone("cuMemFree")?;
        let Some(size) = s.allocations.remove(&ptr.0) else {
            return argument("cuMemFree", format!("nothing begins at {:#x}", ptr.0));
        };
        s.used -= size;
        let freed = s.machine.memory.free(ptr.0);
        freed.or_else(|e| argument("cuMemFree", e.to_string()))
    }

    fn pinned(&self, bytes: usize) -> Result<Arc<dyn Pinned>, DriverError> {
        let mut s = self.0.enter_alone("cuMemHostAlloc")?;
        if !self.info().maps_host_memory {
            return argument(
                "cuMemHostAlloc",
                format!("{} cannot see host memory", self.info().name),
            );
        }
        let size = bytes.max(4);
        let made = s.machine.memory.allocate(size as u64, MemoryKind::Host);
        let at = made.or_else(|e| argument("cuMemHostAlloc", e.to_string()))?;
        let zeroed = s.machine.memory.write(at, &vec![0; size]);
        zeroed.or_else(|e| argument("cuMemHostAlloc", e.to_string()))?;
        s.pinned.insert(at, bytes);
        Ok(Arc::new(PinnedHost {
            gpu: self.0.clone(),
            at,
            len: bytes,
        }))
    }

    fn upload(&self, to: DevicePtr, from: &[u8]) -> Result<(), DriverError> {
        drop(self.0.enter("cuMemcpyHtoD")?);
        let mut s = self.0.drained("cuMemcpyHtoD", 0)?;
        s.settle(0)?;
        let done = s.machine.memory.write(to.0, from);
        s.touched += 1;
        s.nudge(None);
        done.or_else(|e| argument("cuMemcpyHtoD", e.to_string()))
    }

    fn download(&self, to: &mut [u8], from: DevicePtr) -> Result<(), DriverError> {
        drop(self.0.enter("cuMemcpyDtoH")?);
        let mut s = self.0.drained("cuMemcpyDtoH", 0)?;
        s.settle(0)?;
        match s.machine.memory.read(from.0, to.len()) {
            Ok(b) => {
                to.copy_from_slice(&b);
                Ok(())
            }
            Err(e) => argument("cuMemcpyDtoH", e.to_string()),
        }
    }

    fn upload_from(
        &self,
        to: DevicePtr,
        from: &Arc<dyn Pinned>,
        range: Range<usize>,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        const CALL: &str = "cuMemcpyHtoDAsync";
        let mut s = self.0.enter(CALL)?;
        Self::inside(CALL, &range, from.len())?;
        Self::own(&s, CALL, from)?;
        let work = Work::Upload {
            to: to.0,
            from: from.clone(),
            at: range.start as u64,
            bytes: range.len(),
        };
        s.push(CALL, stream.0, work)
    }

    fn download_into(
        &self,
        to: &Arc<dyn Pinned>,
        range: Range<usize>,
        from: DevicePtr,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        const CALL: &str = "cuMemcpyDtoHAsync";
        let mut s = self.0.enter(CALL)?;
        Self::inside(CALL, &range, to.len())?;
        Self::own(&s, CALL, to)?;
        let work = Work::Download {
            to: to.clone(),
            at: range.start as u64,
            from: from.0,
            bytes: range.len(),
        };
        s.push(CALL, stream.0, work)
    }

    fn copy(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        bytes: u64,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        let work = Work::Node(Node::Copy {
            to: to.0,
            from: from.0,
            bytes: bytes as usize,
        });
        self.0
            .enter("cuMemcpyDtoDAsync")?
            .push("cuMemcpyDtoDAsync", stream.0, work)
    }

    fn fill(
        &self,
        at: DevicePtr,
        value: u8,
        bytes: u64,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        let work = Work::Node(Node::Fill {
            at: at.0,
            value,
            bytes: bytes as usize,
        });
        self.0
            .enter("cuMemsetD8Async")?
            .push("cuMemsetD8Async", stream.0, work)
    }

    fn tensor_map(&self, at: DevicePtr, t: &TensorLayout) -> Result<TensorMap, DriverError> {
        const CALL: &str = "cuTensorMapEncodeTiled";
        drop(self.0.enter(CALL)?);
        let kind = (t.data_type(), at.offset(t.offset).0);
        let sizes = (&t.extents[..], &t.strides[..]);
        let map = tensor_map::TensorMap::tiled(kind, sizes, (&t.boxes, &t.steps), t.swizzle_bytes);
        let bytes = map.and_then(|m| tensor_map::encode(&m));
        bytes
            .map(TensorMap)
            .or_else(|e| argument(CALL, e.to_string()))
    }

    fn assemble(&self, ptx: &str) -> Result<Vec<u8>, DriverError> {
        // What is wrong with a text is said where it is loaded.
        drop(self.0.enter("cuLinkComplete")?);
        Ok([BINARY, ptx].concat().into_bytes())
    }

    fn load_module(&self, code: ModuleCode) -> Result<ModuleId, DriverError> {
        let mut s = self.0.enter_alone("cuModuleLoadDataEx")?;
        let refused = |code: &str, log: String| {
            Err(DriverError::Module {
                code: code.into(),
                log,
            })
        };
        let ptx = match code {
            ModuleCode::Text(ptx) => Some(ptx),
            ModuleCode::Binary(code) => std::str::from_utf8(code)
                .ok()
                .and_then(|text| text.strip_prefix(BINARY)),
        };
        let Some(ptx) = ptx else {
            return refused(
                "CUDA_ERROR_INVALID_IMAGE",
                "it is no code of this GPU".into(),
            );
        };
        let code = match s.machine.load(&self.0.faults().compiled(ptx)) {
            Ok(m) => m,
            Err(e) => return refused("CUDA_ERROR_INVALID_PTX", e.to_string()),
        };
        let c = self.info().compute;
        let digits: String = code.target().chars().filter(char::is_ascii_digit).collect();
        let own = c.major * 10 + c.minor;
        // What is for one architecture alone runs on no later one.
        let alone = code.target().ends_with('a');
        if digits
            .parse()
            .is_ok_and(|v: u32| v > own || alone && v != own)
        {
            let log = format!("it is for {}, this GPU is {}", code.target(), c.arch());
            return refused("CUDA_ERROR_INVALID_PTX", log);
        }
        let read = code
            .kernels()
            .iter()
            .try_for_each(|k| code.info(k).map(drop));
        if let Err(e) = read {
            return refused("CUDA_ERROR_INVALID_PTX", e.to_string());
        }
        let id = s.id();
        s.modules.insert(id, Arc::new(code));
        Ok(ModuleId(id))
    }

    fn unload_module(&self, module: ModuleId) -> Result<(), DriverError> {
        let mut s = self.0.enter_alone("cuModuleUnload")?;
        let Some(m) = s.modules.remove(&module.0) else {
            return argument("cuModuleUnload", format!("there is no module {}", module.0));
        };
        s.functions.retain(|_, f| f.module != module.0);
        let gone = s.machine.unload(&m);
        gone.or_else(|e| argument("cuModuleUnload", e.to_string()))
    }

    fn function(&self, module: ModuleId, entry: &str) -> Result<FunctionId, DriverError> {
        let mut s = self.0.enter("cuModuleGetFunction")?;
        let Some(code) = s.modules.get(&module.0).cloned() else {
            return argument("cuModuleGetFunction", format!("no module {}", module.0));
        };
        let info = code
            .info(entry)
            .or_else(|e| argument("cuModuleGetFunction", e.to_string()))?;
        let id = s.id();
        let f = Function {
            module: module.0,
            code,
            entry: entry.into(),
            info,
            allowed: SHARED,
        };
        s.functions.insert(id, f);
        Ok(FunctionId(id))
    }

    fn function_info(&self, function: FunctionId) -> Result<FunctionInfo, DriverError> {
        let s = self.0.enter("cuFuncGetAttribute")?;
        match s.functions.get(&function.0) {
            Some(f) => Ok(FunctionInfo {
                registers: f.info.registers.clamp(16, 255),
                shared_bytes: f.info.shared_bytes,
                local_bytes: f.info.local_bytes,
                max_threads: f.info.max_threads,
            }),
            None => argument("cuFuncGetAttribute", format!("no function {}", function.0)),
        }
    }

    fn allow_shared(&self, function: FunctionId, bytes: u32) -> Result<(), DriverError> {
        const CALL: &str = "cuFuncSetAttribute";
        let mut s = self.0.enter(CALL)?;
        let most = self.info().shared_per_block_optin;
        let Some(f) = s.functions.get_mut(&function.0) else {
            return argument(CALL, format!("no function {}", function.0));
        };
        if bytes.saturating_add(f.info.shared_bytes) > most {
            return argument(
                CALL,
                format!("{bytes} bytes of shared memory; a CTA of this GPU may have {most}"),
            );
        }
        f.allowed = f.allowed.max(bytes);
        Ok(())
    }

    fn blocks_per_sm(
        &self,
        function: FunctionId,
        threads: u32,
        shared_bytes: u32,
    ) -> Result<u32, DriverError> {
        let s = self
            .0
            .enter("cuOccupancyMaxActiveBlocksPerMultiprocessor")?;
        match s.functions.get(&function.0) {
            Some(f) => Ok(self.blocks(f, threads, shared_bytes)),
            None => argument("occupancy", format!("no function {}", function.0)),
        }
    }

    fn launch(
        &self,
        function: FunctionId,
        shape: Launch,
        args: &[Arg],
        stream: StreamId,
    ) -> Result<(), DriverError> {
        const CALL: &str = "cuLaunchKernel";
        let mut s = self.0.enter(CALL)?;
        let Some(f) = s.functions.get(&function.0) else {
            return argument(CALL, format!("no function {}", function.0));
        };
        let refused = |code: &str, why: String| {
            Err(DriverError::Launch {
                kernel: f.entry.clone(),
                code: code.into(),
                why,
            })
        };
        if self.0.faults().launch() {
            return refused("CUDA_ERROR_LAUNCH_FAILED", "it was made to fail".into());
        }
        if shape.shared_bytes > f.allowed {
            let why = format!(
                "{} bytes of shared memory, {} are allowed; ask with allow_shared",
                shape.shared_bytes, f.allowed
            );
            return refused("CUDA_ERROR_INVALID_VALUE", why);
        }
        let threads: u32 = shape.block.iter().fold(1, |p, t| p.saturating_mul(*t));
        let per_sm = self.blocks(f, threads, shape.shared_bytes);
        if per_sm == 0 {
            let why = "a CTA of it does not fit on an SM".into();
            return refused("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", why);
        }
        if args.len() != f.info.params.len() {
            let why = format!("{} arguments for {}", args.len(), f.info.params.len());
            return refused("CUDA_ERROR_INVALID_VALUE", why);
        }
        let mut bytes = vec![];
        for (a, p) in args.iter().zip(&f.info.params) {
            let b = a.bytes().0;
            match b.get(..p.bytes as usize) {
                Some(b) => bytes.push(b.to_vec()),
                None => {
                    let why = format!("parameter {} has {} bytes", p.name, p.bytes);
                    return refused("CUDA_ERROR_INVALID_VALUE", why);
                }
            }
        }
        if shape.early && !f.info.waits {
            let why = "it may begin while the kernel before it runs and does not wait for it";
            return refused("EMULATOR_FINDING", why.into());
        }
        let resident = match f.info.communicates {
            true => per_sm as usize * self.info().sms as usize,
            false => IN_FLIGHT,
        };
        let launch = ptx_emulator::Launch {
            grid: shape.grid,
            block: shape.block,
            shared: shape.shared_bytes,
            args: bytes,
            seed: self.0.gpu.seed,
            resident,
            checks: self.0.gpu.checks,
            step_limit: self.0.gpu.step_limit,
            shared_limit: Some(self.info().shared_per_block_optin),
            ..ptx_emulator::Launch::new(f.entry.clone())
        };
        // What no GPU would take is refused now, not when its turn comes.
        if let Err(e) = s.machine.check(&f.code, &launch) {
            return refused("CUDA_ERROR_INVALID_VALUE", e.to_string());
        }
        let work = Work::Node(Node::Launch {
            code: f.code.clone(),
            launch: Box::new(launch),
            communicates: f.info.communicates,
            early: shape.early,
        });
        if s.queue(CALL, stream.0)?.kept.is_none() {
            s.told.tell(Happened::Launched);
        }
        s.push(CALL, stream.0, work)
    }

    fn begin_graph(&self, stream: StreamId) -> Result<(), DriverError> {
        const CALL: &str = "cuStreamBeginCapture";
        let mut s = self.0.enter(CALL)?;
        let q = s.queue(CALL, stream.0)?;
        match q.kept {
            Some(_) => argument(CALL, "the stream keeps a graph already".into()),
            None => {
                q.kept = Some(Ok(vec![]));
                Ok(())
            }
        }
    }

    fn end_graph(&self, stream: StreamId) -> Result<GraphId, DriverError> {
        const CALL: &str = "cuStreamEndCapture";
        let mut s = self.0.enter(CALL)?;
        match s.queue(CALL, stream.0)?.kept.take() {
            Some(Ok(nodes)) => {
                let id = s.id();
                s.graphs.insert(id, nodes);
                Ok(GraphId(id))
            }
            Some(Err(what)) => argument(CALL, format!("{what} is no part of a graph")),
            None => argument(CALL, "the stream keeps no graph".into()),
        }
    }

    fn launch_graph(&self, graph: GraphId, stream: StreamId) -> Result<(), DriverError> {
        const CALL: &str = "cuGraphLaunch";
        let mut s = self.0.enter(CALL)?;
        let Some(nodes) = s.graphs.get(&graph.0).cloned() else {
            return argument(CALL, format!("there is no graph {}", graph.0));
        };
        if self.0.faults().launch() {
            return Err(DriverError::Launch {
                kernel: "a graph".into(),
                code: "CUDA_ERROR_LAUNCH_FAILED".into(),
                why: "it was made to fail".into(),
            });
        }
        s.told.tell(Happened::Launched);
        for node in nodes {
            s.push(CALL, stream.0, Work::GraphNode(node))?;
        }
        Ok(())
    }

    fn drop_graph(&self, graph: GraphId) -> Result<(), DriverError> {
        const CALL: &str = "cuGraphExecDestroy";
        let mut s = self.0.enter(CALL)?;
        match s.graphs.remove(&graph.0) {
            Some(_) => Ok(()),
            None => argument(CALL, format!("there is no graph {}", graph.0)),
        }
    }

    fn new_stream(&self, _priority: i32) -> Result<StreamId, DriverError> {
        let mut s = self.0.enter("cuStreamCreate")?;
        let id = s.id();
        s.streams.insert(id, Queue::default());
        Ok(StreamId(id))
    }

    fn drop_stream(&self, stream: StreamId) -> Result<(), DriverError> {
        if stream.0 == 0 {
            return argument("cuStreamDestroy", "the default stream stays".into());
        }
        let mut s = self.0.enter("cuStreamDestroy")?;
        s.queue("cuStreamDestroy", stream.0)?.dropped = true;
        Ok(())
    }

    fn synchronize(&self, stream: StreamId) -> Result<(), DriverError> {
        self.0
            .enter("cuStreamSynchronize")?
            .queue("cuStreamSynchronize", stream.0)?;
        self.0
            .drained("cuStreamSynchronize", stream.0)?
            .settle(stream.0)
    }

    fn is_done(&self, stream: StreamId) -> Result<bool, DriverError> {
        let mut s = self.0.enter("cuStreamQuery")?;
        s.advance();
        s.alive()?;
        let done = s.queue("cuStreamQuery", stream.0)?.is_idle();
        if done {
            s.settle(stream.0)?;
        }
        Ok(done)
    }

    fn wait_event(&self, stream: StreamId, event: EventId) -> Result<(), DriverError> {
        let mut s = self.0.enter("cuStreamWaitEvent")?;
        let e = Self::event(&s, "cuStreamWaitEvent", event)?;
        let asked = moment(&e).asked;
        s.push("cuStreamWaitEvent", stream.0, Work::Wait(e, asked))
    }

    fn new_event(&self) -> Result<EventId, DriverError> {
        let mut s = self.0.enter("cuEventCreate")?;
        let id = s.id();
        s.events.insert(id, Arc::default());
        Ok(EventId(id))
    }

    fn drop_event(&self, event: EventId) -> Result<(), DriverError> {
        let mut s = self.0.enter("cuEventDestroy")?;
        match s.events.remove(&event.0) {
            Some(_) => Ok(()),
            None => argument("cuEventDestroy", format!("there is no event {}", event.0)),
        }
    }

    fn record(&self, event: EventId, stream: StreamId) -> Result<(), DriverError> {
        let mut s = self.0.enter("cuEventRecord")?;
        let e = Self::event(&s, "cuEventRecord", event)?;
        s.queue("cuEventRecord", stream.0)?;
        let n = {
            let mut m = moment(&e);
            m.asked += 1;
            m.stream = stream.0;
            m.asked
        };
        s.push("cuEventRecord", stream.0, Work::Record(e, n))
    }

    fn synchronize_event(&self, event: EventId) -> Result<(), DriverError> {
        let e = Self::event(
            &*self.0.enter("cuEventSynchronize")?,
            "cuEventSynchronize",
            event,
        )?;
        let asked = moment(&e).asked;
        let came = |_: &State| moment(&e).happened >= asked;
        self.0.wait("cuEventSynchronize", came)?.settle_event(&e)
    }

    fn elapsed_ms(&self, from: EventId, to: EventId) -> Result<f32, DriverError> {
        const CALL: &str = "cuEventElapsedTime";
        let s = self.0.enter(CALL)?;
        let at = |e: EventId| {
            let e = Self::event(&s, CALL, e)?;
            let m = moment(&e);
            match m.asked > 0 && m.happened == m.asked {
                true => Ok(m.at as f64),
                false => Err(DriverError::Call {
                    call: CALL,
                    code: "CUDA_ERROR_NOT_READY".into(),
                    why: "an event has not happened yet".into(),
                }),
            }
        };
        Ok(((at(to)? - at(from)?) * 1e-6) as f32)
    }
}
