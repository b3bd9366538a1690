//! Predictions that are kept.
use crate::build::*;
use crate::split::items;
use kernel::{AxisTile, CpuMapping, Kernel, Mapping, Schedule};
use machine::{Cost, Work};
use plan::ItemWork;
use shopfloor_planner::internals::KnownSteps;
use std::cell::Cell;
use std::sync::Arc;

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
    let schedule = |tile: i64| {
        Arc::new(Schedule {
            grid: vec![AxisTile { axis: 0, tile }],
            loops: vec![],
            places: vec![],
            chunk: 1,
            raster: 1,
            mapping: Mapping::Cpu(CpuMapping::default()),
        })
    };
    let (known, made) = (KnownSteps::default(), Cell::new(0));
    let of = |kernel: &Arc<Kernel>, tile: i64, found_in: &[u8]| {
        known.of((kernel, &schedule(tile)), found_in.to_vec(), || {
            made.set(made.get() + 1);
            let work = Work {
                tasks: made.get(),
                ..Work::default()
            };
            Some((work, Cost::zero()))
        })
    };
    let first = of(kernel, 8, &[1, 1, 2]).map(|p| p.0.tasks);
    assert_eq!(of(&renamed, 8, &[1, 1, 2]).map(|p| p.0.tasks), first);
    assert_eq!(made.get(), 1);
    // Another schedule, another level, another kernel.
    of(&renamed, 4, &[1, 1, 2]);
    of(&renamed, 8, &[1, 2, 2]);
    let mut other = Kernel::clone(kernel);
    other.axes[0].extent = layout::Dim::Known(6);
    of(&Arc::new(other), 8, &[1, 1, 2]);
    assert_eq!(made.get(), 4);
    assert_eq!(of(kernel, 8, &[1, 1, 2]).map(|p| p.0.tasks), first);
    assert_eq!(made.get(), 4);
}
