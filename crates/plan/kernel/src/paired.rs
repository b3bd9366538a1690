//! Whether the step that makes parts of sums in a cluster and the one that adds them agree on it.
use crate::verify::Blame;
use crate::{AxisId, Kept, KernelError, Mapping, TileProgram, work};
use layout::Dim;

/// Registers of a thread beside those of its tiles: addresses, and sums under way.
const OTHERS: u64 = 32;

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
        Mapping::Gpu(g) => g.computing(),
        Mapping::Cpu(_) => 0,
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
        Mapping::Gpu(g) => u64::from(g.registers),
        Mapping::Cpu(_) => 0,
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
