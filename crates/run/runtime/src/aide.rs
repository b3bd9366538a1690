//! A thread that helps a request which waits for its plan. It is there before it is needed: a new thread
//! often begins on the processor of the one that started it, and the two then work by turns.
use device::AlignedBytes;
use plan::{PlanError, TiledPlan, VerifiedPlan};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

type Errand = Box<dyn FnOnce() + Send>;

/// Bytes that are asked for between two looks whether somebody waits for the memory: of small pages so many as
/// the system gives in about 20 us.
const STRIDE: usize = 64 << 10;
/// Bytes of a small page.
const PAGE: usize = 4096;
/// Bytes that are asked for ahead at most.
const AHEAD: usize = 256 << 20;

/// The thread, asleep but for errands.
pub(crate) struct Aide {
    /// `None` where nobody helps.
    errands: Option<Sender<Errand>>,
    thread: Option<JoinHandle<()>>,
    busy: Arc<AtomicBool>,
}

/// A plan whose proof goes on elsewhere.
pub(crate) struct Proving {
    proof: Receiver<Result<VerifiedPlan, PlanError>>,
    memory: Receiver<AlignedBytes>,
    wanted: Arc<AtomicBool>,
}

impl Aide {
    /// Starts the thread; where none can be started, nobody helps.
    pub fn new() -> Aide {
        let (errands, list) = channel::<Errand>();
        let thread = std::thread::Builder::new()
            .name("shopfloor-aide".into())
            .spawn(move || list.into_iter().for_each(|work| work()));
        Aide {
            errands: thread.is_ok().then_some(errands),
            thread: thread.ok(),
            busy: Arc::default(),
        }
    }

    /// One that helps nobody.
    pub fn none() -> Aide {
        Aide {
            errands: None,
            thread: None,
            busy: Arc::default(),
        }
    }

    /// Has `plan` proved, and then the system asked for the pages of `memory` that `bytes` take beyond those it
    /// has. Gives `memory` back where the thread is at something else.
    pub fn prove(
        &self,
        plan: &Arc<TiledPlan>,
        memory: AlignedBytes,
        bytes: usize,
    ) -> Result<Proving, AlignedBytes> {
        let Some(list) = &self.errands else {
            return Err(memory);
        };
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(memory);
        }
        let (tell, proof) = channel();
        let (give, back) = channel();
        let wanted = Arc::new(AtomicBool::new(false));
        let (plan, stop, busy) = (plan.clone(), wanted.clone(), self.busy.clone());
        let errand = move || {
            let proof = plan.prove();
            let holds = proof.is_ok();
            let _ = tell.send(proof);
            let mut memory = memory;
            if holds {
                ask_for(&mut memory, bytes, &stop);
            }
            busy.store(false, Ordering::Release);
            let _ = give.send(memory);
        };
        // Sent to a thread that is gone, the errand is dropped, and with it what answers: `Proving` says so.
        let _ = list.send(Box::new(errand));
        Ok(Proving {
            proof,
            memory: back,
            wanted,
        })
    }
}

impl Proving {
    /// The plan when it is proved; `None` where nobody will say.
    pub fn proof(&self) -> Option<Result<VerifiedPlan, PlanError>> {
        self.proof.recv().ok()
    }

    /// The memory, whether all was asked for or not; `None` where it is lost.
    pub fn memory(self) -> Option<AlignedBytes> {
        self.wanted.store(true, Ordering::Relaxed);
        self.memory.recv().ok()
    }
}

impl Drop for Aide {
    fn drop(&mut self) {
        // The thread ends with its list.
        self.errands = None;
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

/// Makes `memory` `bytes` long and writes to each new page, until `stop`.
fn ask_for(memory: &mut AlignedBytes, bytes: usize, stop: &AtomicBool) {
    let has = memory.len();
    // Who needs it says what is wrong with it.
    if bytes <= has || bytes > AHEAD || memory.grow(bytes, "the arena of a request").is_err() {
        return;
    }
    let from = has.min(memory.len());
    for piece in memory[from..].chunks_mut(STRIDE) {
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
    fn memory_is_asked_for_and_kept_as_it_is() {
        let go = AtomicBool::new(false);
        let mut m = AlignedBytes::new(3 * PAGE, "a test").unwrap();
        m.fill(7);
        ask_for(&mut m, 3 * STRIDE, &go);
        assert_eq!(m.len(), 3 * STRIDE);
        assert!(m[3 * PAGE..].iter().all(|b| *b == 0));
        let had = m.as_ptr();
        ask_for(&mut m, PAGE, &go);
        ask_for(&mut m, AHEAD + 1, &go);
        assert_eq!((m.as_ptr(), m.len()), (had, 3 * STRIDE));
    }

    #[test]
    fn nobody_helps_twice_at_once() {
        let aide = Aide::new();
        aide.busy.store(true, Ordering::Release);
        let tiled = Arc::new(empty().tile(&[]).unwrap());
        let memory = || AlignedBytes::new(PAGE, "a test").unwrap();
        assert!(aide.prove(&tiled, memory(), 0).is_err());
        assert!(Aide::none().prove(&tiled, memory(), 0).is_err());
        aide.busy.store(false, Ordering::Release);
        let Ok(proving) = aide.prove(&tiled, memory(), 0) else {
            panic!("it is free");
        };
        let proved = proving.proof().expect("an answer").expect("a proof");
        assert!(Arc::ptr_eq(proved.tiled(), &tiled));
        assert_eq!(proving.memory().map(|m| m.len()), Some(PAGE));
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
            segments: Vec::new(),
            predicted: machine::Cost::zero(),
            whys: Vec::new(),
        }
    }
}
