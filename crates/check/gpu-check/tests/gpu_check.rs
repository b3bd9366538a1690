//! The program as it is run: on an emulated GPU, and where there is none.
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn gpu_check(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpu-check"))
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs parts on an emulated A100 within `seconds`; gives the page that is written, its folder and how long it took.
fn emulated(parts: &str, seconds: &str) -> (String, tempfile::TempDir, Duration) {
    emulated_on("emulated:a100,sms=4", parts, seconds)
}

/// As [`emulated`], on the emulated GPU `on`.
fn emulated_on(on: &str, parts: &str, seconds: &str) -> (String, tempfile::TempDir, Duration) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let began = Instant::now();
    let o = gpu_check(&[
        "--on",
        on,
        "--out",
        out,
        "--seconds",
        seconds,
        "--models",
        "digits_cnn",
        "--parts",
        parts,
    ]);
    let took = began.elapsed();
    let said = text(&o.stdout) + &text(&o.stderr);
    println!("{said}\n{:.1} s", took.as_secs_f64());
    assert!(o.status.success(), "{said}");
    let mut pages = std::fs::read_dir(dir.path().join("bench/gpu")).unwrap();
    let page = pages.next().unwrap().unwrap().path();
    let page = std::fs::read_to_string(page).unwrap();
    // Tables are no wider than a hundred columns.
    for fence in page.split("```").skip(1).step_by(2) {
        for line in fence.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
    (page, dir, took)
}

#[test]
fn an_emulated_gpu_is_checked_and_described() {
    if !testing::turn("an_emulated_gpu_is_checked_and_described") {
        return;
    }
    let parts = "calibrate,models,resident,kernels,torch";
    let (page, dir, took) = emulated(parts, "90");
    assert!(took < Duration::from_secs(100));
    for part in [
        "Emulated: nothing here was measured on a GPU",
        "digits_cnn, all ways: all ways give the same bits",
        "it drains and stops, and another one starts",
        "kernel behind kernel in a stream",
        "acknowledged round trip",
    ] {
        assert!(page.contains(part), "no '{part}' in\n{page}");
    }
    // There is no PyTorch for an emulated GPU, and that is not said to be well.
    let torch = page.lines().find(|l| l.starts_with("torch "));
    assert!(torch.is_some_and(|l| l.contains("left out")), "{page}");
    let file = dir
        .path()
        .join("machines/measured/emulated-a100-sxm4-80gb.toml");
    let (m, _) = shopfloor::machines::check(&file).unwrap();
    let read = m.level("device").unwrap().read.all;
    assert_eq!(read.source.to_string(), "measured");
}

/// Every precision and every stage of the recipe runs and agrees with sums in f64.
#[test]
fn products_are_timed_stage_by_stage() {
    if !testing::turn("products_are_timed_stage_by_stage") {
        return;
    }
    let (page, _dir, took) = emulated_on("emulated:h100,sms=4", "products", "90");
    assert!(took < Duration::from_secs(100));
    // Each stage and each type, the latter also with few rows.
    let rows = ["s1 mma.sync", "s3a 128x128", "s3b 128x256", "s5 128x256"];
    let types = [
        "bf16 256^3",
        "f16 256^3",
        "f32 256^3",
        "bf16x3 256^3",
        "tf32 256^3",
        "f32:bf16 256^3",
        "i8 256^3",
        "i8 16 x",
    ];
    for part in rows.into_iter().chain(types) {
        assert!(page.contains(part), "no '{part}' in\n{page}");
    }
    let counted = page.lines().find(|l| l.starts_with("products "));
    let counted: Vec<&str> = counted.unwrap().split_whitespace().collect();
    // The stages, and seven types and precisions, as squares and with few rows.
    let all = (rows.len() + 2 * 7).to_string();
    assert_eq!(
        counted[..5],
        ["products", "passed", &all, "0", "0"],
        "{page}"
    );
}

#[test]
fn the_suite_takes_the_time_there_is() {
    if !testing::turn("the_suite_takes_the_time_there_is") {
        return;
    }
    let (page, _dir, took) = emulated("conformance", "30");
    assert!(took < Duration::from_secs(50));
    for part in ["\nconv ", "recurrent"] {
        assert!(page.contains(part), "no '{part}' in\n{page}");
    }
}

/// A part that was not asked for costs nothing, a model that is not there is left out, and a part that
/// cannot do anything does not stop the next one.
#[test]
fn a_part_that_fails_does_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let o = gpu_check(&[
        "--on",
        "emulated:t4,sms=2",
        "--out",
        out,
        "--seconds",
        "30",
        "--models",
        "no_such_model",
        "--parts",
        "models,calibrate",
    ]);
    let said = text(&o.stdout) + &text(&o.stderr);
    assert_eq!(o.status.code(), Some(1), "{said}");
    let page = Path::new(out).join("bench/gpu/emulated-tesla-t4.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("no_such_model"), "{page}");
    assert!(page.contains("copies, host to device"), "{page}");
    assert!(
        Path::new(out)
            .join("machines/measured/emulated-tesla-t4.toml")
            .is_file()
    );
}

#[test]
fn without_a_driver_one_sentence_says_what_is_missing() {
    let there = cuda::Nvidia::load().and_then(|n| cuda::Driver::devices(&n));
    if there.is_ok_and(|d| !d.is_empty()) {
        return testing::skip("a machine without a GPU", "there is a GPU");
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let o = gpu_check(&["--on", "cuda:0", "--out", out.to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(2));
    let said = text(&o.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("driver") && said.starts_with("gpu-check: "),
        "{said}"
    );
    assert!(!out.exists());
    for args in [
        &["--on", "cpu"][..],
        &["--parts", "nothing"],
        &["--seconds", "0"],
        &["--what"],
    ] {
        let o = gpu_check(args);
        assert_eq!(o.status.code(), Some(2), "{args:?}");
        assert_eq!(text(&o.stderr).lines().count(), 1, "{args:?}");
    }
}
