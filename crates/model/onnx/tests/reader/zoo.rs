//! The zoo's models, where the shared folder is at hand.

use std::path::{Path, PathBuf};

use shopfloor_onnx::proto::{AttributeValue, Data, Graph, TensorData};
use shopfloor_onnx::{Error, ModelFile};

/// Folders with a model under `shared/zoo/PART`; says what is left out where there are none.
fn models(test: &str, part: &str) -> Vec<PathBuf> {
    let zoo = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../../shared/zoo")
        .join(part);
    let mut found: Vec<PathBuf> = std::fs::read_dir(&zoo)
        .map(|dir| dir.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    found.retain(|path| path.join("model.onnx").is_file());
    found.sort();
    if found.is_empty() {
        testing::skip(&format!("zoo: {test}"), "there is no ../shared/zoo");
    }
    found
}

/// Folders with a model in a folder given relative to this crate.
fn models_in(folder: &Path) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .map(|dir| dir.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    found.retain(|path| path.join("model.onnx").is_file());
    found.sort();
    found
}

fn tensors<'a>(graph: &'a Graph, out: &mut Vec<&'a TensorData>) {
    out.extend(&graph.initializers);
    for attribute in graph.nodes.iter().flat_map(|node| &node.attributes) {
        match &attribute.value {
            AttributeValue::Tensor(tensor) => out.push(tensor),
            AttributeValue::Graph(graph) => tensors(graph, out),
            _ => {}
        }
    }
}

fn check(path: &Path) -> (usize, usize) {
    let file = ModelFile::open(path.join("model.onnx")).unwrap();
    let graphs = tensors_of(&file);
    let mut external = 0;
    for tensor in &graphs {
        let result = match tensor.dtype {
            8 => file.tensor_strings(tensor).map(drop),
            _ => file.tensor_bytes(tensor).map(|bytes| {
                assert_eq!(bytes.len() as u64, tensor.byte_len().unwrap());
                if matches!(tensor.data, Data::Raw(_)) && !bytes.is_empty() {
                    assert!(bytes.same_owner(file.bytes()));
                }
            }),
        };
        match (&tensor.data, result) {
            (Data::External(_), Err(error @ Error::External { .. })) => {
                external += 1;
                let text = error.to_string();
                assert!(text.contains("weights.bin does not exist"), "{text}");
            }
            (_, result) => result.unwrap(),
        }
    }
    assert!(!file.model.graph.nodes.is_empty());
    (graphs.len(), external)
}

fn tensors_of(file: &ModelFile) -> Vec<&TensorData> {
    let mut all = Vec::new();
    tensors(&file.model.graph, &mut all);
    for node in file.model.functions.iter().flat_map(|f| &f.nodes) {
        for attribute in &node.attributes {
            if let AttributeValue::Tensor(tensor) = &attribute.value {
                all.push(tensor);
            }
        }
    }
    all
}

#[test]
fn every_zoo_model_opens_and_names_its_missing_weights() {
    let mut found = models("every_zoo_model_opens_and_names_its_missing_weights", "");
    found.extend(models(
        "every_zoo_model_opens_and_names_its_missing_weights",
        "trained",
    ));
    let (mut all, mut external) = (0, 0);
    for path in &found {
        let counts = check(path);
        all += counts.0;
        external += counts.1;
    }
    println!(
        "{} models, {all} tensors, {external} in a weights.bin that is not there",
        found.len()
    );
}

#[test]
fn every_bundled_model_opens() {
    for path in models_in(Path::new("../../../models")) {
        let (all, external) = check(&path);
        assert!(all > 0 && external == 0, "{}", path.display());
    }
}

#[test]
fn trained_models_cut_short_are_errors() {
    let name = "trained_models_cut_short_are_errors";
    for path in models(name, "trained") {
        let whole = std::fs::read(path.join("model.onnx")).unwrap();
        // Cuts between fields of the model itself may leave a smaller model; the rest may not
        // panic. Every byte of the head, then samples.
        let step = whole.len() / 200 + 1;
        for len in (0..400.min(whole.len())).chain((400..whole.len()).step_by(step)) {
            if let Ok(file) = ModelFile::from_bytes(whole[..len].to_vec(), None) {
                for tensor in tensors_of(&file) {
                    let _ = file.tensor_bytes(tensor);
                }
            }
        }
    }
}
