//! A kernel that stands still: what its workers say, and its end.
use super::super::section::{Amount, Entry};
use super::ResidentExecutable;
use crate::resident::Live;
use std::sync::Arc;
use workers::ring::{Dump, abi};

impl ResidentExecutable {
    /// What every worker is doing, in tables of stretch `k`.
    pub(super) fn dump(&self, k: usize) -> Option<Dump> {
        let s = &self.stretches[k];
        let mut page = vec![0; self.workers as usize * size_of::<abi::StatusEntry>()];
        let context = &self.inner.gpu.context;
        context.download(&mut page, self.start.status).ok()?;
        let name = |(e, s): (&Entry, &usize)| match e {
            Entry::Step { .. } => self.inner.steps.names[*s].clone(),
            Entry::Load { .. } => {
                format!("copy of weights for {}", self.inner.steps.names[*s])
            }
            Entry::Copy { amount, .. } => match amount {
                Amount::Input(_) => "copy of an input".into(),
                Amount::Output(_) => "copy of an output".into(),
                Amount::CopyDirection(_) => self.inner.steps.names[*s].clone(),
            },
        };
        let names: Vec<String> = s.entries.iter().zip(&s.steps).map(name).collect();
        Some(Dump::read(&page, &names, &s.tables.counters()))
    }

    /// Ends a kernel that stands still, and says what it did.
    pub(super) fn hang(&self, live: &Arc<Live>, table: &str) -> String {
        let gpu = &self.inner.gpu;
        let mut now = gpu.stays.change();
        let patience = gpu.options.watchdog;
        let why = format!("nothing of it moved for {patience:?}; its workers:{table}");
        if !now.as_ref().is_some_and(|l| Arc::ptr_eq(l, live)) {
            return why;
        }
        *now = None;
        match live.abort(&gpu.context, patience) {
            // Slots were left as they were: they begin anew.
            Ok(true) => {
                self.uses.clear();
                let tables = self.slots.len() * self.stretches.len() + 1;
                let zeros = vec![0; self.start.slot_bytes as usize * tables];
                let zeroed = gpu.context.upload(self.start.slots, &zeros);
                zeroed.err().map_or(why.clone(), |e| format!("{why}{e}"))
            }
            Ok(false) => {
                let told = gpu.stays.stuck.get_or_init(|| why);
                told.clone()
            }
            Err(e) => format!("{why}{e}"),
        }
    }
}
