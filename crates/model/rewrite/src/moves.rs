//! Values that are moved about: pieces of one value side by side are one gather of whole blocks, and what several
//! moves in a row do is one.
use crate::edit::Edit;
use crate::{Error, Fuel, Rewritten};
use expr::{Compare, Expr, ExprBuilder, Inst};
use graph::{Graph, NodeId, Op, Origin, ValueId, ValueSource, View};
use layout::{DType, Dim, Layout};
use std::collections::HashMap;
use tensor::Tensor;

/// Elements of a block below which reading its number costs more than a move saves.
const BLOCK: i64 = 8;
/// Elements of a value that is moved at whatever blocks.
const SMALL: i64 = 4096;
/// Elements that are followed through several moves at most, and blocks that are gathered.
const MOST: i64 = 1 << 20;
/// Elements that are followed in all, over all moves of a graph.
const ALL: usize = 1 << 27;
/// Nodes that are followed at most.
const DEPTH: usize = 32;
/// Instructions of a piece's program at most: all of them are computed for every element.
const PROGRAM: usize = 8;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("moves", graph, fuel);
    for n in e.live() {
        if let Op::Concat { axis } = e.node(n).op
            && !e.is_dead(n)
            && !pieces(&mut e, n, axis)?
        {
            return Ok(e.finish());
        }
    }
    let mut follow = Follow {
        sources: HashMap::new(),
        left: ALL,
    };
    // The last of several moves first, so that it stands for all of them.
    for n in e.live().into_iter().rev() {
        let moves = matches!(
            e.node(n).op,
            Op::Concat { .. } | Op::Gather { batch: 0, .. }
        );
        if moves && !e.is_dead(n) && !chain(&mut e, &mut follow, n)? {
            break;
        }
    }
    Ok(e.finish())
}

/// A part of a value along the axis of a concatenation.
struct Piece {
    start: i64,
    extent: i64,
    /// What is done to its elements.
    map: Option<Expr>,
}

/// The value that `v` is a piece of along `axis`, and which.
fn piece(e: &Edit, v: ValueId, axis: usize) -> Option<(ValueId, Piece)> {
    let (v, map) = match e.unary(v) {
        Some((Op::Map(p), x)) if e.value(x).shape == e.value(v).shape && pure(p) => {
            (x, Some(p.clone()))
        }
        _ => (v, None),
    };
    let Some((
        Op::View(View::Slice {
            starts,
            steps,
            extents,
        }),
        x,
    )) = e.unary(v)
    else {
        let (start, extent) = (0, e.value(v).shape[axis].known()?);
        return Some((v, Piece { start, extent, map }));
    };
    let from = &e.value(x).shape;
    let whole = |d: usize| starts[d].is_zero() && extents[d] == from[d];
    if steps.iter().any(|&s| s != 1) || !(0..from.len()).all(|d| d == axis || whole(d)) {
        return None;
    }
    let (start, extent) = (starts[axis].known()?, extents[axis].known()?);
    Some((x, Piece { start, extent, map }))
}

/// Whether a program of one element gives one and says the same wherever the element stands.
pub(crate) fn pure(p: &Expr) -> bool {
    let same = |i: &Inst| !matches!(i, Inst::Index { .. });
    p.insts.len() <= PROGRAM && p.insts.iter().all(same) && p.outputs.len() == 1
}

/// A concatenation of pieces of one value is one gather of blocks of it. False when the fuel is spent.
fn pieces(e: &mut Edit, n: NodeId, axis: usize) -> Result<bool, Error> {
    let Some((x, list)) = of_one(e, n, axis) else {
        return Ok(true);
    };
    let (out, from) = (e.node(n).outputs[0], e.value(x).shape.clone());
    let Some(whole) = from[axis].known() else {
        return Ok(true);
    };
    let bounds = list.iter().flat_map(|p| [p.start, p.extent]);
    let block = bounds.fold(whole, gcd);
    let inner: Option<i64> = from[axis + 1..].iter().map(Dim::known).product();
    let size = e
        .value(out)
        .shape
        .iter()
        .map(Dim::known)
        .product::<Option<i64>>();
    let long = inner.is_none_or(|i| i.saturating_mul(block) >= BLOCK);
    if block == 0 || !long && size.is_none_or(|s| s > SMALL) {
        return Ok(true);
    }
    // The table of blocks has room.
    let blocks = list.iter().map(|p| p.extent / block);
    if blocks.fold(0, i64::saturating_add) > MOST {
        return Ok(true);
    }
    if !e.may(
        e.title(n),
        "the pieces of one value are gathered by one move",
    ) {
        return Ok(false);
    }
    let origins = e.node(n).origins.clone();
    let name = e.value(out).name.clone();
    let places = list
        .iter()
        .flat_map(|p| (p.start / block..).take((p.extent / block) as usize));
    let places: Vec<i64> = places.collect();
    let count = places.len();
    let x = match block {
        1 => x,
        _ => {
            let blocks = split(&from, axis, whole / block, block);
            let view = Op::View(View::Reshape(blocks));
            e.add(view, &[x], &format!("{name}.blocks"), &origins)?
        }
    };
    let by = table(e, &format!("{name}.places"), &places, &[count])?;
    let gather = Op::Gather { axis, batch: 0 };
    let mut y = e.add(gather, &[x, by], &format!("{name}.gathered"), &origins)?;
    let mut shape = from;
    shape[axis] = Dim::Known(block * count as i64);
    y = e.add(Op::View(View::Reshape(shape)), &[y], &name, &origins)?;
    if let Some(program) = by_piece(&list, axis, e.value(y).dtype) {
        y = e.add(Op::Map(program), &[y], &name, &origins)?;
    }
    spelt(e, out, y, &origins)?;
    Ok(true)
}

/// The value of which all inputs of concatenation `n` are pieces.
fn of_one(e: &Edit, n: NodeId, axis: usize) -> Option<(ValueId, Vec<Piece>)> {
    let node = e.node(n);
    if node.inputs.len() < 2 || e.value(node.outputs[0]).dtype.bits() < 8 {
        return None;
    }
    let mut source = None;
    let mut list = vec![];
    for &v in &node.inputs {
        let (x, p) = piece(e, v, axis)?;
        if *source.get_or_insert(x) != x {
            return None;
        }
        list.push(p);
    }
    let x = source?;
    let d = e.value(x).dtype;
    let fits = d == e.value(node.outputs[0]).dtype && !d.is_held() && !of_convolution(e, x);
    let some = list.iter().any(|p| p.extent > 0);
    (fits && some).then_some((x, list))
}

/// Whether `v` is made by a convolution or pool, or element by element from one: such values lie with channels
/// innermost, where no block is in one piece, and stay so through moves.
fn of_convolution(e: &Edit, v: ValueId) -> bool {
    let mut met = vec![v];
    let mut at = 0;
    while let Some(&v) = met.get(at).filter(|_| at < DEPTH) {
        at += 1;
        let Some(n) = e.writer(v) else { continue };
        let node = e.node(n);
        match node.op {
            Op::Conv(_) | Op::Pool(_) => return true,
            Op::Map(_) => {
                for &i in &node.inputs {
                    if e.value(i).shape == e.value(v).shape && !met.contains(&i) {
                        met.push(i);
                    }
                }
            }
            _ => {}
        }
    }
    false
}

/// The program that does to every element what its piece asks for; `None` where nothing is asked.
fn by_piece(list: &[Piece], axis: usize, d: DType) -> Option<Expr> {
    if list.iter().all(|p| p.map.is_none()) {
        return None;
    }
    let mut b = ExprBuilder::new();
    let x = b.input(0, d);
    let at = b.index(axis as u32);
    let mut value = None;
    let mut end: i64 = list.iter().map(|p| p.extent).sum();
    for p in list.iter().rev() {
        let own = match &p.map {
            Some(m) => b.inline(m, &[x], None)[0],
            None => x,
        };
        value = Some(match value {
            None => own,
            Some(after) => {
                let limit = b.int(end, DType::I64);
                let before = b.compare(Compare::Lt, at, limit);
                b.select(before, own, after)
            }
        });
        end -= p.extent;
    }
    value.map(|v| b.finish(&[v]))
}

/// Where the elements of a value come from.
struct Source {
    value: ValueId,
    /// For every element its number in the source.
    at: Vec<u32>,
    /// How the value lies in what was made last; moves that make something new begin again.
    layout: Layout,
    /// Moves that are needed to make it.
    moves: usize,
}

/// Several moves in a row as one gather of blocks. False when the fuel is spent.
fn chain(e: &mut Edit, follow: &mut Follow, n: NodeId) -> Result<bool, Error> {
    let out = e.node(n).outputs[0];
    let Some(s) = follow.shared(e, out, 0).and_then(|_| follow.source(e, out)) else {
        return Ok(true);
    };
    let shape: Vec<usize> = sizes(&e.value(out).shape).unwrap_or_default();
    let Some((outer, block)) = blocks(&s.at, &shape) else {
        return Ok(true);
    };
    let all = s.at.len() as i64;
    let from = Dim::product(&e.value(s.value).shape).known().unwrap_or(0);
    let long = block as i64 >= BLOCK || all <= SMALL;
    if s.moves < 2 || !long || from % block as i64 != 0 || s.value == out {
        return Ok(true);
    }
    if !e.may(e.title(n), "several moves in a row became one") {
        return Ok(false);
    }
    let origins = e.node(n).origins.clone();
    let name = e.value(out).name.clone();
    let places: Vec<i64> =
        s.at.chunks(block)
            .map(|c| i64::from(c[0]) / block as i64)
            .collect();
    let rows = vec![Dim::Known(from / block as i64), Dim::Known(block as i64)];
    let x = e.add(
        Op::View(View::Reshape(rows)),
        &[s.value],
        &format!("{name}.blocks"),
        &origins,
    )?;
    let by = table(e, &format!("{name}.places"), &places, &outer)?;
    let gather = Op::Gather { axis: 0, batch: 0 };
    let y = e.add(gather, &[x, by], &format!("{name}.gathered"), &origins)?;
    spelt(e, out, y, &origins)?;
    Ok(true)
}

/// Follows moves back to what they move.
struct Follow {
    /// What [`Follow::shared`] found.
    sources: HashMap<ValueId, Option<ValueId>>,
    /// Elements that may still be followed.
    left: usize,
}

impl Follow {
    /// The one value that all elements of `v` are of, as far as moves go; `None` for more than one, and where sizes
    /// are not known.
    fn shared(&mut self, e: &Edit, v: ValueId, depth: usize) -> Option<ValueId> {
        if let Some(known) = self.sources.get(&v) {
            return *known;
        }
        let found = self.shared_anew(e, v, depth);
        self.sources.insert(v, found);
        found
    }

    fn shared_anew(&mut self, e: &Edit, v: ValueId, depth: usize) -> Option<ValueId> {
        let value = e.value(v);
        let size = Dim::product(&value.shape).known()?;
        let moved = value.dtype.bits() >= 8 && !value.dtype.is_held();
        if size == 0 || size > MOST || !moved || depth > DEPTH {
            return None;
        }
        let Some(n) = e.writer(v) else {
            return Some(v);
        };
        let node = e.node(n);
        match &node.op {
            Op::View(View::Reshape(_) | View::Permute(_) | View::Slice { .. }) => {
                self.shared(e, node.inputs[0], depth + 1)
            }
            Op::Gather { batch: 0, .. } if places(e, node.inputs[1]).is_some() => {
                self.shared(e, node.inputs[0], depth + 1)
            }
            Op::Concat { .. } => {
                let first = self.shared(e, node.inputs[0], depth + 1)?;
                let mut rest = node.inputs[1..].iter();
                let same = rest.all(|&i| self.shared(e, i, depth + 1) == Some(first));
                same.then_some(first)
            }
            _ => (!of_convolution(e, v)).then_some(v),
        }
    }

    fn source(&mut self, e: &Edit, v: ValueId) -> Option<Source> {
        let own = &e.value(v).shape;
        let shape = sizes(own)?;
        let size: usize = shape.iter().product();
        self.left = self.left.checked_sub(size)?;
        let Some(node) = e.writer(v).map(|n| e.node(n)) else {
            return Some(Source::itself(v, own, size));
        };
        let from = match node.inputs.first() {
            Some(&i) => sizes(&e.value(i).shape)?,
            None => vec![],
        };
        match &node.op {
            Op::View(view) => {
                let mut s = self.source(e, node.inputs[0])?;
                // Another shape leaves elements in their order.
                if !matches!(view, View::Reshape(_)) {
                    s.at = picked(&s.at, &e.value(node.inputs[0]).shape, view)?;
                }
                let layout = view.of(&s.layout);
                s.moves += usize::from(layout.is_none());
                s.layout = layout.unwrap_or_else(|| Layout::row_major(own, 1));
                Some(s)
            }
            Op::Gather { axis, batch: 0 } => {
                let mut s = self.source(e, node.inputs[0])?;
                // An axis that lies in several parts is put together first.
                s.moves += 1 + usize::from(s.layout.modes[*axis].coalesce().leaves.len() > 1);
                s.at = gathered(&s.at, &places(e, node.inputs[1])?, &from[*axis..])?;
                s.layout = Layout::row_major(own, 1);
                Some(s)
            }
            Op::Concat { axis } => {
                let (mut parts, mut moves, mut value) = (vec![], 0, v);
                for &i in &node.inputs {
                    let s = self.source(e, i)?;
                    let len: usize = sizes(&e.value(i).shape)?[*axis..].iter().product();
                    moves += s.moves + 1;
                    value = s.value;
                    parts.push((s.at, len));
                }
                let outer: usize = from[..*axis].iter().product();
                let row = |o: usize| {
                    parts
                        .iter()
                        .flat_map(move |(at, len)| &at[o * len..(o + 1) * len])
                };
                let at = (0..outer).flat_map(row).copied().collect();
                Some(Source {
                    value,
                    at,
                    layout: Layout::row_major(own, 1),
                    moves,
                })
            }
            _ => Some(Source::itself(v, own, size)),
        }
    }
}

impl Source {
    fn itself(value: ValueId, shape: &[Dim], size: usize) -> Source {
        Source {
            value,
            at: (0..size as u32).collect(),
            layout: Layout::row_major(shape, 1),
            moves: 0,
        }
    }
}

/// The slices `by` of `at` along the first of its dimensions `shape`, for each of those outside.
fn gathered(at: &[u32], by: &[i64], shape: &[usize]) -> Option<Vec<u32>> {
    let (extent, inner) = (shape[0], shape[1..].iter().product::<usize>());
    let row = |r: &[u32]| -> Option<Vec<u32>> {
        let of = |&p: &i64| {
            let p = usize::try_from(if p < 0 { p + extent as i64 } else { p }).ok()?;
            r.get(p * inner..(p + 1) * inner)
        };
        Some(by.iter().map(of).collect::<Option<Vec<_>>>()?.concat())
    };
    Some(
        at.chunks(extent * inner)
            .map(row)
            .collect::<Option<Vec<_>>>()?
            .concat(),
    )
}

/// The elements of `at`, of this shape, that `view` shows.
fn picked(at: &[u32], shape: &[Dim], view: &View) -> Option<Vec<u32>> {
    let seen = view.of(&Layout::row_major(shape, 1))?;
    let mut all = vec![seen.offset.known()?];
    for leaf in seen.modes.iter().flat_map(|m| &m.leaves) {
        let (extent, stride) = (leaf.extent.known()?, leaf.stride.known()?);
        let each = usize::try_from(extent).unwrap_or(0);
        let mut more = Vec::with_capacity(all.len().checked_mul(each)?);
        for &p in &all {
            more.extend((0..extent).map(|i| p + i * stride));
        }
        all = more;
    }
    all.iter()
        .map(|&p| at.get(usize::try_from(p).ok()?).copied())
        .collect()
}

/// The shape of the numbers of blocks and the elements of a block: the longest that lie in one piece at a multiple of
/// their size, where a block is all of the inner dimensions and an even part of the one before them.
fn blocks(at: &[u32], shape: &[usize]) -> Option<(Vec<usize>, usize)> {
    let fits = |block: usize| {
        let whole = |c: &[u32]| {
            (c[0] as usize).is_multiple_of(block) && c.windows(2).all(|w| w[1] == w[0] + 1)
        };
        block > 0 && at.chunks(block).all(whole)
    };
    (0..=shape.len()).find_map(|dims| {
        let inner: usize = shape[dims..].iter().product();
        if !fits(inner) {
            return None;
        }
        let mut outer = shape[..dims].to_vec();
        let mut block = inner;
        if let Some(last) = outer.last_mut() {
            let parts = (1..=*last).filter(|p| last.is_multiple_of(*p));
            let parts = parts
                .into_iter()
                .find(|p| fits(inner * (*last / p)))
                .unwrap_or(*last);
            block = inner * (*last / parts);
            *last = parts;
        }
        Some((outer, block))
    })
}

/// The contents of a constant of indices.
fn places(e: &Edit, v: ValueId) -> Option<Vec<i64>> {
    let value = e.value(v);
    if let Some(ints) = &value.ints {
        return ints.iter().map(Dim::known).collect();
    }
    let ValueSource::Weight(w) = value.source else {
        return None;
    };
    let index = matches!(value.dtype, DType::I32 | DType::I64);
    let t = e
        .graph()
        .weights
        .tensor(w)
        .filter(|t| index && t.len() as i64 <= MOST)?;
    Some((0..t.len()).map(|i| t.get_i64(i)).collect())
}

/// A constant of indices.
fn table(e: &mut Edit, name: &str, places: &[i64], shape: &[usize]) -> Result<ValueId, Error> {
    let mut t = Tensor::zeros(DType::I32, shape)?;
    for (i, &p) in places.iter().enumerate() {
        t.set_i64(i, p);
    }
    e.constant(name, t, None)
}

/// Lets every reader of `out` read `y`, of as many elements in the same order.
fn spelt(e: &mut Edit, out: ValueId, y: ValueId, origins: &[Origin]) -> Result<(), Error> {
    let (dtype, shape) = (e.value(out).dtype, e.value(out).shape.clone());
    let name = e.value(out).name.clone();
    let view = Op::View(View::Reshape(shape.clone()));
    let y = e.add_typed(view, &[y], vec![(dtype, shape)], &name, origins)?;
    e.replace(out, y);
    Ok(())
}

fn split(shape: &[Dim], axis: usize, outer: i64, inner: i64) -> Vec<Dim> {
    let mut out = shape.to_vec();
    out.splice(axis..=axis, [Dim::Known(outer), Dim::Known(inner)]);
    out
}

fn sizes(shape: &[Dim]) -> Option<Vec<usize>> {
    shape
        .iter()
        .map(|d| usize::try_from(d.known()?).ok())
        .collect()
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
