//! The boundary to onnxruntime: what it returns as results, what we return as its statuses, and panics, which do not
//! go back over it.
//!
//! # Safety
//! onnxruntime's functions are called with pointers that it gave, which it keeps alive while a function of ours that
//! it called runs.
use crate::abi::slots::{Api, EpApi, Status};
use crate::abi::{OrtStatus, VERSION, code, tables::OrtApiBase};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a function of ours fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What it is about.
    pub code: i32,
    /// One sentence that names what is wrong and the remedy.
    pub message: String,
}

impl Failure {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
        }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::new(code::FAIL, message)
    }
}

/// onnxruntime's functions.
#[derive(Clone, Copy)]
pub(crate) struct Ort {
    pub api: Api,
    pub ep: EpApi,
}

impl Ort {
    /// Those of the onnxruntime that gave `base`.
    ///
    /// # Safety
    /// `base` is null or onnxruntime's.
    pub(crate) unsafe fn of(base: *const OrtApiBase) -> Option<Ort> {
        // SAFETY: it is null or onnxruntime's, which stays as long as the process.
        let base = unsafe { base.as_ref() }?;
        // SAFETY: any number may be asked for, and null is looked for.
        let api = unsafe { Api::read((base.get_api)(VERSION)) }?;
        // SAFETY: it takes nothing; the table is of the same version.
        let ep = unsafe { EpApi::read((api.get_ep_api)()) }?;
        Some(Ort { api, ep })
    }

    /// What a status says; none where it is null. It is freed.
    pub(crate) fn checked(&self, status: Status) -> Result<(), Failure> {
        if status.is_null() {
            return Ok(());
        }
        // SAFETY: it is onnxruntime's, and is freed once, after its text was copied.
        unsafe {
            let code = (self.api.get_error_code)(status);
            let message = text((self.api.get_error_message)(status));
            (self.api.release_status)(status);
            Err(Failure::new(code, message))
        }
    }

    /// A failure as onnxruntime's status.
    pub(crate) fn status(&self, failure: &Failure) -> *mut OrtStatus {
        let message = c_text(&failure.message);
        // SAFETY: the text ends with a zero byte and is copied.
        unsafe { (self.api.create_status)(failure.code, message.as_ptr()) }
    }

    /// Runs a function's body; what it fails with, or null.
    pub(crate) fn guarded(&self, body: impl FnOnce() -> Result<(), Failure>) -> *mut OrtStatus {
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(())) => std::ptr::null_mut(),
            Ok(Err(failure)) => self.status(&failure),
            Err(panic) => self.status(&Failure::new(code::FAIL, panic_text(&*panic))),
        }
    }

    /// What a function of onnxruntime's writes behind a pointer.
    pub(crate) fn got<T>(
        &self,
        first: T,
        call: impl FnOnce(*mut T) -> Status,
    ) -> Result<T, Failure> {
        let mut out = first;
        self.checked(call(&raw mut out))?;
        Ok(out)
    }

    /// A list of onnxruntime's: how many there are, and their values, of which it writes so many.
    pub(crate) fn list<T: Copy>(
        &self,
        empty: T,
        count: impl FnOnce(*mut usize) -> Status,
        all: impl FnOnce(*mut T, usize) -> Status,
    ) -> Result<Vec<T>, Failure> {
        let count = self.got(0usize, count)?;
        let mut out = filled(empty, count, "a list of onnxruntime's")?;
        if count > 0 {
            self.checked(all(out.as_mut_ptr(), count))?;
        }
        Ok(out)
    }
}

/// A list of `count` times `value`, where there is memory for it.
pub(crate) fn filled<T: Copy>(value: T, count: usize, what: &str) -> Result<Vec<T>, Failure> {
    let mut out = Vec::new();
    out.try_reserve_exact(count).map_err(|_| {
        format!("there is no memory for {count} members of {what}; run it where there is more")
    })?;
    out.resize(count, value);
    Ok(out)
}

/// Text of onnxruntime's, copied; empty for null.
///
/// # Safety
/// It is null or ends with a zero byte.
pub(crate) unsafe fn text(at: *const c_char) -> String {
    match at.is_null() {
        true => String::new(),
        // SAFETY: it ends with a zero byte.
        false => unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned(),
    }
}

/// Text for C: zeros within it, which would end it, are written as what cannot be shown.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// What a panic says.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!(
        "{}; this is a fault of shopfloor, please report it with the model",
        text.unwrap_or("something went wrong")
    )
}
