//! Tensors of a caller's arrays, and views of their elements.

use shopfloor::{DType, Tensor, TensorElement, TensorError};

fn there_and_back<T: TensorElement + PartialEq>(values: Vec<T>) {
    let n = values.len();
    let at = values.as_ptr().addr();
    let mut t = Tensor::from_array(([1, n], values.clone())).unwrap();
    assert_eq!((t.dtype(), t.shape()), (T::DTYPE, &[1, n][..]));
    assert_eq!(t.as_slice::<T>().unwrap(), values);
    assert_eq!(t.try_extract_tensor::<T>().unwrap().1, values);
    // A vector is the tensor's memory, and a view lies in it.
    let moved = Tensor::from_array(([n], values)).unwrap();
    assert_eq!(moved.as_slice::<T>().unwrap().as_ptr().addr(), at);
    t.as_mut_slice::<T>().unwrap().reverse();
    let mut back = moved.as_slice::<T>().unwrap().to_vec();
    back.reverse();
    assert_eq!(t.as_slice::<T>().unwrap(), back);
    // What was copied is a tensor as well.
    assert_eq!(t.clone().as_slice::<T>().unwrap(), back);
    let bytes = Tensor::from_bytes(T::DTYPE, &[n], t.bytes().to_vec()).unwrap();
    assert_eq!(bytes.as_slice::<T>().unwrap(), back);
}

#[test]
fn every_type_goes_there_and_back_without_copies() {
    there_and_back(vec![1.5f32, -0.0, f32::INFINITY]);
    there_and_back(vec![1.5f64, -2.5]);
    there_and_back([0.5f32, -3.0].map(half::f16::from_f32).to_vec());
    there_and_back([0.5f32, -3.0].map(half::bf16::from_f32).to_vec());
    there_and_back(vec![i8::MIN, 0, i8::MAX]);
    there_and_back(vec![0u8, 255, 7]);
    there_and_back(vec![i16::MIN, 0, i16::MAX]);
    there_and_back(vec![0u16, 65535]);
    there_and_back(vec![i32::MIN, 0, i32::MAX]);
    there_and_back(vec![0u32, u32::MAX]);
    there_and_back(vec![i64::MIN, 0, i64::MAX]);
    there_and_back(vec![0u64, u64::MAX]);
    there_and_back(vec![true, false, false]);
}

#[test]
fn shapes_come_as_callers_write_them() {
    let ones = || vec![1.0f32; 6];
    let shape = |t: Result<Tensor, TensorError>| t.unwrap().shape().to_vec();
    assert_eq!(shape(Tensor::from_array(([2, 3], ones()))), [2, 3]);
    assert_eq!(shape(Tensor::from_array(([2usize, 3], ones()))), [2, 3]);
    assert_eq!(shape(Tensor::from_array((vec![2i64, 3], ones()))), [2, 3]);
    assert_eq!(shape(Tensor::from_array((&[6i64][..], ones()))), [6]);
    let boxed: Box<[f32]> = ones().into();
    assert_eq!(shape(Tensor::from_array(([2, 3], boxed))), [2, 3]);
    assert_eq!(shape(Tensor::from_array(([2, 3], &ones()[..]))), [2, 3]);
    assert_eq!(shape(Tensor::from_array(((), vec![1i64]))), [0usize; 0]);
    assert_eq!(
        shape(Tensor::from_array(([0, 3], Vec::<f32>::new()))),
        [0, 3]
    );
    let e = Tensor::from_array(([2, 4], ones())).unwrap_err();
    assert!(
        matches!(
            e,
            TensorError::Length {
                want: 32,
                got: 24,
                ..
            }
        ),
        "{e}"
    );
    let e = Tensor::from_array(([-2i64, -3], ones())).unwrap_err();
    assert!(e.to_string().contains("-2"), "{e}");
    assert!(Tensor::from_array(([usize::MAX, 2, 2], ones())).is_err());
}

#[test]
fn texts_are_tensors() {
    let words = vec!["one".to_string(), String::new()];
    let t = Tensor::from_array(([2], words.clone())).unwrap();
    assert_eq!(t.dtype(), DType::Str);
    assert_eq!(t.try_extract_strings().unwrap(), (&[2][..], &words[..]));
    let t = Tensor::from_array(([1, 2], &["one", ""][..])).unwrap();
    assert_eq!(t.try_extract_strings().unwrap().1, words);
    assert!(t.as_slice::<u8>().is_err());
    assert!(Tensor::from_array(([3], words)).is_err());
    let n = Tensor::from_array(([1], vec![1i64])).unwrap();
    assert!(n.try_extract_strings().is_err());
}

#[test]
fn wrong_views_are_refused() {
    let t = Tensor::from_array(([2], vec![1.0f32, 2.0])).unwrap();
    let e = t.as_slice::<i32>().unwrap_err().to_string();
    assert!(e.contains("f32") && e.contains("i32"), "{e}");
    let e = t.try_extract_scalar::<f32>().unwrap_err().to_string();
    assert!(e.contains("one element"), "{e}");
    let one = Tensor::from_array(((), vec![5i64])).unwrap();
    assert_eq!(one.try_extract_scalar::<i64>().unwrap(), 5);
    // A byte that is no bool.
    let t = Tensor::from_bytes(DType::Bool, &[3], vec![0, 1, 2]).unwrap();
    assert!(matches!(
        t.as_slice::<bool>(),
        Err(TensorError::Values { .. })
    ));
    let mut t = Tensor::from_bytes(DType::Bool, &[1], vec![7]).unwrap();
    assert!(t.as_mut_slice::<bool>().is_err());
    t.bytes_mut()[0] = 1;
    assert_eq!(t.as_slice::<bool>().unwrap(), [true]);
}

/// Memory that begins one byte too late.
struct Late(Vec<u8>);

impl std::ops::Deref for Late {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0[1..]
    }
}

impl std::ops::DerefMut for Late {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0[1..]
    }
}

impl shopfloor::TensorMemory for Late {}

#[test]
fn memory_between_two_elements_is_copied_on_request() {
    let mut bytes = vec![0];
    bytes.extend([1.0f32, 2.0].iter().flat_map(|x| x.to_le_bytes()));
    let late = Box::new(Late(bytes));
    let t = Tensor::from_memory(DType::F32, &[2], late).unwrap();
    let odd = !t.bytes().as_ptr().addr().is_multiple_of(4);
    assert_eq!(odd, t.as_slice::<f32>().is_err());
    assert_eq!(t.to_f32().unwrap(), [1.0, 2.0]);
    assert_eq!(t.aligned().as_slice::<f32>().unwrap(), [1.0, 2.0]);
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_of_ndarray_are_tensors() {
    use ndarray::{Array, Array2, s};
    let a = Array::from_shape_fn((3, 4), |(i, j)| (10 * i + j) as f32);
    let same = |t: &Tensor, a: &Array2<f32>| {
        assert_eq!(t.try_extract_array::<f32>().unwrap(), a.clone().into_dyn());
    };
    same(&Tensor::from_array(a.clone()).unwrap(), &a);
    same(&Tensor::from_array(a.view()).unwrap(), &a);
    let turned = a.t().to_owned();
    same(&Tensor::from_array(a.t()).unwrap(), &turned);
    same(
        &Tensor::from_array(a.clone().reversed_axes()).unwrap(),
        &turned,
    );
    let part = a.clone().slice_move(s![1.., ..;2]);
    same(&Tensor::from_array(part.clone()).unwrap(), &part);
    let rows = a.clone().slice_move(s![1..2, ..]);
    same(&Tensor::from_array(rows.clone()).unwrap(), &rows);
    let none = Array2::<f32>::zeros((0, 4));
    same(&Tensor::from_array(none.clone()).unwrap(), &none);
    let mut t = Tensor::from_array(a).unwrap();
    t.try_extract_array_mut::<f32>().unwrap()[[1, 1]] = 7.0;
    assert_eq!(t.as_slice::<f32>().unwrap()[5], 7.0);
}
