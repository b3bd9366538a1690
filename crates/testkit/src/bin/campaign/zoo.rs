//! `cargo xtask zoo`: every model of the zoo against its reference, as a table.
use shopfloor::{Session, SessionBuilder, Tensor};
use std::path::Path;
use std::process::ExitCode;
use testkit::zoo::{self, Report, ZooModel};

/// What came of one model.
struct Row {
    report: Option<Report>,
    steps: usize,
    host: usize,
    problem: Option<String>,
}

fn once(model: &ZooModel, path: &Path, builder: SessionBuilder) -> Result<Row, String> {
    let session = builder.commit_from_file(path).map_err(|e| e.to_string())?;
    let inputs = model.inputs().map_err(|e| e.to_string())?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let outputs = session.run(&named).map_err(|e| e.to_string())?;
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
    ];
    all.into_iter()
        .map(|(how, b)| {
            let row = once(model, path, b).unwrap_or_else(|problem| Row {
                report: None,
                steps: 0,
                host: 0,
                problem: Some(problem),
            });
            (how, row)
        })
        .collect()
}

pub fn run(args: &[String]) -> ExitCode {
    let large = args.iter().any(|a| a == "--large");
    let names: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    if let Some(a) = args.iter().find(|a| a.starts_with("--") && *a != "--large") {
        eprintln!("zoo: {a} is no option; say [--large] [NAME...]");
        return ExitCode::from(2);
    }
    println!(
        "{:<26}{:<8}{:>11}{:>11}{:>7}{:>6}",
        "model", "agrees", "metric", "tolerance", "steps", "host"
    );
    let (mut ran, mut wrong, mut left) = (0, 0, Vec::new());
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
        let good = |r: &Row| r.report.as_ref().is_some_and(Report::passed);
        let agrees = rows.iter().all(|(_, r)| good(r));
        wrong += usize::from(!agrees);
        let worst = rows
            .iter()
            .filter_map(|(_, r)| r.report.as_ref().map(Report::worst))
            .fold(0.0, f64::max);
        let tolerance = model.meta().tolerance;
        let last = &rows[rows.len() - 1].1;
        println!(
            "{name:<26}{:<8}{worst:>11.2e}{tolerance:>11.1e}{:>7}{:>6}",
            if agrees { "yes" } else { "NO" },
            last.steps,
            last.host
        );
        for (how, r) in rows.iter().filter(|(_, r)| !good(r)) {
            let why = match (&r.problem, &r.report) {
                (Some(p), _) => p.clone(),
                (None, Some(r)) => r.to_string(),
                (None, None) => String::new(),
            };
            println!("    {how}: {why}");
        }
    }
    println!("{ran} models, {wrong} do not agree");
    if !left.is_empty() {
        println!(
            "left out: {} ({}); add --large",
            left.len(),
            left.join(", ")
        );
    }
    if wrong == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
