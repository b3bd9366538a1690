//! Compiled plans of a program ([`PlanSet`]): the current one, others for other dims, and how a new one is made
//! for a request. `retention` bounds them; requests run them in `interpret` and `slot`.
use crate::compiled::{CompiledBlock, Epoch, PlanSet, Subprogram, intact};
use crate::dims::{Env, Late, lookup};
use crate::retention::{evict, remember_evicted};
use crate::shared::Shared;
use crate::value::Value;
use crate::widen::widened;
use crate::{Engine, PlanStore, RunError};
use device::{AlignedBytes, EmptyShelf, Prepared, Shelf};
use layout::Arrange;
use layout::{DimBox, Sym};
use plan::{Allotment, Block, Plan, Program, SymbolOrigin, VerifiedPlan};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Steps from which on a plan is proved on a thread of its own while it is compiled: with 12 steps that took 8%
/// of the planning away on a Zen 5, with fewer there is little to share.
const CONCURRENT_PROOF_STEPS: usize = 8;

/// Bytes that a request may work in for a plan to be made for larger sizes than were asked for.
const WIDE_BYTES: u64 = 256 << 20;

/// Bytes that a request of a plan works in at most, on all devices.
fn working_bytes(plan: &Plan) -> u64 {
    let far = |b: &Block| {
        b.far_arenas
            .iter()
            .fold(0, |n: u64, &a| n.saturating_add(a))
    };
    let each = plan.blocks().map(|b| {
        let own = b.arena_bytes.saturating_add(b.scratch_bytes);
        own.saturating_add(far(b))
    });
    each.max().unwrap_or(0)
}

/// The one size in `dims` that a request has.
fn at(dims: &DimBox, env: &Env) -> DimBox {
    let mut only = dims.clone();
    for (s, _) in dims.iter() {
        if let Some(n) = lookup(env, s) {
            only.insert(s.clone(), n, n);
        }
    }
    only
}

impl PlanSet {
    pub fn new(program: Arc<Program>, name: String, store: Option<Arc<dyn PlanStore>>) -> PlanSet {
        PlanSet {
            refusal: program.refusal().map(RunError::from),
            program,
            name,
            store,
            current: Shared::empty(),
            other_plans: Mutex::new(Vec::new()),
            evicted: Mutex::new(Vec::new()),
            retired: Mutex::new(Vec::new()),
            next_id: AtomicU64::new(1),
            version: AtomicU64::new(0),
            publishing: Mutex::new(()),
            trial: Shared::empty(),
            made: AtomicU64::new(0),
            narrow: AtomicBool::new(false),
            inner_sets: Mutex::new(BTreeMap::new()),
            subprograms: Mutex::new(BTreeMap::new()),
            cuts: OnceLock::new(),
            late: OnceLock::new(),
            is_subprogram: false,
            pinned: false,
        }
    }

    /// With plans that follow from nothing but the dims asked for, or not.
    pub fn pinned(self, pinned: bool) -> PlanSet {
        PlanSet { pinned, ..self }
    }

    /// An error where the program stands for one that these sizes or this branch have no room in.
    pub fn refused(&self, inputs: &[Value<'_>]) -> Result<(), RunError> {
        let Some(mut e) = self.refusal.clone() else {
            return Ok(());
        };
        let by = self.program.refusal().and_then(|r| r.by);
        let at = by.and_then(|by| self.program.inputs.iter().position(|v| *v == by));
        let said = at.and_then(|at| inputs.get(at)).filter(|t| !t.is_empty());
        if let (RunError::Ranks { taken, .. }, Some(t)) = (&mut e, said) {
            *taken = t.get_i64(0);
        }
        Err(e)
    }

    /// Whether this is a stretch of another unit.
    pub fn is_subprogram(&self) -> bool {
        self.is_subprogram
    }

    /// What values of the program give sizes.
    pub fn late(&self) -> &Late {
        self.late.get_or_init(|| {
            let mut late = Late::new();
            for s in &self.program.symbols {
                if let SymbolOrigin::Late { value, axis } = s.origin {
                    late.entry(value).or_default().push((s.name.clone(), axis));
                }
            }
            late
        })
    }

    /// The stretch that begins with segment `first`.
    pub fn subprogram(&self, first: usize) -> Arc<Subprogram> {
        let mut subprograms = self
            .subprograms
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        subprograms
            .entry(first)
            .or_insert_with(|| {
                let name = format!("{}/{first}.2", self.name);
                let cuts = self.cuts.get_or_init(|| self.program.cuts());
                let s = self.program.subprogram(cuts, first);
                let plan_set = PlanSet::new(Arc::new(s.program), name, self.store.clone());
                let plan_set = plan_set.pinned(self.pinned);
                Arc::new(Subprogram {
                    plan_set: PlanSet {
                        is_subprogram: true,
                        ..plan_set
                    },
                    inputs: s.inputs,
                    outputs: s.outputs,
                    spent: s.spent,
                    end: s.end,
                })
            })
            .clone()
    }

    /// The unit for an inner program.
    pub fn inner(&self, key: (u32, u8), make: impl FnOnce() -> Program) -> Arc<PlanSet> {
        let mut inner_sets = self
            .inner_sets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        inner_sets
            .entry(key)
            .or_insert_with(|| {
                let name = format!("{}/{}.{}", self.name, key.0, key.1);
                let plan_set = PlanSet::new(Arc::new(make()), name, self.store.clone());
                Arc::new(plan_set.pinned(self.pinned))
            })
            .clone()
    }

    /// The current plan, those kept beside it, and those of the programs inside, in that order.
    pub fn plans(&self) -> Vec<Arc<VerifiedPlan>> {
        self.epochs().iter().map(|e| e.plan.clone()).collect()
    }

    /// The same with what they were compiled to.
    pub fn epochs(&self) -> Vec<Arc<Epoch>> {
        fn held<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
            of.lock().unwrap_or_else(PoisonError::into_inner)
        }
        let mut out: Vec<Arc<Epoch>> = self.current().into_iter().collect();
        out.extend(held(&self.other_plans).iter().cloned());
        let inner_sets: Vec<Arc<PlanSet>> = held(&self.inner_sets).values().cloned().collect();
        out.extend(inner_sets.iter().flat_map(|u| u.epochs()));
        let subprograms: Vec<Arc<Subprogram>> = held(&self.subprograms).values().cloned().collect();
        out.extend(subprograms.iter().flat_map(|p| p.plan_set.epochs()));
        out
    }

    fn stored(&self, dims: &DimBox, allotment: &Allotment) -> Option<Plan> {
        self.store.as_ref()?.plan(&self.name, dims, allotment)
    }

    fn bind(
        &self,
        engine: &Engine,
        dims: &DimBox,
        allotment: &Allotment,
        similar: &[&VerifiedPlan],
    ) -> Result<Plan, RunError> {
        let plan = match similar.is_empty() {
            true => engine.planner.bind(&self.program, dims, allotment)?,
            false => engine
                .planner
                .bind_like(&self.program, dims, allotment, similar)?,
        };
        // A later process that begins with this box is to have the best for it.
        if let Some(store) = self.store.as_ref().filter(|_| !plan.is_like()) {
            store.keep_plan(&self.name, dims, allotment, &plan);
        }
        Ok(plan)
    }

    /// The plan for these arguments: one that was kept, or a new one.
    pub fn plan(
        &self,
        engine: &Engine,
        dims: &DimBox,
        allotment: &Allotment,
    ) -> Result<Plan, RunError> {
        self.refused(&[])?;
        match self.stored(dims, allotment) {
            Some(plan) => Ok(plan),
            None => self.bind(engine, dims, allotment, &[]),
        }
    }

    /// Compiles a plan into an epoch of this unit, beside the traffic: on this thread alone.
    pub fn compile(&self, engine: &Engine, plan: Plan) -> Result<Arc<Epoch>, RunError> {
        self.compile_prepared(engine, plan.verify()?, Vec::new())
    }

    /// As [`PlanSet::compile`] for a request that waits for it and will work in `memory`. The plan shares kernels
    /// and schedules with `similar`. What needs no proof of the plan is compiled beside that proof.
    fn compile_during_proof(
        &self,
        engine: &Engine,
        plan: Plan,
        similar: &[&VerifiedPlan],
        memory: &mut AlignedBytes,
    ) -> Result<Arc<Epoch>, RunError> {
        let plan = Arc::new(plan.tile(similar)?);
        let blocks = plan.plan().blocks();
        let (count, steps) = blocks.fold((0, 0), |(n, s), b| (n + 1, s + b.steps.len()));
        let alone = || self.compile_prepared(engine, plan.clone().prove()?, Vec::new());
        if steps < CONCURRENT_PROOF_STEPS {
            return alone();
        }
        let bytes = match engine.device.target().gpu {
            Some(_) => 0,
            None => usize::try_from(working_bytes(plan.plan())).unwrap_or(usize::MAX),
        };
        let own = std::mem::replace(memory, AlignedBytes::new(0, "the arena of a request")?);
        let pending = match engine.background.prove(&plan, own, bytes) {
            Ok(p) => p,
            Err(own) => {
                *memory = own;
                return alone();
            }
        };
        let prepared: Result<Vec<_>, _> = (0..count)
            .map(|b| engine.device.prepare(&plan, b))
            .collect();
        let made = match pending.proof() {
            // What is wrong with the plan is the better reason of the two.
            Some(proof) => proof
                .map_err(RunError::from)
                .and_then(|p| self.compile_prepared(engine, p, prepared?)),
            None => alone(),
        };
        if let Some(own) = pending.memory() {
            *memory = own;
        }
        made
    }

    fn compile_prepared(
        &self,
        engine: &Engine,
        plan: VerifiedPlan,
        prepared: Vec<Option<Prepared>>,
    ) -> Result<Arc<Epoch>, RunError> {
        let plan = Arc::new(plan);
        // A plan file carries neither the true sizes of weights nor the model's values.
        plan.check_program(&self.program)?;
        let mut prepared = prepared.into_iter();
        let mut blocks = Vec::new();
        for b in 0..plan.plan().blocks().count() {
            let shelf = self
                .store
                .as_ref()
                .map_or(&EmptyShelf as &dyn Shelf, |s| s.shelf());
            let exe = engine.device.compile_from(
                plan.clone(),
                b,
                &self.program.weights,
                &engine.packed,
                shelf,
                prepared.next().flatten(),
            )?;
            blocks.push(CompiledBlock {
                exe,
                frames: Mutex::new(Vec::new()),
            });
        }
        intact(&self.program.weights)?;
        if let Some(store) = &self.store {
            let packed: Vec<_> = blocks.iter().flat_map(|b| b.exe.packed()).collect();
            store.keep_packed(&packed);
        }
        Ok(Arc::new(Epoch {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            plan,
            blocks,
            weights: self.program.weights.clone(),
        }))
    }

    /// Runs `change`, which may make another plan the current one, with the version that such a plan will be.
    pub fn publish<T>(&self, change: impl FnOnce(u64) -> T) -> T {
        let one = self.publishing.lock();
        let one = one.unwrap_or_else(PoisonError::into_inner);
        let out = change(self.version() + 1);
        drop(one);
        out
    }

    /// Makes `epoch` the current plan: requests that start from now on use it when it covers their
    /// dims; running ones finish on theirs. Gives what was current.
    pub fn swap(&self, epoch: Arc<Epoch>) -> Option<Arc<Epoch>> {
        let id = epoch.id;
        let before = self.current.swap(Some(epoch));
        if before.as_ref().is_none_or(|e| e.id != id) {
            self.version.fetch_add(1, Ordering::Release);
            crate::spans::changed(&self.program.name, id);
        }
        before
    }

    /// As [`PlanSet::swap`]; what was current stays at hand for dims that `epoch` does not cover, and plans
    /// for its very box go: those that went.
    pub fn promote(&self, epoch: Arc<Epoch>) -> Vec<Arc<Epoch>> {
        let before = self.swap(epoch.clone());
        let dims = &epoch.plan.plan().dims;
        let mut other_plans = self
            .other_plans
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        other_plans.splice(0..0, before);
        let replaced: Vec<_> = other_plans
            .extract_if(.., |e| e.plan.plan().dims == *dims)
            .collect();
        let gone = evict(Some(&epoch), &mut other_plans);
        drop(other_plans);
        let mut evicted = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        remember_evicted(&mut evicted, &gone);
        drop(evicted);
        replaced.into_iter().chain(gone).collect()
    }

    /// Frees plans that were replaced and that no request runs with, among them those of earlier calls. Whoever
    /// lets go of a plan last frees it, and a request has better things to do: those that are in use stay until
    /// the next plan is replaced.
    pub fn retire(&self, plans: impl IntoIterator<Item = Arc<Epoch>>) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.extend(plans);
        let idle: Vec<_> = retired
            .extract_if(.., |e| Arc::strong_count(e) == 1)
            .collect();
        drop(retired);
        drop(idle);
    }

    /// A plan at hand that covers `env`.
    pub fn covering(&self, env: &Env) -> Option<Arc<Epoch>> {
        let other_plans = self
            .other_plans
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let all = self
            .current()
            .into_iter()
            .chain(other_plans.iter().cloned());
        all.into_iter().find(|e| e.covers(env))
    }

    /// Whether requests may run with the plan of this version now.
    pub fn knows(&self, version: u64) -> bool {
        let trial = self.trial.load();
        version == self.version() || trial.as_ref().is_some_and(|t| t.version == version)
    }

    /// A number that changes whenever another plan becomes the current one.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The current epoch.
    pub fn current(&self) -> Option<Arc<Epoch>> {
        self.current.load()
    }

    /// The plans in use and some of those that were.
    fn known(&self) -> Vec<Arc<VerifiedPlan>> {
        let other_plans = self
            .other_plans
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let evicted = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        let used = self
            .current()
            .into_iter()
            .chain(other_plans.iter().cloned());
        let used = used.map(|e| e.plan.clone());
        used.chain(evicted.iter().cloned()).collect()
    }

    /// The plans in use and some of those that were, that of the box nearest to `dims` first: a new one
    /// shares packed weights with them and may take schedules from them.
    fn similar(&self, dims: &DimBox) -> Vec<Arc<VerifiedPlan>> {
        if self.pinned {
            return Vec::new();
        }
        let mut all = self.known();
        // A plan of another fusion is one of another program: the next box follows the session's own.
        all.retain(|p| !p.plan().is_apart());
        // How many times as large one end of a range is as the other's, for the farthest symbol.
        let far = |p: &Arc<VerifiedPlan>| -> f64 {
            let top = |b: &DimBox, s: &Sym| b.get(s).map_or(1.0, |r| r.hi.max(1) as f64);
            let plan = p.plan();
            let each = dims.iter().map(|(s, _)| {
                let ratio = top(dims, s) / top(&plan.dims, s);
                ratio.max(1.0 / ratio)
            });
            each.fold(1.0, f64::max)
        };
        all.arrange_by(|a, b| far(a).total_cmp(&far(b)));
        all
    }

    /// `dims` with ranges for what varies from request to request, where there is such.
    fn widened(&self, dims: &DimBox) -> Option<DimBox> {
        if self.pinned || self.narrow.load(Ordering::Relaxed) {
            return None;
        }
        let known = self.known();
        widened(dims, known.iter().map(|p| &p.plan().dims))
    }

    /// A new epoch for all of `dims`, for a request that will work in `memory`. That it works in more than `most`
    /// bytes is an error.
    fn make(
        &self,
        engine: &Engine,
        dims: &DimBox,
        allotment: &Allotment,
        memory: &mut AlignedBytes,
        most: u64,
    ) -> Result<Arc<Epoch>, RunError> {
        let mut compile = |plan: Plan, similar: &[&VerifiedPlan]| {
            let bytes = working_bytes(&plan);
            if bytes > most {
                let why = format!("a plan for {dims} works in {bytes} B, more than {most} B");
                return Err(RunError::Refused(why));
            }
            self.compile_during_proof(engine, plan, similar, memory)
        };
        // What was kept or taken from elsewhere and does not hold is made anew.
        let kept_plan = self.stored(dims, allotment);
        if let Some(e) = kept_plan.and_then(|p| compile(p, &[]).ok()) {
            return Ok(e);
        }
        let mut fresh = |similar: &[&VerifiedPlan]| {
            compile(self.bind(engine, dims, allotment, similar)?, similar)
        };
        let similar = self.similar(dims);
        let similar: Vec<&VerifiedPlan> = similar.iter().map(|p| &**p).collect();
        match fresh(&similar) {
            Err(_) if !similar.is_empty() => fresh(&[]),
            other => other,
        }
    }

    /// An epoch that covers `env`: the current one, a kept one, or a new one bound to `dims`. The request that
    /// asks will work in `memory`.
    pub fn epoch(
        &self,
        engine: &Engine,
        env: &Env,
        dims: impl FnOnce() -> DimBox,
        allotment: &Allotment,
        memory: &mut AlignedBytes,
    ) -> Result<Arc<Epoch>, RunError> {
        if let Some(e) = self.current.load()
            && e.covers(env)
        {
            return Ok(e);
        }
        let kept = |other_plans: &mut Vec<Arc<Epoch>>| {
            let at = other_plans.iter().position(|e| e.covers(env))?;
            let e = other_plans.remove(at);
            other_plans.insert(0, e.clone());
            Some(e)
        };
        if let Some(e) = kept(
            &mut self
                .other_plans
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        ) {
            return Ok(e);
        }
        let began = Instant::now();
        let dims = dims();
        let again = self.made.load(Ordering::Relaxed) > 0;
        let _span = crate::spans::plan(&self.program.name, &dims, again);
        let wide = self.widened(&dims);
        let wide = wide.map(|d| self.make(engine, &d, allotment, memory, WIDE_BYTES));
        let made = match wide {
            // The part of a range in which sizes are proved may leave out the size that was asked for.
            Some(Ok(e)) if e.covers(env) => e,
            wide => {
                let mut e = self.make(engine, &dims, allotment, memory, u64::MAX);
                let only = at(&dims, env);
                // Of a range of sizes that only the data gives, all may be proved but those that no request has.
                if only != dims && !e.as_ref().is_ok_and(|e| e.covers(env)) {
                    e = self.make(engine, &only, allotment, memory, u64::MAX);
                }
                let e = e?;
                // What holds for the size asked for need not hold for others, or they need too much memory.
                self.narrow.fetch_or(wide.is_some(), Ordering::Relaxed);
                e
            }
        };
        engine.planned(began.elapsed());
        self.made.fetch_add(1, Ordering::Relaxed);
        let mut other_plans = self
            .other_plans
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(e) = kept(&mut other_plans) {
            return Ok(e);
        }
        other_plans.insert(0, made.clone());
        let gone = evict(self.current().as_deref(), &mut other_plans);
        drop(other_plans);
        let mut evicted = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        remember_evicted(&mut evicted, &gone);
        Ok(made)
    }
}
