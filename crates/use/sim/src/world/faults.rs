//! What happens to devices.
use super::{Ev, World};
use crate::SimError;
use crate::scenario::FaultKind;
use supervisor::admission::{Event, RunId};

impl World<'_> {
    pub(super) fn fault(&mut self, d: usize, i: usize, begins: bool) -> Result<(), SimError> {
        let scenario = self.scenario.clone();
        let f = &scenario.devices[d].faults[i];
        let lasts = f.until.map(|u| u - f.at);
        if begins {
            if let Some(s) = lasts {
                self.at(self.now + s, Ev::Fault(d, i, false));
            }
        } else if f.every > 0.0 && self.now < scenario.seconds {
            self.at(self.now + f.every, Ev::Fault(d, i, true));
        }
        let device = &mut self.devices[d];
        match &f.kind {
            FaultKind::Neighbour { worker, share } => {
                let informed = self.informed;
                if let Some(w) = device.workers.get_mut(*worker as usize) {
                    w.share = if begins { share.max(0.01) } else { 1.0 };
                    if informed {
                        w.avoid = begins;
                    }
                }
            }
            FaultKind::Clock { factor } => device.clock = if begins { *factor } else { 1.0 },
            FaultKind::Memory { factor } => device.memory = if begins { *factor } else { 1.0 },
            FaultKind::Panic { rate, heal_s } => {
                (device.panic_rate, device.heal_s) =
                    if begins { (*rate, *heal_s) } else { (0.0, 0.0) };
            }
            FaultKind::Gone => {
                device.gone = begins;
                self.workers_changed(d)?;
                if begins {
                    let all: Vec<RunId> = self.devices[d].runs.keys().copied().collect();
                    for id in all {
                        self.fail(d, id)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn workers_changed(&mut self, d: usize) -> Result<(), SimError> {
        let n = self.devices[d].alive();
        self.schedule(d, Event::WorkersChanged(n))
    }
}
