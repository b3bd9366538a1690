//! What every program of threads keeps to: values are defined once and where they are seen, types fit, memory
//! that is named is there, and what all threads do together stands where all come by.
use super::ir::{Inst, LeftFactor, Lines, Op, Pipeline, Program, Reg, Tensor, Ty, Warpgroup};
use expr::Binary;
use kernel::{Fragment, Swizzle};
use layout::{DType, Inserted};
use std::collections::BTreeSet;

/// CTAs of a cluster at most.
const MAX_CLUSTER: u32 = 8;

/// Where a body stands.
#[derive(Clone, Copy)]
struct Context {
    /// All threads come by, or those of a side of a pipeline: no condition and no loop around it differs from thread
    /// to thread.
    uniform: bool,
    /// It is a side, where those of the other one do not come by.
    side: bool,
    /// It is the body of a pipeline.
    pipeline: bool,
    /// It is that of a pipeline whose CTAs walk tasks.
    walk: bool,
    /// CTAs that copy together in the pipeline around it.
    among: u32,
    /// It is the whole program or the body of a pipeline, which is gone through once.
    top: bool,
}

impl Context {
    /// Within a body that all threads that come by the instruction come by, or some of them.
    fn within(self, uniform: bool) -> Context {
        Context {
            uniform: self.uniform && uniform,
            pipeline: false,
            walk: false,
            top: false,
            ..self
        }
    }
}

struct Verifier<'a> {
    p: &'a Program,
    /// Whether each value is defined where the program has come to, and whether it was anywhere.
    seen: Vec<bool>,
    defined: Vec<bool>,
    /// Whether each value is the same for all threads of a CTA.
    same: Vec<bool>,
    /// How often the CTAs of the cluster have met so far, and whether this one has said that it is here and not waited.
    met: (u32, bool),
    /// Arrays that the CTAs read of each other.
    parts: BTreeSet<u32>,
}

type Checked = Result<(), String>;

/// Checks `p`.
///
/// # Errors
/// Says which instruction breaks which rule.
pub fn verify(p: &Program) -> Checked {
    let n = p.regs.len();
    let mut v = Verifier {
        p,
        seen: vec![false; n],
        defined: vec![false; n],
        same: vec![false; n],
        met: (0, false),
        parts: parts(&p.body).into_iter().inserted(),
    };
    let context = Context {
        uniform: true,
        side: false,
        pipeline: false,
        walk: false,
        among: 1,
        top: true,
    };
    v.cluster()?;
    v.body(&p.body, context)?;
    if v.met.1 || v.met.0 == 1 && !v.parts.is_empty() {
        return Err("a CTA ends before others of its cluster have read what it keeps".into());
    }
    super::dependents::check(p)
}

/// Whether the CTAs of a cluster wait for each other there.
fn waits(body: &[Inst]) -> bool {
    body.iter().any(|i| matches!(i, Inst::ClusterWait))
}

/// Arrays that the CTAs of a cluster read of each other.
fn parts(body: &[Inst]) -> Vec<u32> {
    let own = |i: &Inst| match i {
        Inst::LoadPart { array, .. } => vec![*array],
        i => parts(i.body()),
    };
    body.iter().flat_map(own).collect()
}

impl Verifier<'_> {
    fn ty(&self, r: Reg) -> Result<Ty, String> {
        let ty = self.p.regs.get(r as usize).copied();
        ty.ok_or_else(|| format!("%{r} is no value"))
    }

    fn is(&self, r: Reg, ty: Ty) -> Checked {
        match self.ty(r)? {
            have if have == ty => Ok(()),
            have => Err(format!("%{r} is {have} where {ty} is asked for")),
        }
    }

    fn all(&self, list: &[Reg], ty: Ty) -> Checked {
        list.iter().try_for_each(|&r| self.is(r, ty))
    }

    fn define(&mut self, r: Reg, same: bool, own: &mut Vec<Reg>) -> Checked {
        self.ty(r)?;
        let i = r as usize;
        if std::mem::replace(&mut self.defined[i], true) {
            return Err(format!("%{r} is defined twice"));
        }
        (self.seen[i], self.same[i]) = (true, same);
        own.push(r);
        Ok(())
    }

    fn body(&mut self, body: &[Inst], c: Context) -> Checked {
        let mut own = vec![];
        for i in body {
            let mut unseen = None;
            let mut read = |r: Reg| {
                if !self.seen.get(r as usize).is_some_and(|s| *s) {
                    unseen.get_or_insert(r);
                }
            };
            match i {
                // A loop's step may be a constant of its body.
                Inst::For { from, to, .. } => [*from, *to].into_iter().for_each(&mut read),
                _ => i.reads(&mut |r, _| read(r)),
            }
            if let Some(r) = unseen {
                return Err(format!("%{r} is read where it is not seen"));
            }
            self.inst(i, c, &mut own)?;
        }
        own.iter().for_each(|&r| self.seen[r as usize] = false);
        Ok(())
    }

    fn array(&self, a: u32) -> Result<DType, String> {
        let found = self.p.shared.get(a as usize);
        found
            .map(|a| a.dtype)
            .ok_or_else(|| format!("there is no shared array {a}"))
    }

    fn operand(&self, o: u16) -> Result<DType, String> {
        let found = self.p.operands.get(o as usize);
        found
            .map(|o| o.dtype)
            .ok_or_else(|| format!("there is no operand {o}"))
    }

    /// Elements of type `d` in memory that values hold.
    fn elements(&self, list: &[Reg], d: DType) -> Checked {
        let ty = Ty::of(d).ok_or_else(|| format!("no value holds {d}"))?;
        self.all(list, ty)
    }

    fn guard(&self, guard: Option<Reg>) -> Checked {
        guard.map_or(Ok(()), |g| self.is(g, Ty::Bool))
    }

    /// CTAs of a cluster are there at once, each with as many tasks, and meet in a pipeline.
    fn cluster(&self) -> Checked {
        let n = self.p.cluster;
        let legal = n.is_power_of_two() && n <= MAX_CLUSTER && self.p.walkers.is_multiple_of(n);
        let tasks = self.p.tasks.known();
        let whole = legal && tasks.is_none_or(|t| t % i64::from(n) == 0);
        let meets = |i: &Inst| matches!(i, Inst::Pipeline { .. } | Inst::ClusterWait);
        match whole && (n == 1 || self.p.body.iter().any(meets)) {
            true => Ok(()),
            false => Err(format!(
                "{} tasks, and {} CTAs that walk, are no clusters of {n} that meet",
                self.p.tasks, self.p.walkers
            )),
        }
    }

    /// What is written to shared memory, and what CTAs of a cluster do with it: they meet, read, and meet again.
    fn cluster_inst(&mut self, i: &Inst, c: Context, own: &mut Vec<Reg>) -> Checked {
        match i {
            Inst::StoreShared {
                array,
                index,
                values,
            } => {
                self.is(*index, Ty::I32)?;
                if self.met.0 > 0 && self.parts.contains(array) {
                    return Err(
                        "what others of the cluster read is written behind their meeting".into(),
                    );
                }
                self.elements(values, self.array(*array)?)
            }
            Inst::LoadPart {
                dst,
                array,
                rank,
                index,
                guard,
            } => {
                self.all(&[*rank, *index], Ty::I32)?;
                self.guard(*guard)?;
                dst.iter().try_for_each(|&r| self.define(r, false, own))?;
                if self.met != (1, false) {
                    return Err("a CTA reads what another keeps and does not stand between their two meetings".into());
                }
                self.elements(dst, self.array(*array)?)
            }
            Inst::ClusterArrive | Inst::ClusterWait => {
                self.together("a meeting of the cluster", c)?;
                let arrives = matches!(i, Inst::ClusterArrive);
                let top = c.top && !c.side && self.p.cluster > 1;
                if !top || arrives == self.met.1 {
                    return Err("CTAs of a cluster arrive and then wait, where all threads that compute come by once".into());
                }
                self.met = (self.met.0 + u32::from(!arrives), arrives);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What CTAs copy together is copied by all of the cluster, each a share that is a copy of its own.
    fn shared_out(&self, among: u32, share: bool, c: Context) -> Checked {
        match among == 1 || among == c.among && share {
            true => Ok(()),
            false => Err(format!(
                "{among} CTAs copy together what is no {among} copies, or for stages of {} CTAs",
                c.among
            )),
        }
    }

    fn together(&self, what: &str, c: Context) -> Checked {
        match c.uniform {
            true => Ok(()),
            false => Err(format!("{what} stands where not all threads come by")),
        }
    }

    fn inst(&mut self, i: &Inst, c: Context, own: &mut Vec<Reg>) -> Checked {
        match i {
            Inst::Let(r, op) => {
                self.op(*r, op, c)?;
                let mut same = !matches!(
                    op,
                    Op::Thread | Op::Get(_) | Op::LoadShared { .. } | Op::AnyLane(_)
                );
                op.reads(&mut |r, _| same &= self.same[r as usize]);
                self.define(*r, same, own)
            }
            Inst::Set(v, r) => match self.p.vars.get(*v as usize) {
                Some(&ty) => self.is(*r, ty),
                None => Err(format!("there is no variable ${v}")),
            },
            Inst::LoadRun {
                dst,
                operand,
                index,
                guard,
            } => {
                self.is(*index, Ty::I32)?;
                self.guard(*guard)?;
                dst.iter().try_for_each(|&r| self.define(r, false, own))?;
                self.elements(dst, self.operand(*operand)?)
            }
            Inst::LoadSharedRun { dst, array, index } => {
                self.is(*index, Ty::I32)?;
                dst.iter().try_for_each(|&r| self.define(r, false, own))?;
                self.elements(dst, self.array(*array)?)
            }
            Inst::Store {
                operand,
                index,
                values,
                guard,
            } => {
                self.is(*index, Ty::I32)?;
                self.guard(*guard)?;
                match self.p.in_each(*operand, values) {
                    1 => self.elements(values, self.operand(*operand)?),
                    _ => self.all(values, Ty::U32),
                }
            }
            Inst::StoreShared { .. }
            | Inst::LoadPart { .. }
            | Inst::ClusterArrive
            | Inst::ClusterWait => self.cluster_inst(i, c, own),
            Inst::For {
                i,
                from,
                to,
                step,
                body,
            } => {
                self.all(&[*i, *from, *to, *step], Ty::I32)?;
                let bounds = self.same[*from as usize] && self.same[*to as usize];
                self.define(*i, bounds, own)?;
                self.body(body, c.within(bounds))?;
                match self.defined[*step as usize] && self.same[*step as usize] {
                    true => Ok(()),
                    false => Err(format!("%{step} is no step, which all threads have alike")),
                }
            }
            Inst::If { cond, body } => {
                self.is(*cond, Ty::Bool)?;
                self.body(body, c.within(self.same[*cond as usize]))
            }
            Inst::Copy { .. }
            | Inst::Bulk { .. }
            | Inst::Box { .. }
            | Inst::Commit
            | Inst::Wait(_)
            | Inst::LoadMatrix { .. }
            | Inst::Multiply { .. } => self.matrix(i, c, own),
            Inst::Warpgroup(w) => self.warpgroup(w, c),
            Inst::Pipeline { pipeline, body } => self.pipeline(pipeline, body, c),
            Inst::Side { piece, stage, body } => self.side([*piece, *stage], body, c, own),
            Inst::Freed if c.walk => Ok(()),
            Inst::Freed => Err("stages are free for the next task where none follows".into()),
            Inst::Barrier if c.side => Err("a barrier stands where one side comes by".into()),
            Inst::Barrier => self.together("a barrier", c),
            // Where they stand is checked for the whole program.
            Inst::DependencyWait | Inst::LaunchDependents => Ok(()),
            Inst::Fault { cond, code } => {
                self.is(*cond, Ty::Bool)?;
                match self.p.faults.get(*code as usize) {
                    Some(_) => Ok(()),
                    None => Err(format!("there is no fault {code}")),
                }
            }
        }
    }

    /// A pipeline, which has two sides and room for what both count.
    fn pipeline(&mut self, p: &Pipeline, body: &[Inst], c: Context) -> Checked {
        self.together("a pipeline", c)?;
        self.is(p.pieces, Ty::I32)?;
        let sides = body.iter().filter(|i| matches!(i, Inst::Side { .. }));
        let threads = p.copiers.saturating_mul(32);
        let room = self.p.shared.get(p.barriers as usize);
        let room = room
            .is_some_and(|a| a.dtype == DType::I64 && Some(a.elements) == p.stages.checked_mul(2));
        if c.side || sides.count() != 2 || !self.same[p.pieces as usize] {
            return Err("a pipeline has two sides, in the order of pieces that all know".into());
        }
        if !room || threads == 0 || threads >= self.p.threads || p.behind >= p.stages {
            return Err(format!(
                "a pipeline of {} stages, {} behind, by {} of {} warps, with array {}",
                p.stages,
                p.behind,
                p.copiers,
                self.p.threads / 32,
                p.barriers
            ));
        }
        let apart = p.among == 1 && waits(body);
        if p.among != self.p.cluster && !apart {
            return Err(format!(
                "stages of {} CTAs in clusters of {}",
                p.among, self.p.cluster
            ));
        }
        let walks = self.p.walkers > 0;
        let freed = body.iter().filter(|i| matches!(i, Inst::Freed)).count();
        let behind = body.iter().skip_while(|i| !matches!(i, Inst::Freed));
        let late = behind
            .into_iter()
            .any(|i| matches!(i, Inst::Side { .. } | Inst::Warpgroup(Warpgroup::Wait(_))));
        if walks != p.walk.is_some() || freed != usize::from(walks && p.behind > 0) || late {
            return Err("stages are kept from one task to the next".into());
        }
        let mut own = vec![];
        if let Some(task) = p.walk {
            self.is(task, Ty::I32)?;
            self.define(task, true, &mut own)?;
        }
        let inside = Context {
            pipeline: true,
            walk: walks,
            among: p.among,
            top: c.top && !walks,
            ..c
        };
        self.body(body, inside)?;
        own.iter().for_each(|&r| self.seen[r as usize] = false);
        Ok(())
    }

    fn side(&mut self, own: [Reg; 2], body: &[Inst], c: Context, all: &mut Vec<Reg>) -> Checked {
        for r in own {
            self.is(r, Ty::I32)?;
            self.define(r, true, all)?;
        }
        let side = Context {
            side: true,
            ..c.within(true)
        };
        match c.pipeline {
            true => self.body(body, side),
            false => Err("a side stands in no pipeline".into()),
        }
    }

    /// A copy, its groups, or a matrix instruction.
    fn matrix(&mut self, i: &Inst, c: Context, own: &mut Vec<Reg>) -> Checked {
        match i {
            Inst::Copy {
                array,
                to,
                operand,
                index,
                elements,
                guard,
            } => {
                self.all(&[*to, *index], Ty::I32)?;
                self.guard(*guard)?;
                let (from, into) = (self.operand(*operand)?, self.array(*array)?);
                let bytes = from.bits() * elements / 8;
                match from == into && matches!(bytes, 4 | 8 | 16) {
                    true => Ok(()),
                    false => Err(format!("{elements} of {from} are copied to {into}")),
                }
            }
            Inst::Bulk {
                array,
                to,
                operand,
                index,
                elements,
                among,
            } => {
                self.all(&[*to, *index], Ty::I32)?;
                let (from, into) = (self.operand(*operand)?, self.array(*array)?);
                let share = elements.checked_div(*among).map(|n| n * from.bits());
                let share =
                    share.is_some_and(|n| n.is_multiple_of(128)) && elements.is_multiple_of(*among);
                self.shared_out(*among, share, c)?;
                match c.side && from == into && (from.bits() * elements).is_multiple_of(128) {
                    true => Ok(()),
                    false => Err(format!("{elements} of {from} are copied to {into} at once")),
                }
            }
            Inst::Box {
                array,
                to,
                operand,
                tensor,
                at,
            } => {
                self.is(*to, Ty::I32)?;
                self.all(at, Ty::I32)?;
                let (from, into) = (self.operand(*operand)?, self.array(*array)?);
                let t = self.p.tensors.get(*tensor as usize);
                let t = t.filter(|t| t.operand == *operand && t.view.dims.len() == at.len());
                let among = t.map_or(1, |t| t.among);
                let share = t.is_some_and(|t| t.view.share(among).is_some());
                self.shared_out(among, share, c)?;
                let bytes = |t: &Tensor| t.view.elements() * i64::from(from.bits()) / 8;
                match c.side && from == into && t.is_some_and(|t| bytes(t) % 128 == 0) {
                    true => Ok(()),
                    false => Err(format!("a box of {from} is copied to {into}")),
                }
            }
            Inst::LoadMatrix {
                dst,
                array,
                index,
                transposed,
            } => {
                self.together("a matrix instruction", c)?;
                self.is(*index, Ty::I32)?;
                dst.iter().try_for_each(|&r| self.define(r, false, own))?;
                self.all(dst, Ty::U32)?;
                match (self.array(*array)?.bits(), transposed) {
                    (16, _) | (8 | 32, false) => Ok(()),
                    (n, _) => Err(format!("blocks of elements of {n} bits are loaded")),
                }
            }
            Inst::Multiply {
                fragment,
                sums,
                a,
                b,
            } => {
                self.together("a matrix instruction", c)?;
                self.all(a, Ty::U32)?;
                self.all(b, Ty::U32)?;
                self.sums(fragment, sums)
            }
            _ => Ok(()),
        }
    }

    fn warpgroup(&self, w: &Warpgroup, c: Context) -> Checked {
        if !matches!(w, Warpgroup::ProxyFence) {
            self.together("a warpgroup's instruction", c)?;
        }
        match w {
            Warpgroup::Multiply {
                fragment,
                sums,
                a,
                b,
                ..
            } => {
                self.warpgroup_sums(fragment, sums)?;
                let [left, right] = fragment.multiplied();
                match a {
                    LeftFactor::Lines(a) if a.across => {
                        return Err("lines of a left factor lie across the depth".into());
                    }
                    LeftFactor::Lines(a) => self.lines(a, left)?,
                    LeftFactor::Words(a) if left.bits() > 8 => self.all(a, Ty::U32)?,
                    LeftFactor::Words(_) => {
                        return Err(format!("a warpgroup's words of {left} are not printed"));
                    }
                }
                let whole = fragment.n <= b.line || b.beyond > 0;
                match b.across && (right.bits() != 16 || !fragment.k.is_multiple_of(8) || !whole) {
                    true => Err(format!(
                        "lines across the depth of {} columns of {right}",
                        b.line
                    )),
                    false => self.lines(b, right),
                }
            }
            _ => Ok(()),
        }
    }

    /// Sums of a warpgroup's product.
    fn warpgroup_sums(&self, f: &Fragment, sums: &[u32]) -> Checked {
        match f.m == 64 && sums.len() == f.n as usize / 2 {
            true => self.sums(f, sums),
            false => Err(format!(
                "{} sums of a product of 64 rows and {} columns",
                sums.len(),
                f.n
            )),
        }
    }

    /// Sums of the type that a product has.
    fn sums(&self, f: &Fragment, sums: &[u32]) -> Checked {
        let own = |v: &u32| self.p.vars.get(*v as usize).copied() == Ty::of(f.acc);
        match sums.iter().all(own) {
            true => Ok(()),
            false => Err(format!("sums of a product are no variables of {}", f.acc)),
        }
    }

    /// A factor of a warpgroup's product.
    fn lines(&self, l: &Lines, input: DType) -> Checked {
        self.is(l.index, Ty::I32)?;
        let d = self.array(l.array)?;
        let own = Swizzle::of_lines(l.line * d.bits() / 8, d.bits());
        let short = l.line * d.bits() == 128 && l.swizzle.bits == 0 && l.beyond > 0 && !l.across;
        let fits = short || own == Some(l.swizzle) && (l.beyond == 0 || l.across);
        match d == input && fits && l.pitch.is_multiple_of(8 * l.line) {
            true => Ok(()),
            false => Err(format!(
                "lines of {} elements of {d}, {} apart, are no factor of a warpgroup",
                l.line, l.pitch
            )),
        }
    }

    fn op(&self, r: Reg, op: &Op, c: Context) -> Checked {
        let ty = self.ty(r)?;
        let same = |list: &[Reg]| self.all(list, ty);
        match *op {
            Op::Const(_) | Op::Convert(_) | Op::Bits(_) => Ok(()),
            Op::Thread | Op::Task => self.is(r, Ty::I32),
            Op::Dim(d) => match self.p.dims.get(d as usize) {
                Some(_) if matches!(ty, Ty::I32 | Ty::I64) => Ok(()),
                _ => Err(format!("%{r} is no number of the program")),
            },
            Op::Get(v) => match self.p.vars.get(v as usize) {
                Some(have) if *have == ty => Ok(()),
                _ => Err(format!("variable ${v} is not of %{r}'s type")),
            },
            Op::Unary(expr::Unary::IsNan | expr::Unary::IsInf, _) | Op::Compare(..) => {
                if let Op::Compare(_, x, y) = *op {
                    self.is(y, self.ty(x)?)?;
                }
                self.is(r, Ty::Bool)
            }
            Op::Power(x) => {
                self.is(r, Ty::F32)?;
                same(&[x])
            }
            Op::Unary(_, x) | Op::Narrow(_, x) => same(&[x]),
            Op::Binary(_, x, y) => same(&[x, y]),
            Op::Select(p, x, y) => {
                self.is(p, Ty::Bool)?;
                same(&[x, y])
            }
            Op::MulAdd(x, y, z) => same(&[x, y, z]),
            Op::Load {
                operand,
                index,
                guard,
            } => {
                self.is(index, Ty::I32)?;
                self.guard(guard)?;
                self.elements(&[r], self.operand(operand)?)
            }
            Op::LoadShared { array, index } => {
                self.is(index, Ty::I32)?;
                self.elements(&[r], self.array(array)?)
            }
            Op::Shuffle(x, _) => {
                self.together("a shuffle", c)?;
                same(&[x])
            }
            Op::AnyLane(x) => {
                self.together("a vote", c)?;
                self.all(&[x, r], Ty::Bool)
            }
            Op::Pack(_, x, y) | Op::PackNear(x, y) => {
                self.all(&[x, y], Ty::F32)?;
                self.is(r, Ty::U32)
            }
            Op::Half(x, _) => {
                self.is(x, Ty::U32)?;
                self.is(r, Ty::F32)
            }
            Op::Halves(f, x, y) => match f {
                Binary::Sub | Binary::Mul => self.all(&[x, y, r], Ty::U32),
                f => Err(format!("{f:?} of two f16 has no form")),
            },
        }
    }
}
