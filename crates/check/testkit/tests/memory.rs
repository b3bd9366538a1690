//! Memory of whole models: what a plan states before loading holds, random shapes leave the process
//! as large as it was, a limit is kept or refused with the least, sessions share weights. Every
//! measurement runs in a process of its own.
extern crate shopfloor_testkit as testkit;

use libtest_mimic::{Arguments, Failed, Trial};
use shopfloor::{Session, default_engine, inputs};
use std::path::Path;
use std::process::Command;
use testkit::memory::{figures, over_shapes, resident};
use testkit::zoo;

/// The variable that makes this program measure: `WHAT MODEL PATH`.
const CHILD: &str = "SHOPFLOOR_MEMORY";
/// Models whose dims are drawn at random, with how many requests that are; `cargo xtask memory
/// --shapes N` takes any.
const SHAPES: &[(&str, usize)] = &[("digits_cnn", 2000), ("minilm_l6", 60)];
/// Models whose peak is compared with what was stated; `cargo xtask memory` takes all.
const STATED: &[&str] = &[
    "digits_cnn",
    "minilm_l6",
    "resnet50_ts",
    "ssdlite320",
    "loop_greedy",
    "silero_vad",
];
/// Growth over them that is no growth.
const SLACK: u64 = 8 << 20;

fn child(what: &str, name: &str, path: &Path) -> Result<(), String> {
    let model = zoo::find(name).ok_or("the model is gone")?;
    let text = |e: &dyn std::fmt::Display| e.to_string();
    match what {
        "stated" => {
            let f = figures(&model, path, 2)?;
            if !f.within_statement() {
                return Err(format!(
                    "the peak of {} B is more than the stated {} B with {} B of inputs and outputs and {} B beside",
                    f.peak, f.total, f.ports, f.beside
                ));
            }
            if name == "resnet50_ts" && f.peak as f64 > 2.2 * f.weights as f64 {
                return Err(format!(
                    "{} B are {} B of weights more than 2.2 times",
                    f.peak, f.weights
                ));
            }
            Ok(())
        }
        "shapes" => {
            let runs = SHAPES.iter().find(|s| s.0 == name).map_or(100, |s| s.1);
            let s = over_shapes(&model, path, runs, 24)?;
            if s.after > s.before + SLACK {
                return Err(format!(
                    "{} MiB became {} MiB",
                    s.before >> 20,
                    s.after >> 20
                ));
            }
            match s.within_statement() {
                true => Ok(()),
                false => Err(format!(
                    "the peak of {} B is more than the {} B stated for the largest shapes and {} B beside",
                    s.peak, s.total, s.beside
                )),
            }
        }
        "shared" => {
            // A second session of a model on an engine takes little of its own.
            let engine = default_engine(Some(2), None, None).map_err(|e| text(&e))?;
            let named = model.inputs().map_err(|e| text(&e))?;
            let open = || -> Result<Session, String> {
                let s = Session::builder()
                    .with_engine(engine.clone())
                    .commit_from_file(path)
                    .map_err(|e| text(&e))?;
                s.run(&inputs::borrowed(&named)).map_err(|e| text(&e))?;
                Ok(s)
            };
            let first = open()?;
            let one = resident().ok_or("no figure")?;
            let second = open()?;
            let two = resident().ok_or("no figure")?;
            drop((first, second));
            // Its arena, its plan and its graph; weights would be 90 MB.
            match two < one + (32 << 20) {
                true => Ok(()),
                false => Err(format!("{} MiB became {} MiB", one >> 20, two >> 20)),
            }
        }
        _ => Err(format!("{what} is no measurement")),
    }
}

fn run(what: &'static str, name: &str) -> Result<(), Failed> {
    let model = zoo::find(name).ok_or("the model is gone")?;
    let prepared = model.prepare_temporary().map_err(|e| e.to_string())?;
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let out = Command::new(me)
        .env(CHILD, format!("{what} {name} {}", prepared.model.display()))
        .output()
        .map_err(|e| e.to_string())?;
    match out.status.success() {
        true => Ok(()),
        false => {
            let why = String::from_utf8_lossy(&out.stderr);
            let last = why.lines().last().unwrap_or_default();
            Err(Failed::from(format!("{name}: {}: {last}", out.status)))
        }
    }
}

/// A limit is kept, or the message says what the least is, and that much is enough.
fn limited(name: &str) -> Result<(), Failed> {
    let model = zoo::find(name).ok_or("the model is gone")?;
    let prepared = model.prepare_temporary().map_err(|e| e.to_string())?;
    let named = model.inputs().map_err(|e| e.to_string())?;
    let bind = |limit: u64| -> Result<u64, String> {
        let s = Session::builder()
            .with_threads(2)
            .with_memory_limit(limit)
            .commit_from_file(&prepared.model)
            .map_err(|e| e.to_string())?;
        let sizes = inputs::sizes_of(s.model(), &named);
        let plan = s
            .plan(&inputs::box_of(s.model(), &sizes))
            .map_err(|e| e.to_string())?;
        let m = shopfloor_tools::planview::view(&s, &plan).memory;
        Ok(m.packed + m.arena + m.scratch * m.workers)
    };
    let free = bind(u64::MAX)?;
    let within = bind(512 << 20)?;
    if within > 512 << 20 {
        return Err(format!("{within} B are more than 512 MiB").into());
    }
    let Err(refusal) = bind(1) else {
        return Err("a plan of one byte".into());
    };
    let least: Option<u64> = refusal
        .split("at least ")
        .nth(1)
        .and_then(|t| t.split(' ').next()?.parse().ok());
    let least = least.ok_or_else(|| format!("no least size in: {refusal}"))?;
    let taken = bind(least)?;
    if taken > least || least > free {
        return Err(format!(
            "the least is {least} B, which gives {taken} B; without limit {free} B"
        )
        .into());
    }
    Ok(())
}

fn main() {
    if let Ok(task) = std::env::var(CHILD) {
        let parts: Vec<&str> = task.splitn(3, ' ').collect();
        let done = match parts.as_slice() {
            [what, name, path] => child(what, name, Path::new(path)),
            _ => Err("a task is WHAT MODEL PATH".into()),
        };
        if let Err(e) = done {
            eprintln!("{e}");
            std::process::exit(1);
        }
        return;
    }
    let args = Arguments::from_args();
    let all = zoo::names();
    let here = |n: &str| all.iter().any(|x| x == n);
    let mut trials = Vec::new();
    if cfg!(target_os = "linux") {
        for name in STATED.iter().filter(|n| here(n)) {
            trials.push(Trial::test(format!("stated_{name}"), move || {
                run("stated", name)
            }));
        }
        for (name, _) in SHAPES.iter().filter(|s| here(s.0)) {
            trials.push(Trial::test(format!("shapes_{name}"), move || {
                run("shapes", name)
            }));
        }
        if here("minilm_l6") {
            trials.push(Trial::test("shared_minilm_l6", || {
                run("shared", "minilm_l6")
            }));
        }
    }
    for name in ["digits_cnn", "minilm_l6", "resnet50_ts", "unet_small"] {
        if here(name) {
            trials.push(Trial::test(format!("limit_{name}"), move || limited(name)));
        }
    }
    zoo::missing(&["minilm_l6", "resnet50_ts", "unet_small", "ssdlite320"]);
    libtest_mimic::run(&args, trials).exit();
}
