//! Prefetching of cache lines that another core has and this thread is about to use.

/// Lines of an item that are prefetched at most.
const LINES: usize = 4;

/// Prefetches the first lines of the `T` at `p`; there need not be one.
pub fn prefetch<T>(p: *const T) {
    for line in 0..size_of::<T>().div_ceil(64).clamp(1, LINES) {
        prefetch_line(p.cast::<u8>().wrapping_add(64 * line));
    }
}

/// Prefetches the line of `p`, wherever that points to.
#[inline]
pub fn prefetch_line(p: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address does nothing but bring a line near, if there is one.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = p;
}

/// Prefetches the line of `p` for writing, wherever that points to.
#[inline]
pub fn prefetch_line_for_write(p: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: as a prefetch; processors that do not know this one take it for no instruction.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) p, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = p;
}
