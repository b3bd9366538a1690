//! Neighbouring statements that run as one: loads with a contraction, a load with a fold.
use super::super::{CAccess, CContract, CMap, CNest, COperand, CPool, CWide, Lift, Op};
use super::{Compiler, ZEROS_LIMIT};
use crate::ukr::{bf16_kernel, has_bf16_dots, pair_kernel, quad_kernel};
use expr::{Inst, Monoid};
use kernel::{Access, Node, Place, Stmt};
use layout::{DType, Dim, Leaf};

impl Compiler<'_> {
    /// Loads and a contraction (in loops or not) that may run as one; nodes taken.
    pub(super) fn nest(
        &mut self,
        nodes: &[Node],
        out: &mut Vec<Op>,
    ) -> Result<Option<(CNest, usize)>, String> {
        let mut loops = Vec::new();
        let mut body = nodes;
        while let [Node::Loop { axis, body: inner }, ..] = body {
            if !loops.is_empty() && body.len() != 1 {
                return Ok(None);
            }
            loops.push((axis.axis as usize, axis.tile.max(1)));
            body = inner;
        }
        if !loops.is_empty() && body.len() != 3 {
            return Ok(None);
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
            return Ok(None);
        };
        let (k, s) = (self.program.kernel(), self.program.schedule());
        let of = |t: &u16| {
            if t == d1 {
                Some(*o1 as usize)
            } else if t == d2 {
                Some(*o2 as usize)
            } else {
                None
            }
        };
        let (Some(oa), Some(ob)) = (of(a), of(b)) else {
            return Ok(None);
        };
        if a == b || !loops.iter().all(|l| over.contains(&(l.0 as u16))) {
            return Ok(None);
        }
        let alone = |t: u16| {
            k.body.iter().filter(|s| s.reads().contains(&t)).count() == 1
                && k.body.iter().filter(|s| s.writes().contains(&t)).count() == 1
        };
        let float = |d: DType| matches!(d, DType::F32 | DType::F16 | DType::BF16);
        let fits = |t: u16, o: usize| {
            s.place(t) == Place::InPlace
                && alone(t)
                && float(k.tiles[t as usize].dtype)
                && k.operands[o].dtype == k.tiles[t as usize].dtype
                && k.operands[o].access.indexed.is_empty()
        };
        let tile = |t: u16| k.tiles[t as usize].dtype;
        let width = group([tile(*acc), tile(*a), tile(*b)]).filter(|_| {
            [(*a, oa), (*b, ob)].iter().all(|&(t, o)| {
                alone(t)
                    && k.operands[o].access.indexed.is_empty()
                    && k.operands[o].dtype == tile(t)
            })
        });
        let floats = fits(*a, oa) && fits(*b, ob) && k.tiles[*acc as usize].dtype == DType::F32;
        if !floats && width.is_none() {
            return Ok(None);
        }
        let mut c = self.contract(contract)?;
        let (oa, ob) = if c.a == *a as usize {
            (oa, ob)
        } else {
            (ob, oa)
        };
        let (mut grouped, mut copied) = (None, false);
        let (mut da, mut db) = (oa, ob);
        if width == Some(4) && c.depthwise {
            let direct = [c.a, c.b]
                .iter()
                .all(|&t| s.place(t as u16) == Place::InPlace);
            if !direct || tile(c.a as u16) != DType::U8 {
                return Ok(None);
            }
            c.bytes = true;
            self.table = true;
        } else if let Some(w) = width {
            copied = s.place(c.a as u16) != Place::InPlace;
            let make = match (w, tile(*acc)) {
                (4, _) => quad_kernel,
                (_, DType::F32) => bf16_kernel,
                _ => pair_kernel,
            };
            // Signs tell which factor of 8 bits is which.
            let fits =
                s.place(c.b as u16) == Place::InPlace && (w != 4 || tile(c.a as u16) == DType::U8);
            // Nor may a loop, of this nest or around it, cut a group.
            let cut = |x: usize| {
                let mut all = s.loops.iter();
                all.any(|l| l.axis as usize == x && l.tile % w != 0)
            };
            let found = self
                .taken(&c, (oa, ob), copied, w)
                .filter(|f| fits && !cut(f.0))
                .and_then(|(x, a, b)| {
                    let g = self.micro?;
                    Some((x, a, b, make(self.kernels.isa, g.mr(), g.nr())?))
                });
            match found {
                Some((x, wide_a, wide_b, gemm)) => {
                    c.gemm = Some(gemm);
                    loops.iter_mut().filter(|l| l.0 == x).for_each(|l| l.1 /= w);
                    for (d, o, access) in [(&mut da, oa, wide_a), (&mut db, ob, wide_b)] {
                        if copied && o == oa {
                            continue;
                        }
                        let (buffer, byte) = {
                            let own = &self.out.operands[o];
                            (own.buffer, own.outside[0])
                        };
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
                    (c.grouped, grouped) = (true, Some((x, w)));
                    self.table = true;
                }
                // Floats of 16 bits are widened where they do not lie in pairs.
                None if floats => copied = false,
                None => return Ok(None),
            }
        }
        let mut outside = None;
        // Zeros that rows outside the tensor are read from.
        let access = &k.operands[oa].access;
        if !access.bounds.is_empty() {
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
                // Bytes that rows outside the tensor are read from.
                let offset = self.out.scratch;
                self.out.scratch += super::round(most as usize + 64);
                outside = Some((offset, most as usize + 64));
            } else {
                self.out.zeros = self.out.zeros.max(bytes as usize);
            }
        }
        let mut wide = [None; 2];
        for (w, (o, t)) in wide.iter_mut().zip([(oa, c.a), (ob, c.b)]) {
            let dtype = k.operands[o].dtype;
            if dtype == DType::F32 || grouped.is_some() || c.bytes {
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
        let mut plain = Vec::new();
        if loops.is_empty() {
            for n in &body[..3] {
                if let Node::Stmt(s) = n {
                    self.stmt(s, &mut plain)?;
                }
            }
        } else {
            let Node::Loop { axis, body: inner } = &nodes[0] else {
                return Ok(None);
            };
            self.depth += 1;
            let inner = self.plain(inner);
            self.depth -= 1;
            let inner = inner?;
            plain.push(Op::Loop {
                axis: axis.axis as usize,
                tile: axis.tile.max(1),
                body: inner,
            });
        }
        let zero = take_zero(out, c.acc);
        let taken = if loops.is_empty() { 3 } else { 1 };
        Ok(Some((
            CNest {
                loops,
                contract: c,
                a: da,
                b: db,
                grouped,
                outside,
                copied,
                wide,
                zero,
                post: None,
                body: plain,
            },
            taken,
        )))
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
        while let [Node::Loop { axis, body: inner }, ..] = body {
            if !loops.is_empty() && body.len() != 1 {
                return Ok(None);
            }
            loops.push(axis.axis);
            body = inner;
        }
        let [
            Node::Stmt(load @ Stmt::Load { dst, operand }),
            Node::Stmt(
                fold @ Stmt::Fold {
                    monoid,
                    state,
                    args,
                    over,
                    rescale: None,
                },
            ),
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
        let mut plain = Vec::new();
        let taken = if let (false, Node::Loop { axis, body }) = (loops.is_empty(), &nodes[0]) {
            self.depth += 1;
            let body = self.plain(body);
            self.depth -= 1;
            plain.push(Op::Loop {
                axis: axis.axis as usize,
                tile: axis.tile.max(1),
                body: body?,
            });
            1
        } else {
            self.stmt(load, &mut plain)?;
            self.stmt(fold, &mut plain)?;
            2
        };
        let (operand, tile) = (*operand as usize, *dst as usize);
        Ok(Some((
            CPool {
                operand,
                tile,
                fold: f,
                simple,
                wide,
                body: plain,
            },
            taken,
        )))
    }

    /// Nodes without looking for nests.
    fn plain(&mut self, nodes: &[Node]) -> Result<Vec<Op>, String> {
        let mut out = Vec::new();
        for n in nodes {
            match n {
                Node::Loop { axis, body } => {
                    self.depth += 1;
                    let body = self.plain(body);
                    self.depth -= 1;
                    out.push(Op::Loop {
                        axis: axis.axis as usize,
                        tile: axis.tile.max(1),
                        body: body?,
                    });
                }
                Node::Stmt(s) => self.stmt(s, &mut out)?,
            }
        }
        Ok(out)
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
