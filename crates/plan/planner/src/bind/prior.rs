//! What earlier plans of the same program settled: a new box of dims does not pack weights once more in
//! another way unless that pays, and takes schedules that were looked for in the nearest box where they
//! are as good for it.
use super::schedule::Packed;
use super::schedule::numbered_as;
use foldhash::HashMap;
use kernel::{Kernel, OperandId, Role, Schedule, TileProgram};
use layout::Arrange;
use layout::DimBox;
use machine::{Cost, Work};
use plan::{
    Block, BufferId, BufferKind, DeviceRef, Item, Plan, PlanSegment, Step, StepWork, VerifiedPlan,
};
use std::cell::{Cell, OnceCell};
use std::sync::Arc;

/// A box is near when every size at its top is within this factor of the other's: half as many
/// or twice as many rows rarely want another schedule, and what is predicted for the schedule is
/// compared besides.
const NEAR: f64 = 2.0;

/// Packing kernels by the name of what they pack, and the plans that schedules are taken from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prior<'a> {
    packings: HashMap<&'a str, Vec<Arc<Kernel>>>,
    /// Plans of other boxes, the nearest first.
    likes: Vec<PriorPlan<'a>>,
    /// The hash of the program, where it is known.
    hash: Option<String>,
}

/// An earlier plan.
#[derive(Clone, Debug)]
struct PriorPlan<'a> {
    plan: &'a Plan,
    near: bool,
    /// Its steps in order; but for the nearest plan only those whose schedules were looked for, since the
    /// others stand in the plan that they are from.
    steps: Vec<PriorStep<'a>>,
    /// The one behind the step that was found last: a new plan's steps mostly come in the same order.
    next: Cell<usize>,
    /// Where steps stand, in the order of their names; made when one is not the next.
    sorted: OnceCell<Vec<usize>>,
    /// Whether it is for the same workers of the same devices.
    same_devices: bool,
}

/// A step of an earlier plan.
#[derive(Clone, Copy, Debug)]
struct PriorStep<'a> {
    block: &'a Block,
    step: &'a Step,
    program: Option<&'a TileProgram>,
    /// Its number in the block, init steps first.
    number: usize,
}

/// How an earlier plan ran a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Earlier<'a> {
    pub kernel: &'a Arc<Kernel>,
    pub schedule: &'a Arc<Schedule>,
    /// The two together.
    pub program: &'a TileProgram,
    pub packed: Vec<(OperandId, Packed)>,
    /// The box it was for.
    pub dims: &'a DimBox,
    /// Whether that is near.
    pub near: bool,
    /// Whether it ran on the same workers of the same devices.
    pub same_devices: bool,
    /// Whether what it cost there it costs here: none of its sizes depends on the box.
    pub unchanged: bool,
    pub work: &'a Work,
    pub cost: &'a Cost,
}

impl<'a> PriorPlan<'a> {
    fn step(&self, name: &str) -> Option<PriorStep<'a>> {
        let name_of = |at: usize| self.steps[at].step.name.as_str();
        let mut at = self.next.get();
        if at >= self.steps.len() || name_of(at) != name {
            let sorted = self.sorted.get_or_init(|| {
                let mut all: Vec<usize> = (0..self.steps.len()).collect();
                all.arrange_by_key(|&at| name_of(at));
                all
            });
            let found = sorted.binary_search_by_key(&name, |&at| name_of(at));
            at = sorted[found.ok()?];
        }
        self.next.set(at + 1);
        Some(self.steps[at])
    }
}

impl<'a> Prior<'a> {
    /// No plans, of a program whose hash is known.
    pub fn of_program(hash: String) -> Prior<'a> {
        Prior {
            hash: Some(hash),
            ..Prior::default()
        }
    }

    /// The hash of the program, where it is known: it takes as long as a few steps' schedules.
    pub fn hash(&self) -> Option<&str> {
        let like = self.like().map(|p| p.program_hash.as_str());
        like.or(self.hash.as_deref())
    }

    /// What `plans`, the nearest first, pack, and their schedules. `devices` are those of the new plan.
    pub fn of(plans: &[&'a VerifiedPlan], dims: &DimBox, devices: &[DeviceRef]) -> Prior<'a> {
        let mut out = Prior::default();
        for &verified in plans {
            let nearest = out.likes.is_empty();
            // All that it has stands in a plan that it was taken from.
            if !nearest && !verified.searched() {
                continue;
            }
            let plan = verified.plan();
            for block in plan.blocks() {
                for s in &block.init {
                    let Some((kernel, _, source)) = packing(block, s) else {
                        continue;
                    };
                    let known = out.packings.entry(source).or_default();
                    if !known
                        .iter()
                        .any(|k| Arc::ptr_eq(k, kernel) || alike(k, kernel))
                    {
                        known.push(kernel.clone());
                    }
                }
            }
            let steps = ran(verified).filter(|r| nearest || !r.step.taken);
            out.likes.push(PriorPlan {
                plan,
                near: within_a_factor(&plan.dims, dims),
                steps: steps.collect(),
                next: Cell::default(),
                sorted: OnceCell::new(),
                same_devices: plan.devices == devices,
            });
        }
        out
    }

    /// The plan of the nearest box.
    pub fn like(&self) -> Option<&'a Plan> {
        self.likes.first().map(|l| l.plan)
    }

    /// Whether the nearest plan has segment `i` as a block: then so has a plan for a box over the same
    /// symbols.
    pub fn bound(&self, i: usize, dims: &DimBox) -> bool {
        let like = self.likes.first().map(|l| l.plan);
        like.is_some_and(|p| {
            let block = matches!(p.segments.get(i), Some(PlanSegment::Block(_)));
            block && p.dims.iter().map(|d| d.0).eq(dims.iter().map(|d| d.0))
        })
    }

    /// The kernels that packed the value called `name`.
    pub fn packings(&self, name: &str) -> &[Arc<Kernel>] {
        self.packings.get(name).map_or(&[], Vec::as_slice)
    }

    /// The order in which the nearest plan runs `items`; `None` where it does not say.
    pub fn order(&self, items: &[Item]) -> Option<Vec<usize>> {
        let like = self.likes.first()?;
        let at = |i: &Item| Some(like.step(&i.name)?.number);
        let numbers: Vec<usize> = items.iter().map(at).collect::<Option<_>>()?;
        let mut out: Vec<usize> = (0..items.len()).collect();
        out.arrange_by_key(|&i| numbers[i]);
        // Two items of one name cannot be told apart.
        let apart = out.windows(2).all(|w| numbers[w[0]] != numbers[w[1]]);
        apart.then_some(out)
    }

    /// Work and cost of a step that an earlier plan has exactly so: none of its sizes depends on the box.
    pub fn unchanged(
        &self,
        name: &str,
        kernel: &Arc<Kernel>,
        schedule: &Arc<Schedule>,
    ) -> Option<(Work, Cost)> {
        if !fixed(kernel) {
            return None;
        }
        let mut plans = self.likes.iter().filter(|l| l.same_devices);
        plans.find_map(|l| {
            let s = l.step(name)?.step;
            let StepWork::Kernel {
                kernel: k,
                schedule: h,
                ..
            } = &s.work
            else {
                return None;
            };
            // A step in another's launch costs less than by itself, which is what is asked for.
            let same = (Arc::ptr_eq(k, kernel) || k == kernel) && h == schedule && !s.joined;
            same.then(|| (s.cost_work.clone(), s.predicted.clone()))
        })
    }

    /// How the nearest of the plans that looked for a schedule of `kernel`, the work of item `name`, ran
    /// it on device `place`, if it read nothing that is packed for every request. One that was taken from another
    /// box is not taken from there: a chain of boxes would lead far from where it was right.
    pub fn step(&self, name: &str, kernel: &Kernel, place: u32) -> Option<Earlier<'a>> {
        let found = self.likes.iter().find_map(|l| {
            let fits = |s: &Step| !s.taken && s.device == place;
            Some((l, l.step(name).filter(|r| fits(r.step))?))
        });
        let (like, ran) = found?;
        let (b, s, program) = (ran.block, ran.step, ran.program?);
        let StepWork::Kernel {
            kernel: ran,
            schedule,
            args,
        } = &s.work
        else {
            return None;
        };
        let numbered;
        let kernel = match ran.axes == kernel.axes {
            true => kernel,
            false => {
                numbered = numbered_as(kernel, ran)?;
                &numbered
            }
        };
        let same = ran.family == kernel.family
            && ran.axes == kernel.axes
            && ran.tiles.len() == kernel.tiles.len()
            && ran.operands.len() == kernel.operands.len();
        if !same {
            return None;
        }
        let mut packed = Vec::new();
        for (i, (now, then)) in kernel.operands.iter().zip(&ran.operands).enumerate() {
            if now.dtype != then.dtype || now.role != then.role {
                return None;
            }
            if now.access == then.access && now.elements == then.elements {
                continue;
            }
            let buffer = *args.get(i)?;
            let (move_, schedule) = writer(b, buffer).filter(|_| then.role == Role::Read)?;
            packed.push((
                i as OperandId,
                Packed {
                    of: i as OperandId,
                    access: then.access.clone(),
                    elements: then.elements.known()?,
                    kernel: move_.clone(),
                    schedule: schedule.clone(),
                },
            ));
        }
        Some(Earlier {
            dims: &like.plan.dims,
            near: like.near,
            same_devices: like.same_devices,
            unchanged: like.same_devices && fixed(ran) && !s.joined,
            kernel: ran,
            schedule,
            program,
            packed,
            work: &s.cost_work,
            cost: &s.predicted,
        })
    }
}

/// The steps of a plan.
fn ran<'a>(verified: &'a VerifiedPlan) -> impl Iterator<Item = PriorStep<'a>> {
    let blocks = verified.plan().blocks().enumerate();
    blocks.flat_map(move |(i, block)| {
        let steps = block.init.iter().chain(&block.steps);
        let programs = verified.init_programs(i).iter();
        let programs = programs.chain(verified.step_programs(i));
        let each = steps.zip(programs).enumerate();
        each.map(move |(number, (step, program))| PriorStep {
            block,
            step,
            program: program.as_ref(),
            number,
        })
    })
}

/// Whether the tops of two boxes over the same symbols are near each other.
fn within_a_factor(a: &DimBox, b: &DimBox) -> bool {
    let within = |x: i64, y: i64| {
        let (x, y) = (x.max(1) as f64, y.max(1) as f64);
        x <= NEAR * y && y <= NEAR * x
    };
    a.iter().count() == b.iter().count()
        && a.iter()
            .all(|(s, r)| b.get(s).is_some_and(|o| within(r.hi, o.hi)))
}

/// The kernel and schedule of an init step that packs, and the name of what it packs.
fn packing<'a>(b: &'a Block, s: &'a Step) -> Option<(&'a Arc<Kernel>, &'a Arc<Schedule>, &'a str)> {
    let StepWork::Kernel {
        kernel,
        schedule,
        args,
    } = &s.work
    else {
        return None;
    };
    let source = b.buffers.get(*args.first()? as usize)?;
    let packs = kernel.name.starts_with("pack ");
    packs.then_some((kernel, schedule, source.name.as_str()))
}

/// The packing whose result an init buffer is.
fn writer(b: &Block, buffer: BufferId) -> Option<(&Arc<Kernel>, &Arc<Schedule>)> {
    if b.buffers.get(buffer as usize)?.kind != BufferKind::Init {
        return None;
    }
    b.init.iter().find_map(|s| {
        let StepWork::Kernel { args, .. } = &s.work else {
            return None;
        };
        if args.get(1) != Some(&buffer) {
            return None;
        }
        let (kernel, schedule, _) = packing(b, s)?;
        Some((kernel, schedule))
    })
}

/// Whether no size of a kernel is a symbol's.
fn fixed(k: &Kernel) -> bool {
    // Most kernels that have one have one along an axis.
    if k.axes.iter().any(|a| a.extent.known().is_none()) {
        return false;
    }
    let mut all = true;
    k.for_each_dim(&mut |d| all &= d.known().is_some());
    all
}

/// Whether two kernels differ in their own names at most: a packing takes its weight's.
pub fn alike(a: &Kernel, b: &Kernel) -> bool {
    a.family == b.family
        && a.axes == b.axes
        && a.operands == b.operands
        && a.tiles == b.tiles
        && a.body == b.body
}
