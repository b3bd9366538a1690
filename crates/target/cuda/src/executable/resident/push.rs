//! Pushing stretches into the ring of a kernel that stays, and waiting for their answers.
use super::super::StateBuffers;
use super::super::section::{Entry, From, PIECE};
use super::super::slots::{Taken, wanted};
use super::{POLLS, ResidentExecutable};
use crate::driver::Pinned;
use crate::resident::{Live, answer};
use device::{Call, DeviceError, Permit, Tables};
use layout::Dim;
use plan::Activity;
use std::sync::Arc;
use std::time::Instant;
use workers::ring::{Answer, RingError};

/// A stretch to be pushed.
pub(super) struct Push<'a, 'b> {
    pub stretch: usize,
    /// Whether its tables are to be written.
    pub fresh: bool,
    /// Parameters, and the states of the request.
    pub p: &'a [i64],
    pub states: &'a StateBuffers<'b>,
    /// Where workers are to write their times.
    pub times: Option<&'a Arc<dyn Pinned>>,
    pub permit: Permit<'a>,
}

impl ResidentExecutable {
    /// Number of the tables of slot `n` for stretch `k`.
    fn table(&self, n: usize, k: usize) -> usize {
        n * self.stretches.len() + k
    }

    /// Writes the tables of a push.
    fn write(&self, n: usize, push: &Push<'_, '_>) -> Result<(), DeviceError> {
        let (e, p) = (&self.inner, push.p);
        let (slot, s) = (&self.slots[n], &self.stretches[push.stretch]);
        let number = self.table(n, push.stretch);
        let base = (number * s.tables.slot_bytes()) as u64;
        let base = self.start.slots.offset(base);
        let mut values: Vec<(u64, Vec<u64>)> = vec![];
        for (i, entry) in s.entries.iter().enumerate() {
            let list = match entry {
                Entry::Copy {
                    way,
                    staged,
                    buffer,
                    ..
                } => {
                    let host = slot.pinned.device_ptr().offset(*staged as u64).0;
                    let here = self.address(slot, push.states, *buffer).0;
                    let (from, to) = match way {
                        Activity::Upload => (host, here),
                        _ => (here, host),
                    };
                    vec![from, to, entry.bytes(e, p), PIECE]
                }
                Entry::Load { buffer, bytes, to } => {
                    let from = self.streamed[*buffer].as_ref();
                    let from = from.map_or(0, |p| p.device_ptr().0);
                    vec![from, to.0, *bytes, PIECE]
                }
                Entry::Step { params, .. } => {
                    let one = |f: &From| match f {
                        From::Here(at) => at.0,
                        From::Buffer(b) => self.address(slot, push.states, *b).0,
                        From::Param(d) => p[*d as usize] as u64,
                        From::Fault => base.offset(s.tables.fault(i).unwrap_or(0) as u64).0,
                    };
                    params.iter().map(one).collect()
                }
            };
            values.push((entry.tasks(e, p), list));
        }
        let calls: Vec<Call<'_>> = values
            .iter()
            .map(|(tasks, params)| Call {
                tasks: *tasks,
                params,
            })
            .collect();
        let value = |d: &Dim| match d.known() {
            Some(v) => Some(v),
            None => self.dims.get(d).map(|&i| p[i as usize]),
        };
        let mut payload = vec![];
        s.tables
            .fill(&calls, &value, &mut payload)
            .map_err(|e| self.inner.refused(&e.to_string()))?;
        if let Some(times) = push.times {
            Tables::timed(&mut payload, times.device_ptr().0);
        }
        self.payloads
            .write(number * s.tables.payload_bytes(), &payload)
            .map_err(|e| self.failed(e))
    }

    /// Pushes a stretch for a slot, with fresh tables where it has none for it, to this block's kernel,
    /// which is started where another one or none is there.
    pub(super) fn push(
        &self,
        taken: &Taken<'_>,
        push: &Push<'_, '_>,
    ) -> Result<(u32, Arc<Live>), DeviceError> {
        let began = Instant::now();
        loop {
            wanted(push.permit)?;
            if let Some(pushed) = self.try_push(taken, push)? {
                return Ok(pushed);
            }
            if began.elapsed() > self.inner.gpu.options.watchdog {
                let why = "the ring stayed full; somebody does not take an answer";
                return Err(self.inner.refused(why));
            }
            std::thread::yield_now();
        }
    }

    /// The same, unless every entry of the ring is under way.
    fn try_push(
        &self,
        taken: &Taken<'_>,
        push: &Push<'_, '_>,
    ) -> Result<Option<(u32, Arc<Live>)>, DeviceError> {
        let gpu = &self.inner.gpu;
        let own =
            |live: &Option<Arc<Live>>| live.as_ref().filter(|l| l.owner == self.owner).cloned();
        let now = gpu.stays.now();
        gpu.alive()?;
        if let Some(l) = own(&now) {
            return self.push_to(l, taken, push);
        }
        drop(now);
        let mut live = gpu.stays.change();
        gpu.alive()?;
        let own = match own(&live) {
            Some(l) => l,
            None => {
                if let Some(l) = live.take() {
                    l.leave().map_err(|e| self.failed(e))?;
                }
                let new = Live::start(&gpu.context, &self.ring, &self.start, self.owner);
                let new = Arc::new(new.map_err(|e| self.failed(e))?);
                *live = Some(new.clone());
                new
            }
        };
        self.push_to(own, taken, push)
    }

    /// Pushes to a kernel that is not told to leave meanwhile.
    fn push_to(
        &self,
        own: Arc<Live>,
        taken: &Taken<'_>,
        push: &Push<'_, '_>,
    ) -> Result<Option<(u32, Arc<Live>)>, DeviceError> {
        // Slots are cleared by whoever tells a kernel to leave.
        let fresh = push.fresh || self.uses.cleared_since(taken);
        if fresh {
            self.write(taken.slot, push)?;
        }
        let number = self.table(taken.slot, push.stretch);
        let seq = own.push(number as u32, fresh);
        let seq = seq.map_err(|e| self.failed(e))?;
        Ok(seq.map(|seq| (seq, own)))
    }

    /// Waits for the answer to `seq`, a push of stretch `k`, by reading memory alone as long as all goes
    /// well, and tells the workers when the request is called off.
    pub(super) fn wait(
        &self,
        seq: u32,
        k: usize,
        (live, permit): (&Arc<Live>, Permit<'_>),
    ) -> Result<Answer, DeviceError> {
        let gpu = &self.inner.gpu;
        let failed = |why: String| DeviceError::Failed {
            device: gpu.name.clone(),
            why: format!("the resident kernel: {why}"),
        };
        let ask = || match answer(&self.ring, seq) {
            Ok(a) => Ok(a),
            Err(RingError::Words(e)) => Err(self.failed(e)),
            Err(_) => Err(failed(
                "it was told to leave when another request stood still; ask again".into(),
            )),
        };
        let (mut since, mut polls, mut seen) = (Instant::now(), 0u32, None);
        let mut told = false;
        let found = loop {
            if let Some(a) = ask()? {
                break a;
            }
            if !told && permit.called_off() {
                live.call_off(seq).map_err(|e| self.failed(e))?;
                told = true;
            }
            polls = polls.wrapping_add(1);
            if !polls.is_multiple_of(POLLS) || since.elapsed() < gpu.options.watchdog {
                std::hint::spin_loop();
                continue;
            }
            since = Instant::now();
            let over = live.is_over(&gpu.context);
            let now = self.dump(k);
            if let Some(a) = ask()? {
                break a;
            }
            let table = now.as_ref().map_or(String::new(), |d| format!("\n{d}"));
            match over {
                Err(e) => return Err(failed(format!("{e}{table}"))),
                Ok(true) => return Err(failed(format!("it left without an answer{table}"))),
                Ok(false) if seen.is_some() && seen == now => {
                    return Err(failed(self.hang(live, &table)));
                }
                Ok(false) => seen = now,
            }
        };
        if found.called_off {
            return Err(DeviceError::Cancelled);
        }
        let Some(f) = found.failed else {
            return Ok(found);
        };
        let (s, step) = (&self.stretches[k], f.step as usize);
        let list = s.faults.get(step);
        let why = list.and_then(|l| l.get((f.fault as usize).wrapping_sub(1)).cloned());
        let why = why.unwrap_or_else(|| format!("fault {}", f.fault));
        let at = s.steps.get(step).copied().unwrap_or(0);
        Err(self.inner.steps.error(at, why))
    }
}
