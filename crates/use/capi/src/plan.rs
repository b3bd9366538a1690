//! Plans as text.
//!
//! # Safety
//! As in the crate's head.
use crate::boundary::{c_text, calm, given, guarded, list, put, text};
use crate::error::{shopfloor_error, usage};
use crate::session::shopfloor_session;
use shopfloor_tools::planview;
use shopfloor_tools::report::Style;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::ptr;

/// A dimension of a model with a size.
#[repr(C)]
pub struct shopfloor_size {
    /// Name of the dimension.
    pub name: *const c_char,
    /// Its size.
    pub size: i64,
}

/// The plan for these sizes as a table: every step with its predicted time, and the reasons for what was chosen
/// where `reasons` is not 0. A dimension that is not named has the top of its range, or 1. The text goes to `plan`
/// and is freed by shopfloor_text_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_session_plan(
    session: *const shopfloor_session,
    sizes: *const shopfloor_size,
    count: usize,
    reasons: i32,
    plan: *mut *mut c_char,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or has room for a pointer.
        unsafe { put(plan, ptr::null_mut(), "plan")? };
        // SAFETY: it is null or ours.
        let session = unsafe { given(session, "session")? };
        let has = session.inner.model().program().symbols.len();
        if count > has {
            return Err(usage(format!(
                "{count} sizes are given, and the model has {has} dimensions that vary; give each once"
            )));
        }
        let mut asked = BTreeMap::new();
        // SAFETY: there are so many.
        for s in unsafe { list(sizes, count, "sizes")? } {
            // SAFETY: it is null or ends with a zero byte.
            let name = unsafe { text(s.name, "the name of a dimension")? };
            asked.insert(name.to_string(), s.size);
        }
        let (_, view) = planview::of_sizes(&session.inner, &session.device, &asked)?;
        let text = c_text(&view.render(Style::default(), reasons != 0));
        // SAFETY: as above.
        unsafe { put(plan, text.into_raw(), "plan") }
    })
}

/// Frees a text; NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: it is one of ours that was not freed.
        calm((), || drop(unsafe { CString::from_raw(text) }));
    }
}
