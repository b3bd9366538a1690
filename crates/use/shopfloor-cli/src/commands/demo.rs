//! `shopfloor demo`: the bundled digits model, planned, run and explained.
use crate::args::{EngineArgs, tell_machine};
use crate::output::{self, Done, Failure};
use shopfloor::{Model, ModelOptions, Tensor, Tolerance, inputs};
use shopfloor_tools::data;
use shopfloor_tools::report::units;
use std::fmt::Write;
use std::path::PathBuf;

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
        Failure::Usage(format!(
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

pub fn run(a: Args) -> Done {
    let dir = folder(a.models.clone())?;
    let path = |name: &str| dir.join(name);
    let labels = shopfloor::read_text(path("labels.txt"), shopfloor_tools::files::WRITTEN)?;
    let labels: Vec<&str> = labels.lines().collect();
    let named = data::read_npz(path("inputs.npz"))?;
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
    let (profile, _) = shopfloor::profile(&session, &named, 200, 200)?;
    tell_machine(&session);
    let ((_, images), (_, answer)) = match (named.first(), outputs.first()) {
        (Some(i), Some(o)) => (i, o),
        _ => {
            return Err(Failure::Usage(format!(
                "{} has no inputs or outputs",
                dir.display()
            )));
        }
    };
    let style = output::style();
    let count = images.shape().first().copied().unwrap_or(0);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}\n",
        style.heading(&format!("{count} handwritten digits (8x8 pixels, from a test set) through a convolutional network, first three shown"))
    );
    let shown: Vec<Vec<String>> = (0..count.min(3)).map(|i| picture(images, i)).collect();
    for y in 0..shown.first().map_or(0, Vec::len) {
        let row: Vec<&str> = shown.iter().map(|p| p[y].as_str()).collect();
        let _ = writeln!(out, "    {}", row.join("        ").trim_end());
    }
    let says: Vec<String> = (0..shown.len())
        .map(|i| {
            let (c, p) = argmax(answer, i);
            format!(
                "{:<24}",
                format!(
                    "reads {} ({})",
                    labels.get(c).unwrap_or(&"?"),
                    units::percent(p)
                )
            )
        })
        .collect();
    let _ = writeln!(out, "\n    {}", says.concat().trim_end());
    let all: Vec<&str> = (0..count)
        .map(|i| labels.get(argmax(answer, i).0).copied().unwrap_or("?"))
        .collect();
    let _ = writeln!(out, "    all {count}: {}", all.join(" "));
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
        "\n{}",
        style.heading(&format!(
            "the plan's steps, predicted beside measured (median of {} requests)",
            profile.active
        ))
    );
    let _ = writeln!(
        out,
        "on {} with {}, planned for {}\n",
        profile.device,
        units::plural(profile.threads as u64, "thread"),
        profile.machine
    );
    out.push_str(&profile.render_short(style));
    let _ = writeln!(
        out,
        "\na request of {count} images takes {}; nodes of the model: {} = {} in steps + {} as views + {} folded + {} not needed",
        units::seconds(profile.request_us * 1e-6),
        profile.accounting.total,
        profile.accounting.in_steps,
        profile.accounting.views,
        profile.accounting.folded,
        profile.accounting.dead
    );
    let _ = writeln!(
        out,
        "more: shopfloor profile, plan --why and inspect on {}",
        path("model.onnx").display()
    );
    output::print(&out)?;
    match comparison.complaint() {
        Some(c) => Err(Failure::Differ(c)),
        None => Ok(()),
    }
}
