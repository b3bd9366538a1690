//! LSTM, GRU, RNN.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use graph::{Op, RecurrentKind, RecurrentSpec};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("LSTM", lower), op("GRU", lower), op("RNN", lower)];

/// Activations that take parameters, with the standard's values.
fn parameters(name: &str) -> (Option<f64>, Option<f64>) {
    match name {
        "Affine" => (Some(1.0), Some(0.0)),
        "LeakyRelu" => (Some(0.01), None),
        "ThresholdedRelu" | "Elu" => (Some(1.0), None),
        "ScaledTanh" => (Some(1.7159), Some(0.666_666_7)),
        "HardSigmoid" => (Some(0.2), Some(0.5)),
        _ => (None, None),
    }
}

/// The shapes that the standard gives the inputs where X has the shape `x`.
fn shapes(spec: &RecurrentSpec, x: &[Dim]) -> Vec<Vec<Dim>> {
    let [outer, inner, width] = x else {
        return vec![];
    };
    let batch = if spec.batch_first { outer } else { inner };
    let (dirs, hidden) = (Dim::from(spec.directions()), Dim::Known(spec.hidden));
    let rows = |gates: i64| Dim::Known(gates) * hidden.clone();
    let state = match spec.batch_first {
        true => vec![batch.clone(), dirs.clone(), hidden.clone()],
        false => vec![dirs.clone(), batch.clone(), hidden.clone()],
    };
    vec![
        x.to_vec(),
        vec![dirs.clone(), rows(spec.gates()), width.clone()],
        vec![dirs.clone(), rows(spec.gates()), hidden.clone()],
        vec![dirs.clone(), rows(2 * spec.gates())],
        vec![batch.clone()],
        state.clone(),
        state,
        vec![dirs, rows(3)],
    ]
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let (kind, most, default): (_, usize, &[&str]) = match n.op {
        "LSTM" => (RecurrentKind::Lstm, 8, &["Sigmoid", "Tanh", "Tanh"]),
        "GRU" => (RecurrentKind::Gru, 6, &["Sigmoid", "Tanh"]),
        _ => (RecurrentKind::Rnn, 6, &["Tanh"]),
    };
    n.at_most(most)?;
    let direction = n.text("direction", "forward")?;
    let directions = match direction.as_str() {
        "forward" | "reverse" => 1,
        "bidirectional" => 2,
        d => return Err(format!("attribute 'direction' is '{d}', it must be forward, reverse or bidirectional").into()),
    };
    let r = n.input(2)?;
    let from_weight = c.shape(r).last().and_then(|d| d.known());
    let hidden = n.int_opt("hidden_size")?.or(from_weight).filter(|h| *h > 0).ok_or("attribute 'hidden_size' must be a positive number")?;
    let activations = match n.texts("activations")? {
        Some(a) if !a.is_empty() => a,
        _ => default.iter().map(|s| s.to_string()).cycle().take(default.len() * directions).collect(),
    };
    if activations.len() != default.len() * directions {
        return Err(format!("has {} activations, it needs {}", activations.len(), default.len() * directions).into());
    }
    // The model lists parameters only for activations that take some.
    let (given_a, given_b) = (n.floats("activation_alpha")?.unwrap_or_default(), n.floats("activation_beta")?.unwrap_or_default());
    let (mut next_a, mut next_b) = (given_a.into_iter(), given_b.into_iter());
    let (mut alphas, mut betas) = (Vec::new(), Vec::new());
    for a in &activations {
        let (alpha, beta) = parameters(a);
        alphas.push(alpha.map_or(0.0, |d| next_a.next().unwrap_or(d)));
        betas.push(beta.map_or(0.0, |d| next_b.next().unwrap_or(d)));
    }
    if n.opset < 7 {
        // It said whether the first output is wanted, which the list of outputs says too.
        n.flag("output_sequence", false)?;
    }
    let spec = RecurrentSpec {
        kind,
        hidden,
        direction,
        batch_first: n.flag("layout", false)?,
        present: (0..8).map(|i| n.opt(i).is_some()).collect(),
        activations,
        alphas,
        betas,
        clip: n.float_opt("clip")?,
        linear_before_reset: kind == RecurrentKind::Gru && n.flag("linear_before_reset", false)?,
        input_forget: kind == RecurrentKind::Lstm && n.flag("input_forget", false)?,
    };
    let (x, _) = (n.input(0)?, n.input(1)?);
    let mut all = n.inputs.clone();
    if let Some(lengths) = n.opt(4) {
        let sequence = c.shape(x).get(usize::from(spec.batch_first)).cloned().ok_or("X must have rank 3")?;
        all[4] = Some(c.lengths(n, lengths, &sequence)?);
    }
    let shapes = shapes(&spec, &c.shape(x));
    for (i, (v, shape)) in all.iter_mut().zip(&shapes).enumerate() {
        if let (Some(v), 1..) = (v, i) {
            *v = c.has_shape(n, n.tmp(&format!("input{i}")), *v, shape)?;
        }
    }
    let inputs: Vec<_> = all.into_iter().flatten().collect();
    let count = if kind == RecurrentKind::Lstm { 3 } else { 2 };
    let names: Vec<String> = (0..count).map(|i| n.name(i)).collect();
    let ys = c.add(n, Op::Recurrent(spec), &inputs, &names)?;
    for (i, y) in ys.into_iter().enumerate() {
        c.set(n, i, y);
    }
    Ok(())
}
