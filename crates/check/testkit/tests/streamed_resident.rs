//! Weights that do not fit on an emulated GPU whose kernel stays: the same bits as step by step, without a
//! call of the driver, never more memory than was allowed, and no race between what comes and what is read.
use cuda::{CudaDevice, CudaOptions};
use cuda_emulated::{EmulatedDriver, EmulatedGpu, Happened};
use device::Device;
use graph::GraphBuilder;
use layout::{DType, Dim};
use plan::Activity;
use planner::{Placement, PlanOptions, Planner};
use runtime::{Call, Cancel, Engine, RunError};
use shopfloor::{Error, Machine, Model, ModelOptions, Session, Tensor};
use shopfloor_testkit::handwritten::{node, product};
use std::sync::Arc;
use std::time::Duration;
use tensor::WeightStore;

const ROWS: usize = 8;
/// Of the products of the chain: 36 KiB of f32 each, three tasks to copy.
const WIDTH: usize = 96;
const WEIGHT: u64 = (WIDTH * WIDTH * 4) as u64;

/// Values between `-most` and `most`.
fn numbers(shape: &[usize], seed: u64, most: f32) -> Tensor {
    let mut drawn = fastrand::Rng::with_seed(seed);
    let mut one = || (2.0 * drawn.f32() - 1.0) * most;
    let n = shape.iter().product::<usize>();
    let all: Vec<f32> = (0..n).map(|_| one()).collect();
    Tensor::from_f32(shape, &all).unwrap()
}

/// Products in a row, with the matrices of these numbers: one may be read by several steps.
fn chain(of: &[usize]) -> Model {
    let mut weights = WeightStore::new();
    let count = of.iter().max().map_or(0, |m| m + 1);
    let mut add = |i: usize| {
        let w = numbers(&[WIDTH, WIDTH], 7 + i as u64, 0.2);
        weights.add_tensor(&format!("w{i}"), w).unwrap()
    };
    let ids: Vec<_> = (0..count).map(&mut add).collect();
    let mut b = GraphBuilder::new("chain", Arc::new(weights));
    let mut x = b.input("x", DType::F32, vec![Dim::from(ROWS), Dim::from(WIDTH)]);
    let matrices: Vec<_> = ids.iter().map(|&id| b.weight(id).unwrap()).collect();
    for (i, &m) in of.iter().enumerate() {
        let rows = product(&[0, 1], &[1, 2], &[0, 2]);
        x = node(&mut b, rows, &[x, matrices[m]], &format!("y{i}"));
    }
    let graph = b.finish(&[x]);
    Model::from_graph("chain", &graph, &ModelOptions::default()).unwrap()
}

fn input(seed: u64) -> Tensor {
    numbers(&[ROWS, WIDTH], 100 + seed, 1.0)
}

struct Bench {
    driver: EmulatedDriver,
    gpu: Arc<CudaDevice>,
    engine: Arc<Engine>,
}

/// An emulated A100 of 3 SMs with every check, with a host whose steps are those that `list` places at 0.
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

    /// Whether a kernel stays now.
    fn stays(&self) -> bool {
        self.gpu.round_trip_ns().unwrap().is_some()
    }
}

fn bits(s: &Session, seed: u64) -> Vec<u8> {
    let out = s.run(&[("x", &input(seed))]);
    let out = out.unwrap_or_else(|e| panic!("{e}")).into_vec();
    out[0].1.bytes().to_vec()
}

/// Bytes that the chain takes when all stays, and what it gives.
fn whole(of: &[usize], list: &[u32]) -> (u64, Vec<Vec<u8>>) {
    let b = bench(false, None, list);
    let s = b.session(chain(of));
    let want = (0..3).map(|i| bits(&s, i)).collect();
    (b.gpu.memory().allocated, want)
}

/// The chain of the matrices `of` gives the same bits with less memory than its weights take, a kernel staying, without a
/// call of the driver; `list` says which steps are the host's.
fn same_bits(of: &[usize], list: &[u32], drawn: &mut fastrand::Rng) {
    let (all, want) = whole(of, list);
    let mut streamed = vec![];
    // From few of the weights missing to as little as two places, or one, need.
    for missing in [1u64, 3, 5] {
        let memory = all - missing * WEIGHT / 2 - drawn.u64(..WEIGHT / 4);
        let b = bench(true, Some(memory), list);
        let s = b.session(chain(of));
        let got: Vec<Vec<u8>> = (0..3).map(|i| bits(&s, i)).collect();
        assert_eq!(got, want, "{of:?} in {memory} of {all} bytes");
        assert!(b.stays(), "{of:?} in {memory} of {all} bytes");
        let (calls, moved) = (b.driver.calls(0), b.gpu.moved().to_device);
        for turn in 0..2 {
            assert_eq!(bits(&s, turn), want[turn as usize]);
        }
        let each = (b.gpu.moved().to_device - moved) / 2;
        streamed.push(each / WEIGHT);
        assert_eq!(b.driver.calls(0), calls);
        let peak = b.gpu.memory().peak;
        assert!(peak <= memory, "{peak} of {memory}");
    }
    println!("{of:?}, {list:?}: weights that come with a request {streamed:?}");
    assert!(streamed.is_sorted() && streamed[0] >= 1, "{streamed:?}");
    assert!(streamed[2] > streamed[0], "{streamed:?}");
}

fn drawn() -> fastrand::Rng {
    let seed = 0x5f3a_11c7;
    println!("seed {seed:#x}");
    fastrand::Rng::with_seed(seed)
}

#[test]
fn the_same_bits_as_step_by_step_without_a_call_of_the_driver() {
    if !testing::turn("the_same_bits_as_step_by_step_without_a_call_of_the_driver") {
        return;
    }
    let mut drawn = drawn();
    let again = [drawn.usize(..6), drawn.usize(..5)];
    same_bits(&[0, 1, 2, 3, 4, 5, again[0], again[1]], &[], &mut drawn);
}

/// A matrix of a step of the host stays with the host: each step has its own there.
const OF_TWO_DEVICES: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

#[test]
fn the_same_bits_with_two_steps_of_the_host() {
    if !testing::turn("the_same_bits_with_two_steps_of_the_host") {
        return;
    }
    let list = [1, 0, 1, 1, 0, 1, 1, 1];
    same_bits(&OF_TWO_DEVICES, &list, &mut drawn());
}

#[test]
fn the_same_bits_with_one_step_of_the_host() {
    if !testing::turn("the_same_bits_with_one_step_of_the_host") {
        return;
    }
    let list = [1, 1, 1, 1, 1, 0, 1, 1];
    same_bits(&OF_TWO_DEVICES, &list, &mut drawn());
}

#[test]
fn weights_on_their_way_are_in_the_timeline_and_requests_take_turns() {
    if !testing::turn("weights_on_their_way_are_in_the_timeline_and_requests_take_turns") {
        return;
    }
    let of: Vec<usize> = (0..6).collect();
    let (all, want) = whole(&of, &[]);
    let b = bench(true, Some(all - 2 * WEIGHT), &[]);
    let s = b.session(chain(&of));
    assert_eq!(bits(&s, 0), want[0]);
    let mut t = shopfloor::Timeline::default();
    s.run_timed(&[("x", &input(1))], &mut t).unwrap();
    let uploads = t.device.iter().filter(|d| d.what == Activity::Upload);
    let loads: Vec<_> = uploads.filter(|d| d.bytes == WEIGHT).collect();
    assert!(loads.len() >= 2, "{:?}", t.device);
    for l in loads {
        let reads = |d: &&plan::DeviceSpan| d.what == Activity::Kernel && d.step == l.step;
        let k = t.device.iter().find(reads).expect("the step that reads it");
        assert!(l.end_ns <= k.end_ns && l.start_ns < k.end_ns, "{l:?} {k:?}");
    }
    std::thread::scope(|scope| {
        for i in 0..5u64 {
            let (s, want) = (&s, &want);
            scope.spawn(move || assert_eq!(bits(s, i % 3), want[(i % 3) as usize]));
        }
    });
    assert!(b.stays());
}

#[test]
fn what_is_called_off_leaves_no_weight_behind() {
    if !testing::turn("what_is_called_off_leaves_no_weight_behind") {
        return;
    }
    let of: Vec<usize> = (0..6).collect();
    let (all, want) = whole(&of, &[]);
    let b = bench(true, Some(all - 2 * WEIGHT), &[]);
    let s = b.session(chain(&of));
    assert_eq!(bits(&s, 0), want[0]);
    for k in [1, 7, 30, 90, 200, 400] {
        let off = Cancel::new();
        let tell = off.clone();
        b.driver.watch(0, move |h| {
            if h == Happened::Polled(k) {
                tell.cancel();
            }
        });
        let call = Call {
            cancel: Some(&off),
            deadline: None,
        };
        let done = s.run_call(&[("x", &input(1))], call);
        let over = matches!(done, Err(Error::Run(RunError::Cancelled)));
        assert!(over || !off.is_cancelled() || done.is_ok(), "{k}");
        b.driver.watch(0, |_| {});
        assert_eq!(bits(&s, 2), want[2], "behind {k}");
        assert!(b.stays());
    }
}

#[test]
fn whatever_streams_step_by_step_runs_where_a_kernel_was_to_stay() {
    if !testing::turn("whatever_streams_step_by_step_runs_where_a_kernel_was_to_stay") {
        return;
    }
    let of: Vec<usize> = (0..4).collect();
    let (all, want) = whole(&of, &[]);
    let (mut staying, mut stepping) = (0, 0);
    let mut memory = all;
    loop {
        memory -= WEIGHT / 8;
        let steps = bench(false, Some(memory), &[]);
        let builder = Session::builder().with_engine(steps.engine.clone());
        let can = builder.commit(chain(&of)).unwrap();
        if can.run(&[("x", &input(0))]).is_err() {
            break;
        }
        let b = bench(true, Some(memory), &[]);
        let s = b.session(chain(&of));
        for i in 0..2 {
            assert_eq!(bits(&s, i), want[i as usize], "{memory} of {all} bytes");
        }
        match b.stays() {
            true => staying += 1,
            false => stepping += 1,
        }
        assert!(b.gpu.memory().peak <= memory);
    }
    // With the least there is no room for the kernel's tables.
    println!("{staying} limits with a kernel that stays, {stepping} step by step");
    assert!(staying > 0 && stepping > 0, "{staying} {stepping}");
}
