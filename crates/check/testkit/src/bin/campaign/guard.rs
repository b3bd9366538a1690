//! `guard`: every family, type, layout and instruction set at extents beside the edges of tiles, on memory that ends
//! where operands do. `valgrind`: the same in the allocator's memory under valgrind, which knows its ends.
use cpu::isa::Isa;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use testkit::guard::{Asked, CHILD, Outcome, again, child, run as look};

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
    if args.first().is_some_and(|a| a == CHILD) {
        let ran = Asked::of(&args[1..]).and_then(|(asked, skip)| child(&asked, skip));
        return match ran {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("guard: {e}");
                ExitCode::FAILURE
            }
        };
    }
    with(args, |own, asked| {
        look(&[own, Path::new("guard")], asked, &mut told(asked))
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
        look(&command, &asked, &mut told(&asked))
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

/// Says of a case what came of it, and how it is run again.
fn told(asked: &Asked) -> impl FnMut(&str, &str) {
    |case, why| println!("{case}: {why}\n  again: {}\n", again(asked, case))
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
