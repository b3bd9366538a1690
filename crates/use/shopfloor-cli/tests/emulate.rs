//! `shopfloor emulate` as a user calls it.

use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// y[i] = a x[i] for n elements.
const SCALE: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 px, .param .u64 py, .param .f32 pa, .param .u32 pn)
{
    .reg .pred %p;
    .reg .u32 %i, %n, %b, %t;
    .reg .f32 %a, %x;
    .reg .u64 %d<4>;
    mov.u32 %b, %ctaid.x;
    mov.u32 %n, %ntid.x;
    mov.u32 %t, %tid.x;
    mad.lo.u32 %i, %b, %n, %t;
    ld.param.u32 %n, [pn];
    setp.ge.u32 %p, %i, %n;
    @%p ret;
    ld.param.u64 %d0, [px];
    ld.param.u64 %d1, [py];
    ld.param.f32 %a, [pa];
    mul.wide.u32 %d2, %i, 4;
    add.u64 %d0, %d0, %d2;
    add.u64 %d1, %d1, %d2;
    ld.global.f32 %x, [%d0];
    mul.rn.f32 %x, %x, %a;
    st.global.f32 [%d1], %x;
    ret;
}
";

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Exit code, standard output and standard error of `shopfloor emulate FILE ARGS`.
fn emulate(path: &PathBuf, args: &[&str]) -> (i32, String, String) {
    let o = Command::new(env!("CARGO_BIN_EXE_shopfloor"))
        .arg("emulate")
        .arg(path)
        .args(args)
        .env("NO_COLOR", "1")
        .env("CI", "true")
        .output()
        .unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (o.status.code().unwrap(), text(&o.stdout), text(&o.stderr))
}

#[test]
fn a_kernel_runs_and_shows_what_it_wrote() {
    let path = file("scale.ptx", SCALE);
    let args = [
        "--grid",
        "2",
        "--block",
        "32",
        "--arg",
        "buf:f32:40=iota",
        "--arg",
        "out:f32:40",
        "--arg",
        "f32:-1.5",
        "--arg",
        "u32:40",
    ];
    let (code, out, err) = emulate(&path, &args);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("out:f32:40") && out.contains("-58.5"), "{out}");
    assert!(
        out.contains("mul.rn.f32") && out.contains("sectors"),
        "{out}"
    );
    assert!(out.lines().all(|l| l.chars().count() <= 100), "{out}");

    let (code, out, _) = emulate(&path, &[&args[..], &["--json"]].concat());
    assert_eq!(code, 0);
    let v: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(v["buffers"]["1:out:f32:40"][39], -58.5);
    assert_eq!(v["reports"].as_array().unwrap().len(), 0);
    assert_eq!(v["total"]["global_bytes"], 2 * 4 * 40);
}

#[test]
fn ctas_have_the_threads_that_the_text_requires_unless_others_are_given() {
    let text = SCALE.replacen("\n{", "\n.reqntid 64, 1, 1\n{", 1);
    let path = file("scale64.ptx", &text);
    let args = "--arg buf:f32:64=ones --arg out:f32:64 --arg f32:3 --arg u32:64 --json";
    let args: Vec<&str> = args.split(' ').collect();
    let (code, out, err) = emulate(&path, &args);
    assert_eq!(code, 0, "{err}");
    let v: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(v["buffers"]["1:out:f32:64"][63], 3.0);
    let (code, _, err) = emulate(&path, &[&args[..], &["--block", "32"]].concat());
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("64x1x1"), "{err}");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let path = file("scale2.ptx", SCALE);
    let args = [
        "--grid",
        "2",
        "--arg",
        "buf:f32:40=iota",
        "--arg",
        "out:f32:39",
        "--arg",
        "f32:2",
        "--arg",
        "u32:40",
    ];
    let (code, _, err) = emulate(&path, &args);
    assert_eq!(code, 1, "{err}");
    assert!(err.starts_with("error: 1 finding in"), "{err}");
    assert!(err.contains("line 25: out of bounds"), "{err}");

    for (args, code, want) in [
        (vec!["--arg", "u32:x"], 2, "is no argument"),
        (vec!["--arg", "buf:f32:4=nothing"], 2, "zeros, ones, iota"),
        (vec!["--arg", "tensor:0+0:6/8/8/1/128"], 2, "is no tensor"),
        (
            vec![
                "--arg",
                "buf:f16:64=ones",
                "--arg",
                "tensor:0+0:6/8,8/16/8,0/1,1/0",
            ],
            2,
            "box of 0 by steps of 1",
        ),
        (
            vec![
                "--arg",
                "buf:f16:64=ones",
                "--arg",
                "tensor:0+0:6/8,8/16/8,8/1,1/96",
            ],
            2,
            "a swizzle of 96 bytes",
        ),
        (vec!["--grid", "1,2,3,4"], 2, "is not X"),
        (vec!["--kernel", "other"], 2, "the module has: scale"),
        (vec![], 2, "takes 4 parameters"),
    ] {
        let (got, _, err) = emulate(&path, &args);
        assert_eq!(got, code, "{args:?}: {err}");
        assert!(err.contains(want), "{args:?}: {err}");
    }
    let broken = file(
        "broken.ptx",
        &SCALE.replace("mul.rn.f32 %x, %x, %a;", "mul.rq.f32 %x, %x, %a;"),
    );
    let (code, _, err) = emulate(&broken, &["--arg", "u64:0"]);
    assert_eq!(code, 1);
    assert!(
        err.contains("broken.ptx: line 24: not supported: '.rq'"),
        "{err}"
    );
}

/// 64 loads, each from where the last one said.
const CHASE: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry chase(.param .u64 px)
{
    .reg .pred %p;
    .reg .u32 %i;
    .reg .u64 %d<2>;
    ld.param.u64 %d0, [px];
    mov.u32 %i, 0;
L:
    ld.global.u64 %d1, [%d0];
    add.u64 %d0, %d0, %d1;
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, 64;
    @%p bra L;
    ret;
}
";

#[test]
fn stalls_say_what_warps_waited_for_and_where() {
    let path = file("chase.ptx", CHASE);
    let args = [
        "--block",
        "1",
        "--arg",
        "buf:u64:16=zeros",
        "--on",
        "a100",
        "--stalls",
    ];
    let (code, out, err) = emulate(&path, &args);
    assert_eq!(code, 0, "{err}");
    assert!(out.lines().all(|l| l.chars().count() <= 100), "{out}");
    assert!(out.contains("A100-SXM4-80GB at 1.41 GHz"), "{out}");
    // Every load but the first is answered by L1; the addition waits for it.
    let row = |name: &str| {
        out.lines()
            .find(|l| l.starts_with(name))
            .unwrap_or("")
            .to_string()
    };
    assert!(row("L1 ").contains("##########"), "{out}");
    assert!(!row("barrier").contains('#'), "{out}");
    let mut lines = out.lines();
    let add = lines.rfind(|l| l.contains("add.u64 %d0")).unwrap();
    assert!(add.contains("L1") && add.contains(" 12 "), "{add}");

    let (code, out, _) = emulate(&path, &[&args[..], &["--json"]].concat());
    assert_eq!(code, 0);
    let v: Value = serde_json::from_str(&out).unwrap();
    let s = &v["stalls"];
    let sum: u64 = s["reasons"]
        .as_object()
        .unwrap()
        .values()
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(sum, s["warp_cycles"].as_u64().unwrap());
    // 33.2 cycles of L1 and two for each round.
    let per = s["reasons"]["L1"].as_f64().unwrap() / 63.0;
    assert!((28.0..36.0).contains(&per), "{per}");
    assert_eq!(s["by_warp"].as_array().unwrap().len(), 1);
    assert_eq!(s["bytes"]["device"], 32.0);
}

#[test]
fn stalls_without_a_gpu_that_has_warps_are_refused() {
    let path = file("chase2.ptx", CHASE);
    let with = |more: &[&str]| {
        let base = ["--block", "1", "--arg", "buf:u64:16=zeros"];
        emulate(&path, &[&base[..], more].concat())
    };
    let (code, _, err) = with(&["--stalls"]);
    assert!(code != 0 && err.contains("--on"), "{err}");
    let (code, _, err) = with(&["--stalls", "--on", "zen5-2core"]);
    assert!(code != 0 && err.contains("name an NVIDIA GPU"), "{err}");
    let (code, _, err) = with(&["--stalls", "--on", "a100", "--registers", "4000"]);
    assert!(code != 0 && err.contains("does not fit on an SM"), "{err}");
}
