//! Chores of the repository: `cargo xtask tidy [CHECK...]`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some("tidy"), names) = (
        args.first().map(String::as_str),
        args.get(1..).unwrap_or_default(),
    ) else {
        eprintln!("usage: cargo xtask tidy [CHECK...]\n\nchecks:");
        xtask::CHECKS
            .iter()
            .for_each(|c| eprintln!("  {:16} {}", c.name, c.holds));
        return ExitCode::from(2);
    };
    if let Some(unknown) = names
        .iter()
        .find(|n| xtask::CHECKS.iter().all(|c| c.name != **n))
    {
        eprintln!("xtask: there is no check named {unknown}; cargo xtask lists them");
        return ExitCode::from(2);
    }
    let root = xtask::root();
    let mut found = 0;
    for check in xtask::CHECKS
        .iter()
        .filter(|c| names.is_empty() || names.iter().any(|n| n == c.name))
    {
        for finding in (check.run)(&root) {
            eprintln!("{}: {finding}", check.name);
            found += 1;
        }
    }
    if found == 0 {
        println!("tidy");
        return ExitCode::SUCCESS;
    }
    eprintln!("{found} findings");
    ExitCode::FAILURE
}
