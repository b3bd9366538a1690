//! `cargo xtask zoo --on DEVICE [--precision A,B] [--launch A,B] [--out DIR] [--cache DIR] [NAME...]`: models
//! against their references on a device other than the CPU, by every way asked for, and what ran where. With
//! `--out` requests are timed too, and every step beside its prediction; a file per model and precision goes
//! into that folder, of which `--page` makes a page ([`crate::zoo_page`]). With `--cache` plans are kept there.
use crate::zoo_page::{self, GROSS, Measured, WayMeasured};
use shopfloor::{Cache, Launch, ModelOptions, Precision, Profile, Session, Tensor, inputs};
use shopfloor_tools::planview;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use testkit::zoo::{self, ZooModel};

/// What a device is tried on when nothing is named.
const MODELS: &[&str] = &[
    "digits_cnn",
    "silero_vad",
    "ppocr_cls",
    "ppocr_rec",
    "minilm_l6",
    "skl_mlp",
    "gnn_gcn",
    "if_branches",
    "llama_gqa_ts",
    "llama_gqa_f16",
];

/// Requests before any is timed, and of which the median is taken at most.
const WARM: usize = 3;
const REQUESTS: usize = 50;
/// What they may take together.
const LONGEST: Duration = Duration::from_millis(400);
/// Requests that are looked at step by step.
const PROFILED: usize = 11;

/// What to run.
struct Options {
    on: String,
    precisions: Vec<Precision>,
    launches: Vec<Launch>,
    out: Option<PathBuf>,
    cache: Option<PathBuf>,
    names: Vec<String>,
}

/// What outputs may be off: [`GROSS`] says why it is not the model's own tolerance everywhere.
fn tolerance(model: &ZooModel, precision: Precision) -> f64 {
    let own = model.meta().tolerance;
    match precision {
        Precision::Exact | Precision::F32 => own,
        Precision::Bf16x3 | Precision::Tf32 | Precision::Bf16 => own.max(GROSS),
    }
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn list<T: std::str::FromStr>(value: &str, what: &str) -> Result<Vec<T>, String> {
    let each = value
        .split(',')
        .map(|v| v.parse().map_err(|_| format!("{what} has no '{v}'")));
    each.collect()
}

impl Options {
    fn read(on: &str, args: &[String]) -> Result<Options, String> {
        let mut o = Options {
            on: on.into(),
            precisions: vec![Precision::default()],
            launches: vec![],
            out: None,
            cache: None,
            names: vec![],
        };
        let mut args = args.iter();
        while let Some(a) = args.next() {
            let mut value = || args.next().ok_or(format!("{a} needs a value"));
            match a.as_str() {
                "--precision" => o.precisions = list(value()?, a)?,
                "--launch" => o.launches = list(value()?, a)?,
                "--cache" => o.cache = Some(value()?.into()),
                "--out" => o.out = Some(value()?.into()),
                _ if a.starts_with("--") => return Err(format!("there is no option '{a}'")),
                _ => o.names.push(a.clone()),
            }
        }
        if o.names.is_empty() {
            o.names = MODELS.iter().map(|n| n.to_string()).collect();
        }
        Ok(o)
    }

    fn session(
        &self,
        precision: Precision,
        launch: Option<Launch>,
        path: &Path,
    ) -> Result<Session, String> {
        let mut b = Session::builder()
            .with_device(&self.on)
            .with_model_options(ModelOptions {
                precision,
                ..ModelOptions::default()
            });
        if let Some(l) = launch {
            b = b.with_launch(l);
        }
        if let Some(folder) = &self.cache {
            b = b.with_cache(Cache::new(folder));
        }
        b.commit_from_file(path).map_err(text)
    }
}

/// The median of requests in microseconds, and how many there were.
fn timed(session: &Session, named: &[(&str, &Tensor)]) -> Result<(f64, usize), String> {
    let device = session.runtime().engine().device();
    let emulated = device.emulated_ns().is_some();
    let (warm, most) = if emulated { (0, 1) } else { (WARM, REQUESTS) };
    for _ in 0..warm {
        session.run(named).map_err(text)?;
    }
    let (mut us, began) = (vec![], Instant::now());
    while us.len() < most && (us.len() < 5 || began.elapsed() < LONGEST) {
        let (then, clock) = (Instant::now(), device.emulated_ns());
        session.run(named).map_err(text)?;
        us.push(match device.emulated_ns().zip(clock) {
            Some((now, then)) => (now - then) as f64 * 1e-3,
            None => then.elapsed().as_secs_f64() * 1e6,
        });
    }
    us.sort_by(f64::total_cmp);
    Ok((us[us.len() / 2], us.len()))
}

/// One model at one precision by one way; the line that says how it went.
fn one(
    o: &Options,
    model: &ZooModel,
    path: &Path,
    (precision, launch): (Precision, Option<Launch>),
    into: &mut Option<Measured<Profile>>,
) -> Result<String, String> {
    let session = o.session(precision, launch, path)?;
    let inputs = model.inputs().map_err(text)?;
    let named = inputs::borrowed(&inputs);
    let first = Instant::now();
    let outputs = session.run(&named).map_err(text)?.into_vec();
    let first = first.elapsed().as_secs_f64();
    let report = model
        .check_within(&outputs, tolerance(model, precision))
        .map_err(text)?;
    if !report.passed() {
        return Err(report.to_string());
    }
    let shares = planview::shares(&session);
    let list = shares.steps_by_device.iter();
    let list: Vec<String> = list.map(|(d, n)| format!("{n} on {d}")).collect();
    let mut line = format!(
        "{:.1e} off, first request {first:.2} s, steps {}, {} bytes copied",
        report.worst(),
        list.join(" and "),
        shares.bytes_moved
    );
    for f in planview::fallbacks(&session) {
        line += &format!("\n    on the host: {} ({})", f.node, f.reason);
    }
    let Some(into) = into else { return Ok(line) };
    let engine = session.runtime().engine();
    let device = engine.device();
    let plans = session.runtime().plans();
    let (mut way, mut predicted) = (String::new(), [0.0; 2]);
    for plan in &plans {
        if let Some(t) = device.request_way(plan.plan()) {
            way = t.way.to_string();
            predicted[0] += t.with_copies_s() * 1e6;
            predicted[1] += t.seconds * 1e6;
        }
    }
    let (request_us, requests) = timed(&session, &named)?;
    line += &format!(", {way} {request_us:.1} us ({:.1} predicted)", predicted[0]);
    into.device = device.name().into();
    let costs = &device.machine().costs;
    into.empty_us = (costs.step_s.value + costs.task_s.value) * 1e6;
    into.ways.push(WayMeasured {
        way,
        predicted_us: predicted[0],
        predicted_without_copies_us: predicted[1],
        request_us,
        requests,
        first_ms: first * 1e3,
        off: report.worst(),
    });
    if into.profile.is_none() {
        let (profile, _) = shopfloor::profile(&session, &inputs, 1, PROFILED).map_err(text)?;
        into.profile = Some(profile);
    }
    Ok(line)
}

/// One model by everything asked for; how many of it failed.
fn all(name: &str, o: &Options) -> Result<usize, String> {
    let model = zoo::find(name).ok_or("it is not at hand")?;
    let prepared = model.prepare_temporary().map_err(text)?;
    let launches: Vec<Option<Launch>> = match o.launches.is_empty() {
        true => vec![None],
        false => o.launches.iter().copied().map(Some).collect(),
    };
    let mut failed = 0;
    for &precision in &o.precisions {
        let mut measured = o.out.is_some().then(|| Measured {
            model: name.into(),
            precision: precision.to_string(),
            device: String::new(),
            tolerance: tolerance(&model, precision),
            empty_us: 0.0,
            ways: vec![],
            profile: None,
        });
        for &launch in &launches {
            let what = launch.map_or(String::new(), |l| format!(", {l}"));
            let how = (precision, launch);
            match one(o, &model, &prepared.model, how, &mut measured) {
                Ok(line) => println!("{name} ({precision}{what}): {line}"),
                Err(why) => {
                    failed += 1;
                    println!("{name} ({precision}{what}): FAILED: {why}");
                }
            }
        }
        if let (Some(dir), Some(m)) = (&o.out, measured) {
            let file = dir.join(format!("{name}.{precision}.json"));
            let json = serde_json::to_vec(&m).map_err(text)?;
            shopfloor::write_file(&file, json).map_err(text)?;
        }
    }
    Ok(failed)
}

/// Runs the models named in `args`, or those above, on the device `on`.
pub fn run(on: &str, args: &[String]) -> ExitCode {
    if args.iter().any(|a| a == "--page") {
        return zoo_page::run(on, args);
    }
    let o = match Options::read(on, args) {
        Ok(o) => o,
        Err(e) => {
            eprintln!("zoo: {e}");
            return ExitCode::from(2);
        }
    };
    // What was measured must not be lost for want of a folder.
    if let Some(dir) = &o.out
        && let Err(e) = std::fs::create_dir_all(dir)
    {
        eprintln!(
            "zoo: {}: {e}; name a folder that can be made",
            dir.display()
        );
        return ExitCode::from(2);
    }
    let mut failed = 0;
    for name in &o.names {
        failed += all(name, &o).unwrap_or_else(|why| {
            println!("{name}: FAILED: {why}");
            1
        });
    }
    match failed {
        0 => ExitCode::SUCCESS,
        n => {
            eprintln!("{n} runs failed on {on}");
            ExitCode::FAILURE
        }
    }
}
