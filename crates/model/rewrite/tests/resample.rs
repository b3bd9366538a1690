//! Every kind of resampling as gathers and sums against the oracle's own, on random sizes.
use graph::*;
use layout::{DType, Dim};
use shopfloor_rewrite::{Options, run};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

struct Rng(fastrand::Rng);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }
    fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

const COORDINATES: [&str; 6] = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
];
const ROUNDINGS: [&str; 4] = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"];

#[test]
fn resampling_is_gathers_and_sums() {
    let mut r = Rng(fastrand::Rng::with_seed(7));
    let (mut lowered, mut kept) = (0, 0);
    for case in 0..600 {
        let rank = 1 + r.below(4);
        let sizes: Vec<usize> = (0..rank).map(|_| r.of(&[1usize, 2, 3, 5, 8, 13])).collect();
        let symbolic = case % 3 == 0;
        let mut scales = Vec::new();
        let mut out = Vec::new();
        let by_size = r.below(2) == 0;
        for n in &sizes {
            let k = r.of(&[1.0, 2.0, 3.0, 0.5, 1.5, 2.5, 0.34]);
            let o = ((*n as f32 * k as f32).floor() as usize).max(1);
            out.push(o);
            scales.push(if by_size { 0.0 } else { k });
        }
        let nearest = r.below(3) == 0;
        let mode = match r.below(2) {
            _ if nearest => ResampleMode::Nearest {
                rounding: r.of(&ROUNDINGS).into(),
            },
            0 => ResampleMode::Linear,
            _ => ResampleMode::Cubic {
                a: r.of(&[-0.75, -0.5]),
            },
        };
        let spec = ResampleSpec {
            mode,
            coordinates: r.of(&COORDINATES).into(),
            scales,
            antialias: !nearest && r.below(4) == 0,
            exclude_outside: !nearest && r.below(2) == 0,
        };
        let dtype = if nearest && r.below(2) == 0 {
            DType::U8
        } else {
            DType::F32
        };
        let mut b = GraphBuilder::new("resample", Arc::new(WeightStore::new()));
        // Sizes of the output are symbols of their own where the input's are.
        let dim = |name: &str, d: usize, n: usize| match symbolic && d != 0 {
            true => Dim::sym(format!("{name}{d}").as_str()),
            false => Dim::from(n),
        };
        let shape: Vec<Dim> = sizes
            .iter()
            .enumerate()
            .map(|(d, n)| dim("i", d, *n))
            .collect();
        let to: Vec<Dim> = out
            .iter()
            .enumerate()
            .map(|(d, n)| dim("o", d, *n))
            .collect();
        let x = b.input("x", dtype, shape);
        // What gives the output's symbols their values.
        let like = b.input("like", DType::F32, to.clone());
        let origin = Origin {
            name: "resize".into(),
            op_type: "Resize".into(),
        };
        let types = [("y", dtype, to.into_iter().map(Some).collect())];
        let y = b.node_with_shapes(Op::Resample(spec.clone()), &[x], &types, &origin)[0];
        let g = b.finish(&[y, like]);
        g.verify().unwrap();
        let n: usize = sizes.iter().product();
        let v: Vec<f32> = (0..n).map(|_| r.below(200) as f32 / 8.0).collect();
        let t = match dtype {
            DType::U8 => {
                let v: Vec<u8> = v.iter().map(|x| *x as u8).collect();
                Tensor::from_u8(&sizes, &v).unwrap()
            }
            _ => Tensor::from_f32(&sizes, &v).unwrap(),
        };
        let zeros = Tensor::zeros(DType::F32, &out).unwrap();
        let want = reference::run_graph(&g, &[t.clone(), zeros.clone()]);
        let after = run(
            &g,
            &Options {
                fuel: None,
                verify: true,
            },
        )
        .unwrap()
        .0;
        let still = after.nodes.iter().any(|n| matches!(n.op, Op::Resample(_)));
        lowered += usize::from(!still);
        kept += usize::from(still);
        let got = reference::run_graph(&after, &[t, zeros]);
        let (want, got) = (want.unwrap(), got.unwrap());
        for i in 0..want[0].len() {
            let (a, b) = (want[0].get_f64(i), got[0].get_f64(i));
            assert!(
                (a - b).abs() <= 1e-4 * a.abs().max(1.0),
                "case {case} {spec:?} {sizes:?} to {out:?}: {a} and {b} at {i}"
            );
        }
    }
    assert!(lowered > 10 * kept, "{kept} of {lowered} stayed");
}
