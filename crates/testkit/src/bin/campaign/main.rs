//! Long runs that are not part of the test suite: `cargo xtask NAME ...` builds this in release
//! mode and passes its arguments on, so that the tidy checks need not build the product.
//!
//! Adding a command: its file with `pub fn run(&[String]) -> ExitCode`, and a row in the table.
#![forbid(unsafe_code)]
extern crate shopfloor_testkit as testkit;

mod fuzz;
mod operators;
mod predict;
mod zoo;

use std::process::ExitCode;

/// A command: its name, what it does in a line, and itself.
type Command = (&'static str, &'static str, fn(&[String]) -> ExitCode);

const COMMANDS: &[Command] = &[
    (
        "fuzz",
        "[--graphs N] [--minutes M] [--seed S]: random graphs, plans and files against the oracle",
        fuzz::run,
    ),
    ("operators", "writes docs/operators.md", operators::run),
    (
        "predict",
        "[--out FILE] [--csv FILE] [NAME...]: predicted beside measured time, to bench/PREDICTED.md",
        predict::run,
    ),
    (
        "zoo",
        "[--large] [NAME...]: every model of the zoo against its reference, as a table",
        zoo::run,
    ),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args
        .first()
        .and_then(|n| COMMANDS.iter().find(|(name, ..)| name == n))
    {
        Some((_, _, run)) => run(&args[1..]),
        None => {
            eprintln!("usage: cargo xtask COMMAND ...\n\ncommands:");
            for (name, what, _) in COMMANDS {
                eprintln!("  {name:10} {what}");
            }
            ExitCode::from(2)
        }
    }
}
