//! Messages of several streams, each by itself and joined.
use expr::{ExprBuilder, Unary};
use graph::{ContractSpec, GraphBuilder, Op, Origin};
use layout::{DType, Dim, DimBox};
use report::{StreamsReport, StreamsRow};
use shopfloor::{Error, Model, ModelOptions, Session, SessionBuilder, Stream, inputs};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Tensor, WeightStore};

/// Width of input and state: two matrices of 1 MiB, which a message alone reads for one row.
const WIDTH: usize = 512;
/// Streams at once.
const STREAMS: [usize; 5] = [1, 2, 4, 8, 16];

/// `h1 = tanh(x W + h U)`, for a batch of any size; the state is found by its name.
fn cell() -> Result<Model, Error> {
    let mut weights = WeightStore::new();
    let values: Vec<f32> = (0..WIDTH * WIDTH)
        .map(|j| ((j * 7) % 19) as f32 / 19e2 - 0.005)
        .collect();
    let matrix = Tensor::from_f32(&[WIDTH, WIDTH], &values)?;
    let ids = [
        weights.add_tensor("w", matrix.clone())?,
        weights.add_tensor("u", matrix)?,
    ];
    let mut b = GraphBuilder::new("recurrent cell", Arc::new(weights));
    let row = || vec![Dim::sym("batch"), Dim::from(WIDTH)];
    let x = b.input("x", DType::F32, row());
    let h = b.input("h", DType::F32, row());
    let (w, u) = (b.weight(ids[0])?, b.weight(ids[1])?);
    let mut node = |op: Op, of: &[graph::ValueId], name: &str| {
        let origin = Origin {
            name: name.into(),
            op_type: "MatMul".into(),
        };
        b.node(op, of, &[name], &origin).map(|v| v[0])
    };
    let product = || {
        Op::Contract(ContractSpec {
            a: vec![0, 1],
            b: vec![1, 2],
            out: vec![0, 2],
        })
    };
    let mut e = ExprBuilder::new();
    let (p, q) = (e.input(0, DType::F32), e.input(1, DType::F32));
    let sum = e.add(p, q);
    let t = e.unary(Unary::Tanh, sum);
    let sum = Op::Map(e.finish(&[t]));
    let xw = node(product(), &[x, w], "xw")?;
    let hu = node(product(), &[h, u], "hu")?;
    let next = node(sum, &[xw, hu], "hn")?;
    let options = ModelOptions {
        find_states: true,
        ..ModelOptions::default()
    };
    // What is state is no answer: the sum of both products goes out.
    Model::from_graph("recurrent cell", &b.finish(&[xw, next]), &options)
}

/// Messages per second of `streams` streams in the box of `batch` items, for about `seconds`.
fn rate(session: &Session, streams: usize, batch: usize, seconds: f64) -> Result<f64, Error> {
    let mut dims = DimBox::new();
    dims.insert("batch", 1, batch as i64);
    let mut all: Vec<Stream> = (0..streams)
        .map(|_| Ok(session.stream(&dims)?.with_linger(Duration::MAX)))
        .collect::<Result<_, Error>>()?;
    let x = Tensor::zeros(DType::F32, &[1, WIDTH])?;
    let round = |all: &mut [Stream]| -> Result<(), Error> {
        for s in all.iter_mut() {
            s.send(inputs!["x" => &x])?;
        }
        for s in all.iter_mut() {
            s.receive()?;
        }
        Ok(())
    };
    for _ in 0..20 {
        round(&mut all)?;
    }
    let (began, mut rounds) = (Instant::now(), 0usize);
    while began.elapsed() < Duration::from_secs_f64(seconds) || rounds < 20 {
        round(&mut all)?;
        rounds += 1;
    }
    Ok((rounds * streams) as f64 / began.elapsed().as_secs_f64())
}

/// Measures 1, 2, 4, ... 16 streams, each way for about `seconds`; `progress` hears the share done, 0 to 1.
///
/// # Errors
/// As [`SessionBuilder::commit`], and a device that is emulated.
pub fn streams(
    builder: SessionBuilder,
    seconds: f64,
    progress: &dyn Fn(f64),
) -> Result<StreamsReport, Error> {
    let session = builder.commit(cell()?)?;
    let device = session.runtime().engine().device().clone();
    if device.emulated_ns().is_some() {
        return Err(Error::Usage(format!(
            "streams are timed by the clock of this machine, and '{}' is emulated; name a device that is here",
            device.name()
        )));
    }
    let mut rows = vec![];
    for (i, n) in STREAMS.into_iter().enumerate() {
        progress(i as f64 / STREAMS.len() as f64);
        rows.push(StreamsRow {
            streams: n,
            alone_per_s: rate(&session, n, 1, seconds)?,
            joined_per_s: rate(&session, n, n, seconds)?,
        });
    }
    let how = shopfloor::how_run(&session);
    Ok(StreamsReport {
        device: format!("{} ({})", device.name(), device.target().name),
        threads: how.threads(device.workers()),
        how,
        width: WIDTH,
        rows,
    })
}
