//! The first command that predicts measures this CPU, where it may; what is kept can be removed again.

use std::path::Path;
use std::process::{Command, Output};

fn model() -> String {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models");
    models.join("digits_cnn/model.onnx").display().to_string()
}

/// The command with a folder for data of its own.
fn shopfloor(data: &Path, ci: Option<&str>, args: &[&str]) -> (String, String) {
    let mut c = Command::new(env!("CARGO_BIN_EXE_shopfloor"));
    c.args(args)
        .env("NO_COLOR", "1")
        .env("XDG_DATA_HOME", data)
        .env("XDG_CACHE_HOME", data)
        .env_remove("CI");
    if let Some(v) = ci {
        c.env("CI", v);
    }
    let o: Output = c.output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    let (out, err) = (text(o.stdout), text(o.stderr));
    assert!(o.status.success(), "{args:?}: {err}");
    (out, err)
}

/// Calibrations kept below `data`.
fn kept(data: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(data.join("shopfloor/machines"));
    files
        .into_iter()
        .flatten()
        .map(|f| f.unwrap().path())
        .collect()
}

#[test]
fn the_first_prediction_measures_and_the_second_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let plan = ["plan", &model()];
    let (_, err) = shopfloor(dir.path(), None, &plan);
    assert!(err.contains("note: measured this CPU once, for "), "{err}");
    let files = kept(dir.path());
    assert_eq!(files.len(), 1, "{files:?}");
    let text = std::fs::read_to_string(&files[0]).unwrap();
    assert!(
        text.contains("extent = \"short\"") && text.contains("tile_s"),
        "{text}"
    );
    let (_, err) = shopfloor(dir.path(), None, &plan);
    assert!(!err.contains("measured this CPU"), "{err}");
    let (out, _) = shopfloor(dir.path(), None, &["machines", "show", "cpu"]);
    assert!(
        out.contains("measured in a moment by the first command"),
        "{out}"
    );
    // Removed, with the place where it was; a second time there is nothing.
    let forget = ["machines", "calibrate", "--forget"];
    let (out, err) = shopfloor(dir.path(), None, &forget);
    assert_eq!(out, format!("removed {}\n", files[0].display()), "{err}");
    assert_eq!(kept(dir.path()).len(), 0);
    let (out, _) = shopfloor(dir.path(), None, &forget);
    assert_eq!(out, format!("nothing was kept in {}\n", files[0].display()));
    let (out, _) = shopfloor(dir.path(), None, &[&forget[..], &["--json"]].concat());
    let v: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(v, serde_json::json!({ "forgotten": null }));
}

#[test]
fn nothing_is_measured_unasked_where_it_must_not_be() {
    let dir = tempfile::tempdir().unwrap();
    let model = model();
    for (ci, args) in [
        (Some("true"), vec!["plan", &model]),
        (
            Some("1"),
            vec!["what-if", &model, "--on", "cpu", "--set", "l2=2x"],
        ),
        (None, vec!["plan", &model, "--machine", "detected"]),
        (None, vec!["plan", &model, "--on", "zen5-2core"]),
        (None, vec!["advise", &model, "--on", "detected"]),
        (None, vec!["machines", "show", "cpu"]),
        (None, vec!["inspect", &model]),
    ] {
        let (_, err) = shopfloor(dir.path(), ci, &args);
        assert!(!err.contains("measured this CPU"), "{args:?}: {err}");
        assert_eq!(kept(dir.path()).len(), 0, "{args:?}");
    }
}

#[cfg(unix)]
#[test]
fn what_the_demo_says_to_try_next_works() {
    let dir = tempfile::tempdir().unwrap();
    let (out, _) = shopfloor(dir.path(), Some("true"), &["demo", "--threads", "1"]);
    assert!(out.starts_with("It reads 2 (99."), "{out}");
    assert!(out.contains("which is bound by"), "{out}");
    let next = out.split("what to try next\n").nth(1).unwrap();
    let commands: Vec<&str> = next.lines().map(str::trim).collect();
    assert!((2..=3).contains(&commands.len()), "{next}");
    for c in commands {
        let mut sh = Command::new("sh");
        sh.args(["-c", c]).current_dir(dir.path()).env("CI", "true");
        let o = sh.env("XDG_CACHE_HOME", dir.path()).output().unwrap();
        let err = String::from_utf8_lossy(&o.stderr);
        assert!(o.status.success(), "{c}: {err}");
    }
    assert!(dir.path().join("digits.html").is_file());
}
