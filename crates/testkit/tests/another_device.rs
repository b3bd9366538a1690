//! A plan over the CPU and an emulated GPU whose description promises what is not there: the supervisor finds
//! it while requests are answered, and steps go to the other device.
extern crate shopfloor_testkit as testkit;

use shopfloor::supervisor::supervise::Mode;
use shopfloor::{
    Machine, Session, SuperviseOptions, Supervision, Tensor, engine_on, machines, planview,
};
use std::time::{Duration, Instant};
use testkit::zoo;

/// An A100 of which the file says that kernels start at once, that its clock is many times as fast, and that
/// the road to it takes no time.
fn promised() -> Machine {
    let mut m = machines::find("a100").expect("machine");
    for text in [
        "clock=8x",
        "pcie=64x",
        "pcie.latency=0.01x",
        "launch=0.01x",
        "step=0.01x",
    ] {
        let change: machine::Change = text.parse().expect("a change");
        change.apply(&mut m).expect("it applies");
    }
    m
}

#[test]
fn steps_go_to_the_other_device_beside_traffic() {
    let model = zoo::find("digits_cnn").expect("bundled");
    let prepared = model.prepare_temporary().expect("weights");
    let engine = engine_on("cpu+emulated:a100", None, None, Some(promised())).expect("two devices");
    let session = Session::builder()
        .with_engine(engine.clone())
        .commit_from_file(&prepared.model)
        .expect("session");
    let given = model.inputs().expect("inputs");
    let named: Vec<(&str, &Tensor)> = given.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let far = |s: &Session| -> usize {
        let plan = s.runtime().current_plan().expect("a plan");
        let steps = plan.plan().blocks().flat_map(|b| &b.steps);
        steps.filter(|s| s.device == 1).count()
    };
    let right = || {
        let outputs = session.run(&named).expect("a request").into_vec();
        let report = model.check(&outputs).expect("references");
        assert!(report.passed(), "{report}");
    };
    right();
    let before = far(&session);
    println!("{:?}", planview::shares(&session));
    assert!(before > 0, "nothing is on the GPU");
    let options = SuperviseOptions {
        window: Duration::from_millis(50),
        ..SuperviseOptions::of(Mode::On)
    };
    let supervision = Supervision::start(&engine, options).expect("a supervisor");
    let until = Instant::now() + Duration::from_secs(60);
    let promoted = || engine.decisions().iter().any(|d| d.why.pass == "promoted");
    while !promoted() {
        right();
        assert!(Instant::now() < until, "{:#?}", engine.decisions());
    }
    supervision.finish().expect("an end");
    right();
    let decisions = engine.decisions();
    let tried = decisions.iter().find(|d| d.why.pass == "trying");
    let choice = &tried.expect("a trial").why.choice;
    println!("{choice}");
    assert!(choice.contains("another"), "{choice}");
    assert!(far(&session) < before, "{decisions:#?}");
}
