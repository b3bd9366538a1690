//! Whole models against their references: as exported, with symbolic dims and with dims fixed, on
//! one and two threads. Models that are in neither `../shared/zoo` nor `models/` are left out by
//! name and count.
extern crate shopfloor_testkit as testkit;

use libtest_mimic::{Arguments, Failed, Trial};
use shopfloor::{Session, SessionBuilder, Tensor};
use std::path::Path;
use std::sync::Mutex;
use testkit::zoo::{self, ZooModel};

/// The models of the first milestone.
const MODELS: &[&str] = &[
    "digits_cnn",
    "magika",
    "ppocr_cls",
    "ppocr_det",
    "ppocr_rec",
    "silero_vad",
    "resnet50_ts",
    "resnet50_dynamo",
    "mobilenet_v3_small",
    "vit_tiny_ts",
    "vit_tiny_dynamo",
    "minilm_l6",
    "bert_base_ts",
    "gpt2_kv",
    "llama_gqa_ts",
    "convnext_tiny",
    "unet_small",
    "lstm_text_classifier",
    "if_branches",
    "loop_greedy",
    "skl_mlp",
];

/// Not run with dims fixed: the branch that these inputs do not take is invalid for their sizes,
/// and import checks both branches.
const SYMBOLIC_ONLY: &[&str] = &["silero_vad"];

/// Weights are generated for one model at a time: several at once would fill memory and disk.
static ONE: Mutex<()> = Mutex::new(());

fn check(model: &ZooModel, path: &Path, builder: SessionBuilder, how: &str) -> Result<(), Failed> {
    let fail = |e: &dyn std::fmt::Display| Failed::from(format!("{} ({how}): {e}", model.name()));
    let session = builder.commit_from_file(path).map_err(|e| fail(&e))?;
    let inputs = model.inputs().map_err(|e| fail(&e))?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let outputs = session.run(&named).map_err(|e| fail(&e))?.into_vec();
    let report = model.check(&outputs).map_err(|e| fail(&e))?;
    if !report.passed() {
        return Err(fail(&report));
    }
    // The same plan gives the same bits.
    let again = session.run(&named).map_err(|e| fail(&e))?.into_vec();
    if outputs != again {
        return Err(fail(&"a second run gave other bits"));
    }
    Ok(())
}

fn run(name: &str) -> Result<(), Failed> {
    let Some(model) = zoo::find(name) else {
        return Err(Failed::from(format!("{name} is gone")));
    };
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let prepared = model
        .prepare_temporary()
        .map_err(|e| Failed::from(e.to_string()))?;
    let path = prepared.model.as_path();
    for threads in [1, 2] {
        check(
            &model,
            path,
            Session::builder().with_threads(threads),
            &format!("symbolic dims, {threads} threads"),
        )?;
    }
    if SYMBOLIC_ONLY.contains(&name) {
        return Ok(());
    }
    let mut fixed = Session::builder().with_threads(2);
    for (n, t) in model.inputs().map_err(|e| Failed::from(e.to_string()))? {
        fixed = fixed.with_shape(&n, t.shape());
    }
    check(&model, path, fixed, "fixed dims, 2 threads")
}

fn main() {
    let args = Arguments::from_args();
    let missing = zoo::missing(MODELS);
    let trials = MODELS
        .iter()
        .filter(|m| !missing.iter().any(|x| x == *m))
        .map(|&m| Trial::test(m, move || run(m)))
        .collect();
    libtest_mimic::run(&args, trials).exit();
}
