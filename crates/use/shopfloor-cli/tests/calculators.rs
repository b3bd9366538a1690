//! The calculators on the command line: figures of textbooks, JSON keys, wrong input.

use crate::common;

use common::{fails, json, text};
use serde_json::Value;

#[test]
fn occupancy() {
    let a100 = [
        "occupancy",
        "--on",
        "a100",
        "--threads",
        "256",
        "--registers",
        "64",
        "--shared",
        "48KiB",
    ];
    let v = json(&a100);
    assert_eq!(
        (v["blocks_per_sm"].as_u64(), v["warps_per_sm"].as_u64()),
        (Some(3), Some(24))
    );
    assert_eq!(v["limiters"], serde_json::json!(["smem"]));
    assert_eq!(v["occupancy"], 0.375);
    for k in ["warps", "regs", "smem", "blocks", "barriers"] {
        assert!(v["limits"][k].is_i64(), "{k}: {v}");
    }
    let out = text(&a100);
    assert!(
        out.contains("Little's law") && out.contains("Next step"),
        "{out}"
    );
    // 0 CTAs is an answer; so is the driver's carve-out.
    let v = json(&[
        "occupancy",
        "--cc",
        "9.0",
        "--threads",
        "1024",
        "--registers",
        "255",
        "--carveout",
        "-1",
    ]);
    assert_eq!(v["blocks_per_sm"], 0);
    let big = [
        "occupancy",
        "--cc",
        "8.0",
        "--threads",
        "128",
        "--dynamic-shared",
        "102400",
    ];
    assert_eq!(json(&big)["blocks_per_sm"], 0);
    assert!(text(&big).contains("--optin"));
    let opted: Vec<&str> = big.iter().copied().chain(["--optin"]).collect();
    assert_eq!(json(&opted)["blocks_per_sm"], 1);
    let opted: Vec<&str> = big.iter().copied().chain(["--optin", "1"]).collect();
    assert_eq!(json(&opted)["blocks_per_sm"], 1);
    assert!(fails(2, &["occupancy", "--cc", "4.2", "--threads", "32"]).contains("9.0"));
    let cpu = fails(2, &["occupancy", "--on", "zen4-2core", "--threads", "32"]);
    assert!(cpu.contains("limits lack"), "{cpu}");
}

#[test]
fn access() {
    let v = json(&["access", "--width", "4", "--stride", "1024"]);
    assert_eq!(
        (v["transactions"].as_u64(), v["sectors"].as_u64()),
        (Some(32), Some(32))
    );
    assert_eq!(v["efficiency"], 0.125);
    assert_eq!(v["shared"]["degree"], 32);
    assert_eq!(v["remedies"][0]["kind"], "padding");
    let out = text(&["access", "--width", "4", "--stride", "32"]);
    assert!(out.contains("row * 33 + column"), "{out}");
    let v = json(&["access", "--index", "lane*33 % 1024"]);
    assert_eq!(v["shared"]["passes"], 1);
    let out = text(&["access", "--index", "lane", "--predicate", "lane < 16"]);
    assert!(out.contains("walks both sides"), "{out}");
    assert!(fails(2, &["access", "--index", "lane +"]).contains("character"));
    assert!(fails(2, &["access", "--width", "3"]).contains("16 bytes"));
}

#[test]
fn transfer() {
    let v = json(&[
        "transfer",
        "--on",
        "a100",
        "--bytes",
        "0",
        "--batches",
        "100",
        "--kernel",
        "10us",
        "--launch",
        "15us",
    ]);
    let way = |v: &Value, name: &str, key: &str| {
        let ways = v["ways"].as_array().unwrap();
        let w = ways.iter().find(|w| w["name"] == name).unwrap();
        (w[key].as_f64().unwrap() * 1e9).round() / 1e3
    };
    assert_eq!(way(&v, "one by one", "total_s"), 2500.0);
    assert_eq!(way(&v, "persistent", "total_s"), 1015.0);
    let v = json(&[
        "transfer",
        "--on",
        "a100",
        "--bytes",
        "4MB",
        "--batches",
        "10",
        "--kernel",
        "10us",
        "--launch",
        "0us",
        "--copy",
        "500us",
    ]);
    assert_eq!(way(&v, "one by one", "per_batch_s"), 1010.0);
    // The kernel, and the host's word there and back.
    assert_eq!(way(&v, "resident, ring", "per_batch_s"), 14.475);
    let out = text(&[
        "transfer",
        "--on",
        "h100",
        "--bytes",
        "4MB",
        "--batches",
        "100",
        "--kernel",
        "10us",
    ]);
    assert!(
        out.contains("driver set-up") && out.contains("one by one from"),
        "{out}"
    );
}

#[test]
fn tensorcore() {
    let v = json(&[
        "tensorcore",
        "--on",
        "a100",
        "--op",
        "matmul:4096x4096x4096:f16",
    ]);
    assert_eq!(v["uses"], true);
    let out = text(&[
        "tensorcore",
        "--on",
        "a100",
        "--op",
        "matmul:100x100x100:f32",
    ]);
    assert!(
        out.contains("tf32") && out.contains("does not use"),
        "{out}"
    );
    let none = text(&["tensorcore", "--on", "zen4", "--op", "matmul:64x64x64:f16"]);
    assert!(
        none.contains("no vector unit takes f16 either") && !none.contains("padded to"),
        "{none}"
    );
    assert!(fails(2, &["tensorcore", "--on", "a100", "--op", "conv:3"]).contains("matmul:"));
}

#[test]
fn machines_are_drawn_compared_and_checked() {
    for name in [
        "a100",
        "mi300x",
        "m1 pro 16c",
        "mali-t628",
        "threadripper pro 3955wx",
    ] {
        let out = text(&["machines", "show", name]);
        assert!(out.contains("a tile") && out.contains("outwards"), "{out}");
    }
    text(&["machines", "list"]);
    let out = text(&["machines", "compare", "a100", "h100", "rtx 4090"]);
    assert!(out.contains("ridge f16 matrix"), "{out}");
    let e = fails(2, &["machines", "show", "m3 max"]);
    assert!(e.contains("APPLE-M3-MAX-30C"), "{e}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let path = file.to_str().unwrap();
    let v = json(&["machines", "show", "l40"]);
    assert_eq!(v["name"], "L40");
    let toml = include_str!("../../../plan/machine/machines/l40.toml");
    std::fs::write(&file, toml).unwrap();
    assert!(text(&["machines", "check", path]).contains("reads well"));
    assert_eq!(
        json(&["occupancy", "--on", path, "--threads", "256"])["machine"],
        "L40"
    );
    std::fs::write(&file, toml.replace("lanes = { v = 128", "lanes = { v = 64")).unwrap();
    assert!(text(&["machines", "check", path]).contains("not twice"));
    std::fs::write(&file, toml.replacen("shared_by = 1\n", "", 1)).unwrap();
    let e = fails(1, &["machines", "check", path]);
    assert!(e.contains("missing field `shared_by`"), "{e}");
}

/// Every lane loads from global memory, and stores to shared memory, at its index times a stride.
fn strided_kernel(words: usize) -> String {
    let (vector, registers) = match words {
        1 => ("", "%x0"),
        2 => (".v2", "{%x0, %x1}"),
        _ => (".v4", "{%x0, %x1, %x2, %x3}"),
    };
    format!(
        "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry touch(.param .u64 px, .param .u32 ps)
{{
    .reg .u32 %t, %o;
    .reg .u64 %a, %b;
    .reg .f32 %x<4>;
    .shared .align 16 .b8 tile[32768];
    mov.u32 %t, %tid.x;
    ld.param.u32 %o, [ps];
    mul.lo.u32 %o, %o, %t;
    ld.param.u64 %a, [px];
    cvt.u64.u32 %b, %o;
    add.u64 %a, %a, %b;
    ld.global{vector}.f32 {registers}, [%a];
    mov.u32 %t, tile;
    add.u32 %t, %t, %o;
    st.shared{vector}.f32 [%t], {registers};
    ret;
}}
"
    )
}

#[test]
fn access_counts_what_the_emulator_counts() {
    let dir = tempfile::tempdir().unwrap();
    for (width, strides) in [
        (4, [1, 2, 3, 8, 32, 33, 128].as_slice()),
        (8, [1, 2, 3, 16, 17, 64].as_slice()),
        (16, [1, 2, 3, 8, 9, 32].as_slice()),
    ] {
        let file = dir.path().join(format!("touch{width}.ptx"));
        std::fs::write(&file, strided_kernel(width / 4)).unwrap();
        for stride in strides {
            let bytes = format!("u32:{}", stride * width);
            let run = json(&[
                "emulate",
                file.to_str().unwrap(),
                "--arg",
                "buf:f32:16384=iota",
                "--arg",
                &bytes,
            ]);
            let (w, s) = (width.to_string(), stride.to_string());
            let said = json(&["access", "--width", &w, "--stride", &s]);
            let what = format!("{width} bytes, stride {stride}");
            assert_eq!(run["total"]["sectors"], said["sectors"], "{what}");
            assert_eq!(run["total"]["lines"], said["lines"], "{what}");
            assert_eq!(
                run["total"]["wavefronts"], said["shared"]["passes"],
                "{what}"
            );
        }
    }
}
