//! Models of the zoo on the GPU, step by step and by a kernel that stays.
use crate::broken::{BROKEN, caught};
use crate::device;
use crate::lines::{check, fact, item, left, row};
use crate::options::Options;
use report::units;
use shopfloor::{Launch, Session, Tensor};
use shopfloor_tools::planview;
use std::time::{Duration, Instant};
use testkit::zoo::{self, ZooModel};

/// Columns of the table.
pub const COLUMNS: &[&str] = &[
    "model",
    "way",
    "off by",
    "tolerance",
    "first",
    "request",
    "steps",
    "on the host",
];

/// The slice of the zoo, those that take least first.
pub const MODELS: &[&str] = &[
    "skl_mlp",
    "if_branches",
    "gnn_gcn",
    "digits_cnn",
    "silero_vad",
    "ppocr_cls",
    "ppocr_rec",
    "minilm_l6",
    "llama_gqa_f16",
    "llama_gqa_ts",
];

/// Requests of which the median is taken, at most.
const REQUESTS: usize = 50;

/// A model by name, from the folder beside the program or the repository's.
pub fn find(o: &Options, name: &str) -> Result<ZooModel, String> {
    match o.models_folder() {
        Some(f) => ZooModel::open(f.join(name)).map_err(|e| e.to_string()),
        None => zoo::find(name).ok_or("it is not at hand".into()),
    }
}

/// Those asked for, and those of them that are there; the others are said to be left out.
pub fn chosen(o: &Options) -> Vec<ZooModel> {
    let asked: Vec<&str> = match o.models.is_empty() {
        true => MODELS.to_vec(),
        false => o.models.iter().map(String::as_str).collect(),
    };
    let mut out = vec![];
    for name in asked {
        match find(o, name) {
            Ok(m) => out.push(m),
            Err(why) => left(name, why),
        }
    }
    out
}

type Outputs = Vec<(String, Tensor)>;

fn one(o: &Options, model: &ZooModel, launch: Launch) -> Result<Outputs, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let prepared = model.prepare_temporary().map_err(|e| text(&e))?;
    let engine = device::engine(o, launch)?;
    let session = Session::builder()
        .with_engine(engine.clone())
        .commit_from_file(&prepared.model)
        .map_err(|e| text(&e))?;
    let inputs = model.inputs().map_err(|e| text(&e))?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let began = Instant::now();
    let outputs = session.run(&named).map_err(|e| text(&e))?.into_vec();
    let first = began.elapsed();
    let r = model.check(&outputs).map_err(|e| text(&e))?;
    let mut took = vec![];
    // An emulated request is like the last, and takes its time.
    let (most, limit) = match engine.device().emulated_ns() {
        Some(_) => (1, Duration::ZERO),
        None => (REQUESTS, o.part_of(0.05).min(Duration::from_secs(2))),
    };
    let began = Instant::now();
    let mut changed = false;
    while took.is_empty() || (took.len() < most && began.elapsed() < limit) {
        let (then, clock) = (Instant::now(), engine.device().emulated_ns());
        let again = session.run(&named).map_err(|e| text(&e))?.into_vec();
        let clock = engine.device().emulated_ns().zip(clock);
        took.push(match clock {
            Some((now, then)) => (now - then) as f64 * 1e-9,
            None => then.elapsed().as_secs_f64(),
        });
        changed |= again != outputs;
    }
    took.sort_by(f64::total_cmp);
    let shares = planview::shares(&session);
    let host = shares.steps_by_device.get("cpu").copied().unwrap_or(0);
    let all: usize = shares.steps_by_device.values().sum::<usize>();
    row(vec![
        model.name().into(),
        launch.to_string(),
        format!("{:.1e}", r.worst()),
        format!("{:.1e}", r.tolerance),
        units::seconds(first.as_secs_f64()),
        units::seconds(took[took.len() / 2]),
        all.to_string(),
        host.to_string(),
    ]);
    match (r.passed(), changed) {
        (false, _) => Err(r.to_string()),
        (_, true) => Err("a later request gave other bits".into()),
        _ => Ok(outputs),
    }
}

/// Every model by every way, as far as there is time.
pub fn run(o: &Options) -> Result<(), String> {
    let all = chosen(o);
    if all.is_empty() {
        return Err("there are no models beside the program; pack it again".into());
    }
    if o.resident() != o.on {
        fact("what stays does so on", o.resident());
    }
    // What the slowest one before took per way tells whether another has room.
    let mut longest = Duration::ZERO;
    let mut n = 0;
    for model in all {
        let mut kept = vec![];
        for launch in Launch::ALL {
            n += 1;
            if n <= o.past {
                continue;
            }
            let what = format!("{}, {launch}", model.name());
            if o.rest() < longest {
                left(what, "there was no time left");
                continue;
            }
            item(n - 1, &what);
            let began = Instant::now();
            let came = caught(|| one(o, &model, launch));
            longest = longest.max(began.elapsed());
            let said = came.as_ref().map(|_| String::new()).map_err(String::clone);
            let well = check(&what, said);
            kept.extend(came.ok());
            // What a failed kernel leaves of the driver is of no use to the next model.
            if !well && !device::sound(o) {
                std::process::exit(i32::from(BROKEN));
            }
        }
        if kept.len() > 1 {
            let same = match kept.windows(2).all(|two| two[0] == two[1]) {
                true => Ok("all ways give the same bits".into()),
                false => Err("the ways give different bits".to_string()),
            };
            check(format!("{}, all ways", model.name()), same);
        }
    }
    Ok(())
}
