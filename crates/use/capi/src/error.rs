//! Errors for C: a code and a sentence.
//!
//! # Safety
//! As in the crate's head.
use crate::boundary::{c_text, calm, free};
use shopfloor::{Error, ErrorKind};
use std::any::Any;
use std::ffi::{CString, c_char};

/// No error: the code of NULL.
pub const SHOPFLOOR_OK: i32 = 0;
/// The bytes of the model are no well-formed ONNX message.
pub const SHOPFLOOR_DAMAGED: i32 = 1;
/// The model has operators that are not covered.
pub const SHOPFLOOR_UNSUPPORTED: i32 = 2;
/// The model contradicts itself, or cannot be planned.
pub const SHOPFLOOR_MODEL: i32 = 3;
/// The inputs of a request do not fit the model: names, types, sizes.
pub const SHOPFLOOR_INPUT: i32 = 4;
/// A request was refused: the queue is full, or its deadline cannot be kept.
pub const SHOPFLOOR_REFUSED: i32 = 5;
/// A request was given up.
pub const SHOPFLOOR_CANCELLED: i32 = 6;
/// A request failed while it ran.
pub const SHOPFLOOR_FAILED: i32 = 7;
/// A device cannot be used.
pub const SHOPFLOOR_DEVICE: i32 = 8;
/// A file cannot be read.
pub const SHOPFLOOR_IO: i32 = 9;
/// Another argument is wrong: a null pointer, a length, a name.
pub const SHOPFLOOR_USAGE: i32 = 10;
/// A fault of this library.
pub const SHOPFLOOR_INTERNAL: i32 = 11;

/// Why a call did nothing. Functions that can fail give one, or NULL; it is freed by shopfloor_error_free.
pub struct shopfloor_error {
    code: i32,
    message: CString,
}

/// What a function fails with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub code: i32,
    pub message: String,
}

/// A wrong argument.
pub(crate) fn usage(message: String) -> Failure {
    Failure {
        code: SHOPFLOOR_USAGE,
        message,
    }
}

impl Failure {
    /// What a panic within the library comes to.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Failure {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Failure {
            code: SHOPFLOOR_INTERNAL,
            message: format!(
                "shopfloor panicked: {}; this is a fault of shopfloor, please report it with the model",
                text.unwrap_or("without words")
            ),
        }
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        let code = match e.kind() {
            ErrorKind::Damaged => SHOPFLOOR_DAMAGED,
            ErrorKind::Unsupported => SHOPFLOOR_UNSUPPORTED,
            ErrorKind::Model => SHOPFLOOR_MODEL,
            ErrorKind::Input => SHOPFLOOR_INPUT,
            ErrorKind::Refused => SHOPFLOOR_REFUSED,
            ErrorKind::Cancelled => SHOPFLOOR_CANCELLED,
            ErrorKind::Failed => SHOPFLOOR_FAILED,
            ErrorKind::Device => SHOPFLOOR_DEVICE,
            ErrorKind::Io => SHOPFLOOR_IO,
            ErrorKind::Usage => SHOPFLOOR_USAGE,
            _ => SHOPFLOOR_INTERNAL,
        };
        Failure {
            code,
            message: e.to_string(),
        }
    }
}

impl From<Failure> for shopfloor_error {
    fn from(f: Failure) -> shopfloor_error {
        shopfloor_error {
            code: f.code,
            message: c_text(&f.message),
        }
    }
}

/// Its code, one of SHOPFLOOR_DAMAGED and those behind it; SHOPFLOOR_OK for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_error_code(error: *const shopfloor_error) -> i32 {
    // SAFETY: it is null or one of ours that was not freed.
    unsafe { error.as_ref() }.map_or(SHOPFLOOR_OK, |e| e.code)
}

/// Its message: one sentence that names the file, node or tensor and what to do. It lives as long as the error;
/// that of NULL is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_error_message(error: *const shopfloor_error) -> *const c_char {
    // SAFETY: it is null or one of ours that was not freed.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |e| e.message.as_ptr())
}

/// Frees it; NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_error_free(error: *mut shopfloor_error) {
    // SAFETY: it is null or one of ours that was not freed.
    unsafe { free(error) }
}

/// The version of this library, such as "0.2.0".
#[unsafe(no_mangle)]
pub extern "C" fn shopfloor_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    calm(c"".as_ptr(), || VERSION.as_ptr().cast())
}
