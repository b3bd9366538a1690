//! The clock of warps that copy pieces and of those that compute with them: each side has one of its own, and waits for
//! the other's stages.
use super::item::{Item, Sides};
use super::words::Kind;
use super::{AHEAD, Clock};
use machine::Pipe;

/// Tasks of a CTA that are gone through, at most: more take as long as the last of these.
const TASKS: f64 = 3.0;

/// When each pipe is free.
type Free = [f64; Pipe::ALL.len()];

/// How far both sides have come.
struct Progress {
    /// When the CTA began.
    begin: f64,
    /// When each of the warps that copy in turns was through with its last piece.
    copied: Vec<(f64, Free)>,
    /// Pieces that were copied, and when the stage of each was free again.
    pieces: usize,
    freed: Vec<f64>,
}

impl Progress {
    fn later(&mut self, more: f64) {
        for (at, free) in &mut self.copied {
            *at += more;
            free.iter_mut().for_each(|f| *f += more);
        }
        self.freed.iter_mut().for_each(|f| *f += more);
    }
}

impl Clock<'_> {
    /// Pieces that some warps copy while others compute with them, each of the former and all of the latter with pipes of
    /// their own: the schedulers have turns to spare where copies are ahead. Where CTAs walk tasks this is the mean time
    /// of one.
    pub(super) fn sides(&mut self, s: &Sides) {
        let (warps, begin) = (self.warps, self.now);
        let mut p = Progress {
            begin,
            copied: vec![(begin, self.free); s.turns as usize],
            pieces: 0,
            freed: vec![],
        };
        self.sided = true;
        match &s.walk {
            None => {
                self.before(s);
                self.pieces(s, &mut p);
            }
            Some((rest, tasks)) => self.tasks(s, (rest, *tasks), &mut p),
        }
        (self.warps, self.sided) = (warps, false);
    }

    /// What those that compute do before the pieces of a task.
    fn before(&mut self, s: &Sides) {
        let warps = self.warps;
        self.warps = (warps * s.computing()).max(1.0);
        self.items(&s.before);
        self.warps = warps;
    }

    /// The pieces of a task. A few more than there are stages are gone through, the others take as long as the last of
    /// these.
    fn pieces(&mut self, s: &Sides, p: &mut Progress) {
        let warps = self.warps;
        let ctas = (warps / f64::from(s.warps)).max(1.0);
        let computing = (warps * s.computing()).max(1.0);
        let passes = s.pieces.min(f64::from(s.stages) + AHEAD).floor();
        let mut over = vec![];
        for piece in 0..passes as usize {
            let turns = p.copied.len();
            let own = &mut p.copied[p.pieces % turns];
            let last = p.pieces.checked_sub(s.stages as usize);
            let free = last.and_then(|n| p.freed.get(n)).copied();
            let now = std::mem::replace(&mut self.now, free.unwrap_or(p.begin).max(own.0));
            std::mem::swap(&mut self.free, &mut own.1);
            // Another warp made the piece before, with registers of its own.
            let at = vec![self.now; self.at.len()];
            let computed = std::mem::replace(&mut self.at, at);
            self.warps = ctas;
            self.items(&s.copy);
            own.0 = self.now;
            let there = self.now + self.rates.barrier;
            self.now = now.max(there);
            std::mem::swap(&mut self.free, &mut own.1);
            (self.warps, self.at) = (computing, computed);
            self.items(&s.compute);
            over.push(self.now);
            p.pieces += 1;
            if piece >= s.behind as usize {
                p.freed.push(self.now);
            }
        }
        self.warps = warps;
        if let [.., before, last] = over[..] {
            let more = (last - before) * (s.pieces - passes).max(0.0);
            self.later(more);
            p.later(more);
        }
    }

    /// Tasks one after the other, with `rest` behind the pieces of each: those who copy go on meanwhile.
    fn tasks(&mut self, s: &Sides, (rest, tasks): (&[Item], f64), p: &mut Progress) {
        let warps = self.warps;
        let waits =
            |i: &Item| matches!(i, Item::Word(w, _) if matches!(w.kind, Kind::ProductWait(_)));
        let through = rest.iter().position(waits).map_or(0, |at| at + 1);
        let passes = tasks.min(TASKS).floor();
        let mut ends = vec![p.begin];
        for _ in 0..passes as usize {
            self.before(s);
            self.pieces(s, p);
            self.warps = (warps * s.computing()).max(1.0);
            self.items(&rest[..through]);
            p.freed.resize(p.pieces, self.now);
            self.items(&rest[through..]);
            self.warps = warps;
            ends.push(self.now.max(self.stores));
        }
        if let [.., before, last] = ends[..] {
            let all = last - p.begin + (last - before) * (tasks - passes);
            self.later(p.begin + all / tasks - last);
        }
    }
}
