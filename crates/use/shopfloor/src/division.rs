//! Batch, runs at once and workers of each, chosen from predictions.
use crate::{Error, Model, inputs};
use layout::DimBox;
pub use plan::division::Prediction;
use plan::division::{Division, choose};
use plan::{Allotment, Goal};
use runtime::{Engine, batch_symbol, why_not_batched};

/// Largest batch that is tried.
const LARGEST: i64 = 64;
/// A batch that brings less than this in items per second over half of it is the last that is tried.
const BRINGS: f64 = 1.03;

/// What the planner predicts for each batch and number of workers that `model` may run with on `engine`.
///
/// # Errors
/// Sizes that do not fit.
pub fn predictions(
    engine: &Engine,
    model: &Model,
    goal: Goal,
    memory: Option<u64>,
) -> Result<Vec<Prediction>, Error> {
    let program = model.program();
    let all = engine.workers();
    let mut workers: Vec<u32> = std::iter::successors(Some(1u32), |w| w.checked_mul(2))
        .take_while(|w| *w < all)
        .collect();
    workers.push(all);
    let along = match goal {
        Goal::Latency => None,
        Goal::Throughput { .. } => batch_symbol(program),
    };
    let range = along.and_then(|b| model.dims().get(b));
    let most = match (along, range) {
        (None, _) => 1,
        (Some(_), Some(r)) => r.hi.min(LARGEST),
        (Some(_), None) => LARGEST,
    };
    let main = &engine.device().machine().memory().name;
    let wake_s = engine.device().machine().costs.wake_s.value;
    let (mut out, mut best, mut batch) = (Vec::new(), 0.0, 1);
    while batch <= most {
        let (mut sizes, _) = inputs::sizes(model);
        let mut dims: DimBox = inputs::box_of(model, &sizes);
        if let Some(b) = along {
            sizes.insert(b.to_string(), batch);
            dims = inputs::box_of(model, &sizes);
            dims.insert(b.clone(), batch, batch);
        }
        let mut made = Vec::new();
        for &w in &workers {
            let allotment = Allotment {
                workers: vec![w],
                memory,
                goal,
            };
            let plan = engine.planner().bind(program, &dims, &allotment)?;
            let levels = plan
                .blocks()
                .flat_map(|b| &b.steps)
                .flat_map(|s| &s.predicted.levels);
            let memory_s: f64 = levels.filter(|l| l.name == *main).map(|l| l.seconds).sum();
            made.push((w, plan.predicted.time_s, memory_s));
        }
        // What all workers together draw from memory is what instances share.
        let shared = made.last().map_or(0.0, |m| m.2);
        let mut per_s = 0f64;
        for (workers, seconds, _) in made {
            // Each caller of a batch waits parked, and whoever runs it wakes them one after the other.
            let wakes = if batch > 1 { batch as f64 } else { 0.0 };
            let p = Prediction {
                batch: batch as u32,
                workers,
                seconds: seconds + wakes * wake_s,
                memory_s: shared,
            };
            let instances = (all / workers).max(1);
            per_s = per_s.max(f64::from(instances) * batch as f64 / p.beside(instances).max(1e-12));
            out.push(p);
        }
        let shortest = out.iter().rev().take(workers.len()).map(|p| p.seconds);
        let shortest = shortest.fold(f64::INFINITY, f64::min);
        let bound = match goal {
            Goal::Throughput { max_latency_s } => max_latency_s.unwrap_or(f64::INFINITY),
            Goal::Latency => f64::INFINITY,
        };
        if per_s < BRINGS * best || shortest > bound {
            break;
        }
        best = per_s;
        batch *= 2;
    }
    Ok(out)
}

/// How `model` is best run on `engine` for `goal`, by prediction: batch, runs at once and workers of each,
/// with the reason. `memory`: bytes that a plan may take. `None` on devices whose workers are not the
/// host's, and for models with control flow, whose predictions cover only parts of them.
///
/// # Errors
/// Sizes that do not fit.
pub fn divide(
    engine: &Engine,
    model: &Model,
    goal: Goal,
    memory: Option<u64>,
) -> Result<Option<Division>, Error> {
    if engine.device().target().gpu.is_some() || model.program().segments.len() > 1 {
        return Ok(None);
    }
    let all = predictions(engine, model, goal, memory)?;
    let name = &model.program().name;
    Ok(choose(name, &all, &goal, engine.workers()))
}

/// Whether requests of the model may be joined: every input and output begins with the batch, and its graph
/// proves that items of a batch do not influence each other.
///
/// # Errors
/// They may not, with what is in the way.
pub(crate) fn check_joining(model: &Model) -> Result<(), Error> {
    let program = model.program();
    why_not_batched(program).map_or(Ok(()), |why| {
        Err(Error::Usage(format!(
            "requests of model '{}' cannot be joined: {why}; leave batching out, or export the model with one batch dimension that nothing crosses",
            program.name
        )))
    })
}
