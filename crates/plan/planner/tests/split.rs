//! Kernels in two steps: what they compute, and where they pay.
use crate::build::*;
use kernel::Role;
use plan::{Item, ItemWork, Program, Segment, ValueIx, ValueOrigin};
use reference::{Memory, run_kernel};
use shopfloor_planner::internals::{apart, partings};
use std::collections::BTreeMap;
use tensor::Tensor;

pub fn items(p: &Program) -> Vec<Item> {
    p.segments
        .iter()
        .flat_map(Segment::items)
        .cloned()
        .collect()
}

/// All outputs of a program of kernels, run one after the other as they are defined.
pub fn outputs(p: &Program, seed: u64) -> Vec<Vec<u8>> {
    let mut values: BTreeMap<ValueIx, Tensor> = BTreeMap::new();
    let mut drawn = fastrand::Rng::with_seed(seed);
    for (v, value) in p.values.iter().enumerate() {
        let size = dims().at_top(&value.storage).unwrap() as usize;
        let mut t = Tensor::zeros(value.dtype, &[size]).unwrap();
        if !matches!(value.origin, ValueOrigin::Made) {
            for i in 0..size {
                t.set_f64(i, f64::from(2.0 * drawn.f32() - 1.0));
            }
        }
        values.insert(v as ValueIx, t);
    }
    for item in items(p) {
        let ItemWork::Kernel { kernel, args } = &item.work else {
            panic!("a host step");
        };
        let mut memory = Memory::new();
        for (o, v) in args.iter().enumerate() {
            memory.bind(o as u16, values[v].clone());
        }
        let top = |s: &str| dims().get(s).map(|r| r.hi);
        run_kernel(kernel, &top, &mut memory).unwrap();
        for (o, v) in args.iter().enumerate() {
            if kernel.operands[o].role == Role::Write {
                values.insert(*v, memory.get(o as u16).unwrap().clone());
            }
        }
    }
    let of = |o: &(String, ValueIx)| values[&o.1].bytes().to_vec();
    p.outputs.iter().map(of).collect()
}

#[test]
fn what_is_in_two_steps_gives_the_same() {
    let seed = 20261;
    let mut ways = 0;
    for p in [
        gemm(5, 7, 9),
        softmax_of(6, 11),
        sums(3, 17),
        concat(),
        convs(1, 5, 4),
    ] {
        let want = outputs(&p, seed);
        for (i, item) in items(&p).iter().enumerate() {
            let ItemWork::Kernel { kernel, .. } = &item.work else {
                continue;
            };
            for parting in partings(kernel) {
                let q = apart(&p, &[(0, i, &parting)]);
                assert_eq!(items(&q).len(), items(&p).len() + 1);
                let what = parting.what();
                assert!(outputs(&q, seed) == want, "{} {what}, seed {seed}", p.name);
                bind(&q, &dims()).verify().unwrap();
                ways += 1;
            }
        }
    }
    assert!(ways >= 8, "only {ways} ways were tried");
}

#[test]
fn values_keep_their_numbers_and_names_stay_unique() {
    let p = softmax_of(6, 11);
    let ItemWork::Kernel { kernel, .. } = &items(&p)[0].work else {
        panic!("a kernel");
    };
    for parting in partings(kernel) {
        let q = apart(&p, &[(0, 0, &parting)]);
        assert_eq!(q.values[..p.values.len()], p.values[..]);
        assert_eq!((&q.inputs, &q.outputs), (&p.inputs, &p.outputs));
        let names: Vec<String> = items(&q).into_iter().map(|i| i.name).collect();
        assert_eq!(names, ["softmax (1 of 2)", "softmax (2 of 2)"]);
    }
}
