//! A cache of lines in sectors: which of them are there, and from when on.

/// Bytes of a sector and of a line.
pub(crate) const SECTOR: f64 = 32.0;
pub(crate) const LINE: f64 = 128.0;
/// Lines that share a set.
const WAYS: usize = 16;

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    /// Its number plus one; 0 is no line.
    tag: u64,
    /// Sectors that are there, or on their way.
    valid: u8,
    /// Sectors written since they came.
    dirty: u8,
    used: u64,
    /// When each sector is there.
    at: [f64; 4],
}

/// Sets of lines of which the one unused for longest goes.
#[derive(Debug)]
pub struct Cache {
    lines: Vec<Line>,
    sets: u64,
    clock: u64,
}

impl Cache {
    /// An empty one of so many bytes.
    pub fn new(bytes: f64) -> Cache {
        let lines = (bytes / LINE).max(0.0) as usize;
        let sets = (lines / WAYS).max(1);
        let ways = lines.min(WAYS);
        Cache {
            lines: vec![Line::default(); if ways < WAYS { 0 } else { sets * WAYS }],
            sets: sets as u64,
            clock: 0,
        }
    }

    /// The line's place; makes room for it where it is not there. None in a cache without lines.
    fn find(&mut self, line: u64, make: bool) -> Option<&mut Line> {
        if self.lines.is_empty() {
            return None;
        }
        // Strides of powers of two spread over the sets as well.
        let hash = line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let from = (hash % self.sets) as usize * WAYS;
        let set = &mut self.lines[from..from + WAYS];
        self.clock += 1;
        let (mut oldest, mut least) = (0, u64::MAX);
        for (k, l) in set.iter().enumerate() {
            if l.tag == line + 1 {
                set[k].used = self.clock;
                return Some(&mut set[k]);
            }
            if l.used < least {
                (oldest, least) = (k, l.used);
            }
        }
        if !make {
            return None;
        }
        set[oldest] = Line {
            tag: line + 1,
            used: self.clock,
            ..Line::default()
        };
        Some(&mut set[oldest])
    }

    /// Sectors of `wanted` that are there, and when the last of those is.
    pub fn look(&mut self, line: u64, wanted: u8) -> (u8, f64) {
        let Some(l) = self.find(line, false) else {
            return (0, 0.0);
        };
        let here = l.valid & wanted;
        let mut at = 0f64;
        for s in 0..4 {
            if here >> s & 1 == 1 {
                at = at.max(l.at[s]);
            }
        }
        (here, at)
    }

    /// Sectors come in and are there from `at` on.
    pub fn fill(&mut self, line: u64, sectors: u8, at: f64) {
        if let Some(l) = self.find(line, true) {
            for s in 0..4 {
                if sectors >> s & 1 == 1 {
                    l.at[s] = at;
                }
            }
            l.valid |= sectors;
        }
    }

    /// Sectors are written; gives those that were not written before: each of them goes to memory
    /// once, however often it is written while it stays.
    pub fn write(&mut self, line: u64, sectors: u8, at: f64) -> u8 {
        let Some(l) = self.find(line, true) else {
            return sectors;
        };
        let new = sectors & !l.dirty;
        for s in 0..4 {
            if sectors & !l.valid & 1 << s != 0 {
                l.at[s] = at;
            }
        }
        l.valid |= sectors;
        l.dirty |= sectors;
        new
    }
}
