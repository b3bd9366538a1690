//! `cargo xtask predict`: predicted beside measured time of models, written to `bench/PREDICTED.md`.
//!
//! The error of a step is |measured - predicted| / measured. A model's median is weighted by the
//! steps' time and takes steps of at least 20 us; its own error is that of the sums over all steps.
use shopfloor::{Machine, Session, machines};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use testkit::zoo;

/// Steps below this are dominated by what a clock can tell.
const LEAST_US: f64 = 20.0;
const WARMUP: usize = 4;
const ACTIVE: usize = 15;
/// What is measured when nobody names models.
const MODELS: &[&str] = &[
    "digits_cnn",
    "ppocr_rec",
    "resnet50_ts",
    "mobilenet_v3_small",
    "vit_tiny_ts",
    "minilm_l6",
    "gpt2_kv",
    "unet_small",
];

/// What came of one model.
struct Row {
    name: String,
    threads: usize,
    steps: usize,
    large: usize,
    measured_us: f64,
    predicted_us: f64,
    median: f64,
    worst: Vec<(f64, f64, String)>,
}

/// The value below which half of the weight lies.
fn weighted_median(list: &mut [(f64, f64)]) -> f64 {
    list.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = list.iter().map(|x| x.1).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    for (v, w) in list.iter() {
        sum += w;
        if sum >= half {
            return *v;
        }
    }
    0.0
}

fn one(name: &str, threads: usize, machine: &Machine, csv: &mut String) -> Result<Row, String> {
    let model = zoo::find(name).ok_or_else(|| format!("{name} is not at hand"))?;
    let path = model.prepare(zoo::cache()).map_err(|e| e.to_string())?;
    let named = model.inputs().map_err(|e| e.to_string())?;
    let mut b = Session::builder()
        .with_threads(threads)
        .with_machine(machine.clone());
    for (n, t) in &named {
        b = b.with_shape(n, t.shape());
    }
    let session = b.commit_from_file(&path).map_err(|e| e.to_string())?;
    let (p, _) = shopfloor::profile(&session, &named, WARMUP, ACTIVE).map_err(|e| e.to_string())?;
    let plans = session.runtime().plans();
    let mut errors = Vec::new();
    let mut worst = Vec::new();
    for s in &p.steps {
        let e = (s.time_us - s.step.predicted_us).abs() / s.time_us.max(1e-9);
        let step = plans
            .iter()
            .flat_map(|p| p.plan().blocks())
            .flat_map(|b| &b.steps)
            .find(|x| x.name == s.step.name);
        if let Some(x) = step {
            let c = &x.predicted;
            let part = |l: &[machine::Share]| {
                let all: Vec<String> = l
                    .iter()
                    .map(|s| format!("{}={:.3}", s.name, s.seconds * 1e6))
                    .collect();
                all.join(" ")
            };
            let _ = writeln!(
                csv,
                "{name}\t{threads}\t{}\t{}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
                s.step.name,
                s.step.family,
                s.time_us,
                s.step.predicted_us,
                c.latency_s * 1e6,
                c.launch_s * 1e6,
                x.cost_work.tasks,
                x.cost_work.statements,
                x.cost_work.handoffs,
                part(&c.levels),
                part(&c.units),
                s.step.shapes,
                s.step.schedule,
            );
        }
        if s.time_us >= LEAST_US {
            errors.push((e, s.time_us));
            worst.push((
                (s.time_us - s.step.predicted_us).abs(),
                e,
                s.step.name.clone(),
            ));
        }
    }
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    worst.truncate(3);
    Ok(Row {
        name: name.into(),
        threads,
        steps: p.steps.len(),
        large: errors.len(),
        measured_us: p.steps_us,
        predicted_us: p.predicted_us,
        median: weighted_median(&mut errors),
        worst,
    })
}

pub fn run(args: &[String]) -> ExitCode {
    let mut names: Vec<String> = Vec::new();
    let (mut out, mut csv_path) = (String::from("bench/PREDICTED.md"), None);
    let mut args = args.iter();
    while let Some(a) = args.next() {
        match a.as_str() {
            "--out" => out = args.next().cloned().unwrap_or(out),
            "--csv" => csv_path = args.next().cloned(),
            a if a.starts_with("--") => {
                eprintln!("predict: {a} is no option; say [--out FILE] [--csv FILE] [NAME...]");
                return ExitCode::from(2);
            }
            a => names.push(a.into()),
        }
    }
    if names.is_empty() {
        names = MODELS.iter().map(|m| (*m).into()).collect();
    }
    let machine = match machines::find("present") {
        Ok(m) => m,
        Err(e) => {
            eprintln!("predict: {e}");
            return ExitCode::FAILURE;
        }
    };
    let mut text = format!(
        "# Predicted beside measured\n\nMachine: {}. Each model at the sizes of its reference, {ACTIVE} requests after {WARMUP}; a step's time is its median. `steps` is the time-weighted median of |measured - predicted| / measured over steps of at least {LEAST_US} us, `model` the same of the sums over all steps. Made by `cargo xtask predict`.\n\n| model | threads | steps | of 20 us | measured | predicted | model | steps | furthest off |\n|---|---|---|---|---|---|---|---|---|\n",
        machine.name
    );
    let mut csv = String::new();
    let mut failed = false;
    for name in &names {
        for threads in [1, machine.worker_count()] {
            match one(name, threads, &machine, &mut csv) {
                Ok(r) => {
                    let model = (r.measured_us - r.predicted_us).abs() / r.measured_us.max(1e-9);
                    let worst: Vec<String> = r
                        .worst
                        .iter()
                        .map(|w| format!("{} ({:.0} %)", w.2.replace('|', "/"), 100.0 * w.1))
                        .collect();
                    let line = format!(
                        "| {} | {} | {} | {} | {:.3} ms | {:.3} ms | {:.0} % | {:.0} % | {} |",
                        r.name,
                        r.threads,
                        r.steps,
                        r.large,
                        r.measured_us / 1e3,
                        r.predicted_us / 1e3,
                        100.0 * model,
                        100.0 * r.median,
                        worst.join(", ")
                    );
                    println!("{line}");
                    let _ = writeln!(text, "{line}");
                }
                Err(e) => {
                    eprintln!("predict: {name}: {e}");
                    failed = true;
                }
            }
        }
    }
    let written = std::fs::write(Path::new(&out), text)
        .and_then(|()| csv_path.map_or(Ok(()), |p| std::fs::write(p, csv)));
    if let Err(e) = written {
        eprintln!("predict: {out}: {e}");
        failed = true;
    }
    ExitCode::from(u8::from(failed))
}
