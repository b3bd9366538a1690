//! What the lanes of a warp touch and how often they go round: integers of a thread's program with a
//! value per lane, gone through once, loops at their middle pass. What comes of data is not known.
use super::ir::{Inst, Op, Program, Reg, Ty};
use expr::{Binary, Compare, Unary};

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;
/// Bytes of a sector and of a line of a cache, and of a word of a bank.
pub(crate) const SECTOR: i64 = 32;
pub(crate) const LINE: i64 = 128;
const WORD: i64 = 4;
/// Tasks that are looked at where loops go round more often in some than in others, and the step from one to the next,
/// in all tasks.
const TASKS: i64 = 32;
const GOLDEN: f64 = 0.618_033_988_749_895;
/// Bits of a line of a block that a warp loads.
const BLOCK_LINE: u32 = 128;

/// What one instruction of a warp touches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Footprint {
    /// Sectors and lines of an operand.
    pub sectors: f64,
    pub lines: f64,
    /// Turns of the banks of shared memory.
    pub passes: f64,
    /// Distinct bytes.
    pub bytes: f64,
}

impl Footprint {
    /// Of `own` bytes of an operand from each of `starts` on.
    pub(crate) fn of_operand(starts: &mut [i64], own: i64) -> Footprint {
        let starts = ascending(starts);
        let several = starts.windows(2).filter(|w| w[0] != w[1]).count() as i64;
        Footprint {
            sectors: count_of(pieces::<SECTOR>(starts, own)),
            lines: count_of(pieces::<LINE>(starts, own)),
            passes: 0.0,
            bytes: ((several + i64::from(!starts.is_empty())) * own) as f64,
        }
    }

    /// Of `own` bytes of shared memory from each of `starts` on. Lanes of wide accesses take turns, as many
    /// together as have a word for every bank.
    pub(crate) fn of_banks(starts: &mut [i64], own: i64) -> Footprint {
        let together = (LANES as i64 * WORD / own.max(WORD)).max(1) as usize;
        let each = starts.chunks_mut(together);
        Footprint {
            passes: each.map(|c| turns(ascending(c), own)).sum(),
            ..Footprint::default()
        }
    }
}

/// What is known of one instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Seen {
    /// Nothing, or nothing that matters.
    Nothing,
    /// It touches memory.
    Memory(Footprint),
    /// A loop's passes, or pieces.
    Passes(f64),
    /// Whether a part is run: 0 or 1, or what warps have of it together.
    Share(f64),
    /// The share of a loop's passes that run a part which most of them leave out.
    Rarely(f64),
}

impl Seen {
    /// The mean of two warps'.
    fn mean(self, o: Seen) -> Seen {
        let half = |a: f64, b: f64| (a + b) / 2.0;
        match (self, o) {
            (Seen::Memory(a), Seen::Memory(b)) => Seen::Memory(Footprint {
                sectors: half(a.sectors, b.sectors),
                lines: half(a.lines, b.lines),
                passes: half(a.passes, b.passes),
                bytes: half(a.bytes, b.bytes),
            }),
            (Seen::Passes(a), Seen::Passes(b)) => Seen::Passes(half(a, b)),
            (Seen::Share(a), Seen::Share(b)) => Seen::Share(half(a, b)),
            (Seen::Rarely(a), Seen::Rarely(b)) => Seen::Rarely(half(a, b)),
            (Seen::Rarely(a), Seen::Share(b)) | (Seen::Share(b), Seen::Rarely(a)) => {
                Seen::Rarely(half(a, b))
            }
            (a, _) => a,
        }
    }
}

/// What is seen of every instruction of `p`, numbered as they stand in the text: means of the first warp
/// and the middle one of a task in the middle. Where tasks are `uneven`, having more or fewer pieces in their loops, how
/// often these go round is the mean of many.
pub(crate) fn seen(p: &Program, dims: &dyn Fn(&str) -> Option<i64>, uneven: bool) -> Vec<Seen> {
    let tasks = p.tasks.eval(dims).unwrap_or(1).max(1);
    let warps = i64::from(p.threads.div_ceil(LANES as u32)).max(1);
    let mut look = Look {
        p,
        dims: p.dims.iter().map(|d| d.eval(dims)).collect(),
        regs: vec![],
        lanes: vec![],
        first: 0,
        task: tasks / 2,
        mask: u32::MAX,
        pieces: None,
        out: vec![],
    };
    let mut first = look.warp(0);
    if warps > 1 {
        let other = look.warp(warps / 2);
        for (a, b) in first.iter_mut().zip(other) {
            *a = a.mean(b);
        }
    }
    if uneven {
        look.passes_of_tasks(tasks, &mut first);
    }
    first
}

/// A value of every lane.
#[derive(Clone, Copy)]
enum Value {
    Unknown,
    Same(i64),
    /// Its place in [`Look::lanes`].
    Lanes(u32),
}

struct Look<'a> {
    p: &'a Program,
    dims: Vec<Option<i64>>,
    regs: Vec<Value>,
    lanes: Vec<[i64; LANES]>,
    first: i64,
    task: i64,
    /// Lanes that are active.
    mask: u32,
    /// Pieces of the pipeline at hand, where that is known.
    pieces: Option<i64>,
    out: Vec<Seen>,
}

impl Look<'_> {
    /// How often loops go round, and what is run, as the mean of tasks that lie evenly among all: some may have more
    /// pieces than others.
    fn passes_of_tasks(&mut self, tasks: i64, out: &mut [Seen]) {
        let count = tasks.min(TASKS);
        let mut sums = vec![0.0; out.len()];
        let mut rare = vec![false; out.len()];
        for n in 0..count {
            self.task = match count == tasks {
                true => n,
                // Steps of the golden ratio go over the pieces of every axis alike.
                false => ((n as f64 * GOLDEN).fract() * tasks as f64) as i64,
            };
            let seen = self.warp(0);
            for (at, seen) in seen.iter().enumerate() {
                rare[at] |= matches!(seen, Seen::Rarely(_));
                if let Seen::Passes(n) | Seen::Share(n) | Seen::Rarely(n) = seen {
                    sums[at] += n / count as f64;
                }
            }
        }
        for ((own, sum), rare) in out.iter_mut().zip(sums).zip(rare) {
            match own {
                Seen::Share(_) | Seen::Rarely(_) if rare => *own = Seen::Rarely(sum),
                Seen::Passes(n) | Seen::Share(n) | Seen::Rarely(n) => *n = sum,
                Seen::Nothing | Seen::Memory(_) => {}
            }
        }
    }

    /// What warp number `warp` sees.
    fn warp(&mut self, warp: i64) -> Vec<Seen> {
        self.first = warp * LANES as i64;
        self.regs.clear();
        self.regs.resize(self.p.regs.len(), Value::Unknown);
        self.lanes.clear();
        let p = self.p;
        self.constants(&p.body);
        self.body(&p.body);
        std::mem::take(&mut self.out)
    }

    fn of(&self, r: Reg) -> Option<[i64; LANES]> {
        match self.regs.get(r as usize)? {
            Value::Unknown => None,
            Value::Same(v) => Some([*v; LANES]),
            Value::Lanes(at) => self.lanes.get(*at as usize).copied(),
        }
    }

    fn put(&mut self, v: [i64; LANES]) -> Value {
        if v.iter().all(|x| *x == v[0]) {
            return Value::Same(v[0]);
        }
        self.lanes.push(v);
        Value::Lanes(self.lanes.len() as u32 - 1)
    }

    fn map(&mut self, a: Reg, f: impl Fn(i64) -> i64) -> Value {
        match self.regs[a as usize] {
            Value::Unknown => Value::Unknown,
            Value::Same(x) => Value::Same(f(x)),
            Value::Lanes(_) => match self.of(a) {
                Some(v) => self.put(v.map(f)),
                None => Value::Unknown,
            },
        }
    }

    fn both(&mut self, a: Reg, b: Reg, f: impl Fn(i64, i64) -> i64) -> Value {
        if let (Value::Same(x), Value::Same(y)) = (self.regs[a as usize], self.regs[b as usize]) {
            return Value::Same(f(x, y));
        }
        let (Some(x), Some(y)) = (self.of(a), self.of(b)) else {
            return Value::Unknown;
        };
        self.put(std::array::from_fn(|i| f(x[i], y[i])))
    }

    fn three(&mut self, of: [Reg; 3], f: impl Fn(i64, i64, i64) -> i64) -> Value {
        match of.map(|r| self.regs[r as usize]) {
            [Value::Same(x), Value::Same(y), Value::Same(z)] => Value::Same(f(x, y, z)),
            [Value::Unknown, _, _] | [_, Value::Unknown, _] | [_, _, Value::Unknown] => {
                Value::Unknown
            }
            _ => match of.map(|r| self.of(r)) {
                [Some(x), Some(y), Some(z)] => {
                    self.put(std::array::from_fn(|i| f(x[i], y[i], z[i])))
                }
                _ => Value::Unknown,
            },
        }
    }

    fn value(&mut self, r: Reg, op: &Op) -> Value {
        let whole = |r: Reg| !self.p.regs[r as usize].is_float();
        match *op {
            Op::Const(v) if whole(r) => Value::Same(v as i64),
            Op::Thread => {
                let first = self.first;
                self.put(std::array::from_fn(|i| first + i as i64))
            }
            Op::Task => Value::Same(self.task),
            Op::Dim(d) => match self.dims.get(d as usize) {
                Some(Some(v)) => Value::Same(*v),
                _ => Value::Unknown,
            },
            Op::Unary(Unary::Not, x) if self.p.regs[r as usize] == Ty::Bool => {
                self.map(x, |v| i64::from(v == 0))
            }
            Op::Binary(f, x, y) if whole(r) => self.both(x, y, |x, y| match f {
                Binary::Add => x.wrapping_add(y),
                Binary::Sub => x.wrapping_sub(y),
                Binary::Mul => x.wrapping_mul(y),
                Binary::Div => x.checked_div(y).unwrap_or(0),
                Binary::Fmod => x.checked_rem(y).unwrap_or(0),
                Binary::Min => x.min(y),
                Binary::Max => x.max(y),
                Binary::And => x & y,
                Binary::Or => x | y,
                Binary::Xor => x ^ y,
                Binary::Shl => x.wrapping_shl(y as u32),
                Binary::Shr => (x as u64).wrapping_shr(y as u32) as i64,
                _ => 0,
            }),
            Op::Compare(f, x, y) if whole(x) => self.both(x, y, |x, y| {
                i64::from(match f {
                    Compare::Eq => x == y,
                    Compare::Ne => x != y,
                    Compare::Lt => x < y,
                    Compare::Le => x <= y,
                    Compare::Gt => x > y,
                    Compare::Ge => x >= y,
                })
            }),
            Op::Select(c, x, y) => self.three([c, x, y], |c, x, y| if c != 0 { x } else { y }),
            Op::MulAdd(x, y, z) if whole(r) => {
                self.three([x, y, z], |x, y, z| x.wrapping_mul(y).wrapping_add(z))
            }
            Op::Convert(x) if whole(r) && whole(x) => self.regs[x as usize],
            // What is asked of all lanes is rare.
            Op::AnyLane(_) => Value::Same(0),
            _ => Value::Unknown,
        }
    }

    /// Active lanes for which `guard` may hold.
    fn held(&self, guard: Option<Reg>) -> u32 {
        let Some(g) = guard.and_then(|g| self.of(g)) else {
            return self.mask;
        };
        let lanes = (0..LANES).filter(|i| g[*i] != 0);
        self.mask & lanes.fold(0, |m, i| m | 1 << i)
    }

    /// Bytes from which on each lane of `mask` touches memory, and how many lanes those are.
    fn starts(&self, index: Reg, bits: u32, mask: u32) -> Option<([i64; LANES], usize)> {
        let at = self.of(index)?;
        let (mut out, mut n) = ([0; LANES], 0);
        for lane in (0..LANES).filter(|i| mask >> i & 1 == 1) {
            out[n] = at[lane].checked_mul(i64::from(bits))? / 8;
            n += 1;
        }
        Some((out, n))
    }

    fn operand(&self, operand: u16, index: Reg, count: usize, guard: Option<Reg>) -> Seen {
        let bits = self.p.operands[operand as usize].dtype.bits();
        let mask = self.held(guard);
        let own = (i64::from(bits) * count as i64 / 8).max(1);
        let Some((mut starts, n)) = self.starts(index, bits, mask) else {
            // Anywhere: nothing is shared.
            let n = f64::from(mask.count_ones());
            return Seen::Memory(Footprint {
                sectors: n,
                lines: n,
                passes: 0.0,
                bytes: n * own as f64,
            });
        };
        Seen::Memory(Footprint::of_operand(&mut starts[..n], own))
    }

    fn shared(&self, array: u32, index: Reg, count: usize) -> Seen {
        let bits = self.p.shared[array as usize].dtype.bits();
        let own = (i64::from(bits) * count as i64 / 8).max(1);
        Seen::Memory(match self.starts(index, bits, self.mask) {
            Some((mut starts, n)) => Footprint::of_banks(&mut starts[..n], own),
            // Each lane at a place of its own, none in another's way.
            None => Footprint {
                passes: (own * LANES as i64 / LINE).max(1) as f64,
                ..Footprint::default()
            },
        })
    }

    /// Elements of another CTA's shared memory: they come in sectors, as those of an operand do.
    fn part(&self, (array, index): (u32, Reg), count: usize, guard: Option<Reg>) -> Seen {
        let bits = self.p.shared[array as usize].dtype.bits();
        let own = (i64::from(bits) * count as i64 / 8).max(1);
        let mask = self.held(guard);
        Seen::Memory(match self.starts(index, bits, mask) {
            Some((mut starts, n)) => Footprint::of_operand(&mut starts[..n], own),
            None => {
                let n = f64::from(mask.count_ones());
                Footprint {
                    sectors: n,
                    lines: n,
                    passes: 0.0,
                    bytes: n * own as f64,
                }
            }
        })
    }

    /// Constants, wherever they are defined: a loop's step may be in its body.
    fn constants(&mut self, body: &[Inst]) {
        for i in body {
            match i {
                Inst::Let(r, op @ Op::Const(_)) => self.regs[*r as usize] = self.value(*r, op),
                i => self.constants(i.body()),
            }
        }
    }

    fn body(&mut self, body: &[Inst]) {
        body.iter().for_each(|i| self.inst(i));
    }

    fn inst(&mut self, i: &Inst) {
        let at = self.out.len();
        self.out.push(Seen::Nothing);
        match i {
            Inst::Let(r, op) => {
                self.out[at] = match op {
                    Op::Load {
                        operand,
                        index,
                        guard,
                    } => self.operand(*operand, *index, 1, *guard),
                    Op::LoadShared { array, index } => self.shared(*array, *index, 1),
                    _ => Seen::Nothing,
                };
                self.regs[*r as usize] = self.value(*r, op);
            }
            Inst::LoadRun {
                dst,
                operand,
                index,
                guard,
            } => self.out[at] = self.operand(*operand, *index, dst.len(), *guard),
            Inst::LoadSharedRun { dst, array, index } => {
                self.out[at] = self.shared(*array, *index, dst.len());
            }
            Inst::LoadPart {
                dst,
                array,
                index,
                guard,
                ..
            } => self.out[at] = self.part((*array, *index), dst.len(), *guard),
            Inst::Copy {
                array,
                to,
                operand,
                index,
                elements,
                guard,
            } => {
                let read = self.operand(*operand, *index, *elements as usize, *guard);
                let written = self.shared(*array, *to, *elements as usize);
                self.out[at] = match (read, written) {
                    (Seen::Memory(r), Seen::Memory(w)) => Seen::Memory(Footprint {
                        passes: w.passes,
                        ..r
                    }),
                    (r, _) => r,
                };
            }
            Inst::Bulk { .. } | Inst::Box { .. } => self.out[at] = self.bulk(i),
            Inst::LoadMatrix { array, index, .. } => {
                let each = self.p.shared[*array as usize].dtype.bits().max(8);
                self.out[at] = self.shared(*array, *index, (BLOCK_LINE / each) as usize);
            }
            Inst::Store {
                operand,
                index,
                values,
                guard,
            } => {
                let count = values.len() * self.p.in_each(*operand, values);
                self.out[at] = self.operand(*operand, *index, count, *guard);
            }
            Inst::StoreShared {
                array,
                index,
                values,
            } => self.out[at] = self.shared(*array, *index, values.len()),
            Inst::For {
                i,
                from,
                to,
                step,
                body,
            } => {
                self.looped(at, (*i, *from, *to, *step), body);
            }
            Inst::If { cond, body } => {
                let before = self.mask;
                self.mask = self.held(Some(*cond));
                self.out[at] = Seen::Share(if self.mask == 0 { 0.0 } else { 1.0 });
                self.body(body);
                self.mask = before;
            }
            Inst::Pipeline { .. } | Inst::Side { .. } => self.sided(at, i),
            Inst::Set(..)
            | Inst::Commit
            | Inst::Wait(_)
            | Inst::Multiply { .. }
            | Inst::Warpgroup(_)
            | Inst::Barrier
            | Inst::ClusterArrive
            | Inst::ClusterWait
            | Inst::DependencyWait
            | Inst::LaunchDependents
            | Inst::Freed
            | Inst::Fault { .. } => {}
        }
    }

    /// A loop, which is instruction number `at`, with its counter, bounds and step.
    fn looped(&mut self, at: usize, (i, from, to, step): (Reg, Reg, Reg, Reg), body: &[Inst]) {
        let (from, to, step) = (self.of(from), self.of(to), self.of(step));
        let (mut passes, mut last) = (1.0, Value::Unknown);
        self.regs[i as usize] = Value::Unknown;
        if let (Some(from), Some(to), Some(step)) = (from, to, step) {
            let each = |k: usize| {
                let step = step[k].max(1);
                let way = to[k].saturating_sub(from[k]).max(0);
                way / step + i64::from(way % step > 0)
            };
            let most = (0..LANES).map(each).max().unwrap_or(1);
            passes = most as f64;
            let middle = (most - 1).max(0) / 2;
            let pass = |n: i64| -> [i64; LANES] {
                std::array::from_fn(|k| from[k].wrapping_add(step[k].max(1) * n))
            };
            self.regs[i as usize] = self.put(pass(middle));
            last = self.put(pass((most - 1).max(0)));
        }
        self.out[at] = Seen::Passes(passes);
        self.repeated(body, passes, (i, last));
    }

    /// A loop's body in its middle pass, and what of it is run in the last one alone, where the counter has this value.
    fn repeated(&mut self, body: &[Inst], passes: f64, (counter, last): (Reg, Value)) {
        let from = self.out.len();
        self.body(body);
        let left_out = |s: &Seen| matches!(s, Seen::Share(n) if *n == 0.0);
        if passes < 2.0 || matches!(last, Value::Unknown) || !self.out[from..].iter().any(left_out)
        {
            return;
        }
        let mut middle = self.out.split_off(from);
        self.regs[counter as usize] = last;
        self.body(body);
        for (own, other) in middle.iter_mut().zip(self.out.drain(from..)) {
            match other {
                Seen::Share(n) if n > 0.0 && left_out(own) => *own = Seen::Rarely(n / passes),
                _ => {}
            }
        }
        self.out.append(&mut middle);
    }

    /// A pipeline or one of its sides, which is instruction number `at`: pieces as the middle one.
    fn sided(&mut self, at: usize, i: &Inst) {
        match i {
            Inst::Pipeline { pipeline, body } => {
                let pieces = self.of(pipeline.pieces).map(|n| n[0].max(0));
                let outer = std::mem::replace(&mut self.pieces, pieces);
                if let Some(task) = pipeline.walk {
                    self.regs[task as usize] = Value::Same(self.task);
                }
                self.body(body);
                self.pieces = outer;
            }
            Inst::Side { piece, stage, body } => {
                let middle = self.pieces.map(|n| n / 2);
                self.regs[*piece as usize] = middle.map_or(Value::Unknown, Value::Same);
                // Which one it is changes nothing: stages are alike.
                self.regs[*stage as usize] = Value::Same(0);
                let passes = self.pieces.map_or(1.0, |n| n as f64);
                self.out[at] = Seen::Passes(passes);
                let last = self.pieces.map_or(Value::Unknown, |n| Value::Same(n - 1));
                self.repeated(body, passes, (*piece, last));
            }
            _ => {}
        }
    }

    /// A run or a box of an operand that is copied to shared memory at once: all of it is written there, and where CTAs of
    /// a cluster copy it together each reads its share.
    fn bulk(&self, i: &Inst) -> Seen {
        let (operand, elements, among) = match i {
            Inst::Bulk {
                operand,
                elements,
                among,
                ..
            } => (*operand, (*elements).into(), *among),
            Inst::Box {
                operand, tensor, ..
            } => {
                let t = &self.p.tensors[*tensor as usize];
                (*operand, t.view.elements(), t.among)
            }
            _ => return Seen::Nothing,
        };
        let bits = i64::from(self.p.operands[operand as usize].dtype.bits());
        let written = bits * elements / 8;
        let bytes = written / i64::from(among.max(1));
        Seen::Memory(Footprint {
            sectors: (bytes / SECTOR) as f64,
            lines: (bytes / LINE) as f64,
            passes: (written / LINE) as f64,
            bytes: bytes as f64,
        })
    }
}

fn ascending(list: &mut [i64]) -> &[i64] {
    if !list.is_sorted() {
        list.sort_unstable();
    }
    list
}

/// The pieces of `SIZE` bytes, each once, that `own` bytes from each of the ascending `starts` on lie in,
/// as the first and the last of neighbours.
fn pieces<const SIZE: i64>(starts: &[i64], own: i64) -> impl Iterator<Item = (i64, i64)> {
    let mut next = i64::MIN;
    starts.iter().filter_map(move |s| {
        let from = s.div_euclid(SIZE).max(next);
        let to = (s + own - 1).div_euclid(SIZE);
        next = next.max(to + 1);
        (from <= to).then_some((from, to))
    })
}

fn count_of(pieces: impl Iterator<Item = (i64, i64)>) -> f64 {
    pieces.map(|(from, to)| to - from + 1).sum::<i64>() as f64
}

/// Turns that the banks take for lanes that touch `own` bytes from each of the ascending `starts` on: as
/// many as the bank with most words has.
fn turns(starts: &[i64], own: i64) -> f64 {
    let mut banks = [0u32; LANES];
    for (from, to) in pieces::<WORD>(starts, own) {
        for w in from..=to {
            banks[w.rem_euclid(LANES as i64) as usize] += 1;
        }
    }
    f64::from(banks.into_iter().max().unwrap_or(0).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lanes_share_is_counted_once() {
        let sectors = |starts: &[i64], own| count_of(pieces::<SECTOR>(starts, own));
        let row: Vec<i64> = (0..32).map(|i| 4 * i).collect();
        assert_eq!(sectors(&row, 4), 4.0);
        // Off by one word: the last lane's is in a sector of its own.
        let off: Vec<i64> = row.iter().map(|s| s + 4).collect();
        assert_eq!(sectors(&off, 4), 5.0);
        assert_eq!(count_of(pieces::<LINE>(&off, 4)), 2.0);
        let apart: Vec<i64> = (0..32).map(|i| 4096 * i).collect();
        assert_eq!(sectors(&apart, 4), 32.0);
        // What goes over a sector's end touches the next one too.
        assert_eq!(sectors(&[24, 24, 40], 16), 2.0);
        assert_eq!(sectors(&[], 4), 0.0);
        assert_eq!(ascending(&mut [8, 0, 4]), [0, 4, 8]);
    }

    #[test]
    fn banks_take_turns() {
        let step = |n: i64| (0..32).map(|i| n * i).collect::<Vec<_>>();
        assert_eq!(turns(&step(4), 4), 1.0);
        assert_eq!(turns(&step(8), 4), 2.0);
        assert_eq!(turns(&step(128), 4), 32.0);
        // One word is given to all at once.
        assert_eq!(turns(&[64; 32], 4), 1.0);
    }
}
