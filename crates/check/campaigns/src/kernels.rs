//! `cargo xtask kernels`: the micro-kernels in loops of their own on one core, to `bench/KERNELS.md`.
use crate::pages::{commit, date, figures, root};
use std::process::{Command, ExitCode, Stdio};

const USAGE: &str = "usage: cargo xtask kernels [--isa avx512|avx2|portable]";
/// The benchmark, whose crate has no other use for a program.
const BENCH: [&str; 7] = [
    "run",
    "-q",
    "--release",
    "-p",
    "shopfloor-microkernels",
    "--example",
    "microkernel_bench",
];

pub fn run(args: &[String]) -> ExitCode {
    let isa = match args {
        [] => None,
        [option, isa] if option == "--isa" => Some(isa.as_str()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match measured(isa).and_then(|said| written(&said)) {
        Ok(path) => {
            println!("written to {path}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("kernels: {e}");
            ExitCode::FAILURE
        }
    }
}

/// What the benchmark prints.
fn measured(isa: Option<&str>) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(BENCH).arg("--").args(isa);
    command.current_dir(root()).stderr(Stdio::inherit());
    let out = command
        .output()
        .map_err(|e| format!("cargo could not be started ({e}); run this through cargo"))?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    print!("{said}");
    match out.status.success() {
        true => Ok(said),
        false => Err(format!("the benchmark ended with {}", out.status)),
    }
}

/// The best line under each heading that begins with `what`: its rate and share of the peak.
fn best<'a>(said: &'a str, what: &str) -> Vec<(&'a str, String)> {
    let lines: Vec<&str> = said.lines().collect();
    let under = lines.windows(2).filter(|w| w[0].starts_with(what));
    let found = under.map(|w| (w[0].trim_end_matches(':'), w[1]));
    found
        .filter_map(|(head, line)| {
            let rate = line.split("us").nth(1)?.split(", weights").next()?;
            let words: Vec<&str> = rate.split_whitespace().collect();
            Some((head, words.join(" ").replace("GFLOPS ", "GFLOPS, ")))
        })
        .collect()
}

/// Writes the page.
fn written(said: &str) -> Result<String, String> {
    let mut rows = Vec::new();
    for what in ["gemm", "tile", "conv"] {
        rows.extend(
            best(said, what)
                .into_iter()
                .map(|(head, rate)| (format!("{head}, one core"), rate)),
        );
    }
    if rows.is_empty() {
        return Err("the benchmark printed no product; this page reads its headings".into());
    }
    let head = said.lines().next().unwrap_or_default();
    let table = figures("kernels", &cpu::detect::detect().name, &rows);
    let text = format!(
        "# Micro-kernels on one core\n\n{}, commit {}. Made by `cargo xtask kernels`: best of many runs of loops without a tile \
         program's walk; peaks are those of the same run ({head}).\n\n{table}\n```text\n{said}```\n",
        date(),
        commit()
    );
    let path = "bench/KERNELS.md";
    std::fs::write(root().join(path), text).map_err(|e| format!("{path}: {e}"))?;
    Ok(path.into())
}
