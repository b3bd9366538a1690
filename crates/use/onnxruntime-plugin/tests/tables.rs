//! The numbers of onnxruntime's functions: in order, within its tables, and those of the library that
//! `SHOPFLOOR_ONNXRUNTIME` names, where it is set.
use onnxruntime_ep_shopfloor::abi::slots::{Api, EpApi};
use onnxruntime_ep_shopfloor::abi::tables::OrtApiBase;
use onnxruntime_ep_shopfloor::abi::{OrtKeyValuePairs, VERSION};
use std::ffi::CStr;
use std::ptr;

#[test]
fn numbers_rise_and_lie_within_the_tables() {
    for (slots, all) in [(Api::SLOTS, Api::ALL), (EpApi::SLOTS, EpApi::ALL)] {
        assert!(slots.is_sorted_by(|a, b| a.0 < b.0), "{slots:?}");
        assert!(slots.iter().all(|(n, _)| *n < all));
    }
}

#[test]
fn a_table_that_is_not_there_or_lacks_a_function_is_none() {
    let empty = vec![ptr::null::<std::ffi::c_void>(); Api::ALL];
    // SAFETY: null is looked for, and the other table has as many functions as are read.
    unsafe {
        assert!(Api::read(ptr::null()).is_none());
        assert!(Api::read(empty.as_ptr().cast()).is_none());
    }
}

#[test]
fn functions_of_the_real_library_do_what_their_numbers_say() {
    let Ok(path) = std::env::var("SHOPFLOOR_ONNXRUNTIME") else {
        testing::skip(
            "onnxruntime's tables",
            "SHOPFLOOR_ONNXRUNTIME names no library of onnxruntime's",
        );
        return;
    };
    type Base = unsafe extern "system" fn() -> *const OrtApiBase;
    // SAFETY: it is onnxruntime's library, whose function has this type; what it gives is called as it is declared.
    unsafe {
        let library = libloading::Library::new(&path).expect("it is a library");
        let base = library
            .get::<Base>(b"OrtGetApiBase")
            .expect("it is onnxruntime's");
        let base = &*base();
        let version = CStr::from_ptr((base.get_version_string)()).to_string_lossy();
        let mut parts = version.split('.').map(|p| p.parse::<u32>().unwrap_or(0));
        assert!(
            (parts.next(), parts.next()) >= (Some(1), Some(VERSION)),
            "{version}"
        );
        let api = Api::read((base.get_api)(VERSION)).expect("it has all functions");
        assert!(EpApi::read((api.get_ep_api)()).is_some());
        let status = (api.create_status)(2, c"as it was given".as_ptr());
        assert_eq!((api.get_error_code)(status), 2);
        assert_eq!(
            CStr::from_ptr((api.get_error_message)(status)),
            c"as it was given"
        );
        (api.release_status)(status);
        // Freeing nothing is no harm.
        let none: *mut OrtKeyValuePairs = ptr::null_mut();
        (api.release_key_value_pairs)(none);
        (api.release_value)(ptr::null_mut());
        std::mem::forget(library);
    }
}
