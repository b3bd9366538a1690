//! The folder that goes to a machine with a GPU.
use crate::parts;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use testkit::zoo;

/// Bytes that it may have.
const MOST: u64 = 64 << 20;
/// What is taken of a model's folder; weights that are generated are made where it runs.
const FILES: &[&str] = &[
    "model.json",
    "model.onnx",
    "weights.json",
    "inputs.json",
    "inputs.npz",
    "outputs.npz",
    "LICENSE",
    "NOTICE",
];

const README: &str = "\
gpu-check: what shopfloor does on the NVIDIA GPU of this machine

    ./gpu-check                       all of it, in under eight minutes
    ./gpu-check --on emulated:a100    the same, smaller, without a GPU
    ./gpu-check --help

It needs the NVIDIA driver and Linux with glibc @GLIBC@ or later (ldd --version says which), and
nothing else: no network, no CUDA toolkit, no Rust. It writes into /tmp and here. With PyTorch
that sees the GPU it times the same operations there; with a Vulkan driver it also runs WGSL.
Results go to gpu-check-out: copy bench/ from there into the repository, and machines/ into crates/plan/machine.
";

fn copy(from: &Path, to: &Path) -> Result<u64, String> {
    std::fs::copy(from, to).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

fn make(dir: &Path, commit: &str) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("{}: {e}", dir.display());
    let models = dir.join("models");
    if models.exists() {
        std::fs::remove_dir_all(&models).map_err(fail)?;
    }
    std::fs::create_dir_all(&models).map_err(fail)?;
    let program = dir.join("gpu-check");
    let own = std::env::current_exe().map_err(fail)?;
    copy(&own, &program)?;
    // Names of functions are most of a program; without the tool it stays as it is.
    let _ = Command::new("strip").arg(&program).output();
    let mut sizes = vec![("gpu-check".to_string(), size(&program))];
    let mut missing = vec![];
    for name in parts::MODELS {
        let Some(m) = zoo::find(name) else {
            missing.push(*name);
            continue;
        };
        let to: PathBuf = models.join(name);
        std::fs::create_dir_all(&to).map_err(fail)?;
        let mut sum = 0;
        for f in FILES
            .iter()
            .map(|f| m.folder().join(f))
            .filter(|f| f.is_file())
        {
            sum += copy(&f, &to.join(f.file_name().unwrap_or_default()))?;
        }
        sizes.push((name.to_string(), sum));
    }
    let readme = README.replace("@GLIBC@", &glibc(&program));
    std::fs::write(dir.join("README.txt"), readme).map_err(fail)?;
    std::fs::write(dir.join("built.txt"), format!("{commit}\n")).map_err(fail)?;
    let all: u64 = sizes.iter().map(|s| s.1).sum();
    for (name, bytes) in &sizes {
        println!("{:>9}  {name}", report::units::bytes(*bytes as f64));
    }
    if !missing.is_empty() {
        println!("{}", zoo::left_out(&missing));
    }
    println!("{:>9}  {}", report::units::bytes(all as f64), dir.display());
    match all <= MOST {
        true => Ok(()),
        false => Err(format!(
            "{} holds {all} bytes; {MOST} are allowed, so take models from the list in crates/check/gpu-check/src/parts/models.rs",
            dir.display()
        )),
    }
}

/// The latest version of the C library that `program` asks for a symbol of.
fn glibc(program: &Path) -> String {
    let bytes = std::fs::read(program).unwrap_or_default();
    let name = b"GLIBC_2.";
    let at = bytes.windows(name.len()).enumerate();
    let at = at.filter(|(_, w)| w == name).map(|(i, _)| i + name.len());
    let minor = at.filter_map(|i| {
        let digits = bytes[i..].iter().take_while(|b| b.is_ascii_digit());
        let digits: String = digits.map(|b| char::from(*b)).collect();
        digits.parse::<u32>().ok()
    });
    minor.max().map_or("2.34".into(), |m| format!("2.{m}"))
}

fn size(f: &Path) -> u64 {
    std::fs::metadata(f).map_or(0, |m| m.len())
}

/// `pack DIR [--commit TEXT]`.
pub fn run(args: &[String]) -> ExitCode {
    let made = match args {
        [dir] => make(Path::new(dir), "unknown"),
        [dir, flag, commit] if flag == "--commit" => make(Path::new(dir), commit),
        _ => {
            eprintln!("usage: gpu-check pack DIR [--commit TEXT]");
            return ExitCode::from(2);
        }
    };
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("gpu-check: {e}");
            ExitCode::FAILURE
        }
    }
}
