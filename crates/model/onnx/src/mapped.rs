//! Files mapped for reading. One that is cut short while it is mapped does not end the process: what was
//! lost reads as zeros, and the mapping says so ([`Owner::lost`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tensor::{Bytes, Owner, file_identity};

/// Maps a regular file for reading.
///
/// The file must not be changed while it is mapped. If it is cut short, the lost part reads as zeros and
/// [`Bytes::lost`] tells; on Unix this installs a handler of SIGBUS, which leaves faults outside of
/// mapped files to the handler that was there before.
///
/// # Errors
/// A sentence that says what is wrong with the path, without the path itself.
pub fn map_path(path: &Path) -> Result<Bytes, String> {
    let problem = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => "there is no such file; check the path".to_string(),
        std::io::ErrorKind::InvalidInput => e.to_string(),
        _ => format!("cannot be read ({e}); check the path and its permissions"),
    };
    let file = files::open(path).map_err(problem)?;
    if file.metadata().map_err(problem)?.len() == 0 {
        return Ok(Bytes::default());
    }
    let map = map::Map::of(&file).map_err(problem)?;
    // Of the file that was opened, whatever the path leads to by now.
    let identity = file.metadata().ok().as_ref().and_then(file_identity);
    Ok(Bytes::new(Arc::new(Mapped {
        watch: watch::Watch::new(map.bytes()),
        map,
        file,
        path: path.to_path_buf(),
        identity,
    })))
}

/// A mapped file.
struct Mapped {
    /// Ends before the mapping does.
    watch: watch::Watch,
    map: map::Map,
    file: std::fs::File,
    path: PathBuf,
    identity: Option<[u8; 32]>,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.map.bytes()
    }
}

impl Owner for Mapped {
    fn identity(&self) -> Option<[u8; 32]> {
        self.identity
    }

    fn lost(&self) -> Option<String> {
        // The rest of a page that is cut in its middle reads as zeros without a fault.
        let len = self.file.metadata().map(|m| m.len());
        let short = len.is_ok_and(|n| n < self.map.bytes().len() as u64);
        (short || self.watch.lost()).then(|| self.path.display().to_string())
    }

    #[cfg(unix)]
    fn release(&self, range: std::ops::Range<usize>) {
        // What replaced lost pages is not the file's: it would be gone.
        if !self.watch.lost() {
            self.map.release(range);
        }
    }
}

#[cfg(not(unix))]
mod map {
    use std::io::Read;

    /// The contents of a file: it is not mapped on such systems.
    pub(super) struct Map(Vec<u8>);

    impl Map {
        pub(super) fn of(mut file: &std::fs::File) -> std::io::Result<Map> {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(Map(bytes))
        }

        pub(super) fn bytes(&self) -> &[u8] {
            &self.0
        }
    }
}

#[cfg(unix)]
#[allow(unsafe_code)]
mod map {
    use std::io::{Error, ErrorKind, Result};
    use std::os::fd::AsRawFd;
    use std::ptr::{NonNull, null_mut};

    /// Bytes of a page.
    pub(super) fn page() -> usize {
        // SAFETY: it takes and gives a number.
        unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
    }

    /// A mapping of a file that is not empty.
    pub(super) struct Map {
        start: NonNull<u8>,
        len: usize,
    }

    // SAFETY: the mapping is read-only and owned.
    unsafe impl Send for Map {}
    // SAFETY: as above.
    unsafe impl Sync for Map {}

    impl Map {
        pub(super) fn of(file: &std::fs::File) -> Result<Map> {
            let len = file.metadata()?.len();
            let len = isize::try_from(len).map_err(|_| Error::from(ErrorKind::FileTooLarge))?;
            let len = len.unsigned_abs();
            let (may, shared) = (libc::PROT_READ, libc::MAP_SHARED);
            // SAFETY: a new mapping at an address of the system's choice touches no memory that is in use.
            let start = unsafe { libc::mmap(null_mut(), len, may, shared, file.as_raw_fd(), 0) };
            if start == libc::MAP_FAILED {
                return Err(Error::last_os_error());
            }
            let start = NonNull::new(start.cast()).ok_or(ErrorKind::OutOfMemory)?;
            Ok(Map { start, len })
        }

        pub(super) fn bytes(&self) -> &[u8] {
            // SAFETY: `len` mapped bytes, which nobody writes: callers are told not to change the file.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
        }

        /// Lets the system take back the memory of a part.
        pub(super) fn release(&self, range: std::ops::Range<usize>) {
            let Some(part) = self.bytes().get(range) else {
                return;
            };
            // Advice begins at a page.
            let start = part.as_ptr() as usize;
            let before = start % page();
            let (start, len) = (start - before, part.len() + before);
            // SAFETY: whole pages of the mapping, to which nobody writes, so that what is dropped is read again from
            // the file, unchanged, when somebody asks for it.
            let advised = unsafe { libc::madvise(start as *mut _, len, libc::MADV_DONTNEED) };
            // Only a hint: memory that stays is no fault.
            let _ = advised;
        }
    }

    impl Drop for Map {
        fn drop(&mut self) {
            // SAFETY: the mapping of `of`, which only the owner refers to.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(not(unix))]
mod watch {
    /// Nothing is watched: such systems do not let a mapped file be cut short.
    pub(super) struct Watch;

    impl Watch {
        pub(super) fn new(_map: &[u8]) -> Watch {
            Watch
        }

        pub(super) fn lost(&self) -> bool {
            false
        }
    }
}

#[cfg(unix)]
#[allow(unsafe_code)]
mod watch {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::SeqCst};

    /// A mapping that the handler of SIGBUS knows, or a free place for one. Places are never given back:
    /// the handler may look at them at any time.
    struct Place {
        used: AtomicBool,
        start: AtomicUsize,
        end: AtomicUsize,
        lost: AtomicBool,
        next: Option<&'static Place>,
    }

    static FIRST: AtomicPtr<Place> = AtomicPtr::new(std::ptr::null_mut());

    fn first() -> Option<&'static Place> {
        let first: *const Place = FIRST.load(SeqCst);
        // SAFETY: null, or what `Watch::new` leaked, which is never freed and only changed by atomics.
        unsafe { first.as_ref() }
    }

    fn places() -> impl Iterator<Item = &'static Place> {
        std::iter::successors(first(), |p| p.next)
    }

    /// Keeps a mapping known to the handler for as long as it lives.
    pub(super) struct Watch(&'static Place);

    impl Watch {
        pub(super) fn new(map: &[u8]) -> Watch {
            install();
            let free = |p: &&Place| !p.used.swap(true, SeqCst);
            let place = places().find(free).unwrap_or_else(add);
            place.lost.store(false, SeqCst);
            place.end.store(map.as_ptr_range().end as usize, SeqCst);
            place.start.store(map.as_ptr() as usize, SeqCst);
            Watch(place)
        }

        pub(super) fn lost(&self) -> bool {
            self.0.lost.load(SeqCst)
        }
    }

    impl Drop for Watch {
        fn drop(&mut self) {
            self.0.start.store(usize::MAX, SeqCst);
            self.0.used.store(false, SeqCst);
        }
    }

    /// A new place, in use.
    fn add() -> &'static Place {
        let mut next = first();
        loop {
            let place = Box::leak(Box::new(Place {
                used: AtomicBool::new(true),
                start: AtomicUsize::new(usize::MAX),
                end: AtomicUsize::new(0),
                lost: AtomicBool::new(false),
                next,
            }));
            let was = next.map_or(std::ptr::null_mut(), |p| std::ptr::from_ref(p).cast_mut());
            match FIRST.compare_exchange(was, place, SeqCst, SeqCst) {
                Ok(_) => return place,
                Err(_) => next = first(),
            }
        }
    }

    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
    static PAGE: AtomicUsize = AtomicUsize::new(0);

    fn install() {
        BEFORE.get_or_init(|| {
            PAGE.store(super::map::page(), SeqCst);
            // SAFETY: both structures are plain data that sigaction fills or reads, all zeros is a valid
            // value of them, and the handler does only what a signal handler may (`on_bus`).
            unsafe {
                let mut own: libc::sigaction = std::mem::zeroed();
                own.sa_sigaction = on_bus as *const () as usize;
                own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                let mut before: libc::sigaction = std::mem::zeroed();
                libc::sigemptyset(&mut own.sa_mask);
                libc::sigaction(libc::SIGBUS, &own, &mut before);
                before
            }
        });
    }

    /// Puts zeros where a mapped file has no contents any more; any other fault goes to the handler that was
    /// there before. Reads atomics and makes system calls, nothing else.
    extern "C" fn on_bus(
        signal: libc::c_int,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        // SAFETY: the kernel calls with a valid `info`, as SA_SIGINFO asks for.
        let at = unsafe { (*info).si_addr() } as usize;
        let holds = |p: &&Place| p.start.load(SeqCst) <= at && at < p.end.load(SeqCst);
        if let Some(place) = places().find(holds) {
            place.lost.store(true, SeqCst);
            tensor::note_loss();
            let from = at - at % PAGE.load(SeqCst);
            // SAFETY: the pages from the one that failed to the mapping's end belong to that mapping, which
            // lives while somebody reads it; they are read-only before and after.
            let put = unsafe {
                libc::mmap(
                    from as *mut libc::c_void,
                    place.end.load(SeqCst) - from,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            if put as usize == from {
                return;
            }
        }
        // SAFETY: what was there before is called as it asked to be, or put back, so that the fault, which
        // comes again at once, has its effect.
        unsafe {
            match BEFORE.get() {
                Some(b) if b.sa_sigaction > libc::SIG_IGN => {
                    let f = b.sa_sigaction as *const ();
                    if b.sa_flags & libc::SA_SIGINFO != 0 {
                        type Full =
                            extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                        std::mem::transmute::<*const (), Full>(f)(signal, info, context);
                    } else {
                        let f = std::mem::transmute::<*const (), extern "C" fn(libc::c_int)>(f);
                        f(signal);
                    }
                }
                _ => {
                    libc::signal(libc::SIGBUS, libc::SIG_DFL);
                }
            }
        }
    }
}
