//! Pieces that pass through stages: one side copies them, as far ahead as stages are free, the other computes with
//! them.
use super::super::ir::{Inst, Pipeline, Reg};
use super::{Machine, Memory, StopReason, Touch};
use std::collections::BTreeSet;

/// Threads of a warp.
const WARP: usize = 32;

/// A side's piece and what is done for it.
type Side<'a> = (Reg, &'a [Inst]);

/// Shared arrays that instructions copy or write to.
fn written(body: &[Inst], out: &mut BTreeSet<u32>) {
    for i in body {
        match i {
            Inst::Bulk { array, .. }
            | Inst::Copy { array, .. }
            | Inst::StoreShared { array, .. } => {
                out.insert(*array);
            }
            i => written(i.body(), out),
        }
    }
}

/// What all threads do, both sides, and what those that compute do behind them.
struct Parts<'a> {
    all: Vec<&'a Inst>,
    sides: [Side<'a>; 2],
    rest: &'a [Inst],
}

fn parts(body: &[Inst]) -> Option<Parts<'_>> {
    let side = |i: &Inst| matches!(i, Inst::Side { .. });
    let first = body.iter().position(side)?;
    let second = first + 1 + body[first + 1..].iter().position(side)?;
    let of = |at: usize| match &body[at] {
        Inst::Side { piece, body } => Some((*piece, body.as_slice())),
        _ => None,
    };
    Some(Parts {
        all: body[..second].iter().filter(|i| !side(i)).collect(),
        sides: [of(first)?, of(second)?],
        rest: &body[second + 1..],
    })
}

impl<M: Memory> Machine<'_, M> {
    /// Runs a pipeline's body.
    pub(super) fn pipeline(
        &mut self,
        p: &Pipeline,
        body: &[Inst],
        on: &[bool],
    ) -> Result<(), StopReason> {
        if on.contains(&false) {
            return Err("a pipeline where not all threads come by".into());
        }
        let parts = parts(body).ok_or("a pipeline without two sides")?;
        self.meet();
        for i in parts.all {
            self.inst(i, on)?;
        }
        let mut arrays = BTreeSet::new();
        written(parts.sides[0].1, &mut arrays);
        let computing = self.lanes - p.copiers as usize * WARP;
        let others: Vec<bool> = (0..self.lanes).map(|l| l < computing).collect();
        self.meeting = computing;
        let (pieces, mut copied) = (self.int(p.pieces, 0), 0);
        let (stages, behind) = (i64::from(p.stages), i64::from(p.behind));
        for piece in 0..pieces {
            let free = (piece - behind).max(0) + stages;
            while copied < pieces.min(free) {
                let warp = computing + copied as usize % p.turns() as usize * WARP;
                let own: Vec<bool> = (0..self.lanes).map(|l| l / WARP == warp / WARP).collect();
                self.side(parts.sides[0], copied, &own)?;
                self.handed_over(&arrays, (copied % stages, stages));
                copied += 1;
            }
            self.side(parts.sides[1], piece, &others)?;
            if piece >= behind {
                self.handed_over(&arrays, ((piece - behind) % stages, stages));
            }
        }
        let done = self.body(parts.rest, &others);
        self.meeting = self.lanes;
        done
    }

    fn side(&mut self, (reg, body): Side<'_>, piece: i64, on: &[bool]) -> Result<(), StopReason> {
        for l in (0..self.lanes).filter(|&l| on[l]) {
            self.set(reg, l, piece as u64);
        }
        self.body(body, on)
    }

    /// A stage changes hands: what was done to it before was done before what follows.
    fn handed_over(&mut self, arrays: &BTreeSet<u32>, (stage, stages): (i64, i64)) {
        for &a in arrays {
            let touched = &mut self.shared[a as usize].1;
            let each = touched.len() / stages as usize;
            let from = each * stage as usize;
            touched[from..from + each].fill(Touch::default());
        }
        self.proxy.barrier();
    }
}
