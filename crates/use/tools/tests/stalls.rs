//! The emulator's cycles beside the planner's prediction, kernel by kernel.

use expr::{Expr, ExprBuilder, Monoid, Ref, Unary};
use graph::{
    AttentionSpec, ContractSpec, GraphBuilder, Op, Origin, PoolKind, PoolSpec, Undefined, ValueId,
    View,
};
use layout::Dim;
use shopfloor::{DType, DimBox, Machine, Model, ModelOptions, Precision};
use shopfloor_tools::stalls::{Reason, StepStalls, of_step};
use shopfloor_tools::targets::Planning;
use shopfloor_tools::{op_model, planview};
use std::fmt::Write;
use std::sync::Arc;
use tensor::WeightStore;

const F: DType = DType::F32;

fn dims(v: &[usize]) -> Vec<Dim> {
    v.iter().map(|&n| Dim::from(n)).collect()
}

/// A graph in few words.
struct G(GraphBuilder, usize);

impl G {
    fn new(name: &str) -> G {
        G(GraphBuilder::new(name, Arc::new(WeightStore::new())), 0)
    }

    fn input(&mut self, dtype: DType, shape: &[usize]) -> ValueId {
        self.1 += 1;
        self.0.input(&format!("x{}", self.1), dtype, dims(shape))
    }

    fn node(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        self.1 += 1;
        let name = format!("v{}", self.1);
        let origin = Origin {
            name: name.clone(),
            op_type: "Test".into(),
        };
        self.0.node(op, inputs, &[&name], &origin).unwrap()[0]
    }

    fn map(&mut self, inputs: &[ValueId], f: impl Fn(&mut ExprBuilder, &[Ref]) -> Ref) -> ValueId {
        let mut e = ExprBuilder::new();
        let args: Vec<Ref> = (0..inputs.len() as u32).map(|i| e.input(i, F)).collect();
        let y = f(&mut e, &args);
        let program: Expr = e.finish(&[y]);
        self.node(Op::Map(program), inputs)
    }

    fn along(&mut self, x: ValueId, axis: usize, monoid: Monoid) -> ValueId {
        let reduce = Op::Reduce {
            monoid,
            axes: vec![axis],
            keep: true,
        };
        self.node(reduce, &[x])
    }

    fn softmax(&mut self, x: ValueId, axis: usize) -> ValueId {
        let m = self.along(x, axis, Monoid::max(F, F));
        let e = self.map(&[x, m], |e, a| {
            let d = e.sub(a[0], a[1]);
            e.unary(Unary::Exp, d)
        });
        let t = self.along(e, axis, Monoid::sum(F, F));
        self.map(&[e, t], |e, a| e.div(a[0], a[1]))
    }

    fn product(&mut self, a: ValueId, b: ValueId, labels: [&[u8]; 3]) -> ValueId {
        let spec = ContractSpec {
            a: labels[0].to_vec(),
            b: labels[1].to_vec(),
            out: labels[2].to_vec(),
        };
        self.node(Op::Contract(spec), &[a, b])
    }

    fn model(self, name: &str, y: ValueId) -> Model {
        Model::from_graph(name, &self.0.finish(&[y]), &ModelOptions::default()).unwrap()
    }
}

fn softmax(rows: usize, columns: usize) -> Model {
    let mut g = G::new("softmax");
    let x = g.input(F, &[rows, columns]);
    let y = g.softmax(x, 1);
    g.model("softmax", y)
}

fn layer_norm(rows: usize, columns: usize) -> Model {
    let mut g = G::new("layer norm");
    let x = g.input(F, &[rows, columns]);
    let n = Dim::from(columns);
    let m = g.along(x, 1, Monoid::mean(F, F, &n));
    let c = g.map(&[x, m], |e, a| e.sub(a[0], a[1]));
    let q = g.map(&[c], |e, a| e.mul(a[0], a[0]));
    let v = g.along(q, 1, Monoid::mean(F, F, &n));
    let y = g.map(&[c, v], |e, a| {
        let eps = e.constant(1e-5, F);
        let v = e.add(a[1], eps);
        let r = e.unary(Unary::Rsqrt, v);
        e.mul(a[0], r)
    });
    g.model("layer norm", y)
}

fn pool(channels: usize, side: usize) -> Model {
    let mut g = G::new("pool");
    let x = g.input(F, &[1, channels, side, side]);
    let spec = PoolSpec {
        kind: PoolKind::Max,
        kernel: vec![3, 3],
        strides: vec![2, 2],
        dilations: vec![1, 1],
        before: dims(&[1, 1]),
        after: dims(&[1, 1]),
    };
    let y = g.node(Op::Pool(spec), &[x]);
    g.model("pool", y)
}

fn attention(heads: usize, rows: usize, size: usize) -> Model {
    let mut g = G::new("attention");
    let shape = [heads, rows, size];
    let (q, k, v) = (g.input(F, &shape), g.input(F, &shape), g.input(F, &shape));
    let p = g.product(q, k, [&[0, 1, 3], &[0, 2, 3], &[0, 1, 2]]);
    let p = g.map(&[p], |e, a| {
        let c = e.constant(0.125, F);
        e.mul(a[0], c)
    });
    let p = g.softmax(p, 2);
    let y = g.product(p, v, [&[0, 1, 2], &[0, 2, 3], &[0, 1, 3]]);
    g.model("attention", y)
}

/// The same as one operator, in f16.
fn attention16(heads: usize, rows: usize, size: usize) -> Model {
    const H: DType = DType::F16;
    let mut g = G::new("attention");
    let of = |g: &mut G| g.input(H, &[heads, rows, size]);
    let inputs = [of(&mut g), of(&mut g), of(&mut g)];
    let mut e = ExprBuilder::new();
    let (x, c) = (e.input(0, H), e.constant(0.125, H));
    let score = e.mul(x, c);
    let spec = AttentionSpec {
        score: e.finish(&[score]),
        undefined: Undefined::default(),
    };
    let y = g.node(Op::Attention(spec), &inputs);
    g.model("attention", y)
}

fn transpose(rows: usize, columns: usize) -> Model {
    let mut g = G::new("transpose");
    let x = g.input(F, &[rows, columns]);
    let y = g.node(Op::View(View::Permute(vec![1, 0])), &[x]);
    g.model("transpose", y)
}

/// The longest step of `model` on `gpu`.
fn longest(model: &Model, gpu: &Machine) -> StepStalls {
    let plan = planview::plan_for(model, gpu, &Planning::default(), &DimBox::default()).unwrap();
    let steps = plan.blocks().flat_map(|b| &b.steps);
    let on_gpu = steps.filter(|s| s.device == 1);
    let step = on_gpu
        .max_by(|a, b| a.predicted.time_s.total_cmp(&b.predicted.time_s))
        .unwrap();
    of_step(&plan, &step.name, gpu, u64::MAX).unwrap()
}

/// GPUs of every vendor are priced by the instructions of their kernels: one that runs WGSL is not let off what it
/// issues for addresses and loops.
#[test]
fn gpus_that_run_wgsl_issue_their_instructions_too() {
    for name in ["mi300x", "rx-7900-xtx", "apple-m2-max-38c", "arc-b580"] {
        let gpu = Machine::load(name).unwrap();
        let rates = gpu.warp_rates().expect("a GPU has them");
        for op in ["matmul:512x512x512:f32", "map:1048576:f32:gelu"] {
            let model = op_model(op).unwrap();
            let plan = planview::plan_for(&model, &gpu, &Planning::default(), &DimBox::default());
            let plan = plan.unwrap();
            let steps = plan.blocks().flat_map(|b| &b.steps);
            let on_gpu: Vec<_> = steps.filter(|s| s.device == 1).collect();
            assert!(!on_gpu.is_empty(), "{name} {op}");
            for s in on_gpu {
                let warps = s.cost_work.warps.as_ref();
                let warps =
                    warps.unwrap_or_else(|| panic!("{name} {op}: {} is not counted", s.name));
                let sms = gpu.worker_count() as f64;
                let issue_s = rates.issue(&warps.turns) / sms / gpu.workers.clock_hz.value;
                assert!(
                    s.predicted.time_s >= issue_s,
                    "{name} {op}: {issue_s} s of issuing"
                );
            }
        }
    }
}

/// The emulator's cycles lie within a quarter of what is predicted: from three quarters of it on, not from four fifths,
/// since kernels of long rows hide more of their loads from a scheduler than the prediction lets them.
const LEAST: f64 = 0.75;
const TIED: f64 = 1.25;
/// Products of f32 in parts are mostly integer arithmetic, whose pipe takes an instruction every other cycle. The
/// prediction lets matrix instructions and multiply-adds go in between better than the emulator's order does, which
/// shows where a scheduler has a warp or two: up to so much longer. The longest is attention with two CTAs on a
/// multiprocessor, 1.64: its warps meet at barriers between the two products and the softmax, and stay in step where
/// the prediction has them half out of it.
const IN_PARTS: f64 = 1.7;

/// A product of two tasks of six pieces to a multiprocessor, which its share of the device's memory bounds: the prediction
/// lets bytes come evenly and stores go beside them, and neither is so at the first pieces and the last stores. It takes
/// 1.62 times as long; 1.53 was seen before the device's memory was predicted to be as fast as its reads were measured.
const SHORT: f64 = 1.65;

/// A pool takes 1.26 times as long as predicted since the device's memory is predicted to be as fast as its reads were
/// measured: what it loses most cycles for is that memory.
const WINDOWS: f64 = 1.3;

/// Attention by multiply-adds takes 1.27 times as long as predicted, since special functions have twice the rate that was
/// assumed: cycles are lost for a pipe that is busy, where the prediction lets the softmax's and the products' pipes go
/// beside each other. As in [`IN_PARTS`] its warps meet at barriers in between; nobody has shown that these are why.
const IN_STEP: f64 = 1.3;

/// `model` with f32 by multiply-adds alone.
fn exact(model: &Model) -> Model {
    let options = ModelOptions {
        precision: Precision::Exact,
        ..ModelOptions::default()
    };
    Model::from_graph("exact", model.graph().unwrap(), &options).unwrap()
}

fn op(text: &str) -> Model {
    op_model(text).unwrap()
}

/// What is run.
type Case = (&'static str, fn() -> Model);

/// Every case on four SMs of `name` with their share of L2 and device memory: kernels that fill them are seen
/// in no time.
fn compare(name: &str, tied: f64, cases: &[Case]) {
    let gpu = Machine::load(name).unwrap().slice(4);
    let clock = gpu.workers.clock_hz.value;
    let mut table = format!(
        "{:<14} {:>10} {:>10} {:>7} {:>6}  {}\n",
        "kernel", "predicted", "cycles", "ratio", "issue", "most lost for"
    );
    let mut wrong = vec![];
    for (name, model) in cases {
        let s = longest(&model(), &gpu);
        assert_eq!(s.ctas.0, s.ctas.1, "{name}");
        assert!(s.stalls.share(Reason::Issued) > 0.0, "{name}");
        let ratio = s.seconds / s.predicted_s;
        let _ = writeln!(
            table,
            "{name:<14} {:>10.0} {:>10} {ratio:>7.2} {:>5.0}%  {}",
            s.predicted_s * clock,
            s.stalls.cycles,
            100.0 * s.stalls.issue,
            s.stalls.worst().name(),
        );
        if !(LEAST..=tied).contains(&ratio) {
            wrong.push(*name);
        }
    }
    println!("{table}");
    assert!(
        wrong.is_empty(),
        "{name}: {wrong:?} are elsewhere:\n{table}"
    );
}

#[test]
fn cycles_beside_predictions() {
    if !testing::turn("cycles_beside_predictions") {
        return;
    }
    let cases: [Case; 8] = [
        ("map", || op("map:524288:f32:relu")),
        ("softmax", || softmax(1024, 512)),
        ("layer norm", || layer_norm(1024, 512)),
        ("product f32", || exact(&op("matmul:256x256x256:f32"))),
        ("product f16", || op("matmul:512x512x512:f16")),
        ("convolution", || exact(&op("conv:1,32,32,32,32,3,3,1,1"))),
        ("transpose", || transpose(1024, 512)),
        ("matrix-vector", || op("matmul:1x1024x1024:f32")),
    ];
    compare("a100", TIED, &cases);
    compare("a100", WINDOWS, &[("pool", || pool(32, 128))]);
    let steps: [Case; 1] = [("attention", || exact(&attention(4, 197, 64)))];
    compare("a100", IN_STEP, &steps);
}

#[test]
fn cycles_of_products_in_parts_beside_predictions() {
    if !testing::turn("cycles_of_products_in_parts_beside_predictions") {
        return;
    }
    let cases: [Case; 6] = [
        ("product", || op("matmul:256x256x256:f32")),
        ("product, 2", || op("matmul:384x192x512:f32")),
        ("convolution", || op("conv:1,32,32,32,32,3,3,1,1")),
        ("convolution, 2", || op("conv:1,16,56,56,64,3,3,1,1")),
        ("attention", || attention(4, 197, 64)),
        ("attention, 2", || attention(3, 197, 64)),
    ];
    compare("a100", IN_PARTS, &cases);
    compare("h100", IN_PARTS, &cases);
}

/// Sizes, and a card, that no number was chosen by. Two rules were mended after such kernels were seen: how a
/// last wave is counted, and what one SM of a slice may have of the whole's bandwidth.
#[test]
fn cycles_beside_predictions_elsewhere() {
    if !testing::turn("cycles_beside_predictions_elsewhere") {
        return;
    }
    let cases: [Case; 11] = [
        ("map", || op("map:700000:f32:3in")),
        ("softmax", || softmax(300, 2000)),
        ("softmax, short", || softmax(4096, 64)),
        ("layer norm", || layer_norm(4096, 128)),
        ("product f32", || exact(&op("matmul:384x192x512:f32"))),
        ("product f16, 2", || op("matmul:1024x256x1024:f16")),
        ("convolution", || exact(&op("conv:1,16,56,56,64,3,3,1,1"))),
        ("pool", || pool(64, 56)),
        ("attention", || exact(&attention(3, 197, 64))),
        ("transpose", || transpose(700, 900)),
        ("matrix-vector", || op("matmul:1x4096x512:f32")),
    ];
    compare("h100", TIED, &cases);
    let short: [Case; 1] = [("product f16", || op("matmul:256x1024x384:f16"))];
    compare("h100", SHORT, &short);
    let groups: [Case; 2] = [
        ("attention f16", || attention16(4, 512, 64)),
        ("attention, 128", || attention16(2, 512, 128)),
    ];
    compare("h100", TIED, &groups);
}

#[test]
fn the_first_ctas_of_a_step_tell_of_the_whole() {
    let gpu = Machine::load("a100").unwrap().slice(8);
    let model = op("map:524288:f32:relu");
    let plan = planview::plan_for(&model, &gpu, &Planning::default(), &DimBox::default()).unwrap();
    let step = plan.blocks().flat_map(|b| &b.steps).find(|s| s.device == 1);
    let step = &step.unwrap().name;
    let whole = of_step(&plan, step, &gpu, u64::MAX).unwrap();
    let part = of_step(&plan, step, &gpu, whole.ctas.1 / 4).unwrap();
    assert!(
        part.ctas.0 < part.ctas.1 && part.sms.0 < part.sms.1,
        "{:?}",
        part.ctas
    );
    let ratio = part.seconds / whole.seconds;
    assert!((0.75..1.35).contains(&ratio), "{ratio}");

    let e = of_step(&plan, "nothing", &gpu, 4).unwrap_err().to_string();
    assert!(e.contains("no step 'nothing'"), "{e}");
    let cpu = Machine::load("zen5-2core").unwrap();
    let e = of_step(&plan, step, &cpu, 4).unwrap_err().to_string();
    assert!(e.contains("name an NVIDIA GPU"), "{e}");
}

/// A product in clusters, whose CTAs the emulator runs together and which read once there too what they copy for each
/// other.
#[test]
fn cycles_of_clusters_beside_predictions() {
    let product: Case = ("product f16", || op("matmul:512x1024x1024:f16"));
    let gpu = Machine::load("h100").unwrap().slice(4);
    let text = longest(&product.1(), &gpu).emitted.text;
    assert!(text.contains(".reqnctapercluster 2, 1, 1"), "{text}");
    compare("h100", IN_STEP, &[product]);
}
