//! Damaged models are refused in a sentence, whatever is broken: never a panic, a hang, or more
//! than 4 GB of address space. Each model's damaged copies are read and planned in a process of
//! their own, whose address space is limited.
extern crate shopfloor_testkit as testkit;

use libtest_mimic::{Arguments, Failed, Trial};
use shopfloor::{Engine, Model, ModelOptions, Session, default_engine};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testing::Share;
use testkit::mutate::damaged;
use testkit::random::Rng;
use testkit::zoo;

/// The variable that makes this program read damaged copies of a model; its value is the model's
/// name. Other variables: first seed and number of copies.
const CHILD: &str = "SHOPFLOOR_DAMAGED";
const SEED: &str = "SHOPFLOOR_SEED";
const COPIES: &str = "SHOPFLOOR_COPIES";

/// Shares of the copies, of which a run takes one.
const SHARES: u64 = 10;
/// Files up to this size are tried 1,000 times by all shares, larger ones less often;
/// `SHOPFLOOR_COPIES` tries each as often as asked.
const SMALL: u64 = 24 << 10;
const MOST: u64 = 400 << 10;
const SLOWEST: Duration = Duration::from_secs(20);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn copies(size: u64) -> u64 {
    number(COPIES).unwrap_or(if size <= SMALL {
        1000 / SHARES
    } else {
        (300 * SMALL / size / SHARES).max(4)
    })
}

/// Reads and plans one file; what is wrong with it is an answer like any other.
fn attempt(path: &Path, engine: &Arc<Engine>) -> Result<(), shopfloor::Error> {
    let options = ModelOptions::default();
    let model = Model::open(path, &options)?;
    let (sizes, _) = shopfloor::inputs::sizes(&model);
    let dims = shopfloor::inputs::box_of(&model, &sizes);
    let session = Session::builder()
        .with_engine(engine.clone())
        .commit(model)?;
    session.plan(&dims)?;
    Ok(())
}

/// Size of the generated weights beside a model, where it has any.
fn weights_size(folder: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join("weights.json")).ok()?;
    let spec: serde_json::Value = serde_json::from_str(&text).ok()?;
    spec.get("size")?.as_u64()
}

fn child(name: &str) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let engine = default_engine(Some(1), None, None).map_err(|e| text(&e))?;
    let limit = rustix::process::Rlimit {
        current: Some(4 << 30),
        maximum: Some(4 << 30),
    };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).map_err(|e| text(&e))?;
    let model = zoo::find(name).ok_or("the model is gone")?;
    let bytes = std::fs::read(model.folder().join("model.onnx")).map_err(|e| text(&e))?;
    let folder = tempfile::tempdir().map_err(|e| text(&e))?;
    let path = folder.path().join("model.onnx");
    // Weights are as long as they should be and hold nothing.
    if let Some(size) = weights_size(model.folder()) {
        let f = std::fs::File::create(folder.path().join("weights.bin")).map_err(|e| text(&e))?;
        f.set_len(size).map_err(|e| text(&e))?;
    }
    let (mut whole, all) = (0, copies(bytes.len() as u64));
    let share = Share::of_run(SHARES);
    let first = number(SEED).unwrap_or(1 + share.number * all);
    for seed in first..first + all {
        // Printed first: a process that dies leaves the seed that killed it as its last word.
        println!("{seed}");
        let copy = damaged(&bytes, &mut Rng::new(seed));
        std::fs::write(&path, copy).map_err(|e| text(&e))?;
        let start = Instant::now();
        whole += u64::from(attempt(&path, &engine).is_ok());
        if start.elapsed() > SLOWEST {
            return Err(format!("seed {seed} took {:?}", start.elapsed()));
        }
    }
    println!("{whole} of {all} damaged copies were still models");
    Ok(())
}

fn run(name: &str) -> Result<(), Failed> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let out = Command::new(me)
        .env(CHILD, name)
        .output()
        .map_err(|e| e.to_string())?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stdout);
    let last = said.lines().last().unwrap_or_default();
    let why = String::from_utf8_lossy(&out.stderr);
    let why: String = why.lines().take(6).collect::<Vec<_>>().join(" | ");
    Err(Failed::from(format!(
        "{name}, seed {last}: {}: {why}",
        out.status
    )))
}

fn main() {
    if let Ok(name) = std::env::var(CHILD) {
        if let Err(e) = child(&name) {
            eprintln!("{e}");
            std::process::exit(1);
        }
        return;
    }
    let args = Arguments::from_args();
    if zoo::shared().is_none() {
        testing::skip("zoo: damaged copies", "there is no ../shared/zoo");
    }
    let small = |name: &String| {
        let file = zoo::find(name).map(|m| m.folder().join("model.onnx"));
        let size = file
            .and_then(|f| std::fs::metadata(f).ok())
            .map(|m| m.len());
        size.is_some_and(|s| s <= MOST)
    };
    let trials = zoo::names()
        .into_iter()
        .filter(|n| number(COPIES).is_some() || small(n))
        .map(|n| Trial::test(n.clone(), move || run(&n)))
        .collect();
    libtest_mimic::run(&args, trials).exit();
}
