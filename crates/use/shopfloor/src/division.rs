//! Batch, runs at once and workers of each: chosen from predictions, and measured against all others.
use crate::bench::measure;
use crate::{BenchOptions, Error, Model, ModelOptions, SessionBuilder, inputs};
use layout::DimBox;
use plan::{Allotment, Goal};
use report::{LatencyMs, SweepReport, SweepRow};
use runtime::{Engine, joins_along, joins_not};
use std::path::Path;
use plan::division::{Division, Prediction, choose};

/// Largest batch that is tried.
const LARGEST: i64 = 64;
/// A batch that brings less than this in items per second over half of it is the last that is tried.
const BRINGS: f64 = 1.03;

/// What the planner predicts for each batch and number of workers.
fn predictions(
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
        Goal::Throughput { .. } => joins_along(program),
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
    joins_not(program).map_or(Ok(()), |why| {
        Err(Error::Usage(format!(
            "requests of model '{}' cannot be joined: {why}; leave batching out, or export the model with one batch dimension that nothing crosses",
            program.name
        )))
    })
}

/// Measures every way to run the model: each batch and number of workers that was predicted, with as many
/// runs at once as there are workers for, each for `options.seconds`, under as many callers with one item
/// each as keep it busy. `progress` hears the share done.
///
/// # Errors
/// As [`SessionBuilder::commit`] and [`crate::Session::run`].
pub fn sweep(
    builder: &SessionBuilder,
    path: &Path,
    model_options: &ModelOptions,
    options: BenchOptions,
    goal: Goal,
    progress: &dyn Fn(f64),
) -> Result<SweepReport, Error> {
    let goal = match goal {
        // A sweep for latency would have one way per number of workers.
        Goal::Latency => Goal::Throughput {
            max_latency_s: None,
        },
        g => g,
    };
    let engine = builder.engine()?;
    let model = Model::open(path, model_options)?;
    let all = predictions(&engine, &model, goal, None)?;
    let name = model.program().name.clone();
    let Some(chosen) = choose(&name, &all, &goal, engine.workers()) else {
        return Err(Error::Usage(format!(
            "nothing can be predicted for model '{name}' on this device: sweeps are for the CPU"
        )));
    };
    let mut ways = Vec::new();
    for p in &all {
        for instances in 1..=engine.workers() / p.workers {
            // Fewer runs at once than fit leave workers idle: only the most are worth a look, and one.
            if instances != 1 && instances != engine.workers() / p.workers {
                continue;
            }
            ways.push((*p, instances));
        }
    }
    let is_chosen = |p: &Prediction, i: u32| {
        (p.batch, i, p.workers) == (chosen.batch, chosen.instances, chosen.workers)
    };
    if !ways.iter().any(|(p, i)| is_chosen(p, *i)) {
        let p = all
            .iter()
            .find(|p| (p.batch, p.workers) == (chosen.batch, chosen.workers));
        ways.extend(p.map(|p| (*p, chosen.instances)));
    }
    let mut rows = Vec::new();
    let n = ways.len();
    for (at, (p, instances)) in ways.into_iter().enumerate() {
        progress(at as f64 / n as f64);
        let division = Division {
            batch: p.batch,
            instances,
            workers: p.workers,
            max_delay_s: 0.0,
            ..chosen.clone()
        };
        let session = builder
            .clone()
            .with_engine(engine.clone())
            .with_goal(goal)
            .with_division(&division)
            .commit(model.clone())?;
        // One batch waits while the others run.
        let waits = if p.batch > 1 { p.batch } else { 0 };
        let callers = (instances * p.batch + waits) as usize;
        let named = inputs::random_inputs(session.model(), &inputs::sizes(session.model()).0)?;
        let (ms, took) = measure(&session, &named, options, callers, &|_| {})?;
        let run_s = p.beside(instances);
        rows.push(SweepRow {
            batch: p.batch,
            instances,
            workers: p.workers,
            callers,
            predicted_per_s: f64::from(instances * p.batch) / run_s,
            predicted_ms: 1e3
                * run_s
                * if waits > 0 {
                    1.0 + 1.0 / f64::from(instances)
                } else {
                    1.0
                },
            per_s: ms.len() as f64 / took.as_secs_f64().max(1e-12),
            latency_ms: LatencyMs::of(&ms),
            chosen: is_chosen(&p, instances),
        });
    }
    Ok(SweepReport {
        model: name,
        device: format!(
            "{} ({})",
            engine.device().name(),
            engine.device().target().name
        ),
        threads: engine.device().workers(),
        bound_ms: match goal {
            Goal::Throughput { max_latency_s } => max_latency_s.map(|s| 1e3 * s),
            Goal::Latency => None,
        },
        reason: chosen.why.reason,
        rows,
    })
}
