//! Windows for the supervisor, and what it says.
use super::{Ev, World};
use crate::SimError;
use crate::backend::Served;
use crate::device::Trial;
use crate::outcome::DeviceDecision;
use plan::{Goal, Observations};
use supervisor::stats::median;
use supervisor::supervise::{
    Action, Compare, Observation, Proposal, Record, SessionSeen, StepSeen, TrialSeen, Window,
};

impl World<'_> {
    /// A window ends.
    pub(super) fn tick(&mut self, d: usize) -> Result<(), SimError> {
        let tick_s = self.scenario.tick_s;
        let mut w = Window::default();
        let device = &mut self.devices[d];
        for (i, seen) in device.seen.iter_mut().enumerate() {
            let Some(slot) = device.slots[i].as_mut() else {
                continue;
            };
            let seen = std::mem::take(seen);
            let ratios: Vec<f64> = seen.runs.iter().map(|r| r.0 / r.1.max(1e-15)).collect();
            let predicted: Vec<f64> = seen.runs.iter().map(|r| r.1).collect();
            let predicted_s = median(&predicted).unwrap_or(0.0);
            if let Some((size, n)) = seen.sizes.iter().max_by_key(|s| (s.1, s.0))
                && 2 * n > seen.arrivals
            {
                slot.size = *size;
            }
            w.sessions.push(SessionSeen {
                session: i as u32,
                name: self.scenario.sessions[i].name.clone(),
                seconds: tick_s,
                arrivals: seen.arrivals,
                finished: seen.finished,
                queued: device
                    .scheduler
                    .load(i as u32)
                    .map_or(0, |l| l.queued as u64),
                run_s: median(&ratios).unwrap_or(0.0) * predicted_s,
                predicted_s,
                shapes: seen
                    .sizes
                    .iter()
                    .map(|(s, n)| (u64::from(*s), *n))
                    .collect(),
                outside: seen.outside,
            });
            for (name, s) in seen.steps {
                w.steps.push(StepSeen {
                    session: i as u32,
                    step: name.to_string(),
                    bound: s.bound,
                    predicted_s: s.predicted_s,
                    measured_s: s.predicted_s * median(&s.ratios).unwrap_or(1.0),
                    count: s.ratios.len() as u64,
                });
            }
        }
        // What an operating system says of a core is not exact either.
        for i in 0..device.workers.len() {
            let share = device.workers[i].share;
            let off = if share < 1.0 {
                0.03 * self.luck.normal()
            } else {
                0.0
            };
            w.workers.push((share + off).clamp(0.0, 1.0));
        }
        let mut turn = None;
        if let Some(t) = &mut device.trial {
            let fresh = TrialSeen {
                proposal: t.seen.proposal,
                ..TrialSeen::default()
            };
            w.trial = Some(std::mem::replace(&mut t.seen, fresh));
            if t.by_window {
                t.on = !t.on;
                turn = Some((t.offer.session, t.on.then(|| t.offer.clone())));
            }
        }
        if let Some((session, tried)) = turn {
            self.set_policy(d, session, tried.as_ref())?;
        }
        self.tell(d, Observation::Window(Box::new(w)))
    }

    /// Tells the supervisor of a device, and does what it says.
    pub(super) fn tell(&mut self, d: usize, told: Observation) -> Result<(), SimError> {
        let at = self.now;
        let device = &mut self.devices[d];
        let copy = device.log.is_some().then(|| told.clone());
        let did = device.supervisor.step(at, told);
        if let (Some(log), Some(told)) = (&mut device.log, copy) {
            log.write(&Record {
                at,
                told,
                did: did.clone(),
            })?;
        }
        self.obey(d, did)
    }

    fn obey(&mut self, d: usize, did: Vec<Action>) -> Result<(), SimError> {
        for a in did {
            match a {
                Action::Workers { usable, avoid } => {
                    let device = &mut self.devices[d];
                    device.usable = usable.max(1);
                    for (i, w) in device.workers.iter_mut().enumerate() {
                        w.avoid = avoid.contains(&(i as u32));
                    }
                    self.workers_changed(d)?;
                }
                Action::Propose(seen) => {
                    self.at(self.now + self.scenario.planning_s, Ev::Plan(d, seen))
                }
                Action::Prepare(proposal) => {
                    let o = Observation::Ready {
                        proposal,
                        failed: None,
                    };
                    self.at(
                        self.now + self.scenario.preparing_s,
                        Ev::Answer(d, Box::new(o)),
                    );
                }
                Action::Try { proposal, every } => {
                    let Some((_, offer)) = self.offers.get(&proposal).cloned() else {
                        continue;
                    };
                    let Some(slot) = self.devices[d].slots[offer.session].as_ref() else {
                        continue;
                    };
                    let by_window = (slot.way.workers, slot.way.items, slot.instances)
                        != (offer.way.workers, offer.way.items, offer.instances);
                    let session = offer.session;
                    let goal = self.scenario.sessions[session].goal;
                    let trial = Trial {
                        per_item: goal != Goal::Latency,
                        offer: offer.clone(),
                        every,
                        count: 0,
                        by_window,
                        on: true,
                        seen: TrialSeen {
                            proposal,
                            ..TrialSeen::default()
                        },
                    };
                    self.devices[d].trial = Some(trial);
                    if by_window {
                        self.set_policy(d, session, Some(&offer))?;
                    }
                }
                Action::Promote(proposal) => {
                    self.devices[d].trial = None;
                    let Some((_, offer)) = self.offers.remove(&proposal) else {
                        continue;
                    };
                    if let Some(slot) = self.devices[d].slots[offer.session].as_mut() {
                        slot.way = offer.way;
                        slot.instances = offer.instances;
                        slot.max_delay_s = offer.max_delay_s;
                        slot.marginal = offer.marginal;
                    }
                    self.promotions += 1;
                    self.swaps += 1;
                    self.set_policy(d, offer.session, None)?;
                }
                Action::RollBack(proposal) => {
                    self.devices[d].trial = None;
                    if let Some((_, offer)) = self.offers.remove(&proposal) {
                        self.set_policy(d, offer.session, None)?;
                    }
                }
                Action::Note(decision) => {
                    for b in decision
                        .why
                        .choice
                        .bytes()
                        .chain(decision.why.reason.bytes())
                    {
                        self.mark(u64::from(b));
                    }
                    self.mark(decision.at.to_bits());
                    self.decisions.push(DeviceDecision {
                        device: self.scenario.devices[d].name.clone(),
                        decision,
                    });
                }
            }
        }
        Ok(())
    }

    /// The planner's answer.
    pub(super) fn plan(&mut self, d: usize, seen: &Observations) -> Result<(), SimError> {
        let served: Vec<Served> = self.devices[d]
            .slots
            .iter()
            .enumerate()
            .filter_map(|(session, s)| {
                let s = s.as_ref()?;
                Some(Served {
                    session,
                    model: self.models[session],
                    way: s.way,
                    instances: s.instances,
                    size: s.size,
                })
            })
            .collect();
        let offers = self.backend.propose(d, seen, &served)?;
        // What was offered before and not taken up is gone.
        self.offers.retain(|_, o| o.0 != d);
        let mut list = Vec::new();
        for o in offers {
            self.next_offer += 1;
            let spec = &self.scenario.sessions[o.session];
            list.push(Proposal {
                id: self.next_offer,
                subject: spec.name.clone(),
                sessions: vec![o.session as u32],
                gain: o.gain,
                compare: match spec.goal {
                    Goal::Latency => Compare::RunSeconds,
                    Goal::Throughput { .. } => Compare::WorkerSecondsPerItem,
                },
                why: o.why.clone(),
            });
            self.offers.insert(self.next_offer, (d, o));
        }
        self.tell(d, Observation::Proposed(list))
    }
}
