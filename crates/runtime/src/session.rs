use crate::admission::{Action, Admission, Event, RequestId};
use crate::epoch::{Unit, lookup};
use crate::interpret::{Context, bind_inputs, run};
use crate::{Engine, RunError, Stream};
use layout::{DimBox, Sym};
use plan::{Allotment, Plan, Program, Timeline, VerifiedPlan};
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use tensor::Tensor;

/// Inputs in the program's order and the symbols that their shapes give.
type Checked = (Vec<Arc<Tensor>>, Vec<(Sym, i64)>);

/// How a session runs.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Ranges that plans are to cover; dims without one are planned as they come.
    pub dims: DimBox,
    /// What the session may use.
    pub allotment: Allotment,
    /// Requests running at once; more wait.
    pub max_running: usize,
    /// Requests waiting at most; more are refused.
    pub max_queued: usize,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            dims: DimBox::new(),
            allotment: Allotment::default(),
            max_running: 8,
            max_queued: 1024,
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
            engine,
            unit: Unit::new(program),
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
        let (tensors, env) = self.check(inputs, &[])?;
        let _turn = self.admit()?;
        let options = self.options();
        let mut ctx = Context {
            engine: &self.engine,
            allotment: &options.allotment,
            dims: &options.dims,
            timeline,
            stop_after,
        };
        let outs = run(&mut ctx, &self.unit, tensors, env, None, 0)?;
        Ok(self.named(outs))
    }

    pub(crate) fn named(&self, outs: Vec<Arc<Tensor>>) -> Vec<(String, Tensor)> {
        let names = self.unit.program.outputs.iter().map(|o| o.0.clone());
        names
            .zip(
                outs.into_iter()
                    .map(|t| Arc::try_unwrap(t).unwrap_or_else(|t| (*t).clone())),
            )
            .collect()
    }

    /// Inputs in the program's order, with the symbols they give; inputs in `without` (numbers) may
    /// be left out and are filled with the given tensors.
    pub(crate) fn check(
        &self,
        inputs: &[(&str, &Tensor)],
        without: &[(u32, Arc<Tensor>)],
    ) -> Result<Checked, RunError> {
        let program = &self.unit.program;
        let names = || {
            program
                .inputs
                .iter()
                .map(|&v| format!("'{}'", program.value(v).name))
                .collect::<Vec<_>>()
                .join(", ")
        };
        for (name, _) in inputs {
            if !program
                .inputs
                .iter()
                .any(|&v| program.value(v).name == *name)
            {
                return Err(RunError::Unknown {
                    name: (*name).into(),
                    has: names(),
                });
            }
        }
        let mut tensors = Vec::new();
        for (i, &v) in program.inputs.iter().enumerate() {
            let value = program.value(v);
            if let Some((_, t)) = without.iter().find(|(n, _)| *n as usize == i) {
                tensors.push(t.clone());
                continue;
            }
            let Some((_, t)) = inputs.iter().find(|(n, _)| *n == value.name) else {
                return Err(RunError::Missing {
                    name: value.name.clone(),
                    needs: names(),
                });
            };
            if t.dtype() != value.dtype {
                return Err(RunError::Type {
                    name: value.name.clone(),
                    want: value.dtype.to_string(),
                    got: t.dtype().to_string(),
                });
            }
            tensors.push(Arc::new((*t).clone()));
        }
        let shapes: Vec<&[usize]> = tensors.iter().map(|t| t.shape()).collect();
        let mut env = Vec::new();
        bind_inputs(program, &shapes, &mut env);
        for (&v, t) in program.inputs.iter().zip(&tensors) {
            let value = program.value(v);
            let shape_error = || RunError::Shape {
                name: value.name.clone(),
                want: format!("{:?}", value.shape),
                got: format!("{:?}", t.shape()),
            };
            if t.shape().len() != value.shape.len() {
                return Err(shape_error());
            }
            for (d, &n) in value.shape.iter().zip(t.shape()) {
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
        Ok((tensors, env))
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
        Ok(self
            .engine
            .planner
            .bind(&self.unit.program, dims, &options.allotment)?)
    }

    /// Verifies and compiles `plan` beside the traffic and makes it the current one: requests that
    /// start later use it where it covers their dims, running ones finish on the plan they have.
    pub fn swap(&self, plan: Plan) -> Result<u64, RunError> {
        let epoch = self.unit.compile(&self.engine, plan)?;
        let id = epoch.id;
        self.unit.swap(epoch);
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
        let next = gate.admission.step(0.0, Event::Finish(self.id));
        for a in next {
            if let Action::Start(id) = a {
                gate.started.insert(id);
            }
        }
        drop(gate);
        self.session.turn.notify_all();
    }
}
