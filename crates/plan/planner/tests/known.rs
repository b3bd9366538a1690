//! Predictions that are kept.
use crate::build::*;
use crate::split::items;
use kernel::{AxisTile, CpuMapping, Kernel, Mapping, Schedule};
use machine::{Cost, Work};
use plan::ItemWork;
use shopfloor_planner::internals::{KnownSteps, Predicted};
use std::cell::Cell;
use std::sync::Arc;

/// A prediction that is the `made`th, of so many seconds, or at least so many.
fn predicted(made: u64, seconds: f64, least: bool) -> Option<Predicted> {
    let work = Work {
        tasks: made,
        ..Work::default()
    };
    let cost = Cost {
        time_s: seconds,
        interval: (seconds, seconds),
        ..Cost::zero()
    };
    Some(Predicted { work, cost, least })
}

#[test]
fn what_is_known_in_part_is_predicted_again_where_more_is_asked_for() {
    let program = gemm(5, 7, 9);
    let all = items(&program);
    let ItemWork::Kernel { kernel, .. } = &all[0].work else {
        panic!("a host step");
    };
    let schedule = Arc::new(schedule(8));
    let (known, made) = (KnownSteps::default(), Cell::new(0));
    // It takes 9 seconds; where 5 are too many, it is seen to take 6 at least.
    let below = |limit: f64| {
        let found = known.of((kernel, &schedule), vec![1, 1, 2], limit, || {
            made.set(made.get() + 1);
            let least = limit <= 5.0;
            predicted(made.get(), if least { 6.0 } else { 9.0 }, least)
        });
        (found.map(|p| p.cost.time_s), made.get())
    };
    assert_eq!(below(5.0), (Some(6.0), 1));
    assert_eq!(below(6.0), (Some(6.0), 1));
    assert_eq!(below(7.0), (Some(9.0), 2));
    assert_eq!(below(f64::INFINITY), (Some(9.0), 2));
}

fn schedule(tile: i64) -> Schedule {
    Schedule {
        grid: vec![AxisTile { axis: 0, tile }],
        loops: vec![],
        places: vec![],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping::default()),
    }
}

#[test]
fn a_program_is_predicted_once_whatever_its_names() {
    let program = gemm(5, 7, 9);
    let all = items(&program);
    let ItemWork::Kernel { kernel, .. } = &all[0].work else {
        panic!("a host step");
    };
    let mut renamed = Kernel::clone(kernel);
    renamed.name += " of another step";
    renamed.operands.iter_mut().for_each(|o| o.name += "_too");
    renamed.tiles.iter_mut().for_each(|t| t.name += "_too");
    let renamed = Arc::new(renamed);
    let schedule = |tile: i64| Arc::new(schedule(tile));
    let (known, made) = (KnownSteps::default(), Cell::new(0));
    let of = |kernel: &Arc<Kernel>, tile: i64, found_in: &[u8]| {
        let (of, found_in) = ((kernel, &schedule(tile)), found_in.to_vec());
        known.of(of, found_in, f64::INFINITY, || {
            made.set(made.get() + 1);
            predicted(made.get(), 0.0, false)
        })
    };
    let first = of(kernel, 8, &[1, 1, 2]).map(|p| p.work.tasks);
    assert_eq!(of(&renamed, 8, &[1, 1, 2]).map(|p| p.work.tasks), first);
    assert_eq!(made.get(), 1);
    // Another schedule, another level, another kernel.
    of(&renamed, 4, &[1, 1, 2]);
    of(&renamed, 8, &[1, 2, 2]);
    let mut other = Kernel::clone(kernel);
    other.axes[0].extent = layout::Dim::Known(6);
    of(&Arc::new(other), 8, &[1, 1, 2]);
    assert_eq!(made.get(), 4);
    assert_eq!(of(kernel, 8, &[1, 1, 2]).map(|p| p.work.tasks), first);
    assert_eq!(made.get(), 4);
}
