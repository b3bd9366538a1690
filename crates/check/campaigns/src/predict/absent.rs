//! `cargo xtask zoo --predict --on NAME`: models planned for machines that need not be here, with kernels of ours
//! and with the vendor's, written to `bench/gpu/PREDICTED.md`.
use super::Options;
use crate::pages::{commit, date, figures};
use indicatif::{ProgressBar, ProgressStyle};
use machine::Machine;
use plan::Plan;
use shopfloor::{ModelOptions, Precision, machines};
use shopfloor_tools::planview;
use shopfloor_tools::targets::{Kernels, Planning};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;
use testkit::printed;
use testkit::zoo::{self, ZooModel};

/// A model on a machine, by both libraries.
struct Row {
    model: String,
    /// Seconds of a request, steps, and the step that takes longest with its share.
    ours: Total,
    vendor: Total,
    /// Seconds that planning took.
    planning_s: f64,
}

struct Total {
    seconds: f64,
    steps: usize,
    longest: (String, f64),
}

impl Total {
    fn of(plan: &Plan) -> Total {
        let mut t = Total {
            seconds: 0.0,
            steps: 0,
            longest: (String::new(), 0.0),
        };
        for s in plan.blocks().flat_map(|b| &b.steps) {
            t.steps += 1;
            t.seconds += s.predicted.time_s;
            if s.predicted.time_s > t.longest.1 {
                t.longest = (s.name.clone(), s.predicted.time_s);
            }
        }
        t
    }
}

impl Row {
    fn ratio(&self) -> f64 {
        self.ours.seconds / self.vendor.seconds
    }
}

fn row(found: &ZooModel, machine: &Machine, precision: Precision) -> Result<Row, String> {
    let said = |e: &dyn std::fmt::Display| e.to_string();
    let prepared = found.prepare_temporary().map_err(|e| said(&e))?;
    let inputs = found.inputs().map_err(|e| said(&e))?;
    let options = ModelOptions {
        precision,
        // What a model says of itself is on the device from request to request, as its users have it.
        find_states: true,
        ..ModelOptions::default()
    };
    let model = printed::opened_with(&prepared.model, &options)?;
    let dims = printed::dims(&model, &inputs);
    let plan = |kernels| {
        let planning = Planning {
            kernels,
            ..Planning::default()
        };
        planview::plan_for(&model, machine, &planning, &dims).map_err(|e| e.to_string())
    };
    let begun = Instant::now();
    let ours = Total::of(&plan(Kernels::Ours)?);
    let planning_s = begun.elapsed().as_secs_f64();
    if ours.steps == 0 {
        return Err("nothing of it is planned before a request gives its sizes".into());
    }
    Ok(Row {
        model: found.name().into(),
        ours,
        vendor: Total::of(&plan(Kernels::Vendor)?),
        planning_s,
    })
}

fn geometric_mean(rows: &[Row]) -> f64 {
    let sum: f64 = rows.iter().map(|r| r.ratio().ln()).sum();
    (sum / rows.len().max(1) as f64).exp()
}

fn table(title: &str, rows: &[Row], gone: &[String], out: &mut String) -> std::fmt::Result {
    writeln!(out, "## {title}\n")?;
    let over = rows.iter().filter(|r| r.ratio() > 2.0).count();
    writeln!(
        out,
        "{} models: ours by the vendor's {:.2} in the geometric mean, {over} above 2. Planning with kernels of ours took {:.1} s in the median, {:.1} s at most{}.\n",
        rows.len(),
        geometric_mean(rows),
        median(rows.iter().map(|r| r.planning_s).collect()),
        rows.iter().map(|r| r.planning_s).fold(0.0, f64::max),
        if cfg!(debug_assertions) {
            ", by a development build"
        } else {
            ""
        },
    )?;
    writeln!(
        out,
        "| model | ours | vendor's | ratio | steps | vendor's | longest step |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for r in rows {
        writeln!(
            out,
            "| {} | {:.3} ms | {:.3} ms | {:.2} | {} | {} | {} ({:.0} %) |",
            r.model,
            r.ours.seconds * 1e3,
            r.vendor.seconds * 1e3,
            r.ratio(),
            r.ours.steps,
            r.vendor.steps,
            r.ours.longest.0.replace('|', "/"),
            100.0 * r.ours.longest.1 / r.ours.seconds.max(1e-12),
        )?;
    }
    for g in gone {
        writeln!(out, "\n{g}")?;
    }
    writeln!(out)
}

fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    list.get(list.len() / 2).copied().unwrap_or(0.0)
}

/// An error without the folder that the model's file lies in, which is another one on every machine.
fn without(e: &str, folder: &Path) -> String {
    e.replace(&format!("{}/", folder.display()), "")
}

/// What a page calls the models of a folder.
pub fn called(dir: &Path) -> String {
    dir.file_name()
        .map_or_else(String::new, |n| n.to_string_lossy().into_owned())
}

/// The models that are asked for: those of the names, else all but large ones, of the zoo or of a folder.
fn models(o: &Options) -> Result<Vec<ZooModel>, String> {
    let mut all = match &o.models {
        Some(dir) => zoo::models_in(dir).map_err(|e| e.to_string())?,
        None => zoo::names().iter().filter_map(|n| zoo::find(n)).collect(),
    };
    for n in &o.names {
        if !all.iter().any(|m| m.name() == n) {
            return Err(format!("{n} is not at hand"));
        }
    }
    all.retain(|m| match o.names.is_empty() {
        true => o.models.is_some() || !m.meta().large,
        false => o.names.iter().any(|n| n == m.name()),
    });
    Ok(all)
}

/// Plans the models for every machine and writes the page.
///
/// # Errors
/// A machine is not known, has no vendor's library, or the page cannot be written.
pub fn all(o: &Options) -> Result<bool, String> {
    let models = models(o)?;
    let list: Result<Vec<Machine>, String> =
        o.on.iter()
            .map(|n| machines::find(n).map_err(|e| e.to_string()))
            .collect();
    let list = list?;
    let bar = ProgressBar::new((models.len() * list.len() * o.precision.len()) as u64);
    if let Ok(s) = ProgressStyle::with_template("{msg:40} [{bar:40}] {pos}/{len}") {
        bar.set_style(s.progress_chars("=> "));
    }
    let (mut tables, mut short, mut whole) = (String::new(), String::new(), true);
    let mut told = vec![];
    let all = list
        .iter()
        .flat_map(|m| o.precision.iter().map(move |&p| (m, p)));
    for (machine, precision) in all {
        let title = match &o.models {
            None => format!("{}, {precision}", machine.name),
            Some(dir) => format!("{}, models in {}, {precision}", machine.name, called(dir)),
        };
        let (mut rows, mut gone) = (vec![], vec![]);
        for m in &models {
            bar.set_message(format!("{}, {title}", m.name()));
            match row(m, machine, precision) {
                Ok(r) => rows.push(r),
                Err(e) => gone.push(format!("{}: {}", m.name(), without(&e, m.folder()))),
            }
            bar.inc(1);
        }
        whole &= gone.is_empty();
        table(&title, &rows, &gone, &mut tables).map_err(|e| e.to_string())?;
        let mean = format!("{:.2}", geometric_mean(&rows));
        let n = rows.len();
        let _ = writeln!(short, "{title}: ours by the vendor's {mean}, {n} models");
        told.push((
            format!("predicted for {title}, ours by the vendor's, {n} models"),
            mean,
        ));
    }
    bar.finish_and_clear();
    let marker = match &o.models {
        None => "predicted-gpu".into(),
        Some(dir) => format!("predicted-gpu-{}", called(dir)),
    };
    let page = format!(
        "# Predicted for GPUs that need not be here\n\n{}, commit {}. Each model at the sizes of its reference, planned with kernels of ours and with those that the vendor's library is predicted to launch (f32 by multiply-adds, or in TF32 where tf32 is said, f16 and bf16 on tensor cores); a time is the sum over the steps of a request, copies between host and device included. Nothing here was measured. Made by `cargo xtask zoo --predict --on NAME`.\n\n{}\n{tables}",
        date(),
        commit(),
        figures(&marker, "not run", &told),
    );
    std::fs::write(&o.out, page).map_err(|e| format!("{}: {e}", o.out.display()))?;
    print!("{short}");
    Ok(whole)
}
