//! Programmatic dependent launch: a kernel may start while earlier kernels still run. This file decides where a program
//! waits for the earlier kernels and where it allows the next one to start, and checks both.
//!
//! Before its wait a program touches only constants. It reads nothing that an earlier kernel writes and overwrites nothing
//! that an earlier kernel reads, so the waits are the only order that is needed: after its wait a kernel sees what the
//! kernel before it wrote, and that one had waited for its own predecessors before it wrote. A program allows the next
//! kernel only after its own wait, so all kernels before this one are over when the next one starts.
use super::ir::{Buffer, Inst, Op, Program};
use kernel::OperandId;

/// Whether a kernel may write this operand: everything but a constant.
fn changes(operand: OperandId, operands: &[Buffer]) -> bool {
    operands
        .get(operand as usize)
        .is_none_or(|o| o.written || !o.constant)
}

/// Whether an instruction itself reads or writes global memory that is no constant.
pub(crate) fn touches_itself(i: &Inst, operands: &[Buffer]) -> bool {
    match i {
        Inst::Let(_, Op::Load { operand, .. })
        | Inst::LoadRun { operand, .. }
        | Inst::Copy { operand, .. }
        | Inst::Bulk { operand, .. }
        | Inst::Box { operand, .. } => changes(*operand, operands),
        // A fault is written where all kernels of a request write theirs.
        Inst::Store { .. } | Inst::Fault { .. } => true,
        _ => false,
    }
}

/// The same of an instruction or one in its body.
pub(super) fn touches(i: &Inst, operands: &[Buffer]) -> bool {
    touches_itself(i, operands) || i.body().iter().any(|i| touches(i, operands))
}

/// Whether a program waits for the kernels before it.
pub(crate) fn waits(body: &[Inst]) -> bool {
    let wait = |i: &Inst| matches!(i, Inst::DependencyWait) || waits(i.body());
    body.iter().any(wait)
}

/// Adds the wait for earlier kernels to a whole program, as late as possible. If `triggers`, allows the next kernel to
/// start right behind it: once all CTAs of this kernel have waited, those of the next one take what room there is, fetch
/// their code and copy their constants beside the rest of this kernel.
pub(super) fn with_wait(mut body: Vec<Inst>, operands: &[Buffer], triggers: bool) -> Vec<Inst> {
    let at = body.iter().position(|i| touches(i, operands));
    let at = at.unwrap_or(body.len());
    let inside = match body.get_mut(at) {
        Some(Inst::Pipeline { body, .. }) => in_sides(body, operands, triggers),
        _ => false,
    };
    if !inside {
        wait(&mut body, at, triggers);
    }
    body
}

/// Adds a wait at a place that all threads reach, and behind it what allows the next kernel if `triggers`.
fn wait(body: &mut Vec<Inst>, at: usize, triggers: bool) {
    let next = triggers.then_some(Inst::LaunchDependents);
    body.splice(at..at, [Inst::DependencyWait].into_iter().chain(next));
}

/// Adds two waits to a pipeline's body: the copying threads wait after their copies of constants, the others at once,
/// which also allow the next kernel if `triggers`. Returns false, and adds none, where all threads touch other memory
/// before the sides begin.
fn in_sides(body: &mut Vec<Inst>, operands: &[Buffer], triggers: bool) -> bool {
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
    wait(body, first + 1, triggers);
    true
}

/// Checks that no thread touches anything but constants before it has waited, that all threads but those that copy wait,
/// and that none allows the next kernel before. A program without a wait passes, if it does not allow the next kernel.
///
/// # Errors
/// Names what happens before the wait.
pub(super) fn check(p: &Program) -> Result<(), String> {
    let launches = |i: &Inst| matches!(i, Inst::LaunchDependents);
    fn any(body: &[Inst], f: &dyn Fn(&Inst) -> bool) -> bool {
        body.iter().any(|i| f(i) || any(i.body(), f))
    }
    if !waits(&p.body) {
        return match any(&p.body, &launches) {
            true => Err(
                "the next kernel may start although this one waits for no earlier kernel".into(),
            ),
            false => Ok(()),
        };
    }
    let order = Order { p };
    match order.body(&p.body, (false, true))? {
        true => Ok(()),
        false => Err("threads end without a wait for earlier kernels".into()),
    }
}

/// The check of a program.
struct Order<'p> {
    p: &'p Program,
}

impl Order<'_> {
    /// Checks a body. Says whether the threads that reach it have waited, and whether all threads (of the program or of
    /// the side) reach it; returns whether they have waited at its end.
    fn body(&self, body: &[Inst], (mut waited, all): (bool, bool)) -> Result<bool, String> {
        let mut sides = 0;
        for i in body {
            match i {
                Inst::DependencyWait if all => waited = true,
                Inst::DependencyWait => {
                    return Err(
                        "earlier kernels are waited for where not all threads come by".into(),
                    );
                }
                Inst::LaunchDependents if waited && all => {}
                Inst::LaunchDependents => {
                    return Err("the next kernel may start before earlier kernels are over".into());
                }
                Inst::Pipeline { body, .. } => waited = self.body(body, (waited, all))?,
                Inst::Side { body, .. } => {
                    sides += 1;
                    let behind = self.body(body, (waited, all))?;
                    // The copying threads, on the first side, do not execute what follows the pipeline.
                    if sides > 1 {
                        waited = behind;
                    }
                }
                Inst::For { body, .. } | Inst::If { body, .. } => {
                    self.body(body, (waited, false))?;
                }
                i if !waited && touches_itself(i, &self.p.operands) => {
                    return Err(format!(
                        "{} before earlier kernels are over",
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
            | Inst::Bulk { operand, .. }
            | Inst::Box { operand, .. } => format!("'{}' is read", name(*operand)),
            Inst::Store { operand, .. } => format!("'{}' is written", name(*operand)),
            _ => "a fault is written".into(),
        }
    }
}
