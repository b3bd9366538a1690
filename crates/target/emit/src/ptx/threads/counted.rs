//! The instructions of a program's lines as the items that are counted.
use super::super::count::{Item, Reader, Sides};
use super::super::lines::Lines;
use crate::simt::ir::{Inst, Pipeline, Program};
use crate::simt::lanes::{Footprint, Seen};
use std::ops::Range;

/// The lines that an instruction made, and within them those of its body.
#[derive(Clone, Default)]
pub(super) struct Part {
    pub whole: Range<usize>,
    pub body: Range<usize>,
}

/// The lines of a program with the part of each of its instructions, in their order.
pub(in crate::ptx) struct Counted {
    pub shared_bytes: u32,
    pub lines: Lines,
    pub(super) parts: Vec<Part>,
}

impl Counted {
    /// The instructions of `p`, whose lines these are, with what is seen of each.
    /// A CTA has so many tasks, where it walks them.
    pub fn items(&self, p: &Program, seen: &[Seen], tasks: f64, reader: &mut Reader) -> Vec<Item> {
        let mut parts = self.parts.iter().zip(seen);
        let mut out = vec![];
        let cta = Cta {
            warps: p.threads / 32,
            tasks,
        };
        self.count((&p.body, cta), &mut parts, reader, &mut out);
        out
    }

    /// The items of `body`, of which `parts` has an entry per instruction.
    fn count<'s>(
        &self,
        (body, cta): (&[Inst], Cta),
        parts: &mut dyn Iterator<Item = (&'s Part, &'s Seen)>,
        reader: &mut Reader,
        out: &mut Vec<Item>,
    ) {
        for i in body {
            let Some((part, own)) = parts.next() else {
                return;
            };
            let (whole, inside) = (part.whole.clone(), &part.body);
            let (before, after) = (whole.start..inside.start, inside.end..whole.end);
            let mut inner = vec![];
            let times = match (i, own) {
                (Inst::For { .. }, own) => {
                    // The counter's first value is set once, and compared in every pass.
                    let first = before.len().min(1) + before.start;
                    reader.read(before.start..first, Footprint::default(), out);
                    reader.read(first..before.end, Footprint::default(), &mut inner);
                    match own {
                        Seen::Passes(n) => *n,
                        _ => 1.0,
                    }
                }
                (Inst::Pipeline { pipeline, .. }, _) => {
                    reader.read(before, Footprint::default(), out);
                    self.count((i.body(), cta), parts, reader, &mut inner);
                    in_sides(inner, (pipeline, cta), reader, out);
                    reader.read(after, Footprint::default(), out);
                    continue;
                }
                (Inst::Side { .. }, own) => {
                    reader.read(before, Footprint::default(), &mut inner);
                    match own {
                        Seen::Passes(n) => *n,
                        _ => 1.0,
                    }
                }
                (Inst::If { .. }, own) => {
                    reader.read(before, Footprint::default(), out);
                    match own {
                        Seen::Share(n) | Seen::Rarely(n) => *n,
                        _ => 1.0,
                    }
                }
                (_, own) => {
                    let touch = match own {
                        Seen::Memory(t) => *t,
                        _ => Footprint::default(),
                    };
                    reader.read(whole, touch, out);
                    continue;
                }
            };
            self.count((i.body(), cta), parts, reader, &mut inner);
            reader.read(after, Footprint::default(), &mut inner);
            // A part that a loop rarely runs is gone through as one that each pass runs a little of.
            let looped =
                matches!(i, Inst::For { .. } | Inst::Side { .. }) || matches!(own, Seen::Rarely(_));
            out.push(reader.part(times, looped, inner));
        }
    }
}

/// What is known of a CTA: its warps, and how many tasks it has where it walks them.
#[derive(Clone, Copy)]
struct Cta {
    warps: u32,
    tasks: f64,
}

/// The items of a pipeline's body: its sides together, and what stands behind them for those that compute.
fn in_sides(
    items: Vec<Item>,
    (p, cta): (&Pipeline, Cta),
    reader: &mut Reader,
    out: &mut Vec<Item>,
) {
    let (mut sides, mut before, mut rest) = (vec![], vec![], vec![]);
    for item in items {
        match item {
            Item::Part {
                looped: true,
                times,
                body,
                ..
            } if sides.len() < 2 => sides.push((times, body)),
            item => match sides.len() {
                0 => out.push(item),
                1 => before.push(item),
                _ => rest.push(item),
            },
        }
    }
    let (Some((pieces, compute)), Some((_, copy))) = (sides.pop(), sides.pop()) else {
        return;
    };
    let walk = p
        .walk
        .map(|_| (std::mem::take(&mut rest), cta.tasks.max(1.0)));
    let walks = walk.is_some();
    let sides = Sides {
        copy,
        before,
        compute,
        pieces,
        walk,
        stages: p.stages,
        behind: p.behind,
        copiers: p.copiers,
        turns: p.turns(),
        warps: cta.warps,
    };
    let computing = sides.computing();
    out.push(Item::Sides(Box::new(sides)));
    if !walks {
        out.push(reader.part(computing, false, rest));
    }
}

/// The pipeline of a program, where it has one.
pub(super) fn pipeline_of(body: &[Inst]) -> Option<Pipeline> {
    body.iter().find_map(|i| match i {
        Inst::Pipeline { pipeline, .. } => Some(*pipeline),
        i => pipeline_of(i.body()),
    })
}
