//! Measurements files: what reads, and what a damaged one is told.

use flate2::Compression;
use flate2::write::GzEncoder;
use shopfloor_predict::measurements::{DECODE, KERNELS, MODELS, Subject};
use shopfloor_predict::{Constants, Measurements, Options, compare};
use std::io::Write;

fn kernels(rows: &[&str]) -> String {
    format!("{}\n{}\n", KERNELS.join(","), rows.join("\n"))
}

const GOOD: &str = "neusight_test,V100-PCIE-32GB,add,rows=1024;cols=1024,fp32,45.5,note";

fn error(text: &str) -> String {
    let m = match Measurements::parse(text, "f.csv") {
        Err(e) => return e.to_string(),
        Ok(m) => m,
    };
    compare(&m, &Options::default(), Constants::published())
        .expect_err("it should not be taken")
        .to_string()
}

#[test]
fn the_three_kinds_read() {
    let m = Measurements::parse(&kernels(&[GOOD]), "k.csv").unwrap();
    assert_eq!(m.rows[0].op(), "add");
    assert!((m.rows[0].seconds - 45.5e-6).abs() < 1e-12);

    let text = format!(
        "{}\nneusight_e2e,MI100,pytorch,bert-large,inference,8,seq=512,fp32,134,,,,\"num_layer=24; a, b\"\n\
         mlperf,A2,trt,resnet50,inference,,offline,int8,,2000,,,\n",
        MODELS.join(",")
    );
    let m = Measurements::parse(&text, "m.csv").unwrap();
    assert_eq!(m.rows[0].note, "num_layer=24; a, b");
    assert_eq!(m.rows[0].op(), "inference");
    // A rate alone: the time of one sample.
    assert!((m.rows[1].seconds - 5e-4).abs() < 1e-12);

    let text = format!(
        "{}\nx,RTX-4090,2,llama.cpp,llama-2-7b,Q4_0,tg128,100,\n",
        DECODE.join(",")
    );
    let m = Measurements::parse(&text, "d.csv").unwrap();
    assert!(matches!(m.rows[0].subject, Subject::Decode { gpus: 2, .. }));
    assert_eq!((m.rows[0].op(), m.rows[0].seconds), ("tg", 0.01));
}

#[test]
fn quotes_and_ends_of_lines_count_lines() {
    let text = kernels(&[
        &GOOD.replace("note", "\"two\nlines, \"\"quoted\"\"\""),
        &GOOD.replace("45.5", "x"),
    ])
    .replace('\n', "\r\n");
    assert!(
        error(&text).contains("line 4, column `measured_us`"),
        "{}",
        error(&text)
    );
}

/// Each damaged file is refused with the line and the column that is wrong.
#[test]
fn damage_has_a_line_and_a_column() {
    let second = |row: &str| kernels(&[GOOD, row]);
    for (text, expected) in [
        (
            second(&GOOD.replace("45.5", "fast")),
            "line 3, column `measured_us`: `fast` is no number",
        ),
        (
            second(&GOOD.replace("45.5", "-1")),
            "line 3, column `measured_us`",
        ),
        (
            second(&GOOD.replace("45.5", "inf")),
            "line 3, column `measured_us`",
        ),
        (
            second(&GOOD.replace("45.5", "")),
            "line 3, column `measured_us`",
        ),
        (
            second(&GOOD.replace(",note", "")),
            "line 3, column `note`: 6 fields",
        ),
        (
            second(&format!("{GOOD},more")),
            "line 3, column `note`: 8 fields",
        ),
        (
            second(&GOOD.replace("neusight_test", "")),
            "line 3, column `source`",
        ),
        (
            second(&GOOD.replace("V100-PCIE-32GB", " ")),
            "line 3, column `gpu`",
        ),
        (
            second(&GOOD.replace("rows=1024", "rows")),
            "line 3, column `params`: `rows` is no key=value",
        ),
        (
            second(&GOOD.replace("rows=1024;", "")),
            "line 3, column `params`: `add` needs rows=",
        ),
        (
            second(&GOOD.replace("cols=1024", "cols=0")),
            "line 3, column `params`: cols=0",
        ),
        (
            second(&GOOD.replace("cols=1024", "cols=99999999999999999999")),
            "line 3, column `params`",
        ),
        (
            second(&GOOD.replace("note", "\"never closed")),
            "line 3, column `7`: its quotes",
        ),
        (
            second(&GOOD.replace("note", "\"a\"b")),
            "line 3, column `7`: text behind",
        ),
        (
            second(&GOOD.replace("note", "a\"b")),
            "line 3, column `7`: a quote",
        ),
        (
            "a,b,c\n1,2,3\n".into(),
            "line 1: no measurements file has the columns `a,b,c`",
        ),
        (String::new(), "line 1: no measurements file"),
    ] {
        let e = error(&text);
        assert!(
            e.starts_with("f.csv, ") && e.contains(expected),
            "{e}\n  expected {expected}"
        );
    }
}

#[test]
fn damaged_bytes_are_errors() {
    let dir = std::env::temp_dir().join(format!("predict-files-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let told = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        Measurements::open(&path)
            .map(|m| m.rows.len())
            .map_err(|e| e.to_string())
    };
    let body = kernels(&[GOOD]);
    let mut whole = GzEncoder::new(Vec::new(), Compression::none());
    whole.write_all(body.as_bytes()).unwrap();
    let whole = whole.finish().unwrap();
    assert_eq!(told("whole.gz", &whole), Ok(1));
    let twice = [whole.clone(), whole.clone()].concat();
    assert!(
        told("twice.gz", &twice)
            .unwrap_err()
            .contains("line 3, column `params`")
    );
    for cut in 2..whole.len() {
        assert!(told("cut.gz", &whole[..cut]).is_err(), "cut at {cut}");
    }
    let mut flipped = whole.clone();
    flipped[30] ^= 1;
    assert!(
        told("flipped.gz", &flipped)
            .unwrap_err()
            .contains("checksum")
    );
    let mut latin = body.into_bytes();
    let at = latin.len() - 3;
    latin[at] = 0xe9;
    assert!(told("latin.csv", &latin).unwrap_err().contains("line 2"));
    assert!(Measurements::open(&dir.join("none.csv")).is_err());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// GPUs, operators and types that are not known are counted by reason, and every row counts.
#[test]
fn what_is_not_covered_is_counted() {
    let text = kernels(&[
        GOOD,
        &GOOD.replace("V100-PCIE-32GB", "NO-SUCH-GPU"),
        &GOOD.replace("V100-PCIE-32GB", "NO-SUCH-GPU"),
        &GOOD.replace(",add,", ",spmm,"),
        &GOOD.replace("fp32", "fp8"),
        &GOOD.replace("neusight_test", "somebody"),
    ]);
    let m = Measurements::parse(&text, "f.csv").unwrap();
    let r = compare(&m, &Options::default(), Constants::published()).unwrap();
    assert_eq!((r.overall.rows, r.overall.covered), (6, 2));
    assert_eq!(r.uncovered.values().sum::<usize>(), 4);
    assert_eq!(r.uncovered["GPU NO-SUCH-GPU is not in the catalog"], 2);
    assert_eq!(r.uncovered["op spmm is not predicted"], 1);
    let one = Options {
        gpu: Some("v100-pcie-32gb".into()),
    };
    let r = compare(&m, &one, Constants::published()).unwrap();
    assert_eq!(r.overall.rows, 4);
    // The keys that others read.
    let json: serde_json::Value = serde_json::from_str(&r.json().unwrap()).unwrap();
    for key in [
        "rows",
        "covered",
        "mean_ape",
        "median_ape",
        "wape",
        "bias",
        "spearman",
    ] {
        assert!(
            json["overall"].get(key).is_some() && json["groups"][0].get(key).is_some(),
            "{key}"
        );
    }
    assert!(json["groups"][0]["source"].is_string() && json["uncovered"].is_object());
}

/// Sizes at the edge of what is taken neither panic nor hang.
#[test]
fn extreme_sizes_are_predicted_or_counted() {
    let most = 1u64 << 32;
    let row = |op: &str, params: String| format!("deepbench_train,V100-SXM2,{op},{params},fp32,1,");
    let rows = [
        row("gemm", format!("m={most};n={most};k={most}")),
        row("bmm", format!("b={most};m={most};n={most};k={most}")),
        row("gemm", "m=1;n=1;k=1".into()),
        row("add", format!("rows={most};cols={most}")),
        row("softmax", format!("rows={most};cols={most}")),
        row("softmax", "rows=1;cols=1".into()),
        row("layernorm", format!("rows=1;cols={most}")),
        row("conv_fwd", "n=1;c=1;h=1;w=1;k=1;r=1;s=1".into()),
    ];
    let large = row(
        "conv_fwd",
        format!("n={most};c={most};h={most};w={most};k=1;r=1;s=1"),
    );
    let rows: Vec<&str> = rows.iter().chain([&large]).map(String::as_str).collect();
    let m = Measurements::parse(&kernels(&rows), "f.csv").unwrap();
    let r = compare(&m, &Options::default(), Constants::published()).unwrap();
    assert_eq!(r.overall.rows, rows.len());
    let window = row("conv_fwd", "n=1;c=1;h=2;w=2;k=1;r=3;s=3".into());
    assert!(error(&kernels(&[&window])).contains("larger than the padded image"));
}

/// What spreadsheets put before the text is no part of the first column; times that nobody measures are
/// no times.
#[test]
fn odd_starts_and_odd_times() {
    let path = std::env::temp_dir().join(format!("predict-bom-{}.csv", std::process::id()));
    std::fs::write(&path, format!("\u{feff}{}", kernels(&[GOOD]))).unwrap();
    let m = Measurements::open(&path);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(m.unwrap().rows.len(), 1);
    for time in ["1e-300", "1e300"] {
        let e = error(&kernels(&[&GOOD.replace("45.5", time)]));
        assert!(
            e.contains("line 2") && e.contains("out of what is measured"),
            "{e}"
        );
    }
}

#[test]
fn a_call_beyond_all_numbers_is_left_out_by_name_and_the_others_stay() {
    let huge = "deepbench_train,V100-PCIE-32GB,conv_fwd,n=4294967296;c=4294967296;h=4;w=4;k=1;r=1;s=1,fp32,1,";
    let m = Measurements::parse(&kernels(&[GOOD, huge]), "k.csv").unwrap();
    let r = compare(&m, &Options::default(), Constants::published()).unwrap();
    assert_eq!(r.groups.iter().map(|g| g.errors.rows).sum::<usize>(), 2);
    let (why, _) = r.uncovered.iter().next().unwrap();
    assert_eq!(why, "a convolution of more than 2^64 elements");
}
