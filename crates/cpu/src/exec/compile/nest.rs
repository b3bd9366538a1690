//! Neighbouring statements that run as one: loads with a contraction, a load with a fold.
use super::super::Op;
use super::super::contract::CNest;
use super::super::fold::Lift;
use super::super::map::CMap;
use super::super::pool::CPool;
use super::{Compiler, ZEROS_LIMIT};
use expr::{Inst, Monoid};
use kernel::{Node, Place, Stmt};
use layout::DType;

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
        let fits = |t: u16, o: usize| {
            s.place(t) == Place::InPlace
                && alone(t)
                && k.tiles[t as usize].dtype == DType::F32
                && k.operands[o].dtype == DType::F32
                && k.operands[o].access.indexed.is_empty()
        };
        if !fits(*a, oa) || !fits(*b, ob) || k.tiles[*acc as usize].dtype != DType::F32 {
            return Ok(None);
        }
        let c = self.contract(contract)?;
        let (oa, ob) = if c.a == *a as usize {
            (oa, ob)
        } else {
            (ob, oa)
        };
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
            self.out.zeros = self.out.zeros.max(bytes as usize);
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
                a: oa,
                b: ob,
                zero,
                body: plain,
            },
            taken,
        )))
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
            && o.dtype == DType::F32
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
        let Some(simple) = f
            .simple
            .filter(|s| s.lift == Lift::Identity && !f.horizontal)
        else {
            return Ok(None);
        };
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

/// Whether an operation reads or writes tile `t`.
fn touches(op: &Op, t: usize) -> bool {
    match op {
        Op::Load { dst, .. } => *dst == t,
        Op::Store { src, .. } => *src == t,
        Op::Map(m) => m.dst == t || m.args.contains(&t),
        Op::Fold(f) => f.state.contains(&t) || f.args.contains(&t),
        Op::Contract(c) => [c.acc, c.a, c.b].contains(&t),
        Op::Loop { .. } | Op::Nest(_) | Op::Pool(_) => true,
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
