//! Puts the files of `machines/` into one, in file-name order: before each stands a zero byte, its name and the end of a
//! line. With the feature `packed` that one is compressed.
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=machines");
    let mut files: Vec<PathBuf> = std::fs::read_dir("machines")
        .expect("the folder machines/ is read")
        .map(|f| f.expect("the folder machines/ is read").path())
        .filter(|f| f.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    let mut all = Vec::new();
    for f in files {
        let name = f.file_name().expect("a file has a name");
        all.push(0);
        all.extend(name.as_encoded_bytes());
        all.push(b'\n');
        all.extend(std::fs::read(&f).expect("a file of machines/ is read"));
    }
    #[cfg(feature = "packed")]
    let all = lz4_flex::block::compress_prepend_size(&all);
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&out).join("machines"), all).expect("OUT_DIR takes a file");
}
