//! One lane's access to one memory, with every check that belongs to it.

use super::Ctx;
use crate::checks::Kind;
use crate::clocks::{Party, strength};
use crate::memory::AddressFault;
use crate::memory::shadow::{Actor, Conflict};
use crate::program::{Scope, Sem};

/// How an access is meant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    pub sem: Sem,
    pub scope: Scope,
    /// One half of an atomic operation.
    pub atomic: bool,
}

impl How {
    pub const WEAK: How = How {
        sem: Sem::Weak,
        scope: Scope::Cta,
        atomic: false,
    };
}

/// The byte mask of an access inside its first word.
pub(crate) fn byte_mask(offset: u64, bytes: u32) -> u8 {
    if bytes >= 4 {
        15
    } else {
        ((1u8 << bytes) - 1) << (offset % 4)
    }
}

/// Words that polling groups wait for: shared words carry their CTA.
pub(crate) fn shared_key(cta: u32, word: u64) -> u64 {
    1 << 63 | u64::from(cta) << 24 | word
}

impl Ctx<'_> {
    pub(crate) fn misaligned(&mut self, lane: u32, address: u64, bytes: u32) -> bool {
        // Vectors of three do not exist: sizes are powers of two.
        if address.is_multiple_of(u64::from(bytes)) {
            return false;
        }
        self.report(Kind::Misaligned, lane, None, || {
            format!("{bytes} bytes at {address:#x}, which is no multiple of {bytes}")
        });
        true
    }

    fn outside(&mut self, lane: u32, address: u64, bytes: u32, bad: AddressFault, what: &str) {
        let mem = self.mem;
        self.report(Kind::OutOfBounds, lane, None, || match bad {
            AddressFault::Outside(Some((id, by))) => {
                let a = &mem.allocations[id];
                format!(
                    "{what} of {bytes} bytes at {address:#x}, {by} bytes past the end of the {} \
                     bytes at {:#x}",
                    a.bytes, a.base
                )
            }
            AddressFault::Outside(None) => {
                format!("{what} of {bytes} bytes at {address:#x}, where nothing is allocated")
            }
            AddressFault::Freed(id) => {
                let a = &mem.allocations[id];
                format!(
                    "{what} of {bytes} bytes at {address:#x}, in {} bytes that were freed",
                    a.bytes
                )
            }
        });
    }

    /// The allocation and offset of an aligned global access.
    #[inline]
    pub(crate) fn global_at(
        &mut self,
        lane: u32,
        address: u64,
        bytes: u32,
        what: &str,
    ) -> Option<(usize, u64)> {
        if !address.is_multiple_of(u64::from(bytes)) && self.misaligned(lane, address, bytes) {
            return None;
        }
        self.global_range(lane, address, bytes, what)
    }

    /// Whether an aligned shared access lies inside.
    #[inline(always)]
    pub(crate) fn shared_at(&mut self, lane: u32, address: u64, bytes: u32, what: &str) -> bool {
        if !address.is_multiple_of(u64::from(bytes)) && self.misaligned(lane, address, bytes) {
            return false;
        }
        self.shared_range(lane, address, bytes, what)
    }

    /// Whether bytes of any number and place lie inside shared memory.
    #[inline(always)]
    pub(crate) fn shared_range(&mut self, lane: u32, address: u64, bytes: u32, what: &str) -> bool {
        let inside = address.saturating_add(u64::from(bytes)) <= u64::from(self.world.shared_bytes);
        if !inside {
            self.shared_outside(lane, address, bytes, what);
        }
        inside
    }

    /// The allocation and offset of bytes of any number and place in global memory.
    #[inline]
    pub(crate) fn global_range(
        &mut self,
        lane: u32,
        address: u64,
        bytes: u32,
        what: &str,
    ) -> Option<(usize, u64)> {
        match self.mem.resolve(address, u64::from(bytes)) {
            Ok(found) => Some(found),
            Err(bad) => {
                self.outside(lane, address, bytes, bad, what);
                None
            }
        }
    }

    /// Judges an access of global memory by a lane that has not waited for the kernels before: it may read what these do
    /// not write, and writes nothing.
    #[inline]
    pub(crate) fn dependent(
        &mut self,
        lane: u32,
        (id, offset): (usize, u64),
        bytes: u32,
        write: bool,
    ) {
        let marks = self.world.unfinished;
        if marks == 0 || self.w.waited >> lane & 1 == 1 {
            return;
        }
        let mem = self.mem;
        let a = &mem.allocations[id];
        if write || a.is_marked(offset, bytes, marks) {
            let (at, what) = (a.base + offset, if write { "written" } else { "read" });
            self.report(Kind::Dependency, lane, None, || {
                let whose = match write {
                    true => "while a kernel before may use them",
                    false => "which a kernel before writes",
                };
                format!("{bytes} bytes at {at:#x} are {what}, {whose}, and the thread has not waited for it")
            });
        }
    }

    #[cold]
    fn shared_outside(&mut self, lane: u32, address: u64, bytes: u32, what: &str) {
        let size = self.world.shared_bytes;
        self.report(Kind::OutOfBounds, lane, None, || {
            format!(
                "{what} of {bytes} bytes at {address:#x} of shared memory, of which there are \
                 {size} bytes"
            )
        });
    }

    #[inline]
    fn touch(
        &mut self,
        lane: u32,
        place: Option<(usize, u64)>,
        word: u64,
        mask: u8,
        how: How,
        write: bool,
    ) -> Option<Conflict> {
        let actor = Actor {
            thread: self.cta.thread(self.w.index, lane),
            clock: self.cta.clock,
            cta: (
                self.cta.first_thread,
                self.cta.first_thread + self.cta.threads,
            ),
            sync: &self.w.sync[lane as usize],
            threads_per_cta: self.cta.threads,
            pc: self.pc,
            strength: strength(how.sem, how.scope),
        };
        let shadow = match place {
            Some((id, _)) => self.world.shadow(id),
            None => &mut self.cta.shadow,
        };
        shadow.touch(word as usize, mask, &actor, write)
    }

    #[cold]
    pub(crate) fn race(
        &mut self,
        lane: u32,
        place: Option<(usize, u64)>,
        word: u64,
        c: Conflict,
        write: bool,
    ) {
        let kind = match (place, c.scope) {
            (_, true) => Kind::NarrowScope,
            (None, _) => Kind::SharedRace,
            _ => Kind::GlobalRace,
        };
        let own = if write { "writes" } else { "reads" };
        let theirs = if c.other_writes { "wrote" } else { "read" };
        let who = self.world.who(c.other.thread, self.cta.threads);
        let host = c.other.thread == crate::clocks::HOST;
        let address = match place {
            Some((id, _)) => self.mem.allocations[id].base + word * 4,
            None => word * 4,
        };
        let line = match host {
            true => String::new(),
            false => format!(" at line {}", self.world.line_of(self.k, c.other_pc)),
        };
        let other = (!host).then_some(c.other_pc);
        let space = if place.is_some() { "" } else { "shared " };
        let why = if c.scope {
            "their scopes do not include each other"
        } else {
            "nothing orders the two"
        };
        self.report(kind, lane, other, || {
            format!("{own} {space}{address:#x}, which {who} {theirs}{line}, and {why}")
        });
    }

    /// Notes an access and judges it; `place` is the allocation and offset, none for shared
    /// memory, where `offset` is the address.
    #[inline]
    pub(crate) fn note(
        &mut self,
        lane: u32,
        place: Option<(usize, u64)>,
        offset: u64,
        bytes: u32,
        how: How,
        write: bool,
    ) {
        let strong = how.sem != Sem::Weak;
        let first = offset / 4;
        if strong && !write {
            self.observe(lane, place, first, how);
            self.timed(place, first, false);
        }
        if self.world.checks.races {
            let mask = byte_mask(offset, bytes);
            for k in 0..u64::from(bytes.div_ceil(4)) {
                if let Some(c) = self.touch(lane, place, first + k, mask, how, write) {
                    self.race(lane, place, first + k, c, write);
                }
            }
        }
        if write {
            if strong {
                self.publish(lane, place, first, how);
                self.timed(place, first, true);
            } else {
                for k in 0..u64::from(bytes.div_ceil(4)) {
                    match place {
                        Some((id, _)) if !self.world.messages.is_empty() => {
                            let key = self.mem.allocations[id].base / 4 + first + k;
                            self.world.messages.overwrite(key);
                        }
                        None if !self.cta.messages.is_empty() => {
                            self.cta.messages.overwrite(first + k);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// A strong access, by the clock.
    #[inline]
    pub(crate) fn timed(&mut self, place: Option<(usize, u64)>, word: u64, write: bool) {
        let (Some((id, _)), true) = (place, self.world.clock.pace.is_some()) else {
            return;
        };
        let key = self.mem.allocations[id].base / 4 + word;
        let (clock, cta) = (&mut self.world.clock, self.cta.index);
        match write {
            true => self.cta.hand.writes(clock, key, cta),
            false => self.cta.hand.reads(clock, key, cta),
        }
    }

    /// Lets go on whoever polls these words.
    #[inline]
    pub(crate) fn wrote(&mut self, place: Option<(usize, u64)>, offset: u64, bytes: u32) {
        self.world.writes += 1;
        if !self.world.watching() {
            return;
        }
        for k in 0..u64::from(bytes.div_ceil(4)) {
            let word = offset / 4 + k;
            let key = match place {
                Some((id, _)) => self.mem.allocations[id].base / 4 + word,
                None => shared_key(self.cta.owner, word),
            };
            self.world.wake(key);
        }
    }

    pub(crate) fn observe(&mut self, lane: u32, place: Option<(usize, u64)>, word: u64, how: How) {
        let sync = &mut self.w.sync[lane as usize];
        match place {
            Some((id, _)) => {
                let key = self.mem.allocations[id].base / 4 + word;
                self.world
                    .messages
                    .read(key, self.cta.index, sync, how.sem, how.scope);
            }
            None => {
                self.cta
                    .messages
                    .read(word, self.cta.index, sync, how.sem, how.scope);
            }
        }
    }

    fn publish(&mut self, lane: u32, place: Option<(usize, u64)>, word: u64, how: How) {
        let sync = &self.w.sync[lane as usize];
        let known = match how.sem.releases() {
            true => self.cta.known(sync, self.w.index, lane),
            false => Default::default(),
        };
        let cta = self.cta.index;
        let p = Party {
            cta,
            known,
            sync: &mut self.w.sync[lane as usize],
        };
        match place {
            Some((id, _)) => {
                let key = self.mem.allocations[id].base / 4 + word;
                self.world
                    .messages
                    .write(key, &p, how.sem, how.scope, how.atomic);
            }
            None => self
                .cta
                .messages
                .write(word, &p, how.sem, how.scope, how.atomic),
        }
    }

    /// What a polling loop has read.
    #[inline]
    pub(crate) fn polled(&mut self, key: u64, value: u32) {
        let cur = self.w.current;
        let Some(f) = self.w.fragments.get_mut(cur) else {
            return;
        };
        let p = &mut f.poll;
        if p.dirty {
            return;
        }
        p.loads += 1;
        p.hash = (p.hash ^ key.rotate_left(20) ^ u64::from(value))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23);
        if p.same >= 1 && p.words.len() < 4096 {
            p.words.push(key);
        }
    }

    /// The current group did something that others may see.
    #[inline]
    pub(crate) fn effect(&mut self) {
        let cur = self.w.current;
        if let Some(f) = self.w.fragments.get_mut(cur) {
            f.poll.dirty = true;
        }
    }
}
