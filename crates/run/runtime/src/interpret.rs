//! Running a program's segments in order: blocks on the device, control flow here.
use crate::budget::{MemoryBudget, bytes_of};
use crate::compiled::{CompiledBlock, Epoch, PlanSet};
use crate::dims::{Env, Late, lookup, values};
use crate::dims::{bind_inputs, shape_of};
use crate::recycled::output;
use crate::value::Value;
use crate::{Engine, RunError};
use device::{AlignedBytes, DeviceError, Executable, Permit, Recycler, Request, State};
use layout::{DType, Dim, DimBox, Inserted, Sym};
use plan::{
    Allotment, Block, Item, ItemWork, PlanSegment, Program, Segment, SymbolOrigin, Timeline,
    ValueIx, ValueOrigin,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use tensor::Tensor;

/// Longest loop: an unbounded trip count of a hostile model must not hang the caller for ever.
const MAX_TRIPS: i64 = 1 << 24;
/// Deepest nesting of branches and loops.
const MAX_DEPTH: usize = 64;

/// What a run needs beside its unit.
pub(crate) struct Context<'a> {
    pub engine: &'a Engine,
    pub allotment: &'a Allotment,
    /// Ranges that the caller asked plans to cover.
    pub dims: &'a DimBox,
    pub timeline: Option<&'a mut Timeline>,
    pub stop_after: Option<u32>,
    /// What blocks work in, one after the other.
    pub memory: &'a mut AlignedBytes,
    /// Where outputs' memory comes from.
    pub buffers: &'a Arc<Recycler>,
    /// What values between the steps of control flow take.
    pub budget: MemoryBudget,
    /// What the request may take.
    pub permit: Permit<'a>,
    /// When the request began.
    pub began: Instant,
    /// Blocks in the timeline, each with the number of its first step.
    pub recorded: Vec<(Arc<dyn Executable>, usize)>,
}

/// Spans that a timeline holds at most: loops may run for ever.
const MAX_SPANS: usize = 1 << 20;

impl Context<'_> {
    /// Adds what a block recorded, which began `at` nanoseconds after the request. A block that ran
    /// before keeps its steps' numbers.
    fn record(&mut self, block: &CompiledBlock, own: Timeline, at: u64) {
        let Some(all) = self.timeline.as_deref_mut() else {
            return;
        };
        let at = at.saturating_sub(all.held_ns);
        all.held_ns += own.held_ns;
        all.launched.extend(own.launched);
        let same = |r: &&(Arc<dyn Executable>, usize)| Arc::ptr_eq(&r.0, &block.exe);
        let known = self.recorded.iter().find(same).map(|r| r.1);
        let base = known.unwrap_or_else(|| {
            let base = all.steps.len();
            all.steps.extend(own.steps);
            self.recorded.push((block.exe.clone(), base));
            base
        });
        let room = MAX_SPANS.saturating_sub(all.spans.len());
        all.spans
            .extend(own.spans.into_iter().take(room).map(|mut s| {
                s.step += base as u32;
                s.start_ns += at;
                s.end_ns += at;
                s
            }));
        // Each block counts from the device's clock's reading when it began.
        let lanes = all.lanes.len().max(own.lanes.len());
        if own.lanes.len() == lanes {
            all.lanes = own.lanes;
        }
        let room = MAX_SPANS.saturating_sub(all.device.len());
        all.device
            .extend(own.device.into_iter().take(room).map(|mut s| {
                s.step += base as u32;
                s.start_ns += at;
                s.end_ns += at;
                s
            }));
        let took = self.began.elapsed().as_nanos() as u64;
        all.total_ns = took.saturating_sub(all.held_ns);
    }
}

/// State memory of a stream for the top-level program: one buffer per state of the plan's block.
pub(crate) type States<'a> = &'a mut [State];

type Slots<'v> = BTreeMap<ValueIx, Value<'v>>;

/// The box that a new plan covers: the caller's range where the dims lie inside it; otherwise the
/// dims themselves, and for sizes that come out of the computation a range up to the next power of
/// two, so that growing sizes need few plans.
pub(crate) fn box_for(program: &Program, env: &Env, asked: &DimBox) -> DimBox {
    let mut out = DimBox::new();
    for s in &program.symbols {
        let Some(v) = lookup(env, &s.name) else {
            continue;
        };
        if let Some(r) = asked.get(&s.name)
            && r.lo <= v
            && v <= r.hi
        {
            out.insert(s.name.clone(), r.lo, r.hi);
            continue;
        }
        let computed = !matches!(s.origin, SymbolOrigin::Input { .. });
        if computed && v > 2 {
            let hi = (v as u64).next_power_of_two() as i64;
            out.insert(s.name.clone(), hi / 2 + 1, hi);
        } else {
            out.insert(s.name.clone(), v, v);
        }
    }
    out
}

/// Runs `plan_set` on `inputs` (one per program input) and gives one tensor per output.
pub(crate) fn run<'v>(
    ctx: &mut Context<'_>,
    plan_set: &PlanSet,
    inputs: Vec<Value<'v>>,
    mut env: Env,
    depth: usize,
) -> Result<Vec<Value<'v>>, RunError> {
    if depth > MAX_DEPTH {
        return Err(RunError::Control {
            node: plan_set.program.name.clone(),
            why: "control flow is nested too deeply".into(),
        });
    }
    let program = &plan_set.program;
    plan_set.refused(&inputs)?;
    let shapes: Vec<&[usize]> = inputs.iter().map(|t| t.shape()).collect();
    bind_inputs(program, &shapes, &mut env);
    constraints(program, &env)?;
    let asked = ctx.dims;
    let epoch = plan_set.epoch(
        ctx.engine,
        &env,
        || box_for(program, &env, asked),
        ctx.allotment,
        ctx.memory,
    )?;
    run_on(ctx, plan_set, &epoch, inputs, env, None, depth)
}

/// As [`run`] on a certain plan, with the state that it keeps in place: inputs that are such state may
/// be empty, outputs that are give empty tensors.
pub(crate) fn run_on<'v>(
    ctx: &mut Context<'_>,
    plan_set: &PlanSet,
    epoch: &Epoch,
    inputs: Vec<Value<'v>>,
    mut env: Env,
    mut states: Option<States<'_>>,
    depth: usize,
) -> Result<Vec<Value<'v>>, RunError> {
    let program = &plan_set.program;
    let mut slots: Slots<'v> = program.inputs.iter().copied().zip(inputs).inserted();
    let mut block = 0;
    // A plan of one block has what it makes counted when it is planned.
    let counted = depth > 0 || epoch.plan.plan().segments.len() > 1;
    let mark = ctx.budget.mark();
    for segment in &epoch.plan.plan().segments {
        if ctx.permit.called_off() {
            return Err(RunError::Cancelled);
        }
        let made: Vec<ValueIx> = match segment {
            PlanSegment::Block(b) => b.outputs.iter().map(|p| p.value).collect(),
            PlanSegment::Control { segment } => program.segment_writes(*segment as usize),
            PlanSegment::Deferred { .. } => vec![],
        };
        match segment {
            PlanSegment::Block(b) => {
                let compiled = &epoch.blocks[block];
                block += 1;
                let states = states.as_deref_mut();
                run_block(
                    ctx,
                    program,
                    (b, compiled),
                    &mut slots,
                    (&env, counted),
                    states,
                )?;
            }
            PlanSegment::Control { segment } => {
                control(ctx, plan_set, *segment, &mut slots, &env, depth)
                    .map_err(|e| with_late(e, program, &env))?
            }
            PlanSegment::Deferred { segment } => {
                subprograms(ctx, plan_set, *segment, &mut slots, &mut env, depth)?;
                break;
            }
        }
        let known = env.len();
        late_symbols(plan_set.late(), &made, &slots, &mut env);
        if env.len() > known {
            constraints(program, &env)?;
        }
    }
    epoch.intact()?;
    // Whoever takes the outputs counts them.
    ctx.budget.restore(mark);
    program
        .outputs
        .iter()
        .map(|(_, v)| slot(program, &slots, *v))
        .collect()
}

/// Runs a block on the values that it reads, and puts what it makes into `slots`; `counted`: its outputs count
/// against the request's memory.
fn run_block<'v>(
    ctx: &mut Context<'_>,
    program: &Program,
    (b, compiled): (&Block, &CompiledBlock),
    slots: &mut Slots<'v>,
    (env, counted): (&Env, bool),
    states: Option<States<'_>>,
) -> Result<(), RunError> {
    if let (Some(s), None) = (b.states.first(), &states) {
        return Err(RunError::StateAlone {
            name: b.inputs[s.input as usize].name.clone(),
        });
    }
    let symbols = values(&b.symbols, env);
    let mut outputs: Vec<Tensor> = Vec::new();
    for (i, p) in b.outputs.iter().enumerate() {
        let is_state = b.states.iter().any(|s| s.output as usize == i);
        outputs.push(if is_state && states.is_some() {
            Tensor::zeros(p.dtype, &[0])?
        } else {
            let shape = shape_of(&p.shape, env, &p.name)?;
            let bytes = Tensor::byte_len(p.dtype, &shape)?;
            if counted {
                ctx.budget.take(bytes as u64, &p.name)?;
            }
            output(ctx.buffers, p.dtype, &shape, bytes, &p.name)?
        });
    }
    let mut ins: Vec<Value<'v>> = Vec::new();
    for p in &b.inputs {
        ins.push(slot(program, slots, p.value)?);
    }
    let bytes: Vec<&[u8]> = ins.iter().map(|t| t.bytes()).collect();
    let stop_after = ctx.stop_after;
    let mut own = ctx.timeline.is_some().then(Timeline::default);
    let began = ctx.began.elapsed();
    let permit = ctx.permit;
    compiled.with_frame(ctx.memory, |frame| {
        let mut out: Vec<&mut [u8]> = outputs.iter_mut().map(Tensor::bytes_mut).collect();
        let mut states: Vec<&mut State> = states.into_iter().flatten().collect();
        let request = Request {
            symbols: &symbols,
            inputs: &bytes,
            outputs: &mut out,
            states: &mut states,
            timeline: own.as_mut(),
            stop_after,
            permit,
        };
        compiled.exe.run(frame, request)
    })?;
    if let Some(own) = own {
        ctx.record(compiled, own, began.as_nanos() as u64);
    }
    for (p, t) in b.outputs.iter().zip(outputs) {
        slots.insert(p.value, t.into());
    }
    Ok(())
}

/// Runs the segments of `plan_set` from `first` on, stretch by stretch: each is planned once the sizes
/// that it needs are known.
fn subprograms(
    ctx: &mut Context<'_>,
    plan_set: &PlanSet,
    first: u32,
    slots: &mut Slots<'_>,
    env: &mut Env,
    depth: usize,
) -> Result<(), RunError> {
    let program = &plan_set.program;
    let mut at = first as usize;
    // A stretch is cut where something in it gives a size; one that lacks a size from the start
    // lacks it for good.
    if first == 0 && plan_set.is_subprogram() {
        return Err(RunError::Control {
            node: program.name.clone(),
            why: "a size that a step needs is not given by the inputs or by any step before it"
                .into(),
        });
    }
    while at < program.segments.len() {
        let part = plan_set.subprogram(at);
        let mut inputs = Vec::new();
        for &v in &part.inputs {
            inputs.push(slot(program, slots, v)?);
        }
        let outs = run(ctx, &part.plan_set, inputs, env.clone(), depth + 1)
            .map_err(|e| with_late(e, program, env))?;
        keep(ctx, &program.name, slots, &part.outputs, outs)?;
        late_symbols(plan_set.late(), &part.outputs, slots, env);
        constraints(program, env)?;
        for v in &part.spent {
            let gone = slots.remove(v);
            ctx.budget.give(gone.as_ref().map_or(0, own_bytes));
        }
        at = part.end;
    }
    Ok(())
}

/// Extents that the model takes to be equal, as far as their symbols are known.
pub(crate) fn constraints(program: &Program, env: &Env) -> Result<(), RunError> {
    for c in &program.constraints {
        let value = |d: &Dim| d.eval(&|s| lookup(env, s));
        if let (Some(l), Some(r)) = (value(&c.left), value(&c.right))
            && l != r
        {
            let broken = RunError::Assumed {
                late: Vec::new(),
                node: c.node.clone(),
                left: c.left.clone(),
                right: c.right.clone(),
                is: l,
                other: r,
            };
            return Err(with_late(broken, program, env));
        }
    }
    Ok(())
}

/// `e` with the symbols that only the data gives `program`. A body, or a part that is planned late, has them as extents
/// of its inputs.
fn with_late(mut e: RunError, program: &Program, env: &Env) -> RunError {
    if let RunError::Assumed {
        left, right, late, ..
    } = &mut e
    {
        let mut used = BTreeSet::new();
        left.symbols(&mut used);
        right.symbols(&mut used);
        for s in &program.symbols {
            let given = matches!(s.origin, SymbolOrigin::Input { .. });
            if !given
                && used.contains(&s.name)
                && late.iter().all(|(known, _)| *known != s.name)
                && let Some(n) = lookup(env, &s.name)
            {
                late.push((s.name.clone(), n));
            }
        }
    }
    e
}

/// Symbols that the values `made` determine, where they are not known yet.
fn late_symbols(late: &Late, made: &[ValueIx], slots: &Slots<'_>, env: &mut Env) {
    for v in made {
        let (Some(symbols), Some(t)) = (late.get(v), slots.get(v)) else {
            continue;
        };
        for (name, axis) in symbols {
            if let Some(&n) = t.shape().get(*axis as usize) {
                env.entry(name.clone()).or_insert(n as i64);
            }
        }
    }
}

fn slot<'v>(program: &Program, slots: &Slots<'v>, v: ValueIx) -> Result<Value<'v>, RunError> {
    if let Some(t) = slots.get(&v) {
        return Ok(t.clone());
    }
    let value = program.value(v);
    if let ValueOrigin::Weight(w) = value.origin
        && let Some(t) = program.weights.tensor(w)
    {
        return Ok(t.into());
    }
    Err(RunError::Control {
        node: value.name.clone(),
        why:
            "the value is read before it is made; this is a fault of the planner, please report it"
                .into(),
    })
}

fn control(
    ctx: &mut Context<'_>,
    plan_set: &PlanSet,
    segment: u32,
    slots: &mut Slots<'_>,
    env: &Env,
    depth: usize,
) -> Result<(), RunError> {
    let program = plan_set.program.clone();
    match program.segments.get(segment as usize) {
        Some(Segment::If {
            node,
            cond,
            captures,
            then_branch,
            else_branch,
            outputs,
        }) => {
            let taken = slot(&program, slots, *cond)?;
            let taken = !taken.is_empty() && taken.get_i64(0) != 0;
            let body = if taken { then_branch } else { else_branch };
            let inner = plan_set.inner((segment, !taken as u8), || with_weights(body, &program));
            let mut inputs = Vec::new();
            for &c in captures {
                inputs.push(slot(&program, slots, c)?);
            }
            let outs = run(ctx, &inner, inputs, env.clone(), depth + 1)?;
            keep(ctx, node, slots, outputs, outs)
        }
        Some(Segment::Loop { .. }) => run_loop(ctx, plan_set, segment, slots, env, depth),
        Some(Segment::Late(item)) => host(ctx, &program, item, slots),
        _ => Err(RunError::Control {
            node: program.name.clone(),
            why: format!("the plan names segment {segment}, which is no control flow"),
        }),
    }
}

/// The number in a value, where there is one.
fn number(
    program: &Program,
    slots: &Slots<'_>,
    v: Option<ValueIx>,
) -> Result<Option<i64>, RunError> {
    let Some(v) = v else { return Ok(None) };
    let t = slot(program, slots, v)?;
    Ok((!t.is_empty()).then(|| t.get_i64(0)))
}

/// What an iteration of a loop begins with, beside its values: its number and whether it goes on.
fn iteration(i: i64, go: bool) -> Result<[Tensor; 2], RunError> {
    Ok([
        Tensor::from_i64(&[], &[i])?,
        Tensor::from_bytes(DType::Bool, &[], vec![go as u8])?,
    ])
}

fn run_loop(
    ctx: &mut Context<'_>,
    plan_set: &PlanSet,
    segment: u32,
    slots: &mut Slots<'_>,
    env: &Env,
    depth: usize,
) -> Result<(), RunError> {
    let program = plan_set.program.clone();
    let Some(Segment::Loop {
        node,
        trip,
        cond,
        carried,
        captures,
        body,
        outputs,
    }) = program.segments.get(segment as usize)
    else {
        return Ok(());
    };
    let trips = number(&program, slots, *trip)?;
    let mut go = number(&program, slots, *cond)?.unwrap_or(1) != 0;
    let inner = plan_set.inner((segment, 0), || with_weights(body, &program));
    let all = |list: &[ValueIx]| -> Result<Vec<Value<'_>>, RunError> {
        list.iter().map(|&c| slot(&program, slots, c)).collect()
    };
    let (mut state, fixed) = (all(carried)?, all(captures)?);
    // Outer symbols stay; those that the body reads from its own inputs are bound anew.
    let symbols = inner.program.symbols.iter();
    let own: BTreeSet<&Sym> = symbols
        .filter(|s| s.origin != SymbolOrigin::Outer)
        .map(|s| &s.name)
        .inserted();
    let kept = env.iter().filter(|(s, _)| !own.contains(s));
    let outer: Env = kept.map(|(s, n)| (s.clone(), *n)).inserted();
    let scans = outputs.len() - carried.len();
    let mut stacked: Vec<Vec<Value<'_>>> = vec![Vec::new(); scans];
    let mut i = 0;
    while go && trips.is_none_or(|t| i < t) {
        if i >= MAX_TRIPS {
            return Err(RunError::Control {
                node: node.clone(),
                why: format!("the loop passed {MAX_TRIPS} iterations; give it a trip count"),
            });
        }
        let mut inputs: Vec<Value<'_>> = iteration(i, go)?.map(Value::from).into();
        inputs.extend(state.iter().cloned());
        inputs.extend(fixed.iter().cloned());
        let mut outs = run(ctx, &inner, inputs, outer.clone(), depth + 1)
            .map_err(|e| e.in_loop(node, trips.unwrap_or(i + 1)))?;
        let scan_outs = outs.split_off(1 + carried.len());
        go = !outs[0].is_empty() && outs[0].get_i64(0) != 0;
        let next = outs.split_off(1);
        let made: u64 = next.iter().chain(&scan_outs).map(own_bytes).sum();
        ctx.budget.take(made, node)?;
        if i > 0 {
            ctx.budget.give(state.iter().map(own_bytes).sum());
        }
        state = next;
        for (s, t) in stacked.iter_mut().zip(scan_outs) {
            s.push(t);
        }
        i += 1;
    }
    let (last, scanned) = outputs.split_at(carried.len());
    slots.extend(last.iter().copied().zip(state));
    for (&o, parts) in scanned.iter().zip(stacked) {
        let gathered = parts.iter().map(own_bytes).sum();
        ctx.budget.take(gathered, node)?;
        slots.insert(o, stack(&program, o, &parts, env, node)?.into());
        ctx.budget.give(gathered);
    }
    Ok(())
}

/// Bytes of a value that was made on the way; the caller's are the caller's.
fn own_bytes(v: &Value<'_>) -> u64 {
    match v {
        Value::Ref(_) => 0,
        Value::Own(t) => bytes_of(t),
    }
}

/// Keeps what `node` made as `values`.
fn keep<'v>(
    ctx: &mut Context<'_>,
    node: &str,
    slots: &mut Slots<'v>,
    values: &[ValueIx],
    made: Vec<Value<'v>>,
) -> Result<(), RunError> {
    ctx.budget.take(made.iter().map(own_bytes).sum(), node)?;
    slots.extend(values.iter().copied().zip(made));
    Ok(())
}

fn with_weights(body: &Program, outer: &Program) -> Program {
    let mut p = body.clone();
    p.weights = outer.weights.clone();
    p
}

/// Scanned values joined along a new leading dimension.
fn stack(
    program: &Program,
    v: ValueIx,
    parts: &[Value<'_>],
    env: &Env,
    node: &str,
) -> Result<Tensor, RunError> {
    let value = program.value(v);
    let Some(first) = parts.first() else {
        let mut shape = vec![0];
        for d in value.shape.iter().skip(1) {
            shape.push(
                d.eval(&|s| lookup(env, s))
                    .and_then(|n| usize::try_from(n).ok())
                    .unwrap_or(0),
            );
        }
        return Ok(Tensor::zeros(value.dtype, &shape)?);
    };
    let mut shape = vec![parts.len()];
    shape.extend_from_slice(first.shape());
    if parts.iter().any(|p| p.shape() != first.shape()) {
        return Err(RunError::Control {
            node: node.into(),
            why: "a scanned output changes its shape between iterations".into(),
        });
    }
    if first.dtype() == DType::Str {
        let texts = parts.iter().filter_map(|p| p.text()).flatten();
        return Ok(Tensor::from_text(&shape, texts.cloned().collect())?);
    }
    let mut bytes: Vec<u8> = Vec::new();
    let all = Tensor::byte_len(first.dtype(), &shape)?;
    if bytes.try_reserve_exact(all).is_err() {
        return Err(RunError::Control {
            node: node.into(),
            why: format!("there is no memory for the {all} B that it gathers; run fewer turns"),
        });
    }
    bytes.resize(all, 0);
    let mut stacked = Tensor::from_bytes(first.dtype(), &shape, bytes)?;
    for (i, p) in parts.iter().enumerate() {
        stacked.copy_elements(i * p.len(), p, 0, p.len());
    }
    Ok(stacked)
}

fn host(
    ctx: &mut Context<'_>,
    program: &Program,
    item: &Item,
    slots: &mut Slots<'_>,
) -> Result<(), RunError> {
    let ItemWork::Host {
        op,
        inputs,
        outputs,
    } = &item.work
    else {
        return Err(RunError::Control {
            node: item.name.clone(),
            why: "it is no host operator".into(),
        });
    };
    let mut tensors: Vec<Option<Value<'_>>> = Vec::new();
    for i in inputs {
        tensors.push(match i {
            Some(v) => Some(slot(program, slots, *v)?),
            None => None,
        });
    }
    let refs: Vec<Option<&Tensor>> = tensors.iter().map(|t| t.as_deref()).collect();
    let outs = ctx.engine.device().run_host(op, &refs);
    let outs = outs.map_err(|e| match e {
        // The device knows the operator alone.
        DeviceError::Step { why, .. } => RunError::Device(DeviceError::Step {
            step: item.name.clone(),
            nodes: item.nodes.join(", "),
            why,
        }),
        e => e.into(),
    })?;
    for (&v, t) in outputs.iter().zip(&outs) {
        fits(program, v, t, item)?;
    }
    let outs = outs.into_iter().map(Value::from).collect();
    keep(ctx, &item.name, slots, outputs, outs)
}

/// What a host operator gave must have the type and rank that the steps behind it were planned for.
fn fits(program: &Program, v: ValueIx, t: &Tensor, item: &Item) -> Result<(), RunError> {
    let want = program.value(v);
    let rank = t.shape().len();
    let known = want.shape.iter().zip(t.shape());
    let same = t.dtype() == want.dtype
        && rank == want.shape.len()
        && known
            .filter_map(|(d, n)| Some((d.known()?, *n as i64)))
            .all(|(d, n)| d == n);
    if same {
        return Ok(());
    }
    let why = format!(
        "it gave {t:?} where the model was planned for {}{:?}; give inputs of the types and sizes that the model states",
        want.dtype, want.shape
    );
    // The rank may be one that the import has guessed.
    let node = item.nodes.first().filter(|_| rank != want.shape.len());
    Err(match node {
        Some(node) => RunError::Ranks {
            node: node.clone(),
            taken: rank as i64,
            loops: Vec::new(),
            why,
        },
        None => RunError::Control {
            node: item.name.clone(),
            why,
        },
    })
}
