//! Elements of tensors as Rust values: views of a tensor's memory, and tensors in the memory that a caller gives.
//! Nothing here copies element by element.
//!
//! The only unsafe code of this crate: bytes seen as elements, and elements seen as bytes.
#![allow(unsafe_code)]
use crate::storage::Memory;
use crate::{Tensor, TensorError};
use half::{bf16, f16};
use layout::DType;
use std::ops::{Deref, DerefMut};

/// A Rust type that elements of one dtype are: `f32`, `f64`, [`half::f16`], [`half::bf16`], the integers of 8 to
/// 64 bits, and `bool`. Types of 4 bits have two elements in a byte and no such type, texts are
/// [`Tensor::text`].
pub trait TensorElement: Copy + Send + Sync + std::fmt::Debug + 'static + sealed::Plain {
    /// The dtype.
    const DTYPE: DType;
}

mod sealed {
    /// # Safety
    /// A type without padding, pointers and drop code, of the dtype's width, for which every bit pattern that
    /// `holds` accepts is a value.
    pub unsafe trait Plain {
        /// Whether all of these bytes are elements.
        fn holds(_bytes: &[u8]) -> bool {
            true
        }
    }
}

macro_rules! plain {
    ($($t:ty => $d:ident),*) => {$(
        // SAFETY: a number: it has no padding, and all its bit patterns are values.
        unsafe impl sealed::Plain for $t {}
        impl TensorElement for $t {
            const DTYPE: DType = DType::$d;
        }
    )*};
}

plain! {
    f32 => F32, f64 => F64, f16 => F16, bf16 => BF16, i8 => I8, u8 => U8, i16 => I16, u16 => U16,
    i32 => I32, u32 => U32, i64 => I64, u64 => U64
}

// SAFETY: one byte, whose values are 0 and 1; others are not accepted.
unsafe impl sealed::Plain for bool {
    fn holds(bytes: &[u8]) -> bool {
        bytes.iter().all(|&b| b < 2)
    }
}

impl TensorElement for bool {
    const DTYPE: DType = DType::Bool;
}

/// Elements seen as bytes.
fn bytes_of<T: TensorElement>(elements: &[T]) -> &[u8] {
    // SAFETY: the same memory for as long; elements have no padding, so that every byte is initialised.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// A vector of a caller's as a tensor's memory.
struct Owned<T>(Vec<T>);

impl<T: TensorElement> Deref for Owned<T> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        bytes_of(&self.0)
    }
}

impl<T: TensorElement> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = size_of_val(&*self.0);
        // SAFETY: as in `bytes_of`; whatever bytes are written, nobody reads them as elements but for the
        // views below, which look at them first, and dropping the vector reads none.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), bytes) }
    }
}

impl<T: TensorElement> Memory for Owned<T> {}

/// What a tensor can be made of by [`Tensor::from_array`]: a shape with row-major elements (`Vec<T>`,
/// `Box<[T]>`, which become the tensor's memory, `&[T]`, which is copied once, `Vec<String>`, `&[&str]`), or
/// an `ndarray` array with the feature of that name.
pub trait IntoTensor {
    /// The tensor.
    ///
    /// # Errors
    /// Shape and number of elements disagree.
    fn into_tensor(self) -> Result<Tensor, TensorError>;
}

/// A shape: arrays, vectors and slices of `usize` or `i64`, and arrays of `i32` so that plain numbers are one;
/// `()` is that of a scalar.
pub trait ToShape {
    /// The extents, outermost first.
    ///
    /// # Errors
    /// One is negative.
    fn to_shape(&self) -> Result<Vec<usize>, TensorError>;
}

fn extents<T: Copy + TryInto<usize> + Into<i128>>(given: &[T]) -> Result<Vec<usize>, TensorError> {
    let each = |&n: &T| {
        n.try_into()
            .map_err(|_| TensorError::Extent { extent: n.into() })
    };
    given.iter().map(each).collect()
}

impl ToShape for [usize] {
    fn to_shape(&self) -> Result<Vec<usize>, TensorError> {
        Ok(self.to_vec())
    }
}

impl ToShape for [i64] {
    fn to_shape(&self) -> Result<Vec<usize>, TensorError> {
        extents(self)
    }
}

impl ToShape for [i32] {
    fn to_shape(&self) -> Result<Vec<usize>, TensorError> {
        extents(self)
    }
}

impl ToShape for () {
    fn to_shape(&self) -> Result<Vec<usize>, TensorError> {
        Ok(vec![])
    }
}

macro_rules! to_shape {
    ($($t:ty),*) => {$(
        impl<const N: usize> ToShape for [$t; N] {
            fn to_shape(&self) -> Result<Vec<usize>, TensorError> {
                self[..].to_shape()
            }
        }
        impl ToShape for Vec<$t> {
            fn to_shape(&self) -> Result<Vec<usize>, TensorError> {
                self[..].to_shape()
            }
        }
    )*};
}

to_shape!(usize, i64, i32);

impl<S: ToShape + ?Sized> ToShape for &S {
    fn to_shape(&self) -> Result<Vec<usize>, TensorError> {
        (**self).to_shape()
    }
}

impl<S: ToShape, T: TensorElement> IntoTensor for (S, Vec<T>) {
    fn into_tensor(self) -> Result<Tensor, TensorError> {
        Tensor::from_memory(T::DTYPE, &self.0.to_shape()?, Box::new(Owned(self.1)))
    }
}

impl<S: ToShape, T: TensorElement> IntoTensor for (S, Box<[T]>) {
    fn into_tensor(self) -> Result<Tensor, TensorError> {
        (self.0, self.1.into_vec()).into_tensor()
    }
}

impl<S: ToShape, T: TensorElement> IntoTensor for (S, &[T]) {
    fn into_tensor(self) -> Result<Tensor, TensorError> {
        (self.0, self.1.to_vec()).into_tensor()
    }
}

impl<S: ToShape, T: TensorElement, const N: usize> IntoTensor for (S, [T; N]) {
    fn into_tensor(self) -> Result<Tensor, TensorError> {
        (self.0, self.1.to_vec()).into_tensor()
    }
}

impl<S: ToShape> IntoTensor for (S, Vec<String>) {
    fn into_tensor(self) -> Result<Tensor, TensorError> {
        Tensor::from_text(&self.0.to_shape()?, self.1)
    }
}

impl<S: ToShape> IntoTensor for (S, &[&str]) {
    fn into_tensor(self) -> Result<Tensor, TensorError> {
        let text = self.1.iter().map(ToString::to_string).collect();
        Tensor::from_text(&self.0.to_shape()?, text)
    }
}

/// The remedy where memory begins between two elements.
fn misaligned<T: TensorElement>() -> TensorError {
    TensorError::Aligned {
        dtype: T::DTYPE,
        bytes: align_of::<T>(),
    }
}

impl Tensor {
    /// A tensor of a shape and its row-major elements: `Tensor::from_array(([1, 3], vec![1.0f32, 2.0, 3.0]))`.
    /// A vector becomes the tensor's memory as it is.
    ///
    /// # Errors
    /// Shape and number of elements disagree; a negative extent.
    pub fn from_array(source: impl IntoTensor) -> Result<Tensor, TensorError> {
        source.into_tensor()
    }

    fn checked<T: TensorElement>(&self) -> Result<(), TensorError> {
        if self.dtype() != T::DTYPE {
            return Err(TensorError::Type {
                want: T::DTYPE,
                got: self.dtype(),
            });
        }
        match T::holds(self.bytes()) {
            true => Ok(()),
            false => Err(TensorError::Values { dtype: T::DTYPE }),
        }
    }

    /// The elements in row-major order, where they lie.
    ///
    /// # Errors
    /// The tensor holds another type; bytes that are no elements (a `Bool` that is neither 0 nor 1); memory of
    /// a caller's that begins between two elements ([`Tensor::aligned`] copies it).
    pub fn as_slice<T: TensorElement>(&self) -> Result<&[T], TensorError> {
        self.checked::<T>()?;
        if self.bytes().is_empty() {
            return Ok(&[]);
        }
        // SAFETY: every bit pattern that was looked at in `checked` is an element.
        match unsafe { self.bytes().align_to::<T>() } {
            ([], elements, []) => Ok(elements),
            _ => Err(misaligned::<T>()),
        }
    }

    /// The elements in row-major order, to be changed in place.
    ///
    /// # Errors
    /// As [`Tensor::as_slice`].
    pub fn as_mut_slice<T: TensorElement>(&mut self) -> Result<&mut [T], TensorError> {
        self.checked::<T>()?;
        if self.bytes().is_empty() {
            return Ok(&mut []);
        }
        // SAFETY: as above; every element is made of initialised bytes.
        match unsafe { self.bytes_mut().align_to_mut::<T>() } {
            ([], elements, []) => Ok(elements),
            _ => Err(misaligned::<T>()),
        }
    }

    /// The shape (extents, outermost first) and the elements in row-major order, where they lie.
    ///
    /// # Errors
    /// As [`Tensor::as_slice`].
    pub fn try_extract_tensor<T: TensorElement>(&self) -> Result<(&[usize], &[T]), TensorError> {
        Ok((self.shape(), self.as_slice()?))
    }

    /// The only element.
    ///
    /// # Errors
    /// As [`Tensor::as_slice`]; there is not exactly one element.
    pub fn try_extract_scalar<T: TensorElement>(&self) -> Result<T, TensorError> {
        match self.as_slice()? {
            [one] => Ok(*one),
            _ => Err(TensorError::Scalar {
                shape: self.shape().to_vec(),
            }),
        }
    }

    /// The shape and the texts in row-major order.
    ///
    /// # Errors
    /// The tensor holds no texts.
    pub fn try_extract_strings(&self) -> Result<(&[usize], &[String]), TensorError> {
        match self.text() {
            Some(text) => Ok((self.shape(), text)),
            None => Err(TensorError::Type {
                want: DType::Str,
                got: self.dtype(),
            }),
        }
    }

    /// The same tensor in memory that begins where an element of any type may: copied once where it does not
    /// lie so, as memory of a caller's may.
    #[must_use]
    pub fn aligned(self) -> Tensor {
        if self
            .bytes()
            .as_ptr()
            .addr()
            .is_multiple_of(align_of::<u64>())
            || self.bytes().is_empty()
        {
            return self;
        }
        let mut words = Words {
            words: vec![0; self.bytes().len().div_ceil(size_of::<u64>())],
            bytes: self.bytes().len(),
        };
        words.copy_from_slice(self.bytes());
        self.with_memory(Box::new(words))
    }
}

/// Memory that begins where an element of any type may.
struct Words {
    words: Vec<u64>,
    bytes: usize,
}

impl Deref for Words {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &bytes_of(&self.words)[..self.bytes]
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u8] {
        let all = size_of_val(&*self.words);
        // SAFETY: the same memory for as long, of numbers, which any bytes are.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), all) };
        &mut bytes[..self.bytes]
    }
}

impl Memory for Words {}

/// Memory of somebody else's, which is read where it lies, and copied when somebody writes.
struct Borrowed<O> {
    /// Keeps the bytes where they are.
    _owner: O,
    start: *const u8,
    len: usize,
    own: Option<Vec<u8>>,
}

// SAFETY: the bytes at `start` are only read, and `from_raw_parts` was promised that nobody changes them.
unsafe impl<O: Send> Send for Borrowed<O> {}
// SAFETY: as above; the owner is not reached through a reference to this.
unsafe impl<O: Send> Sync for Borrowed<O> {}

impl<O> Deref for Borrowed<O> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.own {
            Some(own) => own,
            None if self.len == 0 => &[],
            // SAFETY: `from_raw_parts` was promised so many bytes there.
            None => unsafe { std::slice::from_raw_parts(self.start, self.len) },
        }
    }
}

impl<O> DerefMut for Borrowed<O> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let own = self.own.take().unwrap_or_else(|| self.to_vec());
        self.own.insert(own)
    }
}

impl<O: Send> Memory for Borrowed<O> {}

impl Tensor {
    /// A tensor over memory that something else owns, which is dropped with the tensor: row-major elements from
    /// `start` on. Nothing is copied before somebody writes to the tensor.
    ///
    /// # Safety
    /// As many bytes as type and shape come to lie at `start`, and stay there unchanged as long as `owner` lives.
    ///
    /// # Errors
    /// The shape is too large; texts and values of the host have no bytes.
    pub unsafe fn from_raw_parts<O: Send + 'static>(
        dtype: DType,
        shape: &[usize],
        start: *const u8,
        owner: O,
    ) -> Result<Tensor, TensorError> {
        let memory = Borrowed {
            len: Tensor::byte_len(dtype, shape)?,
            _owner: owner,
            start,
            own: None,
        };
        Tensor::from_memory(dtype, shape, Box::new(memory))
    }
}

/// Arrays of `ndarray`.
#[cfg(feature = "ndarray")]
mod arrays {
    use super::{IntoTensor, TensorElement};
    use crate::{Tensor, TensorError};
    use ndarray::{Array, ArrayView, ArrayViewD, ArrayViewMutD, Dimension, IxDyn};

    impl<T: TensorElement, D: Dimension> IntoTensor for Array<T, D> {
        fn into_tensor(self) -> Result<Tensor, TensorError> {
            let shape = self.shape().to_vec();
            let elements = match self.is_standard_layout() {
                true => match self.into_raw_vec_and_offset() {
                    (all, None | Some(0)) if all.len() == shape.iter().product() => all,
                    (all, at) => {
                        let from = at.unwrap_or(0);
                        all[from..from + shape.iter().product::<usize>()].to_vec()
                    }
                },
                false => self.iter().copied().collect(),
            };
            (shape, elements).into_tensor()
        }
    }

    impl<T: TensorElement, D: Dimension> IntoTensor for ArrayView<'_, T, D> {
        fn into_tensor(self) -> Result<Tensor, TensorError> {
            let elements = match self.as_slice() {
                Some(all) => all.to_vec(),
                None => self.iter().copied().collect(),
            };
            (self.shape(), elements).into_tensor()
        }
    }

    impl Tensor {
        /// The elements as an array of `ndarray`, where they lie.
        ///
        /// # Errors
        /// As [`Tensor::as_slice`].
        pub fn try_extract_array<T: TensorElement>(
            &self,
        ) -> Result<ArrayViewD<'_, T>, TensorError> {
            let view = ArrayView::from_shape(IxDyn(self.shape()), self.as_slice()?);
            view.map_err(|_| TensorError::TooLarge {
                shape: self.shape().to_vec(),
            })
        }

        /// The elements as an array of `ndarray`, to be changed in place.
        ///
        /// # Errors
        /// As [`Tensor::as_slice`].
        pub fn try_extract_array_mut<T: TensorElement>(
            &mut self,
        ) -> Result<ArrayViewMutD<'_, T>, TensorError> {
            let shape = self.shape().to_vec();
            let view = ArrayViewMutD::from_shape(IxDyn(&shape), self.as_mut_slice()?);
            view.map_err(|_| TensorError::TooLarge { shape })
        }
    }
}
