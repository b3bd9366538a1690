//! From kernel and schedule to loops: each statement goes into the loops whose axes it touches.
use crate::{AxisId, Kernel, KernelError, Node, Schedule, Stmt};

/// The body of one task: loops around the statements that depend on looped axes.
///
/// A statement depends on a looped axis when a tile it reads or writes has it, or when it sums or
/// folds over it. Neighbouring statements with the same loops share them. A statement between two
/// that belong into one loop goes before that loop when nothing in the loop so far touches what it
/// writes or writes what it touches: so a fill of an accumulator stands before the loop that
/// accumulates into it, wherever the kernel lists it.
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

/// Tiles that the statements of one loop read and write.
struct Used {
    read: Vec<bool>,
    written: Vec<bool>,
}

impl Used {
    fn add(&mut self, stmt: &Stmt) {
        stmt.reads()
            .iter()
            .for_each(|&t| self.read[t as usize] = true);
        stmt.writes()
            .iter()
            .for_each(|&t| self.written[t as usize] = true);
    }

    /// Whether `stmt` means the same before these statements.
    fn apart(&self, stmt: &Stmt) -> bool {
        let written = |t: &u16| self.written[*t as usize];
        !stmt.reads().iter().any(written)
            && !stmt
                .writes()
                .iter()
                .any(|t| written(t) || self.read[*t as usize])
    }
}

fn build(kernel: &Kernel, schedule: &Schedule, stmts: &[usize], depth: usize, out: &mut Vec<Node>) {
    let Some(level) = schedule.loops.get(depth) else {
        out.extend(stmts.iter().map(|&s| Node::Stmt(kernel.body[s].clone())));
        return;
    };
    let mut at = 0;
    while at < stmts.len() {
        let none = || vec![false; kernel.tiles.len()];
        let mut used = Used {
            read: none(),
            written: none(),
        };
        let (mut before, mut looped) = (Vec::new(), Vec::new());
        while let Some(&s) = stmts.get(at) {
            let stmt = &kernel.body[s];
            if touches(kernel, stmt, level.axis) {
                used.add(stmt);
                looped.push(s);
            } else if looped.is_empty() || used.apart(stmt) {
                before.push(s);
            } else {
                break;
            }
            at += 1;
        }
        build(kernel, schedule, &before, depth + 1, out);
        if !looped.is_empty() {
            let mut body = Vec::new();
            build(kernel, schedule, &looped, depth + 1, &mut body);
            out.push(Node::Loop { axis: *level, body });
        }
    }
}
