//! A compiled block: what stays is made once, requests run in frames of their own.
use crate::gpu::Gpu;
use crate::memory::ALIGN;
use crate::memory::Memory;
use crate::run::{CompiledSteps, Far, Place, fetch};
use device::{
    Device, DeviceError, Executable, Frame, HostMemory, HostPart, HostView, Permit, Request, State,
};
use emit::wgsl::Array;
use kernel::TileProgram;
use plan::{Block, Bound, BufferKind, Params, Size, VerifiedPlan};
use std::sync::Arc;
use std::time::Instant;
use tensor::WeightStore;

struct Port {
    name: String,
    size: Size,
    buffer: usize,
    state: bool,
    /// Whether its buffer lies on the GPU.
    here: bool,
}

impl Port {
    /// Whether a caller's buffer of `got` bytes is of the port's size under the parameters `p`; state has
    /// a size of its own.
    fn takes(&self, p: &[i64], got: usize) -> Result<(), DeviceError> {
        match self.state {
            true => Ok(()),
            false => device::check_port(&self.name, &self.size, p, got),
        }
    }
}

/// A compiled block of a plan.
pub(crate) struct GpuExecutable {
    gpu: Arc<Gpu>,
    plan: Arc<VerifiedPlan>,
    block: usize,
    steps: CompiledSteps,
    params: Params,
    memory: Memory,
    kept: wgpu::Buffer,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// The host's part, where the plan is over the host and this device.
    host: Option<HostSide>,
}

/// What the host does for a block.
struct HostSide {
    part: HostPart,
    /// What init made.
    kept: HostMemory,
    weights: Arc<WeightStore>,
}

/// Memory of one request slot.
struct GpuFrame {
    bound: Bound,
    work: wgpu::Buffer,
    numbers: wgpu::Buffer,
    group: wgpu::BindGroup,
    host: Option<HostMemory>,
}

fn block_of(plan: &VerifiedPlan, block: usize) -> Result<&Block, DeviceError> {
    plan.plan()
        .blocks()
        .nth(block)
        .ok_or_else(|| DeviceError::Unsupported {
            device: "wgpu".into(),
            step: format!("block {block}"),
            why: "the plan has no such block".into(),
        })
}

fn group(
    gpu: &Gpu,
    work: &wgpu::Buffer,
    kept: &wgpu::Buffer,
    numbers: &wgpu::Buffer,
) -> wgpu::BindGroup {
    fn entry(
        binding: u32,
        buffer: &wgpu::Buffer,
        size: Option<wgpu::BufferSize>,
    ) -> wgpu::BindGroupEntry<'_> {
        wgpu::BindGroupEntry {
            binding,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer,
                offset: 0,
                size,
            }),
        }
    }
    // A list of numbers is seen from its own start on; none is longer than the room behind the last.
    let window = wgpu::BufferSize::new(LIST);
    gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &gpu.bindings,
        entries: &[
            entry(0, work, None),
            entry(1, kept, None),
            entry(2, numbers, window),
        ],
    })
}

/// Bytes of one list of numbers at most.
const LIST: u64 = 4096;

fn refused(step: &str, why: String) -> DeviceError {
    DeviceError::Unsupported {
        device: "wgpu".into(),
        step: step.into(),
        why,
    }
}

/// Writes the model's constants of device `place` to where `memory` has them in `kept`.
fn write_weights(
    gpu: &Gpu,
    (b, place): (&Block, u32),
    weights: &WeightStore,
    (memory, kept): (&Memory, &wgpu::Buffer),
) -> Result<(), DeviceError> {
    for (buf, at) in b.buffers.iter().zip(&memory.at) {
        let (BufferKind::Weight(id), true) = (buf.kind, buf.place == place) else {
            continue;
        };
        let w = weights
            .get(id)
            .filter(|w| w.bytes.len() as u64 >= buf.bytes);
        let w = w.ok_or_else(|| refused(&buf.name, format!("the model has no constant {id} of {} bytes; the plan was made for another model", buf.bytes)))?;
        gpu.write(kept, at.1, &w.bytes[..buf.bytes as usize]);
    }
    Ok(())
}

/// The init segment of a block.
struct Init<'a> {
    gpu: &'a Gpu,
    plan: &'a VerifiedPlan,
    block: &'a Block,
    programs: &'a [Option<TileProgram>],
    place: u32,
    host: Option<&'a dyn Device>,
    weights: &'a Arc<WeightStore>,
}

impl Init<'_> {
    /// Runs it once: what it makes stays in `kept`, and in `beside` on the host.
    fn run(
        &self,
        memory: &Memory,
        kept: &wgpu::Buffer,
        beside: Option<&mut HostMemory>,
    ) -> Result<(), DeviceError> {
        let (gpu, b) = (self.gpu, self.block);
        let mut params = Params::new();
        let init = (b, &b.init[..], self.place);
        let init = CompiledSteps::compile(gpu, init, self.programs, memory, &mut params)?;
        let part = self
            .host
            .map(|h| HostPart::new(h, self.plan, b, &b.init, &mut params))
            .transpose()?;
        let dims = &self.plan.plan().dims;
        let mut bound = Bound::new(&params, &b.symbols, dims)?;
        let top = b.largest_sizes(dims);
        let p = bound.at(&top)?;
        let work = gpu.storage(memory.work_bytes, "the arena of init")?;
        let numbers = gpu.storage(init.number_bytes + LIST, "numbers")?;
        let bound = group(gpu, &work, kept, &numbers);
        let place = Place {
            memory,
            work: &work,
            kept,
            numbers: &numbers,
            bound: &bound,
        };
        let far = match (&part, beside) {
            (Some(part), Some(memory)) => Some(Far {
                part,
                block: b,
                memory,
                view: HostView {
                    inputs: &[],
                    weights: self.weights,
                    kept: None,
                },
                symbols: &top,
            }),
            _ => None,
        };
        let all = (b.init.len(), Permit::default());
        init.run(gpu, &place, p, all, far, None)
    }
}

impl GpuExecutable {
    pub fn new(
        gpu: Arc<Gpu>,
        plan: Arc<VerifiedPlan>,
        block: usize,
        weights: &Arc<WeightStore>,
        host: Option<&dyn Device>,
    ) -> Result<GpuExecutable, DeviceError> {
        let b = block_of(&plan, block)?;
        let place = plan.plan().devices.len().saturating_sub(1) as u32;
        if place > 1 {
            return Err(refused(
                "start",
                "the plan is over more than the host and this device; plan for those two".into(),
            ));
        }
        let host = match (place, host) {
            (0, _) => None,
            (_, None) => {
                return Err(refused(
                    "start",
                    "the plan gives steps to the host, which this device was opened without".into(),
                ));
            }
            (_, h) => h,
        };
        let memory = Memory::new(b, place)?;
        let kept = gpu.storage(memory.kept_bytes, "weights")?;
        write_weights(&gpu, (b, place), weights, (&memory, &kept))?;
        let mut params = Params::new();
        let mut ports = |ports: &[plan::Port], states: Vec<u32>| -> Vec<Port> {
            ports
                .iter()
                .enumerate()
                .map(|(i, p)| Port {
                    name: p.name.clone(),
                    size: Size::new(p.dtype, &p.shape, &mut params),
                    buffer: p.buffer as usize,
                    state: states.contains(&(i as u32)),
                    here: b.buffers[p.buffer as usize].place == place,
                })
                .collect()
        };
        let inputs = ports(&b.inputs, b.states.iter().map(|s| s.input).collect());
        let outputs = ports(&b.outputs, b.states.iter().map(|s| s.output).collect());
        let steps = CompiledSteps::compile(
            &gpu,
            (b, &b.steps, place),
            plan.step_programs(block),
            &memory,
            &mut params,
        )?;
        let mut beside = match host {
            None => None,
            Some(h) => Some(HostSide {
                part: HostPart::new(h, &plan, b, &b.steps, &mut params)?,
                kept: HostMemory::new(b, |k| *k == BufferKind::Init)?,
                weights: weights.clone(),
            }),
        };
        if !b.init.is_empty() {
            let init = Init {
                gpu: &gpu,
                plan: &plan,
                block: b,
                programs: plan.init_programs(block),
                place,
                host,
                weights,
            };
            init.run(&memory, &kept, beside.as_mut().map(|h| &mut h.kept))?;
        }
        Ok(GpuExecutable {
            gpu,
            block,
            steps,
            params,
            memory,
            kept,
            inputs,
            outputs,
            plan,
            host: beside,
        })
    }
}

impl Executable for GpuExecutable {
    fn new_frame(&self) -> Result<Frame, DeviceError> {
        let b = block_of(&self.plan, self.block)?;
        let work = self
            .gpu
            .storage(self.memory.work_bytes, "the arena of a request")?;
        let numbers = self
            .gpu
            .storage(self.steps.number_bytes + LIST, "numbers")?;
        let group = group(&self.gpu, &work, &self.kept, &numbers);
        Ok(Frame(Box::new(GpuFrame {
            bound: Bound::for_block(&self.params, b, &self.plan.plan().dims)?,
            work,
            numbers,
            group,
            host: match &self.host {
                None => None,
                Some(_) => Some(HostMemory::new(b, |k| {
                    matches!(k, BufferKind::Arena | BufferKind::Output(_))
                })?),
            },
        })))
    }

    fn memory_bytes(&self) -> usize {
        usize::try_from(self.memory.work_bytes).unwrap_or(usize::MAX)
    }

    fn frames_hold_device_memory(&self) -> bool {
        true
    }

    fn run(&self, frame: &mut Frame, request: Request<'_>) -> Result<(), DeviceError> {
        let b = block_of(&self.plan, self.block)?;
        let f = frame.0.downcast_mut::<GpuFrame>().ok_or_else(|| {
            let why = "the frame was made by another executable; make one with new_frame";
            refused("request", why.into())
        })?;
        let start = Instant::now();
        if request.symbols.len() != b.symbols.len()
            || request.inputs.len() != self.inputs.len()
            || request.outputs.len() != self.outputs.len()
            || request.states.len() != b.states.len()
        {
            let why = "symbols, inputs, outputs or states are not as many as the block has";
            return Err(refused("request", why.into()));
        }
        let p = f.bound.at(request.symbols)?;
        self.write_inputs(&f.work, p, &request)?;
        self.write_states(&f.work, b, request.states)?;
        let place = Place {
            memory: &self.memory,
            work: &f.work,
            kept: &self.kept,
            numbers: &f.numbers,
            bound: &f.group,
        };
        let all = self.steps.names.len();
        let count = request
            .stop_after
            .map_or(all, |s| (s as usize + 1).min(all));
        let mut timeline = request.timeline;
        if let Some(t) = timeline.as_deref_mut() {
            t.steps = self.step_names();
            t.spans.clear();
        }
        let watched = timeline.as_deref_mut().map(|t| (t, start));
        let far = match (&self.host, &mut f.host) {
            (Some(h), Some(memory)) => Some(Far {
                part: &h.part,
                block: b,
                memory,
                view: HostView {
                    inputs: request.inputs,
                    weights: &h.weights,
                    kept: Some(&h.kept),
                },
                symbols: request.symbols,
            }),
            _ => None,
        };
        let some = (count, request.permit);
        self.steps.run(&self.gpu, &place, p, some, far, watched)?;
        if let Some(memory) = &f.host {
            for (port, out) in self.outputs.iter().zip(request.outputs.iter_mut()) {
                if !port.state && !port.here {
                    out.copy_from_slice(&memory.bytes_kept(port.buffer as u32)[..out.len()]);
                }
            }
        }
        self.give_back(f, request.outputs)?;
        if request.permit.called_off() {
            return Err(DeviceError::Cancelled);
        }
        self.read_states(&f.work, b, request.states)?;
        if let Some(t) = timeline {
            t.total_ns = start.elapsed().as_nanos() as u64;
        }
        Ok(())
    }

    fn step_names(&self) -> Vec<String> {
        self.steps.names.clone()
    }

    fn packed_bytes(&self) -> u64 {
        self.memory.kept_bytes
    }
}

impl GpuExecutable {
    /// Writes what the request gives, when the sizes of all its inputs and outputs are those of the ports
    /// under the parameters `p`.
    fn write_inputs(
        &self,
        work: &wgpu::Buffer,
        p: &[i64],
        request: &Request<'_>,
    ) -> Result<(), DeviceError> {
        for (port, bytes) in self.inputs.iter().zip(request.inputs) {
            port.takes(p, bytes.len())?;
            if !port.state && port.here {
                let at = self.memory.at[port.buffer].1;
                self.gpu.write(work, at, bytes);
            }
        }
        for (port, bytes) in self.outputs.iter().zip(request.outputs.iter()) {
            port.takes(p, bytes.len())?;
        }
        Ok(())
    }

    /// Writes the states of a request to their buffers.
    fn write_states(
        &self,
        work: &wgpu::Buffer,
        b: &Block,
        states: &mut [&mut State],
    ) -> Result<(), DeviceError> {
        for (s, state) in b.states.iter().zip(states) {
            let buffer = &b.buffers[s.buffer as usize];
            state.covers(buffer)?;
            let bytes = state.host()?;
            let at = self.memory.at[s.buffer as usize].1;
            self.gpu.write(work, at, &bytes[..buffer.bytes as usize]);
        }
        Ok(())
    }

    /// Copies what became of the states of a request back to them.
    fn read_states(
        &self,
        work: &wgpu::Buffer,
        b: &Block,
        states: &mut [&mut State],
    ) -> Result<(), DeviceError> {
        for (s, state) in b.states.iter().zip(states) {
            let bytes = state.host()?;
            let n = b.buffers[s.buffer as usize].bytes as usize;
            let at = self.memory.at[s.buffer as usize].1;
            let now = fetch(&self.gpu, work, at, n)?;
            bytes[..n].copy_from_slice(&now);
        }
        Ok(())
    }

    /// Copies all outputs in one go.
    fn give_back(&self, f: &GpuFrame, outputs: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        let mut places = vec![];
        let mut sum = 0u64;
        for (port, out) in self.outputs.iter().zip(outputs.iter()) {
            places.push(sum);
            if !port.state && port.here {
                sum += (out.len() as u64).next_multiple_of(ALIGN);
            }
        }
        if sum == 0 {
            return Ok(());
        }
        let staging = self.gpu.staging(sum)?;
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        for ((port, out), &to) in self.outputs.iter().zip(outputs.iter()).zip(&places) {
            let n = (out.len() as u64).next_multiple_of(4);
            if port.state || !port.here || n == 0 {
                continue;
            }
            let (array, at) = self.memory.at[port.buffer];
            let from = match array {
                Array::Work => &f.work,
                Array::Kept => &self.kept,
            };
            encoder.copy_buffer_to_buffer(from, at, &staging, to, n);
        }
        self.gpu.submit(encoder, 0);
        self.gpu.read(&staging, sum, |bytes| {
            for ((port, out), &at) in self.outputs.iter().zip(outputs.iter_mut()).zip(&places) {
                if !port.state && port.here {
                    out.copy_from_slice(&bytes[at as usize..at as usize + out.len()]);
                }
            }
        })
    }
}
