//! The driver's library and its functions.
use shopfloor_cuda::DriverError;
use shopfloor_cuda::internals::{SYMBOLS, open};

#[test]
fn no_library_is_an_error() {
    let e = open(&["libcuda-that-is-nowhere.so.1"]).err().unwrap();
    let text = e.to_string();
    assert!(matches!(e, DriverError::NoLibrary { .. }));
    assert!(text.contains("libcuda-that-is-nowhere.so.1"), "{text}");
    assert!(text.contains("install the GPU's driver"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_library_without_the_functions_is_an_error() {
    // The C library has none of them.
    let e = open(&["libc.so.6"]).err().unwrap();
    assert_eq!(e, DriverError::NoSymbol { symbol: SYMBOLS[0] });
}

#[test]
fn names_are_the_drivers() {
    assert!(SYMBOLS.len() >= 40);
    assert!(SYMBOLS.iter().all(|s| s.starts_with("cu")));
}
