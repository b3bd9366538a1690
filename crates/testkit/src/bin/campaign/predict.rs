//! `cargo xtask zoo --predict`: predicted beside measured time of models, written to
//! `bench/PREDICTED.md`.
//!
//! The error of a step is |measured - predicted| / measured. A model's median is weighted by the
//! steps' time and takes steps of at least 20 us; its own error is that of the sums over all steps.
//! Everything is measured twice: what two identical runs differ by is what no prediction can know.
use crate::pages::{commit, date, root};
use crate::quiet::Quiet;
use shopfloor::{Machine, Session, machines};
use std::fmt::Write as _;
use std::process::ExitCode;
use testkit::zoo;

/// Steps below this are dominated by what a clock can tell.
const LEAST_US: f64 = 20.0;
const WARMUP: usize = 4;
const ACTIVE: usize = 15;
/// Models that constants of the cost model were chosen on; all others were not seen.
const FITTED: &[&str] = &[
    "digits_cnn",
    "ppocr_rec",
    "resnet50_ts",
    "mobilenet_v3_small",
    "vit_tiny_ts",
    "minilm_l6",
    "gpt2_kv",
    "unet_small",
];
/// What is aimed at: the error of steps and of models.
const AIMS: (f64, f64) = (0.25, 0.20);

/// What came of one model.
struct Row {
    name: String,
    steps: usize,
    large: usize,
    measured_us: f64,
    predicted_us: f64,
    median: f64,
    /// Differences of two identical runs, of the model and of its steps.
    again: (f64, f64),
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
    let prepared = model.prepare_temporary().map_err(|e| e.to_string())?;
    let path = &prepared.model;
    let named = model.inputs().map_err(|e| e.to_string())?;
    let mut b = Session::builder()
        .with_threads(threads)
        .with_machine(machine.clone());
    for (n, t) in &named {
        b = b.with_shape(n, t.shape());
    }
    let session = b.commit_from_file(path).map_err(|e| e.to_string())?;
    let (p, _) = shopfloor::profile(&session, &named, WARMUP, ACTIVE).map_err(|e| e.to_string())?;
    let (second, _) = shopfloor::profile(&session, &named, 1, ACTIVE).map_err(|e| e.to_string())?;
    let mut again: Vec<(f64, f64)> = Vec::new();
    for s in p.steps.iter().filter(|s| s.time_us >= LEAST_US) {
        if let Some(t) = second.steps.iter().find(|t| t.step.name == s.step.name) {
            again.push(((t.time_us - s.time_us).abs() / s.time_us, s.time_us));
        }
    }
    let apart = (second.steps_us - p.steps_us).abs() / p.steps_us.max(1e-9);
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
        steps: p.steps.len(),
        large: errors.len(),
        measured_us: p.steps_us,
        predicted_us: p.predicted_us,
        median: weighted_median(&mut errors),
        again: (apart, weighted_median(&mut again)),
        worst,
    })
}

/// A share as a whole number of percent.
fn percent(v: f64) -> String {
    format!("{:.0} %", 100.0 * v)
}

/// How many of some models keep the aims, and the medians of their errors.
fn summary(what: &str, rows: &[&Row]) -> String {
    let error = |r: &&Row| (r.measured_us - r.predicted_us).abs() / r.measured_us.max(1e-9);
    let with_steps = || rows.iter().filter(|r| r.large > 0);
    let middle = |mut v: Vec<f64>| {
        v.sort_by(f64::total_cmp);
        v.get(v.len() / 2).copied().unwrap_or(0.0)
    };
    format!(
        "- {what}: {} models; steps within {} in {} of the {} that have steps of {LEAST_US} us, median {}; the whole within {} in {}, median {}\n",
        rows.len(),
        percent(AIMS.0),
        with_steps().filter(|r| r.median <= AIMS.0).count(),
        with_steps().count(),
        percent(middle(with_steps().map(|r| r.median).collect())),
        percent(AIMS.1),
        rows.iter().filter(|r| error(r) <= AIMS.1).count(),
        percent(middle(rows.iter().map(error).collect())),
    )
}

/// `zoo --predict [--threads N] [--out FILE] [--csv FILE] [--lock FILE]... [NAME...]`.
pub fn run(args: &[String]) -> ExitCode {
    let mut names: Vec<String> = Vec::new();
    let (mut out, mut csv_path) = (root().join("bench/PREDICTED.md"), None);
    let (mut threads, mut locks) = (0usize, Vec::new());
    let mut args = args.iter();
    while let Some(a) = args.next() {
        match (
            a.as_str(),
            a.starts_with("--").then(|| args.next()).flatten(),
        ) {
            ("--out", Some(v)) => out = v.into(),
            ("--csv", Some(v)) => csv_path = Some(v.clone()),
            ("--lock", Some(v)) => locks.push(v.into()),
            ("--threads", Some(v)) => threads = v.parse().unwrap_or(0),
            (a, None) if !a.starts_with("--") => names.push(a.into()),
            (a, _) => {
                eprintln!(
                    "zoo --predict: {a} is no option or lacks its value; say [--threads N] [--out FILE] [--csv FILE] [--lock FILE]... [NAME...]"
                );
                return ExitCode::from(2);
            }
        }
    }
    if names.is_empty() {
        let large = |n: &String| zoo::find(n).is_some_and(|m| m.meta().large);
        names = zoo::names().into_iter().filter(|n| !large(n)).collect();
    }
    let machine = match machines::find("present") {
        Ok(m) => m,
        Err(e) => {
            eprintln!("zoo --predict: {e}");
            return ExitCode::FAILURE;
        }
    };
    if threads == 0 {
        threads = machine.worker_count();
    }
    let mut quiet = Quiet::new(locks);
    let (mut csv, mut failed) = (String::new(), false);
    let (mut rows, mut gone) = (Vec::new(), String::new());
    let mut table = String::new();
    for name in &names {
        let held = quiet.hold();
        match held.and_then(|()| one(name, threads, &machine, &mut csv)) {
            Ok(r) => {
                let model = (r.measured_us - r.predicted_us).abs() / r.measured_us.max(1e-9);
                let worst = |w: &(f64, f64, String)| {
                    format!("{} ({})", w.2.replace('|', "/"), percent(w.1))
                };
                let worst: Vec<String> = r.worst.iter().map(worst).collect();
                let steps = |v: f64| match r.large {
                    0 => "–".to_string(),
                    _ => percent(v),
                };
                let line = format!(
                    "| {} | {} | {} | {} | {:.3} ms | {:.3} ms | {} | {} | {} | {} | {} |",
                    r.name,
                    if FITTED.contains(&name.as_str()) {
                        "fitted"
                    } else {
                        ""
                    },
                    r.steps,
                    r.large,
                    r.measured_us / 1e3,
                    r.predicted_us / 1e3,
                    percent(model),
                    percent(r.again.0),
                    steps(r.median),
                    steps(r.again.1),
                    worst.join(", ")
                );
                println!("{line}");
                let _ = writeln!(table, "{line}");
                rows.push(r);
            }
            Err(e) => {
                eprintln!("zoo --predict: {name}: {e}");
                let _ = writeln!(gone, "- {name}: {e}");
                failed = true;
            }
        }
    }
    let (fitted, unseen): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|r| FITTED.contains(&r.name.as_str()));
    let text = format!(
        "# Predicted beside measured\n\n{}, commit {}, {}, {threads} threads. Each model at the sizes of its reference, {ACTIVE} requests after {WARMUP}; a step's time is its median. `model` is |measured - predicted| / measured of the sums over all steps, `steps` the time-weighted median of the same over steps of at least {LEAST_US} us; beside each is what two identical runs differ by. Constants of the cost model were chosen on the models marked as fitted. Made by `cargo xtask zoo --predict`.\n\n{}{}{gone}\n| model | | steps | of {LEAST_US} us | measured | predicted | model | again | steps | again | furthest off |\n|---|---|---|---|---|---|---|---|---|---|---|\n{table}",
        date(),
        commit(),
        machine.name,
        summary("not seen by the fit", &unseen),
        summary("fitted", &fitted),
    );
    let written = std::fs::write(&out, text)
        .and_then(|()| csv_path.map_or(Ok(()), |p| std::fs::write(p, csv)));
    if let Err(e) = written {
        eprintln!("zoo --predict: {}: {e}", out.display());
        failed = true;
    }
    ExitCode::from(u8::from(failed))
}
