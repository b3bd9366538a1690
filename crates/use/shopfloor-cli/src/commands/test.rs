//! `shopfloor test`: ONNX test folders.
use crate::args::{self, EngineArgs, GraphArgs};
use crate::output::{self, Done, Failure};
use crate::progress::Progress;
use serde::Serialize;
use shopfloor_tools::report::units;
use shopfloor_tools::{Closeness, Verdict, find_test_folders, run_test_folder};
use std::path::PathBuf;

/// Run ONNX test folders
#[derive(clap::Args)]
pub struct Args {
    /// Folders with model.onnx and test_data_set_N/input_M.pb, output_M.pb, searched recursively
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Allowed difference of an element relative to what is expected
    #[arg(long, default_value_t = Closeness::default().rtol, value_parser = args::tolerance)]
    rtol: f64,
    /// Allowed difference besides
    #[arg(long, default_value_t = Closeness::default().atol, value_parser = args::tolerance)]
    atol: f64,
    #[command(flatten)]
    graph: GraphArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(Serialize)]
struct Case {
    folder: String,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Default, Serialize)]
struct Summary {
    passed: usize,
    failed: usize,
    skipped: usize,
    cases: Vec<Case>,
}

pub fn run(a: Args) -> Done {
    let folders = find_test_folders(&a.dirs)?;
    if folders.is_empty() {
        let dirs: Vec<String> = a.dirs.iter().map(|d| d.display().to_string()).collect();
        return Err(Failure::of(format!(
            "no folder with a model.onnx was found in {}; name one that holds some",
            dirs.join(", ")
        )));
    }
    let builder = a.engine.builder()?;
    let builder = builder.clone().with_engine(builder.engine()?);
    let options = a.graph.options()?;
    let close = Closeness {
        rtol: a.rtol,
        atol: a.atol,
    };
    let bar = Progress::bar("testing");
    let mut all = Summary::default();
    for (i, f) in folders.iter().enumerate() {
        let folder = f.path.display().to_string();
        let (verdict, reason) = match run_test_folder(f, &builder, &options, close) {
            Verdict::Passed => {
                all.passed += 1;
                ("passed", None)
            }
            Verdict::Failed(why) => {
                all.failed += 1;
                ("failed", Some(why))
            }
            Verdict::Skipped(why) => {
                all.skipped += 1;
                ("skipped", Some(why))
            }
        };
        if let (false, Some(why)) = (a.json, &reason) {
            let line = why.split_whitespace().collect::<Vec<_>>().join(" ");
            bar.suspend(|| output::print(&format!("{verdict} {folder}: {line}\n")))?;
        }
        all.cases.push(Case {
            folder,
            verdict,
            reason,
        });
        bar.done((i + 1) as f64 / folders.len() as f64);
    }
    drop(bar);
    let closing = format!(
        "{} passed, {} failed, {} skipped",
        all.passed, all.failed, all.skipped
    );
    if a.json {
        output::json(&all)?;
    } else {
        output::print(&format!("{closing}\n"))?;
    }
    match (all.passed, all.failed) {
        (0, 0) => Err(Failure::Untested(format!(
            "nothing was tested: {} skipped; a test has inputs and expected outputs in test_data_set_0 beside its model.onnx",
            match folders.len() {
                1 => "the one test folder was".into(),
                n => format!("all {n} test folders were"),
            }
        ))),
        (_, 0) => Ok(()),
        (_, n) => Err(Failure::Differ(format!(
            "{n} of {} failed",
            units::plural(folders.len() as u64, "test folder")
        ))),
    }
}
