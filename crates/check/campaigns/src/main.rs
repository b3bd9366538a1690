//! Long runs that are not part of the test suite: `cargo xtask NAME ...` builds this in release
//! mode and passes its arguments on, so that the tidy checks need not build the product.
//!
//! Adding a command: its file with `pub fn run(&[String]) -> ExitCode`, and a row in the table.
#![forbid(unsafe_code)]

mod damage;
mod drills;
mod fuzz;
#[cfg(target_os = "linux")]
mod guard;
mod kernels;
mod load;
mod memory;
mod named;
mod operators;
mod pages;
mod peers;
mod predict;
mod quiet;
mod scale;
mod sweep;
mod targets;
mod timeline;
mod zoo;
mod zoo_on;
mod zoo_page;

use std::process::ExitCode;

/// A command: its name, what it does in a line, and itself.
type Command = (&'static str, &'static str, fn(&[String]) -> ExitCode);

const COMMANDS: &[Command] = &[
    (
        "bench-peers",
        "[MODEL...] [--threads N] [--seconds S] [--zoo DIR]: beside other engines, to bench/PEERS.md",
        peers::run,
    ),
    (
        "drills",
        "[NAME...] [--quick] [--blocks N] [--python PROGRAM]: a running engine whose world changes, to bench/DRILLS.md",
        drills::run,
    ),
    (
        "fuzz",
        "[--graphs N] [--minutes M] [--seed S] [--readers [NAME...]]: random graphs, damaged files",
        fuzz::run,
    ),
    #[cfg(target_os = "linux")]
    (
        "guard",
        "[--isa ISA] [--kind KIND] [--share S/N] [--case CASE]: kernels on memory that ends where their operands do",
        guard::run,
    ),
    (
        "kernels",
        "[--isa ISA]: products, convolutions and functions in loops of their own, to bench/KERNELS.md",
        kernels::run,
    ),
    (
        "load",
        "[MODEL...] [--threads N]: first and second load, planning of other shapes, to bench/LOAD.md",
        load::run,
    ),
    (
        "memory",
        "[--threads N] [--shapes N] [MODEL...]: memory stated beside memory taken, to bench/MEMORY.md",
        memory::run,
    ),
    (
        "models",
        "--out DIR [NAME...]: models that the zoo lacks, with random weights, as folders of a zoo",
        named::run,
    ),
    ("operators", "writes docs/operators.md", operators::run),
    (
        "scale",
        "[--times N] [SHAPE...]: how time and memory of large models grow with their nodes",
        scale::run,
    ),
    (
        "sweep",
        "[MODEL...] [--threads N] [--most N]: picked against measured best schedules, to bench/SWEEP.md",
        sweep::run,
    ),
    (
        "targets",
        "[--on TARGET]... [--share K/N] [--assemble] [NAME...]: every model and standard test, printed for GPUs",
        targets::run,
    ),
    (
        "timeline",
        "[MODEL...] [--threads N] [--pairs N]: what it costs to record what workers do, to bench/TIMELINE.md",
        timeline::run,
    ),
    #[cfg(target_os = "linux")]
    (
        "valgrind",
        "[--isa ISA] [--kind KIND] [--share S/N] [--case CASE]: the cases of guard under valgrind",
        guard::valgrind,
    ),
    (
        "zoo",
        "[--large] [NAME...]: every model against its reference; --predict: to bench/PREDICTED.md; --on DEVICE [--out DIR]: on a GPU, --on DEVICE --page FILE DIR...: what that measured",
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
                eprintln!("  {name:12} {what}");
            }
            ExitCode::from(2)
        }
    }
}
