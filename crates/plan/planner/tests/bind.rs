//! Plans of small programs written by hand.
use crate::build::*;
use kernel::{Family, Kernel};
use layout::{DType, Dim, DimBox};
use plan::{
    Allotment, Item, ItemWork, Plan, PlanSegment, Planner as _, Segment, ValueIx, ValueOrigin,
};
use shopfloor_planner::{PlanOptions, Planner, predict_steps};

#[test]
fn same_arguments_same_bytes() {
    for p in [
        gemm(384, 768, 3072),
        convs(1, 28, 64),
        softmax(),
        concat(),
        state(),
    ] {
        let json = |p: &Plan| serde_json::to_string(p).unwrap();
        let (a, b) = (bind(&p, &dims()), bind(&p, &dims()));
        assert_eq!(json(&a), json(&b));
        a.verify().unwrap();
    }
}

/// The kernels that pack weights.
fn packings(p: &Plan) -> Vec<Kernel> {
    let steps = p.blocks().flat_map(|b| &b.init);
    let kernels = steps.filter_map(|s| match &s.work {
        plan::StepWork::Kernel { kernel, .. } => Some((**kernel).clone()),
        plan::StepWork::Host { .. } => None,
    });
    kernels.collect()
}

/// Candidates that read what is packed are late in the list where other shapes suit the rows better: they
/// are among those tried all the same.
#[test]
fn what_is_packed_is_tried_among_many() {
    let mut target = target();
    let shapes = [(64, 6), (48, 8), (32, 14), (16, 14)];
    let each = shapes
        .iter()
        .flat_map(|&(nr, most)| (1..=most).map(move |mr| (mr, nr)));
    target.micro = each
        .map(|(mr, nr)| kernel::MicroShape {
            mr,
            nr,
            efficiency: 0.95,
        })
        .collect();
    let machine = machine::lookup("zen5-2core").unwrap();
    let planner = Planner::new(vec![(machine, target)], PlanOptions::default());
    let rest = Allotment::default();
    for (k, w) in [(192, 640), (384, 1536), (768, 768)] {
        let first = planner.bind(&gemm(6, k, w), &dims(), &rest).unwrap();
        let first = first.verify().unwrap();
        for m in [15, 18, 24, 30, 48] {
            let plan = planner
                .bind_like(&gemm(m, k, w), &dims(), &rest, &[&first])
                .unwrap();
            assert_eq!(packings(&plan), packings(first.plan()), "{k} {w} {m}");
        }
    }
}

#[test]
fn another_box_reads_what_is_packed() {
    let mut other = 0;
    for first in [8, 32, 384] {
        let verified = bind(&gemm(first, 768, 768), &dims()).verify().unwrap();
        let like = verified.plan();
        assert_eq!(packings(like).len(), 1);
        for m in [16, 24, 33, 48, 64, 100, 400] {
            let p = gemm(m, 768, 768);
            let plain = bind(&p, &dims());
            let plan = planner()
                .bind_like(&p, &dims(), &Allotment::default(), &[&verified])
                .unwrap();
            let pays = plan.predicted.time_s > 1.25 * plain.predicted.time_s;
            assert!(!pays, "{first} {m}");
            plan.clone().verify().unwrap();
            if packings(&plain) != packings(like) && packings(&plan) == packings(like) {
                other += 1;
            }
        }
        // A plan is like itself.
        let again = planner()
            .bind_like(
                &gemm(first, 768, 768),
                &dims(),
                &Allotment::default(),
                &[&verified],
            )
            .unwrap();
        assert_eq!(packings(&again), packings(like));
    }
    assert!(other > 0, "no box would have packed otherwise");
}

#[test]
fn what_was_proved_holds_for_the_same_programs_alone() {
    use plan::{PlanSegment, StepWork};
    use std::sync::Arc;
    let plan = bind(&gemm(64, 768, 768), &dims());
    let verified = plan.clone().verify().unwrap();
    let with = |change: &dyn Fn(&mut kernel::Kernel, &mut kernel::Schedule)| {
        let mut plan = plan.clone();
        let PlanSegment::Block(b) = &mut plan.segments[0] else {
            panic!("a block");
        };
        let StepWork::Kernel {
            kernel, schedule, ..
        } = &mut b.steps[0].work
        else {
            panic!("a kernel");
        };
        let (mut k, mut s) = (Kernel::clone(kernel), kernel::Schedule::clone(schedule));
        change(&mut k, &mut s);
        if k != **kernel {
            *kernel = Arc::new(k);
        }
        *schedule = Arc::new(s);
        let fresh = plan.clone().verify().map_err(|e| e.to_string());
        let like = plan.verify_like(&[&verified]).map_err(|e| e.to_string());
        assert_eq!(
            like.as_ref().map(|v| v.step_programs(0)),
            fresh.as_ref().map(|v| v.step_programs(0))
        );
        like.is_ok()
    };
    assert!(with(&|_, _| ()));
    assert!(with(&|_, s| s.chunk = 3));
    assert!(!with(&|_, s| s.chunk = 0));
    assert!(!with(&|_, s| s.raster = 0));
    assert!(!with(&|_, s| s.grid[0].tile = 0));
    assert!(!with(&|_, s| s.places.clear()));
    assert!(!with(&|k, _| k.tiles.clear()));
}

#[test]
fn state_stays_in_place() {
    let plan = bind(&state(), &dims());
    let b = plan.blocks().next().unwrap();
    assert_eq!(b.states.len(), 1);
    assert_eq!(b.steps.len(), 2, "the copy of the past is gone");
    let s = &b.states[0];
    assert_eq!(
        b.inputs[s.input as usize].buffer,
        b.outputs[s.output as usize].buffer
    );
    assert_eq!(b.buffers[s.buffer as usize].bytes, 4 * 128 * 64 * 4);
}

#[test]
fn state_that_is_reordered_is_not_shared() {
    let mut p = state();
    let Segment::Straight(items) = &mut p.segments[0] else {
        panic!()
    };
    let ItemWork::Kernel { kernel, .. } = &mut items[0].work else {
        panic!()
    };
    // The past goes to the end of the present: no longer where it lay.
    std::sync::Arc::make_mut(kernel).operands[1].access.offset = Dim::sym("new") * n(64);
    let plan = bind(&p, &dims());
    assert!(
        plan.blocks()
            .all(|b| b.states.is_empty() && b.steps.len() == 3)
    );
    let why = plan.whys.iter().find(|w| w.pass == "state").unwrap();
    assert_eq!(why.choice, "not in place");
}

#[test]
fn a_late_size_ends_the_plan() {
    let plan = bind(&concat(), &DimBox::new());
    assert_eq!(plan.segments, vec![PlanSegment::Deferred { segment: 0 }]);
}

#[test]
fn too_little_memory_is_an_error() {
    let a = Allotment {
        memory: Some(1000),
        ..Allotment::default()
    };
    let e = planner()
        .bind(&gemm(384, 768, 3072), &DimBox::new(), &a)
        .unwrap_err();
    assert!(e.to_string().contains("memory"), "{e}");
}

#[test]
fn two_readers_share_one_packed_copy() {
    let mut p = gemm(384, 768, 3072);
    let Segment::Straight(items) = &mut p.segments[0] else {
        panic!()
    };
    let mut second = items[0].clone();
    second.name = "again".into();
    let ItemWork::Kernel { args, .. } = &mut second.work else {
        panic!()
    };
    let out = p.values.len() as ValueIx;
    *args.last_mut().unwrap() = out;
    items.push(second);
    let made = p.values[3].clone();
    p.values.push(plan::ProgramValue {
        name: "z".into(),
        ..made
    });
    p.outputs.push(("z".into(), out));
    let plan = bind(&p, &DimBox::new());
    assert_eq!(plan.blocks().next().unwrap().init.len(), 1);
    plan.verify().unwrap();
}

#[test]
fn an_input_passed_on_is_copied() {
    let mut p = gemm(3, 40, 10);
    p.outputs.push(("x again".into(), 0));
    let plan = bind(&p, &DimBox::new());
    let b = plan.blocks().next().unwrap();
    assert_eq!((b.steps.len(), b.outputs.len()), (2, 2));
    assert_eq!(b.outputs[1].name, "x again");
    plan.verify().unwrap();
}

/// Steps of two matrix products in a row on a machine whose executor waits for tiles.
fn tiled_plan() -> Plan {
    let (machine, mut target) = (machine::lookup("zen5-2core").unwrap(), target());
    target.tile_waits = true;
    let planner = Planner::new(vec![(machine, target)], PlanOptions::default());
    let p = convs(1, 56, 64);
    planner
        .bind(&p, &dims(), &Allotment::default())
        .unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn waits_for_tiles_are_derived_and_proved() {
    let plan = tiled_plan();
    let steps = &plan.blocks().next().unwrap().steps;
    let tiled: Vec<usize> = (0..steps.len())
        .filter(|&i| {
            let tiles = |w: &plan::Wait| matches!(w, plan::Wait::Tiles { .. });
            steps[i].waits.iter().any(tiles)
        })
        .collect();
    println!("{} of {} steps wait for tiles", tiled.len(), steps.len());
    for &i in &tiled {
        let plan::Wait::Tiles { step, map } = &steps[i].waits[0] else {
            continue;
        };
        // Every task of the earlier step is needed by some task, and not all by the first.
        let value = |d: &Dim| dims().at_top(d);
        let (n, m) = (
            value(&steps[*step as usize].tasks).unwrap(),
            value(&steps[i].tasks).unwrap(),
        );
        let needs: Vec<(i64, i64)> = (0..m).map(|t| map.needs(t, n, &value).unwrap()).collect();
        assert_eq!(needs.first().unwrap().0, 0);
        assert_eq!(needs.last().unwrap().1, n);
        assert!(needs[0].1 < n, "{map:?}");
    }
    plan.clone().verify().unwrap_or_else(|e| panic!("{e}"));
    // Other spans are refused.
    for &i in &tiled {
        let mut p = plan.clone();
        let PlanSegment::Block(b) = &mut p.segments[0] else {
            panic!("a block")
        };
        for w in &mut b.steps[i].waits {
            if let plan::Wait::Tiles {
                map: plan::TileMap::Spans { after, span, .. },
                ..
            } = w
            {
                match after.is_zero() {
                    true => *span = span.clone() - Dim::ONE,
                    false => *after = Dim::ZERO,
                }
            }
        }
        assert!(p.verify().is_err());
    }
}

/// What a plan states for a step is the cost of the kernel that runs, whose lanes may have moved.
#[test]
fn stated_costs_are_those_of_what_runs() {
    let (machine, target) = (machine::lookup("zen5-2core").unwrap(), target());
    // Neighbours in memory along the first axis.
    let mut first = program("first");
    let shape = [n(512), n(64)];
    let x = value(&mut first, "x", &shape, ValueOrigin::Input(0));
    let y = value(&mut first, "y", &shape, ValueOrigin::Made);
    let mut b = kernel("relu", Family::Map, &[("c", n(64)), ("r", n(512))]);
    let access = b.access(&[(0, n(1)), (1, n(64))]);
    let t = b.load("x", access.clone(), x);
    let mut e = expr::ExprBuilder::new();
    let i = e.input(0, DType::F32);
    let o = expr::functions::relu(&mut e, i, DType::F32);
    let t = b.map("y", &[0, 1], e.finish(&[o]), &[t]);
    b.store("out", access, y, t);
    let item = b.item();
    first.segments.push(Segment::Straight(vec![item]));
    first.outputs.push(("y".into(), y));
    let mut moved = 0;
    for p in [
        gemm(384, 768, 3072),
        convs(1, 28, 64),
        softmax(),
        sums(64, 512),
        first,
    ] {
        let plan = bind(&p, &dims());
        let workers = plan.devices[0].workers as usize;
        let again = predict_steps(&plan, &machine, &target, workers);
        let steps = plan.blocks().flat_map(|b| &b.steps);
        for (step, cost) in steps.zip(&again) {
            let (stated, found) = (step.predicted.time_s, cost.time_s);
            let off = (stated - found).abs() / found;
            // How far data lies is estimated before the arena is laid out, and read off it afterwards.
            assert!(
                off < 5e-3,
                "{}: {stated} s, read again {found} s",
                step.name
            );
            let plan::StepWork::Kernel { kernel, .. } = &step.work else {
                continue;
            };
            let items = p.segments.iter().flat_map(Segment::items);
            let same = |i: &&Item| i.name == step.name;
            if let Some(ItemWork::Kernel { kernel: own, .. }) =
                items.into_iter().find(same).map(|i| &i.work)
            {
                moved += usize::from(own.axes != kernel.axes);
            }
        }
    }
    assert!(moved > 0, "no kernel's lanes moved");
}

/// What devices make of a host operator is made once, however many plans a program gets.
#[test]
fn plans_of_a_program_share_its_host_operators() {
    let mut p = program("host");
    let rows = Dim::sym("rows");
    symbol(&mut p, "rows", 0, 0);
    let x = value(&mut p, "x", &[rows.clone(), n(8)], ValueOrigin::Input(0));
    let y = value(&mut p, "y", &[rows, n(8)], ValueOrigin::Made);
    let op = std::sync::Arc::new(plan::HostOp {
        name: "some.operator".into(),
        attrs: Default::default(),
        reason: "a test".into(),
        made: Default::default(),
    });
    p.segments.push(Segment::Straight(vec![Item {
        name: "host".into(),
        work: ItemWork::Host {
            op: op.clone(),
            inputs: vec![Some(x)],
            outputs: vec![y],
        },
        nodes: vec![],
        given: None,
    }]));
    p.outputs.push(("y".into(), y));
    let of = |plan: &Plan| {
        let mut steps = plan.blocks().flat_map(|b| &b.steps);
        steps.find_map(|s| match &s.work {
            plan::StepWork::Host { op, .. } => Some(op.clone()),
            plan::StepWork::Kernel { .. } => None,
        })
    };
    let first = bind(&p, &dims()).verify().unwrap();
    let mut far = dims();
    far.insert("rows", 300, 400);
    let other = planner()
        .bind_like(&p, &far, &Allotment::default(), &[&first])
        .unwrap();
    for plan in [first.plan(), &other] {
        assert!(std::sync::Arc::ptr_eq(&of(plan).expect("a host step"), &op));
    }
}

/// A plan for one worker says nothing of what several could share.
#[test]
fn a_plan_for_more_workers_is_cut_for_them() {
    let one = Allotment {
        workers: vec![1],
        ..Allotment::default()
    };
    let mut whole = 0;
    for m in [8, 16, 64] {
        let p = gemm(m, 768, 768);
        let alone = planner().bind(&p, &dims(), &one).unwrap();
        let tasks = |p: &Plan| {
            let mut steps = p.blocks().flat_map(|b| &b.steps);
            steps.next().map(|s| s.cost_work.tasks)
        };
        whole += usize::from(tasks(&alone) == Some(1));
        let plain = bind(&p, &dims());
        let alone = alone.verify().unwrap();
        let plan = planner()
            .bind_like(&p, &dims(), &Allotment::default(), &[&alone])
            .unwrap();
        let (took, best) = (plan.predicted.time_s, plain.predicted.time_s);
        assert!(
            took < 1.25 * best,
            "{m}: {took:e} s where {best:e} s would do"
        );
    }
    assert!(whole > 0, "one worker has several tasks everywhere");
}
