//! How long a model takes to be ready: in new processes with and without a cache, and in this one.
use layout::Arrange;
use report::{LoadReport, Planned, PlanningMs, ProcessMs};
use shopfloor::{Cache, Error, Model, ModelOptions, SessionBuilder, inputs};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use supervisor::stats::median;
use tensor::Tensor;

/// Processes that are started with an empty cache, each with one of its own.
const FIRSTS: usize = 5;
/// Processes that are started with a filled cache.
const SECONDS: usize = 11;

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Shapes outside the first plan's box that are tried; those that lie in the box of another one are not timed.
const OUTSIDE: i64 = 5;
/// Requests that a process makes to say how long one takes, at most.
const STEADY: usize = 15;
/// Milliseconds after which they are enough, if there are a few.
const ENOUGH: f64 = 60.0;

/// Milliseconds that `request` takes when everything is ready (the median of several), and
/// milliseconds spent to find that out.
///
/// # Errors
/// As `request`.
pub fn steady_ms<E>(request: &dyn Fn() -> Result<(), E>) -> Result<(f64, f64), E> {
    let all = Instant::now();
    let mut each = Vec::new();
    while each.len() < 3 || (each.len() < STEADY && ms(all) < ENOUGH) {
        let began = Instant::now();
        request()?;
        each.push(ms(began));
    }
    each.sort_by(f64::total_cmp);
    Ok((each[each.len() / 2], ms(all)))
}

/// Runs `command`, which prints the report of `shopfloor run --json --steady`.
fn process(mut command: Command) -> Result<ProcessMs, Error> {
    let began = Instant::now();
    let out = command.output().map_err(|source| Error::Io {
        path: command.get_program().to_string_lossy().into(),
        source,
    })?;
    let wall = ms(began);
    let text = String::from_utf8_lossy(&out.stdout);
    let report: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let time = |name: &str| report.as_ref()?["timings_ms"][name].as_f64();
    let times = ["load", "first_run", "steady", "beside"].map(time);
    match (out.status.success(), times) {
        (true, [Some(load), Some(first_run), Some(steady), Some(beside)]) => Ok(ProcessMs {
            wall: wall - beside,
            load,
            first_run,
            steady,
        }),
        _ => {
            let said = String::from_utf8_lossy(&out.stderr);
            let why = format!(
                "the process that was to run the model ended with {}: {}",
                out.status,
                said.trim()
            );
            Err(Error::Other(why.into()))
        }
    }
}

/// Measures how long a model takes to be ready. `run` gives the command that runs it
/// once in a process of its own with a cache in the given folder (that of `cache`, or one beside it) and
/// prints the report as JSON; `planned` is what [`planning_times`] found, in one process or several;
/// `progress` hears the share done, 0 to 1.
///
/// # Errors
/// A process that fails; nothing in `planned`.
pub fn load_times(
    planned: &[Planned],
    cache: &Cache,
    run: &dyn Fn(&Cache) -> Command,
    progress: &dyn Fn(f64),
) -> Result<LoadReport, Error> {
    let Some(one) = planned.first() else {
        return Err(Error::Usage("no planning was measured".into()));
    };
    let whole = (FIRSTS + SECONDS) as f64;
    let mut firsts = Vec::new();
    for i in 0..FIRSTS {
        progress(i as f64 / whole);
        // The last one leaves what the others find.
        firsts.push(match i + 1 == FIRSTS {
            true => process(run(cache))?,
            false => process(run(&Cache::new(
                cache.folder().with_extension(i.to_string()),
            )))?,
        });
    }
    firsts.arrange_by(|a, b| a.loading().total_cmp(&b.loading()));
    let first = firsts.swap_remove(FIRSTS / 2);
    let mut second = Vec::new();
    for i in 0..SECONDS {
        progress((FIRSTS + i) as f64 / whole);
        second.push(process(run(cache))?);
    }
    let times: Vec<PlanningMs> = planned.iter().map(|p| p.planning).collect();
    Ok(LoadReport {
        model: one.model.clone(),
        device: one.device.clone(),
        how: one.how.clone(),
        nodes: one.nodes,
        steps: one.steps,
        first,
        second,
        planning: PlanningMs::typical(&times),
        plans_inside: planned.iter().map(|p| p.plans_inside).sum(),
    })
}

/// Measures how long planning takes in this process, without a cache: `named` are the inputs of the
/// first request. What the process has planned before makes it quicker at it.
///
/// # Errors
/// As [`SessionBuilder::commit`] and [`shopfloor::Session::run`].
pub fn planning_times(
    builder: &SessionBuilder,
    path: &Path,
    options: &ModelOptions,
    named: Option<Vec<(String, Tensor)>>,
) -> Result<Planned, Error> {
    let engine = builder.engine()?;
    let began = Instant::now();
    let model = Model::open(path, options)?;
    let mut planning = PlanningMs {
        model: ms(began),
        ..PlanningMs::default()
    };
    let nodes = model.report().nodes.len();
    let session = builder.clone().with_engine(engine).commit(model)?;
    let model = session.model();
    let named = match named {
        Some(n) => n,
        None => inputs::random_inputs(model, &inputs::sizes(model).0)?,
    };
    let given = inputs::borrowed(&named);
    let sizes = inputs::sizes_of(model, &named);
    let began = Instant::now();
    let plan = session.plan(&inputs::box_of(model, &sizes))?;
    planning.bind = ms(began);
    let steps = plan.blocks().map(|b| b.steps.len()).sum();
    // Milliseconds of planning that a request asks for.
    let planned = |given: &[(&str, &Tensor)]| -> Result<f64, Error> {
        let engine = session.runtime().engine();
        let before = engine.planning();
        session.run(given)?;
        Ok((engine.planning() - before).as_secs_f64() * 1e3)
    };
    planning.first = planned(&given)?;
    let plans = session.runtime().plans().len();
    session.run(&given)?;
    let plans_inside = session.runtime().plans().len() - plans;
    // Further along a dimension that has several values, if any takes it.
    for name in sizes.keys() {
        let mut each = Vec::new();
        for further in 1..=OUTSIDE {
            let mut other = sizes.clone();
            other.entry(name.clone()).and_modify(|n| *n += further);
            if let Ok(named) = inputs::random_inputs(model, &other)
                && let Ok(ms) = planned(&inputs::borrowed(&named))
                && ms > 0.0
            {
                each.push(ms);
            }
        }
        planning.outside = median(&each);
        if planning.outside.is_some() {
            break;
        }
    }
    let device = session.runtime().engine().device();
    Ok(Planned {
        model: model.program().name.clone(),
        device: format!("{} ({})", device.name(), device.target().name),
        how: shopfloor::how_run(&session),
        nodes,
        steps,
        planning,
        plans_inside,
    })
}
