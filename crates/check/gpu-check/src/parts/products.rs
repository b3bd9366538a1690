//! Products in every precision beside their predictions and cuBLAS, and the stages of a recipe for Hopper one by one, so
//! that a shortfall names its stage.
use crate::broken::{BROKEN, caught};
use crate::device::{self, Gpu};
use crate::lines::{check, fact, item, left, row};
use crate::options::Options;
use ::device::Device as _;
use layout::DType;
use plan::{Activity, StepWork, Timeline};
use planner::{PlanOptions, Planner};
use report::units;
use runtime::Engine;
use shopfloor::{Precision, Session, Tensor};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::handwritten;
use testkit::lab::{self, STAGES, Stage};

/// Columns of the table.
pub const COLUMNS: &[&str] = &[
    "product",
    "schedule",
    "predicted",
    "measured",
    "TFLOP/s",
    "of the stage's",
    "of cuBLAS's",
    "error",
];

/// Requests of which the median is taken, at most.
const REQUESTS: usize = 20;
/// Rows of which the error is taken.
const LOOKED_AT: usize = 4;

/// A product to be timed.
struct Subject {
    dtype: DType,
    precision: Precision,
    rows: i64,
    /// Columns and depth.
    wide: i64,
    /// The schedules that are tried; `None` for all.
    stage: Option<&'static Stage>,
}

impl Subject {
    fn name(&self) -> String {
        let what = match self.dtype {
            // bf16 is a type as well.
            DType::F32 if self.precision == Precision::Bf16 => "f32:bf16".into(),
            DType::F32 => self.precision.to_string(),
            d => d.to_string(),
        };
        match self.rows == self.wide {
            true => format!("{what} {}^3", self.wide),
            false => format!("{what} {} x {} x {}", self.rows, self.wide, self.wide),
        }
    }

    fn flop(&self) -> f64 {
        2.0 * self.rows as f64 * (self.wide as f64).powi(2)
    }

    /// What the stage took on an H100.
    fn of_stage_s(&self) -> Option<f64> {
        let n = lab::SIZES.iter().position(|&n| n == self.wide)?;
        let tflops = self.stage?.measured[n];
        (self.rows == self.wide).then(|| self.flop() / (tflops * 1e12))
    }
}

/// All that are timed on a GPU of this architecture, small ones for one that is emulated.
fn subjects(hopper: bool, emulated: bool) -> Vec<Subject> {
    let types = [
        (DType::BF16, Precision::F32),
        (DType::F16, Precision::F32),
        (DType::F32, Precision::F32),
        (DType::F32, Precision::Bf16x3),
        (DType::F32, Precision::Tf32),
        (DType::F32, Precision::Bf16),
        (DType::I8, Precision::F32),
    ];
    let (squares, few, wide): (&[i64], &[i64], i64) = match emulated {
        true => (&[256], &[16], 256),
        false => (&lab::SIZES, &lab::ROWS, lab::WIDE),
    };
    let stages: &'static [Stage] = if hopper { &STAGES } else { &[] };
    let mut out = vec![];
    for &n in squares {
        out.extend(stages.iter().map(|s| Subject {
            dtype: DType::BF16,
            precision: Precision::F32,
            rows: n,
            wide: n,
            stage: Some(s),
        }));
    }
    for (dtype, precision) in types {
        let squares = squares.iter().map(|&n| (n, n));
        let few = few.iter().map(|&m| (m, wide));
        out.extend(squares.chain(few).map(|(rows, wide)| Subject {
            dtype,
            precision,
            rows,
            wide,
            stage: None,
        }));
    }
    out
}

/// Values that repeat, of -127 to 127 for integers.
fn values(dtype: DType, shape: [i64; 2], seed: u64) -> Result<Tensor, String> {
    let shape = shape.map(|n| n as usize);
    if dtype != DType::I8 {
        return Ok(handwritten::values(dtype, &shape, seed));
    }
    let drawn = handwritten::values(DType::F32, &shape, seed);
    let mut t = Tensor::zeros(dtype, &shape).map_err(|e| e.to_string())?;
    (0..t.len()).for_each(|i| t.set_i64(i, (127.0 * drawn.get_f64(i)) as i64));
    Ok(t)
}

/// The relative error of some rows of `y`, as the Frobenius norm has it, against sums in f64.
fn error(x: &Tensor, w: &Tensor, y: &Tensor) -> f64 {
    let (rows, k, n) = (x.shape()[0], w.shape()[0], w.shape()[1]);
    let (mut off, mut all) = (0.0, 0.0);
    for at in 0..LOOKED_AT.min(rows) {
        let i = at * rows / LOOKED_AT.min(rows);
        let mut sums = vec![0.0; n];
        for j in 0..k {
            let a = x.get_f64(i * k + j);
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum += a * w.get_f64(j * n + c);
            }
        }
        for (c, sum) in sums.into_iter().enumerate() {
            off += (y.get_f64(i * n + c) - sum).powi(2);
            all += sum * sum;
        }
    }
    (off / all).sqrt()
}

/// What the error may be: that of the factors' precision and of sums in f32, and of a result of 16 bits.
fn tolerance(s: &Subject) -> f64 {
    match (s.dtype, s.precision) {
        (DType::I8, _) => 0.0,
        (DType::BF16, _) => 4e-3,
        (DType::F16, _) => 5e-4,
        (_, Precision::Bf16x3) => 2e-5,
        (_, Precision::Tf32) => 5e-4,
        (_, Precision::Bf16) => 4e-3,
        _ => 2e-6,
    }
}

/// A session on the GPU, planned with the schedules of the subject's stage, or with all.
fn session(o: &Options, s: &Subject, w: Tensor) -> Result<Session, String> {
    let gpu = Gpu::open(o)?;
    let mut d = gpu.device(device::described(o)?)?;
    if let Some(stage) = s.stage {
        let target = stage.of(d.target().clone());
        d = d.with_target(target);
    }
    let on = vec![(d.machine().clone(), d.target().clone())];
    let planner = Planner::new(on, PlanOptions::default());
    let model = lab::model(s.rows, w, s.precision).map_err(|e| e.to_string())?;
    let engine = Engine::new(Arc::new(d), Arc::new(planner));
    let session = Session::builder().with_engine(engine).commit(model);
    session.map_err(|e| e.to_string())
}

/// The schedule of the product, and what all kernels of a request are predicted to take.
fn planned(session: &Session) -> (String, f64) {
    let (mut what, mut seconds) = (String::new(), 0.0);
    for plan in session.runtime().plans() {
        for step in plan.plan().blocks().flat_map(|b| &b.steps) {
            let StepWork::Kernel { kernel, .. } = &step.work else {
                continue;
            };
            if kernel.family == kernel::Family::Move {
                continue;
            }
            seconds += step.predicted.time_s;
            if kernel.family == kernel::Family::Contract {
                let view = report::StepView::new(0, step, &plan.plan().dims, &Default::default());
                what = view.schedule;
            }
        }
    }
    (what, seconds)
}

fn one(o: &Options, s: &Subject, events_s: f64) -> Result<String, String> {
    let x = values(s.dtype, [s.rows, s.wide], 1)?;
    let w = values(s.dtype, [s.wide, s.wide], 2)?;
    let session = session(o, s, w.clone())?;
    let given = [("x", &x)];
    let emulated = session.runtime().engine().device().emulated_ns().is_some();
    let (warm, most, limit) = match emulated {
        true => (0, 1, Duration::ZERO),
        false => (2, REQUESTS, Duration::from_millis(600)),
    };
    let (mut times, mut y) = (vec![], None);
    let began = Instant::now();
    for turn in 0..warm + most {
        let mut t = Timeline::default();
        let outputs = session.run_timed(&given, &mut t);
        let outputs = outputs.map_err(|e| e.to_string())?.into_vec();
        y = outputs.into_iter().next().map(|(_, t)| t);
        let kernels = t.device.iter().filter(|k| k.what == Activity::Kernel);
        let each = kernels.map(|k| k.end_ns.saturating_sub(k.start_ns) as f64 * 1e-9 - events_s);
        if turn >= warm {
            times.push(each.sum::<f64>());
        }
        if turn > warm && began.elapsed() > limit {
            break;
        }
    }
    times.sort_by(f64::total_cmp);
    let seconds = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);
    let y = y.ok_or("the product gave nothing")?;
    let (schedule, predicted) = planned(&session);
    let off = error(&x, &w, &y);
    let share = |other: Option<f64>| other.map_or("-".into(), |o| units::percent(o / seconds));
    row(vec![
        s.name(),
        s.stage.map_or(schedule, |g| g.name.into()),
        units::seconds(predicted),
        units::seconds(seconds),
        format!("{:.1}", s.flop() / seconds * 1e-12),
        share(s.of_stage_s()),
        share(lab::cublas(s.dtype, s.precision, s.rows, s.wide)),
        format!("{off:.1e}"),
    ]);
    match off <= tolerance(s) {
        true => Ok(String::new()),
        false => Err(format!(
            "its error is {off:.1e}, {:.1e} are allowed",
            tolerance(s)
        )),
    }
}

/// Every product, as far as there is time.
pub fn run(o: &Options) -> Result<(), String> {
    let gpu = Gpu::open(o)?;
    let events = cuda::calibrate::events_add(&gpu.context()?).map_err(|e| e.to_string())?;
    fact(
        "what two events add, which is taken off",
        units::seconds(events),
    );
    fact("the stages' and cuBLAS's figures", "measured on an H100");
    let compute = gpu.info()?.compute;
    let mut longest = Duration::ZERO;
    for (n, s) in (0..).zip(subjects(compute.major == 9, o.emulated())) {
        if n < o.past {
            continue;
        }
        let what = match s.stage {
            Some(g) => format!("{}, {}", s.name(), g.name),
            None => s.name(),
        };
        if o.rest() < longest {
            left(what, "there was no time left");
            continue;
        }
        item(n, &what);
        let began = Instant::now();
        let well = check(&what, caught(|| one(o, &s, events)));
        longest = longest.max(began.elapsed());
        if !well && !device::sound(o) {
            std::process::exit(i32::from(BROKEN));
        }
    }
    Ok(())
}
