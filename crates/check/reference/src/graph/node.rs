//! One node: which interpreter runs it.
use super::symbols::{Evaluate, Symbols, Watch};
use super::{attention, contract, control, conv, map, reduce};
use crate::error::R;
use crate::{Memory, run_kernel};
use graph::{Graph, Node, Op, PoolSpec, View};
use hostops::PoolWindow;
use kernel::{Kernel, Role};
use layout::DType;
use std::rc::Rc;
use tensor::Tensor;

/// Evaluates one node, and the bodies that it holds by `evaluate`.
pub(crate) fn run(
    graph: &Graph,
    node: &Node,
    args: &[Rc<Tensor>],
    symbols: &Symbols,
    watch: Watch,
    evaluate: Evaluate,
) -> R<Vec<Rc<Tensor>>> {
    match &node.op {
        Op::If {
            then_branch,
            else_branch,
        } => {
            return control::branch(then_branch, else_branch, args, symbols, watch, evaluate);
        }
        Op::Loop {
            body,
            carried,
            has_trip,
            has_cond,
        } => {
            let what = control::Repeat {
                body,
                carried: *carried,
                trip: *has_trip,
                cond: *has_cond,
            };
            return control::repeat(&what, args, symbols, watch, evaluate);
        }
        _ => {}
    }
    let inputs: Vec<&Tensor> = args.iter().map(|t| &**t).collect();
    let results = plain(graph, node, &inputs, symbols)?;
    Ok(results.into_iter().map(Rc::new).collect())
}

/// A kernel by its text.
fn custom(
    graph: &Graph,
    node: &Node,
    text: &str,
    inputs: &[&Tensor],
    symbols: &Symbols,
) -> R<Vec<Tensor>> {
    let kernel = Kernel::parse(text).map_err(|e| e.to_string())?;
    let mut inputs = inputs.iter();
    let mut outputs = node.outputs.iter();
    let mut memory = Memory::new();
    let mut made = vec![];
    for (i, o) in kernel.operands.iter().enumerate() {
        let t = match o.role {
            Role::Read => inputs.next().map(|t| Tensor::clone(t)),
            Role::Write => match outputs.next() {
                Some(&v) => {
                    made.push(i as u16);
                    Some(Tensor::zeros(
                        o.dtype,
                        &symbols.shape(&graph.value(v).shape)?,
                    )?)
                }
                None => None,
            },
        };
        memory.bind(
            i as u16,
            t.ok_or("a kernel has more operands than its node tensors")?,
        );
    }
    let lookup = |s: &str| symbols.get(s);
    run_kernel(&kernel, &lookup, &mut memory).map_err(|e| e.to_string())?;
    let of = |&i: &u16| {
        memory
            .get(i)
            .cloned()
            .ok_or_else(|| "it writes nothing".into())
    };
    made.iter().map(of).collect()
}

fn view(v: &View, x: &Tensor, symbols: &Symbols) -> R<Tensor> {
    Ok(match v {
        View::Reshape(s) => hostops::reshape(x, &symbols.shape(s)?)?,
        View::Permute(p) => hostops::permute(x, p)?,
        View::Slice {
            starts,
            steps,
            extents,
        } => hostops::slice(x, &symbols.dims(starts)?, steps, &symbols.shape(extents)?)?,
        View::Expand(s) => hostops::expand(x, &symbols.shape(s)?)?,
    })
}

/// A pool whose output has `shape`.
fn pool(s: &PoolSpec, x: &Tensor, shape: &[usize], symbols: &Symbols) -> R<Tensor> {
    let window = PoolWindow {
        kernel: s.kernel.clone(),
        strides: s.strides.clone(),
        dilations: s.dilations.clone(),
        before: symbols.dims(&s.before)?,
        after: symbols.dims(&s.after)?,
        out: shape.get(2..).unwrap_or(&[]).to_vec(),
    };
    Ok(hostops::pool(x, &s.kind, &window)?)
}

fn plain(graph: &Graph, node: &Node, inputs: &[&Tensor], symbols: &Symbols) -> R<Vec<Tensor>> {
    let input = |i: usize| -> R<&Tensor> {
        inputs
            .get(i)
            .copied()
            .ok_or_else(|| format!("input {i} is missing").into())
    };
    // Type and shape that output 0 is declared with.
    let declared = || -> R<(DType, Vec<usize>)> {
        let o = node.outputs.first().ok_or("the node has no output")?;
        let v = graph.value(*o);
        Ok((v.dtype, symbols.shape(&v.shape)?))
    };
    Ok(match &node.op {
        Op::Map(e) => {
            let types = node
                .outputs
                .iter()
                .map(|o| {
                    Ok((
                        graph.value(*o).dtype,
                        symbols.shape(&graph.value(*o).shape)?,
                    ))
                })
                .collect::<R<Vec<_>>>()?;
            map::run(e, inputs, &types, symbols)?
        }
        Op::View(v) => vec![view(v, input(0)?, symbols)?],
        Op::Concat { axis } => vec![hostops::concat(inputs, *axis)?],
        Op::Pad {
            before,
            after,
            mode,
        } => vec![hostops::pad(
            input(0)?,
            inputs.get(1).copied(),
            &symbols.dims(before)?,
            &symbols.dims(after)?,
            *mode,
        )?],
        Op::Gather { axis, batch } => {
            vec![hostops::gather(input(0)?, input(1)?, *axis, *batch)?]
        }
        Op::ScatterNd(r) => vec![hostops::scatter_nd(input(0)?, input(1)?, input(2)?, *r)?],
        Op::Contract(s) => vec![contract::run(s, input(0)?, input(1)?, declared()?.0)?],
        Op::Conv(s) => {
            let (d, shape) = declared()?;
            vec![conv::run(
                s,
                input(0)?,
                input(1)?,
                &symbols.dims(&s.before)?,
                d,
                &shape,
            )?]
        }
        Op::Pool(s) => vec![pool(s, input(0)?, &declared()?.1, symbols)?],
        Op::Reduce { monoid, axes, keep } => reduce::run(monoid, axes, *keep, inputs, symbols)?,
        Op::Scan {
            monoid,
            axis,
            exclusive,
            reverse,
        } => {
            let lookup = |s: &str| symbols.get(s);
            hostops::scan(inputs, monoid, *axis, *exclusive, *reverse, &lookup)?
        }
        Op::Attention(s) => vec![attention::run(s, inputs, declared()?.0, symbols)?],
        Op::Recurrent(s) => hostops::recurrent(s, inputs)?,
        Op::Sort {
            axis,
            k,
            descending,
        } => {
            let (v, i) = hostops::sort(input(0)?, *axis, symbols.extent(k)?, *descending)?;
            vec![v, i]
        }
        Op::Resample(s) => vec![hostops::resample(s, input(0)?, &declared()?.1)?],
        Op::Kernel(spec) => custom(graph, node, &spec.text, inputs, symbols)?,
        Op::Host { name, attrs } => {
            let given: Vec<Option<&Tensor>> = inputs.iter().map(|t| Some(*t)).collect();
            hostops::run(name, attrs, &given)?
        }
        Op::If { .. } | Op::Loop { .. } => return Err("control flow is handled elsewhere".into()),
    })
}
