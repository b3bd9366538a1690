//! Products of one value by several constants are one product by the constants side by side: queries, keys and values
//! of an attention. The value is read once, and one product keeps more workers busy than each of several. The constants
//! are put together by a node of constants, which runs once when a model is loaded.
use crate::edit::Edit;
use crate::pattern::constants;
use crate::{Error, Fuel, Rewritten};
use expr::{Binary, ExprBuilder, Inst};
use graph::{ContractSpec, Graph, NodeId, Op, Origin, ValueId, ValueSource, View};
use layout::{DType, Dim};
use std::collections::BTreeMap;
use tensor::Tensor;

/// Nodes of constants that are looked through.
const DEPTH: usize = 4;
/// Columns of a product that is looked at, at most.
const COLUMNS: i64 = 1 << 20;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let constant = constants(&graph);
    let mut e = Edit::new("shared", graph, fuel);
    let mut groups: BTreeMap<(ValueId, Vec<u8>, usize), Vec<Product>> = BTreeMap::new();
    for n in e.live() {
        if let Some(p) = product(&e, n, &constant) {
            let labels = [&p.spec.a[..], &p.spec.b, &p.spec.out].concat();
            let key = (e.node(n).inputs[0], renumbered(&labels), p.spec.a.len());
            groups.entry(key).or_default().push(p);
        }
    }
    for ((x, ..), list) in groups.into_iter().filter(|g| g.1.len() > 1) {
        let names: Vec<String> = list.iter().map(|p| e.title(p.node)).collect();
        if !e.may(names.join(", "), "products of the same value became one") {
            break;
        }
        side_by_side(&mut e, x, &list)?;
    }
    Ok(e.finish())
}

/// A product by a constant whose columns are the result's last dimension.
struct Product {
    node: NodeId,
    spec: ContractSpec,
    weight: ValueId,
    /// What is added to every row.
    bias: Option<ValueId>,
    /// The product, with the bias.
    result: ValueId,
    columns: i64,
    dtype: DType,
}

fn product(e: &Edit, n: NodeId, constant: &[bool]) -> Option<Product> {
    let node = e.node(n);
    let Op::Contract(spec) = &node.op else {
        return None;
    };
    let (x, weight, out) = (node.inputs[0], node.inputs[1], node.outputs[0]);
    let is_const = |v: ValueId| constant.get(v.0 as usize).is_some_and(|c| *c);
    let dtype = e.value(out).dtype;
    let floats = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    if !floats || e.value(x).dtype != dtype || !is_const(weight) || is_const(x) {
        return None;
    }
    let last = *spec.out.last()?;
    let free = |l: &&u8| spec.out.contains(l);
    let own: Vec<&u8> = spec.b.iter().filter(free).collect();
    if own != [&last] || spec.a.contains(&last) || !as_stored(e, weight, dtype, 0) {
        return None;
    }
    let columns = e.value(out).shape.last()?.known()?;
    let added = e.only_reader(out).and_then(|r| bias(e, r, out, columns));
    let (bias, result) = match added {
        Some((bias, sum)) if is_const(bias) => (Some(bias), sum),
        _ => (None, out),
    };
    // What is computed of it element by element is better done as the product is made.
    let looks = |r: &NodeId| matches!(e.node(*r).op, Op::View(_) | Op::Attention(_));
    let only_seen = e.readers(result).iter().all(looks) && !e.is_pinned(result);
    ((1..=COLUMNS).contains(&columns) && only_seen).then(|| Product {
        node: n,
        spec: spec.clone(),
        weight,
        bias,
        result,
        columns,
        dtype,
    })
}

/// Whether constant `v` is stored in `dtype`: others are unpacked by the products that read them.
fn as_stored(e: &Edit, v: ValueId, dtype: DType, depth: usize) -> bool {
    let stored = e.value(v).dtype == dtype && depth <= DEPTH;
    stored
        && match e.writer(v) {
            None => matches!(e.value(v).source, ValueSource::Weight(_)),
            Some(n) => {
                let mut inputs = e.node(n).inputs.iter();
                inputs.all(|&i| as_stored(e, i, dtype, depth + 1))
            }
        }
}

/// What node `r` adds to every row of `product`, and its result, if it does that alone.
fn bias(e: &Edit, r: NodeId, product: ValueId, columns: i64) -> Option<(ValueId, ValueId)> {
    let node = e.node(r);
    let (Op::Map(p), &[a, b]) = (&node.op, node.inputs.as_slice()) else {
        return None;
    };
    let adds = |i: &Inst| match i {
        Inst::Binary(f, ..) => *f == Binary::Add,
        i => matches!(i, Inst::Input { .. }),
    };
    let other = if a == product { b } else { a };
    let sum = node.outputs[0];
    let row = e.value(other).shape == [Dim::Known(columns)];
    let same =
        e.value(sum).shape == e.value(product).shape && e.value(other).dtype == e.value(sum).dtype;
    let plain = p.insts.len() == 3 && p.insts.iter().all(adds) && a != b;
    (plain && row && same).then_some((other, sum))
}

/// Labels by the order in which they are met.
fn renumbered(labels: &[u8]) -> Vec<u8> {
    let mut met: Vec<u8> = vec![];
    let mut of = |l: &u8| match met.iter().position(|m| m == l) {
        Some(at) => at as u8,
        None => {
            met.push(*l);
            met.len() as u8 - 1
        }
    };
    labels.iter().map(&mut of).collect()
}

fn side_by_side(e: &mut Edit, x: ValueId, list: &[Product]) -> Result<(), Error> {
    let first = &list[0];
    let name = e.value(first.result).name.clone();
    let mut origins: Vec<Origin> = vec![];
    for p in list {
        let writer = e.writer(p.result).unwrap_or(p.node);
        let own = [
            e.node(p.node).origins.clone(),
            e.node(writer).origins.clone(),
        ];
        let new = own.concat().into_iter().filter(|o| !origins.contains(o));
        let new: Vec<Origin> = new.collect();
        origins.extend(new);
    }
    let label = first.spec.out[first.spec.out.len() - 1];
    let axis = first.spec.b.iter().position(|l| *l == label).unwrap_or(0);
    let weights: Vec<ValueId> = list.iter().map(|p| p.weight).collect();
    let w = e.add(
        Op::Concat { axis },
        &weights,
        &format!("{name}.weights"),
        &origins,
    )?;
    let op = Op::Contract(first.spec.clone());
    let mut y = e.add(op, &[x, w], &format!("{name}.shared"), &origins)?;
    if list.iter().any(|p| p.bias.is_some()) {
        let mut biases = vec![];
        for p in list {
            biases.push(match p.bias {
                Some(b) => b,
                None => {
                    let zeros = Tensor::zeros(first.dtype, &[p.columns as usize])?;
                    e.constant(&format!("{name}.zeros"), zeros, None)?
                }
            });
        }
        let concat = Op::Concat { axis: 0 };
        let bias = e.add(concat, &biases, &format!("{name}.biases"), &origins)?;
        let mut b = ExprBuilder::new();
        let (product, added) = (b.input(0, first.dtype), b.input(1, first.dtype));
        let sum = b.add(product, added);
        let op = Op::Map(b.finish(&[sum]));
        y = e.add(op, &[y, bias], &format!("{name}.biased"), &origins)?;
    }
    let all = e.value(y).shape.clone();
    let rank = all.len();
    let mut at = 0;
    for p in list {
        let (mut starts, mut extents) = (vec![Dim::ZERO; rank], all.clone());
        (starts[rank - 1], extents[rank - 1]) = (Dim::Known(at), Dim::Known(p.columns));
        let steps = vec![1; rank];
        let slice = Op::View(View::Slice {
            starts,
            steps,
            extents,
        });
        let (shape, hint) = (
            e.value(p.result).shape.clone(),
            e.value(p.result).name.clone(),
        );
        let part = e.add_typed(slice, &[y], vec![(p.dtype, shape)], &hint, &origins)?;
        e.replace(p.result, part);
        at += p.columns;
    }
    Ok(())
}
