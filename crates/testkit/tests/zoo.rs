//! Generated weights have the sha256 of their descriptions; references agree with themselves and
//! with nothing else.

use layout::DType;
use shopfloor_testkit::{compare, zoo};
use tensor::Tensor;

const BUNDLED: [&str; 5] = [
    "digits_cnn",
    "magika",
    "ppocr_cls",
    "ppocr_rec",
    "silero_vad",
];

/// Outputs that equal the references: stored ones as they are, sampled ones with zeros between.
fn perfect(model: &zoo::ZooModel) -> Vec<(String, Tensor)> {
    let stored = model.references().unwrap();
    stored
        .into_iter()
        .map(|(name, t)| {
            let meta = &model.meta().output[&name];
            let mut full =
                Tensor::zeros(zoo::element_type(&meta.dtype).unwrap(), &meta.shape).unwrap();
            for i in 0..t.len() {
                let at = i * meta.stride.unwrap_or(1);
                if t.dtype().is_float() {
                    full.set_f64(at, t.get_f64(i))
                } else {
                    full.set_i64(at, t.get_i64(i))
                }
            }
            (name, full)
        })
        .collect()
}

#[test]
fn bundled_models_are_complete() {
    for name in BUNDLED {
        let model = zoo::ZooModel::open(zoo::bundled().join(name)).unwrap();
        assert!(!model.inputs().unwrap().is_empty());
        assert!(model.prepare("unused").unwrap().is_file());
        for file in ["LICENSE", "NOTICE"] {
            assert!(model.folder().join(file).is_file(), "{name} has no {file}");
        }
        let outputs = perfect(&model);
        assert!(model.check(&outputs).unwrap().passed());
    }
}

#[test]
fn wrong_outputs_fail() {
    let model = zoo::find("digits_cnn").unwrap();
    let good = perfect(&model);
    let mut bad = good.clone();
    let v = bad[0].1.get_f64(3);
    bad[0].1.set_f64(3, v + 0.01);
    let report = model.check(&bad).unwrap();
    assert!(
        !report.passed() && (report.worst() - 0.01).abs() < 1e-3,
        "{report}"
    );
    bad[0].1.set_f64(3, f64::NAN);
    assert!(!model.check(&bad).unwrap().passed());
    assert!(!model.check(&[]).unwrap().passed());
    let wrong = vec![(
        good[0].0.clone(),
        Tensor::zeros(DType::F64, good[0].1.shape()).unwrap(),
    )];
    assert!(model.check(&wrong).unwrap().to_string().contains("f64"));
    let sampled = zoo::find("ppocr_rec").unwrap();
    let mut outputs = perfect(&sampled);
    assert_eq!(sampled.check(&outputs).unwrap().worst(), 0.0);
    outputs[0].1.set_f64(19, 5.0);
    assert!(!sampled.check(&outputs).unwrap().passed());
}

#[test]
fn what_is_left_out_is_named() {
    assert_eq!(
        zoo::missing(&["digits_cnn", "no_such_model"]),
        ["no_such_model"]
    );
    assert_eq!(
        zoo::left_out(&["a", "b", "c"]),
        "left out (no ../shared/zoo): a, b, c (3)"
    );
}

#[test]
fn generated_weights_have_their_sha256() {
    // float32; 4-bit; int8 and uint8; float16.
    let names = [
        "gnn_gcn",
        "int4_blocked_mlp",
        "mobilenet_v3_qoperator",
        "resnet18_f16",
    ];
    let missing = zoo::missing(&names);
    for name in names.iter().filter(|n| !missing.contains(n)) {
        let model = zoo::find(name).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut last = (0, 1);
        let path = model
            .prepare_with(dir.path(), |done, all| last = (done, all))
            .unwrap();
        assert_eq!(last.0, last.1);
        let bin = path.with_file_name("weights.bin");
        let first = std::fs::metadata(&bin).unwrap().modified().unwrap();
        // Not made a second time; made again when it was cut short.
        assert_eq!(model.prepare(dir.path()).unwrap(), path);
        assert_eq!(std::fs::metadata(&bin).unwrap().modified().unwrap(), first);
        let len = std::fs::metadata(&bin).unwrap().len();
        std::fs::File::options()
            .write(true)
            .open(&bin)
            .unwrap()
            .set_len(len - 1)
            .unwrap();
        model.prepare(dir.path()).unwrap();
        assert_eq!(std::fs::metadata(&bin).unwrap().len(), len);
        let once = model.prepare_temporary().unwrap();
        let place = once.model.clone();
        assert!(place.is_file());
        drop(once);
        assert!(!place.exists());
    }
}

#[test]
fn every_model_at_hand_has_inputs_and_references() {
    for name in zoo::names() {
        let model = zoo::find(&name).unwrap();
        model.inputs().unwrap();
        let report = model.check(&perfect(&model)).unwrap();
        assert!(report.passed() && report.worst() == 0.0, "{report}");
    }
    let one = Tensor::from_f32(&[1], &[1.0]).unwrap();
    assert_eq!(compare::difference(&one, &one), 0.0);
}
