//! What a plan needs of memory, stated before loading.
use crate::table::{Align, Style, Table};
use crate::units;
use plan::{BufferKind, Plan, PlanSegment, Program, Step, ValueOrigin};
use serde::Serialize;
use std::collections::BTreeMap;

/// Bytes that a process may take beside what a plan states: program text, the model's structure,
/// plans, stacks, 16 MiB of weights on their way into packed form, and outputs kept for reuse.
pub const BESIDE: u64 = 96 << 20;

/// The memory that a plan takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MemoryView {
    /// Constants in the model's file that the plan uses.
    pub weights: u64,
    /// Those of them that requests read where they lie mapped; the others are read once, packed and
    /// let go of.
    pub weights_in_place: u64,
    /// Packed weights and other results of the init segment, shared by all requests.
    pub packed: u64,
    /// Constants of what is planned only when the data has given its sizes; each will be read in place
    /// or packed. The arena of that part is not known before.
    pub late: u64,
    /// Arena of one request.
    pub arena: u64,
    /// Requests that may run at once.
    pub requests: u64,
    /// Scratch of one worker.
    pub scratch: u64,
    /// Workers.
    pub workers: u64,
    /// State of one stream.
    pub state: u64,
    /// The caller's inputs and outputs of one request.
    pub ports: u64,
    /// Weights in place, packed and late weights, arenas and scratch together.
    pub total: u64,
    /// What the process may take beside, whatever the model.
    pub beside: u64,
}

impl MemoryView {
    /// The memory of `plan`, of which `requests` may run at once.
    pub fn of(plan: &Plan, requests: u64) -> MemoryView {
        let mut m = MemoryView {
            requests,
            workers: plan.devices.first().map_or(1, |d| u64::from(d.workers)),
            beside: BESIDE,
            ..MemoryView::default()
        };
        let (mut weights, mut in_place) = (BTreeMap::new(), BTreeMap::new());
        for b in plan.blocks() {
            for buffer in &b.buffers {
                match buffer.kind {
                    BufferKind::Weight(id) => drop(weights.insert(id, buffer.bytes)),
                    BufferKind::State(_) => m.state += buffer.bytes,
                    BufferKind::Input(_) | BufferKind::Output(_) => m.ports += buffer.bytes,
                    BufferKind::Arena | BufferKind::Init => {}
                }
            }
            m.packed += b.packed_bytes();
            for r in b.steps.iter().flat_map(Step::uses) {
                if let Some(buffer) = b.buffers.get(r as usize)
                    && let BufferKind::Weight(id) = buffer.kind
                {
                    in_place.insert(id, buffer.bytes);
                }
            }
            // Blocks of a request run one after the other in the same memory.
            m.arena = m
                .arena
                .max(b.arena_bytes + b.far_arenas.iter().sum::<u64>());
            m.scratch = m.scratch.max(b.scratch_bytes);
        }
        m.weights = weights.values().sum();
        m.weights_in_place = in_place.values().sum();
        m.sum();
        m
    }

    /// Adds the constants of segments of `program` that `plan` leaves until their sizes are known.
    pub(crate) fn with_late(mut self, plan: &Plan, program: &Program) -> MemoryView {
        let deferred = |s: &PlanSegment| matches!(s, PlanSegment::Deferred { .. });
        if !plan.segments.iter().any(deferred) {
            return self;
        }
        let used = |id| {
            let kind = BufferKind::Weight(id);
            plan.blocks()
                .any(|b| b.buffers.iter().any(|x| x.kind == kind))
        };
        let mut late = BTreeMap::new();
        for v in &program.values {
            if let (ValueOrigin::Weight(id), Some(n)) = (&v.origin, v.storage.known())
                && !used(*id)
            {
                let bytes = usize::try_from(n).ok().and_then(|n| v.dtype.bytes_for(n));
                late.insert(*id, bytes.unwrap_or(0) as u64);
            }
        }
        self.late = late.values().sum();
        self.weights = self.weights.saturating_add(self.late);
        self.sum();
        self
    }

    /// Adds what a branch or loop body takes that runs in the same request.
    pub fn with_body(mut self, body: &MemoryView) -> MemoryView {
        self.weights += body.weights;
        self.weights_in_place += body.weights_in_place;
        self.packed += body.packed;
        self.arena = self.arena.max(body.arena);
        self.scratch = self.scratch.max(body.scratch);
        self.sum();
        self
    }

    /// How often scratch is there: callers bring their own, and one of them is a worker itself.
    fn scratches(&self) -> u64 {
        (self.workers + self.requests).saturating_sub(1)
    }

    fn sum(&mut self) {
        self.total = self
            .packed
            .saturating_add(self.weights_in_place)
            .saturating_add(self.late)
            .saturating_add(self.arena.saturating_mul(self.requests))
            .saturating_add(self.scratch.saturating_mul(self.scratches()));
    }

    /// As a table.
    pub(crate) fn render(&self, style: Style) -> String {
        let size = |n: u64| units::bytes(n as f64);
        let mut t = Table::new(&[
            ("what", Align::Left),
            ("bytes", Align::Right),
            ("", Align::Wrap),
        ]);
        let mut row = |what: &str, bytes: u64, note: &str| {
            t.row(vec![format!("  {what}"), size(bytes), note.into()]);
        };
        row(
            "weights in place",
            self.weights_in_place,
            &format!("read where the file lies mapped; of {}", size(self.weights)),
        );
        row(
            "packed weights",
            self.packed,
            "made at load, shared by all requests",
        );
        if self.late > 0 {
            row(
                "late weights",
                self.late,
                "of what is planned when the data gives its sizes, its arena not counted",
            );
        }
        let values = match self.requests {
            0 | 1 => "values between the steps of a request".into(),
            n => format!(
                "values between steps: {} for each of {n} requests at once",
                size(self.arena)
            ),
        };
        row("arena", self.arena.saturating_mul(self.requests), &values);
        let who = match self.requests {
            0 | 1 => units::plural(self.scratches(), "worker"),
            _ => format!("{} workers and callers", self.scratches()),
        };
        row(
            "scratch",
            self.scratch.saturating_mul(self.scratches()),
            &format!(
                "what a task keeps for itself: {} for each of {who}",
                size(self.scratch)
            ),
        );
        row("total", self.total, "at most: the rows above together");
        row(
            "beside",
            self.beside,
            "at most, not in the total: the program, the plan, outputs kept for reuse",
        );
        row(
            "inputs and outputs",
            self.ports,
            "the caller's, not in the total",
        );
        if self.state > 0 {
            row("state", self.state, "of each stream, not in the total");
        }
        t.render(style)
    }
}
