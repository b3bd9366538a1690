//! A box beside one that was planned takes its schedules: no other answers, and no chain of boxes away
//! from where a schedule was looked for.

use plan::{Plan, Step, VerifiedPlan, Why};
use shopfloor::{Session, SessionBuilder, Tensor, default_engine, inputs};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

fn builder() -> SessionBuilder {
    Session::builder().with_engine(default_engine(Some(2), None, None).unwrap())
}

fn of(builder: SessionBuilder) -> Session {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models/digits_cnn/model.onnx");
    builder.commit_from_file(model).unwrap()
}

fn session() -> Session {
    of(builder())
}

/// Whether two sessions answered the same.
fn agree(got: &[(String, Tensor)], want: &[(String, Tensor)]) {
    assert_eq!(got.len(), want.len());
    for ((_, g), (_, w)) in got.iter().zip(want) {
        assert_eq!(g.shape(), w.shape());
        for i in 0..g.len() {
            let (g, w) = (g.get_f64(i), w.get_f64(i));
            assert!((g - w).abs() <= 1e-5 * w.abs().max(1.0), "{g} {w}");
        }
    }
}

fn answer(s: &Session, batch: i64) -> Vec<(String, Tensor)> {
    let sizes = [("batch".to_string(), batch)].into_iter().collect();
    let named = inputs::random_inputs(s.model(), &sizes).unwrap();
    s.run(&inputs::borrowed(&named)).unwrap().into_vec()
}

fn range(p: &Plan) -> (i64, i64) {
    p.dims.get("batch").map(|r| (r.lo, r.hi)).expect("a batch")
}

/// The last plan that was made for `batch`.
fn plan_for(s: &Session, batch: i64) -> Arc<VerifiedPlan> {
    let covers = |p: &Plan| range(p).0 <= batch && batch <= range(p).1;
    let mut plans = s.runtime().plans().into_iter();
    plans
        .find(|p| covers(p.plan()))
        .expect("a plan for this batch")
}

/// Every step of the plan for `batch` that took its schedule, with the batches it was taken from.
fn taken(s: &Session, batch: i64) -> Vec<(String, (i64, i64))> {
    let verified = plan_for(s, batch);
    let plan = verified.plan();
    let steps = plan.blocks().flat_map(|b| b.init.iter().chain(&b.steps));
    let from = |step: &Step| {
        let of = |w: &&Why| w.pass == "schedule" && w.subject == step.name;
        let said = plan.whys.iter().find(of).map(|w| w.choice.as_str());
        let from = said.and_then(|c| c.strip_prefix("that of batch="));
        assert_eq!(from.is_some(), step.taken, "{}: {said:?}", step.name);
        let (lo, hi) = {
            let dims = from?.split(',').next()?;
            dims.split_once("..").unwrap_or((dims, dims))
        };
        Some((step.name.clone(), (lo.parse().ok()?, hi.parse().ok()?)))
    };
    steps.filter_map(from).collect()
}

#[test]
fn another_box_takes_schedules_and_answers_the_same() {
    let s = session();
    let (mut took, mut boxes) = (0, BTreeSet::new());
    for batch in [4, 6, 8, 3, 2, 9, 17, 40, 41, 52, 1] {
        let got = answer(&s, batch);
        assert_eq!(plan_for(&s, batch).plan().is_like(), batch != 4, "{batch}");
        for (step, from) in taken(&s, batch) {
            // From where it was looked for: no chain of boxes leads away from there.
            let mut plans = s.runtime().plans().into_iter();
            let there = plans.find(|p| range(p.plan()) == from).expect("its plan");
            let mut steps = there.plan().blocks().flat_map(|b| &b.steps);
            let earlier = steps.find(|s| s.name == step).expect("the same step");
            assert!(!earlier.taken, "batch {batch}, step {step}, from {from:?}");
            took += 1;
            boxes.insert(from);
        }
        agree(&got, &answer(&session(), batch));
    }
    assert!(took > 20, "{took}");
    // What another box had to look for is there for boxes near that one.
    assert!(boxes.len() > 1, "{boxes:?}");
    let last = plan_for(&s, 52);
    let mut plans = s.runtime().plans().into_iter();
    let beside = plans.find(|p| range(p.plan()) == (33, 48)).unwrap();
    let looked = |p: &VerifiedPlan| -> BTreeSet<String> {
        let all = p.plan().blocks().flat_map(|b| &b.steps);
        let own = all.filter(|s| !s.taken).map(|s| s.name.clone());
        own.collect()
    };
    let both: Vec<_> = looked(&last)
        .intersection(&looked(&beside))
        .cloned()
        .collect();
    assert!(both.is_empty(), "{both:?} beside a box that ends at 48");
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
    for batch in [100, 300, 600, 1100, 1600, 200, 250, 30, 12, 6, 2, 1, 3] {
        answer(&s, batch);
    }
    let plans = s.runtime().plans();
    let there = plans.iter().any(|p| range(p.plan()) == (64, 64));
    assert!(!there, "the plan is gone");
    answer(&s, 63);
    assert_eq!(looked(63), 0);
}

/// A batch that is another one with every request stops being planned for, and the answers stay.
#[test]
fn sizes_that_vary_get_plans_for_ranges() {
    let s = session();
    let mut drawn = fastrand::Rng::with_seed(7);
    for n in 0..300 {
        let batch = drawn.i64(1..=200);
        let got = answer(&s, batch);
        if n % 25 == 0 {
            agree(&got, &answer(&session(), batch));
        }
    }
    let made = s.runtime().planned_for_requests();
    assert!((5..=20).contains(&made), "{made} plans for 300 requests");
    let ranges: Vec<_> = s
        .runtime()
        .plans()
        .iter()
        .map(|p| range(p.plan()))
        .collect();
    assert!(ranges.iter().any(|r| r.1 > r.0), "{ranges:?}");
    // No range is for more than twice the size that was asked for.
    assert!(ranges.iter().all(|r| r.1 < 2 * r.0), "{ranges:?}");

    // Where plans follow from nothing but the dims asked for, they do.
    let fixed = of(builder().deterministic());
    for batch in [9, 20, 30, 40, 50] {
        answer(&fixed, batch);
    }
    let plans = fixed.runtime().plans();
    assert!(plans.iter().all(|p| range(p.plan()).0 == range(p.plan()).1));
}

/// Where a range does not fit the memory that a session may take, and the size asked for does, that one is
/// planned for, then and later.
#[test]
fn a_range_that_does_not_fit_is_not_needed() {
    if !testing::turn("a_range_that_does_not_fit_is_not_needed") {
        return;
    }
    let with = |bytes: u64| of(builder().with_memory_limit(bytes));
    let sizes = [("batch".to_string(), 100)].into_iter().collect();
    let named = inputs::random_inputs(session().model(), &sizes).unwrap();
    let named = inputs::borrowed(&named);
    // The least memory in which requests of 100 run, by whatever plan: a range goes up to 112.
    let mut least = 1u64 << 16;
    let s = loop {
        let s = with(least);
        if s.run(&named).is_ok() {
            break s;
        }
        least += least / 64;
    };
    assert_eq!(range(plan_for(&s, 100).plan()), (100, 100), "{least} B");
    for batch in [4, 9, 100, 20] {
        agree(&answer(&s, batch), &answer(&session(), batch));
    }
    assert_eq!(range(plan_for(&s, 100).plan()), (100, 100), "{least} B");
}
