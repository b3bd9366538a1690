//! What a warp takes alone at least, before its instructions are put in order: however they stand between two points that
//! nothing is moved past, each goes behind what it reads, and all of them are issued one after the other.
use super::item::{Item, waits};
use super::wait_cycles;
use super::words::{Kind, Word};
use crate::ptx::lines::Lines;
use crate::simt::lanes::Footprint;
use machine::{Pipe, WarpRates};

/// A warp that is gone through.
pub(super) struct Least<'a> {
    rates: WarpRates,
    lines: &'a Lines,
    /// Cycles until a load from an operand is answered by what is nearest.
    load: f64,
    /// When each register is there at the soonest.
    at: Vec<f64>,
    /// Where the stretch at hand begins, and instructions that were issued in it.
    from: f64,
    issued: f64,
    /// When the last instruction so far goes at the soonest.
    end: f64,
}

impl Least<'_> {
    /// The least cycles that one warp takes for `items`, where loads take `load`.
    pub fn cycles(rates: WarpRates, lines: &Lines, load: f64, items: &[Item]) -> f64 {
        let mut least = Least {
            rates,
            lines,
            load,
            at: vec![0.0; lines.names.len()],
            from: 0.0,
            issued: 0.0,
            end: 0.0,
        };
        least.items(items);
        least.end
    }

    fn items(&mut self, items: &[Item]) {
        for i in items {
            match i {
                Item::Word(w, _) if waits(w.kind) => {
                    self.settle();
                    self.end += wait_cycles(&self.rates, w.kind);
                    self.from = self.end;
                }
                Item::Word(w, t) => self.word(w, t),
                Item::Part {
                    times,
                    looped: true,
                    body,
                    ..
                } => self.passes(*times, body),
                Item::Part { times, body, .. } => {
                    self.settle();
                    if *times > 0.0 {
                        self.items(body);
                    }
                }
                Item::Sides(s) => {
                    self.items(&s.before);
                    self.passes(s.pieces, &s.compute);
                    if let Some((rest, _)) = &s.walk {
                        self.items(rest);
                    }
                }
            }
        }
        self.settle();
    }

    /// What follows goes behind all that came before.
    fn settle(&mut self) {
        let issued = WarpRates::LONE * self.issued;
        self.end = self.end.max(self.from + issued);
        (self.from, self.issued) = (self.end, 0.0);
    }

    /// A loop: how long a pass waits for what is under way when it begins is left out.
    fn passes(&mut self, times: f64, body: &[Item]) {
        self.settle();
        if times <= 0.0 {
            return;
        }
        let before = self.end;
        self.at.fill(0.0);
        self.items(body);
        self.end = before + (self.end - before) * times;
        self.from = self.end;
    }

    fn word(&mut self, w: &Word, touch: &Footprint) {
        let uses = w.uses(self.lines).iter();
        let ready = uses.fold(self.from, |a, u| a.max(self.at[*u as usize]));
        let there = match (w.pipe, w.kind) {
            (None, _) => ready,
            // What touches nothing is there at once.
            (_, Kind::Load) if touch.sectors <= 0.0 => ready,
            (_, Kind::Load) => ready + self.load,
            (_, Kind::LoadShared) => ready + self.rates.shared,
            (_, Kind::Product | Kind::Copy) => ready,
            (Some(pipe), _) => {
                let turns = f64::from(w.turns) * self.rates.turn(pipe);
                ready + turns - 1.0 + self.rates.latency(pipe)
            }
        };
        if let Some(pipe) = w.pipe {
            self.issued += match pipe {
                Pipe::Warpgroup => 1.0,
                _ => f64::from(w.turns),
            };
            self.end = self.end.max(ready);
        }
        if w.kind != Kind::Store {
            let defs = w.defs(self.lines).iter();
            defs.for_each(|d| self.at[*d as usize] = there);
        }
    }
}
