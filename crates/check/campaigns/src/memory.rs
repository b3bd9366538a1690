//! `cargo xtask memory`: memory stated before loading beside what a fresh process took, to
//! `bench/MEMORY.md`.
use crate::pages::{self, commit, cpu_with, date, root};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use testkit::memory::{Figures, Shapes, figures, over_shapes};
use testkit::zoo;

const USAGE: &str =
    "usage: cargo xtask memory [--out FILE] [--threads N] [--shapes N [--longest N]] [MODEL...]

  --shapes N   requests of random shapes, of MODEL or of some models: only their table
  --longest N  the largest size drawn for what is no batch [default: 24]";
/// First argument that makes this the process that is measured.
const CHILD: &str = "--measure";
/// Models that random shapes are drawn for when nobody names any.
const SHAPED: &[&str] = &["digits_cnn", "minilm_l6", "bert_base_ts", "resnet50_ts"];
/// Growth over requests of random shapes that is none.
const SLACK: u64 = 8 << 20;

/// Measures one model in a process of its own: what a request takes, or `runs` of random shapes.
fn measured<T: serde::de::DeserializeOwned>(
    path: &Path,
    name: &str,
    threads: usize,
    (runs, longest): (usize, usize),
) -> Result<T, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let out = Command::new(me)
        .args(["memory", CHILD, name])
        .args([threads, runs, longest].map(|n| n.to_string()))
        .arg(path)
        .output()
        .map_err(|e| e.to_string())?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(why.lines().last().unwrap_or_default().to_string());
    }
    serde_json::from_slice(&out.stdout).map_err(|e| e.to_string())
}

fn child(args: &[String]) -> Result<String, String> {
    let [name, threads, runs, longest, path] = args else {
        return Err(USAGE.into());
    };
    let model = zoo::find(name).ok_or_else(|| format!("{name} is not at hand"))?;
    let number = |t: &String| t.parse().map_err(|_| USAGE.to_string());
    let text = match number(runs)? {
        0 => serde_json::to_string(&figures(&model, Path::new(path), number(threads)?)?),
        n => serde_json::to_string(&over_shapes(&model, Path::new(path), n, number(longest)?)?),
    };
    text.map_err(|e| e.to_string())
}

fn mib(n: u64) -> String {
    format!("{:.1}", n as f64 / f64::from(1 << 20))
}

/// A table of memory over requests of random shapes, and how many models took more than they may.
fn shapes(names: &[String], threads: usize, runs: usize, longest: usize) -> (String, usize) {
    let mut text = format!(
        "# Memory over random shapes\n\n{}, commit {}. `cargo xtask memory --shapes {runs}`: resident MiB \
         after the largest shapes and {} of random ones, and after {runs} more; the highest; and what \
         `plan` states for the largest shapes, with inputs and outputs and what a process may take beside.\n\n\
         | model | dims up to | before | after | peak | stated | kept |\n|---|---|---|---|---|---|---|\n",
        date(),
        commit(),
        runs / 10,
    );
    let mut wrong = 0;
    for name in names {
        let done = zoo::find(name)
            .ok_or_else(|| "it is not at hand".to_string())
            .and_then(|m| m.prepare_temporary().map_err(|e| e.to_string()))
            .and_then(|p| measured::<Shapes>(&p.model, name, threads, (runs, longest)));
        let line = match done {
            Ok(s) => {
                let kept = s.within_statement() && s.after <= s.before + SLACK;
                wrong += usize::from(!kept);
                let dims: Vec<String> = s.dims.iter().map(|(n, m)| format!("{n} {m}")).collect();
                let cells = [s.before, s.after, s.peak, s.total + s.beside].map(mib);
                format!(
                    "| {name} | {} | {} | {} |",
                    dims.join(", "),
                    cells.join(" | "),
                    if kept { "yes" } else { "NO" }
                )
            }
            Err(e) => {
                wrong += 1;
                format!("| {name} | {} |", e.replace('|', "/"))
            }
        };
        println!("{line}");
        let _ = writeln!(text, "{line}");
    }
    (text, wrong)
}

/// Bytes of a model's peak that are neither stated nor the caller's.
fn over(f: &Figures) -> i64 {
    f.peak as i64 - (f.total + f.ports) as i64
}

/// A model's line of the table.
fn row(name: &str, f: &Figures) -> String {
    let cells = [
        f.weights, f.in_place, f.packed, f.late, f.arena, f.scratch, f.total, f.ports, f.peak,
    ];
    format!(
        "| {name} | {} | {:.1} | {:.2} | {} |",
        cells.map(mib).join(" | "),
        over(f) as f64 / f64::from(1 << 20),
        f.peak as f64 / f.weights.max(1) as f64,
        if f.within_statement() { "yes" } else { "NO" },
    )
}

pub fn run(args: &[String]) -> ExitCode {
    if args.first().is_some_and(|a| a == CHILD) {
        return match child(&args[1..]) {
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
    let (mut names, mut out, mut threads) = (Vec::new(), None, 2usize);
    let (mut runs, mut longest) = (0, 24);
    let mut it = args.iter();
    while let Some(a) = it.next() {
        match (a.as_str(), a.starts_with("--").then(|| it.next()).flatten()) {
            ("--out", Some(v)) => out = Some(std::path::PathBuf::from(v)),
            ("--shapes", Some(v)) => runs = v.parse().unwrap_or(5000),
            ("--longest", Some(v)) => longest = v.parse().unwrap_or(24),
            ("--threads", Some(v)) => threads = v.parse().unwrap_or(2),
            (a, None) if !a.starts_with("--") => names.push(a.to_string()),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    if runs > 0 {
        if names.is_empty() {
            names = SHAPED.iter().map(|n| n.to_string()).collect();
        }
        let (text, wrong) = shapes(&names, threads, runs, longest);
        return written(
            &out.unwrap_or(root().join("bench/MEMORY_SHAPES.md")),
            &text,
            names.len(),
            wrong,
        );
    }
    if names.is_empty() {
        let large = |n: &String| zoo::find(n).is_some_and(|m| m.meta().large);
        names = zoo::names().into_iter().filter(|n| !large(n)).collect();
    }
    let mut rows = String::new();
    let (mut wrong, mut beside, mut most) = (0, 0, 0i64);
    for name in &names {
        let done = zoo::find(name)
            .ok_or_else(|| "it is not at hand".to_string())
            .and_then(|m| m.prepare_temporary().map_err(|e| e.to_string()))
            .and_then(|p| measured::<Figures>(&p.model, name, threads, (0, 0)));
        let line = match done {
            Ok(f) => {
                wrong += usize::from(!f.within_statement());
                beside = f.beside;
                most = most.max(over(&f));
                row(name, &f)
            }
            Err(e) => {
                wrong += 1;
                format!("| {name} | {} |", e.replace('|', "/"))
            }
        };
        println!("{line}");
        let _ = writeln!(rows, "{line}");
    }
    let text = stated(&rows, (names.len(), wrong), threads, (beside, most));
    let out = out.unwrap_or(root().join("bench/MEMORY.md"));
    written(&out, &text, names.len(), wrong)
}

/// The page of stated and measured memory: `wrong` of `models` took more than stated, and what a plan states that
/// a process may take beside, and the most that one took.
fn stated(
    rows: &str,
    (models, wrong): (usize, usize),
    threads: usize,
    (beside, most): (u64, i64),
) -> String {
    format!(
        "# Memory stated and measured\n\n{}, commit {}, {threads} threads. Made by `cargo xtask memory`: \
         what a plan states before anything is loaded, and the highest resident size of a fresh process \
         that plans and runs one request at the sizes of the reference, in MiB. `beyond` is what of the \
         peak is neither stated nor the caller's inputs and outputs (`ports`); a plan states that it is \
         at most {} MiB, whatever the model. The most here is {:.1} MiB; a model that could not be \
         measured counts as taking more.\n\n{}\n\
         | model | weights | in place | packed | late | arenas | scratch | stated total | ports | peak | beyond | peak / weights | kept |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n{rows}",
        date(),
        commit(),
        mib(beside),
        most as f64 / f64::from(1 << 20),
        pages::figures(
            "memory",
            &cpu_with(threads),
            &[(
                format!(
                    "models of {} that take more memory than their plan states",
                    models
                ),
                wrong.to_string(),
            )],
        ),
    )
}

fn written(out: &Path, text: &str, models: usize, wrong: usize) -> ExitCode {
    if let Err(e) = std::fs::write(out, text) {
        eprintln!("memory: {}: {e}", out.display());
        return ExitCode::FAILURE;
    }
    println!("{models} models, {wrong} beyond what was stated");
    ExitCode::from(u8::from(wrong > 0))
}
