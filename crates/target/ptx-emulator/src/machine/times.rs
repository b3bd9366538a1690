//! Time of CTAs that wait for each other: how long what they execute takes, by figures that are given.
//!
//! Every CTA has a clock of its own. Between two strong accesses it goes on by the slowest of issuing
//! instructions, passing over shared memory and moving sectors. A strong read of a word that another
//! party wrote cannot come before that write and what it takes to be seen; polling takes no time of its
//! own: reading a word again that was read since the last strong write goes back to when it was first.

use std::collections::HashMap;

/// What things take, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InstructionTimes {
    /// When the launch begins.
    pub start_ns: f64,
    /// An instruction of a warp, of a CTA's share of its SM.
    pub issue_ns: f64,
    /// A pass over the banks of shared memory.
    pub pass_ns: f64,
    /// A 32-byte sector of device memory.
    pub sector_ns: f64,
    /// A 32-byte sector of the host's memory.
    pub host_sector_ns: f64,
    /// From a CTA's write to a CTA that waits for it.
    pub device_ns: f64,
    /// From one side of the link to the other, one way.
    pub host_ns: f64,
}

/// Who wrote a word: a CTA's number, or the host.
pub(crate) const HOST_WRITER: u32 = u32::MAX;

/// A launch's clock.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    pub pace: Option<InstructionTimes>,
    /// When words were last written by strong writes, and by whom.
    words: HashMap<u64, (f64, u32)>,
    /// The host's clock.
    pub host_ns: f64,
    /// The latest that a CTA has come to.
    pub latest_ns: f64,
}

impl Clock {
    pub fn new(pace: Option<InstructionTimes>) -> Clock {
        Clock {
            latest_ns: pace.map_or(0.0, |p| p.start_ns),
            pace,
            ..Clock::default()
        }
    }

    /// When a write of `key` can be seen by `reader`.
    fn seen(&self, key: u64, reader: u32) -> Option<f64> {
        let p = self.pace?;
        let &(at, who) = self.words.get(&key)?;
        Some(match (who, reader) {
            (a, b) if a == b => at,
            // A CTA polls across the link: there and back.
            (HOST_WRITER, _) => at + 2.0 * p.host_ns,
            (_, HOST_WRITER) => at + p.host_ns,
            _ => at + p.device_ns,
        })
    }

    fn wrote(&mut self, key: u64, at: f64, who: u32) {
        let w = self.words.entry(key).or_insert((at, who));
        if at >= w.0 {
            *w = (at, who);
        }
    }

    /// The host reads `key`, and waited for it.
    pub fn host_reads(&mut self, key: u64) {
        if let Some(t) = self.seen(key, HOST_WRITER) {
            self.host_ns = self.host_ns.max(t);
        }
    }

    /// The host writes `key`.
    pub fn host_writes(&mut self, key: u64) {
        if self.pace.is_some() {
            self.wrote(key, self.host_ns, HOST_WRITER);
        }
    }
}

/// A CTA's clock.
#[derive(Debug, Default)]
pub(crate) struct CtaClock {
    now: f64,
    /// What the stretch since the last strong access takes: instructions, shared memory, sectors.
    stretch: [f64; 3],
    /// Whether it read the host's memory.
    far: bool,
    /// Not before this, for what was seen.
    floor: f64,
    /// Words read since the last strong write, and when first.
    polled: Vec<(u64, f64)>,
}

impl CtaClock {
    pub fn starting(at: f64) -> CtaClock {
        CtaClock {
            now: at,
            ..CtaClock::default()
        }
    }

    #[inline]
    pub fn issued(&mut self, p: &InstructionTimes) {
        self.stretch[0] += p.issue_ns;
    }

    #[inline]
    pub fn passes(&mut self, p: &InstructionTimes, n: u64) {
        self.stretch[1] += n as f64 * p.pass_ns;
    }

    #[inline]
    pub fn sectors(&mut self, p: &InstructionTimes, n: u64, host: bool) {
        let each = if host { p.host_sector_ns } else { p.sector_ns };
        self.stretch[2] += n as f64 * each;
        self.far |= host;
    }

    /// Ends the stretch: the clock.
    pub fn settle(&mut self, p: &InstructionTimes) -> f64 {
        let most = self.stretch.iter().fold(0f64, |a, b| a.max(*b));
        // The first of them has to come across and back.
        let far = if self.far { 2.0 * p.host_ns } else { 0.0 };
        self.now += most + far;
        self.stretch = [0.0; 3];
        self.far = false;
        self.now
    }

    /// A strong read.
    pub fn reads(&mut self, c: &mut Clock, key: u64, cta: u32) {
        let Some(p) = c.pace else { return };
        self.settle(&p);
        match self.polled.iter().position(|w| w.0 == key) {
            Some(at) => {
                self.now = self.polled[at].1;
                self.polled.truncate(at + 1);
            }
            None => self.polled.push((key, self.now)),
        }
        if let Some(t) = c.seen(key, cta) {
            self.floor = self.floor.max(t);
        }
        self.now = self.now.max(self.floor);
        c.latest_ns = c.latest_ns.max(self.now);
    }

    /// A strong write.
    pub fn writes(&mut self, c: &mut Clock, key: u64, cta: u32) {
        let Some(p) = c.pace else { return };
        let now = self.settle(&p);
        self.polled.clear();
        c.wrote(key, now, cta);
        c.latest_ns = c.latest_ns.max(now);
    }
}
