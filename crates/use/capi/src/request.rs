//! Requests: inputs in a caller's memory, outputs in the library's or the caller's.
//!
//! # Safety
//! As in the crate's head.
use crate::boundary::{c_text, calm, free, given, guarded, list, list_mut, put, text};
use crate::dtype::{dtype, number};
use crate::error::{Failure, shopfloor_error, usage};
use crate::session::{Takes, shopfloor_session};
use shopfloor::{Call, Cancel, DType, Error, Outputs, Tensor};
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::time::Duration;

/// Dimensions that a tensor has at most.
const MOST_DIMS: usize = 64;

/// An input of a request. Nothing of it is kept beyond the call, and its elements are read where they lie.
#[repr(C)]
pub struct shopfloor_input {
    /// Name of the model's input.
    pub name: *const c_char,
    /// Type of its elements, such as SHOPFLOOR_FLOAT.
    pub dtype: i32,
    /// Number of its dimensions.
    pub rank: usize,
    /// Its dimensions, outermost first.
    pub shape: *const i64,
    /// Its elements, row-major; for SHOPFLOOR_STRING pointers to texts.
    pub data: *const c_void,
    /// Bytes that `data` points to; they must be what shape and type come to.
    pub bytes: usize,
}

/// An output of a request. Its pointers live as long as the outputs that it is one of.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct shopfloor_output {
    /// Name of the model's output.
    pub name: *const c_char,
    /// Type of its elements, such as SHOPFLOOR_FLOAT.
    pub dtype: i32,
    /// Number of its dimensions.
    pub rank: usize,
    /// Its dimensions, outermost first.
    pub shape: *const i64,
    /// Its elements, row-major; NULL for texts (shopfloor_outputs_text) and for what is no tensor.
    pub data: *const c_void,
    /// Bytes that `data` points to.
    pub bytes: usize,
}

/// Memory of the caller's for an output.
#[repr(C)]
pub struct shopfloor_buffer {
    /// Name of the model's output.
    pub name: *const c_char,
    /// Type that its elements must have, such as SHOPFLOOR_FLOAT; no texts.
    pub dtype: i32,
    /// Where its elements go, row-major.
    pub data: *mut c_void,
    /// Bytes that there is room for.
    pub capacity: usize,
    /// Bytes that were written, or that are needed where there is too little room.
    pub bytes: usize,
    /// Where its dimensions go, outermost first.
    pub shape: *mut i64,
    /// Dimensions that there is room for.
    pub most_dims: usize,
    /// Number of its dimensions.
    pub rank: usize,
}

/// By this requests are given up from another thread. Freed by shopfloor_cancel_free, when no request has it.
pub struct shopfloor_cancel(pub(crate) Cancel);

/// What a request asks beside its inputs.
#[repr(C)]
pub struct shopfloor_call {
    /// By this it can be given up; or NULL.
    pub cancel: *const shopfloor_cancel,
    /// Seconds within which it must be done, or it is refused; 0 for any time.
    pub deadline_s: f64,
}

/// What a request gave. Freed by shopfloor_outputs_free.
pub struct shopfloor_outputs(Vec<Output>);

struct Output {
    name: CString,
    shape: Vec<i64>,
    tensor: Tensor,
}

impl Output {
    fn view(&self) -> shopfloor_output {
        let held = self.tensor.dtype().is_held();
        shopfloor_output {
            name: self.name.as_ptr(),
            dtype: number(self.tensor.dtype()),
            rank: self.shape.len(),
            shape: self.shape.as_ptr(),
            data: match held {
                true => ptr::null(),
                false => self.tensor.bytes().as_ptr().cast(),
            },
            bytes: self.tensor.bytes().len(),
        }
    }
}

impl shopfloor_outputs {
    /// What a request gave, to be freed by shopfloor_outputs_free.
    pub(crate) fn new(all: Vec<(String, Tensor)>) -> *mut shopfloor_outputs {
        let output = |(name, tensor): (String, Tensor)| Output {
            name: c_text(&name),
            shape: tensor.shape().iter().map(|&n| n as i64).collect(),
            tensor,
        };
        let made = shopfloor_outputs(all.into_iter().map(output).collect());
        Box::into_raw(Box::new(made))
    }
}

/// The tensor that an input is.
///
/// # Safety
/// What it points to is as the header says, for as long as the tensor lives.
unsafe fn tensor(i: &shopfloor_input, name: &str, is_text: bool) -> Result<Tensor, Failure> {
    let of = |what: &str| format!("{what} of input '{name}'");
    let dtype = dtype(i.dtype, name)?;
    if i.rank > MOST_DIMS {
        return Err(usage(format!(
            "input '{name}' cannot have {} dimensions; give {MOST_DIMS} at most",
            i.rank
        )));
    }
    // SAFETY: it has so many members.
    let shape = unsafe { list(i.shape, i.rank, &of("the shape"))? };
    let extent = |&n: &i64| usize::try_from(n);
    let shape: Vec<usize> = shape
        .iter()
        .map(extent)
        .collect::<Result<_, _>>()
        .map_err(|_| {
            usage(format!(
                "{} is negative in {shape:?}; give sizes",
                of("an extent")
            ))
        })?;
    let wrong = |e: shopfloor::TensorError| usage(format!("input '{name}': {e}"));
    if dtype == DType::Str {
        // The texts are read by their pointers: only where the model takes texts, and as many as the shape has.
        let want = Tensor::byte_len(DType::U64, &shape).map_err(wrong)?;
        let each = size_of::<*const c_char>();
        if !is_text || want / 8 * each != i.bytes {
            return Err(usage(format!(
                "input '{name}' is given as {} B of pointers to texts, and {} are needed; give a pointer for each element of an input that takes texts",
                i.bytes,
                if is_text { want / 8 * each } else { 0 }
            )));
        }
        // SAFETY: there are so many pointers.
        let texts = unsafe {
            list(
                i.data.cast::<*const c_char>(),
                i.bytes / each,
                &of("the data"),
            )?
        };
        let read = texts.iter().map(|&t| {
            // SAFETY: it is null or ends with a zero byte.
            unsafe { text(t, &of("a text")) }.map(ToString::to_string)
        });
        return Tensor::from_text(&shape, read.collect::<Result<_, _>>()?).map_err(wrong);
    }
    let want = Tensor::byte_len(dtype, &shape).map_err(wrong)?;
    if want != i.bytes {
        return Err(usage(format!(
            "input '{name}' is given {} B for {dtype}{shape:?}, which takes {want} B; give as many",
            i.bytes
        )));
    }
    // SAFETY: there are so many bytes.
    let bytes = unsafe { list(i.data.cast::<u8>(), i.bytes, &of("the data"))? };
    // SAFETY: they are as many as the tensor takes, and the caller leaves them as they are while the call lasts, which
    // no tensor over them outlives.
    let tensor = unsafe { Tensor::from_raw_parts(dtype, &shape, bytes.as_ptr(), ()) };
    Ok(tensor.map_err(wrong)?.aligned())
}

/// The inputs of a request with their names, over the caller's memory.
///
/// # Safety
/// What they point to is as the header says, for as long as the tensors live.
pub(crate) unsafe fn inputs_of<'a>(
    inputs: *const shopfloor_input,
    count: usize,
    takes: &Takes,
) -> Result<Vec<(&'a str, Tensor)>, Failure> {
    if count > takes.most {
        return Err(usage(format!(
            "{count} inputs are given, and the model has {}; give each once",
            takes.most
        )));
    }
    // SAFETY: there are so many.
    let inputs = unsafe { list(inputs, count, "inputs")? };
    let named = inputs.iter().map(|i| {
        // SAFETY: it is null or ends with a zero byte.
        let name = unsafe { text(i.name, "the name of an input")? };
        let is_text = takes.texts.contains(name);
        // SAFETY: the caller lets no tensor outlive its memory.
        Ok((name, unsafe { tensor(i, name, is_text)? }))
    });
    named.collect()
}

/// Runs one request on inputs of the caller's.
///
/// # Safety
/// As in the crate's head.
unsafe fn run(
    session: *const shopfloor_session,
    inputs: *const shopfloor_input,
    count: usize,
    call: *const shopfloor_call,
) -> Result<Outputs, Failure> {
    // SAFETY: it is null or ours.
    let session = unsafe { given(session, "session")? };
    // SAFETY: the tensors are gone when this returns.
    let named = unsafe { inputs_of(inputs, count, &session.takes)? };
    let refs: Vec<(&str, &Tensor)> = named.iter().map(|(n, t)| (*n, t)).collect();
    if call.is_null() {
        return Ok(session.inner.run(&refs)?);
    }
    // SAFETY: it is not null.
    let call = unsafe { given(call, "call")? };
    let cancel = match call.cancel.is_null() {
        true => None,
        // SAFETY: it is ours.
        false => Some(&unsafe { given(call.cancel, "cancel")? }.0),
    };
    let deadline = match call.deadline_s {
        0.0 => None,
        s => Some(Duration::try_from_secs_f64(s).map_err(|e| {
            usage(format!(
                "a deadline of {s} s cannot be: {e}; give seconds, or 0 for any time"
            ))
        })?),
    };
    Ok(session.inner.run_call(&refs, Call { cancel, deadline })?)
}

/// Runs one request: `count` inputs, in any order. `call` may be NULL. What it gives goes to `outputs`, which is NULL
/// where this fails. It returns when the request is done; the calling thread works too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_run(
    session: *const shopfloor_session,
    inputs: *const shopfloor_input,
    count: usize,
    call: *const shopfloor_call,
    outputs: *mut *mut shopfloor_outputs,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or has room for a pointer.
        unsafe { put(outputs, ptr::null_mut(), "outputs")? };
        // SAFETY: as the header says.
        let all = unsafe { run(session, inputs, count, call)? };
        let made = shopfloor_outputs::new(all.into_vec());
        // SAFETY: as above.
        unsafe { put(outputs, made, "outputs") }
    })
}

/// Runs one request and copies outputs into memory of the caller's: `buffers` of them, those that it names. Nothing
/// is written where this fails, but for `bytes` and `rank` of the buffers, which say what is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_run_into(
    session: *const shopfloor_session,
    inputs: *const shopfloor_input,
    count: usize,
    call: *const shopfloor_call,
    buffers: *mut shopfloor_buffer,
    buffer_count: usize,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: it is null or ours.
        let has = unsafe { given(session, "session")? }.inner.outputs().len();
        if buffer_count > has {
            return Err(usage(format!(
                "{buffer_count} buffers are given, and the model has {has} outputs; give each once"
            )));
        }
        // SAFETY: there are so many, and nobody else has them.
        let buffers = unsafe { list_mut(buffers, buffer_count, "buffers")? };
        // SAFETY: as the header says.
        let outputs = unsafe { run(session, inputs, count, call)? };
        let mut wrong = None;
        let mut found = vec![];
        for b in buffers.iter_mut() {
            // SAFETY: it is null or ends with a zero byte.
            let name = unsafe { text(b.name, "the name of a buffer")? };
            let Some(t) = outputs.get(name) else {
                return Err(usage(format!(
                    "the model has no output '{name}'; name one that it has"
                )));
            };
            (b.bytes, b.rank) = (t.bytes().len(), t.shape().len());
            found.push(t);
            if let Err(e) = fits(b, name, t) {
                wrong.get_or_insert(e);
            }
        }
        if let Some(e) = wrong {
            return Err(e);
        }
        for (b, t) in buffers.iter_mut().zip(found) {
            // SAFETY: there is room for so many, which `fits` saw to.
            let shape = unsafe { list_mut(b.shape, b.rank, "the shape of a buffer")? };
            for (to, &n) in shape.iter_mut().zip(t.shape()) {
                *to = n as i64;
            }
            // SAFETY: there is room, which `fits` saw to; the tensor's bytes lie elsewhere.
            unsafe { ptr::copy(t.bytes().as_ptr(), b.data.cast::<u8>(), b.bytes) };
        }
        Ok(())
    })
}

/// Whether an output fits a buffer.
fn fits(b: &shopfloor_buffer, name: &str, t: &Tensor) -> Result<(), Failure> {
    if t.dtype().is_held() || dtype(b.dtype, name)? != t.dtype() {
        return Err(usage(format!(
            "output '{name}' is {}, which its buffer is not for; state that type, and take texts from shopfloor_run",
            t.dtype()
        )));
    }
    if b.capacity < b.bytes || (b.data.is_null() && b.bytes > 0) {
        let room = if b.data.is_null() { 0 } else { b.capacity };
        return Err(usage(format!(
            "output '{name}' takes {} B, and its buffer has {room} B; give it more",
            b.bytes
        )));
    }
    if b.most_dims < b.rank || (b.shape.is_null() && b.rank > 0) || !b.shape.is_aligned() {
        return Err(usage(format!(
            "output '{name}' has {} dimensions, which its buffer has no room for; give it room for them",
            b.rank
        )));
    }
    Ok(())
}

/// A handle that was not used yet; NULL only where there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn shopfloor_cancel_new() -> *mut shopfloor_cancel {
    calm(ptr::null_mut(), || {
        Box::into_raw(Box::new(shopfloor_cancel(Cancel::new())))
    })
}

/// Gives up every request that has this handle, and those that will have it: they end with SHOPFLOOR_CANCELLED. From
/// any thread; NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_cancel_now(cancel: *const shopfloor_cancel) {
    // SAFETY: it is null or ours.
    calm((), || {
        if let Some(c) = unsafe { cancel.as_ref() } {
            c.0.cancel();
        }
    });
}

/// Frees it; NULL is nothing. No request may have it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_cancel_free(cancel: *mut shopfloor_cancel) {
    // SAFETY: it is null or ours and was not freed.
    unsafe { free(cancel) }
}

/// Number of outputs; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_outputs_count(outputs: *const shopfloor_outputs) -> usize {
    // SAFETY: they are null or ours.
    calm(0, || unsafe { outputs.as_ref() }.map_or(0, |o| o.0.len()))
}

fn at(outputs: &shopfloor_outputs, index: usize) -> Result<&Output, Failure> {
    let found = outputs.0.get(index);
    found.ok_or_else(|| {
        let n = outputs.0.len();
        usage(format!("there is no output {index}; there are {n}"))
    })
}

/// Output number `index`, in the model's order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_outputs_get(
    outputs: *const shopfloor_outputs,
    index: usize,
    output: *mut shopfloor_output,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: they are null or ours.
        let outputs = unsafe { given(outputs, "outputs")? };
        // SAFETY: it is null or has room for one.
        unsafe { put(output, at(outputs, index)?.view(), "output") }
    })
}

/// The output `name`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_outputs_find(
    outputs: *const shopfloor_outputs,
    name: *const c_char,
    output: *mut shopfloor_output,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: they are null or ours.
        let outputs = unsafe { given(outputs, "outputs")? };
        // SAFETY: it is null or ends with a zero byte.
        let name = unsafe { text(name, "name")? };
        let mut all = outputs.0.iter();
        let Some(found) = all.find(|o| o.name.to_bytes() == name.as_bytes()) else {
            return Err(usage(format!(
                "the model has no output '{name}'; name one that it has"
            )));
        };
        // SAFETY: it is null or has room for one.
        unsafe { put(output, found.view(), "output") }
    })
}

/// Text number `element` of output number `index`: its bytes, which end with no zero byte and live as long as the
/// outputs, and how many they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_outputs_text(
    outputs: *const shopfloor_outputs,
    index: usize,
    element: usize,
    text: *mut *const c_char,
    bytes: *mut usize,
) -> *mut shopfloor_error {
    guarded(|| {
        // SAFETY: they are null or ours.
        let tensor = &at(unsafe { given(outputs, "outputs")? }, index)?.tensor;
        let (_, all) = tensor
            .try_extract_strings()
            .map_err(|e| Error::Usage(e.to_string()))?;
        let Some(found) = all.get(element) else {
            let n = all.len();
            return Err(usage(format!(
                "output {index} has no text {element}; it has {n}"
            )));
        };
        // SAFETY: they are null or have room for one each.
        unsafe {
            put(text, found.as_ptr().cast(), "text")?;
            put(bytes, found.len(), "bytes")
        }
    })
}

/// Frees them; NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shopfloor_outputs_free(outputs: *mut shopfloor_outputs) {
    // SAFETY: they are null or ours and were not freed.
    unsafe { free(outputs) }
}
