//! Programs in C, built by this machine's compiler and run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Where cargo put the library: beside the test's program, or above.
fn libraries() -> PathBuf {
    let own = std::env::current_exe().expect("this program has a path");
    let mut folders = own.ancestors().skip(1).take(2);
    let has = |f: &&Path| {
        let so = ["libshopfloor_c.so", "libshopfloor_c.dylib"];
        so.iter().any(|n| f.join(n).exists())
    };
    let found = folders.find(has).expect("cargo built the library for C");
    found.to_path_buf()
}

/// Whether there is a compiler; says so where there is none.
fn compiler(test: &str) -> bool {
    let found = Command::new("cc").arg("--version").output();
    let found = found.is_ok_and(|o| o.status.success());
    if !found {
        testing::skip(test, "this machine has no C compiler named cc");
    }
    found
}

fn text(out: &Output) -> String {
    let all = [&out.stdout[..], &out.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// Builds and runs a program, with every warning an error; what it printed.
fn run(source: &Path, statically: bool, args: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("program");
    let folder = libraries();
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-pthread",
        "-o",
    ]);
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    cc.arg(&program).arg(source).arg("-I");
    cc.arg(own.join("include")).arg("-I").arg(own.join("tests"));
    match statically {
        true => cc
            .arg(folder.join("libshopfloor_c.a"))
            .args(["-ldl", "-lm"]),
        false => cc
            .arg(format!("-L{}", folder.display()))
            .args(["-lshopfloor_c", "-lm"]),
    };
    let built = cc.output().expect("cc runs");
    assert!(built.status.success(), "{}", text(&built));
    let mut program = Command::new(program);
    program.args(args).current_dir(root());
    program
        .env("LD_LIBRARY_PATH", &folder)
        .env("DYLD_LIBRARY_PATH", &folder);
    let out = program.output().expect("it runs");
    assert!(out.status.success(), "{}: {}", out.status, text(&out));
    text(&out)
}

const MODEL: &str = "models/digits_cnn/model.onnx";

#[test]
fn a_program_in_c_does_what_the_header_says() {
    if !testing::turn("a_program_in_c_does_what_the_header_says") {
        return;
    }
    if !compiler("a_program_in_c_does_what_the_header_says") {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program.c");
    for statically in [false, true] {
        let said = run(&source, statically, &[MODEL]);
        assert!(said.ends_with("all is well\n"), "{said}");
    }
}

#[test]
fn a_program_in_c_keeps_streams() {
    if !compiler("a_program_in_c_keeps_streams") {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/streams.c");
    let said = run(&source, false, &["models/silero_vad/model.onnx"]);
    assert!(said.ends_with("all is well\n"), "{said}");
}

#[test]
fn the_program_of_the_page_runs() {
    if !compiler("the_program_of_the_page_runs") {
        return;
    }
    let page = std::fs::read_to_string(root().join("docs/c.md")).expect("the page");
    assert!(page.lines().count() <= 80, "docs/c.md is to be short");
    let program = page
        .split("```c\n")
        .nth(1)
        .and_then(|p| p.split("```").next());
    let dir = tempfile::tempdir().expect("a folder");
    let source = dir.path().join("digits.c");
    std::fs::write(&source, program.expect("it has a program")).expect("it is written");
    let said = run(&source, false, &[MODEL]);
    assert!(
        said.contains("probabilities") && said.lines().count() >= 10,
        "{said}"
    );
}

#[test]
fn the_header_is_one_for_cpp_too() {
    let found = Command::new("c++").arg("--version").output();
    if !found.is_ok_and(|o| o.status.success()) {
        testing::skip(
            "the_header_is_one_for_cpp_too",
            "this machine has no C++ compiler named c++",
        );
        return;
    }
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/shopfloor.h");
    let mut cc = Command::new("c++");
    cc.args([
        "-std=c++11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
        "-x",
        "c++",
    ]);
    let out = cc.arg(header).output().expect("c++ runs");
    assert!(out.status.success(), "{}", text(&out));
}
