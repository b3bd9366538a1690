//! Whole models on an emulated A100, step by step, against their references.
use shopfloor::{Session, Tensor};
use testkit::zoo;

fn check(name: &str) {
    let Some(model) = zoo::find(name) else {
        zoo::skip(&[name]);
        return;
    };
    let prepared = model.prepare_temporary().expect("weights");
    let inputs = model.inputs().expect("inputs");
    let mut builder = Session::builder().with_device("emulated:a100");
    for (n, t) in &inputs {
        builder = builder.with_shape(n, t.shape());
    }
    let session = builder
        .commit_from_file(&prepared.model)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let outputs = session
        .run(&named)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let report = model.check(&outputs.into_vec()).expect("a reference");
    assert!(report.passed(), "{name}: {report:?}");
}

#[test]
fn digits_cnn() {
    check("digits_cnn");
}

#[test]
fn silero_vad() {
    check("silero_vad");
}

/// Models that take seconds on an emulated GPU: a run takes one in turn.
#[test]
fn a_share_of_the_larger_models() {
    let larger = [
        "ppocr_cls",
        "ppocr_rec",
        "minilm_l6",
        "llama_gqa_ts",
        "llama_gqa_f16",
    ];
    // Every other run has one of them.
    let share = testing::Share::of_run(2 * larger.len() as u64);
    println!("{share}");
    for (_, name) in (0..).zip(larger).filter(|(i, _)| share.picks(*i)) {
        check(name);
    }
}

#[test]
fn skl_mlp() {
    check("skl_mlp");
}

#[test]
fn gnn_gcn() {
    check("gnn_gcn");
}

#[test]
fn if_branches() {
    check("if_branches");
}
