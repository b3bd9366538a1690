//! `cargo xtask models`: models that the zoo lacks, as folders of a zoo.
use std::path::PathBuf;
use std::process::ExitCode;
use testkit::named;

/// Writes the models of these names, else all, to the folder behind `--out`.
pub fn run(args: &[String]) -> ExitCode {
    let (mut out, mut names) = (None, vec![]);
    let mut it = args.iter();
    while let Some(a) = it.next() {
        match a.as_str() {
            "--out" => out = it.next().map(PathBuf::from),
            a if a.starts_with("--") => out = None,
            a => names.push(a),
        }
    }
    let Some(out) = out else {
        eprintln!(
            "usage: cargo xtask models --out DIR [NAME...]\n\nnames: {}",
            named::NAMES.join(", ")
        );
        return ExitCode::from(2);
    };
    if names.is_empty() {
        names.extend(named::NAMES);
    }
    for name in names {
        if let Err(e) = named::write(name, &out) {
            eprintln!("{name}: {e}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
