//! `cargo xtask sweep`: the schedules that the planner picks against the best of all that can be
//! made, measured in the running model.
//!
//! Every step of a model takes its next candidate at once, and the request is timed step by step:
//! one run of a model measures a candidate of every kernel that is looked at. What looks best then
//! runs against the pick in turns, so that the luck of a single measurement does not count.
use crate::pages::{commit, date, figures, geometric, root};
use crate::quiet::Quiet;
use indicatif::{ProgressBar, ProgressStyle};
use shopfloor::{DimBox, Machine, Session, Tensor, inputs, machines};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use testkit::zoo;

const USAGE: &str = "usage: cargo xtask sweep [MODEL...] [--threads N] [--most N] [--kernels N] [--out FILE] [--lock FILE]...

  --threads N   workers [default: as many as this machine has]
  --most N      candidates measured of a kernel: the cheapest by prediction, then some of the others [default: 80]
  --kernels N   kernels looked at of all models together [default: 20]
  --out FILE    where the table goes [default: bench/SWEEP.md]
  --lock FILE   held locked (flock) while something is timed, 40 s at a time";

/// What is looked at when nobody names models.
const MODELS: &[&str] = &[
    "resnet50_ts",
    "mobilenet_v3_small",
    "efficientnet_b0",
    "regnet_y_400mf",
    "densenet121",
    "unet_small",
    "swin_t",
    "vit_tiny_ts",
    "minilm_l6",
    "gpt2_kv",
    "ppocr_det",
    "squeezenet1_1",
    "resnet50_qdq",
    "minilm_dynamic_int8",
    "decoder_gqa_int4",
    "shufflenet_v2_x1_0",
    "llama_gqa_ts",
];

/// How many kernels of each kind, of 20; what a kind has too few of goes to the others.
const SHARES: &[(&str, usize)] = &[
    ("int4", 1),
    ("grouped", 1),
    ("int8", 2),
    ("gemv", 1),
    ("attention", 2),
    ("depthwise", 2),
    ("pool", 1),
    ("move", 1),
    ("row", 2),
    ("map", 1),
    ("conv 1x1", 2),
    ("conv", 2),
    ("contract", 2),
];

/// The pick may be this much slower than the best, in the geometric mean.
const GATE: f64 = 1.10;
/// Kernels below this are dominated by what a clock can tell, in microseconds.
const LEAST_US: f64 = 20.0;
const WARMUP: usize = 1;
const RUNS: usize = 5;
/// Candidates that run against the pick, and in how many turns.
const FINALISTS: usize = 4;
const TURNS: usize = 5;

/// A kernel that is looked at.
struct Subject {
    model: usize,
    step: String,
    kernel: String,
    kind: String,
    shapes: String,
    us: f64,
}

/// A candidate with its time.
#[derive(Clone, Default)]
struct Tried {
    what: String,
    predicted_us: f64,
    us: f64,
}

/// What came of a kernel.
struct Row {
    subject: Subject,
    candidates: usize,
    measured: usize,
    pick: Tried,
    best: Tried,
}

struct Options {
    models: Vec<String>,
    threads: usize,
    most: usize,
    kernels: usize,
    out: PathBuf,
    locks: Vec<PathBuf>,
}

fn options(args: &[String]) -> Option<Options> {
    let mut o = Options {
        models: vec![],
        threads: 0,
        most: 80,
        kernels: 20,
        out: root().join("bench/SWEEP.md"),
        locks: vec![],
    };
    let mut it = args.iter();
    while let Some(a) = it.next() {
        let mut number = || it.next()?.parse().ok().filter(|n| *n > 0);
        match a.as_str() {
            "--threads" => o.threads = number()?,
            "--most" => o.most = number()?,
            "--kernels" => o.kernels = number()?,
            "--out" => o.out = it.next()?.into(),
            "--lock" => o.locks.push(it.next()?.into()),
            a if a.starts_with("--") => return None,
            a => o.models.push(a.into()),
        }
    }
    if o.models.is_empty() {
        o.models = MODELS.iter().map(|m| (*m).into()).collect();
    }
    Some(o)
}

/// A model at the sizes of its reference, ready to run.
struct Bench {
    session: Session,
    named: Vec<(String, Tensor)>,
    dims: DimBox,
    planner: planner::Planner,
    workers: u32,
}

impl Bench {
    fn open(name: &str, threads: usize, machine: &Machine) -> Result<Bench, String> {
        let text = |e: &dyn std::fmt::Display| format!("{name}: {e}");
        let model = zoo::find(name).ok_or_else(|| format!("{name} is not at hand"))?;
        let path = model.prepare_temporary().map_err(|e| text(&e))?;
        let named = model.inputs().map_err(|e| text(&e))?;
        let builder = Session::builder()
            .with_threads(threads)
            .with_machine(machine.clone());
        let session = builder
            .commit_from_file(&path.model)
            .map_err(|e| text(&e))?;
        let sizes = inputs::sizes_of(session.model(), &named);
        let dims = inputs::box_of(session.model(), &sizes);
        let device = session.runtime().engine().device();
        let both = vec![(device.machine().clone(), device.target().clone())];
        let planner = planner::Planner::new(both, planner::PlanOptions::default());
        Ok(Bench {
            named,
            dims,
            planner,
            workers: device.workers() as u32,
            session,
        })
    }

    /// Binds as `sweep` says and gives every step's time in microseconds by name.
    fn times(&self, sweep: &planner::Sweep, runs: usize) -> Result<BTreeMap<String, f64>, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let allotment = plan::Allotment {
            workers: vec![self.workers],
            memory: None,
            goal: plan::Goal::default(),
        };
        let program = self.session.model().program();
        let plan = self
            .planner
            .bind_sweeping(program, &self.dims, &allotment, sweep)
            .map_err(|e| text(&e))?;
        self.session.swap_plan(plan).map_err(|e| text(&e))?;
        let (p, _) =
            shopfloor::profile(&self.session, &self.named, WARMUP, runs).map_err(|e| text(&e))?;
        Ok(p.steps
            .iter()
            .map(|s| (s.step.name.clone(), s.time_us))
            .collect())
    }
}

/// Numbers of candidates to measure: the cheapest by prediction, and evenly some of the others.
fn chosen(all: usize, most: usize) -> Vec<usize> {
    let near = most.min(all) * 2 / 3;
    let mut out: Vec<usize> = (0..near.max(1).min(all)).collect();
    let (rest, room) = (all - out.len(), most.min(all) - out.len());
    out.extend((0..room).map(|i| near.max(1) + i * rest / room.max(1)));
    out.dedup();
    out
}

/// Rows up to which a product is read once per weight rather than computed.
const FEW_ROWS: i64 = 4;

/// What kind of kernel a step is: its family, products taken apart by what they ask of a schedule.
fn kind(step: &plan::Step, dims: &DimBox) -> String {
    let plan::StepWork::Kernel { kernel, .. } = &step.work else {
        return "host".into();
    };
    let family = format!("{:?}", kernel.family).to_lowercase();
    let product = kernel.body.iter().find_map(|s| match s {
        kernel::Stmt::Contract { acc, a, b, over } => Some((acc, a, b, over)),
        _ => None,
    });
    let (Some((acc, a, b, over)), "contract" | "conv") = (product, family.as_str()) else {
        return family;
    };
    let axes = |t: &kernel::TileId| kernel.tiles[*t as usize].axes.as_slice();
    let extent = |x: &kernel::AxisId| dims.at_top(&kernel.axes[*x as usize].extent).unwrap_or(1);
    let points = |f: &dyn Fn(bool, bool) -> bool| -> i64 {
        let of = |x: &&kernel::AxisId| f(axes(a).contains(x), axes(b).contains(x));
        axes(acc).iter().filter(of).map(extent).product()
    };
    let (rows, columns, batch) = (
        points(&|a, b| a && !b),
        points(&|a, b| b && !a),
        points(&|a, b| a && b),
    );
    let long = over.iter().filter(|x| extent(x) > 1).count();
    let bits = kernel.operands.iter().map(|o| o.dtype.bits()).min();
    let byte = kernel.tiles[*a as usize].dtype.bits() == 8;
    let kind = match family.as_str() {
        _ if bits == Some(4) => "int4",
        "conv" if batch > 1 && rows.min(columns) == 1 => "depthwise",
        "conv" if batch > 1 => "grouped",
        _ if byte => "int8",
        "conv" if long > 1 => "conv",
        "conv" => "conv 1x1",
        _ if rows.min(columns) <= FEW_ROWS => "gemv",
        _ => "contract",
    };
    kind.into()
}

/// Kernels to look at: large ones of each kind from as many models as there are, no two of the same
/// shapes.
fn subjects(benches: &[Bench], count: usize, quiet: &mut Quiet) -> Result<Vec<Subject>, String> {
    let mut all = Vec::new();
    for (model, b) in benches.iter().enumerate() {
        quiet.hold()?;
        b.times(&planner::Sweep::default(), RUNS)?;
        let (p, _) =
            shopfloor::profile(&b.session, &b.named, WARMUP, RUNS).map_err(|e| e.to_string())?;
        let plans = b.session.runtime().plans();
        for s in p.steps.iter().filter(|s| s.time_us >= LEAST_US) {
            let found = plans.iter().find_map(|p| {
                let mut steps = p.plan().blocks().flat_map(|b| &b.steps);
                steps.find(|x| x.name == s.step.name)
            });
            let Some(step) = found else { continue };
            all.push((
                s.share,
                Subject {
                    model,
                    step: s.step.name.clone(),
                    kernel: s.step.kernel.clone(),
                    kind: kind(step, &b.dims),
                    shapes: s.step.shapes.clone(),
                    us: s.time_us,
                },
            ));
        }
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut seen = BTreeSet::new();
    all.retain(|(_, s)| seen.insert((s.kind.clone(), s.shapes.clone())));
    let mut of_model = vec![0usize; benches.len()];
    let mut out: Vec<Subject> = Vec::new();
    let wanted = SHARES.iter().flat_map(|(k, n)| {
        let n = (n * count).div_ceil(20);
        std::iter::repeat_n(Some(*k), n)
    });
    for kind in wanted.chain(std::iter::repeat_n(None, count)) {
        if out.len() == count {
            break;
        }
        // From the model that has given the fewest so far; of its kernels the largest.
        let fits = |s: &Subject| kind.is_none_or(|k| s.kind == k);
        let fewest = all
            .iter()
            .enumerate()
            .filter(|(_, (_, s))| fits(s))
            .min_by_key(|(i, (_, s))| (of_model[s.model], *i))
            .map(|(i, _)| i);
        if let Some(i) = fewest {
            let s = all.remove(i).1;
            of_model[s.model] += 1;
            out.push(s);
        }
    }
    Ok(out)
}

/// Measures the candidates of `subjects`, all of one model.
fn sweep(
    bench: &Bench,
    subjects: Vec<Subject>,
    most: usize,
    quiet: &mut Quiet,
    bar: &ProgressBar,
) -> Result<Vec<Row>, String> {
    let mut picks = planner::Sweep::of(subjects.iter().map(|s| s.kernel.clone()));
    quiet.hold()?;
    bench.times(&picks, 1)?;
    // Candidates by kernel, each described.
    let mut lists: BTreeMap<String, Vec<Tried>> = BTreeMap::new();
    for s in &subjects {
        let tried = |(what, seconds)| Tried {
            what,
            predicted_us: seconds * 1e6,
            us: f64::INFINITY,
        };
        let list = picks.candidates(&s.kernel);
        lists.insert(s.kernel.clone(), list.into_iter().map(tried).collect());
    }
    let orders: BTreeMap<String, Vec<usize>> = lists
        .iter()
        .map(|(k, l)| (k.clone(), chosen(l.len(), most)))
        .collect();
    let rounds = orders.values().map(Vec::len).max().unwrap_or(0);
    bar.inc_length((rounds + TURNS * (FINALISTS + 1)) as u64);
    for round in 0..rounds {
        bar.inc(1);
        quiet.hold()?;
        let at = |k: &str| orders.get(k).and_then(|o| o.get(round)).copied();
        // A schedule that cannot be run is left out, and with it what ran beside it.
        for s in &subjects {
            picks.pick(&s.kernel, at(&s.kernel).unwrap_or(0));
        }
        let Ok(times) = bench.times(&picks, RUNS) else {
            continue;
        };
        for s in &subjects {
            let (Some(n), Some(us)) = (at(&s.kernel), times.get(&s.step)) else {
                continue;
            };
            if let Some(t) = lists.get_mut(&s.kernel).and_then(|l| l.get_mut(n)) {
                t.us = t.us.min(*us);
            }
        }
    }
    // The pick and the finalists of every kernel, in turns.
    let mut finals: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (k, l) in &lists {
        let mut by_time: Vec<usize> = (1..l.len()).filter(|&i| l[i].us.is_finite()).collect();
        by_time.sort_by(|&a, &b| l[a].us.total_cmp(&l[b].us));
        by_time.truncate(FINALISTS);
        by_time.insert(0, 0);
        finals.insert(k.clone(), by_time);
    }
    let mut again: BTreeMap<(String, usize), Vec<f64>> = BTreeMap::new();
    for _ in 0..TURNS {
        for f in 0..=FINALISTS {
            bar.inc(1);
            quiet.hold()?;
            let at = |k: &str| finals.get(k).and_then(|o| o.get(f)).copied();
            for s in &subjects {
                picks.pick(&s.kernel, at(&s.kernel).unwrap_or(0));
            }
            let Ok(times) = bench.times(&picks, 2 * RUNS) else {
                continue;
            };
            for s in &subjects {
                if let (Some(n), Some(us)) = (at(&s.kernel), times.get(&s.step)) {
                    again.entry((s.kernel.clone(), n)).or_default().push(*us);
                }
            }
        }
    }
    let mut rows = Vec::new();
    for s in subjects {
        let list = &lists[&s.kernel];
        let of = |n: &usize| {
            let mut v = again.get(&(s.kernel.clone(), *n))?.clone();
            v.sort_by(f64::total_cmp);
            let us = *v.get(v.len() / 2)?;
            Some(Tried {
                us,
                ..list[*n].clone()
            })
        };
        let timed: Vec<Tried> = finals[&s.kernel].iter().filter_map(of).collect();
        let pick = timed.first().cloned().unwrap_or_default();
        let best = timed.iter().min_by(|a, b| a.us.total_cmp(&b.us));
        rows.push(Row {
            candidates: list.len(),
            measured: list.iter().filter(|t| t.us.is_finite()).count(),
            best: best.cloned().unwrap_or_default(),
            pick,
            subject: s,
        });
    }
    Ok(rows)
}

fn page(o: &Options, machine: &Machine, rows: &[Row], names: &[String]) -> String {
    let (mean, n) = geometric(rows.iter().map(|r| r.pick.us / r.best.us));
    let mut s = format!(
        "# Picked schedules against the best of a sweep\n\n{}, commit {}, {}, {} threads. Made by `cargo \
         xtask sweep`: {n} kernels of {} models, large ones of each kind, each step timed in its \
         running model at the sizes of the reference. All schedules that the generators can make count, \
         also those that a plan's budget does not try; of many, {} are measured, the cheapest by \
         prediction and some of the others; the {FINALISTS} best then run against the pick in {TURNS} turns.\n\n\
         The aim is at most {GATE}.\n\n{}\n\
         | model | kind | step | shapes | candidates | measured | pick, us | best, us | pick / best | pick | best |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
        date(),
        commit(),
        machine.name,
        o.threads,
        rows.iter()
            .map(|r| r.subject.model)
            .collect::<BTreeSet<_>>()
            .len(),
        o.most,
        figures(
            "sweep",
            &format!("{}, {} threads", machine.name, o.threads),
            &[(
                format!("time of the picked schedule over the best of a sweep, {n} kernels"),
                format!("{mean:.3} times"),
            )],
        ),
    );
    for r in rows {
        let _ = writeln!(
            s,
            "| {} | {} | {} | {} | {} | {} | {:.1} | {:.1} | {:.2} | {} (predicted {:.1}) | {} (predicted {:.1}) |",
            names[r.subject.model],
            r.subject.kind,
            r.subject.step.replace('|', "/"),
            r.subject.shapes,
            r.candidates,
            r.measured,
            r.pick.us,
            r.best.us,
            r.pick.us / r.best.us,
            r.pick.what,
            r.pick.predicted_us,
            r.best.what,
            r.best.predicted_us,
        );
    }
    s
}

fn all(mut o: Options) -> Result<bool, String> {
    let machine = machines::find("cpu").map_err(|e| e.to_string())?;
    if o.threads == 0 {
        o.threads = machine.worker_count();
    }
    let mut quiet = Quiet::new(std::mem::take(&mut o.locks));
    let mut benches = Vec::new();
    let mut names = Vec::new();
    for name in &o.models {
        match Bench::open(name, o.threads, &machine) {
            Ok(b) => {
                benches.push(b);
                names.push(name.clone());
            }
            Err(e) => eprintln!("sweep: {e}"),
        }
    }
    let mut by_model: BTreeMap<usize, Vec<Subject>> = BTreeMap::new();
    for s in subjects(&benches, o.kernels, &mut quiet)? {
        by_model.entry(s.model).or_default().push(s);
    }
    let bar = ProgressBar::new(0);
    if let Ok(s) = ProgressStyle::with_template("{msg:28} [{bar:40}] {pos}/{len}") {
        bar.set_style(s.progress_chars("=> "));
    }
    let mut rows = Vec::new();
    for (m, list) in by_model {
        bar.set_message(names[m].clone());
        let found = sweep(&benches[m], list, o.most, &mut quiet, &bar)?;
        for r in &found {
            let line = format!(
                "{:20} {:10} {:>9.1} us ({:.1} at first), best {:>9.1} us, {:.2}  {}",
                names[m],
                r.subject.kind,
                r.pick.us,
                r.subject.us,
                r.best.us,
                r.pick.us / r.best.us,
                r.subject.step
            );
            bar.suspend(|| println!("{line}"));
        }
        rows.extend(found);
        let text = page(&o, &machine, &rows, &names);
        std::fs::write(&o.out, text).map_err(|e| format!("{}: {e}", o.out.display()))?;
    }
    bar.finish_and_clear();
    let (mean, n) = geometric(rows.iter().map(|r| r.pick.us / r.best.us));
    println!("pick / best: {mean:.3} over {n} kernels; the aim is at most {GATE}");
    Ok(n > 0 && mean <= GATE)
}

pub fn run(args: &[String]) -> ExitCode {
    let Some(o) = options(args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match all(o) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("sweep: {e}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn all_candidates_of_few_and_a_spread_of_many() {
        assert_eq!(chosen(3, 160), [0, 1, 2]);
        assert_eq!(chosen(1, 160), [0]);
        let many = chosen(1000, 90);
        assert_eq!(many.len(), 90);
        assert_eq!((many[59], many[60]), (59, 60));
        assert!(many.windows(2).all(|w| w[0] < w[1]) && many[89] > 900);
    }
}
