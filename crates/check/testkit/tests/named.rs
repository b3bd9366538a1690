//! Models that are written by name are those that were published: so many parameters, and the sizes that go in and out.
use shopfloor::{Model, ModelOptions};
use shopfloor_testkit::named;

#[test]
fn models_by_name_have_the_published_sizes() {
    // Millions of parameters: torchvision's two less the norms that are in convolutions, BERT base without its pooler and
    // types of tokens and with 128 places, Llama 3.2 with one table of words.
    for (name, millions, output) in [
        ("bert_base_128", 108.6, [1, 128, 768].as_slice()),
        ("llama_1b", 1235.9, &[1, 1, 128_256]),
        ("resnet50", 25.5, &[1, 1000]),
        ("vit_b_16", 86.6, &[1, 1000]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        named::write(name, dir.path()).unwrap();
        let folder = dir.path().join(name);
        let text = std::fs::read_to_string(folder.join("weights.json")).unwrap();
        let weights: serde_json::Value = serde_json::from_str(&text).unwrap();
        // A file of holes: what the numbers are does not matter here.
        let file = std::fs::File::create(folder.join("weights.bin")).unwrap();
        file.set_len(weights["size"].as_u64().unwrap()).unwrap();
        let text = std::fs::read_to_string(folder.join("model.json")).unwrap();
        let meta: serde_json::Value = serde_json::from_str(&text).unwrap();
        let parameters = meta["parameters"].as_f64().unwrap() / 1e6;
        assert!(
            (parameters - millions).abs() < 0.1,
            "{name}: {parameters} M"
        );
        let model = Model::open(folder.join("model.onnx"), &ModelOptions::default()).unwrap();
        let sizes = |dims: &[layout::Dim]| -> Vec<i64> {
            dims.iter().map(|d| d.known().unwrap_or(-1)).collect()
        };
        let graph = model.graph().unwrap();
        let outputs = graph.outputs.iter().map(|&v| sizes(&graph.value(v).shape));
        let outputs: Vec<Vec<i64>> = outputs.collect();
        assert!(outputs.iter().any(|o| o == output), "{name}: {outputs:?}");
    }
    assert!(named::write("nobody", std::path::Path::new("/nowhere")).is_err());
}
