//! What a GPU's driver made of the texts of a model outlives the process.
use crate::emulated_session::Emulated;
use cuda_emulated::EmulatedGpu;
use layout::DType;
use shopfloor::{Cache, Launch};
use shopfloor_testkit::handwritten::values;
use std::path::{Path, PathBuf};

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models/digits_cnn/model.onnx")
}

/// Files with code in the folders of `folder`.
fn kept(folder: &Path) -> Vec<PathBuf> {
    let list = |at: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(at).unwrap();
        entries.map(|e| e.unwrap().path()).collect()
    };
    let folders = list(folder).into_iter().filter(|p| p.is_dir());
    let all = folders.flat_map(|p| list(&p));
    all.filter(|p| p.extension().is_some_and(|e| e == "code"))
        .collect()
}

#[test]
fn texts_are_assembled_once_and_again_where_their_code_was_damaged() {
    let x = values(DType::F32, &[1, 1, 8, 8], 7);
    for launch in [Launch::Steps, Launch::Resident] {
        let folder = tempfile::tempdir().unwrap();
        let request = || {
            let gpu = EmulatedGpu::named("a100").unwrap();
            let e = Emulated::of("a100", gpu, Some(launch), |b| {
                b.with_cache(Cache::new(folder.path()))
                    .commit_from_file(model())
            });
            let answer = e.answer(&[("image", &x)]).to_f32().unwrap();
            let calls = ["cuLinkComplete", "cuModuleLoadDataEx"].map(|c| e.calls(c));
            (answer, calls)
        };
        let (first, [made, loaded]) = request();
        assert!(made > 0 && loaded == made, "{launch:?}: {made} of {loaded}");
        let files = kept(folder.path());
        assert_eq!(files.len() as u64, made);
        assert_eq!(request(), (first.clone(), [0, loaded]), "{launch:?}");
        for file in &files {
            let mut bytes = std::fs::read(file).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(file, bytes).unwrap();
        }
        assert_eq!(request(), (first, [made, loaded]), "{launch:?}");
    }
}
