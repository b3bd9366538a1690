//! Rules of steps: every access stays inside its buffer, writes do not race, and host steps get dense
//! arguments.
use super::access::{Prover, Shape, product, single};
use super::block::bytes_of;
use super::equal::Equal;
use super::order::{Ordering, Use};
use super::{Blame, MAX_BYTES};
use crate::plan::BlockPrograms;
use crate::{Block, Buffer, BufferKind, HostArg, Plan, PlanError, Step, StepWork, Wait};
use kernel::{Kernel, Mapping, Role, Schedule, Stmt, TileProgram, work};
use layout::{Dim, DimBox};

type Checked = Result<(), PlanError>;

/// Tasks that a step may have.
const MAX_TASKS: i64 = 1 << 31;
/// Extents and leaves above this are not looked at.
const MAX_EXTENT: i64 = 1 << 46;

pub(super) fn check(
    plan: &Plan,
    k: &Block,
    made: &BlockPrograms,
    b: &Blame,
    budget: &mut i64,
) -> Checked {
    let equal = Equal::new(&k.constraints, &plan.dims);
    let mut p = Prover {
        dims: &plan.dims,
        equal: None,
        budget,
    };
    let limits: Vec<Dim> = k.buffers.iter().map(|x| limit(k, x, &plan.dims)).collect();
    let list = |init: bool| StepList {
        block: k,
        steps: if init { &k.init } else { &k.steps },
        programs: if init { &made.0 } else { &made.1 },
        init,
        limits: &limits,
    };
    let init = list(true).uses(b, &mut p)?;
    Ordering::new(&k.init, b, &p)?.check(k, &init, true, &[], b, &mut p)?;
    p.equal = equal.as_ref();
    let steps = list(false).uses(b, &mut p)?;
    let filled: Vec<u32> = init.iter().filter(|u| u.write).map(|u| u.buffer).collect();
    Ordering::new(&k.steps, b, &p)?.check(k, &steps, false, &filled, b, &mut p)
}

/// The rules of what steps name, and of their extents.
pub(super) fn names(plan: &Plan, k: &Block, b: &Blame, budget: &mut i64) -> Checked {
    let equal = Equal::new(&k.constraints, &plan.dims);
    let mut p = Prover {
        dims: &plan.dims,
        equal: None,
        budget,
    };
    for (list, equal) in [(&k.init, None), (&k.steps, equal.as_ref())] {
        p.equal = equal;
        for (at, s) in list.iter().enumerate() {
            crate::pause();
            let b = b.of(format!("{}, step '{}'", b.subject, s.name));
            ids(plan, k, s, at, &b)?;
            let before = at.checked_sub(1).map(|i| &list[i]);
            let may = || {
                before.is_some_and(|x| {
                    s.may_join(x, at, &plan.dims) && ![x, s].iter().any(|s| k.is_transfer(s))
                })
            };
            b.need(!s.joined || may(), "joined", || {
                "it is not one that the launch of the step before it can hold; leave 'joined' out"
                    .into()
            })?;
            if let StepWork::Kernel { kernel, .. } = &s.work {
                extents(kernel, &b, &mut p)?;
            }
        }
    }
    Ok(())
}

/// Elements of a buffer: the caller's memory is as large as the shape at hand, ours as at the top.
fn limit(k: &Block, x: &Buffer, dims: &DimBox) -> Dim {
    let port = match x.kind {
        BufferKind::Input(n) => k.inputs.get(n as usize),
        BufferKind::Output(n) => k.outputs.get(n as usize),
        _ => None,
    };
    match port {
        Some(p) => {
            let n = product(&p.shape, dims).unwrap_or(Dim::ZERO);
            n.eval(&|s| single(dims, s)).map_or(n, Dim::Known)
        }
        None => Dim::Known((x.bytes.saturating_mul(8) / u64::from(x.dtype.bits()).max(1)) as i64),
    }
}

/// A list of steps in its block, and the elements that each buffer has.
struct StepList<'a> {
    block: &'a Block,
    steps: &'a [Step],
    programs: &'a [Option<TileProgram>],
    init: bool,
    limits: &'a [Dim],
}

impl StepList<'_> {
    /// How each step touches its buffers, all of it proved to stay inside them.
    fn uses(&self, b: &Blame, p: &mut Prover) -> Result<Vec<Use>, PlanError> {
        let mut out = Vec::new();
        for (at, s) in self.steps.iter().enumerate() {
            crate::pause();
            let b = b.of(format!("{}, step '{}'", b.subject, s.name));
            let from = out.len();
            match (&s.work, self.programs.get(at).and_then(Option::as_ref)) {
                (StepWork::Kernel { .. }, Some(program)) => {
                    self.kernel_uses(at, program, &b, p, &mut out)?;
                }
                (StepWork::Host { .. }, _) => self.host_uses(at, &b, p, &mut out)?,
                _ => return Err(b.error("kernel", "its tile program is missing")),
            }
            alias(self.block, s, &out[from..], &b, p)?;
            let room = self.block.scratch_bytes;
            b.need(
                s.scratch < MAX_BYTES && s.scratch <= room,
                "scratch",
                || format!("it takes {} bytes of the block's {room}", s.scratch),
            )?;
            let tasks = p.dims.bounds(&s.tasks);
            b.need(
                tasks.is_some_and(|r| (0..MAX_TASKS).contains(&r.hi)),
                "tasks",
                || format!("'{}' tasks are too many", s.tasks),
            )?;
        }
        Ok(out)
    }

    fn kernel_uses(
        &self,
        at: usize,
        program: &TileProgram,
        b: &Blame,
        p: &mut Prover,
        out: &mut Vec<Use>,
    ) -> Checked {
        let s = &self.steps[at];
        let StepWork::Kernel {
            kernel,
            schedule,
            args,
        } = &s.work
        else {
            return Ok(());
        };
        b.need(s.tasks == work::tasks(kernel, schedule), "tasks", || {
            format!("its grid has not {} tasks", s.tasks)
        })?;
        let needed = work::scratch_bytes(program, p.dims);
        b.need(needed.is_some_and(|n| n <= s.scratch), "scratch", || {
            format!(
                "its tiles take {} bytes of the {} stated",
                needed.map_or("too many".into(), |n| n.to_string()),
                s.scratch
            )
        })?;
        for (part, (o, &buffer)) in kernel.operands.iter().zip(args).enumerate() {
            let x = &self.block.buffers[buffer as usize];
            let limit = &self.limits[buffer as usize];
            b.need(o.dtype == x.dtype, "dtype", || {
                format!(
                    "operand '{}' is {} in a buffer of {}",
                    o.name, o.dtype, x.dtype
                )
            })?;
            let write = o.role == Role::Write;
            role(x, write, self.init, b)?;
            constant(x, schedule, part, self.init, b)?;
            let shape = Shape::new(kernel, o).settled(p.dims);
            b.need(p.inside(&shape, limit), "inside", || {
                format!(
                    "operand '{}' is not proved to stay inside the {limit} elements of buffer '{}'",
                    o.name, x.name
                )
            })?;
            if write {
                let alone = p.dims.bounds(&s.tasks).is_some_and(|r| r.hi <= 1);
                b.need(alone || p.injective(&shape), "race", || {
                    format!("tasks may write the same elements of operand '{}'", o.name)
                })?;
                let whole = || kernel::whole_bytes(kernel, schedule, o);
                b.need(alone || o.dtype.bits() >= 8 || whole(), "race", || {
                    format!("tasks share bytes of {} operand '{}'", o.dtype, o.name)
                })?;
            }
            out.push(Use {
                step: at,
                buffer,
                write,
                part,
                shape,
            });
        }
        Ok(())
    }

    fn host_uses(&self, at: usize, b: &Blame, p: &mut Prover, out: &mut Vec<Use>) -> Checked {
        let s = &self.steps[at];
        let StepWork::Host {
            inputs, outputs, ..
        } = &s.work
        else {
            return Ok(());
        };
        b.need(s.tasks.is_one(), "tasks", || {
            format!("a host step has one task, not {}", s.tasks)
        })?;
        let read = inputs.iter().flatten().map(|a| (a, false));
        let args = read.chain(outputs.iter().map(|a| (a, true)));
        for (part, (a, write)) in args.enumerate() {
            let x = &self.block.buffers[a.buffer as usize];
            b.need(a.dtype == x.dtype, "dtype", || {
                format!("argument {part} is {} in a buffer of {}", a.dtype, x.dtype)
            })?;
            role(x, write, self.init, b)?;
            let shape = dense(a, &self.limits[a.buffer as usize], p);
            let shape = shape.ok_or_else(|| {
                b.error(
                    "inside",
                    format!(
                        "argument {part} is not proved to stay inside buffer '{}'",
                        x.name
                    ),
                )
            })?;
            out.push(Use {
                step: at,
                buffer: a.buffer,
                write,
                part,
                shape,
            });
        }
        Ok(())
    }
}

fn ids(plan: &Plan, k: &Block, s: &Step, at: usize, b: &Blame) -> Checked {
    b.need((s.device as usize) < plan.devices.len(), "ids", || {
        format!("device {} is not there", s.device)
    })?;
    for w in &s.waits {
        let (Wait::Step(to) | Wait::Tiles { step: to, .. }) = w;
        b.need((*to as usize) < at, "ids", || {
            format!("it waits for step {to}, which is not before it")
        })?;
    }
    let there = |x: u32| (x as usize) < k.buffers.len();
    let here = |x: u32| k.buffers[x as usize].place == s.device;
    let ok = match &s.work {
        StepWork::Kernel { kernel, args, .. } => {
            args.len() == kernel.operands.len() && args.iter().all(|&x| there(x))
        }
        StepWork::Host {
            inputs, outputs, ..
        } => inputs
            .iter()
            .flatten()
            .chain(outputs)
            .all(|a| there(a.buffer)),
    };
    b.need(ok, "ids", || {
        "its buffers are not one per operand, or not there".into()
    })?;
    let near = match &s.work {
        StepWork::Kernel { kernel, args, .. } => args.iter().all(|&x| here(x)) || is_copy(kernel),
        StepWork::Host {
            inputs, outputs, ..
        } => inputs
            .iter()
            .flatten()
            .chain(outputs)
            .all(|a| here(a.buffer)),
    };
    b.need(near, "place", || {
        format!("it uses memory of another device than {}", s.device)
    })
}

/// Whether a kernel only copies elements from one place to the same elements of another.
fn is_copy(kernel: &Kernel) -> bool {
    let [
        Stmt::Load { dst, operand: from },
        Stmt::Store { operand: to, src },
    ] = kernel.body.as_slice()
    else {
        return false;
    };
    let (from, to) = (
        &kernel.operands[*from as usize],
        &kernel.operands[*to as usize],
    );
    dst == src
        && kernel.operands.len() == 2
        && from.dtype == to.dtype
        && from.access == to.access
        && from.access.bounds.is_empty()
        && from.access.indexed.is_empty()
}

fn extents(kernel: &Kernel, b: &Blame, p: &mut Prover) -> Checked {
    for a in &kernel.axes {
        let r = p.dims.bounds(&a.extent);
        b.need(
            r.is_some_and(|r| r.hi < MAX_EXTENT) && p.never_negative(&a.extent),
            "extents",
            || {
                format!(
                    "extent '{}' of axis '{}' can be negative or is too large",
                    a.extent, a.name
                )
            },
        )?;
    }
    for o in &kernel.operands {
        for t in o.access.terms.iter().filter(|t| t.leaves.len() > 1) {
            let extent = &kernel.axes[t.axis as usize].extent;
            let sizes: Vec<Dim> = t.leaves.iter().map(|l| l.extent.clone()).collect();
            let covered = product(&sizes, p.dims).is_some_and(|n| p.nonneg(&(n - extent.clone())));
            b.need(
                covered && sizes.iter().all(|d| p.nonneg(d)),
                "extents",
                || {
                    format!(
                        "the leaves of operand '{}' do not cover axis '{}'",
                        o.name, kernel.axes[t.axis as usize].name
                    )
                },
            )?;
        }
        for i in &o.access.indexed {
            b.need(p.nonneg(&i.extent), "extents", || {
                format!(
                    "operand '{}' is gathered from '{}' positions",
                    o.name, i.extent
                )
            })?;
        }
    }
    Ok(())
}

fn role(x: &Buffer, write: bool, init: bool, b: &Blame) -> Checked {
    let ok = match (init, write) {
        (true, true) => x.kind == BufferKind::Init,
        (true, false) => matches!(x.kind, BufferKind::Init | BufferKind::Weight(_)),
        (false, true) => matches!(
            x.kind,
            BufferKind::Arena | BufferKind::Output(_) | BufferKind::State(_)
        ),
        (false, false) => true,
    };
    b.need(ok, "role", || {
        format!(
            "it may not {} buffer '{}', which is {:?}",
            if write { "write" } else { "read" },
            x.name,
            x.kind
        )
    })
}

/// What a kernel reads before those before it are over is written by none of them.
fn constant(x: &Buffer, schedule: &Schedule, part: usize, init: bool, b: &Blame) -> Checked {
    let early = match &schedule.mapping {
        Mapping::Gpu(g) => g.constants.iter().any(|&o| usize::from(o) == part),
        Mapping::Cpu(_) => false,
    };
    let fixed = !init && matches!(x.kind, BufferKind::Init | BufferKind::Weight(_));
    b.need(!early || fixed, "constants", || {
        format!(
            "it may read buffer '{}', which is {:?}, before the steps before it are over; only what the init segment leaves may be read so",
            x.name, x.kind
        )
    })
}

/// A host argument's elements, when they are proved to lie inside.
fn dense(a: &HostArg, limit: &Dim, p: &mut Prover) -> Option<Shape> {
    if !a.shape.iter().all(|d| p.nonneg(d)) {
        return None;
    }
    let elements = product(&a.shape, p.dims)?;
    p.dims
        .bounds(&elements)
        .and_then(|r| bytes_of(a.dtype, r.hi))?;
    let shape = Shape::dense(elements).settled(p.dims);
    p.inside(&shape, limit).then_some(shape)
}

/// Whether two buffers share bytes.
pub(super) fn overlap(k: &Block, x: u32, y: u32) -> bool {
    let (a, b) = (&k.buffers[x as usize], &k.buffers[y as usize]);
    x == y
        || (a.kind == BufferKind::Arena
            && b.kind == BufferKind::Arena
            && a.place == b.place
            && a.offset < b.offset + b.bytes
            && b.offset < a.offset + a.bytes)
}

/// What one step touches more than once.
fn alias(k: &Block, s: &Step, uses: &[Use], b: &Blame, p: &mut Prover) -> Checked {
    for w in uses.iter().filter(|u| u.write) {
        for u in uses
            .iter()
            .filter(|u| u.part != w.part && overlap(k, u.buffer, w.buffer))
        {
            let fine =
                u.buffer == w.buffer && (element_wise(s, u, w) || p.apart(&u.shape, &w.shape));
            b.need(fine, "alias", || {
                format!(
                    "it writes buffer '{}' while it uses the same bytes",
                    k.buffers[w.buffer as usize].name
                )
            })?;
        }
    }
    Ok(())
}

/// Whether `s` only computes elements and ends by storing them where it loaded them.
fn element_wise(s: &Step, read: &Use, write: &Use) -> bool {
    let StepWork::Kernel { kernel, .. } = &s.work else {
        return false;
    };
    let (r, w) = (&kernel.operands[read.part], &kernel.operands[write.part]);
    let plain = kernel
        .body
        .iter()
        .all(|s| matches!(s, Stmt::Load { .. } | Stmt::Map { .. } | Stmt::Store { .. }));
    let last = matches!(kernel.body.last(), Some(Stmt::Store { operand, .. }) if *operand as usize == write.part);
    !read.write
        && plain
        && last
        && r.access == w.access
        && r.access.bounds.is_empty()
        && r.access.indexed.is_empty()
}
