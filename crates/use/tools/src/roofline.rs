//! Rooflines of operators and of models, on machines that need not be there.
use crate::targets::Planning;
use crate::{op_model, planview};
use layout::{DType, DimBox, Inserted};
use machine::NumType;
use plan::Plan;
use report::calc::{IdealOp, RooflineView, ideal_of_plan, ideal_op};
use report::{HowRun, Profile};
use shopfloor::{Error, Machine, Model, Session, inputs};

/// How operators of a roofline are written.
pub const ROOFLINE_FORMS: &str = "matmul:MxNxK:DTYPE, map:N:DTYPE:Kin (the sum of K vectors), map:N:f32:FUNCTION or conv:N,C,H,W,OC,KH,KW,STRIDE,PAD";

/// Element types that our kernels have, by the units' names for them.
fn stored(d: NumType) -> Option<DType> {
    Some(match d {
        NumType::F32 => DType::F32,
        NumType::F16 => DType::F16,
        NumType::Bf16 => DType::BF16,
        NumType::F64 => DType::F64,
        _ => return None,
    })
}

/// The operator as a model of ours, both factors of a product given by the request; `None` where no
/// kernel of ours has its format.
fn as_model(op: &IdealOp) -> Option<Result<Model, Error>> {
    stored(op.dtype)?;
    let text = match op.contracts {
        true => format!("{}:dynamic", op.text.trim_end_matches(":dynamic")),
        false => op.text.clone(),
    };
    Some(op_model(&text))
}

fn plan_of(model: &Model, machine: &Machine, planning: &Planning) -> Result<(Plan, HowRun), Error> {
    let plan = planview::plan_for(model, machine, planning, &DimBox::new())?;
    let how = how(&plan, model, machine);
    Ok((plan, how))
}

/// How the steps of `plan`, which is of `model`, reach `machine`.
fn how(plan: &Plan, model: &Model, machine: &Machine) -> HowRun {
    let way = plan.request_way(machine, None).into_iter();
    HowRun::of(
        (plan, &[]),
        Some(model.program()),
        &way.map(|t| t.way).inserted(),
    )
}

/// The roofline of the operator that `text` writes: as textbooks count it, and as our kernel for
/// `machine` does it, where it has one.
///
/// # Errors
/// Text of another form, or a machine without a unit for it.
pub fn of_op(machine: &Machine, text: &str, planning: &Planning) -> Result<RooflineView, Error> {
    let usage = |why: String| Error::Usage(format!("operator '{text}': {why}"));
    let forms = |why: String| usage(format!("{why}; write {ROOFLINE_FORMS}"));
    let (op, planned, unplanned) = match ideal_op(text).map_err(Error::Usage)? {
        Some(op) => match as_model(&op).map(|m| plan_of(&m?, machine, planning)) {
            Some(Ok(planned)) => (op, Some(planned), None),
            Some(Err(e)) => (op, None, Some(e.to_string())),
            None => {
                let why = format!("no kernel of ours multiplies {}", op.dtype);
                (op, None, Some(why))
            }
        },
        None => {
            let model = op_model(text).map_err(|e| {
                match text.starts_with("conv:") || text.starts_with("map:") {
                    true => e,
                    false => forms("it is not understood".into()),
                }
            })?;
            let dtype = model
                .program()
                .values
                .first()
                .map_or(DType::F32, |v| v.dtype);
            let planned = plan_of(&model, machine, planning)?;
            let ideal = ideal_of_plan(text, machine, &planned.0, dtype);
            (ideal, Some(planned), None)
        }
    };
    let (plan, how) = planned.map_or_else(Default::default, |(plan, how)| (Some(plan), how));
    let mut view = RooflineView::of_op(machine, &op, plan.as_ref())
        .ok_or_else(|| usage(format!("{} has no unit for {}", machine.name, op.dtype)))?;
    view.how = how;
    if let Some(why) = unplanned {
        view.explanation
            .push(format!("What our kernel would do is not shown: {why}."));
    }
    Ok(view)
}

/// The roofline of a model: every step of its plan for `machine` with kernels of ours or the vendor's, read
/// off the tile programs.
///
/// # Errors
/// As [`planview::plan_for`], and a machine that has no vendor target.
pub fn of_model(
    machine: &Machine,
    model: &Model,
    planning: &Planning,
) -> Result<RooflineView, Error> {
    let (sizes, _) = inputs::sizes(model);
    let dims = inputs::box_of(model, &sizes);
    let with = (machine, planning.target(machine)?);
    let whole = planview::whole_with(model, with, planning, &dims)?;
    let mut view = RooflineView::of_plan(machine, &whole.plan, &whole.bodies);
    view.kernels = planning.kernels.label().into();
    view.how = whole.how;
    view.unvalidated = planning.kernels.unvalidated(machine);
    Ok(view)
}

/// The roofline of what `session` ran, its steps at the speed that `profile` measured; `None` before a
/// request has run.
pub fn of_profile(session: &Session, profile: &Profile) -> Option<RooflineView> {
    let plans = session.runtime().plans();
    let engine = session.runtime().engine();
    let plans: Vec<&Plan> = plans.iter().map(|p| p.plan()).collect();
    plans.first()?;
    let machine = engine.device().machine();
    let mut view = RooflineView::of_profile(machine, &plans, profile);
    view.how = profile.how.clone();
    Some(view)
}

/// Writes the picture of `view` to a file.
///
/// # Errors
/// A file that cannot be written.
pub fn save_svg(view: &RooflineView, path: &std::path::Path) -> Result<(), Error> {
    shopfloor::write_file(path, view.svg())
}
