//! `cargo xtask fit [--leave-out GPU] [--keep]`: fits the constants of `constants.toml` to the
//! measurements in `../shared/measurements` (or `--measurements FOLDER`), leaves out one GPU after the
//! other, and writes `docs/accuracy.md`. With `--leave-out` it prints that GPU's errors alone and writes
//! nothing but each row's prediction to `--rows FILE`; with `--keep` the constants stay and only the page
//! is written anew.
#![forbid(unsafe_code)]

use layout::Inserted;
use shopfloor_predict::fit::{all_pairs, family, fit, of_gpu, thinned};
use shopfloor_predict::{Constants, Errors, Measurements, PredictError, page};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Files that are fitted on.
const FILES: [&str; 4] = [
    "gpu_kernels_neusight.csv.gz",
    "gpu_kernels_deepbench.csv.gz",
    "model_latency.csv.gz",
    "llm_decode.csv",
];
/// Rows of a group that the fit goes through.
const MOST: usize = 16;

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("fit: {e}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn value(args: &[String], name: &str) -> Option<String> {
    let at = args.iter().position(|a| a == name)?;
    args.get(at + 1).cloned()
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let folder =
        value(&args, "--measurements").map_or(root.join("../shared/measurements"), PathBuf::from);
    let constants = root.join("crates/plan/predict/constants.toml");
    let start = Constants::parse(&std::fs::read_to_string(&constants)?)?;
    let files: Vec<Measurements> = FILES
        .iter()
        .map(|f| Measurements::open(&folder.join(f)))
        .collect::<Result<_, PredictError>>()?;
    let few: Vec<Measurements> = files.iter().map(|f| thinned(f, MOST)).collect();
    if let Some(gpu) = value(&args, "--leave-out") {
        let c = match args.iter().any(|a| a == "--keep") {
            true => start,
            false => fit(&of_gpu(&few, &gpu, false), &start)?,
        };
        let own = of_gpu(&files, &gpu, true);
        for (family, r) in by_family(&own, &c)? {
            println!("{}", page::line(&gpu, &family, &r.errors()));
        }
        if let Some(path) = value(&args, "--rows") {
            std::fs::write(path, rows(&own, &c)?)?;
        }
        return Ok(());
    }
    let fitted = match args.iter().any(|a| a == "--keep") {
        true => start.clone(),
        false => fit(&few, &start)?,
    };
    std::fs::write(&constants, fitted.text())?;
    // GPUs that kernels or whole models were measured on, each left out in turn.
    let mut gpus: Vec<&str> = files[..3]
        .iter()
        .flat_map(|f| &f.rows)
        .filter(|r| r.source.starts_with("neusight"))
        .map(|r| r.gpu.as_str())
        .collect();
    gpus.sort_unstable();
    gpus.dedup();
    let mut left: BTreeMap<String, BTreeMap<String, Errors>> = BTreeMap::new();
    let mut together: BTreeMap<String, Rows> = BTreeMap::new();
    for gpu in gpus {
        let c = fit(&of_gpu(&few, gpu, false), &start)?;
        eprintln!("left out {gpu}");
        let own = by_family(&of_gpu(&files, gpu, true), &c)?;
        for (family, r) in &own {
            let all = together.entry(family.clone()).or_default();
            all.rows += r.rows;
            all.covered.extend(&r.covered);
        }
        left.insert(gpu.into(), errors(own));
    }
    left.insert(page::TOGETHER.into(), errors(together));
    let all = all_pairs(&files, &fitted)?;
    page::write(&root.join("docs"), &all, &left, &fitted)?;
    Ok(())
}

/// Rows with what was predicted for them, comma-separated; a row without a prediction is left out.
fn rows(files: &[Measurements], c: &Constants) -> Result<String, PredictError> {
    let mut out = String::from("file,line,predicted_us,measured_us\n");
    for f in files {
        for p in all_pairs(std::slice::from_ref(f), c)? {
            if let (Some(_), Ok(s)) = (family(p.row), &p.predicted) {
                let name = Path::new(&f.file).file_name().unwrap_or_default();
                let (line, own) = (p.row.line, p.row.seconds * 1e6);
                let _ = writeln!(out, "{},{line},{},{own}", name.display(), s * 1e6);
            }
        }
    }
    Ok(out)
}

/// Rows of a family.
#[derive(Default)]
struct Rows {
    rows: usize,
    /// Predicted and measured seconds of those that have a prediction.
    covered: Vec<(f64, f64)>,
}

impl Rows {
    fn errors(&self) -> Errors {
        Errors::of(self.rows, &self.covered)
    }
}

fn errors(of: BTreeMap<String, Rows>) -> BTreeMap<String, Errors> {
    of.into_iter().map(|(f, r)| (f, r.errors())).inserted()
}

/// What was predicted for the rows of `files`, by family.
fn by_family(
    files: &[Measurements],
    c: &Constants,
) -> Result<BTreeMap<String, Rows>, PredictError> {
    let mut groups: BTreeMap<String, Rows> = BTreeMap::new();
    for p in all_pairs(files, c)? {
        if let Some(f) = family(p.row) {
            let r = groups.entry(f.into()).or_default();
            r.rows += 1;
            if let Ok(s) = p.predicted {
                r.covered.push((s, p.row.seconds));
            }
        }
    }
    Ok(groups)
}
