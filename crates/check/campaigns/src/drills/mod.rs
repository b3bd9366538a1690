//! `cargo xtask drills`: what a running engine does when its world changes, beside the best static plan for
//! each condition, to `bench/DRILLS.md`.
mod condition;
mod faults;
mod outcome;
mod traffic;
mod urgent;
mod world;

use crate::pages::{commit, date, figures, root};
use crate::quiet::Quiet;
use outcome::{Aim, Figure, How, Outcome};
use std::fmt::Write as _;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask drills [NAME...] [--quick] [--blocks N] [--python PROGRAM] [--out FILE] [--lock FILE]...\n  names: neighbour, lying-file, shift, burst, urgent, panics, million";

/// Blocks of a drill at least: fewer have no interval.
const BLOCKS: usize = 5;

type Drill = (
    &'static str,
    &'static str,
    fn(&How, &mut Quiet) -> Result<Outcome, String>,
);

const DRILLS: &[Drill] = &[
    (
        "neighbour",
        "A neighbour takes one of two cores, then gives it back.",
        condition::neighbour,
    ),
    (
        "lying-file",
        "The machine file claims four times the true bandwidth of memory and half the L2.",
        condition::lying_file,
    ),
    (
        "shift",
        "Traffic shifts from one model to another, at a length that nobody planned for.",
        traffic::shift,
    ),
    ("burst", "Ten times the usual traffic.", traffic::burst),
    (
        "urgent",
        "An urgent model beside a busy background model.",
        urgent::urgent,
    ),
    ("panics", "Steps panic, a thousand times.", faults::panics),
    (
        "million",
        "Requests of four callers while plans are swapped.",
        faults::million,
    ),
];

struct Options {
    names: Vec<String>,
    out: std::path::PathBuf,
    locks: Vec<std::path::PathBuf>,
    how: How,
}

fn options(args: &[String]) -> Option<Options> {
    let mut o = Options {
        names: vec![],
        out: root().join("bench/DRILLS.md"),
        locks: vec![],
        how: How {
            quick: false,
            blocks: BLOCKS,
            python: "python3".into(),
        },
    };
    let mut args = args.iter();
    while let Some(a) = args.next() {
        match a.as_str() {
            "--quick" => o.how.quick = true,
            "--blocks" => o.how.blocks = args.next()?.parse().ok().filter(|n| *n > 0)?,
            "--python" => o.how.python = args.next()?.clone(),
            "--out" => o.out = args.next()?.into(),
            "--lock" => o.locks.push(args.next()?.into()),
            n if DRILLS.iter().any(|d| d.0 == n) => o.names.push(n.into()),
            _ => return None,
        }
    }
    Some(o)
}

pub fn run(args: &[String]) -> ExitCode {
    if args.first().is_some_and(|a| a == world::SPIN) {
        return world::spin(&args[1..]);
    }
    let Some(o) = options(args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut quiet = Quiet::new(o.locks);
    let mut sections = Vec::new();
    for (name, about, drill) in DRILLS {
        if !o.names.is_empty() && !o.names.iter().any(|n| n == name) {
            continue;
        }
        eprintln!("drills: {name}");
        let out = drill(&o.how, &mut quiet);
        quiet.release();
        let section = section(name, about, &o.how, out);
        println!("{section}");
        sections.push((name.to_string(), section));
    }
    match write(&o.out, &sections) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("drills: {}: {e}", o.out.display());
            ExitCode::FAILURE
        }
    }
}

fn section(name: &str, about: &str, how: &How, out: Result<Outcome, String>) -> String {
    let mut text = format!("## {name}\n\n{about}");
    let length = if how.quick { ", --quick" } else { "" };
    let machine = cpu::detect::detect().name;
    let _ = writeln!(text, " {}, {}{length}, on {machine}.\n", date(), commit());
    match out {
        Err(e) => {
            let _ = writeln!(text, "It could not be run: {e}.");
        }
        Ok(o) => {
            text += "| figure | median | blocks | aim | met |\n|---|---|---|---|---|\n";
            for f in &o.figures {
                let _ = writeln!(text, "{}", f.row());
            }
            for n in &o.notes {
                let _ = writeln!(text, "\n{n}");
            }
        }
    }
    text
}

const HEAD: &str = "# Drills\n\nA running engine on two workers while its world changes, with the supervisor on, in turns with the oracle: the\nbest static plan for that condition. Made by `cargo xtask drills`; the median of the blocks, and the smallest\nand largest of them.\n";

/// Puts the sections in the place of older ones of the same drills.
fn write(path: &std::path::Path, fresh: &[(String, String)]) -> std::io::Result<()> {
    let old = std::fs::read_to_string(path).unwrap_or_default();
    let mut sections = Vec::new();
    for (name, ..) in DRILLS {
        let own = fresh.iter().find(|s| s.0 == *name).map(|s| s.1.clone());
        let kept = || {
            let from = old.find(&format!("\n## {name}\n"))? + 1;
            let end = old[from + 3..].find("\n## ").map(|e| from + 3 + e + 1);
            Some(old[from..end.unwrap_or(old.len())].trim_end().to_string() + "\n")
        };
        sections.extend(own.or_else(kept));
    }
    // A drill that could not be run has no figures.
    let met = |s: &&String| s.contains(" | yes |") && !s.contains(" | no |");
    let all = figures(
        "drills",
        &cpu::detect::detect().name,
        &[(
            format!("drills of {} that met all their aims", DRILLS.len()),
            sections.iter().filter(met).count().to_string(),
        )],
    );
    let mut text = format!("{HEAD}\n{all}");
    for s in sections {
        let _ = write!(text, "\n{s}");
    }
    std::fs::write(path, text)
}
