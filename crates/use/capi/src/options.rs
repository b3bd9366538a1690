//! How sessions are made.
//!
//! # Safety
//! As in the crate's head.
use crate::boundary::{calm, free, given_mut, guarded, text};
use crate::error::{shopfloor_error, usage};
use shopfloor::{Device, Error, Precision, Session, SessionBuilder};
use std::ffi::c_char;
use std::ptr;

/// How a session is made. What is not set is as the library finds best.
#[derive(Clone, Default)]
pub struct shopfloor_options {
    threads: Option<usize>,
    device: Option<Device>,
    memory: Option<u64>,
    precision: Option<Precision>,
    dims: Vec<(String, i64, i64)>,
    queue: Option<(usize, usize)>,
    states: Vec<(String, String)>,
    find_states: bool,
}

impl shopfloor_options {
    pub(crate) fn builder(&self) -> SessionBuilder {
        let mut b = Session::builder();
        if let Some(n) = self.threads {
            b = b.with_threads(n);
        }
        if let Some(device) = &self.device {
            b = b.with_device(device);
        }
        if let Some(bytes) = self.memory {
            b = b.with_memory_limit(bytes);
        }
        if let Some(p) = self.precision {
            b = b.with_precision(p);
        }
        for (name, lo, hi) in &self.dims {
            b = b.with_dim(name, *lo, *hi);
        }
        if let Some((running, waiting)) = self.queue {
            b = b.with_queue(running, waiting);
        }
        for (input, output) in &self.states {
            b = b.with_state(input, output);
        }
        if self.find_states {
            b = b.with_found_states();
        }
        b
    }

    /// What they run on, by name.
    pub(crate) fn device(&self) -> String {
        self.device.clone().unwrap_or_default().to_string()
    }
}

/// New options; NULL only where there is no memory. Freed by shopfloor_options_free.
#[unsafe(no_mangle)]
pub extern "C" fn shopfloor_options_new() -> *mut shopfloor_options {
    calm(ptr::null_mut(), || Box::into_raw(Box::default()))
}

/// Frees them; NULL is nothing. Sessions that were made with them stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_options_free(options: *mut shopfloor_options) {
    // SAFETY: they are null or ours and were not freed.
    unsafe { free(options) }
}

/// Workers, the thread that runs a request included; at least 1. The cores that this process may use when not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_options_set_threads(
    options: *mut shopfloor_options,
    threads: usize,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: they are null or ours, and one thread at a time sets them.
        let options = unsafe { given_mut(options, "options")? };
        if threads == 0 || threads > 4096 {
            return Err(usage(format!(
                "{threads} threads cannot work; give 1 to 4096"
            )));
        }
        options.threads = Some(threads);
        Ok(())
    })
}

/// What the model runs on: "cpu", "cuda", "cuda:1", "wgpu", "emulated:t4", "cpu+cuda" and others, where the library
/// was built with them. The CPU when not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_options_set_device(
    options: *mut shopfloor_options,
    device: *const c_char,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: they are null or ours, and one thread at a time sets them.
        let options = unsafe { given_mut(options, "options")? };
        // SAFETY: it is null or ends with a zero byte.
        let device = unsafe { text(device, "device")? };
        options.device = Some(device.parse()?);
        Ok(())
    })
}

/// Bytes that a plan may take; sizes that need more are errors. No limit when not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_options_set_memory(
    options: *mut shopfloor_options,
    bytes: u64,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: they are null or ours, and one thread at a time sets them.
        unsafe { given_mut(options, "options")? }.memory = Some(bytes);
        Ok(())
    })
}

/// How exactly products of float are multiplied: "exact", "f32" (when not set), "bf16x3", "tf32" or "bf16".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_options_set_precision(
    options: *mut shopfloor_options,
    precision: *const c_char,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: they are null or ours, and one thread at a time sets them.
        let options = unsafe { given_mut(options, "options")? };
        // SAFETY: it is null or ends with a zero byte.
        let precision = unsafe { text(precision, "precision")? };
        options.precision = Some(precision.parse().map_err(Error::Usage)?);
        Ok(())
    })
}

/// Plans cover the dimension `name` of the model from `least` to `most`, both included; equal ones bind it. Other
/// sizes are planned for when a request first has them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_options_set_dim(
    options: *mut shopfloor_options,
    name: *const c_char,
    least: i64,
    most: i64,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: they are null or ours, and one thread at a time sets them.
        let options = unsafe { given_mut(options, "options")? };
        // SAFETY: it is null or ends with a zero byte.
        let name = unsafe { text(name, "name")? };
        if least < 0 || least > most {
            return Err(usage(format!(
                "dimension '{name}' cannot go from {least} to {most}; give a range that is not negative"
            )));
        }
        options.dims.push((name.into(), least, most));
        Ok(())
    })
}

/// Requests that run at once and that wait at most; others are refused. 8 and 1024 when not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_options_set_queue(
    options: *mut shopfloor_options,
    running: usize,
    waiting: usize,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: they are null or ours, and one thread at a time sets them.
        let options = unsafe { given_mut(options, "options")? };
        if running == 0 {
            return Err(usage(
                "no request could ever run; allow 1 or more at once".into(),
            ));
        }
        options.queue = Some((running, waiting));
        Ok(())
    })
}

/// Declares state of streams: what output `output` gives is what input `input` takes in the next message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_options_set_state(
    options: *mut shopfloor_options,
    input: *const c_char,
    output: *const c_char,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: they are null or ours, and one thread at a time sets them.
        let options = unsafe { given_mut(options, "options")? };
        // SAFETY: they are null or end with a zero byte.
        let pair = unsafe { (text(input, "input")?, text(output, "output")?) };
        options.states.push((pair.0.into(), pair.1.into()));
        Ok(())
    })
}

/// Declares the state whose inputs and outputs are named as exporters name them (past_key_values.0.key with
/// present.0.key, state with stateN), unless shopfloor_options_set_state declares any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_options_find_states(
    options: *mut shopfloor_options,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: they are null or ours, and one thread at a time sets them.
        unsafe { given_mut(options, "options")? }.find_states = true;
        Ok(())
    })
}
