//! One model over machines that need not be there.
use crate::planview;
use crate::targets::{Kernels, Planning};
use layout::DimBox;
use machine::MachineKind;
use plan::{StepWork, SymbolOrigin};
use planview::Whole;
use report::{FleetPoint, FleetRow, FleetView, bounds_of};
use shopfloor::{Error, Machine, Model, inputs};

/// The dimension that is a model's batch: the symbol that is the first extent of most of its inputs.
pub fn batch_of(model: &Model) -> Option<String> {
    let program = model.program();
    let first = program.symbols.iter().filter(|s| {
        let is_first = matches!(s.origin, SymbolOrigin::Input { axis: 0, .. });
        // One that was bound has one value only.
        is_first && model.dims().get(&s.name).is_none_or(|r| r.lo != r.hi)
    });
    let uses = |name: &str| {
        let heads = program.inputs.iter();
        let heads = heads.filter_map(|&v| program.value(v).shape.first());
        heads.filter(|d| d.to_string() == name).count()
    };
    let mut best: Option<(usize, String)> = None;
    for s in first {
        let n = uses(&s.name);
        if best.as_ref().is_none_or(|b| n > b.0) {
            best = Some((n, s.name.to_string()));
        }
    }
    best.map(|b| b.1)
}

/// The batches to plan `model` for: those asked for, else 1, 8 and 64 where the model leaves it open.
///
/// # Errors
/// Batches asked of a model that fixes its own.
pub fn batches(model: &Model, asked: &[i64]) -> Result<Vec<Option<i64>>, Error> {
    match (batch_of(model), asked) {
        (Some(_), []) => Ok([1, 8, 64].map(Some).to_vec()),
        (Some(_), list) => Ok(list.iter().map(|&b| Some(b)).collect()),
        (None, []) => Ok(vec![None]),
        (None, _) => {
            let program = model.program();
            let shapes: Vec<String> = program
                .inputs
                .iter()
                .take(3)
                .map(|&v| {
                    let v = program.value(v);
                    let dims: Vec<String> = v.shape.iter().map(ToString::to_string).collect();
                    format!("{} [{}]", v.name, dims.join(","))
                })
                .collect();
            Err(Error::Usage(format!(
                "model '{}' has no open batch dimension ({}): export it with one, or leave --batch out",
                program.name,
                shapes.join(", ")
            )))
        }
    }
}

/// The box of dims with this batch, other open dims as [`inputs::sizes`] takes them.
pub(crate) fn dims_with(model: &Model, batch: Option<i64>) -> DimBox {
    let (mut sizes, _) = inputs::sizes(model);
    let Some((name, b)) = batch_of(model).zip(batch) else {
        return inputs::box_of(model, &sizes);
    };
    sizes.insert(name.clone(), b);
    let mut dims = inputs::box_of(model, &sizes);
    dims.insert(name.as_str(), b, b);
    dims
}

/// What a plan says of a machine: time, bound, copies, memory.
fn point(whole: &Whole, machine: &Machine, batch: Option<i64>) -> FleetPoint {
    let plan = &whole.plan;
    let place = plan.devices.len().saturating_sub(1) as u32;
    let (mut rows_s, mut on_host) = (0.0, 0);
    for b in plan.blocks() {
        for s in &b.steps {
            if b.is_transfer(s) {
                rows_s += s.predicted.time_s;
            } else if machine.kind == MachineKind::Gpu
                && (s.device != place || matches!(s.work, StepWork::Host { .. }))
            {
                on_host += 1;
            }
        }
    }
    // What copies add to a request by the way its steps take is not the sum of their rows.
    let copies_s = whole.way.as_ref().map_or(rows_s, |way| way.copies_s);
    let latency_s = whole.seconds();
    let bounds = bounds_of(plan, &whole.bodies);
    let (bound, bound_share) = bounds.into_iter().next().unwrap_or_default();
    let memory = whole.memory();
    FleetPoint {
        batch,
        how: whole.how.clone(),
        latency_s,
        per_s: match latency_s > 0.0 {
            true => batch.unwrap_or(1) as f64 / latency_s,
            false => 0.0,
        },
        bound,
        bound_share,
        copies_s,
        on_host,
        memory,
        fits: memory as f64 <= machine.memory().bytes.value,
    }
}

/// `model` over `machines` with each of `batches` (see [`batches`]), with our kernels and where there is a
/// target for them the vendor's, or `only` with one kind. `progress` hears the share done and which machine comes next. A machine
/// for which it cannot be planned has the reason in its row.
pub fn fleet(
    model: &Model,
    machines: &[Machine],
    batches: &[Option<i64>],
    (planning, only): (&Planning, Option<Kernels>),
    progress: &dyn Fn(f64, &str),
) -> FleetView {
    let mut rows = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    let mut control: Option<Vec<String>> = None;
    let kinds = [Kernels::Ours, Kernels::Vendor];
    let kinds = || kinds.into_iter().filter(|k| only.is_none_or(|o| o == *k));
    for (i, m) in machines.iter().enumerate() {
        progress(i as f64 / machines.len().max(1) as f64, &m.name);
        for kernels in kinds() {
            let planning = Planning {
                kernels,
                ..*planning
            };
            let t = match planning.target(m) {
                Ok(t) => t,
                Err(e) => {
                    if only.is_some() {
                        notes.push(format!("{}: {e}.", m.name));
                    }
                    continue;
                }
            };
            let mut row = FleetRow {
                name: m.short_name(),
                machine: m.name.clone(),
                kernels: kernels.label().into(),
                unvalidated: kernels.unvalidated(m),
                target: t.name.clone(),
                memory_has: m.memory().bytes.value as u64,
                points: vec![],
                error: None,
            };
            for &batch in batches {
                let dims = dims_with(model, batch);
                match planview::whole_with(model, (m, t.clone()), &planning, &dims) {
                    Ok(whole) => {
                        control.get_or_insert_with(|| whole.counted());
                        row.points.push(point(&whole, m, batch));
                    }
                    Err(e) => {
                        row.error = Some(e.to_string());
                        break;
                    }
                }
            }
            rows.push(row);
        }
    }
    let batch = batch_of(model);
    let dims: Vec<String> = inputs::box_of(model, &inputs::sizes(model).0)
        .iter()
        .filter(|(n, _)| Some(n.as_ref()) != batch.as_deref())
        .map(|(n, r)| match r.lo == r.hi {
            true => format!("{n}={}", r.hi),
            false => format!("{n}={}..{}", r.lo, r.hi),
        })
        .collect();
    if batch.is_none() {
        notes.push("The model fixes its batch: a request is what its inputs hold.".into());
    }
    notes.extend(control.into_iter().flatten());
    FleetView {
        model: model.program().name.clone(),
        dims: dims.join(" "),
        batch,
        rows,
        notes,
    }
}
