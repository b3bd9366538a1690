//! The wheel for Python: `cargo xtask wheel [--dev] [--beside] [--packages] [--pytorch] [--cost]` builds it in an
//! environment of its own, runs its tests, and says how large it is and how long its import takes; with `--beside` it
//! also compares it with onnxruntime on models of the standard's tests, with `--packages` in packages that use
//! onnxruntime, with `--pytorch` in those that need PyTorch too, some 5 GB; and with `--cost` it measures what a
//! request costs beside Rust alone, and how threads scale.
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What the tests need beside the wheel, as pip names it.
const TOOLS: &[&str] = &["maturin>=1.16,<2", "numpy", "onnx==1.23.2", "pytest"];
/// The package that `--beside` compares with.
pub(crate) const OTHER: &[&str] = &["numpy", "onnx==1.23.2", "onnxruntime==1.32.0"];
/// onnxruntime and what packages of [`packages`] do not bring of what it needs.
const ALONE: &[&str] = &["onnxruntime==1.32.0", "flatbuffers==25.12.19"];
/// What may be asked for.
const FLAGS: &[&str] = &["--dev", "--beside", "--packages", "--pytorch", "--cost"];
/// Most bytes of the wheel.
const LARGEST: u64 = 8_000_000;
/// Most milliseconds that the import takes beyond numpy's.
const LONGEST_MS: f64 = 40.0;
/// Measures the import in one process: numpy's first, then ours.
const IMPORT: &str = "import time; import numpy; t = time.perf_counter(); import shopfloor; print(1e3 * (time.perf_counter() - t))";

/// Builds the wheel and runs its tests.
///
/// # Errors
/// Python is missing or too old, a package cannot be had, or something does not build.
pub fn wheel(root: &Path, args: &[String]) -> Result<ExitCode, String> {
    if let Some(a) = args.iter().find(|a| !FLAGS.contains(&a.as_str())) {
        return Err(format!(
            "'{a}' is not known; usage: cargo xtask wheel [{}]",
            FLAGS.join("] [")
        ));
    }
    let asked = |flag: &str| args.iter().any(|a| a == flag);
    let work = root.join("target/wheel");
    let ours = Environment::new(work.join("ours"), TOOLS)?;
    let package = root.join("crates/use/python");
    checked(&package)?;
    let wheel = built(&ours, &package, &work.join("dist"), asked("--dev"))?;
    ours.pip(&["--force-reinstall", "--no-deps", &text(&wheel)])?;
    let tests = text(&package.join("tests"));
    run(ours.program("python").args(["-m", "pytest", "-q", &tests]))?;
    measured(&ours, &wheel, asked("--dev"))?;
    if asked("--beside") {
        beside(root, &work, &ours)?;
    }
    if asked("--packages") {
        packages(&package, &work, &wheel, "packages")?;
    }
    if asked("--pytorch") {
        packages(&package, &work, &wheel, "packages/pytorch")?;
    }
    if asked("--cost") {
        cost(&package, &work, &ours, asked("--dev"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the form of the package's Rust code, which no command for the workspace looks at.
fn checked(package: &Path) -> Result<(), String> {
    let clippy = "clippy -q --locked --no-deps --all-targets -- -D warnings";
    let check = |line: &str| run(cargo(package).args(line.split(' ')));
    ["fmt --check", clippy].into_iter().try_for_each(check)
}

/// cargo, in the package's own workspace.
fn cargo(package: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // As maturin has it: the module is loaded by Python and links none.
    command
        .current_dir(package)
        .env("PYO3_BUILD_EXTENSION_MODULE", "1");
    command
}

/// The name of the profile that the wheel is built with.
fn profile(dev: bool) -> &'static str {
    if dev { "dev" } else { "dist-unwind" }
}

/// A virtual environment of Python.
pub(crate) struct Environment(PathBuf);

impl Environment {
    /// The environment in `folder` with `packages`, made where it is not there.
    pub(crate) fn new(folder: PathBuf, packages: &[&str]) -> Result<Environment, String> {
        let environment = Environment(folder);
        if !environment.0.join("bin/python").is_file() {
            let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
            run(Command::new(&python)
                .args(["-m", "venv"])
                .arg(&environment.0))
            .map_err(|e| {
                format!("{e}; install Python 3.10 or later with venv, or name it in PYTHON")
            })?;
        }
        environment.pip(packages)?;
        Ok(environment)
    }

    pub(crate) fn program(&self, name: &str) -> Command {
        Command::new(self.0.join("bin").join(name))
    }

    fn pip(&self, packages: &[&str]) -> Result<(), String> {
        let quiet = ["install", "--quiet", "--disable-pip-version-check"];
        run(self.program("pip").args(quiet).args(packages))
    }
}

/// Builds the wheel alone into `out` and gives its path.
fn built(ours: &Environment, package: &Path, out: &Path, dev: bool) -> Result<PathBuf, String> {
    if out.exists() {
        std::fs::remove_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    }
    let manifest = text(&package.join("Cargo.toml"));
    run(ours
        .program("maturin")
        .args([
            "build",
            "--locked",
            "--profile",
            profile(dev),
            "--manifest-path",
            &manifest,
        ])
        .args(["--interpreter", &text(&ours.0.join("bin/python"))])
        .args(["--compression-level", "9"])
        .arg("--out")
        .arg(out))?;
    let entries = std::fs::read_dir(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let mut wheels = entries.flatten().map(|e| e.path());
    wheels
        .find(|p| p.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| format!("{} holds no wheel", out.display()))
}

/// Prints size and time of the import, and fails where a wheel that is handed out is beyond its limits.
fn measured(ours: &Environment, wheel: &Path, dev: bool) -> Result<(), String> {
    let meta = std::fs::metadata(wheel).map_err(|e| format!("{}: {e}", wheel.display()))?;
    let mut times = Vec::new();
    for _ in 0..5 {
        let out = ours.program("python").args(["-c", IMPORT]).output();
        let out = out.map_err(|e| format!("python cannot be started ({e})"))?;
        let said = String::from_utf8_lossy(&out.stdout).trim().parse::<f64>();
        times.push(said.map_err(|_| "the wheel cannot be imported; see its tests")?);
    }
    // Whatever else the machine does only adds to it.
    let (bytes, ms) = (meta.len(), times.into_iter().fold(f64::INFINITY, f64::min));
    println!(
        "{}: {:.2} MB; its import takes {ms:.1} ms beyond numpy's",
        wheel.display(),
        bytes as f64 / 1e6
    );
    if !dev && (bytes > LARGEST || ms > LONGEST_MS) {
        return Err(format!(
            "the wheel may take {:.1} MB and its import {LONGEST_MS} ms; see what was added",
            LARGEST as f64 / 1e6
        ));
    }
    Ok(())
}

/// The environment with onnxruntime.
fn theirs(work: &Path) -> Result<Environment, String> {
    Environment::new(work.join("theirs"), OTHER)
}

/// Measures what a request costs, and how threads scale.
fn cost(package: &Path, work: &Path, ours: &Environment, dev: bool) -> Result<(), String> {
    let build = ["build", "--locked", "--example", "cost", "--profile"];
    run(cargo(package).args(build).arg(profile(dev)))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(package.join("target"), PathBuf::from);
    let folder = target.join(if dev { "debug" } else { profile(dev) });
    run(ours
        .program("python")
        .arg(package.join("tests/cost.py"))
        .arg(theirs(work)?.0.join("bin/python"))
        .arg(folder.join("examples/cost")))
}

/// Compares with onnxruntime on the standard's tests.
fn beside(root: &Path, work: &Path, ours: &Environment) -> Result<(), String> {
    let theirs = theirs(work)?;
    let tests = standards_tests(root)?;
    let compare = root.join("crates/use/python/tests/beside/compare.py");
    run(ours
        .program("python")
        .arg(compare)
        .arg(theirs.0.join("bin/python"))
        .arg(ours.0.join("bin/python"))
        .arg(tests))
}

/// The folder of the standard's tests, which are made where they are not there.
pub(crate) fn standards_tests(root: &Path) -> Result<String, String> {
    let fetch = root.join("scripts/fetch-node-tests.sh");
    let out = Command::new("sh").arg(&fetch).output();
    let out = out.map_err(|e| format!("{}: {e}", fetch.display()))?;
    let tests = String::from_utf8_lossy(&out.stdout).trim().to_string();
    if tests.is_empty() {
        return Err(
            "the standard's tests could not be made; see scripts/fetch-node-tests.sh".into(),
        );
    }
    Ok(tests)
}

/// Runs packages that use onnxruntime, as they are, on it and on shopfloor: in one environment, with one engine or
/// the other in a folder beside it. The programs and the list of the packages lie in `folder` of the tests.
fn packages(package: &Path, work: &Path, wheel: &Path, folder: &str) -> Result<(), String> {
    let tests = package.join("tests");
    let programs = tests.join(folder);
    let list = text(&programs.join("requirements.txt"));
    let all = Environment::new(
        work.join(folder.replace('/', "-")),
        &["--no-deps", "--requirement", &list],
    )?;
    let engine = |name: &str, of: &[&str]| -> Result<PathBuf, String> {
        let folder = work.join(name);
        let target = text(&folder);
        all.pip(&[&["--no-deps", "--upgrade", "--target", &target], of].concat())?;
        Ok(folder)
    };
    let theirs = engine("onnxruntime", ALONE)?;
    let ours = engine("shopfloor", &[&text(wheel)])?;
    let python = all.0.join("bin/python");
    run(Command::new(&python)
        .arg(tests.join("packages/compare.py"))
        .args([&python, &theirs, &ours, &programs]))
}

pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(s) if s.success() => Ok(()),
        Ok(s) => Err(format!("{program} ended with {s}")),
        Err(e) => Err(format!("{program} cannot be started ({e})")),
    }
}
