//! Every way to divide a machine's workers for one model, measured beside its prediction.
use crate::BenchOptions;
use crate::bench::measure;
use plan::Goal;
use plan::division::{Division, Prediction, choose};
use report::{HowRun, LatencyMs, SweepReport, SweepRow};
use shopfloor::division::predictions;
use shopfloor::{Error, Model, ModelOptions, SessionBuilder, inputs};
use std::path::Path;

/// Ways to run the model with `workers` in all, each a prediction and how many run at once; the one that was
/// `chosen` is among them.
fn ways(all: &[Prediction], workers: u32, chosen: &Division) -> Vec<(Prediction, u32)> {
    let mut ways = Vec::new();
    for p in all {
        // Fewer runs at once than fit leave workers idle: only the most are worth a look, and one.
        let most = workers / p.workers;
        ways.extend(
            (1..=most)
                .filter(|i| [1, most].contains(i))
                .map(|i| (*p, i)),
        );
    }
    let same = |p: &Prediction| (p.batch, p.workers) == (chosen.batch, chosen.workers);
    if !ways.iter().any(|(p, i)| same(p) && *i == chosen.instances) {
        let p = all.iter().find(|p| same(p));
        ways.extend(p.map(|p| (*p, chosen.instances)));
    }
    ways
}

/// Measures every way to run the model: each batch and number of workers that was predicted, with as many
/// runs at once as there are workers for, each for `options.seconds`, under as many callers with one item
/// each as keep it busy. `progress` hears the share done.
///
/// # Errors
/// As [`SessionBuilder::commit`] and [`shopfloor::Session::run`].
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
    if engine.device().emulated_ns().is_some() {
        return Err(Error::Usage(format!(
            "a sweep has many callers, and '{}' is emulated and has one clock for all of them; leave --sweep out, or run on cpu",
            engine.device().name()
        )));
    }
    let model = Model::open(path, model_options)?;
    let all = predictions(&engine, &model, goal, None)?;
    let name = model.program().name.clone();
    let Some(chosen) = choose(&name, &all, &goal, engine.workers()) else {
        return Err(Error::Usage(format!(
            "nothing can be predicted for model '{name}' on this device: sweeps are for the CPU"
        )));
    };
    let is_chosen = |p: &Prediction, i: u32| {
        (p.batch, i, p.workers) == (chosen.batch, chosen.instances, chosen.workers)
    };
    let ways = ways(&all, engine.workers(), &chosen);
    let mut rows = Vec::new();
    let mut how = HowRun::default();
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
        how = shopfloor::how_run(&session);
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
        how,
        threads: engine.device().workers(),
        bound_ms: match goal {
            Goal::Throughput { max_latency_s } => max_latency_s.map(|s| 1e3 * s),
            Goal::Latency => None,
        },
        reason: chosen.why.reason,
        rows,
    })
}
