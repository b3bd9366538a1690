//! `shopfloor test` on ONNX test folders: what it counts, what it says, how it ends.

// One helper of several is enough here.
#[allow(dead_code)]
use crate::common;

use common::shopfloor as command;
use serde_json::Value;
use shopfloor_tools::data::{read_npz, write_pb};
use std::path::Path;

/// Makes a test folder of the bundled digits model; `change` is added to the first probability
/// expected.
pub fn folder(root: &Path, name: &str, change: Option<f64>) {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models/digits_cnn");
    let at = root.join(name);
    std::fs::create_dir_all(&at).unwrap();
    std::fs::copy(model.join("model.onnx"), at.join("model.onnx")).unwrap();
    let Some(change) = change else { return };
    let set = at.join("test_data_set_0");
    std::fs::create_dir(&set).unwrap();
    let (input, image) = read_npz(model.join("inputs.npz")).unwrap().remove(0);
    let (output, mut want) = read_npz(model.join("outputs.npz")).unwrap().remove(0);
    want.set_f64(0, want.get_f64(0) + change);
    write_pb(set.join("input_0.pb"), &input, &image).unwrap();
    write_pb(set.join("output_0.pb"), &output, &want).unwrap();
}

/// Puts the files of `from`, folders included, into `to`, without copying them.
pub fn linked(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for e in std::fs::read_dir(from).unwrap() {
        let (from, name) = e.map(|e| (e.path(), e.file_name())).unwrap();
        match from.is_dir() {
            true => linked(&from, &to.join(name)),
            false => {
                if std::fs::hard_link(&from, to.join(&name)).is_err() {
                    std::fs::copy(&from, to.join(name)).unwrap();
                }
            }
        }
    }
}

fn test(args: &[&str]) -> (Option<i32>, String, String) {
    let out = command(&[&["test"], args].concat());
    let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

#[test]
fn agreeing_differing_and_empty_folders_are_counted() {
    let root = tempfile::tempdir().unwrap();
    folder(root.path(), "deep/down/right", Some(0.0));
    let dir = root.path().to_str().unwrap();
    // Element-wise closeness; the stored probabilities come from another library.
    let loose = ["--rtol", "0.001", "--atol", "0.0001", "--threads", "2"];
    let with = |more: &[&'static str]| -> Vec<&str> { [&[dir], &loose[..], more].concat() };
    let (code, out, err) = test(&with(&[]));
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(out, "1 passed, 0 failed, 0 skipped\n");

    folder(root.path(), "wrong", Some(0.5));
    folder(root.path(), "without_data", None);
    let (code, out, err) = test(&with(&[]));
    assert_eq!(code, Some(4), "{out}{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].starts_with("skipped ") && lines[0].contains("without_data"));
    assert!(lines[1].starts_with("failed ") && lines[1].contains("'probabilities' differs"));
    assert_eq!(lines[2], "1 passed, 1 failed, 1 skipped");
    assert!(
        err.starts_with("error: 1 of 3 test folders failed"),
        "{err}"
    );

    let (code, out, _) = test(&with(&["--json"]));
    assert_eq!(code, Some(4));
    let v: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&v["passed"], &v["failed"]), (&1.into(), &1.into()));
    assert_eq!(v["cases"].as_array().unwrap().len(), 3);

    let (code, out, _) = test(&[dir, "--atol", "1"]);
    assert_eq!(code, Some(0), "{out}");
    let (code, out, err) = test(&[dir, "--atol", "1", "--on", "nowhere"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("there is no device 'nowhere'"), "{err}");
}

#[test]
fn where_nothing_is_tested_that_is_no_success() {
    let root = tempfile::tempdir().unwrap();
    folder(root.path(), "without_data", None);
    let dir = root.path().to_str().unwrap();
    let (code, out, err) = test(&[dir]);
    assert_eq!(code, Some(6), "{out}{err}");
    assert!(out.ends_with("0 passed, 0 failed, 1 skipped\n"), "{out}");
    assert!(
        err.contains("nothing was tested") && err.contains("test_data_set_0"),
        "{err}"
    );
    // Data that expects nothing is no test either.
    folder(root.path(), "without_outputs", Some(0.0));
    let expected = "without_outputs/test_data_set_0/output_0.pb";
    std::fs::remove_file(root.path().join(expected)).unwrap();
    let (code, out, err) = test(&[dir, "--json"]);
    assert_eq!(code, Some(6), "{out}{err}");
    let v: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&v["passed"], &v["skipped"]), (&0.into(), &2.into()));
    assert!(out.contains("no output_N.pb"), "{out}");
    assert!(err.contains("all 2 test folders"), "{err}");
    // One that passes is enough.
    folder(root.path(), "right", Some(0.0));
    assert_eq!(test(&[dir, "--atol", "1"]).0, Some(0));
}

#[test]
fn what_is_no_test_folder_is_said() {
    let root = tempfile::tempdir().unwrap();
    let (code, _, err) = test(&[root.path().to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(err.contains("no folder with a model.onnx"), "{err}");
    let (code, _, err) = test(&[root.path().join("gone").to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(err.contains("gone"), "{err}");
}
