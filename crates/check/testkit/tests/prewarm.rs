//! What a request needs beside its plan is made before the plan is swapped, not by the first requests after.
use device::{
    AlignedBytes, Device, DeviceError, Executable, Frame, PackedStore, Prepared, Request,
    Residency, Shelf, UnifiedRequest,
};
use kernel::Target;
use machine::Machine;
use plan::VerifiedPlan;
use planner::{PlanOptions, Planner};
use shopfloor::{DimBox, Engine, Outputs, Session, Tensor, inputs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::ThreadId;
use tensor::WeightStore;
use testkit::zoo;

/// The threads that made frames.
type Made = Arc<Mutex<Vec<ThreadId>>>;

/// A CPU that says who makes frames, where requests meet once they have one.
struct Counting {
    cpu: cpu::CpuDevice,
    made: Made,
    meet: Arc<Meeting>,
}

/// So many requests are to run at once; none where it is 0.
#[derive(Default)]
struct Meeting {
    of: AtomicUsize,
    barrier: Mutex<Option<Arc<Barrier>>>,
}

impl Meeting {
    fn set(&self, of: usize) {
        *self.barrier.lock().unwrap() = Some(Arc::new(Barrier::new(of.max(1))));
        self.of.store(of, Ordering::SeqCst);
    }

    fn wait(&self) {
        if self.of.load(Ordering::SeqCst) > 0 {
            let b = self.barrier.lock().unwrap().clone();
            b.expect("a barrier").wait();
        }
    }
}

struct CountingBlock {
    exe: Arc<dyn Executable>,
    made: Made,
    meet: Arc<Meeting>,
}

impl CountingBlock {
    fn count(&self) {
        let me = std::thread::current().id();
        self.made.lock().unwrap().push(me);
    }
}

impl Executable for CountingBlock {
    fn new_frame(&self) -> Result<Frame, DeviceError> {
        self.count();
        self.exe.new_frame()
    }

    fn frame_for(&self, symbols: &[i64]) -> Result<Frame, DeviceError> {
        self.count();
        self.exe.frame_for(symbols)
    }

    fn memory_bytes(&self) -> usize {
        self.exe.memory_bytes()
    }

    fn exchange(&self, frame: &mut Frame, memory: &mut AlignedBytes) {
        self.exe.exchange(frame, memory);
    }

    fn run(&self, frame: &mut Frame, request: Request<'_>) -> Result<(), DeviceError> {
        self.meet.wait();
        self.exe.run(frame, request)
    }

    fn run_unified(
        &self,
        frame: &mut Frame,
        request: UnifiedRequest<'_>,
    ) -> Result<(), DeviceError> {
        self.exe.run_unified(frame, request)
    }

    fn step_names(&self) -> Vec<String> {
        self.exe.step_names()
    }

    fn packed_bytes(&self) -> u64 {
        self.exe.packed_bytes()
    }
}

impl Device for Counting {
    fn name(&self) -> &str {
        self.cpu.name()
    }

    fn machine(&self) -> &Machine {
        self.cpu.machine()
    }

    fn target(&self) -> &Target {
        self.cpu.target()
    }

    fn residency(&self) -> Residency {
        self.cpu.residency()
    }

    fn workers(&self) -> usize {
        self.cpu.workers()
    }

    fn compile_from(
        &self,
        plan: Arc<VerifiedPlan>,
        block: usize,
        weights: &Arc<WeightStore>,
        packed: &PackedStore,
        shelf: &dyn Shelf,
        prepared: Option<Prepared>,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        let exe = (self.cpu).compile_from(plan, block, weights, packed, shelf, prepared)?;
        Ok(Arc::new(CountingBlock {
            exe,
            made: self.made.clone(),
            meet: self.meet.clone(),
        }))
    }
}

struct Shop {
    session: Session,
    inputs: Vec<(String, Tensor)>,
    made: Made,
    meet: Arc<Meeting>,
}

fn shop() -> Shop {
    let (made, meet) = (Made::default(), Arc::new(Meeting::default()));
    let cpu = cpu::CpuDevice::new(cpu::CpuOptions {
        threads: Some(2),
        ..Default::default()
    })
    .expect("a CPU");
    let own = (cpu.machine().clone(), cpu.target().clone());
    let device = Counting {
        cpu,
        made: made.clone(),
        meet: meet.clone(),
    };
    let planner = Planner::new(vec![own], PlanOptions::default());
    let engine = Engine::new(Arc::new(device), Arc::new(planner));
    let model = zoo::find("digits_cnn").expect("digits_cnn is bundled");
    let prepared = model.prepare_temporary().expect("model");
    let session = Session::builder()
        .with_engine(engine)
        .commit_from_file(&prepared.model)
        .expect("session");
    Shop {
        session,
        inputs: model.inputs().expect("inputs"),
        made,
        meet,
    }
}

impl Shop {
    fn run(&self) -> Outputs {
        let x = inputs::borrowed(&self.inputs);
        self.session.run(&x).expect("a request")
    }

    /// So many requests at once, each with a frame of its own.
    fn together(&self, callers: usize) {
        self.meet.set(callers);
        std::thread::scope(|s| {
            for _ in 0..callers {
                s.spawn(|| self.run());
            }
        });
        self.meet.set(0);
    }

    /// Plans for batches up to `hi`, and makes that the current plan.
    fn swap(&self, hi: i64) {
        let mut dims = DimBox::new();
        dims.insert("batch", 1, hi);
        let plan = self.session.plan(&dims).expect("a plan");
        self.made.lock().unwrap().clear();
        self.session.swap_plan(plan).expect("swapped");
    }

    /// Frames made since the last swap began, and those of them by the thread that swapped: this one.
    fn frames(&self) -> (usize, usize) {
        let made = self.made.lock().unwrap();
        let me = std::thread::current().id();
        (made.len(), made.iter().filter(|t| **t == me).count())
    }
}

#[test]
fn as_many_requests_as_ran_at_once_are_ready_for_the_next_plan() {
    let s = shop();
    let batch = s.inputs[0].1.shape()[0] as i64;
    let want = s.run().into_vec();
    s.together(2);
    for hi in [batch, 4 * batch, 2 * batch] {
        s.swap(hi);
        assert_eq!(s.frames(), (2, 2), "made by the swap");
        s.together(2);
        assert_eq!(s.frames(), (2, 2), "and by no request");
        let got = s.run().into_vec();
        for ((name, a), (_, b)) in got.iter().zip(&want) {
            let d = testkit::compare::difference(a, b);
            assert!(d <= 1e-5, "{name}: {d:.2e}");
        }
    }
    // Only one of the two comes after this swap: the next is made ready for one.
    s.swap(batch);
    s.run();
    s.swap(3 * batch);
    assert_eq!(s.frames(), (1, 1));
    // Nobody came.
    s.swap(batch);
    assert_eq!(s.frames(), (0, 0));
    s.run();
    assert_eq!(s.frames(), (1, 1), "by the request, which this thread is");
}

#[test]
fn nothing_is_made_ready_for_shapes_that_a_plan_does_not_cover() {
    let s = shop();
    let batch = s.inputs[0].1.shape()[0] as i64;
    assert!(batch > 1, "or no plan leaves it out");
    s.run();
    s.swap(batch - 1);
    assert_eq!(s.frames(), (0, 0));
    s.run();
}
