//! Kernels that are launched before those before them are over: where in a program its threads wait for these, and where it
//! says that the kernel behind it may be launched.
//!
//! Whatever stands before the wait touches constants alone. Nothing that a kernel before writes, or reads before it is
//! written again, is touched there, so that no other order than that of the waits matters: who has waited sees what the
//! kernel before wrote, which had waited too before it wrote. The launch of the kernel behind stands behind the wait:
//! when that one begins all kernels before this one are over.
use super::ir::{Buffer, Inst, Op, Program};
use kernel::OperandId;

/// Whether an operand is none that nothing writes.
fn changes(operand: OperandId, operands: &[Buffer]) -> bool {
    operands
        .get(operand as usize)
        .is_none_or(|o| o.written || !o.constant)
}

/// Whether an instruction itself touches global memory that is no constant.
pub(crate) fn touches_itself(i: &Inst, operands: &[Buffer]) -> bool {
    match i {
        Inst::Let(_, Op::Load { operand, .. })
        | Inst::LoadRun { operand, .. }
        | Inst::Copy { operand, .. }
        | Inst::Bulk { operand, .. } => changes(*operand, operands),
        // A fault is written where all kernels of a request write theirs.
        Inst::Store { .. } | Inst::Fault { .. } => true,
        _ => false,
    }
}

/// Whether an instruction touches such memory, or one in its body does.
pub(super) fn touches(i: &Inst, operands: &[Buffer]) -> bool {
    touches_itself(i, operands) || i.body().iter().any(|i| touches(i, operands))
}

fn stores(i: &Inst) -> bool {
    matches!(i, Inst::Store { .. }) || i.body().iter().any(stores)
}

/// Whether a program waits for the kernels before it.
pub(crate) fn waits(body: &[Inst]) -> bool {
    let wait = |i: &Inst| matches!(i, Inst::DependencyWait) || waits(i.body());
    body.iter().any(wait)
}

/// A whole program's instructions with the wait for the kernels before it, as late as it may stand, and where it
/// `triggers` with what launches the kernel behind, before the first results are stored.
pub(super) fn with_wait(mut body: Vec<Inst>, operands: &[Buffer], triggers: bool) -> Vec<Inst> {
    let at = body.iter().position(|i| touches(i, operands));
    let at = at.unwrap_or(body.len());
    let inside = match body.get_mut(at) {
        Some(Inst::Pipeline { body, .. }) => in_sides(body, operands),
        _ => false,
    };
    if !inside {
        body.insert(at, Inst::DependencyWait);
    }
    if triggers {
        trigger(&mut body);
    }
    body
}

/// Puts a wait into a pipeline's body for those that copy, behind what they copy of constants, and one for the others,
/// which have nothing to do before. Gives whether that is possible: all threads may touch more before.
fn in_sides(body: &mut Vec<Inst>, operands: &[Buffer]) -> bool {
    let touched = |list: &[Inst]| list.iter().position(|i| touches(i, operands));
    let side = body.iter().position(|i| matches!(i, Inst::Side { .. }));
    let Some(first) = side.filter(|&at| touched(&body[..at]).is_none()) else {
        return false;
    };
    if let Inst::Side { body: copies, .. } = &mut body[first]
        && let Some(at) = touched(copies)
    {
        copies.insert(at, Inst::DependencyWait);
    }
    body.insert(first + 1, Inst::DependencyWait);
    true
}

/// Puts the launch of the kernel behind before the first instruction that stores, where all threads come by.
fn trigger(body: &mut Vec<Inst>) {
    let Some(at) = body.iter().position(stores) else {
        return;
    };
    match &mut body[at] {
        Inst::Pipeline { body, .. } => trigger(body),
        Inst::Side { .. } => {}
        _ => body.insert(at, Inst::LaunchDependents),
    }
}

/// Checks that no thread touches what is no constant before it has waited, that all threads but those that copy wait, and
/// that none launches the kernel behind before. Nothing is asked of a program that does not wait at all.
///
/// # Errors
/// Says what stands before the wait.
pub(super) fn check(p: &Program) -> Result<(), String> {
    let launches = |i: &Inst| matches!(i, Inst::LaunchDependents);
    fn any(body: &[Inst], f: &dyn Fn(&Inst) -> bool) -> bool {
        body.iter().any(|i| f(i) || any(i.body(), f))
    }
    if !waits(&p.body) {
        return match any(&p.body, &launches) {
            true => Err("a kernel behind may be launched by a program that waits for none".into()),
            false => Ok(()),
        };
    }
    let order = Order { p };
    match order.body(&p.body, (false, true))? {
        true => Ok(()),
        false => Err("threads end without a wait for the kernels before".into()),
    }
}

/// The check of a program.
struct Order<'p> {
    p: &'p Program,
}

impl Order<'_> {
    /// A body that is come to by threads that have waited or not, all of them (or all of a side) or some; gives whether
    /// they have behind it.
    fn body(&self, body: &[Inst], (mut waited, all): (bool, bool)) -> Result<bool, String> {
        let mut sides = 0;
        for i in body {
            match i {
                Inst::DependencyWait if all => waited = true,
                Inst::DependencyWait => {
                    return Err(
                        "the kernels before are waited for where not all threads come by".into(),
                    );
                }
                Inst::LaunchDependents if waited && all => {}
                Inst::LaunchDependents => {
                    return Err(
                        "the kernel behind may be launched before those before are over".into(),
                    );
                }
                Inst::Pipeline { body, .. } => waited = self.body(body, (waited, all))?,
                Inst::Side { body, .. } => {
                    sides += 1;
                    let behind = self.body(body, (waited, all))?;
                    // Those that copy, on the first side, do not come by what stands behind it.
                    if sides > 1 {
                        waited = behind;
                    }
                }
                Inst::For { body, .. } | Inst::If { body, .. } => {
                    self.body(body, (waited, false))?;
                }
                i if !waited && touches_itself(i, &self.p.operands) => {
                    return Err(format!(
                        "{} before the kernels before are over",
                        self.touched(i)
                    ));
                }
                _ => {}
            }
        }
        Ok(waited)
    }

    fn touched(&self, i: &Inst) -> String {
        let name = |o: OperandId| &self.p.operands[o as usize].name;
        match i {
            Inst::Let(_, Op::Load { operand, .. })
            | Inst::LoadRun { operand, .. }
            | Inst::Copy { operand, .. }
            | Inst::Bulk { operand, .. } => format!("'{}' is read", name(*operand)),
            Inst::Store { operand, .. } => format!("'{}' is written", name(*operand)),
            _ => "a fault is written".into(),
        }
    }
}
