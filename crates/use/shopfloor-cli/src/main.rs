//! `shopfloor`: plans, runs, measures and explains ONNX models on the command line.
//!
//! The commands hold no logic of their own: they parse, call the library and print.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod output;

use clap::{Parser, Subcommand};
use output::Failure;
use std::process::ExitCode;

/// Plans, runs, measures and explains ONNX models.
///
/// Exit codes: 0 done, 1 failure, 2 wrong usage, 3 the model has operators that are not supported,
/// 4 outputs differ from the reference, 5 a stated goal was missed.
#[derive(Parser)]
#[command(name = "shopfloor", version, term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What is in a model: inputs, outputs, operators, parameters, work, what is not supported
    Inspect(commands::inspect::Args),
    /// The plan of a model as a table, with the memory it will take and the reasons
    Plan(commands::plan::Args),
    /// A step of a plan for a GPU: its tile program, and the text and machine code made of it
    Emit(commands::emit::Args),
    /// Run a model once on inputs from files
    Run(commands::run::Args),
    /// Run ONNX test folders: models with inputs and the outputs expected of them
    Test(commands::test::Args),
    /// How long requests take
    Bench(commands::bench::Args),
    /// What the sessions of a running engine are at, in the terminal
    #[cfg(unix)]
    Top(commands::top::Args),
    /// Predicted beside measured for every step, and what became of every node
    Profile(commands::profile::Args),
    /// One step followed from the model's node to the registers and back: a page, or prose
    Walk(commands::walk::Args),
    /// Machines that can be planned for, those of the catalog among them
    #[command(subcommand)]
    Machines(commands::machines::Command),
    /// How many CTAs of a launch an SM holds, what limits them, and what would gain the next step
    Occupancy(commands::occupancy::Args),
    /// Arithmetic against bytes at every memory level: what bounds an operator or a model's steps
    Roofline(commands::roofline::Args),
    /// What a change of a machine would buy a model, step by step
    WhatIf(commands::what_if::Args),
    /// What would help a model on a machine, ranked by what it is predicted to gain
    Advise(commands::advise::Args),
    /// A copy of a model whose nodes say in their metadata what the plan makes of them, for graph viewers
    Annotate(commands::annotate::Args),
    /// Sectors, transactions and bank conflicts of one memory instruction of a warp
    Access(commands::access::Args),
    /// Copies, launches and resident kernels compared for batches from the host
    Transfer(commands::transfer::Args),
    /// Whether a matrix product uses a machine's matrix units, on which tile, and what padding costs
    Tensorcore(commands::tensorcore::Args),
    /// Published measurements against what is predicted for the vendor's library
    Predict(commands::predict::Args),
    /// Run a bundled model that reads handwritten digits, and show how
    Demo(commands::demo::Args),
    /// Devices, traffic and faults in virtual time: throughput, latencies, and what the supervisor does
    Simulate(commands::simulate::Args),
    /// Run models under load with a supervisor that changes plans meanwhile, and say what it decides
    Supervise(commands::supervise::Args),
    /// Run a kernel of a PTX file without a GPU, and say what is wrong with it and what it did
    Emulate(commands::emulate::Args),
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
    let result = match Cli::parse().command {
        Command::Inspect(a) => commands::inspect::run(a),
        Command::Plan(a) => commands::plan::run(a),
        Command::Emit(a) => commands::emit::run(a),
        Command::Run(a) => commands::run::run(a),
        Command::Test(a) => commands::test::run(a),
        Command::Bench(a) => commands::bench::run(a),
        #[cfg(unix)]
        Command::Top(a) => commands::top::run(a),
        Command::Profile(a) => commands::profile::run(a),
        Command::Walk(a) => commands::walk::run(a),
        Command::Machines(c) => commands::machines::run(c),
        Command::Occupancy(a) => commands::occupancy::run(a),
        Command::Roofline(a) => commands::roofline::run(a),
        Command::WhatIf(a) => commands::what_if::run(a),
        Command::Advise(a) => commands::advise::run(a),
        Command::Annotate(a) => commands::annotate::run(a),
        Command::Access(a) => commands::access::run(a),
        Command::Transfer(a) => commands::transfer::run(a),
        Command::Tensorcore(a) => commands::tensorcore::run(a),
        Command::Predict(a) => commands::predict::run(a),
        Command::Demo(a) => commands::demo::run(a),
        Command::Simulate(a) => commands::simulate::run(a),
        Command::Supervise(a) => commands::supervise::run(a),
        Command::Emulate(a) => commands::emulate::run(a),
    };
    match result {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(f) => {
            output::complain(&f);
            ExitCode::from(f.code())
        }
    }
}
