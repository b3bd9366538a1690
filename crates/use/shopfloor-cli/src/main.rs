//! `shopfloor`: plans, runs, measures and explains ONNX models on the command line.
//!
//! The commands hold no logic of their own: they parse, call the library and print.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod first;
mod help;
mod output;
mod progress;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use output::Failure;
use std::process::ExitCode;

/// Plans, runs, measures and explains ONNX models.
#[derive(Parser)]
#[command(name = "shopfloor", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a bundled model that reads handwritten digits, and show how
    Demo(commands::demo::Args),
    /// Run a model once on inputs from files
    Run(commands::run::Args),
    /// How long requests take, beside the prediction
    Bench(commands::bench::Args),
    /// Predicted beside measured for every step, and what became of every node
    Profile(commands::profile::Args),
    /// Run ONNX test folders: models with inputs and the outputs expected of them
    Test(commands::test::Args),
    /// What is in a model: inputs, outputs, operators, what is not supported
    Inspect(commands::inspect::Args),
    /// The plan of a model: steps, predicted time, memory, and the reasons
    Plan(commands::plan::Args),
    /// One step followed from the model's node to the registers and back
    Walk(commands::walk::Args),
    /// A copy of a model whose nodes say what the plan makes of them
    Annotate(commands::annotate::Args),
    /// A step for a GPU: its tile program, and the code made of it
    Emit(commands::emit::Args),
    /// Run a kernel of a PTX file without a GPU: results, faults, cycles
    Emulate(commands::emulate::Args),
    /// Machines to plan for: list, show, compare, check; calibrate this CPU
    #[command(subcommand)]
    Machines(commands::machines::Command),
    /// How many CTAs of a launch an SM holds, and what limits them
    Occupancy(commands::occupancy::Args),
    /// Sectors, transactions and bank conflicts of one memory instruction
    Access(commands::access::Args),
    /// Copies, launches and resident kernels compared for batches from the host
    Transfer(commands::transfer::Args),
    /// Whether a product uses the matrix units, and what padding costs
    Tensorcore(commands::tensorcore::Args),
    /// What bounds an operator or a model: arithmetic and bytes at every level
    Roofline(commands::roofline::Args),
    /// What would help a model on a machine, ranked by predicted gain
    Advise(commands::advise::Args),
    /// What a change of a machine would buy a model, step by step
    WhatIf(commands::what_if::Args),
    /// Published measurements against what is predicted for the vendor's library
    Predict(commands::predict::Args),
    /// Devices, traffic and faults in virtual time, with the supervisor
    Simulate(commands::simulate::Args),
    /// Models under load with a supervisor that changes plans
    Supervise(commands::supervise::Args),
    /// What the sessions of a running engine do, in the terminal
    #[cfg(unix)]
    Top(commands::top::Args),
    /// The part of docs/commands.md that is made of the help
    #[command(hide = true)]
    CommandsPage,
}

/// Lets a write beyond the system's limit on file sizes fail where it would end the process.
#[cfg(unix)]
fn outlive_size_limits() {
    let seen = std::sync::Arc::default();
    // Where the handler cannot be set, the system does what it always does.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, seen);
}

fn main() -> ExitCode {
    #[cfg(unix)]
    outlive_size_limits();
    let command = help::dress(Cli::command());
    let matches = command.clone().get_matches();
    let given = match matches.subcommand() {
        Some((name, m)) => command.find_subcommand(name).map(|c| args::Given::of(c, m)),
        None => None,
    };
    let given = given.unwrap_or_default();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let result = match cli.command {
        Command::Demo(a) => commands::demo::run(a),
        Command::Run(a) => commands::run::run(a),
        Command::Bench(a) => commands::bench::run(a, &given),
        Command::Profile(a) => commands::profile::run(a),
        Command::Test(a) => commands::test::run(a),
        Command::Inspect(a) => commands::inspect::run(a, &given),
        Command::Plan(a) => commands::plan::run(a, &given),
        Command::Walk(a) => commands::walk::run(a, &given),
        Command::Annotate(a) => commands::annotate::run(a),
        Command::Emit(a) => commands::emit::run(a),
        Command::Emulate(a) => commands::emulate::run(a),
        Command::Machines(c) => commands::machines::run(c),
        Command::Occupancy(a) => commands::occupancy::run(a),
        Command::Access(a) => commands::access::run(a),
        Command::Transfer(a) => commands::transfer::run(a),
        Command::Tensorcore(a) => commands::tensorcore::run(a),
        Command::Roofline(a) => commands::roofline::run(a, &given),
        Command::Advise(a) => commands::advise::run(a),
        Command::WhatIf(a) => commands::what_if::run(a),
        Command::Predict(a) => commands::predict::run(a),
        Command::Simulate(a) => commands::simulate::run(a),
        Command::Supervise(a) => commands::supervise::run(a),
        #[cfg(unix)]
        Command::Top(a) => commands::top::run(a),
        Command::CommandsPage => output::print(&help::page(&command)),
    };
    match result {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(f) => {
            output::complain(&f);
            ExitCode::from(f.code())
        }
    }
}
