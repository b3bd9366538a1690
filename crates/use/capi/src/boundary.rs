//! What comes over the boundary from C, looked at before it is used, and panics, which do not go back over it.
//!
//! # Safety
//! As in the crate's head.
use crate::error::{Failure, shopfloor_error, usage};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Runs a function's body; what it fails with, or null.
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> *mut shopfloor_error {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return ptr::null_mut(),
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::of_panic(&*panic),
    };
    Box::into_raw(Box::new(failure.into()))
}

/// Runs a body that cannot fail; `otherwise` where it panics.
pub(crate) fn calm<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

fn placed<T>(p: *const T, what: &str) -> Result<(), Failure> {
    if p.is_null() {
        return Err(usage(format!("{what} is NULL; give a pointer to it")));
    }
    match p.is_aligned() {
        true => Ok(()),
        false => Err(usage(format!(
            "{what} begins at an address where none of its type can; give a pointer to it"
        ))),
    }
}

/// What `p` points to.
///
/// # Safety
/// `p` is null, or points to a `T` that is there and not changed for `'a`.
pub(crate) unsafe fn given<'a, T>(p: *const T, what: &str) -> Result<&'a T, Failure> {
    placed(p, what)?;
    // SAFETY: it is neither null nor misplaced, and the caller promises the rest.
    Ok(unsafe { &*p })
}

/// As [`given`], to be changed.
///
/// # Safety
/// As [`given`], and nobody else reads or changes it for `'a`.
pub(crate) unsafe fn given_mut<'a, T>(p: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    placed(p, what)?;
    // SAFETY: as in `given`.
    Ok(unsafe { &mut *p })
}

/// The `count` members that begin at `p`, which may be null where there are none.
///
/// # Safety
/// `p` is null, or points to so many that are there and not changed for `'a`.
pub(crate) unsafe fn list<'a, T>(
    p: *const T,
    count: usize,
    what: &str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    placed(p, what)?;
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(usage(format!(
            "{what} cannot have {count} members; give their number"
        )));
    }
    // SAFETY: it is neither null nor misplaced, its bytes fit the address space, and the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts(p, count) })
}

/// As [`list`], to be changed.
///
/// # Safety
/// As [`list`], and nobody else reads or changes them for `'a`.
pub(crate) unsafe fn list_mut<'a, T>(
    p: *mut T,
    count: usize,
    what: &str,
) -> Result<&'a mut [T], Failure> {
    // SAFETY: what `list` asks is what this asks.
    let all = unsafe { list(p.cast_const(), count, what)? };
    if all.is_empty() {
        return Ok(&mut []);
    }
    // SAFETY: `list` found nothing wrong with it, and nobody else has it.
    Ok(unsafe { std::slice::from_raw_parts_mut(p, count) })
}

/// The text at `p`.
///
/// # Safety
/// `p` is null, or points to bytes up to a zero that are there and not changed for `'a`.
pub(crate) unsafe fn text<'a>(p: *const c_char, what: &str) -> Result<&'a str, Failure> {
    placed(p, what)?;
    // SAFETY: it is not null, and the caller promises the zero.
    let bytes = unsafe { CStr::from_ptr(p) };
    let text = bytes.to_str();
    text.map_err(|_| usage(format!("{what} is no UTF-8; give text in it")))
}

/// Writes a result to where the caller wants it.
///
/// # Safety
/// `p` is null, or points to room for a `T`.
pub(crate) unsafe fn put<T>(p: *mut T, value: T, what: &str) -> Result<(), Failure> {
    placed(p.cast_const(), what)?;
    // SAFETY: it is neither null nor misplaced, and the caller promises room; what is there may be anything, and
    // is not dropped.
    unsafe { p.write(value) };
    Ok(())
}

/// Frees what [`Box::into_raw`] gave; null is nothing.
///
/// # Safety
/// `p` is null, or was given out for a box and not freed.
pub(crate) unsafe fn free<T>(p: *mut T) {
    if !p.is_null() {
        // SAFETY: the caller promises that it is a box's.
        calm((), || drop(unsafe { Box::from_raw(p) }));
    }
}

/// Text for C: zeros within it, which would end it, are written as what cannot be shown.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SHOPFLOOR_INTERNAL, SHOPFLOOR_USAGE, shopfloor_error_code, shopfloor_error_free};

    fn code(e: *mut shopfloor_error) -> i32 {
        // SAFETY: `guarded` gave it.
        unsafe {
            let code = shopfloor_error_code(e);
            shopfloor_error_free(e);
            code
        }
    }

    #[test]
    fn panics_are_errors_at_the_boundary() {
        assert_eq!(code(guarded(|| panic!("oh"))), SHOPFLOOR_INTERNAL);
        assert_eq!(code(guarded(|| Err(usage("no".into())))), SHOPFLOOR_USAGE);
        assert!(guarded(|| Ok(())).is_null());
        assert_eq!(calm(3, || panic!("oh")), 3);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let numbers = [1u32, 2, 3];
        let p = numbers.as_ptr();
        // SAFETY: lists that are there, and those that are refused before they are read.
        unsafe {
            assert_eq!(
                list(p, 3, "the list").map_err(|e| e.message),
                Ok(&numbers[..])
            );
            assert!(list(std::ptr::null::<u32>(), 0, "the list").is_ok());
            assert!(list(std::ptr::null::<u32>(), 1, "the list").is_err());
            assert!(list(p, usize::MAX / 2, "the list").is_err());
            assert!(list(p.byte_add(1), 1, "the list").is_err());
            assert!(given(std::ptr::null::<u32>(), "it").is_err());
            assert!(text(c"a\xff".as_ptr(), "it").is_err());
        }
    }
}
