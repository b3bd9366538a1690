//! Host steps made ready once: attributes are read when a plan is compiled, and a run touches its
//! operands' memory only. Operators without a form of their own run as [`crate::run_step`] does,
//! which is also what these forms are tested against.
mod form;
mod roi_align;
mod running;
mod scatter;
mod sort;
mod tree;

use crate::HostError;
use crate::error::{R, named};
use form::Form;
pub(crate) use form::{Elem, Fast, input, whole};
pub use form::{In, Out};
use layout::DType;
use tensor::{Attrs, Tensor, TensorError};

/// A host step that is ready to run.
pub trait Prepared: Send + Sync {
    /// Runs it. Inputs are in ONNX order (`None`: left out), outputs as the plan has them.
    fn run(&self, inputs: &[Option<In<'_>>], outputs: &mut [Out<'_>]) -> Result<(), HostError>;

    /// The same on operands in memory of their own, for devices whose buffers the host does not see.
    ///
    /// # Errors
    /// As [`Prepared::run`].
    fn run_on_host_tensors(
        &self,
        inputs: &[Option<HostTensor>],
        outputs: &mut [HostTensor],
    ) -> Result<(), HostError> {
        let given = inputs.iter().map(|h| h.as_ref().map(HostTensor::read));
        let inputs: Vec<Option<In>> = given.collect();
        let mut outputs: Vec<Out> = outputs.iter_mut().map(HostTensor::write).collect();
        self.run(&inputs, &mut outputs)
    }
}

/// A dense row-major tensor of a host step in memory of its own.
pub struct HostTensor {
    dtype: DType,
    shape: Vec<usize>,
    /// Elements, little endian; exactly as many as the shape has.
    pub bytes: Vec<u8>,
}

impl HostTensor {
    /// Zeros of `dtype` and `shape`.
    ///
    /// # Errors
    /// Its size is beyond the address space.
    pub fn new(dtype: DType, shape: Vec<usize>) -> Result<HostTensor, TensorError> {
        let n = Tensor::byte_len(dtype, &shape)?;
        let bytes = vec![0; n];
        Ok(HostTensor {
            dtype,
            shape,
            bytes,
        })
    }

    fn read(&self) -> In<'_> {
        In {
            dtype: self.dtype,
            shape: &self.shape,
            bytes: &self.bytes,
        }
    }

    fn write(&mut self) -> Out<'_> {
        Out {
            dtype: self.dtype,
            shape: &self.shape,
            bytes: &mut self.bytes,
        }
    }
}

/// A form in front of plain code.
struct Step {
    name: String,
    attrs: Attrs,
    form: Option<Box<dyn Form>>,
}

/// Makes host step `name` ready. What does not fit in its attributes is an error when it runs.
pub fn prepare(name: &str, attrs: &Attrs) -> Box<dyn Prepared> {
    let form: Option<Box<dyn Form>> = match name {
        "core.scatter_nd" => boxed(scatter::prepare(attrs)),
        "core.scan" => boxed(running::prepare(attrs)),
        "core.sort" => boxed(sort::prepare(attrs)),
        "ScatterElements" => boxed(scatter::elements(attrs)),
        "RoiAlign" => boxed(roi_align::prepare(attrs)),
        "ml.TreeEnsembleRegressor" => boxed(tree::regressor(attrs)),
        "ml.TreeEnsembleClassifier" => boxed(tree::classifier(attrs)),
        _ => None,
    };
    Box::new(Step {
        name: name.into(),
        attrs: attrs.clone(),
        form,
    })
}

fn boxed<F: Form + 'static>(f: Option<F>) -> Option<Box<dyn Form>> {
    f.map(|f| Box::new(f) as Box<dyn Form>)
}

impl Prepared for Step {
    fn run(&self, inputs: &[Option<In<'_>>], outputs: &mut [Out<'_>]) -> Result<(), HostError> {
        if let Some(f) = &self.form
            && named(&self.name, f.run(inputs, outputs))?
        {
            return Ok(());
        }
        named(&self.name, fits(inputs, outputs))?;
        if let Some(native) = crate::native::code(&self.attrs) {
            let done = crate::native::run_in_place(native, &self.attrs, inputs, outputs);
            return named(&self.name, done);
        }
        let mut tensors = Vec::with_capacity(inputs.len());
        for i in inputs {
            let t = i.map(|i| Tensor::from_bytes(i.dtype, i.shape, i.bytes.to_vec()));
            tensors.push(named(&self.name, t.transpose().map_err(Into::into))?);
        }
        let refs: Vec<Option<&Tensor>> = tensors.iter().map(Option::as_ref).collect();
        let shapes: Vec<Vec<usize>> = outputs.iter().map(|o| o.shape.to_vec()).collect();
        let made = crate::run_step(&self.name, &self.attrs, &refs, &shapes)?;
        for (i, o) in outputs.iter_mut().enumerate() {
            let fits = |t: &&Tensor| t.dtype() == o.dtype && t.bytes().len() == o.bytes.len();
            let Some(t) = made.get(i).filter(fits) else {
                let why = format!(
                    "output {i} came out as {:?}, but the plan has {}{:?}",
                    made.get(i),
                    o.dtype,
                    o.shape
                );
                return named(&self.name, Err(why.into()));
            };
            o.bytes.copy_from_slice(t.bytes());
        }
        Ok(())
    }
}

/// Operands without bytes have no place here.
fn fits(inputs: &[Option<In<'_>>], outputs: &[Out<'_>]) -> R<()> {
    let held = |d: DType| d.is_held();
    if inputs.iter().flatten().any(|i| held(i.dtype)) || outputs.iter().any(|o| held(o.dtype)) {
        return Err("texts and sequences have no place in a block's memory".into());
    }
    Ok(())
}
