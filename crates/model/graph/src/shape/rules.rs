//! What shape rules of operators have in common.

use crate::Value;
use expr::{Expr, Inst};
use layout::{DType, Dim};

/// Element type and extents of a value.
pub(crate) type Type = (DType, Vec<Dim>);

pub(crate) fn list(shape: &[Dim]) -> String {
    let parts: Vec<String> = shape.iter().map(|d| d.to_string()).collect();
    format!("[{}]", parts.join(", "))
}

/// False when the extents differ for all symbol values.
pub(crate) fn may_equal(a: &Dim, b: &Dim) -> bool {
    a == b || !(a.provably_lt(b) || b.provably_lt(a))
}

pub(crate) fn same_len(what: &str, got: usize, want: usize) -> Result<(), String> {
    match got == want {
        true => Ok(()),
        false => Err(format!(
            "{got} numbers of {what} do not fit {want} dimensions"
        )),
    }
}

/// Types of the results of `e` with slots of the given types.
pub(crate) fn program_types(e: &Expr, slots: &[DType], rank: usize) -> Result<Vec<DType>, String> {
    let types = e.output_types().map_err(|e| e.to_string())?;
    for inst in &e.insts {
        match inst {
            Inst::Input { slot, dtype } => match slots.get(*slot as usize) {
                Some(d) if d == dtype => {}
                Some(d) => return Err(format!("argument {slot} is {d}, not {dtype}")),
                None => {
                    return Err(format!(
                        "argument {slot} is missing; there are {}",
                        slots.len()
                    ));
                }
            },
            Inst::Index { axis } if *axis as usize >= rank => {
                return Err(format!("there is no coordinate {axis} of {rank}"));
            }
            _ => {}
        }
    }
    Ok(types)
}

/// Type of a sum of products of `a` and `b`: that of equal floats or wide integers; integers
/// narrower than 32 bits, mixed or not, add up in I32.
pub fn product_type(a: DType, b: DType) -> Result<DType, String> {
    let narrow = |d: DType| d.is_int() && d.bits() < 32;
    match () {
        _ if narrow(a) && narrow(b) => Ok(DType::I32),
        _ if a == b && a != DType::Bool => Ok(a),
        _ => Err(format!("no product of {a} and {b}; cast one of them")),
    }
}

/// Equalities that shape rules rely on though they do not follow from the symbols alone. They must
/// hold for a request before anything of the graph runs.
#[derive(Default)]
pub(crate) struct ReliedEqualities(pub Vec<(Dim, Dim)>);

impl ReliedEqualities {
    /// Relies on `a` and `b` being equal; false where they differ for all values of the symbols.
    pub fn same(&mut self, a: &Dim, b: &Dim) -> bool {
        if a == b {
            return true;
        }
        if !may_equal(a, b) {
            return false;
        }
        self.0.push((a.clone(), b.clone()));
        true
    }

    /// Relies on `a` being no larger than `b`.
    pub fn at_most(&mut self, a: &Dim, b: &Dim) {
        if !a.provably_le(b) {
            self.0.push((a.max_with(b), b.clone()));
        }
    }

    /// The extent that stands for both of two that must be equal.
    pub fn unify(&mut self, a: &Dim, b: &Dim) -> Result<Dim, String> {
        match self.same(a, b) {
            true => Ok(Dim::simpler(a, b).clone()),
            false => Err(format!("extents {a} and {b} differ")),
        }
    }

    /// The extent of a dimension in which `a` and `b` are broadcast against each other. A symbol
    /// beside another extent is relied on to be that extent: where it is 1 the result is the same,
    /// but readers would step through an extent that is not there.
    pub fn broadcast_dim(&mut self, a: &Dim, b: &Dim) -> Result<Dim, String> {
        match (a, b) {
            _ if a == b => Ok(a.clone()),
            (a, b) if a.is_one() => Ok(b.clone()),
            (a, b) if b.is_one() => Ok(a.clone()),
            (Dim::Known(x), Dim::Known(y)) => Err(format!("extents {x} and {y} do not broadcast")),
            _ => {
                self.0.push((a.clone(), b.clone()));
                Ok(Dim::simpler(a, b).clone())
            }
        }
    }

    /// The usual right-aligned broadcast of two shapes.
    pub fn broadcast(&mut self, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, String> {
        let rank = a.len().max(b.len());
        let at = |s: &[Dim], d: usize| match (d + s.len()).checked_sub(rank) {
            Some(i) => s[i].clone(),
            None => Dim::ONE,
        };
        (0..rank)
            .map(|d| self.broadcast_dim(&at(a, d), &at(b, d)))
            .collect::<Result<_, _>>()
            .map_err(|e| format!("{} and {}: {e}", list(a), list(b)))
    }

    /// True when `from` can be broadcast to `to`.
    pub fn broadcasts_to(&mut self, from: &[Dim], to: &[Dim]) -> bool {
        let mut pairs = from.iter().rev().zip(to.iter().rev());
        from.len() <= to.len() && pairs.all(|(f, t)| f.is_one() || self.same(f, t))
    }

    pub(super) fn broadcast_all(&mut self, v: &[&Value]) -> Result<Vec<Dim>, String> {
        let first = v.first().ok_or("it needs an input")?;
        let mut shape = first.shape.clone();
        for x in &v[1..] {
            shape = self.broadcast(&shape, &x.shape)?;
        }
        Ok(shape)
    }
}
