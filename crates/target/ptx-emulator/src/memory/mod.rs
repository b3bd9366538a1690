//! Memory that all CTAs and the host see.
//!
//! Words are atomic and accessed relaxed, so that CTAs may run on several threads; what PTX says
//! about order is judged by [`shadow`] and [`crate::clocks`], not left to the machine underneath.

pub(crate) mod shadow;

use crate::error::PtxError;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// Where addresses of global memory begin.
pub(crate) const GLOBAL_BASE: u64 = 0x7f00_0000_0000;
/// Generic addresses of shared memory.
pub(crate) const SHARED_WINDOW: u64 = 0x7e00_0000_0000;
/// Generic addresses of local memory.
pub(crate) const LOCAL_WINDOW: u64 = 0x7e10_0000_0000;
/// Generic addresses of parameters, which only tensor maps have.
pub(crate) const PARAM_WINDOW: u64 = 0x7e20_0000_0000;
/// Bytes of each window.
pub(crate) const WINDOW: u64 = 1 << 29;

/// Allocations begin at multiples of this and leave at least as much free behind them.
const GRANULE: u64 = 1 << 16;
/// Most bytes of one allocation.
const MAX_BYTES: u64 = 1 << 36;

/// What an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Memory of the device.
    Device,
    /// Memory of the host that the device sees.
    Host,
    /// Constants of a module: kernels may not write them.
    Const,
}

#[derive(Debug)]
pub(crate) struct Allocation {
    pub base: u64,
    pub bytes: u64,
    pub kind: Kind,
    pub freed: bool,
    pub words: Vec<AtomicU32>,
    /// Bytes written so far, a bit each, by word; above these bits the mark of the launch that wrote some last.
    pub written: Vec<AtomicU8>,
}

/// The bits of a word's bytes in [`Allocation::written`], and where the mark begins.
const BYTES: u8 = 15;
const MARK: u32 = 4;
/// The last mark there is; 0 is the host's.
const LAST_MARK: u8 = 15;

/// All memory that outlives a launch.
#[derive(Debug, Default)]
pub struct Memory {
    granules: Vec<u32>,
    pub(crate) allocations: Vec<Allocation>,
    in_use: u64,
    /// The mark that the last launch was given.
    mark: AtomicU8,
}

/// Why an address does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressFault {
    /// No allocation there; the nearest below, if any, and how far behind its end.
    Outside(Option<(usize, u64)>),
    Freed(usize),
}

impl Memory {
    /// Makes room for `bytes` bytes, not yet written, and gives their address, a multiple of 256.
    ///
    /// # Errors
    /// When there is no such room.
    pub fn allocate(&mut self, bytes: u64, kind: Kind) -> Result<u64, PtxError> {
        if bytes > MAX_BYTES {
            return Err(PtxError::Memory(format!(
                "{bytes} bytes asked for at once; {MAX_BYTES} are the most"
            )));
        }
        let base = GLOBAL_BASE + self.granules.len() as u64 * GRANULE;
        let words = bytes.div_ceil(4) as usize;
        let mut list = Vec::new();
        let mut written = Vec::new();
        if list.try_reserve_exact(words).is_err() || written.try_reserve_exact(words).is_err() {
            return Err(PtxError::Memory(format!("{bytes} bytes are not to be had")));
        }
        list.resize_with(words, || AtomicU32::new(0));
        written.resize_with(words, || AtomicU8::new(0));
        self.allocations.push(Allocation {
            base,
            bytes,
            kind,
            freed: false,
            words: list,
            written,
        });
        let id = self.allocations.len() as u32;
        let covered = bytes.div_ceil(GRANULE) as usize;
        self.granules.resize(self.granules.len() + covered, id);
        self.granules.push(0);
        self.in_use += bytes;
        Ok(base)
    }

    /// Gives back the allocation that begins at `address`; its addresses are never used again.
    ///
    /// # Errors
    /// When none begins there.
    pub fn free(&mut self, address: u64) -> Result<(), PtxError> {
        match self.resolve(address, 0) {
            Ok((id, 0)) => {
                let a = &mut self.allocations[id];
                a.freed = true;
                a.words = Vec::new();
                a.written = Vec::new();
                self.in_use -= a.bytes;
                Ok(())
            }
            _ => Err(PtxError::Memory(format!(
                "no allocation begins at {address:#x}; only what was allocated can be freed"
            ))),
        }
    }

    /// Bytes allocated and not freed.
    pub fn in_use(&self) -> u64 {
        self.in_use
    }

    /// The allocation and offset of `bytes` bytes at `address`.
    #[inline]
    pub(crate) fn resolve(&self, address: u64, bytes: u64) -> Result<(usize, u64), AddressFault> {
        let at = address.wrapping_sub(GLOBAL_BASE) / GRANULE;
        let id = match self.granules.get(at as usize) {
            Some(id) if *id != 0 => *id as usize - 1,
            _ => return Err(self.nearest(address)),
        };
        let a = &self.allocations[id];
        let offset = address - a.base;
        if a.freed {
            return Err(AddressFault::Freed(id));
        }
        if offset + bytes > a.bytes {
            return Err(AddressFault::Outside(Some((id, offset + bytes - a.bytes))));
        }
        Ok((id, offset))
    }

    fn nearest(&self, address: u64) -> AddressFault {
        let id = self.allocations.partition_point(|a| a.base <= address);
        AddressFault::Outside(id.checked_sub(1).map(|id| {
            let a = &self.allocations[id];
            (id, (address - a.base).saturating_sub(a.bytes))
        }))
    }

    /// The mark of a launch that begins: the one of the launch before, and those of all but the last fourteen, are others.
    pub(crate) fn begin_launch(&self) -> u8 {
        let last = self.mark.load(Relaxed);
        let new = last % LAST_MARK + 1;
        if last == LAST_MARK {
            let words = self.allocations.iter().flat_map(|a| &a.written);
            words.for_each(|w| {
                w.fetch_and(BYTES, Relaxed);
            });
        }
        self.mark.store(new, Relaxed);
        new
    }

    fn host(&self, address: u64, bytes: usize) -> Result<(usize, u64), PtxError> {
        self.resolve(address, bytes as u64).map_err(|_| {
            PtxError::Memory(format!(
                "the host asks for {bytes} bytes at {address:#x}, which are not allocated"
            ))
        })
    }

    /// Writes `data` at `address`, from the host, with no kernel running.
    ///
    /// # Errors
    /// When not all of it is allocated.
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), PtxError> {
        let (id, offset) = self.host(address, data.len())?;
        let a = &self.allocations[id];
        let mut k = 0;
        while k < data.len() {
            let at = offset as usize + k;
            if at.is_multiple_of(4) && data.len() - k >= 4 {
                let word = [data[k], data[k + 1], data[k + 2], data[k + 3]];
                a.words[at / 4].store(u32::from_le_bytes(word), Relaxed);
                a.written[at / 4].store(15, Relaxed);
                k += 4;
            } else {
                a.store(at as u64, 1, [u32::from(data[k]), 0, 0, 0], 0);
                k += 1;
            }
        }
        Ok(())
    }

    /// Reads `bytes` bytes at `address`, from the host, with no kernel running.
    ///
    /// # Errors
    /// When not all of it is allocated.
    pub fn read(&self, address: u64, bytes: usize) -> Result<Vec<u8>, PtxError> {
        let (id, offset) = self.host(address, bytes)?;
        let a = &self.allocations[id];
        let (first, last) = (offset as usize / 4, (offset as usize + bytes).div_ceil(4));
        let words = &a.words[first.min(a.words.len())..last];
        let all = words.iter().flat_map(|w| w.load(Relaxed).to_le_bytes());
        let out = all.skip(offset as usize % 4).take(bytes).collect();
        Ok(out)
    }

    /// Whether every byte there was written.
    ///
    /// # Errors
    /// When not all of it is allocated.
    pub fn is_written(&self, address: u64, bytes: usize) -> Result<bool, PtxError> {
        let (id, offset) = self.host(address, bytes)?;
        let a = &self.allocations[id];
        Ok((offset as usize..offset as usize + bytes)
            .all(|at| a.written[at / 4].load(Relaxed) >> (at % 4) & 1 == 1))
    }
}

impl Allocation {
    /// `bytes` bytes (1, 2, or a multiple of 4 up to 16) at an offset aligned to them.
    #[inline]
    pub fn load(&self, offset: u64, bytes: u32) -> [u32; 4] {
        let w = (offset / 4) as usize;
        let mut out = [0; 4];
        if bytes < 4 {
            let shifted = self.words[w].load(Relaxed) >> (offset % 4 * 8);
            out[0] = shifted & ((1 << (bytes * 8)) - 1);
            return out;
        }
        for (k, o) in out.iter_mut().enumerate().take(bytes as usize / 4) {
            *o = self.words[w + k].load(Relaxed);
        }
        out
    }

    /// Writes likewise, for the launch of such a mark.
    #[inline]
    pub fn store(&self, offset: u64, bytes: u32, v: [u32; 4], mark: u8) {
        let w = (offset / 4) as usize;
        if bytes < 4 {
            let shift = (offset % 4 * 8) as u32;
            let mask = ((1u32 << (bytes * 8)) - 1) << shift;
            // Neighbours in the word may be written at the same time by a CTA on another thread.
            let _ = self.words[w].fetch_update(Relaxed, Relaxed, |old| {
                Some((old & !mask) | ((v[0] << shift) & mask))
            });
            self.wrote(w, ((1u8 << bytes) - 1) << (offset % 4), mark);
            return;
        }
        for k in 0..bytes as usize / 4 {
            self.words[w + k].store(v[k], Relaxed);
            self.written[w + k].store(BYTES | mark << MARK, Relaxed);
        }
    }

    /// The bytes `set` of a word, as bits, were written by the launch of such a mark.
    #[inline]
    fn wrote(&self, word: usize, set: u8, mark: u8) {
        let now = |old: u8| old & BYTES | set | mark << MARK;
        let old = self.written[word].load(Relaxed);
        if now(old) != old {
            let _ = self.written[word].fetch_update(Relaxed, Relaxed, |old| Some(now(old)));
        }
    }

    /// Whether a launch whose mark is a bit of `marks` was the last that wrote to one of those bytes' words.
    pub fn is_marked(&self, offset: u64, bytes: u32, marks: u16) -> bool {
        let (first, end) = (offset / 4, (offset + u64::from(bytes)).div_ceil(4));
        let mut words = self.written[first as usize..end as usize].iter();
        words.any(|w| 1u16 << (w.load(Relaxed) >> MARK) & marks & !1 != 0)
    }

    /// Stores a word of which the bytes `set`, as bits, count as written.
    pub fn store_some(&self, offset: u64, v: u32, set: u8, mark: u8) {
        let w = (offset / 4) as usize;
        self.words[w].store(v, Relaxed);
        self.wrote(w, set, mark);
    }

    /// Whether all those bytes were written.
    #[inline]
    pub fn was_written(&self, offset: u64, bytes: u32) -> bool {
        let w = (offset / 4) as usize;
        if bytes < 4 {
            let bits = ((1u8 << bytes) - 1) << (offset % 4);
            return self.written[w].load(Relaxed) & bits == bits;
        }
        (0..bytes as usize / 4).all(|k| self.written[w + k].load(Relaxed) & BYTES == BYTES)
    }

    /// Contents, to put back later.
    pub fn snapshot(&self) -> (Vec<u32>, Vec<u8>) {
        (
            self.words.iter().map(|w| w.load(Relaxed)).collect(),
            self.written.iter().map(|w| w.load(Relaxed)).collect(),
        )
    }

    /// Puts contents back.
    pub fn restore(&self, (words, written): &(Vec<u32>, Vec<u8>)) {
        for (w, v) in self.words.iter().zip(words) {
            w.store(*v, Relaxed);
        }
        for (w, v) in self.written.iter().zip(written) {
            w.store(*v, Relaxed);
        }
    }
}
