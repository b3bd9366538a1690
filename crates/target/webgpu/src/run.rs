//! Compiled steps and their run.
use crate::gpu::Gpu;
use crate::host::Host;
use crate::memory::ALIGN;
use crate::memory::Memory;
use device::{DeviceError, HostMemory, HostPart, HostView, Permit};
use emit::wgsl::{Array, Number};
use kernel::TileProgram;
use layout::DType;
use plan::{Block, BufferId, Params, Span, Step, StepWork, Timeline};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Shaders that one submission of a request carries at most where it may be called off: it goes on for
/// two submissions after that.
const TOGETHER: u32 = 32;

/// How far a request that may be called off is ahead of the GPU: by two submissions.
struct Pace<'a> {
    permit: Permit<'a>,
    last: Option<wgpu::SubmissionIndex>,
    /// Shaders recorded since the last submission.
    shaders: u32,
}

impl Pace<'_> {
    fn wanted(&self) -> Result<(), DeviceError> {
        match self.permit.called_off() {
            true => Err(DeviceError::Cancelled),
            false => Ok(()),
        }
    }

    /// Whether what was recorded is to be handed over.
    fn due(&self) -> bool {
        self.permit.cancel.is_some() && self.shaders >= TOGETHER
    }

    /// Hands over what was recorded so far, which has so many tasks, and waits for what was handed over
    /// before it.
    fn submit(
        &mut self,
        gpu: &Gpu,
        encoder: &mut wgpu::CommandEncoder,
        tasks: u32,
    ) -> Result<(), DeviceError> {
        let next = gpu.device.create_command_encoder(&Default::default());
        gpu.submit(std::mem::replace(encoder, next), tasks);
        self.shaders = 0;
        if self.permit.cancel.is_none() {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.last, gpu.handed());
        if before.is_some() {
            gpu.settle(before)?;
        }
        self.wanted()
    }
}

/// Where a number of a dispatch comes from.
enum Source {
    Tasks(u32),
    Fixed(i32),
    Param(u32),
}

pub(crate) struct Shader {
    pipeline: Arc<wgpu::ComputePipeline>,
    numbers: Vec<Source>,
    tasks: u32,
    faults: Vec<String>,
    /// Bytes into the list of numbers.
    offset: u64,
}

/// A copy between the host's memory and the GPU's.
pub(crate) struct CopyDirection {
    from: BufferId,
    to: BufferId,
    /// Parameter with the number of elements.
    elements: u32,
    dtype: DType,
    up: bool,
}

pub(crate) enum Work {
    Shader(Shader),
    /// A host operator on copies of its operands.
    Host(Host),
    /// A step of the host, on the host's memory.
    Far,
    CopyDirection(CopyDirection),
}

/// The host's side of a run of a plan over the host and a GPU.
pub(crate) struct Far<'a, 'b> {
    pub part: &'a HostPart,
    pub block: &'a Block,
    pub memory: &'b mut HostMemory,
    pub view: HostView<'a>,
    pub symbols: &'a [i64],
}

/// Records so many of a shader's tasks, from the first on that its numbers say.
fn dispatch(
    gpu: &Gpu,
    pass: &mut wgpu::ComputePass<'_>,
    place: &Place<'_>,
    s: &Shader,
    tasks: u32,
) {
    let x = tasks.min(gpu.most_groups);
    pass.set_pipeline(&s.pipeline);
    pass.set_bind_group(0, place.bound, &[s.offset as u32]);
    pass.dispatch_workgroups(x, tasks.div_ceil(x), 1);
}

/// Timestamp queries of a set at most.
const MOST_QUERIED_PASSES: u64 = 2048;

/// The dispatches of a run as they are recorded and handed over.
struct Recording<'a> {
    gpu: &'a Gpu,
    place: &'a Place<'a>,
    p: &'a [i64],
    pace: Pace<'a>,
    encoder: wgpu::CommandEncoder,
    /// Tasks recorded since the last submission.
    carried: u32,
    /// Two per pass, where the run is timed and the device has a clock.
    queries: Option<wgpu::QuerySet>,
    /// Shaders in the order of their passes, with their first task and how many.
    timed: Vec<(usize, u32, u32)>,
}

/// Where the pass with number `pass` writes its times.
fn timestamps(
    queries: Option<&wgpu::QuerySet>,
    pass: usize,
) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
    let at = pass as u32 * 2;
    queries.map(|query_set| wgpu::ComputePassTimestampWrites {
        query_set,
        beginning_of_pass_write_index: Some(at),
        end_of_pass_write_index: Some(at + 1),
    })
}

impl<'a> Recording<'a> {
    fn new(gpu: &'a Gpu, place: &'a Place<'a>, p: &'a [i64], permit: Permit<'a>) -> Recording<'a> {
        Recording {
            gpu,
            place,
            p,
            pace: Pace {
                permit,
                last: None,
                shaders: 0,
            },
            encoder: gpu.device.create_command_encoder(&Default::default()),
            carried: 0,
            queries: None,
            timed: vec![],
        }
    }

    fn tasks(&self, s: &Shader) -> u32 {
        self.p[s.tasks as usize].max(0) as u32
    }

    /// Has the passes of `work` write their times, where the device can.
    fn watch(&mut self, work: &[Work]) {
        let each = self.gpu.most_at_once();
        let passes = |w: &Work| match w {
            Work::Shader(s) => u64::from(self.tasks(s).div_ceil(each).max(1)),
            _ => 0,
        };
        let passes: u64 = work.iter().map(passes).sum();
        if self.gpu.tick_ns.is_some() && (1..=MOST_QUERIED_PASSES).contains(&passes) {
            let query_set = wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count: passes as u32 * 2,
            };
            self.queries = Some(self.gpu.device.create_query_set(&query_set));
        }
    }

    /// Hands over what was recorded, if anything was.
    fn hand_over(&mut self) -> Result<(), DeviceError> {
        if self.carried > 0 {
            let carried = std::mem::take(&mut self.carried);
            self.pace.submit(self.gpu, &mut self.encoder, carried)?;
        }
        Ok(())
    }

    /// Hands over shader `s`, which is step `at`, in parts of as many tasks as may run at once. Every part
    /// has its own numbers, which are written before it is handed over.
    fn in_parts(&mut self, s: &Shader, at: usize) -> Result<(), DeviceError> {
        self.hand_over()?;
        let (all, each) = (self.tasks(s), self.gpu.most_at_once());
        for first in (0..all).step_by(each as usize) {
            let tasks = each.min(all - first);
            let mut range = [0; 8];
            range[..4].copy_from_slice(&(first + tasks).to_le_bytes());
            range[4..].copy_from_slice(&first.to_le_bytes());
            self.gpu.write(self.place.numbers, s.offset, &range);
            let description = wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: timestamps(self.queries.as_ref(), self.timed.len()),
            };
            let mut pass = self.encoder.begin_compute_pass(&description);
            dispatch(self.gpu, &mut pass, self.place, s, tasks);
            drop(pass);
            self.timed.push((at, first, tasks));
            self.pace.submit(self.gpu, &mut self.encoder, tasks)?;
        }
        Ok(())
    }

    /// Records a pass of the shaders of `work` from step `at` on: as many as a submission takes, or one where
    /// passes are timed. Gives the first step that is not in it.
    fn together(&mut self, work: &[Work], mut at: usize) -> Result<usize, DeviceError> {
        let (most, each) = (self.gpu.most_tasks, self.gpu.most_at_once());
        let timestamp_writes = timestamps(self.queries.as_ref(), self.timed.len());
        let single = timestamp_writes.is_some();
        let description = wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes,
        };
        let mut pass = self.encoder.begin_compute_pass(&description);
        while let Some(Work::Shader(s)) = work.get(at) {
            let tasks = self.p[s.tasks as usize].max(0) as u32;
            if tasks > each {
                break;
            }
            if tasks > 0 {
                dispatch(self.gpu, &mut pass, self.place, s, tasks);
                self.carried = self.carried.saturating_add(tasks);
            }
            self.timed.push((at, 0, tasks));
            at += 1;
            self.pace.shaders += 1;
            if single || self.carried > most || self.pace.due() {
                break;
            }
        }
        drop(pass);
        if self.carried > most || self.pace.due() {
            let carried = std::mem::take(&mut self.carried);
            self.pace.submit(self.gpu, &mut self.encoder, carried)?;
        }
        Ok(at)
    }

    /// Records the copy of all times into a buffer, given with its bytes. There is one pass per shader, so
    /// every query up to here was written.
    fn resolve(&mut self) -> Option<(wgpu::Buffer, u64)> {
        let queries = self.queries.as_ref().filter(|_| !self.timed.is_empty())?;
        let bytes = self.timed.len() as u64 * 16;
        let b = self.gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes.next_multiple_of(ALIGN),
            usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        let all = 0..self.timed.len() as u32 * 2;
        self.encoder.resolve_query_set(queries, all, &b, 0);
        Some((b, bytes))
    }
}

/// Steps in order, compiled.
pub(crate) struct CompiledSteps {
    pub names: Vec<String>,
    nodes: Vec<String>,
    work: Vec<Work>,
    /// Bytes of all lists of numbers.
    pub number_bytes: u64,
}

/// A run's buffers, and where in them everything lies.
pub(crate) struct Place<'a> {
    pub memory: &'a Memory,
    pub work: &'a wgpu::Buffer,
    pub kept: &'a wgpu::Buffer,
    pub numbers: &'a wgpu::Buffer,
    pub bound: &'a wgpu::BindGroup,
}

impl CompiledSteps {
    pub fn compile(
        gpu: &Gpu,
        (block, steps, place): (&Block, &[Step], u32),
        programs: &[Option<TileProgram>],
        memory: &Memory,
        params: &mut Params,
    ) -> Result<CompiledSteps, DeviceError> {
        let mut work = vec![];
        let mut number_bytes = 0;
        let target = emit::wgsl::target(gpu.limits);
        for (s, program) in steps.iter().zip(programs) {
            if let (true, StepWork::Kernel { kernel, args, .. }) = (block.is_transfer(s), &s.work)
                && let (&[from, to], Some(o)) = (&args[..], kernel.operands.first())
            {
                work.push(Work::CopyDirection(CopyDirection {
                    from,
                    to,
                    elements: params.intern(&o.elements),
                    dtype: o.dtype,
                    up: block.buffers[to as usize].place == place,
                }));
                continue;
            }
            if s.device != place {
                work.push(Work::Far);
                continue;
            }
            let fail = |why: String| DeviceError::Unsupported {
                device: "wgpu".into(),
                step: s.name.clone(),
                why,
            };
            let program = match (&s.work, program) {
                (
                    StepWork::Host {
                        op,
                        inputs,
                        outputs,
                    },
                    _,
                ) => {
                    work.push(Work::Host(Host::new(op, inputs, outputs, params)));
                    continue;
                }
                (StepWork::Kernel { .. }, Some(p)) => p,
                _ => return Err(fail("it has no tile program; verify the plan".into())),
            };
            let StepWork::Kernel { args, .. } = &s.work else {
                continue;
            };
            let places: Vec<(Array, u64)> = args.iter().map(|&b| memory.at[b as usize]).collect();
            let arrays: Vec<Array> = places.iter().map(|p| p.0).collect();
            program.fits(&target).map_err(|e| fail(e.to_string()))?;
            let text = emit::wgsl::emit(program, &arrays).map_err(|e| fail(e.to_string()))?;
            let pipeline = gpu.pipeline(&text, &s.name)?;
            let tasks = params.intern(&s.tasks);
            let word = |bytes: u64| {
                i32::try_from(bytes / 4).map_err(|_| fail("its memory is out of reach".into()))
            };
            let mut numbers = vec![];
            for n in &text.numbers {
                numbers.push(match n {
                    Number::Tasks => Source::Tasks(tasks),
                    Number::First => Source::Fixed(0),
                    Number::Fault => Source::Fixed(word(memory.fault + work.len() as u64 * 4)?),
                    Number::Operand(o) => Source::Fixed(word(places[*o as usize].1)?),
                    Number::Dim(d) => Source::Param(params.intern(d)),
                });
            }
            let offset = number_bytes;
            number_bytes += (numbers.len() as u64 * 4).next_multiple_of(ALIGN);
            work.push(Work::Shader(Shader {
                pipeline,
                numbers,
                tasks,
                faults: text.faults,
                offset,
            }));
        }
        Ok(CompiledSteps {
            names: steps.iter().map(|s| s.name.clone()).collect(),
            nodes: steps.iter().map(|s| s.nodes.join(", ")).collect(),
            work,
            number_bytes,
        })
    }

    fn error(&self, step: usize, why: String) -> DeviceError {
        DeviceError::Step {
            step: self.names[step].clone(),
            nodes: self.nodes[step].clone(),
            why,
        }
    }

    /// What all dispatches are given under the parameters `p`.
    fn numbers(&self, p: &[i64]) -> Result<Vec<u8>, DeviceError> {
        let mut out = vec![0u8; self.number_bytes as usize];
        for (i, w) in self.work.iter().enumerate() {
            let Work::Shader(s) = w else { continue };
            for (n, source) in s.numbers.iter().enumerate() {
                let v = match source {
                    Source::Fixed(v) => *v,
                    Source::Tasks(d) | Source::Param(d) => {
                        i32::try_from(p[*d as usize]).map_err(|_| {
                            self.error(i, "a size or count is 2^31 or more, which shaders do not reach; use smaller dimensions".into())
                        })?
                    }
                };
                let at = s.offset as usize + n * 4;
                out[at..at + 4].copy_from_slice(&v.to_le_bytes());
            }
        }
        Ok(out)
    }

    /// Runs the first `count` steps as long as the request is wanted; what they were given must have been
    /// written before. Nothing of a request that was called off is left running.
    pub fn run(
        &self,
        gpu: &Gpu,
        place: &Place,
        p: &[i64],
        (count, permit): (usize, Permit<'_>),
        far: Option<Far<'_, '_>>,
        timeline: Option<(&mut Timeline, Instant)>,
    ) -> Result<(), DeviceError> {
        let done = self.go(gpu, place, p, (count, permit), far, timeline);
        if done == Err(DeviceError::Cancelled) {
            gpu.settle(None)?;
        }
        done
    }

    fn go(
        &self,
        gpu: &Gpu,
        place: &Place,
        p: &[i64],
        (count, permit): (usize, Permit<'_>),
        mut far: Option<Far<'_, '_>>,
        mut timeline: Option<(&mut Timeline, Instant)>,
    ) -> Result<(), DeviceError> {
        let mut recording = Recording::new(gpu, place, p, permit);
        recording.pace.wanted()?;
        gpu.write(place.numbers, 0, &self.numbers(p)?);
        let faults = self
            .work
            .iter()
            .any(|w| matches!(w, Work::Shader(s) if !s.faults.is_empty()));
        if faults {
            gpu.write(
                place.work,
                place.memory.fault,
                &vec![0; self.work.len() * 4],
            );
        }
        let work = &self.work[..count];
        if timeline.is_some() {
            recording.watch(work);
        }
        let mut at = 0;
        while at < count {
            match &work[at] {
                Work::Host(_) | Work::Far | Work::CopyDirection(_) => {
                    recording.hand_over()?;
                    recording.pace.wanted()?;
                    let began = Instant::now();
                    self.beside(gpu, place, p, (at, permit.cancel), far.as_mut())?;
                    if let Some((t, start)) = &mut timeline {
                        let ns = |i: Instant| i.duration_since(*start).as_nanos() as u64;
                        t.spans.push(Span {
                            step: at as u32,
                            worker: 0,
                            first_task: 0,
                            tasks: 1,
                            start_ns: ns(began),
                            end_ns: ns(Instant::now()),
                        });
                    }
                    at += 1;
                }
                Work::Shader(s) if recording.tasks(s) > gpu.most_at_once() => {
                    recording.in_parts(s, at)?;
                    at += 1;
                }
                Work::Shader(_) => at = recording.together(work, at)?,
            }
        }
        let submitted = Instant::now();
        let resolved = recording.resolve();
        gpu.submit(recording.encoder, recording.carried);
        recording.pace.wanted()?;
        if faults {
            self.fault(gpu, place)?;
        }
        if let Some((t, start)) = timeline {
            let mut times = vec![];
            if let Some((b, bytes)) = resolved {
                times = fetch(gpu, &b, 0, bytes as usize)?;
            }
            let timed = &recording.timed;
            self.spans(t, timed, &times, gpu.tick_ns, start, submitted);
        }
        Ok(())
    }

    /// The first fault that a run's shaders wrote down, as an error.
    fn fault(&self, gpu: &Gpu, place: &Place) -> Result<(), DeviceError> {
        let words = fetch(gpu, place.work, place.memory.fault, self.work.len() * 4)?;
        for (i, w) in words.chunks_exact(4).enumerate() {
            let code = u32::from_le_bytes([w[0], w[1], w[2], w[3]]) as usize;
            if let (1.., Work::Shader(s)) = (code, &self.work[i]) {
                let why = s.faults.get(code - 1).cloned();
                return Err(self.error(i, why.unwrap_or_else(|| format!("fault {code}"))));
            }
        }
        Ok(())
    }

    /// Runs step `at`, which is none of the GPU's; what was recorded before it was handed over.
    fn beside(
        &self,
        gpu: &Gpu,
        place: &Place,
        p: &[i64],
        (at, cancel): (usize, Option<&AtomicBool>),
        far: Option<&mut Far<'_, '_>>,
    ) -> Result<(), DeviceError> {
        let memory = place.memory;
        let buffer = |b: usize| match memory.at[b] {
            (Array::Work, o) => (place.work, o),
            (Array::Kept, o) => (place.kept, o),
        };
        match (&self.work[at], far) {
            (Work::Host(h), _) => h.run(
                p,
                &mut |b, n| {
                    let (buffer, o) = buffer(b);
                    fetch(gpu, buffer, o, n)
                },
                &mut |b, bytes| {
                    let (buffer, o) = buffer(b);
                    gpu.write(buffer, o, bytes);
                },
                &|why| self.error(at, why),
            ),
            (Work::CopyDirection(r), Some(f)) => {
                let n = usize::try_from(p[r.elements as usize].max(0)).ok();
                let n = n
                    .and_then(|n| r.dtype.bytes_for(n))
                    .ok_or_else(|| self.error(at, "it copies more than there is memory".into()))?;
                let short = || self.error(at, "what it copies is shorter than its shape".into());
                if r.up {
                    let (to, o) = buffer(r.to as usize);
                    let bytes = f.memory.bytes(f.block, r.from, f.view);
                    gpu.write(to, o, bytes.get(..n).ok_or_else(short)?);
                } else {
                    let (from, o) = buffer(r.from as usize);
                    let bytes = fetch(gpu, from, o, n)?;
                    let to = f.memory.bytes_mut(r.to);
                    to.get_mut(..n).ok_or_else(short)?.copy_from_slice(&bytes);
                }
                Ok(())
            }
            (Work::Far, Some(f)) => {
                let block = (f.block, cancel);
                f.part.run(at, block, f.memory, f.view, f.symbols, p)
            }
            _ => Err(self.error(
                at,
                "it needs the host's memory, which this device was not given".into(),
            )),
        }
    }

    /// Spans of shaders: by the device's clock where it has one, from the moment of submission on.
    fn spans(
        &self,
        t: &mut Timeline,
        timed: &[(usize, u32, u32)],
        times: &[u8],
        tick_ns: Option<f32>,
        start: Instant,
        submitted: Instant,
    ) {
        let base = submitted.duration_since(start).as_nanos() as u64;
        let ticks = |i: usize| -> Option<u64> {
            let b = times.get(i * 8..i * 8 + 8)?;
            Some(u64::from_le_bytes(b.try_into().ok()?))
        };
        let first = (0..timed.len())
            .filter_map(|i| ticks(i * 2))
            .filter(|&v| v > 0)
            .min();
        for (i, &(step, first_task, tasks)) in timed.iter().enumerate() {
            let (begin, end) = match (first, tick_ns, ticks(i * 2), ticks(i * 2 + 1)) {
                (Some(f), Some(ns), Some(a), Some(b)) if a >= f && b >= a => {
                    let to = |v: u64| base + ((v - f) as f64 * f64::from(ns)) as u64;
                    (to(a), to(b))
                }
                _ => (base, base),
            };
            t.spans.push(Span {
                step: step as u32,
                worker: 0,
                first_task,
                tasks,
                start_ns: begin,
                end_ns: end,
            });
        }
    }
}

/// The `n` bytes at `at` of a buffer, when everything before is done.
pub(crate) fn fetch(
    gpu: &Gpu,
    buffer: &wgpu::Buffer,
    at: u64,
    n: usize,
) -> Result<Vec<u8>, DeviceError> {
    if n == 0 {
        return Ok(vec![]);
    }
    let bytes = (n as u64).next_multiple_of(4);
    let staging = gpu.staging(bytes)?;
    let mut encoder = gpu.device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(buffer, at, &staging, 0, bytes);
    gpu.submit(encoder, 0);
    gpu.read(&staging, bytes, |b| b[..n].to_vec())
}
