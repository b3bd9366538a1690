//! The host's part of a block that another device runs.
//!
//! In a plan over a host and a device with memory of its own, the device executes its steps and the
//! copies between the two memories; what the plan gives to the host (host operators, kernels that
//! the device has no form for) is compiled step by step on the host's own device, as blocks of one
//! step. The host's memory is kept here: one allocation per buffer.
use crate::{AlignedBytes, Device, DeviceError, Executable, Frame, PackedStore, Permit, Request};
use kernel::Role;
use layout::Dim;
use machine::Cost;
use plan::{
    Block, Buffer, BufferId, BufferKind, Params, Plan, PlanSegment, Port, Size, Step, StepWork,
    VerifiedPlan,
};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use tensor::WeightStore;

/// A buffer that a step reads or writes.
struct Arg {
    buffer: BufferId,
    size: Size,
}

struct One {
    executable: Arc<dyn Executable>,
    inputs: Vec<Arg>,
    outputs: Vec<Arg>,
}

/// Steps of a block's init or steps that the host runs, by their numbers.
pub struct HostPart {
    steps: BTreeMap<usize, One>,
    names: BTreeMap<usize, String>,
}

/// Host memory of one request slot, or of what init makes.
pub struct HostMemory {
    /// By buffer; empty for those that are not kept here.
    buffers: Vec<AlignedBytes>,
    /// Of the host's executables; behind a lock only so that the bytes can be shared.
    frames: Mutex<BTreeMap<usize, Frame>>,
}

/// What steps read besides [`HostMemory`].
#[derive(Clone, Copy)]
pub struct HostView<'a> {
    /// The request's input ports.
    pub inputs: &'a [&'a [u8]],
    /// The model's constants.
    pub weights: &'a WeightStore,
    /// What init made on the host.
    pub kept: Option<&'a HostMemory>,
}

impl HostMemory {
    /// Memory for the host's buffers of the kinds that `kept` names.
    ///
    /// # Errors
    /// It could not be had.
    pub fn new(
        block: &Block,
        kept: impl Fn(&BufferKind) -> bool,
    ) -> Result<HostMemory, DeviceError> {
        let size = |b: &Buffer| match b.place == 0 && kept(&b.kind) {
            true => usize::try_from(b.bytes).unwrap_or(usize::MAX),
            false => 0,
        };
        let buffers = block
            .buffers
            .iter()
            .map(|b| AlignedBytes::new(size(b), &b.name))
            .collect::<Result<_, _>>()?;
        Ok(HostMemory {
            buffers,
            frames: Mutex::default(),
        })
    }

    fn frames(&mut self) -> &mut BTreeMap<usize, Frame> {
        self.frames
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes kept of buffer `b`, empty where none are.
    pub fn bytes_kept(&self, b: BufferId) -> &[u8] {
        self.buffers.get(b as usize).map_or(&[], |b| &b[..])
    }

    /// Bytes of buffer `b` of `block` on the host, wherever they are.
    pub fn bytes<'a>(&'a self, block: &Block, b: BufferId, view: HostView<'a>) -> &'a [u8] {
        let own = self.bytes_kept(b);
        if !own.is_empty() {
            return own;
        }
        match block.buffers.get(b as usize).map(|b| b.kind) {
            Some(BufferKind::Input(n)) => view.inputs.get(n as usize).copied().unwrap_or(&[]),
            Some(BufferKind::Weight(w)) => view.weights.get(w).map_or(&[], |w| &w.bytes[..]),
            Some(BufferKind::Init) => view.kept.map_or(&[], |k| k.bytes_kept(b)),
            _ => &[],
        }
    }

    /// Swaps the memory of buffer `b` with `bytes`: state is lent for a request.
    pub fn exchange(&mut self, b: BufferId, bytes: &mut AlignedBytes) {
        if let Some(own) = self.buffers.get_mut(b as usize) {
            std::mem::swap(own, bytes);
        }
    }

    /// The bytes of buffer `b`, to be written; empty where none are kept here.
    pub fn bytes_mut(&mut self, b: BufferId) -> &mut [u8] {
        self.buffers
            .get_mut(b as usize)
            .map_or(&mut [], |b| &mut b[..])
    }
}

/// A buffer with its shape.
type Shaped = (BufferId, Vec<Dim>);

/// Buffers with their shapes, each once: those read, and those written.
fn args(block: &Block, step: &Step) -> (Vec<Shaped>, Vec<Shaped>) {
    let (mut reads, mut writes): (Vec<Shaped>, Vec<Shaped>) = (vec![], vec![]);
    let whole = |own: &Buffer| {
        let elements = own.bytes.saturating_mul(8) / u64::from(own.dtype.bits().max(1));
        vec![Dim::Known(elements as i64)]
    };
    let mut add = |write: bool, b: BufferId, shape: Option<Vec<Dim>>| {
        let list = if write { &mut writes } else { &mut reads };
        let port = |ports: &[Port], n: u32| ports.get(n as usize).map(|p| p.shape.clone());
        let shape = block.buffers.get(b as usize).map(|own| match own.kind {
            // State is larger than what a request reads and writes of it.
            BufferKind::State(_) => whole(own),
            // Where in a buffer a kernel reads and writes only its accesses say: it gets all of it.
            BufferKind::Input(n) => shape
                .or(port(&block.inputs, n))
                .unwrap_or_else(|| whole(own)),
            BufferKind::Output(n) => shape
                .or(port(&block.outputs, n))
                .unwrap_or_else(|| whole(own)),
            _ => shape.unwrap_or_else(|| whole(own)),
        });
        let shape = shape.unwrap_or_default();
        if (b as usize) < block.buffers.len() && !list.iter().any(|x| x.0 == b) {
            list.push((b, shape));
        }
    };
    match &step.work {
        StepWork::Kernel { kernel, args, .. } => {
            for (o, &b) in kernel.operands.iter().zip(args) {
                add(o.role == Role::Write, b, None);
            }
        }
        StepWork::Host {
            inputs, outputs, ..
        } => {
            for a in inputs.iter().flatten() {
                add(false, a.buffer, Some(a.shape.clone()));
            }
            for a in outputs {
                add(true, a.buffer, Some(a.shape.clone()));
            }
        }
    }
    (reads, writes)
}

/// `step` of `block` as a plan of its own.
fn alone(plan: &Plan, block: &Block, step: &Step) -> Plan {
    let (reads, writes) = args(block, step);
    let mut buffers = vec![];
    let mut number: BTreeMap<BufferId, BufferId> = BTreeMap::new();
    let mut ports = |list: Vec<(BufferId, Vec<Dim>)>, write: bool| -> Vec<Port> {
        let mut out = vec![];
        for (n, (b, shape)) in list.into_iter().enumerate() {
            let old = &block.buffers[b as usize];
            let at = buffers.len() as BufferId;
            number.insert(b, at);
            out.push(Port {
                name: old.name.clone(),
                value: at,
                dtype: old.dtype,
                shape,
                buffer: at,
            });
            buffers.push(Buffer {
                kind: match write {
                    true => BufferKind::Output(n as u32),
                    false => BufferKind::Input(n as u32),
                },
                place: 0,
                offset: 0,
                ..old.clone()
            });
        }
        out
    };
    let (inputs, outputs) = (ports(reads, false), ports(writes, true));
    let to = |b: &mut BufferId| *b = number.get(b).copied().unwrap_or(*b);
    let mut one = step.clone();
    one.device = 0;
    one.waits.clear();
    match &mut one.work {
        StepWork::Kernel { args, .. } => args.iter_mut().for_each(to),
        StepWork::Host {
            inputs, outputs, ..
        } => {
            let all = inputs.iter_mut().flatten().chain(outputs);
            all.for_each(|a| to(&mut a.buffer));
        }
    }
    Plan {
        version: Plan::VERSION,
        model: plan.model.clone(),
        program_hash: plan.program_hash.clone(),
        devices: plan.devices.iter().take(1).cloned().collect(),
        dims: plan.dims.clone(),
        goal: plan.goal,
        launch: None,
        segments: vec![PlanSegment::Block(Box::new(Block {
            symbols: block.symbols.clone(),
            constraints: block.constraints.clone(),
            buffers,
            inputs,
            outputs,
            states: vec![],
            init: vec![],
            scratch_bytes: one.scratch,
            steps: vec![one],
            arena_bytes: 0,
            far_arenas: vec![],
            predicted: Cost::zero(),
        }))],
        predicted: Cost::zero(),
        whys: vec![],
    }
}

/// Block `block` of `plan` as a plan for the host alone, where nothing of it is on another device.
pub fn host_block(plan: &Plan, block: usize) -> Option<Plan> {
    let b = plan.blocks().nth(block)?;
    let here = b.init.iter().chain(&b.steps).all(|s| s.device == 0);
    if plan.devices.len() < 2 || !here || b.buffers.iter().any(|b| b.place != 0) {
        return None;
    }
    let mut own = b.clone();
    own.far_arenas.clear();
    Some(Plan {
        devices: plan.devices.iter().take(1).cloned().collect(),
        segments: vec![PlanSegment::Block(Box::new(own))],
        whys: vec![],
        ..plan.clone()
    })
}

impl HostPart {
    /// Compiles the host's steps among `steps` (the block's, or its init) on `host`; the parameters
    /// of their shapes are added to `params`.
    ///
    /// # Errors
    /// `host` cannot run one of them, or one reads and writes the same buffer.
    pub fn new(
        host: &dyn Device,
        plan: &VerifiedPlan,
        block: &Block,
        steps: &[Step],
        params: &mut Params,
    ) -> Result<HostPart, DeviceError> {
        let mut out = HostPart {
            steps: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        for (i, s) in steps.iter().enumerate() {
            if s.device != 0 || block.is_transfer(s) {
                continue;
            }
            let (reads, writes) = args(block, s);
            if reads.iter().any(|r| writes.iter().any(|w| w.0 == r.0)) {
                return Err(DeviceError::Unsupported {
                    device: host.name().into(),
                    step: s.name.clone(),
                    why: "it writes to a buffer that it reads, which a step of the host beside another device does not".into(),
                });
            }
            let alone = Arc::new(alone(plan.plan(), block, s).verify()?);
            let none = Arc::new(WeightStore::default());
            let executable = host.compile(alone, 0, &none, &PackedStore::new())?;
            let mut named = |list: Vec<(BufferId, Vec<Dim>)>| -> Vec<Arg> {
                list.into_iter()
                    .map(|(buffer, shape)| Arg {
                        buffer,
                        size: Size::new(block.buffers[buffer as usize].dtype, &shape, params),
                    })
                    .collect()
            };
            let one = One {
                executable,
                inputs: named(reads),
                outputs: named(writes),
            };
            out.steps.insert(i, one);
            out.names.insert(i, s.name.clone());
        }
        Ok(out)
    }

    /// Whether step `step` is the host's.
    pub fn has(&self, step: usize) -> bool {
        self.steps.contains_key(&step)
    }

    /// Runs step `step` of `block` for the symbols' values `symbols`, of which `p` are the
    /// parameters, as long as nobody calls the request off by `cancel`.
    ///
    /// # Errors
    /// The step fails, its buffers are not there, or [`DeviceError::Cancelled`].
    pub fn run(
        &self,
        step: usize,
        (block, cancel): (&Block, Option<&AtomicBool>),
        memory: &mut HostMemory,
        view: HostView<'_>,
        symbols: &[i64],
        p: &[i64],
    ) -> Result<(), DeviceError> {
        let Some(one) = self.steps.get(&step) else {
            return Ok(());
        };
        let name = |b: BufferId| block.buffers[b as usize].name.clone();
        let short = |b: BufferId, want: Option<usize>, got: usize| DeviceError::Port {
            port: name(b),
            want: want.map_or(u64::MAX, |w| w as u64),
            got: got as u64,
        };
        let mut frame = match memory.frames().remove(&step) {
            Some(f) => f,
            None => one.executable.new_frame()?,
        };
        let mut made = vec![];
        for a in &one.outputs {
            let n = a.size.bytes(p);
            let own = memory.buffers.get_mut(a.buffer as usize);
            let own = own.filter(|b| n.is_some_and(|n| n <= b.len()));
            let Some(own) = own else {
                return Err(short(a.buffer, n, memory.bytes_kept(a.buffer).len()));
            };
            made.push(std::mem::replace(own, AlignedBytes::new(0, "")?));
        }
        let mut inputs = vec![];
        for a in &one.inputs {
            let bytes = memory.bytes(block, a.buffer, view);
            match a.size.bytes(p) {
                Some(n) if n <= bytes.len() => inputs.push(&bytes[..n]),
                n => return Err(short(a.buffer, n, bytes.len())),
            }
        }
        let sizes: Vec<usize> = one
            .outputs
            .iter()
            .map(|a| a.size.bytes(p).unwrap_or(0))
            .collect();
        let mut outputs: Vec<&mut [u8]> = made
            .iter_mut()
            .zip(&sizes)
            .map(|(m, &n)| &mut m[..n])
            .collect();
        let request = Request {
            symbols,
            inputs: &inputs,
            outputs: &mut outputs,
            states: &mut [],
            timeline: None,
            stop_after: None,
            permit: Permit {
                cancel,
                ..Permit::default()
            },
        };
        let done = one.executable.run(&mut frame, request);
        for (a, m) in one.outputs.iter().zip(made) {
            memory.buffers[a.buffer as usize] = m;
        }
        memory.frames().insert(step, frame);
        done
    }
}
