//! What a step reads before the steps before it are over.
use crate::common::kernels::{gemm, gemm_gpu};
use crate::common::{PlanMaker, d};
use kernel::{Mapping, OperandId};
use layout::DType;
use shopfloor_plan::{BufferKind, Plan};

/// A product of an input with a buffer of this kind that takes these operands for constants.
fn product(kind: BufferKind, constants: &[OperandId]) -> Plan {
    let mut p = PlanMaker::new();
    let x = p.input(DType::F16, &[d(128), d(64)]);
    let w = p.buffer(kind, DType::F16, &[d(128), d(64)]);
    let c = p.weight(&[d(128)]);
    let y = p.buffer(BufferKind::Arena, DType::F16, &[d(128), d(128)]);
    let mut schedule = gemm_gpu();
    if let Mapping::Gpu(g) = &mut schedule.mapping {
        g.constants = constants.to_vec();
    }
    let kernel = gemm(d(128), d(128), d(64), DType::F16);
    p.step(false, (kernel, schedule), &[x, w, c, y], &[]);
    p.finish("early")
}

#[test]
fn constants_are_weights_and_what_the_init_segment_leaves() {
    let verify = |kind, constants: &[OperandId]| product(kind, constants).verify();
    assert!(verify(BufferKind::Weight(1), &[1, 2]).is_ok());
    let said = |kind, constants: &[OperandId]| verify(kind, constants).unwrap_err().to_string();
    for (e, name) in [
        (said(BufferKind::Weight(1), &[0]), "'b0'"),
        (said(BufferKind::Arena, &[1]), "'b1'"),
    ] {
        assert!(e.contains("before the steps before it are over"), "{e}");
        assert!(e.contains(name) && e.contains("step 'step0'"), "{e}");
    }
}
