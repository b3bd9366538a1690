//! The engine's background thread: while a request compiles its plan, this thread proves the plan and then
//! prefaults the request's memory. `epoch` uses it. It runs no requests.
//!
//! It is started with the engine and not per plan: a new thread often begins on the processor of the one that
//! started it, and the two then take turns.
use device::AlignedBytes;
use plan::{PlanError, TiledPlan, VerifiedPlan};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// Bytes prefaulted between two checks whether the request waits for its memory: as many small pages as the
/// system gives in about 20 us.
const PREFAULT_STRIDE: usize = 64 << 10;
/// Bytes of a small page.
const PAGE: usize = 4096;
/// Bytes that are prefaulted at most.
const PREFAULT_LIMIT: usize = 256 << 20;

/// The thread; it sleeps while it has no job.
pub(crate) struct BackgroundThread {
    /// `None` where there is no thread.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    busy: Arc<AtomicBool>,
}

/// A plan that the background thread is proving.
pub(crate) struct PendingProof {
    proof: Receiver<Result<VerifiedPlan, PlanError>>,
    memory: Receiver<AlignedBytes>,
    cancelled: Arc<AtomicBool>,
}

impl BackgroundThread {
    /// Starts the thread; disabled where the system gives none.
    pub fn new() -> BackgroundThread {
        let (jobs, list) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name("shopfloor-prove".into())
            .spawn(move || list.into_iter().for_each(|work| work()));
        BackgroundThread {
            jobs: thread.is_ok().then_some(jobs),
            thread: thread.ok(),
            busy: Arc::default(),
        }
    }

    /// Without a thread: every job is refused.
    pub fn disabled() -> BackgroundThread {
        BackgroundThread {
            jobs: None,
            thread: None,
            busy: Arc::default(),
        }
    }

    /// Proves `plan` on the thread, then grows `memory` to `bytes` and touches its new pages. Gives `memory`
    /// back where the thread is busy or disabled.
    pub fn prove(
        &self,
        plan: &Arc<TiledPlan>,
        memory: AlignedBytes,
        bytes: usize,
    ) -> Result<PendingProof, AlignedBytes> {
        let Some(list) = &self.jobs else {
            return Err(memory);
        };
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(memory);
        }
        let (tell, proof) = channel();
        let (give, back) = channel();
        let cancelled = Arc::new(AtomicBool::new(false));
        let (plan, stop, busy) = (plan.clone(), cancelled.clone(), self.busy.clone());
        let job = move || {
            let proof = plan.prove();
            let holds = proof.is_ok();
            let _ = tell.send(proof);
            let mut memory = memory;
            if holds {
                prefault(&mut memory, bytes, &stop);
            }
            busy.store(false, Ordering::Release);
            let _ = give.send(memory);
        };
        // Sent to a thread that is gone, the errand is dropped, and with it what answers: `PendingProof` says so.
        let _ = list.send(Box::new(job));
        Ok(PendingProof {
            proof,
            memory: back,
            cancelled,
        })
    }
}

impl PendingProof {
    /// Waits for the proof; `None` where the thread is gone.
    pub fn proof(&self) -> Option<Result<VerifiedPlan, PlanError>> {
        self.proof.recv().ok()
    }

    /// Stops prefaulting and gives the memory back; `None` where it is lost.
    pub fn memory(self) -> Option<AlignedBytes> {
        self.cancelled.store(true, Ordering::Relaxed);
        self.memory.recv().ok()
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        // The thread ends with its channel.
        self.jobs = None;
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

/// Makes `memory` `bytes` long and writes to each new page, until `stop`.
fn prefault(memory: &mut AlignedBytes, bytes: usize, stop: &AtomicBool) {
    let has = memory.len();
    // A failure to grow is reported by the request, which grows it again.
    if bytes <= has
        || bytes > PREFAULT_LIMIT
        || memory.grow(bytes, "the arena of a request").is_err()
    {
        return;
    }
    let from = has.min(memory.len());
    for piece in memory[from..].chunks_mut(PREFAULT_STRIDE) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        piece.iter_mut().step_by(PAGE).for_each(|b| *b = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefaulted_memory_keeps_its_contents() {
        let go = AtomicBool::new(false);
        let mut m = AlignedBytes::new(3 * PAGE, "a test").unwrap();
        m.fill(7);
        prefault(&mut m, 3 * PREFAULT_STRIDE, &go);
        assert_eq!(m.len(), 3 * PREFAULT_STRIDE);
        assert!(m[3 * PAGE..].iter().all(|b| *b == 0));
        let had = m.as_ptr();
        prefault(&mut m, PAGE, &go);
        prefault(&mut m, PREFAULT_LIMIT + 1, &go);
        assert_eq!((m.as_ptr(), m.len()), (had, 3 * PREFAULT_STRIDE));
    }

    #[test]
    fn a_busy_or_disabled_thread_takes_no_job() {
        let background = BackgroundThread::new();
        background.busy.store(true, Ordering::Release);
        let tiled = Arc::new(empty().tile(&[]).unwrap());
        let memory = || AlignedBytes::new(PAGE, "a test").unwrap();
        assert!(background.prove(&tiled, memory(), 0).is_err());
        assert!(
            BackgroundThread::disabled()
                .prove(&tiled, memory(), 0)
                .is_err()
        );
        background.busy.store(false, Ordering::Release);
        let Ok(pending) = background.prove(&tiled, memory(), 0) else {
            panic!("it is free");
        };
        let proved = pending.proof().expect("an answer").expect("a proof");
        assert!(Arc::ptr_eq(proved.tiled(), &tiled));
        assert_eq!(pending.memory().map(|m| m.len()), Some(PAGE));
    }

    /// A plan without steps.
    fn empty() -> plan::Plan {
        plan::Plan {
            version: plan::Plan::VERSION,
            model: "none".into(),
            program_hash: String::new(),
            devices: vec![plan::DeviceRef {
                machine: "any".into(),
                machine_hash: String::new(),
                target: "any".into(),
                workers: 1,
            }],
            dims: layout::DimBox::new(),
            goal: plan::Goal::Latency,
            launch: None,
            segments: Vec::new(),
            predicted: machine::Cost::zero(),
            whys: Vec::new(),
        }
    }
}
