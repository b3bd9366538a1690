//! Sessions of the facade: builders and requests. The work is done by `runtime::Session`.
use crate::cache::Store;
use crate::devices::engine_for;
use crate::{Cache, Error, Launch, Model, ModelOptions, Outputs, SuperviseOptions, Supervision};
use cpu::isa::Isa;
use device::UnifiedBuffer;
use layout::Inserted;
use layout::{Dim, DimBox};
use machine::Machine;
use onnx::{Metadata, Port};
use plan::division::Division;
use plan::{Allotment, Goal, Plan, Timeline};
use runtime::{Batching, Binding, Call, Engine, Stream};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use supervisor::supervise::Mode;
use tensor::Tensor;

/// How a session is made.
#[derive(Clone, Default)]
pub struct SessionBuilder {
    on: Option<String>,
    threads: Option<usize>,
    isa: Option<Isa>,
    machine: Option<Machine>,
    engine: Option<Arc<Engine>>,
    goal: Goal,
    memory: Option<u64>,
    options: ModelOptions,
    max_running: Option<usize>,
    max_queued: Option<usize>,
    weight: Option<f64>,
    priority: i32,
    deadline: Option<Duration>,
    workers: Option<u32>,
    batching: Option<Batching>,
    cache: Option<Arc<dyn Store>>,
    resident_weights: bool,
    launch: Option<Launch>,
    deterministic: bool,
    supervise: Option<(Mode, StartSupervisor)>,
}

/// How a builder's engine gets a supervisor. A pointer, so that programs that ask for none have none in them.
type StartSupervisor = fn(&Arc<Engine>, Mode) -> Result<(), Error>;

fn start_supervisor(engine: &Arc<Engine>, mode: Mode) -> Result<(), Error> {
    Supervision::start(engine, SuperviseOptions::of(mode))?.detach();
    Ok(())
}

impl SessionBuilder {
    /// Workers, the calling thread included. Ignored with [`SessionBuilder::with_engine`].
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Runs on this device, a [`crate::Device`] or a name as [`crate::engine_on`] takes them; the CPU when not said.
    /// Ignored with [`SessionBuilder::with_engine`].
    #[must_use]
    pub fn with_device(mut self, on: impl ToString) -> Self {
        self.on = Some(on.to_string());
        self
    }

    /// Refuses models whose weights a GPU has no room for, which are otherwise streamed to it from the
    /// host ahead of use. Ignored with [`SessionBuilder::with_engine`].
    #[must_use]
    pub fn without_streaming(mut self) -> Self {
        self.resident_weights = true;
        self
    }

    /// How steps reach an NVIDIA GPU. Ignored with [`SessionBuilder::with_engine`].
    #[must_use]
    pub fn with_launch(mut self, launch: Launch) -> Self {
        self.launch = Some(launch);
        self
    }

    /// Runs on a shared engine: its workers serve all its sessions.
    pub fn with_engine(mut self, engine: Arc<Engine>) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Plans for this description instead of the detected machine.
    pub fn with_machine(mut self, machine: Machine) -> Self {
        self.machine = Some(machine);
        self
    }

    /// Uses this instruction set.
    pub fn with_isa(mut self, isa: Isa) -> Self {
        self.isa = Some(isa);
        self
    }

    /// What plans are to be good at.
    pub fn with_goal(mut self, goal: Goal) -> Self {
        self.goal = goal;
        self
    }

    /// Bytes that a plan may take.
    pub fn with_memory_limit(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Binds the shape of an input.
    pub fn with_shape(mut self, input: &str, shape: &[usize]) -> Self {
        self.options
            .shapes
            .insert(input.into(), shape.iter().map(|&d| Dim::from(d)).collect());
        self
    }

    /// Plans cover the symbolic dimension `name` from `lo` to `hi` (both included). Equal ends bind
    /// it for good. Sizes that no range covers are planned for when a request first has them: the first
    /// few of a dimension alone, later ones in ranges of less than a doubling.
    pub fn with_dim(mut self, name: &str, lo: i64, hi: i64) -> Self {
        self.options.dims.insert(name, lo, hi);
        self
    }

    /// Every dimension of every input is a symbol: [`ModelOptions::open_dims`].
    #[must_use]
    pub fn with_open_dims(mut self) -> Self {
        self.options.open_dims = true;
        self
    }

    /// Declares state: what `output` gives is what `input` takes in a stream's next request.
    pub fn with_state(mut self, input: &str, output: &str) -> Self {
        self.options.states.push((input.into(), output.into()));
        self
    }

    /// Declares the state whose inputs and outputs are named as exporters name them, where none is declared
    /// with [`SessionBuilder::with_state`]: [`ModelOptions::find_states`].
    #[must_use]
    pub fn with_found_states(mut self) -> Self {
        self.options.find_states = true;
        self
    }

    /// Nodes of operator `name` of `domain` run this kernel: [`ModelOptions::with_kernel`].
    #[must_use]
    pub fn with_kernel(mut self, domain: &str, name: &str, text: &str) -> Self {
        self.options = self.options.with_kernel(domain, name, text);
        self
    }

    /// Nodes of this operator run its code; see [`crate::Operator`].
    #[must_use]
    pub fn with_operator(mut self, operator: crate::Operator) -> Self {
        self.options = self.options.with_operator(operator);
        self
    }

    /// Requests running at once and waiting at most.
    pub fn with_queue(mut self, running: usize, waiting: usize) -> Self {
        self.max_running = Some(running);
        self.max_queued = Some(waiting);
        self
    }

    /// Share of the workers beside other sessions of the same priority on the same engine; 1 when not
    /// said.
    #[must_use]
    pub fn with_weight(mut self, weight: f64) -> Self {
        self.weight = Some(weight);
        self
    }

    /// Requests of higher priority go first on a shared engine: those of lower priority give their
    /// workers up at the next task. What has waited for a second ([`supervisor::admission::RISES_S`]) goes
    /// before them. 0 when not said.
    #[must_use]
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// By when a request must be done, counted from its arrival: one that cannot be is refused at once,
    /// one that waited in vain as soon as that is clear.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Workers of one request, which run side by side as far as there are workers. When not said: all
    /// where the plan has use for them, else one.
    #[must_use]
    pub fn with_workers(mut self, workers: u32) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Joins requests that wait into one run along the batch, the first extent of every input and
    /// output: up to `items` of them, and the first is held back for `delay` at most so that others can
    /// join it. What runs alone gives the same results up to rounding. Fails to commit where the model
    /// has no such extent, or where its items influence each other.
    #[must_use]
    pub fn with_batching(mut self, items: u32, delay: Duration) -> Self {
        self.batching = Some(Batching {
            max_items: items.max(1),
            max_delay_s: delay.as_secs_f64(),
            ..Batching::default()
        });
        self
    }

    /// Runs a session as `division` says: batch, runs at once, workers of each.
    #[must_use]
    pub fn with_division(mut self, d: &Division) -> Self {
        self.workers = Some(d.workers);
        self.max_running = Some(d.instances as usize);
        self.batching = (d.batch > 1).then_some(Batching {
            max_items: d.batch,
            max_delay_s: d.max_delay_s,
            marginal: d.marginal,
        });
        self
    }

    /// The same requests give the same bits, whatever else goes on: the session's plans are pinned. No
    /// supervisor changes them, none depends on the plans that were made before it, and every size
    /// that no range covers has a plan of its own.
    #[must_use]
    pub fn deterministic(mut self) -> Self {
        self.deterministic = true;
        self
    }

    /// How far a supervisor of the new engine goes; [`Mode::Off`] when not said, since a plan that changes
    /// changes the last bits of outputs, and measurements are of one plan. Ignored with
    /// [`SessionBuilder::with_engine`]: see [`crate::Supervision`].
    #[must_use]
    pub fn with_supervision(mut self, mode: Mode) -> Self {
        self.supervise = (mode != Mode::Off).then_some((mode, start_supervisor));
        self
    }

    /// Keeps plans and packed weights between processes, and uses those that are there.
    pub fn with_cache(mut self, cache: Cache) -> Self {
        self.cache = Some(Arc::new(cache));
        self
    }

    /// In what type f32 matrix products and convolutions multiply; f32 when not said.
    #[must_use]
    pub fn with_precision(mut self, precision: crate::Precision) -> Self {
        self.options.precision = precision;
        self
    }

    /// Everything that import binds, at once.
    pub fn with_model_options(mut self, options: ModelOptions) -> Self {
        self.options = options;
        self
    }

    /// The engine that sessions run on: the one given, or a new one.
    ///
    /// # Errors
    /// As [`crate::engine_on`].
    pub fn engine(&self) -> Result<Arc<Engine>, Error> {
        match &self.engine {
            Some(e) => Ok(e.clone()),
            None => {
                let engine = engine_for(
                    self.on.as_deref().unwrap_or("cpu"),
                    (self.threads, self.isa),
                    self.machine.clone(),
                    !self.resident_weights,
                    self.launch,
                )?;
                if let Some((mode, start)) = self.supervise {
                    start(&engine, mode)?;
                }
                Ok(engine)
            }
        }
    }

    /// Reads the model at `path` and makes it ready.
    ///
    /// # Errors
    /// As [`Model::open`] and [`crate::default_engine`].
    pub fn commit_from_file(self, path: impl AsRef<Path>) -> Result<Session, Error> {
        let model = Model::open_in(path.as_ref(), &self.options, self.cache.as_deref())?;
        self.commit(model)
    }

    /// Reads a model that lies in memory and makes it ready; see [`Model::from_memory`].
    ///
    /// # Errors
    /// As [`Model::open`] and [`crate::default_engine`].
    pub fn commit_from_memory(
        self,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Session, Error> {
        let model = Model::from_memory("model", bytes, &self.options)?;
        self.commit(model)
    }

    /// Makes a model that was read before ready.
    ///
    /// # Errors
    /// As [`crate::default_engine`].
    pub fn commit(mut self, mut model: Model) -> Result<Session, Error> {
        let engine = self.engine()?;
        let given = self.workers.is_some() || self.batching.is_some();
        if let (Goal::Throughput { .. }, false) = (self.goal, given) {
            let found = crate::division::divide(&engine, &model, self.goal, self.memory)?;
            if let Some(d) = found {
                self = self.with_division(&d);
            }
        }
        if let Some(key) = model.sharing_key() {
            let shared = engine.share(&key, model.program());
            model.set_program(shared);
        }
        // A GPU has the host beside it, and both take all the workers that they have.
        let workers = match engine.device().target().gpu {
            None => {
                let all = engine.device().workers() as u32;
                vec![self.workers.map_or(all, |w| w.clamp(1, all))]
            }
            Some(_) => vec![],
        };
        let defaults = runtime::SessionOptions::default();
        let keeps = self
            .cache
            .as_ref()
            .filter(|_| model.options().operators.is_empty());
        let mut dims = model.dims().clone();
        if let (Some(b), Some(name)) = (
            self.batching,
            runtime::batch_symbol(model.program()).map(ToString::to_string),
        ) && dims.get(&name).is_none()
        {
            dims.insert(name.as_str(), 1, i64::from(b.max_items));
        }
        let policy = runtime::SessionPolicy {
            weight: self.weight.unwrap_or(1.0),
            priority: self.priority,
            deadline: self.deadline.map(|d| d.as_secs_f64()),
            max_running: self.max_running.unwrap_or(defaults.policy.max_running),
            max_queued: self.max_queued.unwrap_or(defaults.policy.max_queued),
            ..defaults.policy
        };
        let options = runtime::SessionOptions {
            dims,
            allotment: Allotment {
                workers,
                memory: self.memory,
                goal: self.goal,
            },
            policy,
            workers: self.workers,
            pinned: self.deterministic,
            special: crate::special::Source::of(&model, self.cache.clone())
                .map(|s| Arc::new(s) as Arc<dyn runtime::Specialise>),
            store: keeps.and_then(|c| {
                let device = engine.device();
                let (target, machine) = (&device.target().name, device.machine().hash_hex());
                let planner = engine.planner().setting();
                let options = model.options_text();
                let setting = format!("{options}\n{target}\n{machine}\n{planner}");
                c.plans(model.files(), &setting)
            }),
        };
        let inner = runtime::Session::new(engine.clone(), model.program().clone(), options);
        let session = Session {
            model,
            inner,
            cache: self.cache.clone(),
            builder: self.clone().with_engine(engine),
            others: Mutex::default(),
        };
        if let Some(b) = self.batching.filter(|b| b.max_items > 1) {
            crate::division::check_joining(&session.model)?;
            session.inner.set_policy(runtime::SessionPolicy {
                batching: b,
                ..session.inner.policy()
            });
        }
        Ok(session)
    }
}

/// Initialisers that requests give, and ranks of inputs that the model does not state.
type Otherwise = (BTreeSet<String>, BTreeMap<String, usize>);

/// A model ready to run; shared by any number of threads.
pub struct Session {
    model: Model,
    inner: Arc<runtime::Session>,
    cache: Option<Arc<dyn Store>>,
    /// How it was made.
    builder: SessionBuilder,
    /// Sessions of the same model for requests that give initialisers, or inputs of other ranks where the model states
    /// none, by both.
    others: Mutex<BTreeMap<Otherwise, Arc<Session>>>,
}

impl Session {
    /// How a session is made.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Inputs as the model's file states them, in its order; initialisers that a request may give are
    /// listed by [`Session::overridable`].
    pub fn inputs(&self) -> impl Iterator<Item = &Port> {
        let report = self.model.report();
        let overridable = |p: &&Port| !report.overridable.contains(&p.name);
        report.inputs.iter().filter(overridable)
    }

    /// Initialisers that are inputs too: constants unless a request gives them.
    pub fn overridable(&self) -> impl Iterator<Item = &Port> {
        let report = self.model.report();
        let overridable = |p: &&Port| report.overridable.contains(&p.name);
        report.inputs.iter().filter(overridable)
    }

    /// Outputs as the model's file states them, in its order.
    pub fn outputs(&self) -> &[Port] {
        &self.model.report().outputs
    }

    /// What the model's file says about itself.
    pub fn metadata(&self) -> &Metadata {
        &self.model.report().metadata
    }

    /// Why the session's cache keeps nothing more, where it has one that could not be written to.
    pub fn cache_problem(&self) -> Option<&str> {
        self.cache.as_ref()?.problem()
    }

    /// The session of the runtime, for engines, plans and epochs.
    pub fn runtime(&self) -> &runtime::Session {
        &self.inner
    }

    /// Runs one request. Each input is dense, row-major, of the model's dtype and of a shape that
    /// fits the model's; dims that no earlier request had are planned first. An input without a name is the one at
    /// its place among [`Session::inputs`].
    ///
    /// # Errors
    /// Inputs missing, unknown, or of the wrong dtype or shape; more requests than the queue
    /// holds; an index out of range in the model.
    pub fn run(&self, inputs: &[(&str, &Tensor)]) -> Result<Outputs, Error> {
        let _span = crate::spans::run(self.inner.name());
        let inputs = &*self.placed(inputs)?;
        self.giving(inputs, |s| {
            s.named(s.inner.run_tensors(inputs, None, None)?)
        })
    }

    /// The inputs with the names of those that have none.
    fn placed<'i>(
        &'i self,
        inputs: &'i [(&'i str, &'i Tensor)],
    ) -> Result<Cow<'i, [(&'i str, &'i Tensor)]>, Error> {
        if inputs.iter().all(|(name, _)| !name.is_empty()) {
            return Ok(Cow::Borrowed(inputs));
        }
        let mut ports = self.inputs();
        let named = inputs.iter().enumerate().map(|(at, (name, t))| {
            let port = ports.next().map(|p| p.name.as_str());
            match (name.is_empty(), port) {
                (false, _) => Ok((*name, *t)),
                (true, Some(name)) => Ok((name, *t)),
                (true, None) => Err(Error::Usage(format!(
                    "input {at} has no name, and the model has {} inputs; give no more",
                    self.inputs().count()
                ))),
            }
        });
        Ok(Cow::Owned(named.collect::<Result<_, _>>()?))
    }

    /// Runs `f` on the session for requests that give what `inputs` gives: this one, unless initialisers
    /// that are inputs too are among them, or the model states no rank and theirs are others.
    fn giving<R>(
        &self,
        inputs: &[(&str, &Tensor)],
        mut f: impl FnMut(&Session) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let ranks = inputs.iter().map(|(name, t)| (*name, t.shape().len()));
        if let Some(s) = self.session_ranked(ranks)? {
            return s.giving(inputs, f);
        }
        let out = f(self);
        if !matches!(out, Err(Error::Run(runtime::RunError::Unknown { .. }))) {
            return out;
        }
        match self.session_giving(inputs.iter().map(|(name, _)| *name))? {
            Some(s) => f(&s),
            None => out,
        }
    }

    /// The session for requests that give these inputs, where initialisers that are inputs too are among them
    /// and this one is not it.
    pub(crate) fn session_giving<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<Option<Arc<Session>>, Error> {
        let overridable = &self.model.report().overridable;
        if overridable.is_empty() {
            return Ok(None);
        }
        let given: BTreeSet<String> = names
            .filter(|name| overridable.iter().any(|o| o == name))
            .map(ToString::to_string)
            .inserted();
        if given.is_subset(&self.model.options().given) {
            return Ok(None);
        }
        let mut options = self.model.options().clone();
        options.given.extend(given);
        Ok(Some(self.session_with(options)?))
    }

    /// The session for requests whose inputs have these ranks, where the model does not state them and this one is not
    /// it.
    pub(crate) fn session_ranked<'n>(
        &self,
        inputs: impl Iterator<Item = (&'n str, usize)>,
    ) -> Result<Option<Arc<Session>>, Error> {
        let own = &self.model.options().ranks;
        if own.is_empty() {
            return Ok(None);
        }
        let given = inputs.filter(|(name, _)| own.contains_key(*name));
        let given = given.map(|(name, rank)| (name.to_string(), rank));
        let mut options = self.model.options().clone();
        options.ranks.extend(given);
        if options.ranks == *own {
            return Ok(None);
        }
        Ok(Some(self.session_with(options)?))
    }

    /// A session of the same model with other options, made once.
    fn session_with(&self, options: ModelOptions) -> Result<Arc<Session>, Error> {
        let key = (options.given.clone(), options.ranks.clone());
        let mut all = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(s) = all.get(&key) {
            return Ok(s.clone());
        }
        let model = self.model.reload(&options, self.cache.as_deref())?;
        let mut builder = self.builder.clone();
        builder.options = options;
        let made = Arc::new(builder.commit(model)?);
        all.insert(key, made.clone());
        Ok(made)
    }

    /// The runtime's session, to be held.
    pub(crate) fn shared(&self) -> &Arc<runtime::Session> {
        &self.inner
    }

    /// Runs one request that can be given up by `cancel`, or that must be done in time.
    ///
    /// # Errors
    /// As [`Session::run`]; the request was cancelled, or is refused because it cannot be done in time.
    pub fn run_call(&self, inputs: &[(&str, &Tensor)], call: Call<'_>) -> Result<Outputs, Error> {
        let _span = crate::spans::run(self.inner.name());
        let inputs = &*self.placed(inputs)?;
        self.giving(inputs, |s| s.named(s.inner.run_call(inputs, call)?))
    }

    /// Takes no further requests and waits until those it has are done.
    pub fn drain(&self) {
        self.inner.drain();
    }

    /// Runs one request on buffers that lie anywhere; see [`crate::UnifiedBuffer`]. Inputs are brought
    /// to where the plan runs only if they are not there, and outputs stay where they were made until
    /// somebody looks at them. Gives them in the model's order.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_unified(
        &self,
        inputs: &[(&str, &UnifiedBuffer)],
    ) -> Result<Vec<(String, UnifiedBuffer)>, Error> {
        let outs = self.inner.run_unified(inputs)?;
        let names = self.inner.output_names().iter().cloned();
        Ok(names.zip(outs).collect())
    }

    /// Runs one request and records what ran when.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_timed(
        &self,
        inputs: &[(&str, &Tensor)],
        timeline: &mut Timeline,
    ) -> Result<Outputs, Error> {
        self.giving(inputs, |s| {
            s.named(s.inner.run_tensors(inputs, Some(&mut *timeline), None)?)
        })
    }

    /// Runs steps 0 to `last` of one request (counted over the plan's blocks) and records them; what
    /// the outputs then hold is not specified.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_until(
        &self,
        inputs: &[(&str, &Tensor)],
        last: u32,
        timeline: &mut Timeline,
    ) -> Result<Outputs, Error> {
        self.giving(inputs, |s| {
            s.named(
                s.inner
                    .run_tensors(inputs, Some(&mut *timeline), Some(last))?,
            )
        })
    }

    /// Inputs and outputs that stay with one caller from request to request: names are resolved
    /// once, and a request of the same shapes as the one before allocates nothing.
    pub fn bind(&self) -> Binding {
        self.inner.bind()
    }

    fn named(&self, tensors: Vec<Tensor>) -> Result<Outputs, Error> {
        Ok(Outputs {
            names: self.inner.output_names().clone(),
            tensors,
        })
    }

    /// The plan for a box of dims, without running it; it says how its steps are to be launched where
    /// [`SessionBuilder::with_launch`] did.
    ///
    /// # Errors
    /// A dim without a range, or sizes that do not fit.
    pub fn plan(&self, dims: &DimBox) -> Result<Plan, Error> {
        crate::model::check_ranges(dims)?;
        Ok(Plan {
            launch: self.builder.launch,
            ..self.inner.plan(dims)?
        })
    }

    /// Makes `plan` the current one beside the traffic; gives its epoch.
    ///
    /// # Errors
    /// The plan is of another program, or breaks a rule of the verifier.
    pub fn swap_plan(&self, plan: Plan) -> Result<u64, Error> {
        Ok(self.inner.swap(plan)?)
    }

    /// A stream of messages whose declared state stays between them, in one plan that covers `dims`; with
    /// a batch in `dims` that is larger than a message's, messages of several streams run as one.
    ///
    /// # Errors
    /// State that grows, and a dim without a range; a range of a dim that the model does not have.
    pub fn stream(&self, dims: &DimBox) -> Result<Stream, Error> {
        crate::model::check_ranges(dims)?;
        crate::model::check_names(self.model.program(), dims)?;
        Ok(self.inner.stream(dims)?)
    }
}
