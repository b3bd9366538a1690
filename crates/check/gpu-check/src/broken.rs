//! Parts that panic, and GPUs that are lost.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Leaves this process in the state it is in, so that another one goes on behind it: what the GPU's driver
/// holds for it cannot be used any more.
pub const BROKEN: u8 = 75;

/// Calls `f`, and makes a panic its error.
///
/// # Errors
/// Those of `f`.
pub fn caught<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(r) => r,
        Err(p) => {
            let text = p.downcast_ref::<String>().map(String::as_str);
            let text = text.or(p.downcast_ref::<&str>().copied());
            Err(format!("it panicked: {}", text.unwrap_or("no message")))
        }
    }
}
