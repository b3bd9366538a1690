//! An interpreter of programs of threads: all threads of a CTA step by step, without any GPU.
//!
//! Checked on the way: every access stays in its memory; two threads that touch one shared element,
//! one of them writing, have a barrier between; barriers and matrix instructions stand where all threads come
//! by. What nobody wrote to shared memory is a strange number: threads beyond a tile's rim may read it, what
//! they make of it must not matter. What a copy brings is there when its thread has waited for it, and not
//! before; both count as writing.
mod cluster;
mod matrix;
mod meeting;
mod pipeline;
mod proxy;
mod warpgroup;

use super::dependents::{touches_itself, waits};
use super::ir::{Inst, Op, Program, Reg, Ty};
use expr::{Binary, Compare, Scalar, Unary};
use kernel::OperandId;
use layout::DType;
use matrix::{Copies, half_bits, half_value, near_bf16};
use proxy::Proxy;
use std::collections::HashMap;

type R<T> = Result<T, String>;

/// A request that the threads of a CTA make at once: one instruction, every thread that comes by.
#[derive(Clone, Debug, PartialEq)]
pub struct Request<'a> {
    /// Number of the instruction among those that ask memory, in the order of the program's text.
    pub site: usize,
    /// Operand, or shared array.
    pub memory: Asked,
    /// The value that holds the first element.
    pub index: Reg,
    /// Whether it writes.
    pub write: bool,
    /// Elements that each thread asks for at once.
    pub elements: u32,
    /// First element of every thread; `None` for those that take no part.
    pub at: &'a [Option<i64>],
}

/// What a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Asked {
    /// An operand's memory.
    Operand(OperandId),
    /// A shared array, as an index into [`Program::shared`].
    Shared(u32),
}

/// Memory of the operands, and whoever watches requests.
pub trait Memory {
    /// Element `at` of an operand.
    ///
    /// # Errors
    /// There is no such element.
    fn load(&mut self, operand: OperandId, at: i64) -> Result<Scalar, String>;

    /// Writes element `at` of an operand.
    ///
    /// # Errors
    /// There is no such element.
    fn store(&mut self, operand: OperandId, at: i64, v: Scalar) -> Result<(), String>;

    /// Sees a request before it is made.
    fn seen(&mut self, request: &Request) {
        let _ = request;
    }
}

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All tasks came to their end.
    Whole,
    /// The limit of steps was reached first.
    Cut,
}

/// Which threads touched a shared element behind a barrier.
#[derive(Clone, Copy, Default)]
struct LastAccess {
    /// Barriers before: behind another one all of it is forgotten.
    barriers: u64,
    writer: Option<u32>,
    reader: Option<u32>,
    several: bool,
}

/// Why threads stopped.
enum StopReason {
    Broken(String),
    Limit,
    /// The CTA has come to where those of its cluster meet first.
    Met,
}

impl From<String> for StopReason {
    fn from(s: String) -> StopReason {
        StopReason::Broken(s)
    }
}

impl From<&str> for StopReason {
    fn from(s: &str) -> StopReason {
        StopReason::Broken(s.into())
    }
}

struct Machine<'a, M> {
    p: &'a Program,
    lanes: usize,
    /// Values by register, lane after lane.
    regs: Vec<u64>,
    vars: Vec<u64>,
    shared: Vec<(Vec<u64>, Vec<LastAccess>)>,
    copies: Vec<Copies>,
    proxy: Proxy,
    dims: Vec<i64>,
    task: i64,
    /// Tasks of the CTA, where it walks tasks.
    tasks: Vec<i64>,
    memory: &'a mut M,
    /// Barriers that the threads came by.
    barriers: u64,
    /// Threads that meet where it says so: all but those that only copy.
    meeting: usize,
    /// Whether each thread has waited for the kernels before, or need not.
    waited: Vec<bool>,
    cluster: meeting::Meeting,
    /// Numbers of the instructions that ask memory, by their address.
    sites: HashMap<*const Inst, usize>,
    /// Steps of threads that are left.
    left: u64,
}

fn scalar(ty: Ty, bits: u64) -> Scalar {
    match ty {
        Ty::F32 => Scalar::Float(f32::from_bits(bits as u32).into()),
        Ty::F64 => Scalar::Float(f64::from_bits(bits)),
        _ => Scalar::Int(bits as i64),
    }
}

fn dtype(ty: Ty) -> DType {
    match ty {
        Ty::Bool => DType::Bool,
        Ty::I32 => DType::I32,
        Ty::U32 => DType::U32,
        Ty::I64 => DType::I64,
        Ty::F32 => DType::F32,
        Ty::F64 => DType::F64,
    }
}

fn bits(s: Scalar, ty: Ty) -> u64 {
    match (s.of(dtype(ty)), ty) {
        (Scalar::Float(x), Ty::F32) => u64::from((x as f32).to_bits()),
        (Scalar::Float(x), _) => x.to_bits(),
        (Scalar::Int(x), _) => x as u64,
    }
}

/// What lies in shared memory before anybody wrote there: no number where there is such a thing, so that
/// not even a product with 0 hides it.
fn strange(d: DType) -> u64 {
    match d {
        DType::F64 => f64::NAN.to_bits(),
        d if d.is_float() => u64::from(f32::NAN.to_bits()),
        DType::Bool => 1,
        _ => 0xDEAD_BEEF,
    }
}

/// Runs the tasks `tasks` of `p`, as if there were no others; `lookup` gives the symbols' values, `steps` is how many steps of single
/// threads there may be.
///
/// # Errors
/// Says what rule was broken and where.
pub fn run(
    p: &Program,
    lookup: &dyn Fn(&str) -> Option<i64>,
    memory: &mut impl Memory,
    tasks: std::ops::Range<i64>,
    steps: u64,
) -> Result<RunEnd, String> {
    let value = |d: &layout::Dim| d.eval(lookup).ok_or_else(|| format!("'{d}' has no value"));
    let lanes = p.threads as usize;
    let mut sites = HashMap::new();
    number(&p.body, &mut sites);
    let mut m = Machine {
        p,
        lanes,
        regs: vec![0; p.regs.len() * lanes],
        vars: vec![],
        shared: vec![],
        copies: vec![],
        proxy: Proxy::default(),
        dims: p.dims.iter().map(value).collect::<R<_>>()?,
        task: 0,
        tasks: vec![],
        memory,
        barriers: 0,
        meeting: lanes,
        waited: vec![],
        cluster: meeting::Meeting::default(),
        sites,
        left: steps,
    };
    let end = tasks.end.min(value(&p.tasks)?.max(0));
    let tasks = tasks.start.max(0)..end;
    let ctas = match i64::from(p.walkers) {
        0 => tasks.clone(),
        n => tasks.start..end.min(tasks.start.saturating_add(n)),
    };
    let all: Vec<usize> = (0..lanes).collect();
    for task in ctas {
        m.task = task;
        if p.walkers > 0 {
            m.tasks = (task..end).step_by(p.walkers as usize).collect();
        }
        match m.with_cluster(&all) {
            Ok(()) => {}
            Err(StopReason::Limit) => return Ok(RunEnd::Cut),
            Err(StopReason::Met) => return Err("a meeting in no cluster".into()),
            Err(StopReason::Broken(why)) => return Err(why),
        }
    }
    Ok(RunEnd::Whole)
}

/// Numbers the instructions that ask memory in the order of the text.
fn number(body: &[Inst], out: &mut HashMap<*const Inst, usize>) {
    for i in body {
        match i {
            Inst::Let(_, Op::Load { .. } | Op::LoadShared { .. })
            | Inst::LoadRun { .. }
            | Inst::LoadSharedRun { .. }
            | Inst::Copy { .. }
            | Inst::Bulk { .. }
            | Inst::LoadMatrix { .. }
            | Inst::Store { .. }
            | Inst::StoreShared { .. } => {
                let n = out.len();
                out.insert(std::ptr::from_ref(i), n);
            }
            i => number(i.body(), out),
        }
    }
}

impl<M: Memory> Machine<'_, M> {
    /// Runs the CTA of the task at hand from its beginning.
    fn cta(&mut self, all: &[usize]) -> Result<(), StopReason> {
        let (p, lanes) = (self.p, self.lanes);
        self.vars = vec![0; p.vars.len() * lanes];
        self.copies = (0..lanes).map(|_| Copies::default()).collect();
        self.meeting = lanes;
        self.waited = vec![!waits(&p.body); lanes];
        self.proxy = Proxy::of(p, lanes);
        let arrays = p.shared.iter().map(|a| {
            let n = a.elements as usize;
            (vec![strange(a.dtype); n], vec![LastAccess::default(); n])
        });
        self.shared = arrays.collect();
        self.body(&p.body, all)
    }

    fn get(&self, r: Reg, lane: usize) -> u64 {
        self.regs[r as usize * self.lanes + lane]
    }

    fn set(&mut self, r: Reg, lane: usize, v: u64) {
        self.regs[r as usize * self.lanes + lane] = v;
    }

    fn int(&self, r: Reg, lane: usize) -> i64 {
        self.get(r, lane) as i64
    }

    fn ty(&self, r: Reg) -> Ty {
        self.p.regs[r as usize]
    }

    /// Runs `body` for the threads `active`, in their order.
    fn body(&mut self, body: &[Inst], active: &[usize]) -> Result<(), StopReason> {
        body.iter().try_for_each(|i| self.inst(i, active))
    }

    /// Shows a request of the threads in `active` whose guard holds to whoever watches.
    fn ask(
        &mut self,
        i: &Inst,
        memory: Asked,
        (write, elements): (bool, usize),
        (index, guard): (Reg, Option<Reg>),
        active: &[usize],
    ) {
        let mut at = vec![None; self.lanes];
        for &l in active {
            if guard.is_none_or(|g| self.get(g, l) != 0) {
                at[l] = Some(self.int(index, l));
            }
        }
        let site = self.sites.get(&std::ptr::from_ref(i)).copied();
        self.memory.seen(&Request {
            site: site.unwrap_or(0),
            memory,
            index,
            write,
            elements: elements as u32,
            at: &at,
        });
    }

    /// What instruction `i` asks of memory, if it does.
    fn asks(&mut self, i: &Inst, active: &[usize]) {
        let (memory, how, what) = match i {
            Inst::Let(
                _,
                Op::Load {
                    operand,
                    index,
                    guard,
                },
            ) => (Asked::Operand(*operand), (false, 1), (*index, *guard)),
            Inst::Let(_, Op::LoadShared { array, index }) => {
                (Asked::Shared(*array), (false, 1), (*index, None))
            }
            Inst::LoadRun {
                dst,
                operand,
                index,
                guard,
            } => (
                Asked::Operand(*operand),
                (false, dst.len()),
                (*index, *guard),
            ),
            Inst::LoadSharedRun { dst, array, index } => {
                (Asked::Shared(*array), (false, dst.len()), (*index, None))
            }
            Inst::Copy {
                operand,
                index,
                elements,
                guard,
                ..
            } => (
                Asked::Operand(*operand),
                (false, *elements as usize),
                (*index, *guard),
            ),
            Inst::Bulk {
                operand,
                index,
                elements,
                ..
            } => (
                Asked::Operand(*operand),
                (false, *elements as usize),
                (*index, None),
            ),
            Inst::LoadMatrix { array, index, .. } => {
                let line = self.line_of(*array);
                (Asked::Shared(*array), (false, line), (*index, None))
            }
            Inst::Store {
                operand,
                index,
                values,
                guard,
            } => (
                Asked::Operand(*operand),
                (true, values.len() * self.p.in_each(*operand, values)),
                (*index, *guard),
            ),
            Inst::StoreShared {
                array,
                index,
                values,
            } => (Asked::Shared(*array), (true, values.len()), (*index, None)),
            _ => return,
        };
        self.ask(i, memory, how, what, active);
    }

    /// Runs a loop's body for every thread as often as its own bounds say.
    fn looped(
        &mut self,
        (i, from, to, step): (Reg, Reg, Reg, Reg),
        body: &[Inst],
        active: &[usize],
    ) -> Result<(), StopReason> {
        let mut now = active.to_vec();
        for &l in active {
            self.set(i, l, self.get(from, l));
        }
        loop {
            now.retain(|&l| self.int(i, l) < self.int(to, l));
            if now.is_empty() {
                break;
            }
            self.body(body, &now)?;
            for &l in &now {
                let step = self.int(step, l);
                if step < 1 {
                    return Err("a loop that does not move".into());
                }
                self.set(i, l, (self.int(i, l) + step) as u64);
            }
        }
        Ok(())
    }

    /// Loads neighbours into `dst`, those of threads whose guard fails as zeros.
    fn load_run(
        &mut self,
        dst: &[Reg],
        (operand, index, guard): (OperandId, Reg, Option<Reg>),
        active: &[usize],
    ) -> Result<(), StopReason> {
        for &l in active {
            let asked = guard.is_none_or(|g| self.get(g, l) != 0);
            let at = self.int(index, l);
            if asked && at % dst.len() as i64 != 0 {
                return Err(format!("{} elements are read at {at}", dst.len()).into());
            }
            for (n, &r) in dst.iter().enumerate() {
                let v = match asked {
                    true => self.load(operand, at + n as i64, self.ty(r))?,
                    false => 0,
                };
                self.set(r, l, v);
            }
        }
        Ok(())
    }

    /// Every thread gets the `x` of the one whose number differs by `mask`.
    fn shuffle(&mut self, r: Reg, x: Reg, mask: u32, active: &[usize]) -> Result<(), StopReason> {
        if active.len() != self.meeting {
            return Err("a shuffle where not all threads come by".into());
        }
        let all: Vec<u64> = (0..self.lanes).map(|l| self.get(x, l)).collect();
        for &l in active {
            let v = all.get(l ^ mask as usize).copied();
            self.set(r, l, v.ok_or("a shuffle beyond the CTA")?);
        }
        Ok(())
    }

    /// Stores `values` as neighbours, for threads whose guard holds.
    fn store_run(
        &mut self,
        values: &[Reg],
        (operand, index, guard): (OperandId, Reg, Option<Reg>),
        active: &[usize],
    ) -> Result<(), StopReason> {
        let each = self.p.in_each(operand, values);
        let dtype = self.p.operands[operand as usize].dtype;
        for &l in active {
            if guard.is_some_and(|g| self.get(g, l) == 0) {
                continue;
            }
            let mut at = self.int(index, l);
            for &r in values {
                let bits = self.get(r, l);
                for half in 0..each {
                    let v = match each {
                        1 => scalar(self.ty(r), bits),
                        _ => Scalar::Float(half_value((bits >> (16 * half)) as u16, dtype)),
                    };
                    self.store(operand, at, v)?;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// Checks an instruction against the wait for earlier kernels.
    fn dependency(&mut self, i: &Inst, active: &[usize]) -> R<()> {
        let waits = || active.iter().any(|&l| !self.waited[l]);
        match i {
            Inst::DependencyWait => active.iter().for_each(|&l| self.waited[l] = true),
            Inst::LaunchDependents if waits() => {
                return Err("the next kernel may start before earlier kernels are over".into());
            }
            i if touches_itself(i, &self.p.operands) && waits() => {
                return Err(
                    "memory that is no constant is touched before earlier kernels are over".into(),
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn inst(&mut self, i: &Inst, active: &[usize]) -> Result<(), StopReason> {
        let steps = active.len() as u64;
        self.left = self.left.checked_sub(steps).ok_or(StopReason::Limit)?;
        self.dependency(i, active)?;
        self.asks(i, active);
        match i {
            Inst::Let(r, Op::Shuffle(x, mask)) => self.shuffle(*r, *x, *mask, active)?,
            Inst::Let(r, Op::AnyLane(x)) => self.any_lane(*r, *x, active)?,
            Inst::Let(r, op) => {
                let ty = self.ty(*r);
                for &l in active {
                    let v = self.op(op, ty, l)?;
                    self.set(*r, l, v);
                }
            }
            Inst::Set(v, r) => {
                for &l in active {
                    self.proxy.free(*v, l)?;
                    self.vars[*v as usize * self.lanes + l] = self.get(*r, l);
                }
            }
            Inst::LoadRun {
                dst,
                operand,
                index,
                guard,
            } => self.load_run(dst, (*operand, *index, *guard), active)?,
            Inst::LoadSharedRun { dst, array, index } => {
                for &l in active {
                    let at = self.int(*index, l);
                    for (n, &r) in dst.iter().enumerate() {
                        let v = self.load_shared(*array, at + n as i64, l)?;
                        self.set(r, l, v);
                    }
                }
            }
            Inst::Store {
                operand,
                index,
                values,
                guard,
            } => {
                self.store_run(values, (*operand, *index, *guard), active)?;
            }
            Inst::StoreShared {
                array,
                index,
                values,
            } => {
                for &l in active {
                    for (n, &r) in values.iter().enumerate() {
                        let at = self.int(*index, l) + n as i64;
                        let v = self.get(r, l);
                        self.store_shared(*array, at, l, v)?;
                    }
                }
            }
            Inst::For {
                i,
                from,
                to,
                step,
                body,
            } => self.looped((*i, *from, *to, *step), body, active)?,
            Inst::If { cond, body } => {
                let holds = |l: &usize| self.get(*cond, *l) != 0;
                let now: Vec<usize> = active.iter().copied().filter(holds).collect();
                if !now.is_empty() {
                    self.body(body, &now)?;
                }
            }
            Inst::Copy { .. }
            | Inst::Bulk { .. }
            | Inst::Box { .. }
            | Inst::Commit
            | Inst::Wait(_)
            | Inst::LoadMatrix { .. }
            | Inst::Multiply { .. } => self.together(i, active)?,
            Inst::Warpgroup(w) => self.warpgroups(w, active)?,
            Inst::Barrier => {
                if active.len() != self.meeting {
                    return Err("a barrier where not all threads come by".into());
                }
                self.meet();
            }
            Inst::ClusterArrive | Inst::ClusterWait | Inst::LoadPart { .. } => {
                self.cluster_inst(i, active)?;
            }
            Inst::DependencyWait | Inst::LaunchDependents => {}
            Inst::Pipeline { pipeline, body } => self.pipeline(pipeline, body, active)?,
            Inst::Side { .. } | Inst::Freed => return Err("a side in no pipeline".into()),
            Inst::Fault { cond, code } => {
                if active.iter().any(|&l| self.get(*cond, l) != 0) {
                    return Err(format!("fault: {}", self.p.faults[*code as usize]).into());
                }
            }
        }
        Ok(())
    }

    /// All threads meet.
    fn meet(&mut self) {
        self.barriers += 1;
        self.proxy.barrier();
    }

    fn load(&mut self, operand: OperandId, at: i64, ty: Ty) -> R<u64> {
        let s = self.memory.load(operand, at);
        s.map(|s| bits(s, ty)).map_err(|e| self.named(operand, &e))
    }

    fn store(&mut self, operand: OperandId, at: i64, v: Scalar) -> R<()> {
        let done = self.memory.store(operand, at, v);
        done.map_err(|e| self.named(operand, &e))
    }

    fn named(&self, operand: OperandId, why: &str) -> String {
        format!("'{}' {why}", self.p.operands[operand as usize].name)
    }

    fn touch(&mut self, array: u32, at: i64, lane: usize, write: bool) -> R<usize> {
        let name = &self.p.shared[array as usize].name;
        let (data, touched) = &mut self.shared[array as usize];
        let Some(i) = usize::try_from(at).ok().filter(|&a| a < data.len()) else {
            return Err(format!(
                "shared '{name}' is touched at {at} of {}",
                data.len()
            ));
        };
        let t = &mut touched[i];
        if t.barriers != self.barriers {
            *t = LastAccess {
                barriers: self.barriers,
                ..LastAccess::default()
            };
        }
        let lane = lane as u32;
        let other = |x: Option<u32>| x.is_some_and(|x| x != lane);
        let race = match write {
            true => other(t.writer) || other(t.reader) || t.several,
            false => other(t.writer),
        };
        if race {
            return Err(format!("threads race for element {i} of shared '{name}'"));
        }
        if write {
            t.writer = Some(lane);
        } else {
            t.several |= other(t.reader);
            t.reader = Some(lane);
        }
        Ok(i)
    }

    fn load_shared(&mut self, array: u32, at: i64, lane: usize) -> R<u64> {
        let i = self.touch(array, at, lane, false)?;
        Ok(self.shared[array as usize].0[i])
    }

    fn store_shared(&mut self, array: u32, at: i64, lane: usize, v: u64) -> R<()> {
        let i = self.touch(array, at, lane, true)?;
        self.proxy.write(array, i, lane)?;
        self.shared[array as usize].0[i] = v;
        Ok(())
    }

    fn op(&mut self, op: &Op, ty: Ty, l: usize) -> R<u64> {
        let of = |m: &Self, r: Reg| scalar(m.ty(r), m.get(r, l));
        Ok(match op {
            Op::Const(b) => match ty {
                Ty::F32 => bits(Scalar::Float(f64::from_bits(*b)), ty),
                Ty::F64 => *b,
                _ => bits(Scalar::Int(*b as i64), ty),
            },
            Op::Thread => l as u64,
            Op::Task => self.task as u64,
            Op::Dim(d) => {
                let v = self.dims[*d as usize];
                if i32::try_from(v).is_err() {
                    return Err(format!(
                        "dimension {} leaves 32 bits",
                        self.p.dims[*d as usize]
                    ));
                }
                v as u64
            }
            Op::Get(v) => {
                self.proxy.free(*v, l)?;
                self.vars[*v as usize * self.lanes + l]
            }
            Op::Unary(f, x) => self.unary(*f, *x, l)?,
            Op::Power(x) => {
                let x = f32::from_bits(self.get(*x, l) as u32);
                u64::from(x.exp2().to_bits())
            }
            Op::Binary(f, x, y) => self.binary(*f, *x, *y, l)?,
            Op::Compare(f, x, y) => {
                let (a, b) = (of(self, *x), of(self, *y));
                let compare: Compare = *f;
                u64::from(a.compare(compare, b, dtype(self.ty(*x))))
            }
            Op::Select(c, x, y) => self.get(if self.get(*c, l) != 0 { *x } else { *y }, l),
            Op::MulAdd(x, y, z) if ty == Ty::F32 => {
                let f = |r: Reg| f32::from_bits(self.get(r, l) as u32);
                u64::from(f(*x).mul_add(f(*y), f(*z)).to_bits())
            }
            Op::MulAdd(x, y, z) => {
                let d = dtype(ty);
                let p = of(self, *x).binary(Binary::Mul, of(self, *y), d);
                bits(p.binary(Binary::Add, of(self, *z), d), ty)
            }
            Op::Convert(x) => bits(of(self, *x).cast(dtype(self.ty(*x)), dtype(ty)), ty),
            Op::Bits(x) => {
                let word = self.get(*x, l) as u32;
                match ty {
                    Ty::I32 => i64::from(word as i32) as u64,
                    _ => word.into(),
                }
            }
            Op::Narrow(d, x) => bits(of(self, *x).of(*d), ty),
            Op::Load {
                operand,
                index,
                guard,
            } => match guard.is_some_and(|g| self.get(g, l) == 0) {
                true => 0,
                false => self.load(*operand, self.int(*index, l), ty)?,
            },
            Op::LoadShared { array, index } => self.load_shared(*array, self.int(*index, l), l)?,
            Op::Pack(d, x, y) => {
                let half = |r: &Reg| half_bits(f32::from_bits(self.get(*r, l) as u32), *d);
                u64::from(half(x)) | u64::from(half(y)) << 16
            }
            Op::PackNear(x, y) => {
                let half = |r: &Reg| near_bf16(f32::from_bits(self.get(*r, l) as u32));
                u64::from(half(x)) | u64::from(half(y)) << 16
            }
            Op::Half(x, second) => {
                let by = 16 * u32::from(*second);
                let v = half_value((self.get(*x, l) >> by) as u16, DType::F16);
                u64::from((v as f32).to_bits())
            }
            Op::Halves(f, x, y) => {
                let half =
                    |r: &Reg, by: u32| half_value((self.get(*r, l) >> by) as u16, DType::F16);
                let one = |by: u32| {
                    let (x, y) = (half(x, by), half(y, by));
                    let v = if *f == Binary::Sub { x - y } else { x * y };
                    // Every difference and product of two f16 is an f64, which is rounded once.
                    u64::from(half_bits(layout::to_odd_f32(v), DType::F16))
                };
                one(0) | one(16) << 16
            }
            Op::Shuffle(..) | Op::AnyLane(_) => {
                return Err("an exchange with other threads by one".into());
            }
        })
    }

    fn unary(&self, f: Unary, x: Reg, l: usize) -> R<u64> {
        let ty = self.ty(x);
        let given = scalar(ty, self.get(x, l));
        let out = given.unary(f, dtype(ty));
        Ok(match f {
            Unary::IsNan | Unary::IsInf => bits(out, Ty::Bool),
            _ => bits(out, ty),
        })
    }

    fn binary(&self, f: Binary, x: Reg, y: Reg, l: usize) -> R<u64> {
        let ty = self.ty(x);
        if self.ty(y) != ty {
            return Err(format!("{f:?} of {ty:?} and {:?}", self.ty(y)));
        }
        let (a, b) = (scalar(ty, self.get(x, l)), scalar(ty, self.get(y, l)));
        if matches!(f, Binary::Div | Binary::Fmod) && !ty.is_float() && b.as_i64() == 0 {
            return Err("an integer is divided by 0".into());
        }
        Ok(bits(a.binary(f, b, dtype(ty)), ty))
    }
}
