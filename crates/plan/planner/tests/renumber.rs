//! Kernels whose axes were numbered anew.
use crate::build::gemm;
use kernel::Kernel;
use layout::Dim;
use plan::{ItemWork, Segment};
use shopfloor_planner::internals::{alike, numbered_as, with_lanes_last};

/// A schedule numbers axes so that its lanes come last: the next box has to see that it is the same kernel.
#[test]
fn kernels_with_their_lanes_moved_are_told_by_their_axes() {
    let program = gemm(8, 24, 40);
    let kernels = program.segments.iter().flat_map(Segment::items);
    let kernels = kernels.filter_map(|i| match &i.work {
        ItemWork::Kernel { kernel, .. } => Some(kernel),
        ItemWork::Host { .. } => None,
    });
    for k in kernels {
        for lane in 0..k.axes.len() as kernel::AxisId {
            let chosen = with_lanes_last(Kernel::clone(k), lane);
            let found = numbered_as(k, &chosen).expect("the same kernel");
            assert!(alike(&found, &chosen), "{} by {lane}", k.name);
        }
        let mut other = Kernel::clone(k);
        other.axes.reverse();
        other.axes[0].extent = Dim::Known(999);
        assert_eq!(numbered_as(k, &other), None);
    }
}
