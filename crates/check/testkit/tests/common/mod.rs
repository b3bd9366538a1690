//! Models without their weights: a sparse file of the right size stands in for them.
use std::path::{Path, PathBuf};
use testkit::zoo::ZooModel;

/// The model with a weights file of the right size that holds only zeros.
pub fn hollow(model: &ZooModel, dir: &Path) -> PathBuf {
    let list = model.folder().join("weights.json");
    let Ok(text) = std::fs::read_to_string(&list) else {
        return model.folder().join("model.onnx");
    };
    let list: serde_json::Value = serde_json::from_str(&text).expect("weights.json");
    let to = dir.join(model.name());
    std::fs::create_dir_all(&to).expect("folder");
    std::fs::copy(model.folder().join("model.onnx"), to.join("model.onnx")).expect("model");
    let size = list["size"].as_u64().expect("size");
    let file = std::fs::File::create(to.join("weights.bin")).expect("weights");
    file.set_len(size).expect("length");
    to.join("model.onnx")
}
