//! Runs the parts, each in a process of its own, listens to them, ends those that take too long, and writes
//! what they found.
use crate::broken::BROKEN;
use crate::lines::{Line, Said};
use crate::options::Options;
use crate::page;
use crate::parts::{ALL, Part};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How much longer than it was told to take a part may take before it is ended.
const GRACE: Duration = Duration::from_secs(8);
/// The driver's start, and what is asked of it first.
const PROBE: Duration = Duration::from_secs(60);
/// Times that a part which lost the GPU is started again.
const STARTS: usize = 12;
/// Between lines that say what a part is at.
const SELDOM: Duration = Duration::from_secs(1);

/// What a part came to.
pub struct Came {
    /// Which.
    pub part: &'static Part,
    /// What it said.
    pub said: Said,
    /// How long it took.
    pub took: Duration,
    /// Why it did not come to its end, where it did not.
    pub broke: Vec<String>,
}

impl Came {
    /// Whether all of it was well.
    pub fn passed(&self) -> bool {
        self.broke.is_empty() && self.said.failed.is_empty()
    }
}

/// How a process ended.
#[derive(Debug, PartialEq)]
enum End {
    Well,
    /// It lost the GPU, and said so.
    Broken,
    /// It took too long, and was ended.
    Late(String),
    /// Something else.
    Failed(String),
}

/// Keeps the end of what a process writes to its standard error.
fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut all, mut piece) = (vec![], [0; 4096]);
        while let Ok(n @ 1..) = from.read(&mut piece) {
            all.extend_from_slice(&piece[..n]);
            let over = all.len().saturating_sub(16 << 10);
            all.drain(..over);
        }
        String::from_utf8_lossy(&all).into_owned()
    })
}

fn ended(child: &mut Child, error: String) -> End {
    let last = error.lines().rev().find(|l| !l.trim().is_empty());
    let last = last.unwrap_or_default().trim().to_string();
    match child.wait() {
        Ok(s) if s.success() => End::Well,
        Ok(s) if s.code() == Some(i32::from(BROKEN)) => End::Broken,
        Ok(s) if s.code() == Some(1) && !last.is_empty() => End::Failed(last),
        Ok(s) => End::Failed(format!("its process ended with {s}: {last}")),
        Err(e) => End::Failed(e.to_string()),
    }
}

/// Ends a process, and says whether it is gone: one that a driver holds on to may not be for long.
fn killed(child: &mut Child) -> bool {
    let _ = child.kill();
    let began = Instant::now();
    while began.elapsed() < GRACE {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

/// Runs a part in a process, which is ended after `limit`, or when it says nothing for `silence`.
fn process(command: &mut Command, limit: Duration, silence: Duration, said: &mut Said) -> End {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(c) => c,
        Err(e) => return End::Failed(format!("it could not be started: {e}")),
    };
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return End::Failed("it has no output".into());
    };
    let err = drain(err);
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for l in BufReader::new(out).lines().map_while(Result::ok) {
            if send.send(l).is_err() {
                break;
            }
        }
    });
    let began = Instant::now();
    let mut told = Instant::now();
    loop {
        let wait = limit.saturating_sub(began.elapsed()).min(silence);
        match lines.recv_timeout(wait) {
            Ok(text) => match serde_json::from_str::<Line>(&text) {
                Ok(line) => {
                    if let Line::Check {
                        what,
                        wrong: Some(why),
                        ..
                    } = &line
                    {
                        println!("   FAILED {what}: {why}");
                    }
                    if let (Line::Now { what }, true) = (&line, told.elapsed() > SELDOM) {
                        println!("   {what}");
                        told = Instant::now();
                    }
                    said.hear(line);
                }
                // What a library printed.
                Err(_) => println!("   {text}"),
            },
            Err(RecvTimeoutError::Disconnected) => {
                return ended(&mut child, err.join().unwrap_or_default());
            }
            Err(RecvTimeoutError::Timeout) => {
                let late = began.elapsed() >= limit;
                let gone = killed(&mut child);
                let mut why = match late {
                    true => "there was no time left".to_string(),
                    false => format!("it said nothing for {:.0} s", silence.as_secs_f64()),
                };
                if !gone {
                    why += ", and its process does not go";
                }
                return End::Late(format!("{}: {why}", said.now));
            }
        }
    }
}

/// The command for a part.
fn command(o: &Options, part: &str, seconds: f64) -> std::io::Result<Command> {
    let mut c = Command::new(std::env::current_exe()?);
    c.args(["--part", part, "--on", &o.on])
        .args(["--seconds", &format!("{:.1}", seconds.max(1.0))]);
    if !o.models.is_empty() {
        c.args(["--models", &o.models.join(",")]);
    }
    if let Some(f) = &o.models_in {
        c.arg("--models-in").arg(f);
    }
    Ok(c)
}

/// A part with what later ones have from earlier ones.
struct Given {
    machine: Option<PathBuf>,
    operations: Option<PathBuf>,
}

fn part(o: &Options, p: &'static Part, seconds: f64, given: &Given) -> Came {
    let began = Instant::now();
    let mut came = Came {
        part: p,
        said: Said::default(),
        took: Duration::ZERO,
        broke: vec![],
    };
    let all = Duration::from_secs_f64(seconds);
    for start in 0..STARTS {
        let rest = all.saturating_sub(began.elapsed());
        if start > 0 && rest < Duration::from_secs(3) {
            break;
        }
        let made = command(o, p.name, rest.as_secs_f64());
        let mut c = match made {
            Ok(c) => c,
            Err(e) => {
                came.broke.push(e.to_string());
                break;
            }
        };
        if let (Some(f), "kernels") = (&given.machine, p.name) {
            c.arg("--machine").arg(f);
        }
        if let (Some(f), "torch") = (&given.operations, p.name) {
            c.arg("--operations").arg(f);
        }
        c.args(["--past", &came.said.past.to_string()]);
        let before = came.said.past;
        // An emulated GPU takes its time.
        let silence = match o.emulated() {
            true => rest + GRACE,
            false => Duration::from_secs_f64(p.silence),
        };
        let end = process(&mut c, rest + GRACE, silence, &mut came.said);
        let why = match end {
            End::Well => break,
            End::Broken => format!("the GPU was lost at: {}", came.said.now),
            End::Late(why) if o.emulated() => {
                println!("   ended at {why}");
                came.said
                    .left
                    .push(("the rest".into(), format!("ended at {why}")));
                break;
            }
            End::Late(why) => format!("ended at {why}"),
            End::Failed(why) => why,
        };
        println!("   FAILED: {why}");
        came.broke.push(why);
        // It goes on behind what it was ended at, where it says what that is.
        if came.said.past == before {
            break;
        }
    }
    came.took = began.elapsed();
    came
}

fn write(to: &Path, text: &str) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("{}: {e}", to.display());
    if let Some(dir) = to.parent() {
        std::fs::create_dir_all(dir).map_err(fail)?;
    }
    std::fs::write(to, text).map_err(fail)
}

/// Runs everything that was asked for.
pub fn run(o: &Options) -> ExitCode {
    let mut probe = Said::default();
    let made = command(o, "probe", PROBE.as_secs_f64());
    let end = match made {
        Ok(mut c) => process(&mut c, PROBE, PROBE, &mut probe),
        Err(e) => End::Failed(e.to_string()),
    };
    if let End::Failed(why) | End::Late(why) = end {
        eprintln!("gpu-check: {why}");
        return ExitCode::from(2);
    }
    let file = probe.fact("file").unwrap_or("gpu").to_string();
    println!(
        "{} on {} ({})",
        probe.fact("name").unwrap_or("a GPU"),
        o.on,
        probe.fact("driver").unwrap_or_default()
    );
    let asked = |p: &&Part| o.parts.is_empty() || o.parts.iter().any(|n| n == p.name);
    let parts: Vec<&'static Part> = ALL.iter().filter(asked).collect();
    let mut given = Given {
        machine: None,
        operations: None,
    };
    let mut all: Vec<Came> = vec![];
    for (i, p) in parts.iter().enumerate() {
        // What earlier parts did not take is there for the later ones.
        let shares: f64 = parts[i..].iter().map(|p| p.seconds).sum();
        let seconds = o.rest().as_secs_f64() * p.seconds / shares;
        println!("== {}: {}, {seconds:.0} s at most", p.name, p.title);
        let came = part(o, p, seconds, &given);
        for (name, text) in &came.said.files {
            let to = o.out.join(name);
            match write(&to, text) {
                // Emulated figures are assumptions about themselves.
                Ok(()) if !o.emulated() => given.machine = Some(to),
                Ok(()) => {}
                Err(e) => eprintln!("gpu-check: {e}"),
            }
        }
        let keys: Vec<String> = came
            .said
            .kernels
            .iter()
            .filter_map(|k| k.torch.as_ref())
            .map(|t| t.key())
            .collect();
        if !keys.is_empty() {
            given.operations = operations(keys);
        }
        let state = if came.passed() { "passed" } else { "FAILED" };
        println!("   {state} after {:.1} s", came.took.as_secs_f64());
        all.push(came);
    }
    if let Some(f) = &given.operations {
        let _ = std::fs::remove_file(f);
    }
    let to = o.out.join(format!("bench/gpu/{file}.md"));
    if let Err(e) = write(&to, &page::write(o, &probe, &all)) {
        eprintln!("gpu-check: {e}");
        return ExitCode::FAILURE;
    }
    let failed: Vec<&str> = all
        .iter()
        .filter(|c| !c.passed())
        .map(|c| c.part.name)
        .collect();
    println!(
        "written to {} after {:.0} s",
        to.display(),
        o.began.elapsed().as_secs_f64()
    );
    match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => {
            println!("FAILED: {}", failed.join(", "));
            ExitCode::FAILURE
        }
    }
}

/// A file with each operation once.
fn operations(mut keys: Vec<String>) -> Option<PathBuf> {
    keys.sort();
    keys.dedup();
    let to = std::env::temp_dir().join(format!("gpu-check-{}.jsonl", std::process::id()));
    std::fs::write(&to, keys.join("\n") + "\n").ok()?;
    Some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: f64, silence: f64) -> (End, Said) {
        let mut said = Said::default();
        let mut c = Command::new("sh");
        c.args(["-c", script]);
        let [limit, silence] = [limit, silence].map(Duration::from_secs_f64);
        (process(&mut c, limit, silence, &mut said), said)
    }

    #[test]
    fn what_was_said_before_an_end_is_kept() {
        let says = r#"echo '{"line":"past","items":3}'; echo '{"line":"now","what":"a kernel"}'"#;
        let (end, said) = shell(&format!("{says}; exit 75"), 20.0, 20.0);
        assert_eq!(
            (end, said.past, said.now.as_str()),
            (End::Broken, 3, "a kernel")
        );
        let (end, said) = shell(&format!("{says}; echo no JSON; kill -9 $$"), 20.0, 20.0);
        assert!(
            matches!(end, End::Failed(w) if w.contains("signal")),
            "{said:?}"
        );
        let (end, _) = shell(
            &format!("{says}; echo 'one sentence' >&2; exit 1"),
            20.0,
            20.0,
        );
        assert_eq!(end, End::Failed("one sentence".into()));
        let (end, said) = shell("exit 0", 20.0, 20.0);
        assert_eq!((end, said.ended), (End::Well, false));
    }

    #[test]
    fn what_hangs_is_ended() {
        let says = r#"echo '{"line":"now","what":"a kernel"}'; exec sleep 60"#;
        let began = Instant::now();
        let (end, _) = shell(says, 20.0, 0.5);
        assert_eq!(end, End::Late("a kernel: it said nothing for 0 s".into()));
        let (end, _) = shell(says, 0.5, 20.0);
        assert_eq!(end, End::Late("a kernel: there was no time left".into()));
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
