//! A block cut into the stretches of steps that a resident kernel runs: one, or several with steps of the
//! host between them. Every stretch is a request of its own to the kernel, on the same memory.
//!
//! Copies are entries like steps: of inputs before the first stretch's steps, of outputs behind the last
//! one's, of what the two sides exchange where the plan has it, and of streamed weights. These come to a
//! place of the ring when the step that read what was there before is over, and every stretch brings all
//! that its steps read, so that nothing of the ring is counted on from one stretch to the next. Steps wait
//! for what is in their own stretch only: the host pushes a stretch when everything before it is over.
use super::{CudaExecutable, Port};
use crate::driver::DevicePtr;
use crate::steps::Work;
use device::{Call, StepShape, TableError, Tables};
use emit::ptx::ParamValue;
use emit::ptx::resident::Resident;
use layout::Dim;
use plan::{Activity, Block, BufferId, Params, StepWork, TileMap, Wait};
use std::collections::BTreeMap;

/// Bytes that one task copies: few, because each of its loads crosses the link and back, and many tasks'
/// loads do so at once.
pub(super) const PIECE: u64 = 4 << 10;

/// The tables of a request without work: one step of no tasks. Those of any block are as long.
pub(super) fn nothing(body: u32) -> Result<Vec<u8>, TableError> {
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

/// Where a parameter of a body comes from.
#[derive(Clone, Copy)]
pub(super) enum From {
    Buffer(usize),
    /// Where a streamed buffer lies for this step.
    Here(DevicePtr),
    Param(u32),
    Fault,
}

/// Seconds that a task of a step takes at least to be worth waiting for some tasks of another. Who waits so
/// does it anew for each of its tasks, and who is waited for counts each by itself, which takes longer
/// than many tasks do (on an H200 a step of 1,152 of them took 35 us with it and 10 without).
const LONG_S: f64 = 20e-6;

/// What says how many bytes are copied.
#[derive(Clone, Copy)]
pub(super) enum Amount {
    Input(usize),
    Output(usize),
    /// A step that copies.
    CopyDirection(usize),
}

/// What a step of the tables is.
pub(super) enum Entry {
    /// Pinned memory from `staged` on to `buffer`, or the other way.
    Copy {
        way: Activity,
        amount: Amount,
        staged: usize,
        buffer: usize,
    },
    /// A streamed buffer from page-locked memory to where it lies for the step that reads it.
    Load {
        buffer: usize,
        bytes: u64,
        to: DevicePtr,
    },
    /// The plan's step.
    Step { params: Vec<From>, tasks: u32 },
}

impl Entry {
    /// Whether it is a step of the plan that copies.
    pub fn is_plan_copy(&self) -> bool {
        matches!(
            self,
            Entry::Copy {
                amount: Amount::CopyDirection(_),
                ..
            }
        )
    }

    /// Bytes that it copies under the parameters `p`.
    pub fn bytes(&self, e: &CudaExecutable, p: &[i64]) -> u64 {
        let port = |l: &[Port], i: usize| l[i].size.bytes(p).unwrap_or(0);
        let amount = match self {
            Entry::Copy { amount, .. } => *amount,
            Entry::Load { bytes, .. } => return *bytes,
            Entry::Step { .. } => return 0,
        };
        let n = match amount {
            Amount::Input(i) => port(&e.inputs, i),
            Amount::Output(i) => port(&e.outputs, i),
            Amount::CopyDirection(s) => match &e.steps.work[s] {
                Work::CopyDirection(r) => r.bytes(p).unwrap_or(0),
                _ => 0,
            },
        };
        n as u64
    }

    /// Its tasks under the parameters `p`.
    pub fn tasks(&self, e: &CudaExecutable, p: &[i64]) -> u64 {
        match self {
            Entry::Copy { .. } | Entry::Load { .. } => self.bytes(e, p).div_ceil(PIECE),
            Entry::Step { tasks, .. } => p[*tasks as usize].max(0) as u64,
        }
    }
}

/// Steps that are pushed together.
pub(super) struct Section {
    pub entries: Vec<Entry>,
    /// The plan's step of every entry; copies have that of the port's first or last use.
    pub steps: Vec<usize>,
    pub faults: Vec<Vec<String>>,
    pub tables: Tables,
}

/// What comes next in a request.
pub(super) enum Phase {
    /// The stretch of that number.
    Section(usize),
    /// Steps of the host.
    Host(Vec<usize>),
}

/// A block, cut.
pub(super) struct SectionPlan {
    pub stretches: Vec<Section>,
    pub phases: Vec<Phase>,
    /// Parameters with the numbers of dimensions in waits.
    pub dims: BTreeMap<Dim, u32>,
    /// Tasks of a step at most.
    pub most: u64,
}

/// A stretch as it is put together.
#[derive(Default)]
struct SectionBuilder {
    entries: Vec<Entry>,
    steps: Vec<usize>,
    faults: Vec<Vec<String>>,
    shapes: Vec<StepShape>,
    /// Entries of the plan's steps, and of the copies into buffers.
    of_step: BTreeMap<usize, u32>,
    comes: Vec<(usize, u32)>,
    /// Entries that bring what a step of the plan reads.
    loads: BTreeMap<usize, Vec<u32>>,
}

impl SectionBuilder {
    /// Brings what `step` reads of streamed buffers, to where `before` read others.
    fn load(
        &mut self,
        (e, body): (&CudaExecutable, u32),
        b: &Block,
        step: usize,
        before: Option<usize>,
    ) {
        let over = before.and_then(|s| self.of_step.get(&s));
        let waits: Vec<Wait> = over.map(|&at| Wait::Step(at)).into_iter().collect();
        for (buffer, to) in e.persistent.passing(step) {
            let at = self.entries.len() as u32;
            self.loads.entry(step).or_default().push(at);
            let bytes = b.buffers[buffer].bytes;
            let entry = Entry::Load { buffer, bytes, to };
            self.copy(body, entry, step, bytes, waits.clone());
        }
    }

    fn copy(&mut self, body: u32, entry: Entry, step: usize, top: u64, waits: Vec<Wait>) {
        self.shapes.push(StepShape {
            body,
            params: 4,
            top_tasks: top.div_ceil(PIECE),
            waits,
            faults: false,
        });
        self.entries.push(entry);
        self.steps.push(step);
        self.faults.push(vec![]);
    }

    /// What step `i` waits for within the stretch; by tiles only where both are kernels, and no worker has
    /// several short tasks of one of them.
    fn waits(&self, e: &CudaExecutable, b: &Block, i: usize, workers: u64) -> Vec<Wait> {
        let dims = &e.plan.plan().dims;
        let kernel = |s: usize| {
            let step = &b.steps[s];
            let tasks = dims.at_top(&step.tasks).unwrap_or(0).max(0) as u64;
            let rounds = tasks.div_ceil(workers.max(1));
            let long = step.predicted.time_s >= rounds as f64 * LONG_S;
            matches!(e.steps.work[s], Work::Kernel(_)) && (rounds <= 1 || long)
        };
        let mut out = vec![];
        for w in &b.steps[i].waits {
            let (Wait::Step(j) | Wait::Tiles { step: j, .. }) = w;
            let Some(&at) = self.of_step.get(&(*j as usize)) else {
                continue;
            };
            out.push(match w {
                // A worker waits for neighbours only.
                Wait::Tiles { map, .. }
                    if !matches!(map, TileMap::Interleaved | TileMap::Clusters { .. })
                        && kernel(i)
                        && kernel(*j as usize) =>
                {
                    Wait::Tiles {
                        step: at,
                        map: map.clone(),
                    }
                }
                _ => Wait::Step(at),
            });
        }
        let touched = || e.steps.reads[i].iter().chain(&e.steps.writes[i]);
        let loads = self.loads.get(&i).into_iter().flatten();
        out.extend(loads.map(|&at| Wait::Step(at)));
        for (buffer, at) in &self.comes {
            if touched().any(|t| t == buffer) {
                out.push(Wait::Step(*at));
            }
        }
        out
    }
}

/// Steps in a row that the host runs, or the device, copies included.
fn parts(e: &CudaExecutable) -> Vec<(bool, Vec<usize>)> {
    let mut out: Vec<(bool, Vec<usize>)> = vec![];
    for (i, w) in e.steps.work.iter().enumerate() {
        let far = matches!(w, Work::Far);
        match out.last_mut() {
            Some((f, list)) if *f == far => list.push(i),
            _ => out.push((far, vec![i])),
        }
    }
    out
}

/// How often the device takes over.
pub(super) fn count(e: &CudaExecutable) -> usize {
    parts(e).iter().filter(|p| !p.0).count()
}

/// A block while it is cut.
struct Cutter<'a> {
    e: &'a CudaExecutable,
    b: &'a Block,
    code: &'a Resident,
    /// Workers at most.
    workers: u64,
    params: &'a mut Params,
    /// Parameters with the numbers of dimensions in waits.
    dims: BTreeMap<Dim, u32>,
    /// Kernels so far.
    kernels: usize,
}

impl Cutter<'_> {
    /// Copies of what a request gives, before all steps.
    fn inputs(&self, m: &mut SectionBuilder) {
        let e = self.e;
        let given = e.inputs.iter().enumerate();
        let given = given.filter(|(_, p)| !p.state && e.places[p.buffer].is_some());
        for (i, port) in given {
            m.comes.push((port.buffer, m.entries.len() as u32));
            let entry = Entry::Copy {
                way: Activity::Upload,
                amount: Amount::Input(i),
                staged: port.staged,
                buffer: port.buffer,
            };
            let bytes = self.b.buffers[port.buffer].bytes;
            let body = self.code.copy_body();
            m.copy(body, entry, port.step.unwrap_or(0), bytes, vec![]);
        }
    }

    /// The steps of `list` with the loads of what they read of streamed buffers: as many loads ahead as
    /// there are places, from the first step on.
    fn steps(&mut self, m: &mut SectionBuilder, list: &[usize]) {
        let (e, b, body) = (self.e, self.b, self.code.copy_body());
        let ahead = e.persistent.passes();
        let streams = |i: &usize| !e.persistent.loads[*i].is_empty();
        let loads: Vec<usize> = list.iter().copied().filter(streams).collect();
        for &step in loads.iter().take(ahead) {
            m.load((e, body), b, step, None);
        }
        for &i in list {
            let waits = m.waits(e, b, i, self.workers);
            let here = m.entries.len() as u32;
            match (&e.steps.work[i], &b.steps[i].work) {
                (Work::CopyDirection(r), _) => {
                    let (way, buffer): (_, BufferId) = match r.up {
                        true => (Activity::Upload, r.to),
                        false => (Activity::Download, r.from),
                    };
                    let entry = Entry::Copy {
                        way,
                        amount: Amount::CopyDirection(i),
                        staged: e.staging_offsets[i],
                        buffer: buffer as usize,
                    };
                    m.copy(body, entry, i, b.buffers[r.to as usize].bytes, waits);
                }
                (Work::Kernel(_), StepWork::Kernel { args, .. }) => self.kernel(m, i, args, waits),
                _ => continue,
            }
            m.of_step.insert(i, here);
            if let Some(n) = loads.iter().position(|&l| l == i)
                && let Some(&next) = loads.get(n + ahead)
            {
                m.load((e, body), b, next, Some(i));
            }
        }
    }

    /// Step `i`, which is a kernel on the buffers `args`.
    fn kernel(&mut self, m: &mut SectionBuilder, i: usize, args: &[BufferId], waits: Vec<Wait>) {
        let s = &self.b.steps[i];
        let number = self.code.of_program[self.kernels];
        self.kernels += 1;
        let own = &self.code.bodies[number as usize];
        let passing = self.e.persistent.passing(i);
        let params = &mut *self.params;
        let from = |p: &emit::ptx::ParamSpec| match &p.value {
            ParamValue::Operand(o) => {
                let buffer = args[*o as usize] as usize;
                match passing.iter().find(|x| x.0 == buffer) {
                    Some(x) => From::Here(x.1),
                    None => From::Buffer(buffer),
                }
            }
            ParamValue::Dim(d) | ParamValue::Tasks(d) => From::Param(params.intern(d)),
            ParamValue::Fault => From::Fault,
            // Its texts copy no boxes.
            ParamValue::Tensor(_) => From::Here(DevicePtr(0)),
        };
        let list = own.params.iter().map(from).collect();
        for w in &waits {
            if let Wait::Tiles { map, .. } = w {
                for d in map.dims() {
                    self.dims.insert(d.clone(), self.params.intern(d));
                }
            }
        }
        let tasks = self.e.plan.plan().dims.at_top(&s.tasks);
        m.shapes.push(StepShape {
            body: number,
            params: own.params.len() as u32,
            top_tasks: tasks.unwrap_or(0).max(0) as u64,
            waits,
            faults: !own.faults.is_empty(),
        });
        m.faults.push(own.faults.clone());
        m.entries.push(Entry::Step {
            params: list,
            tasks: self.params.intern(&s.tasks),
        });
        m.steps.push(i);
    }

    /// Copies of what a request wants, behind all steps.
    fn outputs(&self, m: &mut SectionBuilder) {
        let (e, b) = (self.e, self.b);
        let outs = e.outputs.iter().enumerate();
        for (i, port) in outs.filter(|(_, p)| !p.state && p.here) {
            let wrote = |s: &usize| e.steps.writes[*s].contains(&port.buffer);
            let writers = m.of_step.iter().filter(|(s, _)| wrote(s));
            let mut waits: Vec<Wait> = writers.map(|(_, &at)| Wait::Step(at)).collect();
            let before = m.comes.iter().filter(|c| c.0 == port.buffer);
            waits.extend(before.map(|c| Wait::Step(c.1)));
            let entry = Entry::Copy {
                way: Activity::Download,
                amount: Amount::Output(i),
                staged: port.staged,
                buffer: port.buffer,
            };
            let step = port.step.unwrap_or(b.steps.len() - 1);
            let bytes = b.buffers[port.buffer].bytes;
            m.copy(self.code.copy_body(), entry, step, bytes, waits);
        }
    }
}

/// Cuts the block of `e`, whose kernels' bodies are those of `code` in their order, for `workers` at most.
///
/// # Errors
/// The tables are too large.
pub(super) fn cut(
    e: &CudaExecutable,
    b: &Block,
    (code, workers): (&Resident, u64),
    params: &mut Params,
) -> Result<SectionPlan, TableError> {
    let mut cutter = Cutter {
        e,
        b,
        code,
        workers,
        params,
        dims: BTreeMap::new(),
        kernels: 0,
    };
    let parts = parts(e);
    let (first, last) = (
        parts.iter().position(|p| !p.0),
        parts.iter().rposition(|p| !p.0),
    );
    let (mut all, mut phases) = (vec![], vec![]);
    for (at, (far, list)) in parts.iter().enumerate() {
        if *far {
            phases.push(Phase::Host(list.clone()));
            continue;
        }
        let mut m = SectionBuilder::default();
        if Some(at) == first {
            cutter.inputs(&mut m);
        }
        cutter.steps(&mut m, list);
        if Some(at) == last {
            cutter.outputs(&mut m);
        }
        phases.push(Phase::Section(all.len()));
        all.push(m);
    }
    let tops = all
        .iter()
        .flat_map(|m| m.shapes.iter().map(|s| s.top_tasks));
    let most = tops.max().unwrap_or(1);
    let shapes = all.iter_mut().map(|m| std::mem::take(&mut m.shapes));
    let tables = Tables::together(shapes.collect())?;
    let stretches = all.into_iter().zip(tables).map(|(m, tables)| Section {
        entries: m.entries,
        steps: m.steps,
        faults: m.faults,
        tables,
    });
    Ok(SectionPlan {
        stretches: stretches.collect(),
        phases,
        dims: cutter.dims,
        most,
    })
}
