//! `cargo xtask targets`: every model of the zoo and every test of the ONNX standard, planned and printed for
//! PTX of each architecture and for WGSL, none of which need be here.
use indicatif::{ProgressBar, ProgressStyle};
use shopfloor_tools::find_test_folders;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use testing::Share;
use testkit::printed::{Code, On, PrintOutcome, check, everywhere};
use testkit::{tools, zoo};

const USAGE: &str = "usage: cargo xtask targets [--on TARGET]... [--only zoo|node] [--share K/N] [--large] [--assemble] [NAME...]

  --on TARGET   ptx-sm_75, ptx-sm_80, ptx-sm_90 or wgsl [default: all]
  --only WHAT   models of the zoo, or tests of the standard [default: both]
  --share K/N   one of N parts, numbered from 0 [default: everything]
  --large       models too that take gigabytes
  --assemble    PTX is also assembled by ptxas (scripts/fetch-ptxas.sh), each text once
  NAME          models or tests of these names alone";

#[derive(Default)]
struct Asked {
    on: Vec<String>,
    only: Option<String>,
    share: Option<Share>,
    large: bool,
    assemble: bool,
    names: Vec<String>,
}

impl Asked {
    fn of(args: &[String]) -> Option<Asked> {
        let mut out = Asked::default();
        let mut args = args.iter();
        while let Some(a) = args.next() {
            match a.as_str() {
                "--on" => out.on.push(args.next()?.clone()),
                "--only" => out.only = Some(args.next()?.clone()),
                "--share" => out.share = Some(Share::parse(args.next()?)?),
                "--large" => out.large = true,
                "--assemble" => out.assemble = true,
                a if a.starts_with('-') => return None,
                name => out.names.push(name.into()),
            }
        }
        let fine = matches!(out.only.as_deref(), None | Some("zoo" | "node"));
        fine.then_some(out)
    }

    fn wants(&self, kind: &str, name: &str) -> bool {
        let share = self.share.unwrap_or(Share::ALL);
        self.only.as_ref().is_none_or(|k| k == kind)
            && (self.names.is_empty() || self.names.iter().any(|n| n == name))
            && share.has(name)
    }
}

/// A model to look at.
enum Case {
    Zoo(Box<zoo::ZooModel>),
    Node(String, PathBuf),
}

impl Case {
    fn name(&self) -> &str {
        match self {
            Case::Zoo(m) => m.name(),
            Case::Node(name, _) => name,
        }
    }

    /// What became of it.
    fn check(
        &self,
        all: &[On],
        valid: &mut dyn FnMut(&On, &Code) -> Result<(), String>,
    ) -> Result<PrintOutcome, String> {
        match self {
            Case::Node(_, path) => check(path, &[], all, valid),
            Case::Zoo(m) => {
                let prepared = m.prepare_temporary().map_err(|e| e.to_string())?;
                let inputs = m.inputs().map_err(|e| e.to_string())?;
                check(&prepared.model, &inputs, all, valid)
            }
        }
    }
}

fn cases(asked: &Asked) -> Result<Vec<Case>, String> {
    let mut out = vec![];
    for name in zoo::names() {
        if !asked.wants("zoo", &name) {
            continue;
        }
        let Some(m) = zoo::find(&name) else { continue };
        if m.meta().large && !asked.large {
            println!("{name}: left out without --large");
            continue;
        }
        out.push(Case::Zoo(Box::new(m)));
    }
    let folders =
        tools::node_tests().and_then(|p| find_test_folders(&[p]).map_err(|e| e.to_string()));
    let folders = match folders {
        Err(why) if asked.only.as_deref() != Some("node") => {
            println!("left out: the tests of the standard: {why}");
            vec![]
        }
        found => found?,
    };
    let wanted = |f: &&shopfloor_tools::TestFolder| asked.wants("node", &f.name());
    out.extend(
        folders
            .iter()
            .filter(wanted)
            .map(|f| Case::Node(f.name(), f.path.join("model.onnx"))),
    );
    Ok(out)
}

/// Assembles PTX that was not assembled before.
struct Assembler {
    tool: Option<PathBuf>,
    folder: tempfile::TempDir,
    seen: HashSet<String>,
}

impl Assembler {
    fn valid(&mut self, on: &On, code: &Code) -> Result<(), String> {
        let arch = on.target.gpu.as_ref().map_or("", |g| &g.arch);
        // The first line is the kernel's name.
        let own = code.text.split_once('\n').map_or("", |t| t.1);
        if arch == "wgsl" {
            return match self.seen.insert(own.into()) {
                true => wgsl(&code.text),
                false => Ok(()),
            };
        }
        let Some(tool) = &self.tool else {
            return Ok(());
        };
        if !self.seen.insert(own.into()) {
            return Ok(());
        }
        let file = self.folder.path().join("kernel.ptx");
        std::fs::write(&file, &code.text).map_err(|e| e.to_string())?;
        let out = Command::new(tool)
            .args(["--gpu-name", arch, "-o", "/dev/null"])
            .arg(&file)
            .output()
            .map_err(|e| e.to_string())?;
        match out.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&out.stderr).trim().to_string()),
        }
    }
}

/// Whether `text` is valid WGSL.
#[cfg(feature = "webgpu")]
fn wgsl(text: &str) -> Result<(), String> {
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    let module = naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string(text))?;
    let mut v = Validator::new(ValidationFlags::all(), Capabilities::all());
    let valid = v.validate(&module);
    valid.map(|_| ()).map_err(|e| e.emit_to_string(text))
}

#[cfg(not(feature = "webgpu"))]
fn wgsl(_: &str) -> Result<(), String> {
    Ok(())
}

fn targets(asked: &Asked) -> Result<Vec<On>, String> {
    let all = everywhere()?;
    let known = |n: &String| all.iter().any(|o| o.target.name == *n);
    if let Some(n) = asked.on.iter().find(|n| !known(n)) {
        let names: Vec<&str> = all.iter().map(|o| o.target.name.as_str()).collect();
        return Err(format!(
            "there is no target '{n}'; there are {}",
            names.join(", ")
        ));
    }
    let wanted = |o: &On| asked.on.is_empty() || asked.on.contains(&o.target.name);
    Ok(all.into_iter().filter(wanted).collect())
}

fn campaign(asked: &Asked) -> Result<usize, String> {
    let (all, cases) = (targets(asked)?, cases(asked)?);
    let tool = match asked.assemble {
        true => Some(tools::tool("ptxas")?),
        false => None,
    };
    let mut assembler = Assembler {
        tool,
        folder: tempfile::tempdir().map_err(|e| e.to_string())?,
        seen: HashSet::new(),
    };
    let bar = ProgressBar::new(cases.len() as u64);
    if let Ok(s) = ProgressStyle::with_template("{msg:40} [{bar:40}] {pos}/{len}") {
        bar.set_style(s.progress_chars("=> "));
    }
    let (mut failed, mut steps, mut others) = (0, 0, 0);
    for c in &cases {
        bar.set_message(c.name().to_string());
        let mut valid = |on: &On, code: &Code| assembler.valid(on, code);
        let done = catch_unwind(AssertUnwindSafe(|| c.check(&all, &mut valid)));
        match done.unwrap_or_else(|_| Err("it panicked".into())) {
            Ok(PrintOutcome::Steps(n)) => steps += n,
            Ok(PrintOutcome::Unknown(why)) => {
                others += 1;
                bar.suspend(|| println!("left out {}: {why}", c.name()));
            }
            Err(why) => {
                failed += 1;
                bar.suspend(|| {
                    println!(
                        "FAILED {}: {why}\n    again: cargo xtask targets {}",
                        c.name(),
                        c.name()
                    )
                });
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    println!(
        "{} models, {steps} steps with code for {} targets; {others} left out, {failed} failed",
        cases.len(),
        all.len()
    );
    Ok(failed)
}

pub fn run(args: &[String]) -> ExitCode {
    let Some(asked) = Asked::of(args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match campaign(&asked) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("targets: {e}");
            ExitCode::FAILURE
        }
    }
}
