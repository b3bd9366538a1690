//! The numbers of the protocol that the text holds. `workers::ring` defines them as `repr(C)` structures;
//! here they are data, so that nothing here knows the device's side.

/// Parameters of the entry, in order, 8 bytes each.
pub const PARAMS: [&str; 14] = [
    "ring",
    "feed",
    "slots",
    "payloads",
    "status",
    "slot_bytes",
    "payload_bytes",
    "zero_from",
    "zero_to",
    "fault_from",
    "first",
    "offs",
    "epoch",
    "patience",
];

/// Offsets of the ring's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct HeaderAbi {
    pub stop: u32,
    pub offs: u32,
    pub state: u32,
    pub next: u32,
    pub late: u32,
    pub tickets: u32,
}

/// Offsets of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct AnswerAbi {
    pub bytes: u32,
    pub seq: u32,
    pub error: u32,
    pub begin: u32,
    pub end: u32,
    pub off: u32,
}

/// Offsets of a request slot in device memory; `steps`, `tasks`, `times`, `records` and `table` are from its
/// payload on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SlotAbi {
    pub turn: u32,
    pub error: u32,
    pub arrived: u32,
    pub off: u32,
    pub begin: u32,
    pub payload: u32,
    pub steps: u32,
    pub tasks: u32,
    pub times: u32,
    pub records: u32,
    pub table: u32,
}

/// Offsets of a step's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct StepAbi {
    pub bytes: u32,
    pub body: u32,
    pub first: u32,
    pub turns: u32,
    pub tasks: u32,
    pub params: u32,
    pub waits: u32,
    pub wait_count: u32,
    pub total: u32,
    pub groups: u32,
    pub group: u32,
    pub fault: u32,
}

/// Offsets of a wait's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct WaitAbi {
    pub bytes: u32,
    pub kind: u32,
    pub counters: u32,
    pub group: u32,
    pub turns: u32,
    pub map: u32,
}

/// Offsets of what a worker says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct StatusAbi {
    pub bytes: u32,
    pub phase: u32,
    pub seq: u32,
    pub step: u32,
    pub task: u32,
    pub counter: u32,
    pub goal: u32,
    pub seen: u32,
}

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Abi {
    /// Entries of the ring: a power of two.
    pub capacity: u32,
    /// Offset of the list of requests called off from the ring's start.
    pub offs: u32,
    /// Offset of the first answer from the ring's start.
    pub answers: u32,
    pub header: HeaderAbi,
    pub answer: AnswerAbi,
    pub slot: SlotAbi,
    pub step: StepAbi,
    pub wait: WaitAbi,
    pub status: StatusAbi,
}

impl Abi {
    /// The protocol from named offsets, as `workers::ring::abi::offsets` gives them for a ring of
    /// `capacity` entries; `None` when one is missing.
    pub fn new(capacity: u32, offsets: &[(&str, usize)]) -> Option<Abi> {
        let o = |name: &str| {
            let found = offsets.iter().find(|x| x.0 == name)?;
            u32::try_from(found.1).ok()
        };
        Some(Abi {
            capacity,
            offs: o("offs")?,
            answers: o("answers")?,
            header: HeaderAbi {
                stop: o("header.stop")?,
                offs: o("header.offs")?,
                state: o("header.state")?,
                next: o("header.next")?,
                late: o("header.late")?,
                tickets: o("tickets")?,
            },
            answer: AnswerAbi {
                bytes: o("answer.bytes")?,
                seq: o("answer.seq")?,
                error: o("answer.error")?,
                begin: o("answer.begin")?,
                end: o("answer.end")?,
                off: o("answer.off")?,
            },
            slot: SlotAbi {
                turn: o("slot.turn")?,
                error: o("slot.error")?,
                arrived: o("slot.arrived")?,
                off: o("slot.off")?,
                begin: o("slot.begin")?,
                payload: o("slot.bytes")?,
                steps: o("payload.steps")?,
                tasks: o("payload.tasks")?,
                times: o("payload.times")?,
                records: o("payload.records")?,
                table: o("payload.bytes")?,
            },
            step: StepAbi {
                bytes: o("step.bytes")?,
                body: o("step.body")?,
                first: o("step.first")?,
                turns: o("step.turns")?,
                tasks: o("step.tasks")?,
                params: o("step.params")?,
                waits: o("step.waits")?,
                wait_count: o("step.wait_count")?,
                total: o("step.total")?,
                groups: o("step.groups")?,
                group: o("step.group")?,
                fault: o("step.fault")?,
            },
            wait: WaitAbi {
                bytes: o("wait.bytes")?,
                kind: o("wait.kind")?,
                counters: o("wait.counters")?,
                group: o("wait.group")?,
                turns: o("wait.turns")?,
                map: o("wait.map")?,
            },
            status: StatusAbi {
                bytes: o("status.bytes")?,
                phase: o("status.phase")?,
                seq: o("status.seq")?,
                step: o("status.step")?,
                task: o("status.task")?,
                counter: o("status.counter")?,
                goal: o("status.goal")?,
                seen: o("status.seen")?,
            },
        })
    }
}
