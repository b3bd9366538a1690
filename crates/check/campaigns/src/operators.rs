//! `cargo xtask operators`: writes docs/operators.md.
use std::process::ExitCode;

pub fn run(_: &[String]) -> ExitCode {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operators.md");
    match std::fs::write(path, testkit::operators::page()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("docs/operators.md cannot be written: {e}; run this in a checkout");
            ExitCode::FAILURE
        }
    }
}
