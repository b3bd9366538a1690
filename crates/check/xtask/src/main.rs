//! Chores of the repository: `cargo xtask tidy [CHECK...]` and `cargo xtask pages` here,
//! `cargo xtask gpu-check [DIR]` packs what runs where a GPU is (`crates/check/gpu-check`),
//! `cargo xtask slow-tests` says which tests take long, `cargo xtask wheel` builds the wheel for Python
//! (`crates/use/python`) and runs its tests, `cargo xtask plugin` does so for the plugin for onnxruntime
//! (`crates/use/onnxruntime-plugin`), `cargo xtask sizes` says how large programs are, `cargo xtask fit
//! [--leave-out GPU]` fits the constants of `crates/plan/predict` and writes docs/accuracy.md; every other command is one
//! of `campaigns` (`crates/check/campaigns`), built in release mode when it is asked for.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("tidy") => tidy(&args[1..]),
        Some("pages") => pages(),
        Some("fit") => fit(&args[1..]),
        Some("gpu-check") => gpu_check(&args[1..]),
        Some("wheel") => said(xtask::wheel::wheel(&xtask::root(), &args[1..])),
        Some("plugin") => said(xtask::plugin::plugin(&xtask::root(), &args[1..])),
        Some("sizes") => said(xtask::sizes::sizes(&xtask::root(), &args[1..])),
        Some("slow-tests") => said(xtask::slow::slow_tests(&xtask::root(), &args[1..])),
        Some(xtask::slow::RUNNER) => said(xtask::slow::run_program(&args[1..])),
        Some(_) => campaign(&args),
        None => {
            eprintln!("usage: cargo xtask tidy [CHECK...]\n\nchecks:");
            xtask::CHECKS
                .iter()
                .for_each(|c| eprintln!("  {:16} {}", c.name, c.holds));
            eprintln!(
                "\n       cargo xtask pages: figures in documents from bench/, docs/status.md from docs/status.toml,\n       docs/commands.md from the command line's help"
            );
            eprintln!(
                "\n       cargo xtask gpu-check [DIR]: a folder to run on a machine with an NVIDIA GPU\n"
            );
            eprintln!(
                "       cargo xtask slow-tests [ARGS OF cargo test]: which tests take long\n"
            );
            eprintln!(
                "       cargo xtask wheel [--dev] [--beside] [--packages]: the wheel for Python, built and tested, beside onnxruntime\n"
            );
            eprintln!(
                "       cargo xtask plugin [--dev] [--beside] [MODELS...]: the plugin for onnxruntime, built and run inside it\n"
            );
            eprintln!(
                "       cargo xtask sizes [NAME...]: how large programs are as they are handed out\n"
            );
            campaign(&[])
        }
    }
}

/// An exit code, or the error printed.
fn said(result: Result<ExitCode, String>) -> ExitCode {
    result.unwrap_or_else(|e| {
        eprintln!("xtask: {e}");
        ExitCode::FAILURE
    })
}

/// Makes the folder that is run where a GPU is.
fn gpu_check(args: &[String]) -> ExitCode {
    let root = xtask::root();
    let dir = match args {
        [] => root.join("target/gpu-check"),
        [dir] if !dir.starts_with('-') => std::path::PathBuf::from(dir),
        _ => {
            eprintln!("usage: cargo xtask gpu-check [DIR]");
            return ExitCode::from(2);
        }
    };
    let git = |args: &[&str]| {
        let out = std::process::Command::new("git")
            .args(args)
            .current_dir(&root)
            .output();
        out.map_or(String::new(), |o| {
            String::from_utf8_lossy(&o.stdout).trim().to_string()
        })
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let state = if changed.is_empty() {
        ""
    } else {
        " with changes"
    };
    let commit = git(&["rev-parse", "--short", "HEAD"]) + state;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = std::process::Command::new(cargo)
        .args([
            "run",
            "-q",
            "--release",
            "-p",
            "shopfloor-gpu-check",
            "--features",
            "webgpu",
        ])
        .args(["--", "pack"])
        .arg(dir)
        .args(["--commit", &commit])
        .current_dir(&root)
        .status();
    ended(status)
}

/// Fits the constants of predictions.
fn fit(args: &[String]) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = std::process::Command::new(cargo)
        .args(["run", "-q", "--release", "-p", "shopfloor-predict"])
        .args(["--bin", "fit", "--"])
        .args(args)
        .current_dir(xtask::root())
        .status();
    ended(status)
}

/// A program's exit code as this one's.
fn ended(status: std::io::Result<std::process::ExitStatus>) -> ExitCode {
    match status {
        Ok(s) => ExitCode::from(s.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1)),
        Err(e) => {
            eprintln!("xtask: cargo could not be started ({e}); run this through cargo");
            ExitCode::FAILURE
        }
    }
}

/// Hands a command to the campaigns' program.
fn campaign(args: &[String]) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // What runs on a GPU brings wgpu, which nothing else waits for; what is printed for one is looked at
    // by its reader of WGSL.
    let gpu = args.first().is_some_and(|a| a == "targets")
        || args
            .windows(2)
            .any(|a| a[0] == "--on" && a[1].starts_with("wgpu"));
    let status = std::process::Command::new(cargo)
        .args(["run", "-q", "--release", "-p", "shopfloor-campaigns"])
        .args(if gpu {
            &["--features", "webgpu"][..]
        } else {
            &[]
        })
        .args(["--bin", "campaign", "--"])
        .args(args)
        .current_dir(xtask::root())
        .status();
    ended(status)
}

/// The part of docs/commands.md that the command line makes of its help.
fn commands() -> Result<String, Vec<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = std::process::Command::new(cargo)
        .args(["run", "-q", "-p", "shopfloor-cli", "--", "commands-page"])
        .current_dir(xtask::root())
        .stderr(std::process::Stdio::inherit())
        .output();
    match out {
        Ok(o) if o.status.success() => Ok(String::from_utf8_lossy(&o.stdout).into_owned()),
        _ => Err(vec![
            "shopfloor-cli did not make its page; see why it does not build".into(),
        ]),
    }
}

/// Rewrites what documents take from elsewhere.
fn pages() -> ExitCode {
    let root = xtask::root();
    match commands().and_then(|made| xtask::write_pages(&root, &made)) {
        Ok(changed) => {
            changed.iter().for_each(|path| println!("{path}"));
            ExitCode::SUCCESS
        }
        Err(findings) => {
            findings.iter().for_each(|f| eprintln!("pages: {f}"));
            ExitCode::FAILURE
        }
    }
}

fn tidy(names: &[String]) -> ExitCode {
    if let Some(unknown) = names
        .iter()
        .find(|n| xtask::CHECKS.iter().all(|c| c.name != **n))
    {
        eprintln!("xtask: there is no check named {unknown}; cargo xtask lists them");
        return ExitCode::from(2);
    }
    let root = xtask::root();
    let mut found = 0;
    for check in xtask::CHECKS
        .iter()
        .filter(|c| names.is_empty() || names.iter().any(|n| n == c.name))
    {
        for finding in (check.run)(&root) {
            eprintln!("{}: {finding}", check.name);
            found += 1;
        }
    }
    if found == 0 {
        println!("tidy");
        return ExitCode::SUCCESS;
    }
    eprintln!("{found} findings");
    ExitCode::FAILURE
}
