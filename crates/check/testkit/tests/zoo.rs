//! Whole models against their references: as exported, with symbolic dims and with dims fixed, on
//! one and two threads. Models that are in neither `../shared/zoo` nor `models/` are left out by
//! name and count.
extern crate shopfloor_testkit as testkit;

use libtest_mimic::{Arguments, Failed, Trial};
use shopfloor::{Session, SessionBuilder, Tensor};
use std::path::Path;
use std::sync::Mutex;
use testing::Share;
use testkit::printed::{check as print_all, everywhere};
use testkit::zoo::{self, ZooModel};

/// Every model of the zoo but the one of 2 GB, which `cargo xtask zoo --large` runs.
const MODELS: &[&str] = &[
    "audio_frontend",
    "bert_base_dynamo",
    "bert_base_ts",
    "convnext_tiny",
    "decoder_gqa_int4",
    "decoder_merged_if",
    "decoder_opset24",
    "densenet121",
    "digits_cnn",
    "distilbert_cls",
    "dlrm_toy",
    "efficientnet_b0",
    "espcn_x3",
    "fasterrcnn_mobilenet",
    "gnn_gcn",
    "gpt2_kv",
    "gru_audio_classifier",
    "if_branches",
    "int4_blocked_mlp",
    "legacy_ir3",
    "llama_gqa_dynamo",
    "llama_gqa_f16",
    "llama_gqa_ts",
    "local_functions",
    "loop_greedy",
    "lraspp_mobilenet_v3",
    "lstm_text_classifier",
    "magika",
    "minilm_dynamic_int8",
    "minilm_l6",
    "mobilenet_v3_qoperator",
    "mobilenet_v3_small",
    "moe_toy",
    "ppocr_cls",
    "ppocr_det",
    "ppocr_rec",
    "regnet_y_400mf",
    "resnet18_f16",
    "resnet50_dynamo",
    "resnet50_qdq",
    "resnet50_ts",
    "rnn_variants",
    "scan_ssm",
    "sd_unet",
    "sequence_loop",
    "shufflenet_v2_x1_0",
    "silero_vad",
    "skl_gradient_boosting",
    "skl_mlp",
    "skl_random_forest",
    "skl_svm",
    "spatial_transformer",
    "squeezenet1_1",
    "ssdlite320",
    "swin_t",
    "t5_small_decoder",
    "t5_small_encoder",
    "unet_small",
    "vae_decoder",
    "vit_tiny_dynamo",
    "vit_tiny_ts",
    "wav2vec2_base",
    "whisper_tiny_decoder",
    "whisper_tiny_encoder",
    "yolo_like",
];

/// Parts of them, of which a run takes one; `cargo xtask zoo` takes all.
const RUN_SHARES: u64 = 32;
/// Parts of them, of which a run prints one.
const SHARES: u64 = 120;

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
    let mut fixed = Session::builder().with_threads(2);
    for (n, t) in model.inputs().map_err(|e| Failed::from(e.to_string()))? {
        fixed = fixed.with_shape(&n, t.shape());
    }
    check(&model, path, fixed, "fixed dims, 2 threads")
}

/// Plans and prints this run's share of the models for every target that need not be here.
fn share_is_printed(models: &[&str]) -> Result<(), Failed> {
    let (share, all) = (Share::of_run(SHARES), everywhere()?);
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    for name in models.iter().filter(|m| share.has(m)) {
        let fail = |e: &dyn std::fmt::Display| {
            Failed::from(format!(
                "{name}: {e}\n    again: cargo xtask targets {name}"
            ))
        };
        let model = zoo::find(name).ok_or("it is gone")?;
        let prepared = model.prepare_temporary().map_err(|e| fail(&e))?;
        let inputs = model.inputs().map_err(|e| fail(&e))?;
        let done = print_all(&prepared.model, &inputs, &all, &mut |_, _| Ok(()));
        done.map_err(|e| fail(&e))?;
    }
    Ok(())
}

fn main() {
    let args = Arguments::from_args();
    let missing = zoo::missing(MODELS);
    let there = MODELS.iter().filter(|m| !missing.iter().any(|x| x == *m));
    let there: Vec<&str> = there.copied().collect();
    // A model that is asked for by its name runs whatever the share.
    let share = match args.filter.is_some() {
        true => Share::ALL,
        false => Share::of_run(RUN_SHARES),
    };
    println!("models of {share}");
    let mut trials: Vec<Trial> = there
        .iter()
        .filter(|m| share.has(m))
        .map(|&m| Trial::test(m, move || run(m)))
        .collect();
    let printed = move || share_is_printed(&there);
    trials.push(Trial::test("a_share_is_printed_for_every_target", printed));
    libtest_mimic::run(&args, trials).exit();
}
