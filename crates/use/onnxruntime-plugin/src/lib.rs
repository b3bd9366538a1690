//! shopfloor as an execution provider of onnxruntime: a library that onnxruntime loads as a plugin
//! (`register_execution_provider_library`). Groups of nodes that shopfloor covers are run by it, the rest by
//! onnxruntime; `docs/onnxruntime-plugin.md` explains it.
//!
//! # Safety
//! Both functions that are exported are called by onnxruntime, and no other library of a process has functions that it
//! finds by these names in this file. What it gives is as its interface for plugins says. Nothing is kept of what
//! a pointer points to beyond the call, but onnxruntime's tables of functions. A panic is a status too and does not
//! leave the library.
//!
//! Never here: what a node computes, which `shopfloor` alone knows.

pub mod abi;
mod boundary;
mod compute;
mod element;
mod factory;
pub mod graph;
pub mod groups;
mod options;
mod provider;
mod read;
mod support;
pub mod write;

pub use support::ports;

use abi::OrtStatus;
use abi::tables::{OrtApiBase, OrtEpFactory};
use boundary::{Failure, Ort, c_text};
use factory::Factory;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

/// Makes the factory of the provider; onnxruntime calls it when the library is registered.
///
/// # Safety
/// onnxruntime calls it: `base` is its own, `factories` has room for `room` of them, `count` for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateEpFactories(
    _registered: *const c_char,
    base: *const OrtApiBase,
    _logger: *const c_void,
    factories: *mut *mut OrtEpFactory,
    room: usize,
    count: *mut usize,
) -> *mut OrtStatus {
    // SAFETY: it is onnxruntime's.
    let Some(ort) = (unsafe { Ort::of(base) }) else {
        // SAFETY: as above.
        return unsafe { too_old(base) };
    };
    ort.guarded(|| {
        if room == 0 || factories.is_null() || count.is_null() {
            return Err(Failure::from(
                "there is no room for a factory; give room for one".to_string(),
            ));
        }
        // SAFETY: there is room for both.
        unsafe {
            *factories = Factory::handed(ort);
            *count = 1;
        }
        Ok(())
    })
}

/// What is returned to an onnxruntime that lacks the interface: a status that says so, made by the oldest table of
/// functions.
///
/// # Safety
/// `base` is null or onnxruntime's.
unsafe fn too_old(base: *const OrtApiBase) -> *mut OrtStatus {
    type Create = unsafe extern "system" fn(i32, *const c_char) -> *mut OrtStatus;
    // SAFETY: it is null or onnxruntime's, whose table of any version begins with the function that makes a status;
    // its version ends with a zero byte.
    unsafe {
        let Some(base) = base.as_ref() else {
            return ptr::null_mut();
        };
        let table = (base.get_api)(1).cast::<Option<Create>>();
        let Some(Some(create)) = table.as_ref() else {
            return ptr::null_mut();
        };
        let version = CStr::from_ptr((base.get_version_string)()).to_string_lossy();
        let message = c_text(&format!(
            "shopfloor's plugin needs onnxruntime 1.24 or later, and this is {version}; install a later one"
        ));
        create(abi::code::NOT_IMPLEMENTED, message.as_ptr())
    }
}

/// Frees a factory; onnxruntime calls it when the library is unregistered.
///
/// # Safety
/// [`CreateEpFactories`] made it, and it was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ReleaseEpFactory(factory: *mut OrtEpFactory) -> *mut OrtStatus {
    // SAFETY: it is ours.
    unsafe { Factory::free(factory) };
    ptr::null_mut()
}
