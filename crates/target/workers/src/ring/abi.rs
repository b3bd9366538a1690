//! Layouts of what a resident kernel and the host share, as `repr(C)` structures; the kernel's text is
//! given their offsets. All fields are little-endian 32-bit words unless noted.

use std::mem::{offset_of, size_of};

/// Start of the ring, in memory that both sides see. Tickets follow at [`TICKETS`], answers at
/// [`answers`].
#[repr(C)]
pub struct Header {
    /// Written by the host: 0 go on, 1 finish what was pushed and leave, 2 leave at once, also from a
    /// wait that is late.
    pub stop: u32,
    /// Written by the host: requests called off so far. Their numbers are in the list at [`offs`].
    pub offs: u32,
    _host: [u32; 30],
    /// Written by the kernel: twice its epoch, plus one while it takes requests.
    pub state: u32,
    /// Written by the kernel when it leaves: the first request that it did not take.
    pub next: u32,
    /// Set by the kernel when a wait took more polls than it was given; cleared by the host.
    pub late: u32,
    _device: [u32; 29],
}

/// Offset of the first ticket. A ticket is one word, released by the host: bits 31..16 the low bits of
/// the request's sequence number, 15..12 those of the epoch, 11..1 the slot, bit 0 whether its tables
/// are fresh.
pub const TICKETS: usize = size_of::<Header>();

/// An answer: released with `seq`.
#[repr(C, align(32))]
pub struct AnswerEntry {
    /// Sequence number of the request that it answers.
    pub seq: u32,
    /// 0, or which step failed and how: see [`super::Failed`].
    pub error: u32,
    /// 64 bits: the device's clock in nanoseconds when the request was taken.
    pub begin: [u32; 2],
    /// 64 bits: the same when its last task was done.
    pub end: [u32; 2],
    /// Whether the workers knew that it was called off: some of its tasks may not have run.
    pub off: u32,
    _rest: u32,
}

/// Offset of the list of requests called off, for a ring with `capacity` entries: as many words, used in
/// turn, each the sequence number of a request. [`Header::offs`] says how many were written.
pub fn offs(capacity: u32) -> usize {
    TICKETS + 4 * capacity as usize
}

/// Offset of the first answer of a ring with `capacity` entries.
pub fn answers(capacity: u32) -> usize {
    (offs(capacity) + 4 * capacity as usize).next_multiple_of(128)
}

/// Bytes of a ring with `capacity` entries.
pub fn ring_bytes(capacity: u32) -> usize {
    answers(capacity) + capacity as usize * size_of::<AnswerEntry>()
}

/// Bytes of the feed, by which the dispatcher tells the workers: 64-bit words in device memory, twice
/// as many as the ring has entries. A word holds the sequence number in its upper half, the slot in
/// bits 31..21 and the number of tasks, cut off at 2^21 - 1, in bits 20..0; all ones in the lower half
/// is the end.
pub fn feed_bytes(capacity: u32) -> usize {
    16 * capacity as usize
}

/// Start of a request slot in device memory. The payload follows, then counters and fault words.
#[repr(C, align(64))]
pub struct SlotHead {
    /// Requests since the tables were fresh, this one included.
    pub turn: u32,
    /// What failed so far.
    pub error: u32,
    /// Workers that are through with the request.
    pub arrived: u32,
    /// The request's number once it was called off, else another one.
    pub off: u32,
    /// 64 bits: when the request was taken.
    pub begin: [u32; 2],
    _rest: [u32; 10],
}

/// Start of a slot's payload: what the host writes with fresh tables, and the dispatcher copies.
#[repr(C, align(64))]
pub struct PayloadHead {
    /// Steps.
    pub steps: u32,
    /// Tasks of all steps; at least one.
    pub tasks: u32,
    /// 64 bits: address of the memory for [`super::Times`], which both sides see; 0 where nobody asks.
    pub times: [u32; 2],
    /// Bytes of the records of steps and their waits, which follow: a multiple of 16.
    pub records: u32,
    _rest: [u32; 11],
}

/// A step in the payload; offsets count from the slot's start, and 0 is none.
#[repr(C, align(64))]
pub struct StepRecord {
    /// Which body runs its tasks.
    pub body: u32,
    /// Number of its first task among all of the request's.
    pub first: u32,
    /// Tasks to go through: `tasks`, but at least one, which then only waits and counts.
    pub turns: u32,
    /// Tasks.
    pub tasks: u32,
    /// Offset of the body's parameters, 8 bytes each.
    pub params: u32,
    /// Offset of its first wait.
    pub waits: u32,
    /// Number of waits.
    pub wait_count: u32,
    /// Offset of the counter of all its tasks.
    pub total: u32,
    /// Offset of its counters per group of tasks.
    pub groups: u32,
    /// Tasks per group.
    pub group: u32,
    /// Offset of its fault word.
    pub fault: u32,
    _rest: [u32; 5],
}

/// A wait in the payload.
#[repr(C)]
pub struct WaitRecord {
    /// 0 the whole step, 1 a range of `map[0]` tasks per task, 2 spans.
    pub kind: u32,
    /// Offset of the first counter.
    pub counters: u32,
    /// Tasks per counter.
    pub group: u32,
    /// Tasks that the earlier step goes through.
    pub turns: u32,
    /// Numbers of the map, in the order of `plan::TileMap::dims`.
    pub map: [u32; 6],
    _rest: [u32; 2],
}

/// What a worker says of itself, in memory of the host's choice.
#[repr(C)]
pub struct StatusEntry {
    /// 0 idle, 1 before its task, 2 late, 3 in its task.
    pub phase: u32,
    /// Request.
    pub seq: u32,
    /// Step.
    pub step: u32,
    /// Task of the step.
    pub task: u32,
    /// Late: offset in the slot of the counter that it waits for.
    pub counter: u32,
    /// Late: what the counter must reach.
    pub goal: u32,
    /// Late: what it was when patience ended.
    pub seen: u32,
    _rest: u32,
}

/// Names and byte offsets of every field that a kernel's text needs, and sizes, in a fixed order.
pub fn offsets(capacity: u32) -> Vec<(&'static str, usize)> {
    macro_rules! fields {
        ($($name:literal $t:ty: $($f:ident)*;)*) => {
            vec![$($((concat!($name, ".", stringify!($f)), offset_of!($t, $f)),)*
                (concat!($name, ".bytes"), size_of::<$t>()),)*]
        };
    }
    let mut all = fields! {
        "header" Header: stop offs state next late;
        "answer" AnswerEntry: seq error begin end off;
        "slot" SlotHead: turn error arrived off begin;
        "payload" PayloadHead: steps tasks times records;
        "step" StepRecord: body first turns tasks params waits wait_count total groups group fault;
        "wait" WaitRecord: kind counters group turns map;
        "status" StatusEntry: phase seq step task counter goal seen;
    };
    all.push(("tickets", TICKETS));
    all.push(("offs", offs(capacity)));
    all.push(("answers", answers(capacity)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layouts are a contract with kernels' texts and with other readers of the same memory.
    #[test]
    fn offsets_are_what_the_documentation_says() {
        let text: Vec<String> = offsets(16)
            .iter()
            .map(|(n, o)| format!("{n}={o}"))
            .collect();
        assert_eq!(
            text.join(" "),
            "header.stop=0 header.offs=4 header.state=128 header.next=132 header.late=136 \
             header.bytes=256 answer.seq=0 answer.error=4 answer.begin=8 answer.end=16 \
             answer.off=24 answer.bytes=32 \
             slot.turn=0 slot.error=4 slot.arrived=8 slot.off=12 slot.begin=16 slot.bytes=64 \
             payload.steps=0 payload.tasks=4 payload.times=8 payload.records=16 payload.bytes=64 \
             step.body=0 step.first=4 step.turns=8 step.tasks=12 step.params=16 step.waits=20 \
             step.wait_count=24 step.total=28 step.groups=32 step.group=36 step.fault=40 \
             step.bytes=64 \
             wait.kind=0 wait.counters=4 wait.group=8 wait.turns=12 wait.map=16 wait.bytes=48 \
             status.phase=0 status.seq=4 status.step=8 status.task=12 status.counter=16 \
             status.goal=20 status.seen=24 status.bytes=32 tickets=256 offs=320 answers=384"
        );
    }
}
