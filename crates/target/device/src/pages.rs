//! Memory as pages of its own, and files seen as memory.
use std::ptr::NonNull;

/// A new private mapping of `len` bytes, zeroed or of a file, at an address of the system's choice.
#[cfg(unix)]
fn map(len: usize, may: libc::c_int, file: Option<&std::fs::File>) -> std::io::Result<NonNull<u8>> {
    use std::os::fd::AsRawFd;
    let (flags, from) = match file {
        Some(file) => (libc::MAP_PRIVATE, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: it touches no memory that is in use.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, may, flags, from, 0) };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| std::io::ErrorKind::OutOfMemory.into())
}

/// Pages that nobody else has, zeroed, given back when dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    len: usize,
}

/// On which side of some bytes memory begins that ends the process when it is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Right before the first byte.
    Before,
    /// Right behind the last byte.
    Behind,
}

/// Zeroed bytes with memory beside them that nobody may touch: to read or write one byte too many on the guarded
/// side ends the process. For tests of code that is not checked by the compiler.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub struct GuardedBytes {
    start: NonNull<u8>,
    len: usize,
    /// The mapping: what may be touched, between two guards.
    whole: Pages,
}

#[cfg(target_os = "linux")]
// SAFETY: the bytes are owned, like a Vec's.
unsafe impl Send for GuardedBytes {}
#[cfg(target_os = "linux")]
// SAFETY: shared references give shared access only.
unsafe impl Sync for GuardedBytes {}

/// Bytes of a guard: whole pages, whatever size they have on the systems there are.
#[cfg(target_os = "linux")]
const GUARD: usize = 64 << 10;

#[cfg(target_os = "linux")]
impl GuardedBytes {
    /// `len` zeroed bytes. With none, either side is guarded.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(len: usize, guard: Guard) -> std::io::Result<GuardedBytes> {
        let none = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let inner = len.checked_next_multiple_of(GUARD).ok_or_else(none)?;
        let all = inner.checked_add(2 * GUARD).ok_or_else(none)?;
        let whole = Pages {
            start: map(all, libc::PROT_NONE, None)?,
            len: all,
        };
        // SAFETY: both lie in the mapping, which is longer by two guards.
        let (first, start) = unsafe {
            let first = whole.start.add(GUARD);
            let ahead = match guard {
                Guard::Before => 0,
                Guard::Behind => inner - len,
            };
            (first, first.add(ahead))
        };
        if inner > 0 {
            let open = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: whole pages of the mapping made above, which nothing refers to yet.
            if unsafe { libc::mprotect(first.as_ptr().cast(), inner, open) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(GuardedBytes { start, len, whole })
    }
}

#[cfg(target_os = "linux")]
impl std::ops::Deref for GuardedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        debug_assert!(self.len < self.whole.len);
        // SAFETY: `len` initialised bytes from `start`, owned by self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[cfg(target_os = "linux")]
impl std::ops::DerefMut for GuardedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialised bytes from `start`, owned and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Size of a huge page on the machines we run on.
#[cfg(target_os = "linux")]
const HUGE: usize = 2 << 20;

impl Pages {
    /// At least `len` bytes; `None` where this system is not asked for pages.
    #[cfg(target_os = "linux")]
    pub fn new(len: usize) -> Option<Result<Pages, ()>> {
        // Aligned to huge pages by asking for one more and giving the rims back.
        let Some(len) = len.checked_next_multiple_of(4096) else {
            return Some(Err(()));
        };
        let extra = if len >= HUGE { HUGE } else { 0 };
        let Some(all) = len.checked_add(extra) else {
            return Some(Err(()));
        };
        let Ok(base) = map(all, libc::PROT_READ | libc::PROT_WRITE, None) else {
            return Some(Err(()));
        };
        let base = base.as_ptr();
        let skip = if extra > 0 {
            base.align_offset(HUGE).min(extra)
        } else {
            0
        };
        let start = base.wrapping_add(skip);
        // SAFETY: both rims lie in the mapping made above, are whole pages, and nothing refers to
        // them; the advice concerns the same fresh mapping and changes no contents.
        unsafe {
            if skip > 0 {
                libc::munmap(base.cast(), skip);
            }
            if extra > skip {
                libc::munmap(start.wrapping_add(len).cast(), extra - skip);
            }
            if len >= HUGE {
                libc::madvise(start.cast(), len, libc::MADV_HUGEPAGE);
            }
        }
        Some(
            NonNull::new(start)
                .map(|start| Pages { start, len })
                .ok_or(()),
        )
    }

    /// At least `len` bytes, more than there are: these pages with what they hold, and zeroed ones
    /// behind them. Pages that are there already need not be found and cleared again.
    #[cfg(target_os = "linux")]
    pub fn grown(self, len: usize) -> Result<Pages, ()> {
        let new = Pages::new(len).unwrap_or(Err(()))?;
        let size = self.len;
        if size > new.len {
            return Err(());
        }
        // SAFETY: the old pages are whole, this function's own, and take the place of as many at the
        // start of the fresh mapping, which nothing refers to yet.
        let moved = unsafe {
            libc::mremap(
                self.start.as_ptr().cast(),
                size,
                size,
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                new.start.as_ptr().cast::<libc::c_void>(),
            )
        };
        if moved != libc::MAP_FAILED {
            // Nothing is mapped at the old address any more.
            std::mem::forget(self);
        }
        Ok(new)
    }

    /// `None`: this system is not asked for pages.
    #[cfg(not(target_os = "linux"))]
    pub fn new(_len: usize) -> Option<Result<Pages, ()>> {
        None
    }

    /// Never called: there are none.
    #[cfg(not(target_os = "linux"))]
    pub fn grown(self, _len: usize) -> Result<Pages, ()> {
        Err(())
    }

    /// First byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

#[cfg(target_os = "linux")]
impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which only the owner refers to.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A file's contents as memory, read only, paged in when first read.
#[cfg(unix)]
pub struct MappedFile {
    start: NonNull<u8>,
    len: usize,
}

#[cfg(unix)]
// SAFETY: the mapping is read only and owned.
unsafe impl Send for MappedFile {}
#[cfg(unix)]
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

#[cfg(unix)]
impl MappedFile {
    /// Maps the whole of `file`, which must not be cut while this lives: a reader of the lost part
    /// would end the process. Files of the cache are replaced, never changed.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(file: &std::fs::File) -> std::io::Result<MappedFile> {
        let len = usize::try_from(file.metadata()?.len())
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::FileTooLarge))?;
        if len == 0 {
            return Ok(MappedFile {
                start: NonNull::dangling(),
                len,
            });
        }
        let start = map(len, libc::PROT_READ, Some(file))?;
        Ok(MappedFile { start, len })
    }
}

#[cfg(unix)]
impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `len` mapped bytes that nobody writes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[cfg(unix)]
impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the mapping of `new`, which only the owner refers to.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

/// A file's contents as memory: it is not mapped on such systems.
#[cfg(not(unix))]
pub struct MappedFile(Vec<u8>);

#[cfg(not(unix))]
impl MappedFile {
    /// Reads the whole of `file`.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(mut file: &std::fs::File) -> std::io::Result<MappedFile> {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok(MappedFile(bytes))
    }
}

#[cfg(not(unix))]
impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
