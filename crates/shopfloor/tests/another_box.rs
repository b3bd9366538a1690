//! A box beside one that was planned takes its schedules: no other answers, and no chain of boxes away
//! from where a schedule was looked for.

use plan::{Plan, Step, VerifiedPlan, Why};
use shopfloor::{Session, Tensor, default_engine, inputs};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

fn session() -> Session {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/digits_cnn/model.onnx");
    Session::builder()
        .with_engine(default_engine(Some(2), None, None).unwrap())
        .commit_from_file(model)
        .unwrap()
}

fn answer(s: &Session, batch: i64) -> Vec<(String, Tensor)> {
    let sizes = [("batch".to_string(), batch)].into_iter().collect();
    let named = inputs::random_inputs(s.model(), &sizes).unwrap();
    s.run(&inputs::borrowed(&named)).unwrap().into_vec()
}

/// The plan for `batch`.
fn plan_for(s: &Session, batch: i64) -> Arc<VerifiedPlan> {
    let range = |p: &Plan| p.dims.get("batch").map(|r| (r.lo, r.hi));
    let plans = s.runtime().plans();
    let mut found = plans.into_iter();
    found
        .find(|p| range(p.plan()) == Some((batch, batch)))
        .expect("a plan for this batch")
}

/// Every step of the plan for `batch` that took its schedule, with the batch it was taken from.
fn taken(s: &Session, batch: i64) -> Vec<(String, i64)> {
    let verified = plan_for(s, batch);
    let plan = verified.plan();
    let steps = plan.blocks().flat_map(|b| b.init.iter().chain(&b.steps));
    let from = |step: &Step| {
        let of = |w: &&Why| w.pass == "schedule" && w.subject == step.name;
        let said = plan.whys.iter().find(of).map(|w| w.choice.as_str());
        let from = said.and_then(|c| c.strip_prefix("that of batch="));
        assert_eq!(from.is_some(), step.taken, "{}: {said:?}", step.name);
        let number = from.and_then(|f| f.split(',').next()?.parse().ok());
        Some((step.name.clone(), number?))
    };
    steps.filter_map(from).collect()
}

#[test]
fn another_box_takes_schedules_and_answers_the_same() {
    let s = session();
    let (mut took, mut boxes) = (0, BTreeSet::new());
    for batch in [4, 6, 8, 3, 2, 9, 17, 40, 41, 1] {
        let got = answer(&s, batch);
        assert_eq!(plan_for(&s, batch).plan().is_like(), batch != 4, "{batch}");
        for (step, from) in taken(&s, batch) {
            // From where it was looked for: no chain of boxes leads away from there.
            let there = plan_for(&s, from);
            let mut steps = there.plan().blocks().flat_map(|b| &b.steps);
            let earlier = steps.find(|s| s.name == step).expect("the same step");
            assert!(!earlier.taken, "batch {batch}, step {step}, from {from}");
            took += 1;
            boxes.insert(from);
        }
        let want = answer(&session(), batch);
        assert_eq!(got.len(), want.len());
        for ((_, g), (_, w)) in got.iter().zip(&want) {
            assert_eq!(g.shape(), w.shape());
            for i in 0..g.len() {
                let (g, w) = (g.get_f64(i), w.get_f64(i));
                assert!((g - w).abs() <= 1e-5 * w.abs().max(1.0), "{g} {w}");
            }
        }
    }
    assert!(took > 20, "{took}");
    // What another box had to look for is there for boxes near that one.
    assert!(boxes.len() > 1, "{boxes:?}");
    let last = plan_for(&s, 41);
    let all = last.plan().blocks().flat_map(|b| &b.steps);
    let looked: Vec<&str> = all.filter(|s| !s.taken).map(|s| s.name.as_str()).collect();
    assert!(looked.is_empty(), "{looked:?} beside a box of 40");
}

#[test]
fn schedules_outlive_the_plans_that_looked_for_them() {
    let s = session();
    answer(&s, 4);
    answer(&s, 64);
    let looked = |batch: i64| {
        let plan = plan_for(&s, batch);
        let steps = plan.plan().blocks().flat_map(|b| &b.steps);
        steps.filter(|s| !s.taken).count()
    };
    let searched = looked(64);
    assert!(
        searched > 0,
        "64 is far from 4 and has schedules of its own"
    );
    // More boxes than plans are kept.
    for batch in (100..2000).step_by(100) {
        answer(&s, batch);
    }
    let there = |b: i64| {
        let range = |p: &Plan| p.dims.get("batch").map(|r| (r.lo, r.hi));
        let plans = s.runtime().plans();
        plans.iter().any(|p| range(p.plan()) == Some((b, b)))
    };
    assert!(!there(64), "the plan is gone");
    answer(&s, 63);
    assert_eq!(looked(63), 0);
}
