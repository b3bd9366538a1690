//! Sessions: one program, its plans, and the path of a request from named inputs to outputs. A request is
//! admitted (`admission`), perhaps batched (`batching`), takes a slot (`slot`) and runs, on its caller's
//! thread. Control flow is in `interpret`, plans in `epoch`.
use crate::admission::{AdmissionGuard, AdmissionRequest, Admitted};
use crate::batching;
use crate::budget::MemoryBudget;
use crate::compiled::{Epoch, PlanSet};
use crate::dims::Env;
use crate::handle::SessionHandle;
use crate::interpret::{Context, box_for, constraints, run, run_on};
use crate::options::SessionOptions;
use crate::record::SessionRecord;
use crate::slot::{RECYCLED_OUTPUTS, ReadyPlan, RequestSlot, SlotPool};
use crate::special::{Special, sizes};
use crate::streams::{StreamQueues, StreamTable};
use crate::trial::Trial;
use crate::value::{Shaped, Value};
use crate::watch::Watch;
use crate::{Cancel, Engine, RunError, SessionView};
use device::{Permit, Recycler, State, UnifiedBuffer};
use layout::DimBox;
use layout::Inserted;
use plan::{Plan, Program, Timeline, VerifiedPlan};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};
use tensor::Tensor;

/// Inputs up to which their list needs no memory.
const FEW: usize = 16;

/// One program, ready for requests from any number of threads.
pub struct Session {
    handle: Arc<SessionHandle>,
    outputs: Arc<[String]>,
    pub(crate) streams: Arc<StreamQueues>,
    /// Itself, for the thread that runs what nobody receives of its streams.
    me: Weak<Session>,
    /// The plans that streams keep their state in place by, each with its box.
    stream_epochs: Mutex<Vec<(DimBox, Weak<Epoch>)>>,
}

/// How a request that is admitted runs.
#[derive(Clone, Copy, Default)]
struct How<'a> {
    stop_after: Option<u32>,
    tried: Option<&'a Trial>,
    side: Option<bool>,
    /// The ranges that a new plan is to cover, where they are not the session's.
    dims: Option<&'a DimBox>,
}

impl Deref for Session {
    type Target = SessionHandle;

    fn deref(&self) -> &SessionHandle {
        &self.handle
    }
}

/// What one request asks beside its session's policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call<'a> {
    /// By this it can be given up.
    pub cancel: Option<&'a Cancel>,
    /// By when it must be done, counted from now; it is refused where that cannot be.
    pub deadline: Option<Duration>,
}

impl Session {
    /// A session of `program` on `engine`.
    pub fn new(
        engine: Arc<Engine>,
        program: Arc<Program>,
        options: SessionOptions,
    ) -> Arc<Session> {
        let mut policy = options.policy.clone();
        policy.workers = options.workers.unwrap_or(engine.workers());
        policy.spread = options.workers.is_none();
        let record = engine.admission.open(|id| {
            let b = SessionRecord::new(id, program.name.clone(), program.weights.clone(), policy);
            // What runs on a GPU is not made of the host's workers.
            let gpu = engine.device().target().gpu.is_some();
            b.chosen
                .store(options.workers.is_some() || gpu, Ordering::Relaxed);
            b
        });
        let outputs = program.outputs.iter().map(|o| o.0.clone()).collect();
        let handle = Arc::new(SessionHandle {
            record,
            slots: SlotPool::new(),
            buffers: Recycler::new(RECYCLED_OUTPUTS),
            plan_set: PlanSet::new(program, String::new(), options.store.clone())
                .pinned(options.pinned),
            special: Special::new(
                options.special.clone(),
                options.store.clone(),
                options.pinned,
            ),
            options: RwLock::new(options),
            watch: Watch::new(),
            engine: engine.clone(),
        });
        engine.opened(&handle);
        Arc::new_cyclic(|me| Session {
            handle,
            outputs,
            streams: Arc::default(),
            me: me.clone(),
            stream_epochs: Mutex::default(),
        })
    }

    /// The session as whoever supervises it sees it.
    pub fn handle(&self) -> &Arc<SessionHandle> {
        &self.handle
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Runs one request: every input by name, outputs in the model's order. Blocks until it is
    /// done; the calling thread works too.
    pub fn run(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<(String, Tensor)>, RunError> {
        self.run_with(inputs, None, None)
    }

    /// Like [`Session::run`], recording what ran when (of the top-level blocks), and ending after
    /// step `stop_after` if given (outputs are then unspecified).
    pub fn run_with(
        &self,
        inputs: &[(&str, &Tensor)],
        timeline: Option<&mut Timeline>,
        stop_after: Option<u32>,
    ) -> Result<Vec<(String, Tensor)>, RunError> {
        let outs = self.run_tensors(inputs, timeline, stop_after)?;
        Ok(self.outputs.iter().cloned().zip(outs).collect())
    }

    /// Like [`Session::run_with`], giving the outputs without their names
    /// ([`Session::output_names`]).
    pub fn run_tensors(
        &self,
        inputs: &[(&str, &Tensor)],
        timeline: Option<&mut Timeline>,
        stop_after: Option<u32>,
    ) -> Result<Vec<Tensor>, RunError> {
        let n = self.plan_set.program.inputs.len();
        let mut few = [None; FEW];
        let mut many;
        let list: &mut [Option<&Tensor>] = if n <= FEW {
            &mut few[..n]
        } else {
            many = vec![None; n];
            &mut many
        };
        self.resolve(inputs, list)?;
        let mut slot = None;
        let out = self.run_listed(list, &mut slot, Vec::new(), timeline, stop_after);
        if let Some(l) = slot {
            self.give_back(l);
        }
        out
    }

    /// Like [`Session::run_tensors`] for a request that can be given up, or must be done in time.
    ///
    /// # Errors
    /// As [`Session::run`]; [`RunError::Cancelled`], [`RunError::Late`].
    pub fn run_call(
        &self,
        inputs: &[(&str, &Tensor)],
        call: Call<'_>,
    ) -> Result<Vec<Tensor>, RunError> {
        let mut list = vec![None; self.plan_set.program.inputs.len()];
        self.resolve(inputs, &mut list)?;
        self.types(&list)?;
        let mut slot = None;
        let out = self.run_admitted(&list, &mut slot, Vec::new(), None, None, call);
        if let Some(l) = slot {
            self.give_back(l);
        }
        out
    }

    /// Names of the outputs, in the model's order.
    pub fn output_names(&self) -> &Arc<[String]> {
        &self.outputs
    }

    pub(crate) fn give_back(&self, slot: RequestSlot) {
        self.slots.give_back(&self.plan_set, &self.record, slot);
    }

    pub(crate) fn buffers(&self) -> &Arc<Recycler> {
        &self.buffers
    }

    /// Runs one request on inputs in the program's order. `slot` is kept there for the caller to
    /// use again or give back; `old` outputs are written to where they fit.
    pub(crate) fn run_listed(
        &self,
        inputs: &[Option<&Tensor>],
        slot: &mut Option<RequestSlot>,
        old: Vec<Tensor>,
        timeline: Option<&mut Timeline>,
        stop_after: Option<u32>,
    ) -> Result<Vec<Tensor>, RunError> {
        self.types(inputs)?;
        self.run_admitted(inputs, slot, old, timeline, stop_after, Call::default())
    }

    /// Waits for admission and runs the request, or has it run in another one's batch one's.
    fn run_admitted(
        &self,
        inputs: &[Option<&Tensor>],
        slot: &mut Option<RequestSlot>,
        old: Vec<Tensor>,
        timeline: Option<&mut Timeline>,
        stop_after: Option<u32>,
        call: Call<'_>,
    ) -> Result<Vec<Tensor>, RunError> {
        self.watch.arrive(inputs, !self.record.is_plain());
        let began = self.record.stats.begin();
        let alone = match (call.cancel, call.deadline) {
            (None, None) => self.engine.admission.alone(&self.record),
            _ => None,
        };
        let out = match alone {
            Some(guard) => self.run_at(inputs, slot, old, timeline, stop_after, guard.permit()),
            None if timeline.is_none() && stop_after.is_none() => {
                self.run_batched(inputs, slot, old, call)
            }
            None => {
                let guard = self.admit_call(call)?;
                self.run_at(inputs, slot, old, timeline, stop_after, guard.permit())
            }
        };
        self.account(began, out)
    }

    /// Counts how a request ended.
    pub(crate) fn account<T>(
        &self,
        began: Option<Instant>,
        out: Result<T, RunError>,
    ) -> Result<T, RunError> {
        match &out {
            Ok(_) => self.record.stats.end(began),
            Err(
                RunError::Overloaded { .. }
                | RunError::Late { .. }
                | RunError::Draining
                | RunError::Refused(_),
            ) => {}
            Err(_) => self.record.stats.fail(),
        }
        out
    }

    /// Runs a request that is admitted, with the plan under trial where it is that one's turn.
    pub(crate) fn run_at(
        &self,
        inputs: &[Option<&Tensor>],
        slot: &mut Option<RequestSlot>,
        old: Vec<Tensor>,
        mut timeline: Option<&mut Timeline>,
        stop_after: Option<u32>,
        permit: Permit<'_>,
    ) -> Result<Vec<Tensor>, RunError> {
        let trial = self.plan_set.trial.load();
        let side = match &trial {
            Some(t) if stop_after.is_none() => t.side(&self.shapes(inputs)?),
            _ => None,
        };
        let tried = trial.as_deref().filter(|_| side == Some(true));
        let how = How {
            stop_after,
            tried,
            side,
            dims: None,
        };
        match self.run_with_plan(inputs, slot, old, timeline.as_deref_mut(), how, permit) {
            Err(e) if tried.is_some() && !matches!(e, RunError::Cancelled) => {
                let how = How {
                    stop_after,
                    ..How::default()
                };
                let out = self.run_with_plan(inputs, slot, Vec::new(), timeline, how, permit)?;
                // What fails with either plan is the request's own fault.
                self.watch.fail();
                Ok(out)
            }
            out => out,
        }
    }

    /// Runs a request that is admitted on a plan that covers `dims` where it has to be made.
    pub(crate) fn run_within(
        &self,
        dims: &DimBox,
        inputs: &[Option<&Tensor>],
        slot: &mut Option<RequestSlot>,
        permit: Permit<'_>,
    ) -> Result<Vec<Tensor>, RunError> {
        self.types(inputs)?;
        let how = How {
            dims: Some(dims),
            ..How::default()
        };
        self.run_with_plan(inputs, slot, Vec::new(), None, how, permit)
    }

    /// Runs a request on a certain plan of one block, with the state that it keeps in place.
    pub(crate) fn run_placed(
        &self,
        epoch: &Epoch,
        inputs: &[Option<&Tensor>],
        env: &Env,
        states: &mut [State],
        permit: Permit<'_>,
    ) -> Result<Vec<Tensor>, RunError> {
        let options = self.options();
        constraints(&self.plan_set.program, env)?;
        let mut slot = self.slots.take::<Tensor>(self.plan_set.version(), &[])?.0;
        let mut ctx = Context {
            engine: &self.engine,
            allotment: &options.allotment,
            dims: &options.dims,
            timeline: None,
            stop_after: None,
            memory: &mut slot.memory,
            buffers: &self.buffers,
            budget: MemoryBudget::new(options.allotment.memory),
            permit,
            began: Instant::now(),
            recorded: Vec::new(),
        };
        let values = inputs.iter().flatten().map(|&t| Value::Ref(t)).collect();
        let states = Some(states);
        let outs = run_on(
            &mut ctx,
            &self.plan_set,
            epoch,
            values,
            env.clone(),
            states,
            0,
        );
        self.give_back(slot);
        Ok(outs?.into_iter().map(Value::into_tensor).collect())
    }

    fn run_with_plan(
        &self,
        inputs: &[Option<&Tensor>],
        slot: &mut Option<RequestSlot>,
        mut old: Vec<Tensor>,
        mut timeline: Option<&mut Timeline>,
        how: How<'_>,
        permit: Permit<'_>,
    ) -> Result<Vec<Tensor>, RunError> {
        let How {
            stop_after,
            tried,
            side,
            dims,
        } = how;
        let version = tried.map_or_else(|| self.plan_set.version(), |t| t.version);
        let ready = match slot {
            Some(l) => self.slots.find(l, version, inputs),
            None => {
                let (l, ready) = self.slots.take(version, inputs)?;
                *slot = Some(l);
                ready
            }
        };
        let Some(slot) = slot else {
            return Ok(Vec::new());
        };
        if !ready {
            let mut segments = |plan_set: &PlanSet, env: Env, slot: &mut RequestSlot| {
                let options = self.options();
                let mut timeline = timeline.as_deref_mut();
                if let Some(t) = &mut timeline {
                    **t = Timeline::default();
                }
                let mut ctx = Context {
                    engine: &self.engine,
                    allotment: &options.allotment,
                    dims: dims.unwrap_or(&options.dims),
                    timeline,
                    stop_after,
                    memory: &mut slot.memory,
                    buffers: &self.buffers,
                    budget: MemoryBudget::new(options.allotment.memory),
                    permit,
                    began: Instant::now(),
                    recorded: Vec::new(),
                };
                let values = inputs.iter().flatten().map(|&t| Value::Ref(t)).collect();
                let outs = run(&mut ctx, plan_set, values, env, 0)?;
                Ok(outs.into_iter().map(Value::into_tensor).collect())
            };
            let made = self.make_ready(dims, inputs, slot, tried);
            let outs = match made {
                Ok(None) => None,
                Ok(Some(env)) => Some(segments(&self.plan_set, env, slot)),
                Err(e) => Some(Err(e)),
            };
            match outs {
                Some(Err(e)) if self.special.may_help(&self.plan_set.program, &e) => {
                    let program = &self.plan_set.program;
                    return self.special.run(program, inputs, e, |plan_set| {
                        segments(plan_set, Env::new(), slot)
                    });
                }
                Some(outs) => return outs,
                None => {}
            }
        }
        if !slot.fits(&old) {
            old = slot.outputs(&self.buffers)?;
        }
        let mut watched = self.watch.begin(&permit, timeline.is_some());
        let own = watched.as_mut().and_then(|w| w.timeline.as_mut());
        slot.run(inputs, &mut old, timeline.or(own), stop_after, permit)?;
        if let (Some(w), Some(plan)) = (watched, slot.plan()) {
            let items = batching::count_items(&self.plan_set.program, inputs);
            let how = (slot.at_top() && !self.engine.is_limited(), items);
            self.watch.end(w, &permit, plan, side, how);
            self.watch.offer(inputs, &old, side == Some(true));
        }
        Ok(old)
    }

    /// Puts what is ready for inputs of these shapes in front of `slot`; gives the symbols' values
    /// instead where the program is not one block.
    fn make_ready<T: Shaped>(
        &self,
        dims: Option<&DimBox>,
        inputs: &[Option<&T>],
        slot: &mut RequestSlot,
        tried: Option<&Trial>,
    ) -> Result<Option<Env>, RunError> {
        let env = self.shapes(inputs)?;
        let options = self.options();
        let program = &self.plan_set.program;
        self.plan_set.refused(&[])?;
        constraints(program, &env)?;
        let asked = dims.unwrap_or(&options.dims);
        let dims = || box_for(program, &env, asked);
        let (version, epoch) = match tried {
            Some(t) => {
                self.compiled(&t.epoch);
                (t.version, t.epoch.clone())
            }
            None => {
                let version = self.plan_set.version();
                let (plan_set, allotment) = (&self.plan_set, &options.allotment);
                let epoch =
                    plan_set.epoch(&self.engine, &env, dims, allotment, &mut slot.memory)?;
                self.in_use(&epoch);
                (version, epoch)
            }
        };
        let shapes: Vec<&[usize]> = inputs.iter().map(|t| t.map_or(&[][..], T::shape)).collect();
        match ReadyPlan::new(program, epoch, version, &shapes, &env)? {
            Some(r) => {
                if tried.is_none() {
                    self.slots.note(&r);
                }
                slot.keep(r);
                Ok(None)
            }
            None => Ok(Some(env)),
        }
    }

    /// Like [`Session::run`] on buffers that lie anywhere: inputs are brought to where the plan runs,
    /// if they are not there, and outputs stay where they were made. Models with control flow, or
    /// with sizes that only the data gives, run on the host's copies.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_unified(
        &self,
        inputs: &[(&str, &UnifiedBuffer)],
    ) -> Result<Vec<UnifiedBuffer>, RunError> {
        let mut list = vec![None; self.plan_set.program.inputs.len()];
        self.resolve(inputs, &mut list)?;
        self.types(&list)?;
        {
            let began = self.record.stats.begin();
            let guard = self.admit()?;
            let (mut slot, ready) = self.slots.take(self.plan_set.version(), &list)?;
            let made = match ready {
                true => Ok(None),
                false => self.make_ready(None, &list, &mut slot, None),
            };
            let outs = match made {
                Ok(None) => Some(slot.run_unified(&list, guard.permit())),
                Err(e) if !self.special.may_help(&self.plan_set.program, &e) => Some(Err(e)),
                _ => None,
            };
            self.give_back(slot);
            if let Some(outs) = outs {
                return self.account(began, outs);
            }
        }
        let held: Vec<(&str, Arc<Tensor>)> = inputs
            .iter()
            .map(|(n, b)| Ok((*n, b.host()?)))
            .collect::<Result<_, RunError>>()?;
        let named: Vec<(&str, &Tensor)> = held.iter().map(|(n, t)| (*n, &**t)).collect();
        let outs = self.run_tensors(&named, None, None)?;
        Ok(outs.into_iter().map(UnifiedBuffer::from).collect())
    }

    pub(crate) fn input_names(&self) -> String {
        let program = &self.plan_set.program;
        let quoted = |&v: &u32| format!("'{}'", program.value(v).name);
        let all: Vec<String> = program.inputs.iter().map(quoted).collect();
        all.join(", ")
    }

    /// Puts the inputs into the program's order. Those that are in `list` already may be left out.
    pub(crate) fn resolve<'t, T>(
        &self,
        inputs: &[(&str, &'t T)],
        list: &mut [Option<&'t T>],
    ) -> Result<(), RunError> {
        let program = &self.plan_set.program;
        let mut found = 0;
        // Made when one is not where the model has it.
        let named = OnceCell::new();
        for (i, (&v, slot)) in program.inputs.iter().zip(list).enumerate() {
            let name = program.value(v).name.as_str();
            // Most callers give them in the model's order.
            let given = match inputs.get(i) {
                Some(x) if x.0 == name => Some(x),
                _ => named
                    .get_or_init(|| {
                        // The first of a name counts.
                        let all = inputs.iter().rev().map(|x| (x.0, x));
                        all.inserted::<BTreeMap<&str, _>>()
                    })
                    .get(name)
                    .copied(),
            };
            match given {
                Some((_, t)) if slot.is_none() => {
                    *slot = Some(*t);
                    found += 1;
                }
                None if slot.is_none() => {
                    // A name that is wrong explains one that is missing.
                    self.known(inputs)?;
                    return Err(RunError::Missing {
                        name: name.into(),
                        needs: self.input_names(),
                    });
                }
                _ => {}
            }
        }
        if found != inputs.len() {
            self.known(inputs)?;
        }
        Ok(())
    }

    fn known<T>(&self, inputs: &[(&str, &T)]) -> Result<(), RunError> {
        let program = &self.plan_set.program;
        let all = program.inputs.iter();
        let names: BTreeSet<&str> = all.map(|&v| program.value(v).name.as_str()).inserted();
        match inputs.iter().find(|(name, _)| !names.contains(name)) {
            Some((name, _)) => Err(RunError::Unknown {
                name: (*name).into(),
                has: self.input_names(),
            }),
            None => Ok(()),
        }
    }

    /// Checks element types, and that every input is there.
    pub(crate) fn types<T: Shaped>(&self, inputs: &[Option<&T>]) -> Result<(), RunError> {
        let program = &self.plan_set.program;
        for (&v, t) in program.inputs.iter().zip(inputs) {
            let value = program.value(v);
            let Some(t) = t else {
                return Err(RunError::Missing {
                    name: value.name.clone(),
                    needs: self.input_names(),
                });
            };
            if t.dtype() != value.dtype {
                return Err(RunError::Type {
                    name: value.name.clone(),
                    want: value.dtype.to_string(),
                    got: t.dtype().to_string(),
                });
            }
        }
        Ok(())
    }

    /// The symbols that the inputs' shapes give, which must fit the model's.
    pub(crate) fn shapes<T: Shaped>(&self, inputs: &[Option<&T>]) -> Result<Env, RunError> {
        sizes(&self.plan_set.program, inputs)
    }

    /// Waits for a place among the running requests.
    pub(crate) fn admit(&self) -> Result<AdmissionGuard<'_>, RunError> {
        match self.engine.admission.alone(&self.record) {
            Some(guard) => Ok(guard),
            None => self.admit_call(Call::default()),
        }
    }

    pub(crate) fn admit_call<'a>(&'a self, call: Call<'a>) -> Result<AdmissionGuard<'a>, RunError> {
        let ask = AdmissionRequest {
            record: &self.record,
            items: 1,
            // It is never batched.
            shape: self.engine.admission.unique_shape(),
            deadline_s: call.deadline.map(|d| d.as_secs_f64()),
            cancel: call.cancel,
            batchable: false,
        };
        match self.engine.admission.admit(&ask, Vec::new)? {
            Admitted::Runs(guard, _) => Ok(guard),
            Admitted::Ran(_) => Err(RunError::Abandoned),
        }
    }

    /// What the session is at, and what its requests came to.
    pub fn view(&self) -> SessionView {
        let history = self.engine.device().history();
        self.engine.view(&self.record, Some(&self.handle), &history)
    }

    /// Takes no further requests and waits until those it has are done.
    pub fn drain(&self) {
        self.engine.admission.drain(&self.record);
    }

    /// Plans for the dims in `env` without running, and makes that plan current. Symbols without a
    /// range in the session's options must have one in `dims`.
    pub fn plan(&self, dims: &DimBox) -> Result<Plan, RunError> {
        let options = self.options();
        self.plan_set.plan(&self.engine, dims, &options.allotment)
    }

    /// Verifies and compiles `plan` beside the traffic and makes it the current one: requests that
    /// start later use it where it covers their dims, running ones finish on the plan they have.
    ///
    /// # Errors
    /// The plan is of another program, or breaks a rule of the verifier.
    pub fn swap(&self, plan: Plan) -> Result<u64, RunError> {
        let given = |e| match e {
            RunError::Plan(e) => RunError::Plan(e.of_caller()),
            other => other,
        };
        let belongs = plan.belongs_to(&self.plan_set.program);
        belongs.map_err(|e| given(e.into()))?;
        let epoch = self.plan_set.compile(&self.engine, plan).map_err(given)?;
        let id = epoch.id;
        let before = self.publish(epoch, |e| self.plan_set.swap(e));
        self.slots.forget(&self.plan_set);
        self.plan_set.retire(before);
        Ok(id)
    }

    /// The current plan, if one was set with [`Session::swap`].
    pub fn current_plan(&self) -> Option<Arc<VerifiedPlan>> {
        self.plan_set.current().map(|e| e.plan.clone())
    }

    /// Every plan that was made so far, those of branches and loop bodies included.
    pub fn plans(&self) -> Vec<Arc<VerifiedPlan>> {
        self.plan_set.plans()
    }

    /// A message of a stream is to be run at `due` if nobody receives it before.
    pub(crate) fn wake_at(&self, table: &mut StreamTable, due: Instant) -> Result<(), RunError> {
        self.streams.wake_at(table, due, &self.me)
    }

    /// The plan over `dims` by which streams keep state in place, the same for all of them.
    pub(crate) fn stream_epoch(&self, dims: &DimBox) -> Result<Arc<Epoch>, RunError> {
        let mut all = (self.stream_epochs.lock()).unwrap_or_else(PoisonError::into_inner);
        all.retain(|e| e.1.strong_count() > 0);
        let known = all.iter().find(|e| e.0 == *dims);
        if let Some(e) = known.and_then(|e| e.1.upgrade()) {
            return Ok(e);
        }
        let plan = self.plan(dims)?;
        let epoch = self.plan_set.compile(&self.engine, plan)?;
        all.push((dims.clone(), Arc::downgrade(&epoch)));
        Ok(epoch)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.streams.close();
        self.engine.admission.close(&self.record);
    }
}
