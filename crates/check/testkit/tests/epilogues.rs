//! Products on tensor cores with whatever function behind them: planned for GPUs that are not here,
//! printed, run by the emulator against the graph's oracle, and assembled where ptxas is to be had.
use conformance::Emulated;
use emit::ptx;
use expr::{Binary, Compare, ExprBuilder, Ref, Unary, functions};
use graph::{ContractSpec, Graph, GraphBuilder, Op, Origin};
use kernel::{Mapping, TileProgram};
use layout::{DType, Dim, DimBox};
use machine::Machine;
use plan::{Allotment, Planner as _, StepWork};
use planner::{PlanOptions, Planner, ProgramOptions};
use reference::run_graph;
use shopfloor_testkit::handwritten;
use shopfloor_testkit::tools::tool;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

const MACHINES: [(&str, &str); 2] = [("a100", "sm_80"), ("h100", "sm_90a")];

/// Sizes that no tile divides.
const SIZES: [usize; 3] = [70, 48, 90];

type Function = fn(&mut ExprBuilder, Ref, DType) -> Ref;

fn one(b: &mut ExprBuilder, f: Unary, x: Ref) -> Ref {
    b.unary(f, x)
}

/// Functions of a product's elements, none of them larger than some units there.
fn functions_by_name() -> Vec<(&'static str, Function)> {
    vec![
        ("gelu", |b, x, d| functions::gelu_erf(b, x, d)),
        ("gelu_tanh", |b, x, d| functions::gelu_tanh(b, x, d)),
        ("sigmoid", |b, x, _| functions::sigmoid(b, x)),
        ("silu", |b, x, _| functions::silu(b, x)),
        ("tanh", |b, x, _| one(b, Unary::Tanh, x)),
        ("softplus", |b, x, d| functions::softplus(b, x, d)),
        ("mish", |b, x, d| functions::mish(b, x, d)),
        ("elu", |b, x, d| functions::elu(b, x, 1.0, d)),
        ("exp", |b, x, _| {
            let m = one(b, Unary::Abs, x);
            let m = one(b, Unary::Neg, m);
            one(b, Unary::Exp, m)
        }),
        ("log", |b, x, d| {
            let m = one(b, Unary::Abs, x);
            let c = b.constant(0.5, d);
            let m = b.add(m, c);
            one(b, Unary::Log, m)
        }),
        ("sin", |b, x, _| one(b, Unary::Sin, x)),
        ("cos", |b, x, _| one(b, Unary::Cos, x)),
        ("atan", |b, x, _| one(b, Unary::Atan, x)),
        ("asinh", |b, x, _| one(b, Unary::Asinh, x)),
        ("sign", |b, x, _| one(b, Unary::Sign, x)),
        ("pow", |b, x, d| {
            let m = one(b, Unary::Abs, x);
            let c = b.constant(1.5, d);
            b.binary(Binary::Pow, m, c)
        }),
        ("mod", |b, x, d| {
            let c = b.constant(4.0, d);
            let q = b.mul(x, c);
            let q = one(b, Unary::Floor, q);
            let c = b.constant(3.0, d);
            b.binary(Binary::Mod, q, c)
        }),
        ("choices", |b, x, d| {
            // Truth values chosen by a truth value.
            let [zero, low, high] = [0.0, -0.5, 0.5].map(|v| b.constant(v, d));
            let c = b.compare(Compare::Lt, x, zero);
            let (l, h) = (
                b.compare(Compare::Gt, x, low),
                b.compare(Compare::Lt, x, high),
            );
            let near = b.select(c, l, h);
            let s = functions::sigmoid(b, x);
            b.select(near, s, x)
        }),
    ]
}

/// f(x w + c), rows a symbol.
fn product(d: DType, f: Function) -> Graph {
    let [_, k, n] = SIZES.map(|v| v as i64);
    let mut b = GraphBuilder::new("product", Arc::new(WeightStore::default()));
    let x = b.input("x", d, vec![Dim::sym("m"), Dim::Known(k)]);
    let w = b.input("w", d, vec![Dim::Known(k), Dim::Known(n)]);
    let c = b.input("c", d, vec![Dim::Known(n)]);
    let origin = |name: &str| Origin {
        name: name.into(),
        op_type: String::new(),
    };
    let spec = ContractSpec {
        a: vec![0, 2],
        b: vec![2, 1],
        out: vec![0, 1],
    };
    let op = Op::Contract(spec);
    let y = b.node(op, &[x, w], &["y"], &origin("product")).unwrap()[0];
    let mut e = ExprBuilder::new();
    let (s, t) = (e.input(0, d), e.input(1, d));
    let s = e.add(s, t);
    let z = f(&mut e, s, d);
    let op = Op::Map(e.finish(&[z]));
    let z = b.node(op, &[y, c], &["z"], &origin("function")).unwrap()[0];
    b.finish(&[z])
}

fn values(d: DType, shape: &[usize], seed: u64, size: f64) -> Tensor {
    let mut t = handwritten::values(d, shape, seed);
    for i in 0..t.len() {
        t.set_f64(i, size * t.get_f64(i));
    }
    t
}

/// The only kernel of the graph's plan, on tensor cores.
fn planned(graph: &Graph, name: &str, arch: &str) -> TileProgram {
    let program = planner::program(graph, &ProgramOptions::default()).unwrap();
    let machine = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../plan/machine/machines/{name}.toml"));
    let machine = Machine::from_file(&machine).unwrap();
    let target = vec![(machine, ptx::target(arch))];
    let planner = Planner::new(target, PlanOptions::default());
    let mut dims = DimBox::new();
    dims.insert("m", 1, 4096);
    let plan = planner
        .bind(&program, &dims, &Allotment::default())
        .unwrap();
    let steps: Vec<_> = plan.blocks().flat_map(|b| &b.steps).collect();
    let [step] = steps[..] else {
        panic!("{} steps", steps.len())
    };
    let StepWork::Kernel {
        kernel, schedule, ..
    } = &step.work
    else {
        panic!("no kernel")
    };
    let Mapping::Gpu(m) = &schedule.mapping else {
        panic!("not for a GPU")
    };
    assert!(m.fragment.is_some(), "not on tensor cores");
    TileProgram::new((**kernel).clone(), (**schedule).clone()).unwrap()
}

#[test]
fn any_function_follows_a_product_on_tensor_cores() {
    if !testing::turn("any_function_follows_a_product_on_tensor_cores") {
        return;
    }
    let tool = tool("ptxas");
    let folder = tempfile::tempdir().unwrap();
    let [m, k, n] = SIZES;
    for (i, (what, f)) in functions_by_name().into_iter().enumerate() {
        // Types and architectures in turn.
        let d = [DType::F16, DType::BF16][i % 2];
        let (name, arch) = MACHINES[i / 2 % 2];
        let graph = product(d, f);
        let inputs = [
            values(d, &[m, k], 1, 1.0),
            values(d, &[k, n], 2, 0.3),
            values(d, &[n], 3, 1.0),
        ];
        let want = run_graph(&graph, &inputs).unwrap();
        let program = planned(&graph, name, arch);
        let text = ptx::emit(&program, arch).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(text.text.contains("mma.sync"), "{what}");
        let mut buffers = inputs.to_vec();
        buffers.push(Tensor::zeros(d, &[m, n]).unwrap());
        let got = Emulated::on(arch)
            .launch(&program, &text, &[("m", m as i64)], &buffers)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let off = |i: usize| (got[0].get_f64(i) - want[0].get_f64(i)).abs();
        // Sums are rounded elsewhere on tensor cores: where a function jumps few elements fall to the
        // other side.
        let least = if d == DType::F16 { 0.01 } else { 0.08 };
        let far = (0..got[0].len())
            .filter(|&i| off(i) > least || off(i).is_nan())
            .count();
        let worst = (0..got[0].len()).map(off).fold(0.0, f64::max);
        println!("{what}, {d} for {arch}: largest difference {worst:.2e}, {far} beyond {least}");
        let jumps = ["mod", "sign", "choices"].contains(&what);
        let most = if jumps { got[0].len() / 50 } else { 0 };
        assert!(far <= most, "{what}: {far} elements, {worst}");
        let Ok(ptxas) = &tool else { continue };
        let file = folder.path().join("kernel.ptx");
        std::fs::write(&file, &text.text).unwrap();
        let out = Command::new(ptxas)
            .args([
                &format!("-arch={arch}"),
                "-Werror",
                "-warn-spills",
                "-o",
                "/dev/null",
            ])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.success(),
            "{what} for {arch}: {said}\n{}",
            text.text
        );
    }
    if let Err(why) = tool {
        testing::skip("ptxas: products with functions behind them", &why);
    }
}
