//! `cargo xtask zoo --predict`: predicted beside measured time of models, written to
//! `bench/PREDICTED.md`; with `--on NAME` what is predicted for machines that need not be here.
//!
//! The error of a step is |measured - predicted| / measured. A median over steps is weighted by their
//! time and takes steps of at least 20 us; a model's own error is that of the sums over all steps that
//! ran. Everything is measured twice: what two identical runs differ by is what no prediction can know.
mod absent;
mod page;
mod record;

use crate::pages::root;
use crate::quiet::Quiet;
use record::Record;
use shopfloor::{Isa, Precision, machines};
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use testkit::zoo;

const USAGE: &str = "usage: cargo xtask zoo --predict [NAME...] [--on NAME,... [--precision HOW,...] [--models DIR]] [--threads N] [--out FILE] [--csv FILE] [--record FILE] [--replay FILE] [--prepared DIR] [--lock FILE]...

  --on NAME,...   measures nothing: models planned for these machines, which need not be here, with kernels of
                  ours and of the vendor [--out FILE: bench/gpu/PREDICTED.md]
  --precision HOW how exactly f32 products are computed there, as `shopfloor --precision` has it [default: f32]
  --models DIR    models of this folder in place of the zoo's, such as bench/half.py writes; the page calls them by the
                  folder's name [--out FILE: bench/gpu/PREDICTED-NAME.md]
  --threads N     workers [default: as many as this machine has, and then one]
  --out FILE      where the table goes [default: bench/PREDICTED.md]
  --csv FILE      every step, tab-separated
  --record FILE   keeps what was measured with the plans that ran
  --replay FILE   measures nothing: what was recorded beside what the cost model of now says
  --prepared DIR  models with their weights as NAME/model.onnx [default: weights are made for each]
  --lock FILE     held locked (flock) while something is timed, 40 s at a time";

#[derive(Default)]
struct Options {
    names: Vec<String>,
    /// Machines that are only planned for.
    on: Vec<String>,
    /// How exactly these compute products of f32.
    precision: Vec<Precision>,
    /// Folder of models that take the zoo's place there.
    models: Option<PathBuf>,
    threads: usize,
    out: PathBuf,
    csv: Option<PathBuf>,
    record: Option<PathBuf>,
    replay: Option<PathBuf>,
    prepared: Option<PathBuf>,
    locks: Vec<PathBuf>,
}

fn options(args: &[String]) -> Option<Options> {
    let mut o = Options::default();
    let mut out = None;
    let mut it = args.iter();
    while let Some(a) = it.next() {
        match a.as_str() {
            "--threads" => o.threads = it.next()?.parse().ok().filter(|n| *n > 0)?,
            "--on" => o.on.extend(it.next()?.split(',').map(String::from)),
            "--precision" => {
                for name in it.next()?.split(',') {
                    o.precision.push(name.parse().ok()?);
                }
            }
            "--models" => o.models = Some(it.next()?.into()),
            "--out" => out = Some(it.next()?.into()),
            "--csv" => o.csv = Some(it.next()?.into()),
            "--record" => o.record = Some(it.next()?.into()),
            "--replay" => o.replay = Some(it.next()?.into()),
            "--prepared" => o.prepared = Some(it.next()?.into()),
            "--lock" => o.locks.push(it.next()?.into()),
            a if a.starts_with("--") => return None,
            a => o.names.push(a.into()),
        }
    }
    // What measures has nothing to say where nothing is measured.
    let measures = o.threads > 0
        || o.csv.is_some()
        || o.record.is_some()
        || o.replay.is_some()
        || o.prepared.is_some()
        || !o.locks.is_empty();
    let plans = !o.precision.is_empty() || o.models.is_some();
    if measures && !o.on.is_empty() || o.on.is_empty() && plans {
        return None;
    }
    if o.precision.is_empty() {
        o.precision.push(Precision::default());
    }
    o.out = out.unwrap_or_else(|| match (o.on.is_empty(), &o.models) {
        (true, _) => root().join("bench/PREDICTED.md"),
        (false, None) => root().join("bench/gpu/PREDICTED.md"),
        (false, Some(dir)) => {
            let name = format!("PREDICTED-{}.md", absent::called(dir));
            root().join("bench/gpu").join(name)
        }
    });
    Some(o)
}

/// Measures models, one after the other, or reads what was measured.
fn records(o: &Options, machine: &machine::Machine) -> Result<(Vec<Record>, Vec<String>), String> {
    if let Some(file) = &o.replay {
        let mut list = Record::read(file)?;
        list.retain(|r| o.names.is_empty() || o.names.contains(&r.model));
        list.retain(|r| o.threads == 0 || o.threads == r.threads);
        return Ok((list, vec![]));
    }
    let mut names = o.names.clone();
    if names.is_empty() {
        let large = |n: &String| zoo::find(n).is_some_and(|m| m.meta().large);
        names = zoo::names().into_iter().filter(|n| !large(n)).collect();
    }
    let all = machine.worker_count();
    let threads = match o.threads {
        0 if all > 1 => vec![all, 1],
        0 => vec![all],
        n => vec![n],
    };
    let mut file = match &o.record {
        None => None,
        Some(f) => {
            let made = File::create(f).map_err(|e| format!("{}: {e}", f.display()))?;
            Some(BufWriter::new(made))
        }
    };
    let mut quiet = Quiet::new(o.locks.clone());
    let (mut out, mut gone) = (Vec::new(), Vec::new());
    let live = std::io::stderr().is_terminal();
    for (i, name) in names.iter().enumerate() {
        for &t in &threads {
            let said = format!("{}/{} {name}, {t} threads", i + 1, names.len());
            match live {
                true => eprint!("\r\x1b[K{said}"),
                false => eprintln!("{said}"),
            }
            quiet.hold()?;
            match Record::take(name, t, machine, o.prepared.as_deref()) {
                Ok(r) => {
                    if let Some(f) = &mut file {
                        r.write(f)?;
                    }
                    out.push(r);
                }
                Err(e) => gone.push(format!("{name}, {t} threads: {e}")),
            }
        }
    }
    if live {
        eprint!("\r\x1b[K");
    }
    if let Some(mut f) = file {
        f.flush().map_err(|e| e.to_string())?;
    }
    Ok((out, gone))
}

fn all(o: &Options) -> Result<bool, String> {
    let machine = machines::find("cpu").map_err(|e| e.to_string())?;
    let (list, gone) = records(o, &machine)?;
    let isa = Isa::detect();
    let target = cpu::target(isa);
    let again = o.replay.as_ref().map(|_| (&machine, &target));
    let fail = |f: &PathBuf, e: std::io::Error| format!("{}: {e}", f.display());
    if let Some(f) = &o.csv {
        std::fs::write(f, page::csv(&list, again)).map_err(|e| fail(f, e))?;
    }
    let (text, short, good) = page::page(&list, again, &gone, &machine.name);
    std::fs::write(&o.out, text).map_err(|e| fail(&o.out, e))?;
    print!("{short}");
    Ok(good && gone.is_empty())
}

/// `zoo --predict`.
pub fn run(args: &[String]) -> ExitCode {
    let Some(o) = options(args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let done = match o.on.is_empty() {
        true => all(&o),
        false => absent::all(&o),
    };
    match done {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(e) => {
            eprintln!("zoo --predict: {e}");
            ExitCode::FAILURE
        }
    }
}
