//! The verifier of plans. A plan may come from any file: what it proves here is what unsafe code
//! relies on.
//!
//! The rules of the whole, of blocks, and of steps `ids`, `kernel` and `extents` make a
//! [`TiledPlan`]; the others, which say what steps touch and in which order, are
//! [`TiledPlan::prove`]'s. A backend may compile beside that proof what the proof then lets run.
//!
//! Whole
//! - `version`: the format is the one this crate writes.
//! - `devices`: there is a device; each names its machine and target and has 1 to 4,096 workers.
//! - `dims`: ranges of symbols lie within 0 to 2^40, the lower end first.
//! - `segments`: nothing follows a deferred part.
//! - `size`: a block has at most [`MAX_STEPS`] steps, four times as many buffers and ports, [`MAX_SYMBOLS`]
//!   symbols and 1,024 constraints, a step no more waits than there are steps, and uses of one buffer
//!   that neither waits nor their places in a row of pieces settle make at most [`MAX_PAIRS`] pairs, so that checking ends.
//!
//! Blocks
//! - `names`: steps of one list and ports of one side have names, all different.
//! - `symbols`: a block's symbols are different and have ranges in the box.
//! - `constraints`: at most 1,024 equalities of dimensions, over the block's symbols; they are
//!   checked for every request, and the proofs below hold for requests that keep them. Init steps
//!   run without a request and are proved without them.
//! - `params`: every dimension uses the block's symbols only, divides by positive numbers only and
//!   stays within 64 bits everywhere in the box.
//! - `buffers`: a buffer lies on a device of the plan, is aligned, and has no offset outside the
//!   arena; each kind's number names the port or state that the buffer belongs to.
//! - `arena`: arena buffers lie inside the arena of their device.
//! - `place`: inputs, outputs and weights lie on the first device, whose memory is the caller's; a
//!   step's operands lie on the step's device, but for a copy: one load and one store of the same
//!   elements, which may go between two devices.
//! - `ports`: a port's buffer is its own, of its type and large enough for its shape.
//! - `states`: a state's ports share its buffer and type.
//! - `capacity`: a buffer, the arena and a worker's scratch stay below 64 TiB.
//!
//! Steps
//! - `ids`: devices, buffers and waits exist; waits point to earlier steps; a kernel has one buffer
//!   per operand.
//! - `waits`: a wait by tiles names all tasks of its step: the same number for every task, or the
//!   spans or the interleaved tasks that follow from the two steps' accesses to one buffer.
//! - `joined`: a step that has no launch of its own is one that [`Step::may_join`] allows.
//! - `kernel`: kernel and schedule make a valid tile program (rules of the kernel crate).
//! - `extents`: no axis has a negative extent; leaves of a blocked axis cover it.
//! - `tasks`: the number of tasks is that of the schedule's grid and below 2^31; a host step has one.
//! - `scratch`: a step states at least the scratch that its tiles take, its block at least a step's.
//! - `dtype`: operands have the type of their buffers.
//! - `role`: init steps read weights and init buffers and write init buffers; steps write arena,
//!   output and state buffers.
//! - `inside`: every address that a step can touch lies inside its buffer, for every point of the
//!   box. Inputs and outputs are as large as their shape at that point, other buffers as large as at
//!   the top. Gathered parts count with all their valid indices; a bound clips what it names.
//! - `race`: tasks of a step write different elements (4-bit elements: one task only).
//! - `alias`: a step touches no byte that it writes in another way too, but for an element-wise
//!   program that ends by storing where it loaded.
//! - `order`: of two steps that touch the same bytes, one of them writing, the later one waits for
//!   the earlier one, at once or through others, unless they provably touch different elements of
//!   one buffer.
//! - `written`: what a step reads was written by a step that it waits for (init buffers: by an init
//!   step); every output is written.
//!
//! A `Wait::Step` orders everything up to the end of the step waited for before the waiting step. A
//! `Wait::Tiles` passes on what the step waited for had waited for, and steps that wait for the
//! waiting step come after both. Of the waiting step itself it orders what it reads of that step's
//! results after their making, where the accesses prove which tasks made what a task reads; nothing
//! else.
//!
//! Of which program a plan is its hash says: [`Plan::belongs_to`] compares it for plans that a caller gives.
//! Sizes of weights are not in a plan, nor who wrote PTX that is in it: [`VerifiedPlan::check_program`]
//! compares them with the store and with the program's kernels.
mod access;
mod blame;
mod block;
mod equal;
mod limits;
mod order;
mod race;
mod step;
mod tiles;

use blame::Blame;
pub use equal::Equal;
pub(crate) use limits::MAX_BYTES;
use limits::{MAX_CONSTRAINTS, MAX_LIST, MAX_SYMBOL, MAX_WORKERS};
pub use limits::{MAX_STEPS, MAX_SYMBOLS};
pub use order::MAX_PAIRS;
pub use race::{Race, race};
pub use tiles::tile_map;

use crate::{
    BufferKind, Plan, PlanError, PlanSegment, Program, Segment, Step, StepWork, TiledPlan,
    VerifiedPlan,
};
use foldhash::HashMap;
use kernel::{Code, Kernel, Schedule, TileProgram};
use std::cell::OnceCell;
use std::sync::Arc;

impl Plan {
    /// Checks every rule of the verifier; only a plan that keeps all of them becomes a
    /// [`VerifiedPlan`].
    pub fn verify(self) -> Result<VerifiedPlan, PlanError> {
        self.verify_like(&[])
    }

    /// As [`Plan::verify`], for less where a step's kernel and schedule are, in memory, those of a step
    /// of `likes`: what was proved of the two by themselves is not proved again.
    pub fn verify_like(self, likes: &[&VerifiedPlan]) -> Result<VerifiedPlan, PlanError> {
        Arc::new(self.tile(likes)?).prove()
    }

    /// The first half of [`Plan::verify_like`]: makes tile programs, and checks what they rest on.
    ///
    /// # Errors
    /// As [`Plan::verify`].
    pub fn tile(self, likes: &[&VerifiedPlan]) -> Result<TiledPlan, PlanError> {
        tiled(self, likes)
    }
}

impl TiledPlan {
    /// Checks the rules of the verifier that are left.
    ///
    /// # Errors
    /// [`PlanError::Rule`] names the step and the rule that it breaks.
    pub fn prove(self: Arc<Self>) -> Result<VerifiedPlan, PlanError> {
        proved(self)
    }
}

fn tiled(plan: Plan, likes: &[&VerifiedPlan]) -> Result<TiledPlan, PlanError> {
    let b = Blame {
        model: &plan.model,
        subject: "the plan".into(),
    };
    b.need(plan.version == Plan::VERSION, "version", || {
        format!("it has version {}, this is {}", plan.version, Plan::VERSION)
    })?;
    b.need(!plan.devices.is_empty(), "devices", || {
        "it names no device".into()
    })?;
    for d in &plan.devices {
        b.need(
            !d.machine.is_empty() && !d.target.is_empty(),
            "devices",
            || "a device has no machine or target".into(),
        )?;
        b.need((1..=MAX_WORKERS).contains(&d.workers), "devices", || {
            format!("{} workers on '{}'", d.workers, d.machine)
        })?;
    }
    for (s, r) in plan.dims.iter() {
        b.need(
            0 <= r.lo && r.lo <= r.hi && r.hi <= MAX_SYMBOL,
            "dims",
            || format!("the range {}..{} of '{s}'", r.lo, r.hi),
        )?;
    }
    let deferred = plan
        .segments
        .iter()
        .position(|s| matches!(s, PlanSegment::Deferred { .. }));
    b.need(
        deferred.is_none_or(|i| i + 1 == plan.segments.len()),
        "segments",
        || "parts follow a deferred one".into(),
    )?;
    let known = Known {
        likes,
        by_place: OnceCell::new(),
    };
    let nearest = likes.first().map_or(&[][..], |l| &l.tiled.programs);
    let mut budget = access::BUDGET;
    let mut programs = Vec::new();
    for (i, block) in plan.blocks().enumerate() {
        let blame = b.of(format!("block {i}"));
        block::sizes(block, &blame)?;
        let (init, steps) = nearest
            .get(i)
            .map_or((&[][..], &[][..]), |(i, s)| (&i[..], &s[..]));
        let made = (
            compile(&block.init, init, &known, &blame)?,
            compile(&block.steps, steps, &known, &blame)?,
        );
        block::check(&plan, block, &blame)?;
        step::names(&plan, block, &blame, &mut budget)?;
        programs.push(made);
    }
    let looked = |s: &Step| !s.taken && matches!(s.work, StepWork::Kernel { .. });
    let searched = {
        let mut steps = plan.blocks().flat_map(|b| b.init.iter().chain(&b.steps));
        steps.any(looked)
    };
    Ok(TiledPlan {
        plan,
        programs,
        searched,
    })
}

/// The rules that are left when a plan has its tile programs: what steps touch, and in which order.
fn proved(tiled: Arc<TiledPlan>) -> Result<VerifiedPlan, PlanError> {
    let plan = &tiled.plan;
    let b = Blame {
        model: &plan.model,
        subject: "the plan".into(),
    };
    let mut budget = access::BUDGET;
    for (i, (block, made)) in plan.blocks().zip(&tiled.programs).enumerate() {
        let blame = b.of(format!("block {i}"));
        step::check(plan, block, made, &blame, &mut budget)?;
    }
    Ok(VerifiedPlan { tiled })
}

/// Programs that were verified, by where their kernels lie in memory.
struct Known<'a> {
    likes: &'a [&'a VerifiedPlan],
    /// Made when first asked for.
    by_place: OnceCell<HashMap<*const Kernel, Vec<&'a TileProgram>>>,
}

impl Known<'_> {
    /// The program of this very kernel and schedule.
    fn find(&self, kernel: &Arc<Kernel>, schedule: &Arc<Schedule>) -> Option<TileProgram> {
        let all = self.by_place.get_or_init(|| {
            let mut out: HashMap<_, Vec<&TileProgram>> = HashMap::default();
            // One whose schedules were all taken from others has little that they have not.
            let each = self.likes.iter().enumerate();
            let told = each.filter(|(i, l)| *i == 0 || l.searched());
            let lists = told.flat_map(|(_, l)| &l.tiled.programs);
            for p in lists.flat_map(|(init, steps)| init.iter().chain(steps).flatten()) {
                let of = out.entry(std::ptr::from_ref(p.kernel())).or_default();
                if !of.iter().any(|q| std::ptr::eq(q.schedule(), p.schedule())) {
                    of.push(p);
                }
            }
            out
        });
        let of = all.get(&Arc::as_ptr(kernel)).into_iter().flatten();
        of.into_iter()
            .find_map(|p| p.with_equal_schedule(kernel, schedule))
    }
}

/// Tile programs of a list of steps, which `like` has at the same places where nothing changed.
fn compile(
    steps: &[Step],
    like: &[Option<TileProgram>],
    known: &Known,
    b: &Blame,
) -> Result<Vec<Option<TileProgram>>, PlanError> {
    let make = |(i, s): (usize, &Step)| match &s.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } => {
            crate::pause();
            let there = like.get(i).and_then(Option::as_ref);
            let there = there.and_then(|p| p.with_equal_schedule(kernel, schedule));
            if let Some(p) = there.or_else(|| known.find(kernel, schedule)) {
                return Ok(Some(p));
            }
            TileProgram::new(kernel.clone(), schedule.clone())
                .map(Some)
                .map_err(|e| {
                    b.of(format!("step '{}'", s.name))
                        .error("kernel", e.to_string())
                })
        }
        StepWork::Host { .. } => Ok(None),
    };
    steps.iter().enumerate().map(make).collect()
}

impl Plan {
    /// Whether it is a plan of `program`, weights left out.
    ///
    /// # Errors
    /// [`PlanError::Rule`] (rule `program`) that names both.
    pub fn belongs_to(&self, program: &Program) -> Result<(), PlanError> {
        let blame = Blame {
            model: &self.model,
            subject: "the plan".into(),
        };
        let hash = program.hash()?;
        blame.need(self.program_hash == hash, "program", || {
            format!(
                "it is of program {:.16}, and model '{}' with these options (shapes, dims, states, kernels, precision) is program {:.16}",
                self.program_hash, program.name, hash
            )
        })
    }
}

impl VerifiedPlan {
    /// Compares the values that the plan takes and gives with those of the program that it will run for,
    /// and its weight buffers with the program's store.
    ///
    /// # Errors
    /// [`PlanError::Rule`]: rule `values` names a port whose value the program does not have, or has with
    /// another element type; rule `code` a step with PTX that none of the program's kernels was written
    /// with: nothing is proved of what PTX does, so that it runs for whoever wrote it and from no file;
    /// rule `weights` as [`VerifiedPlan::check_weights`].
    pub fn check_program(&self, program: &Program) -> Result<(), PlanError> {
        for p in self
            .plan()
            .blocks()
            .flat_map(|b| b.inputs.iter().chain(&b.outputs))
        {
            let value = program.values.get(p.value as usize);
            let blame = Blame {
                model: &self.plan().model,
                subject: format!("port '{}'", p.name),
            };
            blame.need(value.is_some_and(|v| v.dtype == p.dtype), "values", || {
                let there = value.map_or("no such value".into(), |v| format!("{} there", v.dtype));
                format!(
                    "it is value {} of {}, and the model has {there}",
                    p.value, p.dtype
                )
            })?;
        }
        let given = program.segments.iter().flat_map(Segment::items);
        let given = program.init.iter().chain(given);
        let own: Vec<&Arc<Code>> = given
            .filter_map(|i| i.given.as_ref()?.code.as_ref())
            .collect();
        for s in self
            .plan()
            .blocks()
            .flat_map(|b| b.init.iter().chain(&b.steps))
        {
            let StepWork::Kernel { schedule, .. } = &s.work else {
                continue;
            };
            let blame = Blame {
                model: &self.plan().model,
                subject: format!("step '{}'", s.name),
            };
            let known = schedule.code().is_none_or(|c| own.contains(&c));
            blame.need(known, "code", || {
                "it runs PTX that none of the model's kernels was written with".into()
            })?;
        }
        self.check_weights(&program.weights)
    }

    /// Compares the plan's weight buffers with the store that it will run on.
    ///
    /// # Errors
    /// [`PlanError::Rule`] (rule `weights`) that names a weight which is missing, has another
    /// element type or fewer bytes than the plan reads.
    pub fn check_weights(&self, store: &tensor::WeightStore) -> Result<(), PlanError> {
        for buffer in self.plan().blocks().flat_map(|b| &b.buffers) {
            let BufferKind::Weight(w) = buffer.kind else {
                continue;
            };
            let blame = Blame {
                model: &self.plan().model,
                subject: format!("weight '{}'", buffer.name),
            };
            // By its description: the contents stay in the file until somebody needs them.
            let Some(t) = store.get(w) else {
                return Err(blame.error("weights", "the model has no such constant"));
            };
            let fits = t.dtype == buffer.dtype && t.bytes.len() as u64 >= buffer.bytes;
            blame.need(fits, "weights", || {
                format!(
                    "the plan reads {} bytes of {}, the model has {} elements of {}",
                    buffer.bytes,
                    buffer.dtype,
                    t.shape.iter().product::<usize>(),
                    t.dtype
                )
            })?;
        }
        Ok(())
    }
}
