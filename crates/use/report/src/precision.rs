//! How the steps of a plan multiply f32, in words.
use kernel::{Factors, Kernel, Mapping, Schedule, Stmt};
use layout::DType;
use plan::{Plan, Precision, StepWork};
use std::collections::BTreeMap;

/// What a step multiplies f32 by, where its factors are f32.
fn way(kernel: &Kernel, schedule: &Schedule) -> Option<&'static str> {
    let dtype = |t: u16| kernel.tiles[t as usize].dtype;
    let factors = kernel.body.iter().find_map(|s| match s {
        Stmt::Contract { a, .. } => Some(dtype(*a)),
        _ => None,
    });
    if factors? != DType::F32 {
        return None;
    }
    let fragment = match &schedule.mapping {
        Mapping::Gpu(g) => g.fragment,
        Mapping::Cpu(_) => None,
    };
    Some(match fragment.map(|f| f.factors) {
        None => "multiply-adds",
        Some(Factors::Whole) => "matrix units",
        Some(Factors::Tf32) => "TF32",
        Some(Factors::Tf32x3) => "three TF32 products",
        Some(Factors::Bf16) => "bf16",
        Some(Factors::Bf16x3) => "three bf16 products",
    })
}

/// What was asked for, and by what the steps of `plan` multiply f32, as `f32: 12 steps by multiply-adds`; `None`
/// where no step does and nothing but the default was asked for.
pub fn precision_text(plans: &[&Plan], asked: Precision) -> Option<String> {
    let mut ways: BTreeMap<&str, usize> = BTreeMap::new();
    let blocks = plans.iter().flat_map(|p| p.blocks());
    for step in blocks.flat_map(|b| &b.steps) {
        if let StepWork::Kernel {
            kernel, schedule, ..
        } = &step.work
            && let Some(w) = way(kernel, schedule)
        {
            *ways.entry(w).or_default() += 1;
        }
    }
    if ways.is_empty() && asked == Precision::default() {
        return None;
    }
    let each = |(way, n): (&&str, &usize)| {
        let s = if *n == 1 { "" } else { "s" };
        format!("{n} step{s} by {way}")
    };
    let list: Vec<String> = ways.iter().map(each).collect();
    Some(match list.is_empty() {
        true => format!("{asked}: nothing multiplies f32"),
        false => format!("{asked}: {}", list.join(", ")),
    })
}
