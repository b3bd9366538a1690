//! A library's product costs as much in a plan of the vendor's kernels as in `shopfloor predict`, which is compared
//! with measurements.
use graph::{ConvSpec, GraphBuilder, Op, RecurrentKind, RecurrentSpec};
use kernel::Family;
use layout::{DType, Dim, DimBox};
use plan::StepWork;
use predict::{Constants, Measurements, Options, pairs};
use shopfloor::{Model, ModelOptions, machines};
use shopfloor_tools::planview;
use shopfloor_tools::targets::{Kernels, Planning};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};
use testkit::handwritten::{node, origin, product};

/// A call: its row in a file of measurements, and its operands' shapes; stride and padding of windows, if it has some.
struct Call {
    row: String,
    of: [Vec<i64>; 2],
    window: Option<(i64, i64)>,
}

fn gemm(m: i64, n: i64, k: i64) -> Call {
    Call {
        row: format!("gemm,m={m};n={n};k={k};ta=0;tb=0"),
        of: [vec![m, k], vec![k, n]],
        window: None,
    }
}

fn conv(image: [i64; 3], filters: i64, window: i64, stride: i64) -> Call {
    padded(image, filters, window, (stride, window / 2))
}

fn unpadded(image: [i64; 3], filters: i64, window: i64, stride: i64) -> Call {
    padded(image, filters, window, (stride, 0))
}

fn padded([n, c, size]: [i64; 3], filters: i64, window: i64, (stride, pad): (i64, i64)) -> Call {
    Call {
        row: format!(
            "conv_fwd,n={n};c={c};h={size};w={size};k={filters};r={window};s={window};stride={stride};pad={pad}"
        ),
        of: [vec![n, c, size, size], vec![filters, c, window, window]],
        window: Some((stride, pad)),
    }
}

fn model(call: &Call, d: DType) -> Model {
    let mut weights = WeightStore::new();
    let shape: Vec<usize> = call.of[1].iter().map(|&n| n as usize).collect();
    let w = Tensor::zeros(d, &shape).expect("memory");
    let w = weights.add_tensor("w", w).expect("a weight");
    let mut b = GraphBuilder::new("call", Arc::new(weights));
    let dims = call.of[0].iter().map(|&n| Dim::Known(n)).collect();
    let x = b.input("x", d, dims);
    let w = b.weight(w).expect("a weight");
    let op = match call.window {
        None => product(&[0, 1], &[1, 2], &[0, 2]),
        Some((stride, pad)) => {
            let window = call.of[1][2];
            let pad = vec![Dim::Known(pad); 2];
            Op::Conv(ConvSpec {
                strides: vec![stride; 2],
                dilations: vec![1; 2],
                before: pad.clone(),
                after: pad,
                groups: 1,
                kernel: vec![window; 2],
                transposed: false,
                outside: 0,
            })
        }
    };
    let y = node(&mut b, op, &[x, w], "y");
    Model::from_graph("call", &b.finish(&[y]), &ModelOptions::default()).expect("a model")
}

/// Seconds of the products of a plan of the vendor's kernels.
fn planned(machine: &shopfloor::Machine, model: &Model) -> f64 {
    let planning = Planning {
        kernels: Kernels::Vendor,
        ..Planning::default()
    };
    let plan = planview::plan_for(model, machine, &planning, &DimBox::new()).expect("a plan");
    let steps = plan.blocks().flat_map(|b| &b.steps);
    let products = steps.filter(|s| match &s.work {
        StepWork::Kernel { kernel, .. } => {
            matches!(kernel.family, Family::Contract | Family::Conv)
        }
        StepWork::Host { .. } => false,
    });
    products
        .map(|s| s.predicted.time_s - s.predicted.launch_s)
        .sum()
}

/// How many times as much one may say as the other. What differs:
/// - a plan may take any schedule that the target allows, `predict` has those that libraries were seen to launch;
/// - a plan lets the whole L2 hold what was used before, `predict` two thirds of it;
/// - a plan multiplies windows of one element as any matrix, `predict` as other windows.
const WITHIN: f64 = 1.6;

#[test]
fn a_plan_and_predict_price_a_librarys_product_alike() {
    let calls = [
        gemm(4096, 4096, 4096),
        gemm(512, 3072, 768),
        gemm(2048, 1024, 512),
        conv([64, 64, 56], 64, 3, 1),
        conv([32, 256, 28], 512, 1, 1),
        conv([32, 128, 28], 128, 3, 2),
        unpadded([32, 128, 29], 128, 3, 2),
    ];
    let types = [(DType::F16, "fp16"), (DType::F32, "fp32")];
    let folder = tempfile::tempdir().expect("a folder");
    let mut wrong = String::new();
    for (machine, gpu) in [
        ("a100", "A100-SXM4-80GB"),
        ("h100", "H100-SXM5-80GB"),
        ("v100", "V100-SXM2-16GB"),
    ] {
        let mut rows = String::from("source,gpu,op,params,dtype,measured_us,note\n");
        for (_, name) in types {
            for c in &calls {
                rows += &format!("none,{gpu},{},{name},1,\n", c.row);
            }
        }
        let file = folder.path().join(format!("{machine}.csv"));
        std::fs::write(&file, rows).expect("a file");
        let measured = Measurements::open(&file).expect("rows");
        let priced = pairs(&measured, &Options::default(), Constants::published()).expect("pairs");
        assert_eq!(priced.len(), types.len() * calls.len());
        let machine = machines::find(machine).expect("a machine");
        let all = types.iter().flat_map(|t| calls.iter().map(move |c| (t, c)));
        for ((t, call), pair) in all.zip(priced) {
            let there = pair.predicted.expect("a prediction");
            let own = planned(&machine, &model(call, t.0));
            let ratio = own / there;
            let line = format!(
                "{gpu} {} {}: {:.1} us in a plan, {:.1} predicted, {ratio:.2}",
                t.1,
                call.row,
                own * 1e6,
                there * 1e6
            );
            println!("{line}");
            if !(1.0 / WITHIN..=WITHIN).contains(&ratio) {
                wrong += &format!("{line}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A layer of a published list: hidden units, sequences, positions, and microseconds on a V100 in f32 (DeepBench,
/// cuDNN 7).
type Row = (usize, usize, usize, f64);

/// LSTMs whose weights and states have a schedule on a GPU; longer ones are the host's.
const LAYERS: [Row; 5] = [
    (256, 16, 150, 4542.0),
    (256, 32, 150, 4899.0),
    (512, 16, 25, 1095.0),
    (512, 32, 25, 1144.0),
    (512, 64, 25, 1341.0),
];

fn layer((hidden, sequences, positions, _): Row) -> Model {
    let mut b = GraphBuilder::new("layer", Arc::new(WeightStore::new()));
    let dims = [positions, sequences, hidden].map(Dim::from);
    let x = b.input("x", DType::F32, dims.to_vec());
    let mut weights = |name: &str| {
        let w = Tensor::zeros(DType::F32, &[1, 4 * hidden, hidden]).expect("memory");
        b.constant(name, w).expect("a weight")
    };
    let inputs = [x, weights("w"), weights("r")];
    let mut present = vec![false; 8];
    present[..3].fill(true);
    let activations = ["Sigmoid", "Tanh", "Tanh"].map(String::from).to_vec();
    let spec = RecurrentSpec {
        kind: RecurrentKind::Lstm,
        hidden: hidden as i64,
        direction: "forward".into(),
        batch_first: false,
        present,
        alphas: vec![0.0; activations.len()],
        betas: vec![0.0; activations.len()],
        activations,
        clip: None,
        linear_before_reset: false,
        input_forget: false,
    };
    let made = b.node(
        Op::Recurrent(spec),
        &inputs,
        &["y", "h", "c"],
        &origin("layer"),
    );
    let y = made.expect("a layer")[0];
    Model::from_graph("layer", &b.finish(&[y]), &ModelOptions::default()).expect("a model")
}

/// Libraries have become faster since: what a plan says may be far less than what was measured, and not more.
#[test]
fn a_librarys_recurrences_cost_no_more_than_they_were_measured_to_take() {
    let machine = machines::find("v100").expect("a machine");
    let planning = Planning {
        kernels: Kernels::Vendor,
        ..Planning::default()
    };
    let mut wrong = String::new();
    for row in LAYERS {
        let plan = planview::plan_for(&layer(row), &machine, &planning, &DimBox::new());
        let plan = plan.expect("a plan");
        let kernels = plan.blocks().flat_map(|b| &b.steps);
        let kernels = kernels.filter(|s| matches!(s.work, StepWork::Kernel { .. }));
        let moves = |s: &&plan::Step| s.name.starts_with("copy ");
        let own: f64 = kernels
            .filter(|s| !moves(s))
            .map(|s| s.predicted.time_s)
            .sum();
        let ratio = own * 1e6 / row.3;
        let line = format!("{row:?}: {:.0} us in a plan, {ratio:.2}\n", own * 1e6);
        print!("{line}");
        if !(0.1..=1.0).contains(&ratio) {
            wrong += &line;
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
