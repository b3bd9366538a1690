//! A session's handle for its supervisor: what its requests do, trials of plans, and changes of plan.
use crate::compiled::{Epoch, PlanSet};
use crate::dims::Env;
use crate::dims::bind_inputs;
use crate::dims::shapes_of;
use crate::options::SessionOptions;
use crate::record::SessionRecord;
use crate::slot::{ReadyPlan, RequestSlot, SlotPool};
use crate::special::Special;
use crate::trial::{Prepared, Trial, TrialShare};
use crate::watch::{Capture, Observed, Watch};
use crate::{Engine, RunError, batching};
use device::{Permit, Recycler};
use layout::Inserted;
use machine::Way;
use plan::{Plan, PlanSegment, Program};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use supervisor::admission::{SessionId, SessionLoad, SessionPolicy};
use tensor::Tensor;

/// The part of a session that its supervisor may hold. Supervisors hold it weakly; it ends with the session.
pub struct SessionHandle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) plan_set: PlanSet,
    pub(crate) special: Special,
    pub(crate) options: RwLock<SessionOptions>,
    pub(crate) record: Arc<SessionRecord>,
    pub(crate) slots: SlotPool,
    pub(crate) buffers: Arc<Recycler>,
    pub(crate) watch: Watch,
}

impl SessionHandle {
    /// Its number on its engine.
    pub fn id(&self) -> SessionId {
        self.record.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Its program.
    pub fn program(&self) -> &Arc<Program> {
        &self.plan_set.program
    }

    /// A copy of its options.
    pub fn options(&self) -> SessionOptions {
        self.options
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What plans of this session may use, from now on.
    pub fn set_allotment(&self, allotment: plan::Allotment) {
        let mut o = self.options.write().unwrap_or_else(PoisonError::into_inner);
        o.allotment = allotment;
    }

    /// How its requests are treated.
    pub fn policy(&self) -> SessionPolicy {
        self.record.policy().clone()
    }

    /// Has requests that come from now on treated by `policy`, its workers included; a session that was
    /// drained takes requests again. Requests are batched only where `is_batchable` says so.
    pub fn set_policy(&self, policy: SessionPolicy) {
        self.record.chosen.store(true, Ordering::Relaxed);
        self.engine.admission.set_policy(&self.record, policy);
    }

    /// What it is at.
    pub fn load(&self) -> SessionLoad {
        self.engine.admission.load(self.record.id)
    }

    /// Requests that ended, well or not.
    pub fn finished(&self) -> u64 {
        let s = self.record.stats.read();
        s.done + s.failed
    }

    /// Plans that requests had to wait for, so far.
    pub fn planned_for_requests(&self) -> u64 {
        self.plan_set.made.load(Ordering::Relaxed)
    }

    /// Begins or ends watching: what is seen is kept, within bounds, until [`SessionHandle::look`] takes it.
    pub fn watch(&self, on: bool) {
        self.watch.set(on);
    }

    /// Times the steps of the next `runs` runs, one by one.
    pub fn time_steps(&self, runs: u32) {
        self.watch.time(runs);
    }

    /// Keeps a request with its outputs.
    pub fn keep(&self, what: Capture) {
        self.watch.keep(what);
    }

    /// What there was since the last look.
    pub fn look(&self) -> Observed {
        self.watch.look()
    }

    /// Verifies and compiles a plan beside the traffic.
    ///
    /// # Errors
    /// It breaks a rule of the verifier, is not of this program, or has control flow.
    pub fn prepare(&self, plan: Plan) -> Result<Prepared, RunError> {
        if !matches!(plan.segments.as_slice(), [PlanSegment::Block(b)] if b.states.is_empty()) {
            return Err(RunError::Control {
                node: self.record.name.clone(),
                why: "only a plan of one block without state can be tried beside another".into(),
            });
        }
        Ok(Prepared(self.plan_set.compile(&self.engine, plan)?))
    }

    /// Lets requests within its box run with a plan, by turns.
    pub fn try_plan(&self, prepared: &Prepared, turns: TrialShare) {
        let trial = Trial::new(prepared, turns);
        self.plan_set.trial.swap(Some(Arc::new(trial)));
    }

    /// Whether all requests run with the plan under trial, or none, where [`TrialShare::Windows`] was said.
    pub fn turn(&self, on: bool) {
        if let Some(t) = self.plan_set.trial.load() {
            t.turn(on);
        }
    }

    /// No request begins with the plan under trial any more.
    pub fn end_trial(&self) {
        self.plan_set.trial.swap(None);
        self.slots.forget(&self.plan_set);
    }

    /// Has `change` make `epoch` the current plan, once requests of the shapes that came last are ready for it.
    pub(crate) fn publish<T>(&self, epoch: Arc<Epoch>, change: impl FnOnce(Arc<Epoch>) -> T) -> T {
        self.plan_set.publish(|version| {
            let mut blocks = epoch.blocks.iter();
            // Of a device's memory there may be too little for both plans.
            let wanted = match blocks.any(|b| b.exe.frames_hold_device_memory()) {
                false => self.slots.wanted(),
                true => Vec::new(),
            };
            let mut prewarmed = Vec::new();
            for (key, slots) in wanted {
                let shapes = shapes_of(&key);
                let mut env = Env::new();
                bind_inputs(&self.plan_set.program, &shapes, &mut env);
                if !epoch.covers(&env) {
                    continue;
                }
                for _ in 0..slots {
                    let e = epoch.clone();
                    match ReadyPlan::new(&self.plan_set.program, e, version, &shapes, &env) {
                        Ok(Some(r)) => prewarmed.push(r),
                        // A request that needs it will say why there is none.
                        Ok(None) | Err(_) => break,
                    }
                }
            }
            if !prewarmed.is_empty() {
                self.in_use(&epoch);
            }
            self.slots.replace(prewarmed);
            change(epoch)
        })
    }

    /// The ways by which requests of which no timeline is wanted reach an NVIDIA GPU, over all blocks that were
    /// compiled so far; a block says its way once a request has run.
    pub fn launched(&self) -> BTreeSet<Way> {
        let epochs = self.plan_set.epochs();
        let blocks = epochs.iter().flat_map(|e| &e.blocks);
        blocks.filter_map(|b| b.exe.way()).inserted()
    }

    /// Some requests run with this plan.
    pub(crate) fn compiled(&self, epoch: &Epoch) {
        for (i, b) in epoch.blocks.iter().enumerate() {
            self.record.compiled(b.exe.id(), &epoch.plan, i);
        }
    }

    /// Requests run with this plan from now on; they are given the workers that it has use for.
    pub(crate) fn in_use(&self, epoch: &Epoch) {
        self.compiled(epoch);
        let plan = epoch.plan.plan();
        let items = batching::max_items(&self.plan_set.program, &plan.dims);
        let workers = self.engine.workers();
        if let Some(n) = self.record.planned(plan, items, workers) {
            let policy = SessionPolicy {
                workers: n,
                ..self.record.policy().clone()
            };
            self.engine.admission.set_policy(&self.record, policy);
        }
    }

    /// Every request within its box runs with this plan from now on; running ones finish on theirs.
    pub fn promote(&self, prepared: Prepared) {
        let gone = self.publish(prepared.0, |e| self.plan_set.promote(e));
        self.plan_set.trial.swap(None);
        self.slots.forget(&self.plan_set);
        self.plan_set.retire(gone);
    }

    /// Runs `inputs`, in the program's order, with a plan that was prepared, or with that in use: beside the
    /// traffic on one worker, known to nobody.
    ///
    /// # Errors
    /// As [`crate::Session::run`]; no plan covers these inputs.
    pub fn run_beside(
        &self,
        prepared: Option<&Prepared>,
        inputs: &[Tensor],
    ) -> Result<Vec<Tensor>, RunError> {
        let program = &self.plan_set.program;
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        let mut env = Env::new();
        bind_inputs(program, &shapes, &mut env);
        let none = || RunError::Control {
            node: self.record.name.clone(),
            why: "no plan at hand covers the request".into(),
        };
        let epoch: Arc<Epoch> = match prepared {
            Some(p) => Some(p.0.clone()).filter(|e| e.covers(&env)),
            None => self.plan_set.covering(&env),
        }
        .ok_or_else(none)?;
        let ready = ReadyPlan::new(program, epoch, 0, &shapes, &env)?.ok_or_else(none)?;
        let mut slot = RequestSlot::new()?;
        slot.keep(ready);
        let mut outputs = slot.outputs(&self.buffers)?;
        let list: Vec<Option<&Tensor>> = inputs.iter().map(Some).collect();
        let one = AtomicU32::new(1);
        let permit = Permit {
            workers: Some(&one),
            priority: self.record.priority.load(Ordering::Relaxed),
            cancel: None,
        };
        slot.run(&list, &mut outputs, None, None, permit)?;
        Ok(outputs)
    }
}
