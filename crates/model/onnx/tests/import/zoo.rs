//! The zoo's models import, and their outputs have the shapes that their references have.

use shopfloor_onnx::{ImportOptions, import};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The models that the first release runs.
const FIRST: [&str; 21] = [
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
    "trained/digits_cnn",
    "trained/magika",
    "trained/ppocr_cls",
    "trained/ppocr_det",
    "trained/ppocr_rec",
    "trained/silero_vad",
];

fn zoo() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/zoo");
    dir.is_dir().then_some(dir)
}

fn all(zoo: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for part in ["", "trained/"] {
        for e in std::fs::read_dir(zoo.join(part)).unwrap().flatten() {
            if e.path().join("model.onnx").is_file() {
                found.push(format!("{part}{}", e.file_name().to_string_lossy()));
            }
        }
    }
    found.sort();
    found
}

/// The model in a folder of its own beside weights of the right length, all zero.
fn staged(from: &Path) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("model.onnx");
    std::fs::copy(from.join("model.onnx"), &to).unwrap();
    if let Ok(text) = std::fs::read_to_string(from.join("weights.json")) {
        let v: serde_json::Value = serde_json::from_str(&text).unwrap();
        let f = std::fs::File::create(dir.path().join("weights.bin")).unwrap();
        f.set_len(v["size"].as_u64().unwrap()).unwrap();
    }
    (dir, to)
}

/// Imports one model; `Err` says why it does not import or what is wrong with it.
fn check(from: &Path) -> Result<String, String> {
    let (_keep, path) = staged(from);
    let start = std::time::Instant::now();
    let m = import(&path, &ImportOptions::default()).map_err(|e| e.to_string())?;
    let took = start.elapsed();
    m.graph.verify().map_err(|e| e.to_string())?;
    let meta = std::fs::read_to_string(from.join("model.json")).unwrap();
    let meta: serde_json::Value = serde_json::from_str(&meta).unwrap();
    let dims: BTreeMap<String, i64> = meta["dynamic_dims"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| {
            (
                k.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_"),
                v.as_i64().unwrap(),
            )
        })
        .collect();
    // What the inputs' shapes say counts where names differ.
    let mut syms = dims;
    for &i in &m.graph.inputs {
        let v = m.graph.value(i);
        for (axis, d) in v.shape.iter().enumerate() {
            if let (Some(s), Some(n)) =
                (d.as_sym(), meta["inputs"][&v.name]["shape"][axis].as_i64())
            {
                syms.insert(s.to_string(), n);
            }
        }
    }
    let outputs = meta["output"].as_object().unwrap();
    let (mut late, mut names) = (0, Vec::new());
    for &o in &m.graph.outputs {
        let v = m.graph.value(o);
        names.push(v.name.as_str());
        let Some(want) = outputs.get(&v.name) else {
            return Err(format!("output '{}' is not one of the model", v.name));
        };
        let want: Vec<i64> = want["shape"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d.as_i64().unwrap())
            .collect();
        if want.len() != v.shape.len() {
            return Err(format!(
                "output '{}' has shape {:?}, not {want:?}",
                v.name, v.shape
            ));
        }
        for (d, w) in v.shape.iter().zip(&want) {
            match d.eval(&|s| syms.get(s).copied()) {
                Some(n) if n != *w => {
                    return Err(format!(
                        "output '{}' has shape {:?}, not {want:?}",
                        v.name, v.shape
                    ));
                }
                None => late += 1,
                _ => {}
            }
        }
    }
    if names.len() != outputs.len() {
        return Err(format!(
            "{} outputs instead of {}",
            names.len(),
            outputs.len()
        ));
    }
    let host = m
        .graph
        .nodes
        .iter()
        .filter(|n| matches!(n.op, graph::Op::Host { .. }))
        .count();
    let again = import(&path, &ImportOptions::default()).map_err(|e| e.to_string())?;
    if again.graph != m.graph {
        return Err("a second import gives another graph".into());
    }
    Ok(format!(
        "{} nodes, {host} host, {late} late extents, {took:.1?}",
        m.graph.nodes.len()
    ))
}

#[test]
fn the_first_models_import_with_the_shapes_of_their_references() {
    let Some(zoo) = zoo() else {
        return testing::skip(
            "zoo: imports of the first models",
            "there is no ../shared/zoo",
        );
    };
    let mut failed = Vec::new();
    for name in FIRST {
        match check(&zoo.join(name)) {
            Ok(s) => println!("{name}: {s}"),
            Err(e) => failed.push(format!("{name}: {e}")),
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {}:\n{}",
        failed.len(),
        FIRST.len(),
        failed.join("\n")
    );
}

#[test]
fn other_models_import_or_say_what_is_missing() {
    if !testing::turn("other_models_import_or_say_what_is_missing") {
        return;
    }
    let Some(zoo) = zoo() else {
        return testing::skip("zoo: imports of all models", "there is no ../shared/zoo");
    };
    let (mut good, mut total) = (0, 0);
    for name in all(&zoo) {
        total += 1;
        match check(&zoo.join(&name)) {
            Ok(s) => {
                good += 1;
                println!("{name}: {s}");
            }
            Err(e) => println!("NOT {name}: {}", e.chars().take(600).collect::<String>()),
        }
    }
    println!("{good} of {total} zoo models import");
    assert!(good >= FIRST.len());
}
