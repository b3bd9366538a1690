//! ScatterND and ScatterElements at the speed of memory: the copy, then slices or elements in the order of
//! the updates.
use super::{Elem, Fast, Form, In, Out, input, whole};
use crate::core::spec;
use crate::data::{axis, index, next, strides};
use crate::error::R;
use graph::{HostSpec, ScatterReduce};
use layout::DType;
use tensor::{Attr, Attrs};

pub(super) struct Scatter(ScatterReduce);

pub(super) fn prepare(attrs: &Attrs) -> Option<Scatter> {
    match spec("core.scatter_nd", attrs) {
        Ok(HostSpec::ScatterNd(r)) => Some(Scatter(r)),
        _ => None,
    }
}

/// Calls `f` with the place and the rank of every slice.
fn slices<I: Elem>(
    indices: &[u8],
    depth: usize,
    dims: &[usize],
    by: &[usize],
    number: impl Fn(I) -> i64,
    mut f: impl FnMut(usize, usize),
) -> R<()> {
    let all = I::chunks(indices);
    if let ([n], [s]) = (&dims[..depth], &by[..depth]) {
        for (k, i) in all.iter().enumerate() {
            f(index(number(I::get(*i)), *n)? * s, k);
        }
        return Ok(());
    }
    for (k, tuple) in all.chunks_exact(depth.max(1)).enumerate() {
        let mut at = 0;
        for (d, i) in tuple.iter().enumerate() {
            at += index(number(I::get(*i)), dims[d])? * by[d];
        }
        f(at, k);
    }
    Ok(())
}

/// What the slices of one call have in common.
struct Places<'a> {
    indices: In<'a>,
    depth: usize,
    dims: &'a [usize],
    by: Vec<usize>,
    inner: usize,
}

/// Where updates go.
trait Targets {
    /// Elements of an update.
    fn inner(&self) -> usize;

    /// Calls `f` with the place and the rank of every update; false where indices are of another type.
    fn each(&self, f: impl FnMut(usize, usize)) -> R<bool>;

    /// Updates combined with what is there.
    fn combine<T: Elem>(&self, out: &mut [u8], new: &[u8], f: impl Fn(T, T) -> T) -> R<bool> {
        let (out, new, n) = (T::chunks_mut(out), T::chunks(new), self.inner());
        if n == 1 {
            return self.each(|at, k| out[at] = f(T::get(out[at]), T::get(new[k])).put());
        }
        self.each(|at, k| {
            for (o, u) in out[at..at + n].iter_mut().zip(&new[k * n..(k + 1) * n]) {
                *o = f(T::get(*o), T::get(*u)).put();
            }
        })
    }

    fn floats(&self, how: ScatterReduce, d: DType, out: &mut [u8], new: &[u8]) -> R<bool> {
        match (d, how) {
            (DType::F32, ScatterReduce::Add) => self.combine::<f32>(out, new, |a, b| a + b),
            (DType::F32, ScatterReduce::Mul) => self.combine::<f32>(out, new, |a, b| a * b),
            (DType::F64, ScatterReduce::Add) => self.combine::<f64>(out, new, |a, b| a + b),
            (DType::F64, ScatterReduce::Mul) => self.combine::<f64>(out, new, |a, b| a * b),
            (DType::I64, ScatterReduce::Add) => {
                self.combine::<i64>(out, new, |a, b| a.wrapping_add(b))
            }
            (DType::I64, ScatterReduce::Max) => self.combine::<i64>(out, new, i64::max),
            (DType::I64, ScatterReduce::Min) => self.combine::<i64>(out, new, i64::min),
            (DType::F32, ScatterReduce::Max) => self.combine::<f32>(out, new, largest),
            (DType::F32, ScatterReduce::Min) => {
                self.combine::<f32>(out, new, |a, b| -largest(-a, -b))
            }
            _ => Ok(false),
        }
    }
}

impl Targets for Places<'_> {
    fn inner(&self) -> usize {
        self.inner
    }

    fn each(&self, f: impl FnMut(usize, usize)) -> R<bool> {
        let (i, d) = (self.indices.bytes, self.depth);
        match self.indices.dtype {
            DType::I64 => slices::<i64>(i, d, self.dims, &self.by, |x| x, f)?,
            DType::I32 => slices::<i32>(i, d, self.dims, &self.by, i64::from, f)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A NaN on either side stays, and -0 counts as smaller than 0.
#[inline(always)]
fn largest(a: f32, b: f32) -> f32 {
    let second = a < b || b.is_nan() || (a == b && a.is_sign_negative());
    if second { b } else { a }
}

impl Form for Scatter {
    fn run(&self, inputs: &[Option<In<'_>>], outputs: &mut [Out<'_>]) -> Fast {
        let (Some(x), Some(i), Some(u)) = (input(inputs, 0), input(inputs, 1), input(inputs, 2))
        else {
            return Ok(false);
        };
        let ([y], Some(&depth)) = (outputs, i.shape.last()) else {
            return Ok(false);
        };
        // What does not fit is for plain code to complain about.
        let slices = &i.shape[..i.shape.len() - 1];
        let fits = depth <= x.shape.len()
            && u.shape.len() == slices.len() + x.shape.len() - depth
            && u.shape.starts_with(slices)
            && u.shape.ends_with(&x.shape[depth..])
            && u.dtype == x.dtype
            && y.dtype == x.dtype
            && y.shape == x.shape;
        let width = x.dtype.bits() as usize / 8;
        if !fits || width == 0 || depth == 0 {
            return Ok(false);
        }
        y.bytes.copy_from_slice(x.bytes);
        let p = Places {
            indices: i,
            depth,
            dims: x.shape,
            by: strides(x.shape),
            inner: x.shape[depth..].iter().product(),
        };
        if self.0 != ScatterReduce::Replace {
            return p.floats(self.0, x.dtype, y.bytes, u.bytes);
        }
        if p.inner == 1 && width == 4 {
            return p.combine::<f32>(y.bytes, u.bytes, |_, b| b);
        }
        let n = p.inner * width;
        p.each(|at, k| {
            y.bytes[at * width..at * width + n].copy_from_slice(&u.bytes[k * n..(k + 1) * n]);
        })
    }
}

pub(super) struct Elements {
    how: ScatterReduce,
    axis: i64,
}

pub(super) fn elements(attrs: &Attrs) -> Option<Elements> {
    whole(attrs)?;
    let axis = match attrs.get("axis") {
        None => 0,
        Some(Attr::Int(a)) => *a,
        Some(_) => return None,
    };
    let how = match attrs.get("reduction") {
        None => ScatterReduce::Replace,
        Some(Attr::Str(r)) => match r.as_str() {
            "none" => ScatterReduce::Replace,
            "add" => ScatterReduce::Add,
            "mul" => ScatterReduce::Mul,
            "max" => ScatterReduce::Max,
            "min" => ScatterReduce::Min,
            _ => return None,
        },
        Some(_) => return None,
    };
    Some(Elements { how, axis })
}

/// Elements that each name a place along one axis.
struct Along<'a> {
    indices: In<'a>,
    dims: &'a [usize],
    by: Vec<usize>,
    axis: usize,
}

impl Along<'_> {
    fn elements<I: Elem>(
        &self,
        number: impl Fn(I) -> i64,
        mut f: impl FnMut(usize, usize),
    ) -> R<()> {
        let shape = self.indices.shape;
        let Some((&n, rows)) = shape.split_last().filter(|(n, _)| **n > 0) else {
            return Ok(());
        };
        let last = self.axis == rows.len();
        let (extent, by) = (self.dims[self.axis], self.by[self.axis]);
        let mut at = vec![0; rows.len()];
        for (r, row) in I::chunks(self.indices.bytes).chunks_exact(n).enumerate() {
            let others = (0..rows.len()).filter(|d| *d != self.axis);
            let base: usize = others.map(|d| at[d] * self.by[d]).sum();
            for (j, i) in row.iter().enumerate() {
                let i = index(number(I::get(*i)), extent)?;
                let own = if last { 0 } else { j };
                f(base + i * by + own, r * n + j);
            }
            next(&mut at, rows);
        }
        Ok(())
    }
}

impl Targets for Along<'_> {
    fn inner(&self) -> usize {
        1
    }

    fn each(&self, f: impl FnMut(usize, usize)) -> R<bool> {
        match self.indices.dtype {
            DType::I64 => self.elements::<i64>(|x| x, f)?,
            DType::I32 => self.elements::<i32>(i64::from, f)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Form for Elements {
    fn run(&self, inputs: &[Option<In<'_>>], outputs: &mut [Out<'_>]) -> Fast {
        let (Some(x), Some(i), Some(u)) = (input(inputs, 0), input(inputs, 1), input(inputs, 2))
        else {
            return Ok(false);
        };
        let (Ok(d), [y]) = (axis(self.axis, x.shape.len()), outputs) else {
            return Ok(false);
        };
        // What does not fit is for plain code to complain about.
        let fits = i.shape.len() == x.shape.len()
            && u.shape == i.shape
            && (0..x.shape.len()).all(|k| k == d || i.shape[k] <= x.shape[k])
            && u.dtype == x.dtype
            && y.dtype == x.dtype
            && y.shape == x.shape;
        if !fits {
            return Ok(false);
        }
        y.bytes.copy_from_slice(x.bytes);
        let p = Along {
            indices: i,
            dims: x.shape,
            by: strides(x.shape),
            axis: d,
        };
        match (self.how, x.dtype.bits()) {
            (ScatterReduce::Replace, 32) => p.combine::<f32>(y.bytes, u.bytes, |_, b| b),
            (ScatterReduce::Replace, 64) => p.combine::<f64>(y.bytes, u.bytes, |_, b| b),
            (ScatterReduce::Replace, 8) => p.combine::<u8>(y.bytes, u.bytes, |_, b| b),
            (ScatterReduce::Replace, _) => Ok(false),
            (how, _) => p.floats(how, x.dtype, y.bytes, u.bytes),
        }
    }
}
