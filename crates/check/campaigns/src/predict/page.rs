//! The page and the table of steps.
use super::record::{ACTIVE, Held, ROUNDS, Record};
use crate::pages::{commit, date, figures};
use kernel::Target;
use machine::Machine;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Steps below this are dominated by what a clock can tell.
const LEAST_US: f64 = 20.0;
/// What is aimed at: the error of steps and of models.
const AIMS: (f64, f64) = (0.25, 0.20);
/// Models whose steps numbers of the cost model were fitted to. The others were looked at while the
/// model was made, so none is a clean holdout.
const FITTED: &[&str] = &[
    "audio_frontend",
    "bert_base_ts",
    "digits_cnn",
    "efficientnet_b0",
    "gpt2_kv",
    "int4_blocked_mlp",
    "lstm_text_classifier",
    "minilm_l6",
    "mobilenet_v3_small",
    "ppocr_rec",
    "resnet50_qdq",
    "resnet50_ts",
    "sd_unet",
    "shufflenet_v2_x1_0",
    "swin_t",
    "unet_small",
    "vit_tiny_ts",
    "yolo_like",
];

/// What came of one model.
struct Row<'a> {
    record: &'a Record,
    fitted: bool,
    measured_us: f64,
    predicted_us: f64,
    again_us: f64,
    /// Of its large steps: error, weight, name, family.
    large: Vec<(f64, f64, String, String)>,
    /// Of its large steps: what two runs differ by, weight.
    spread: Vec<(f64, f64)>,
}

/// The value below which half of the weight lies.
fn weighted_median(list: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let mut list: Vec<(f64, f64)> = list.collect();
    list.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = list.iter().map(|x| x.1).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    list.iter()
        .find(|x| {
            sum += x.1;
            sum >= half
        })
        .map(|x| x.0)
}

fn median(list: impl Iterator<Item = f64>) -> f64 {
    weighted_median(list.map(|v| (v, 1.0))).unwrap_or(0.0)
}

/// A share as a whole number of percent.
fn percent(v: f64) -> String {
    format!("{:.0} %", 100.0 * v)
}

impl Row<'_> {
    fn error(&self) -> f64 {
        (self.measured_us - self.predicted_us).abs() / self.measured_us.max(1e-9)
    }

    fn apart(&self) -> f64 {
        (self.measured_us - self.again_us).abs() / self.measured_us.max(1e-9)
    }

    fn steps(&self) -> Option<f64> {
        weighted_median(self.large.iter().map(|l| (l.0, l.1)))
    }
}

fn row<'a>(record: &'a Record, again: Option<(&Machine, &Target)>) -> Row<'a> {
    let held = record.held(again);
    let mut r = Row {
        record,
        fitted: FITTED.contains(&record.model.as_str()),
        measured_us: 0.0,
        predicted_us: 0.0,
        again_us: 0.0,
        large: vec![],
        spread: vec![],
    };
    for h in &held {
        let us = h.taken.us;
        r.measured_us += us;
        r.again_us += h.taken.again_us;
        r.predicted_us += h.predicted_us();
        if us / h.taken.runs.max(1.0) >= LEAST_US {
            let error = (us - h.predicted_us()).abs() / us;
            r.large.push((error, us, h.taken.name.clone(), h.family()));
            r.spread.push(((us - h.taken.again_us).abs() / us, us));
        }
    }
    r
}

/// How far steps are off in the median of their time.
fn of_steps(rows: &[&Row]) -> f64 {
    let all = rows.iter().flat_map(|r| r.large.iter().map(|l| (l.0, l.1)));
    weighted_median(all).unwrap_or(0.0)
}

/// The medians over some models and whether they keep the aims.
fn summary(what: &str, rows: &[&Row]) -> (String, bool) {
    let steps = of_steps(rows);
    let steps_apart = weighted_median(rows.iter().flat_map(|r| r.spread.iter().copied()));
    // A model's steps count alike whether it is large or small.
    let each = median(rows.iter().filter_map(|r| r.steps()));
    let model = median(rows.iter().map(|r| r.error()));
    let apart = median(rows.iter().map(|r| r.apart()));
    let good = steps <= AIMS.0 && model <= AIMS.1;
    let word = |v: f64, aim: f64| if v <= aim { "kept" } else { "missed" };
    let within = rows.iter().filter(|r| r.error() <= AIMS.1).count();
    let line = format!(
        "| {what} | {} | {} | {} | {} | {} ({}) | {} | {} | {} | {within} | {} ({}) |\n",
        rows.len(),
        rows.iter().map(|r| r.large.len()).sum::<usize>(),
        percent(steps),
        percent(each),
        percent(AIMS.0),
        word(steps, AIMS.0),
        percent(steps_apart.unwrap_or(0.0)),
        percent(model),
        percent(apart),
        percent(AIMS.1),
        word(model, AIMS.1),
    );
    (line, good)
}

/// The page, what a terminal is told, and whether the aims are kept on models that were not fitted to.
pub(super) fn page(
    list: &[Record],
    again: Option<(&Machine, &Target)>,
    gone: &[String],
    machine: &str,
) -> (String, String, bool) {
    let rows: Vec<Row> = list.iter().map(|r| row(r, again)).collect();
    let mut threads: Vec<usize> = rows.iter().map(|r| r.record.threads).collect();
    threads.sort_unstable_by(|a, b| b.cmp(a));
    threads.dedup();
    let mut short = String::from(
        "| models | | steps | steps off by | the same, by model | aim | two runs differ by | model off by | two runs differ by | within the aim | aim |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut good = true;
    for &t in &threads {
        for (word, fitted) in [
            ("other", Some(false)),
            ("fitted", Some(true)),
            ("all", None),
        ] {
            let some: Vec<&Row> = rows
                .iter()
                .filter(|r| r.record.threads == t && fitted.is_none_or(|f| r.fitted == f))
                .collect();
            if !some.is_empty() {
                let (line, kept) = summary(&format!("{word}, {t} threads"), &some);
                short += &line;
                good &= kept || fitted == Some(true);
            }
        }
    }
    let mut families: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for l in rows.iter().flat_map(|r| &r.large) {
        families.entry(&l.3).or_default().push((l.0, l.1));
    }
    let mut by_family = String::from("| family | steps | time | off by |\n|---|---|---|---|\n");
    for (f, v) in &families {
        let _ = writeln!(
            by_family,
            "| {f} | {} | {:.1} ms | {} |",
            v.len(),
            v.iter().map(|x| x.1).sum::<f64>() / 1e3,
            percent(weighted_median(v.iter().copied()).unwrap_or(0.0))
        );
    }
    let mut table = String::new();
    for r in &rows {
        let mut worst: Vec<&(f64, f64, String, String)> = r.large.iter().collect();
        worst.sort_by(|a, b| (b.0 * b.1).total_cmp(&(a.0 * a.1)));
        let worst: Vec<String> = worst
            .iter()
            .take(3)
            .map(|w| format!("{} ({})", w.2.replace('|', "/"), percent(w.0)))
            .collect();
        let share = |v: Option<f64>| v.map_or("–".into(), percent);
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {:.3} ms | {:.3} ms | {} | {} | {} | {} | {} |",
            r.record.model,
            if r.fitted { "fitted" } else { "" },
            r.record.threads,
            r.record.steps.len(),
            r.large.len(),
            r.measured_us / 1e3,
            r.predicted_us / 1e3,
            percent(r.error()),
            percent(r.apart()),
            share(r.steps()),
            share(weighted_median(r.spread.iter().copied())),
            worst.join(", ")
        );
    }
    let most = threads.first().copied().unwrap_or(0);
    let some: Vec<&Row> = rows.iter().filter(|r| r.record.threads == most).collect();
    let summed = figures(
        "predicted",
        machine,
        &[(
            format!(
                "predictions off by, medians of steps and of models, {} models, {most} threads",
                some.len()
            ),
            format!(
                "{} and {}",
                percent(of_steps(&some)),
                percent(median(some.iter().map(|r| r.error())))
            ),
        )],
    );
    let missing: String = gone.iter().map(|g| format!("- {g}\n")).collect();
    let text = format!(
        "# Predicted beside measured\n\n{}, commit {}, {machine}. Each model at the sizes of its reference; a step's time is the median of {ACTIVE} requests in the best of {ROUNDS} rounds, a step that runs several times in one counts with the sum; two such runs take turns round by round. `model` is |measured - predicted| / measured of the sums over all steps that ran, those of blocks whose sizes only the data gives included; `steps` is the time-weighted median of the same over steps of at least {LEAST_US} us. Beside each is what two identical runs differ by. Numbers of the cost model that no calibration measures were fitted to the models marked as fitted; the forms of its formulas were chosen with all of them in view, so the others are no clean holdout. Made by `cargo xtask zoo --predict`.\n\n{summed}\nThe medians: over the time of all steps, over models, and how many models are within the aim.\n\n{short}\nBy family, all models and threads:\n\n{by_family}{missing}\n| model | | threads | steps | of {LEAST_US} us | measured | predicted | model | again | steps | again | furthest off |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n{table}",
        date(),
        commit(),
    );
    (text, short + "\n" + &by_family, good)
}

/// Every step, tab-separated.
pub(super) fn csv(list: &[Record], again: Option<(&Machine, &Target)>) -> String {
    let mut out = String::from(
        "model\tthreads\tstep\tfamily\tus\tagain\tpredicted\tlatency\tfixed\tlevels\tunits\tshapes\tschedule\n",
    );
    for r in list {
        for h in r.held(again) {
            let part = |l: &[machine::Share]| {
                let one = |s: &machine::Share| format!("{}={:.1}", s.name, s.seconds * 1e6);
                l.iter().map(one).collect::<Vec<_>>().join(" ")
            };
            let Held { taken, cost, .. } = &h;
            let (shapes, how) = h.shapes();
            let _ = writeln!(
                out,
                "{}\t{}\t{}\t{}\t{:.2}\t{:.2}\t{:.2}\t{:.2}\t{:.2}\t{}\t{}\t{shapes}\t{how}",
                r.model,
                r.threads,
                taken.name,
                h.family(),
                taken.us,
                taken.again_us,
                h.predicted_us(),
                cost.as_ref().map_or(0.0, |c| c.latency_s) * 1e6,
                cost.as_ref().map_or(0.0, |c| c.launch_s) * 1e6,
                cost.as_ref().map_or(String::new(), |c| part(&c.levels)),
                cost.as_ref().map_or(String::new(), |c| part(&c.units)),
            );
        }
    }
    out
}
