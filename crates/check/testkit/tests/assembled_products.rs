//! Products of many shapes and types as they are planned for GPUs: ptxas assembles each without a spill, and without saying
//! that products of warpgroups are put in a row.
use crate::lab::{machine, plan_on};
use emit::ptx;
use expr::{ExprBuilder, functions};
use graph::{GraphBuilder, Op};
use kernel::TileProgram;
use layout::{DType, Dim};
use plan::{Plan, StepWork};
use shopfloor::{Model, ModelOptions, Precision};
use shopfloor_testkit::handwritten::{node, product};
use shopfloor_testkit::tools::tool;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

const F: DType = DType::F32;

/// GPUs and what is printed for them, from the one with most ways to multiply to that with fewest.
const GPUS: [(&str, &str); 4] = [
    ("h100.toml", "sm_90a"),
    ("h100.toml", "sm_90"),
    ("a100.toml", "sm_80"),
    ("t4.toml", "sm_75"),
];

/// Types of factors, and how exactly those of f32 are multiplied.
const TYPES: [(DType, Precision); 8] = [
    (F, Precision::F32),
    (F, Precision::Tf32),
    (F, Precision::Bf16x3),
    (F, Precision::Bf16),
    (F, Precision::Exact),
    (DType::BF16, Precision::F32),
    (DType::F16, Precision::F32),
    (DType::I8, Precision::F32),
];

/// Rows, what is summed, and columns: sums that are cut into parts, which the last CTA to arrive or a cluster adds, tiles that
/// hang over, squares, and so many tiles that CTAs walk them.
const SIZES: [[i64; 3]; 12] = [
    [1, 2048, 2048],
    [1, 8192, 1024],
    [5, 512, 1000],
    [16, 8192, 2048],
    [40, 1024, 96],
    [64, 4096, 512],
    [130, 300, 260],
    [200, 768, 768],
    [512, 512, 2048],
    [1000, 1024, 1024],
    [2048, 2048, 2048],
    [8192, 1024, 4096],
];

/// What follows a product.
#[derive(Clone, Copy, Debug)]
enum After {
    Nothing,
    /// A bias and a long function.
    Gelu,
    /// Another value of the same shape.
    Residual,
}

/// A product and what follows it, planned for a GPU.
#[derive(Clone, Copy, Debug)]
struct Case {
    of: (DType, Precision),
    size: [i64; 3],
    after: After,
    gpu: (&'static str, &'static str),
}

/// All of them, those of one GPU behind each other.
fn cases() -> Vec<Case> {
    let mut all = vec![];
    for gpu in GPUS {
        for size in SIZES {
            for of in TYPES {
                let of_one = [After::Nothing, After::Gelu, After::Residual];
                all.extend(of_one.map(|after| Case {
                    of,
                    size,
                    after,
                    gpu,
                }));
            }
        }
    }
    all
}

impl Case {
    fn model(&self) -> Model {
        let (dtype, precision) = self.of;
        let [rows, k, n] = self.size;
        let mut weights = WeightStore::new();
        let zeros = Tensor::zeros(dtype, &[k as usize, n as usize]).unwrap();
        let w = weights.add_tensor("w", zeros).unwrap();
        let mut b = GraphBuilder::new("product", Arc::new(weights));
        let mut x = b.input("x", dtype, vec![Dim::Known(rows), Dim::Known(k)]);
        let mut w = b.weight(w).unwrap();
        let map = |f: &dyn Fn(&mut ExprBuilder, &[u32]) -> u32, inputs: &[DType]| {
            let mut e = ExprBuilder::new();
            let own: Vec<u32> = (0..).zip(inputs).map(|(i, &d)| e.input(i, d)).collect();
            let r = f(&mut e, &own);
            Op::Map(e.finish(&[r]))
        };
        // Sums of small integers are of 32 bits.
        let small = dtype == DType::I8;
        if small {
            let wide = || map(&|e, v| e.cast(v[0], DType::I32), &[DType::I8]);
            x = node(&mut b, wide(), &[x], "wide x");
            w = node(&mut b, wide(), &[w], "wide w");
        }
        let mut y = node(&mut b, product(&[0, 1], &[1, 2], &[0, 2]), &[x, w], "y");
        let mut d = dtype;
        if small {
            let float = map(&|e, v| e.cast(v[0], F), &[DType::I32]);
            y = node(&mut b, float, &[y], "float");
            d = F;
        }
        match self.after {
            After::Nothing => {}
            After::Gelu => {
                let bias = b.input("bias", d, vec![Dim::Known(n)]);
                let add = |e: &mut ExprBuilder, v: &[u32]| {
                    let s = e.add(v[0], v[1]);
                    functions::gelu_erf(e, s, d)
                };
                y = node(&mut b, map(&add, &[d, d]), &[y, bias], "gelu");
            }
            After::Residual => {
                let r = b.input("r", d, vec![Dim::Known(rows), Dim::Known(n)]);
                let add = |e: &mut ExprBuilder, v: &[u32]| {
                    let s = e.add(v[0], v[1]);
                    functions::relu(e, s, d)
                };
                y = node(&mut b, map(&add, &[d, d]), &[y, r], "residual");
            }
        }
        let options = ModelOptions {
            precision,
            ..ModelOptions::default()
        };
        Model::from_graph("product", &b.finish(&[y]), &options).unwrap()
    }

    /// The texts of all launches of its plan.
    fn texts(&self) -> Vec<String> {
        let (file, arch) = self.gpu;
        let plan = plan_on(machine(file), &self.model(), ptx::target(arch));
        launches(&plan)
            .iter()
            .map(|l| match &l[..] {
                [one] => ptx::emit(one, arch).unwrap().text,
                all => {
                    let all: Vec<&TileProgram> = all.iter().collect();
                    ptx::joined(&all, arch).unwrap().text
                }
            })
            .collect()
    }
}

/// The kernels of each launch of a plan on its GPU.
fn launches(plan: &Plan) -> Vec<Vec<TileProgram>> {
    let mut out: Vec<Vec<TileProgram>> = vec![];
    for s in plan.blocks().flat_map(|b| b.init.iter().chain(&b.steps)) {
        let StepWork::Kernel {
            kernel, schedule, ..
        } = &s.work
        else {
            continue;
        };
        if !matches!(schedule.mapping, kernel::Mapping::Gpu(_)) {
            continue;
        }
        let program = TileProgram::new(kernel.clone(), schedule.clone()).unwrap();
        match out.last_mut().filter(|_| s.joined) {
            Some(launch) => launch.push(program),
            None => out.push(vec![program]),
        }
    }
    out
}

/// What is wrong with what ptxas makes of a text.
fn wrong(ptxas: &Path, arch: &str, text: &str, folder: &Path) -> Option<String> {
    let file = folder.join("kernel.ptx");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(ptxas);
    command.args([&format!("-arch={arch}"), "-v", "-o", "/dev/null"]);
    let out = command.arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr) + String::from_utf8_lossy(&out.stdout);
    let good = out.status.success()
        && !said.contains("warning")
        && !said.contains("(C75")
        && said.contains(" 0 bytes spill stores, 0 bytes spill loads");
    (!good).then(|| said.to_string())
}

#[test]
fn products_of_many_shapes_are_assembled_without_spills() {
    const NAME: &str = "products_of_many_shapes_are_assembled_without_spills";
    if !testing::turn(NAME) {
        return;
    }
    let ptxas = match tool("ptxas") {
        Ok(tool) => tool,
        Err(why) => return testing::skip("ptxas: products of many shapes", &why),
    };
    let share = testing::Share::of_run(16);
    let all = (0..).zip(cases());
    let cases: Vec<Case> = all.filter(|c| share.picks(c.0)).map(|c| c.1).collect();
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let part = |first: usize| {
        let folder = tempfile::tempdir().unwrap();
        let mut seen = BTreeSet::new();
        let mut out = vec![];
        for case in cases.iter().skip(first).step_by(workers) {
            for text in case.texts() {
                let arch = case.gpu.1;
                let why = || wrong(&ptxas, arch, &text, folder.path());
                if seen.insert(*blake3::hash(text.as_bytes()).as_bytes())
                    && let Some(why) = why()
                {
                    out.push(format!("{case:?}: {why}"));
                }
            }
        }
        (seen.len(), out)
    };
    let found: Vec<(usize, Vec<String>)> = std::thread::scope(|s| {
        let part = &part;
        let threads: Vec<_> = (0..workers).map(|w| s.spawn(move || part(w))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let texts: usize = found.iter().map(|f| f.0).sum();
    println!("{share}: {} products, {texts} texts", cases.len());
    let wrong: Vec<String> = found.into_iter().flat_map(|f| f.1).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(texts > 0, "{share} has no product");
}
