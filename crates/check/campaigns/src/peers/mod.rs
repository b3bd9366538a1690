//! `cargo xtask bench-peers`: this engine beside onnxruntime, openvino, rten and tract, written into
//! `bench/PEERS.md`.
//!
//! Every engine measures in a process of its own, one after the other, round after round, so that a
//! machine whose clock moves moves it for all of them. The others live in the user's cache folder:
//! a Python environment of `bench/peers/requirements.txt` and programs built from `bench/peers`.
mod engines;
mod own;
mod table;

use crate::pages::root;
use crate::quiet::Quiet;
use engines::{Engine, Outcome};
use indicatif::{ProgressBar, ProgressStyle};
use shopfloor::machines;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use testkit::zoo::{self, ZooModel};

const USAGE: &str = "usage: cargo xtask bench-peers [MODEL...] [--threads N] [--seconds S] [--rounds N] [--zoo DIR] [--out FILE] [--lock FILE]... [--without ENGINE]...

  --threads N      threads of every engine [default: as many as this machine has workers]
  --seconds S      how long each engine measures in a round [default: 0.5]
  --rounds N       rounds; the median of their medians counts [default: 3]
  --zoo DIR        folder of model folders [default: the shared zoo and the bundled models]
  --out FILE       where the page goes [default: bench/PEERS.md]
  --lock FILE      held locked (flock) while a model is measured, so that other jobs can keep away
  --without ENGINE onnxruntime, openvino, rten or tract is left out";

/// What was asked for.
struct Options {
    models: Vec<String>,
    threads: usize,
    seconds: f64,
    rounds: usize,
    zoo: Option<PathBuf>,
    out: PathBuf,
    locks: Vec<PathBuf>,
    without: Vec<String>,
}

/// One model's outcomes, in the order of the engines.
struct Row {
    name: String,
    flops: u64,
    weight_bytes: u64,
    outcomes: Vec<Outcome>,
}

fn options(args: &[String]) -> Option<Options> {
    let mut o = Options {
        models: vec![],
        threads: 0,
        seconds: 0.5,
        rounds: 3,
        zoo: None,
        out: root().join("bench/PEERS.md"),
        locks: vec![],
        without: vec![],
    };
    let mut it = args.iter();
    while let Some(a) = it.next() {
        match a.as_str() {
            "--threads" => o.threads = it.next()?.parse().ok().filter(|n| *n > 0)?,
            "--seconds" => o.seconds = it.next()?.parse().ok().filter(|s| *s > 0.0)?,
            "--rounds" => o.rounds = it.next()?.parse().ok().filter(|n| *n > 0)?,
            "--zoo" => o.zoo = Some(it.next()?.into()),
            "--out" => o.out = it.next()?.into(),
            "--lock" => o.locks.push(it.next()?.into()),
            "--without" => o.without.push(it.next()?.clone()),
            a if a.starts_with("--") => return None,
            a => o.models.push(a.into()),
        }
    }
    Some(o)
}

fn models(o: &Options) -> Result<Vec<ZooModel>, String> {
    let all = match &o.zoo {
        Some(dir) => zoo::models_in(dir).map_err(|e| e.to_string())?,
        None => zoo::names().iter().filter_map(|n| zoo::find(n)).collect(),
    };
    if let Some(gone) = o.models.iter().find(|n| all.iter().all(|m| m.name() != *n)) {
        return Err(format!("{gone} is no model at hand"));
    }
    let wanted = |m: &ZooModel| match o.models.is_empty() {
        true => !m.meta().large,
        false => o.models.iter().any(|n| n == m.name()),
    };
    Ok(all.into_iter().filter(wanted).collect())
}

pub fn run(args: &[String]) -> ExitCode {
    if args.first().is_some_and(|a| a == own::RUNNER) {
        return own::run(&args[1..]);
    }
    let Some(o) = options(args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match measure(o) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench-peers: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all models and writes the page after each, so that an end before its time loses nothing.
fn measure(mut o: Options) -> Result<(), String> {
    let machine = machines::find("detected").map_err(|e| e.to_string())?;
    if o.threads == 0 {
        o.threads = machine.worker_count();
    }
    let models = models(&o)?;
    eprintln!("bench-peers: making the other engines ready");
    let engines: Vec<Engine> = engines::all(&o.without);
    for e in engines.iter().filter(|e| e.problem.is_some()) {
        eprintln!("bench-peers: {e}");
    }
    let mut quiet = Quiet::new(std::mem::take(&mut o.locks));
    quiet.hold()?;
    let peak = {
        let found = shopfloor_tools::calibrate(
            machine::Extent::Full,
            Some(Duration::from_secs(3)),
            &mut |_, _| (),
        );
        let m = machines::calibrated(&found.map_err(|e| e.to_string())?);
        m.unit(machine::UnitClass::Fma, machine::NumType::F32)
            .map_or(0.0, |u| u.at(o.threads))
    };
    quiet.release();
    let bar = ProgressBar::new((models.len() * o.rounds * engines.len()) as u64);
    if let Ok(s) = ProgressStyle::with_template("{msg:28} [{bar:40}] {pos}/{len} {eta}") {
        bar.set_style(s.progress_chars("=> "));
    }
    let mut rows = Vec::new();
    for model in &models {
        bar.set_message(model.name().to_string());
        let row = one(model, &engines, &o, &mut quiet, &bar)?;
        bar.suspend(|| println!("{}", table::line(&row)));
        rows.push(row);
        let head = table::Head {
            machine: &machine.name,
            threads: o.threads,
            seconds: o.seconds,
            rounds: o.rounds,
            peak,
            of: models.len(),
        };
        let page = table::page(&head, &engines, &rows);
        std::fs::write(&o.out, page).map_err(|e| format!("{}: {e}", o.out.display()))?;
    }
    bar.finish_and_clear();
    Ok(())
}

fn one(
    model: &ZooModel,
    engines: &[Engine],
    o: &Options,
    quiet: &mut Quiet,
    bar: &ProgressBar,
) -> Result<Row, String> {
    let text = |e: &dyn std::fmt::Display| format!("{}: {e}", model.name());
    let prepared = model.prepare_temporary().map_err(|e| text(&e))?;
    let folder = tempfile::tempdir().map_err(|e| text(&e))?;
    let inputs = model.inputs().map_err(|e| text(&e))?;
    own::write_inputs(&inputs, folder.path()).map_err(|e| text(&e))?;
    let mut rounds: Vec<Vec<Outcome>> = vec![Vec::new(); engines.len()];
    for _ in 0..o.rounds {
        quiet.hold()?;
        for (e, all) in engines.iter().zip(&mut rounds) {
            // What failed once fails again.
            if !all.iter().any(Result::is_err) {
                all.push(e.run(&prepared.model, folder.path(), o.threads, o.seconds));
            }
            bar.inc(1);
        }
    }
    let size = |file: &str| {
        let path = prepared.model.with_file_name(file);
        std::fs::metadata(path).map_or(0, |m| m.len())
    };
    Ok(Row {
        name: model.name().into(),
        flops: model.meta().flops,
        weight_bytes: size("weights.bin") + size("model.onnx"),
        outcomes: rounds.into_iter().map(engines::together).collect(),
    })
}
