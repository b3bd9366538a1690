//! A request's way through a kernel that stays: values to its slot, stretches and steps of the host in turns, outputs back.
use super::super::clocks::Clocks;
use super::super::section::{Entry, Phase};
use super::super::slots::{Taken, wanted};
use super::super::{StateBuffers, block_of};
use super::push::Push;
use super::{ResidentExecutable, ResidentFrame};
use crate::driver::Pinned;
use crate::staging;
use crate::steps::{CopyDirection, Work};
use device::{DeviceError, HostMemory, HostView, Permit, Request};
use plan::{Block, Timeline};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;
use workers::ring::Times;

/// What a request says but for its states.
struct Asked<'a, 'b> {
    symbols: &'a [i64],
    inputs: &'a [&'a [u8]],
    outputs: &'a mut [&'b mut [u8]],
    timeline: Option<&'a mut Timeline>,
    permit: Permit<'a>,
}

/// A request in the slot that it has.
struct InSlot<'a, 'b> {
    taken: Taken<'a>,
    /// What tables that are written for it are for.
    key: Vec<i64>,
    p: &'a [i64],
    states: &'a StateBuffers<'b>,
    timed: Option<Timed<'a>>,
    permit: Permit<'a>,
}

/// The timeline that a request wants.
struct Timed<'a> {
    times: MutexGuard<'a, Arc<dyn Pinned>>,
    clocks: Clocks,
    timeline: &'a mut Timeline,
}

impl ResidentExecutable {
    /// Runs a request.
    pub(super) fn resident(
        &self,
        f: &mut ResidentFrame,
        r: Request<'_>,
    ) -> Result<(), DeviceError> {
        let e = &self.inner;
        let b = block_of(&e.plan, e.block)?;
        if r.symbols.len() != b.symbols.len()
            || r.inputs.len() != e.inputs.len()
            || r.outputs.len() != e.outputs.len()
            || r.states.len() != b.states.len()
        {
            return Err(
                e.refused("symbols, inputs, outputs or states are not as many as the block has")
            );
        }
        let p = f.bound.at(r.symbols)?.to_vec();
        for (port, bytes) in e.inputs.iter().zip(r.inputs) {
            port.takes(&p, bytes.len())?;
        }
        for (port, bytes) in e.outputs.iter().zip(r.outputs.iter()) {
            port.takes(&p, bytes.len())?;
        }
        // Bringing state here may need the driver, which a kernel that stays would block.
        let mut states = e.lent_states(r.states)?;
        states.exchange(&mut f.host);
        let asked = Asked {
            symbols: r.symbols,
            inputs: r.inputs,
            outputs: r.outputs,
            timeline: r.timeline,
            permit: r.permit,
        };
        let done = self.phases(&mut f.host, asked, (&p, &states));
        states.exchange(&mut f.host);
        done
    }

    /// The host's steps and the stretches of a request, in their order.
    fn phases(
        &self,
        host: &mut Option<HostMemory>,
        mut r: Asked<'_, '_>,
        (p, states): (&[i64], &StateBuffers<'_>),
    ) -> Result<(), DeviceError> {
        let (e, began) = (&self.inner, Instant::now());
        let b = block_of(&e.plan, e.block)?;
        // A timed request is the only one with times until it is over.
        let timed = r.timeline.take().map(|timeline| Timed {
            times: self.times.lock().unwrap_or_else(PoisonError::into_inner),
            clocks: Clocks::new(e, timeline, began),
            timeline,
        });
        let mut key = vec![i64::from(timed.is_some())];
        key.extend(r.symbols);
        key.extend(states.here.iter().map(|k| k.1.0 as i64));
        let mut now = InSlot {
            taken: self.uses.take(&key, r.permit)?,
            key,
            p,
            states,
            timed,
            permit: r.permit,
        };
        for (port, bytes) in e.inputs.iter().zip(r.inputs) {
            if !port.state && port.here {
                self.stage(&now, port.staged, bytes)?;
            }
        }
        let view = e.beside.as_ref().map(|h| HostView {
            inputs: r.inputs,
            weights: &h.weights,
            kept: Some(&h.init_results),
        });
        for phase in &self.phases {
            match phase {
                Phase::Host(steps) => {
                    let own = host.as_mut().zip(view);
                    self.host_steps(&mut now, (b, steps), own, r.symbols)?;
                }
                Phase::Section(k) => {
                    self.send_copies(&now, (b, *k), host.as_ref().zip(view))?;
                    self.section(&mut now, *k)?;
                    self.fetch_copies(&now, *k, host.as_mut())?;
                }
            }
        }
        wanted(r.permit)?;
        self.read_outputs(&now, host.as_ref(), r.outputs)?;
        if let Some(t) = now.timed {
            t.timeline.total_ns = began.elapsed().as_nanos() as u64;
        }
        Ok(())
    }

    /// Writes `bytes` to the page-locked memory of the request's slot.
    fn stage(&self, now: &InSlot<'_, '_>, at: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.inner.gpu.sent(bytes.len() as u64);
        let pinned = &self.slots[now.taken.slot].pinned;
        staging::write(pinned, at, bytes).map_err(|e| self.failed(e))
    }

    /// Reads `bytes` from the page-locked memory of the request's slot.
    fn unstage(
        &self,
        now: &InSlot<'_, '_>,
        at: usize,
        bytes: &mut [u8],
    ) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.inner.gpu.fetched(bytes.len() as u64);
        let pinned = &self.slots[now.taken.slot].pinned;
        staging::read(pinned, at, bytes, |_| Ok(())).map_err(|e| self.failed(e))
    }

    /// Runs steps of the host.
    fn host_steps(
        &self,
        now: &mut InSlot<'_, '_>,
        (b, steps): (&Block, &[usize]),
        own: Option<(&mut HostMemory, HostView<'_>)>,
        symbols: &[i64],
    ) -> Result<(), DeviceError> {
        let e = &self.inner;
        let (h, (memory, view)) = e
            .beside
            .as_ref()
            .zip(own)
            .ok_or_else(|| e.refused("the plan gives steps to the host, which is missing"))?;
        for &step in steps {
            wanted(now.permit)?;
            let (began, block) = (Instant::now(), (b, now.permit.cancel));
            h.part.run(step, block, memory, view, symbols, now.p)?;
            if let Some(t) = &mut now.timed {
                t.clocks.host(t.timeline, step, began);
            }
        }
        Ok(())
    }

    /// Steps of stretch `k` that copy between the two sides: up to the GPU, or down from it.
    fn host_copies(&self, k: usize, up: bool) -> impl Iterator<Item = (usize, &CopyDirection)> {
        let (work, s) = (&self.inner.steps.work, &self.stretches[k]);
        let all = s.entries.iter().zip(&s.steps);
        all.filter_map(move |(x, &i)| match (x.is_plan_copy(), &work[i]) {
            (true, Work::CopyDirection(copy)) if copy.up == up => Some((i, copy)),
            _ => None,
        })
    }

    fn short(&self, step: usize) -> DeviceError {
        let why = "what it copies is shorter than its shape";
        self.inner.steps.error(step, why.into())
    }

    /// Puts what stretch `k` copies from the host's memory to where its tasks read it.
    fn send_copies(
        &self,
        now: &InSlot<'_, '_>,
        (b, k): (&Block, usize),
        own: Option<(&HostMemory, HostView<'_>)>,
    ) -> Result<(), DeviceError> {
        for (i, copy) in self.host_copies(k, true) {
            let n = copy.bytes(now.p).ok_or_else(|| self.short(i))?;
            let bytes = own.and_then(|(m, view)| m.bytes(b, copy.from, view).get(..n));
            let bytes = bytes.ok_or_else(|| self.short(i))?;
            self.stage(now, self.inner.staging_offsets[i], bytes)?;
        }
        Ok(())
    }

    /// Brings what stretch `k` copied to the host to its memory.
    fn fetch_copies(
        &self,
        now: &InSlot<'_, '_>,
        k: usize,
        mut host: Option<&mut HostMemory>,
    ) -> Result<(), DeviceError> {
        for (i, copy) in self.host_copies(k, false) {
            let n = copy.bytes(now.p).ok_or_else(|| self.short(i))?;
            let to = host.as_mut().map(|m| m.bytes_mut(copy.to));
            let to = to.and_then(|to| to.get_mut(..n));
            self.unstage(
                now,
                self.inner.staging_offsets[i],
                to.ok_or_else(|| self.short(i))?,
            )?;
        }
        Ok(())
    }

    /// Pushes stretch `k` and waits until it is over.
    fn section(&self, now: &mut InSlot<'_, '_>, k: usize) -> Result<(), DeviceError> {
        let (e, s) = (&self.inner, &self.stretches[k]);
        for x in &s.entries {
            if let Entry::Load { bytes, .. } = x {
                e.gpu.sent(*bytes);
            }
        }
        let push = Push {
            stretch: k,
            fresh: now.taken.written[k].take().as_deref() != Some(&now.key[..]),
            p: now.p,
            states: now.states,
            times: now.timed.as_ref().map(|t| &*t.times),
            permit: now.permit,
        };
        let pushed = Instant::now();
        let (seq, live) = self.push(&now.taken, &push)?;
        let done = self.wait(seq, k, (&live, now.permit));
        // Tables are on the device in any case that has an answer.
        match &done {
            Ok(_) | Err(DeviceError::Step { .. } | DeviceError::Cancelled) => {
                now.taken.written[k] = Some(now.key.clone())
            }
            Err(_) => {
                // What failed is not asked again.
                let mut stays = e.gpu.stays.change();
                if stays.take_if(|l| Arc::ptr_eq(l, &live)).is_some() {
                    live.abandon();
                }
            }
        }
        let answer = done?;
        if let Some(t) = &mut now.timed {
            let mut bytes = vec![0; Times::bytes(s.entries.len(), self.workers)];
            t.times.read(0, &mut bytes).map_err(|e| self.failed(e))?;
            let wrote = Times::new(&bytes, self.workers);
            let (of, said) = ((e, s, now.p), (&answer, &wrote));
            t.clocks.stretch(t.timeline, of, said, pushed);
        }
        Ok(())
    }

    /// Copies outputs to the caller's memory.
    fn read_outputs(
        &self,
        now: &InSlot<'_, '_>,
        host: Option<&HostMemory>,
        outputs: &mut [&mut [u8]],
    ) -> Result<(), DeviceError> {
        let e = &self.inner;
        for (port, out) in e.outputs.iter().zip(outputs) {
            if port.state {
                continue;
            }
            if port.here {
                self.unstage(now, port.staged, out)?;
                continue;
            }
            let made = host.and_then(|m| m.bytes_kept(port.buffer as u32).get(..out.len()));
            out.copy_from_slice(made.ok_or_else(|| e.refused("an output is missing"))?);
        }
        Ok(())
    }
}
