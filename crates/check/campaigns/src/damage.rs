//! `cargo xtask fuzz --readers`: damaged files of every kind, read in processes of their own with
//! 4 GB of address space; a process that dies or stands still leaves the seed it was at.
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use testkit::random::Rng;
use testkit::readers::{Bench, READERS, find};

/// First argument that makes this the process that reads.
pub const CHILD: &str = "--read";
/// Address space of a process that reads, in bytes.
const SPACE: u64 = 4 << 30;
/// One input may take this long.
const SLOWEST: Duration = Duration::from_secs(20);
/// Failures of a reader that are told; then the next one's turn comes.
const TOLD: usize = 20;

/// The process that reads: `NAME FIRST SECONDS`, or a file in place of seconds to read it alone.
pub fn child(args: &[String]) -> ExitCode {
    match reading(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// The input of a seed: which sound one, and what was done to it.
fn input(reader: &testkit::readers::Reader, sound: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let at = rng.below(sound.len());
    (reader.damage)(&sound[at], &mut rng)
}

fn reading(args: &[String]) -> Result<(), String> {
    let [name, first, seconds] = args else {
        return Err("a process that reads takes NAME FIRST SECONDS".into());
    };
    let reader = find(name).ok_or_else(|| format!("there is no reader {name}"))?;
    let bench = Bench::new()?;
    let sound = (reader.seeds)(&bench)?;
    let limit = rustix::process::Rlimit {
        current: Some(SPACE),
        maximum: Some(SPACE),
    };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).map_err(|e| e.to_string())?;
    let first: u64 = first.parse().map_err(|_| "FIRST is a number")?;
    let seconds: f64 = seconds.parse().map_err(|_| "SECONDS is a number")?;
    let began = Instant::now();
    let (mut all, mut taken) = (0u64, 0u64);
    for seed in first.. {
        if began.elapsed().as_secs_f64() >= seconds && seed > first {
            break;
        }
        // Said first: a process that dies leaves the seed that killed it as its last word.
        println!("{seed}");
        let bytes = input(reader, &sound, seed);
        let read = || (reader.read)(&bench, &bytes);
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)) {
            Ok(Ok(sound)) => taken += u64::from(sound),
            Ok(Err(e)) => println!("FAILED {seed}: {}", e.replace('\n', " ")),
            // The hook has said where on standard error.
            Err(_) => println!("FAILED {seed}: it panicked"),
        }
        all += 1;
    }
    println!("DONE {all} {taken}");
    Ok(())
}

/// Ends a process that stands still or dies on the way.
struct Ended(Child);
impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What came of a reader: inputs, those taken for sound, failures.
#[derive(Default)]
struct Sum {
    all: u64,
    taken: u64,
    failures: Vec<String>,
}

fn one(name: &str, first: u64, seconds: f64) -> Result<Sum, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut sum = Sum::default();
    let (mut next, began) = (first, Instant::now());
    while sum.failures.len() < TOLD {
        let left = seconds - began.elapsed().as_secs_f64();
        if left <= 0.0 {
            break;
        }
        let child = Command::new(&me)
            .args(["fuzz", CHILD, name, &next.to_string(), &left.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = Ended(child.map_err(|e| e.to_string())?);
        let (said, heard) = channel();
        if let Some(out) = child.0.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if said.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let complaints = child.0.stderr.take().map(|mut e| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = e.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        });
        let (mut at, mut done, mut panics) = (next, false, Vec::new());
        let stands_still = loop {
            match heard.recv_timeout(SLOWEST) {
                Ok(line) if line.starts_with("DONE ") => {
                    let n = |i| line.split(' ').nth(i).and_then(|v| v.parse::<u64>().ok());
                    sum.taken += n(2).unwrap_or(0);
                    done = true;
                }
                Ok(line) if line.starts_with("FAILED ") => panics.push(line),
                Ok(line) => {
                    at = line.parse().unwrap_or(at);
                    sum.all += 1;
                }
                Err(RecvTimeoutError::Timeout) => break true,
                Err(RecvTimeoutError::Disconnected) => break false,
            }
        };
        if stands_still {
            let _ = child.0.kill();
        }
        let status = child.0.wait().map_err(|e| e.to_string())?;
        let text = complaints.and_then(|t| t.join().ok()).unwrap_or_default();
        let mut places = text.lines().filter(|l| l.contains("panicked at"));
        for p in panics {
            let place = places.next().unwrap_or_default();
            sum.failures.push(format!("{p} {place}"));
        }
        if done {
            break;
        }
        let why = match stands_still {
            true => format!("took more than {} s", SLOWEST.as_secs()),
            false => {
                let last = text.lines().last().unwrap_or_default();
                format!("{status} {last}")
            }
        };
        sum.failures.push(format!("FAILED {at}: {why}"));
        next = at + 1;
    }
    Ok(sum)
}

/// Reads damaged files for `seconds` each of the readers named, of all when none is.
pub fn run(names: &[String], first: u64, seconds: f64) -> ExitCode {
    if let Some(n) = names.iter().find(|n| find(n).is_none()) {
        let all: Vec<&str> = READERS.iter().map(|r| r.name).collect();
        eprintln!("fuzz: there is no reader {n}; there are {}", all.join(", "));
        return ExitCode::from(2);
    }
    let mut failed = 0;
    for r in READERS {
        if !names.is_empty() && !names.iter().any(|n| n == r.name) {
            continue;
        }
        match one(r.name, first, seconds) {
            Ok(sum) => {
                println!(
                    "{:8} {:>9} inputs, {} taken for sound, {} failed ({})",
                    r.name,
                    sum.all,
                    sum.taken,
                    sum.failures.len(),
                    r.what
                );
                failed += sum.failures.len();
                sum.failures
                    .iter()
                    .for_each(|f| println!("  {}: {f}", r.name));
            }
            Err(e) => {
                eprintln!("fuzz: {}: {e}", r.name);
                failed += 1;
            }
        }
    }
    ExitCode::from(u8::from(failed > 0))
}
