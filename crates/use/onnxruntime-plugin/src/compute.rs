//! Runs a group of nodes: inputs are read where onnxruntime has them, outputs are copied to where it wants them.
//!
//! # Safety
//! onnxruntime calls the functions here with what [`Compute::handed`] made and was not released, and with pointers of its
//! own, or to room for results, that stay while it calls. Several threads may call at once.
use crate::abi::slots::Status;
use crate::abi::tables::OrtNodeComputeInfo;
use crate::abi::{FILLED, OrtKernelContext, OrtNodeComputeContext, OrtValue, code};
use crate::boundary::{Failure, Ort};
use crate::{element, read};
use shopfloor::{DType, ErrorKind, Outputs, Session, Tensor};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;

/// A group of nodes that is ready: onnxruntime's table, and what is ours behind it.
#[repr(C)]
pub(crate) struct Compute {
    table: OrtNodeComputeInfo,
    ort: Ort,
    session: Session,
    /// A session for requests of other sizes than the graph states, made when the first one comes.
    open: Open,
    /// Names of the inputs, in the order of its node's.
    inputs: Vec<String>,
    /// Names of the outputs, in the order of its node's.
    outputs: Vec<String>,
}

/// How a session is made that takes the sizes of requests for what they are; onnxruntime does not see to it that those
/// which it derives, or a model states, are true.
pub(crate) struct Open {
    make: Box<dyn Fn() -> Result<Session, shopfloor::Error> + Send + Sync>,
    made: OnceLock<Option<Session>>,
}

impl Open {
    pub(crate) fn new(
        make: impl Fn() -> Result<Session, shopfloor::Error> + Send + Sync + 'static,
    ) -> Open {
        Open {
            make: Box::new(make),
            made: OnceLock::new(),
        }
    }

    fn session(&self) -> Option<&Session> {
        self.made.get_or_init(|| (self.make)().ok()).as_ref()
    }
}

impl Compute {
    /// A group that is ready, to be handed to onnxruntime.
    pub(crate) fn handed(
        ort: Ort,
        (session, open): (Session, Open),
        inputs: Vec<String>,
        outputs: Vec<String>,
    ) -> *mut OrtNodeComputeInfo {
        let compute = Compute {
            table: OrtNodeComputeInfo {
                version: FILLED,
                create_state,
                compute,
                release_state,
            },
            ort,
            session,
            open,
            inputs,
            outputs,
        };
        Box::into_raw(Box::new(compute)).cast()
    }

    /// Frees it; null is nothing.
    ///
    /// # Safety
    /// It is null, or [`Compute::handed`] made it and it was not freed.
    pub(crate) unsafe fn free(info: *mut OrtNodeComputeInfo) {
        if !info.is_null() {
            // SAFETY: it is a box's.
            let drop = || drop(unsafe { Box::from_raw(info.cast::<Compute>()) });
            let _ = catch_unwind(AssertUnwindSafe(drop));
        }
    }

    /// What lies behind the table.
    ///
    /// # Safety
    /// As the file's head says.
    unsafe fn at<'a>(table: *const OrtNodeComputeInfo) -> &'a Compute {
        // SAFETY: the table is the first member of one of ours.
        unsafe { &*table.cast::<Compute>() }
    }

    fn outputs(&self, inputs: &[(&str, &Tensor)]) -> Result<Outputs, shopfloor::Error> {
        let out = self.session.run(inputs);
        match out {
            Err(e) if e.kind() == ErrorKind::Input => match self.open.session() {
                Some(open) => open.run(inputs).map_err(|_| e),
                None => Err(e),
            },
            out => out,
        }
    }

    /// Runs a request.
    ///
    /// # Safety
    /// As the file's head says.
    unsafe fn run(&self, context: *mut OrtKernelContext) -> Result<(), Failure> {
        let a = &self.ort.api;
        let mut tensors = Vec::with_capacity(self.inputs.len());
        for (i, name) in self.inputs.iter().enumerate() {
            // SAFETY: it is the request's context; its inputs stay while it runs, and the tensors do not outlive this.
            tensors.push(unsafe {
                let held = self
                    .ort
                    .got(ptr::null(), |p| (a.kernel_context_get_input)(context, i, p))?;
                input(&self.ort, held, name)?
            });
        }
        let named: Vec<(&str, &Tensor)> = self
            .inputs
            .iter()
            .map(String::as_str)
            .zip(&tensors)
            .collect();
        let outputs = self.outputs(&named).map_err(|e| e.to_string())?;
        for (i, name) in self.outputs.iter().enumerate() {
            let tensor = outputs.get(name).ok_or_else(|| {
                format!("output '{name}' was not made; this is a fault of shopfloor, please report it with the model")
            })?;
            // SAFETY: it is the request's context.
            unsafe { output(&self.ort, context, (i, name), tensor)? };
        }
        Ok(())
    }
}

/// An input as a tensor of ours, over onnxruntime's memory.
///
/// # Safety
/// `held` is null or a value of onnxruntime's that stays as it is as long as the tensor lives.
unsafe fn input(ort: &Ort, held: *const OrtValue, name: &str) -> Result<Tensor, Failure> {
    let wrong = |what: &str| Failure::new(code::INVALID_ARGUMENT, format!("input '{name}' {what}"));
    if held.is_null() {
        return Err(wrong("is not given; give it"));
    }
    // SAFETY: it is onnxruntime's.
    unsafe {
        if ort.got(0, |p| (ort.api.is_tensor)(held, p))? == 0 {
            return Err(wrong("is no tensor; give a tensor"));
        }
        let (number, shape) = read::type_and_shape(ort, held)?;
        let dtype = element::onnx_of(number).and_then(element::dtype);
        let dtype = dtype.ok_or_else(|| {
            wrong(&format!(
                "has elements of type {number}, which are not covered"
            ))
        })?;
        let extents: Result<Vec<usize>, _> = shape.iter().map(|&d| usize::try_from(d)).collect();
        let extents =
            extents.map_err(|_| wrong(&format!("cannot have shape {shape:?}; give sizes")))?;
        let of_tensor = |e: shopfloor::TensorError| wrong(&format!("cannot be read: {e}"));
        if dtype == DType::Str {
            let all = read::texts(ort, held, &shape)?;
            let text = |t: Vec<u8>| {
                String::from_utf8(t).map_err(|_| wrong("holds text that is no UTF-8; give UTF-8"))
            };
            let all = all.into_iter().map(text).collect::<Result<_, _>>()?;
            return Tensor::from_text(&extents, all).map_err(of_tensor);
        }
        let size = ort.got(0usize, |p| (ort.api.get_tensor_size_in_bytes)(held, p))?;
        let want = Tensor::byte_len(dtype, &extents).map_err(of_tensor)?;
        if size < want {
            return Err(wrong(&format!(
                "has {size} B where {dtype}{shape:?} takes {want} B; give as many"
            )));
        }
        let start = ort.got(ptr::null(), |p| (ort.api.get_tensor_data)(held, p))?;
        if start.is_null() || want == 0 {
            return Tensor::zeros(dtype, &extents).map_err(of_tensor);
        }
        // SAFETY: so many bytes lie there, and the caller promises that they stay.
        let tensor = Tensor::from_raw_parts(dtype, &extents, start.cast(), ());
        Ok(tensor.map_err(of_tensor)?.aligned())
    }
}

/// Copies a tensor to where onnxruntime wants output number `i`.
///
/// # Safety
/// `context` is the one of the running request.
unsafe fn output(
    ort: &Ort,
    context: *mut OrtKernelContext,
    (i, name): (usize, &str),
    tensor: &Tensor,
) -> Result<(), Failure> {
    let a = &ort.api;
    let shape: Vec<i64> = tensor.shape().iter().map(|&n| n as i64).collect();
    // SAFETY: it is the request's context, and the shape has so many members. What is copied fits the memory that
    // onnxruntime made for type and shape, which are looked at.
    unsafe {
        let held = ort.got(ptr::null_mut(), |p| {
            (a.kernel_context_get_output)(context, i, shape.as_ptr(), shape.len(), p)
        })?;
        if held.is_null() {
            return Ok(());
        }
        let (number, _) = read::type_and_shape(ort, held)?;
        if element::onnx_of(number).and_then(element::dtype) != Some(tensor.dtype()) {
            return Err(Failure::from(format!(
                "output '{name}' is {}, which the model states otherwise; correct the type that the model states",
                tensor.dtype()
            )));
        }
        if let Some(all) = tensor.text() {
            return texts(ort, held, all);
        }
        let bytes = tensor.bytes();
        let room = ort.got(0usize, |p| (a.get_tensor_size_in_bytes)(held, p))?;
        if room < bytes.len() {
            return Err(Failure::from(format!(
                "output '{name}' takes {} B, and onnxruntime has {room} B for it; report it with the model",
                bytes.len()
            )));
        }
        if !bytes.is_empty() {
            let to = ort.got(ptr::null_mut(), |p| (a.get_tensor_mutable_data)(held, p))?;
            ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len());
        }
        Ok(())
    }
}

/// Copies texts into a tensor of onnxruntime's.
///
/// # Safety
/// `held` is a tensor of so many texts.
unsafe fn texts(ort: &Ort, held: *mut OrtValue, all: &[String]) -> Result<(), Failure> {
    for (i, text) in all.iter().enumerate() {
        // SAFETY: it has so many texts; onnxruntime gives as many bytes for one as it is asked for.
        unsafe {
            let to = ort.got(ptr::null_mut(), |p| {
                (ort.api.get_resized_string_tensor_element_buffer)(held, i, text.len(), p)
            })?;
            if !text.is_empty() {
                ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), text.len());
            }
        }
    }
    Ok(())
}

unsafe extern "system" fn create_state(
    info: *mut OrtNodeComputeInfo,
    _: *mut OrtNodeComputeContext,
    state: *mut *mut c_void,
) -> Status {
    // SAFETY: there is room for it. Nothing stays between requests but what the session has.
    unsafe { *state = info.cast() };
    ptr::null_mut()
}

unsafe extern "system" fn compute(
    info: *mut OrtNodeComputeInfo,
    _: *mut c_void,
    context: *mut OrtKernelContext,
) -> Status {
    // SAFETY: as the file's head says.
    let this = unsafe { Compute::at(info) };
    // SAFETY: as above.
    this.ort.guarded(|| unsafe { this.run(context) })
}

unsafe extern "system" fn release_state(_: *mut OrtNodeComputeInfo, _: *mut c_void) {}
