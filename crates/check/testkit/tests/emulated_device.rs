//! What the device for NVIDIA GPUs promises beside numbers, on emulated ones: memory, failures, streamed
//! weights, unified buffers, the device's clock.
use cuda::{CudaDevice, CudaOptions};
use cuda_emulated::{EmulatedDriver, EmulatedGpu, Fault};
use graph::{ContractSpec, GraphBuilder, Op, Origin};
use layout::{DType, Dim};
use plan::Activity;
use runtime::Engine;
use shopfloor::{Machine, Model, ModelOptions, Session, Tensor, UnifiedBuffer};
use std::sync::Arc;
use tensor::WeightStore;

/// Width of the products of the chain: 16 KiB of f32 each.
const WIDTH: usize = 64;

/// A model of `nodes` products of a row with square matrices of their own.
fn chain(nodes: usize) -> Model {
    let mut weights = WeightStore::new();
    let mut ids = vec![];
    for i in 0..nodes {
        let value = |j: usize| ((i * 31 + j * 7) % 17) as f32 / 68.0 - 0.1;
        let matrix: Vec<f32> = (0..WIDTH * WIDTH).map(value).collect();
        let t = Tensor::from_f32(&[WIDTH, WIDTH], &matrix).unwrap();
        ids.push(weights.add_tensor(&format!("w{i}"), t).unwrap());
    }
    let mut b = GraphBuilder::new("chain", Arc::new(weights));
    let mut x = b.input("x", DType::F32, vec![Dim::from(1usize), Dim::from(WIDTH)]);
    for (i, id) in ids.into_iter().enumerate() {
        let origin = Origin {
            name: format!("product{i}"),
            op_type: "MatMul".into(),
        };
        let spec = ContractSpec {
            a: vec![0, 1],
            b: vec![1, 2],
            out: vec![0, 2],
        };
        let w = b.weight(id).unwrap();
        let name = format!("y{i}");
        x = b
            .node(Op::Contract(spec), &[x, w], &[&name], &origin)
            .unwrap()[0];
    }
    let graph = b.finish(&[x]);
    Model::from_graph("chain", &graph, &ModelOptions::default()).unwrap()
}

fn input() -> Tensor {
    let values: Vec<f32> = (0..WIDTH).map(|i| i as f32 / 64.0 - 0.3).collect();
    Tensor::from_f32(&[1, WIDTH], &values).unwrap()
}

struct Bench {
    driver: EmulatedDriver,
    device: Arc<CudaDevice>,
    engine: Arc<Engine>,
}

fn bench(gpu: EmulatedGpu, options: CudaOptions) -> Bench {
    let driver = EmulatedDriver::new(vec![gpu.with_sms(4)]);
    let machine = Machine::load("a100").unwrap();
    let device = CudaDevice::open("emulated:a100", &driver, 0, machine, options).unwrap();
    let device = Arc::new(device);
    let own = {
        use device::Device;
        (device.machine().clone(), device.target().clone())
    };
    let planner = planner::Planner::new(vec![own], planner::PlanOptions::default());
    Bench {
        driver,
        engine: Engine::new(device.clone(), Arc::new(planner)),
        device,
    }
}

fn a100() -> EmulatedGpu {
    EmulatedGpu::named("a100").unwrap()
}

fn session(b: &Bench, model: Model) -> Session {
    let builder = Session::builder().with_engine(b.engine.clone());
    builder.commit(model).unwrap()
}

fn want(nodes: usize) -> Vec<f32> {
    let s = Session::builder().with_threads(1).commit(chain(nodes));
    let outs = s.unwrap().run(&[("x", &input())]).unwrap().into_vec();
    outs[0].1.to_f32().unwrap()
}

fn near(got: &Tensor, want: &[f32]) {
    let scale = want.iter().fold(0f32, |m, v| m.max(v.abs()));
    for (g, w) in got.to_f32().unwrap().iter().zip(want) {
        assert!((g - w).abs() <= 1e-5 * scale, "{g} {w}");
    }
}

#[test]
fn weights_that_do_not_fit_are_streamed_ahead_of_use() {
    const NODES: usize = 6;
    let want = want(NODES);
    let all = bench(a100(), CudaOptions::default());
    let s = session(&all, chain(NODES));
    near(&s.run(&[("x", &input())]).unwrap().into_vec()[0].1, &want);
    let resident = all.device.memory().allocated;
    let once = all.device.moved().to_device;
    assert!(resident > (NODES * WIDTH * WIDTH * 4) as u64);

    // Half of the weights find no room.
    let memory = resident - 3 * 16384 + 8192;
    let options = |streaming| CudaOptions {
        memory: Some(memory),
        streaming,
        ..CudaOptions::default()
    };
    let few = bench(a100(), options(true));
    let s = session(&few, chain(NODES));
    for _ in 0..3 {
        near(&s.run(&[("x", &input())]).unwrap().into_vec()[0].1, &want);
    }
    assert!(few.device.memory().peak <= memory);
    let streamed = few.device.moved().to_device;
    assert!(streamed > once + 3 * 3 * 16384 - 16384, "{streamed} {once}");
    let mut t = shopfloor::Timeline::default();
    s.run_timed(&[("x", &input())], &mut t).unwrap();
    let copies: Vec<_> = t.device.iter().filter(|s| s.bytes == 16384).collect();
    assert!(copies.len() >= 3, "{:?}", t.device);
    // Copies run while steps do.
    let kernels = || t.device.iter().filter(|s| s.what == Activity::Kernel);
    let beside = |c: &&&plan::DeviceSpan| {
        kernels().any(|k| k.step < c.step && k.start_ns < c.end_ns && c.start_ns < k.end_ns)
    };
    assert!(copies.iter().filter(beside).count() > 0, "{:?}", t.device);

    let none = bench(a100(), options(false));
    let s = session(&none, chain(NODES));
    let e = s.run(&[("x", &input())]).map(drop).unwrap_err().to_string();
    assert!(
        e.contains("without streaming") && e.contains("weights take"),
        "{e}"
    );
    // A GPU that has only so much memory is no different from a limit.
    let small = bench(a100().with_memory(resident - 16384), CudaOptions::default());
    assert!(small.device.info().memory_bytes < resident);
}

/// A model that doubles `n` numbers.
fn doubles(n: usize) -> Model {
    let mut b = GraphBuilder::new("doubles", Arc::new(WeightStore::new()));
    let mut e = expr::ExprBuilder::new();
    let x = e.input(0, DType::F32);
    let y = e.add(x, x);
    let x = b.input("x", DType::F32, vec![Dim::from(n)]);
    let origin = Origin {
        name: "double".into(),
        op_type: "Add".into(),
    };
    let y = b.node(Op::Map(e.finish(&[y])), &[x], &["y"], &origin);
    let graph = b.finish(&[y.unwrap()[0]]);
    Model::from_graph("doubles", &graph, &ModelOptions::default()).unwrap()
}

#[test]
fn values_of_many_pieces_come_and_go_whole() {
    if !testing::turn("values_of_many_pieces_come_and_go_whole") {
        return;
    }
    // More than each of the threads that copy has one of, and a piece that is not full.
    let n = (9 * machine::staging::PIECE + 20) / 4;
    assert!(machine::staging::threads(n * 4) > 2);
    let values: Vec<f32> = (0..n).map(|i| i as f32 - 7e5).collect();
    let x = Tensor::from_f32(&[n], &values).unwrap();
    for integrated in [false, true] {
        let mut gpu = a100();
        gpu.info.integrated = integrated;
        let b = bench(gpu, CudaOptions::default());
        let s = session(&b, doubles(n));
        let right = |y: &Tensor| {
            let got = y.to_f32().unwrap();
            assert!(got.len() == n && got.iter().zip(&values).all(|(y, x)| *y == 2.0 * x));
        };
        right(&s.run(&[("x", &x)]).unwrap().into_vec()[0].1);
        let mut t = shopfloor::Timeline::default();
        let out = s.run_timed(&[("x", &x)], &mut t).unwrap();
        right(&out.into_vec()[0].1);
        let moved = t.device.iter().filter(|s| s.what != Activity::Kernel);
        let bytes: Vec<u64> = moved.filter(|s| s.bytes > 0).map(|s| s.bytes).collect();
        let want = if integrated {
            vec![]
        } else {
            vec![n as u64 * 4; 2]
        };
        assert_eq!(bytes, want);
    }
}

#[test]
fn what_the_driver_refuses_is_the_requests_error() {
    let options = CudaOptions {
        launch: Some(machine::Way::Steps),
        ..CudaOptions::default()
    };
    let b = bench(a100(), options);
    let s = session(&b, chain(3));
    let x = input();
    let run = || s.run(&[("x", &x)]).map(|o| o.into_vec().remove(0).1);
    let want = want(3);
    near(&run().unwrap(), &want);
    b.driver.inject(0, Fault::Launch { at: 1 });
    let e = run().unwrap_err().to_string();
    assert!(e.contains("step '") && e.contains("made to fail"), "{e}");
    near(&run().unwrap(), &want);
    // No memory for another model, and the first one goes on.
    b.driver.inject(0, Fault::Largest { bytes: 1000 });
    let other = session(&b, chain(4));
    let e = other.run(&[("x", &x)]).map(drop).unwrap_err().to_string();
    assert!(e.contains("out of device memory"), "{e}");
    b.driver.clear(0);
    near(&run().unwrap(), &want);
    b.driver.inject(0, Fault::Lost { at: 4 });
    for _ in 0..2 {
        let e = run().unwrap_err().to_string();
        assert!(e.contains("lost") && e.contains("emulated:a100"), "{e}");
    }
}

#[test]
fn equal_kernels_are_loaded_once_and_memory_goes_back() {
    let b = bench(a100(), CudaOptions::default());
    let s = session(&b, chain(5));
    s.run(&[("x", &input())]).unwrap();
    assert!(b.device.modules() < 5, "{}", b.device.modules());
    assert!(b.device.memory().allocated > 5 * 16384);
    drop(s);
    let m = b.device.memory();
    assert!(m.allocated == 0 && m.reserved > 0, "{m:?}");
}

#[test]
fn buffers_cross_the_link_only_when_somebody_needs_them_elsewhere() {
    let b = bench(a100(), CudaOptions::default());
    let s = session(&b, chain(2));
    let bytes = (WIDTH * 4) as u64;
    let x = UnifiedBuffer::from(input());
    let first = s.run_unified(&[("x", &x)]).unwrap();
    let base = b.device.moved();
    let (name, y) = &first[0];
    assert_eq!(
        (name.as_str(), y.valid_in()),
        ("y1", vec!["emulated:a100".to_string()])
    );
    assert_eq!(x.moved().to_device, bytes);
    // The output is the next request's input, where it is.
    let second = s.run_unified(&[("x", y)]).unwrap();
    s.run_unified(&[("x", &x)]).unwrap();
    let now = b.device.moved();
    assert_eq!((now.to_device, now.to_host), (base.to_device, base.to_host));
    let seen = second[0].1.host().unwrap();
    assert_eq!(second[0].1.moved().to_host, bytes);
    let y = y.host().unwrap();
    let again = s.run(&[("x", &y)]).unwrap().into_vec();
    assert_eq!(seen.to_f32().unwrap(), again[0].1.to_f32().unwrap());
    near(&y, &want(2));
    // On the CPU there is one place.
    let cpu = Session::builder().with_threads(1).commit(chain(2)).unwrap();
    let out = cpu.run_unified(&[("x", &x)]).unwrap();
    assert_eq!(out[0].1.valid_in(), ["host"]);
    near(&out[0].1.host().unwrap(), &want(2));
}

#[test]
fn a_gpu_without_memory_of_its_own_moves_nothing() {
    let mut gpu = a100();
    gpu.info.integrated = true;
    let b = bench(gpu, CudaOptions::default());
    let s = session(&b, chain(2));
    let x = UnifiedBuffer::from(input());
    let out = s.run_unified(&[("x", &x)]).unwrap();
    near(&out[0].1.host().unwrap(), &want(2));
    near(
        &s.run(&[("x", &input())]).unwrap().into_vec()[0].1,
        &want(2),
    );
    assert_eq!(x.moved(), shopfloor::Transfers::default());
    assert_eq!(b.device.moved(), cuda::Moved::default());
}

#[test]
fn steps_of_the_host_share_the_memory_of_a_gpu_without_its_own() {
    use device::Device;
    for (integrated, list) in [
        (false, [1, 0, 1, 0]),
        (true, [1, 0, 1, 0]),
        (true, [0, 1, 0, 1]),
    ] {
        let mut gpu = a100();
        gpu.info.integrated = integrated;
        let driver = EmulatedDriver::new(vec![gpu.with_sms(4)]);
        let machine = Machine::load("a100").unwrap();
        let host: Arc<dyn Device> =
            Arc::new(cpu::CpuDevice::new(cpu::CpuOptions::default()).unwrap());
        let options = CudaOptions::default();
        let gpu = CudaDevice::open("emulated:a100", &driver, 0, machine, options).unwrap();
        let gpu = Arc::new(gpu.with_host(host.clone()));
        let side = |d: &dyn Device| (d.machine().clone(), d.target().clone());
        let options = planner::PlanOptions {
            placement: planner::Placement::Listed(list.to_vec()),
            ..planner::PlanOptions::default()
        };
        let planner = planner::Planner::new(vec![side(&*host), side(&*gpu)], options);
        let engine = Engine::new(gpu.clone(), Arc::new(planner));
        let s = Session::builder().with_engine(engine);
        let s = s.commit(chain(4)).unwrap();
        let weights = gpu.moved();
        for _ in 0..2 {
            let out = s.run(&[("x", &input())]).unwrap().into_vec();
            near(&out[0].1, &want(4));
        }
        // Values go between the steps all the same: over a link, or none.
        let moved = gpu.moved();
        assert_eq!(moved == weights, integrated, "{weights:?} {moved:?}");
    }
}

#[test]
fn timelines_have_the_devices_clock_beside_the_hosts() {
    let b = bench(a100(), CudaOptions::default());
    let s = session(&b, chain(3));
    let mut t = shopfloor::Timeline::default();
    s.run_timed(&[("x", &input())], &mut t).unwrap();
    assert_eq!(t.lanes.len(), 2);
    let of = |what| t.device.iter().filter(move |s| s.what == what);
    assert_eq!(of(Activity::Kernel).count(), t.steps.len());
    assert_eq!(
        (of(Activity::Upload).count(), of(Activity::Download).count()),
        (1, 1)
    );
    let mut end = 0;
    for k in of(Activity::Kernel) {
        assert!(k.start_ns >= end && k.end_ns > k.start_ns, "{:?}", t.device);
        end = k.end_ns;
    }
    assert_eq!(t.spans.len(), t.steps.len());
    // The same model takes the same time, to the nanosecond: the clock is emulated.
    let mut u = shopfloor::Timeline::default();
    s.run_timed(&[("x", &input())], &mut u).unwrap();
    let length = |t: &shopfloor::Timeline| -> Vec<u64> {
        let all = t.device.iter();
        all.map(|s| (s.end_ns - s.start_ns) / 10).collect()
    };
    assert_eq!(length(&t), length(&u));
}
