//! `cargo xtask timeline`: what it costs that workers always record what they did last, to
//! `bench/TIMELINE.md`: pairs of processes that differ in it alone, in turns.
use crate::pages::{commit, cpu_with, date, figures, geometric, number, root};
use crate::quiet::Quiet;
use shopfloor::{Session, inputs};
use std::fmt::Write as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use testkit::zoo;

const USAGE: &str =
    "usage: cargo xtask timeline [MODEL...] [--threads N] [--pairs N] [--lock FILE]...";
/// First argument that makes this a process that is measured.
const CHILD: &str = "--measure";
/// What turns the recording off; see `Tracks` of the CPU's device.
const OFF: &str = "SHOPFLOOR_NO_TIMELINE";
/// How long each process answers requests.
const SLICE: Duration = Duration::from_millis(600);
/// Small and large steps, one and many tasks for each.
const MODELS: [&str; 8] = [
    "digits_cnn",
    "skl_mlp",
    "rnn_variants",
    "minilm_l6",
    "ppocr_rec",
    "mobilenet_v3_small",
    "llama_gqa_ts",
    "resnet50_ts",
];
/// What it may cost.
const MOST: f64 = 1.01;

/// Answers requests for a while; prints the microseconds of the median one.
fn child(args: &[String]) -> Result<f64, String> {
    let [name, threads, path] = args else {
        return Err(USAGE.into());
    };
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let model = zoo::find(name).ok_or_else(|| format!("{name} is not at hand"))?;
    let named = model.inputs().map_err(|e| text(&e))?;
    let session = Session::builder()
        .with_threads(threads.parse().map_err(|_| USAGE.to_string())?)
        .commit_from_file(path)
        .map_err(|e| text(&e))?;
    let given = inputs::borrowed(&named);
    let mut took = Vec::new();
    // A tenth of the requests finds caches and clocks as they will be.
    let began = Instant::now();
    while took.len() < 20 || began.elapsed() < SLICE {
        let at = Instant::now();
        session.run(&given).map_err(|e| text(&e))?;
        took.push(at.elapsed().as_secs_f64() * 1e6);
    }
    took.drain(..took.len() / 10);
    took.sort_by(f64::total_cmp);
    Ok(took[took.len() / 2])
}

/// Medians with and without, of every pair.
fn measured(
    name: &str,
    threads: usize,
    pairs: usize,
    quiet: &mut Quiet,
) -> Result<Vec<[f64; 2]>, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let model = zoo::find(name).ok_or("it is not at hand")?;
    let prepared = model.prepare_temporary().map_err(|e| text(&e))?;
    let me = std::env::current_exe().map_err(|e| text(&e))?;
    let one = |on: bool| -> Result<f64, String> {
        let mut c = Command::new(&me);
        c.args(["timeline", CHILD, name, &threads.to_string()])
            .arg(&prepared.model);
        match on {
            true => c.env_remove(OFF),
            false => c.env(OFF, "1"),
        };
        let out = c.output().map_err(|e| text(&e))?;
        let said = String::from_utf8_lossy(&out.stdout);
        said.trim()
            .parse()
            .map_err(|_| String::from_utf8_lossy(&out.stderr).trim().to_string())
    };
    let mut all = Vec::new();
    for k in 0..pairs {
        quiet.hold()?;
        // Who goes first changes.
        let first = one(k % 2 == 0)?;
        let second = one(k % 2 == 1)?;
        all.push(match k % 2 {
            0 => [first, second],
            _ => [second, first],
        });
    }
    Ok(all)
}

/// The median, between the ends of the middle half.
fn spread(mut v: Vec<f64>) -> [f64; 3] {
    v.sort_by(f64::total_cmp);
    let at = |q: f64| v[((v.len() - 1) as f64 * q).round() as usize];
    [at(0.25), at(0.5), at(0.75)]
}

pub fn run(args: &[String]) -> ExitCode {
    if args.first().is_some_and(|a| a == CHILD) {
        return match child(&args[1..]) {
            Ok(us) => {
                println!("{us}");
                ExitCode::SUCCESS
            }
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        };
    }
    let (mut names, mut threads, mut pairs, mut locks) = (Vec::new(), 2usize, 12usize, Vec::new());
    let mut it = args.iter();
    while let Some(a) = it.next() {
        match (a.as_str(), a.starts_with("--").then(|| it.next()).flatten()) {
            ("--threads", Some(v)) => threads = v.parse().unwrap_or(2),
            ("--pairs", Some(v)) => pairs = v.parse().unwrap_or(12).max(1),
            ("--lock", Some(v)) => locks.push(v.into()),
            (a, None) if !a.starts_with("--") => names.push(a.to_string()),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    if names.is_empty() {
        names = MODELS.map(String::from).to_vec();
    }
    let mut quiet = Quiet::new(locks);
    let (mut rows, mut ratios) = (String::new(), Vec::new());
    for name in &names {
        let line = match measured(name, threads, pairs, &mut quiet) {
            Ok(all) => {
                let [low, mid, high] = spread(all.iter().map(|p| p[0] / p[1]).collect());
                let with = spread(all.iter().map(|p| p[0]).collect())[1];
                let without = spread(all.iter().map(|p| p[1]).collect())[1];
                ratios.push(mid);
                format!(
                    "| {name} | {} | {} | {mid:.4} | {low:.4} to {high:.4} |",
                    number(with),
                    number(without)
                )
            }
            Err(e) => format!("| {name} | {} |", e.replace('|', "/")),
        };
        println!("{line}");
        let _ = writeln!(rows, "{line}");
    }
    quiet.release();
    let failed = names.len() - ratios.len();
    let (mean, n) = geometric(ratios.iter().copied());
    let text = format!(
        "# What recording costs\n\n\
         {}, commit {}, {threads} threads. Made by `cargo xtask timeline`.\n\n\
         Workers always record what they did last. {pairs} pairs of processes answer requests for {} ms each, \
         in turns, one of them without the recording (`{OFF}` set, which leaves its rings out); microseconds \
         of the median request, and the median and the middle half of the pairs' ratios.\n\n\
         | model | with | without | ratio | middle half |\n|---|---|---|---|---|\n{rows}\n\
         At most {MOST} is wanted in the geometric mean.\n\n{}",
        date(),
        commit(),
        SLICE.as_millis(),
        figures(
            "recording",
            &cpu_with(threads),
            &[(
                format!("time of a request with recording over without, {n} models"),
                format!("{mean:.4} times"),
            )],
        ),
    );
    let out = root().join("bench/TIMELINE.md");
    if let Err(e) = std::fs::write(&out, text) {
        eprintln!("timeline: {}: {e}", out.display());
        return ExitCode::FAILURE;
    }
    println!("{n} models, {mean:.4} times the time without it");
    ExitCode::from(u8::from(failed > 0 || mean > MOST))
}
