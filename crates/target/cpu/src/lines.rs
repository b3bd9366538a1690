//! Lines of memory asked for before they are used: another core has them, and whoever is about to use them has
//! something else to do first.

/// Lines of an item that are brought near at most.
const LINES: usize = 4;

/// Has the first lines of the `T` at `p` brought near; there need not be one.
pub(crate) fn bring<T>(p: *const T) {
    for line in 0..size_of::<T>().div_ceil(64).clamp(1, LINES) {
        bring_line(p.cast::<u8>().wrapping_add(64 * line));
    }
}

/// Has the line of `p` brought near, wherever that points to.
#[inline]
pub(crate) fn bring_line(p: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address does nothing but bring a line near, if there is one.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = p;
}

/// Has the line of `p` brought near to be written to, wherever that points to.
#[inline]
pub(crate) fn own_line(p: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: as a prefetch; processors that do not know this one take it for no instruction.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) p, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = p;
}
