//! `shopfloor run`: one request, its outputs and timings.
use crate::args::{self, CacheArgs, EngineArgs, ModelArgs, PlanArgs, tell_assumed, tell_cache};
use crate::output::{self, Done, Failure};
use crate::progress::Progress;
use serde::Serialize;
use shopfloor::{Comparison, HowRun, Tensor, Timeline, Tolerance, inputs};
use shopfloor_tools::report::{self, Style, units};
use shopfloor_tools::{data, planview};
use std::fmt::Write;
use std::time::Instant;

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    /// Compare the outputs with those of an npz file; exit code 4 when they differ
    #[arg(long, value_name = "FILE")]
    compare: Option<String>,
    /// Allowed difference, relative to the output's largest magnitude [default: 0.0001, of f16
    /// 0.002, of bf16 0.016]
    #[arg(long, requires = "compare", value_parser = args::tolerance)]
    rtol: Option<f64>,
    /// Allowed difference besides [default: 0]
    #[arg(long, requires = "compare", value_parser = args::tolerance)]
    atol: Option<f64>,
    /// The reference holds only every Nth element of each output, as one dimension
    #[arg(long, value_name = "N", requires = "compare", value_parser = args::whole::<u32>(1..))]
    stride: Option<u32>,
    /// Random values for inputs that no file gives
    #[arg(long)]
    random: bool,
    /// Stop after the step of this number or name, and list what ran
    #[arg(long, value_name = "STEP", conflicts_with_all = ["compare", "no_fallback", "steady", "outputs", "labels"])]
    stop_after: Option<String>,
    /// Fail with exit code 3 where a step runs on the host because the device has no form for it
    #[arg(long)]
    no_fallback: bool,
    /// Run again until it is clear how long a run takes when everything is ready, and say so
    #[arg(long)]
    steady: bool,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    plan: PlanArgs,
    /// Save the outputs to an npz file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    outputs: Option<String>,
    /// Names of the classes, one per line: shown for outputs that have as many entries
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "json",
        help_heading = "Output"
    )]
    labels: Option<String>,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(Serialize)]
struct OutputSummary {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    min: Option<f64>,
    mean: Option<f64>,
    max: Option<f64>,
    /// Elements that are NaN, or infinite: smallest, mean and largest are of the others.
    not_finite: usize,
    first: Vec<f64>,
    /// The first elements where they are texts or items of a sequence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    texts: Vec<String>,
}

#[derive(Serialize)]
struct Timings {
    load: f64,
    first_run: f64,
    /// A run when everything is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    steady: Option<f64>,
    /// What it took to find that out.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<f64>,
}

#[derive(Serialize)]
struct RunReport {
    model: String,
    device: String,
    #[serde(flatten)]
    how: HowRun,
    /// Times are this machine's, which emulated the device.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    emulated: bool,
    outputs: Vec<OutputSummary>,
    fallback_steps: Vec<planview::Fallback>,
    #[serde(flatten)]
    shares: planview::Shares,
    timings_ms: Timings,
    #[serde(skip_serializing_if = "Option::is_none")]
    compare: Option<Comparison>,
}

/// What ran as far as a step.
#[derive(Serialize)]
struct Stopped {
    device: String,
    #[serde(flatten)]
    how: HowRun,
    stopped_after: u32,
    steps: Vec<serde_json::Value>,
}

fn summary(name: &str, t: &Tensor) -> OutputSummary {
    if t.dtype().is_held() {
        let texts = t.text().into_iter().flatten().map(|s| format!("{s:?}"));
        let items = t.items().into_iter().flatten().map(|i| format!("{i:?}"));
        return OutputSummary {
            name: name.into(),
            dtype: t.dtype().to_string(),
            shape: t.shape().to_vec(),
            min: None,
            mean: None,
            max: None,
            not_finite: 0,
            first: Vec::new(),
            texts: texts.chain(items).take(6).collect(),
        };
    }
    let (mut lo, mut hi, mut sum, mut finite) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0usize);
    let all = (0..t.len()).map(|i| t.get_f64(i));
    for v in all.filter(|v| v.is_finite()) {
        (lo, hi, sum, finite) = (lo.min(v), hi.max(v), sum + v, finite + 1);
    }
    let some = |v: f64| v.is_finite().then_some(v);
    OutputSummary {
        name: name.into(),
        dtype: t.dtype().to_string(),
        shape: t.shape().to_vec(),
        min: some(lo),
        mean: some(sum / finite as f64),
        max: some(hi),
        not_finite: t.len() - finite,
        first: (0..t.len().min(6)).map(|i| t.get_f64(i)).collect(),
        texts: Vec::new(),
    }
}

fn figure(v: f64) -> String {
    if v == v.trunc() && v.abs() < 1e6 {
        format!("{v}")
    } else if v != 0.0 && !(1e-3..1e6).contains(&v.abs()) {
        format!("{v:.3e}")
    } else {
        format!("{v:.4}")
    }
}

/// Whether each row of `t` has an entry for every one of `labels`.
fn classes(t: &Tensor, labels: &[String]) -> bool {
    t.shape().last() == Some(&labels.len()) && labels.len() > 1 && t.dtype().is_float()
}

/// The five largest of each row, with their labels.
fn best(t: &Tensor, labels: &[String], out: &mut String) {
    if !classes(t, labels) {
        return;
    }
    let classes = labels.len();
    let rows = t.len() / classes;
    for r in 0..rows.min(20) {
        let mut order: Vec<usize> = (0..classes).collect();
        order.sort_by(|&a, &b| {
            t.get_f64(r * classes + b)
                .total_cmp(&t.get_f64(r * classes + a))
        });
        let top: Vec<String> = order
            .iter()
            .take(5)
            .map(|&c| format!("{} {}", labels[c], figure(t.get_f64(r * classes + c))))
            .collect();
        let _ = writeln!(out, "    [{r}] {}", top.join(", "));
    }
    if rows > 20 {
        let _ = writeln!(out, "    ({} more rows)", rows - 20);
    }
}

/// Number of the step that `text` names.
fn step_number(
    session: &shopfloor::Session,
    text: &str,
    named: &[(String, Tensor)],
) -> Result<u32, Failure> {
    let model = session.model();
    let plan = session.plan(&inputs::box_of(model, &inputs::sizes_of(model, named)))?;
    let steps = plan.steps().map(|s| (s.name.as_str(), &*s.nodes));
    let number = report::step_number(text, steps).map_err(Failure::Usage)?;
    Ok(number as u32)
}

/// `given` with random tensors for what it lacks of the model's inputs where they are asked for.
///
/// # Errors
/// An input is missing, or the shape of a random one is not known.
fn completed(
    a: &Args,
    session: &shopfloor::Session,
    mut given: Vec<(String, Tensor)>,
) -> Result<Vec<(String, Tensor)>, Failure> {
    let model = session.model();
    let has = |name: &str| given.iter().any(|g| g.0 == name);
    let names = model.input_names();
    let lacking: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|n| !has(n))
        .collect();
    match lacking[..] {
        [] => return Ok(given),
        _ if a.random => {}
        [first, ..] => {
            let list: Vec<String> = lacking.iter().map(|n| format!("'{n}'")).collect();
            let (inputs, them) = match lacking.len() {
                1 => ("input", "is missing; give it"),
                _ => ("inputs", "are missing; give them"),
            };
            let others = given.iter().filter(|g| !names.contains(&g.0));
            let others: Vec<String> = others.map(|g| format!("'{}'", g.0)).collect();
            let others = match others.len() {
                0 => String::new(),
                _ => format!("; {} was given, which is no input of it", others.join(", ")),
            };
            return Err(Failure::Usage(format!(
                "{}: {inputs} {} {them} by --inputs FILE.npz or --inputs {first}=FILE.npy (`shopfloor inspect` shows dtypes and shapes), or random values by --random{others}",
                a.model,
                list.join(", ")
            )));
        }
    }
    let (mut sizes, assumed) = inputs::sizes(model);
    let known = inputs::sizes_of(model, &given);
    let assumed: Vec<String> = assumed
        .into_iter()
        .filter(|n| !known.contains_key(n))
        .collect();
    tell_assumed(&model.program().name, &assumed);
    sizes.extend(known);
    let random = inputs::random_inputs(model, &sizes)?;
    given.extend(
        random
            .into_iter()
            .filter(|(n, _)| lacking.contains(&n.as_str())),
    );
    Ok(given)
}

/// The session's device and its target.
fn device_of(session: &shopfloor::Session) -> String {
    let device = session.runtime().engine().device();
    format!("{} ({})", device.name(), device.target().name)
}

/// Runs as far as step `last`, and says what the steps took.
fn stopped(
    a: &Args,
    session: &shopfloor::Session,
    borrowed: &[(&str, &Tensor)],
    last: u32,
    waiting: Progress,
) -> Done {
    let mut t = Timeline::default();
    session.run_until(borrowed, last, &mut t)?;
    drop(waiting);
    let wall = t.step_wall_ns();
    let how = shopfloor::how_ran(session, &t);
    let ran: Vec<(usize, &String, f64)> = t
        .steps
        .iter()
        .enumerate()
        .take(last as usize + 1)
        .map(|(i, n)| (i, n, wall[i] as f64 * 1e-9))
        .collect();
    if a.json {
        let list: Vec<_> = ran
            .iter()
            .map(|(i, n, s)| serde_json::json!({"step": i, "name": n, "us": s * 1e6}))
            .collect();
        return output::json(&Stopped {
            device: device_of(session),
            how,
            stopped_after: last,
            steps: list,
        });
    }
    let head = format!(
        "{} on {}{}: stopped after step {last}",
        session.model().program().name,
        device_of(session),
        how.headline()
    );
    let mut text = output::style().headline(&head) + "\n";
    for (i, n, s) in ran {
        let _ = writeln!(text, "  {i:>4}  {:>9}  {n}", units::seconds(s));
    }
    output::page(&text)
}

/// Outputs against those of a file, where one is named.
fn compared(a: &Args, outputs: &[(String, Tensor)]) -> Result<Option<Comparison>, Failure> {
    match &a.compare {
        None => Ok(None),
        Some(path) => {
            let want = data::read_npz(path)?;
            let tolerance = |dtype| {
                let d = Tolerance::of(dtype);
                Tolerance {
                    rtol: a.rtol.unwrap_or(d.rtol),
                    atol: a.atol.unwrap_or(d.atol),
                }
            };
            let thin: Vec<(String, Tensor)> = outputs
                .iter()
                .map(|(n, t)| {
                    (
                        n.clone(),
                        shopfloor::thinned(t, a.stride.unwrap_or(1) as usize),
                    )
                })
                .collect();
            Ok(Some(shopfloor::compare_by_type(&thin, &want, tolerance)))
        }
    }
}

/// The names of `--labels`, one for every class.
fn labels(a: &Args) -> Result<Vec<String>, Failure> {
    let Some(path) = &a.labels else {
        return Ok(vec![]);
    };
    let text = shopfloor::read_text(path, shopfloor_tools::files::WRITTEN)?;
    Ok(text.lines().map(str::to_string).collect())
}

/// Refuses labels of which no output has as many classes.
fn fitting(a: &Args, labels: &[String], outputs: &[(String, Tensor)]) -> Done {
    let (Some(path), false) = (&a.labels, outputs.iter().any(|(_, t)| classes(t, labels))) else {
        return Ok(());
    };
    let shape = |t: &Tensor| {
        let each: Vec<String> = t.shape().iter().map(ToString::to_string).collect();
        each.join(", ")
    };
    let all = outputs
        .iter()
        .map(|(n, t)| format!("{n} {} [{}]", t.dtype(), shape(t)));
    Err(Failure::Usage(format!(
        "--labels {path} has {}, and no output has as many entries of floats in its last dimension: {}",
        units::plural(labels.len() as u64, "name"),
        all.collect::<Vec<_>>().join(", ")
    )))
}

pub fn run(a: Args) -> Done {
    let on = a.engine.on.as_deref().unwrap_or("cpu");
    if a.no_fallback && on == "cpu" {
        return Err(Failure::Usage(
            "--no-fallback does nothing for cpu, where every step runs on the host; leave it out"
                .into(),
        ));
    }
    let labels = labels(&a)?;
    let began = Instant::now();
    let waiting = Progress::spinner("loading");
    let session = a
        .cache
        .apply(a.engine.builder()?)?
        .with_model_options(a.bound.options()?)
        .commit_from_file(&a.model)?;
    let given = shopfloor_tools::read_inputs_of(session.model(), &a.bound.inputs, a.engine.memory)?;
    a.bound.check(session.model())?;
    let given = completed(&a, &session, given)?;
    a.plan.apply(&session, &given)?;
    let load = began.elapsed().as_secs_f64() * 1e3;
    a.bound.tell_sizes();
    let borrowed = inputs::borrowed(&given);
    if let Some(step) = &a.stop_after {
        let last = step_number(&session, step, &given)?;
        return stopped(&a, &session, &borrowed, last, waiting);
    }
    if a.no_fallback {
        let model = session.model();
        let plan = session.plan(&inputs::box_of(model, &inputs::sizes_of(model, &given)))?;
        refuse(&a.model, &planview::fallbacks_of(&plan))?;
    }
    drop(waiting);
    let waiting = Progress::spinner("running");
    let began = Instant::now();
    let outputs = session.run(&borrowed)?;
    let first_run = began.elapsed().as_secs_f64() * 1e3;
    a.engine.launched(&session)?;
    let (steady, beside) = match a.steady {
        true => {
            let (each, all) = shopfloor_tools::steady_ms(&|| session.run(&borrowed).map(drop))?;
            (Some(each), Some(all))
        }
        false => (None, None),
    };
    drop(waiting);
    tell_cache(&session);
    let outputs = outputs.into_vec();
    if let Some(path) = &a.outputs {
        data::write_npz(path, &outputs)?;
        output::note(&format!("wrote {path}"));
    }
    fitting(&a, &labels, &outputs)?;
    let comparison = compared(&a, &outputs)?;
    let fallback_steps = planview::fallbacks(&session);
    if a.no_fallback {
        refuse(&a.model, &fallback_steps)?;
    }
    let report = RunReport {
        model: session.model().program().name.clone(),
        device: device_of(&session),
        how: shopfloor::how_run(&session),
        emulated: session.runtime().engine().device().emulated_ns().is_some(),
        outputs: outputs.iter().map(|(n, t)| summary(n, t)).collect(),
        fallback_steps,
        shares: planview::shares(&session),
        timings_ms: Timings {
            load,
            first_run,
            steady,
            beside,
        },
        compare: comparison,
    };
    if a.json {
        output::json(&report)?;
    } else {
        output::page(&text(&report, &outputs, &labels, output::style()))?;
    }
    // The process ends, and what it holds goes with it: taking it apart first is time for nothing.
    std::mem::forget(session);
    match report.compare.as_ref().and_then(Comparison::complaint) {
        Some(c) => Err(Failure::Differ(format!("{}: {c}", a.model))),
        None => Ok(()),
    }
}

/// An error where a step runs on the host, naming the steps.
fn refuse(model: &str, steps: &[planview::Fallback]) -> Done {
    if steps.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = steps
        .iter()
        .map(|f| format!("{} ({})", f.node, f.reason))
        .collect();
    Err(Failure::Unsupported(format!(
        "{model}: {} of its steps would run on the host: {}; leave --no-fallback out to let them",
        steps.len(),
        list.join(", ")
    )))
}

fn text(
    report: &RunReport,
    outputs: &[(String, Tensor)],
    labels: &[String],
    style: Style,
) -> String {
    let mut out = String::new();
    let t = &report.timings_ms;
    let head = format!(
        "{} on {}{}: loaded in {}, first run (planning {}included) {}",
        report.model,
        report.device,
        report.how.headline(),
        units::seconds(t.load * 1e-3),
        match report.emulated {
            true => "and emulation here ",
            false => "",
        },
        units::seconds(t.first_run * 1e-3)
    );
    let _ = writeln!(out, "{}", style.headline(&head));
    if let Some(s) = t.steady {
        let _ = writeln!(out, "  again {}", units::seconds(s * 1e-3));
    }
    for (s, (_, tensor)) in report.outputs.iter().zip(outputs) {
        let dims: Vec<String> = s.shape.iter().map(ToString::to_string).collect();
        let _ = writeln!(out, "  {} {} [{}]", s.name, s.dtype, dims.join(", "));
        if let (Some(lo), Some(mean), Some(hi)) = (s.min, s.mean, s.max) {
            let first: Vec<String> = s.first.iter().map(|&v| figure(v)).collect();
            let more = if tensor.len() > first.len() {
                ", ..."
            } else {
                ""
            };
            let _ = writeln!(
                out,
                "    min {}, mean {}, max {}",
                figure(lo),
                figure(mean),
                figure(hi)
            );
            let _ = writeln!(out, "    begins {}{more}", first.join(", "));
        }
        if s.not_finite > 0 {
            let _ = writeln!(
                out,
                "    {} of {} elements are NaN or infinite",
                s.not_finite,
                tensor.len()
            );
        }
        if !s.texts.is_empty() {
            let _ = writeln!(out, "    begins {}", s.texts.join(", "));
        }
        best(tensor, labels, &mut out);
    }
    if report.shares.steps_by_device.keys().any(|d| d != "cpu") {
        let list = report.shares.steps_by_device.iter();
        let list: Vec<String> = list.map(|(d, n)| format!("{n} on {d}")).collect();
        let _ = writeln!(
            out,
            "  steps: {}; {} copied between them",
            list.join(", "),
            units::bytes(report.shares.bytes_moved as f64)
        );
    }
    for f in &report.fallback_steps {
        let _ = writeln!(out, "  host step for {}: {}", f.node, f.reason);
    }
    for c in report.compare.iter().flat_map(|c| &c.outputs) {
        let verdict = if c.agrees {
            "agrees with the reference"
        } else {
            "DIFFERS from the reference"
        };
        let by = c.difference.map_or_else(String::new, |d| {
            format!(" (largest difference {d:.2e} of the largest magnitude)")
        });
        let _ = writeln!(out, "  {}: {verdict}{by}", c.name);
    }
    out
}
