//! Where the buffers of a block lie.
use device::DeviceError;
use emit::wgsl::Array;
use plan::{Block, BufferKind};

/// Places of a block's buffers in the two arrays, in bytes.
pub(crate) struct Memory {
    /// Per buffer.
    pub at: Vec<(Array, u64)>,
    /// The words for faults, one per step, in the work array.
    pub fault: u64,
    pub work_bytes: u64,
    pub kept_bytes: u64,
}

fn whole(bytes: u64) -> Result<u64, DeviceError> {
    bytes
        .checked_next_multiple_of(ALIGN)
        .ok_or(DeviceError::Memory {
            what: "a block".into(),
            bytes,
        })
}

impl Memory {
    /// The arena first, then ports and states, then the words for faults; weights and results of
    /// init apart. Every place is a multiple of 4, so that every element has a word. Buffers that do
    /// not lie on `place` have none.
    pub fn new(b: &Block, place: u32) -> Result<Memory, DeviceError> {
        let arena = b.arena(place);
        let mut work = whole(arena)?;
        let mut kept = 0;
        let mut at = vec![];
        for buf in &b.buffers {
            if buf.place != place {
                at.push((Array::Work, 0));
                continue;
            }
            let fail = || DeviceError::Memory {
                what: buf.name.clone(),
                bytes: buf.bytes,
            };
            let (array, end) = match buf.kind {
                BufferKind::Arena => {
                    let end = buf.offset.checked_add(buf.bytes);
                    if end.is_none_or(|e| e > arena) || buf.offset % 4 != 0 {
                        return Err(DeviceError::Unsupported {
                            device: "wgpu".into(),
                            step: buf.name.clone(),
                            why: "its buffer lies outside the arena or between words; verify the plan".into(),
                        });
                    }
                    at.push((Array::Work, buf.offset));
                    continue;
                }
                BufferKind::Weight(_) | BufferKind::Init => (Array::Kept, &mut kept),
                BufferKind::Input(_) | BufferKind::Output(_) | BufferKind::State(_) => {
                    (Array::Work, &mut work)
                }
            };
            at.push((array, *end));
            *end = end.checked_add(whole(buf.bytes)?).ok_or_else(fail)?;
        }
        Ok(Memory {
            at,
            fault: work,
            work_bytes: work + whole(b.steps.len().max(b.init.len()) as u64 * 4 + 4)?,
            kept_bytes: kept,
        })
    }
}

/// Bytes to which places in buffers are rounded; also what offsets of number lists need.
pub(crate) const ALIGN: u64 = 256;
