//! Requests that are called off on a GPU, before and in the middle, step by step and in a kernel that stays:
//! they end soon, what comes behind them is right, and nothing is held any more. Who calls off is told what
//! happens on the emulated GPU, so that no clock decides when.
use cuda::{CudaDevice, CudaOptions};
use cuda_emulated::{EmulatedDriver, EmulatedGpu, Happened};
use device::Device;
use graph::GraphBuilder;
use layout::{DType, Dim, DimBox};
use planner::{Placement, PlanOptions, Planner};
use runtime::{Call, Cancel, Engine, RunError};
use shopfloor::{Error, Machine, Model, ModelOptions, Session, Tensor};
use shopfloor_testkit::handwritten::{decoder, node, product};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tensor::WeightStore;

const WIDTH: usize = 64;
const ROWS: usize = 96;
/// Launches that may still be made once a request was called off while the host waited for the GPU.
const AHEAD: u64 = 9;

fn numbers(shape: &[usize], seed: usize, down: f32) -> Tensor {
    let n = shape.iter().product::<usize>();
    let value = |j: usize| ((seed * 31 + j * 7) % 17) as f32 / down - 0.1;
    let all: Vec<f32> = (0..n).map(value).collect();
    Tensor::from_f32(shape, &all).unwrap()
}

/// `nodes` products in a row.
fn chain(nodes: usize) -> Model {
    let mut weights = WeightStore::new();
    let mut add = |i: usize| {
        let w = numbers(&[WIDTH, WIDTH], i, 68.0);
        weights.add_tensor(&format!("w{i}"), w).unwrap()
    };
    let ids: Vec<_> = (0..nodes).map(&mut add).collect();
    let mut b = GraphBuilder::new("chain", Arc::new(weights));
    let mut x = b.input("x", DType::F32, vec![Dim::from(ROWS), Dim::from(WIDTH)]);
    for (i, id) in ids.into_iter().enumerate() {
        let w = b.weight(id).unwrap();
        let (op, name) = (product(&[0, 1], &[1, 2], &[0, 2]), format!("y{i}"));
        x = node(&mut b, op, &[x, w], &name);
    }
    let graph = b.finish(&[x]);
    Model::from_graph("chain", &graph, &ModelOptions::default()).unwrap()
}

fn input(seed: usize) -> Tensor {
    numbers(&[ROWS, WIDTH], seed, 17.0)
}

struct Bench {
    driver: EmulatedDriver,
    gpu: Arc<CudaDevice>,
    engine: Arc<Engine>,
}

/// An emulated A100 of 3 SMs, with a host whose steps are those that `list` places at 0, in turn.
fn bench(resident: bool, memory: Option<u64>, list: &[u32]) -> Bench {
    let driver = EmulatedDriver::new(vec![EmulatedGpu::named("a100").unwrap().with_sms(3)]);
    let machine = Machine::load("a100").unwrap();
    let options = CudaOptions {
        launch: Some(match resident {
            true => machine::Way::Resident,
            false => machine::Way::Steps,
        }),
        memory,
        // Long enough that nothing here is taken for a hang.
        watchdog: Duration::from_secs(600),
        ..CudaOptions::default()
    };
    let gpu = CudaDevice::open("emulated:a100", &driver, 0, machine, options).unwrap();
    let own = |d: &dyn Device| (d.machine().clone(), d.target().clone());
    let (gpu, planner) = match list.is_empty() {
        true => {
            let planner = Planner::new(vec![own(&gpu)], PlanOptions::default());
            (gpu, planner)
        }
        false => {
            let options = cpu::CpuOptions {
                threads: Some(1),
                ..cpu::CpuOptions::default()
            };
            let host: Arc<dyn Device> = Arc::new(cpu::CpuDevice::new(options).unwrap());
            let options = PlanOptions {
                placement: Placement::Listed(list.to_vec()),
                ..PlanOptions::default()
            };
            let planner = Planner::new(vec![own(&*host), own(&gpu)], options);
            (gpu.with_host(host), planner)
        }
    };
    let gpu = Arc::new(gpu);
    Bench {
        driver,
        engine: Engine::new(gpu.clone(), Arc::new(planner)),
        gpu,
    }
}

impl Bench {
    fn session(&self, model: Model) -> Session {
        let builder = Session::builder().with_engine(self.engine.clone());
        builder.commit(model).unwrap()
    }

    /// Gives a request up when `at` happens; how often things like it happened is counted beside.
    fn off(&self, at: Happened) -> (Cancel, Arc<AtomicU64>) {
        let (off, count) = (Cancel::new(), Arc::new(AtomicU64::new(0)));
        let (tell, counted) = (off.clone(), count.clone());
        self.driver.watch(0, move |h| {
            if std::mem::discriminant(&h) == std::mem::discriminant(&at) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            if h == at {
                tell.cancel();
            }
        });
        (off, count)
    }
}

fn floats(o: shopfloor::Outputs) -> Vec<f32> {
    o.into_vec().remove(0).1.to_f32().unwrap()
}

fn call(s: &Session, x: &Tensor, off: &Cancel) -> Result<Vec<f32>, RunError> {
    let call = Call {
        cancel: Some(off),
        deadline: None,
    };
    match s.run_call(&[("x", x)], call) {
        Ok(o) => Ok(floats(o)),
        Err(Error::Run(e)) => Err(e),
        Err(e) => panic!("{e}"),
    }
}

/// What every request gives that nobody gives up.
fn right(s: &Session, seed: usize, want: &[Vec<f32>]) {
    let got = floats(s.run(&[("x", &input(seed))]).unwrap());
    assert_eq!(got, want[seed]);
}

#[test]
fn a_request_that_was_called_off_does_not_begin() {
    for resident in [false, true] {
        let b = bench(resident, None, &[]);
        let s = b.session(chain(3));
        let want = [0, 1].map(|i| floats(s.run(&[("x", &input(i))]).unwrap()));
        let off = Cancel::new();
        off.cancel();
        let before = b.driver.calls(0);
        assert_eq!(call(&s, &input(0), &off), Err(RunError::Cancelled));
        assert_eq!(b.driver.calls(0), before, "resident: {resident}");
        right(&s, 1, &want);
    }
}

#[test]
fn step_by_step_nothing_is_launched_after_the_call() {
    if !testing::turn("step_by_step_nothing_is_launched_after_the_call") {
        return;
    }
    for list in [vec![], vec![1, 0, 1, 1, 0, 1]] {
        let b = bench(false, None, &list);
        let s = b.session(chain(5));
        let want = [0, 1].map(|i| floats(s.run(&[("x", &input(i))]).unwrap()));
        let (_, count) = b.off(Happened::Launched(u64::MAX));
        right(&s, 0, &want);
        let all = count.load(Ordering::Relaxed);
        assert!(all >= 3, "{all}");
        let held = b.gpu.memory().allocated;
        for k in 1..=all {
            let (off, count) = b.off(Happened::Launched(k));
            assert_eq!(call(&s, &input(0), &off), Err(RunError::Cancelled));
            assert_eq!(count.load(Ordering::Relaxed), k);
            right(&s, 1, &want);
            right(&s, 0, &want);
        }
        assert_eq!(b.gpu.memory().allocated, held);
    }
}

#[test]
fn the_host_is_a_few_launches_ahead_of_the_gpu() {
    if !testing::turn("the_host_is_a_few_launches_ahead_of_the_gpu") {
        return;
    }
    let b = bench(false, None, &[]);
    let s = b.session(chain(30));
    let want = [0, 1].map(|i| floats(s.run(&[("x", &input(i))]).unwrap()));
    // Who may be called off waits for the GPU now and then, and gets the same.
    assert_eq!(call(&s, &input(1), &Cancel::new()).as_ref(), Ok(&want[1]));
    for k in [1, 2, 7, 15] {
        let (off, _) = b.off(Happened::Began(k));
        let before = b.driver.calls(0)["cuLaunchKernel"];
        assert_eq!(call(&s, &input(0), &off), Err(RunError::Cancelled));
        let made = b.driver.calls(0)["cuLaunchKernel"] - before;
        assert!((k..=k + AHEAD).contains(&made), "{made} after {k}");
        right(&s, 1, &want);
    }
}

#[test]
fn weights_on_their_way_do_not_meet_those_of_the_next_request() {
    if !testing::turn("weights_on_their_way_do_not_meet_those_of_the_next_request") {
        return;
    }
    const NODES: usize = 8;
    let resident = bench(false, None, &[]);
    let s = resident.session(chain(NODES));
    let want = [0, 1].map(|i| floats(s.run(&[("x", &input(i))]).unwrap()));
    // Half of the weights find no room.
    let room = resident.gpu.memory().peak - (NODES * WIDTH * WIDTH * 4 / 2) as u64;
    let b = bench(false, Some(room), &[]);
    let s = b.session(chain(NODES));
    let before = b.gpu.moved().to_device;
    right(&s, 0, &want);
    let sent = b.gpu.moved().to_device - before;
    assert!(sent > (WIDTH * WIDTH * 4 * 3) as u64, "{sent}");
    for k in 1..=NODES as u64 {
        let (off, _) = b.off(Happened::Launched(k));
        assert_eq!(call(&s, &input(0), &off), Err(RunError::Cancelled));
        right(&s, 1, &want);
    }
}

#[test]
fn a_kernel_that_stays_leaves_the_rest_out() {
    if !testing::turn("a_kernel_that_stays_leaves_the_rest_out") {
        return;
    }
    for list in [vec![], vec![1, 0, 1, 1, 0, 1], vec![0, 1, 1, 1, 1, 1]] {
        let b = bench(true, None, &list);
        let s = b.session(chain(12));
        let want = [0, 1].map(|i| floats(s.run(&[("x", &input(i))]).unwrap()));
        let (_, count) = b.off(Happened::Polled(u64::MAX));
        right(&s, 0, &want);
        let all = count.load(Ordering::Relaxed);
        let (held, before) = (b.gpu.memory().allocated, b.driver.calls(0));
        let polled = |k: u64| {
            let (off, count) = b.off(Happened::Polled(k));
            assert_eq!(call(&s, &input(0), &off), Err(RunError::Cancelled), "{k}");
            let took = count.load(Ordering::Relaxed);
            right(&s, 1, &want);
            right(&s, 0, &want);
            took
        };
        // Not at the very end: the next request may take some polls less, as its workers' pauses fall.
        let polls: Vec<u64> = (0..12).map(|i| polled(1 + i * (all - 4) / 11)).collect();
        println!("{all} polls for a whole request; called off from early to late: {polls:?}");
        assert!(polls[0] * 2 <= all, "{polls:?} of {all}");
        // A poll more or less is how the workers' turns fell.
        let sorted = polls.windows(2).all(|w| w[0] <= w[1] + 1);
        assert!(sorted, "{polls:?}");
        // No call of the driver, no memory, and all slots are there: more requests than slots run.
        assert_eq!(b.driver.calls(0), before, "{list:?}");
        assert_eq!(b.gpu.memory().allocated, held);
        b.driver.watch(0, |_| {});
        std::thread::scope(|scope| {
            for i in 0..6 {
                let (s, want) = (&s, &want);
                scope.spawn(move || right(s, i % 2, want));
            }
        });
    }
}

#[test]
fn the_first_request_of_a_kernel_can_be_called_off() {
    if !testing::turn("the_first_request_of_a_kernel_can_be_called_off") {
        return;
    }
    // Nothing was ever written to its memory: what is left out must not be read either, which the
    // emulator would find.
    for k in [1, 5, 20, 60, 150, 400] {
        let b = bench(true, None, &[]);
        let s = b.session(chain(4));
        let (off, _) = b.off(Happened::Polled(k));
        let first = call(&s, &input(0), &off);
        if off.is_cancelled() {
            assert_eq!(first, Err(RunError::Cancelled), "{k}");
        }
        let steps = bench(false, None, &[]);
        let want = floats(steps.session(chain(4)).run(&[("x", &input(1))]).unwrap());
        assert_eq!(floats(s.run(&[("x", &input(1))]).unwrap()), want, "{k}");
    }
}

#[test]
fn who_waits_for_a_slot_leaves_without_one() {
    let b = bench(true, None, &[]);
    let s = b.session(chain(3));
    let want = [0, 1].map(|i| floats(s.run(&[("x", &input(i))]).unwrap()));
    let offs: Vec<Cancel> = (0..8).map(|_| Cancel::new()).collect();
    let all = offs.clone();
    b.driver.watch(0, move |h| {
        if let Happened::Polled(n) = h
            && let Some(off) = all.get((n / 40) as usize)
        {
            off.cancel();
        }
    });
    std::thread::scope(|scope| {
        for (i, off) in offs.iter().enumerate() {
            let (s, want) = (&s, &want);
            scope.spawn(move || match call(s, &input(i % 2), off) {
                Ok(y) => assert_eq!(y, want[i % 2]),
                Err(e) => assert_eq!(e, RunError::Cancelled),
            });
        }
    });
    right(&s, 0, &want);
}

const TOKENS: usize = 6;

#[test]
fn a_message_that_is_called_off_leaves_the_stream_where_it_was() {
    let mut dims = DimBox::new();
    dims.insert("p", 0, TOKENS as i64 - 1);
    let token = |i: usize| numbers(&[1, 16], i, 22.0);
    for resident in [false, true] {
        let b = bench(resident, None, &[]);
        let s = b.session(decoder(16, &[]));
        let tell = |k: u64| match resident {
            true => Happened::Polled(3 * k - 2),
            false => Happened::Launched(k),
        };
        let run = |often: u64| {
            let mut stream = s.stream(&dims).unwrap();
            let mut all = vec![];
            for i in 0..TOKENS {
                for k in 1..=often {
                    let (off, _) = b.off(tell(k));
                    // Another row than the one that comes, which must not be seen.
                    let other = token(i + 40);
                    stream.send_cancellable(&[("x", &other)], &off).unwrap();
                    assert_eq!(stream.receive(), Err(RunError::Cancelled), "{i} {k}");
                }
                let out = stream.run(&[("x", &token(i))]).unwrap();
                all.push(out[0].1.to_f32().unwrap());
            }
            all
        };
        let want = run(0);
        // A request is the launches of its steps but those that are part of another's.
        let plan = s.plan(&dims).unwrap();
        let steps = plan.blocks().flat_map(|b| &b.steps);
        let launches = steps.filter(|s| !s.joined).count() as u64;
        let most = if resident { 3 } else { launches };
        assert_eq!(run(most), want, "resident: {resident}");
    }
}
