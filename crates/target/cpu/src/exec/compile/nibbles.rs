//! Loads of numbers of 4 bits and of what scales them, the map that does, and the product that reads it.
use super::Compiler;
use crate::exec::{CMap, CNibbles, Op};
use expr::{Dequantise, Expr, Zero};
use kernel::{AxisId, Node, OperandId, Place, Stmt, TileId};
use layout::DType;

/// Operations one by one, and the fill with zeros that comes before them.
type OneByOne = (Vec<Op>, Option<CMap>);

/// The statements that are looked for.
struct Found {
    /// Tiles with the operands that they are loaded from.
    loads: Vec<(TileId, OperandId)>,
    /// What fills the accumulator: its place among the statements, its tile and its program.
    fill: Option<(usize, TileId, Expr)>,
    /// The map that scales numbers of 4 bits: its tile, what it does, and its arguments.
    map: (TileId, Dequantise, Vec<TileId>),
    /// Accumulator, factors and summed axes.
    product: (TileId, TileId, TileId, Vec<AxisId>),
    /// Statements up to the product.
    taken: usize,
}

fn found(nodes: &[Node]) -> Option<Found> {
    let mut loads = Vec::new();
    let mut map = None;
    let mut fill = None;
    let mut product = None;
    for (i, n) in nodes.iter().enumerate().take(9) {
        let Node::Stmt(stmt) = n else { break };
        match stmt {
            Stmt::Load { dst, operand } => loads.push((*dst, *operand)),
            Stmt::Map { dst, expr, args } if args.is_empty() => {
                fill = Some((i, *dst, expr.clone()));
            }
            Stmt::Map { dst, expr, args } if map.is_none() => {
                let Some(steps) = expr.as_dequantise() else {
                    break;
                };
                map = Some((*dst, steps, args.clone()));
            }
            Stmt::Contract { acc, a, b, over } => {
                product = Some(((*acc, *a, *b, over.clone()), i + 1));
                break;
            }
            _ => break,
        }
    }
    let (product, taken) = product?;
    Some(Found {
        loads,
        fill,
        map: map?,
        product,
        taken,
    })
}

impl Compiler<'_> {
    /// Statement by statement, for where something does not lie so; its own fill, which must be with zeros,
    /// comes before.
    fn one_by_one(
        &mut self,
        nodes: &[Node],
        fill: &Option<(usize, TileId, Expr)>,
    ) -> Result<Option<OneByOne>, String> {
        let mut body: Vec<Op> = Vec::new();
        let mut zero = None;
        for (i, n) in nodes.iter().enumerate() {
            let Node::Stmt(stmt) = n else { continue };
            match fill {
                Some((at, dst, expr)) if *at == i => {
                    let m = self.map(*dst as usize, expr, vec![])?;
                    if !m.prog.is_zero() {
                        return Ok(None);
                    }
                    zero = Some(m);
                }
                _ => self.stmt(stmt, &mut body)?,
            }
        }
        Ok(Some((body, zero)))
    }

    /// Such statements at the beginning of `nodes`; nodes taken.
    pub(super) fn nibbles(&mut self, nodes: &[Node]) -> Result<Option<(CNibbles, usize)>, String> {
        let k = self.program.kernel();
        let s = self.program.schedule();
        let Some(Found {
            loads,
            fill,
            map: (wide, steps, args),
            product: (acc, a, b, over),
            taken,
        }) = found(nodes)
        else {
            return Ok(None);
        };
        let a = match (a == wide, b == wide) {
            (true, false) => b,
            (false, true) => a,
            _ => return Ok(None),
        };
        let from = |t: u16| loads.iter().find(|l| l.0 == t).map(|l| l.1 as usize);
        let arg = |slot: u32| from(*args.get(slot as usize)?);
        let zeros = match steps.zero {
            Zero::Slot(z) => arg(z),
            Zero::Known(_) => None,
        };
        let (Some(oa), Some(numbers), Some(scales)) = (from(a), arg(steps.x), arg(steps.scale))
        else {
            return Ok(None);
        };
        let dtype = |o: usize| k.operands[o].dtype;
        let readers = |t: u16| k.body.iter().filter(|s| s.reads().contains(&t)).count();
        let f32s = [Some(oa), Some(scales), zeros];
        let fits = matches!(dtype(numbers), DType::U4 | DType::I4)
            && f32s.into_iter().flatten().all(|o| dtype(o) == DType::F32)
            && k.tiles[acc as usize].dtype == DType::F32
            && loads.len() == 3 + usize::from(zeros.is_some())
            && readers(wide) == 1
            && loads.iter().all(|l| readers(l.0) == 1)
            && loads.iter().all(|l| s.place(l.0) == Place::InPlace)
            && k.operands[oa].access.bounds.is_empty()
            && k.operands[oa].access.indexed.is_empty();
        let mine = fill.as_ref().is_none_or(|f| f.1 == acc);
        let (&[outer, inner], true) = (over.as_slice(), fits && mine) else {
            return Ok(None);
        };
        let axes = &k.tiles[acc as usize].axes;
        let has = |o: usize, x: u16| k.operands[o].access.term(x).is_some();
        let lane: Vec<u16> = axes.iter().copied().filter(|&x| has(numbers, x)).collect();
        let (&[lane], false) = (lane.as_slice(), has(scales, inner)) else {
            return Ok(None);
        };
        let rows: Vec<usize> = axes
            .iter()
            .filter(|&&x| x != lane)
            .map(|&x| x as usize)
            .collect();
        if has(oa, lane) {
            return Ok(None);
        }
        let Some((body, zero)) = self.one_by_one(&nodes[..taken], &fill)? else {
            return Ok(None);
        };
        let cap = |x: usize| self.caps[x].max(1) as usize;
        let room = rows.iter().map(|&x| cap(x)).product::<usize>() * cap(outer as usize);
        let totals = self.out.scratch;
        self.out.scratch += super::round(room * 4 + 64);
        Ok(Some((
            CNibbles {
                acc: acc as usize,
                a: a as usize,
                oa,
                numbers,
                scales,
                zeros,
                zero: match steps.zero {
                    Zero::Known(z) => z as f32,
                    Zero::Slot(_) => 0.0,
                },
                rows,
                lane: lane as usize,
                outer: outer as usize,
                inner: inner as usize,
                totals,
                room,
                fill: zero,
                body,
            },
            taken,
        )))
    }
}
