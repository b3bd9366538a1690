//! A GPU's two ways of running a plan: what is predicted for each, and the textbook case of many batches
//! of one short kernel.
use crate::clock;
use device::{Device, Residency};
use machine::calc::{Batches, compare_transfers};
use plan::{Activity, Timeline};
use report::{HowRun, PersistentReport};
use shopfloor::{Error, Model, Session, SessionBuilder, inputs};
use std::cell::Cell;

/// Round trips of which the median is taken, and before them.
const TRIPS: usize = 1000;
const WARM: usize = 20;
/// Requests after which a session is taken to be ready.
const READY: usize = 3;
/// What a kernel of the textbook case is to take, in seconds.
const KERNEL_S: f64 = 10e-6;
/// Batches of the textbook case, and where each is emulated.
const BATCHES: usize = 100;
const EMULATED_BATCHES: usize = 10;
/// Lengths of products that it is looked for among.
const LENGTHS: [usize; 5] = [256, 512, 1024, 2048, 4096];

/// Whether requests reach workers on a GPU that never leave.
pub(crate) fn stays(device: &dyn Device) -> bool {
    device.place().is_some() && device.residency() == Residency::Resident
}

/// What copies of so many bytes each are predicted to take: one after the other, or by a kernel that
/// moves them itself.
pub(crate) fn copies_s<'a>(device: &dyn Device, each: impl Iterator<Item = &'a usize>) -> f64 {
    let bytes: Vec<f64> = each.map(|b| *b as f64).collect();
    let one = |b: &f64| Batches::on(device.machine(), *b, 1, 0.0).copy_in_s;
    if !stays(device) {
        return bytes.iter().map(one).sum();
    }
    let link = device.machine().links.iter().find(|l| l.to == "host");
    let rate = link.map_or(f64::INFINITY, |l| l.bandwidth.value);
    bytes.iter().sum::<f64>() / rate
}

/// The median of many acknowledged round trips, where a kernel listens.
pub(crate) fn round_trip_us(device: &dyn Device) -> Result<Option<f64>, Error> {
    let mut all = vec![];
    let (trips, warm) = match device.emulated_ns() {
        Some(_) => (clock::EMULATED, 1),
        None => (TRIPS, WARM),
    };
    for n in 0..trips + warm {
        match device.round_trip_ns()? {
            None => return Ok(None),
            Some(ns) if n >= warm => all.push(ns as f64 * 1e-3),
            Some(_) => {}
        }
    }
    all.sort_by(f64::total_cmp);
    Ok(all.get(all.len() / 2).copied())
}

/// A session for a product of 16 rows of `k` with 16 columns, and its inputs.
fn product(
    b: &SessionBuilder,
    k: usize,
) -> Result<(Session, Vec<(String, tensor::Tensor)>), Error> {
    let model: Model = crate::op_model(&format!("matmul:16x16x{k}:f32"))?;
    let session = b.clone().commit(model)?;
    let (sizes, _) = inputs::sizes(session.model());
    let named = inputs::random_inputs(session.model(), &sizes)?;
    Ok((session, named))
}

/// What the kernels of a request take, in seconds by the device's clock.
fn kernels_s(s: &Session, named: &[(String, tensor::Tensor)]) -> Result<f64, Error> {
    let mut t = Timeline::default();
    s.run_timed(&inputs::borrowed(named), &mut t)?;
    let of = t.device.iter().filter(|s| s.what == Activity::Kernel);
    Ok(of.map(|s| (s.end_ns - s.start_ns) as f64 * 1e-9).sum())
}

/// The product whose kernel takes about [`KERNEL_S`]: its seconds and its length; `done` hears of every request.
fn lasting(b: &SessionBuilder, done: &dyn Fn()) -> Result<(f64, usize), Error> {
    let mut found: Option<(f64, usize)> = None;
    for k in LENGTHS {
        let (s, named) = product(b, k)?;
        kernels_s(&s, &named)?;
        done();
        let took = kernels_s(&s, &named)?;
        done();
        let far = |t: f64| (t / KERNEL_S).ln().abs();
        if took > 0.0 && found.is_none_or(|(t, _)| far(took) < far(t)) {
            found = Some((took, k));
        }
    }
    found.ok_or_else(|| {
        Error::Usage(
            "this device tells no times of its kernels: use --on cuda or --on emulated:a100".into(),
        )
    })
}

/// `batches` requests (a hundred where none are given, fewer of an emulated device) for a kernel of about ten
/// microseconds, one after the other: with `launched`, whose
/// engine copies, launches and copies, and with `resident`, whose kernel stays.
///
/// # Errors
/// Not NVIDIA GPUs, or what running gives.
pub fn persistent(
    launched: SessionBuilder,
    resident: SessionBuilder,
    batches: Option<usize>,
    progress: &dyn Fn(f64),
) -> Result<PersistentReport, Error> {
    let engine = launched.engine()?;
    let emulated = engine.device().emulated_ns().is_some();
    let launched = launched.with_engine(engine);
    let batches = batches.unwrap_or(match emulated {
        true => EMULATED_BATCHES,
        false => BATCHES,
    });
    // Every request takes about as long where it is emulated.
    let whole = 2 * (LENGTHS.len() + READY + batches);
    let ran = Cell::new(0);
    let done = || {
        ran.set(ran.get() + 1);
        progress(ran.get() as f64 / whole as f64);
    };
    progress(0.0);
    let (kernel_s, k) = lasting(&launched, &done)?;
    let mut took = vec![];
    let mut name = None;
    let mut how = HowRun::default();
    let mut trip = None;
    let mut said = None;
    for b in [&launched, &resident] {
        let (s, named) = product(b, k)?;
        let given = inputs::borrowed(&named);
        let device = s.runtime().engine().device().clone();
        name.get_or_insert_with(|| format!("{} ({})", device.name(), device.target().name));
        let mut out = 0;
        for _ in 0..READY {
            let all = s.run(&given)?.into_vec();
            done();
            out = all.iter().map(|(_, t)| t.bytes().len()).sum::<usize>();
        }
        let ns = clock::timed_ns(&s, || {
            for _ in 0..batches {
                drop(s.run(&given)?);
                done();
            }
            Ok(())
        })?;
        took.push(ns * 1e-3);
        trip = round_trip_us(&*device)?;
        how.precision = shopfloor::how_run(&s).precision;
        said = Some((
            device,
            named.iter().map(|(_, t)| t.bytes().len()).sum::<usize>(),
            out,
        ));
    }
    let Some((device, given, made)) = said else {
        return Err(Error::Usage("there is nothing to measure".into()));
    };
    if !stays(&*device) {
        return Err(Error::Usage(format!(
            "device '{}' keeps no kernel: use --on cuda or --on emulated:a100",
            device.name()
        )));
    }
    let machine = device.machine();
    let link = |bytes: usize| Batches::on(machine, bytes as f64, batches as u64, kernel_s);
    let b = Batches {
        copy_out_s: link(made).copy_out_s,
        ..link(given)
    };
    let one_by_one = compare_transfers(&b)
        .ways
        .first()
        .map_or(0.0, |w| w.total_s);
    let moved = copies_s(&*device, [given, made].iter());
    let counter = machine.way_costs().map_or(0.0, |w| w.counter_s.value);
    // In, the kernel, out: two hand-offs between them, and the ring both ways.
    let each = kernel_s + moved + 2.0 * counter + 2.0 * b.handoff_s;
    Ok(PersistentReport {
        device: name.unwrap_or_default(),
        how,
        emulated: device.emulated_ns().is_some(),
        batches,
        kernel: format!("f32 product [16,{k}] x [{k},16]"),
        bytes: (given as u64, made as u64),
        kernel_us: kernel_s * 1e6,
        launched_us: took[0],
        resident_us: took[1],
        predicted_us: (
            one_by_one * 1e6,
            (machine.costs.launch_s.value + batches as f64 * each) * 1e6,
        ),
        round_trip_us: trip,
    })
}
