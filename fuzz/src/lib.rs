//! What all targets share: the bench that readers stand on, made once.
#![forbid(unsafe_code)]
use shopfloor_testkit::readers::{Bench, Reader, find};
use std::sync::OnceLock;

/// Gives `bytes` to the reader called `name`; a broken promise is a panic.
pub fn read(name: &str, bytes: &[u8]) {
    static BENCH: OnceLock<(Bench, &'static Reader)> = OnceLock::new();
    let (bench, reader) = BENCH.get_or_init(|| {
        let reader = find(name).unwrap_or_else(|| panic!("there is no reader {name}"));
        let bench = Bench::new().unwrap_or_else(|e| panic!("{e}"));
        (bench, reader)
    });
    if let Err(e) = (reader.read)(bench, bytes) {
        panic!("{e}");
    }
}
