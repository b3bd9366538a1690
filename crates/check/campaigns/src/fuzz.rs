//! `fuzz`: random graphs against the oracle, and damaged files, for as long as asked; a failure
//! prints its seed.
use crate::damage;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use testkit::random::{Case, Engines, Outcome, check, check_schedules};
use testkit::readers::READERS;

const USAGE: &str = "usage: cargo xtask fuzz [--graphs N] [--schedules R] [--minutes M] [--seed S] [--readers [NAME...]]

  --graphs N    random graphs against the oracle
  --schedules R each graph also under R draws of schedules from all that its kernels can have
  --minutes M   for so long; alone: half for graphs, half shared among the readers
  --seed S      the first seed; with --graphs and without a number, that graph alone
  --readers     damaged files of every kind, or of the kinds named, for --minutes each [default: 1]";

pub fn run(args: &[String]) -> ExitCode {
    if args.first().is_some_and(|a| a == damage::CHILD) {
        return damage::child(&args[1..]);
    }
    let (mut graphs, mut minutes, mut first, mut rounds) = (u64::MAX, None, 1u64, 0);
    let mut readers: Option<Vec<String>> = None;
    let mut it = args.iter();
    while let Some(a) = it.next() {
        if a == "--readers" {
            readers = Some(vec![]);
            continue;
        }
        if let (Some(names), false) = (&mut readers, a.starts_with("--")) {
            names.push(a.clone());
            continue;
        }
        let value = it.next().and_then(|v| v.parse::<u64>().ok());
        match (a.as_str(), value) {
            ("--graphs", Some(n)) => graphs = n,
            ("--minutes", Some(n)) => minutes = Some(n),
            ("--seed", Some(n)) => first = n,
            ("--schedules", Some(n)) => rounds = n,
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    if let Some(names) = readers {
        return damage::run(&names, first, 60.0 * minutes.unwrap_or(1) as f64);
    }
    // A seed alone is one graph; minutes alone are for graphs and files.
    if graphs == u64::MAX && minutes.is_none() {
        (graphs, minutes) = match args.is_empty() {
            true => (graphs, Some(1)),
            false => (1, None),
        };
    }
    if let (Some(m), true) = (minutes, graphs == u64::MAX) {
        let half = 30.0 * m as f64;
        let files = damage::run(&[], first, half / READERS.len() as f64);
        let graphs = random_graphs(graphs, rounds, Some(half), first);
        return if files == ExitCode::SUCCESS {
            graphs
        } else {
            files
        };
    }
    random_graphs(graphs, rounds, minutes.map(|m| 60.0 * m as f64), first)
}

fn random_graphs(graphs: u64, rounds: u64, seconds: Option<f64>, first: u64) -> ExitCode {
    if graphs == 1
        && let Ok(c) = Case::new(first)
    {
        println!("{}", c.graph.to_text());
        for (name, t) in &c.inputs {
            println!("{name}: {t:?}");
        }
    }
    let end = seconds.map(|s| Instant::now() + Duration::from_secs_f64(s));
    let engines = match Engines::start() {
        Ok(e) => e,
        Err(e) => {
            eprintln!("fuzz: {e}");
            return ExitCode::FAILURE;
        }
    };
    // A case that panics is a failure like any other; its message carries no seed, so it is said here.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut failed, mut refused, mut done) = (0u64, 0u64, 0u64);
    for seed in (first..).take(usize::try_from(graphs).unwrap_or(usize::MAX)) {
        if end.is_some_and(|e| Instant::now() > e) {
            break;
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let case = Case::new(seed)?;
            match check(&case, &engines)? {
                Outcome::Agrees if rounds > 0 => check_schedules(&case, &engines, rounds),
                outcome => Ok(outcome),
            }
        }));
        let complaint = match outcome {
            Ok(Ok(Outcome::Agrees)) => None,
            Ok(Ok(Outcome::Refused)) => {
                refused += 1;
                None
            }
            Ok(Err(e)) => Some(e),
            Err(p) => {
                let text = p
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| p.downcast_ref::<&str>().map(|s| s.to_string()));
                Some(format!("seed {seed}: panic: {}", text.unwrap_or_default()))
            }
        };
        if let Some(c) = complaint {
            failed += 1;
            println!("FAILED {c}");
        }
        done += 1;
        if done % 1000 == 0 {
            println!("{done} graphs, {failed} failed");
        }
    }
    println!(
        "{done} graphs, {failed} failed ({refused} refused by the oracle and the engine alike)"
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
