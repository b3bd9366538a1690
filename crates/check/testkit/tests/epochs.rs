//! Plans are swapped beside the traffic: no request is lost, mixed or wrong, and packed weights
//! exist once.
use shopfloor::{DimBox, Session, Tensor};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use testkit::zoo;

const SWAPS: usize = 1000;

#[test]
fn a_thousand_swaps_under_load() {
    if !testing::turn("a_thousand_swaps_under_load") {
        return;
    }
    let model = zoo::find("digits_cnn").expect("digits_cnn is bundled");
    let prepared = model.prepare_temporary().expect("model");
    let inputs = model.inputs().expect("inputs");
    let session = Session::builder()
        .with_threads(2)
        .commit_from_file(&prepared.model)
        .expect("session");
    let batch = inputs[0].1.shape()[0] as i64;
    // Plans with different boxes have different schedules: the tiles fit other sizes.
    let plans: Vec<_> = [(batch, batch), (1, batch), (1, 4 * batch)]
        .iter()
        .map(|&(lo, hi)| {
            let mut dims = DimBox::new();
            dims.insert("batch", lo, hi);
            session.plan(&dims).expect("plan")
        })
        .collect();
    assert!(plans.windows(2).any(|p| p[0] != p[1]), "the plans differ");
    session.swap_plan(plans[0].clone()).expect("first plan");
    let packed = session.runtime().engine().memory().packed;
    // A caller of its own inputs sees its own answers: rows are rotated per caller.
    let rotated = |by: usize| -> Tensor {
        let t = &inputs[0].1;
        let row = t.bytes().len() / batch as usize;
        let mut bytes = t.bytes().to_vec();
        bytes.rotate_left(row * by);
        Tensor::from_bytes(t.dtype(), t.shape(), bytes).expect("same size")
    };
    let stop = AtomicBool::new(false);
    let served = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for caller in 0..2 {
            let input = rotated(caller * 3);
            let (session, stop, served, name) = (&session, &stop, &served, inputs[0].0.as_str());
            s.spawn(move || {
                let want = session.run(&[(name, &input)]).expect("a request");
                loop {
                    let got = session.run(&[(name, &input)]).expect("a request");
                    for ((n, a), (_, b)) in got.iter().zip(want.iter()) {
                        let d = testkit::compare::difference(a, b);
                        assert!(d <= 1e-5, "caller {caller}, output {n}: {d:.2e}");
                    }
                    served.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for i in 0..SWAPS {
            session
                .swap_plan(plans[i % plans.len()].clone())
                .expect("swap");
        }
        stop.store(true, Ordering::Relaxed);
    });
    session.swap_plan(plans[0].clone()).expect("last plan");
    let after = session.runtime().engine().memory().packed;
    println!(
        "{SWAPS} swaps, {} requests, {packed} bytes packed before, {after} after",
        served.load(Ordering::Relaxed)
    );
    // Plans whose micro-kernels differ pack differently; the same packing is never made twice.
    assert!(
        after <= packed,
        "packed weights grew from {packed} to {after}"
    );
}

#[test]
fn two_sessions_share_one_engine() {
    let engine = shopfloor::default_engine(Some(2), None, None).expect("engine");
    let model = zoo::find("digits_cnn").expect("digits_cnn is bundled");
    let prepared = model.prepare_temporary().expect("model");
    let inputs = model.inputs().expect("inputs");
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let make = || {
        Session::builder()
            .with_engine(engine.clone())
            .commit_from_file(&prepared.model)
            .expect("session")
    };
    let (a, b) = (make(), make());
    let first = a.run(&named).expect("first");
    let alone = engine.memory().packed;
    let second = b.run(&named).expect("second");
    assert_eq!(first, second);
    assert_eq!(
        engine.memory().packed,
        alone,
        "weights of the same file are packed once"
    );
    std::thread::scope(|s| {
        for session in [&a, &b, &a, &b] {
            let (named, first) = (&named, &first);
            s.spawn(move || {
                for _ in 0..50 {
                    assert_eq!(&session.run(named).expect("a request"), first);
                }
            });
        }
    });
}
