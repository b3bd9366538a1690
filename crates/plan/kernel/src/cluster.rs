//! Parts of sums in the shared memory of a cluster: where each CTA keeps its part.
use crate::{AxisId, Kernel, Operand, OperandId, Place, Role, Schedule, Stmt};
use layout::{Arrange, DType, Dim, Inserted};
use std::collections::BTreeSet;

/// An axis of what a CTA keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptAxis {
    /// The axis.
    pub axis: AxisId,
    /// Positions of it that a CTA has.
    pub positions: i64,
    /// Elements from one to the next.
    pub stride: i64,
    /// Its extent, and its stride in the operand.
    pub(crate) memory: [Dim; 2],
}

/// An operand of which each CTA of a cluster keeps a part in shared memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The operand.
    pub operand: OperandId,
    /// Type of its elements.
    pub dtype: DType,
    /// Its axes but the one of the parts, innermost first.
    pub axes: Vec<KeptAxis>,
    /// The axis of the parts: the number of the CTA in its cluster.
    pub part: AxisId,
    /// Elements of a part.
    pub elements: i64,
}

/// Elements that a CTA keeps at most.
const MOST: i64 = 1 << 20;

impl Kept {
    /// What the CTAs of a cluster give or take so; nothing where parts go through memory.
    ///
    /// # Errors
    /// Why an operand cannot be kept.
    pub fn all(k: &Kernel, s: &Schedule) -> Result<Vec<Kept>, String> {
        let operands = (0..).zip(&k.operands);
        if s.gives_parts() {
            let part = s.neighbours().map(|c| c.axis);
            let part = part.ok_or("there are no tasks that make parts")?;
            let written = operands.filter(|(_, o)| o.role == Role::Write);
            return written.map(|(n, o)| Kept::of(k, s, (n, o), part)).collect();
        }
        let taken: BTreeSet<OperandId> = k.body.iter().filter_map(|x| taken(s, x)).inserted();
        let over: BTreeSet<AxisId> = k.body.iter().flat_map(Stmt::over).copied().inserted();
        let taken = operands.filter(|(n, _)| taken.contains(n));
        taken
            .map(|(n, o)| {
                let of = |a: &&AxisId| o.access.term(**a).is_some();
                let mut summed = over.iter().filter(of);
                match (summed.next(), summed.next()) {
                    (Some(&part), None) => Kept::of(k, s, (n, o), part),
                    _ => Err(format!("the parts of '{}' are along no one axis", o.name)),
                }
            })
            .collect()
    }

    fn of(
        k: &Kernel,
        s: &Schedule,
        (operand, o): (OperandId, &Operand),
        part: AxisId,
    ) -> Result<Kept, String> {
        let plain = o.access.indexed.is_empty() && o.access.bounds.is_empty();
        if !plain || o.dtype.bits() < 8 {
            return Err(format!("'{}' is no plain tensor of whole bytes", o.name));
        }
        let wide = match s.adds_parts() {
            true => s.neighbours().map(|c| c.axis),
            false => None,
        };
        let mut axes = vec![];
        for t in o.access.terms.iter().filter(|t| t.axis != part) {
            let a = t.axis;
            let (name, extent) = (&k.axes[a as usize].name, &k.axes[a as usize].extent);
            let shares = if wide == Some(a) { s.cluster() } else { 1 };
            let tile = s.tile(a).map(|t| t.saturating_mul(shares.into()));
            let positions = match (tile, extent.known()) {
                (Some(t), Some(e)) => Some(t.min(e)),
                (t, e) => t.or(e),
            };
            let (Some(positions), Some(stride)) = (positions, t.stride()) else {
                return Err(format!(
                    "axis '{name}' of '{}' has pieces of no known size",
                    o.name
                ));
            };
            axes.push(KeptAxis {
                axis: a,
                positions,
                stride: 1,
                memory: [extent.clone(), stride.clone()],
            });
        }
        axes.arrange_by_key(|a| (a.memory[1] != Dim::ONE, a.memory[1].clone()));
        let mut elements = 1i64;
        for a in &mut axes {
            a.stride = elements;
            elements = elements.saturating_mul(a.positions);
        }
        match o.access.term(part).is_some() && (1..=MOST).contains(&elements) {
            true => Ok(Kept {
                operand,
                dtype: o.dtype,
                axes,
                part,
                elements,
            }),
            false => Err(format!("'{}' has no parts that a CTA keeps", o.name)),
        }
    }

    /// Bytes of shared memory.
    pub fn bytes(&self) -> u64 {
        let bits = u64::from(self.dtype.bits());
        (self.elements.unsigned_abs() * bits).div_ceil(8)
    }

    /// Whether it lies as `other` does, of another kernel.
    pub(crate) fn lies_as(&self, other: &Kept) -> bool {
        let all = |k: &Kept| -> Vec<(i64, i64, [Dim; 2])> {
            let several = k.axes.iter().filter(|a| !a.memory[0].is_one());
            let all = several.map(|a| (a.positions, a.stride, a.memory.clone()));
            all.collect()
        };
        self.dtype == other.dtype && all(self) == all(other)
    }
}

/// The operand that a statement loads from the cluster.
fn taken(s: &Schedule, x: &Stmt) -> Option<OperandId> {
    match x {
        Stmt::Load { dst, operand } if s.place(*dst) == Place::Cluster => Some(*operand),
        _ => None,
    }
}

/// Bytes of shared memory that a CTA keeps of parts for its cluster.
pub fn kept_bytes(k: &Kernel, s: &Schedule) -> u64 {
    match s.gives_parts() {
        true => Kept::all(k, s).map_or(0, |all| all.iter().map(Kept::bytes).sum()),
        false => 0,
    }
}
