//! Long sums of few results on GPUs: two steps, the same bits every time, and only where it is predicted
//! to pay.
use conformance::Emulated;
use emit::ptx;
use expr::functions;
use expr::{ExprBuilder, Inst};
use graph::{ContractSpec, Graph, GraphBuilder, Op, Origin, ValueId};
use kernel::{Role, Stmt, Target, TileProgram};
use layout::{DType, Dim, DimBox};
use machine::Machine;
use plan::{Allotment, Block, Plan, Planner as _, StepWork};
use planner::{PlanOptions, Planner, ProgramOptions};
use reference::{Memory, run_graph, run_tiles};
use shopfloor_testkit::handwritten::values;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

fn node(b: &mut GraphBuilder, op: Op, inputs: &[ValueId], name: &str) -> ValueId {
    let origin = Origin {
        name: name.into(),
        op_type: String::new(),
    };
    b.node(op, inputs, &[name], &origin).unwrap()[0]
}

/// y[m, n] = relu(x[m, k] w[k, n] + c[n]), m a symbol.
fn product(d: DType, k: i64, n: i64) -> Graph {
    let mut b = GraphBuilder::new("skinny", Arc::new(WeightStore::default()));
    let x = b.input("x", d, vec![Dim::sym("m"), Dim::Known(k)]);
    let w = b.input("w", d, vec![Dim::Known(k), Dim::Known(n)]);
    let c = b.input("c", d, vec![Dim::Known(n)]);
    let spec = ContractSpec {
        a: vec![0, 2],
        b: vec![2, 1],
        out: vec![0, 1],
    };
    let y = node(&mut b, Op::Contract(spec), &[x, w], "product");
    let mut e = ExprBuilder::new();
    let (p, q) = (e.input(0, d), e.input(1, d));
    let s = e.add(p, q);
    let r = functions::relu(&mut e, s, d);
    let y = node(&mut b, Op::Map(e.finish(&[r])), &[y, c], "relu");
    b.finish(&[y])
}

fn machine(name: &str) -> Machine {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    Machine::from_file(&root.join(format!("crates/plan/machine/machines/{name}.toml"))).unwrap()
}

fn bound(g: &Graph, top: i64, machine: Machine, target: Target) -> Plan {
    let program = planner::program(g, &ProgramOptions::default()).unwrap();
    let mut dims = DimBox::new();
    dims.insert("m", 1, top);
    let planner = Planner::new(vec![(machine, target)], PlanOptions::default());
    let plan = planner.bind(&program, &dims, &Allotment::default());
    let plan = plan.unwrap();
    plan.clone().verify().unwrap();
    plan
}

fn block(plan: &Plan) -> &Block {
    plan.blocks().next().unwrap()
}

type Step<'a> = &'a dyn Fn(&TileProgram, &[Tensor]) -> Vec<Tensor>;

/// The block's only output, each step run by `run`.
fn outcome(b: &Block, inputs: &[Tensor], m: i64, run: Step) -> Tensor {
    let lookup = |s: &str| (s == "m").then_some(m);
    let mut held: BTreeMap<u32, Tensor> = BTreeMap::new();
    for (p, t) in b.inputs.iter().zip(inputs) {
        held.insert(p.buffer, t.clone());
    }
    for s in &b.steps {
        let StepWork::Kernel {
            kernel,
            schedule,
            args,
        } = &s.work
        else {
            panic!("step '{}' is no kernel", s.name)
        };
        let p = TileProgram::new((**kernel).clone(), (**schedule).clone()).unwrap();
        let mut given = vec![];
        for (o, a) in kernel.operands.iter().zip(args) {
            let n = o.elements.eval(&lookup).unwrap() as usize;
            let empty = || Tensor::zeros(o.dtype, &[n]).unwrap();
            given.push(held.get(a).cloned().unwrap_or_else(empty));
        }
        let written = kernel.operands.iter().zip(args);
        let written = written.filter(|x| x.0.role == Role::Write).map(|x| *x.1);
        for (a, t) in written.zip(run(&p, &given)) {
            held.insert(a, t);
        }
    }
    held.remove(&b.outputs[0].buffer).unwrap()
}

fn inputs(d: DType, m: usize, k: usize, n: usize) -> Vec<Tensor> {
    vec![
        values(d, &[m, k], 1),
        values(d, &[k, n], 2),
        values(d, &[n], 3),
    ]
}

const GPUS: [(&str, &str); 3] = [("t4", "sm_75"), ("a100", "sm_80"), ("h100", "sm_90a")];

#[test]
fn a_skinny_product_is_cut_along_its_sum() {
    if !testing::turn("a_skinny_product_is_cut_along_its_sum") {
        return;
    }
    // A type and rows for each GPU in turns: every launch is executed thread by thread.
    let share = testing::Share::of_run(9);
    println!("{share}");
    for (of, d) in [DType::F32, DType::F16].into_iter().enumerate() {
        let (k, n) = (16384, 64);
        let g = product(d, k, n);
        for (at, (name, arch)) in GPUS.into_iter().enumerate() {
            let plan = bound(&g, 16, machine(name), ptx::target(arch));
            let b = block(&plan);
            let why = plan.whys.iter().find(|w| w.choice.contains("parts along"));
            let why = why.unwrap_or_else(|| panic!("{d} for {name}: {:?}", plan.whys));
            println!("{d} for {name}: {}: {}", why.choice, why.reason);
            assert_eq!(b.steps.len(), 2, "{d} for {name}");
            // What it was preferred to takes longer.
            let whole = why.alternatives[0].predicted_s;
            assert!(b.predicted.time_s < whole, "{} {whole}", b.predicted.time_s);
            let cases = (0..).map(|c| c + 9 * of as u64 + 3 * at as u64);
            let rows = cases.zip([1usize, 7, 16]).find(|(c, _)| share.picks(*c));
            let Some((_, m)) = rows else { continue };
            let inputs = inputs(d, m, k as usize, n as usize);
            let want = &run_graph(&g, &inputs).unwrap()[0];
            let emulated = |seed: usize| {
                let e = Emulated::on(arch);
                outcome(b, &inputs, m as i64, &|p, given| {
                    let text = ptx::emit(p, arch).unwrap();
                    // Another order of CTAs each time.
                    let mut got = vec![];
                    for _ in 0..seed {
                        got = e.launch(p, &text, &[("m", m as i64)], given).unwrap();
                    }
                    got
                })
            };
            let got = emulated(1);
            let scale = (0..want.len()).map(|i| want.get_f64(i).abs());
            let scale = scale.fold(0.0, f64::max);
            let limit = if d == DType::F16 { 2e-3 } else { 1e-5 };
            for i in 0..want.len() {
                let (w, g) = (want.get_f64(i), got.get_f64(i));
                assert!((w - g).abs() <= limit * scale, "{name} m {m}: {g}, not {w}");
            }
            assert_eq!(got.bytes(), emulated(2).bytes(), "the same bits every time");
        }
    }
}

#[test]
fn the_reference_sees_the_same_in_wgsl_schedules() {
    // So few results that a team of threads for each leaves most multiprocessors without work.
    let (m, k, n) = (5usize, 131072usize, 2usize);
    let g = product(DType::F32, k as i64, n as i64);
    let target = emit::wgsl::target(emit::wgsl::Limits::default());
    // A large GPU with WGSL's kernels.
    let plan = bound(&g, 8, machine("a100"), target);
    let b = block(&plan);
    assert_eq!(b.steps.len(), 2, "{:?}", plan.whys);
    let inputs = inputs(DType::F32, m, k, n);
    let want = &run_graph(&g, &inputs).unwrap()[0];
    let got = outcome(b, &inputs, m as i64, &|p, given| {
        let mut memory = Memory::new();
        for (i, t) in given.iter().enumerate() {
            memory.bind(i as u16, t.clone());
        }
        let lookup = |s: &str| (s == "m").then_some(m as i64);
        run_tiles(p, &lookup, &mut memory, 3).unwrap();
        let operands = p.kernel().operands.iter().enumerate();
        let written = operands.filter(|o| o.1.role == Role::Write);
        written
            .map(|o| memory.get(o.0 as u16).unwrap().clone())
            .collect()
    });
    for i in 0..want.len() {
        let (w, g) = (want.get_f64(i), got.get_f64(i));
        assert!((w - g).abs() <= 1e-4 * (1.0 + w.abs()), "{g}, not {w}");
    }
}

#[test]
fn a_product_with_tasks_for_all_stays_whole() {
    let g = product(DType::F16, 4096, 4096);
    for (name, arch) in &GPUS[1..] {
        let plan = bound(&g, 4096, machine(name), ptx::target(arch));
        assert_eq!(block(&plan).steps.len(), 1, "{:?}", plan.whys);
    }
    // A short sum.
    let g = product(DType::F32, 64, 64);
    let plan = bound(&g, 16, machine("a100"), ptx::target("sm_80"));
    assert_eq!(block(&plan).steps.len(), 1, "{:?}", plan.whys);
}

#[test]
fn the_parts_are_added_up_in_order() {
    let g = product(DType::F32, 16384, 64);
    let plan = bound(&g, 16, machine("a100"), ptx::target("sm_80"));
    let steps = &block(&plan).steps;
    let StepWork::Kernel { kernel, .. } = &steps[1].work else {
        panic!("a kernel")
    };
    let folds: Vec<_> = kernel
        .body
        .iter()
        .filter_map(|s| match s {
            Stmt::Fold { monoid, over, .. } => Some((monoid, over)),
            _ => None,
        })
        .collect();
    let [(monoid, over)] = folds[..] else {
        panic!("one sum: {kernel:?}")
    };
    assert_eq!(monoid.name, "sum");
    let parts = kernel.axes[over[0] as usize].extent.known().unwrap();
    let target = ptx::target("sm_80").gpu.unwrap();
    assert!(target.splits.contains(&(parts as u32)), "{parts}");
    // What follows the product is behind the sum.
    let max = |s: &Stmt| match s {
        Stmt::Map { expr, .. } => expr.insts.iter().any(|i| matches!(i, Inst::Binary(..))),
        _ => false,
    };
    assert!(kernel.body.iter().any(max));
}
