//! What the warps of a CTA executed, in their order, for a clock to go through.

/// What an instruction did besides computing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// Passes over the banks of shared memory.
    Shared(u32),
    /// A 128-byte line of global memory: its number, and a bit for each of its sectors.
    Line(u64, u8),
    /// Lines of local memory, which are taken to lie in L1.
    Local(u32),
    /// Threads that came to a barrier, how many it is for (0 for all of the CTA), and whether they
    /// wait there.
    Barrier {
        id: u32,
        came: u32,
        expected: u32,
        waits: bool,
    },
    /// An arrival at a barrier object, or a copy that counts there, in this phase of it.
    Comes { barrier: u32, phase: u32 },
    /// A wait for such a phase that was successful.
    Waited { barrier: u32, phase: u32 },
}

/// An instruction that a warp issued.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub pc: u32,
    /// Lanes that took part.
    pub lanes: u32,
    /// Where its touches begin.
    first: u32,
}

/// A warp's instructions.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    records: Vec<Record>,
    touches: Vec<Touch>,
    /// Records and touches that may be kept.
    room: usize,
    /// Something was left out for want of room.
    pub cut: bool,
    /// The instruction, and where its record and touches begin, of a wait without success.
    tried: Option<(u32, usize, usize)>,
}

impl Trace {
    pub fn with_room(room: usize) -> Trace {
        Trace {
            room,
            ..Trace::default()
        }
    }

    /// Records and touches kept.
    pub fn held(&self) -> usize {
        self.records.len() + self.touches.len()
    }

    #[inline]
    pub fn begin(&mut self, pc: u32, lanes: u32) {
        self.tries_again(pc);
        if self.held() >= self.room {
            self.cut = true;
            return;
        }
        self.records.push(Record {
            pc,
            lanes,
            first: self.touches.len() as u32,
        });
    }

    /// The last instruction waited without success: what happens until it is tried again is left out.
    pub fn failed(&mut self) {
        if let (Some(r), false) = (self.records.last(), self.cut) {
            self.tried = Some((r.pc, self.records.len() - 1, r.first as usize));
        }
    }

    fn tries_again(&mut self, pc: u32) {
        if let Some((at, records, touches)) = self.tried
            && at == pc
        {
            self.records.truncate(records);
            self.touches.truncate(touches);
            self.tried = None;
        }
    }

    /// Everything that was touched.
    pub fn all(&self) -> &[Touch] {
        &self.touches
    }

    /// The instruction did not happen: its warp has to come to it again.
    pub fn take_back(&mut self) {
        if !self.cut {
            self.records.pop();
        }
    }

    /// Whether the last instruction touched anything.
    pub fn touched(&self) -> bool {
        let first = self.records.last().map_or(0, |r| r.first as usize);
        self.touches.len() > first
    }

    #[inline]
    pub fn touch(&mut self, t: Touch) {
        if !self.cut {
            self.touches.push(t);
        }
    }

    /// Notes what the last instruction touched unless it is noted already.
    pub fn touch_once(&mut self, t: Touch) {
        let first = self.records.last().map_or(0, |r| r.first as usize);
        if !self.touches[first.min(self.touches.len())..].contains(&t) {
            self.touch(t);
        }
    }

    /// The lines and sectors that `bytes` at each of `addresses` touch.
    pub fn lines(&mut self, addresses: &[u64], bytes: u64) {
        if self.cut {
            return;
        }
        let mut sectors: Vec<u64> = addresses
            .iter()
            .flat_map(|a| (a >> 5)..=(a.saturating_add(bytes.max(1) - 1) >> 5))
            .collect();
        sectors.sort_unstable();
        sectors.dedup();
        let mut at = 0;
        while at < sectors.len() {
            let (line, mut mask) = (sectors[at] >> 2, 0u8);
            while at < sectors.len() && sectors[at] >> 2 == line {
                mask |= 1 << (sectors[at] & 3);
                at += 1;
            }
            self.touches.push(Touch::Line(line, mask));
        }
    }

    pub fn get(&self, at: usize) -> Option<Record> {
        self.records.get(at).copied()
    }

    /// What record `at` touched.
    pub fn touches(&self, at: usize) -> &[Touch] {
        let from = self.records.get(at).map_or(0, |r| r.first as usize);
        let to = self
            .records
            .get(at + 1)
            .map_or(self.touches.len(), |r| r.first as usize);
        &self.touches[from.min(to)..to]
    }
}
