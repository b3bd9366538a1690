//! `fuzz`: random graphs against the oracle for as long as asked; a failure prints its seed.
use std::process::ExitCode;
use std::time::{Duration, Instant};
use testkit::random::{Case, Engines, Outcome, check};

const USAGE: &str = "usage: cargo xtask fuzz [--graphs N] [--minutes M] [--seed S]";

pub fn run(args: &[String]) -> ExitCode {
    let (mut graphs, mut minutes, mut first) = (u64::MAX, None, 1u64);
    let mut it = args.iter();
    while let Some(a) = it.next() {
        let value = it.next().and_then(|v| v.parse::<u64>().ok());
        match (a.as_str(), value) {
            ("--graphs", Some(n)) => graphs = n,
            ("--minutes", Some(n)) => minutes = Some(n),
            ("--seed", Some(n)) => (first, graphs) = (n, graphs.min(1)),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    if graphs == u64::MAX && minutes.is_none() {
        minutes = Some(1);
    }
    if graphs == 1
        && let Ok(c) = Case::new(first)
    {
        println!("{}", c.graph.to_text());
        for (name, t) in &c.inputs {
            println!("{name}: {t:?}");
        }
    }
    let end = minutes.map(|m| Instant::now() + Duration::from_secs(60 * m));
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
            Case::new(seed).and_then(|c| check(&c, &engines))
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
