//! Random graphs under schedules that nobody would choose.
use super::{Case, Engines, Outcome, Rng, agreement};
use layout::DimBox;
use plan::{Allotment, PlanSegment, StepWork};
use planner::{PlanOptions, Planner, Sweep};
use shopfloor::{Model, ModelOptions, Session, inputs};
use std::collections::BTreeSet;
use tensor::Tensor;

/// Plans a case `rounds` times with schedules drawn from all that the planner's generators make for
/// its kernels, runs each plan and compares every output with the oracle's.
///
/// # Errors
/// What differs or failed, with the seed, the engine, the round, and what was drawn.
pub fn check_schedules(case: &Case, engines: &Engines, rounds: u64) -> Result<Outcome, String> {
    let (how, engine) = engines.of(case);
    let plain: Vec<Tensor> = case.inputs.iter().map(|(_, t)| t.clone()).collect();
    let Ok(expected) = reference::run_graph(&case.graph, &plain) else {
        return Ok(Outcome::Refused);
    };
    let at = |e: &dyn std::fmt::Display| format!("seed {} ({how}): {e}", case.seed);
    let options = ModelOptions {
        dims: case.dims.clone(),
        ..Default::default()
    };
    let model = Model::from_graph("random", &case.graph, &options).map_err(|e| at(&e))?;
    let sizes = inputs::sizes_of(&model, &case.inputs);
    // Every other case for its sizes alone, the others for the box.
    let dims = match case.seed % 2 {
        0 => inputs::box_of(&model, &sizes),
        _ => sizes.iter().fold(DimBox::new(), |mut b, (name, &v)| {
            b.insert(name.as_str(), v, v);
            b
        }),
    };
    let session: Session = Session::builder()
        .with_engine(engine.clone())
        .with_model_options(options)
        .commit(model)
        .map_err(|e| at(&e))?;
    let device = session.runtime().engine().device();
    let planner = Planner::new(
        vec![(device.machine().clone(), device.target().clone())],
        PlanOptions::default(),
    );
    let allotment = Allotment {
        workers: vec![device.workers() as u32],
        memory: None,
        goal: plan::Goal::default(),
    };
    let program = session.model().program();
    let bind = |sweep: &Sweep| planner.bind_sweeping(program, &dims, &allotment, sweep);
    let Ok(first) = bind(&Sweep::default()) else {
        // What cannot be planned for these sizes is checked to be refused by the oracle elsewhere.
        return Ok(Outcome::Refused);
    };
    let kernels: BTreeSet<String> = first
        .segments
        .iter()
        .filter_map(|s| match s {
            PlanSegment::Block(b) => Some(&b.steps),
            _ => None,
        })
        .flatten()
        .filter_map(|s| match &s.work {
            StepWork::Kernel { kernel, .. } => Some(kernel.name.clone()),
            StepWork::Host { .. } => None,
        })
        .collect();
    let mut sweep = Sweep::of(kernels.iter().cloned());
    bind(&sweep).map_err(|e| at(&e))?;
    let named: Vec<(&str, &Tensor)> = case.inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let mut rng = Rng::new(case.seed ^ 0x5c4e_d01e);
    for round in 0..rounds {
        let mut drawn = Vec::new();
        for k in &kernels {
            let all = sweep.candidates(k);
            if !all.is_empty() {
                let n = rng.below(all.len());
                sweep.pick(k, n);
                drawn.push(format!("{k} as {}", all[n].0));
            }
        }
        let said = |e: &dyn std::fmt::Display| {
            let drawn = drawn.join("; ");
            at(&format!("round {round}, box {dims}: {e}; drawn: {drawn}"))
        };
        let plan = bind(&sweep).map_err(|e| said(&e))?;
        session.swap_plan(plan).map_err(|e| said(&e))?;
        let got = session.run(&named).map_err(|e| said(&e))?.into_vec();
        agreement(&case.graph, &expected, &got).map_err(|e| said(&e))?;
    }
    Ok(Outcome::Agrees)
}
