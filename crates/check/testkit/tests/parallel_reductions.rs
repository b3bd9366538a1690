//! Work that was one task or went element by element: reductions of everything, and a depthwise convolution
//! between row-major tensors. What is planned for them, and that they agree with the oracle.
use expr::{ExprBuilder, Monoid};
use graph::{ConvSpec, Graph, GraphBuilder, Op};
use kernel::{Family, Stmt};
use layout::{DType, Dim};
use plan::{Plan, StepWork};
use shopfloor::{Machine, Model, ModelOptions, Session, inputs};
use shopfloor_testkit::compare::difference;
use shopfloor_testkit::handwritten::{node, values};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

fn builder(name: &str) -> GraphBuilder {
    GraphBuilder::new(name, Arc::new(WeightStore::default()))
}

/// The plan of `g` for two workers of a machine that does not depend on this one, after its outputs for `x` were
/// compared with the oracle's.
fn planned(g: &Graph, x: &[(&str, Tensor)]) -> Plan {
    let machine = Machine::load("zen4-2core").unwrap();
    let session = Session::builder().with_threads(2).with_machine(machine);
    let model = Model::from_graph(&g.name, g, &ModelOptions::default()).unwrap();
    let session = session.commit(model).unwrap();
    let given: Vec<(&str, &Tensor)> = x.iter().map(|(n, t)| (*n, t)).collect();
    let got = session.run(&given).unwrap().into_vec();
    let tensors: Vec<Tensor> = x.iter().map(|x| x.1.clone()).collect();
    let want = reference::run_graph(g, &tensors).unwrap();
    for ((name, got), want) in got.iter().zip(&want) {
        let far = difference(got, want);
        assert!(far < 1e-5, "{}: {name} is {far:e} away", g.name);
    }
    let named: Vec<(String, Tensor)> = x.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    let sizes = inputs::sizes_of(session.model(), &named);
    let dims = inputs::box_of(session.model(), &sizes);
    session.plan(&dims).unwrap()
}

fn all(m: Monoid, rank: usize) -> Op {
    Op::Reduce {
        monoid: m,
        axes: (0..rank).collect(),
        keep: false,
    }
}

/// Families and tasks of the steps, and how many reductions each has.
fn steps(p: &Plan) -> Vec<(Family, i64, usize)> {
    let of = |s: &plan::Step| match &s.work {
        StepWork::Kernel { kernel, .. } => {
            let folds = kernel
                .body
                .iter()
                .filter(|s| matches!(s, Stmt::Fold { .. }));
            Some((kernel.family, s.tasks.known().unwrap_or(0), folds.count()))
        }
        StepWork::Host { .. } => None,
    };
    p.blocks().flat_map(|b| &b.steps).filter_map(of).collect()
}

#[test]
fn the_range_of_a_tensor_is_found_by_all_workers_in_one_pass() {
    let f = DType::F32;
    let mut b = builder("range");
    let x = b.input("x", f, vec![Dim::Known(512), Dim::Known(1024)]);
    let low = node(&mut b, all(Monoid::min(f, f), 2), &[x], "low");
    let high = node(&mut b, all(Monoid::max(f, f), 2), &[x], "high");
    let mut e = ExprBuilder::new();
    let (v, l, h) = (e.input(0, f), e.input(1, f), e.input(2, f));
    let (up, span) = (e.sub(v, l), e.sub(h, l));
    let share = e.div(up, span);
    let y = node(&mut b, Op::Map(e.finish(&[share])), &[x, low, high], "y");
    let g = b.finish(&[y]);
    let plan = planned(&g, &[("x", values(f, &[512, 1024], 3))]);
    let steps = steps(&plan);
    let (_, tasks, folds) = steps[0];
    assert!(tasks >= 2 && folds == 2, "{steps:?}");
    let (family, tasks, _) = *steps.last().unwrap();
    assert!(family == Family::Map && tasks >= 2, "{steps:?}");
}

#[test]
fn what_no_cache_holds_is_walked_in_pieces_that_one_does() {
    let f = DType::F32;
    let mut b = builder("long");
    let x = b.input("x", f, vec![Dim::Known(1 << 19)]);
    let y = node(&mut b, all(Monoid::max(f, f), 1), &[x], "y");
    let g = b.finish(&[y]);
    let plan = planned(&g, &[("x", values(f, &[1 << 19], 4))]);
    let loops = plan
        .blocks()
        .flat_map(|b| &b.steps)
        .find_map(|s| match &s.work {
            StepWork::Kernel { schedule, .. } => schedule.loops.first().map(|l| l.tile),
            StepWork::Host { .. } => None,
        });
    assert!(
        loops.is_some_and(|tile| tile >= 1 << 14),
        "pieces of {loops:?}"
    );
}

#[test]
fn a_depthwise_convolution_writes_whole_vectors() {
    let f = DType::F32;
    let k = Dim::Known;
    let mut b = builder("depthwise");
    let x = b.input("x", f, vec![k(1), k(48), k(20), k(20)]);
    let w = b.input("w", f, vec![k(48), k(1), k(3), k(3)]);
    let spec = ConvSpec {
        kernel: vec![3, 3],
        strides: vec![1, 1],
        dilations: vec![1, 1],
        before: vec![k(1), k(1)],
        after: vec![k(1), k(1)],
        groups: 48,
        transposed: false,
        outside: 0,
    };
    let y = node(&mut b, Op::Conv(spec), &[x, w], "y");
    let g = b.finish(&[y]);
    let given = [
        ("x", values(f, &[1, 48, 20, 20], 5)),
        ("w", values(f, &[48, 1, 3, 3], 6)),
    ];
    let plan = planned(&g, &given);
    let families: Vec<Family> = steps(&plan).iter().map(|s| s.0).collect();
    let at = families.iter().position(|f| *f == Family::Conv).unwrap();
    assert_eq!(families[at + 1..], [Family::Move], "{families:?}");
}
