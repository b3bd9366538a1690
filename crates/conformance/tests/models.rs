//! Bundled models whole on whatever GPU answers, against their references.
use shopfloor::{Session, data, engine_on};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The engine, or `None` where no adapter answers: said once, by name.
fn engine() -> Option<Arc<runtime::Engine>> {
    static ONE: OnceLock<Option<Arc<runtime::Engine>>> = OnceLock::new();
    let made = ONE.get_or_init(|| match engine_on("wgpu", None, None, None) {
        Ok(e) => Some(e),
        Err(e) => {
            println!("left out: models on a GPU: {e}");
            None
        }
    });
    made.clone()
}

fn check(model: &str) {
    let Some(engine) = engine() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../models")
        .join(model);
    let read = |f: &str| data::read_npz(folder.join(f)).expect(f);
    let (inputs, outputs) = (read("inputs.npz"), read("outputs.npz"));
    let session = Session::builder()
        .with_engine(engine)
        .commit_from_file(folder.join("model.onnx"))
        .expect("a session");
    let given: Vec<(&str, &shopfloor::Tensor)> =
        inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let got = session.run(&given).expect("a result");
    for (name, want) in &outputs {
        let got = got.get(name).expect(name);
        assert_eq!(want.shape(), got.shape(), "{model}: {name}");
        let scale = (0..want.len())
            .map(|i| want.get_f64(i).abs())
            .fold(1e-30, f64::max);
        for i in 0..want.len() {
            let (w, g) = (want.get_f64(i), got.get_f64(i));
            assert!(
                (w - g).abs() <= 1e-4 * scale,
                "{model}: {name}[{i}] is {g}, not {w}"
            );
        }
    }
}

#[test]
fn digits_cnn() {
    check("digits_cnn");
}

#[test]
fn silero_vad() {
    check("silero_vad");
}

#[test]
fn ppocr_cls() {
    check("ppocr_cls");
}
