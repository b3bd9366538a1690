//! Models whole on whatever GPU answers, against their references. The larger ones are left to
//! `cargo xtask zoo --on wgpu`.
use shopfloor::{Session, engine_on, inputs};
use shopfloor_tools::planview;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use testkit::zoo;

/// The engine, or `None` where no adapter answers: said once, by name.
fn engine() -> Option<Arc<runtime::Engine>> {
    static ONE: OnceLock<Option<Arc<runtime::Engine>>> = OnceLock::new();
    let made = ONE.get_or_init(|| match engine_on("wgpu", None, None, None) {
        Ok(e) => Some(e),
        Err(e) => {
            testing::skip("webgpu: models", &e.to_string());
            None
        }
    });
    made.clone()
}

/// A model of the zoo on an engine.
struct Opened {
    model: zoo::ZooModel,
    inputs: inputs::Named,
    session: Session,
    /// Its file, which goes when nobody has this.
    _file: zoo::Prepared,
}

/// The model of this name; `None` where the zoo is not there.
fn opened(engine: Arc<runtime::Engine>, name: &str) -> Option<Opened> {
    if !zoo::missing(&[name]).is_empty() {
        return None;
    }
    let model = zoo::find(name).expect(name);
    let prepared = model.prepare_temporary().expect("weights");
    let session = Session::builder()
        .with_engine(engine)
        .commit_from_file(&prepared.model)
        .expect("a session");
    Some(Opened {
        inputs: model.inputs().expect("inputs"),
        model,
        session,
        _file: prepared,
    })
}

/// Runs a model twice and compares; gives what ran where.
fn check(name: &str) -> Option<planview::Shares> {
    check_on(engine()?, name)
}

fn check_on(engine: Arc<runtime::Engine>, name: &str) -> Option<planview::Shares> {
    let o = opened(engine, name)?;
    let (model, session) = (&o.model, &o.session);
    let given = inputs::borrowed(&o.inputs);
    let got = session.run(&given).expect("a result").into_vec();
    let report = model.check(&got).expect("references");
    assert!(report.passed(), "{name}: {report}");
    let again = session.run(&given).expect("a result").into_vec();
    assert!(got == again, "{name}: a second run gave other bits");
    let shares = planview::shares(session);
    println!("{name}: {shares:?}, {:?}", planview::fallbacks(session));
    Some(shares)
}

#[test]
fn digits_cnn() {
    let Some(s) = check("digits_cnn") else { return };
    // Everything there is to compute is the GPU's.
    assert_eq!(s.steps_by_device.get("cpu"), None, "{s:?}");
    assert!(s.bytes_moved > 0);
}

#[test]
fn silero_vad() {
    if !testing::turn("webgpu: silero_vad") {
        return;
    }
    check("silero_vad");
}

#[test]
fn ppocr_cls() {
    if !testing::turn("webgpu: ppocr_cls") {
        return;
    }
    check("ppocr_cls");
}

#[test]
fn skl_mlp() {
    check("skl_mlp");
}

#[test]
fn gnn_gcn() {
    check("gnn_gcn");
}

#[test]
fn if_branches() {
    check("if_branches");
}

/// A GPU that is predicted to be so many times as fast as it is described.
fn faster(engine: &runtime::Engine, factor: f64) -> machine::Machine {
    let mut m = engine.device().machine().clone();
    for level in &mut m.levels {
        for way in [&mut level.read, &mut level.write] {
            way.per_worker.value *= factor;
            way.all.value *= factor;
        }
        level.latency_s.value /= factor;
    }
    for unit in &mut m.units {
        unit.per_worker.value *= factor;
        unit.all.value *= factor;
    }
    m.workers.clock_hz.value *= factor;
    m.costs.launch_s.value /= factor;
    m.costs.step_s.value /= factor;
    m
}

/// The CPU and the GPU share a plan, where the GPU is worth it and where it is not.
#[test]
fn two_devices() {
    let Some(one) = engine() else { return };
    let shares = [0.01, 3.0, 100.0].map(|factor| {
        let machine = faster(&one, factor);
        let pair = engine_on("cpu+wgpu", None, None, Some(machine)).expect("two devices");
        check_on(pair, "digits_cnn")
    });
    let [Some(slow), Some(both), Some(fast)] = shares else {
        return;
    };
    let cpu = |s: &planview::Shares| s.steps_by_device.contains_key("cpu");
    assert!(cpu(&slow) && slow.steps_by_device.len() == 1, "{slow:?}");
    assert!(cpu(&both) && both.steps_by_device.len() == 2, "{both:?}");
    // What comes back to the host may have its last step there, by what was measured of this CPU.
    let work = fast.flop_by_device.get("cpu").is_some_and(|f| *f > 0.0);
    assert!(!work && fast.flop_by_device.len() <= 2, "{fast:?}");
}

/// A request that is called off when the GPU was handed something ends, and the next one is right.
#[test]
fn requests_are_called_off_between_submissions() {
    if !testing::turn("webgpu: requests_are_called_off_between_submissions") {
        return;
    }
    type Told = Arc<Mutex<Option<(runtime::Cancel, usize)>>>;
    let (told, count): (Told, Arc<AtomicUsize>) = Default::default();
    let (asked, counted) = (told.clone(), count.clone());
    let device = match webgpu::WebGpuDevice::open(None) {
        Ok(d) => d,
        Err(e) => return testing::skip("webgpu: requests called off", &e.to_string()),
    };
    // Few tasks each, so that a small model goes out in many submissions.
    let device = device.with_submissions(2, 64).with_tell(move || {
        let n = counted.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some((off, at)) = &*asked.lock().unwrap()
            && n >= *at
        {
            off.cancel();
        }
    });
    use device::Device;
    let own = (device.machine().clone(), device.target().clone());
    let planner = planner::Planner::new(vec![own], planner::PlanOptions::default());
    let engine = runtime::Engine::new(Arc::new(device), Arc::new(planner));
    let Some(o) = opened(engine, "digits_cnn") else {
        return;
    };
    let session = &o.session;
    let given = inputs::borrowed(&o.inputs);
    let off_at = |at: usize| {
        let off = runtime::Cancel::new();
        count.store(0, Ordering::Relaxed);
        *told.lock().unwrap() = Some((off.clone(), at));
        let call = runtime::Call {
            cancel: Some(&off),
            deadline: None,
        };
        let out = session.run_call(&given, call);
        *told.lock().unwrap() = None;
        (out, count.load(Ordering::Relaxed))
    };
    let want = session.run(&given).expect("a result").into_vec();
    let (out, all) = off_at(usize::MAX);
    assert!(out.expect("a result").into_vec() == want);
    assert!(all > 4, "{all} submissions");
    for at in 1..all {
        let (out, made) = off_at(at);
        match out {
            Ok(_) => panic!("it was called off after {at} submissions"),
            Err(e) => assert!(e.to_string().contains("cancelled"), "{e}"),
        }
        assert_eq!(made, at.min(all), "of {all}");
        let again = session.run(&given).expect("a result").into_vec();
        assert!(again == want, "the request after {at} of {all}");
    }
}

/// `SHOPFLOOR_ON_MODELS=a,b`: those models.
#[test]
fn models_asked_for() {
    let list = std::env::var("SHOPFLOOR_ON_MODELS").unwrap_or_default();
    for name in list.split(',').filter(|n| !n.is_empty()) {
        let began = std::time::Instant::now();
        check(name);
        println!("{name}: {:.1} s", began.elapsed().as_secs_f64());
    }
}
