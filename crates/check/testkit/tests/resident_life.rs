//! The life of a kernel that stays on a GPU, on an emulated one: it starts, takes requests without a call
//! of the driver, idles, makes room for another, survives more requests than it has entries, failed tasks
//! and a wait that never ends.
use cuda::{CudaDevice, CudaOptions};
use cuda_emulated::{EmulatedDriver, EmulatedGpu, Fault};
use device::Device;
use graph::{ContractSpec, Graph, GraphBuilder, Op, Origin};
use layout::{DType, Dim};
use runtime::Engine;
use shopfloor::{Machine, Model, ModelOptions, Session, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tensor::WeightStore;

const WIDTH: usize = 64;
const ROWS: usize = 96;

fn origin(name: String, op: &str) -> Origin {
    Origin {
        name,
        op_type: op.into(),
    }
}

fn matrix(weights: &mut WeightStore, i: usize) -> tensor::WeightId {
    let value = |j: usize| ((i * 31 + j * 7) % 17) as f32 / 68.0 - 0.1;
    let m: Vec<f32> = (0..WIDTH * WIDTH).map(value).collect();
    let t = Tensor::from_f32(&[WIDTH, WIDTH], &m).unwrap();
    weights.add_tensor(&format!("w{i}"), t).unwrap()
}

fn product() -> Op {
    Op::Contract(ContractSpec {
        a: vec![0, 1],
        b: vec![1, 2],
        out: vec![0, 2],
    })
}

/// `nodes` products, of rows that an index picks from a table where `picks` says so.
fn graph(nodes: usize, picks: bool) -> Graph {
    let mut weights = WeightStore::new();
    let ids: Vec<_> = (0..nodes).map(|i| matrix(&mut weights, i)).collect();
    let mut b = GraphBuilder::new("chain", Arc::new(weights));
    let sizes = vec![Dim::from(ROWS), Dim::from(WIDTH)];
    let mut x = b.input("x", DType::F32, sizes);
    if picks {
        let index = b.input("index", DType::I64, vec![Dim::from(4usize)]);
        let o = origin("pick".into(), "Gather");
        x = b
            .node(
                Op::Gather { axis: 0, batch: 0 },
                &[x, index],
                &["picked"],
                &o,
            )
            .unwrap()[0];
    }
    for (i, id) in ids.into_iter().enumerate() {
        let w = b.weight(id).unwrap();
        let o = origin(format!("product{i}"), "MatMul");
        x = b.node(product(), &[x, w], &[&format!("y{i}")], &o).unwrap()[0];
    }
    b.finish(&[x])
}

fn model(nodes: usize, picks: bool) -> Model {
    Model::from_graph("chain", &graph(nodes, picks), &ModelOptions::default()).unwrap()
}

fn input(seed: usize) -> Tensor {
    let value = |i: usize| ((i * 13 + seed * 5) % 64) as f32 / 64.0 - 0.3;
    let values: Vec<f32> = (0..ROWS * WIDTH).map(value).collect();
    Tensor::from_f32(&[ROWS, WIDTH], &values).unwrap()
}

struct Bench {
    driver: EmulatedDriver,
    engine: Arc<Engine>,
}

/// An emulated A100 of `sms` SMs; requests stand still for as long as `watchdog` at most.
fn bench(resident: bool, watchdog: Duration) -> Bench {
    let gpu = EmulatedGpu::named("a100").unwrap().with_sms(3);
    let driver = EmulatedDriver::new(vec![gpu]);
    let engine = engine(&driver, resident, watchdog);
    Bench { driver, engine }
}

/// An engine on the GPU of `driver`.
fn engine(driver: &EmulatedDriver, resident: bool, watchdog: Duration) -> Arc<Engine> {
    let machine = Machine::load("a100").unwrap();
    let options = CudaOptions {
        launch: Some(match resident {
            true => machine::Way::Resident,
            false => machine::Way::Steps,
        }),
        watchdog,
        ..CudaOptions::default()
    };
    let device = CudaDevice::open("emulated:a100", driver, 0, machine, options).unwrap();
    let device = Arc::new(device);
    let own = (device.machine().clone(), device.target().clone());
    let planner = planner::Planner::new(vec![own], planner::PlanOptions::default());
    Engine::new(device, Arc::new(planner))
}

/// Long enough that nothing here is taken for a hang.
const LONG: Duration = Duration::from_secs(600);

fn session(b: &Bench, model: Model) -> Session {
    let builder = Session::builder().with_engine(b.engine.clone());
    builder.commit(model).unwrap()
}

fn run(s: &Session, x: &Tensor) -> Result<Vec<f32>, String> {
    let out = s.run(&[("x", x)]).map_err(|e| e.to_string())?;
    Ok(out.into_vec().remove(0).1.to_f32().unwrap())
}

/// What the same GPU gives step by step.
fn want(nodes: usize, x: &Tensor) -> Vec<f32> {
    let b = bench(false, LONG);
    run(&session(&b, model(nodes, false)), x).unwrap()
}

type Calls = BTreeMap<&'static str, u64>;

/// Calls that were made since `before`.
fn since(before: &Calls, now: &Calls) -> Calls {
    let more = now
        .iter()
        .map(|(k, n)| (*k, n - before.get(k).unwrap_or(&0)));
    more.filter(|(_, n)| *n > 0).collect()
}

#[test]
fn a_request_makes_no_call_of_the_driver() {
    let b = bench(true, LONG);
    let s = session(&b, model(3, false));
    let inputs: Vec<Tensor> = (0..3).map(input).collect();
    let wanted: Vec<Vec<f32>> = inputs.iter().map(|x| want(3, x)).collect();
    assert_eq!(run(&s, &inputs[0]).unwrap(), wanted[0]);
    let before = b.driver.calls(0);
    assert_eq!(before.get("cuLaunchKernel"), Some(&1));
    for turn in 0..12 {
        let i = turn % 3;
        assert_eq!(run(&s, &inputs[i]).unwrap(), wanted[i], "turn {turn}");
    }
    // A request without work there and back: two ways over the link and a hand-off, some microseconds.
    let device = b.engine.device();
    for _ in 0..3 {
        let ns = device.round_trip_ns().unwrap().expect("an answer");
        assert!((1000..20_000).contains(&ns), "{ns} ns");
    }
    assert_eq!(since(&before, &b.driver.calls(0)), Calls::new());
}

#[test]
fn more_requests_than_entries_wait_for_their_turn() {
    if !testing::turn("more_requests_than_entries_wait_for_their_turn") {
        return;
    }
    let b = bench(true, LONG);
    let s = session(&b, model(2, false));
    let inputs: Vec<Tensor> = (0..9).map(input).collect();
    let wanted: Vec<Vec<f32>> = inputs.iter().map(|x| want(2, x)).collect();
    assert_eq!(run(&s, &inputs[0]).unwrap(), wanted[0]);
    let before = b.driver.calls(0);
    std::thread::scope(|scope| {
        for (x, want) in inputs.iter().zip(&wanted) {
            let s = &s;
            scope.spawn(move || {
                for _ in 0..3 {
                    assert_eq!(&run(s, x).unwrap(), want);
                }
            });
        }
    });
    assert_eq!(since(&before, &b.driver.calls(0)), Calls::new());
}

#[test]
fn plans_take_turns_without_loading_anything() {
    let b = bench(true, LONG);
    let x = input(0);
    let (one, two) = (session(&b, model(2, false)), session(&b, model(4, false)));
    let (first, second) = (want(2, &x), want(4, &x));
    assert_eq!(run(&one, &x).unwrap(), first);
    // Another plan is compiled: what runs leaves for that, since a load may wait for it.
    assert_eq!(run(&two, &x).unwrap(), second);
    let before = b.driver.calls(0);
    for _ in 0..2 {
        assert_eq!(run(&one, &x).unwrap(), first);
        assert_eq!(run(&two, &x).unwrap(), second);
    }
    let calls = since(&before, &b.driver.calls(0));
    assert_eq!(calls.get("cuLaunchKernel"), Some(&4), "{calls:?}");
    for none in [
        "cuModuleLoadDataEx",
        "cuMemAlloc",
        "cuMemHostAlloc",
        "cuMemFree",
    ] {
        assert_eq!(calls.get(none), None, "{calls:?}");
    }
    // One of them goes, memory and module with it; the other goes on.
    drop(two);
    assert_eq!(run(&one, &x).unwrap(), first);
}

#[test]
fn engines_of_one_gpu_make_room_for_each_other() {
    if !testing::turn("engines_of_one_gpu_make_room_for_each_other") {
        return;
    }
    // On a real GPU all of a process share its primary context: what one asks of the driver waits for a
    // kernel of another, for as long as that stays.
    let b = bench(true, LONG);
    let x = input(0);
    let stays = session(&b, model(3, false));
    let first = run(&stays, &x).unwrap();
    for resident in [false, true] {
        let other = Bench {
            driver: EmulatedDriver::new(vec![]),
            engine: engine(&b.driver, resident, LONG),
        };
        let s = session(&other, model(3, false));
        assert_eq!(run(&s, &x).unwrap(), first);
        assert_eq!(run(&stays, &x).unwrap(), first);
        assert_eq!(run(&s, &x).unwrap(), first);
        drop(s);
        assert_eq!(run(&stays, &x).unwrap(), first);
    }
}

#[test]
fn a_failed_task_is_its_requests_error_and_others_go_on() {
    let b = bench(true, LONG);
    let s = session(&b, model(2, true));
    let x = input(0);
    let run = |index: [i64; 4]| {
        let index = Tensor::from_i64(&[4], &index).unwrap();
        let out = s.run(&[("x", &x), ("index", &index)]);
        out.map(|o| o.into_vec().remove(0).1.to_f32().unwrap())
    };
    let well = run([1, 0, 95, 7]).unwrap();
    let before = b.driver.calls(0);
    for _ in 0..2 {
        let e = run([0, 1, 2, 96]).unwrap_err().to_string();
        assert!(e.contains("step '") && e.contains("pick"), "{e}");
        assert_eq!(run([1, 0, 95, 7]).unwrap(), well);
    }
    assert_eq!(since(&before, &b.driver.calls(0)), Calls::new());
}

#[test]
fn a_hang_shows_what_every_worker_does_and_the_next_request_works() {
    if !testing::turn("a_hang_shows_what_every_worker_does_and_the_next_request_works") {
        return;
    }
    let b = bench(true, Duration::from_millis(400));
    let x = input(0);
    let broken = session(&b, model(3, false));
    // A compiler that lost the counting of tasks.
    for text in [
        "@!%p red.relaxed.gpu.global.add.u32 [%x], 1;",
        "red.relaxed.gpu.global.add.u32 [%x], 1;",
        "red.relaxed.gpu.global.add.u32 [%x], %count;",
    ] {
        b.driver.inject(0, Fault::Compiled { from: text, to: "" });
    }
    for _ in 0..2 {
        let e = run(&broken, &x).unwrap_err();
        println!("{e}");
        assert!(e.contains("nothing of it moved"), "{e}");
        // Every worker with its task, and for the late ones counter, goal and value.
        assert!(e.contains("worker  request  state"), "{e}");
        assert!(e.contains("waits for") && e.contains("to reach"), "{e}");
        assert!(
            e.contains("product") || e.contains("copy of an input"),
            "{e}"
        );
    }
    // The GPU is not lost: the kernel left, and a plan that was compiled well runs.
    b.driver.clear(0);
    let index = Tensor::from_i64(&[4], &[3, 0, 1, 2]).unwrap();
    let well = |b: &Bench| {
        let s = session(b, model(2, true));
        let out = s.run(&[("x", &x), ("index", &index)]).unwrap();
        out.into_vec().remove(0).1.to_f32().unwrap()
    };
    assert_eq!(well(&b), well(&bench(false, LONG)));
}

/// The GPU with a host whose steps are those that `list` places at 0, in turn.
fn shared(resident: bool, list: &[u32]) -> Bench {
    let driver = EmulatedDriver::new(vec![EmulatedGpu::named("a100").unwrap().with_sms(3)]);
    let machine = Machine::load("a100").unwrap();
    let options = cpu::CpuOptions {
        threads: Some(1),
        ..cpu::CpuOptions::default()
    };
    let host: Arc<dyn Device> = Arc::new(cpu::CpuDevice::new(options).unwrap());
    let options = CudaOptions {
        launch: Some(match resident {
            true => machine::Way::Resident,
            false => machine::Way::Steps,
        }),
        watchdog: LONG,
        ..CudaOptions::default()
    };
    let gpu = CudaDevice::open("emulated:a100", &driver, 0, machine, options).unwrap();
    let gpu = Arc::new(gpu.with_host(host.clone()));
    let side = |d: &dyn Device| (d.machine().clone(), d.target().clone());
    let options = planner::PlanOptions {
        placement: planner::Placement::Listed(list.to_vec()),
        ..planner::PlanOptions::default()
    };
    let planner = planner::Planner::new(vec![side(&*host), side(&*gpu)], options);
    Bench {
        driver,
        engine: Engine::new(gpu, Arc::new(planner)),
    }
}

#[test]
fn steps_of_the_host_come_between_stretches_of_the_kernels() {
    if !testing::turn("steps_of_the_host_come_between_stretches_of_the_kernels") {
        return;
    }
    for (list, picks) in [
        ([1, 0, 1, 1, 0, 1], false),
        ([0, 1, 1, 0, 0, 1], false),
        ([1, 1, 0, 1, 0, 0], true),
        ([0, 1, 0, 1, 0, 1], true),
    ] {
        let index = Tensor::from_i64(&[4], &[3, 0, 95, 2]).unwrap();
        let run = |s: &Session, x: &Tensor| {
            let mut given = vec![("x", x)];
            given.extend(picks.then_some(("index", &index)));
            let out = s.run(&given).map_err(|e| e.to_string()).unwrap();
            out.into_vec().remove(0).1.to_f32().unwrap()
        };
        let inputs: Vec<Tensor> = (0..3).map(input).collect();
        let steps = shared(false, &list);
        let steps = session(&steps, model(5, picks));
        let b = shared(true, &list);
        let s = session(&b, model(5, picks));
        assert_eq!(run(&s, &inputs[0]), run(&steps, &inputs[0]), "{list:?}");
        let before = b.driver.calls(0);
        assert_eq!(before.get("cuLaunchKernel"), Some(&1), "{list:?}");
        for x in inputs.iter().chain(&inputs) {
            assert_eq!(run(&s, x), run(&steps, x), "{list:?}");
        }
        std::thread::scope(|scope| {
            for x in &inputs {
                let (s, want) = (&s, run(&steps, x));
                scope.spawn(move || assert_eq!(run(s, x), want));
            }
        });
        assert_eq!(since(&before, &b.driver.calls(0)), Calls::new());
    }
}

#[test]
fn workers_tell_the_time_of_requests_with_a_timeline() {
    if !testing::turn("workers_tell_the_time_of_requests_with_a_timeline") {
        return;
    }
    for list in [[1, 1, 1, 1], [1, 0, 1, 1]] {
        let b = shared(true, &list);
        let s = session(&b, model(4, false));
        let x = input(1);
        let want = run(&s, &x).unwrap();
        let before = b.driver.calls(0);
        for turn in 0..3 {
            let mut t = shopfloor::Timeline::default();
            let out = s.run_timed(&[("x", &x)], &mut t).unwrap();
            assert_eq!(out.into_vec().remove(0).1.to_f32().unwrap(), want);
            assert_eq!(run(&s, &x).unwrap(), want, "turn {turn}");
            let plans = s.runtime().plans();
            let steps: Vec<_> = plans[0].plan().blocks().flat_map(|b| &b.steps).collect();
            assert_eq!(t.steps.len(), steps.len());
            // Every step has a time, those of the kernel by several workers, who did all its tasks.
            let mut workers = std::collections::BTreeSet::new();
            for (i, step) in steps.iter().enumerate() {
                let of = || t.spans.iter().filter(|s| s.step == i as u32);
                assert!(of().count() > 0, "{} {:?}", step.name, t.spans);
                assert!(of().all(|s| s.end_ns >= s.start_ns));
                if step.device == 1 {
                    let done: u32 = of().map(|s| s.tasks).sum();
                    assert_eq!(Some(i64::from(done)), step.tasks.known(), "{}", step.name);
                    workers.extend(of().map(|s| s.worker));
                }
            }
            assert!(workers.len() > 1, "{workers:?}");
            // By the device's own clock a product ends after the one before it.
            let kernels = t.device.iter().filter(|d| d.what == plan::Activity::Kernel);
            let mut end = 0;
            for k in kernels {
                assert!(k.end_ns > end && k.end_ns > k.start_ns, "{:?}", t.device);
                end = k.end_ns;
            }
            assert!(t.device.iter().any(|d| d.what == plan::Activity::Upload));
            assert!(t.total_ns > 0);
        }
        assert_eq!(since(&before, &b.driver.calls(0)), Calls::new());
    }
}

#[test]
fn an_answer_that_the_host_may_not_see_is_found() {
    // The answer is released to the GPU alone.
    let b = bench(true, LONG);
    b.driver.inject(
        0,
        Fault::Compiled {
            from: "st.release.sys.global.u32 [%y+",
            to: "st.release.gpu.global.u32 [%y+",
        },
    );
    let s = session(&b, model(2, false));
    let _ = run(&s, &input(0));
    // The kernel's end tells what was found while it ran.
    let e = session(&b, model(1, false))
        .run(&[("x", &input(0))])
        .map(drop);
    let e = e.unwrap_err().to_string();
    assert!(e.contains("scopes do not include"), "{e}");
}

#[test]
fn a_kernel_that_cannot_start_or_a_lost_gpu_is_an_error() {
    let b = bench(true, LONG);
    let s = session(&b, model(2, false));
    let x = input(0);
    b.driver.inject(0, Fault::Launch { at: 1 });
    let e = run(&s, &x).unwrap_err();
    assert!(e.contains("made to fail"), "{e}");
    let want = want(2, &x);
    assert_eq!(run(&s, &x).unwrap(), want);
    b.driver.inject(0, Fault::Lost { at: 1 });
    // The next call of the driver finds out: that of another plan.
    let other = session(&b, model(3, false));
    let e = run(&other, &x).unwrap_err();
    assert!(e.contains("lost") || e.contains("bus"), "{e}");
    assert!(run(&s, &x).is_err());
}
