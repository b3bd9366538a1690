//! A node as a lowering sees it: resolved inputs, names of outputs, attributes that note who read
//! them.
use super::{LowerError, Lowered};
use crate::proto::{AttributeValue, Graph, SparseTensor, TensorData};
use graph::{Origin, ValueId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use tensor::{Attr, Attrs};

/// A node with everything resolved.
#[derive(Clone)]
pub(crate) struct NodeView<'m> {
    /// Operator type.
    pub op: &'m str,
    /// Its domain.
    pub domain: &'m str,
    /// Version of the domain's operator set.
    pub opset: i64,
    /// Inputs; `None` where left out.
    pub inputs: Vec<Option<ValueId>>,
    /// Output names in the model; empty where not wanted.
    pub outputs: Vec<&'m str>,
    /// Names that the outputs' values get in the graph.
    pub names: Vec<String>,
    /// The node for core nodes made from it.
    pub origin: Origin,
    /// Attributes with references to the caller's resolved.
    pub attrs: BTreeMap<&'m str, &'m AttributeValue>,
    /// Those that were read.
    pub read: RefCell<BTreeSet<String>>,
}

impl<'m> NodeView<'m> {
    /// The node as one of its parts that has a name of its own.
    pub fn called(&self, name: String) -> NodeView<'m> {
        NodeView {
            origin: Origin {
                name,
                ..self.origin.clone()
            },
            ..self.clone()
        }
    }

    /// Input `i`, which must be there.
    pub fn input(&self, i: usize) -> Lowered<ValueId> {
        self.opt(i)
            .ok_or_else(|| format!("input {i} is missing; {} needs it", self.op).into())
    }

    /// Input `i` if given.
    pub fn opt(&self, i: usize) -> Option<ValueId> {
        self.inputs.get(i).copied().flatten()
    }

    /// All inputs, none of which may be left out.
    pub fn all_inputs(&self) -> Lowered<Vec<ValueId>> {
        (0..self.inputs.len()).map(|i| self.input(i)).collect()
    }

    /// At most `n` inputs.
    pub fn at_most(&self, n: usize) -> Lowered {
        match self.inputs.len() > n {
            true => {
                Err(format!("has {} inputs, at most {n} are allowed", self.inputs.len()).into())
            }
            false => Ok(()),
        }
    }

    /// True when output `i` is wanted.
    pub fn wants(&self, i: usize) -> bool {
        self.outputs.get(i).is_some_and(|o| !o.is_empty())
    }

    /// The graph's name for output `i`; a derived one where it is not wanted.
    pub fn name(&self, i: usize) -> String {
        match self.names.get(i) {
            Some(n) if !n.is_empty() => n.clone(),
            _ => format!("{}.{i}", self.origin.name),
        }
    }

    /// Name of an intermediate value.
    pub fn tmp(&self, what: &str) -> String {
        format!("{}.{what}", self.name(0))
    }

    fn get(&self, name: &str) -> Option<&'m AttributeValue> {
        self.read.borrow_mut().insert(name.to_string());
        self.attrs.get(name).copied()
    }

    fn wrong<T>(&self, name: &str, want: &str) -> Lowered<T> {
        Err(format!("attribute '{name}' must be {want}").into())
    }

    /// An integer, if given.
    pub fn int_opt(&self, name: &str) -> Lowered<Option<i64>> {
        match self.get(name) {
            None => Ok(None),
            Some(AttributeValue::Int(v)) => Ok(Some(*v)),
            _ => self.wrong(name, "an integer"),
        }
    }

    /// An integer.
    pub fn int(&self, name: &str, default: i64) -> Lowered<i64> {
        Ok(self.int_opt(name)?.unwrap_or(default))
    }

    /// A truth value: 0 or 1.
    pub fn flag(&self, name: &str, default: bool) -> Lowered<bool> {
        match self.int(name, default as i64)? {
            0 => Ok(false),
            1 => Ok(true),
            v => Err(format!("attribute '{name}' is {v}, it must be 0 or 1").into()),
        }
    }

    /// A float, if given.
    pub fn float_opt(&self, name: &str) -> Lowered<Option<f64>> {
        match self.get(name) {
            None => Ok(None),
            Some(AttributeValue::Float(v)) => Ok(Some(*v as f64)),
            _ => self.wrong(name, "a float"),
        }
    }

    /// A float (32 bits, widened).
    pub fn float(&self, name: &str, default: f32) -> Lowered<f64> {
        Ok(self.float_opt(name)?.unwrap_or(default as f64))
    }

    /// A number that some operator sets have as an integer and some as a float.
    pub fn number(&self, name: &str, default: f64) -> Lowered<f64> {
        match self.get(name) {
            None => Ok(default),
            Some(AttributeValue::Float(v)) => Ok(*v as f64),
            Some(AttributeValue::Int(v)) => Ok(*v as f64),
            _ => self.wrong(name, "a number"),
        }
    }

    /// Text.
    pub fn text(&self, name: &str, default: &str) -> Lowered<String> {
        match self.get(name) {
            None => Ok(default.to_string()),
            Some(AttributeValue::String(s)) => text_of(name, s),
            _ => self.wrong(name, "text"),
        }
    }

    /// Integers, if given.
    pub fn ints(&self, name: &str) -> Lowered<Option<Vec<i64>>> {
        match self.get(name) {
            None => Ok(None),
            Some(AttributeValue::Ints(v)) => Ok(Some(v.clone())),
            _ => self.wrong(name, "integers"),
        }
    }

    /// Floats, if given.
    pub fn floats(&self, name: &str) -> Lowered<Option<Vec<f64>>> {
        match self.get(name) {
            None => Ok(None),
            Some(AttributeValue::Floats(v)) => Ok(Some(v.iter().map(|&x| x as f64).collect())),
            // An empty list does not say of what.
            Some(AttributeValue::Ints(v)) if v.is_empty() => Ok(Some(Vec::new())),
            _ => self.wrong(name, "floats"),
        }
    }

    /// Texts, if given.
    pub fn texts(&self, name: &str) -> Lowered<Option<Vec<String>>> {
        match self.get(name) {
            None => Ok(None),
            Some(AttributeValue::Strings(v)) => v
                .iter()
                .map(|s| text_of(name, s))
                .collect::<Lowered<_>>()
                .map(Some),
            Some(AttributeValue::Ints(v)) if v.is_empty() => Ok(Some(Vec::new())),
            _ => self.wrong(name, "texts"),
        }
    }

    /// A tensor, if given.
    pub fn tensor(&self, name: &str) -> Lowered<Option<&'m TensorData>> {
        match self.get(name) {
            None => Ok(None),
            Some(AttributeValue::Tensor(t)) => Ok(Some(t)),
            _ => self.wrong(name, "a tensor"),
        }
    }

    /// A sparse tensor, if given.
    pub fn sparse(&self, name: &str) -> Lowered<Option<&'m SparseTensor>> {
        match self.get(name) {
            None => Ok(None),
            Some(AttributeValue::SparseTensor(t)) => Ok(Some(t)),
            _ => self.wrong(name, "a sparse tensor"),
        }
    }

    /// A graph.
    pub fn graph(&self, name: &str) -> Lowered<&'m Graph> {
        match self.get(name) {
            None => Err(format!("attribute '{name}' is missing").into()),
            Some(AttributeValue::Graph(g)) => Ok(g),
            _ => self.wrong(name, "a graph"),
        }
    }

    /// All attributes for a host operator; all count as read.
    pub fn host_attrs(&self) -> Lowered<Attrs> {
        let mut out = Attrs::new();
        for (&name, &v) in &self.attrs {
            self.read.borrow_mut().insert(name.to_string());
            let a = match v {
                AttributeValue::Float(x) => Attr::Float(*x as f64),
                AttributeValue::Int(x) => Attr::Int(*x),
                AttributeValue::String(s) => Attr::Str(text_of(name, s)?),
                AttributeValue::Floats(x) => Attr::Floats(x.iter().map(|&x| x as f64).collect()),
                AttributeValue::Ints(x) => Attr::Ints(x.clone()),
                AttributeValue::Strings(x) => {
                    Attr::Strs(x.iter().map(|s| text_of(name, s)).collect::<Lowered<_>>()?)
                }
                _ => return self.wrong(name, "a number, text or a list of them"),
            };
            out.insert(name.to_string(), a);
        }
        Ok(out)
    }

    /// Every attribute must have been read.
    pub fn check_read(&self) -> Lowered {
        let read = self.read.borrow();
        // It told an optimiser which inputs may be overwritten.
        let old = |k: &&str| self.opset < 6 && self.domain.is_empty() && *k == "consumed_inputs";
        let unread = |k: &&&str| !read.contains(**k) && !old(k);
        match self.attrs.keys().find(unread) {
            Some(k) => Err(LowerError::Node(format!(
                "attribute '{k}' is not known for {} of opset {}; remove it or export to another opset",
                self.op, self.opset
            ))),
            None => Ok(()),
        }
    }
}

fn text_of(name: &str, s: &[u8]) -> Lowered<String> {
    String::from_utf8(s.to_vec())
        .map_err(|_| format!("attribute '{name}' is not UTF-8; export the model again").into())
}
