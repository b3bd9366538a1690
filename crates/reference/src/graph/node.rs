use super::{Symbols, Watch, attention, contract, control, conv, map, reduce};
use crate::error::R;
use graph::{Graph, Node, Op, View};
use hostops::PoolWindow;
use layout::DType;
use std::rc::Rc;
use tensor::Tensor;

/// Evaluates one node.
pub(crate) fn run(
    graph: &Graph,
    node: &Node,
    args: &[Rc<Tensor>],
    symbols: &Symbols,
    watch: Watch,
) -> R<Vec<Rc<Tensor>>> {
    match &node.op {
        Op::If {
            then_branch,
            else_branch,
        } => {
            return control::branch(then_branch, else_branch, args, symbols, watch);
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
            return control::repeat(&what, args, symbols, watch);
        }
        _ => {}
    }
    let inputs: Vec<&Tensor> = args.iter().map(|t| &**t).collect();
    let results = plain(graph, node, &inputs, symbols)?;
    Ok(results.into_iter().map(Rc::new).collect())
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
        Op::View(View::Reshape(s)) => vec![hostops::reshape(input(0)?, &symbols.shape(s)?)?],
        Op::View(View::Permute(p)) => vec![hostops::permute(input(0)?, p)?],
        Op::View(View::Slice {
            starts,
            steps,
            extents,
        }) => vec![hostops::slice(
            input(0)?,
            &symbols.dims(starts)?,
            steps,
            &symbols.shape(extents)?,
        )?],
        Op::View(View::Expand(s)) => vec![hostops::expand(input(0)?, &symbols.shape(s)?)?],
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
        Op::Gather { axis } => vec![hostops::gather(input(0)?, input(1)?, *axis)?],
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
        Op::Pool(s) => {
            let shape = declared()?.1;
            let window = PoolWindow {
                kernel: s.kernel.clone(),
                strides: s.strides.clone(),
                dilations: s.dilations.clone(),
                before: symbols.dims(&s.before)?,
                after: symbols.dims(&s.after)?,
                out: shape.get(2..).unwrap_or(&[]).to_vec(),
            };
            vec![hostops::pool(input(0)?, &s.kind, &window)?]
        }
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
        Op::Host { name, attrs } => {
            let given: Vec<Option<&Tensor>> = inputs.iter().map(|t| Some(*t)).collect();
            hostops::run(name, attrs, &given)?
        }
        Op::If { .. } | Op::Loop { .. } => return Err("control flow is handled elsewhere".into()),
    })
}
