//! Every kernel of the models, timed by the GPU's clock beside its prediction.
use crate::broken::{BROKEN, caught};
use crate::device::{self, Gpu};
use crate::lines::{Line, Timed, Torch, check, fact, item, left, say};
use crate::options::Options;
use crate::parts::models;
use kernel::{Axis, Family, Kernel, Stmt, TileProgram};
use layout::DType;
use machine::{Machine, NumType, UnitClass, Work};
use plan::{Activity, Decisions, StepWork, Timeline};
use report::units;
use shopfloor::{Launch, Session, inputs};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use testkit::zoo::ZooModel;

/// Requests of which each kernel's median is taken, at most.
const REQUESTS: usize = 30;

/// What `machine` takes for `w` at best, in seconds, and what gives that.
fn roof(w: &Work, machine: &Machine) -> (f64, String) {
    let rate = machine.memory().read.all.value;
    let mut best = (w.unique_bytes() / rate, machine.memory().name.clone());
    for &(class, dtype, n) in &w.ops {
        // Products of short numbers are what tensor cores are for, whatever this kernel used.
        let short = matches!(dtype, NumType::F16 | NumType::Bf16);
        let tensor = (class == UnitClass::Fma && short)
            .then(|| machine.unit(UnitClass::Tensor, dtype))
            .flatten();
        let unit = tensor
            .or_else(|| machine.unit(class, dtype))
            .or_else(|| machine.unit(class, NumType::F32));
        if let Some(u) = unit
            && n / u.all.value > best.0
        {
            best = (n / u.all.value, u.name.clone());
        }
    }
    best
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<i64>;

fn torch_dtype(d: DType) -> Option<String> {
    Some(
        match d {
            DType::F32 => "float32",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            _ => return None,
        }
        .into(),
    )
}

/// The product or convolution that a kernel is made around, as PyTorch has it.
fn torch(k: &Kernel, lookup: Lookup<'_>) -> Option<Torch> {
    let extent = |a: &Axis| a.extent.eval(lookup);
    let mut contracts = k.body.iter().filter_map(|s| match s {
        Stmt::Contract { a, b, over, .. } => Some((*a, *b, over)),
        _ => None,
    });
    let (a, b, over) = contracts.next()?;
    if contracts.next().is_some() {
        return None;
    }
    let dtype = torch_dtype(k.operands.first()?.dtype)?;
    match k.family {
        Family::Contract => {
            let (a, b) = (&k.tiles[a as usize].axes, &k.tiles[b as usize].axes);
            let product = |keep: &dyn Fn(u16) -> bool| -> Option<i64> {
                let own = (0..k.axes.len() as u16).filter(|&i| keep(i));
                own.map(|i| extent(&k.axes[i as usize])).product()
            };
            let (ia, ib) = (|i| a.contains(&i), |i| b.contains(&i));
            Some(Torch::Matmul {
                dtype,
                batch: product(&|i| ia(i) && ib(i) && !over.contains(&i))?,
                m: product(&|i| ia(i) && !ib(i))?,
                n: product(&|i| ib(i) && !ia(i))?,
                k: product(&|i| over.contains(&i))?,
            })
        }
        Family::Conv => {
            let named = |n: &str| k.axes.iter().position(|a| a.name == n);
            let size = |n: &str| named(n).map_or(Some(1), |i| extent(&k.axes[i]));
            let x = &k.operands.first()?.access;
            let step = |n: &str| {
                let i = named(n)? as u16;
                let t = x.terms.iter().find(|t| t.axis == i)?;
                t.leaves.last()?.stride.eval(lookup)
            };
            // Without a dilation a step of the output is so many steps of the window.
            let stride = |out: &str, tap: &str| match (step(out), step(tap)) {
                (Some(o), Some(t)) if t > 0 && o >= t => o / t,
                _ => 1,
            };
            let (stride, window) = (
                [stride("oh", "r"), stride("ow", "s")],
                [size("r")?, size("s")?],
            );
            // One axis has its window under the first name.
            let (stride, window) = match named("oh") {
                None => ([1, stride[1].max(1)], [1, window[0] * window[1]]),
                Some(_) => (stride, window),
            };
            let out = [size("oh")?, size("ow")?];
            let groups = size("g")?;
            Some(Torch::Conv {
                dtype,
                batch: size("b")?,
                groups,
                channels: groups * size("c")?,
                filters: groups * size("oc")?,
                size: [0, 1].map(|d| (out[d] - 1) * stride[d] + window[d]),
                window,
                stride,
            })
        }
        _ => None,
    }
}

/// What is known of a step beside its time.
struct Known {
    family: String,
    shapes: String,
    schedule: String,
    predicted_us: f64,
    roof: (f64, String),
    torch: Option<Torch>,
}

fn known(session: &Session, named: &[(String, shopfloor::Tensor)]) -> BTreeMap<String, Known> {
    let sizes = inputs::sizes_of(session.model(), named);
    let machine = session.runtime().engine().device().machine().clone();
    let mut out = BTreeMap::new();
    for plan in session.runtime().plans() {
        let p = plan.plan();
        let lookup = |s: &str| {
            sizes
                .get(s)
                .copied()
                .or_else(|| p.dims.get(s).map(|r| r.hi))
        };
        for (b, block) in p.blocks().enumerate() {
            for (step, program) in block.steps.iter().zip(plan.step_programs(b)) {
                let (StepWork::Kernel { kernel, .. }, Some(t)) = (&step.work, &program) else {
                    continue;
                };
                let t: &TileProgram = t;
                let Some(work) = kernel::work::work(t, &machine, &lookup) else {
                    continue;
                };
                let view = report::StepView::new(0, step, &p.dims, &Decisions::default());
                out.entry(step.name.clone()).or_insert(Known {
                    family: view.family,
                    shapes: view.shapes,
                    schedule: view.schedule,
                    predicted_us: view.predicted_us,
                    roof: roof(&work, &machine),
                    torch: torch(kernel, &lookup),
                });
            }
        }
    }
    out
}

fn median(v: &mut [f64]) -> f64 {
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(f64::NAN)
}

fn one(o: &Options, model: &ZooModel, events_us: f64) -> Result<String, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let prepared = model.prepare_temporary().map_err(|e| text(&e))?;
    let engine = device::engine(o, Launch::Steps)?;
    let session = Session::builder()
        .with_engine(engine.clone())
        .commit_from_file(&prepared.model)
        .map_err(|e| text(&e))?;
    let named = model.inputs().map_err(|e| text(&e))?;
    let given = inputs::borrowed(&named);
    let (warm, most, limit) = match engine.device().emulated_ns() {
        Some(_) => (0, 1, Duration::ZERO),
        None => (3, REQUESTS, o.part_of(0.1).min(Duration::from_secs(3))),
    };
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut requests = 0;
    let began = Instant::now();
    for turn in 0..warm + most {
        let mut t = Timeline::default();
        session.run_timed(&given, &mut t).map_err(|e| text(&e))?;
        if turn < warm {
            continue;
        }
        requests += 1;
        for s in t.device.iter().filter(|s| s.what == Activity::Kernel) {
            if let Some(name) = t.steps.get(s.step as usize) {
                let us = (s.end_ns.saturating_sub(s.start_ns)) as f64 * 1e-3 - events_us;
                times.entry(name.clone()).or_default().push(us.max(0.1));
            }
        }
        if began.elapsed() > limit {
            break;
        }
    }
    let known = known(&session, &named);
    // Steps that are alike are one row.
    let mut alike: BTreeMap<[&str; 3], Vec<(&str, &Known)>> = BTreeMap::new();
    for (name, k) in known.iter().filter(|(n, _)| times.contains_key(*n)) {
        let key = [&k.family[..], &k.shapes, &k.schedule];
        alike.entry(key).or_default().push((name, k));
    }
    let rows = alike.len();
    for steps in alike.into_values() {
        let Some((_, k)) = steps.first() else {
            continue;
        };
        let mut all: Vec<f64> = vec![];
        for (name, _) in &steps {
            all.extend(times.get(*name).into_iter().flatten());
        }
        let launches = all.len() / requests.max(1);
        let count = steps.len() as f64;
        say(&Line::Kernel(Timed {
            model: model.name().into(),
            family: k.family.clone(),
            shapes: k.shapes.clone(),
            launches,
            predicted_us: steps.iter().map(|s| s.1.predicted_us).sum::<f64>() / count,
            us: median(&mut all),
            roof_us: k.roof.0 * 1e6,
            roof: k.roof.1.clone(),
            torch: k.torch.clone(),
        }));
    }
    match rows {
        0 => Err("the GPU's clock told of no kernel".into()),
        n => Ok(format!("{n} kernels, {requests} requests")),
    }
}

/// Every model, as far as there is time.
pub fn run(o: &Options) -> Result<(), String> {
    let all = models::chosen(o);
    if all.is_empty() {
        return Err("there are no models beside the program; pack it again".into());
    }
    let context = Gpu::open(o)?.context()?;
    let events = cuda::calibrate::events_add(&context).map_err(|e| e.to_string())?;
    let taken = units::seconds(events);
    fact("what two events add, which is taken off", taken);
    let mut longest = Duration::ZERO;
    for (n, model) in all.into_iter().enumerate() {
        if (n as u64) < o.past {
            continue;
        }
        if o.rest() < longest {
            left(model.name(), "there was no time left");
            continue;
        }
        item(n as u64, model.name());
        let began = Instant::now();
        let well = check(model.name(), caught(|| one(o, &model, events * 1e6)));
        longest = longest.max(began.elapsed());
        if !well && !device::sound(o) {
            std::process::exit(i32::from(BROKEN));
        }
    }
    Ok(())
}
