//! Lowering of a kernel and its schedule to nested loops: each statement is placed in the loops whose axes it
//! uses. [`TileProgram::new`](crate::TileProgram::new) calls it.
use crate::{AxisId, AxisTile, Kernel, Node, Seen, Stmt, TileId, TileIds};

impl Kernel {
    /// The loops that every schedule of this kernel begins with: its ordered axes.
    pub fn ordered_loops(&self) -> Vec<AxisTile> {
        let one = |axis| AxisTile { axis, tile: 1 };
        self.ordered().into_iter().map(one).collect()
    }

    /// The statements on whole axes, ordered ones apart: in loops over their positions.
    pub fn nodes(&self) -> Vec<Node> {
        place(self, &self.ordered_loops())
    }
}

/// The body of one task: loops around the statements that depend on looped axes.
///
/// A statement depends on a looped axis when a tile it reads or writes has it, or when it sums or
/// folds over it. Neighbouring statements with the same loops share them. A statement between two
/// that belong into one loop goes before that loop when nothing in the loop so far touches what it
/// writes or writes what it touches: so a fill of an accumulator stands before the loop that
/// accumulates into it, wherever the kernel lists it.
pub(crate) fn place(kernel: &Kernel, loops: &[AxisTile]) -> Vec<Node> {
    let mut body = Vec::new();
    let all: Vec<usize> = (0..kernel.body.len()).collect();
    let seen = |l: &AxisTile| (*l, kernel.seen(l.axis));
    let loops: Vec<(AxisTile, Seen)> = loops.iter().map(seen).collect();
    build(kernel, &loops, &all, &mut body);
    body
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
        let mark = |list: &mut Vec<bool>, tiles: TileIds| {
            for t in tiles {
                if let Some(m) = list.get_mut(t as usize) {
                    *m = true;
                }
            }
        };
        mark(&mut self.read, stmt.reads());
        mark(&mut self.written, stmt.writes());
    }

    /// Whether `stmt` means the same before these statements.
    fn apart(&self, stmt: &Stmt) -> bool {
        let is = |list: &[bool], t: &TileId| list.get(*t as usize).copied().unwrap_or(true);
        let written = |t: &TileId| is(&self.written, t);
        !stmt.reads().iter().any(written)
            && !stmt
                .writes()
                .iter()
                .any(|t| written(t) || is(&self.read, t))
    }
}

fn build(kernel: &Kernel, loops: &[(AxisTile, Seen)], stmts: &[usize], out: &mut Vec<Node>) {
    let Some(((level, seen), inner)) = loops.split_first() else {
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
        build(kernel, inner, &before, out);
        if !looped.is_empty() {
            let mut body = Vec::new();
            build(kernel, inner, &looped, &mut body);
            let (axis, seen) = (*level, seen.clone());
            out.push(Node::Loop { axis, seen, body });
        }
    }
}
