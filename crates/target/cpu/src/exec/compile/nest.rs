//! Neighbouring statements that run as one: loads with a contraction, a load with a fold.
use super::super::{CAccess, CContract, CMap, CNest, COperand, CPool, CWide, Lift, Op};
use super::{Compiler, ZEROS_LIMIT};
use crate::ukr::{bf16_kernel, has_bf16_dots, pair_kernel, quad_kernel};
use expr::{Inst, Monoid};
use kernel::{Access, AxisTile, Node, Place, Stmt};
use layout::{DType, Dim, Leaf};

/// Two loads and a contraction of what they load, in loops or not.
struct Product<'a> {
    /// Axes and pieces of the loops.
    loops: Vec<(usize, i64)>,
    contract: &'a Stmt,
    over: &'a [u16],
    acc: u16,
    /// Both factors: tile and operand.
    factors: [(u16, usize); 2],
}

impl Product<'_> {
    fn new(nodes: &[Node]) -> Option<Product<'_>> {
        let mut loops = Vec::new();
        let mut body = nodes;
        while let Some((axis, inner)) = first_loop(body) {
            if !loops.is_empty() && body.len() != 1 {
                return None;
            }
            loops.push((axis.axis as usize, axis.tile.max(1)));
            body = inner;
        }
        if !loops.is_empty() && body.len() != 3 {
            return None;
        }
        let [
            Node::Stmt(Stmt::Load {
                dst: d1,
                operand: o1,
            }),
            Node::Stmt(Stmt::Load {
                dst: d2,
                operand: o2,
            }),
            Node::Stmt(contract @ Stmt::Contract { acc, a, b, over }),
            ..,
        ] = body
        else {
            return None;
        };
        let loads = [(d1, o1), (d2, o2)];
        let of = |t: &u16| Some((*t, *loads.iter().find(|l| l.0 == t)?.1 as usize));
        let factors = [of(a)?, of(b)?];
        let summed = loops.iter().all(|l| over.contains(&(l.0 as u16)));
        (a != b && summed).then_some(Product {
            loops,
            contract,
            over,
            acc: *acc,
            factors,
        })
    }
}

/// Factors of small types whose neighbours along a summed axis are one element of 4 bytes.
struct Grouped {
    axis: usize,
    /// Operands that are read so.
    operands: [usize; 2],
    /// The rows' factor is copied first.
    copied: bool,
}

/// What rows outside the tensor are read from.
enum Outside {
    /// The zeros that all kernels share.
    Zeros,
    /// Scratch: offset and bytes.
    Scratch(usize, usize),
}

impl Compiler<'_> {
    /// Loads and a contraction (in loops or not) that may run as one; nodes taken.
    pub(super) fn nest(
        &mut self,
        nodes: &[Node],
        out: &mut Vec<Op>,
    ) -> Result<Option<(CNest, usize)>, String> {
        let Some(mut product) = Product::new(nodes) else {
            return Ok(None);
        };
        let (k, s) = (self.program.kernel(), self.program.schedule());
        let width = self.width(&product);
        let floats = self.floats(&product);
        if !floats && width.is_none() {
            return Ok(None);
        }
        let mut c = self.contract(product.contract)?;
        let [(a, oa), (_, ob)] = product.factors;
        let operands = if c.a == a as usize {
            [oa, ob]
        } else {
            [ob, oa]
        };
        let mut grouped = None;
        if width == Some(4) && c.depthwise {
            let direct = [c.a, c.b]
                .iter()
                .all(|&t| s.place(t as u16) == Place::InPlace);
            if !direct || k.tiles[c.a].dtype != DType::U8 {
                return Ok(None);
            }
            c.bytes = true;
            self.table = true;
        } else if let Some(w) = width {
            grouped = self.grouped(&mut c, operands, w);
            match &grouped {
                Some(g) => {
                    let cut = product.loops.iter_mut().filter(|l| l.0 == g.axis);
                    cut.for_each(|l| l.1 /= w);
                }
                // Floats of 16 bits are widened where they do not lie in pairs.
                None if floats => {}
                None => return Ok(None),
            }
        }
        let Some(outside) = self.outside(&c, operands[0], product.over, width)? else {
            return Ok(None);
        };
        let mut wide = [None; 2];
        if grouped.is_none() && !c.bytes {
            let Some(w) = self.widened(&c, operands)? else {
                return Ok(None);
            };
            wide = w;
        }
        let taken = if product.loops.is_empty() { 3 } else { 1 };
        let body = self.plain(&nodes[..taken])?;
        let [a, b] = grouped.as_ref().map_or(operands, |g| g.operands);
        let nest = CNest {
            loops: product.loops,
            a,
            b,
            grouped: grouped.as_ref().zip(width).map(|(g, w)| (g.axis, w)),
            outside: match outside {
                Outside::Zeros => None,
                Outside::Scratch(offset, bytes) => Some((offset, bytes)),
            },
            copied: grouped.is_some_and(|g| g.copied),
            wide,
            zero: take_zero(out, c.acc),
            contract: c,
            post: None,
            body,
        };
        Ok(Some((nest, taken)))
    }

    /// Whether tile `t` is written once and read once.
    fn alone(&self, t: u16) -> bool {
        let body = &self.program.kernel().body;
        body.iter().filter(|s| s.reads().contains(&t)).count() == 1
            && body.iter().filter(|s| s.writes().contains(&t)).count() == 1
    }

    /// Neighbours that are one element of 4 bytes, for the types of a product's factors and sums.
    fn width(&self, p: &Product<'_>) -> Option<i64> {
        let k = self.program.kernel();
        let tile = |t: u16| k.tiles[t as usize].dtype;
        let [(a, _), (b, _)] = p.factors;
        group([tile(p.acc), tile(a), tile(b)]).filter(|_| {
            p.factors.iter().all(|&(t, o)| {
                self.alone(t)
                    && k.operands[o].access.indexed.is_empty()
                    && k.operands[o].dtype == tile(t)
            })
        })
    }

    /// Whether both factors are floats that are read where they lie, and sums are f32.
    fn floats(&self, p: &Product<'_>) -> bool {
        let (k, s) = (self.program.kernel(), self.program.schedule());
        let float = |d: DType| matches!(d, DType::F32 | DType::F16 | DType::BF16);
        k.tiles[p.acc as usize].dtype == DType::F32
            && p.factors.iter().all(|&(t, o)| {
                let dtype = k.tiles[t as usize].dtype;
                s.place(t) == Place::InPlace
                    && self.alone(t)
                    && float(dtype)
                    && k.operands[o].dtype == dtype
                    && k.operands[o].access.indexed.is_empty()
            })
    }

    /// Has `c` multiply groups of `w` neighbours; `None` where its factors do not lie so, and nothing was done.
    fn grouped(&mut self, c: &mut CContract, [oa, ob]: [usize; 2], w: i64) -> Option<Grouped> {
        let (k, s) = (self.program.kernel(), self.program.schedule());
        let copied = s.place(c.a as u16) != Place::InPlace;
        let make = match (w, k.tiles[c.acc].dtype) {
            (4, _) => quad_kernel,
            (_, DType::F32) => bf16_kernel,
            _ => pair_kernel,
        };
        // Signs tell which factor of 8 bits is which.
        let signs = w != 4 || k.tiles[c.a].dtype == DType::U8;
        if s.place(c.b as u16) != Place::InPlace || !signs {
            return None;
        }
        let (axis, a, b) = self.taken(c, (oa, ob), copied, w)?;
        // Nor may a loop, of this nest or around it, cut a group.
        let mut loops = s.loops.iter();
        if loops.any(|l| l.axis as usize == axis && l.tile % w != 0) {
            return None;
        }
        let g = self.micro?;
        c.gemm = Some(make(self.kernels.isa, g.mr(), g.nr())?);
        c.grouped = true;
        self.table = true;
        let mut operands = [oa, ob];
        for (d, access) in operands.iter_mut().zip([a, b]) {
            if copied && *d == oa {
                continue;
            }
            let own = &self.out.operands[*d];
            let (buffer, byte) = (own.buffer, own.outside[0]);
            *d = self.out.operands.len();
            let access = CAccess::new(&access, self.params);
            self.out.operands.push(COperand {
                dtype: DType::I32,
                elem: 4,
                buffer,
                access,
                outside: [byte; 8],
            });
        }
        Some(Grouped {
            axis,
            operands,
            copied,
        })
    }

    /// What rows of operand `oa` outside the tensor are read from; `None` where they are too long.
    fn outside(
        &mut self,
        c: &CContract,
        oa: usize,
        over: &[u16],
        width: Option<i64>,
    ) -> Result<Option<Outside>, String> {
        let k = self.program.kernel();
        let access = &k.operands[oa].access;
        if access.bounds.is_empty() {
            return Ok(Some(Outside::Zeros));
        }
        let bounded = |x: u16| {
            access
                .bounds
                .iter()
                .any(|b| b.terms.iter().any(|t| t.0 == x))
        };
        let mut most = 64i64;
        for x in over.iter().copied().chain(c.lane.map(|l| l as u16)) {
            if let Some(t) = access.term(x)
                && !bounded(x)
            {
                let extent = self.top(&k.axes[x as usize].extent)?;
                for l in &t.leaves {
                    let st = self.top(&l.stride)?.abs();
                    most = most.max(extent.saturating_mul(st));
                }
            }
        }
        let bytes = most.saturating_mul(4).saturating_add(64);
        if bytes > ZEROS_LIMIT {
            return Ok(None);
        }
        if width == Some(4) && access.outside != 0.0 {
            let offset = self.out.scratch;
            self.out.scratch += super::round(most as usize + 64);
            return Ok(Some(Outside::Scratch(offset, most as usize + 64)));
        }
        self.out.zeros = self.out.zeros.max(bytes as usize);
        Ok(Some(Outside::Zeros))
    }

    /// Room for the factors that are no f32; `None` where one cannot be widened.
    fn widened(
        &mut self,
        c: &CContract,
        operands: [usize; 2],
    ) -> Result<Option<[Option<CWide>; 2]>, String> {
        let mut wide = [None; 2];
        for (w, (o, t)) in wide.iter_mut().zip(operands.into_iter().zip([c.a, c.b])) {
            let dtype = self.program.kernel().operands[o].dtype;
            if dtype == DType::F32 {
                continue;
            }
            if c.depthwise {
                return Ok(None);
            }
            let Some(room) = self.span(o, t)? else {
                return Ok(None);
            };
            let offset = self.out.scratch;
            self.out.scratch += super::round(room * 4 + 64);
            *w = Some(CWide {
                dtype,
                offset,
                room,
            });
        }
        Ok(Some(wide))
    }

    /// Where the factors of a product of small integers lie as elements of 4 bytes, `width` neighbours
    /// each: the summed axis of which they are neighbours, and both accesses with it taken so.
    fn taken(
        &self,
        c: &CContract,
        (oa, ob): (usize, usize),
        copied: bool,
        width: i64,
    ) -> Option<(usize, Access, Access)> {
        let k = self.program.kernel();
        if c.depthwise {
            return None;
        }
        let lane = c.lane?;
        let by = Dim::Known(width);
        let part = |d: &Dim| d.exact_div(&by);
        let (a, b) = (&k.operands[oa].access, &k.operands[ob].access);
        let x = c.over.iter().copied().find(|&x| {
            let one = a.term(x as u16).and_then(|t| t.stride());
            let b = b.term(x as u16).and_then(|t| t.leaves.last());
            let along = match copied {
                true => self.out.tiles[c.a].axes.last() == Some(&x),
                false => one.is_some_and(Dim::is_one),
            };
            along && b.is_some_and(|l| l.stride.is_one())
        })?;
        part(&k.axes[x].extent)?;
        let bounded = |a: &Access| {
            a.bounds
                .iter()
                .any(|b| b.terms.iter().any(|t| t.0 == x as u16))
        };
        if !copied && bounded(a)
            || !b.bounds.is_empty()
            || !a.indexed.is_empty()
            || !b.indexed.is_empty()
        {
            return None;
        }
        let (mut ha, mut hb) = (a.clone(), b.clone());
        let both = [&mut ha, &mut hb];
        for h in both.into_iter().skip(usize::from(copied)) {
            h.offset = part(&h.offset)?;
            for t in h.terms.iter_mut().filter(|t| t.axis != x as u16) {
                for l in &mut t.leaves {
                    l.stride = part(&l.stride)?;
                }
            }
        }
        if !copied {
            let t = ha.terms.iter_mut().find(|t| t.axis == x as u16)?;
            t.leaves[0].extent = part(&k.axes[x].extent)?;
        }
        let t = hb.terms.iter_mut().find(|t| t.axis == x as u16)?;
        let [outer, inner] = t.leaves.as_slice() else {
            return None;
        };
        if inner.extent != by {
            return None;
        }
        let stride = part(&outer.stride)?;
        t.leaves = vec![Leaf {
            extent: outer.extent.clone(),
            stride,
        }];
        let unit = hb.term(lane as u16)?.leaves.last()?.stride.is_one();
        unit.then_some((x, ha, hb))
    }

    /// Elements from the first to the last that a task reads of operand `o` as tile `t`; `None` when they
    /// are too many to be copied.
    fn span(&self, o: usize, t: usize) -> Result<Option<usize>, String> {
        let k = self.program.kernel();
        let access = &k.operands[o].access;
        let has = |x: u16| self.out.tiles[t].axes.contains(&(x as usize));
        // Whole axes: loops are inside a nest.
        let len = |x: u16| -> Result<i64, String> {
            if !has(x) {
                return Ok(1);
            }
            let top = self.top(&k.axes[x as usize].extent)?.max(1);
            let cut = self.program.schedule().grid.iter().find(|g| g.axis == x);
            Ok(cut.map_or(top, |g| top.min(g.tile.max(1))))
        };
        let mut span = 1i64;
        let mut bounded = Vec::new();
        for b in &access.bounds {
            let (mut wide, mut step) = (1i64, 0);
            for (x, c) in &b.terms {
                let c = self.top(c)?.abs().max(1);
                wide = wide.saturating_add(c.saturating_mul(len(*x)? - 1));
                let st = access.term(*x).and_then(|t| t.stride());
                let st = st.map_or(Ok(0), |s| self.top(s))?.abs();
                step = step.max(st / c);
                bounded.push(*x);
            }
            let extent = self.top(&b.extent)?.max(1);
            span = span.saturating_add(step.saturating_mul(wide.min(extent) - 1));
        }
        for t in access.terms.iter().filter(|t| !bounded.contains(&t.axis)) {
            let n = len(t.axis)?;
            let st = |l: &layout::Leaf| self.top(&l.stride).map(i64::abs);
            if let [l] = t.leaves.as_slice() {
                span = span.saturating_add(st(l)?.saturating_mul(n - 1));
            } else {
                for (i, l) in t.leaves.iter().enumerate() {
                    let size = match t.leaves.get(i + 1) {
                        Some(inner) => self.top(&inner.extent)?.max(1),
                        None => 1,
                    };
                    let most = self.top(&l.extent)?.max(1);
                    let n = ((n + size - 1) / size + i64::from(size > 1)).min(most);
                    let n = if i + 1 == t.leaves.len() { most } else { n };
                    span = span.saturating_add(st(l)?.saturating_mul(n - 1));
                }
            }
        }
        Ok((span < ZEROS_LIMIT / 4).then_some(span.max(1) as usize))
    }

    /// A load and a fold over its window (in loops or not) that may run as one; nodes taken.
    pub(super) fn pool(&mut self, nodes: &[Node]) -> Result<Option<(CPool, usize)>, String> {
        let mut body = nodes;
        let mut loops = Vec::new();
        while let Some((axis, inner)) = first_loop(body) {
            if !loops.is_empty() && body.len() != 1 {
                return Ok(None);
            }
            loops.push(axis.axis);
            body = inner;
        }
        let [
            Node::Stmt(Stmt::Load { dst, operand }),
            Node::Stmt(Stmt::Fold {
                monoid,
                state,
                args,
                over,
                rescale: None,
            }),
            ..,
        ] = body
        else {
            return Ok(None);
        };
        let k = self.program.kernel();
        let uses = k
            .body
            .iter()
            .filter(|s| s.reads().contains(dst) || s.writes().contains(dst))
            .count();
        let o = &k.operands[*operand as usize];
        let fits = (loops.is_empty() || body.len() == 2)
            && loops.iter().all(|l| over.contains(l))
            && uses == 2
            && args.as_slice() == [*dst]
            && state.len() == 1
            && matches!(o.dtype, DType::F32 | DType::F16 | DType::BF16)
            && o.access.indexed.is_empty()
            && (o.access.bounds.is_empty() || constant(monoid) == Some(o.access.outside));
        if !fits {
            return Ok(None);
        }
        let f = self.plain_fold(
            monoid,
            &[state[0] as usize],
            vec![*dst as usize],
            over.iter().map(|&a| a as usize).collect(),
        )?;
        // The greatest and the smallest are exact in any type; sums are not.
        let simple = match o.dtype {
            DType::F32 => f.simple,
            d => self.extreme(monoid, d),
        };
        let Some(simple) = simple.filter(|s| s.lift == Lift::Identity && !f.horizontal) else {
            return Ok(None);
        };
        let mut wide = None;
        if o.dtype != DType::F32 {
            let (op, tile, state) = (*operand as usize, *dst as usize, state[0] as usize);
            let Some(room) = self.span(op, tile)? else {
                return Ok(None);
            };
            let points: i64 = self.out.tiles[state]
                .axes
                .iter()
                .map(|&a| self.caps[a].max(1))
                .product();
            let offset = self.out.scratch;
            let at = offset + super::round(room * 4 + 64);
            self.out.scratch = at + super::round(points as usize * 4 + 64);
            let dtype = o.dtype;
            wide = Some((
                CWide {
                    dtype,
                    offset,
                    room,
                },
                at,
            ));
        }
        let taken = if loops.is_empty() { 2 } else { 1 };
        let body = self.plain(&nodes[..taken])?;
        let (operand, tile) = (*operand as usize, *dst as usize);
        Ok(Some((
            CPool {
                operand,
                tile,
                fold: f,
                simple,
                wide,
                body,
            },
            taken,
        )))
    }

    /// Nodes without looking for nests.
    fn plain(&mut self, nodes: &[Node]) -> Result<Vec<Op>, String> {
        let mut out = Vec::new();
        for n in nodes {
            match n {
                Node::Loop { axis, seen, body } => {
                    self.depth += 1;
                    let body = self.plain(body);
                    self.depth -= 1;
                    out.push(self.looped(axis, seen, body?));
                }
                Node::Stmt(s) => self.stmt(s, &mut out)?,
            }
        }
        Ok(out)
    }
}

/// The loop that nodes begin with: its axis with the piece, and its body. Without a map in it, it goes over all positions.
fn first_loop(nodes: &[Node]) -> Option<(&AxisTile, &[Node])> {
    match nodes {
        [Node::Loop { axis, body, .. }, ..] => Some((axis, body)),
        _ => None,
    }
}

/// Neighbours along a summed axis that are one element of 4 bytes, for factors and sums of these types.
fn group(types: [DType; 3]) -> Option<i64> {
    match types {
        [DType::I32, DType::I16, DType::I16] => Some(2),
        [DType::F32, DType::BF16, DType::BF16] if has_bf16_dots() => Some(2),
        [DType::I32, DType::U8, DType::I8] | [DType::I32, DType::I8, DType::U8] => Some(4),
        _ => None,
    }
}

/// Whether an operation reads or writes tile `t`.
fn touches(op: &Op, t: usize) -> bool {
    match op {
        Op::Load { dst, .. } => *dst == t,
        Op::Store { src, .. } => *src == t,
        Op::Map(m) => m.dst == t || m.args.contains(&t),
        Op::Fold(f) => f.state.contains(&t) || f.args.contains(&t),
        Op::Contract(c) => [c.acc, c.a, c.b].contains(&t),
        Op::Relabel(r) => r.dst == t || r.src == t,
        Op::Loop { .. } | Op::Nest(_) | Op::Nibbles(_) | Op::Pool(_) => true,
    }
}

/// Place in `out` of the fill of `t` with zeros, when nothing since has touched it.
pub(super) fn zeroed(out: &[Op], t: usize) -> Option<usize> {
    let at = out.iter().rposition(|op| touches(op, t))?;
    match &out[at] {
        Op::Map(m) if m.dst == t && m.args.is_empty() && m.prog.is_zero() => Some(at),
        _ => None,
    }
}

/// Takes that fill out.
pub(super) fn take_zero(out: &mut Vec<Op>, t: usize) -> Option<CMap> {
    let at = zeroed(out, t)?;
    match out.remove(at) {
        Op::Map(m) => Some(*m),
        _ => None,
    }
}

/// The constant that a program without arguments gives.
fn constant(m: &Monoid) -> Option<f64> {
    match m
        .identity
        .insts
        .get(*m.identity.outputs.first()? as usize)?
    {
        Inst::Float { bits, .. } => Some(f64::from_bits(*bits)),
        _ => None,
    }
}
