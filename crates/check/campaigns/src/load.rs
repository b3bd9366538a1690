//! `cargo xtask load`: how long every model takes to be ready, with and without a cache, in new
//! processes and for a shape outside the box, to `bench/LOAD.md`.
use crate::pages::{commit, cpu_with, date, figures, number, root};
use crate::quiet::Quiet;
use shopfloor::{Cache, Model, ModelOptions, Session, inputs};
use shopfloor_tools::report::{LoadReport, Planned};
use shopfloor_tools::{load_times, planning_times, steady_ms};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;
use testkit::zoo;

const USAGE: &str =
    "usage: cargo xtask load [MODEL...] [--threads N] [--out FILE] [--lock FILE]...";
/// First argument that makes this a process that is measured.
const CHILD: &str = "--measure";
/// The same for one that plans without a cache.
const PLANS: &str = "--plans";
/// Processes that plan without a cache.
const PLANNINGS: usize = 9;

/// First loads of less than this are listed, but break no bound: beside them the fixed cost of
/// starting an engine and opening a handful of files counts, milliseconds.
const SHORT_MS: f64 = 20.0;
/// A second load takes at most this share of the first.
const SECOND: f64 = 0.25;
/// A shape outside the box takes at most this share of the first planning.
const OUTSIDE: f64 = 0.20;
/// A model of this many nodes is planned within a second.
const NODES: usize = 1000;

/// Loads a model with a cache and runs it once, as a service would begin; prints its times.
fn child(args: &[String]) -> Result<String, String> {
    let [name, threads, path, folder] = args else {
        return Err(USAGE.into());
    };
    let model = zoo::find(name).ok_or_else(|| format!("{name} is not at hand"))?;
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let named = model.inputs().map_err(|e| text(&e))?;
    let began = Instant::now();
    let session = Session::builder()
        .with_threads(threads.parse().map_err(|_| USAGE.to_string())?)
        .with_cache(Cache::new(folder))
        .commit_from_file(path)
        .map_err(|e| text(&e))?;
    let load = began.elapsed().as_secs_f64() * 1e3;
    let began = Instant::now();
    session
        .run(&inputs::borrowed(&named))
        .map_err(|e| text(&e))?;
    let first_run = began.elapsed().as_secs_f64() * 1e3;
    let request = || session.run(&inputs::borrowed(&named)).map(drop);
    let (steady, beside) = steady_ms(&request).map_err(|e| text(&e))?;
    if let Some(why) = session.cache_problem() {
        return Err(why.into());
    }
    // As a process that ends here.
    std::mem::forget(session);
    let times = serde_json::json!({
        "load": load, "first_run": first_run, "steady": steady, "beside": beside,
    });
    Ok(serde_json::json!({ "timings_ms": times }).to_string())
}

/// Plans a model, and for shapes outside its box; prints the times.
fn plans(args: &[String]) -> Result<String, String> {
    let [name, threads, path] = args else {
        return Err(USAGE.into());
    };
    let model = zoo::find(name).ok_or_else(|| format!("{name} is not at hand"))?;
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let named = model.inputs().map_err(|e| text(&e))?;
    let threads = threads.parse().map_err(|_| USAGE.to_string())?;
    let builder = Session::builder().with_threads(threads);
    let options = ModelOptions::default();
    let planned = planning_times(&builder, Path::new(path), &options, Some(named));
    let planned = planned.map_err(|e| text(&e))?;
    serde_json::to_string(&planned).map_err(|e| text(&e))
}

fn measured(name: &str, threads: usize) -> Result<LoadReport, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let model = zoo::find(name).ok_or("it is not at hand")?;
    let prepared = model.prepare_temporary().map_err(|e| text(&e))?;
    let me = std::env::current_exe().map_err(|e| text(&e))?;
    let folder = tempfile::tempdir().map_err(|e| text(&e))?;
    // The file's pages are in memory for the first load as for the second.
    Model::open(&prepared.model, &ModelOptions::default()).map_err(|e| text(&e))?;
    read_through(&prepared.model);
    let mut planned: Vec<Planned> = Vec::new();
    for _ in 0..PLANNINGS {
        let mut c = Command::new(&me);
        c.args(["load", PLANS, name, &threads.to_string()]);
        let out = c.arg(&prepared.model).output().map_err(|e| text(&e))?;
        if !out.status.success() {
            return Err(String::from_utf8_lossy(&out.stderr).trim().into());
        }
        planned.push(serde_json::from_slice(&out.stdout).map_err(|e| text(&e))?);
    }
    load_times(
        &planned,
        &Cache::new(folder.path().join("cache")),
        &|cache| {
            let mut c = Command::new(&me);
            c.args(["load", CHILD, name, &threads.to_string()]);
            c.arg(&prepared.model).arg(cache.folder());
            c
        },
        &|_| (),
    )
    .map_err(|e| text(&e))
}

/// Reads a model's file and what lies beside it.
fn read_through(model: &Path) {
    let beside = model.with_file_name("weights.bin");
    for f in [model, &beside] {
        if let Ok(mut f) = std::fs::File::open(f) {
            let _ = std::io::copy(&mut f, &mut std::io::sink());
        }
    }
}

/// What of a report breaks a bound.
fn broken(r: &LoadReport) -> Vec<&'static str> {
    let mut out = Vec::new();
    if r.first.loading() > SHORT_MS && r.ratio() > SECOND {
        out.push("second");
    }
    if r.planning.outside_share().is_some_and(|s| s > OUTSIDE) {
        out.push("outside");
    }
    if r.nodes >= NODES && r.planning.model + r.planning.bind > 1e3 {
        out.push("planning");
    }
    if r.plans_inside > 0 {
        out.push("inside");
    }
    out
}

fn row(name: &str, r: &LoadReport) -> String {
    let (p, second) = (&r.planning, r.second());
    let percent = |v: f64| format!("{:.0}%", v * 100.0);
    let outside = match (p.outside, p.outside_share()) {
        (Some(o), Some(s)) => format!("{} | {}", number(o), percent(s)),
        _ => "- | -".into(),
    };
    let broken = broken(r);
    let kept = match broken.is_empty() {
        true => "yes".into(),
        false => format!("NO: {}", broken.join(", ")),
    };
    format!(
        "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {outside} | {kept} |",
        r.nodes,
        r.steps,
        number(r.first.loading()),
        number(second.loading()),
        percent(r.ratio()),
        number(second.load),
        number(second.first_run),
        number(second.steady),
        number(second.wall),
        number(p.model + p.bind),
        number(p.model + p.first),
    )
}

pub fn run(args: &[String]) -> ExitCode {
    let measures = match args.first().map(String::as_str) {
        Some(CHILD) => Some(child(&args[1..])),
        Some(PLANS) => Some(plans(&args[1..])),
        _ => None,
    };
    if let Some(done) = measures {
        return match done {
            Ok(line) => {
                println!("{line}");
                ExitCode::SUCCESS
            }
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        };
    }
    let (mut names, mut out, mut threads) = (Vec::new(), root().join("bench/LOAD.md"), 2usize);
    let mut locks = Vec::new();
    let mut it = args.iter();
    while let Some(a) = it.next() {
        match (a.as_str(), a.starts_with("--").then(|| it.next()).flatten()) {
            ("--out", Some(v)) => out = v.into(),
            ("--threads", Some(v)) => threads = v.parse().unwrap_or(2),
            ("--lock", Some(v)) => locks.push(v.into()),
            (a, None) if !a.starts_with("--") => names.push(a.to_string()),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    if names.is_empty() {
        let large = |n: &String| zoo::find(n).is_some_and(|m| m.meta().large);
        names = zoo::names().into_iter().filter(|n| !large(n)).collect();
    }
    let mut quiet = Quiet::new(locks);
    let (mut rows, mut wrong) = (String::new(), 0);
    for name in &names {
        let done = quiet.hold().and_then(|()| measured(name, threads));
        let line = match done {
            Ok(r) => {
                wrong += usize::from(!broken(&r).is_empty());
                row(name, &r)
            }
            Err(e) => {
                wrong += 1;
                format!("| {name} | {} |", e.replace('|', "/"))
            }
        };
        println!("{line}");
        let _ = writeln!(rows, "{line}");
    }
    quiet.release();
    let text = format!(
        "# From a file to the first answer\n\n{}, commit {}, {threads} threads, milliseconds. Made by \
         `cargo xtask load`.\n\n\
         A *load* is everything from the start of the engine to the first answer, without the time that \
         the same request takes when nothing is left to be made: `load + request - run`, all three measured \
         in one process (`run` is a median). Starting and ending a process is not in it; `process` has all \
         of it. `first` is a load by a new process with an empty cache, `second` with a filled one (both \
         medians of several), whose parts are `load`, `request`, `run` and `process`. The model's file is in \
         the page cache for all of them.\n\n\
         `planned` is reading, rewriting, fusing and binding in a process that has no cache and plans for the \
         first time. The *first planning* is what such a process takes from the file to a plan that runs: the \
         same with proof, compiling and packing of weights. `outside` is \
         what a request of a shape outside all boxes at hand takes before it runs there (the median of those \
         of five shapes that need a plan, one to five further along a dimension): schedules, proof, \
         compiling, and packing where it packs anew; its share is of the first planning. These are the times of one \
         of {PLANNINGS} processes, that of median share: what slows the machine down for a while slows all of them.\n\n\
         A second load takes at most {:.0}% of the first where that takes over {SHORT_MS} ms, a shape \
         outside the box at most {:.0}% of the first planning, a model of {NODES} nodes or more is planned \
         within a second, and a shape inside the box makes no plan.\n\n{}\n\
         | model | nodes | steps | first | second | share | load | request | run | process | planned | first planning | outside | share | kept |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n{rows}",
        date(),
        commit(),
        SECOND * 100.0,
        OUTSIDE * 100.0,
        figures(
            "load",
            &cpu_with(threads),
            &[(
                format!(
                    "models of {} that take longer to load or plan than their limits",
                    names.len()
                ),
                wrong.to_string(),
            )],
        ),
    );
    if let Err(e) = std::fs::write(&out, text) {
        eprintln!("load: {}: {e}", out.display());
        return ExitCode::FAILURE;
    }
    println!("{} models, {wrong} beyond a bound", names.len());
    ExitCode::from(u8::from(wrong > 0))
}
