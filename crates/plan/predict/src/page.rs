//! docs/accuracy.md with its plots.

use crate::fit::family;
use crate::report::Pair;
use crate::{Constants, Errors, PredictError};
use layout::Arrange;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Accuracy to reach on a GPU that was left out, by family: whether of the mean, and the share.
pub const REACH: [(&str, bool, f64); 7] = [
    ("linear", false, 0.25),
    ("batched matmul", false, 0.25),
    ("element-wise", false, 0.25),
    ("softmax", false, 0.25),
    ("layer norm", false, 0.30),
    ("whole model, inference", true, 0.20),
    ("decode", false, 0.25),
];

/// The line of all rows, each predicted with the constants that were fitted without its GPU; sorts last.
pub const TOGETHER: &str = "all of these";

/// Types that rows and kernels can have.
const TYPES: [&str; 8] = [
    "fp32",
    "fp16acc32",
    "fp16storage_fp32math",
    "bf16",
    "fp8",
    "int8",
    "fp64",
    "tf32",
];

/// Points of one GPU in a plot, at most.
const DOTS: usize = 90;

fn percent(v: Option<f64>) -> String {
    v.map_or("-".into(), |v| format!("{:.1}%", 100.0 * v))
}

/// A line of the table of GPUs that were left out.
pub fn line(gpu: &str, family: &str, e: &Errors) -> String {
    let reach = REACH.iter().find(|r| r.0 == family);
    let verdict = match reach {
        None => "".to_string(),
        Some(&(_, mean, most)) => {
            let (what, is) = match mean {
                true => ("mean", e.mean_ape),
                false => ("median", e.median_ape),
            };
            let met = is.is_some_and(|v| v <= most);
            let word = if met { "reached" } else { "missed" };
            format!("{what} {:.0}%: {word}", 100.0 * most)
        }
    };
    format!(
        "| {gpu} | {family} | {} of {} | {} | {} | {} | {} | {} | {verdict} |",
        e.covered,
        e.rows,
        percent(e.median_ape),
        percent(e.mean_ape),
        percent(e.wape),
        percent(e.bias),
        e.spearman.map_or("-".into(), |v| format!("{v:.3}")),
    )
}

const HEAD: &str = "| rows covered | median | mean | weighted | bias | rank correlation |";

/// Groups pairs by a name.
fn grouped<'a, K: Ord>(
    pairs: &'a [Pair<'a>],
    name: impl Fn(&'a Pair<'a>) -> Option<K>,
) -> BTreeMap<K, Vec<&'a Pair<'a>>> {
    let mut out: BTreeMap<K, Vec<&Pair>> = BTreeMap::new();
    for p in pairs {
        if let Some(k) = name(p) {
            out.entry(k).or_default().push(p);
        }
    }
    out
}

fn errors(list: &[&Pair]) -> Errors {
    let both = |p: &&Pair| Some((*p.predicted.as_ref().ok()?, p.row.seconds));
    let all: Vec<(f64, f64)> = list.iter().filter_map(both).collect();
    Errors::of(list.len(), &all)
}

/// What the page begins with.
const HEADING: &str = "# How far predictions are off\n\n\
     Written by `cargo xtask fit`; do not edit. Published measurements against the cost of the same\n\
     calls under the `vendor` target: each row becomes a kernel with a schedule that the vendor's\n\
     library would launch, a tile program, its `Work`, and `machine::predict`. `shopfloor predict\n\
     --measurements FILE` gives the same by source, GPU and operator, and counts what is not covered.\n\
     What the files measure, and where they are from, says the README beside them.\n\n\
     Errors are |predicted - measured| / measured; bias is signed, above 0 where predictions are too\n\
     long; weighted is the sum of errors over the sum of measured times.\n\n\
     ## GPUs left out\n\n\
     Each GPU's own rows were left out and every fitted constant was fitted anew without them, from\n\
     its textbook start. Nothing is chosen by GPU. Cards of one generation (two A100s, P100 and P4)\n\
     lend each other their constants; V100 is alone, and without MI100 nothing but whole models of\n\
     MI250 says what f32 products reach on matrix units. Whole models on P4 are out of reach: in their\n\
     traces one product takes 21.4 ms for 4096 rows and 27.9 ms for 8192, another 9.1 ms and 46.4 ms,\n\
     where kernels of these sizes that were timed alone on the card run at up to three times the speed.\n\
     The last lines take all rows together, each predicted without its own GPU's.\n\n\
     | GPU | family | rows covered | median | mean | weighted | bias | rank correlation | to reach |\n\
     |---|---|---|---|---|---|---|---|---|\n";

/// The table of what has rows, by family and type of numbers.
fn coverage(out: &mut String, by_family: &BTreeMap<&str, Vec<&Pair<'_>>>) {
    *out += "\n## What has no rows\n\n\
            Rows with a prediction by family and type of numbers. What has none here is *unvalidated*: it\n\
            has a prediction by the same rules, and nobody compared it.\n\n| family |";
    let types: Vec<&str> = TYPES.to_vec();
    for t in &types {
        let _ = write!(out, " {t} |");
    }
    let _ = write!(out, "\n|---|{}\n", "---|".repeat(types.len()));
    for (name, list) in by_family.iter().filter(|f| *f.0 != "decode") {
        let _ = write!(out, "| {name} |");
        for t in &types {
            let n = list
                .iter()
                .filter(|p| p.row.dtype == *t && p.predicted.is_ok())
                .count();
            let _ = match n {
                0 => write!(out, " unvalidated |"),
                n => write!(out, " {n} |"),
            };
        }
        out.push('\n');
    }
}

/// The tables of constants.
fn constants(out: &mut String, c: &Constants) {
    *out += "\nThe kernel families pool, move (but for copies within whole models), attention, recurrent and\n\
            select are unvalidated.\n\n\
            ## Constants\n\n\
            All of them, in `crates/plan/predict/constants.toml`.\n\n\
            | name | value | start | by | meaning |\n|---|---|---|---|---|\n";
    for (name, k) in &c.all {
        let by = if k.fitted { "fit" } else { "choice" };
        let _ = writeln!(
            out,
            "| `{name}` | {:.4} | {} | {by} | {} |",
            k.value, k.start, k.meaning
        );
    }
    *out += "\nTables in the same file:\n\n| table | meaning |\n|---|---|\n";
    for (name, meaning) in c.tables.meanings() {
        let _ = writeln!(out, "| `{name}` | {meaning} |");
    }
}

/// Writes `accuracy.md` and its plots into `docs`.
///
/// # Errors
/// What cannot be written.
pub fn write(
    docs: &Path,
    pairs: &[Pair],
    left: &BTreeMap<String, BTreeMap<String, Errors>>,
    c: &Constants,
) -> Result<(), PredictError> {
    let plots = docs.join("accuracy");
    let save = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|source| PredictError::Read {
            path: path.into(),
            source,
        })
    };
    std::fs::create_dir_all(&plots).map_err(|source| PredictError::Read {
        path: plots.clone(),
        source,
    })?;
    let by_family = grouped(pairs, |p| family(p.row));
    let mut out = String::from(HEADING);
    for (gpu, families) in left {
        for (name, e) in families {
            let _ = writeln!(out, "{}", line(gpu, name, e));
        }
    }
    let _ = writeln!(
        out,
        "\n## All rows, with the published constants\n\n| family {HEAD}\n|---|---|---|---|---|---|---|"
    );
    for (name, list) in &by_family {
        let e = errors(list);
        let _ = writeln!(
            out,
            "| {name} | {} of {} | {} | {} | {} | {} | {} |",
            e.covered,
            e.rows,
            percent(e.median_ape),
            percent(e.mean_ape),
            percent(e.wape),
            percent(e.bias),
            e.spearman.map_or("-".into(), |v| format!("{v:.3}"))
        );
    }
    out += "\nPredicted against measured, both on logarithmic axes; the middle line is where they are the\n\
            same, the others a factor of two off. Colours are GPUs, at most 90 rows each.\n\n";
    for (name, list) in &by_family {
        let file: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        save(&plots.join(format!("{file}.svg")), &plot(name, list))?;
        let _ = writeln!(out, "![{name}](accuracy/{file}.svg)");
    }
    coverage(&mut out, &by_family);
    constants(&mut out, c);
    save(&docs.join("accuracy.md"), &out)
}

const COLOURS: [&str; 10] = [
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#7f7f7f",
    "#bcbd22", "#17becf",
];

/// Predicted against measured as SVG.
fn plot(name: &str, list: &[&Pair]) -> String {
    const SIZE: f64 = 300.0;
    const LEFT: f64 = 46.0;
    let mut gpus: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for p in list {
        if let Ok(s) = p.predicted {
            gpus.entry(&p.row.gpu).or_default().push((p.row.seconds, s));
        }
    }
    let all = || gpus.values().flatten().flat_map(|p| [p.0, p.1]);
    let low = all()
        .fold(f64::INFINITY, f64::min)
        .max(1e-9)
        .log10()
        .floor();
    let high = all().fold(0.0, f64::max).max(1e-8).log10().ceil();
    let span = (high - low).max(1.0);
    let at = |s: f64| (s.log10() - low) / span * SIZE;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" font-family=\"sans-serif\" font-size=\"10\">\
         <rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/><text x=\"{LEFT}\" y=\"12\" font-size=\"12\">{name}: predicted against measured</text>\
         <g transform=\"translate({LEFT} 20)\"><rect width=\"{SIZE}\" height=\"{SIZE}\" fill=\"none\" stroke=\"#888\"/>\n",
        w = LEFT + SIZE + 140.0,
        h = SIZE + 50.0
    );
    for d in 0..=span as i64 {
        let (x, s) = (d as f64 / span * SIZE, low + d as f64);
        let (unit, scale) = match s {
            s if s >= 0.0 => ("s", 0.0),
            s if s >= -3.0 => ("ms", 3.0),
            _ => ("us", 6.0),
        };
        let label = format!("{} {unit}", 10f64.powf(s + scale).round());
        let _ = writeln!(
            out,
            "<text x=\"{x:.0}\" y=\"{}\" text-anchor=\"middle\">{label}</text><text x=\"-3\" y=\"{:.0}\" text-anchor=\"end\">{label}</text>",
            SIZE + 13.0,
            SIZE - x + 3.0
        );
    }
    for factor in [0.5f64, 1.0, 2.0] {
        let shift = factor.log10() / span * SIZE;
        let (x0, x1) = ((-shift).max(0.0), (SIZE - shift).min(SIZE));
        let _ = writeln!(
            out,
            "<path d=\"M{x0:.1} {:.1}L{x1:.1} {:.1}\" stroke=\"#bbb\" fill=\"none\"/>",
            SIZE - x0 - shift,
            SIZE - x1 - shift
        );
    }
    // The ten with most rows have a colour and a name.
    let mut order: Vec<&str> = gpus.keys().copied().collect();
    order.arrange_by_key(|g| std::cmp::Reverse(gpus[g].len()));
    for (i, g) in order.iter().enumerate() {
        let (colour, points) = (COLOURS[i.min(COLOURS.len() - 1)], &gpus[g]);
        let n = points.len().min(DOTS);
        let mut d = String::new();
        for p in (0..n).map(|k| points[k * points.len() / n]) {
            let _ = write!(d, "M{:.0} {:.0}h0", at(p.0), SIZE - at(p.1));
        }
        let _ = writeln!(
            out,
            "<path d=\"{d}\" stroke=\"{colour}\" stroke-width=\"3\" stroke-linecap=\"round\" opacity=\".6\"/>"
        );
        if i < COLOURS.len() {
            let what = if i + 1 == COLOURS.len() && order.len() > COLOURS.len() {
                "others"
            } else {
                g
            };
            let y = 10 + 13 * i;
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{y}\" fill=\"{colour}\">{what}</text>",
                SIZE + 6.0
            );
        }
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">measured</text></g></svg>",
        SIZE / 2.0,
        SIZE + 26.0
    );
    out
}
