//! Streams on a GPU: a cache that stays on the device between requests, step by step and in a kernel that
//! stays, and wherever a plan over the host and the device has it.
use cuda::{CudaDevice, CudaOptions};
use cuda_emulated::{EmulatedDriver, EmulatedGpu};
use device::Device;
use layout::DimBox;
use planner::{Placement, PlanOptions, Planner};
use runtime::Engine;
use shopfloor::{Machine, Session, Tensor};
use std::sync::Arc;
use testkit::handwritten::decoder;

const WIDTH: usize = 16;
const TOKENS: usize = 12;

fn box_of() -> DimBox {
    let mut dims = DimBox::new();
    dims.insert("p", 0, TOKENS as i64 - 1);
    dims
}

fn token(i: usize) -> Tensor {
    let value = |j: usize| ((i * 5 + j * 3) % 11) as f32 / 22.0 - 0.2;
    let values: Vec<f32> = (0..WIDTH).map(value).collect();
    Tensor::from_f32(&[1, WIDTH], &values).expect("a row")
}

/// What a stream gives for every token; `each` is called after it, with what was given.
fn decoded(session: &Session, each: &mut dyn FnMut(usize)) -> Vec<Vec<f32>> {
    let mut stream = session.stream(&box_of()).expect("a stream");
    assert_eq!(stream.in_place(), ["past"]);
    (0..TOKENS)
        .map(|i| {
            let outs = stream.run(&[("x", &token(i))]).expect("a token");
            each(i);
            assert_eq!((outs.len(), outs[0].0.as_str()), (1, "y"));
            outs[0].1.to_f32().expect("floats")
        })
        .collect()
}

fn want() -> Vec<Vec<f32>> {
    let cpu = Session::builder()
        .with_threads(1)
        .commit(decoder(WIDTH, &[]));
    decoded(&cpu.expect("a session"), &mut |_| {})
}

fn near(got: &[Vec<f32>], want: &[Vec<f32>], what: &str) {
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        for (g, w) in g.iter().zip(w) {
            assert!((g - w).abs() <= 1e-5, "{what}, token {i}: {g} {w}");
        }
    }
}

fn gpu(resident: bool) -> CudaDevice {
    let one = EmulatedGpu::named("a100").expect("a GPU").with_sms(4);
    let driver = EmulatedDriver::new(vec![one]);
    let machine = Machine::load("a100").expect("a machine");
    let options = CudaOptions {
        launch: Some(match resident {
            true => machine::Way::Resident,
            false => machine::Way::Steps,
        }),
        watchdog: std::time::Duration::from_secs(60),
        ..CudaOptions::default()
    };
    CudaDevice::open("emulated:a100", &driver, 0, machine, options).expect("a device")
}

fn of(d: &dyn Device) -> (Machine, kernel::Target) {
    (d.machine().clone(), d.target().clone())
}

#[test]
fn a_cache_crosses_no_link() {
    let want = want();
    for resident in [false, true] {
        let device = Arc::new(gpu(resident));
        let planner = Planner::new(vec![of(&*device)], PlanOptions::default());
        let engine = Engine::new(device.clone(), Arc::new(planner));
        let session = Session::builder()
            .with_engine(engine)
            .commit(decoder(WIDTH, &[]));
        let mut moved = vec![];
        let got = decoded(&session.expect("a session"), &mut |_| {
            moved.push(device.moved());
        });
        near(&got, &want, &format!("resident: {resident}"));
        let bytes = (WIDTH * 4) as u64;
        for pair in moved.windows(2) {
            let up = pair[1].to_device - pair[0].to_device;
            let down = pair[1].to_host - pair[0].to_host;
            // The token's row and what comes of it: the cache, of up to 12 rows, stays where it is.
            assert_eq!((up, down), (bytes, bytes), "resident: {resident}");
        }
    }
}

#[test]
fn two_streams_have_two_caches() {
    let want = want();
    for resident in [false, true] {
        let device = Arc::new(gpu(resident));
        let planner = Planner::new(vec![of(&*device)], PlanOptions::default());
        let engine = Engine::new(device, Arc::new(planner));
        let session = Session::builder()
            .with_engine(engine)
            .commit(decoder(WIDTH, &[]));
        let session = session.expect("a session");
        let mut streams =
            [session.stream(&box_of()), session.stream(&box_of())].map(|s| s.expect("a stream"));
        let mut got = [vec![], vec![]];
        // The second is three tokens behind.
        for i in 0..TOKENS + 3 {
            for (s, late) in [(0, 0), (1, 3)] {
                let Some(at) = i.checked_sub(late).filter(|&at| at < TOKENS) else {
                    continue;
                };
                let outs = streams[s].run(&[("x", &token(at))]).expect("a token");
                got[s].push(outs[0].1.to_f32().expect("floats"));
            }
        }
        assert_eq!(streams[0].state_places(), ["emulated:a100"]);
        near(&got[0], &want, "first");
        near(&got[1], &want, "second");
    }
}

#[test]
fn a_plan_over_the_host_has_the_cache_where_it_is_written() {
    let want = want();
    for bits in 0..8u32 {
        let host: Arc<dyn Device> = Arc::new(
            cpu::CpuDevice::new(cpu::CpuOptions {
                threads: Some(1),
                isa: None,
                machine: None,
                ..Default::default()
            })
            .expect("a CPU"),
        );
        let device = gpu(false);
        let options = PlanOptions {
            placement: Placement::Listed((0..3).map(|i| bits >> i & 1).collect()),
            ..PlanOptions::default()
        };
        let planner = Planner::new(vec![of(&*host), of(&device)], options);
        let device = Arc::new(device.with_host(host));
        let engine = Engine::new(device, Arc::new(planner));
        let session = Session::builder()
            .with_engine(engine)
            .commit(decoder(WIDTH, &[]));
        let session = session.expect("a session");
        near(
            &decoded(&session, &mut |_| {}),
            &want,
            &format!("placement {bits:03b}"),
        );
    }
}
