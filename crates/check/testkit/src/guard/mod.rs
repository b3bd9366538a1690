//! Kernels on memory that ends where their operands do. Cases are made by [`conformance::edges`] of the suite's
//! families and of small graphs as planned; they run in a process of their own, which a read or a write beside an
//! operand ends: whoever started it says by name which case it was and goes on with the next.
mod graphs;
mod recorded;

use recorded::{RECORD, REPLAY, record, replay};

use conformance::edges::{Came, Hears, Source, Subjects, edge_cases, families, seed_of};
use conformance::{Guarded, OnDevice};
use cpu::isa::Isa;
use cpu::{CpuDevice, CpuOptions};
use device::Guard;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What is looked at.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Instruction sets; none: all that there are.
    pub isas: Vec<Isa>,
    /// Kinds of cases by name; none: all.
    pub kinds: Vec<String>,
    /// One share of so many; `None`: the whole.
    pub share: Option<(u64, u64)>,
    /// One case by its name.
    pub case: Option<String>,
    /// Operands lie in the allocator's memory, for a checker that knows where that ends.
    pub heap: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Cases that were run.
    pub cases: usize,
    /// Those that the device, the verifier or the reference refused, by reason.
    pub refused: BTreeMap<String, usize>,
    /// Those that went wrong.
    pub wrong: usize,
}

/// The argument that makes the program one that runs cases.
const CHILD: &str = "--child";
/// Cases that may go wrong before no more are looked for.
const ENOUGH: usize = 40;
/// What the lines of a process that runs cases begin with: a case starts, was refused, went wrong; all is done.
const STARTS: &str = "> ";
const REFUSED: &str = "~ ";
const WRONG: &str = "! ";
const DONE: &str = "=";

impl Asked {
    /// What the arguments `args` ask for, and how many cases are passed over.
    ///
    /// # Errors
    /// An argument means nothing: says which.
    pub fn of(args: &[String]) -> Result<(Asked, usize), String> {
        let (mut a, mut skip) = (Asked::default(), 0);
        let mut it = args.iter();
        while let Some(arg) = it.next() {
            if arg == "--heap" {
                a.heap = true;
                continue;
            }
            let value = it.next().ok_or(format!("{arg} lacks a value"))?;
            let wrong = || format!("{arg} cannot be '{value}'");
            match arg.as_str() {
                "--isa" => a.isas.push(Isa::from_name(value).ok_or_else(wrong)?),
                "--kind" => a.kinds.push(value.clone()),
                "--case" => a.case = Some(value.clone()),
                "--skip" => skip = value.parse().map_err(|_| wrong())?,
                "--share" => {
                    let (s, of) = value.split_once('/').ok_or_else(wrong)?;
                    let (s, of) = (s.parse().ok(), of.parse().ok());
                    a.share = s.zip(of).filter(|(s, of)| s < of);
                    a.share.ok_or_else(wrong)?;
                }
                _ => return Err(format!("there is no {arg}")),
            }
        }
        Ok((a, skip))
    }

    fn args(&self) -> Vec<String> {
        let mut out = vec![];
        let mut add = |name: &str, value: String| out.extend([name.to_string(), value]);
        self.isas.iter().for_each(|i| add("--isa", i.to_string()));
        self.kinds.iter().for_each(|k| add("--kind", k.clone()));
        self.case.iter().for_each(|c| add("--case", c.clone()));
        let share = self.share.iter();
        share.for_each(|(s, of)| add("--share", format!("{s}/{of}")));
        if self.heap {
            out.push("--heap".into());
        }
        out
    }

    /// Whether the case `name` is run, the next after `at` others, where the first `skip` are passed over.
    fn wants(&self, name: &str, at: &mut usize, skip: usize) -> bool {
        if self.case.as_ref().is_some_and(|c| c != name) {
            return false;
        }
        *at += 1;
        *at > skip
    }

    /// Whether the cases of `unit` are looked at.
    fn picks(&self, unit: &str) -> bool {
        let own = self.case.as_ref().is_none_or(|c| {
            let rest = c.strip_prefix(unit);
            rest.is_some_and(|r| r.starts_with(' '))
        });
        own && self.share.is_none_or(|(s, of)| seed_of(unit) % of == s)
    }
}

/// Does in this process what [`run`] starts it for with the arguments `args`; `None`: these are not its arguments.
///
/// # Errors
/// There is no device of an instruction set that was asked for, nobody listens, or recorded cases end early.
pub fn process(args: &[String]) -> Option<Result<(), String>> {
    let (how, rest) = args.split_first()?;
    let of = |does: fn(&Asked, usize) -> Result<(), String>| {
        Some(Asked::of(rest).and_then(|(asked, skip)| does(&asked, skip)))
    };
    match how.as_str() {
        CHILD => of(child),
        RECORD => of(record),
        REPLAY => Some(replay()),
        _ => None,
    }
}

/// Runs cases in this process but for the first `skip`, and says on standard output what it does.
fn child(asked: &Asked, skip: usize) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let (mut at, heard) = (0, Cell::new(true));
    let mut hears = |name: &str, came: Option<Came>| {
        let said = match came {
            None if !asked.wants(name, &mut at, skip) => return false,
            None => say(&mut out, STARTS, name),
            Some(came) => say_what_came(&mut out, came),
        };
        heard.set(said.is_ok());
        heard.get()
    };
    // Nothing is run that nobody listens to.
    each_device(asked, &heard, &mut hears, &mut |device, run| {
        let heap = OnDevice(device);
        let (behind, before) = (
            Guarded(device, Guard::Behind),
            Guarded(device, Guard::Before),
        );
        match asked.heap {
            true => run(&[("Heap", &heap)]),
            false => run(&[("Behind", &behind), ("Before", &before)]),
        }
    })?;
    writeln!(out, "{DONE}").map_err(|e| e.to_string())
}

/// A device of an instruction set, with one thread.
fn device_of(isa: Isa) -> Result<CpuDevice, String> {
    let device = CpuDevice::new(CpuOptions {
        threads: Some(1),
        isa: Some(isa),
        ..CpuOptions::default()
    });
    device.map_err(|e| e.to_string())
}

/// Runs by what it is given.
type Runs<'a> = dyn FnMut(&Subjects<'_>) + 'a;

/// Runs all cases that are asked for, for as long as `heard`, on the device of each instruction set by the subjects
/// that `by` makes of it.
fn each_device(
    asked: &Asked,
    heard: &Cell<bool>,
    hears: &mut Hears<'_>,
    by: &mut dyn FnMut(&CpuDevice, &mut Runs<'_>),
) -> Result<(), String> {
    let isas = match asked.isas.is_empty() {
        true => Isa::ALL.into_iter().filter(|i| i.available()).collect(),
        false => asked.isas.clone(),
    };
    let sources: Vec<Box<dyn Source>> = families().into_iter().chain(graphs::sources()).collect();
    let asks = |s: &dyn Source| asked.kinds.is_empty() || asked.kinds.iter().any(|k| k == s.name());
    let picks = |unit: &str| heard.get() && asked.picks(unit);
    for isa in isas {
        let device = device_of(isa)?;
        by(&device, &mut |subjects| {
            for source in sources.iter().filter(|s| asks(s.as_ref())) {
                edge_cases(source.as_ref(), &device, subjects, &picks, hears);
            }
        });
    }
    Ok(())
}

fn say(out: &mut dyn Write, what: &str, text: &str) -> std::io::Result<()> {
    writeln!(out, "{what}{text}").and_then(|()| out.flush())
}

fn say_what_came(out: &mut dyn Write, came: Came) -> std::io::Result<()> {
    match came {
        Came::Agreed => Ok(()),
        Came::Refused(why) => say(out, REFUSED, &why.escape_default().to_string()),
        Came::Wrong(why) => say(out, WRONG, &why.escape_default().to_string()),
    }
}

/// The programs that run cases, each with its first arguments.
pub struct Commands<'a> {
    /// What runs cases.
    pub run: &'a [&'a Path],
    /// What records the cases that `run` reads from its standard input; `None`: `run` makes them itself.
    pub record: Option<&'a [&'a Path]>,
}

/// Starts `command` for what is asked for but the first `skip` cases.
fn start(
    command: &[&Path],
    (asked, skip): (&Asked, usize),
    how: &str,
    input: Stdio,
) -> Result<Child, String> {
    let (program, first) = command.split_first().ok_or("there is no program")?;
    Command::new(program)
        .args(first)
        .args([how, "--skip", &skip.to_string()])
        .args(asked.args())
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{} cannot be started: {e}", program.display()))
}

/// Runs what is asked for in processes of `commands`; `told` hears the name of each case that begins (`None`), and what
/// came of those that went wrong.
///
/// # Errors
/// A process cannot be started, or ends before any case.
pub fn run(
    commands: &Commands<'_>,
    asked: &Asked,
    told: &mut dyn FnMut(&str, Option<&str>),
) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    loop {
        let rest = (asked, outcome.cases);
        let mut recorder = match commands.record {
            Some(record) => Some(start(record, rest, RECORD, Stdio::null())?),
            None => None,
        };
        let (how, input) = match recorder.as_mut().and_then(|r| r.stdout.take()) {
            Some(cases) => (REPLAY, Stdio::from(cases)),
            None => (CHILD, Stdio::null()),
        };
        let mut process = start(commands.run, rest, how, input)?;
        let said = process.stdout.take().ok_or("it says nothing")?;
        let (mut case, mut done) = (None, false);
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if let Some(name) = line.strip_prefix(STARTS) {
                case = Some(name.to_string());
                outcome.cases += 1;
                told(name, None);
            } else if let Some(why) = line.strip_prefix(REFUSED) {
                *outcome.refused.entry(plainly(why)).or_default() += 1;
            } else if let Some(why) = line.strip_prefix(WRONG) {
                outcome.wrong += 1;
                told(case.as_deref().unwrap_or_default(), Some(&plainly(why)));
            } else {
                done |= line == DONE;
            }
        }
        let status = process.wait().map_err(|e| e.to_string())?;
        // It ends by itself where nobody reads what it writes.
        let recorded = recorder.map(|mut r| r.wait()).transpose();
        let recorded = recorded.map_err(|e| e.to_string())?;
        if done && status.success() {
            return Ok(outcome);
        }
        let name = case.ok_or(format!("no case ran: {status}"))?;
        outcome.wrong += 1;
        let why = match recorded.filter(|r| !r.success()) {
            Some(r) => format!("ended the process that records it: {r}"),
            None => format!("ended the process: {status}"),
        };
        told(&name, Some(&why));
        if outcome.wrong >= ENOUGH {
            return Ok(outcome);
        }
    }
}

/// A text as it was before it was put into one line.
fn plainly(line: &str) -> String {
    let (quotes, breaks) = (line.replace("\\'", "'").replace("\\\"", "\""), "\\n");
    quotes.replace(breaks, "\n")
}

/// The command that runs a case again: that of the campaign `command` (`guard`, `valgrind`).
pub fn repeat_command(command: &str, asked: &Asked, case: &str) -> String {
    let heap = match asked.heap && command == "guard" {
        true => " --heap",
        false => "",
    };
    format!("cargo xtask {command}{heap} --case '{case}'")
}
