//! Plans that the planner made of real models, each broken in one place: none is accepted. Beside
//! the 20,000 broken plans of the plan crate, whose plans are written by hand.
use crate::common;

use common::hollow;
use kernel::Role;
use layout::Dim;
use plan::*;
use planner::{Placement, PlanOptions};
use shopfloor::{DimBox, Model, ModelOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use testkit::random::Rng;
use testkit::zoo;

const EACH: usize = 700;

fn bind(
    name: &str,
    devices: usize,
    gpu: bool,
    states: &[(&str, &str)],
    dir: &std::path::Path,
) -> Plan {
    let zoo = zoo::find(name).expect("model");
    let options = ModelOptions {
        states: states
            .iter()
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect(),
        ..ModelOptions::default()
    };
    let model = Model::open(hollow(&zoo, dir), &options).expect("model opens");
    let mut dims = DimBox::new();
    for s in &model.program().symbols {
        if let SymbolOrigin::Input { input, axis } = s.origin {
            let v = model
                .program()
                .value(model.program().inputs[input as usize]);
            let n = zoo.meta().inputs[&v.name].shape[axis as usize] as i64;
            dims.insert(s.name.clone(), (n / 2).max(1), n * 2);
        }
    }
    let cpu = || {
        let machine = shopfloor::machines::find("zen4-2core").expect("machine");
        (machine, cpu::target(cpu::isa::Isa::Avx512))
    };
    let mut list: Vec<_> = (0..devices).map(|_| cpu()).collect();
    if gpu {
        let machine = shopfloor::machines::find("a100").expect("machine");
        list.push((machine, emit::ptx::target("sm_80")));
    }
    let options = PlanOptions {
        placement: match devices {
            2 => Placement::Listed(vec![0, 1, 1]),
            _ => Placement::Last,
        },
        ..PlanOptions::default()
    };
    let planner = planner::Planner::new(list, options);
    let allotment = Allotment {
        workers: vec![2, 2],
        ..Allotment::default()
    };
    planner
        .bind(model.program(), &dims, &allotment)
        .expect("plan")
}

fn plans() -> Vec<Plan> {
    let dir = tempfile::tempdir().expect("folder");
    let mut out = vec![
        bind("digits_cnn", 1, false, &[], dir.path()),
        bind("digits_cnn", 2, false, &[], dir.path()),
        bind("digits_cnn", 1, true, &[], dir.path()),
        bind("ppocr_rec", 2, false, &[], dir.path()),
        bind("magika", 1, false, &[], dir.path()),
        bind("silero_vad", 1, false, &[], dir.path()),
    ];
    // Attention over a state in place, control flow, sizes that must be equal.
    for (name, states) in [
        (
            "llama_gqa_ts",
            &[("past_key_values.0.key", "present.0.key")][..],
        ),
        ("gpt2_kv", &[][..]),
        ("llama_gqa_dynamo", &[][..]),
        ("loop_greedy", &[][..]),
        ("if_branches", &[][..]),
    ] {
        if zoo::find(name).is_some() {
            out.push(bind(name, 1, false, states, dir.path()));
        } else {
            zoo::skip(&[name]);
        }
    }
    out
}

/// The block that is broken: the one with the most steps.
fn block(p: &mut Plan) -> Option<&mut Block> {
    let blocks = p.segments.iter_mut().filter_map(|s| match s {
        PlanSegment::Block(b) => Some(&mut **b),
        _ => None,
    });
    blocks
        .max_by_key(|b| b.steps.len())
        .filter(|b| b.steps.len() > 1)
}

fn any<'a, T>(list: &'a mut [T], r: &mut Rng) -> Option<&'a mut T> {
    match list.len() {
        0 => None,
        n => list.get_mut(r.below(n)),
    }
}

type Kernel<'a> = (
    &'a mut kernel::Kernel,
    &'a mut kernel::Schedule,
    &'a mut Vec<BufferId>,
);

fn kernel_of(s: &mut Step) -> Option<Kernel<'_>> {
    match &mut s.work {
        StepWork::Kernel {
            kernel,
            schedule,
            args,
        } => Some((Arc::make_mut(kernel), Arc::make_mut(schedule), args)),
        StepWork::Host { .. } => None,
    }
}

fn writes(s: &Step) -> Vec<BufferId> {
    match &s.work {
        StepWork::Kernel { kernel, args, .. } => {
            let w = kernel.operands.iter().zip(args);
            w.filter(|(o, _)| o.role == Role::Write)
                .map(|(_, &a)| a)
                .collect()
        }
        StepWork::Host { outputs, .. } => outputs.iter().map(|a| a.buffer).collect(),
    }
}

fn reads(s: &Step) -> Vec<BufferId> {
    match &s.work {
        StepWork::Kernel { kernel, args, .. } => {
            let r = kernel.operands.iter().zip(args);
            r.filter(|(o, _)| o.role == Role::Read)
                .map(|(_, &a)| a)
                .collect()
        }
        StepWork::Host { inputs, .. } => inputs.iter().flatten().map(|a| a.buffer).collect(),
    }
}

/// Breaks a plan in a place that the generator picks; `None` when it has no such place.
type Break = fn(&mut Plan, &mut Rng) -> Option<()>;

const BREAKS: &[(&str, Break)] = &[
    ("version", |p, _| {
        p.version = 77;
        Some(())
    }),
    ("devices", |p, _| {
        p.devices[0].workers = 0;
        Some(())
    }),
    ("dims", |p, _| {
        let (s, _) = p.dims.iter().next()?;
        let s = s.clone();
        p.dims.insert(s, 5, 4);
        Some(())
    }),
    ("segments", |p, _| {
        p.segments.insert(0, PlanSegment::Deferred { segment: 0 });
        Some(())
    }),
    ("size", |p, r| {
        any(&mut block(p)?.steps, r)?.waits = vec![Wait::Step(0); 70_000];
        Some(())
    }),
    ("names", |p, r| {
        any(&mut block(p)?.steps, r)?.name.clear();
        Some(())
    }),
    ("symbols", |p, _| {
        block(p)?.symbols.push("nobody".into());
        Some(())
    }),
    ("constraints", |p, _| {
        block(p)?.constraints.push(Constraint {
            node: "x".into(),
            left: Dim::sym("nobody"),
            right: Dim::ONE,
        });
        Some(())
    }),
    ("params", |p, r| {
        let (k, ..) = kernel_of(any(&mut block(p)?.steps, r)?)?;
        let at = r.below(k.operands.len());
        k.operands[at].elements = Dim::Known(8).floor_div(&(Dim::sym("nobody") - Dim::ONE));
        Some(())
    }),
    ("buffers", |p, r| {
        any(&mut block(p)?.buffers, r)?.align = 3;
        Some(())
    }),
    ("arena", |p, r| {
        let b = block(p)?;
        let top = b.arena_bytes + b.far_arenas.iter().sum::<u64>();
        let x = any(&mut b.buffers, r)?;
        (x.kind == BufferKind::Arena && x.bytes > 0).then(|| x.offset = top.next_multiple_of(64))
    }),
    ("place", |p, r| {
        // Memory that a step uses, moved away from it; a copy may reach there.
        let n = p.devices.len() as u32;
        let b = block(p)?;
        let s = r.below(b.steps.len());
        let (k, _, args) = kernel_of(&mut b.steps[s])?;
        if n < 2 || k.body.len() == 2 {
            return None;
        }
        let x = args[r.below(args.len())] as usize;
        b.buffers[x].place = (b.buffers[x].place + 1) % n;
        b.far_arenas = vec![1 << 40; n as usize - 1];
        b.arena_bytes = 1 << 40;
        Some(())
    }),
    ("ports", |p, r| {
        let x = any(&mut block(p)?.inputs, r)?;
        let d = any(&mut x.shape, r)?;
        *d = d.clone() + Dim::Known(1 << 30);
        Some(())
    }),
    ("states", |p, _| {
        block(p)?.states.first_mut()?.buffer += 1;
        Some(())
    }),
    ("capacity", |p, _| {
        block(p)?.scratch_bytes = 1 << 60;
        Some(())
    }),
    ("ids", |p, r| {
        let b = block(p)?;
        let at = r.below(b.steps.len());
        b.steps[at].waits.push(Wait::Step(at as u32));
        Some(())
    }),
    ("waits", |p, r| {
        let s = any(&mut block(p)?.steps, r)?;
        let Some(Wait::Step(step)) = s.waits.first().cloned() else {
            return None;
        };
        s.waits[0] = Wait::Tiles {
            step,
            map: TileMap::Range { ratio: Dim::ZERO },
        };
        Some(())
    }),
    ("kernel", |p, r| {
        let (_, s, _) = kernel_of(any(&mut block(p)?.steps, r)?)?;
        s.chunk = 0;
        Some(())
    }),
    ("extents", |p, r| {
        let (k, ..) = kernel_of(any(&mut block(p)?.steps, r)?)?;
        let at = r.below(k.axes.len());
        k.axes.get_mut(at)?.extent = Dim::Known(-1);
        Some(())
    }),
    ("tasks", |p, r| {
        let s = any(&mut block(p)?.steps, r)?;
        s.tasks = s.tasks.clone() + Dim::ONE;
        Some(())
    }),
    ("scratch", |p, r| {
        let s = any(&mut block(p)?.steps, r)?;
        (s.scratch > 0).then(|| s.scratch -= 1)
    }),
    ("dtype", |p, r| {
        let (k, ..) = kernel_of(any(&mut block(p)?.steps, r)?)?;
        let at = r.below(k.operands.len());
        k.operands[at].dtype = layout::DType::U64;
        Some(())
    }),
    ("role", |p, r| {
        let b = block(p)?;
        let input = b.inputs.first()?.buffer;
        if !matches!(b.buffers[input as usize].kind, BufferKind::Input(_)) {
            return None;
        }
        let at = r.below(b.steps.len());
        let (k, _, args) = kernel_of(&mut b.steps[at])?;
        let w = k.operands.iter().position(|o| o.role == Role::Write)?;
        args[w] = input;
        Some(())
    }),
    ("inside", |p, r| {
        let b = block(p)?;
        let at = r.below(b.steps.len());
        let (k, _, args) = kernel_of(&mut b.steps[at])?;
        let o = r.below(k.operands.len());
        let bytes = b.buffers[args[o] as usize].bytes;
        let a = &mut k.operands[o].access;
        a.offset = match r.below(2) {
            0 => a.offset.clone() + Dim::Known(8 * bytes as i64),
            _ => a.offset.clone() - Dim::Known(8 * bytes as i64),
        };
        (bytes > 0).then_some(())
    }),
    ("race", |p, r| {
        let dims = p.dims.clone();
        let s = any(&mut block(p)?.steps, r)?;
        let many = dims.bounds(&s.tasks)?.lo > 1;
        let (k, ..) = kernel_of(s)?;
        let o = k.operands.iter_mut().find(|o| o.role == Role::Write)?;
        let n = o.access.terms.len();
        let t = o.access.terms.get_mut(r.below(n.max(1)))?;
        let long = dims.bounds(&k.axes[t.axis as usize].extent)?.lo > 1;
        t.leaves.iter_mut().for_each(|l| l.stride = Dim::ZERO);
        (many && long).then_some(())
    }),
    ("alias", |p, r| {
        let b = block(p)?;
        let at = r.below(b.steps.len());
        let arena: Vec<bool> = b
            .buffers
            .iter()
            .map(|x| x.kind == BufferKind::Arena)
            .collect();
        let (k, _, args) = kernel_of(&mut b.steps[at])?;
        let folds = k.body.iter().any(|s| !s.over().is_empty());
        let of = |role| k.operands.iter().position(|o| o.role == role);
        let (from, to) = (of(Role::Read)?, of(Role::Write)?);
        let small = k.operands[from].elements != k.operands[to].elements;
        let x = args[from];
        let y = args[to];
        if !(folds && arena[x as usize] && arena[y as usize]) || small || x == y {
            return None;
        }
        b.buffers[y as usize].offset = b.buffers[x as usize].offset;
        (b.buffers[x as usize].bytes > 0 && b.buffers[y as usize].bytes > 0).then_some(())
    }),
    ("order", |p, r| {
        // A reader that does not wait for the only writer of what it reads.
        let b = block(p)?;
        let at = r.below(b.steps.len());
        let from = reads(&b.steps[at]);
        let x = *from.get(r.below(from.len().max(1)))?;
        let writers: Vec<usize> = (0..b.steps.len())
            .filter(|&s| writes(&b.steps[s]).contains(&x))
            .collect();
        let [w] = writers.as_slice() else { return None };
        let wait = Wait::Step(*w as u32);
        let i = b.steps[at].waits.iter().position(|x| *x == wait)?;
        b.steps[at].waits.remove(i);
        Some(())
    }),
    ("written", |p, r| {
        // The only writer of an output is gone.
        let b = block(p)?;
        let n = b.outputs.len();
        let out = b.outputs.get(r.below(n.max(1)))?.buffer;
        if !matches!(b.buffers[out as usize].kind, BufferKind::Output(_)) {
            return None;
        }
        let writers: Vec<usize> = (0..b.steps.len())
            .filter(|&s| writes(&b.steps[s]).contains(&out))
            .collect();
        let [w] = writers.as_slice() else { return None };
        b.steps.remove(*w);
        for s in &mut b.steps {
            s.waits.retain(|x| *x != Wait::Step(*w as u32));
            for x in &mut s.waits {
                if let Wait::Step(x) = x
                    && *x as usize > *w
                {
                    *x -= 1;
                }
            }
        }
        Some(())
    }),
];

#[test]
fn broken_plans_of_the_planner_are_refused() {
    if !testing::turn("broken_plans_of_the_planner_are_refused") {
        return;
    }
    let good = plans();
    for p in &good {
        if let Err(e) = p.clone().verify() {
            panic!("'{}' on {} devices: {e}", p.model, p.devices.len());
        }
    }
    let mut tried: BTreeMap<&str, usize> = BTreeMap::new();
    let mut by_rule: BTreeMap<&str, usize> = BTreeMap::new();
    let mut done = 0;
    for (n, original) in good.iter().enumerate() {
        let mut rng = Rng::new(n as u64);
        let steps = original.blocks().map(|b| b.steps.len()).max().unwrap_or(0);
        let each = if steps > 60 { EACH / 7 } else { EACH };
        for _ in 0..each {
            let (name, f) = BREAKS[rng.below(BREAKS.len())];
            let mut p = original.clone();
            if f(&mut p, &mut rng).is_none() {
                continue;
            }
            done += 1;
            *tried.entry(name).or_default() += 1;
            match p.verify() {
                Ok(v) => panic!(
                    "'{}' on {} devices with broken {name} is accepted",
                    v.plan().model,
                    v.plan().devices.len()
                ),
                Err(PlanError::Rule { rule, .. }) => *by_rule.entry(rule).or_default() += 1,
                Err(e) => panic!("broken {name}: {e}"),
            }
        }
    }
    for (name, _) in BREAKS {
        assert!(
            tried.contains_key(name) || *name == "states",
            "'{name}' was never tried"
        );
        assert!(
            by_rule.contains_key(name) || *name == "states",
            "rule {name} caught nothing: {by_rule:?}"
        );
    }
    println!("{done} broken plans refused: {by_rule:?}");
}
