//! Kernels on memory that ends where their operands do. Cases are made by [`conformance::edges`] of the suite's
//! families and of small graphs as planned; they run in a process of their own, which a read or a write beside an
//! operand ends: whoever started it says by name which case it was and goes on with the next.
mod graphs;

use conformance::edges::{Came, Source, Where, edge_cases, families, seed_of};
use cpu::isa::Isa;
use cpu::{CpuDevice, CpuOptions};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

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
pub const CHILD: &str = "--child";
/// Cases that may go wrong before no more are looked for.
const ENOUGH: usize = 40;
/// What the lines of a child begin with: a case starts, was refused, went wrong; all is done.
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

    /// Whether the cases of `unit` are looked at.
    fn picks(&self, unit: &str) -> bool {
        let own = self.case.as_ref().is_none_or(|c| {
            let rest = c.strip_prefix(unit);
            rest.is_some_and(|r| r.starts_with(' '))
        });
        own && self.share.is_none_or(|(s, of)| seed_of(unit) % of == s)
    }
}

/// Runs cases in this process but for the first `skip`, and says on standard output what it does.
///
/// # Errors
/// There is no device of an instruction set that was asked for, or nobody listens.
pub fn child(asked: &Asked, skip: usize) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let isas = match asked.isas.is_empty() {
        true => Isa::ALL.into_iter().filter(|i| i.available()).collect(),
        false => asked.isas.clone(),
    };
    let sources: Vec<Box<dyn Source>> = families().into_iter().chain(graphs::sources()).collect();
    let places: &[Where] = match asked.heap {
        true => &[Where::Heap],
        false => &[Where::Behind, Where::Before],
    };
    let (mut at, heard) = (0, Cell::new(true));
    for isa in isas {
        let device = CpuDevice::new(CpuOptions {
            threads: Some(1),
            isa: Some(isa),
            ..CpuOptions::default()
        });
        let device = device.map_err(|e| e.to_string())?;
        for source in &sources {
            if !asked.kinds.is_empty() && !asked.kinds.iter().any(|k| k == source.name()) {
                continue;
            }
            let mut hears = |name: &str, came: Option<Came>| {
                let line = match came {
                    None if asked.case.as_ref().is_some_and(|c| c != name) => return false,
                    None => {
                        at += 1;
                        if at <= skip {
                            return false;
                        }
                        format!("{STARTS}{name}")
                    }
                    Some(Came::Agreed) => return true,
                    Some(Came::Refused(why)) => {
                        format!("{REFUSED}{}", why.escape_default())
                    }
                    Some(Came::Wrong(why)) => format!("{WRONG}{}", why.escape_default()),
                };
                let said = writeln!(out, "{line}").and_then(|()| out.flush());
                heard.set(said.is_ok());
                heard.get()
            };
            // Nothing is run that nobody listens to.
            let picks = |unit: &str| heard.get() && asked.picks(unit);
            edge_cases(source.as_ref(), &device, places, &picks, &mut hears);
        }
    }
    writeln!(out, "{DONE}").map_err(|e| e.to_string())
}

/// Runs what is asked for in processes of `command` (a program and its first arguments); `told` hears the name of each
/// case that went wrong and what came of it.
///
/// # Errors
/// It cannot be started, or ends before any case.
pub fn run(
    command: &[&Path],
    asked: &Asked,
    told: &mut dyn FnMut(&str, &str),
) -> Result<Outcome, String> {
    let (program, first) = command.split_first().ok_or("there is no program")?;
    let mut outcome = Outcome::default();
    loop {
        let mut process = Command::new(program)
            .args(first)
            .args([CHILD, "--skip", &outcome.cases.to_string()])
            .args(asked.args())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{} cannot be started: {e}", program.display()))?;
        let said = process.stdout.take().ok_or("it says nothing")?;
        let (mut case, mut done) = (None, false);
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if let Some(name) = line.strip_prefix(STARTS) {
                case = Some(name.to_string());
                outcome.cases += 1;
            } else if let Some(why) = line.strip_prefix(REFUSED) {
                *outcome.refused.entry(plainly(why)).or_default() += 1;
            } else if let Some(why) = line.strip_prefix(WRONG) {
                outcome.wrong += 1;
                told(case.as_deref().unwrap_or_default(), &plainly(why));
            } else {
                done |= line == DONE;
            }
        }
        let status = process.wait().map_err(|e| e.to_string())?;
        if done && status.success() {
            return Ok(outcome);
        }
        let name = case.ok_or(format!("no case ran: {status}"))?;
        outcome.wrong += 1;
        told(&name, &format!("ended the process: {status}"));
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

/// The command that runs a case again.
pub fn again(asked: &Asked, case: &str) -> String {
    let heap = if asked.heap { " --heap" } else { "" };
    format!("cargo xtask guard{heap} --case '{case}'")
}
