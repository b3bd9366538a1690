//! Parts of sums in the shared memory of a cluster: where each CTA keeps its part, and whether the step that makes the parts
//! and the one that adds them agree on it.
use crate::verify::Blame;
use crate::{AxisId, Kernel, KernelError, Operand, OperandId, Place, Role, Schedule, Stmt};
use crate::{TileProgram, work};
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
    memory: [Dim; 2],
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

/// Registers of a thread beside those of its tiles: addresses, and sums under way.
const OTHERS: u64 = 32;

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
    fn lies_as(&self, other: &Kept) -> bool {
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

/// Parts that a cluster's CTAs make, one each, or add, a share each.
pub(crate) fn check(k: &Kernel, s: &Schedule, b: &Blame) -> Result<(), KernelError> {
    let rule = "parts in a cluster";
    let n = s.cluster();
    let (gives, adds) = (s.gives_parts(), s.adds_parts());
    if !gives && !adds {
        return Ok(());
    }
    b.need(gives != adds && n > 1 && s.raster == 1, rule, || {
        "parts are made or added by clusters of 2 CTAs or more, whose tasks go in no bands: use raster 1".into()
    })?;
    let crate::Mapping::Gpu(g) = &s.mapping else {
        return Ok(());
    };
    b.need(g.walkers == 0 && (gives || g.copiers == 0), rule, || {
        "CTAs that make parts walk no tasks, and none of the warps that add them only copy".into()
    })?;
    let gathers = |o: &&Operand| !o.access.indexed.is_empty();
    let gathering = k.operands.iter().find(gathers).filter(|_| adds);
    b.need(gathering.is_none(), rule, || {
        let name = gathering.map_or("", |o| &o.name);
        format!("'{name}' is indexed beside the parts that are added: use memory")
    })?;
    let all = Kept::all(k, s);
    let all = all.map_err(|why| b.error(rule, format!("{why}: use memory")))?;
    b.need(!all.is_empty(), rule, || "no operand is kept".into())?;
    let looped: BTreeSet<AxisId> = s.loops.iter().map(|l| l.axis).inserted();
    for kept in &all {
        let name = &k.operands[kept.operand as usize].name;
        let extent = &k.axes[kept.part as usize].extent;
        let own = *extent == Dim::from(i64::from(n));
        let last = s.grid.last();
        let alone = match gives {
            true => last.is_some_and(|c| c.axis == kept.part && c.tile == 1),
            false => !s.grid.iter().any(|c| c.axis == kept.part),
        };
        b.need(own && alone, rule, || {
            format!("'{name}' has {extent} parts for the {n} CTAs of a cluster, the last axis of the grid where they are made: use as many")
        })?;
        let inside = kept.axes.iter().any(|a| looped.contains(&a.axis));
        let touches = |x: &&Stmt| match x {
            Stmt::Load { operand, .. } | Stmt::Store { operand, .. } => *operand == kept.operand,
            _ => false,
        };
        let once = k.body.iter().filter(touches).count() == 1;
        b.need(once && (adds || !inside), rule, || {
            format!("'{name}' is kept, and is stored or loaded more than once: use memory")
        })?;
    }
    let whole = |c: &crate::AxisTile| {
        let pieces = k.axes[c.axis as usize].extent.ceil_div(&Dim::Known(c.tile));
        pieces.known().is_some_and(|p| p % i64::from(n) == 0)
    };
    b.need(gives || s.grid.last().is_some_and(whole), rule, || {
        format!("the last axis of the grid has no multiple of {n} pieces, which the CTAs of a cluster share: use other tiles")
    })
}

/// The tiles of a grid by extent, without axes of one piece: those of a cluster's tasks together.
fn together(p: &TileProgram) -> Vec<(AxisId, Dim, i64)> {
    let (k, s) = (p.kernel(), p.schedule());
    let mut all: Vec<(AxisId, Dim, i64)> = s
        .grid
        .iter()
        .map(|c| (c.axis, k.axes[c.axis as usize].extent.clone(), c.tile))
        .collect();
    match s.gives_parts() {
        true => all.truncate(all.len().saturating_sub(1)),
        false => all
            .iter_mut()
            .last()
            .into_iter()
            .for_each(|c| c.2 *= i64::from(s.cluster())),
    }
    all.retain(|c| c.1.known().is_none_or(|e| e > c.2));
    all
}

/// The CTAs of a cluster of one launch whose tasks are those of `first`, which makes parts of sums, and then those of
/// `second`, which adds them.
///
/// # Errors
/// What the two do not agree on.
pub fn in_cluster(first: &TileProgram, second: &TileProgram) -> Result<u32, KernelError> {
    let b = Blame::of(second.kernel());
    let rule = "parts in a cluster";
    let (s, t) = (first.schedule(), second.schedule());
    b.need(s.gives_parts() && t.adds_parts(), rule, || {
        format!("'{}' keeps no parts that it adds", first.kernel().name)
    })?;
    let n = s.cluster();
    let all = |p: &TileProgram| Kept::all(p.kernel(), p.schedule()).map_err(|e| b.error(rule, e));
    let (given, taken) = (all(first)?, all(second)?);
    let same = given.len() == taken.len() && given.iter().zip(&taken).all(|(x, y)| x.lies_as(y));
    b.need(n == t.cluster() && same, rule, || {
        format!("it does not add what '{}' keeps", first.kernel().name)
    })?;
    let tasks = |p: &TileProgram| work::tasks(p.kernel(), p.schedule());
    let (one, two) = (together(first), together(second));
    let tiles = |all: &[(AxisId, Dim, i64)]| -> Vec<(Dim, i64)> {
        all.iter().map(|c| (c.1.clone(), c.2)).collect()
    };
    // An axis of the one's grid is where the same axis is in the other's.
    let at = |all: &[(AxisId, Dim, i64)], k: &Kept| -> Vec<Option<usize>> {
        let axes = k.axes.iter().filter(|a| !a.memory[0].is_one());
        axes.map(|a| all.iter().position(|c| c.0 == a.axis))
            .collect()
    };
    let mut kept = given.iter().zip(&taken);
    let placed = kept.all(|(x, y)| at(&one, x) == at(&two, y));
    let fits = tiles(&one) == tiles(&two) && tasks(first) == tasks(second);
    b.need(placed && fits, rule, || {
        format!(
            "its tasks are no shares of those of '{}'",
            first.kernel().name
        )
    })?;
    let threads = |p: &TileProgram| match &p.schedule().mapping {
        crate::Mapping::Gpu(g) => g.computing(),
        crate::Mapping::Cpu(_) => 0,
    };
    b.need(threads(first) == threads(second), rule, || {
        format!(
            "{} threads add what {} threads make: use as many",
            threads(second),
            threads(first)
        )
    })?;
    // Both have the registers of the first.
    let registers = |p: &TileProgram| match &p.schedule().mapping {
        crate::Mapping::Gpu(g) => u64::from(g.registers),
        crate::Mapping::Cpu(_) => 0,
    };
    let (held, most) = (second.held_registers() + OTHERS, registers(first));
    b.need(held <= most, rule, || {
        format!(
            "its threads need {held} registers, those of '{}' have {most}: use more threads",
            first.kernel().name
        )
    })?;
    Ok(n)
}
