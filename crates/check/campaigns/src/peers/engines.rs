//! The engines: where they come from and how one is run.
use serde::Deserialize;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A process that takes longer is ended.
const SLOWEST: Duration = Duration::from_secs(120);
/// Bytes of an error message that are kept.
const MESSAGE: usize = 240;

/// What an engine's runner printed.
#[derive(Clone, Debug, Deserialize)]
pub struct Measured {
    /// From opening the file to the first answer.
    pub load_ms: f64,
    /// Most memory that the process had resident.
    pub peak_bytes: u64,
    /// Half of the requests were faster.
    pub median_ms: f64,
    /// The fastest request.
    pub best_ms: f64,
    /// Requests measured.
    pub runs: u64,
}

/// What came of an engine on a model: figures, or why there are none.
pub type Outcome = Result<Measured, String>;

/// An engine and how its runner is started.
pub struct Engine {
    /// Its name, with the version for others.
    pub name: String,
    command: Vec<PathBuf>,
    /// Why it cannot run anything here.
    pub problem: Option<String>,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Some(p) => write!(f, "{}: not to be had: {p}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Runs a command to its end; its standard error's last line when it fails.
fn done(c: &mut Command) -> Result<(), String> {
    let name = c.get_program().to_string_lossy().into_owned();
    let out = c.stdin(Stdio::null()).output();
    let out = out.map_err(|e| format!("{name} could not be started ({e})"))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(last_line(&out.stderr).unwrap_or(format!("{name} failed"))),
    }
}

fn last_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().rfind(|l| !l.trim().is_empty())?.trim();
    Some(line.chars().take(MESSAGE).collect())
}

/// Folder in the user's cache folder where the others live.
fn folder() -> Result<PathBuf, String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache"));
    let dir = cache
        .or(home)
        .ok_or("there is no cache folder; set HOME or XDG_CACHE_HOME")?
        .join("shopfloor-peers");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}

/// The Python environment, made where it is not there or not of these requirements.
fn python(requirements: &Path) -> Result<PathBuf, String> {
    let dir = folder()?.join("python");
    let (python, mark) = (dir.join("bin/python"), dir.join("requirements.txt"));
    let wanted = std::fs::read_to_string(requirements).map_err(|e| e.to_string())?;
    if std::fs::read_to_string(&mark).is_ok_and(|t| t == wanted) {
        return Ok(python);
    }
    done(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&dir),
    )?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--requirement"]);
    done(pip.arg(requirements))?;
    std::fs::write(&mark, wanted).map_err(|e| e.to_string())?;
    Ok(python)
}

/// Builds `bench/peers`; the folder of its programs.
fn programs(source: &Path) -> Result<PathBuf, String> {
    let dir = folder()?.join("target");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut c = Command::new(cargo);
    c.args(["build", "--release", "--locked", "--quiet"]);
    done(c.current_dir(source).env("CARGO_TARGET_DIR", &dir))?;
    Ok(dir.join("release"))
}

/// The version that a manifest or requirements file pins `name` to.
fn pinned(file: &Path, name: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(name)).unwrap_or("");
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let version: String = line[name.len().min(line.len())..]
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(|c| digits(*c))
        .collect();
    format!("{name} {version}")
}

/// This engine and the others, those of `without` left out.
pub fn all(without: &[String]) -> Vec<Engine> {
    let source = crate::pages::root().join("bench/peers");
    let (manifest, list) = (source.join("Cargo.toml"), source.join("requirements.txt"));
    let me = std::env::current_exe().map_err(|e| e.to_string());
    let mut engines = vec![Engine {
        name: "shopfloor".into(),
        problem: me.as_ref().err().cloned(),
        command: vec![
            me.unwrap_or_default(),
            "bench-peers".into(),
            super::own::RUNNER.into(),
        ],
    }];
    let left = |n: &str| without.iter().any(|w| w == n);
    let wanted = |names: [&'static str; 2]| names.into_iter().filter(|n| !left(n));
    let env = wanted(["onnxruntime", "openvino"])
        .next()
        .map(|_| python(&list));
    for name in wanted(["onnxruntime", "openvino"]) {
        let env = env.clone().unwrap_or(Err(String::new()));
        engines.push(Engine {
            name: pinned(&list, name),
            problem: env.as_ref().err().cloned(),
            command: vec![
                env.unwrap_or_default(),
                source.join("runner.py"),
                name.into(),
            ],
        });
    }
    let built = wanted(["rten", "tract"]).next().map(|_| programs(&source));
    for name in wanted(["rten", "tract"]) {
        let built = built.clone().unwrap_or(Err(String::new()));
        let program = built.clone().unwrap_or_default();
        engines.push(Engine {
            name: match name {
                "tract" => pinned(&manifest, "tract-onnx"),
                n => pinned(&manifest, n),
            },
            problem: built.err(),
            command: vec![program.join(format!("peer-{name}"))],
        });
    }
    engines
}

impl Engine {
    /// Measures one model in a process of its own.
    pub fn run(&self, model: &Path, inputs: &Path, threads: usize, seconds: f64) -> Outcome {
        if let Some(p) = &self.problem {
            return Err(p.clone());
        }
        let mut c = Command::new(&self.command[0]);
        c.args(&self.command[1..])
            .arg(model)
            .arg(inputs)
            .args([threads.to_string(), seconds.to_string()]);
        let mut child = c
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{} could not be started ({e})", self.command[0].display()))?;
        // Read beside it: a process that fills a pipe waits for ever.
        let read = |mut from: Box<dyn Read + Send>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = from.read_to_end(&mut bytes);
                bytes
            })
        };
        let out = child.stdout.take().map(|s| read(Box::new(s)));
        let err = child.stderr.take().map(|s| read(Box::new(s)));
        let began = Instant::now();
        let status = loop {
            match child.try_wait().map_err(|e| e.to_string())? {
                Some(s) => break s,
                None if began.elapsed() > SLOWEST => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("took more than {} s", SLOWEST.as_secs()));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let bytes = |t: Option<std::thread::JoinHandle<Vec<u8>>>| {
            t.and_then(|t| t.join().ok()).unwrap_or_default()
        };
        let (out, err) = (bytes(out), bytes(err));
        if !status.success() {
            return Err(complaint(&err).unwrap_or_else(|| status.to_string()));
        }
        let line = String::from_utf8_lossy(&out);
        let line = line.lines().last().unwrap_or_default();
        serde_json::from_str(line).map_err(|e| format!("its figures do not read: {e}"))
    }
}

/// The line of standard error that says what is wrong: of a panic its message, else the last one.
fn complaint(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().skip_while(|l| !l.contains("panicked at"));
    match (lines.next(), lines.next()) {
        (Some(_), Some(message)) => {
            Some(format!("panic: {message}").chars().take(MESSAGE).collect())
        }
        _ => last_line(bytes),
    }
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(0.0)
}

/// The rounds of an engine as one: medians of times, the highest peak; the first failure if any.
pub fn together(rounds: Vec<Outcome>) -> Outcome {
    let all: Vec<Measured> = rounds.into_iter().collect::<Result<_, _>>()?;
    let of = |f: fn(&Measured) -> f64| median(all.iter().map(f).collect());
    Ok(Measured {
        load_ms: of(|m| m.load_ms),
        peak_bytes: all.iter().map(|m| m.peak_bytes).max().unwrap_or(0),
        median_ms: of(|m| m.median_ms),
        best_ms: all.iter().map(|m| m.best_ms).fold(f64::MAX, f64::min),
        runs: all.iter().map(|m| m.runs).sum(),
    })
}
