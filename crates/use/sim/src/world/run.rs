//! Runs on their workers, step by step.
use super::{Done, Ev, Run, Unfinished, World};
use crate::SimError;
use crate::backend::Request;
use crate::cost::Conditions;
use crate::device::StepSamples;
use supervisor::admission::{Event, RequestId, RunId};

/// One measurement in so many is far off: an interrupt, a page that was not there.
const OUTLIERS: f64 = 0.003;
/// Measurements of a step kept per window.
const SAMPLES: usize = 64;

impl World<'_> {
    pub(super) fn begin(
        &mut self,
        d: usize,
        id: RunId,
        session: usize,
        requests: Vec<RequestId>,
        workers: u32,
    ) -> Result<(), SimError> {
        let now = self.now;
        let first = requests.first().and_then(|r| self.live.get(r));
        let Some((size, items)) = first.map(|l| {
            let all = requests.iter().filter_map(|r| self.live.get(r));
            (l.size, all.map(|l| l.items).sum::<u32>().max(1))
        }) else {
            return Ok(());
        };
        let device = &mut self.devices[d];
        let Some(slot) = device.slots[session].as_mut() else {
            return Ok(());
        };
        slot.runs += 1;
        let (mut way, runs) = (slot.way, slot.runs);
        let mut trial = None;
        if let Some(t) = &mut device.trial
            && t.offer.session == session
        {
            t.count += 1;
            let with = match t.by_window {
                true => t.on,
                false => t.count.is_multiple_of(t.every.max(2)),
            };
            if with {
                way = t.offer.way;
            }
            trial = Some(with);
        }
        if self.scenario.swap_every > 0 && runs.is_multiple_of(self.scenario.swap_every) {
            // An equal plan takes over: runs that began keep theirs.
            self.swaps += 1;
        }
        let r = Request {
            device: d,
            model: self.models[session],
            size,
            items,
        };
        let steps = self.steps_of(r, way)?;
        let predicted_s = steps.iter().map(|s| s.predicted_s).sum();
        let rate = self.devices[d].panic_rate;
        let panics_at = (rate > 0.0 && self.luck.unit() < rate)
            .then(|| (self.luck.unit() * steps.len() as f64) as usize);
        let run = Run {
            session,
            requests,
            items,
            way,
            workers: Vec::new(),
            steps,
            at: 0,
            began: now,
            len: 0.0,
            left: 1.0,
            disturbed: false,
            planned: size == way.size,
            started: now,
            version: 0,
            trial,
            spent: 0.0,
            since: now,
            predicted_s,
            panics_at,
        };
        let device = &mut self.devices[d];
        device.runs.insert(id, run);
        let free_at = device.take(id, workers as usize);
        self.begin_step(d, id, free_at);
        Ok(())
    }

    /// Begins, or goes on with, the step that a run is at, when its workers are free.
    fn begin_step(&mut self, d: usize, id: RunId, free_at: f64) {
        let (noise, outlier, luck) = (self.rng.normal(), self.rng.unit(), self.rng.unit());
        let sigma = self.scenario.devices[d].noise;
        let now = self.now;
        let device = &mut self.devices[d];
        let others: f64 = device
            .runs
            .iter()
            .filter(|(other, r)| **other != id && !r.workers.is_empty())
            .filter_map(|(_, r)| r.steps.get(r.at))
            .map(|s| s.memory_share())
            .sum();
        let Some(run) = device.runs.get_mut(&id) else {
            return;
        };
        let Some(step) = run.steps.get(run.at) else {
            return;
        };
        if run.workers.is_empty() {
            return;
        }
        let shares: Vec<f64> = run
            .workers
            .iter()
            .map(|w| device.workers[*w as usize].share)
            .collect();
        let c = Conditions {
            clock: device.clock,
            memory: device.memory,
            // Two that ask for half each do not disturb each other.
            others: (others + step.memory_share() - 1.0).clamp(0.0, others),
            shares: &shares,
        };
        let mut s = step.seconds(&c, luck) * (sigma * noise).exp();
        if outlier < OUTLIERS {
            s *= 4.0;
        }
        run.began = now.max(free_at);
        run.len = s * run.left;
        run.version += 1;
        let (at, version) = (run.began + run.len, run.version);
        self.at(at, Ev::StepEnd(d, id, version));
    }

    pub(super) fn step_end(&mut self, d: usize, id: RunId, version: u64) -> Result<(), SimError> {
        let now = self.now;
        let device = &mut self.devices[d];
        let Some(run) = device.runs.get_mut(&id).filter(|r| r.version == version) else {
            return Ok(());
        };
        if run.panics_at == Some(run.at) {
            return self.panic(d, id);
        }
        // Of plans for another size there is no prediction to compare with.
        let whole = !run.disturbed && run.planned && run.workers.len() == run.way.workers as usize;
        if let (true, Some(step)) = (whole, run.steps.get(run.at)) {
            let seen = &mut device.seen[run.session];
            let of = seen
                .steps
                .entry(step.name.clone())
                .or_insert_with(|| StepSamples {
                    bound: step.bound.clone(),
                    predicted_s: step.predicted_s,
                    ratios: Vec::new(),
                });
            if of.ratios.len() < SAMPLES {
                of.ratios.push(run.len / step.predicted_s.max(1e-15));
            }
        }
        run.at += 1;
        run.left = 1.0;
        run.disturbed = false;
        if run.at < run.steps.len() {
            self.begin_step(d, id, now);
            return Ok(());
        }
        self.finish(d, id)
    }

    fn finish(&mut self, d: usize, id: RunId) -> Result<(), SimError> {
        let now = self.now;
        let device = &mut self.devices[d];
        let Some(mut run) = device.runs.remove(&id) else {
            return Ok(());
        };
        run.account(now);
        device.busy += run.spent;
        for w in &run.workers {
            device.workers[*w as usize].run = None;
            device.workers[*w as usize].free_at = now;
        }
        let took = now - run.started;
        let seen = &mut device.seen[run.session];
        seen.finished += run.requests.len() as u64;
        if seen.runs.len() < SAMPLES {
            // On fewer workers than planned for it says nothing about the plan.
            let full = run.spent / (took * f64::from(run.way.workers)).max(1e-15);
            if full > 0.99 {
                seen.runs.push((took, run.predicted_s));
            }
        }
        if let (Some(t), Some(with)) = (&mut device.trial, run.trial)
            && t.offer.session == run.session
        {
            let v = match t.per_item {
                true => run.spent / f64::from(run.items.max(1)),
                false => took,
            };
            if with {
                t.seen.with.push(v)
            } else {
                t.seen.without.push(v)
            }
        }
        let away = self.scenario.devices[d].away_s / 2.0;
        let deadline = self.scenario.sessions[run.session].deadline_ms;
        for r in &run.requests {
            if let Some(live) = self.live.get(r).copied() {
                let latency = now + away - live.arrived;
                let in_time = deadline.is_none_or(|d| latency <= 1e-3 * d + 2.0 * away + 1e-9);
                self.sessions[run.session].late += u64::from(!in_time);
                self.done.push(Done {
                    session: run.session as u32,
                    arrived: live.arrived,
                    latency: latency as f32,
                    in_time,
                });
                self.mark(now.to_bits());
            }
            self.end_request(*r, None);
        }
        self.schedule(d, Event::Finish(id))
    }

    /// A run ends without results.
    pub(super) fn fail(&mut self, d: usize, id: RunId) -> Result<(), SimError> {
        let now = self.now;
        let device = &mut self.devices[d];
        let Some(mut run) = device.runs.remove(&id) else {
            return Ok(());
        };
        run.account(now);
        device.busy += run.spent;
        for w in &run.workers {
            device.workers[*w as usize].run = None;
            device.workers[*w as usize].free_at = now;
        }
        if let (Some(t), Some(true)) = (&mut device.trial, run.trial)
            && run.panics_at.is_none()
        {
            t.seen.failed += 1;
        }
        for r in run.requests {
            self.end_request(r, Some(Unfinished::Failed));
        }
        self.schedule(d, Event::Finish(id))
    }

    /// A worker panics in a step: its run fails, and the worker is gone until it is healed.
    fn panic(&mut self, d: usize, id: RunId) -> Result<(), SimError> {
        let worker = self.devices[d]
            .runs
            .get(&id)
            .and_then(|r| r.workers.first().copied());
        let heal_s = self.devices[d].heal_s;
        if let Some(w) = worker
            && heal_s > 0.0
        {
            self.devices[d].workers[w as usize].dead = true;
            self.at(self.now + heal_s, Ev::Heal(d, w as usize));
        }
        // The scheduler must not grant the dead worker to whatever the end of this run lets start.
        let alive = self.devices[d].alive();
        self.schedule(d, Event::WorkersChanged(alive))?;
        self.fail(d, id)
    }

    /// A run's workers change: those that leave are done with their tasks first.
    pub(super) fn resize(&mut self, d: usize, id: RunId, workers: u32) {
        let (now, luck) = (self.now, self.luck.unit());
        let device = &mut self.devices[d];
        let Some(run) = device.runs.get_mut(&id) else {
            return;
        };
        run.account(now);
        if run.len > 0.0 && !run.workers.is_empty() {
            let done = ((now - run.began) / run.len).clamp(0.0, 1.0);
            run.left *= 1.0 - done;
        }
        run.disturbed = true;
        run.version += 1;
        let task_s = run.steps.get(run.at).map_or(0.0, |s| s.task_s());
        let n = workers as usize;
        if run.workers.len() > n {
            device.give_up(id, n, now + luck * task_s);
        }
        let free_at = device.take(id, n);
        self.begin_step(d, id, free_at);
    }
}
