//! `shopfloor supervise`: models under load with a supervisor.
use super::simulate::replay_log;
use crate::args::{EngineArgs, ModelArgs};
use crate::first;
use crate::output::{self, Done, Failure};
use crate::progress::Progress;
use shopfloor::{Model, SuperviseOptions};
use shopfloor_tools::supervised_load;
use shopfloor_tools::supervisor::supervise::Mode;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Args {
    /// ONNX files, all served by one engine
    models: Vec<PathBuf>,
    /// How far the supervisor may go: off, observe (it says what it would do) or on
    #[arg(long, value_name = "HOW", value_parser = crate::args::mode, default_value = "on")]
    supervise: Mode,
    /// Callers of each model, each sending its next request when the last is answered
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::args::whole::<u32>(1..=1024))]
    callers: u32,
    /// How long
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = crate::args::measuring_seconds)]
    seconds: f64,
    /// Write what the supervisor was told and said to FILE
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Save what workers did last, and every decision, for Perfetto: as its protobuf where the name ends in
    /// .pftrace or .pb, else as Chrome trace events
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
    /// Answer questions of `shopfloor top --attach SOCKET` meanwhile
    #[cfg(unix)]
    #[arg(long, value_name = "SOCKET")]
    status: Option<String>,
    /// Go through a log again instead, and say whether the decisions are the same
    #[arg(long, value_name = "LOG", conflicts_with_all = ["models", "log", "trace", "supervise", "callers", "seconds", "status", "ModelArgs", "GraphArgs", "EngineArgs"])]
    replay: Option<PathBuf>,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Decisions as JSON, one a line, and what came of it all in the last line
    #[arg(long, help_heading = "Output")]
    json: bool,
}

fn json_line(value: &impl serde::Serialize) -> Done {
    let text =
        serde_json::to_string(value).map_err(|e| Failure::Write(std::io::Error::other(e)))?;
    output::print(&(text + "\n"))
}

pub fn run(a: Args) -> Done {
    if let Some(log) = &a.replay {
        return replay_log(log, a.json);
    }
    if a.models.is_empty() {
        return Err(Failure::Usage(
            "there is nothing to serve: give ONNX files, or --replay LOG to go through a log again"
                .into(),
        ));
    }
    let mut options = SuperviseOptions::of(a.supervise);
    if let Some(path) = &a.log {
        let file = std::fs::File::create(path).map_err(|source| {
            Failure::Library(shopfloor::Error::Io {
                path: path.display().to_string(),
                source,
            })
        })?;
        options.log = Some(Box::new(std::io::BufWriter::new(file)));
    }
    #[cfg(unix)]
    let mut server = None;
    first::measure(&a.engine)?;
    let builder = a.engine.builder()?;
    for model in &a.models {
        a.bound.tell(&Model::open(model, &a.bound.sized()?)?)?;
    }
    let as_json = a.json;
    let serving = Arc::new(Progress::spinner("serving"));
    let waiting = Arc::clone(&serving);
    options.hear = Some(Box::new(move |d| {
        // A reader that is gone is found out by the last line.
        let _ = serving.suspend(|| match as_json {
            true => json_line(d),
            false => output::print(&output::decision(d, output::style().width)),
        });
    }));
    let report = supervised_load(
        &builder,
        &a.models,
        &a.bound.sized()?,
        (a.callers as usize, a.seconds),
        options,
        &mut |_engine| {
            #[cfg(unix)]
            if let Some(path) = &a.status {
                let s = shopfloor::status::StatusServer::start(_engine.clone(), path)?;
                server = Some(s);
            }
            Ok(())
        },
    )?;
    drop(waiting);
    #[cfg(unix)]
    drop(server);
    if let Some(path) = &a.trace {
        let bytes = report.trace(path.ends_with(".pftrace") || path.ends_with(".pb"));
        shopfloor::write_file(path, bytes)?;
    }
    match a.json {
        true => json_line(&serde_json::json!({ "summary": report })),
        false => output::page(&format!("\n{}", report.render(output::style()))),
    }
}
