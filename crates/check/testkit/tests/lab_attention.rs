//! Attention that was measured on an H100, as its plans predict it: by matrix instructions of warpgroups.
use crate::lab::machine_code;
use kernel::{Family, Fragment, Mapping, TileProgram};
use layout::{DType, DimBox};
use machine::Machine;
use plan::{Allotment, Plan, Planner as _, Step, StepWork};
use planner::{PlanOptions, Planner};
use shopfloor::Model;
use std::path::Path;
use testkit::lab::{ATTENTIONS, Attention, Mask};

/// How much less and more than what was measured a prediction may be.
const WITHIN: [f64; 2] = [0.85, 1.2];

/// The plan of an attention in f16 by these matrix instructions.
fn planned(a: &Attention, by: &dyn Fn(&Fragment) -> bool) -> Plan {
    let model = a.model(DType::F16).expect("a model");
    on_h100(&model, by)
}

/// The plan of a model by these matrix instructions.
fn on_h100(model: &Model, by: &dyn Fn(&Fragment) -> bool) -> Plan {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plan/machine/machines");
    let machine = |name: &str| Machine::from_file(&machines.join(name)).expect("a machine");
    let mut target = emit::ptx::target("sm_90a");
    if let Some(gpu) = &mut target.gpu {
        gpu.fragments.retain(by);
    }
    let host = (machine("zen4-2core.toml"), cpu::target(cpu::Isa::Avx2));
    let on = vec![host, (machine("h100.toml"), target)];
    Planner::new(on, PlanOptions::default())
        .bind(model.program(), &DimBox::new(), &Allotment::default())
        .expect("a plan")
}

/// The kernels of a plan but for copies: one, or two where keys are cut into parts.
fn kernels(plan: &Plan) -> Vec<(&Step, TileProgram)> {
    let steps = plan.blocks().flat_map(|b| &b.steps);
    let made = steps.filter_map(|s| match &s.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } if kernel.family != Family::Move => {
            Some((s, TileProgram::new(kernel.clone(), schedule.clone()).ok()?))
        }
        _ => None,
    });
    made.collect()
}

/// What all of them take, in microseconds.
fn predicted(plan: &Plan) -> f64 {
    let all = kernels(plan).into_iter().map(|k| k.0.predicted.time_s);
    all.sum::<f64>() * 1e6
}

/// Warpgroups are chosen because they are predicted to be faster, near what was measured; their texts are assembled to
/// products that read weights from registers, without spills, none of which waits for another.
#[test]
fn attention_is_planned_for_warpgroups() {
    if !testing::turn("attention_is_planned_for_warpgroups") {
        return;
    }
    let mut wrong = String::new();
    for a in &ATTENTIONS {
        let best = planned(a, &|_| true);
        let (_, program) = kernels(&best).remove(0);
        let Mapping::Gpu(g) = &program.schedule().mapping else {
            panic!("not for a GPU");
        };
        let f = g.fragment.expect("a matrix instruction");
        let by_warps = predicted(&planned(a, &|f| f.warps() == 1));
        let own = predicted(&best);
        let line = format!(
            "{} x {} x {}: predicted {own:.1} us in {} steps by {} and {} warps, {by_warps:.1} by those of warps; measured {} us\n",
            a.heads,
            a.length,
            a.depth,
            kernels(&best).len(),
            f.name(),
            g.warps_text(),
            a.measured_us
        );
        print!("{line}");
        let [least, most] = WITHIN.map(|w| w * a.measured_us);
        if f.warps() == 1 || own > by_warps || !(least..=most).contains(&own) {
            wrong += &line;
            continue;
        }
        let text = emit::ptx::emit(&program, "sm_90a").expect("a text").text;
        let across = text
            .lines()
            .filter(|l| l.contains("wgmma.mma_async") && l.ends_with(", 1, 1, 1;"));
        assert!(across.count() > 0, "{text}");
        if let Some(code) = machine_code(&text) {
            assert!(code.contains("HGMMA"), "{code}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A last piece of keys that is a part of one is looked at by itself: elsewhere nobody asks whether a key exists, and as
/// many whole pieces take little less.
#[test]
fn a_last_piece_that_is_a_part_takes_little_longer_than_a_whole_one() {
    if !testing::turn("a_last_piece_that_is_a_part_takes_little_longer_than_a_whole_one") {
        return;
    }
    for (heads, part, whole) in [(6, 1500, 1536), (24, 200, 256)] {
        let [part, whole] = [part, whole].map(|length| {
            let a = Attention {
                heads,
                length,
                depth: 64,
                measured_us: 0.0,
            };
            predicted(&planned(&a, &|_| true))
        });
        println!("{part:.2} us, {whole:.2} us of whole pieces");
        assert!(part <= 1.1 * whole, "{part} us, {whole} us of whole pieces");
    }
}

/// Keys that a causal mask hides from all rows of a task are not gone through: half of them. The longest task, which goes
/// through all, may be the last one that begins. So little is won where all tasks are there at once, and what a task does
/// besides its loop is counted for that one too: of few keys it may be predicted to take a little more.
#[test]
fn a_causal_mask_halves_what_is_gone_through() {
    if !testing::turn("a_causal_mask_halves_what_is_gone_through") {
        return;
    }
    let mut wrong = String::new();
    for (length, most) in [(128, 1.15), (512, 1.1), (1500, 1.0), (4096, 0.8)] {
        for dtype in [DType::F16, DType::F32] {
            let a = Attention {
                heads: 12,
                length,
                depth: 64,
                measured_us: 0.0,
            };
            let of = |mask| {
                let model = a.masked(dtype, mask).expect("a model");
                predicted(&on_h100(&model, &|_| true))
            };
            let [none, all, own] = [Mask::None, Mask::CausalButLast, Mask::Causal].map(of);
            let line = format!(
                "{length} tokens of {dtype}: {own:.1} us, {all:.1} through all keys, {none:.1} without a mask\n"
            );
            print!("{line}");
            if own > most * all {
                wrong += &line;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
