//! `shopfloor machines`: descriptions, lists, detection, calibration.
use crate::args;
use crate::output::{self, Done, Failure};
use crate::progress::Progress;
use shopfloor::machines::{self, Extent};
use shopfloor_tools::report;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Machines that a name is known for
    List {
        /// Everything as JSON
        #[arg(long)]
        json: bool,
    },
    /// Everything about a machine, each number with its source
    Show {
        /// A name, a TOML file, `cpu` (the CPU at hand, as it was calibrated) or `detected` (the same, without its
        /// calibration)
        machine: String,
        /// Everything as JSON
        #[arg(long)]
        json: bool,
    },
    /// Machines side by side, the others as ratios to the first
    Compare {
        /// Names or TOML files
        #[arg(required = true, num_args = 2..)]
        machines: Vec<String>,
        /// Everything as JSON
        #[arg(long)]
        json: bool,
    },
    /// Read a machine file: what is wrong, with its line, and what looks like a slip
    Check {
        /// A TOML file
        file: PathBuf,
        /// The machine and what looks odd as JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure the CPU at hand and keep the result for later plans, in place of what the first command
    /// measured in a moment
    Calibrate {
        /// Write the calibrated description to a file for --machine, instead of keeping it
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// About how long to measure
        #[arg(long, value_name = "S", value_parser = args::calibration_seconds)]
        seconds: Option<f64>,
        /// Remove the calibration that is kept, and measure nothing
        #[arg(long, conflicts_with_all = ["out", "seconds"])]
        forget: bool,
        /// The measurements as JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(c: Command) -> Done {
    match c {
        Command::List { json } => {
            let list = machines::list();
            if json {
                output::json(&list)
            } else {
                output::page(&report::machine_list(&list, output::style()))
            }
        }
        Command::Show { machine, json } => {
            let m = machines::find(&machine)?;
            if json {
                output::json(&m)
            } else {
                let style = output::style();
                let drawn = report::calc::hierarchy(&m, style);
                let kept = match machine.as_str() {
                    "present" | "cpu" => calibration()?,
                    _ => String::new(),
                };
                output::page(&format!(
                    "{}\n{drawn}{kept}",
                    report::machine_table(&m, style)
                ))
            }
        }
        Command::Compare {
            machines: names,
            json,
        } => {
            let all = names
                .iter()
                .map(|n| machines::find(n))
                .collect::<Result<Vec<_>, _>>()?;
            if json {
                output::json(&all)
            } else {
                output::page(&report::calc::machine_comparison(&all, output::style()))
            }
        }
        Command::Check { file, json } => {
            let (m, odd) = machines::check(&file)?;
            if json {
                return output::json(&serde_json::json!({ "machine": m, "odd": odd }));
            }
            let mut text = format!(
                "{}: {} with {} levels and {} units reads well\n",
                file.display(),
                m.name,
                m.levels.len(),
                m.units.len()
            );
            for o in &odd {
                text.push_str(&format!("  but {o}\n"));
            }
            output::page(&text)
        }
        Command::Calibrate {
            forget: true, json, ..
        } => forget(json),
        Command::Calibrate {
            out, seconds, json, ..
        } => calibrate(out.as_deref(), seconds, json),
    }
}

fn forget(json: bool) -> Done {
    let gone = machines::forget()?;
    if json {
        return output::json(&serde_json::json!({ "forgotten": gone }));
    }
    let text = match (&gone, machines::file()) {
        (Some(file), _) => format!("removed {}", file.display()),
        (None, Some(file)) => format!("nothing was kept in {}", file.display()),
        (None, None) => "nothing is kept: there is no folder for data".into(),
    };
    output::print(&(text + "\n"))
}

fn calibrate(out: Option<&Path>, seconds: Option<f64>, json: bool) -> Done {
    let budget = seconds.map(Duration::from_secs_f64);
    let bar = Progress::bar("calibrating");
    let measured = shopfloor_tools::calibrate(Extent::Full, budget, &mut |done, what| {
        bar.done(done);
        bar.now(format!("calibrating: {what}"));
    });
    drop(bar);
    let measured = measured?;
    let file = machines::keep(&measured, out)?;
    if let Some(why) = measured.disturbed() {
        output::note(&why);
    }
    if json {
        return output::json(&measured);
    }
    let table = report::machine_table(&machines::calibrated(&measured), output::style());
    output::page(&format!("{table}\nwritten to {}\n", file.display()))
}

/// What is kept of the CPU at hand, in a line.
fn calibration() -> Result<String, Failure> {
    let how = match machines::calibration()?.map(|m| m.extent) {
        Some(Extent::Full) => "measured by `shopfloor machines calibrate`",
        Some(Extent::Short) => {
            "measured in a moment by the first command that predicted; `shopfloor machines calibrate` measures it thoroughly"
        }
        None => "nobody has measured it; `shopfloor machines calibrate` does",
    };
    let file = machines::file().map_or(String::new(), |f| format!(" ({})", f.display()));
    Ok(format!("\ncalibration: {how}{file}\n"))
}
