//! Streams: order, state, joining, bounds, failures, memory.
use expr::{ExprBuilder, Unary};
use graph::{ContractSpec, GraphBuilder, Op, Origin};
use runtime::RunError;
use shopfloor::{
    Answer, Cancel, DType, Dim, DimBox, Engine, Model, ModelOptions, Session, Stream, Tensor,
    inputs,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tensor::WeightStore;

const IN: usize = 8;
const STATE: usize = 16;

/// `h1 = tanh(x W + h U)`, `y = h1 V`, for a batch of any size; `h1` is found to carry `h` on.
fn cell() -> Model {
    let mut weights = WeightStore::new();
    let mut matrix = |name: &str, rows: usize, columns: usize| {
        let value = |j: usize| ((j * 7 + rows) % 19) as f32 / 38.0 - 0.25;
        let values: Vec<f32> = (0..rows * columns).map(value).collect();
        let t = Tensor::from_f32(&[rows, columns], &values).unwrap();
        weights.add_tensor(name, t).unwrap()
    };
    let ids = [
        matrix("w", IN, STATE),
        matrix("u", STATE, STATE),
        matrix("v", STATE, 4),
    ];
    let mut b = GraphBuilder::new("cell", Arc::new(weights));
    let batch = || Dim::sym("batch");
    let x = b.input("x", DType::F32, vec![batch(), Dim::from(IN)]);
    let h = b.input("h", DType::F32, vec![batch(), Dim::from(STATE)]);
    let [w, u, v] = ids.map(|i| b.weight(i).unwrap());
    let mut node = |op: Op, of: &[graph::ValueId], name: &str| {
        let origin = Origin {
            name: name.into(),
            op_type: String::new(),
        };
        b.node(op, of, &[name], &origin).unwrap()[0]
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
    let xw = node(product(), &[x, w], "xw");
    let hu = node(product(), &[h, u], "hu");
    let next = node(sum, &[xw, hu], "hn");
    let y = node(product(), &[next, v], "y");
    let options = ModelOptions {
        find_states: true,
        ..ModelOptions::default()
    };
    let model = Model::from_graph("cell", &b.finish(&[y, next]), &options).unwrap();
    assert_eq!(model.program().states.len(), 1);
    model
}

/// An engine on which something happens before every ticket of work.
fn engine(
    threads: usize,
    fault: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static,
) -> Arc<Engine> {
    let device = cpu::CpuDevice::new(cpu::CpuOptions {
        threads: Some(threads),
        fault: Some(Arc::new(fault)),
        ..Default::default()
    })
    .unwrap();
    let of = |d: &dyn device::Device| (d.machine().clone(), d.target().clone());
    let planner = planner::Planner::new(vec![of(&device)], planner::PlanOptions::default());
    Engine::new(Arc::new(device), Arc::new(planner))
}

fn session() -> Session {
    Session::builder().with_threads(2).commit(cell()).unwrap()
}

/// The box in which up to `batch` items run as one.
fn up_to(batch: i64) -> DimBox {
    let mut dims = DimBox::new();
    dims.insert("batch", 1, batch);
    dims
}

/// Message number `i` of stream `s`.
fn message(s: usize, i: usize) -> Tensor {
    let value = |j: usize| ((s * 31 + i * 5 + j * 3) % 23) as f32 / 23.0 - 0.5;
    let values: Vec<f32> = (0..IN).map(value).collect();
    Tensor::from_f32(&[1, IN], &values).unwrap()
}

/// What stream `s` should answer to `count` messages: requests that are handed the state.
fn want(session: &Session, s: usize, count: usize) -> Vec<Vec<f32>> {
    let mut h = Tensor::zeros(DType::F32, &[1, STATE]).unwrap();
    let each = (0..count).map(|i| {
        let out = session
            .run(inputs!["x" => &message(s, i), "h" => &h])
            .unwrap();
        h = out["hn"].clone();
        out["y"].to_f32().unwrap()
    });
    each.collect()
}

/// Answer `i` of stream `s`.
fn at(each: &[Vec<Vec<f32>>], s: usize, i: usize) -> &[f32] {
    &each[s][i]
}

fn y(answer: Answer) -> Vec<f32> {
    assert_eq!((answer.len(), answer[0].0.as_str()), (1, "y"));
    answer[0].1.to_f32().unwrap()
}

fn near(got: &[f32], want: &[f32]) {
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= 1e-6, "{got:?} {want:?}");
    }
    assert_eq!(got.len(), want.len());
}

/// A stream whose messages are run by those alone who receive them.
fn held(session: &Session, dims: &DimBox) -> Stream {
    session.stream(dims).unwrap().with_linger(Duration::MAX)
}

/// Waits for something that another thread does.
fn until(mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(300), "it never comes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn states(session: &Session) -> u64 {
    session.runtime().engine().memory().sessions[0].states
}

#[test]
fn messages_of_several_streams_run_as_one_and_answer_as_alone() {
    let tickets = Arc::new(AtomicUsize::new(0));
    let counts = tickets.clone();
    let e = engine(1, move |_| {
        counts.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let session = Session::builder().with_engine(e).commit(cell()).unwrap();
    let each: Vec<_> = (0..5).map(|s| want(&session, s, 12)).collect();
    let run = |batch: i64| {
        let mut streams: Vec<Stream> = (0..5).map(|_| held(&session, &up_to(batch))).collect();
        assert_eq!(streams[0].state_inputs(), ["h"]);
        // Plans are made by the first messages, which are no part of the count.
        let mut before = 0;
        for i in 0..12 {
            for (s, stream) in streams.iter_mut().enumerate() {
                stream.send(inputs!["x" => &message(s, i)]).unwrap();
            }
            for (s, stream) in streams.iter_mut().enumerate() {
                near(&y(stream.receive().unwrap()), at(&each, s, i));
            }
            if i == 1 {
                before = tickets.load(Ordering::SeqCst);
            }
        }
        tickets.load(Ordering::SeqCst) - before
    };
    let (alone, together) = (run(1), run(8));
    assert!(
        5 * together <= alone,
        "{together} tickets together, {alone} alone"
    );
    // At most four items at once: two turns instead of one.
    assert!(2 * together <= run(4) && run(4) < alone);
}

#[test]
fn callers_in_many_threads_get_their_own_answers_in_order() {
    let session = session();
    let each: Vec<_> = (0..6).map(|s| want(&session, s, 60)).collect();
    std::thread::scope(|scope| {
        for (s, want) in each.iter().enumerate() {
            let session = &session;
            scope.spawn(move || {
                let mut stream = session.stream(&up_to(4)).unwrap();
                for first in (0..60).step_by(3) {
                    for i in first..first + 3 {
                        stream.send(inputs!["x" => &message(s, i)]).unwrap();
                    }
                    for w in &want[first..first + 3] {
                        near(&y(stream.receive().unwrap()), w);
                    }
                }
            });
        }
    });
    assert_eq!(states(&session), 0);
}

#[test]
fn a_stream_frees_its_state_and_its_messages() {
    let session = session();
    let mut a = held(&session, &up_to(4));
    let mut b = held(&session, &up_to(4));
    a.run(inputs!["x" => &message(0, 0)]).unwrap();
    b.send(inputs!["x" => &message(0, 0)]).unwrap();
    let bytes = 4 * STATE as u64;
    assert_eq!((a.state_bytes(), states(&session)), (bytes, 2 * bytes));
    let memory = || session.runtime().engine().memory();
    assert_eq!(memory().sessions[0].queue, 4 * IN as u64);
    drop(b);
    assert_eq!((states(&session), memory().sessions[0].queue), (bytes, 0));
    drop(a);
    assert_eq!(states(&session), 0);
}

#[test]
fn a_stream_takes_no_more_than_it_holds() {
    let session = session();
    let mut s = held(&session, &up_to(1)).with_capacity(2);
    assert!(matches!(s.receive(), Err(RunError::Stream { .. })));
    s.send(inputs!["x" => &message(0, 0)]).unwrap();
    s.send(inputs!["x" => &message(0, 1)]).unwrap();
    let full = s.send(inputs!["x" => &message(0, 2)]);
    assert_eq!(full, Err(RunError::StreamFull { pending: 2 }));
    assert!(matches!(
        s.run(inputs!["x" => &message(0, 2)]),
        Err(RunError::Stream { .. })
    ));
    let want = want(&session, 0, 3);
    assert_eq!((s.ready(), s.pending()), (0, 2));
    near(&y(s.receive().unwrap()), &want[0]);
    s.send(inputs!["x" => &message(0, 2)]).unwrap();
    let next = s
        .receive_timeout(Duration::from_secs(600))
        .unwrap()
        .unwrap();
    near(&y(next), &want[1]);
    near(&y(s.receive().unwrap()), &want[2]);
    assert_eq!(s.pending(), 0);
}

#[test]
fn what_nobody_receives_is_run_all_the_same() {
    let e = engine(2, |_| Ok(()));
    let gone = Arc::downgrade(&e);
    let session = Session::builder().with_engine(e).commit(cell()).unwrap();
    let each: Vec<_> = (0..3).map(|s| want(&session, s, 8)).collect();
    let mut streams: Vec<Stream> = (0..3).map(|_| session.stream(&up_to(4)).unwrap()).collect();
    let send = |streams: &mut [Stream], i: usize| {
        for (s, stream) in streams.iter_mut().enumerate() {
            stream.send(inputs!["x" => &message(s, i)]).unwrap();
        }
    };
    // Nobody so much as asks.
    (0..4).for_each(|i| send(&mut streams, i));
    until(|| streams.iter().all(|s| s.ready() == 4));
    for i in 0..4 {
        for (s, stream) in streams.iter_mut().enumerate() {
            let answer = stream.try_receive().unwrap().unwrap();
            near(&y(answer), at(&each, s, i));
        }
    }
    // What would lie for ever is run for somebody who asks now and then.
    let all = streams.into_iter();
    let mut streams: Vec<Stream> = all.map(|s| s.with_linger(Duration::MAX)).collect();
    (4..8).for_each(|i| send(&mut streams, i));
    for i in 4..8 {
        for (s, stream) in streams.iter_mut().enumerate() {
            let mut answer = None;
            until(|| {
                answer = stream.try_receive().unwrap();
                answer.is_some()
            });
            near(&y(answer.unwrap()), at(&each, s, i));
        }
    }
    assert!(matches!(
        streams[0].try_receive(),
        Err(RunError::Stream { .. })
    ));
    // The thread that ran it goes with the session.
    drop(streams);
    drop(session);
    until(|| gone.upgrade().is_none());
}

#[test]
fn what_is_wrong_with_one_message_is_its_answer_alone() {
    let fails = Arc::new(AtomicBool::new(false));
    let once = fails.clone();
    let e = engine(1, move |_| match once.swap(false, Ordering::SeqCst) {
        true => Err("made to fail".into()),
        false => Ok(()),
    });
    let session = Session::builder().with_engine(e).commit(cell()).unwrap();
    let each: Vec<_> = (0..3).map(|s| want(&session, s, 4)).collect();
    let mut streams: Vec<Stream> = (0..3).map(|_| held(&session, &up_to(8))).collect();
    let wrong = Tensor::zeros(DType::F32, &[1, IN - 1]).unwrap();
    for i in 0..4 {
        for (s, stream) in streams.iter_mut().enumerate() {
            if i == 2 && s == 1 {
                stream.send(inputs!["x" => &wrong]).unwrap();
            }
            stream.send(inputs!["x" => &message(s, i)]).unwrap();
        }
        // The joined run fails once: each is run by itself, and nobody hears of it.
        fails.store(i == 1, Ordering::SeqCst);
        for (s, stream) in streams.iter_mut().enumerate() {
            if i == 2 && s == 1 {
                assert!(matches!(stream.receive(), Err(RunError::Shape { .. })));
            }
            near(&y(stream.receive().unwrap()), at(&each, s, i));
        }
    }
    // One that runs by itself and fails leaves the state of the message before it.
    let mut alone = session.stream(&up_to(1)).unwrap();
    near(
        &y(alone.run(inputs!["x" => &message(0, 0)]).unwrap()),
        &each[0][0],
    );
    fails.store(true, Ordering::SeqCst);
    let e = alone.run(inputs!["x" => &message(0, 1)]).unwrap_err();
    assert!(e.to_string().contains("made to fail"), "{e}");
    near(
        &y(alone.run(inputs!["x" => &message(0, 1)]).unwrap()),
        &each[0][1],
    );
    // Names are looked at when a message is sent.
    let h = Tensor::zeros(DType::F32, &[1, STATE]).unwrap();
    let sent = alone.send(inputs!["x" => &message(0, 0), "h" => &h]);
    assert!(matches!(sent, Err(RunError::Stream { .. })));
    assert!(matches!(alone.send(&[]), Err(RunError::Missing { .. })));
    let sent = alone.send(inputs!["z" => &h]);
    assert!(matches!(sent, Err(RunError::Unknown { .. })));
}

#[test]
fn a_message_that_was_given_up_is_passed_over() {
    let session = session();
    let want = want(&session, 0, 2);
    let mut s = held(&session, &up_to(4));
    let cancel = Cancel::new();
    s.send(inputs!["x" => &message(0, 0)]).unwrap();
    s.send_cancellable(inputs!["x" => &message(9, 9)], &cancel)
        .unwrap();
    s.send(inputs!["x" => &message(0, 1)]).unwrap();
    cancel.cancel();
    near(&y(s.receive().unwrap()), &want[0]);
    assert_eq!(s.receive(), Err(RunError::Cancelled));
    near(&y(s.receive().unwrap()), &want[1]);
}

#[test]
fn a_stream_goes_on_from_a_state_it_is_given() {
    let session = session();
    let want = want(&session, 0, 3);
    let h = Tensor::zeros(DType::F32, &[1, STATE]).unwrap();
    let first = session
        .run(inputs!["x" => &message(0, 0), "h" => &h])
        .unwrap();
    let mut s = session.stream(&up_to(1)).unwrap();
    s.start(inputs!["h" => &first["hn"]]).unwrap();
    near(&y(s.run(inputs!["x" => &message(0, 1)]).unwrap()), &want[1]);
    s.send(inputs!["x" => &message(0, 2)]).unwrap();
    assert!(s.start(inputs!["h" => &h]).is_err());
    near(&y(s.receive().unwrap()), &want[2]);
    assert!(s.start(inputs!["x" => &h]).is_err());
    let whole = Tensor::zeros(DType::I64, &[1, STATE]).unwrap();
    assert!(matches!(
        s.start(inputs!["h" => &whole]),
        Err(RunError::Type { .. })
    ));
}

#[test]
fn the_state_of_a_model_with_control_flow_is_found_and_kept() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models/silero_vad");
    let session = (Session::builder().with_threads(1).with_found_states())
        .commit_from_file(dir.join("model.onnx"))
        .unwrap();
    let rate = Tensor::from_i64(&[], &[16000]).unwrap();
    let sound = |s: usize, i: usize| {
        let value = |j: usize| (((s + 1) * (i * 576 + j)) as f32 * 0.05).sin() * 0.4;
        let values: Vec<f32> = (0..576).map(value).collect();
        Tensor::from_f32(&[1, 576], &values).unwrap()
    };
    // The file does not say that the state's batch is the input's.
    let mut unsaid = session.stream(&up_to(1)).unwrap();
    let e = (unsaid.send(inputs!["input" => &sound(0, 0), "sr" => &rate])).unwrap_err();
    assert!(e.to_string().contains("'state.d1'"), "{e}");
    let mut dims = up_to(1);
    dims.insert("state.d1", 1, 1);
    let mut streams: Vec<Stream> = (0..3).map(|_| session.stream(&dims).unwrap()).collect();
    assert_eq!(streams[0].state_inputs(), ["state"]);
    let mut kept: Vec<Tensor> = (0..3)
        .map(|_| Tensor::zeros(DType::F32, &[2, 1, 128]).unwrap())
        .collect();
    for i in 0..4 {
        for (s, stream) in streams.iter_mut().enumerate() {
            let x = sound(s, i);
            stream.send(inputs!["input" => &x, "sr" => &rate]).unwrap();
        }
        for (s, stream) in streams.iter_mut().enumerate() {
            let got = stream.receive().unwrap();
            let x = sound(s, i);
            let out = session
                .run(inputs!["input" => &x, "state" => &kept[s], "sr" => &rate])
                .unwrap();
            kept[s] = out["stateN"].clone();
            let (g, w) = (got[0].1.get_f64(0), out["output"].get_f64(0));
            assert_eq!(got.len(), 1);
            assert!((g - w).abs() < 1e-5, "stream {s}, chunk {i}: {g} {w}");
        }
    }
}
