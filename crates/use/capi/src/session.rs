//! Sessions, and what they say of their models.
//!
//! # Safety
//! As in the crate's head.
use crate::boundary::{c_text, calm, free, given, guarded, list, put, text};
use crate::dtype::{SHOPFLOOR_OTHER, number};
use crate::error::{Failure, shopfloor_error, usage};
use crate::options::shopfloor_options;
use shopfloor::{DType, Port, PortDim, Session};
use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;

/// A model ready to run. Any number of threads may use it at once; it is freed when none does.
pub struct shopfloor_session {
    pub(crate) inner: Session,
    pub(crate) device: String,
    inputs: Vec<PortText>,
    outputs: Vec<PortText>,
    pub(crate) takes: Arc<Takes>,
}

/// What requests of a session may give.
pub(crate) struct Takes {
    /// Inputs that a request may give at most.
    pub most: usize,
    /// Names of the inputs that are texts.
    pub texts: BTreeSet<String>,
}

impl Takes {
    fn of(session: &Session) -> Takes {
        let all = || session.inputs().chain(session.overridable());
        let texts = all().filter(|p| p.dtype == Some(DType::Str));
        Takes {
            most: all().count(),
            texts: texts.map(|p| p.name.clone()).collect(),
        }
    }
}

/// A dimension of an input or output.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shopfloor_dim {
    /// Its size; -1 where it is no number.
    pub size: i64,
    /// Its name where it has one, else NULL.
    pub symbol: *const c_char,
}

/// An input or output as the model's file states it. Its pointers live as long as the session.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shopfloor_port {
    /// Its name.
    pub name: *const c_char,
    /// Its type as ONNX spells it: "tensor(float)", "seq(tensor(int64))".
    pub kind: *const c_char,
    /// Its element type, such as SHOPFLOOR_FLOAT; SHOPFLOOR_OTHER for what is no tensor.
    pub dtype: i32,
    /// Number of its dimensions; -1 where the file does not state it.
    pub rank: i64,
    /// Its dimensions, outermost first.
    pub dims: *const shopfloor_dim,
}

/// The text behind a [`shopfloor_port`].
struct PortText {
    name: CString,
    kind: CString,
    dtype: i32,
    rank: i64,
    /// What `dims` point to.
    _symbols: Vec<CString>,
    dims: Vec<shopfloor_dim>,
}

impl PortText {
    fn of(p: &Port) -> PortText {
        let mut symbols = vec![];
        let stated = p.dims.as_deref();
        let dim = |d: &PortDim| match d {
            PortDim::Size(n) => shopfloor_dim {
                size: *n,
                symbol: ptr::null(),
            },
            PortDim::Symbol(name) => {
                // Its bytes stay where they are when the list grows.
                symbols.push(c_text(name));
                shopfloor_dim {
                    size: -1,
                    symbol: symbols.last().map_or(ptr::null(), |s| s.as_ptr()),
                }
            }
            PortDim::Open => shopfloor_dim {
                size: -1,
                symbol: ptr::null(),
            },
        };
        let dims: Vec<shopfloor_dim> = stated.unwrap_or_default().iter().map(dim).collect();
        PortText {
            name: c_text(&p.name),
            kind: c_text(&p.kind),
            dtype: p.dtype.map_or(SHOPFLOOR_OTHER, number),
            rank: stated.map_or(-1, |d| d.len() as i64),
            _symbols: symbols,
            dims,
        }
    }

    fn port(&self) -> shopfloor_port {
        shopfloor_port {
            name: self.name.as_ptr(),
            kind: self.kind.as_ptr(),
            dtype: self.dtype,
            rank: self.rank,
            dims: self.dims.as_ptr(),
        }
    }
}

impl shopfloor_session {
    fn new(inner: Session, device: String) -> *mut shopfloor_session {
        let inputs = inner.inputs().map(PortText::of).collect();
        let outputs = inner.outputs().iter().map(PortText::of).collect();
        Box::into_raw(Box::new(shopfloor_session {
            takes: Arc::new(Takes::of(&inner)),
            inner,
            device,
            inputs,
            outputs,
        }))
    }
}

/// Options, or those that nobody set.
///
/// # Safety
/// They are null, or ours and not freed.
unsafe fn chosen(options: *const shopfloor_options) -> Result<shopfloor_options, Failure> {
    match options.is_null() {
        true => Ok(shopfloor_options::default()),
        // SAFETY: they are ours.
        false => Ok(unsafe { given(options, "options")? }.clone()),
    }
}

/// Loads the ONNX model in the file at `path`. `options` may be NULL. The session goes to `session`, which is NULL
/// where this fails, and is freed by shopfloor_session_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_session_open_file(
    path: *const c_char,
    options: *const shopfloor_options,
    session: *mut *mut shopfloor_session,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or has room for a pointer.
        unsafe { put(session, ptr::null_mut(), "session")? };
        // SAFETY: it is null or ends with a zero byte.
        let path = unsafe { text(path, "path")? };
        // SAFETY: they are null or ours.
        let options = unsafe { chosen(options)? };
        let inner = options.builder().commit_from_file(path)?;
        let made = shopfloor_session::new(inner, options.device());
        // SAFETY: as above.
        unsafe { put(session, made, "session") }
    })
}

/// Bytes of a caller's, who is told when they are no longer needed.
struct Shared {
    start: *const u8,
    len: usize,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
    context: *mut c_void,
}

// SAFETY: the bytes are only read, and whoever gave them promised that any thread may release them.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        match self.len {
            0 => &[],
            // SAFETY: they were looked at when they came, and stay until they are released.
            n => unsafe { std::slice::from_raw_parts(self.start, n) },
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the caller gave both for this.
            unsafe { release(self.context) }
        }
    }
}

/// Loads the ONNX model whose file is the `bytes` bytes at `model`, which are copied once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_session_open_memory(
    model: *const c_void,
    bytes: usize,
    options: *const shopfloor_options,
    session: *mut *mut shopfloor_session,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or has room for a pointer.
        unsafe { put(session, ptr::null_mut(), "session")? };
        // SAFETY: it is null or points to so many bytes.
        let model = unsafe { list(model.cast::<u8>(), bytes, "model")? };
        // SAFETY: they are null or ours.
        let options = unsafe { chosen(options)? };
        let inner = options.builder().commit_from_memory(model.to_vec())?;
        let made = shopfloor_session::new(inner, options.device());
        // SAFETY: as above.
        unsafe { put(session, made, "session") }
    })
}

/// As shopfloor_session_open_memory without a copy: the bytes must stay as they are until the library calls
/// `release` with `context`. It does so once, from any thread, also where this fails; NULL if nothing is to be done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_session_open_shared(
    model: *const c_void,
    bytes: usize,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
    context: *mut c_void,
    options: *const shopfloor_options,
    session: *mut *mut shopfloor_session,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or points to so many bytes.
        let found = unsafe { list(model.cast::<u8>(), bytes, "model") };
        let shared = Shared {
            start: model.cast(),
            len: if found.is_ok() { bytes } else { 0 },
            release,
            context,
        };
        // SAFETY: it is null or has room for a pointer.
        unsafe { put(session, ptr::null_mut(), "session")? };
        found?;
        // SAFETY: they are null or ours.
        let options = unsafe { chosen(options)? };
        let inner = options.builder().commit_from_memory(shared)?;
        let made = shopfloor_session::new(inner, options.device());
        // SAFETY: as above.
        unsafe { put(session, made, "session") }
    })
}

/// Frees it; NULL is nothing. No other thread may use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_session_free(session: *mut shopfloor_session) {
    // SAFETY: it is null or ours and was not freed.
    unsafe { free(session) }
}

/// Number of the model's inputs; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_session_input_count(session: *const shopfloor_session) -> usize {
    // SAFETY: it is null or ours.
    calm(0, || {
        unsafe { session.as_ref() }.map_or(0, |s| s.inputs.len())
    })
}

/// Number of the model's outputs; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_session_output_count(
    session: *const shopfloor_session,
) -> usize {
    // SAFETY: it is null or ours.
    calm(0, || {
        unsafe { session.as_ref() }.map_or(0, |s| s.outputs.len())
    })
}

fn port(all: &[PortText], index: usize, what: &str) -> Result<shopfloor_port, Failure> {
    let found = all.get(index).map(PortText::port);
    found.ok_or_else(|| {
        usage(format!(
            "the model has no {what} {index}; it has {} of them",
            all.len()
        ))
    })
}

/// Input number `index` of the model, in its file's order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_session_input(
    session: *const shopfloor_session,
    index: usize,
    input: *mut shopfloor_port,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or ours.
        let session = unsafe { given(session, "session")? };
        let found = port(&session.inputs, index, "input")?;
        // SAFETY: it is null or has room for one.
        unsafe { put(input, found, "input") }
    })
}

/// Output number `index` of the model, in its file's order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_session_output(
    session: *const shopfloor_session,
    index: usize,
    output: *mut shopfloor_port,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or ours.
        let session = unsafe { given(session, "session")? };
        let found = port(&session.outputs, index, "output")?;
        // SAFETY: it is null or has room for one.
        unsafe { put(output, found, "output") }
    })
}
