//! Host steps made ready once: attributes are read when a plan is compiled, and a run touches its
//! operands' memory only. Operators without a form of their own run as [`crate::run_step`] does,
//! which is also what these forms are tested against.
mod roi_align;
mod running;
mod scatter;
mod sort;
mod tree;

use crate::HostError;
use crate::error::{R, named};
use layout::DType;
use tensor::{Attrs, Tensor, TensorError};

/// A dense row-major operand that is read.
#[derive(Clone, Copy)]
pub struct In<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: &'a [usize],
    /// Elements, little endian; exactly as many as the shape has.
    pub bytes: &'a [u8],
}

/// A dense row-major operand that is written.
pub struct Out<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: &'a [usize],
    /// Elements, little endian; exactly as many as the shape has. Every one is written.
    pub bytes: &'a mut [u8],
}

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

/// What a fast form answers: done, or that these operands are not for it.
pub(crate) type Fast = R<bool>;

/// A form that takes some operand types only.
trait Form: Send + Sync {
    fn run(&self, inputs: &[Option<In<'_>>], outputs: &mut [Out<'_>]) -> Fast;
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

/// A Rust type that elements of some dtype are.
pub(crate) trait Elem: Copy + Send + Sync + 'static {
    /// Its bytes.
    type Bytes: AsRef<[u8]> + Copy;
    /// Elements of `b`, whose remainder is left out.
    fn chunks(b: &[u8]) -> &[Self::Bytes];
    /// Elements of `b` to be written.
    fn chunks_mut(b: &mut [u8]) -> &mut [Self::Bytes];
    /// From little-endian bytes.
    fn get(b: Self::Bytes) -> Self;
    /// As little-endian bytes.
    fn put(self) -> Self::Bytes;
}

macro_rules! elem {
    ($($t:ty, $n:literal;)*) => {$(
        impl Elem for $t {
            type Bytes = [u8; $n];
            #[inline(always)]
            fn chunks(b: &[u8]) -> &[[u8; $n]] {
                b.as_chunks().0
            }
            #[inline(always)]
            fn chunks_mut(b: &mut [u8]) -> &mut [[u8; $n]] {
                b.as_chunks_mut().0
            }
            #[inline(always)]
            fn get(b: [u8; $n]) -> $t {
                <$t>::from_le_bytes(b)
            }
            #[inline(always)]
            fn put(self) -> [u8; $n] {
                self.to_le_bytes()
            }
        }
    )*};
}

elem! {
    f32, 4;
    f64, 8;
    i32, 4;
    i64, 8;
    u8, 1;
    i8, 1;
}

/// Input `i`, which a fast form needs.
pub(crate) fn input<'a>(inputs: &[Option<In<'a>>], i: usize) -> Option<In<'a>> {
    inputs.get(i).copied().flatten()
}

/// The operands as the model gives them; `None` where optional ones are left out in between.
pub(crate) fn whole(attrs: &Attrs) -> Option<()> {
    match attrs.get("present") {
        None => Some(()),
        Some(tensor::Attr::Ints(p)) => p.iter().all(|p| *p != 0).then_some(()),
        Some(_) => None,
    }
}
