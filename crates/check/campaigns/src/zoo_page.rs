//! `cargo xtask zoo --on DEVICE --page FILE [--beside FILE] FOLDER...`: a page of what `--out` wrote into those
//! folders for that device: models beside their predictions and beside PyTorch, families of steps, and the kernels
//! that take longest beyond their predictions. Where a folder has what one before it has, its figure counts.
//! `--beside` names a Markdown table with PyTorch's times.
use crate::pages::{commit, date, figures, geometric, number, root};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use testkit::zoo;

/// Difference from the reference above which a run fails where factors are rounded: a share of the output's
/// largest value. Models' own tolerances are for f32. A deep net amplifies what each product rounds, by how much
/// nobody knows beforehand (a resnet50 in TF32 is off by a tenth, most models by a thousandth), so a tolerance
/// that follows from the bits of a factor is wrong for one net or another. This one finds only what is grossly wrong,
/// and the difference is printed, to be judged by who reads it.
pub const GROSS: f64 = 0.2;
/// What two events around an empty kernel say that it takes, microseconds: measured on an H100.
const EVENTS_US: f64 = 3.0;
/// Rows of the table of kernels.
const KERNELS: usize = 25;
/// Characters of a kernel's name in that table.
const NAME: usize = 56;
/// Bytes of a file that is read, at most.
const MOST: u64 = 64 << 20;
/// PyTorch's times on an H100, beside the repository; they need not be there.
const BESIDE: &str = "../shared/gpu/h100-models.md";
/// Columns of that table that are read.
const COLUMNS: [&str; 3] = ["graph f32", "graph TF32", "graph f16"];

/// Requests by one way.
#[derive(Clone, Deserialize, Serialize)]
pub struct WayMeasured {
    pub way: String,
    /// Microseconds of a request, predicted with and without its copies, and the median measured.
    pub predicted_us: f64,
    pub predicted_without_copies_us: f64,
    pub request_us: f64,
    pub requests: usize,
    pub first_ms: f64,
    /// The largest difference from the reference.
    pub off: f64,
}

/// A model at one precision, as a file has it. `P` is the profile: all of it where it is written, and what a
/// page needs where it is read.
#[derive(Deserialize, Serialize)]
pub struct Measured<P> {
    pub model: String,
    pub precision: String,
    pub device: String,
    pub tolerance: f64,
    /// Microseconds that the prediction of a step holds for a kernel that does nothing.
    #[serde(default = "empty_us")]
    pub empty_us: f64,
    /// In the order of measuring; the profile is of the first.
    pub ways: Vec<WayMeasured>,
    pub profile: Option<P>,
}

/// What an H100 was described with when files did not say it.
fn empty_us() -> f64 {
    2.2
}

/// What is read of a profile.
#[derive(Deserialize)]
struct Profiled {
    machine: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    name: String,
    family: String,
    shapes: String,
    schedule: String,
    bound: String,
    /// Of one run; `time_us` is of all of a request.
    predicted_us: f64,
    runs: f64,
    time_us: f64,
    workers: u32,
}

/// Times of steps together, microseconds.
#[derive(Clone, Copy, Default)]
struct Sum {
    steps: usize,
    measured: f64,
    predicted: f64,
    /// Without what an empty kernel takes.
    own_measured: f64,
    own_predicted: f64,
}

impl Sum {
    /// `empty` is what a prediction holds for an empty kernel.
    fn of(s: &Step, empty: f64) -> Sum {
        let predicted = s.predicted_us * s.runs;
        // The host's steps are not launched, and its own clock times them.
        let launches = if s.is_kernel() { s.runs } else { 0.0 };
        Sum {
            steps: 1,
            measured: s.time_us,
            predicted,
            own_measured: s.time_us - EVENTS_US * launches,
            own_predicted: predicted - empty * launches,
        }
    }

    fn add(&mut self, o: Sum) {
        self.steps += o.steps;
        self.measured += o.measured;
        self.predicted += o.predicted;
        self.own_measured += o.own_measured;
        self.own_predicted += o.own_predicted;
    }

    fn excess(&self) -> f64 {
        self.own_measured - self.own_predicted
    }

    /// Cells of a table: both times and their ratio, with and without what an empty kernel takes.
    fn cells(&self) -> Vec<String> {
        let own = [self.own_measured, self.own_predicted];
        vec![
            self.steps.to_string(),
            number(self.measured),
            number(self.predicted),
            ratio(Some(self.measured), Some(self.predicted)).map_or(none(), times),
            number(own[0]),
            number(own[1]),
            ratio(Some(own[0]), Some(own[1])).map_or(none(), times),
        ]
    }
}

impl Step {
    /// Copies between host and device have no time of their own, and what is empty is not launched.
    fn counts(&self) -> bool {
        self.workers > 0 && self.predicted_us > 0.0
    }

    fn is_kernel(&self) -> bool {
        self.family != "host"
    }
}

/// A model over all files.
#[derive(Default)]
struct Model {
    /// By precision and way.
    ways: BTreeMap<(String, String), WayMeasured>,
    /// At f32, by events around each step.
    profile: Option<Profiled>,
    empty_us: f64,
}

impl Model {
    fn way(&self, precision: &str, way: &str) -> Option<&WayMeasured> {
        self.ways.get(&(precision.into(), way.into()))
    }

    /// Whether a loop repeats steps: a request's prediction counts them once.
    fn repeats(&self) -> bool {
        self.steps().any(|s| s.runs != 1.0)
    }

    fn us(&self, precision: &str, way: &str) -> Option<f64> {
        Some(self.way(precision, way)?.request_us)
    }

    fn predicted(&self, way: &str) -> Option<f64> {
        Some(self.way("f32", way)?.predicted_us)
    }

    /// The largest difference by any way.
    fn off(&self, precision: &str) -> Option<f64> {
        let at = self.ways.iter().filter(|((p, _), _)| p == precision);
        at.map(|(_, w)| w.off).reduce(f64::max)
    }

    fn steps(&self) -> impl Iterator<Item = &Step> {
        let steps = self.profile.iter().flat_map(|p| &p.steps);
        steps.filter(|s| s.counts())
    }
}

/// What was read of all folders.
#[derive(Default)]
struct All {
    models: BTreeMap<String, Model>,
    /// By precision the models of which no run passed.
    failed: BTreeMap<String, BTreeSet<String>>,
    machine: String,
    requests: usize,
}

impl All {
    fn read(on: &str, folders: &[PathBuf]) -> Result<All, String> {
        let (mut all, mut failed) = (All::default(), vec![]);
        for folder in folders {
            let shown = folder.display();
            let list = std::fs::read_dir(folder).map_err(|e| format!("{shown}: {e}"))?;
            let paths: Result<Vec<PathBuf>, _> = list.map(|f| f.map(|f| f.path())).collect();
            let mut paths = paths.map_err(|e| format!("{shown}: {e}"))?;
            paths.retain(|p| p.extension().is_some_and(|e| e == "json"));
            paths.sort();
            for path in paths {
                let text = shopfloor::read_text(&path, MOST).map_err(|e| e.to_string())?;
                let m: Measured<Profiled> = serde_json::from_str(&text)
                    .map_err(|e| format!("{} is no measurement: {e}", path.display()))?;
                if m.ways.is_empty() {
                    failed.push((m.model, m.precision));
                } else if m.device == on || m.device.starts_with(&format!("{on}:")) {
                    all.take(m)?;
                }
            }
        }
        if all.models.is_empty() {
            return Err(format!("no folder has a measurement on {on}"));
        }
        // Another folder may have it.
        failed.retain(|(m, p)| all.models.get(m).is_none_or(|m| m.off(p).is_none()));
        for (m, p) in failed {
            all.failed.entry(p).or_default().insert(m);
        }
        Ok(all)
    }

    fn take(&mut self, m: Measured<Profiled>) -> Result<(), String> {
        let machine = m.profile.as_ref().map_or("", |p| p.machine.as_str());
        if self.machine.is_empty() {
            self.machine = machine.into();
        } else if !machine.is_empty() && self.machine != machine {
            let both = [&self.machine, machine].join(" and ");
            return Err(format!("the folders are of two machines, {both}"));
        }
        let model = self.models.entry(m.model).or_default();
        // Steps of a kernel that stays are timed inside it, without events.
        let by_events = m.ways.first().is_some_and(|w| w.way != "resident");
        if m.precision == "f32" && m.profile.is_some() && by_events {
            (model.profile, model.empty_us) = (m.profile, m.empty_us);
        }
        for w in m.ways {
            self.requests = self.requests.max(w.requests);
            model.ways.insert((m.precision.clone(), w.way.clone()), w);
        }
        Ok(())
    }
}

/// PyTorch's times by model, microseconds, and what their page calls itself.
struct Others {
    title: String,
    rows: BTreeMap<String, [Option<f64>; 3]>,
}

impl Others {
    /// Of a page with a table that has these columns.
    fn parse(text: &str) -> Option<Others> {
        let title = text.lines().find_map(|l| l.strip_prefix("# "))?;
        let cells = |l: &str| -> Vec<String> {
            let inside = l.trim().trim_start_matches('|');
            let inside = inside.strip_suffix('|').unwrap_or(inside);
            inside.split('|').map(|c| c.trim().to_string()).collect()
        };
        let mut lines = text.lines().filter(|l| l.starts_with('|')).map(cells);
        let head = lines.next()?;
        let find = |name: &str| head.iter().position(|h| h == name);
        let model = find("model")?;
        let [f32, tf32, f16] = COLUMNS.map(find);
        let at = [f32?, tf32?, f16?];
        let row = |l: Vec<String>| {
            let of = at.map(|at| l.get(at).and_then(|c| c.parse().ok()));
            Some((l.get(model)?.clone(), of))
        };
        Some(Others {
            title: title.trim_end_matches('.').into(),
            rows: lines.filter_map(row).collect(),
        })
    }

    /// Of the file named; of none named, for an H100, of the usual one, which need not be there.
    fn read(named: Option<&Path>, machine: &str) -> Result<Option<Others>, String> {
        let usual = root().join(BESIDE);
        let path = match named {
            Some(p) => p,
            None if machine.starts_with("H100") && usual.is_file() => &usual,
            None => return Ok(None),
        };
        let text = shopfloor::read_text(path, MOST).map_err(|e| e.to_string())?;
        let others = Others::parse(&text);
        let lacks = || {
            let columns = COLUMNS.join(", ");
            format!("{} has no table with columns {columns}", path.display())
        };
        others.map(Some).ok_or_else(lacks)
    }

    /// A model in f16 stands beside f16 alone, another beside all three.
    fn of(others: Option<&Others>, model: &str) -> [Option<f64>; 3] {
        let row = others.and_then(|o| o.rows.get(model));
        match row.copied().unwrap_or_default() {
            [_, _, f16] if in_f16(model) => [None, None, f16],
            all => all,
        }
    }
}

fn in_f16(model: &str) -> bool {
    let outputs = zoo::find(model).map(|m| m.meta().output.clone());
    let mut outputs = outputs.iter().flatten();
    outputs.any(|(_, o)| o.dtype == "float16")
}

fn none() -> String {
    "–".into()
}

/// A name whose middle is left out where it is long: a fused kernel has the names of all its nodes.
fn short(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= NAME {
        return name.into();
    }
    let part = |c: &[char]| c.iter().collect::<String>();
    let (begin, end) = (
        part(&chars[..NAME / 2]),
        part(&chars[chars.len() - NAME / 2..]),
    );
    format!("{begin}…{end}")
}

fn times(r: f64) -> String {
    format!("{r:.2}")
}

/// A ratio that means something: of times above nothing.
fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    let (a, b) = (a?, b?);
    (a > 0.0 && b > 0.0).then(|| a / b)
}

fn put(out: &mut String, cells: &[String]) {
    let cells: Vec<String> = cells.iter().map(|c| c.replace('|', "/")).collect();
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

fn head(out: &mut String, cells: &[&str]) {
    let _ = writeln!(out, "| {} |", cells.join(" | "));
    let _ = writeln!(out, "|{}", "---|".repeat(cells.len()));
}

/// A model's ratios: measured by predicted for graphs and for launches, ours by PyTorch's in f32, in TF32 and of
/// a model in f16.
fn ratios(name: &str, m: &Model, others: [Option<f64>; 3]) -> [Option<f64>; 5] {
    let graph = m.us("f32", "graph");
    let once = |way| m.predicted(way).filter(|_| !m.repeats());
    [
        ratio(graph, once("graph")),
        ratio(m.us("f32", "steps"), once("steps")),
        ratio(graph, others[0]),
        ratio(m.us("tf32", "graph"), others[1]),
        ratio(graph, others[2].filter(|_| in_f16(name))),
    ]
}

/// The table of models.
fn models(out: &mut String, all: &All, others: Option<&Others>) {
    let names = [
        "model",
        "steps",
        "graph, f32",
        "predicted",
        "ratio",
        "launched, f32",
        "predicted",
        "graph, TF32",
        "resident, f32",
        "off, f32",
        "off, TF32",
        "PyTorch f32",
        "PyTorch TF32",
        "PyTorch f16",
        "ours by PyTorch's, f32",
        "in TF32",
        "in f16",
    ];
    // Without PyTorch's times the last columns would be empty.
    let shown = if others.is_some() { names.len() } else { 11 };
    head(out, &names[..shown]);
    for (name, m) in &all.models {
        let theirs = Others::of(others, name);
        let [by_graph, _, f32, tf32, f16] = ratios(name, m, theirs);
        let us = |v: Option<f64>| v.map_or(none(), number);
        let off = |p: &str| m.off(p).map_or(none(), |v| format!("{v:.1e}"));
        let cells = [
            name.clone(),
            m.steps().count().to_string(),
            us(m.us("f32", "graph")),
            us(m.predicted("graph")),
            by_graph.map_or(none(), times),
            us(m.us("f32", "steps")),
            us(m.predicted("steps")),
            us(m.us("tf32", "graph")),
            us(m.us("f32", "resident")),
            off("f32"),
            off("tf32"),
            us(theirs[0]),
            us(theirs[1]),
            us(theirs[2]),
            f32.map_or(none(), times),
            tf32.map_or(none(), times),
            f16.map_or(none(), times),
        ];
        put(out, &cells[..shown]);
    }
}

/// Geometric means of the table's ratios, as figures for other documents.
fn means(all: &All, others: Option<&Others>, name: &str) -> String {
    let rows = all.models.iter();
    let rows: Vec<[Option<f64>; 5]> = rows
        .map(|(name, m)| ratios(name, m, Others::of(others, name)))
        .collect();
    let what = [
        "a request by graph in f32, measured by predicted",
        "a request by launches in f32, measured by predicted",
        "a request by graph in f32, ours by PyTorch's",
        "a request by graph in TF32, ours by PyTorch's",
        "a request by graph of models in f16, ours by PyTorch's",
    ];
    let mut list = vec![];
    for (i, what) in what.iter().enumerate() {
        let (mean, n) = geometric(rows.iter().filter_map(|r| r[i]));
        if n > 0 {
            let models = if n == 1 { "model" } else { "models" };
            list.push((format!("{what}, {n} {models}"), times(mean)));
        }
    }
    figures(name, &all.machine, &list)
}

/// Columns of what is summed up of steps.
const SUM: &[&str] = &[
    "steps",
    "measured",
    "predicted",
    "ratio",
    "less empty kernels",
    "predicted",
    "ratio",
    "excess",
];

/// The table of families, the one with most excess first.
fn families(out: &mut String, all: &All) {
    let (mut sums, mut whole) = (BTreeMap::<&str, Sum>::new(), Sum::default());
    for m in all.models.values() {
        for s in m.steps() {
            let one = Sum::of(s, m.empty_us);
            sums.entry(&s.family).or_default().add(one);
            whole.add(one);
        }
    }
    head(out, &[&["family"], SUM].concat());
    let mut sums: Vec<(&str, Sum)> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.excess().total_cmp(&a.1.excess()));
    sums.push(("all", whole));
    for (family, s) in sums {
        let mut cells = vec![family.to_string()];
        cells.extend(s.cells());
        cells.push(number(s.excess()));
        put(out, &cells);
    }
}

/// The table of kernels. Those of a model that have the same shapes and schedule are one row, or the layers of
/// one model would fill it.
fn kernels(out: &mut String, all: &All) {
    let mut alike = BTreeMap::<_, (&Step, Sum)>::new();
    for (model, m) in &all.models {
        for s in m.steps().filter(|s| s.is_kernel()) {
            let key = (model, &s.family, &s.shapes, &s.schedule);
            let row = alike.entry(key).or_insert((s, Sum::default()));
            row.1.add(Sum::of(s, m.empty_us));
        }
    }
    let names = [
        "model", "kernel", "family", "shapes", "schedule", "bound by",
    ];
    head(out, &[&names[..], SUM].concat());
    let mut rows: Vec<_> = alike.into_iter().collect();
    rows.sort_by(|a, b| b.1.1.excess().total_cmp(&a.1.1.excess()));
    for ((model, family, shapes, schedule), (first, sum)) in rows.into_iter().take(KERNELS) {
        let mut cells = vec![model.clone(), short(&first.name), family.clone()];
        cells.extend([shapes.clone(), schedule.clone(), first.bound.clone()]);
        cells.extend(sum.cells());
        cells.push(number(sum.excess()));
        put(out, &cells);
    }
}

/// What the first table is of.
fn begin(out: &mut String, on: &str, all: &All, others: Option<&Others>) {
    let _ = writeln!(
        out,
        "# Models on {}\n\nWritten {}, commit {}, by `cargo xtask zoo --on {on} --page` from what `cargo xtask zoo --on {on} --out` \
         measured: {} models at their references' inputs.\n\n\
         A time is the median of up to {} requests, in microseconds. The steps of a request stand in a graph, are launched one by \
         one, or run in a resident kernel, and a prediction is for the same way. Our times and their predictions include the copies \
         of inputs and outputs between host and GPU. A prediction counts once what a loop repeats, so that of a model with \
         loops is too low and has no ratio. `off` is the largest difference from the reference, as a share of the \
         output's largest value; in TF32, of whose factors 11 bits count, a run fails only above {}. A dash: not measured.\n",
        all.machine,
        date(),
        commit(),
        all.models.len(),
        all.requests,
        number(GROSS),
    );
    if let Some(o) = others {
        let _ = writeln!(
            out,
            "PyTorch's times are those of \"{}\": the same architectures with random weights in a CUDA graph, f32 with TF32 \
             off. They were measured on the card of that title, not in the same hour as ours. They do not include copies, as inputs are on the device. That page does \
             not say how large the inputs were; we take it that they were those of the references. Ratios are our time over \
             PyTorch's by graph: below 1 we are faster. A model in f16 is compared with f16 alone.\n",
            o.title
        );
    }
    for (precision, models) in &all.failed {
        let models: Vec<&str> = models.iter().map(String::as_str).collect();
        let models = models.join(", ");
        let _ = writeln!(out, "No run passed in {precision}: {models}.\n");
    }
}

/// The whole page.
fn page(on: &str, name: &str, all: &All, others: Option<&Others>) -> String {
    let mut out = String::new();
    begin(&mut out, on, all, others);
    models(&mut out, all, others);
    let _ = writeln!(
        out,
        "\nGeometric means of the ratios:\n\n{}",
        means(all, others, name)
    );
    let empty = all.models.values().map(|m| m.empty_us).fold(0.0, f64::max);
    let _ = writeln!(
        out,
        "## By family of steps\n\nAll models in f32, steps launched one by one, microseconds of a request; a step of a loop counts with the sum of its \
         runs. A kernel's time is between two events, which are {EVENTS_US:.1} us apart around an empty kernel; the prediction of an empty kernel is \
         {empty:.1} us. `less empty kernels` and what follows it are without both, once per run, and `excess` is their difference. Steps on the \
         host are not launched, so nothing is taken off them. Copies have no time of their own and are left out.\n",
    );
    families(&mut out, all);
    let _ = writeln!(
        out,
        "\n## Kernels with most excess\n\nThe {KERNELS} rows with most of it, in the same columns. Kernels of a model with the same shapes and \
         schedule are one row, named after the first.\n",
    );
    kernels(&mut out, all);
    out
}

/// What to write.
struct Options {
    page: PathBuf,
    beside: Option<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Options {
    fn read(args: &[String]) -> Result<Options, String> {
        let (mut page, mut beside, mut folders) = (None, None, vec![]);
        let mut args = args.iter();
        while let Some(a) = args.next() {
            let mut value = || args.next().ok_or(format!("{a} needs a file"));
            match a.as_str() {
                "--page" => page = Some(value()?.into()),
                "--beside" => beside = Some(value()?.into()),
                _ if a.starts_with("--") => {
                    return Err(format!("there is no option '{a}' with --page"));
                }
                _ => folders.push(a.into()),
            }
        }
        if folders.is_empty() {
            return Err("--page needs folders that --out wrote into".into());
        }
        Ok(Options {
            page: page.ok_or("--page needs a file")?,
            beside,
            folders,
        })
    }
}

fn write(on: &str, args: &[String]) -> Result<(), String> {
    let o = Options::read(args)?;
    let all = All::read(on, &o.folders)?;
    let others = Others::read(o.beside.as_deref(), &all.machine)?;
    let others = others.filter(|o| all.models.keys().any(|m| o.rows.contains_key(m)));
    let name = o.page.file_stem().unwrap_or_default().to_string_lossy();
    let text = page(on, &name, &all, others.as_ref());
    shopfloor::write_file(&o.page, text).map_err(|e| e.to_string())?;
    println!("written to {}", o.page.display());
    Ok(())
}

/// Writes the page that `args` describe, of what was measured on the device `on`.
pub fn run(on: &str, args: &[String]) -> ExitCode {
    match write(on, args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("zoo: {e}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_others_are_read_by_the_names_of_columns() {
        let text = "# Some models.\n\n| model | graph TF32 | graph f32 | graph f16 |\n|---|---|---|---|\n| a | 2 | 1.5 | |\n";
        let o = Others::parse(text).expect("a table");
        assert_eq!(o.title, "Some models");
        assert_eq!(Others::of(Some(&o), "a"), [Some(1.5), Some(2.0), None]);
        assert_eq!(Others::of(Some(&o), "b"), [None; 3]);
        assert!(Others::parse("# A page\n\n| model | steps |\n").is_none());
    }

    #[test]
    fn what_an_empty_kernel_takes_is_taken_off_once_per_run() {
        let mut step = Step {
            name: "k".into(),
            family: "map".into(),
            shapes: String::new(),
            schedule: String::new(),
            bound: String::new(),
            predicted_us: 3.2,
            runs: 2.0,
            time_us: 10.0,
            workers: 1,
        };
        let s = Sum::of(&step, 2.2);
        assert!((s.own_measured - 4.0).abs() < 1e-9 && (s.own_predicted - 2.0).abs() < 1e-9);
        step.family = "host".into();
        assert!((Sum::of(&step, 2.2).own_measured - 10.0).abs() < 1e-9);
    }
}
