//! Plans of small programs written by hand.
mod build;
mod golden;

use super::*;
use build::*;
use plan::Planner as _;

fn bind(p: &Program, dims: &DimBox) -> Plan {
    planner()
        .bind(p, dims, &Allotment::default())
        .unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn same_arguments_same_bytes() {
    for p in [gemm(384, 768, 3072), convs(1, 28, 64), softmax(), concat()] {
        let json = |p: &Plan| serde_json::to_string(p).unwrap();
        let (a, b) = (bind(&p, &DimBox::new()), bind(&p, &DimBox::new()));
        assert_eq!(json(&a), json(&b));
        a.verify().unwrap();
    }
}
