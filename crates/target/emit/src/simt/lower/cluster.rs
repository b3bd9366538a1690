//! Sums whose parts the CTAs of a cluster make, each in its shared memory, and add together: the two steps as one program.
use super::state::{KeptArray, Lower, Result};
use crate::simt::ir::{Inst, Program, SharedArray};
use crate::simt::numbered::numbered;
use kernel::{Access, Kept, Kernel, Schedule, Term, TileProgram};
use layout::Dim;
use std::borrow::Cow;

/// The kernel with operands that are kept as a CTA has them: without the axis of the parts.
pub(super) fn as_kept<'k>(kernel: &'k Kernel, all: &[Kept]) -> Cow<'k, Kernel> {
    let mut out = Cow::Borrowed(kernel);
    for kept in all {
        let o = &mut out.to_mut().operands[kept.operand as usize];
        let terms = kept.axes.iter().map(|a| {
            let extent = kernel.axes[a.axis as usize].extent.clone();
            Term::flat(a.axis, extent, Dim::Known(a.stride))
        });
        let mut terms: Vec<Term> = terms.collect();
        terms.sort_by_key(|t| t.axis);
        o.access = Access::strided(Dim::ZERO, terms);
        o.elements = Dim::Known(kept.elements);
    }
    out
}

impl Lower<'_> {
    /// The arrays that the CTAs of a cluster keep, and where its first position is in each.
    pub(super) fn keeps(&mut self, all: &[Kept]) {
        for kept in all {
            let name = self.kernel.operands[kept.operand as usize].name.clone();
            self.shared.push(SharedArray {
                name,
                dtype: kept.dtype,
                elements: u32::try_from(kept.elements).unwrap_or(0),
            });
            let mut first = self.b.int(0);
            for a in &kept.axes {
                let base = self.axes[a.axis as usize].base;
                let (size, stride) = (self.b.int(a.positions), self.b.int(a.stride));
                // Of the axis that the CTAs share out each begins at a share of its own.
                let own = self.b.rem(base, size);
                let base = self.b.sub(base, own);
                let part = self.b.mul(base, stride);
                first = self.b.add(first, part);
            }
            let first = Some(first).filter(|&f| self.b.number(f) != Some(0));
            self.kept[kept.operand as usize] = Some(KeptArray {
                array: self.shared.len() as u32 - 1,
                part: kept.part,
                first,
            });
        }
    }
}

/// Whether it reads what a CTA of the cluster keeps.
fn takes(i: &Inst) -> bool {
    matches!(i, Inst::LoadPart { .. }) || i.body().iter().any(takes)
}

/// The instructions of a task that ends last: those of a pipeline's body where one ends the program.
fn end(body: &mut Vec<Inst>) -> &mut Vec<Inst> {
    match body.last() {
        Some(Inst::Pipeline { .. }) => {}
        _ => return body,
    }
    match body.last_mut() {
        Some(Inst::Pipeline { body, .. }) => body,
        _ => unreachable!("it was looked at"),
    }
}

/// A step's instructions with those by which the CTAs of a cluster meet: behind what makes parts, and around what adds them.
pub(super) fn met(mut body: Vec<Inst>, s: &Schedule) -> Vec<Inst> {
    if s.gives_parts() {
        end(&mut body).extend([Inst::ClusterArrive, Inst::ClusterWait]);
    }
    if s.adds_parts() {
        let first = body.iter().position(takes).unwrap_or(body.len());
        let last = body.iter().rposition(takes).map_or(body.len(), |at| at + 1);
        body.insert(last, Inst::ClusterArrive);
        body.push(Inst::ClusterWait);
        body.splice(first..first, [Inst::ClusterArrive, Inst::ClusterWait]);
    }
    body
}

/// The program of a launch whose CTAs do a task of `first`, each a part of a sum, and then one of `second`, which adds its
/// share of them. Operands of the second stand behind those of the first.
///
/// # Errors
/// As [`super::lower`] of one of the two, or they do not agree on the parts.
pub fn in_cluster(first: &TileProgram, second: &TileProgram, caps: super::Caps) -> Result<Program> {
    kernel::in_cluster(first, second)?;
    let (mut p, mut q) = (super::lower(first, caps)?, super::lower(second, caps)?);
    let kept = |t: &TileProgram| Kept::all(t.kernel(), t.schedule()).map_or(0, |k| k.len());
    // What is kept comes first in both.
    let kept = kept(second) as u32;
    numbered(&mut q, &mut p, kept);
    let own = end(&mut p.body);
    own.truncate(own.len() - 2);
    own.append(&mut q.body);
    p.name = format!("{}, then {}", p.name, q.name);
    p.regs.append(&mut q.regs);
    p.vars.append(&mut q.vars);
    p.shared.extend(q.shared.drain(kept as usize..));
    p.operands.append(&mut q.operands);
    p.faults.append(&mut q.faults);
    super::verified(&p);
    Ok(p)
}
