//! What a request costs beside its arithmetic.
use crate::clock;
use graph::{ContractSpec, GraphBuilder, Op, Origin};
use layout::{DType, Dim};
use report::{FixedCost, FixedCostRow, HowRun};
use shopfloor::{Error, Model, ModelOptions, Session, SessionBuilder, inputs};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Tensor, WeightStore};

/// Width of the products of the chain.
const WIDTH: usize = 16;
/// Lengths of the chains.
const LENGTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// A model of `nodes` products of a row with a square matrix, none of which can join another.
///
/// # Errors
/// As [`Model::from_graph`].
pub fn chain_model(nodes: usize) -> Result<Model, Error> {
    let mut weights = WeightStore::new();
    let matrix = vec![1.0 / WIDTH as f32; WIDTH * WIDTH];
    let w = weights.add_tensor("w", Tensor::from_f32(&[WIDTH, WIDTH], &matrix)?)?;
    let mut b = GraphBuilder::new("chain", Arc::new(weights));
    let mut x = b.input("x", DType::F32, vec![Dim::from(1usize), Dim::from(WIDTH)]);
    let w = b.weight(w)?;
    for i in 0..nodes {
        let origin = Origin {
            name: format!("product{i}"),
            op_type: "MatMul".into(),
        };
        let spec = ContractSpec {
            a: vec![0, 1],
            b: vec![1, 2],
            out: vec![0, 2],
        };
        let name = format!("y{i}");
        x = b.node(Op::Contract(spec), &[x, w], &[&name], &origin)?[0];
    }
    Model::from_graph("chain", &b.finish(&[x]), &ModelOptions::default())
}

/// Requests before any is timed.
const WARM: usize = 1000;
/// Requests that are timed together: the clock costs what a tenth of a short one does.
const AT_ONCE: usize = 10;

/// Median microseconds of `request`, of `session`: called for `seconds`, and a few times where a device is emulated,
/// by whose clock each takes as long as the last.
fn median(
    session: &Session,
    seconds: f64,
    mut request: impl FnMut() -> Result<(), Error>,
) -> Result<f64, Error> {
    // The first makes ready, and tells whether a device is reached.
    request()?;
    let emulated = clock::emulated_ns(session).is_some();
    let (warm, at_once, most) = match emulated {
        true => (1, 1, clock::EMULATED),
        false => (WARM, AT_ONCE, usize::MAX),
    };
    let mut requests = |n: usize| (0..n).try_for_each(|_| request());
    requests(warm)?;
    let mut us = Vec::new();
    let began = Instant::now();
    while us.is_empty() || (us.len() < most && began.elapsed() < Duration::from_secs_f64(seconds)) {
        let ns = clock::timed_ns(session, || requests(at_once))?;
        us.push(ns * 1e-3 / at_once as f64);
    }
    us.sort_by(f64::total_cmp);
    Ok(us.get(us.len() / 2).copied().unwrap_or(0.0))
}

/// Measures chains of 1, 2, 4, ... 64 nodes, each for about `seconds`; `progress` hears the share
/// done, 0 to 1.
///
/// # Errors
/// As [`shopfloor::SessionBuilder::commit`].
pub fn fixed_cost(
    builder: SessionBuilder,
    seconds: f64,
    progress: &dyn Fn(f64),
) -> Result<FixedCost, Error> {
    let mut found: Option<FixedCost> = None;
    let mut engine = None;
    for (i, nodes) in LENGTHS.into_iter().enumerate() {
        progress(i as f64 / LENGTHS.len() as f64);
        let mut b = builder.clone();
        if let Some(e) = &engine {
            b = b.with_engine(Arc::clone(e));
        }
        let session = b.commit(chain_model(nodes)?)?;
        let e = session.runtime().engine();
        engine = Some(e.clone());
        let device = e.device();
        let report = found.get_or_insert_with(|| FixedCost {
            device: format!("{} ({})", device.name(), device.target().name),
            how: HowRun::default(),
            threads: device.workers(),
            emulated: false,
            pingpong_us: 2e6 * device.machine().costs.handoff_s.value,
            rows: vec![],
        });
        let named = inputs::random_inputs(session.model(), &inputs::sizes(session.model()).0)?;
        let borrowed = inputs::borrowed(&named);
        let run_us = median(&session, seconds / 2.0, || session.run(&borrowed).map(drop))?;
        let mut binding = session.bind();
        for (n, (_, t)) in named.iter().enumerate() {
            binding.set(n, t.clone())?;
        }
        let bound_us = median(&session, seconds / 2.0, || Ok(binding.run().map(|_| ())?))?;
        report.how = shopfloor::how_run(&session);
        report.threads = report.how.threads(device.workers());
        report.emulated = clock::emulated_ns(&session).is_some();
        let plans = session.runtime().plans();
        let steps = plans.first().map_or(0, |p| {
            p.plan().blocks().map(|b| b.steps.len()).sum::<usize>()
        });
        report.rows.push(FixedCostRow {
            nodes,
            steps,
            run_us,
            bound_us,
            // What is allowed is allowed to a CPU's workers.
            allowed_us: device
                .place()
                .is_none()
                .then(|| 1.5 + 0.15 * (nodes - 1) as f64),
        });
    }
    found.ok_or_else(|| Error::Usage("there is nothing to measure".into()))
}
