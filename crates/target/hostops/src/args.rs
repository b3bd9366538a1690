//! Arguments of a host operator: inputs, attributes and broadcasting, each read with an error that names it.
use crate::data;
use crate::error::R;
use layout::DType;
use tensor::{Attr, Attrs, Tensor};

/// Attributes and inputs of a call, with checked access.
pub(crate) struct Args<'a> {
    /// Attributes.
    pub attrs: &'a Attrs,
    /// Inputs; `None` where an optional one is left out.
    pub inputs: &'a [Option<&'a Tensor>],
}

impl<'a> Args<'a> {
    /// Input `i`, which must be there.
    pub fn input(&self, i: usize) -> R<&'a Tensor> {
        self.opt(i)
            .ok_or_else(|| format!("input {i} is missing").into())
    }

    /// Input `i`, if given.
    pub fn opt(&self, i: usize) -> Option<&'a Tensor> {
        self.inputs.get(i).copied().flatten()
    }

    /// Input `i` of exactly `rank` dimensions.
    pub fn ranked(&self, i: usize, rank: usize) -> R<&'a Tensor> {
        let t = self.input(i)?;
        if t.shape().len() != rank {
            return Err(
                format!("input {i} has shape {:?}, not {rank} dimensions", t.shape()).into(),
            );
        }
        Ok(t)
    }

    /// The only element of input `i` as an integer.
    pub fn scalar(&self, i: usize) -> R<i64> {
        let t = self.input(i)?;
        if t.len() != 1 {
            return Err(format!("input {i} has shape {:?}, not one element", t.shape()).into());
        }
        Ok(t.get_i64(0))
    }

    /// The first element of input `i` as f64, or `default` where it is left out.
    pub fn float_or(&self, i: usize, default: f64) -> f64 {
        match self.opt(i) {
            Some(t) if !t.is_empty() => t.get_f64(0),
            _ => default,
        }
    }

    /// Integers from input `i`, else from attribute `name`.
    pub fn ints(&self, i: usize, name: &str) -> R<Option<Vec<i64>>> {
        match self.opt(i) {
            Some(t) => Ok(Some(data::ints(t))),
            None => self.attr_ints(name),
        }
    }

    /// Integer attribute.
    pub fn int(&self, name: &str, default: i64) -> R<i64> {
        match self.attrs.get(name) {
            None => Ok(default),
            Some(Attr::Int(v)) => Ok(*v),
            Some(_) => Err(format!("attribute '{name}' must be an integer").into()),
        }
    }

    /// Integer attribute, if given.
    pub fn opt_int(&self, name: &str) -> R<Option<i64>> {
        match self.attrs.get(name) {
            None => Ok(None),
            Some(_) => self.int(name, 0).map(Some),
        }
    }

    /// Float attribute.
    pub fn float(&self, name: &str, default: f64) -> R<f64> {
        match self.attrs.get(name) {
            None => Ok(default),
            Some(Attr::Float(v)) => Ok(*v),
            Some(Attr::Int(v)) => Ok(*v as f64),
            Some(_) => Err(format!("attribute '{name}' must be a float").into()),
        }
    }

    /// Text attribute.
    pub fn text(&self, name: &str, default: &'a str) -> R<&'a str> {
        match self.attrs.get(name) {
            None => Ok(default),
            Some(Attr::Str(v)) => Ok(v),
            Some(_) => Err(format!("attribute '{name}' must be text").into()),
        }
    }

    /// Integer list attribute, if given.
    pub fn attr_ints(&self, name: &str) -> R<Option<Vec<i64>>> {
        match self.attrs.get(name) {
            None => Ok(None),
            Some(Attr::Ints(v)) => Ok(Some(v.clone())),
            Some(Attr::Tensor(t)) => Ok(Some(data::ints(t))),
            Some(_) => Err(format!("attribute '{name}' must be a list of integers").into()),
        }
    }

    /// Float list attribute, or the tensor that ai.onnx.ml has in its place for floats of 64 bits; empty when left out.
    pub fn floats(&self, name: &str) -> R<Vec<f64>> {
        let given = self.attrs.get(name);
        match given.or_else(|| self.attrs.get(&format!("{name}_as_tensor"))) {
            None => Ok(Vec::new()),
            Some(Attr::Floats(v)) => Ok(v.clone()),
            Some(Attr::Tensor(t)) => Ok(data::f64s(t)),
            Some(_) => Err(format!("attribute '{name}' must be a list of floats").into()),
        }
    }

    /// Text list attribute; empty when left out.
    pub fn texts(&self, name: &str) -> R<Vec<String>> {
        match self.attrs.get(name) {
            None => Ok(Vec::new()),
            Some(Attr::Strs(v)) => Ok(v.clone()),
            Some(_) => Err(format!("attribute '{name}' must be a list of texts").into()),
        }
    }

    /// Version of the operator's set; the newest when it is not told.
    pub fn opset(&self) -> R<i64> {
        self.int("opset", i64::MAX)
    }

    /// Element type attribute: a name (`f32`) or the ONNX number.
    pub fn dtype(&self, name: &str) -> R<Option<DType>> {
        let d = match self.attrs.get(name) {
            None => return Ok(None),
            Some(Attr::Str(s)) => DType::from_name(s),
            Some(Attr::Int(n)) => match n {
                1 => Some(DType::F32),
                2 => Some(DType::U8),
                3 => Some(DType::I8),
                4 => Some(DType::U16),
                5 => Some(DType::I16),
                6 => Some(DType::I32),
                7 => Some(DType::I64),
                9 => Some(DType::Bool),
                10 => Some(DType::F16),
                11 => Some(DType::F64),
                12 => Some(DType::U32),
                13 => Some(DType::U64),
                16 => Some(DType::BF16),
                21 => Some(DType::U4),
                22 => Some(DType::I4),
                _ => None,
            },
            Some(_) => None,
        };
        match d {
            Some(d) => Ok(Some(d)),
            None => Err(format!("attribute '{name}' names no element type that is known").into()),
        }
    }
}

/// Inputs put where attribute `present` says that they belong; `None` without the attribute.
pub(crate) fn spread<'a>(
    attrs: &Attrs,
    inputs: &[Option<&'a Tensor>],
) -> R<Option<Vec<Option<&'a Tensor>>>> {
    let Some(Attr::Ints(present)) = attrs.get("present") else {
        return Ok(None);
    };
    if present.iter().filter(|p| **p != 0).count() != inputs.len() {
        return Err(format!(
            "attribute 'present' {present:?} does not fit {} inputs",
            inputs.len()
        )
        .into());
    }
    let mut given = inputs.iter().copied();
    let place = |p: &i64| {
        if *p != 0 {
            given.next().flatten()
        } else {
            None
        }
    };
    Ok(Some(present.iter().map(place).collect()))
}
