//! From a tile program to operations on tiles: parameters, scratch, roles, and the shapes of statements
//! that run as one.
mod fold;
mod nest;
mod nibbles;
mod post;

use super::contract::TABLE;
use super::fold::bytes;
use super::vm::{self, CH};
use super::{CAccess, CContract, CEdge, CKernel, CMap, COperand, CRelabel, CTile, MAX_AXES, Op};
use crate::isa::Isa;
use crate::ukr::{Kernels, gemm_kernel, shapes};
use expr::{Expr, ExprBuilder, Inst};
use kernel::{AxisTile, Edge, Mapping, Node, Place, Seen, Stmt, TileProgram};
use layout::{DType, Dim, DimBox, to_odd_f32};
use plan::{BufferId, Params};

/// Bytes of a packed factor beyond which it is not packed per task.
const PACK_LIMIT: i64 = 16 << 20;
/// Bytes of zeros beyond which rows outside a tensor are copied instead.
const ZEROS_LIMIT: i64 = 16 << 20;

/// Compiles `program` with operands in buffers `args`; `Err` says what this backend cannot run.
pub(crate) fn compile(
    program: &TileProgram,
    args: &[BufferId],
    params: &mut Params,
    dims: &DimBox,
    kernels: &'static Kernels,
) -> Result<CKernel, String> {
    let k = program.kernel();
    let s = program.schedule();
    if k.axes.len() > MAX_AXES {
        return Err(format!(
            "it has {} axes, more than {MAX_AXES}; fuse less",
            k.axes.len()
        ));
    }
    if args.len() != k.operands.len() {
        return Err(format!(
            "it has {} operands, but {} buffers",
            k.operands.len(),
            args.len()
        ));
    }
    let mapping = match &s.mapping {
        Mapping::Cpu(m) => m.clone(),
        Mapping::Gpu(_) => return Err("its schedule is for a GPU; plan for this device".into()),
    };
    let micro = mapping
        .micro
        .and_then(|m| gemm_kernel(kernels.isa, m.mr as usize, m.nr as usize))
        .or_else(|| default_micro(kernels.isa));
    let mut c = Compiler {
        program,
        params,
        dims,
        kernels,
        micro,
        caps: Vec::new(),
        out: CKernel {
            axes: Vec::new(),
            grid: s
                .grid
                .iter()
                .map(|t| (t.axis as usize, t.tile.max(1)))
                .collect(),
            operands: Vec::new(),
            tiles: Vec::new(),
            stores: Vec::new(),
            body: Vec::new(),
            area: 0,
            table: 0,
            pack: 0,
            scratch: 0,
            zeros: 0,
            kernels,
        },
        area: 0,
        table: false,
        pack: 0,
        depth: 0,
    };
    c.axes()?;
    c.operands(args)?;
    c.tiles()?;
    c.out.body = c.nodes(program.body())?;
    c.finish()
}

/// The widest register tile of an instruction set.
fn default_micro(isa: Isa) -> Option<crate::ukr::GemmKernel> {
    let want = match isa {
        Isa::Avx512 => (6, 64),
        Isa::Avx2 => (6, 16),
        Isa::Portable => (6, 8),
    };
    let shapes = shapes(isa);
    let there = shapes.contains(&want).then_some(want);
    let best = there.or_else(|| shapes.first().copied())?;
    gemm_kernel(isa, best.0, best.1)
}

struct Compiler<'a> {
    program: &'a TileProgram,
    params: &'a mut Params,
    dims: &'a DimBox,
    kernels: &'static Kernels,
    micro: Option<crate::ukr::GemmKernel>,
    /// Most positions of each axis in a tile.
    caps: Vec<i64>,
    out: CKernel,
    area: usize,
    table: bool,
    pack: usize,
    /// Loops around the present statement.
    depth: usize,
}

fn round(n: usize) -> usize {
    n.div_ceil(64) * 64
}

impl Compiler<'_> {
    fn top(&self, d: &Dim) -> Result<i64, String> {
        self.dims
            .bounds(d)
            .map(|r| r.hi)
            .or_else(|| self.dims.at_top(d))
            .ok_or_else(|| {
                format!("the size '{d}' has no upper bound among the sizes that the plan covers")
            })
    }

    fn axes(&mut self) -> Result<(), String> {
        let (k, s) = (self.program.kernel(), self.program.schedule());
        for (i, a) in k.axes.iter().enumerate() {
            self.out.axes.push(self.params.intern(&a.extent));
            let top = self.top(&a.extent)?.max(0);
            let cut = s.tile(i as u16).unwrap_or(top).max(1);
            self.caps.push(top.min(cut));
        }
        Ok(())
    }

    fn operands(&mut self, args: &[BufferId]) -> Result<(), String> {
        for (o, &buffer) in self.program.kernel().operands.iter().zip(args) {
            let bits = o.dtype.bits();
            let (k, s) = (self.program.kernel(), self.program.schedule());
            let shared = || !s.grid.is_empty() && !kernel::whole_bytes(k, s, o);
            if bits < 8 && o.role == kernel::Role::Write && shared() {
                return Err(format!("tasks share bytes of operand '{}'", o.name));
            }
            let access = CAccess::new(&o.access, self.params);
            let mut outside = [0; 8];
            element(o.access.outside, o.dtype, &mut outside);
            self.out.operands.push(COperand {
                dtype: o.dtype,
                elem: (bits / 8) as usize,
                buffer: buffer as usize,
                access,
                outside,
            });
        }
        Ok(())
    }

    /// Adds a tile; `scratch`: it may need memory of its own.
    fn tile(&mut self, dtype: DType, axes: &[u16], scratch: bool) -> Result<usize, String> {
        let axes: Vec<usize> = axes.iter().map(|&a| a as usize).collect();
        let elem = bytes(dtype);
        let mut size = elem as i64;
        for &a in &axes {
            size = size
                .checked_mul(self.caps[a].max(1))
                .filter(|&n| n < 1 << 46)
                .ok_or("a tile is larger than the address space; cut more axes")?;
        }
        let offset = self.out.scratch;
        if scratch {
            // Long rows may be spaced.
            let row = axes.last().map_or(1, |&a| self.caps[a].max(1)) * elem as i64;
            let spaces = if row >= super::WAY {
                size / row * super::SPACING
            } else {
                0
            };
            self.out.scratch += round((size + spaces) as usize + 64);
        }
        let mask = axes.iter().fold(0, |m, &a| m | 1 << a);
        self.out.tiles.push(CTile {
            dtype,
            elem,
            axes,
            mask,
            offset,
            direct: None,
            spaced: false,
        });
        Ok(self.out.tiles.len() - 1)
    }

    fn tiles(&mut self) -> Result<(), String> {
        let (k, s) = (self.program.kernel(), self.program.schedule());
        for (i, t) in k.tiles.iter().enumerate() {
            let t_id = i as u16;
            let mut direct = None;
            let mut loaded = None;
            let mut others = false;
            let mut last_write = 0;
            let mut stores = Vec::new();
            for (at, stmt) in k.body.iter().enumerate() {
                match stmt {
                    Stmt::Load { dst, operand } if *dst == t_id => loaded = Some(*operand as usize),
                    Stmt::Store { operand, src } if *src == t_id => {
                        stores.push((at, *operand as usize))
                    }
                    _ => {}
                }
                if stmt.writes().contains(&t_id) {
                    last_write = at;
                    others |= !matches!(stmt, Stmt::Load { .. });
                }
            }
            if let ([(at, o)], None) = (stores.as_slice(), loaded)
                && last_write < *at
                && k.operands[*o].dtype == t.dtype
                && t.dtype.bits() >= 8
                && k.operands[*o].access.indexed.is_empty()
                && !self.read_after(last_write, *o)
            {
                direct = Some(*o);
            }
            // Read where it lies, whatever the piece: no memory of its own.
            let always = loaded.is_some_and(|o| {
                let a = &k.operands[o].access;
                s.place(t_id) == Place::InPlace
                    && !others
                    && a.bounds.is_empty()
                    && a.indexed.is_empty()
                    && k.operands[o].dtype.bits() >= 8
                    && a.terms
                        .iter()
                        .all(|x| x.leaves.len() <= 1 || !t.axes.contains(&x.axis))
            });
            let id = self.tile(t.dtype, &t.axes, !always)?;
            self.out.tiles[id].direct = direct;
            if !stores.is_empty() {
                self.out.stores.push(self.out.tiles[id].mask);
            }
        }
        Ok(())
    }

    /// Whether what operand `o` may overwrite (an element-wise program may store where it loaded) is
    /// still read in place after statement `at`.
    fn read_after(&self, at: usize, o: usize) -> bool {
        let (k, s) = (self.program.kernel(), self.program.schedule());
        let (own, dtype) = (&k.operands[o].access, k.operands[o].dtype);
        k.body.iter().any(|l| match l {
            Stmt::Load { dst, operand } => {
                let r = &k.operands[*operand as usize];
                s.place(*dst) == Place::InPlace
                    && r.dtype == dtype
                    && r.access.terms == own.terms
                    && k.body[at + 1..].iter().any(|s| s.reads().contains(dst))
            }
            _ => false,
        })
    }

    fn finish(mut self) -> Result<CKernel, String> {
        let o = &mut self.out;
        o.area = round(o.scratch);
        o.table = o.area + round(self.area);
        o.pack = o.table
            + if self.table {
                TABLE * size_of::<*const f32>()
            } else {
                0
            };
        o.scratch = o.pack + round(self.pack) + 64;
        if o.scratch > 1 << 40 {
            return Err(
                "its tiles take more than a terabyte of scratch memory; cut more axes".into(),
            );
        }
        Ok(self.out)
    }

    fn nodes(&mut self, nodes: &[Node]) -> Result<Vec<Op>, String> {
        let mut out = Vec::new();
        let mut at = 0;
        while at < nodes.len() {
            if let Some((mut n, taken)) = self.nest(&nodes[at..], &mut out)? {
                at += taken;
                let float = n.contract.dtype == DType::F32;
                if n.zero.is_some() && float {
                    let (acc, lane) = (n.contract.acc, n.contract.lane);
                    if let Some((before, post, more)) = self.post(&nodes[at..], acc, lane)? {
                        out.extend(before);
                        n.post = Some(post);
                        at += more;
                    }
                }
                out.push(Op::Nest(Box::new(n)));
                continue;
            }
            if let Some((n, taken)) = self.nibbles(&nodes[at..])? {
                out.push(Op::Nibbles(Box::new(n)));
                at += taken;
                continue;
            }
            if let Some((p, taken)) = self.pool(&nodes[at..])? {
                out.push(Op::Pool(Box::new(p)));
                at += taken;
                continue;
            }
            match &nodes[at] {
                Node::Loop { axis, seen, body } => {
                    self.depth += 1;
                    let body = self.nodes(body);
                    self.depth -= 1;
                    out.push(self.looped(axis, seen, body?));
                }
                Node::Stmt(s) => self.stmt(s, &mut out)?,
            }
            at += 1;
            // What follows a product is done to its sums on their way.
            if let Some(Op::Contract(mut c)) = out.pop_if(|op| matches!(op, Op::Contract(_))) {
                let made = matches!(nodes[at - 1], Node::Stmt(Stmt::Contract { .. }));
                if made
                    && c.zero.is_some()
                    && let Some((before, post, more)) = self.post(&nodes[at..], c.acc, c.lane)?
                {
                    out.extend(before);
                    c.post = Some(post);
                    at += more;
                }
                out.push(Op::Contract(c));
            }
        }
        Ok(out)
    }

    fn looped(&mut self, cut: &AxisTile, seen: &Seen, body: Vec<Op>) -> Op {
        let mut edge = |e: &Edge| {
            let term =
                |(a, c): &(u16, Dim)| (usize::from(*a), self.params.intern(c), Edge::grows(c));
            CEdge {
                terms: e.terms.iter().map(term).collect(),
                base: self.params.intern(&e.base),
            }
        };
        Op::Loop {
            axis: cut.axis as usize,
            tile: cut.tile.max(1),
            from: seen.from.iter().map(&mut edge).collect(),
            to: seen.to.iter().map(&mut edge).collect(),
            body,
        }
    }

    fn stmt(&mut self, s: &Stmt, out: &mut Vec<Op>) -> Result<(), String> {
        match s {
            Stmt::Load { dst, operand } => {
                let (d, o) = (*dst as usize, *operand as usize);
                let (want, got) = (self.out.tiles[d].dtype, self.out.operands[o].dtype);
                if want != got {
                    return Err(format!(
                        "tile {d} of {want} is loaded from an operand of {got}; load it as {got} and cast"
                    ));
                }
                let in_place = self.program.schedule().place(*dst) == Place::InPlace;
                out.push(Op::Load {
                    dst: d,
                    operand: o,
                    in_place,
                });
            }
            Stmt::Store { operand, src } => {
                let (t, o) = (*src as usize, *operand as usize);
                let (want, got) = (self.out.operands[o].dtype, self.out.tiles[t].dtype);
                if want != got {
                    return Err(format!(
                        "tile {t} of {got} is stored to an operand of {want}; cast it first"
                    ));
                }
                out.push(Op::Store { operand: o, src: t });
            }
            Stmt::Map { dst, expr, args } => {
                let args: Vec<usize> = args.iter().map(|&a| a as usize).collect();
                out.push(Op::Map(Box::new(self.map(*dst as usize, expr, args)?)));
            }
            Stmt::Contract { .. } => {
                let c = self.casts(s, out)?;
                let mut c = self.contract(&c)?;
                c.zero = nest::take_zero(out, c.acc);
                out.push(Op::Contract(Box::new(c)));
            }
            Stmt::Fold {
                monoid,
                state,
                args,
                over,
                rescale,
            } => {
                self.fold(monoid, state, args, over, rescale.as_ref(), out)?;
            }
            Stmt::Relabel {
                dst,
                src,
                labels,
                along,
            } => {
                let copied = along.is_some() || self.outlives(s, *dst, *src);
                let mut list = Vec::new();
                for l in labels {
                    let first = self.params.intern(&l.first);
                    list.push((usize::from(l.from), usize::from(l.to), first));
                }
                let (dst, src) = (*dst as usize, *src as usize);
                if self.out.tiles[dst].dtype != self.out.tiles[src].dtype {
                    return Err(format!("tile {dst} is relabelled from another type"));
                }
                out.push(Op::Relabel(Box::new(CRelabel {
                    dst,
                    src,
                    labels: list,
                    copied,
                })));
            }
        }
        Ok(())
    }

    /// Whether what statement `s` gives to `dst` is needed longer than its source holds it, or is
    /// written by others as well.
    fn outlives(&self, s: &Stmt, dst: u16, src: u16) -> bool {
        let body = &self.program.kernel().body;
        let at = body.iter().position(|x| x == s).unwrap_or(0);
        let last = body.iter().rposition(|x| x.reads().contains(&dst));
        let writers = body.iter().filter(|x| x.writes().contains(&dst)).count();
        let changed = |x: &Stmt| x.writes().contains(&src);
        writers != 1 || last.is_some_and(|l| l > at && body[at + 1..=l].iter().any(changed))
    }

    /// Innermost axis with more than one position, else the innermost.
    fn lane(&self, axes: &[usize]) -> Option<usize> {
        axes.iter()
            .rev()
            .copied()
            .find(|&a| self.caps[a] > 1)
            .or(axes.last().copied())
    }

    fn map(&mut self, dst: usize, e: &Expr, args: Vec<usize>) -> Result<CMap, String> {
        let lane = self.lane(&self.out.tiles[dst].axes);
        let lanes: Vec<bool> = args
            .iter()
            .map(|&t| lane.is_some_and(|l| self.out.tiles[t].axes.contains(&l)))
            .collect();
        self.types(e, &args)?;
        let prog = vm::compile(e, &lanes, lane, self.kernels, self.params)?;
        let want = self.out.tiles[dst].dtype;
        let got = e.output_types().map_err(|x| x.to_string())?;
        if got != [want] {
            return Err(format!(
                "a program gives {got:?} for a tile of {want}; cast its result"
            ));
        }
        self.area = self.area.max(prog.bytes);
        // Short rows are run several at a time, arguments that repeat being spread out first.
        let mut flat = None;
        if !args.is_empty() && prog.index == 0 && lane.is_some() {
            let all = vec![true; args.len()];
            let p = vm::compile(e, &all, None, self.kernels, self.params)?;
            self.area = self.area.max(round(p.bytes) + (args.len() + 1) * CH * 8);
            flat = Some(p);
        }
        Ok(CMap {
            dst,
            args,
            prog,
            flat,
            lane,
        })
    }

    /// Argument types as the program's slots say.
    fn types(&self, e: &Expr, args: &[usize]) -> Result<(), String> {
        for i in &e.insts {
            if let Inst::Input { slot, dtype } = i {
                let got = args.get(*slot as usize).map(|&t| self.out.tiles[t].dtype);
                if got != Some(*dtype) {
                    return Err(format!(
                        "argument {slot} of a program is {got:?}, not {dtype}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Factors of another type than the accumulator's are cast into tiles of their own.
    fn casts(&mut self, s: &Stmt, out: &mut Vec<Op>) -> Result<Stmt, String> {
        let Stmt::Contract { acc, a, b, over } = s else {
            return Ok(s.clone());
        };
        let want = self.out.tiles[*acc as usize].dtype;
        let mut f = [*a, *b];
        for t in &mut f {
            let from = self.out.tiles[*t as usize].dtype;
            if from == want {
                continue;
            }
            let axes: Vec<u16> = self.out.tiles[*t as usize]
                .axes
                .iter()
                .map(|&a| a as u16)
                .collect();
            let id = self.tile(want, &axes, true)?;
            let mut e = ExprBuilder::new();
            let x = e.input(0, from);
            let x = e.cast(x, want);
            let e = e.finish(&[x]);
            let m = self.map(id, &e, vec![*t as usize])?;
            out.push(Op::Map(Box::new(m)));
            *t = id as u16;
        }
        Ok(Stmt::Contract {
            acc: *acc,
            a: f[0],
            b: f[1],
            over: over.clone(),
        })
    }

    fn contract(&mut self, s: &Stmt) -> Result<CContract, String> {
        let Stmt::Contract { acc, a, b, over } = s else {
            return Err("not a contraction".into());
        };
        let (acc, mut a, mut b) = (*acc as usize, *a as usize, *b as usize);
        let t = &self.out.tiles;
        let lane = self.lane(&t[acc].axes);
        let has = |x: usize, l: usize| t[x].mask >> l & 1 == 1;
        let mut depthwise = false;
        if let Some(l) = lane {
            match (has(a, l), has(b, l)) {
                (true, false) => std::mem::swap(&mut a, &mut b),
                (true, true) => depthwise = true,
                _ => {}
            }
        }
        let over: Vec<usize> = over.iter().map(|&x| x as usize).collect();
        let (mut rows, mut columns, mut batch) = (Vec::new(), Vec::new(), Vec::new());
        for &x in t[acc].axes.iter().filter(|&&x| Some(x) != lane) {
            match (has(a, x), has(b, x)) {
                // Depthwise: the factor with more axes is read through the row table.
                (true, false) => rows.push(x),
                (true, true) => batch.push(x),
                _ => columns.push(x),
            }
        }
        if depthwise && rows.is_empty() && !columns.is_empty() {
            std::mem::swap(&mut a, &mut b);
            std::mem::swap(&mut rows, &mut columns);
        }
        let dtype = t[acc].dtype;
        let mut pack = 0;
        if let (Some(l), Some(g), DType::F32, false) = (lane, self.micro, dtype, depthwise)
            && !self.unit(b, l)
        {
            let k = over
                .iter()
                .try_fold(1i64, |n, &x| n.checked_mul(self.caps[x].max(1)));
            let nr = g.nr() as i64;
            let need = k.and_then(|k| {
                (self.caps[l] + nr - 1)
                    .div_euclid(nr)
                    .checked_mul(nr * 4)?
                    .checked_mul(k)
            });
            if let Some(n) = need.filter(|&n| n <= PACK_LIMIT) {
                pack = n as usize;
            }
        }
        let matrix = self.out.tiles[a].axes.len() >= 2;
        self.out.tiles[a].spaced |= !depthwise && matrix && self.out.tiles[a].elem == 4;
        self.pack = self.pack.max(pack + 64);
        // Sums of i32 run on the same micro-kernels when their factors are pairs of i16.
        self.table |= matches!(dtype, DType::F32 | DType::I32);
        Ok(CContract {
            acc,
            a,
            b,
            over,
            rows,
            columns,
            batch,
            lane,
            depthwise,
            dtype,
            gemm: self.fitted(b, lane),
            grouped: false,
            bytes: false,
            zero: None,
            post: None,
            pack,
        })
    }

    /// The schedule's register tile, or a taller one where lanes are too few to fill it.
    fn fitted(&self, b: usize, lane: Option<usize>) -> Option<crate::ukr::GemmKernel> {
        let want = self.micro?;
        let n = lane.map_or(1, |l| self.caps[l]);
        let isa = self.kernels.isa;
        let nr = (n as usize).div_ceil(isa.lanes()).max(1) * isa.lanes();
        // Panels that lie packed are as wide as they are.
        let packed = lane.is_some_and(|l| {
            self.program.kernel().body.iter().any(|s| match s {
                Stmt::Load { dst, operand } if *dst as usize == b => {
                    let a = &self.program.kernel().operands[*operand as usize].access;
                    a.term(l as u16).is_some_and(|t| t.leaves.len() > 1)
                }
                _ => false,
            })
        });
        if packed || nr * 2 > want.nr() {
            return Some(want);
        }
        let mr = shapes(isa).iter().filter(|s| s.1 == nr).map(|s| s.0).max();
        mr.and_then(|mr| gemm_kernel(isa, mr, nr)).or(Some(want))
    }

    /// Whether neighbours along `lane` are neighbours in the memory of tile `t`, as far as can be seen.
    fn unit(&self, t: usize, lane: usize) -> bool {
        let k = self.program.kernel();
        let load = k.body.iter().find_map(|s| match s {
            Stmt::Load { dst, operand } if *dst as usize == t => Some(*operand as usize),
            _ => None,
        });
        match load {
            Some(o) if self.program.schedule().place(t as u16) == Place::InPlace => k.operands[o]
                .access
                .term(lane as u16)
                .and_then(|t| t.leaves.last())
                .is_some_and(|l| l.stride.is_one()),
            _ => self.out.tiles[t].axes.last() == Some(&lane),
        }
    }
}

/// `v` as an element of `d`, little endian.
fn element(v: f64, d: DType, out: &mut [u8; 8]) {
    use half::{bf16, f16};
    let mut put = |b: &[u8]| out[..b.len()].copy_from_slice(b);
    match d {
        DType::F32 => put(&(v as f32).to_le_bytes()),
        DType::F64 => put(&v.to_le_bytes()),
        DType::F16 => put(&f16::from_f32(to_odd_f32(v)).to_bits().to_le_bytes()),
        DType::BF16 => put(&bf16::from_f32(to_odd_f32(v)).to_bits().to_le_bytes()),
        DType::I64 => put(&(v as i64).to_le_bytes()),
        DType::U64 => put(&(v as u64).to_le_bytes()),
        DType::I32 => put(&(v as i32).to_le_bytes()),
        DType::U32 => put(&(v as u32).to_le_bytes()),
        DType::I16 => put(&(v as i16).to_le_bytes()),
        DType::U16 => put(&(v as u16).to_le_bytes()),
        DType::I8 | DType::I4 => put(&[v as i8 as u8]),
        DType::U8 | DType::U4 => put(&[v as u8]),
        DType::Bool => put(&[u8::from(v != 0.0)]),
        // The verifier lets no kernel have these.
        DType::Str | DType::Host => {}
    }
}
