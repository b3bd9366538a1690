//! Who touched each word last.

use crate::clocks::{AGENTS, HOST, LaneSync, Stamp};

/// Words of one page; pages come when touched.
const PAGE: usize = 1024;
/// Marks a cell whose bytes have cells of their own.
const SPLIT: u32 = u32::MAX - 1;

/// The last write of a word, and two of the reads since, in threads of their own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cell {
    pub write: Stamp,
    pub reads: [Stamp; 2],
    /// Instructions of the write, and of the first read.
    pub write_pc: u32,
    pub read_pc: u32,
}

/// Who accesses.
pub(crate) struct Actor<'a> {
    pub thread: u32,
    pub clock: u32,
    /// Threads of the own CTA.
    pub cta: (u32, u32),
    pub sync: &'a LaneSync,
    pub threads_per_cta: u32,
    pub pc: u32,
    pub strength: u32,
}

/// Two accesses that nothing orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub other: Stamp,
    pub other_pc: u32,
    pub other_writes: bool,
    /// Whether both are strong, so that only a scope is too narrow.
    pub scope: bool,
}

impl Actor<'_> {
    fn stamp(&self) -> Stamp {
        Stamp {
            thread: self.thread,
            when: self.clock << 2 | self.strength,
        }
    }

    #[inline]
    fn same_cta(&self, s: Stamp) -> bool {
        s.thread >= self.cta.0 && s.thread < self.cta.1
    }

    /// Whether `s` surely lies before, at no cost.
    #[inline]
    fn plainly_before(&self, s: Stamp) -> bool {
        s.thread == 0
            || s.thread == self.thread
            || (self.same_cta(s) && s.clock() < self.sync.cta_seen)
    }

    /// Whether `s` is ordered before this access, or may run beside it.
    #[inline]
    fn fine(&self, s: Stamp) -> bool {
        self.plainly_before(s) || self.fine_slowly(s)
    }

    #[cold]
    fn fine_slowly(&self, s: Stamp) -> bool {
        let same = self.same_cta(s);
        let warp = s.thread.wrapping_sub(1) / 32;
        if same && warp == (self.thread - 1) / 32 && s.clock() < self.sync.warp_seen {
            return true;
        }
        let apart = match (same, s.thread == HOST || self.thread == HOST) {
            (true, _) => 1,
            (_, false) => 2,
            _ => 3,
        };
        if self.strength.min(s.strength()) >= apart {
            return true;
        }
        let cta = s.thread.wrapping_sub(1) / self.threads_per_cta.max(1);
        self.sync.vc.knows(s, warp, cta)
    }

    fn against(&self, s: Stamp, pc: u32, writes: bool) -> Option<Conflict> {
        if self.fine(s) {
            return None;
        }
        Some(Conflict {
            other: s,
            other_pc: pc,
            other_writes: writes,
            scope: s.strength() > 0 && self.strength > 0,
        })
    }

    #[inline]
    fn read(&self, c: &mut Cell) -> Option<Conflict> {
        let found = self.against(c.write, c.write_pc, true);
        let me = self.stamp();
        if c.reads[0].thread == 0
            || c.reads[0].thread == me.thread
            || self.plainly_before(c.reads[0])
        {
            c.reads[0] = me;
            c.read_pc = self.pc;
        } else {
            c.reads[1] = me;
        }
        found
    }

    #[inline]
    fn write(&self, c: &mut Cell) -> Option<Conflict> {
        let found = self
            .against(c.write, c.write_pc, true)
            .or_else(|| self.against(c.reads[0], c.read_pc, false))
            .or_else(|| self.against(c.reads[1], c.read_pc, false));
        c.write = self.stamp();
        c.write_pc = self.pc;
        c.reads = [Stamp::default(); 2];
        found
    }
}

/// Cells of one memory.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    pages: Vec<Option<Box<[Cell]>>>,
    split: Vec<[Cell; 4]>,
}

impl Shadow {
    fn page(&mut self, word: usize) -> &mut [Cell] {
        let p = word / PAGE;
        if p >= self.pages.len() {
            self.pages.resize_with(p + 1, || None);
        }
        self.pages[p].get_or_insert_with(|| vec![Cell::default(); PAGE].into_boxed_slice())
    }

    /// Notes an access of the bytes in `mask` of `word`.
    #[inline]
    pub fn touch(
        &mut self,
        word: usize,
        mask: u8,
        actor: &Actor<'_>,
        write: bool,
    ) -> Option<Conflict> {
        let cell = &mut self.page(word)[word % PAGE];
        if mask == 15 && cell.write.thread != SPLIT {
            return if write {
                actor.write(cell)
            } else {
                actor.read(cell)
            };
        }
        self.bytes(word, mask, actor, write)
    }

    #[cold]
    fn bytes(&mut self, word: usize, mask: u8, actor: &Actor<'_>, write: bool) -> Option<Conflict> {
        let next = self.split.len();
        let cell = &mut self.page(word)[word % PAGE];
        let id = if cell.write.thread == SPLIT {
            cell.write.when as usize
        } else {
            let whole = *cell;
            cell.write = Stamp {
                thread: SPLIT,
                when: next as u32,
            };
            self.split.push([whole; 4]);
            next
        };
        let mut found = None;
        for (b, c) in self.split[id].iter_mut().enumerate() {
            if mask >> b & 1 == 1 {
                let f = if write { actor.write(c) } else { actor.read(c) };
                found = found.or(f);
            }
        }
        found
    }

    /// Notes reads of four words that lie in one page; the first that conflicts, and whether any was written
    /// by a thread or byte by byte.
    #[inline]
    pub fn read_four(
        &mut self,
        word: usize,
        actor: &Actor<'_>,
    ) -> (Option<(usize, Conflict)>, bool) {
        let (mut found, mut ordinary) = (None, false);
        for w in word..word + 4 {
            let cell = &mut self.page(w)[w % PAGE];
            let by = cell.write.thread;
            ordinary |= by != 0 && (by < AGENTS || by & 1 == 1 || by == SPLIT);
            let c = match by == SPLIT {
                true => self.bytes(w, 15, actor, false),
                false => actor.read(cell),
            };
            found = found.or(c.map(|c| (w, c)));
        }
        (found, ordinary)
    }

    /// The cells of a word: one, or one for each of its bytes.
    pub fn writes(&self, word: usize) -> &[Cell] {
        let Some(Some(page)) = self.pages.get(word / PAGE) else {
            return &[];
        };
        let cell = &page[word % PAGE];
        match cell.write.thread {
            SPLIT => &self.split[cell.write.when as usize],
            _ => std::slice::from_ref(cell),
        }
    }

    /// A word that a thread outside of `own` touched, of which nothing is known: the word, when, and the
    /// instruction.
    pub fn strangers(
        &self,
        own: std::ops::Range<u32>,
        known: impl Fn(Stamp) -> bool,
    ) -> Option<(usize, Stamp, u32)> {
        let strange =
            |s: Stamp| s.thread != 0 && s.thread < AGENTS && !own.contains(&s.thread) && !known(s);
        for (p, page) in self.pages.iter().enumerate() {
            for (k, cell) in page.iter().flat_map(|c| c.iter()).enumerate() {
                for c in self.parts(cell) {
                    let all = [
                        (c.write, c.write_pc),
                        (c.reads[0], c.read_pc),
                        (c.reads[1], c.read_pc),
                    ];
                    if let Some((s, pc)) = all.into_iter().find(|x| strange(x.0)) {
                        return Some((p * PAGE + k, s, pc));
                    }
                }
            }
        }
        None
    }

    /// Whether a word was written on one side and touched on the other.
    pub fn clash(&self, other: &Shadow) -> bool {
        for (a, b) in self.pages.iter().zip(&other.pages) {
            let (Some(a), Some(b)) = (a, b) else { continue };
            for (x, y) in a.iter().zip(b.iter()) {
                let xs = self.parts(x);
                let ys = other.parts(y);
                for (x, y) in xs.iter().zip(&ys) {
                    let touched = |c: &Cell| c.write.thread != 0 || c.reads[0].thread != 0;
                    if (x.write.thread != 0 && touched(y)) || (y.write.thread != 0 && touched(x)) {
                        return true;
                    }
                }
            }
        }
        false
    }

    fn parts(&self, c: &Cell) -> [Cell; 4] {
        match c.write.thread {
            SPLIT => self.split[c.write.when as usize],
            _ => [*c; 4],
        }
    }
}
