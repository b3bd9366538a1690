//! `AttributeProto`.

use tensor::Bytes;

use super::model::{Graph, parse_graph};
use super::set_once;
use super::tensor::{SparseTensor, TensorData, parse_sparse_tensor, parse_tensor};
use super::types::{Type, parse_type};
use super::wire::{Cursor, Field};
use crate::error::Error;

/// A node's attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// The attribute's name.
    pub name: String,
    /// Its value.
    pub value: AttributeValue,
}

/// An attribute's value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum AttributeValue {
    Float(f32),
    Int(i64),
    /// Bytes that are UTF-8 by the standard; not checked here.
    String(Bytes),
    Tensor(Box<TensorData>),
    Graph(Box<Graph>),
    SparseTensor(Box<SparseTensor>),
    Type(Box<Type>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Strings(Vec<Bytes>),
    Tensors(Vec<TensorData>),
    Graphs(Vec<Graph>),
    SparseTensors(Vec<SparseTensor>),
    Types(Vec<Type>),
    /// In a function's body: the value of the caller's attribute of this name.
    Parent {
        /// Name of the function's attribute.
        name: String,
        /// The kind of value, where stated.
        kind: Option<AttributeKind>,
    },
}

/// The kind of an attribute's value; the discriminant is ONNX's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum AttributeKind {
    Float = 1,
    Int = 2,
    String = 3,
    Tensor = 4,
    Graph = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8,
    Tensors = 9,
    Graphs = 10,
    SparseTensor = 11,
    SparseTensors = 12,
    Type = 13,
    Types = 14,
}

use AttributeKind as K;

/// Kinds by code, from 1, with the name of the field that holds the value.
const KINDS: [(AttributeKind, &str); 14] = [
    (K::Float, "f"),
    (K::Int, "i"),
    (K::String, "s"),
    (K::Tensor, "t"),
    (K::Graph, "g"),
    (K::Floats, "floats"),
    (K::Ints, "ints"),
    (K::Strings, "strings"),
    (K::Tensors, "tensors"),
    (K::Graphs, "graphs"),
    (K::SparseTensor, "sparse_tensor"),
    (K::SparseTensors, "sparse_tensors"),
    (K::Type, "tp"),
    (K::Types, "type_protos"),
];

impl AttributeKind {
    /// The kind with ONNX's code; `None` for 0 (undefined) and codes that ONNX does not have.
    pub fn from_code(code: i32) -> Option<AttributeKind> {
        let index = usize::try_from(code).ok()?.checked_sub(1)?;
        KINDS.get(index).map(|row| row.0)
    }

    fn field(self) -> &'static str {
        KINDS[self as usize - 1].1
    }
}

impl AttributeValue {
    /// The kind of this value; `None` for a parent's attribute whose kind is not stated.
    pub fn kind(&self) -> Option<AttributeKind> {
        Some(match self {
            AttributeValue::Float(_) => K::Float,
            AttributeValue::Int(_) => K::Int,
            AttributeValue::String(_) => K::String,
            AttributeValue::Tensor(_) => K::Tensor,
            AttributeValue::Graph(_) => K::Graph,
            AttributeValue::SparseTensor(_) => K::SparseTensor,
            AttributeValue::Type(_) => K::Type,
            AttributeValue::Floats(_) => K::Floats,
            AttributeValue::Ints(_) => K::Ints,
            AttributeValue::Strings(_) => K::Strings,
            AttributeValue::Tensors(_) => K::Tensors,
            AttributeValue::Graphs(_) => K::Graphs,
            AttributeValue::SparseTensors(_) => K::SparseTensors,
            AttributeValue::Types(_) => K::Types,
            AttributeValue::Parent { kind, .. } => return *kind,
        })
    }
}

/// All the fields, of which one is the value.
#[derive(Default)]
struct Fields {
    f: Option<f32>,
    i: Option<i64>,
    s: Option<Bytes>,
    t: Option<TensorData>,
    g: Option<Graph>,
    sparse: Option<SparseTensor>,
    tp: Option<Type>,
    floats: Vec<f32>,
    ints: Vec<i64>,
    strings: Vec<Bytes>,
    tensors: Vec<TensorData>,
    graphs: Vec<Graph>,
    sparses: Vec<SparseTensor>,
    types: Vec<Type>,
}

impl Fields {
    /// The kinds whose fields hold something; a zero scalar counts only `with_zeros`, since some
    /// writers put zeros in every scalar field.
    fn held(&self, with_zeros: bool) -> Vec<AttributeKind> {
        let held = [
            (
                K::Float,
                self.f.is_some_and(|v| with_zeros || v.to_bits() != 0),
            ),
            (K::Int, self.i.is_some_and(|v| with_zeros || v != 0)),
            (
                K::String,
                self.s.as_ref().is_some_and(|v| with_zeros || !v.is_empty()),
            ),
            (K::Tensor, self.t.is_some()),
            (K::Graph, self.g.is_some()),
            (K::SparseTensor, self.sparse.is_some()),
            (K::Type, self.tp.is_some()),
            (K::Floats, !self.floats.is_empty()),
            (K::Ints, !self.ints.is_empty()),
            (K::Strings, !self.strings.is_empty()),
            (K::Tensors, !self.tensors.is_empty()),
            (K::Graphs, !self.graphs.is_empty()),
            (K::SparseTensors, !self.sparses.is_empty()),
            (K::Types, !self.types.is_empty()),
        ];
        held.into_iter()
            .filter(|entry| entry.1)
            .map(|entry| entry.0)
            .collect()
    }

    fn take(self, kind: AttributeKind) -> Option<AttributeValue> {
        use AttributeValue as V;
        Some(match kind {
            // A writer of protobuf 3 leaves a scalar out when it is zero.
            K::Float => V::Float(self.f.unwrap_or(0.0)),
            K::Int => V::Int(self.i.unwrap_or(0)),
            K::String => V::String(self.s.unwrap_or_default()),
            K::Tensor => V::Tensor(Box::new(self.t?)),
            K::Graph => V::Graph(Box::new(self.g?)),
            K::SparseTensor => V::SparseTensor(Box::new(self.sparse?)),
            K::Type => V::Type(Box::new(self.tp?)),
            K::Floats => V::Floats(self.floats),
            K::Ints => V::Ints(self.ints),
            K::Strings => V::Strings(self.strings),
            K::Tensors => V::Tensors(self.tensors),
            K::Graphs => V::Graphs(self.graphs),
            K::SparseTensors => V::SparseTensors(self.sparses),
            K::Types => V::Types(self.types),
        })
    }
}

pub(super) fn parse_attribute(
    parent: &mut Cursor<'_>,
    field: Field,
    name: &str,
) -> Result<Attribute, Error> {
    let mut c = parent.message(field, name, "AttributeProto")?;
    let (mut name, mut parent_name, mut code) = (String::new(), String::new(), 0);
    let mut v = Fields::default();
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => name = c.name(f, "name")?,
            2 => v.f = Some(c.f32(f, "f")?),
            3 => v.i = Some(c.i64(f, "i")?),
            4 => v.s = Some(c.bytes(f, "s")?),
            5 => {
                let value = parse_tensor(&mut c, f, "t")?;
                set_once(&mut v.t, &c, "t", value)?;
            }
            6 => {
                let value = parse_graph(&mut c, f, "g")?;
                set_once(&mut v.g, &c, "g", value)?;
            }
            7 => {
                let piece = c.fixed(f, "floats", 4)?;
                let (values, _) = piece.as_chunks::<4>();
                v.floats
                    .extend(values.iter().map(|&bytes| f32::from_le_bytes(bytes)));
            }
            8 => c.i64s(f, "ints", &mut v.ints)?,
            9 => v.strings.push(c.bytes(f, "strings")?),
            10 => v.tensors.push(parse_tensor(&mut c, f, "tensors")?),
            11 => v.graphs.push(parse_graph(&mut c, f, "graphs")?),
            14 => {
                let value = parse_type(&mut c, f, "tp")?;
                set_once(&mut v.tp, &c, "tp", value)?;
            }
            15 => v.types.push(parse_type(&mut c, f, "type_protos")?),
            20 => code = c.i32(f, "type")?,
            21 => parent_name = c.name(f, "ref_attr_name")?,
            22 => {
                let value = parse_sparse_tensor(&mut c, f, "sparse_tensor")?;
                set_once(&mut v.sparse, &c, "sparse_tensor", value)?;
            }
            23 => v
                .sparses
                .push(parse_sparse_tensor(&mut c, f, "sparse_tensors")?),
            _ => c.skip(f)?,
        }
    }
    let stated = match code {
        0 => None,
        code => match AttributeKind::from_code(code) {
            Some(kind) => Some(kind),
            None => return Err(c.error("type", format!("attribute '{name}': no type {code}"))),
        },
    };
    if !parent_name.is_empty() {
        if let Some(kind) = v.held(false).first() {
            let field = kind.field();
            let problem = format!("attribute '{name}' has a ref_attr_name and a value in {field}");
            return Err(c.error("ref_attr_name", problem));
        }
        let value = AttributeValue::Parent {
            name: parent_name,
            kind: stated,
        };
        return Ok(Attribute { name, value });
    }
    let kind = match stated {
        Some(kind) => {
            if let Some(other) = v.held(false).iter().find(|&&held| held != kind) {
                let (stated, field) = (kind.field(), other.field());
                let problem = format!(
                    "attribute '{name}' says its value is in {stated}, but {field} has one"
                );
                return Err(c.error("type", problem));
            }
            kind
        }
        // Early writers stated no type: the one field that holds something is meant.
        None => match (v.held(false).as_slice(), v.held(true).as_slice()) {
            ([kind], _) | ([], [kind]) => *kind,
            _ => {
                let problem =
                    format!("attribute '{name}' states no type and its fields do not tell");
                return Err(c.error("type", problem));
            }
        },
    };
    match v.take(kind) {
        Some(value) => Ok(Attribute { name, value }),
        None => Err(c.error(kind.field(), format!("attribute '{name}' lacks its value"))),
    }
}
