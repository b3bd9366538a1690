//! A machine as the report page shows it.
use machine::{Costs, Machine, Sourced};
use serde::Serialize;

/// A memory level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineLevel {
    /// Name.
    pub name: String,
    /// Bytes of one.
    pub bytes: Sourced,
    /// Workers that share one.
    pub shared_by: u64,
    /// Seconds of a first access.
    pub latency_s: Sourced,
    /// Bytes per second that all workers together read.
    pub read: Sourced,
    /// Likewise written.
    pub write: Sourced,
}

/// An arithmetic unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineUnit {
    /// Name.
    pub name: String,
    /// Class.
    pub class: String,
    /// Format of its inputs.
    pub dtype: String,
    /// Instruction set it belongs to; empty for every one.
    pub isa: String,
    /// Operations per second of all workers.
    pub rate: Sourced,
}

/// A connection between memories.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineLink {
    /// Name.
    pub name: String,
    /// One end.
    pub from: String,
    /// The other.
    pub to: String,
    /// Bytes per second.
    pub bandwidth: Sourced,
    /// Seconds.
    pub latency_s: Sourced,
}

/// A machine as the page shows it: numbers with their sources.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineData {
    /// Name.
    pub name: String,
    /// `cpu` or `gpu`.
    pub kind: machine::MachineKind,
    /// Where its figures come from, in words.
    pub note: String,
    /// Cores or SMs.
    pub workers: Sourced<u64>,
    /// Cycles per second.
    pub clock_hz: Sourced,
    /// From near to far.
    pub levels: Vec<MachineLevel>,
    /// Units.
    pub units: Vec<MachineUnit>,
    /// Links.
    pub links: Vec<MachineLink>,
    /// Fixed costs.
    pub costs: Costs,
}

impl From<&Machine> for MachineData {
    fn from(m: &Machine) -> MachineData {
        let levels = m.levels.iter().map(|l| MachineLevel {
            name: l.name.clone(),
            bytes: l.bytes,
            shared_by: l.shared_by,
            latency_s: l.latency_s,
            read: l.read.all,
            write: l.write.all,
        });
        let units = m.units.iter().map(|u| MachineUnit {
            name: u.name.clone(),
            class: u.class.to_string(),
            dtype: u.dtype_in.to_string(),
            isa: u.isa.clone(),
            rate: u.all,
        });
        let links = m.links.iter().map(|k| MachineLink {
            name: k.name.clone(),
            from: k.from.clone(),
            to: k.to.clone(),
            bandwidth: k.bandwidth,
            latency_s: k.latency_s,
        });
        MachineData {
            name: m.name.clone(),
            kind: m.kind,
            note: m.note.clone(),
            workers: m.workers.count,
            clock_hz: m.workers.clock_hz,
            levels: levels.collect(),
            units: units.collect(),
            links: links.collect(),
            costs: m.costs.clone(),
        }
    }
}
