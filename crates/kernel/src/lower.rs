//! From kernel and schedule to loops: each statement goes into the loops whose axes it touches.
use crate::{AxisId, Kernel, KernelError, Node, Schedule, Stmt};

/// The body of one task: loops around the statements that depend on looped axes.
///
/// A statement depends on a looped axis when a tile it reads or writes has it, or when it sums or
/// folds over it. Neighbouring statements with the same loops share them; a fill of an accumulator
/// stands before the loops that accumulate into it because it does not have their axes.
pub(crate) fn place(kernel: &Kernel, schedule: &Schedule) -> Result<Vec<Node>, KernelError> {
    let mut body = Vec::new();
    let all: Vec<usize> = (0..kernel.body.len()).collect();
    build(kernel, schedule, &all, 0, &mut body);
    Ok(body)
}

fn touches(kernel: &Kernel, stmt: &Stmt, axis: AxisId) -> bool {
    stmt.over().contains(&axis)
        || stmt.reads().iter().chain(&stmt.writes()).any(|&t| {
            kernel
                .tiles
                .get(t as usize)
                .is_some_and(|t| t.axes.contains(&axis))
        })
}

fn build(kernel: &Kernel, schedule: &Schedule, stmts: &[usize], depth: usize, out: &mut Vec<Node>) {
    let Some(level) = schedule.loops.get(depth) else {
        out.extend(stmts.iter().map(|&s| Node::Stmt(kernel.body[s].clone())));
        return;
    };
    let mut at = 0;
    while at < stmts.len() {
        let inside = |s: usize| touches(kernel, &kernel.body[s], level.axis);
        let run = stmts[at..]
            .iter()
            .take_while(|&&s| inside(s) == inside(stmts[at]))
            .count();
        let part = &stmts[at..at + run];
        if inside(stmts[at]) {
            let mut body = Vec::new();
            build(kernel, schedule, part, depth + 1, &mut body);
            out.push(Node::Loop { axis: *level, body });
        } else {
            build(kernel, schedule, part, depth + 1, out);
        }
        at += run;
    }
}
