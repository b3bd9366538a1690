//! Running sums at the speed of memory: row by row, as far as elements lie side by side.
use super::{Elem, Fast, Form, In, Out, input};
use crate::core::spec;
use crate::data::around;
use expr::Monoid;
use graph::HostSpec;
use layout::DType;
use tensor::Attrs;

pub(super) struct Sums {
    dtype: DType,
    axis: usize,
    exclusive: bool,
    reverse: bool,
}

pub(super) fn prepare(attrs: &Attrs) -> Option<Sums> {
    let Ok(HostSpec::Scan {
        monoid,
        axis,
        exclusive,
        reverse,
    }) = spec("core.scan", attrs)
    else {
        return None;
    };
    let types = [DType::F32, DType::F64, DType::I64, DType::I32];
    let dtype = types.into_iter().find(|d| monoid == Monoid::sum(*d, *d))?;
    Some(Sums {
        dtype,
        axis,
        exclusive,
        reverse,
    })
}

impl Sums {
    fn rows<T: Elem + Default>(&self, x: In, y: &mut Out, add: impl Fn(T, T) -> T) {
        let (outer, n, inner) = around(x.shape, self.axis);
        let (x, y) = (T::chunks(x.bytes), T::chunks_mut(y.bytes));
        let mut sums = vec![T::default(); inner];
        for o in 0..outer {
            sums.fill(T::default());
            for step in 0..n {
                let j = if self.reverse { n - 1 - step } else { step };
                let at = (o * n + j) * inner;
                let (x, y) = (&x[at..at + inner], &mut y[at..at + inner]);
                for ((s, x), y) in sums.iter_mut().zip(x).zip(y) {
                    let more = add(*s, T::get(*x));
                    *y = if self.exclusive { *s } else { more }.put();
                    *s = more;
                }
            }
        }
    }
}

impl Form for Sums {
    fn run(&self, inputs: &[Option<In<'_>>], outputs: &mut [Out<'_>]) -> Fast {
        let (Some(x), [y]) = (input(inputs, 0), outputs) else {
            return Ok(false);
        };
        let fits = inputs.len() == 1
            && x.dtype == self.dtype
            && y.dtype == self.dtype
            && y.shape == x.shape
            && self.axis < x.shape.len();
        if !fits {
            return Ok(false);
        }
        match self.dtype {
            DType::F32 => self.rows::<f32>(x, y, |a, b| a + b),
            DType::F64 => self.rows::<f64>(x, y, |a, b| a + b),
            DType::I64 => self.rows::<i64>(x, y, i64::wrapping_add),
            DType::I32 => self.rows::<i32>(x, y, i32::wrapping_add),
            _ => return Ok(false),
        }
        Ok(true)
    }
}
