//! `shopfloor simulate`: scenarios in virtual time.
use crate::output::{self, Done, Failure};
use crate::progress::Progress;
use serde::Serialize;
use shopfloor_tools::sim::{Outcome, Verdict};
use shopfloor_tools::supervisor::supervise::Mode;
use shopfloor_tools::{SimulateOptions, replay, simulate};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Args {
    /// Scenario (TOML): devices, models, sessions, traffic, faults and what is expected; or, with
    /// --replay, a log
    scenario: PathBuf,
    /// Another seed than the scenario's
    #[arg(long, value_parser = crate::args::whole::<u64>(0..))]
    seed: Option<u64>,
    /// How far the supervisor may go: off, observe or on
    #[arg(long, value_name = "HOW", value_parser = crate::args::mode)]
    supervise: Option<Mode>,
    /// Write what the supervisors were told and said to FILE (FILE.1 and so on for further devices)
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Go through a log again and say whether the decisions are the same
    #[arg(long, conflicts_with_all = ["seed", "supervise", "log"])]
    replay: bool,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(Serialize)]
struct Json<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    expected: &'a Verdict,
}

fn write(path: &Path, bytes: &[u8]) -> Done {
    Ok(shopfloor::write_file(path, bytes)?)
}

pub fn run(a: Args) -> Done {
    if a.replay {
        return replay_log(&a.scenario, a.json);
    }
    let options = SimulateOptions {
        seed: a.seed,
        supervise: a.supervise,
        log: a.log.is_some(),
    };
    let waiting = Progress::spinner("simulating");
    let s = simulate(&a.scenario, options)?;
    drop(waiting);
    if let Some(path) = &a.log {
        for (i, log) in s.logs.iter().enumerate() {
            let to = match i {
                0 => path.clone(),
                n => PathBuf::from(format!("{}.{n}", path.display())),
            };
            write(&to, log)?;
        }
    }
    if a.json {
        output::json(&Json {
            outcome: &s.outcome,
            expected: &s.verdict,
        })?;
    } else {
        let style = output::style();
        let mut text = s.outcome.render(style) + "\n";
        let expected = s.verdict.render(style);
        if !expected.is_empty() {
            text = format!("{text}\n{expected}\n");
        }
        output::page(&text)?;
    }
    let missed = s.verdict.checks.iter().filter(|c| !c.holds).count();
    match missed {
        0 => Ok(()),
        n => Err(Failure::Missed(format!(
            "{n} of {} expectations of '{}' were missed",
            s.verdict.checks.len(),
            s.outcome.scenario
        ))),
    }
}

/// Goes through a log again.
pub fn replay_log(log: &Path, json: bool) -> Done {
    let r = replay(log)?;
    if json {
        output::json(&r.decisions)?;
    } else {
        let mut text = String::new();
        for d in &r.decisions {
            text += &output::decision(d, output::style().width);
        }
        text += &format!("{} records, {} decisions", r.records, r.decisions.len());
        text += match r.differs_at {
            None => ", the same as the log has\n",
            Some(_) => "\n",
        };
        output::print(&text)?;
    }
    match r.differs_at {
        None => Ok(()),
        Some(line) => Err(Failure::Differ(format!(
            "line {line} of {} says other actions than the supervisor gives now; it was changed, or recorded by another version",
            log.display()
        ))),
    }
}
