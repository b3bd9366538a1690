//! Host steps are few, and each is one that has a reason: over all steps of all zoo models, bodies of
//! loops and branches included.
use crate::common;

use plan::{HostOp, ItemWork, Program, Segment};
use shopfloor::{Model, ModelOptions};
use std::collections::BTreeMap;
use testkit::zoo;

/// The host steps that zoo models have, and why each is no kernel.
const KINDS: &[(&str, &str)] = &[
    ("core.recurrent", "recurrences over time"),
    (
        "core.scan",
        "running sums: each element needs the one before it",
    ),
    (
        "core.scatter_nd",
        "places that data gives are written in the order of the updates",
    ),
    (
        "core.sort",
        "a selection compares elements with each other: no tiles",
    ),
    (
        "Lengths",
        "only where lengths come from data: those beyond the sequence are refused",
    ),
    (
        "NonMaxSuppression",
        "the elements decide the result's extents",
    ),
    ("NonZero", "the elements decide the result's extents"),
    ("Pad", "only where sizes are computed from data"),
    ("Resize", "only where sizes are computed from data"),
    (
        "ml.TreeEnsembleClassifier",
        "a classical model, evaluated sample by sample",
    ),
    (
        "ml.TreeEnsembleRegressor",
        "a classical model, evaluated sample by sample",
    ),
];

/// Most host steps among all steps.
const SHARE: f64 = 0.03;

#[derive(Default)]
struct Count {
    steps: usize,
    host: BTreeMap<String, usize>,
}

impl Count {
    fn hosted(&mut self, op: &HostOp) {
        self.steps += 1;
        assert!(!op.reason.is_empty(), "host step {} has no reason", op.name);
        // Texts and sequences are held, not computed: no bytes of theirs lie in a buffer.
        if !op.name.contains("Sequence") && !op.name.starts_with("text.") && op.name != "Identity" {
            *self.host.entry(op.name.clone()).or_default() += 1;
        }
    }

    fn program(&mut self, p: &Program) {
        for s in &p.segments {
            match s {
                Segment::Straight(items) => {
                    for i in items {
                        match &i.work {
                            ItemWork::Host { op, .. } => self.hosted(op),
                            ItemWork::Kernel { .. } => self.steps += 1,
                        }
                    }
                }
                Segment::Late(i) => {
                    if let ItemWork::Host { op, .. } = &i.work {
                        self.hosted(op);
                    }
                }
                Segment::If {
                    then_branch,
                    else_branch,
                    ..
                } => {
                    self.program(then_branch);
                    self.program(else_branch);
                }
                Segment::Loop { body, .. } => self.program(body),
            }
        }
    }
}

#[test]
fn host_steps_are_few_and_known() {
    if !testing::turn("host_steps_are_few_and_known") {
        return;
    }
    let dir = tempfile::tempdir().expect("folder");
    let (mut steps, mut all) = (0, BTreeMap::<String, usize>::new());
    for name in zoo::names() {
        let model = zoo::find(&name).expect("model");
        let opened = Model::open(common::hollow(&model, dir.path()), &ModelOptions::default());
        let opened = opened.unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut c = Count::default();
        c.program(opened.program());
        if !c.host.is_empty() {
            println!("{name}: {} steps, host {:?}", c.steps, c.host);
        }
        steps += c.steps;
        for (k, n) in c.host {
            *all.entry(k).or_default() += n;
        }
    }
    let host: usize = all.values().sum();
    println!("{host} of {steps} steps: {all:?}");
    for k in all.keys() {
        assert!(
            KINDS.iter().any(|(n, _)| n == k),
            "host step {k} is not among those with a reason"
        );
    }
    assert!(
        host as f64 <= SHARE * steps as f64,
        "{host} of {steps} steps are host steps: {all:?}"
    );
}
