//! Streams: requests that carry state from one to the next.
//!
//! # Safety
//! As in the crate's head.
use crate::boundary::{calm, free, given, guarded, list, put, text};
use crate::error::{Failure, shopfloor_error, usage};
use crate::request::{inputs_of, shopfloor_cancel, shopfloor_input, shopfloor_outputs};
use crate::session::{Takes, shopfloor_session};
use shopfloor::{DimBox, Error, RunError, Stream, Tensor};
use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Messages of one session in a row, of which each finds the state that the one before left. Threads that call it
/// at once take turns. It keeps what it needs of its session, which may be freed before it. Freed by
/// shopfloor_stream_free.
pub struct shopfloor_stream {
    inner: Mutex<Stream>,
    takes: Arc<Takes>,
    /// Names of its state.
    states: Vec<CString>,
}

/// A dimension of a model with a range of sizes.
#[repr(C)]
pub struct shopfloor_range {
    /// Name of the dimension.
    pub name: *const c_char,
    /// Its least size.
    pub least: i64,
    /// Its largest size.
    pub most: i64,
}

/// What a stream asks beside its dimensions.
#[repr(C)]
pub struct shopfloor_streaming {
    /// Messages whose answers were not received, at most; 0 for 64.
    pub capacity: usize,
    /// Seconds for which a message lies for somebody to receive it, and for those of other streams to be joined with
    /// it, before another thread runs it all the same; 0 for a millisecond. Where it is negative nothing is run
    /// unless somebody receives it or asks for it.
    pub linger_s: f64,
    /// Name of the input that says which rows of the caches count, so that streams whose caches have other lengths
    /// may run at once; or NULL.
    pub mask: *const c_char,
}

/// A stream as a caller wants it.
///
/// # Safety
/// As in the crate's head.
unsafe fn wanted(mut stream: Stream, how: *const shopfloor_streaming) -> Result<Stream, Failure> {
    if how.is_null() {
        return Ok(stream);
    }
    // SAFETY: it is not null.
    let how = unsafe { given(how, "how")? };
    if how.capacity > 0 {
        stream = stream.with_capacity(how.capacity);
    }
    if how.linger_s < 0.0 {
        stream = stream.with_linger(Duration::MAX);
    } else if how.linger_s != 0.0 {
        stream = stream.with_linger(seconds(how.linger_s, "for messages to lie")?);
    }
    if !how.mask.is_null() {
        // SAFETY: it ends with a zero byte.
        let mask = unsafe { text(how.mask, "mask")? };
        stream = stream.with_mask(mask).map_err(Error::from)?;
    }
    Ok(stream)
}

fn seconds(s: f64, what: &str) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(s)
        .map_err(|e| usage(format!("{s} s {what} cannot be: {e}; give seconds")))
}

/// Opens a stream of `session`, whose state is declared by shopfloor_options_set_state or
/// shopfloor_options_find_states. One plan covers `count` ranges of dimensions for its whole life; where the range of
/// the batch goes beyond a message's, messages of several streams may run as one. State begins as zeros. `how` may be
/// NULL. The stream goes to `stream`, which is NULL where this fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_stream_open(
    session: *const shopfloor_session,
    ranges: *const shopfloor_range,
    count: usize,
    how: *const shopfloor_streaming,
    stream: *mut *mut shopfloor_stream,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or has room for a pointer.
        unsafe { put(stream, ptr::null_mut(), "stream")? };
        // SAFETY: it is null or ours.
        let session = unsafe { given(session, "session")? };
        let symbols = &session.inner.model().program().symbols;
        if count > symbols.len() {
            return Err(usage(format!(
                "{count} ranges are given, and the model has {} dimensions that vary; give each once",
                symbols.len()
            )));
        }
        let mut dims = DimBox::new();
        // SAFETY: there are so many.
        for r in unsafe { list(ranges, count, "ranges")? } {
            // SAFETY: it is null or ends with a zero byte.
            let name = unsafe { text(r.name, "the name of a dimension")? };
            dims.insert(name, r.least, r.most);
        }
        let opened = session.inner.stream(&dims)?;
        // SAFETY: as the header says.
        let inner = unsafe { wanted(opened, how)? };
        let states = inner.state_inputs();
        let made = shopfloor_stream {
            states: states.iter().map(|s| crate::boundary::c_text(s)).collect(),
            inner: Mutex::new(inner),
            takes: session.takes.clone(),
        };
        // SAFETY: as above.
        unsafe { put(stream, Box::into_raw(Box::new(made)), "stream") }
    })
}

impl shopfloor_stream {
    fn turn(&self) -> MutexGuard<'_, Stream> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Inputs of a caller's with memory of their own: messages outlive the call.
///
/// # Safety
/// As in the crate's head.
unsafe fn copied<'a>(
    stream: &shopfloor_stream,
    inputs: *const shopfloor_input,
    count: usize,
) -> Result<Vec<(&'a str, Tensor)>, Failure> {
    // SAFETY: the tensors over the caller's memory are gone when this returns.
    let all = unsafe { inputs_of(inputs, count, &stream.takes)? };
    let own = |(name, t): (&'a str, Tensor)| {
        if t.dtype().is_held() {
            // Texts were copied when they were read.
            return Ok((name, t));
        }
        let made = Tensor::from_bytes(t.dtype(), t.shape(), t.bytes().to_vec());
        made.map(|t| (name, t.aligned()))
            .map_err(|e| usage(format!("input '{name}': {e}")))
    };
    all.into_iter().map(own).collect()
}

fn refs<'a>(named: &'a [(&'a str, Tensor)]) -> Vec<(&'a str, &'a Tensor)> {
    named.iter().map(|(n, t)| (*n, t)).collect()
}

/// Begins with `count` states in place of zeros, or goes on with them; each is named by the input that takes it, and
/// is copied once. Only while no message is pending, and not for state that stays in place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_stream_start(
    stream: *const shopfloor_stream,
    states: *const shopfloor_input,
    count: usize,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or ours.
        let stream = unsafe { given(stream, "stream")? };
        // SAFETY: as the header says.
        let named = unsafe { copied(stream, states, count)? };
        Ok(stream.turn().start(&refs(&named)).map_err(Error::from)?)
    })
}

/// Queues a message: `count` inputs, all but state. They are copied once. `cancel` gives it up, and may be NULL; a
/// message that was given up leaves the state as it was. What is wrong with a message beyond names and types is its
/// answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_stream_send(
    stream: *const shopfloor_stream,
    inputs: *const shopfloor_input,
    count: usize,
    cancel: *const shopfloor_cancel,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or ours.
        let stream = unsafe { given(stream, "stream")? };
        // SAFETY: as the header says.
        let named = unsafe { copied(stream, inputs, count)? };
        let sent = if cancel.is_null() {
            stream.turn().send(&refs(&named))
        } else {
            // SAFETY: it is ours.
            let cancel = unsafe { given(cancel, "cancel")? };
            stream.turn().send_cancellable(&refs(&named), &cancel.0)
        };
        Ok(sent.map_err(Error::from)?)
    })
}

/// What was received, for the caller; nothing is written where nothing is there yet.
///
/// # Safety
/// As in the crate's head.
unsafe fn answer(
    outputs: *mut *mut shopfloor_outputs,
    received: Result<Option<Vec<(String, Tensor)>>, RunError>,
) -> Result<(), Failure> {
    match received.map_err(Error::from)? {
        None => Ok(()),
        // SAFETY: it is null or has room for a pointer.
        Some(all) => unsafe { put(outputs, shopfloor_outputs::new(all), "outputs") },
    }
}

/// Waits for the answer to the first message whose answer was not received: every output but state. The calling thread
/// works. It fails with what that message failed with, or where nothing was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_stream_receive(
    stream: *const shopfloor_stream,
    outputs: *mut *mut shopfloor_outputs,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or has room for a pointer.
        unsafe { put(outputs, ptr::null_mut(), "outputs")? };
        // SAFETY: it is null or ours.
        let stream = unsafe { given(stream, "stream")? };
        // SAFETY: as above.
        unsafe { answer(outputs, stream.turn().receive().map(Some)) }
    })
}

/// As shopfloor_stream_receive, and NULL goes to `outputs` where the answer is not there yet. The calling thread does
/// not work: what was sent is run now, by another one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_stream_try_receive(
    stream: *const shopfloor_stream,
    outputs: *mut *mut shopfloor_outputs,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or has room for a pointer.
        unsafe { put(outputs, ptr::null_mut(), "outputs")? };
        // SAFETY: it is null or ours.
        let stream = unsafe { given(stream, "stream")? };
        // SAFETY: as above.
        unsafe { answer(outputs, stream.turn().try_receive()) }
    })
}

/// Sends a message and waits for its answer. Only while none is pending.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_stream_run(
    stream: *const shopfloor_stream,
    inputs: *const shopfloor_input,
    count: usize,
    outputs: *mut *mut shopfloor_outputs,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or has room for a pointer.
        unsafe { put(outputs, ptr::null_mut(), "outputs")? };
        // SAFETY: it is null or ours.
        let stream = unsafe { given(stream, "stream")? };
        // SAFETY: as the header says.
        let named = unsafe { copied(stream, inputs, count)? };
        let received = stream.turn().run(&refs(&named)).map(Some);
        // SAFETY: as above.
        unsafe { answer(outputs, received) }
    })
}

/// Messages whose answers were not received; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_stream_pending(stream: *const shopfloor_stream) -> usize {
    // SAFETY: it is null or ours.
    calm(0, || {
        unsafe { stream.as_ref() }.map_or(0, |s| s.turn().pending())
    })
}

/// Answers that are there to be received; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_stream_ready(stream: *const shopfloor_stream) -> usize {
    // SAFETY: it is null or ours.
    calm(0, || {
        unsafe { stream.as_ref() }.map_or(0, |s| s.turn().ready())
    })
}

/// Bytes of state that it holds now; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_stream_state_bytes(stream: *const shopfloor_stream) -> u64 {
    // SAFETY: it is null or ours.
    calm(0, || {
        unsafe { stream.as_ref() }.map_or(0, |s| s.turn().state_bytes())
    })
}

/// Name of input number `index` of those that it keeps as state, in the model's order; NULL where there are fewer. It
/// lives as long as the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_stream_state(
    stream: *const shopfloor_stream,
    index: usize,
) -> *const c_char {
    // SAFETY: it is null or ours.
    calm(ptr::null(), || {
        let name = unsafe { stream.as_ref() }.and_then(|s| s.states.get(index));
        name.map_or(ptr::null(), |n| n.as_ptr())
    })
}

/// Frees it with its state and its messages; NULL is nothing. No thread may use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_stream_free(stream: *mut shopfloor_stream) {
    // SAFETY: it is null or ours and was not freed.
    unsafe { free(stream) }
}
