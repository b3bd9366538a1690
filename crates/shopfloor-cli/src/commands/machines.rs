use crate::output::{self, Done};
use shopfloor::{machines, report};
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
                output::print(&report::machine_table(&m, output::style()))
            }
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
