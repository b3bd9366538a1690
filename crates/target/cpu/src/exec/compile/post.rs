//! What of a map behind a product is done to the sums on their way to memory: a bias per lane, a tile
//! that lies like the result, bounds. The rest of the map runs on the result in place.
use super::super::{CPost, Op};
use super::Compiler;
use expr::{Binary, Expr, Inst, Ref};
use kernel::{Node, Stmt};
use layout::DType;

/// A map's program as sum, bounds and rest.
struct Parts {
    /// Slots that are added to the accumulator.
    added: Vec<u32>,
    lo: f32,
    hi: f32,
    /// Program of the bounded sum, unless that is the result.
    rest: Option<Expr>,
}

impl Compiler<'_> {
    /// The map that follows a product into tile `acc`, with the loads before it: operations to run before
    /// the product, the map, nodes taken.
    pub(super) fn post(
        &mut self,
        nodes: &[Node],
        acc: usize,
        lane: Option<usize>,
    ) -> Result<Option<(Vec<Op>, CPost, usize)>, String> {
        let loads = nodes
            .iter()
            .take_while(|n| matches!(n, Node::Stmt(Stmt::Load { .. })))
            .count();
        let Some(Node::Stmt(Stmt::Map { dst, expr, args })) = nodes.get(loads) else {
            return Ok(None);
        };
        let k = self.program.kernel();
        let (id, dst) = (acc as u16, *dst as usize);
        let readers = k.body.iter().filter(|s| match s {
            Stmt::Contract { .. } => false,
            s => s.reads().contains(&id),
        });
        let f32s = |t: usize| self.out.tiles[t].dtype == DType::F32;
        let same = self.out.tiles[dst].axes == self.out.tiles[acc].axes;
        let slot = args.iter().position(|&t| t == id);
        let (Some(slot), 1, Some(lane)) = (slot, readers.count(), lane) else {
            return Ok(None);
        };
        if dst == acc || !same || !f32s(acc) || !f32s(dst) {
            return Ok(None);
        }
        let Some(parts) = parts(expr, slot as u32) else {
            return Ok(None);
        };
        let (mut bias, mut add) = (None, None);
        for &s in &parts.added {
            let Some(&t) = args.get(s as usize) else {
                return Ok(None);
            };
            let t = t as usize;
            let into = if self.out.tiles[t].axes == [lane] {
                &mut bias
            } else if self.out.tiles[t].axes == self.out.tiles[acc].axes {
                &mut add
            } else {
                return Ok(None);
            };
            if t == dst || t == acc || into.replace(t).is_some() || !f32s(t) {
                return Ok(None);
            }
        }
        let mut before = Vec::new();
        for n in &nodes[..loads] {
            if let Node::Stmt(s) = n {
                self.stmt(s, &mut before)?;
            }
        }
        let all = args.iter().map(|&a| a as usize).collect();
        let map = self.map(dst, expr, all)?;
        let rest = match &parts.rest {
            Some(e) => Some(self.map(dst, e, vec![dst])?),
            None => None,
        };
        let post = CPost {
            map,
            dst,
            bias,
            add,
            lo: parts.lo,
            hi: parts.hi,
            rest,
        };
        Ok(Some((before, post, loads + 1)))
    }
}

/// Takes `e` apart; `acc` is the slot of the sums.
fn parts(e: &Expr, acc: u32) -> Option<Parts> {
    let [out] = e.outputs.as_slice() else {
        return None;
    };
    let users = |r: Ref| {
        let mut found = e
            .insts
            .iter()
            .enumerate()
            .filter(|(_, i)| i.args().any(|a| a == r));
        let first = found.next();
        match (first, found.next(), *out == r) {
            (Some((at, i)), None, false) => Some((at as Ref, i)),
            _ => None,
        }
    };
    let once = |r: Ref| users(r).is_some();
    let input = |r: Ref| match e.insts[r as usize] {
        Inst::Input {
            slot,
            dtype: DType::F32,
        } => Some(slot),
        _ => None,
    };
    let mut cur = e
        .insts
        .iter()
        .position(|i| matches!(i, Inst::Input { slot, dtype: DType::F32 } if *slot == acc))?
        as Ref;
    let mut p = Parts {
        added: vec![],
        lo: f32::NEG_INFINITY,
        hi: f32::INFINITY,
        rest: None,
    };
    while let Some((at, Inst::Binary(Binary::Add, a, b))) = users(cur) {
        let other = if *a == cur { *b } else { *a };
        let (Some(slot), true) = (input(other), once(other)) else {
            break;
        };
        if other == cur {
            break;
        }
        p.added.push(slot);
        cur = at;
    }
    let constant = |r: Ref| match e.insts[r as usize] {
        Inst::Float {
            bits,
            dtype: DType::F32,
        } => Some(f64::from_bits(bits) as f32),
        _ => None,
    };
    if let Some((at, Inst::Binary(Binary::Max, a, b))) = users(cur)
        && let Some(v) = constant(if *a == cur { *b } else { *a }).filter(|v| !v.is_nan())
    {
        (p.lo, cur) = (v, at);
    }
    if let Some((at, Inst::Binary(Binary::Min, a, b))) = users(cur)
        && let Some(v) = constant(if *a == cur { *b } else { *a }).filter(|v| !v.is_nan())
    {
        (p.hi, cur) = (v, at);
    }
    if cur == *out {
        return Some(p);
    }
    // What is left, of the sum alone.
    let mut rest = e.clone();
    rest.insts[cur as usize] = Inst::Input {
        slot: 0,
        dtype: DType::F32,
    };
    let mut used = vec![false; rest.insts.len()];
    let mut stack = vec![*out];
    while let Some(r) = stack.pop() {
        if std::mem::replace(&mut used[r as usize], true) {
            continue;
        }
        if r != cur && matches!(rest.insts[r as usize], Inst::Input { .. }) {
            return None;
        }
        stack.extend(rest.insts[r as usize].args());
    }
    for (i, used) in rest.insts.iter_mut().zip(&used) {
        if !used {
            *i = Inst::Float {
                bits: 0,
                dtype: DType::F32,
            };
        }
    }
    p.rest = Some(rest);
    Some(p)
}
