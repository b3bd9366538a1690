//! One block: the steps of a straight segment with their buffers, waits and memory.
use super::Placement;
use super::ctx::Ctx;
use super::disjoint::Writes;
use super::memory::{Life, align_up, assign};
use super::predict::predict_step;
use super::prior::{Prior, alike};
use super::recency::Recency;
use super::schedule;
use super::value_uses::ValueUses;
use super::waits::{Bytes, Touch, lives, waits};
use crate::state::StateValue;
use foldhash::HashMap;
use kernel::{Kernel, Role, Schedule, work};
use layout::{Arrange, Inserted};
use layout::{DType, Dim, DimMap};
use machine::{Cost, Work, predict, units};
use plan::{
    Block, Buffer, BufferId, BufferKind, HostArg, HostOp, Item, ItemWork, PlanError, Port, Program,
    StateRef, Step, StepWork, ValueIx, ValueOrigin, Why,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Alignment of arena buffers in bytes: a cache line and the widest vector.
const ALIGN: u64 = 64;

/// What a block takes from and gives to the rest of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockInterface {
    /// Values made elsewhere, in port order.
    pub inputs: Vec<ValueIx>,
    /// Values made here (or copied here) that are needed elsewhere, in port order.
    pub outputs: Vec<ValueIx>,
    /// Outputs that no item makes: constants and inputs passed on.
    pub copies: Vec<ValueIx>,
}

/// The packing of a constant and the buffer that it fills.
type Copied = (Arc<Kernel>, BufferId);

pub(crate) struct BlockBuilder<'a> {
    /// Of every device; the first is the host's.
    pub(super) ctxs: &'a [Ctx<'a>],
    /// Of the first device: dims and what all devices share.
    pub(super) ctx: Ctx<'a>,
    pub(super) placement: &'a Placement,
    /// Items lowered so far.
    number: usize,
    homes: Homes,
    pub(super) program: &'a Program,
    whole: &'a ValueUses,
    pub(super) whys: &'a mut Vec<Why>,
    pub(super) memo: &'a mut schedule::Memo,
    pub(super) prior: &'a Prior<'a>,
    pub(super) block: Block,
    /// Buffer of a value on a device.
    pub(super) of_value: BTreeMap<(ValueIx, u32), BufferId>,
    /// Buffers of passed-on values by value.
    copied: BTreeMap<ValueIx, BufferId>,
    packed: BTreeMap<(ValueIx, u32), Vec<Copied>>,
    pub(super) touches: Vec<Touch>,
    init_touches: Vec<Touch>,
    init_done: BTreeSet<usize>,
    /// How many items of the block are still to write a value.
    pub(super) writers: HashMap<ValueIx, usize>,
    /// Values of which the caller's memory lacks what a device wrote.
    pub(super) owed: BTreeMap<ValueIx, u32>,
    /// Names of steps, with the last number that was put behind each to make another.
    names: HashMap<String, usize>,
    recency: Recency,
    /// Steps that are sums of parts, which the step before each makes.
    pub(super) sums: Vec<usize>,
    /// Steps that were made one of one task for the launch of the step before each.
    pub(super) behind: Vec<usize>,
    /// Sizes that have a value at the top of the box.
    valued: DimMap<()>,
    /// Elements of buffers, by the size of what they store.
    stored: DimMap<Option<i64>>,
}

impl<'a> BlockBuilder<'a> {
    /// A builder for devices with `ctxs`, of which there is at least one.
    pub fn new(
        ctxs: &'a [Ctx<'a>],
        placement: &'a Placement,
        (program, whole): (&'a Program, &'a ValueUses),
        whys: &'a mut Vec<Why>,
        memo: &'a mut schedule::Memo,
        prior: &'a Prior<'a>,
    ) -> BlockBuilder<'a> {
        BlockBuilder {
            ctx: ctxs[0],
            ctxs,
            placement,
            number: 0,
            homes: Homes::default(),
            program,
            whole,
            whys,
            memo,
            prior,
            block: Block {
                symbols: vec![],
                buffers: vec![],
                inputs: vec![],
                outputs: vec![],
                states: vec![],
                init: vec![],
                steps: vec![],
                arena_bytes: 0,
                far_arenas: vec![],
                constraints: vec![],
                scratch_bytes: 0,
                predicted: Cost::zero(),
            },
            of_value: BTreeMap::new(),
            copied: BTreeMap::new(),
            packed: BTreeMap::new(),
            touches: vec![],
            init_touches: vec![],
            init_done: BTreeSet::new(),
            writers: HashMap::default(),
            owed: BTreeMap::new(),
            names: HashMap::default(),
            recency: Recency::default(),
            sums: vec![],
            behind: vec![],
            valued: DimMap::default(),
            stored: DimMap::default(),
        }
    }

    pub(super) fn error(&self, subject: &str, why: impl Into<String>) -> PlanError {
        PlanError::Bind {
            model: self.program.name.clone(),
            subject: subject.into(),
            why: why.into(),
        }
    }

    /// Binds `items` with ports as `rim` says.
    pub fn build(
        mut self,
        items: &[Item],
        rim: &BlockInterface,
        states: &[StateValue],
    ) -> Result<Block, PlanError> {
        self.homes = self.assign(items, rim, states)?;
        plan::pause();
        self.ports(rim, states)?;
        self.recency = Recency::of_items(self.program, self.ctx, items);
        // Mostly a step each: growing lists of them are copied again and again.
        self.block.steps.reserve(items.len());
        self.touches.reserve(items.len());
        for v in items.iter().flat_map(Item::writes) {
            *self.writers.entry(v).or_default() += 1;
        }
        for item in items {
            self.item(item)?;
        }
        for &v in &rim.copies {
            self.copy(v)?;
        }
        self.finish()
    }

    /// Whether `v` goes from block to block, or from stretch to stretch, as it lies: all its bytes are
    /// elements, and neither the caller nor control flow, who know row-major tensors only, looks at it.
    fn passes(&self, v: ValueIx) -> bool {
        let value = self.program.value(v);
        let given = self.whole.outputs.contains_key(&v);
        value.storage == Dim::product(&value.shape)
            && (!given || self.whole.passed.contains(&v))
            && !self.whole.controls.contains(&v)
    }

    fn ports(&mut self, rim: &BlockInterface, states: &[StateValue]) -> Result<(), PlanError> {
        let state_of = |v: ValueIx| states.iter().position(|s| s.past == v || s.present == v);
        let copies: BTreeSet<ValueIx> = rim.copies.iter().copied().inserted();
        let mut buffers: BTreeMap<usize, BufferId> = BTreeMap::new();
        for (out, list) in [(false, &rim.inputs), (true, &rim.outputs)] {
            for (i, &v) in list.iter().enumerate() {
                let value = self.program.value(v);
                if state_of(v).is_none() && !value.layout.is_row_major(1) && !self.passes(v) {
                    return Err(self.error(&value.name, "it crosses a segment but is not row-major; this is a fault of the program, report it"));
                }
                let kind = if out {
                    BufferKind::Output(i as u32)
                } else {
                    BufferKind::Input(i as u32)
                };
                let buffer = match state_of(v) {
                    Some(s) => match buffers.get(&s) {
                        Some(&b) => b,
                        None => {
                            let number = buffers.len() as u32;
                            let b = self.buffer(
                                v,
                                BufferKind::State(number),
                                Some(states[s].elements),
                                self.homes.states[s],
                            )?;
                            buffers.insert(s, b);
                            b
                        }
                    },
                    None => self.buffer(v, kind, None, 0)?,
                };
                match out && copies.contains(&v) {
                    true => self.copied.insert(v, buffer),
                    false => {
                        let place = self.block.buffers[buffer as usize].place;
                        self.of_value.insert((v, place), buffer)
                    }
                };
                let name = self.port_name(v, out);
                let port = Port {
                    name,
                    value: v,
                    dtype: value.dtype,
                    shape: value.shape.clone(),
                    buffer,
                };
                if out {
                    self.block.outputs.push(port)
                } else {
                    self.block.inputs.push(port)
                }
            }
        }
        for (&s, &buffer) in &buffers {
            let at = |list: &[ValueIx], v| list.iter().position(|&x| x == v).map(|i| i as u32);
            if let (Some(input), Some(output)) = (
                at(&rim.inputs, states[s].past),
                at(&rim.outputs, states[s].present),
            ) {
                self.block.states.push(StateRef {
                    input,
                    output,
                    buffer,
                });
            }
        }
        self.block
            .states
            .arrange_by_key(|s| match self.block.buffers[s.buffer as usize].kind {
                BufferKind::State(n) => n,
                _ => 0,
            });
        Ok(())
    }

    fn port_name(&self, v: ValueIx, out: bool) -> String {
        match self.whole.outputs.get(&v).filter(|_| out) {
            Some(&o) => self.program.outputs[o].0.clone(),
            None => self.program.value(v).name.clone(),
        }
    }

    /// Adds a buffer that holds value `v` on device `place`.
    pub(super) fn buffer(
        &mut self,
        v: ValueIx,
        kind: BufferKind,
        elements: Option<i64>,
        place: u32,
    ) -> Result<BufferId, PlanError> {
        let value = self.program.value(v);
        let n = match elements {
            Some(n) => n,
            None => self.known_elements(&value.storage).ok_or_else(|| {
                self.error(
                    &value.name,
                    format!(
                        "its size {} is not known or too large; give sizes with --dim",
                        value.storage
                    ),
                )
            })?,
        };
        let name = value.name.clone();
        self.raw_buffer(name, kind, value.dtype, n, place)
    }

    fn known_elements(&mut self, storage: &Dim) -> Option<i64> {
        if let Some(n) = self.stored.get(storage) {
            return *n;
        }
        let n = self.elements(storage);
        self.stored.insert(storage, n);
        n
    }

    pub(super) fn raw_buffer(
        &mut self,
        name: String,
        kind: BufferKind,
        dtype: DType,
        elements: i64,
        place: u32,
    ) -> Result<BufferId, PlanError> {
        let bytes = usize::try_from(elements.max(0))
            .ok()
            .and_then(|n| dtype.bytes_for(n))
            .filter(|&b| b < isize::MAX as usize)
            .ok_or_else(|| {
                self.error(
                    &name,
                    "it is too large for memory at the largest sizes that the plan covers; give smaller ones with --dim",
                )
            })?;
        let align = match kind {
            BufferKind::Arena | BufferKind::Init | BufferKind::State(_) => ALIGN as u32,
            _ => (dtype.bits() / 8).max(1),
        };
        self.block.buffers.push(Buffer {
            name,
            kind,
            place,
            dtype,
            bytes: bytes as u64,
            align,
            offset: 0,
        });
        Ok((self.block.buffers.len() - 1) as BufferId)
    }

    /// The buffer of `v` on device `place`, to be read; init items that fill it are added, and a copy
    /// from where it is when it is elsewhere. `init`: for a step of the init segment.
    pub(super) fn value(
        &mut self,
        v: ValueIx,
        place: u32,
        init: bool,
    ) -> Result<BufferId, PlanError> {
        self.settle(v, place)?;
        if let Some(&b) = self.of_value.get(&(v, place)) {
            return Ok(b);
        }
        let origin = self.program.value(v).origin;
        let anywhere = |s: &Self| {
            (0..s.ctxs.len() as u32).find_map(|p| s.of_value.get(&(v, p)).map(|&b| (p, b)))
        };
        if origin == ValueOrigin::Init && anywhere(self).is_none() {
            self.init_for(v, place)?;
            if let Some(&b) = self.of_value.get(&(v, place)) {
                return Ok(b);
            }
        }
        if let ValueOrigin::Weight(w) = origin
            && anywhere(self).is_none()
        {
            // The file is mapped where the host can read it.
            let b = self.buffer(v, BufferKind::Weight(w), None, 0)?;
            self.of_value.insert((v, 0), b);
            if place == 0 {
                return Ok(b);
            }
        }
        let constant = matches!(origin, ValueOrigin::Weight(_) | ValueOrigin::Init);
        match self.source(v) {
            Some((from, b)) => self.transfer(init || constant, v, (from, b), place),
            None => self.target(v, place),
        }
    }

    /// The buffer of `v` on device `place`, to be written.
    fn target(&mut self, v: ValueIx, place: u32) -> Result<BufferId, PlanError> {
        self.settle(v, place)?;
        if let Some(&b) = self.of_value.get(&(v, place)) {
            return Ok(b);
        }
        let kind = match self.program.value(v).origin {
            ValueOrigin::Weight(w) => BufferKind::Weight(w),
            ValueOrigin::Init => BufferKind::Init,
            ValueOrigin::Input(_) | ValueOrigin::Made => BufferKind::Arena,
        };
        let b = self.buffer(v, kind, None, place)?;
        self.of_value.insert((v, place), b);
        Ok(b)
    }

    /// Adds the init items that `v` depends on, in program order, on device `place` where it can.
    fn init_for(&mut self, v: ValueIx, place: u32) -> Result<(), PlanError> {
        let program = self.program;
        let mut need: BTreeSet<usize> = BTreeSet::new();
        let mut stack = vec![v];
        while let Some(v) = stack.pop() {
            for &i in self.whole.makers.get(&v).into_iter().flatten() {
                if !self.init_done.contains(&i) && need.insert(i) {
                    stack.extend(program.init[i].reads());
                }
            }
        }
        self.init_done.extend(&need);
        for i in need {
            self.lower(&program.init[i], place, true)?;
        }
        Ok(())
    }

    fn item(&mut self, item: &Item) -> Result<(), PlanError> {
        plan::pause();
        self.number += 1;
        let place = self.homes.items.get(self.number - 1);
        self.lower(item, place.copied().unwrap_or_default(), false)
    }

    fn lower(&mut self, item: &Item, wanted: u32, init: bool) -> Result<(), PlanError> {
        match &item.work {
            ItemWork::Kernel { kernel, args } => {
                self.check_dims(&item.name, kernel)?;
                let program = self.program;
                let mut place = wanted;
                let far = match init {
                    true => vec![],
                    false => self.recency.next(program, self.ctx, kernel, args),
                };
                let first = self.choice(item, (kernel, args), place, &far, init);
                let mut choice = match first {
                    // What a request does was tried when it was placed.
                    Err(e) if place != 0 && init => {
                        self.whys
                            .push(super::why("place", &item.name, "on the host", e));
                        place = 0;
                        self.choice(item, (kernel, args), place, &far, init)
                    }
                    other => other,
                }
                .map_err(|e| self.error(&item.name, e))?;
                let mut buffers = Vec::with_capacity(args.len());
                for (o, &v) in kernel.operands.iter().zip(args) {
                    buffers.push(match o.role {
                        Role::Read => self.value(v, place, init)?,
                        Role::Write => self.target(v, place)?,
                    });
                }
                self.written(item, place);
                // A cut compares what steps take alone.
                if !init && *self.placement == Placement::Last {
                    let asked = self.asked(item, (kernel, args), place, far, init);
                    if let Some(other) = self.in_launch(&asked, &buffers, &choice) {
                        choice = other;
                    }
                }
                for (operand, packed) in choice.packed {
                    let source = args[packed.of as usize];
                    let fixed = self.constant(source);
                    let buffer = self.pack(source, packed, place, fixed)?;
                    // Those of operands that the kernel was given beside stand behind the others, in their order.
                    match buffers.get_mut(operand as usize) {
                        Some(own) => *own = buffer,
                        None => buffers.push(buffer),
                    }
                }
                if let Some(parts) = choice.parts {
                    buffers = self.in_parts(init, item, *parts, &buffers, place)?;
                }
                self.step(
                    init,
                    &item.name,
                    (choice.kernel, choice.schedule),
                    buffers,
                    item.nodes.clone(),
                    (choice.work, choice.cost),
                    place,
                )?;
                let list = match init {
                    true => &mut self.block.init,
                    false => &mut self.block.steps,
                };
                if let Some(step) = list.last_mut() {
                    step.taken = choice.taken;
                }
                self.give_back(item, place)
            }
            ItemWork::Host {
                op,
                inputs,
                outputs,
            } => {
                self.host(init, item, op, inputs, outputs)?;
                self.written(item, 0);
                self.give_back(item, 0)
            }
        }
    }

    /// Every dim of a kernel must have a value at the top of the box.
    pub(super) fn check_dims(&mut self, name: &str, kernel: &Kernel) -> Result<(), PlanError> {
        let mut bad: Option<Dim> = None;
        kernel.for_each_dim(&mut |d| {
            if bad.is_none() && self.valued.insert(d, ()) && self.ctx.dims.at_top(d).is_none() {
                bad = Some(d.clone());
            }
        });
        match bad {
            Some(d) => Err(self.error(
                name,
                format!(
                    "the size {d} has no value at the largest sizes that the plan covers; give sizes with --dim"
                ),
            )),
            None => Ok(()),
        }
    }

    /// The buffer of a packed copy of `source`, with the step that fills it: an init step for what is
    /// constant.
    fn pack(
        &mut self,
        source: ValueIx,
        packed: super::schedule::Packed,
        place: u32,
        constant: bool,
    ) -> Result<BufferId, PlanError> {
        let known = self.packed.get(&(source, place)).into_iter().flatten();
        if let Some(k) = known.into_iter().find(|k| alike(&k.0, &packed.kernel)) {
            return Ok(k.1);
        }
        let value = self.program.value(source);
        let from = self.value(source, place, true)?;
        let name = format!("{}.packed", value.name);
        let kind = match constant {
            true => BufferKind::Init,
            false => BufferKind::Arena,
        };
        let b = self.raw_buffer(name, kind, packed.dtype(), packed.elements, place)?;
        let name = format!("pack {}", value.name);
        let mut kernel = packed.kernel;
        if kernel.name != name {
            Arc::make_mut(&mut kernel).name.clone_from(&name);
        }
        if constant {
            let list = self.packed.entry((source, place)).or_default();
            list.push((kernel.clone(), b));
        }
        let (work, cost) = match self.prior.unchanged(&name, &kernel, &packed.schedule) {
            Some(known) => known,
            None => predict_step(self.ctxs[place as usize], &kernel, &packed.schedule)
                .ok_or_else(|| self.error(&name, "its packing is no valid program"))?,
        };
        self.step(
            constant,
            &name,
            (kernel, packed.schedule),
            vec![from, b],
            vec![],
            (work, cost),
            place,
        )?;
        Ok(b)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn step(
        &mut self,
        init: bool,
        name: &str,
        (kernel, schedule): (Arc<Kernel>, Arc<Schedule>),
        args: Vec<BufferId>,
        nodes: Vec<String>,
        (work, cost): (Work, Cost),
        device: u32,
    ) -> Result<(), PlanError> {
        let tasks = work::tasks(&kernel, &schedule);
        let scratch = work::scratch_of(&kernel, &schedule, self.ctx.dims).ok_or_else(|| {
            self.error(
                name,
                "the sizes of its tiles have no upper bound; give sizes with --dim",
            )
        })?;
        let mut touch = Touch::default();
        for (o, &b) in kernel.operands.iter().zip(&args) {
            if o.role == Role::Read {
                touch.reads.push(b)
            } else {
                touch.writes.push(b)
            }
        }
        let step = Step {
            name: self.unique(name),
            work: StepWork::Kernel {
                kernel,
                schedule,
                args,
            },
            device,
            tasks,
            waits: vec![],
            scratch,
            nodes,
            cost_work: work,
            predicted: cost,
            taken: false,
            joined: false,
        };
        self.push(init, step, touch);
        Ok(())
    }

    fn push(&mut self, init: bool, step: Step, touch: Touch) {
        self.block.scratch_bytes = self.block.scratch_bytes.max(step.scratch);
        if init {
            self.block.init.push(step);
            self.init_touches.push(touch);
        } else {
            self.block.predicted.add(&step.predicted);
            self.block.steps.push(step);
            self.touches.push(touch);
        }
    }

    fn unique(&mut self, name: &str) -> String {
        let mut unique = name.to_string();
        if let Some(&last) = self.names.get(name) {
            let mut i = last;
            while self.names.contains_key(&unique) {
                i += 1;
                unique = format!("{name}#{i}");
            }
            self.names.insert(name.into(), i);
        }
        self.names.insert(unique.clone(), 1);
        unique
    }

    fn host(
        &mut self,
        init: bool,
        item: &Item,
        op: &Arc<HostOp>,
        inputs: &[Option<ValueIx>],
        outputs: &[ValueIx],
    ) -> Result<(), PlanError> {
        let mut touch = Touch::default();
        let mut work = Work {
            tasks: 1,
            steps: 1,
            ..Work::default()
        };
        let memory = self.ctx.machine.memory_index();
        let mut arg = |s: &mut Self, v: ValueIx, out: bool| -> Result<HostArg, PlanError> {
            let buffer = match out {
                true => s.target(v, 0)?,
                false => s.value(v, 0, init)?,
            };
            let value = s.program.value(v);
            let bytes = s.block.buffers[buffer as usize].bytes as f64;
            if out {
                touch.writes.push(buffer);
                work.unique_written += bytes;
                work.add_traffic(memory, 0.0, bytes);
            } else {
                touch.reads.push(buffer);
                work.unique_read += bytes;
                work.add_traffic(memory, bytes, 0.0);
            }
            Ok(HostArg {
                buffer,
                dtype: value.dtype,
                shape: value.shape.clone(),
            })
        };
        let ins = inputs
            .iter()
            .map(|v| v.map(|v| arg(self, v, false)).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        let outs = outputs
            .iter()
            .map(|&v| arg(self, v, true))
            .collect::<Result<Vec<_>, _>>()?;
        let eff = &self.ctx.target.efficiencies.default;
        let predicted = predict(self.ctx.machine, eff, &work, 1);
        let step = Step {
            name: self.unique(&item.name),
            work: StepWork::Host {
                op: op.clone(),
                inputs: ins,
                outputs: outs,
            },
            device: 0,
            tasks: Dim::ONE,
            waits: vec![],
            scratch: 0,
            nodes: item.nodes.clone(),
            cost_work: work,
            predicted,
            taken: false,
            joined: false,
        };
        self.whys.push(Why {
            pass: "host".into(),
            subject: step.name.clone(),
            choice: format!("host step {}", op.name),
            alternatives: vec![],
            reason: op.reason.clone(),
        });
        self.push(init, step, touch);
        Ok(())
    }

    /// A step that passes `v` on to its output port.
    fn copy(&mut self, v: ValueIx) -> Result<(), PlanError> {
        let from = self.value(v, 0, false)?;
        let Some(&to) = self.copied.get(&v) else {
            return Ok(());
        };
        let value = self.program.value(v);
        let kernel =
            super::copy::copy_kernel(&format!("copy {}", value.name), value.dtype, &value.storage);
        self.check_dims(&value.name, &kernel)?;
        let choice = schedule::choose(self.ctx, &kernel, &schedule::Facts::NONE, self.whys)
            .map_err(|e| self.error(&value.name, e))?;
        let name = kernel.name.clone();
        self.step(
            false,
            &name,
            (choice.kernel, choice.schedule),
            vec![from, to],
            vec![],
            (choice.work, choice.cost),
            0,
        )
    }

    fn finish(mut self) -> Result<Block, PlanError> {
        let mut lives = lives(&self.touches);
        self.beside_sums(&mut lives);
        let mut shared = Bytes::default();
        for place in 0..self.ctxs.len() as u32 {
            let arena: Vec<BufferId> = (0..self.block.buffers.len() as BufferId)
                .filter(|&b| {
                    let x = &self.block.buffers[b as usize];
                    x.kind == BufferKind::Arena && x.place == place
                })
                .collect();
            let life: Vec<Life> = arena
                .iter()
                .map(|b| {
                    let (first, last) = lives.get(b).copied().unwrap_or((0, 0));
                    Life {
                        first,
                        last,
                        bytes: self.block.buffers[*b as usize].bytes,
                    }
                })
                .collect();
            let (offsets, top) = assign(&life, ALIGN);
            if top > 0 {
                let bound = super::memory::least(&life, ALIGN);
                let shares = bound as f64 / top as f64;
                self.whys.push(super::why(
                    "memory",
                    &self.ctxs[place as usize].machine.name,
                    &format!("an arena of {}", units::bytes(align_up(top, ALIGN) as f64)),
                    format!(
                        "{} of it is alive at once at most ({})",
                        units::percent(shares),
                        units::bytes(bound as f64)
                    ),
                ));
            }
            for (&b, &o) in arena.iter().zip(&offsets) {
                self.block.buffers[b as usize].offset = o;
            }
            match place {
                0 => self.block.arena_bytes = align_up(top, ALIGN),
                _ => self.block.far_arenas.push(align_up(top, ALIGN)),
            }
            let placed: Vec<(BufferId, u64, Life)> = arena
                .iter()
                .zip(&offsets)
                .zip(&life)
                .map(|((b, o), l)| (*b, *o, *l))
                .collect();
            shared.add(place, &placed);
        }
        let apart = |steps| Writes {
            steps,
            dims: self.ctx.dims,
        };
        let (mut w, needs) = waits(&self.touches, &shared, &apart(&self.block.steps));
        super::waits::tiled(&mut w, &needs, &|j, i| self.tiles(j, i, &shared));
        let init = apart(&self.block.init);
        let (iw, _) = waits(&self.init_touches, &Bytes::default(), &init);
        self.block
            .steps
            .iter_mut()
            .zip(w)
            .for_each(|(s, w)| s.waits = w);
        self.block
            .init
            .iter_mut()
            .zip(iw)
            .for_each(|(s, w)| s.waits = w);
        self.join();
        self.early();
        let together = match self.ctxs {
            [one] => super::forecast::concurrency(one.target, one.workers),
            _ => 1,
        };
        let each = |i: usize| self.block.steps[i].predicted.time_s;
        let elapsed = self.block.elapsed_s(together, each);
        self.block.predicted.within(elapsed);
        let mut used = self.symbols();
        self.block.constraints = self.constraints(&mut used);
        self.block.symbols = self
            .program
            .symbols
            .iter()
            .map(|s| s.name.clone())
            .filter(|s| used.contains(s))
            .collect();
        Ok(self.block)
    }
}

/// Where things are.
#[derive(Clone, Debug, Default)]
pub(super) struct Homes {
    /// Of the block's items, in order.
    pub items: Vec<u32>,
    /// Of states, in the order that the block was given.
    pub states: Vec<u32>,
}
