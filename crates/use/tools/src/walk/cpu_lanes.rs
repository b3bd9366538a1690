//! Vector lanes onto cache lines on a CPU: for every tile that a task loads or stores, which elements a
//! vector register takes. Read off the tile program, its schedule, and what the executor makes of it.
use super::Subject;
use super::lanes::{self, LIT, Narrated, REQUESTS, Words};
use super::narration::{Build, NumberFormat};
use cpu::Called;
use kernel::{Access, AxisId, Kernel, Mapping, OperandId, Place, Stmt, TileId, TileProgram};
use layout::DType;
use report::walk::{LaneRequest, Picture, Scene};

/// Elements of a tile at most whose lines are counted one by one.
const ELEMENTS: i64 = 1 << 20;
/// Vectors that are looked at for one that is whole.
const VECTORS: usize = 4096;

/// The first task of a step.
struct Task<'a> {
    s: &'a Subject<'a>,
    program: &'a TileProgram,
    k: &'a Kernel,
    called: &'a [Called],
    /// Positions of every axis that a tile has of it.
    len: Vec<i64>,
    /// Values of 32 bits in a vector register.
    width: usize,
    line: u64,
}

/// How a tile's elements come into vector registers, or leave them.
struct Vectors {
    /// The axis along lanes; `None` where one element is for all lanes, or there is but one.
    axis: Option<AxisId>,
    /// One element is repeated over the lanes.
    repeated: bool,
    /// Lanes take neighbours in memory, whatever they are of the tile.
    as_it_lies: bool,
    /// Neighbouring elements that a lane takes.
    group: u32,
    /// Rows that continue one another are run as one: positions that vectors go along.
    run: i64,
    /// What is done with them.
    verb: &'static str,
}

/// A value at the first task.
type Coords = Vec<i64>;

impl Task<'_> {
    fn top(&self, d: &layout::Dim) -> i64 {
        self.s.top(d)
    }

    /// Innermost axis of more than one position, as the executor chooses lanes.
    fn lane(&self, axes: &[AxisId]) -> Option<AxisId> {
        let long = |a: &&AxisId| self.len[**a as usize] > 1;
        axes.iter().rev().find(long).or(axes.last()).copied()
    }

    fn axes(&self, t: TileId) -> &[AxisId] {
        self.k.tiles.get(t as usize).map_or(&[], |t| &t.axes)
    }

    /// Distance between neighbours along `axis` in elements; `None` where it is not the same everywhere.
    fn stride(&self, a: &Access, axis: AxisId) -> Option<i64> {
        let Some(t) = a.terms.iter().find(|t| t.axis == axis) else {
            return Some(0);
        };
        let (last, outer) = t.leaves.split_last()?;
        let inside = self.top(&last.extent) >= self.len[axis as usize];
        (outer.is_empty() || inside).then(|| self.top(&last.stride))
    }

    /// Element of an operand at `c`; `None` outside its bounds.
    fn element(&self, a: &Access, c: &Coords) -> Option<i64> {
        for b in &a.bounds {
            let terms = b.terms.iter();
            let at: i64 = terms.map(|(x, k)| self.top(k) * c[*x as usize]).sum();
            let at = at + self.top(&b.base);
            if at < 0 || at >= self.top(&b.extent) {
                return None;
            }
        }
        let mut at = self.top(&a.offset);
        for t in &a.terms {
            let mut rest = c[t.axis as usize];
            for (i, l) in t.leaves.iter().enumerate().rev() {
                let n = self.top(&l.extent).max(1);
                let part = if i == 0 { rest } else { rest % n };
                rest /= n;
                at += part * self.top(&l.stride);
            }
        }
        Some(at)
    }

    /// Whether what the data says differs from lane to lane.
    fn by_data(&self, a: &Access, axis: Option<AxisId>) -> bool {
        let Some(axis) = axis else { return false };
        a.indexed.iter().any(|i| {
            let by = self.k.operands.get(i.by as usize);
            by.is_some_and(|o| o.access.terms.iter().any(|t| t.axis == axis))
        })
    }

    /// Where the elements of `t` lie: strides by axis, of its operand where it is that operand's memory.
    fn strides(&self, t: TileId) -> Vec<Option<i64>> {
        let body = &self.k.body;
        let own = body.iter().find_map(|st| match st {
            Stmt::Load { dst, operand } if *dst == t => {
                (self.program.schedule().place(t) == Place::InPlace).then_some(*operand)
            }
            Stmt::Store { operand, src } if *src == t => {
                let o = self.k.operands.get(*operand as usize)?;
                o.access.bounds.is_empty().then_some(*operand)
            }
            _ => None,
        });
        if let Some(o) = own.and_then(|o| self.k.operands.get(o as usize)) {
            let axes = 0..self.k.axes.len() as AxisId;
            return axes.map(|a| self.stride(&o.access, a)).collect();
        }
        let mut out = vec![Some(0); self.k.axes.len()];
        let mut step = 1;
        for &a in self.axes(t).iter().rev() {
            out[a as usize] = Some(step);
            step *= self.len[a as usize];
        }
        out
    }

    /// Positions of rows along `lane` over the axes of `axes` that continue one another in all `tiles`.
    fn run(&self, lane: AxisId, axes: &[AxisId], tiles: &[TileId]) -> i64 {
        let all: Vec<Vec<Option<i64>>> = tiles.iter().map(|t| self.strides(*t)).collect();
        let mut n = self.len[lane as usize];
        let outer = axes.iter().rev().filter(|a| **a != lane);
        for &a in outer.filter(|a| self.len[**a as usize] > 1) {
            let merges = |s: &Vec<Option<i64>>| match (s[a as usize], s[lane as usize]) {
                (Some(x), Some(l)) => x == l * n,
                _ => false,
            };
            if !all.iter().all(merges) {
                break;
            }
            n *= self.len[a as usize];
        }
        n
    }

    fn whole(&self, axis: Option<AxisId>, verb: &'static str) -> Vectors {
        Vectors {
            axis,
            repeated: false,
            as_it_lies: false,
            group: 1,
            run: axis.map_or(1, |a| self.len[a as usize]),
            verb,
        }
    }

    /// How the tile `t`, loaded from `operand`, comes into registers.
    fn loaded(&self, t: TileId, operand: OperandId) -> Vectors {
        let axes = self.axes(t);
        let called = |role: &str| {
            let of = |c: &&Called| c.role == role && c.tile == Some(t as usize);
            self.called.iter().find(of)
        };
        if called("widen").is_some() {
            let mut v = self.whole(self.lane(axes), "widened to f32 as they lie");
            v.as_it_lies = true;
            v.run = axes.iter().map(|a| self.len[*a as usize]).product();
            return v;
        }
        let readers = self.k.body.iter().filter(|st| st.reads().contains(&t));
        let reader = readers.into_iter().next();
        let copied = self.program.schedule().place(t) != Place::InPlace;
        let pool = |st: &Stmt| match st {
            Stmt::Fold { state, .. } => self
                .called
                .iter()
                .any(|c| c.role == "pool" && state.iter().any(|x| c.tile == Some(*x as usize))),
            _ => false,
        };
        let lane = match reader {
            Some(st) if copied && !pool(st) || pool(st) && !self.swept(operand, axes) => {
                let lane = self.lane(axes);
                let mut v = self.whole(lane, "copied into the task's own memory");
                if let (Some(l), Some(o)) = (lane, self.k.operands.get(operand as usize)) {
                    v.run = self.copied(l, axes, &o.access);
                }
                return v;
            }
            Some(Stmt::Contract { acc, over, .. }) => {
                return self.factor(t, operand, self.lane(self.axes(*acc)), over, *acc);
            }
            Some(Stmt::Map { dst, args, .. }) => {
                let lane = self.lane(self.axes(*dst));
                let mut v = self.whole(lane, "read where they lie");
                if let Some(l) = lane {
                    let all: Vec<TileId> = args.iter().chain([dst]).copied().collect();
                    v.run = self.run(l, self.axes(*dst), &all);
                }
                v.repeated = lane.is_some_and(|l| !axes.contains(&l));
                return v;
            }
            Some(Stmt::Fold { args, .. }) => {
                let widest = args.iter().max_by_key(|a| self.axes(**a).len());
                widest.and_then(|w| self.lane(self.axes(*w)))
            }
            Some(Stmt::Relabel { dst, .. }) => {
                self.lane(self.axes(*dst)).filter(|l| axes.contains(l))
            }
            _ => self.lane(axes),
        };
        let lane = lane.or(self.lane(axes));
        let mut v = self.whole(lane, "read where they lie");
        v.repeated = lane.is_some_and(|l| !axes.contains(&l));
        v
    }

    /// Whether a window's elements along lanes lie next to each other, so that it is read without a copy.
    fn swept(&self, operand: OperandId, axes: &[AxisId]) -> bool {
        let operand = self.k.operands.get(operand as usize);
        let stride = operand.zip(self.lane(axes));
        stride.is_some_and(|(o, l)| self.stride(&o.access, l) == Some(1))
    }

    /// Rows of a copy that continue one another in the operand; in the tile they always do.
    fn copied(&self, lane: AxisId, axes: &[AxisId], a: &Access) -> i64 {
        let Some(step) = self.stride(a, lane).filter(|_| a.bounds.is_empty()) else {
            return self.len[lane as usize];
        };
        let mut n = self.len[lane as usize];
        let outer = axes.iter().rev().filter(|x| **x != lane);
        for &x in outer.filter(|x| self.len[**x as usize] > 1) {
            if self.stride(a, x) != Some(step * n) {
                break;
            }
            n *= self.len[x as usize];
        }
        n
    }

    /// A factor of a product that is read where it lies.
    fn factor(
        &self,
        t: TileId,
        operand: OperandId,
        lane: Option<AxisId>,
        over: &[AxisId],
        acc: TileId,
    ) -> Vectors {
        let product = |c: &&Called| c.role == "product" && c.tile == Some(acc as usize);
        let group = self.called.iter().find(product).map_or(1, |c| c.group);
        let axes = self.axes(t);
        let access = self.k.operands.get(operand as usize).map(|o| &o.access);
        let unit = |a: AxisId| access.and_then(|x| self.last(x, a)) == Some(i64::from(group));
        match lane {
            Some(l) if axes.contains(&l) && !unit(l) && self.len[l as usize] > 1 => {
                // Columns lie apart: registers take the sum's neighbours, and the panel is packed by
                // transposing them, or sums run along the lanes.
                let along = over.iter().find(|a| unit(**a)).copied();
                let verb = "packed into panels, or summed along the lanes";
                let mut v = self.whole(along.or(Some(l)), verb);
                v.group = if along.is_some() { 1 } else { group };
                v
            }
            Some(l) if axes.contains(&l) => {
                let mut v = self.whole(Some(l), "multiplied lane by lane");
                v.group = group;
                v
            }
            _ => {
                let mut v = self.whole(lane, "repeated over the lanes and multiplied");
                (v.repeated, v.group) = (true, group);
                v
            }
        }
    }

    /// Distance between neighbours along `axis` within its innermost leaf.
    fn last(&self, a: &Access, axis: AxisId) -> Option<i64> {
        let t = a.terms.iter().find(|t| t.axis == axis)?;
        t.leaves.last().map(|l| self.top(&l.stride))
    }

    /// The request of the first vector of `v`, and what covers the whole tile.
    fn told(
        &self,
        at: usize,
        store: bool,
        (t, o): (TileId, OperandId),
        v: &Vectors,
    ) -> Option<Narrated> {
        let operand = self.k.operands.get(o as usize)?;
        let a = &operand.access;
        let bits = u64::from(operand.dtype.bits());
        let wide = matches!(
            operand.dtype,
            DType::F64 | DType::I64 | DType::U64 | DType::U32
        );
        let lanes = if wide { self.width / 2 } else { self.width }.max(1);
        let bytes = (bits * u64::from(v.group)).div_ceil(8).max(1);
        let base = self.base(o);
        let place = |c: &Coords| {
            let e = self.element(a, c)?;
            u64::try_from(e)
                .ok()
                .map(|e| base + e.saturating_mul(bits) / 8)
        };
        let data = self.by_data(a, v.axis);
        let row = v.run.max(1);
        let here = (row as usize).min(lanes);
        let vector = |c: &mut Coords| -> Vec<Option<u64>> {
            (0..lanes)
                .map(|i| match v.axis {
                    _ if data => None,
                    _ if v.as_it_lies => {
                        (i < here).then(|| place(c).map(|p| p + i as u64 * bytes))?
                    }
                    Some(x) if !v.repeated => {
                        let n = self.len[x as usize].max(1);
                        // Rows that continue one another: lanes go on along the axis at the same distance.
                        c[x as usize] = (i as i64).min(n - 1);
                        let last = place(c);
                        let beyond = (i as i64 - n + 1).max(0);
                        let step = self.stride(a, x).unwrap_or(0) * beyond * bits as i64 / 8;
                        (i < here).then(|| last.and_then(|p| p.checked_add_signed(step)))?
                    }
                    _ => place(c),
                })
                .collect()
        };
        let first = self.fullest(self.axes(t), v.axis, here, &vector);
        let (mut moved, mut ideal) = lanes::touched(&first, bytes, self.line);
        let (mut way, mut stride) = lanes::way(&first, bytes);
        if data {
            // Every lane's element may lie on a line of its own.
            (moved, ideal) = (here as u64, (here as u64 * bytes).div_ceil(self.line));
            (way, stride) = ("by data", None);
        }
        let axes = self.axes(t);
        let all: i64 = axes.iter().map(|x| self.len[*x as usize].max(1)).product();
        let group = i64::from(v.group);
        let (vectors, partial) = match v.repeated {
            true => ((all / group).max(1) as u64, 0),
            false => {
                // A packed panel is filled up to whole vectors.
                let padded = v.axis.is_some_and(|x| {
                    let term = a.terms.iter().find(|t| t.axis == x);
                    term.is_some_and(|t| t.leaves.len() > 1)
                });
                let rows = (all / if v.axis.is_some() { row * group } else { 1 }).max(1) as u64;
                let cut = !(row as usize).is_multiple_of(lanes) && !padded;
                let per = (row as u64).div_ceil(lanes as u64);
                (rows * per, if cut { rows } else { 0 })
            }
        };
        let lowest = first.iter().flatten().min().copied().unwrap_or(0) / self.line * self.line;
        let verb = if store { "store" } else { "load" };
        Some(Narrated {
            request: LaneRequest {
                space: "cache",
                role: if store { "store" } else { "load" },
                lit: LIT[at],
                line: at as u32 + 1,
                text: format!("{verb} {}: {}", operand.name, v.verb),
                cta: [0; 3],
                warp: 0,
                unit: self.line as u32,
                way,
                stride,
                partial: Some(partial),
                bytes: bytes as u32,
                lanes: first.iter().map(|a| a.map(|a| a - lowest)).collect(),
                moved,
                ideal,
                issued: vectors,
            },
            name: operand.name.clone(),
            tile: (!data).then(|| self.lines(t, a, bits, base)).flatten(),
            of: "tile of a task",
        })
    }

    /// The first vector of the tile that leaves none of `most` lanes out, or the one that leaves out fewest:
    /// a tile may begin beyond its tensor's rim.
    fn fullest(
        &self,
        axes: &[AxisId],
        along: Option<AxisId>,
        most: usize,
        vector: &dyn Fn(&mut Coords) -> Vec<Option<u64>>,
    ) -> Vec<Option<u64>> {
        let mut c: Coords = vec![0; self.k.axes.len()];
        let mut best = vector(&mut c);
        for _ in 0..VECTORS {
            let mut moved = false;
            for &x in axes.iter().rev().filter(|x| Some(**x) != along) {
                c[x as usize] += 1;
                if c[x as usize] < self.len[x as usize] {
                    moved = true;
                    break;
                }
                c[x as usize] = 0;
            }
            let lanes = |v: &Vec<Option<u64>>| v.iter().flatten().count();
            if !moved || lanes(&best) >= most {
                break;
            }
            if let Some(x) = along {
                c[x as usize] = 0;
            }
            let next = vector(&mut c);
            if lanes(&next) > lanes(&best) {
                best = next;
            }
        }
        best
    }

    /// Byte of the operand's buffer from where lines are counted: arenas begin on a line.
    fn base(&self, o: OperandId) -> u64 {
        let plan::StepWork::Kernel { args, .. } = &self.s.step.work else {
            return 0;
        };
        let b = args.get(o as usize).map(|&b| b as usize);
        b.and_then(|b| self.s.block.buffers.get(b))
            .map_or(0, |b| b.offset)
    }

    /// Lines that the first task's tile touches, and the fewest that would hold it.
    fn lines(&self, t: TileId, a: &Access, bits: u64, base: u64) -> Option<(u64, u64)> {
        let axes = self.axes(t);
        let mut n: i64 = 1;
        for x in axes {
            n = n.checked_mul(self.len[*x as usize].max(1))?;
        }
        if n > ELEMENTS {
            return None;
        }
        let mut c: Coords = vec![0; self.k.axes.len()];
        let mut places = Vec::new();
        'all: loop {
            if let Some(e) = self.element(a, &c).and_then(|e| u64::try_from(e).ok()) {
                places.push(base + e.saturating_mul(bits) / 8);
            }
            for &x in axes.iter().rev() {
                c[x as usize] += 1;
                if c[x as usize] < self.len[x as usize] {
                    continue 'all;
                }
                c[x as usize] = 0;
            }
            break;
        }
        places.sort_unstable();
        places.dedup();
        let bytes = (places.len() as u64 * bits).div_ceil(8);
        let mut lines: Vec<u64> = places.iter().map(|p| p / self.line).collect();
        lines.dedup();
        Some((lines.len() as u64, bytes.div_ceil(self.line)))
    }
}

/// The scene, where the step runs on a CPU.
pub(super) fn scene(s: &Subject) -> Option<Scene> {
    let program = s.program.as_ref()?;
    let Mapping::Cpu(_) = &program.schedule().mapping else {
        return None;
    };
    let mut b = Build::new("lanes", "Vector lanes onto cache lines");
    let isa = super::cpu_code::isa(s);
    let called = cpu::called(program, &s.plan.dims, isa).unwrap_or_default();
    let k = program.kernel();
    let tile = |i: usize| {
        let top = s.top(&k.axes[i].extent).max(1);
        let cut = program.schedule().tile(i as AxisId);
        cut.map_or(top, |t| t.clamp(1, top))
    };
    let near = s.machine.levels.iter().find(|l| l.name == "L1");
    let task = Task {
        s,
        program,
        k,
        called: &called,
        len: (0..k.axes.len()).map(tile).collect(),
        width: isa.lanes(),
        line: near.map_or(64, |l| l.line.max(1)),
    };
    let mut told = Vec::new();
    for st in &k.body {
        if told.len() == REQUESTS {
            break;
        }
        let (store, t, o, v) = match st {
            Stmt::Load { dst, operand } => (false, *dst, *operand, task.loaded(*dst, *operand)),
            Stmt::Store { operand, src } => {
                let lane = task.lane(task.axes(*src));
                let made = called.iter().any(|c| {
                    c.role == "copy" && c.tile == Some(*src as usize) && c.when.is_empty()
                });
                let mut v = task.whole(lane, if made { "copied back" } else { "made in place" });
                if let (Some(l), Some(op)) = (lane, k.operands.get(*operand as usize)) {
                    v.run = task.copied(l, task.axes(*src), &op.access);
                }
                (true, *src, *operand, v)
            }
            _ => continue,
        };
        told.extend(task.told(told.len(), store, (t, o), &v));
    }
    if told.is_empty() {
        b.beat("", "A task of this step neither loads nor stores.", "");
        return Some(b.done(Picture::Lanes { requests: vec![] }));
    }
    let here = format!(
        "the target of the plan and the first level of {}",
        s.machine.name
    );
    b.name("isa", "instruction set", isa.name(), here.as_str());
    b.number(
        "width",
        "lanes of a vector register",
        (task.width as f64, NumberFormat::Of("lane")),
        "of 32 bits each; half as many of 64",
        here.as_str(),
    );
    b.number(
        "line",
        "bytes of a cache line",
        (task.line as f64, NumberFormat::Whole),
        "",
        here.as_str(),
    );
    b.number(
        "moves",
        "tiles that a task loads and stores",
        (told.len() as f64, NumberFormat::Of("tile")),
        "",
        "the tile program",
    );
    b.beat(
        "",
        "A vector register of {isa} has {width}, and memory comes in lines of {line} bytes. These are the first vectors of {moves} that a task loads or stores.",
        "A worker has many hands, and everything comes by the pallet.",
    );
    let words = Words {
        unit: "cache line",
        lane: "lane",
        source: "the tile program's accesses under its schedule, over the first task".into(),
    };
    Some(lanes::scene(b, told, &words))
}
