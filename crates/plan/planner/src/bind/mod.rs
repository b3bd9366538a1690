//! From a program to a plan: schedules, buffers, waits and memory for a box of dims and a device.
//!
//! Every straight segment becomes a block, control segments are named, and the first straight
//! segment that needs a size not in the box ends the plan. Part `i` of a plan is segment `i` of its
//! program; one more block follows when nothing but constants or inputs is passed on.
mod alike;
mod alternatives;
mod assign;
mod block;
mod copy;
mod ctx;
pub(crate) mod cut;
mod disjoint;
mod early;
mod forecast;
mod fusion;
mod join;
pub(crate) mod known;
pub(crate) mod late;
mod launch;
pub(crate) mod memory;
mod narrow;
mod order;
mod pack;
mod params;
mod parts;
mod placement;
mod places;
mod predict;
pub(crate) mod prior;
mod products;
mod propose;
mod ranked;
mod reassign;
pub(crate) mod recency;
mod recomputed;
pub(crate) mod schedule;
mod value_uses;
pub(crate) mod waits;
mod why;
mod widened;

use crate::state;
use block::{BlockBuilder, BlockInterface};
use ctx::Ctx;
use foldhash::HashMap;
pub use forecast::{predict_again, predict_steps};
use kernel::Target;
use known::KnownSteps;
use late::missing;
use layout::{Arrange, DimBox, DimMap, Inserted};
use machine::{Cost, Machine, MachineKind, units};
pub use placement::Placement;
use plan::{
    Allotment, Alternative, Candidate, DeviceRef, Item, Observations, Plan, PlanError, PlanSegment,
    Program, Segment, Serving, ValueIx, ValueOrigin, VerifiedPlan, Why,
};
use prior::Prior;
pub use reassign::predict_over;
pub use schedule::Sweep;
use std::collections::{BTreeMap, BTreeSet};
use value_uses::{ValueUses, control_reads};
use why::bind_error;
pub(crate) use why::why;

/// How a planner searches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Candidates tried per step.
    pub effort: usize,
    /// Whether declared state stays in place between requests.
    pub states_in_place: bool,
    /// Which device runs what.
    pub placement: Placement,
    /// Bytes that arenas, packed weights and scratch may take together; `None`: no limit. A lower
    /// limit of the allotment counts.
    pub memory: Option<u64>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions {
            effort: 64,
            states_in_place: true,
            placement: Placement::default(),
            memory: None,
        }
    }
}

/// Plans for given devices. Plain data: it asks no device.
#[derive(Clone, Debug)]
pub struct Planner {
    devices: Vec<(Machine, Target)>,
    /// Hashes of the machines: plans name them.
    hashes: Vec<String>,
    options: PlanOptions,
    /// Threads that planning takes; `None`: the processors that nothing else is planned on.
    threads: Option<usize>,
}

/// Workers of device `i` that a plan may use.
fn workers(machine: &Machine, allotment: &Allotment, i: usize) -> usize {
    let most = machine.worker_count().max(1);
    let asked = allotment.workers.get(i).map_or(most, |&w| w as usize);
    asked.clamp(1, most)
}

impl Planner {
    /// A planner for `devices`. One device runs everything; of several the first is the host.
    pub fn new(devices: Vec<(Machine, Target)>, options: PlanOptions) -> Planner {
        let hashes = devices.iter().map(|d| d.0.hash_hex()).collect();
        Planner {
            devices,
            hashes,
            options,
            threads: None,
        }
    }

    /// The same, planning on so many threads, the caller's included: its plans are the same.
    pub fn with_threads(mut self, threads: usize) -> Planner {
        self.threads = Some(threads);
        self
    }

    /// The devices as a plan under `allotment` names them.
    fn shares(&self, allotment: &Allotment) -> Vec<DeviceRef> {
        let each = self.devices.iter().zip(&self.hashes).enumerate();
        each.map(|(i, ((machine, target), hash))| DeviceRef {
            machine: machine.name.clone(),
            machine_hash: hash.clone(),
            target: target.name.clone(),
            workers: workers(machine, allotment, i) as u32,
        })
        .collect()
    }

    /// The devices.
    pub fn devices(&self) -> &[(Machine, Target)] {
        &self.devices
    }
}

impl Planner {
    /// The plan in which `sweep` chooses the schedules of the kernels that it looks at; the others
    /// take what is predicted to be fastest. Memory limits do not count.
    ///
    /// # Errors
    /// As [`plan::Planner::bind`].
    pub fn bind_sweeping(
        &self,
        program: &Program,
        dims: &DimBox,
        allotment: &Allotment,
        sweep: &Sweep,
    ) -> Result<Plan, PlanError> {
        self.bind_as(
            program,
            dims,
            allotment,
            MemorySaving::None,
            (Some(sweep), &Prior::default()),
        )
    }
}

impl plan::Planner for Planner {
    fn bind(
        &self,
        program: &Program,
        dims: &DimBox,
        allotment: &Allotment,
    ) -> Result<Plan, PlanError> {
        self.bind_within(program, dims, allotment, &Prior::default())
    }

    fn bind_like(
        &self,
        program: &Program,
        dims: &DimBox,
        allotment: &Allotment,
        likes: &[&VerifiedPlan],
    ) -> Result<Plan, PlanError> {
        let devices = self.shares(allotment);
        let prior = Prior::of(likes, dims, &devices);
        self.bind_within(program, dims, allotment, &prior)
    }

    fn setting(&self) -> String {
        let of = |(d, hash): (&(Machine, Target), &String)| format!("{hash} {}", d.1.name);
        let devices: Vec<String> = self.devices.iter().zip(&self.hashes).map(of).collect();
        format!("{}\n{:?}", devices.join("\n"), self.options)
    }

    fn propose(&self, observations: &Observations, serving: &[Serving]) -> Vec<Candidate> {
        self.proposals(observations, serving)
    }
}

impl Planner {
    /// The plan that gives up least of those that fit the memory.
    fn bind_within(
        &self,
        program: &Program,
        dims: &DimBox,
        allotment: &Allotment,
        prior: &Prior,
    ) -> Result<Plan, PlanError> {
        let limit = match (allotment.memory, self.options.memory) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let mut least = u64::MAX;
        for thrift in [
            MemorySaving::None,
            MemorySaving::Order,
            MemorySaving::Unpacked,
        ] {
            let mut plan = self.bind_as(program, dims, allotment, thrift, (None, prior))?;
            let Some(limit) = limit else { return Ok(plan) };
            let bytes = memory_of(&plan);
            if bytes <= limit {
                if thrift != MemorySaving::None {
                    plan.whys.push(why(
                        "memory",
                        &program.name,
                        match thrift {
                            MemorySaving::Order => "steps in the order of least live bytes",
                            _ => "weights read where they lie, unpacked",
                        },
                        format!(
                            "{} fit the limit of {}, the fastest plan does not",
                            units::bytes(bytes as f64),
                            units::bytes(limit as f64)
                        ),
                    ));
                }
                return Ok(plan);
            }
            least = least.min(bytes);
        }
        Err(bind_error(
            program,
            "memory",
            format!(
                "arena, packed weights and scratch take at least {least} B ({}), the limit is {} B; raise the limit, give a smaller range of sizes with --dim, or use fewer workers",
                units::bytes(least as f64),
                limit.unwrap_or(0)
            ),
        ))
    }
}

/// How many times fewer candidates are tried where another box's schedule is not as good: the best
/// guesses come first, and somebody waits for the plan.
const LESS: usize = 4;

/// What is given up for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemorySaving {
    /// Nothing.
    None,
    /// The program's order.
    Order,
    /// The program's order, and packed weights.
    Unpacked,
}

impl Planner {
    fn bind_as(
        &self,
        program: &Program,
        dims: &DimBox,
        allotment: &Allotment,
        thrift: MemorySaving,
        choosing: (Option<&Sweep>, &Prior),
    ) -> Result<Plan, PlanError> {
        let bind = || self.bind_here(program, dims, allotment, thrift, choosing);
        match self.threads {
            Some(n) => plan::parallel::with_threads(n, bind),
            None => bind(),
        }
    }

    /// [`Planner::bind_as`] on the threads that maps take.
    fn bind_here(
        &self,
        program: &Program,
        dims: &DimBox,
        allotment: &Allotment,
        thrift: MemorySaving,
        (sweep, prior): (Option<&Sweep>, &Prior),
    ) -> Result<Plan, PlanError> {
        self.check_devices(program)?;
        let mut whys = program.whys.clone();
        let dims = &narrow::narrowed(program, dims, &mut whys)?;
        let known: Vec<KnownSteps> = self.devices.iter().map(|_| KnownSteps::default()).collect();
        let ctxs = self.contexts(program, dims, allotment, (thrift, &known), (sweep, prior));
        within(program)?;
        plan::pause();
        savings(program, &ctxs[ctxs.len() - 1], &mut whys);
        if let Some(like) = prior.like() {
            whys.push(why(
                Plan::LIKE,
                &program.name,
                &like.dims.to_string(),
                "schedules of plans for other sizes, the nearest first, are taken where they are as good here",
            ));
        }
        let hash = match prior.hash() {
            Some(hash) => hash.into(),
            None => program.hash()?,
        };
        let (states, rewritten) = match self.options.states_in_place && !program.states.is_empty() {
            true => state::alias(program, dims, &mut whys),
            false => (vec![], None),
        };
        let program = rewritten.as_ref().unwrap_or(program);
        plan::pause();
        let sorting = ranked::ranked(program, &ctxs, &mut whys);
        let program = sorting.as_ref().unwrap_or(program);
        plan::pause();
        let widened = widened::widened(program, &ctxs, &mut whys);
        let program = widened.as_ref().unwrap_or(program);
        plan::pause();
        let mut memo = schedule::Memo::default();
        let fewer = match self.options.placement {
            Placement::Last => {
                let known = |items: &[Item]| !missing(program, items, dims);
                recomputed::recomputed(
                    program,
                    &states,
                    &ctxs,
                    prior,
                    known,
                    (&mut memo, &mut whys),
                )
            }
            // Those are placed one by one.
            _ => None,
        };
        let program = fewer.as_ref().unwrap_or(program);
        plan::pause();
        let whole = ValueUses::new(program, dims);
        let rims = rims(program, &whole, &states);
        let mut blocks = Blocks {
            planner: self,
            program,
            dims,
            ctxs: &ctxs,
            whole: &whole,
            states: &states,
            prior,
            tight: thrift != MemorySaving::None,
            whys,
            memo,
            predicted: Cost::zero(),
        };
        let segments = blocks.segments(&rims)?;
        Ok(Plan {
            version: Plan::VERSION,
            model: program.name.clone(),
            program_hash: hash,
            devices: self.shares(allotment),
            dims: dims.clone(),
            goal: allotment.goal,
            launch: None,
            segments,
            predicted: blocks.predicted,
            whys: blocks.whys,
        })
    }

    /// Whether plans for these devices, in this order, can be made.
    fn check_devices(&self, program: &Program) -> Result<(), PlanError> {
        let Some((first, _)) = self.devices.first() else {
            return Err(bind_error(
                program,
                "devices",
                "the planner was given none; give it a machine and a target",
            ));
        };
        if self.devices.len() > 1 && first.kind != MachineKind::Cpu {
            return Err(bind_error(
                program,
                "devices",
                format!(
                    "'{}' cannot be the host of other devices; name a CPU first",
                    first.name
                ),
            ));
        }
        if self.options.placement == Placement::Cut && self.devices.len() > 2 {
            return Err(bind_error(
                program,
                "devices",
                format!(
                    "a plan is cut between two devices, not {}; name a CPU and one other",
                    self.devices.len()
                ),
            ));
        }
        Ok(())
    }

    /// What decisions on each device see.
    fn contexts<'a>(
        &'a self,
        program: &Program,
        dims: &'a DimBox,
        allotment: &Allotment,
        (thrift, known): (MemorySaving, &'a [KnownSteps]),
        (sweep, prior): (Option<&'a Sweep>, &Prior),
    ) -> Vec<Ctx<'a>> {
        let footprint = footprint(program, dims);
        let each = self.devices.iter().zip(known).enumerate();
        each.map(|(i, ((machine, target), known))| Ctx {
            machine,
            target,
            dims,
            workers: workers(machine, allotment, i),
            effort: match prior.like() {
                Some(_) => self.options.effort / LESS,
                None => self.options.effort,
            },
            footprint,
            pack: thrift != MemorySaving::Unpacked,
            precision: program.precision,
            sweep,
            forced: None,
            far: &[],
            known: Some(known),
        })
        .collect()
    }
}

/// The blocks of a plan as they are built, one after the other.
struct Blocks<'a> {
    planner: &'a Planner,
    program: &'a Program,
    dims: &'a DimBox,
    ctxs: &'a [Ctx<'a>],
    whole: &'a ValueUses,
    states: &'a [state::StateValue],
    prior: &'a Prior<'a>,
    /// Memory is saved.
    tight: bool,
    whys: Vec<Why>,
    memo: schedule::Memo,
    predicted: Cost,
}

impl Blocks<'_> {
    /// A block per straight segment, up to one whose sizes are not known, and one for outputs that no segment
    /// makes.
    fn segments(&mut self, rims: &[BlockInterface]) -> Result<Vec<PlanSegment>, PlanError> {
        let program = self.program;
        let mut segments = Vec::new();
        for (i, s) in program.segments.iter().enumerate() {
            let segment = i as u32;
            let Segment::Straight(items) = s else {
                segments.push(PlanSegment::Control { segment });
                continue;
            };
            let open = self.whole.open && !self.prior.bound(i, self.dims);
            if open && missing(program, items, self.dims) {
                segments.push(PlanSegment::Deferred { segment });
                return Ok(segments);
            }
            plan::pause();
            let sorted = self.reordered(items, &rims[i]);
            plan::pause();
            segments.push(self.block(sorted.as_deref().unwrap_or(items), &rims[i])?);
        }
        if let Some(rim) = (rims.get(program.segments.len())).filter(|r| !r.outputs.is_empty()) {
            segments.push(self.block(&[], rim)?);
        }
        Ok(segments)
    }

    /// The items in another order, where that of the model is not kept.
    fn reordered(&mut self, items: &[Item], rim: &BlockInterface) -> Option<Vec<Item>> {
        // State in place relies on the program's order.
        if !self.states.is_empty() {
            return None;
        }
        let near = self.prior.order(items).filter(|_| !self.tight);
        let order = match near {
            Some(o) => (!o.is_sorted()).then_some(o),
            None => {
                let ports = rim.inputs.iter().chain(&rim.outputs).copied().inserted();
                order::order(self.program, items, &ports, self.dims, self.tight)
            }
        }?;
        self.whys.push(why(
            "order",
            &self.program.name,
            "changed",
            "fewer bytes are alive at once than in the model's order",
        ));
        Some(order.into_iter().map(|i| items[i].clone()).collect())
    }

    fn block(&mut self, items: &[Item], rim: &BlockInterface) -> Result<PlanSegment, PlanError> {
        let builder = BlockBuilder::new(
            self.ctxs,
            &self.planner.options.placement,
            (self.program, self.whole),
            &mut self.whys,
            &mut self.memo,
            self.prior,
        );
        let b = builder.build(items, rim, self.states)?;
        self.predicted.add(&b.predicted);
        Ok(PlanSegment::Block(Box::new(b)))
    }
}

/// Asks for the limits of plans before there is one.
fn within(program: &Program) -> Result<(), PlanError> {
    let most = program.segments.iter().map(|s| s.items().len()).max();
    let limits = [
        (
            "steps",
            most.unwrap_or(0).max(program.init.len()),
            plan::MAX_STEPS,
        ),
        ("symbols", program.symbols.len(), plan::MAX_SYMBOLS),
    ];
    for (what, n, most) in limits {
        if n > most {
            let why = format!("it has {n} {what}, a plan at most {most}; split the model");
            return Err(bind_error(program, what, why));
        }
    }
    Ok(())
}

/// Bytes of all values at the top of the box; late ones do not count.
fn footprint(program: &Program, dims: &DimBox) -> f64 {
    let mut known: DimMap<Option<i64>> = DimMap::default();
    let mut bytes = 0.0;
    for v in &program.values {
        let top = known.get(&v.storage).copied().unwrap_or_else(|| {
            let top = dims.at_top(&v.storage);
            known.insert(&v.storage, top);
            top
        });
        bytes += top.unwrap_or(0).max(0) as f64 * f64::from(v.dtype.bits()) / 8.0;
    }
    bytes
}

/// Bytes of arenas, packed weights and the workers' scratch.
fn memory_of(plan: &Plan) -> u64 {
    let workers = u64::from(plan.devices.first().map_or(1, |d| d.workers));
    let mut total = 0u64;
    for b in plan.blocks() {
        let far = b
            .far_arenas
            .iter()
            .fold(0, |a: u64, x| a.saturating_add(*x));
        total = total
            .saturating_add(b.packed_bytes())
            .saturating_add(b.arena_bytes)
            .saturating_add(far)
            .saturating_add(b.scratch_bytes.saturating_mul(workers));
    }
    total
}

/// What fusion saves, in seconds of the memory that everything the program touches lies in.
fn savings(program: &Program, ctx: &Ctx, whys: &mut [Why]) {
    let level = ctx.machine.nearest_holding(ctx.footprint);
    let rate = level.read.at(ctx.workers);
    // The first of each subject and choice.
    let mut at: HashMap<(String, String), usize> = HashMap::default();
    for (i, w) in whys.iter().enumerate().filter(|w| w.1.pass == "fuse") {
        let key = (w.subject.clone(), w.choice.clone());
        at.entry(key).or_insert(i);
    }
    for s in &program.savings {
        let Some(n) = ctx.dims.at_top(&s.bytes).filter(|n| *n > 0) else {
            continue;
        };
        let seconds = n as f64 / rate;
        let key = (s.node.clone(), s.choice.clone());
        if let Some(&i) = at.get(&key) {
            whys[i].alternatives.push(Alternative {
                what: format!(
                    "{}: {} {} through {}, these alone",
                    if s.fused { "kept apart" } else { "fused" },
                    units::bytes(n as f64),
                    if s.fused { "more" } else { "less" },
                    level.name
                ),
                predicted_s: seconds,
            });
        }
    }
}

/// Ports of every straight segment, and of one more block at the end.
fn rims(program: &Program, whole: &ValueUses, states: &[state::StateValue]) -> Vec<BlockInterface> {
    let n = program.segments.len();
    let mut reads: Vec<BTreeSet<ValueIx>> = Vec::new();
    let mut writes: Vec<BTreeSet<ValueIx>> = Vec::new();
    for s in &program.segments {
        let (mut r, mut w) = (BTreeSet::new(), BTreeSet::new());
        match s {
            Segment::Straight(items) => {
                for i in items {
                    r.extend(i.reads());
                    w.extend(i.writes());
                }
            }
            s => r.extend(control_reads(s)),
        }
        reads.push(r);
        writes.push(w);
    }
    let wanted: BTreeSet<ValueIx> = program.outputs.iter().map(|o| o.1).inserted();
    let constant = |v: ValueIx| {
        matches!(
            program.value(v).origin,
            ValueOrigin::Weight(_) | ValueOrigin::Init
        )
    };
    let mut rims = vec![BlockInterface::default(); n + 1];
    let mut last_read: BTreeMap<ValueIx, usize> = BTreeMap::new();
    for (i, r) in reads.iter().enumerate() {
        last_read.extend(r.iter().map(|&v| (v, i)));
    }
    let straight: Vec<usize> = (0..n)
        .filter(|&i| matches!(program.segments[i], Segment::Straight(_)))
        .collect();
    for &i in &straight {
        let rim = &mut rims[i];
        rim.inputs = reads[i]
            .iter()
            .copied()
            .filter(|v| !writes[i].contains(v) && !constant(*v))
            .collect();
        rim.outputs = writes[i]
            .iter()
            .copied()
            .filter(|v| wanted.contains(v) || last_read.get(v).is_some_and(|&l| l > i))
            .collect();
    }
    // What is passed on without being made: outputs in the last block, constants that control flow
    // takes in the block before it.
    let last = straight.last().copied().unwrap_or(n);
    let made = |v: &ValueIx| program.value(*v).origin == ValueOrigin::Made;
    for &v in wanted.iter().filter(|v| !made(v)) {
        rims[last].copies.push(v);
    }
    let mut copied: BTreeSet<ValueIx> = rims[last].copies.iter().copied().inserted();
    let mut before = None;
    for (i, s) in program.segments.iter().enumerate() {
        for v in control_reads(s)
            .into_iter()
            .filter(|&v| program.value(v).origin == ValueOrigin::Init)
        {
            if let Some(at) = before
                && copied.insert(v)
            {
                let rim: &mut BlockInterface = &mut rims[at];
                rim.copies.push(v);
            }
        }
        if matches!(s, Segment::Straight(_)) {
            before = Some(i);
        }
    }
    let input = |v: ValueIx| whole.inputs.get(&v).copied().unwrap_or(usize::MAX);
    let output = |v: ValueIx| whole.outputs.get(&v).copied().unwrap_or(usize::MAX);
    for r in &mut rims {
        // State comes in even when nothing reads the past any more: it is already in its place.
        for s in states {
            if r.outputs.contains(&s.present) && !r.inputs.contains(&s.past) {
                r.inputs.push(s.past);
            }
        }
        let mut there: BTreeSet<ValueIx> = r.inputs.iter().copied().inserted();
        for &v in &r.copies {
            if matches!(program.value(v).origin, ValueOrigin::Input(_)) && there.insert(v) {
                r.inputs.push(v);
            }
            r.outputs.push(v);
        }
        r.inputs.arrange_by_key(|&v| (input(v), v));
        r.outputs.arrange_by_key(|&v| (output(v), v));
        r.outputs.dedup();
    }
    rims
}
