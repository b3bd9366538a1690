//! Parameters of an entry: pointers of operands, and one number per distinct dimension expression.
use super::text::{Kind, Reg, Text};
use kernel::OperandId;
use layout::Dim;
use std::collections::BTreeMap;
use std::fmt;

/// What a parameter of an entry is.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    /// Device address of an operand's buffer: `.u64`, aligned to 16 bytes.
    Operand(OperandId),
    /// Value of a dimension expression: `.s64`.
    Dim(Dim),
    /// Device address of a 32-bit word that takes the number of a fault, counted from 1: `.u64`.
    Fault,
}

/// One parameter of an entry, 8 bytes wide.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// Name in the text.
    pub name: String,
    /// What it holds.
    pub value: ParamValue,
}

/// A number known now or at launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Num {
    Known(i64),
    Reg(Reg),
}

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Num::Known(v) => write!(f, "{v}"),
            Num::Reg(r) => write!(f, "{r}"),
        }
    }
}

/// The parameters used so far.
#[derive(Default)]
pub(crate) struct Params {
    pub specs: Vec<ParamSpec>,
    wide: BTreeMap<Dim, Reg>,
    narrow: BTreeMap<Dim, Reg>,
    pointers: BTreeMap<OperandId, Reg>,
}

impl Params {
    fn add(&mut self, t: &mut Text, name: String, ty: &str, value: ParamValue) -> Reg {
        let r = t.reg(Kind::D);
        let load = t.source.param(ty, &r.to_string(), &name, self.specs.len());
        t.head_op(load);
        self.specs.push(ParamSpec { name, value });
        r
    }

    /// `dim` in 64 bits.
    pub fn dim(&mut self, t: &mut Text, dim: &Dim) -> Num {
        if let Some(v) = dim.known() {
            return Num::Known(v);
        }
        if let Some(&r) = self.wide.get(dim) {
            return Num::Reg(r);
        }
        let r = self.add(
            t,
            format!("dim{}", self.wide.len()),
            "s64",
            ParamValue::Dim(dim.clone()),
        );
        self.wide.insert(dim.clone(), r);
        Num::Reg(r)
    }

    /// `dim` in 32 bits: coordinates and extents of kernels are below 2^31.
    pub fn dim32(&mut self, t: &mut Text, dim: &Dim) -> Num {
        let wide = match self.dim(t, dim) {
            Num::Known(v) => return Num::Known(v),
            Num::Reg(r) => r,
        };
        if let Some(&r) = self.narrow.get(dim) {
            return Num::Reg(r);
        }
        let r = t.reg(Kind::R);
        t.head_op(format!("cvt.u32.u64 {r}, {wide}"));
        self.narrow.insert(dim.clone(), r);
        Num::Reg(r)
    }

    /// Global address of `operand`'s buffer.
    pub fn pointer(&mut self, t: &mut Text, operand: OperandId) -> Reg {
        if let Some(&r) = self.pointers.get(&operand) {
            return r;
        }
        let generic = self.add(
            t,
            format!("operand{operand}"),
            "u64",
            ParamValue::Operand(operand),
        );
        let r = t.reg(Kind::D);
        t.head_op(format!("cvta.to.global.u64 {r}, {generic}"));
        self.pointers.insert(operand, r);
        r
    }
}
