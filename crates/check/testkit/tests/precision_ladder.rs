//! The ladder of precisions on a GPU: which matrix instructions a product of f32 gets, and how exact it is then.
use conformance::Emulated;
use emit::ptx;
use graph::{ContractSpec, Graph, GraphBuilder, Op, Origin};
use kernel::{Factors, Mapping, TileProgram};
use layout::{DType, Dim, DimBox};
use machine::Machine;
use plan::{Allotment, PlanSegment, Planner as _, Precision, StepWork};
use planner::{PlanOptions, Planner, ProgramOptions};
use reference::run_graph;
use shopfloor_testkit::handwritten::values;
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

// Sums too short to be cut in two.
const M: usize = 256;
const K: usize = 64;
const N: usize = 256;

/// y[m, n] = x[m, k] w[k, n], both inputs.
fn product() -> Graph {
    let mut b = GraphBuilder::new("product", Arc::new(WeightStore::default()));
    let known = |list: [usize; 2]| list.map(|n| Dim::Known(n as i64)).to_vec();
    let x = b.input("x", DType::F32, known([M, K]));
    let w = b.input("w", DType::F32, known([K, N]));
    let spec = ContractSpec {
        a: vec![0, 2],
        b: vec![2, 1],
        out: vec![0, 1],
    };
    let origin = Origin {
        name: "product".into(),
        op_type: String::new(),
    };
    let y = b
        .node(Op::Contract(spec), &[x, w], &["y"], &origin)
        .unwrap()[0];
    b.finish(&[y])
}

/// The kernel that computes the product on `machine`, the first of its plan that multiplies, where the target has
/// instructions for these factors alone, or for all.
fn planned_by(
    machine: &str,
    arch: &str,
    precision: Precision,
    only: Option<Factors>,
) -> TileProgram {
    let options = ProgramOptions {
        precision,
        ..ProgramOptions::default()
    };
    let program = planner::program(&product(), &options).unwrap();
    let mut target = ptx::target(arch);
    if let (Some(gpu), Some(only)) = (&mut target.gpu, only) {
        gpu.fragments.retain(|f| f.factors == only);
    }
    let own = vec![(Machine::load(machine).unwrap(), target)];
    let plan = Planner::new(own, PlanOptions::default());
    let plan = plan
        .bind(&program, &DimBox::new(), &Allotment::default())
        .unwrap();
    let blocks = plan.segments.iter().filter_map(|s| match s {
        PlanSegment::Block(b) => Some(b),
        _ => None,
    });
    let mut found = blocks.flat_map(|b| &b.steps).filter_map(|s| match &s.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } => {
            let mut body = kernel.body.iter();
            let multiplies = body.any(|s| matches!(s, kernel::Stmt::Contract { .. }));
            multiplies.then(|| TileProgram::new(kernel.clone(), schedule.clone()).unwrap())
        }
        _ => None,
    });
    found.next().unwrap()
}

fn planned(machine: &str, arch: &str, precision: Precision) -> TileProgram {
    planned_by(machine, arch, precision, None)
}

fn factors(p: &TileProgram) -> Option<Factors> {
    match &p.schedule().mapping {
        Mapping::Gpu(g) => g.fragment.map(|f| f.factors),
        Mapping::Cpu(_) => None,
    }
}

#[test]
fn what_a_target_lacks_is_multiplied_more_exactly() {
    let taken = |machine, arch| Precision::ALL.map(|p| factors(&planned(machine, arch, p)));
    let [parts, brain_parts, tf32, brain] = [
        Factors::Tf32x3,
        Factors::Bf16x3,
        Factors::Tf32,
        Factors::Bf16,
    ]
    .map(Some);
    assert_eq!(
        taken("a100", "sm_80"),
        [None, parts, brain_parts, tf32, brain]
    );
    assert_eq!(taken("t4", "sm_75"), [None; 5]);
}

#[test]
fn a_plan_is_of_the_precision_that_it_was_made_for() {
    let program = |precision| {
        let options = ProgramOptions {
            precision,
            ..ProgramOptions::default()
        };
        planner::program(&product(), &options).unwrap()
    };
    let own = vec![(Machine::load("a100").unwrap(), ptx::target("sm_80"))];
    let planner = Planner::new(own, PlanOptions::default());
    let exact = program(Precision::Exact);
    let plan = planner
        .bind(&exact, &DimBox::new(), &Allotment::default())
        .unwrap();
    assert!(plan.belongs_to(&exact).is_ok());
    for other in [Precision::F32, Precision::Tf32] {
        let e = plan.belongs_to(&program(other)).unwrap_err().to_string();
        assert!(e.contains("precision"), "{e}");
    }
}

/// Sums of numbers of one sign, of which nothing cancels, are not all too small.
#[test]
fn products_in_tf32_and_bf16_are_right_in_the_mean() {
    let graph = product();
    let positive = |mut t: Tensor| {
        (0..t.len()).for_each(|i| t.set_f64(i, t.get_f64(i).abs()));
        t
    };
    let inputs = [
        positive(values(DType::F32, &[M, K], 3)),
        positive(values(DType::F32, &[K, N], 4)),
    ];
    let want = run_graph(&graph, &inputs).unwrap();
    for (precision, most) in [(Precision::Tf32, 1e-4), (Precision::Bf16, 8e-4)] {
        let only = match precision {
            Precision::Tf32 => Factors::Tf32,
            _ => Factors::Bf16,
        };
        let program = planned_by("a100", "sm_80", precision, Some(only));
        let text = ptx::emit(&program, "sm_80").unwrap();
        let out = Tensor::zeros(DType::F32, &[M * N]).unwrap();
        let [x, w] = inputs.clone();
        let got = Emulated::on("sm_80").launch(&program, &text, &[], &[x, w, out]);
        let got = got.unwrap();
        let off = |i: usize| got[0].get_f64(i) / want[0].get_f64(i) - 1.0;
        let mean = (0..M * N).map(off).sum::<f64>() / (M * N) as f64;
        println!("mean error {mean:.1e}");
        assert!(mean.abs() < most, "{precision}: {mean}");
    }
}

#[test]
fn matrix_units_multiply_as_exactly_as_was_asked_for() {
    if !testing::turn("matrix_units_multiply_as_exactly_as_was_asked_for") {
        return;
    }
    let graph = product();
    let inputs = [
        values(DType::F32, &[M, K], 1),
        values(DType::F32, &[K, N], 2),
    ];
    let want = run_graph(&graph, &inputs).unwrap();
    // Sums of the terms' magnitudes, which errors are relative to.
    let terms = |i: usize| -> f64 {
        let (row, column) = (i / N, i % N);
        let each =
            (0..K).map(|k| inputs[0].get_f64(row * K + k) * inputs[1].get_f64(k * N + column));
        each.map(f64::abs).sum()
    };
    let mut worst = vec![];
    for (precision, taken) in [
        (Precision::Exact, None),
        (Precision::F32, Some(Factors::Tf32x3)),
        (Precision::Bf16x3, Some(Factors::Bf16x3)),
        (Precision::Tf32, Some(Factors::Tf32)),
        (Precision::Bf16, Some(Factors::Bf16)),
    ] {
        let program = planned_by("a100", "sm_80", precision, taken);
        assert_eq!(factors(&program), taken, "{precision}\n{program}");
        let text = ptx::emit(&program, "sm_80").unwrap();
        let out = Tensor::zeros(DType::F32, &[M * N]).unwrap();
        let buffers = [inputs[0].clone(), inputs[1].clone(), out];
        let emulated = Emulated::on("sm_80");
        let got = emulated.launch(&program, &text, &[], &buffers).unwrap();
        let off = |i: usize| (got[0].get_f64(i) - want[0].get_f64(i)).abs() / terms(i);
        worst.push((0..M * N).map(off).fold(0.0, f64::max));
    }
    println!("largest errors relative to the terms: {worst:?}");
    let [exact, parts, brain_parts, tf32, brain] = worst[..] else {
        panic!("{worst:?}")
    };
    // Half of a last bit for each of the terms in sequence; parts add 32 at once.
    assert!(exact < 1e-6 && parts < 3.5e-7, "{worst:?}");
    assert!((1e-6..1e-3).contains(&tf32), "{worst:?}");
    assert!((1e-7..1e-5).contains(&brain_parts), "{worst:?}");
    assert!((1e-4..8e-3).contains(&brain), "{worst:?}");
}
