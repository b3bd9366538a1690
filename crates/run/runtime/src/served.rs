//! A session as whoever supervises it sees it: what its requests do, and plans that are tried and taken.
use crate::book::Book;
use crate::epoch::{Env, Epoch, Unit};
use crate::interpret::bind_inputs;
use crate::lane::{Lane, Lanes, Ready, shapes_of};
use crate::session::SessionOptions;
use crate::special::Special;
use crate::trial::{Prepared, Trial, Turns};
use crate::watch::{Keep, Seen, Watch};
use crate::{Engine, RunError, joined};
use device::{Permit, Recycler};
use plan::{Plan, PlanSegment, Program};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use supervisor::admission::{SessionId, SessionLoad, SessionPolicy};
use tensor::Tensor;

/// What a session shares with whoever supervises it. It lives as long as the session.
pub struct Served {
    pub(crate) engine: Arc<Engine>,
    pub(crate) unit: Unit,
    pub(crate) special: Special,
    pub(crate) options: RwLock<SessionOptions>,
    pub(crate) book: Arc<Book>,
    pub(crate) lanes: Lanes,
    pub(crate) buffers: Arc<Recycler>,
    pub(crate) watch: Watch,
}

impl Served {
    /// Its number on its engine.
    pub fn id(&self) -> SessionId {
        self.book.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.book.name
    }

    /// Its program.
    pub fn program(&self) -> &Arc<Program> {
        &self.unit.program
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
        self.book.policy().clone()
    }

    /// Has requests that come from now on treated by `policy`, its workers included; a session that was
    /// drained takes requests again. Requests are joined only where [`crate::Session::joins`].
    pub fn set_policy(&self, policy: SessionPolicy) {
        self.book.chosen.store(true, Ordering::Relaxed);
        self.engine.desk.set_policy(&self.book, policy);
    }

    /// What it is at.
    pub fn load(&self) -> SessionLoad {
        self.engine.desk.load(self.book.id)
    }

    /// Requests that ended, well or not.
    pub fn finished(&self) -> u64 {
        let s = self.book.stats.read();
        s.done + s.failed
    }

    /// Plans that requests had to wait for, so far.
    pub fn planned_for_requests(&self) -> u64 {
        self.unit.made.load(Ordering::Relaxed)
    }

    /// Begins or ends watching: what is seen is kept, within bounds, until [`Served::look`] takes it.
    pub fn watch(&self, on: bool) {
        self.watch.set(on);
    }

    /// Times the steps of the next `runs` runs, one by one.
    pub fn time_steps(&self, runs: u32) {
        self.watch.time(runs);
    }

    /// Keeps a request with its outputs.
    pub fn keep(&self, what: Keep) {
        self.watch.keep(what);
    }

    /// What there was since the last look.
    pub fn look(&self) -> Seen {
        self.watch.look()
    }

    /// Verifies and compiles a plan beside the traffic.
    ///
    /// # Errors
    /// It breaks a rule of the verifier, is not of this program, or has control flow.
    pub fn prepare(&self, plan: Plan) -> Result<Prepared, RunError> {
        if !matches!(plan.segments.as_slice(), [PlanSegment::Block(b)] if b.states.is_empty()) {
            return Err(RunError::Control {
                node: self.book.name.clone(),
                why: "only a plan of one block without state can be tried beside another".into(),
            });
        }
        Ok(Prepared(self.unit.compile(&self.engine, plan)?))
    }

    /// Lets requests within its box run with a plan, by turns.
    pub fn try_plan(&self, prepared: &Prepared, turns: Turns) {
        let trial = Trial::new(prepared, turns);
        self.unit.trial.store(Some(Arc::new(trial)));
    }

    /// Whether all requests run with the plan that is tried, or none, where [`Turns::Windows`] was said.
    pub fn turn(&self, on: bool) {
        if let Some(t) = &*self.unit.trial.load() {
            t.turn(on);
        }
    }

    /// No request begins with the plan that is tried any more.
    pub fn end_trial(&self) {
        self.unit.trial.store(None);
        self.lanes.forget(&self.unit);
    }

    /// Has `change` make `epoch` the current plan, once requests of the shapes that came last are ready for it.
    pub(crate) fn publish<T>(&self, epoch: Arc<Epoch>, change: impl FnOnce(Arc<Epoch>) -> T) -> T {
        self.unit.publish(|version| {
            let mut blocks = epoch.blocks.iter();
            // Of a device's memory there may be too little for both plans.
            let wanted = match blocks.any(|b| b.exe.frames_hold_device_memory()) {
                false => self.lanes.wanted(),
                true => Vec::new(),
            };
            let mut spares = Vec::new();
            for (key, lanes) in wanted {
                let shapes = shapes_of(&key);
                let mut env = Env::new();
                bind_inputs(&self.unit.program, &shapes, &mut env);
                if !epoch.covers(&env) {
                    continue;
                }
                for _ in 0..lanes {
                    let e = epoch.clone();
                    match Ready::new(&self.unit.program, e, version, &shapes, &env) {
                        Ok(Some(r)) => spares.push(r),
                        // A request that needs it will say why there is none.
                        Ok(None) | Err(_) => break,
                    }
                }
            }
            if !spares.is_empty() {
                self.in_use(&epoch);
            }
            self.lanes.lay(spares);
            change(epoch)
        })
    }

    /// Some requests run with this plan.
    pub(crate) fn compiled(&self, epoch: &Epoch) {
        for (i, b) in epoch.blocks.iter().enumerate() {
            self.book.compiled(b.exe.id(), &epoch.plan, i);
        }
    }

    /// Requests run with this plan from now on; they are given the workers that it has use for.
    pub(crate) fn in_use(&self, epoch: &Epoch) {
        self.compiled(epoch);
        let plan = epoch.plan.plan();
        let items = joined::items_of(&self.unit.program, &plan.dims);
        let workers = self.engine.workers();
        if let Some(n) = self.book.planned(plan, items, workers) {
            let policy = SessionPolicy {
                workers: n,
                ..self.book.policy().clone()
            };
            self.engine.desk.set_policy(&self.book, policy);
        }
    }

    /// Every request within its box runs with this plan from now on; running ones finish on theirs.
    pub fn promote(&self, prepared: Prepared) {
        let gone = self.publish(prepared.0, |e| self.unit.promote(e));
        self.unit.trial.store(None);
        self.lanes.forget(&self.unit);
        self.unit.retire(gone);
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
        let program = &self.unit.program;
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        let mut env = Env::new();
        bind_inputs(program, &shapes, &mut env);
        let none = || RunError::Control {
            node: self.book.name.clone(),
            why: "no plan at hand covers the request".into(),
        };
        let epoch: Arc<Epoch> = match prepared {
            Some(p) => Some(p.0.clone()).filter(|e| e.covers(&env)),
            None => self.unit.covering(&env),
        }
        .ok_or_else(none)?;
        let ready = Ready::new(program, epoch, 0, &shapes, &env)?.ok_or_else(none)?;
        let mut lane = Lane::new()?;
        lane.keep(ready);
        let mut outputs = lane.outputs(&self.buffers)?;
        let list: Vec<Option<&Tensor>> = inputs.iter().map(Some).collect();
        let one = AtomicU32::new(1);
        let permit = Permit {
            workers: Some(&one),
            priority: self.book.priority.load(Ordering::Relaxed),
            cancel: None,
        };
        lane.run(&list, &mut outputs, None, None, permit)?;
        Ok(outputs)
    }
}
