//! The plugin for onnxruntime: `cargo xtask plugin [--dev] [--beside] [MODELS...]` builds it and runs it inside a stock
//! onnxruntime, in an environment of Python of its own: its interface, the standard's tests of operators, the models of
//! this repository, and those in the folders MODELS, which are as `models/`; with `--beside` each request is also timed
//! beside onnxruntime's own provider. A folder of the zoo's stands as `FOLDER=WEIGHTS`, where WEIGHTS has its model.onnx.
use crate::wheel::{Environment, OTHER, run, text};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What the plugin is built with.
const FEATURES: &str = "fft,patterns";

/// Builds the plugin and runs the checks.
///
/// # Errors
/// Python is missing or too old, a package cannot be had, something does not build, or a check fails.
pub fn plugin(root: &Path, args: &[String]) -> Result<ExitCode, String> {
    let (flags, models): (Vec<&String>, Vec<&String>) =
        args.iter().partition(|a| a.starts_with("--"));
    if let Some(a) = flags
        .iter()
        .find(|a| !["--dev", "--beside"].contains(&a.as_str()))
    {
        return Err(format!(
            "'{a}' is not known; usage: cargo xtask plugin [--dev] [--beside] [MODELS...]"
        ));
    }
    let asked = |flag: &str| flags.iter().any(|a| *a == flag);
    let python = Environment::new(root.join("target/plugin/python"), OTHER)?;
    let library = text(&built(root, asked("--dev"))?);
    let scripts = root.join("crates/use/onnxruntime-plugin/tests/python");
    let script = |name: &str| {
        let mut command = python.program("python");
        command
            .args(["-W", "ignore"])
            .arg(scripts.join(name))
            .arg(&library);
        command
    };
    tables(root, &python)?;
    run(&mut script("interface.py"))?;
    run(script("nodes.py").arg(crate::wheel::standards_tests(root)?))?;
    let own: Vec<String> = folders(&root.join("models"))?;
    let times: &[&str] = if asked("--beside") {
        &["--times", "20"]
    } else {
        &[]
    };
    run(script("models.py").args(times).args(own).args(models))?;
    Ok(ExitCode::SUCCESS)
}

/// Builds the library and gives its path.
fn built(root: &Path, dev: bool) -> Result<PathBuf, String> {
    let profile = if dev { "dev" } else { "dist-unwind" };
    let build = [
        "build",
        "--locked",
        "-p",
        "shopfloor-onnxruntime-plugin",
        "--lib",
    ];
    run(cargo(root)
        .args(build)
        .args(["--features", FEATURES, "--profile", profile]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let folder = target.join(if dev { "debug" } else { profile });
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    Ok(folder.join(format!("{prefix}onnxruntime_ep_shopfloor{suffix}")))
}

/// Runs the tests in Rust beside onnxruntime's library, whose tables they look at.
fn tables(root: &Path, python: &Environment) -> Result<(), String> {
    let find = "import glob, os, onnxruntime as o; \
        print(glob.glob(os.path.join(os.path.dirname(o.__file__), 'capi', 'libonnxruntime.*'))[0])";
    let out = python.program("python").args(["-c", find]).output();
    let out = out.map_err(|e| format!("python cannot be started ({e})"))?;
    let library = String::from_utf8_lossy(&out.stdout).trim().to_string();
    run(cargo(root)
        .args(["test", "-q", "-p", "shopfloor-onnxruntime-plugin", "tables"])
        .env("SHOPFLOOR_ONNXRUNTIME", library))
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// The folders in `all` that hold a model with stored answers.
fn folders(all: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(all).map_err(|e| format!("{}: {e}", all.display()))?;
    let found = entries.flatten().map(|e| e.path());
    let mut found: Vec<String> = found
        .filter(|p| p.join("model.json").is_file() && p.join("outputs.npz").is_file())
        .map(|p| text(&p))
        .collect();
    found.sort();
    Ok(found)
}
