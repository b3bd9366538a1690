//! Pieces that pass through stages: one side copies them, as far ahead as stages are free, the other computes with
//! them.
use super::super::ir::{Inst, Pipeline, Reg};
use super::{LastAccess, Machine, Memory, StopReason};
use std::collections::BTreeSet;

/// Threads of a warp.
const WARP: usize = 32;

/// A side's piece and stage, and what is done for it.
type Side<'a> = ([Reg; 2], &'a [Inst]);

/// Shared arrays that instructions copy or write to.
fn written(body: &[Inst], out: &mut BTreeSet<u32>) {
    for i in body {
        match i {
            Inst::Bulk { array, .. }
            | Inst::Box { array, .. }
            | Inst::Copy { array, .. }
            | Inst::StoreShared { array, .. } => {
                out.insert(*array);
            }
            i => written(i.body(), out),
        }
    }
}

/// What all threads do, both sides, and what those that compute do between and behind them.
struct Parts<'a> {
    all: &'a [Inst],
    sides: [Side<'a>; 2],
    between: &'a [Inst],
    rest: &'a [Inst],
}

fn parts(body: &[Inst]) -> Option<Parts<'_>> {
    let side = |i: &Inst| matches!(i, Inst::Side { .. });
    let first = body.iter().position(side)?;
    let second = first + 1 + body[first + 1..].iter().position(side)?;
    let of = |at: usize| match &body[at] {
        Inst::Side { piece, stage, body } => Some(([*piece, *stage], body.as_slice())),
        _ => None,
    };
    Some(Parts {
        all: &body[..first],
        sides: [of(first)?, of(second)?],
        between: &body[first + 1..second],
        rest: &body[second + 1..],
    })
}

/// How far the two sides of a pipeline have come.
struct Progress<'a> {
    p: &'a Pipeline,
    parts: Parts<'a>,
    /// Arrays that pieces are copied to.
    arrays: BTreeSet<u32>,
    /// Tasks of the CTA.
    tasks: Vec<i64>,
    /// Pieces of a task.
    pieces: i64,
    /// Pieces of all tasks that were copied, and that nobody reads any more.
    copied: i64,
    freed: i64,
}

impl<M: Memory> Machine<'_, M> {
    /// Runs a pipeline's body, for every task of the CTA where it walks tasks.
    pub(super) fn pipeline(
        &mut self,
        p: &Pipeline,
        body: &[Inst],
        active: &[usize],
    ) -> Result<(), StopReason> {
        if active.len() != self.lanes {
            return Err("a pipeline where not all threads come by".into());
        }
        let parts = parts(body).ok_or("a pipeline without two sides")?;
        self.meet();
        let mut arrays = BTreeSet::new();
        written(parts.sides[0].1, &mut arrays);
        let computing = self.lanes - p.copiers as usize * WARP;
        let mut s = Progress {
            p,
            parts,
            arrays,
            tasks: match p.walk {
                Some(_) => self.tasks.clone(),
                None => vec![self.task],
            },
            pieces: self.int(p.pieces, 0),
            copied: 0,
            freed: 0,
        };
        if p.walk.is_none() {
            self.enter_task(&s, 0, active)?;
        }
        self.meeting = computing;
        for task in 0..s.tasks.len() {
            self.computed(&mut s, task, &active[..computing])?;
        }
        self.meeting = self.lanes;
        Ok(())
    }

    /// What the threads `active` do before the pieces of task `number` of the CTA's.
    fn enter_task(
        &mut self,
        s: &Progress,
        number: usize,
        active: &[usize],
    ) -> Result<(), StopReason> {
        self.task = s.tasks[number];
        for &l in active {
            if let Some(task) = s.p.walk {
                self.set(task, l, s.tasks[number] as u64);
                for v in 0..self.p.vars.len() {
                    self.proxy.free(v as u32, l)?;
                    self.vars[v * self.lanes + l] = 0;
                }
            }
        }
        s.parts.all.iter().try_for_each(|i| self.inst(i, active))
    }

    /// What the threads that compute, which are `active`, do for a task.
    fn computed(
        &mut self,
        s: &mut Progress,
        task: usize,
        active: &[usize],
    ) -> Result<(), StopReason> {
        if s.p.walk.is_some() {
            self.enter_task(s, task, active)?;
        }
        for i in s.parts.between {
            self.inst(i, active)?;
        }
        let first = task as i64 * s.pieces;
        let behind = i64::from(s.p.behind);
        for piece in 0..s.pieces {
            self.ahead(s)?;
            let stage = (first + piece) % i64::from(s.p.stages);
            self.side(s.parts.sides[1], [piece, stage], active)?;
            self.free(s, (first + piece + 1 - behind).max(first));
        }
        for i in s.parts.rest {
            match i {
                // Whoever copies goes on at once.
                Inst::Freed => {
                    self.free(s, first + s.pieces);
                    self.ahead(s)?;
                }
                i => self.inst(i, active)?,
            }
        }
        Ok(())
    }

    /// Pieces before number `to` are read no more.
    fn free(&mut self, s: &mut Progress, to: i64) {
        for n in s.freed..to {
            self.handed_over(&s.arrays, (n, i64::from(s.p.stages)));
        }
        s.freed = s.freed.max(to);
    }

    /// Copies pieces to all stages that are free.
    fn ahead(&mut self, s: &mut Progress) -> Result<(), StopReason> {
        let (stages, turns) = (i64::from(s.p.stages), i64::from(s.p.turns()));
        let computing = self.lanes - s.p.copiers as usize * WARP;
        let all = s.tasks.len() as i64 * s.pieces;
        while s.copied < all.min(s.freed + stages) {
            let piece = s.copied % s.pieces;
            if piece == 0 && s.p.walk.is_some() {
                let copying: Vec<usize> = (computing..self.lanes).collect();
                self.enter_task(s, (s.copied / s.pieces) as usize, &copying)?;
            }
            let warp = computing / WARP + (s.copied % turns) as usize;
            let own: Vec<usize> = (warp * WARP..(warp + 1) * WARP).collect();
            self.side(s.parts.sides[0], [piece, s.copied % stages], &own)?;
            self.handed_over(&s.arrays, (s.copied, stages));
            s.copied += 1;
        }
        Ok(())
    }

    fn side(
        &mut self,
        (regs, body): Side<'_>,
        values: [i64; 2],
        active: &[usize],
    ) -> Result<(), StopReason> {
        for &l in active {
            for (r, v) in regs.into_iter().zip(values) {
                self.set(r, l, v as u64);
            }
        }
        self.body(body, active)
    }

    /// The stage of piece `n` changes hands: what was done to it before was done before what follows.
    fn handed_over(&mut self, arrays: &BTreeSet<u32>, (n, stages): (i64, i64)) {
        for &a in arrays {
            let touched = &mut self.shared[a as usize].1;
            let each = touched.len() / stages as usize;
            let from = each * (n % stages) as usize;
            touched[from..from + each].fill(LastAccess::default());
        }
        self.proxy.barrier();
    }
}
