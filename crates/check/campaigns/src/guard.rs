//! `guard`: every family, type, layout and instruction set at extents beside the edges of tiles, on memory that ends
//! where operands do. `valgrind`: the same in the allocator's memory under valgrind, which knows its ends; the cases are
//! recorded by a process outside it, and nothing is compared but two runs of each.
use cpu::isa::Isa;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use testkit::guard::{Asked, Commands, Outcome, process, repeat_command, run as look};

const USAGE: &str =
    "usage: cargo xtask guard|valgrind [--isa ISA]... [--kind KIND]... [--share S/N] [--case CASE]

  --isa ISA    avx512, avx2 or portable [default: all that this machine, or valgrind, has]
  --kind KIND  a family such as product, or a graph such as planned-product [default: all]
  --share S/N  one share of N, such as 3/20 [default: the whole]
  --case CASE  one case, as a failure names it
  --heap       (guard) operands in the allocator's memory";

/// What valgrind ends with where it found something.
const FOUND: &str = "99";

pub fn run(args: &[String]) -> ExitCode {
    match process(args) {
        None => guard(args),
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(e)) => {
            eprintln!("guard: {e}");
            ExitCode::FAILURE
        }
    }
}

fn guard(args: &[String]) -> ExitCode {
    with(args, |own, asked| {
        let commands = Commands {
            run: &[own, Path::new("guard")],
            record: None,
        };
        look(&commands, asked, &mut told("guard", asked))
    })
}

pub fn valgrind(args: &[String]) -> ExitCode {
    let there = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !there.is_ok_and(|s| s.success()) {
        eprintln!("valgrind is not installed; install the package of that name");
        return ExitCode::FAILURE;
    }
    with(args, |own, asked| {
        let mut asked = Asked {
            heap: true,
            ..asked.clone()
        };
        if asked.isas.is_empty() {
            asked.isas = vec![Isa::Avx2, Isa::Portable];
        }
        let code = format!("--error-exitcode={FOUND}");
        let options = ["--quiet", "--exit-on-first-error=yes", &code];
        let mut command = vec![Path::new("valgrind")];
        command.extend(options.map(Path::new));
        command.extend([own, Path::new("guard")]);
        let commands = Commands {
            run: &command,
            record: Some(&[own, Path::new("guard")]),
        };
        look(&commands, &asked, &mut told("valgrind", &asked))
    })
}

fn with(args: &[String], go: impl FnOnce(&Path, &Asked) -> Result<Outcome, String>) -> ExitCode {
    let asked = match Asked::of(args) {
        Ok((asked, 0)) => asked,
        Ok(_) | Err(_) => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let own = std::env::current_exe().map_err(|e| e.to_string());
    match own.and_then(|own| go(&own, &asked)) {
        Ok(o) => said(&asked, &o),
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Counts cases, and says of those that went wrong what came of them and how they are run again.
fn told(command: &str, asked: &Asked) -> impl FnMut(&str, Option<&str>) {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{pos} cases, {elapsed}: {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    move |case, why| match why {
        None => {
            bar.inc(1);
            bar.set_message(case.to_string());
        }
        Some(why) => bar.suspend(|| {
            println!(
                "{case}: {why}\n  again: {}\n",
                repeat_command(command, asked, case)
            )
        }),
    }
}

fn said(asked: &Asked, o: &Outcome) -> ExitCode {
    let refused: usize = o.refused.values().sum();
    if asked.case.is_some() {
        o.refused.keys().for_each(|why| println!("refused: {why}"));
    }
    println!("{} cases, {refused} refused, {} wrong", o.cases, o.wrong);
    match o.wrong == 0 && o.cases > 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
