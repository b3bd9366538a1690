//! Core ops as a plan's host steps: their specification comes as JSON in the attribute `spec`.
use super::{recurrent, resample, scan, scatter_nd, sort};
use crate::HostError;
use graph::{HostSpec, RecurrentSpec, ResampleSpec};
use layout::Dim;
use serde::de::DeserializeOwned;
use tensor::{Attr, Attrs, Tensor};

fn fail(op: &str, why: impl Into<String>) -> HostError {
    HostError::Op {
        op: op.into(),
        why: why.into(),
    }
}

/// A core op's specification out of a step's attributes.
pub(crate) fn spec<T: DeserializeOwned>(name: &str, attrs: &Attrs) -> Result<T, HostError> {
    let Some(Attr::Str(text)) = attrs.get("spec") else {
        return Err(fail(
            name,
            "its attribute 'spec' is missing; this is a fault of shopfloor unless the plan was changed by hand, please report it with the model",
        ));
    };
    serde_json::from_str(text).map_err(|e| {
        fail(
            name,
            format!("its attribute 'spec' cannot be read: {e}; this is a fault of shopfloor unless the plan was changed by hand, please report it with the model"),
        )
    })
}

/// Evaluates a host step: a core op under its name with `core.` before it, or an operator of the
/// table ([`crate::run`]). `shapes` are the outputs' shapes as the plan has them.
pub fn run_step(
    name: &str,
    attrs: &Attrs,
    inputs: &[Option<&Tensor>],
    shapes: &[Vec<usize>],
) -> Result<Vec<Tensor>, HostError> {
    let Some(core) = name.strip_prefix("core.") else {
        return crate::run(name, attrs, inputs);
    };
    let given: Vec<&Tensor> = inputs.iter().copied().flatten().collect();
    let input = |i: usize| {
        given
            .get(i)
            .copied()
            .ok_or_else(|| fail(name, format!("input {i} is missing")))
    };
    let shape = shapes
        .first()
        .ok_or_else(|| fail(name, "it has no output"))?;
    match core {
        "recurrent" => recurrent(&spec::<RecurrentSpec>(name, attrs)?, &given),
        "resample" => Ok(vec![resample(
            &spec::<ResampleSpec>(name, attrs)?,
            input(0)?,
            shape,
        )?]),
        _ => match spec::<HostSpec>(name, attrs)? {
            HostSpec::Pad {
                before,
                after,
                mode,
            } => {
                let x = input(0)?;
                let mut rim = (Vec::new(), Vec::new());
                for d in 0..x.shape().len() {
                    let total = shape.get(d).map_or(0, |&o| o as i64) - x.shape()[d] as i64;
                    // The plan's shapes give the sum of both sides; one side must be a number.
                    let (b, a) = match (
                        before.get(d).and_then(Dim::known),
                        after.get(d).and_then(Dim::known),
                    ) {
                        (Some(b), _) => (b, total - b),
                        (None, Some(a)) => (total - a, a),
                        _ => {
                            return Err(fail(
                                name,
                                "its padding is symbolic on both sides; give its dimensions sizes with --dim",
                            ));
                        }
                    };
                    rim.0.push(b);
                    rim.1.push(a);
                }
                Ok(vec![super::pad(
                    x,
                    given.get(1).copied(),
                    &rim.0,
                    &rim.1,
                    mode,
                )?])
            }
            HostSpec::ScatterNd(reduce) => {
                Ok(vec![scatter_nd(input(0)?, input(1)?, input(2)?, reduce)?])
            }
            HostSpec::Scan {
                monoid,
                axis,
                exclusive,
                reverse,
            } => scan(&given, &monoid, axis, exclusive, reverse, &|_| None),
            HostSpec::Sort {
                axis, descending, ..
            } => {
                let k = shape
                    .get(axis)
                    .copied()
                    .ok_or_else(|| fail(name, "its axis is outside its output"))?;
                let (values, indices) = sort(input(0)?, axis, k, descending)?;
                Ok(vec![values, indices])
            }
        },
    }
}
