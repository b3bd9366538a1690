//! Plans in use, and those of a program that there are.

use crate::dims::lookup;
use crate::dims::{Env, Late};
use crate::shared::Shared;
use crate::trial::Trial;
use crate::{PlanStore, RunError};
use device::{AlignedBytes, DeviceError, Executable, Frame};
use plan::{Cuts, Program, ValueIx, VerifiedPlan};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tensor::WeightStore;

/// A compiled block with the memory of request slots that are not in use.
pub(crate) struct CompiledBlock {
    pub exe: Arc<dyn Executable>,
    pub(crate) frames: Mutex<Vec<Frame>>,
}

impl CompiledBlock {
    /// Runs `f` with a frame of its own that works in `memory`.
    pub fn with_frame<T>(
        &self,
        memory: &mut AlignedBytes,
        f: impl FnOnce(&mut Frame) -> Result<T, DeviceError>,
    ) -> Result<T, RunError> {
        let free = self
            .frames
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let mut frame = match free {
            Some(f) => f,
            None => self.exe.new_frame()?,
        };
        let out = with_memory(&*self.exe, &mut frame, memory, f);
        self.frames
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(frame);
        out
    }
}

/// Runs `f` with `frame` working in `memory`, which grows to what `exe` needs.
pub(crate) fn with_memory<T>(
    exe: &dyn Executable,
    frame: &mut Frame,
    memory: &mut AlignedBytes,
    f: impl FnOnce(&mut Frame) -> Result<T, DeviceError>,
) -> Result<T, RunError> {
    let need = exe.memory_bytes();
    // The old one becomes part of it: both at once would be more than the plan states.
    memory.grow(need, "the arena of a request")?;
    exe.exchange(frame, memory);
    let out = f(frame);
    exe.exchange(frame, memory);
    Ok(out?)
}

/// A plan in use: requests hold it until they end.
pub(crate) struct Epoch {
    pub id: u64,
    pub plan: Arc<VerifiedPlan>,
    pub blocks: Vec<CompiledBlock>,
    pub(crate) weights: Arc<WeightStore>,
}

impl Epoch {
    /// Whether the constants are still what the plan was made for: asked when a request has run.
    ///
    /// # Errors
    /// [`RunError::Lost`] when a file of theirs was cut short meanwhile.
    pub fn intact(&self) -> Result<(), RunError> {
        match tensor::any_loss() {
            true => intact(&self.weights),
            false => Ok(()),
        }
    }

    pub fn covers(&self, env: &Env) -> bool {
        self.plan.plan().dims.contains(&|s| lookup(env, s))
    }
}

/// A program with its current plan, other plans for other dims, and the programs inside it.
pub(crate) struct PlanSet {
    pub program: Arc<Program>,
    /// Which program inside the session's this is; empty for the session's own.
    pub(crate) name: String,
    pub(crate) store: Option<Arc<dyn PlanStore>>,
    pub(crate) current: Shared<Epoch>,
    pub(crate) other_plans: Mutex<Vec<Arc<Epoch>>>,
    /// Plans that did not stay, the last first.
    pub(crate) evicted: Mutex<Vec<Arc<VerifiedPlan>>>,
    /// Plans that were replaced when requests ran with them.
    pub(crate) retired: Mutex<Vec<Arc<Epoch>>>,
    pub(crate) next_id: AtomicU64,
    /// Changes when the current plan does.
    pub(crate) version: AtomicU64,
    /// Held by whoever changes it.
    pub(crate) publishing: Mutex<()>,
    /// A plan that some requests run with instead.
    pub trial: Shared<Trial>,
    /// Plans that were made for requests that waited for them.
    pub made: AtomicU64,
    /// Whether a plan could be made for what was asked for and not for more sizes: no others are tried.
    pub(crate) narrow: AtomicBool,
    /// Bodies by (segment, which), made when first needed.
    pub(crate) inner_sets: Mutex<BTreeMap<(u32, u8), Arc<PlanSet>>>,
    /// Stretches by their first segment, made when first needed.
    pub(crate) subprograms: Mutex<BTreeMap<usize, Arc<Subprogram>>>,
    /// Where the program can be cut into them.
    pub(crate) cuts: OnceLock<Cuts>,
    pub(crate) late: OnceLock<Late>,
    /// Whether this is a stretch of another unit.
    pub(crate) is_subprogram: bool,
    /// Whether plans follow from nothing but the dims asked for.
    pub(crate) pinned: bool,
    /// Why the program is none that can run, where it stands for one.
    pub(crate) refusal: Option<RunError>,
}

/// A stretch of a unit's program, with a unit of its own. Numbers are the whole program's.
pub(crate) struct Subprogram {
    pub plan_set: PlanSet,
    pub inputs: Vec<ValueIx>,
    pub outputs: Vec<ValueIx>,
    /// Values that nobody needs once it has run.
    pub spent: Vec<ValueIx>,
    /// The segment behind it.
    pub end: usize,
}

pub(crate) fn intact(weights: &WeightStore) -> Result<(), RunError> {
    match weights.lost() {
        Some(file) => Err(RunError::Lost { file }),
        None => Ok(()),
    }
}
