//! Plans for boxes beside the first one: nearly as good as plans for which nothing was taken from another.
use plan::{Allotment, Planner as _};
use planner::{PlanOptions, Planner};
use shopfloor::{Model, ModelOptions, inputs};
use testkit::zoo;

/// How much longer a request may be predicted to take than by a plan that looked for every schedule anew.
const WORSE: f64 = 1.2;
/// What a step may take longer in any case, seconds: less than a search for a better schedule is worth.
const NOTHING: f64 = 0.3e-6;
/// Models whose steps are bound by different things.
const MODELS: &[&str] = &[
    "rnn_variants",
    "digits_cnn",
    "gnn_gcn",
    "decoder_opset24",
    "ppocr_det",
    "minilm_l6",
    "unet_small",
    "mobilenet_v3_small",
];

#[test]
fn a_plan_beside_another_is_nearly_as_good_as_one_alone() {
    if !testing::turn("a_plan_beside_another_is_nearly_as_good_as_one_alone") {
        return;
    }
    let machine = machine::lookup("zen5-2core").expect("a machine of the catalog");
    let target = cpu::target(cpu::Isa::Avx512);
    let planner = Planner::new(vec![(machine, target)], PlanOptions::default());
    let all = Allotment::default();
    let (found, missing): (Vec<_>, Vec<_>) = MODELS.iter().partition(|n| zoo::find(n).is_some());
    if !missing.is_empty() {
        testing::skip(
            &format!("zoo: plans beside others of {missing:?}"),
            "there is no ../shared/zoo",
        );
    }
    for name in found {
        let model = zoo::find(name).expect("it is at hand");
        let prepared = model.prepare_temporary().expect("model");
        let opened = Model::open(&prepared.model, &ModelOptions::default()).expect("model");
        let sizes = inputs::sizes_of(&opened, &model.inputs().expect("inputs"));
        let program = opened.program();
        let first = planner.bind(program, &inputs::box_of(&opened, &sizes), &all);
        let first = first.expect("plan").verify().expect("valid");
        let symbol = sizes.keys().next().expect("a size that may change");
        for further in [1, 2, 3, 4, 9, 40] {
            let mut other = sizes.clone();
            other.entry(symbol.clone()).and_modify(|n| *n += further);
            let dims = inputs::box_of(&opened, &other);
            let alone = planner.bind(program, &dims, &all).expect("plan");
            let beside = planner
                .bind_like(program, &dims, &all, &[&first])
                .expect("plan");
            let steps = alone.blocks().map(|b| b.steps.len()).sum::<usize>();
            let (time, least) = (beside.predicted.time_s, alone.predicted.time_s);
            assert!(
                time <= WORSE * least + NOTHING * steps as f64,
                "{name}, {symbol} {further} further: predicted {:.1} us, alone {:.1} us",
                time * 1e6,
                least * 1e6
            );
        }
    }
}
