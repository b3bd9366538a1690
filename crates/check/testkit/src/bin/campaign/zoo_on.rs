//! `cargo xtask zoo --on DEVICE [NAME...]`: models against their references on a device other than
//! the CPU, and what ran where.
use shopfloor::{Session, Tensor, engine_on};
use shopfloor_tools::planview;
use std::process::ExitCode;
use std::time::Instant;
use testkit::zoo;

/// What a device is tried on when nothing is named.
const MODELS: &[&str] = &[
    "digits_cnn",
    "silero_vad",
    "ppocr_cls",
    "ppocr_rec",
    "minilm_l6",
    "skl_mlp",
    "gnn_gcn",
    "if_branches",
    "llama_gqa_ts",
    "llama_gqa_f16",
];

fn one(name: &str, on: &str) -> Result<String, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let model = zoo::find(name).ok_or("it is not at hand")?;
    let prepared = model.prepare_temporary().map_err(|e| text(&e))?;
    let session = Session::builder()
        .with_engine(engine_on(on, None, None, None).map_err(|e| text(&e))?)
        .commit_from_file(&prepared.model)
        .map_err(|e| text(&e))?;
    let inputs = model.inputs().map_err(|e| text(&e))?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let first = Instant::now();
    let outputs = session.run(&named).map_err(|e| text(&e))?.into_vec();
    let first = first.elapsed().as_secs_f64();
    let report = model.check(&outputs).map_err(|e| text(&e))?;
    if !report.passed() {
        return Err(report.to_string());
    }
    let second = Instant::now();
    session.run(&named).map_err(|e| text(&e))?;
    let second = second.elapsed().as_secs_f64();
    let shares = planview::shares(&session);
    let list = shares.steps_by_device.iter();
    let list: Vec<String> = list.map(|(d, n)| format!("{n} on {d}")).collect();
    let mut out = format!(
        "{:.1e} off, first request {first:.2} s, second {second:.3} s, steps {}, {} bytes copied",
        report.worst(),
        list.join(" and "),
        shares.bytes_moved
    );
    for f in planview::fallbacks(&session) {
        out += &format!("\n    on the host: {} ({})", f.node, f.reason);
    }
    Ok(out)
}

/// Runs the models named in `args`, or those above, on the device `on`.
pub fn run(on: &str, args: &[String]) -> ExitCode {
    let mut names: Vec<&str> = args.iter().map(String::as_str).collect();
    if names.is_empty() {
        names = MODELS.to_vec();
    }
    let mut failed = 0;
    for name in names {
        match one(name, on) {
            Ok(line) => println!("{name}: {line}"),
            Err(why) => {
                failed += 1;
                println!("{name}: FAILED: {why}");
            }
        }
    }
    match failed {
        0 => ExitCode::SUCCESS,
        n => {
            eprintln!("{n} models failed on {on}");
            ExitCode::FAILURE
        }
    }
}
