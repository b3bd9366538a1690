//! What is to be known of this library on a machine with an NVIDIA GPU, by one program with its models
//! beside it: `cargo xtask gpu-check` makes the folder, which needs no cargo, network or toolkit where it
//! is run. It runs the conformance suite, models of the zoo, the life of a kernel that stays and a
//! calibration on the GPU, times every kernel beside its prediction, and writes `bench/gpu/NAME.md` and
//! `machines/measured/NAME.toml`. `--on emulated:a100` does the same, smaller, on an emulated GPU.
//!
//! Every part runs in a process of its own and says what it finds line by line ([`lines`]): a kernel that
//! hangs or an access that loses the GPU costs that part, not the others.
//!
//! Adding a part: its file in `parts/` with `pub fn run(&Options)`, and a row in [`parts::ALL`].
//!
//! Never here: anything that a product uses.
#![forbid(unsafe_code)]

mod broken;
mod device;
mod lines;
mod options;
mod pack;
mod page;
mod parts;
mod watch;

use options::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().map(String::as_str) == Some("pack") {
        return pack::run(&args[1..]);
    }
    let options = match Options::read(&args, &parts::names()) {
        Ok(Some(o)) => o,
        Ok(None) => {
            println!("{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            eprintln!("gpu-check: {e}");
            return ExitCode::from(2);
        }
    };
    match &options.part {
        Some(name) => parts::run(name, &options),
        None => watch::run(&options),
    }
}
