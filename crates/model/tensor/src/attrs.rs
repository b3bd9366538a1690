//! Attributes of host operators, by name. Import fills them, `hostops` reads them.
use crate::{Native, Tensor};
use layout::Inserted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Value of an attribute of a host operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attr {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Text.
    Str(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f64>),
    /// Texts.
    Strs(Vec<String>),
    /// A tensor.
    Tensor(Tensor),
    /// The operator's code, which is the caller's.
    Native(Native),
}

/// Attributes by name.
pub type Attrs = BTreeMap<String, Attr>;

/// These attributes. `Attrs::from` is compiled anew for every number of them, with a sort of its own.
pub fn attrs(all: Vec<(&str, Attr)>) -> Attrs {
    let named = all.into_iter().map(|(name, a)| (name.to_string(), a));
    named.inserted()
}
