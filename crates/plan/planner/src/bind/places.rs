//! Several devices: which of them runs an item, and the copies between their memories.
//!
//! The first device is the host: the caller's memory and the mapped weights are its own, host
//! operators run there, and it drives the copies. A value lies where it was made and is copied once
//! to every other device that reads it.
use super::block::BlockBuilder;
use super::copy::copy_kernel;
use super::schedule;
use machine::{Bound, Cost, Machine, MachineKind, Share};
use plan::{BufferId, BufferKind, Item, PlanError, ValueIx, ValueOrigin};

impl BlockBuilder<'_> {
    /// `item` writes its values on device `place`: copies elsewhere are not what they are any more. The
    /// caller's memory gets them again.
    pub(super) fn written(&mut self, item: &Item, place: u32) {
        for v in item.writes() {
            for other in (0..self.ctxs.len() as u32).filter(|&p| p != place) {
                let stale = self.of_value.get(&(v, other)).is_some_and(|&b| {
                    let kind = self.block.buffers[b as usize].kind;
                    !matches!(kind, BufferKind::Output(_))
                });
                if stale {
                    self.of_value.remove(&(v, other));
                }
            }
        }
    }

    /// Where `v` can be copied from.
    pub(super) fn source(&self, v: ValueIx) -> Option<(u32, BufferId)> {
        (0..self.ctxs.len() as u32).find_map(|p| self.of_value.get(&(v, p)).map(|&b| (p, b)))
    }

    /// Copies `v` to device `to`; gives its buffer there.
    pub(super) fn transfer(
        &mut self,
        init: bool,
        v: ValueIx,
        (from, source): (u32, BufferId),
        to: u32,
    ) -> Result<BufferId, PlanError> {
        let constant = matches!(
            self.program.value(v).origin,
            ValueOrigin::Weight(_) | ValueOrigin::Init
        );
        let kind = match constant {
            true => BufferKind::Init,
            false => BufferKind::Arena,
        };
        let target = self.buffer(v, kind, None, to)?;
        self.of_value.insert((v, to), target);
        self.add_transfer(init, v, (from, source), (to, target))?;
        Ok(target)
    }

    /// Copies what `item` made on device `place` to its ports, which are the caller's memory: once, behind
    /// the last item that writes a part of a value, or as soon as the host needs it.
    pub(super) fn give_back(&mut self, item: &Item, place: u32) -> Result<(), PlanError> {
        for v in item.writes() {
            let left = self.writers.entry(v).or_insert(1);
            *left = left.saturating_sub(1);
            let last = *left == 0;
            if place != 0 {
                self.owed.insert(v, place);
                if last {
                    self.settle(v, 0)?;
                }
            }
        }
        Ok(())
    }

    /// Brings the caller's memory what a device wrote of `v`, if `place` is the host's.
    pub(super) fn settle(&mut self, v: ValueIx, place: u32) -> Result<(), PlanError> {
        if place != 0 {
            return Ok(());
        }
        let Some(maker) = self.owed.remove(&v) else {
            return Ok(());
        };
        let port = self.of_value.get(&(v, 0)).copied();
        let made = self.of_value.get(&(v, maker)).copied();
        if let (Some(port), Some(made)) = (port, made)
            && matches!(
                self.block.buffers[port as usize].kind,
                BufferKind::Output(_)
            )
        {
            self.add_transfer(false, v, (maker, made), (0, port))?;
        }
        Ok(())
    }

    /// The step that copies `v` between buffers on two devices.
    fn add_transfer(
        &mut self,
        init: bool,
        v: ValueIx,
        (from, source): (u32, BufferId),
        (to, target): (u32, BufferId),
    ) -> Result<(), PlanError> {
        let program = self.program;
        let value = program.value(v);
        let machine = |p: u32| &self.ctxs[p as usize].machine;
        let name = format!("copy {} to {}", value.name, machine(to).name);
        let kernel = copy_kernel(&name, value.dtype, &value.storage);
        let mut unsaid = Vec::new();
        let choice = schedule::choose(self.ctx, &kernel, &schedule::Facts::NONE, &mut unsaid)
            .map_err(|e| self.error(&value.name, e))?;
        let bytes = self.block.buffers[target as usize].bytes as f64;
        let cost = self.transfer_cost(from, to, bytes);
        self.step(
            init,
            &name,
            (choice.kernel, choice.schedule),
            vec![source, target],
            vec![],
            (choice.work, cost),
            0,
        )
    }

    /// What copying `bytes` between two devices' memories costs; nothing where they are one.
    pub(super) fn transfer_cost(&self, from: u32, to: u32, bytes: f64) -> Cost {
        let machine = |p: u32| self.ctxs[p as usize].machine;
        transfer_cost((from, machine(from)), (to, machine(to)), bytes)
    }
}

/// What copying `bytes` from one device's memory to another's costs; nothing where they are one. The host
/// has the lower number.
pub(super) fn transfer_cost(
    (a, from): (u32, &Machine),
    (b, to): (u32, &Machine),
    bytes: f64,
) -> Cost {
    let far = if a > b { from } else { to };
    if bytes == 0.0 || (far.kind == MachineKind::Gpu && far.is_unified()) {
        // There is nothing to copy, or both sides see one memory: what one made, the other reads where
        // it lies.
        return Cost {
            bound: Bound::Latency,
            ..Cost::zero()
        };
    }
    // The far device's link to the host, or memory to memory.
    let (link, bandwidth, latency) = {
        let link = far.links.iter().find(|l| l.to == "host");
        match link.filter(|_| far.kind == MachineKind::Gpu) {
            Some(l) => (&l.name, l.bandwidth.value, l.latency_s.value),
            None => {
                let (r, w) = (from.memory(), to.memory());
                let both = 1.0 / r.read.at(1) + 1.0 / w.write.at(1);
                (&r.name, 1.0 / both, r.latency_s.value)
            }
        }
    };
    let seconds = bytes / bandwidth;
    let fixed = far.costs.launch_s.value;
    Cost {
        time_s: seconds + latency + fixed,
        levels: vec![Share {
            name: link.into(),
            seconds,
        }],
        units: vec![],
        latency_s: latency,
        launch_s: fixed,
        bound: match seconds >= latency + fixed {
            true => Bound::Memory(link.into()),
            false => Bound::Latency,
        },
        interval: (seconds, seconds + 2.0 * (latency + fixed)),
    }
}
