//! `shopfloor machines`: descriptions, lists, detection, calibration.
use crate::output::{self, Done};
use shopfloor::machines;
use shopfloor_tools::report;
use std::path::PathBuf;
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
        /// A name, a TOML file, `detected` (the CPU at hand) or `present` (the same, calibrated)
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
    /// Measure the CPU at hand and keep the result for later plans
    Calibrate {
        /// Write the calibrated description to a file for --machine, instead of keeping it
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// About how long to measure
        #[arg(long, value_name = "S")]
        seconds: Option<f64>,
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
                output::print(&report::machine_list(&list, output::style()))
            }
        }
        Command::Show { machine, json } => {
            let m = machines::find(&machine)?;
            if json {
                output::json(&m)
            } else {
                let style = output::style();
                let drawn = report::calc::hierarchy(&m, style);
                output::print(&format!("{}\n{drawn}", report::machine_table(&m, style)))
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
                output::print(&report::calc::machine_comparison(&all, output::style()))
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
            output::print(&text)
        }
        Command::Calibrate { out, seconds, json } => {
            let budget = seconds
                .filter(|s| s.is_finite())
                .map(|s| Duration::from_secs_f64(s.clamp(0.1, 3600.0)));
            let bar = output::bar("calibrating");
            let measured = machines::measure(budget, &mut |done, what| {
                bar.set_position((done * 1000.0) as u64);
                bar.set_message(format!("calibrating: {what}"));
            })?;
            bar.finish_and_clear();
            let file = machines::keep(&measured, out.as_deref())?;
            if json {
                return output::json(&measured);
            }
            let table = report::machine_table(&machines::calibrated(&measured), output::style());
            output::print(&format!("{table}\nwritten to {}\n", file.display()))
        }
    }
}
