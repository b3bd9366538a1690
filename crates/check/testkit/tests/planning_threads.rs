//! A plan for a GPU does not depend on how many threads chose its kernels.
use layout::DimBox;
use machine::Machine;
use plan::{Allotment, Plan, Planner as _};
use planner::{PlanOptions, Planner};
use shopfloor::{Model, ModelOptions};

#[test]
fn one_thread_and_several_plan_the_same() {
    if !testing::turn("one_thread_and_several_plan_the_same") {
        return;
    }
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../models/ppocr_cls/model.onnx"
    );
    let model = Model::open(path, &ModelOptions::default()).unwrap();
    let program = model.program();
    let mut dims = DimBox::new();
    for s in &program.symbols {
        // One picture, large enough for matrix instructions.
        let n = if s.name.ends_with("d0") { 1 } else { 96 };
        dims.insert(s.name.clone(), n, n);
    }
    let planned = |threads: usize| -> Plan {
        let gpu = (Machine::load("h100").unwrap(), emit::ptx::target("sm_90a"));
        let planner = Planner::new(vec![gpu], PlanOptions::default()).with_threads(threads);
        planner.bind(program, &dims, &Allotment::default()).unwrap()
    };
    let alone = planned(1);
    let steps: usize = alone.blocks().map(|b| b.steps.len()).sum();
    assert!(steps >= 40, "{steps} steps");
    let alone = alone.to_json().unwrap();
    for threads in [2, 7] {
        let several = planned(threads).to_json().unwrap();
        assert!(several == alone, "the plan of {threads} threads is another");
    }
}
