//! `cargo xtask scale`: large models of simple shapes with n and twice n nodes, and how time and memory grow.
use std::process::{Command, ExitCode};
use testkit::scale::{Cost, KINDS, Kind, cost};

const USAGE: &str = "usage: cargo xtask scale [--times N] [SHAPE...]

  --times N   N times as many nodes as each shape is looked at with [default: 1]";
/// First argument that makes this the process that is measured.
const CHILD: &str = "--measure";
/// Growth that is more than n log n, for twice the nodes: what is left of the square's 4 is for measuring.
const MOST: f64 = 3.0;
/// Below this nothing is said of growth: the program itself is larger.
const LEAST: (f64, f64) = (0.5, 64e6);

fn measured(kind: &Kind, nodes: usize) -> Result<Cost, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let out = Command::new(me)
        .args(["scale", CHILD, kind.name, &nodes.to_string()])
        .arg(folder.path())
        // What is kept there is of this model alone.
        .env("XDG_CACHE_HOME", folder.path())
        .output()
        .map_err(|e| e.to_string())?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(why.lines().last().unwrap_or("it ended early").to_string());
    }
    serde_json::from_slice(&out.stdout).map_err(|e| e.to_string())
}

fn child(args: &[String]) -> Result<String, String> {
    let [name, nodes, folder] = args else {
        return Err(USAGE.into());
    };
    let kind = KINDS.iter().find(|k| k.name == name).ok_or(USAGE)?;
    let nodes = nodes.parse().map_err(|_| USAGE)?;
    let cost = cost(&(kind.file)(nodes), folder.as_ref())?;
    serde_json::to_string(&cost).map_err(|e| e.to_string())
}

/// A line of the table, and whether the growth is fine.
fn line(kind: &Kind, nodes: usize) -> Result<(String, bool), String> {
    let costs = (measured(kind, nodes)?, measured(kind, 2 * nodes)?);
    let growth = |of: &dyn Fn(&Cost) -> f64, least: f64| {
        let (a, b) = (of(&costs.0), of(&costs.1));
        (b > least).then_some(b / a.max(least / MOST))
    };
    let time = growth(&Cost::seconds, LEAST.0);
    let memory = growth(&|c| c.bytes as f64, LEAST.1);
    let text = |g: Option<f64>| g.map_or("".into(), |g| format!("x {g:.1}"));
    let c = &costs.1;
    let text = format!(
        "{:16} {:>7}  load {:7.2} s  plan {:7.2} s  run {:7.2} s  {:>6}  {:6.0} MB  {:>6}",
        kind.name,
        2 * nodes,
        c.load_s,
        c.plan_s,
        c.run_s,
        text(time),
        c.bytes as f64 / 1e6,
        text(memory),
    );
    let fine = |g: Option<f64>| g.is_none_or(|g| g < MOST);
    Ok((text, fine(time) && fine(memory)))
}

/// The command.
pub(crate) fn run(args: &[String]) -> ExitCode {
    if args.first().is_some_and(|a| a == CHILD) {
        return match child(&args[1..]) {
            Ok(text) => {
                println!("{text}");
                ExitCode::SUCCESS
            }
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        };
    }
    let (times, names) = match args {
        [flag, n, names @ ..] if flag == "--times" => (n.parse().ok(), names),
        names => (Some(1), names),
    };
    let known = |n: &String| KINDS.iter().any(|k| k.name == n);
    let Some(times) = times.filter(|_| names.iter().all(known)) else {
        let all: Vec<&str> = KINDS.iter().map(|k| k.name).collect();
        eprintln!("{USAGE}\n\nshapes: {}", all.join(", "));
        return ExitCode::from(2);
    };
    let mut wrong = 0;
    for kind in KINDS {
        if !names.is_empty() && !names.iter().any(|n| n == kind.name) {
            continue;
        }
        let (text, fine) = match line(kind, times * kind.nodes) {
            Ok(found) => found,
            Err(e) => (format!("{:16} {e}", kind.name), false),
        };
        println!("{text}{}", if fine { "" } else { "  WRONG" });
        wrong += usize::from(!fine);
    }
    match wrong {
        0 => ExitCode::SUCCESS,
        n => {
            eprintln!("{n} shapes fail or grow by more than {MOST} for twice the nodes");
            ExitCode::FAILURE
        }
    }
}
