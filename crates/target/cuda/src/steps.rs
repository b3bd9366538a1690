//! Steps in order, compiled: every text once, every launch with where its arguments come from.
use crate::driver::{Arg, DevicePtr, FunctionId, Launch, TensorMap};
use crate::handles::Stream;
use crate::host::Host;
use crate::modules::Module;
use crate::place::Gpu;
use device::{DeviceError, Shelf};
use emit::ptx::{ParamSpec, ParamValue, Ptx, TensorParam};
use kernel::{Role, TileProgram};
use layout::{DType, Dim};
use plan::{Block, Params, Step, StepWork, parallel};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Dynamic shared memory that a launch may have without asking.
const SHARED: u32 = 48 << 10;

/// Where an argument of a launch comes from.
#[derive(Clone, Copy)]
enum Source {
    Buffer(usize),
    Param(u32),
    /// Number of a tensor of the launch.
    Tensor(u32),
    /// The word of the step that is so many behind the launch's first.
    Fault(usize),
    /// Words for arrivals, from this number on.
    Arrivals(u32),
}

/// Words on the device that launches write beside buffers.
#[derive(Clone, Copy)]
pub(crate) struct Words {
    /// One for faults per step.
    pub faults: DevicePtr,
    /// [`CompiledSteps::arrivals`] of them, zeros between launches.
    pub arrivals: DevicePtr,
}

/// How a step is launched; numbers of parameters where they depend on a request's dims.
enum Geometry {
    /// One CTA per task, or as many as walk tasks, where that is not 0.
    Tasks {
        tasks: u32,
        walkers: u32,
        threads: u32,
        shared_bytes: u32,
    },
    /// As the user's code says: CTAs and threads along x, y and z, and shared bytes.
    Own {
        grid: [u32; 3],
        threads: [u32; 3],
        shared: u32,
    },
}

/// CTAs of a launch for so many tasks.
fn ctas(tasks: u32, walkers: u32) -> u32 {
    // No more than there are tasks.
    u32::try_from(kernel::ctas(walkers, tasks.into())).unwrap_or(tasks)
}

impl Geometry {
    /// The launch under the parameters `p`, or the figure that is too large for one.
    fn at(&self, p: &[i64]) -> Result<Launch, String> {
        let at = |i: &u32, what: &str| {
            let n = p[*i as usize];
            let small = u32::try_from(n.max(0)).ok().filter(|n| *n < 1 << 31);
            small.ok_or_else(|| format!("{n} {what} are more than a launch takes"))
        };
        let three = |i: &[u32; 3], what: &str| -> Result<[u32; 3], String> {
            Ok([at(&i[0], what)?, at(&i[1], what)?, at(&i[2], what)?])
        };
        match self {
            Geometry::Tasks {
                tasks,
                walkers,
                threads,
                shared_bytes,
            } => Ok(Launch {
                grid: [ctas(at(tasks, "tasks")?, *walkers), 1, 1],
                block: [*threads, 1, 1],
                shared_bytes: *shared_bytes,
                early: false,
            }),
            Geometry::Own {
                grid,
                threads,
                shared,
            } => Ok(Launch {
                grid: three(grid, "CTAs")?,
                block: three(threads, "threads")?,
                shared_bytes: at(shared, "bytes of shared memory")?,
                early: false,
            }),
        }
    }
}

/// A step that is a launch.
pub(crate) struct Kernel {
    function: FunctionId,
    _module: Arc<Module>,
    args: Vec<Source>,
    /// Operands as tensors.
    tensors: Vec<TensorSource>,
    geometry: Geometry,
    /// It waits for the kernel before it by itself.
    early: bool,
    pub faults: Vec<String>,
}

/// An operand as a tensor: its buffer, and the numbers of parameters that give its dimensions values.
struct TensorSource {
    tensor: TensorParam,
    buffer: usize,
    values: Vec<(Dim, u32)>,
}

impl TensorSource {
    fn of(tensor: &TensorParam, args: &[u32], params: &mut Params) -> TensorSource {
        let dims = tensor.view.dims.iter().flat_map(|d| [&d.extent, &d.stride]);
        let dims = dims.chain([&tensor.view.offset]);
        let open = dims.filter(|d| d.known().is_none());
        TensorSource {
            values: open.map(|d| (d.clone(), params.intern(d))).collect(),
            buffer: args[tensor.operand as usize] as usize,
            tensor: tensor.clone(),
        }
    }

    /// What kernels are told under the parameters `p`.
    fn map(
        &self,
        gpu: &Gpu,
        p: &[i64],
        at: &dyn Fn(usize) -> DevicePtr,
    ) -> Result<TensorMap, String> {
        let value = |d: &Dim| {
            let own = || self.values.iter().find(|v| v.0 == *d);
            d.known().or_else(|| p.get(own()?.1 as usize).copied())
        };
        let layout = self.tensor.layout(value);
        let layout = layout.ok_or("a tensor's size is no number of bytes")?;
        let map = gpu.context.tensor_map(at(self.buffer), &layout);
        map.map_err(|e| e.to_string())
    }
}

/// A copy between the host's memory and the device's.
pub(crate) struct CopyDirection {
    pub from: u32,
    pub to: u32,
    /// Parameter with the number of elements.
    elements: u32,
    dtype: DType,
    pub up: bool,
}

impl CopyDirection {
    /// Bytes under the parameters `p`.
    pub fn bytes(&self, p: &[i64]) -> Option<usize> {
        let n = usize::try_from(p[self.elements as usize].max(0)).ok()?;
        self.dtype.bytes_for(n)
    }
}

/// A launch of several steps, the parameters with the numbers of their tasks, and how many words for arrivals each but the
/// first has.
struct Joined {
    kernel: Kernel,
    tasks: Vec<u32>,
    words: Vec<u32>,
}

impl Joined {
    /// Whether it does what all its steps do under the parameters `p`: a CTA of each step runs each of the next one's
    /// tasks, and there are words for them.
    fn fits(&self, p: &[i64]) -> bool {
        let mut pairs = self.tasks.windows(2).zip(&self.words);
        pairs.all(|(pair, &words)| {
            let (before, tasks) = (p[pair[0] as usize], p[pair[1] as usize]);
            before >= 1 && tasks >= 1 && before % tasks == 0 && tasks <= i64::from(words)
        })
    }
}

pub(crate) enum Work {
    Kernel(Kernel),
    /// A host operator on copies of its operands.
    Host(Host),
    /// A step of the host, on the host's memory.
    Far,
    CopyDirection(CopyDirection),
}

/// Steps in order.
pub(crate) struct CompiledSteps {
    pub names: Vec<String>,
    nodes: Vec<String>,
    pub work: Vec<Work>,
    /// Launches of a step with those behind it, by the first's number.
    joined: BTreeMap<usize, Joined>,
    /// Words for arrivals that these launches share: tasks of all steps of one but the first, at most.
    pub arrivals: u32,
    /// Buffers read and written, per step.
    pub reads: Vec<Vec<usize>>,
    pub writes: Vec<Vec<usize>>,
}

impl Kernel {
    /// Whether it is code of the user's, which is launched and never linked into a kernel that stays.
    pub fn is_own(&self) -> bool {
        matches!(self.geometry, Geometry::Own { .. })
    }
}

impl CompiledSteps {
    pub fn compile(
        (gpu, shelf): (&Gpu, &dyn Shelf),
        (block, steps, place): (&Block, &[Step], u32),
        programs: &[Option<TileProgram>],
        params: &mut Params,
    ) -> Result<CompiledSteps, DeviceError> {
        let mut out = CompiledSteps {
            names: steps.iter().map(|s| s.name.clone()).collect(),
            nodes: steps.iter().map(|s| s.nodes.join(", ")).collect(),
            work: vec![],
            joined: BTreeMap::new(),
            arrivals: 0,
            reads: vec![],
            writes: vec![],
        };
        let texts = compiled((gpu, shelf), (block, steps, place), programs);
        for (s, text) in steps.iter().zip(texts) {
            let fail = |why: String| unsupported(gpu, s, why);
            if let (true, StepWork::Kernel { kernel, args, .. }) = (block.is_transfer(s), &s.work)
                && let (&[from, to], Some(o)) = (&args[..], kernel.operands.first())
            {
                let up = block.buffers[to as usize].place == place;
                let own = |b: u32, here: bool| if here { vec![b as usize] } else { vec![] };
                out.reads.push(own(from, !up));
                out.writes.push(own(to, up));
                out.work.push(Work::CopyDirection(CopyDirection {
                    from,
                    to,
                    elements: params.intern(&o.elements),
                    dtype: o.dtype,
                    up,
                }));
                continue;
            }
            if s.device != place {
                out.reads.push(vec![]);
                out.writes.push(vec![]);
                out.work.push(Work::Far);
                continue;
            }
            match (&s.work, text) {
                (
                    StepWork::Host {
                        op,
                        inputs,
                        outputs,
                    },
                    _,
                ) => {
                    let h = Host::new(op, inputs, outputs, params);
                    let (reads, writes) = h.touches();
                    out.reads.push(reads);
                    out.writes.push(writes);
                    out.work.push(Work::Host(h));
                }
                (StepWork::Kernel { kernel, args, .. }, Some(text)) => {
                    let of = |role: Role| -> Vec<usize> {
                        let all = kernel.operands.iter().zip(args);
                        all.filter(|(o, _)| o.role == role)
                            .map(|(_, &a)| a as usize)
                            .collect()
                    };
                    out.reads.push(of(Role::Read));
                    out.writes.push(of(Role::Write));
                    let kernel = launch(gpu, s, text?, args, params)?;
                    out.work.push(Work::Kernel(kernel));
                }
                _ => return Err(fail("it has no tile program; verify the plan".into())),
            }
        }
        Ok(out)
    }

    /// An error of step `i`.
    pub fn error(&self, i: usize, why: String) -> DeviceError {
        DeviceError::Step {
            step: self.names[i].clone(),
            nodes: self.nodes[i].clone(),
            why,
        }
    }

    /// Whether a launch may report a fault.
    pub fn may_fault(&self) -> bool {
        let faulty = |w: &Work| matches!(w, Work::Kernel(k) if !k.faults.is_empty());
        self.work.iter().any(faulty)
    }

    /// The first fault in `words`, one per step.
    pub fn fault(&self, words: &[u8]) -> Result<(), DeviceError> {
        for (i, w) in words.chunks_exact(4).enumerate() {
            let code = u32::from_le_bytes([w[0], w[1], w[2], w[3]]) as usize;
            if let (1.., Some(Work::Kernel(k))) = (code, self.work.get(i)) {
                let why = k.faults.get(code - 1).cloned();
                return Err(self.error(i, why.unwrap_or_else(|| format!("fault {code}"))));
            }
        }
        Ok(())
    }

    /// Makes launches of the steps of `list` that have none of their own, with the step before each.
    pub fn join(
        &mut self,
        (gpu, shelf): (&Gpu, &dyn Shelf),
        (list, programs): (&[Step], &[Option<TileProgram>]),
        top: impl Fn(&Dim) -> Option<i64>,
        params: &mut Params,
    ) -> Result<(), DeviceError> {
        let mut next = 0;
        while next < list.len() {
            let first = next;
            let joined = |s: &&Step| s.joined;
            let held = 1 + list[first + 1..].iter().take_while(joined).count();
            next = first + held;
            let kernels: Option<Vec<&TileProgram>> =
                programs[first..next].iter().map(Option::as_ref).collect();
            let here = |w: &Work| matches!(w, Work::Kernel(_));
            let (Some(kernels), true) = (kernels, held > 1) else {
                continue;
            };
            if !self.work[first..next].iter().all(here) {
                continue;
            }
            let steps = &list[first..next];
            let words = |s: &Step| {
                top(&s.tasks)
                    .and_then(|n| u32::try_from(n).ok())
                    .unwrap_or(0)
            };
            let words: Vec<u32> = steps[1..].iter().map(words).collect();
            let kernel = together((gpu, shelf), (steps, &kernels), &words, params)?;
            let tasks = steps.iter().map(|s| params.intern(&s.tasks)).collect();
            let all = words.iter().fold(0u32, |n, &w| n.saturating_add(w));
            self.arrivals = self.arrivals.max(all);
            let launch = Joined {
                kernel,
                tasks,
                words,
            };
            self.joined.insert(first, launch);
        }
        Ok(())
    }

    /// Steps that the launch of step `i`, of which those before `end` are queued together, stands for under the
    /// parameters `p`.
    pub fn held(&self, i: usize, end: usize, p: &[i64]) -> usize {
        let fits = |j: &&Joined| i + j.tasks.len() <= end && j.fits(p);
        let held = self.joined.get(&i).filter(fits);
        held.map_or(1, |j| j.tasks.len())
    }

    /// Steps from step `i` on that may be one launch.
    pub fn most_held(&self, i: usize) -> usize {
        self.joined.get(&i).map_or(1, |j| j.tasks.len())
    }

    /// Queues launch `i`, which may begin before the launch that was queued last is over if it is `early`; `at`
    /// gives the address of a buffer. With the steps behind it if `next`. None where it has no tasks.
    pub fn launch(
        &self,
        gpu: &Gpu,
        (i, early, next): (usize, bool, bool),
        p: &[i64],
        at: &dyn Fn(usize) -> DevicePtr,
        words: Words,
        stream: &Stream,
    ) -> Result<Option<u32>, DeviceError> {
        let k = match (&self.work[i], self.joined.get(&i)) {
            (_, Some(all)) if next => &all.kernel,
            (Work::Kernel(k), _) => k,
            _ => return Ok(None),
        };
        let word = |from: DevicePtr, n: u64| Arg::Pointer(from.offset(n * 4));
        let mut shape = k.geometry.at(p).map_err(|why| self.error(i, why))?;
        shape.early = early && k.early;
        let tasks = match &k.geometry {
            Geometry::Tasks { tasks, .. } => u32::try_from(p[*tasks as usize]).unwrap_or(0),
            Geometry::Own { .. } => shape.grid.iter().fold(1u32, |n, &g| n.saturating_mul(g)),
        };
        if tasks == 0 {
            return Ok(None);
        }
        let tensor = |n: &u32| {
            let map = k.tensors[*n as usize].map(gpu, p, at);
            map.map_err(|why| self.error(i, why))
        };
        let args = k.args.iter().map(|a| {
            Ok(match a {
                Source::Buffer(b) => Arg::Pointer(at(*b)),
                Source::Param(d) => Arg::I64(p[*d as usize]),
                Source::Tensor(n) => Arg::Map(tensor(n)?),
                Source::Fault(n) => word(words.faults, (i + n) as u64),
                Source::Arrivals(n) => word(words.arrivals, (*n).into()),
            })
        });
        let args: Vec<Arg> = args.collect::<Result<_, DeviceError>>()?;
        gpu.context
            .launch(k.function, shape, &args, stream.id())
            .map_err(|e| self.error(i, format!("{}: {e}", gpu.name)))?;
        Ok(Some(tasks))
    }
}

/// Bytes of shared memory that a CTA may have.
fn most_shared(gpu: &Gpu) -> u32 {
    let target = emit::ptx::target(gpu.arch);
    let bytes = target.gpu.map_or(0, |g| g.limits.shared_bytes);
    u32::try_from(bytes).unwrap_or(SHARED)
}

/// Where the parameter `p` comes from, of the step number `n` of a launch on the buffers `args`, which has these tensors.
fn source(
    p: &ParamSpec,
    (n, args): (usize, &[u32]),
    params: &mut Params,
    tensors: &mut Vec<TensorSource>,
) -> Source {
    match &p.value {
        ParamValue::Operand(o) => Source::Buffer(args[*o as usize] as usize),
        ParamValue::Dim(d) | ParamValue::Tasks(d) => Source::Param(params.intern(d)),
        ParamValue::Fault => Source::Fault(n),
        ParamValue::Tensor(t) => {
            tensors.push(TensorSource::of(t, args, params));
            Source::Tensor(tensors.len() as u32 - 1)
        }
    }
}

/// The module of a text. Its first line is for people: without it, steps that do the same share a module.
fn module(
    (gpu, shelf): (&Gpu, &dyn Shelf),
    text: String,
) -> Result<Arc<Module>, crate::DriverError> {
    let text = match text.split_once('\n') {
        Some((first, rest)) if first.starts_with("//") => format!("//\n{rest}"),
        _ => text,
    };
    gpu.modules.load(&text, shelf)
}

/// The launch of several steps, of which each but the first has so many words for arrivals.
fn together(
    (gpu, shelf): (&Gpu, &dyn Shelf),
    (steps, programs): (&[Step], &[&TileProgram]),
    words: &[u32],
    params: &mut Params,
) -> Result<Kernel, DeviceError> {
    let fail = |why: String| DeviceError::Unsupported {
        device: gpu.name.clone(),
        step: steps
            .iter()
            .map(|s| s.name.as_str())
            .collect::<Vec<_>>()
            .join(", then "),
        why,
    };
    let ptx = emit::ptx::joined(programs, gpu.arch).map_err(|e| fail(e.to_string()))?;
    let driver = |e: crate::DriverError| fail(e.to_string());
    let module = module((gpu, shelf), ptx.text).map_err(driver)?;
    let function = module.function(&ptx.entry).map_err(driver)?;
    if ptx.shared_bytes > SHARED {
        let asked = gpu.context.allow_shared(function, ptx.shared_bytes);
        asked.map_err(driver)?;
    }
    let (mut args, mut tensors) = (vec![], vec![]);
    for (n, p) in &ptx.params {
        let StepWork::Kernel { args: own, .. } = &steps[*n].work else {
            return Err(fail("one of them is no kernel; verify the plan".into()));
        };
        args.push(source(p, (*n, own), params, &mut tensors));
    }
    if ptx.counted {
        args.extend(steps.iter().map(|s| Source::Param(params.intern(&s.tasks))));
        let mut first = 0;
        for n in words {
            args.push(Source::Arrivals(first));
            first += n;
        }
    }
    Ok(Kernel {
        function,
        _module: module,
        args,
        tensors,
        geometry: Geometry::Tasks {
            tasks: steps.first().map_or(0, |s| params.intern(&s.tasks)),
            walkers: 0,
            threads: ptx.threads,
            shared_bytes: ptx.shared_bytes,
        },
        early: ptx.early,
        faults: vec![],
    })
}

fn unsupported(gpu: &Gpu, s: &Step, why: String) -> DeviceError {
    DeviceError::Unsupported {
        device: gpu.name.clone(),
        step: s.name.clone(),
        why,
    }
}

/// A step's text and its module.
type Compiled = Result<(Ptx, Arc<Module>), DeviceError>;

/// The texts of steps that are kernels of this place and no copies to or from it; drivers take long to compile them, so
/// that threads do it side by side.
fn compiled(
    (gpu, shelf): (&Gpu, &dyn Shelf),
    (block, steps, place): (&Block, &[Step], u32),
    programs: &[Option<TileProgram>],
) -> Vec<Option<Compiled>> {
    let all: Vec<_> = steps.iter().zip(programs).collect();
    parallel::map(&all, |(s, program)| {
        let p = program.as_ref()?;
        let kernel = matches!(s.work, StepWork::Kernel { .. });
        (kernel && s.device == place && !block.is_transfer(s)).then(|| {
            let fail = |why: String| unsupported(gpu, s, why);
            let mut ptx = emit::ptx::emit(p, gpu.arch).map_err(|e| fail(e.to_string()))?;
            let text = std::mem::take(&mut ptx.text);
            let module = module((gpu, shelf), text).map_err(|e| fail(e.to_string()))?;
            Ok((ptx, module))
        })
    })
}

fn launch(
    gpu: &Gpu,
    s: &Step,
    (ptx, module): (Ptx, Arc<Module>),
    args: &[u32],
    params: &mut Params,
) -> Result<Kernel, DeviceError> {
    let driver = |e: crate::DriverError| unsupported(gpu, s, e.to_string());
    let function = module.function(&ptx.entry).map_err(driver)?;
    let shared = match &ptx.own {
        None => ptx.shared_bytes,
        // What depends on a request's dims may be all there is.
        Some(c) => match c.shared.known().map(u32::try_from) {
            Some(Ok(bytes)) => bytes,
            _ => most_shared(gpu),
        },
    };
    if shared > SHARED {
        let asked = gpu.context.allow_shared(function, shared);
        asked.map_err(driver)?;
    }
    let geometry = match &ptx.own {
        None => Geometry::Tasks {
            tasks: params.intern(&s.tasks),
            walkers: ptx.walkers,
            threads: ptx.threads,
            shared_bytes: ptx.shared_bytes,
        },
        Some(c) => Geometry::Own {
            grid: [0, 1, 2].map(|i| params.intern(&c.grid[i])),
            threads: [0, 1, 2].map(|i| params.intern(&c.threads[i])),
            shared: params.intern(&c.shared),
        },
    };
    let mut tensors = vec![];
    let list = ptx.params.iter();
    let list: Vec<Source> = list
        .map(|p| source(p, (0, args), params, &mut tensors))
        .collect();
    Ok(Kernel {
        function,
        _module: module,
        args: list,
        tensors,
        geometry,
        early: ptx.early,
        faults: ptx.faults,
    })
}
