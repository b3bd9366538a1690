//! `shopfloor demo`: the bundled digits model, planned, run and explained.
use crate::args::{EngineArgs, tell_machine};
use crate::first;
use crate::output::{self, Done, Failure};
use crate::progress::Progress;
use shopfloor::{Model, ModelOptions, Tensor, Tolerance, inputs};
use shopfloor_tools::data;
use shopfloor_tools::report::units;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Pictures that are shown at most.
const SHOWN: usize = 3;
/// Blanks before pictures, and between two.
const LEFT: usize = 4;
const BETWEEN: usize = 8;
/// Requests that are measured, and before those.
const ROUNDS: usize = 200;

#[derive(clap::Args)]
pub struct Args {
    /// Folder of bundled models [default: models/ of the source tree this was built from, else ./models]
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineArgs,
}

fn folder(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let built = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../models"));
    let built = built.canonicalize().unwrap_or(built);
    let tried = match given {
        Some(g) => vec![g],
        None => vec![built, PathBuf::from("models")],
    };
    let found = tried
        .iter()
        .map(|d| d.join("digits_cnn"))
        .find(|d| d.join("model.onnx").is_file());
    found.ok_or_else(|| {
        Failure::of(format!(
            "{} has no digits_cnn/model.onnx; name the repository's models folder with --models",
            tried[0].display()
        ))
    })
}

/// An image as rows of characters, dark to bright.
fn picture(t: &Tensor, image: usize) -> Vec<String> {
    let (h, w) = match t.shape() {
        [_, _, h, w] => (*h, *w),
        _ => return vec![],
    };
    let brightest = (0..t.len())
        .map(|i| t.get_f64(i))
        .fold(0.0, f64::max)
        .max(1e-9);
    let shades: Vec<char> = " .:-=+*#%@".chars().collect();
    (0..h)
        .map(|y| {
            (0..w)
                .flat_map(|x| {
                    let v = t.get_f64((image * h + y) * w + x) / brightest;
                    let c = shades[((v * (shades.len() - 1) as f64).round().max(0.0) as usize)
                        .min(shades.len() - 1)];
                    [c, c]
                })
                .collect()
        })
        .collect()
}

fn argmax(t: &Tensor, row: usize) -> (usize, f64) {
    let n = t.shape().last().copied().unwrap_or(0);
    let mut best = (0, f64::NEG_INFINITY);
    for c in 0..n {
        let v = t.get_f64(row * n + c);
        if v > best.1 {
            best = (c, v);
        }
    }
    best
}

/// What the network says of each picture: a label, and how sure it is.
fn answers<'a>(answer: &Tensor, labels: &[&'a str]) -> Vec<(&'a str, f64)> {
    let rows = answer.shape().first().copied().unwrap_or(0);
    let each = (0..rows).map(|i| argmax(answer, i));
    each.map(|(c, p)| (labels.get(c).copied().unwrap_or("?"), p))
        .collect()
}

/// The answers to the first pictures, in words.
fn read_as(answers: &[(&str, f64)]) -> String {
    let each: Vec<String> = answers
        .iter()
        .map(|(label, p)| format!("{label} ({} sure)", units::percent(*p)))
        .collect();
    match each.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => each.concat(),
    }
}

/// A word of a command line that a shell takes as one.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=,@%\\".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// What to try next: commands that can be copied, as this program was called.
fn next(dir: &Path) -> String {
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "shopfloor".into());
    let file = |name: &str| quoted(&dir.join(name).display().to_string());
    let (program, model, inputs) = (quoted(&program), file("model.onnx"), file("inputs.npz"));
    format!(
        "  {program} profile {model} --inputs {inputs} --report digits.html\n  \
         {program} plan {model} --why\n  \
         {program} what-if {model} --dim batch=16 --set cores=2x\n"
    )
}

pub fn run(a: Args) -> Done {
    let dir = folder(a.models.clone())?;
    let path = |name: &str| dir.join(name);
    let labels = shopfloor::read_text(path("labels.txt"), shopfloor_tools::files::WRITTEN)?;
    let labels: Vec<&str> = labels.lines().collect();
    let named = data::read_npz(path("inputs.npz"))?;
    first::measure(&a.engine)?;
    let waiting = Progress::spinner("running the digits model");
    let session = a
        .engine
        .builder()?
        .commit(Model::open(path("model.onnx"), &ModelOptions::default())?)?;
    let outputs = session.run(&inputs::borrowed(&named))?.into_vec();
    let comparison = shopfloor::compare(
        &outputs,
        &data::read_npz(path("outputs.npz"))?,
        Tolerance::default(),
    );
    let rounds = shopfloor_tools::rounds(&session, ROUNDS);
    let (profile, _) = shopfloor::profile(&session, &named, rounds, rounds)?;
    drop(waiting);
    tell_machine(&session);
    let (Some((_, images)), Some((_, answer))) = (named.first(), outputs.first()) else {
        let why = format!("{} has no inputs or outputs", dir.display());
        return Err(Failure::of(why));
    };
    let style = output::style();
    let answers = answers(answer, &labels);
    let pictures: Vec<Vec<String>> = (0..answers.len().min(SHOWN))
        .map(|i| picture(images, i))
        .collect();
    let wide = |p: &Vec<String>| p.first().map_or(0, |row| row.chars().count()) + BETWEEN;
    let fit = (style.width + BETWEEN).saturating_sub(LEFT);
    let fit = fit / pictures.first().map_or(1, wide).max(1);
    let shown = pictures.len().min(fit.max(1));
    let mut out = String::new();
    let answer = format!(
        "It reads {}: the first {shown} of {} handwritten digits. {}",
        read_as(&answers[..shown]),
        answers.len(),
        profile.why()
    );
    for line in units::wrapped(&answer, style.width) {
        let _ = writeln!(out, "{}", style.heading(&line));
    }
    out.push('\n');
    for y in 0..pictures.first().map_or(0, Vec::len) {
        let row: Vec<&str> = pictures[..shown].iter().map(|p| p[y].as_str()).collect();
        let row = row.join(&" ".repeat(BETWEEN));
        let _ = writeln!(out, "{}{}", " ".repeat(LEFT), row.trim_end());
    }
    let all: Vec<&str> = answers.iter().map(|a| a.0).collect();
    let _ = writeln!(out, "\n    all {}: {}", all.len(), all.join(" "));
    for c in &comparison.outputs {
        let verdict = if c.agrees {
            "agrees with"
        } else {
            "DIFFERS from"
        };
        let _ = writeln!(
            out,
            "    {} {verdict} the stored reference (largest difference {:.1e})",
            c.name,
            c.difference.unwrap_or(f64::NAN)
        );
    }
    let _ = writeln!(
        out,
        "\n{}\non {}{} with {}, planned for {}\n",
        style.headline(&format!(
            "its steps, predicted beside {} (median of {} requests)",
            profile.clock(),
            profile.active
        )),
        profile.device,
        profile.how.headline(),
        profile.how.workers(profile.threads),
        profile.machine
    );
    out.push_str(&profile.render_short(style));
    let overhead = profile.overhead.map_or(String::new(), |o| o.sentence());
    for line in units::wrapped(&overhead, style.width) {
        let _ = writeln!(out, "{line}");
    }
    output::page(&out)?;
    // Commands stay whole, so that they can be copied.
    let head = style.heading("what to try next");
    output::print(&format!("\n{head}\n{}", next(&dir)))?;
    match comparison.complaint() {
        Some(c) => Err(Failure::Differ(c)),
        None => Ok(()),
    }
}
