//! Links the program of profile `dist` without tables for unwinding, as a panic ends it.
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=no-unwinding.ld");
    // Cargo does not tell a build script whether the profile unwinds. The profile's folder is in the path.
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let dist = Path::new(&out)
        .ancestors()
        .any(|a| a.ends_with("dist/build"));
    if dist && std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{folder}/no-unwinding.ld");
        println!("cargo::rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
    }
}
