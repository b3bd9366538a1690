//! `cargo xtask zoo`: every model of the zoo against its reference, as a table; with `--predict`
//! first, its predicted beside its measured time. It fails where a model does not agree, and where
//! host steps are more than 3% of all steps or one takes more than 5% of a request of over 1 ms.
use shopfloor::{Session, SessionBuilder, Tensor};
use std::path::Path;
use std::process::ExitCode;
use testkit::zoo::{self, Report, ZooModel};

/// What came of one model.
struct Row {
    report: Option<Report>,
    steps: usize,
    host: usize,
    time: HostTime,
    problem: Option<String>,
}

/// What host steps take of a request: blocks only, operators whose results' sizes nobody knows
/// before run between them.
#[derive(Default)]
struct HostTime {
    /// Seconds of the whole request.
    total: f64,
    /// Share of all host steps.
    share: f64,
    /// The longest one, with its share.
    longest: Option<(String, f64)>,
}

/// Requests before those that are looked at, so that what happens once has happened.
const WARM: usize = 2;
/// Requests of which the shortest is looked at: what else the machine did is in it least.
const TIMED: usize = 5;
/// Share of all steps that may be host steps.
const SHARE: f64 = 0.03;
/// Share of a request that one host step may take, where the request takes this many seconds.
const LONGEST: (f64, f64) = (0.05, 1e-3);

fn host_time(session: &Session, named: &[(&str, &Tensor)]) -> Result<HostTime, String> {
    for _ in 0..WARM {
        session.run(named).map_err(|e| e.to_string())?;
    }
    let mut best: Option<plan::Timeline> = None;
    for _ in 0..TIMED {
        let mut t = plan::Timeline::default();
        session
            .run_timed(named, &mut t)
            .map_err(|e| e.to_string())?;
        if best.as_ref().is_none_or(|b| t.total_ns < b.total_ns) {
            best = Some(t);
        }
    }
    let t = best.unwrap_or_default();
    let mut names = std::collections::BTreeSet::new();
    for plan in session.runtime().plans() {
        for s in plan.plan().blocks().flat_map(|b| &b.steps) {
            if matches!(s.work, plan::StepWork::Host { .. }) {
                names.insert(s.name.clone());
            }
        }
    }
    let total = t.total_ns.max(1) as f64;
    let mut time = HostTime {
        total: total * 1e-9,
        ..HostTime::default()
    };
    for (name, ns) in t.steps.iter().zip(t.step_wall_ns()) {
        if !names.contains(name) {
            continue;
        }
        let share = ns as f64 / total;
        time.share += share;
        if time.longest.as_ref().is_none_or(|(_, s)| share > *s) {
            time.longest = Some((name.clone(), share));
        }
    }
    Ok(time)
}

fn once(model: &ZooModel, path: &Path, builder: SessionBuilder) -> Result<Row, String> {
    let session = builder.commit_from_file(path).map_err(|e| e.to_string())?;
    let inputs = model.inputs().map_err(|e| e.to_string())?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let outputs = session.run(&named).map_err(|e| e.to_string())?;
    let time = host_time(&session, &named)?;
    let report = model
        .check(&outputs.into_vec())
        .map_err(|e| e.to_string())?;
    // Steps of what was planned; bodies and branches that did not run are not among them.
    let (mut steps, mut host) = (0, 0);
    for plan in session.runtime().plans() {
        for b in plan.plan().blocks() {
            steps += b.steps.len();
            let hosted = |s: &&plan::Step| matches!(s.work, plan::StepWork::Host { .. });
            host += b.steps.iter().filter(hosted).count();
        }
    }
    Ok(Row {
        report: Some(report),
        steps,
        host,
        time,
        problem: None,
    })
}

fn ways(model: &ZooModel, path: &Path) -> Vec<(&'static str, Row)> {
    let mut fixed = Session::builder().with_threads(2);
    for (n, t) in model.inputs().unwrap_or_default() {
        fixed = fixed.with_shape(&n, t.shape());
    }
    let all = [
        ("symbolic, 1 thread", Session::builder().with_threads(1)),
        ("symbolic, 2 threads", Session::builder().with_threads(2)),
        ("fixed, 2 threads", fixed),
        (
            "every dim open, 2 threads",
            Session::builder().with_threads(2).with_open_dims(),
        ),
    ];
    all.into_iter()
        .map(|(how, b)| {
            let row = once(model, path, b).unwrap_or_else(|problem| Row {
                report: None,
                steps: 0,
                host: 0,
                time: HostTime::default(),
                problem: Some(problem),
            });
            (how, row)
        })
        .collect()
}

fn good(r: &Row) -> bool {
    r.report.as_ref().is_some_and(Report::passed)
}

fn agree(rows: &[(&str, Row)]) -> bool {
    rows.iter().all(|(_, r)| good(r))
}

/// A model's line of the table.
fn say(name: &str, model: &ZooModel, rows: &[(&str, Row)]) {
    let worst = rows
        .iter()
        .filter_map(|(_, r)| r.report.as_ref().map(Report::worst))
        .fold(0.0, f64::max);
    let tolerance = model.meta().tolerance;
    let last = &rows[rows.len() - 1].1;
    println!(
        "{name:<26}{:<8}{worst:>11.2e}{tolerance:>11.1e}{:>7}{:>6}{:>7.1}%{:>8.1}%",
        if agree(rows) { "yes" } else { "NO" },
        last.steps,
        last.host,
        last.time.share * 100.0,
        last.time.longest.as_ref().map_or(0.0, |l| l.1) * 100.0,
    );
}

/// What is wrong with each way that does not agree.
fn complain(rows: &[(&str, Row)]) {
    for (how, r) in rows.iter().filter(|(_, r)| !good(r)) {
        let why = match (&r.problem, &r.report) {
            (Some(p), _) => p.clone(),
            (None, Some(r)) => r.to_string(),
            (None, None) => String::new(),
        };
        println!("    {how}: {why}");
    }
}

pub fn run(args: &[String]) -> ExitCode {
    if args.first().is_some_and(|a| a == "--predict") {
        return crate::predict::run(&args[1..]);
    }
    if let Some(at) = args.iter().position(|a| a == "--on") {
        let Some(on) = args.get(at + 1) else {
            eprintln!("zoo: --on takes a device, such as wgpu");
            return ExitCode::from(2);
        };
        let rest: Vec<String> = [&args[..at], &args[at + 2..]].concat();
        return crate::zoo_on::run(on, &rest);
    }
    let large = args.iter().any(|a| a == "--large");
    let names: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    if let Some(a) = args.iter().find(|a| a.starts_with("--") && *a != "--large") {
        eprintln!("zoo: {a} is no option; say [--large] [NAME...], or --predict first");
        return ExitCode::from(2);
    }
    println!(
        "{:<26}{:<8}{:>11}{:>11}{:>7}{:>6}{:>8}{:>9}",
        "model", "agrees", "metric", "tolerance", "steps", "host", "of time", "longest"
    );
    let (mut ran, mut wrong, mut left) = (0, 0, Vec::new());
    let (mut steps, mut host, mut long) = (0, 0, 0);
    for name in zoo::names() {
        if !names.is_empty() && !names.iter().any(|n| **n == name) {
            continue;
        }
        let Some(model) = zoo::find(&name) else {
            continue;
        };
        if model.meta().large && !large {
            left.push(name);
            continue;
        }
        let prepared = match model.prepare_temporary() {
            Ok(p) => p,
            Err(e) => {
                println!("{name:<26}no      {e}");
                wrong += 1;
                continue;
            }
        };
        ran += 1;
        let rows = ways(&model, prepared.model.as_path());
        wrong += usize::from(!agree(&rows));
        say(&name, &model, &rows);
        let last = &rows[rows.len() - 1].1;
        steps += last.steps;
        host += last.host;
        if let Some((step, share)) = &last.time.longest
            && *share > LONGEST.0
            && last.time.total > LONGEST.1
        {
            println!(
                "    host step '{step}' takes {:.1}% of {:.2} ms",
                share * 100.0,
                last.time.total * 1e3
            );
            long += 1;
        }
        complain(&rows);
    }
    println!("{ran} models, {wrong} do not agree");
    println!(
        "{host} of {steps} steps are host steps ({:.1}%); {long} of them take more than 5% of a request of over 1 ms",
        100.0 * host as f64 / steps.max(1) as f64
    );
    if !left.is_empty() {
        println!(
            "left out: {} ({}); add --large",
            left.len(),
            left.join(", ")
        );
    }
    // The share of the steps is a rule for the zoo as a whole.
    let few = !names.is_empty() || host as f64 <= SHARE * steps as f64;
    if wrong == 0 && long == 0 && few {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
