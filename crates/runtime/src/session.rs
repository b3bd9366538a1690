use crate::admission::{Action, Admission, Event, RequestId};
use crate::epoch::{Unit, lookup};
use crate::interpret::{Context, bind_inputs, box_for, constraints, run};
use crate::lane::{KEPT_OUTPUTS, Lane, Lanes, Ready};
use crate::value::{Shaped, Value};
use crate::{Binding, Engine, PlanStore, RunError, Stream};
use device::{Recycler, UnifiedBuffer};
use layout::{DimBox, Sym};
use plan::{Allotment, Plan, Program, Timeline, VerifiedPlan};
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::Instant;
use tensor::Tensor;

/// Inputs in the program's order and the symbols that their shapes give.
type Checked<'t> = (Vec<Value<'t>>, Vec<(Sym, i64)>);

/// Inputs up to which their list needs no memory.
const FEW: usize = 16;

/// How a session runs.
#[derive(Clone)]
pub struct SessionOptions {
    /// Ranges that plans are to cover; dims without one are planned as they come.
    pub dims: DimBox,
    /// What the session may use.
    pub allotment: Allotment,
    /// Requests running at once; more wait.
    pub max_running: usize,
    /// Requests waiting at most; more are refused.
    pub max_queued: usize,
    /// Where plans and packed weights outlive the process, if anywhere.
    pub store: Option<Arc<dyn PlanStore>>,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            dims: DimBox::new(),
            allotment: Allotment::default(),
            max_running: 8,
            max_queued: 1024,
            store: None,
        }
    }
}

/// One program, ready for requests from any number of threads.
pub struct Session {
    engine: Arc<Engine>,
    unit: Unit,
    options: RwLock<SessionOptions>,
    gate: Mutex<Gate>,
    turn: Condvar,
    outputs: Arc<[String]>,
    lanes: Lanes,
    buffers: Arc<Recycler>,
}

struct Gate {
    admission: Admission,
    started: BTreeSet<RequestId>,
    next: RequestId,
}

impl Session {
    /// A session of `program` on `engine`.
    pub fn new(engine: Arc<Engine>, program: Arc<Program>, options: SessionOptions) -> Session {
        let admission = Admission::new(options.max_running, options.max_queued);
        Session {
            outputs: program.outputs.iter().map(|o| o.0.clone()).collect(),
            lanes: Lanes::new(),
            buffers: Recycler::new(KEPT_OUTPUTS),
            engine,
            unit: Unit::new(program, String::new(), options.store.clone()),
            options: RwLock::new(options),
            gate: Mutex::new(Gate {
                admission,
                started: BTreeSet::new(),
                next: 0,
            }),
            turn: Condvar::new(),
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.unit.program
    }

    /// A copy of the options.
    pub fn options(&self) -> SessionOptions {
        self.options
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
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
        let n = self.unit.program.inputs.len();
        let mut few = [None; FEW];
        let mut many;
        let list: &mut [Option<&Tensor>] = if n <= FEW {
            &mut few[..n]
        } else {
            many = vec![None; n];
            &mut many
        };
        self.resolve(inputs, list)?;
        let mut lane = None;
        let out = self.run_listed(list, &mut lane, Vec::new(), timeline, stop_after);
        if let Some(l) = lane {
            self.give_back(l);
        }
        out
    }

    /// Names of the outputs, in the model's order.
    pub fn output_names(&self) -> &Arc<[String]> {
        &self.outputs
    }

    /// Inputs and outputs that stay with one caller from request to request.
    pub fn bind(&self) -> Binding<'_> {
        Binding::new(self)
    }

    pub(crate) fn give_back(&self, lane: Lane) {
        self.lanes.put(&self.unit, lane);
    }

    pub(crate) fn buffers(&self) -> &Arc<Recycler> {
        &self.buffers
    }

    pub(crate) fn any_lane(&self) -> Result<Lane, RunError> {
        Ok(self.lanes.take::<Tensor>(&self.unit, &[])?.0)
    }

    /// Runs one request on inputs in the program's order. `lane` is kept there for the caller to
    /// use again or give back; `old` outputs are written to where they fit.
    pub(crate) fn run_listed(
        &self,
        inputs: &[Option<&Tensor>],
        lane: &mut Option<Lane>,
        mut old: Vec<Tensor>,
        mut timeline: Option<&mut Timeline>,
        stop_after: Option<u32>,
    ) -> Result<Vec<Tensor>, RunError> {
        self.types(inputs)?;
        let _turn = self.admit()?;
        let ready = match lane {
            Some(l) => l.find(self.unit.version(), inputs),
            None => {
                let (l, ready) = self.lanes.take(&self.unit, inputs)?;
                *lane = Some(l);
                ready
            }
        };
        let Some(lane) = lane else {
            return Ok(Vec::new());
        };
        if !ready && let Some(env) = self.make_ready(inputs, lane)? {
            let options = self.options();
            if let Some(t) = &mut timeline {
                **t = Timeline::default();
            }
            let mut ctx = Context {
                engine: &self.engine,
                allotment: &options.allotment,
                dims: &options.dims,
                timeline,
                stop_after,
                memory: &mut lane.memory,
                buffers: &self.buffers,
                began: Instant::now(),
                recorded: Vec::new(),
            };
            let values = inputs.iter().flatten().map(|&t| Value::Ref(t)).collect();
            let outs = run(&mut ctx, &self.unit, values, env, None, 0)?;
            return Ok(outs.into_iter().map(Value::into_tensor).collect());
        }
        if !lane.fits(&old) {
            old = lane.outputs(&self.buffers)?;
        }
        lane.run(inputs, &mut old, timeline, stop_after)?;
        Ok(old)
    }

    /// Puts what is ready for inputs of these shapes in front of `lane`; gives the symbols' values
    /// instead where the program is not one block.
    fn make_ready<T: Shaped>(
        &self,
        inputs: &[Option<&T>],
        lane: &mut Lane,
    ) -> Result<Option<Vec<(Sym, i64)>>, RunError> {
        let env = self.shapes(inputs)?;
        let options = self.options();
        let program = &self.unit.program;
        constraints(program, &env)?;
        let version = self.unit.version();
        let dims = || box_for(program, &env, &options.dims);
        let epoch = self
            .unit
            .epoch(&self.engine, &env, dims, &options.allotment)?;
        let shapes: Vec<&[usize]> = inputs.iter().map(|t| t.map_or(&[][..], T::shape)).collect();
        match Ready::new(program, epoch, version, &shapes, &env)? {
            Some(r) => {
                lane.keep(r);
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
        let mut list = vec![None; self.unit.program.inputs.len()];
        self.resolve(inputs, &mut list)?;
        self.types(&list)?;
        {
            let _turn = self.admit()?;
            let (mut lane, ready) = self.lanes.take(&self.unit, &list)?;
            if ready || self.make_ready(&list, &mut lane)?.is_none() {
                let outs = lane.run_unified(&list)?;
                self.give_back(lane);
                return Ok(outs);
            }
            self.give_back(lane);
        }
        let held: Vec<(&str, Arc<Tensor>)> = inputs
            .iter()
            .map(|(n, b)| Ok((*n, b.host()?)))
            .collect::<Result<_, RunError>>()?;
        let named: Vec<(&str, &Tensor)> = held.iter().map(|(n, t)| (*n, &**t)).collect();
        let outs = self.run_tensors(&named, None, None)?;
        Ok(outs.into_iter().map(UnifiedBuffer::from).collect())
    }

    fn input_names(&self) -> String {
        let program = &self.unit.program;
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
        let program = &self.unit.program;
        let mut found = 0;
        for (i, (&v, slot)) in program.inputs.iter().zip(list).enumerate() {
            let name = program.value(v).name.as_str();
            // Most callers give them in the model's order.
            let given = match inputs.get(i) {
                Some(x) if x.0 == name => Some(x),
                _ => inputs.iter().find(|x| x.0 == name),
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
        let program = &self.unit.program;
        let has = |name: &str| {
            program
                .inputs
                .iter()
                .any(|&v| program.value(v).name == name)
        };
        match inputs.iter().find(|(name, _)| !has(name)) {
            Some((name, _)) => Err(RunError::Unknown {
                name: (*name).into(),
                has: self.input_names(),
            }),
            None => Ok(()),
        }
    }

    /// Checks element types, and that every input is there.
    fn types<T: Shaped>(&self, inputs: &[Option<&T>]) -> Result<(), RunError> {
        let program = &self.unit.program;
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
    fn shapes<T: Shaped>(&self, inputs: &[Option<&T>]) -> Result<Vec<(Sym, i64)>, RunError> {
        let program = &self.unit.program;
        let shape = |t: &Option<&'_ T>| t.map_or(vec![], |t| t.shape().to_vec());
        let owned: Vec<Vec<usize>> = inputs.iter().map(shape).collect();
        let shapes: Vec<&[usize]> = owned.iter().map(Vec::as_slice).collect();
        let mut env = Vec::new();
        bind_inputs(program, &shapes, &mut env);
        for (&v, given) in program.inputs.iter().zip(&shapes) {
            let value = program.value(v);
            let shape_error = || RunError::Shape {
                name: value.name.clone(),
                want: format!("{:?}", value.shape),
                got: format!("{given:?}"),
            };
            if given.len() != value.shape.len() {
                return Err(shape_error());
            }
            for (d, &n) in value.shape.iter().zip(*given) {
                let n = n as i64;
                match (d.as_sym(), d.eval(&|s| lookup(&env, s))) {
                    (Some(s), Some(first)) if first != n => {
                        return Err(RunError::Dim {
                            dim: s.into(),
                            first,
                            second: n,
                            name: value.name.clone(),
                        });
                    }
                    (None, Some(want)) if want != n => return Err(shape_error()),
                    (_, None) => return Err(shape_error()),
                    _ => {}
                }
            }
        }
        Ok(env)
    }

    /// For requests with state: inputs in the program's order, those in `own` by their numbers, and
    /// the symbols that their shapes give.
    pub(crate) fn check<'t>(
        &self,
        inputs: &[(&str, &'t Tensor)],
        own: &'t [(u32, Tensor)],
    ) -> Result<Checked<'t>, RunError> {
        let mut list = vec![None; self.unit.program.inputs.len()];
        for (i, t) in own {
            if let Some(slot) = list.get_mut(*i as usize) {
                *slot = Some(t);
            }
        }
        self.resolve(inputs, &mut list)?;
        self.types(&list)?;
        let env = self.shapes(&list)?;
        Ok((list.into_iter().flatten().map(Value::Ref).collect(), env))
    }

    /// Waits for a place among the running requests.
    pub(crate) fn admit(&self) -> Result<Turn<'_>, RunError> {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let id = gate.next;
        gate.next += 1;
        match gate.admission.step(0.0, Event::Arrive(id)).first() {
            Some(Action::Start(_)) => return Ok(Turn { session: self, id }),
            Some(Action::Reject(_)) => {
                return Err(RunError::Overloaded {
                    running: gate.admission.running(),
                    queued: gate.admission.queued(),
                });
            }
            _ => {}
        }
        while !gate.started.remove(&id) {
            gate = self.turn.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(Turn { session: self, id })
    }

    /// Plans for the dims in `env` without running, and makes that plan current. Symbols without a
    /// range in the session's options must have one in `dims`.
    pub fn plan(&self, dims: &DimBox) -> Result<Plan, RunError> {
        let options = self.options();
        self.unit.plan(&self.engine, dims, &options.allotment)
    }

    /// Verifies and compiles `plan` beside the traffic and makes it the current one: requests that
    /// start later use it where it covers their dims, running ones finish on the plan they have.
    pub fn swap(&self, plan: Plan) -> Result<u64, RunError> {
        let epoch = self.unit.compile(&self.engine, plan)?;
        let id = epoch.id;
        self.unit.swap(epoch);
        self.lanes.forget(&self.unit);
        Ok(id)
    }

    /// The current plan, if one was set with [`Session::swap`].
    pub fn current_plan(&self) -> Option<Arc<VerifiedPlan>> {
        self.unit.current().map(|e| e.plan.clone())
    }

    /// Every plan that was made so far, those of branches and loop bodies included.
    pub fn plans(&self) -> Vec<Arc<VerifiedPlan>> {
        self.unit.plans()
    }

    /// A stream: state declared by the program stays in place between its requests. `dims` is the
    /// box that one plan covers for the stream's whole life.
    pub fn stream(&self, dims: &DimBox) -> Result<Stream<'_>, RunError> {
        let plan = self.plan(dims)?;
        let epoch = self.unit.compile(&self.engine, plan)?;
        Stream::new(self, epoch)
    }

    pub(crate) fn unit(&self) -> &Unit {
        &self.unit
    }
}

/// A place among the running requests, given back when dropped.
pub(crate) struct Turn<'a> {
    session: &'a Session,
    id: RequestId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut gate = self
            .session
            .gate
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut started = false;
        for a in gate.admission.step(0.0, Event::Finish(self.id)) {
            if let Action::Start(id) = a {
                gate.started.insert(id);
                started = true;
            }
        }
        drop(gate);
        if started {
            self.session.turn.notify_all();
        }
    }
}
