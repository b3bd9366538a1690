//! Requests: init shared between plans, arenas, states, several callers at once, errors, timelines.
mod levels;
mod sharing;

use conformance::build::{B, at, blocked, bound, expr, n};
use conformance::cpu_schedule;
use device::{Device, DeviceError, EmptyShelf, Executable, PackedStore, Request, State};
use expr::functions;
use kernel::{Access, AxisTile, Family, Kernel, Role, Term};
use layout::{DType, Dim, DimBox};
use machine::{Cost, Work};
use plan::{
    Block, Buffer, BufferKind, DeviceRef, Goal, Plan, PlanSegment, Port, StateRef, Step, StepWork,
    Timeline, Wait,
};
use shopfloor_cpu::{CpuDevice, CpuOptions};
use std::sync::Arc;
use tensor::{Bytes, WeightStore};

const F: DType = DType::F32;
const M: i64 = 40;
const K: i64 = 24;
const N: i64 = 37;
const BLOCKS: i64 = 3;

fn step(name: &str, k: Kernel, grid: &[(u16, i64)], args: Vec<u32>, waits: Vec<Wait>) -> Step {
    let grid = grid.iter().map(|&(axis, tile)| AxisTile { axis, tile });
    let s = cpu_schedule(&k, grid.collect(), vec![], true, None);
    let tasks = s.grid.iter().fold(Dim::ONE, |a, t| {
        a * k.axes[t.axis as usize].extent.ceil_div(&Dim::Known(t.tile))
    });
    Step {
        name: name.into(),
        work: StepWork::Kernel {
            kernel: k.into(),
            schedule: s.into(),
            args,
        },
        device: 0,
        tasks,
        waits,
        scratch: 1 << 40,
        nodes: vec![name.into()],
        cost_work: Work::default(),
        predicted: Cost::zero(),
        taken: false,
        joined: false,
    }
}

fn buffer(name: &str, kind: BufferKind, elements: i64, offset: u64) -> Buffer {
    Buffer {
        name: name.into(),
        kind,
        place: 0,
        dtype: F,
        bytes: elements as u64 * 4,
        align: 64,
        offset,
    }
}

fn port(name: &str, elements: Dim, buffer: u32) -> Port {
    Port {
        name: name.into(),
        value: buffer,
        dtype: F,
        shape: vec![elements],
        buffer,
    }
}

fn relu(rows: i64, cols: i64) -> Kernel {
    let mut b = B::new("relu", Family::Map, &[("m", n(rows)), ("n", n(cols))]);
    let ox = b.read(F, rows * cols, at(&[(0, cols), (1, 1)]));
    let oy = b.write(F, rows * cols, at(&[(0, cols), (1, 1)]));
    let x = b.load(ox, &[0, 1]);
    let y = b.map(
        F,
        &[0, 1],
        &[x],
        expr(|e| {
            let x = e.input(0, F);
            functions::relu(e, x, F)
        }),
    );
    b.store(oy, y);
    b.0.k
}

/// x [M,K] times a weight [N,K] packed by init, through the arena, then relu; `tile` rows per task.
fn model(tile: i64) -> Plan {
    waiting(tile, false)
}

/// The same; the second step's tasks wait for just the rows that they read where it is `tiled`.
fn waiting(tile: i64, tiled: bool) -> Plan {
    let mut p = B::new("pack", Family::Move, &[("k", n(K)), ("n", n(BLOCKS * 16))]);
    let mut w = at(&[(0, 1), (1, K)]);
    w.bounds = vec![bound(&[(1, 1)], 0, N)];
    let ow = p.read(F, N * K, w);
    let panels = || {
        vec![
            Term::flat(0, n(K), n(16)),
            blocked(1, BLOCKS, K * 16, 16, 1),
        ]
    };
    let op = p.write(F, BLOCKS * 16 * K, Access::strided(n(0), panels()));
    let t = p.load(ow, &[0, 1]);
    p.store(op, t);
    let mut g = B::new(
        "gemm",
        Family::Contract,
        &[("m", n(M)), ("k", n(K)), ("n", n(N))],
    );
    let oa = g.read(F, M * K, at(&[(0, K), (1, 1)]));
    let ob = g.read(
        F,
        BLOCKS * 16 * K,
        Access::strided(
            n(0),
            vec![
                Term::flat(1, n(K), n(16)),
                blocked(2, BLOCKS, K * 16, 16, 1),
            ],
        ),
    );
    let oy = g.write(F, M * N, at(&[(0, N), (2, 1)]));
    let acc = g.fill(F, &[0, 2], 0.0);
    let a = g.load(oa, &[0, 1]);
    let b = g.load(ob, &[1, 2]);
    g.contract(acc, a, b, &[1]);
    g.store(oy, acc);
    let gemm = step("gemm", g.0.k, &[(0, tile)], vec![0, 2, 3], vec![]);
    let mut relu = step(
        "relu",
        relu(M, N),
        &[(0, tile + 1)],
        vec![3, 4],
        vec![Wait::Step(0)],
    );
    if tiled {
        let map = plan::tile_map(&gemm, 2, &relu, 0, &DimBox::new()).expect("rows follow rows");
        relu.waits = vec![Wait::Tiles { step: 0, map }];
    }
    let block = Block {
        symbols: vec![],
        buffers: vec![
            buffer("x", BufferKind::Input(0), M * K, 0),
            buffer("w", BufferKind::Weight(0), N * K, 0),
            buffer("packed", BufferKind::Init, BLOCKS * 16 * K, 0),
            buffer("h", BufferKind::Arena, M * N, 64),
            buffer("y", BufferKind::Output(0), M * N, 0),
        ],
        inputs: vec![port("x", n(M * K), 0)],
        outputs: vec![port("y", n(M * N), 4)],
        states: vec![],
        init: vec![step("pack", p.0.k, &[(1, 16)], vec![1, 2], vec![])],
        steps: vec![gemm, relu],
        arena_bytes: 64 + (M * N * 4) as u64,
        far_arenas: vec![],
        constraints: vec![],
        scratch_bytes: 1 << 40,
        predicted: Cost::zero(),
    };
    whole(block)
}

fn whole(block: Block) -> Plan {
    Plan {
        version: Plan::VERSION,
        model: "test".into(),
        program_hash: String::new(),
        devices: vec![DeviceRef {
            machine: "test".into(),
            machine_hash: String::new(),
            target: "cpu".into(),
            workers: 2,
        }],
        dims: DimBox::new(),
        goal: Goal::Latency,
        launch: None,
        segments: vec![PlanSegment::Block(Box::new(block))],
        predicted: Cost::zero(),
        whys: vec![],
    }
}

fn device(threads: usize) -> CpuDevice {
    CpuDevice::new(CpuOptions {
        threads: Some(threads),
        isa: None,
        machine: Some(shopfloor_cpu::detect::detect()),
        ..Default::default()
    })
    .expect("a device")
}

fn values(count: i64, seed: i64) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * 37 + seed * 101) % 17) as f32 - 8.0)
        .collect()
}

fn bytes(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// A store with one weight, its bytes at an odd address when `odd`.
fn store(w: &[f32], odd: bool) -> Arc<WeightStore> {
    let mut v = vec![0u8; usize::from(odd)];
    v.extend(bytes(w));
    let b = Bytes::from(v);
    let b = b.slice(usize::from(odd)..b.len()).expect("inside");
    let mut s = WeightStore::new();
    s.add("w", F, &[N as usize, K as usize], b).expect("fits");
    Arc::new(s)
}

fn want(x: &[f32], w: &[f32]) -> Vec<f32> {
    let mut y = vec![0.0; (M * N) as usize];
    for m in 0..M as usize {
        for j in 0..N as usize {
            let s: f32 = (0..K as usize)
                .map(|k| x[m * K as usize + k] * w[j * K as usize + k])
                .sum();
            y[m * N as usize + j] = s.max(0.0);
        }
    }
    y
}

fn request(
    e: &dyn Executable,
    f: &mut device::Frame,
    x: &[f32],
    timeline: Option<&mut Timeline>,
) -> Result<Vec<f32>, DeviceError> {
    let ins = bytes(x);
    let mut out = vec![0u8; (M * N * 4) as usize];
    e.run(
        f,
        Request {
            symbols: &[],
            inputs: &[&ins],
            outputs: &mut [&mut out],
            states: &mut [],
            timeline,
            stop_after: None,
            permit: Default::default(),
        },
    )?;
    Ok(out
        .chunks_exact(4)
        .map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]))
        .collect())
}

#[test]
fn init_is_shared_and_right() {
    let w = values(N * K, 3);
    for odd in [false, true] {
        let weights = store(&w, odd);
        let packed = PackedStore::new();
        let d = device(2);
        let v = Arc::new(model(8).verify().expect("valid"));
        let one = d.compile(v, 0, &weights, &packed).expect("compiles");
        let held = packed.bytes();
        let other = Arc::new(model(11).verify().expect("valid"));
        let two = d.compile(other, 0, &weights, &packed).expect("compiles");
        assert_eq!(
            packed.bytes(),
            held,
            "the second plan has the first one's packed weight"
        );
        // A copy at an even address was there for packing alone.
        assert_eq!(held, one.packed_bytes());
        assert_eq!(held, (BLOCKS * 16 * K * 4) as u64);
        let x = values(M * K, 1);
        for e in [one, two] {
            let mut f = e.new_frame().expect("a frame");
            assert_eq!(request(&*e, &mut f, &x, None).expect("runs"), want(&x, &w));
        }
        assert_eq!(packed.bytes(), 0, "nobody holds it any more");
    }
}

#[test]
fn what_was_prepared_is_used_for_its_own_plan_only() {
    let w = values(N * K, 4);
    let (weights, packed) = (store(&w, false), PackedStore::new());
    let d = device(2);
    let tiled = |rows| Arc::new(model(rows).tile(&[]).expect("sound"));
    let (one, other) = (tiled(8), tiled(11));
    for of in [&one, &other] {
        let prepared = d.prepare(of, 0).expect("compiles");
        assert!(prepared.is_some());
        let plan = Arc::new(one.clone().prove().expect("valid"));
        let e = d
            .compile_from(plan, 0, &weights, &packed, &EmptyShelf, prepared)
            .expect("compiles");
        let x = values(M * K, 2);
        let mut f = e.new_frame().expect("a frame");
        let mut t = Timeline::default();
        let got = request(&*e, &mut f, &x, Some(&mut t)).expect("runs");
        assert_eq!(got, want(&x, &w));
        let tasks = |rows: i64| (M + rows - 1) / rows;
        assert!(tasks(8) != tasks(11), "the two plans can be told apart");
        let gemm = t.spans.iter().filter(|s| s.step == 0);
        let ran: i64 = gemm.map(|s| i64::from(s.tasks)).sum();
        assert_eq!(ran, tasks(8), "{t:?}");
    }
}

#[test]
fn callers_at_once() {
    let w = values(N * K, 5);
    let weights = store(&w, false);
    let packed = PackedStore::new();
    let d = device(3);
    let kinds = [
        (3, false),
        (8, false),
        (40, false),
        (1, true),
        (2, true),
        (5, true),
    ];
    let executables: Vec<_> = kinds
        .into_iter()
        .map(|(rows, tiled)| {
            d.compile(
                Arc::new(waiting(rows, tiled).verify().expect("valid")),
                0,
                &weights,
                &packed,
            )
            .expect("compiles")
        })
        .collect();
    std::thread::scope(|s| {
        for caller in 0..4 {
            let (executables, w) = (&executables, &w);
            s.spawn(move || {
                let mut frames: Vec<_> = executables
                    .iter()
                    .map(|e| e.new_frame().expect("a frame"))
                    .collect();
                for i in 0..300 {
                    let x = values(M * K, caller * 1000 + i);
                    let at = (i % 6) as usize;
                    let got = request(&*executables[at], &mut frames[at], &x, None).expect("runs");
                    assert_eq!(got, want(&x, w), "caller {caller}, request {i}");
                }
            });
        }
    });
}

#[test]
fn workers_wake_after_a_pause() {
    let w = values(N * K, 5);
    let d = device(2);
    let e = d
        .compile(
            Arc::new(model(2).verify().expect("valid")),
            0,
            &store(&w, false),
            &PackedStore::new(),
        )
        .expect("compiles");
    let mut f = e.new_frame().expect("a frame");
    for i in 0..20 {
        std::thread::sleep(std::time::Duration::from_micros(100 * i));
        let x = values(M * K, i as i64);
        assert_eq!(request(&*e, &mut f, &x, None).expect("runs"), want(&x, &w));
    }
}

#[test]
fn timelines_name_every_task() {
    let w = values(N * K, 5);
    let d = device(2);
    let e = d
        .compile(
            Arc::new(model(4).verify().expect("valid")),
            0,
            &store(&w, false),
            &PackedStore::new(),
        )
        .expect("compiles");
    let mut f = e.new_frame().expect("a frame");
    let mut t = Timeline::default();
    request(&*e, &mut f, &values(M * K, 1), Some(&mut t)).expect("runs");
    assert_eq!(t.steps, ["gemm", "relu"]);
    let count = |s: u32| {
        t.spans
            .iter()
            .filter(|x| x.step == s)
            .map(|x| x.tasks)
            .sum::<u32>()
    };
    assert_eq!((count(0), count(1)), (10, 8));
    let end = t
        .spans
        .iter()
        .filter(|s| s.step == 0)
        .map(|s| s.end_ns)
        .max()
        .expect("a span");
    assert!(
        t.spans
            .iter()
            .filter(|s| s.step == 1)
            .all(|s| s.start_ns >= end),
        "relu waits for gemm"
    );
    assert!(
        t.spans
            .iter()
            .all(|s| s.end_ns <= t.total_ns && s.worker < 2)
    );
}

#[test]
fn wrong_memory_is_an_error() {
    let w = values(N * K, 5);
    let d = device(1);
    let e = d
        .compile(
            Arc::new(model(4).verify().expect("valid")),
            0,
            &store(&w, false),
            &PackedStore::new(),
        )
        .expect("compiles");
    let other = d
        .compile(
            Arc::new(model(5).verify().expect("valid")),
            0,
            &store(&w, false),
            &PackedStore::new(),
        )
        .expect("compiles");
    let mut f = e.new_frame().expect("a frame");
    let x = bytes(&values(M * K, 1));
    let mut out = vec![0u8; (M * N * 4) as usize];
    let run = |f: &mut device::Frame, ins: &[&[u8]], out: &mut [u8], symbols: &[i64]| {
        e.run(
            f,
            Request {
                symbols,
                inputs: ins,
                outputs: &mut [out],
                states: &mut [],
                timeline: None,
                stop_after: None,
                permit: Default::default(),
            },
        )
    };
    assert!(matches!(
        run(&mut f, &[&x[4..]], &mut out, &[]),
        Err(DeviceError::Port { .. })
    ));
    assert!(matches!(
        run(&mut f, &[], &mut out, &[]),
        Err(DeviceError::Port { .. })
    ));
    assert!(matches!(
        run(&mut f, &[&x], &mut [0; 4], &[]),
        Err(DeviceError::Port { .. })
    ));
    assert!(matches!(
        run(&mut f, &[&x], &mut out, &[1]),
        Err(DeviceError::Port { .. })
    ));
    let mut wrong = other.new_frame().expect("a frame");
    assert!(matches!(
        run(&mut wrong, &[&x], &mut out, &[]),
        Err(DeviceError::Unsupported { .. })
    ));
    // Memory at an odd address is as good as any.
    let mut odd = vec![0u8];
    odd.extend(&x);
    let mut odd_out = vec![0u8; out.len() + 1];
    run(&mut f, &[&x], &mut out, &[]).expect("runs");
    run(&mut f, &[&odd[1..]], &mut odd_out[1..], &[]).expect("runs");
    assert_eq!(out, odd_out[1..]);
    // A store without the weight, and too short a one.
    let empty = d.compile(
        Arc::new(model(4).verify().expect("valid")),
        0,
        &Arc::new(WeightStore::new()),
        &PackedStore::new(),
    );
    assert!(matches!(empty, Err(DeviceError::Unsupported { .. })));
}

#[test]
fn states_stay_in_place() {
    // The state is changed in place by a step that reads an input and writes a row of it.
    let (rows, cols) = (6, 8);
    let mut b = B::new("append", Family::Move, &[("n", n(cols))]);
    let ox = b.read(F, cols, at(&[(0, 1)]));
    let mut y = at(&[(0, 1)]);
    y.offset = Dim::sym("past") * n(cols);
    let oy = b.write(F, rows * cols, y);
    let t = b.load(ox, &[0]);
    b.store(oy, t);
    assert_eq!(b.k.operands[oy as usize].role, Role::Write);
    let mut block = Block {
        symbols: vec!["past".into()],
        buffers: vec![
            buffer("x", BufferKind::Input(0), cols, 0),
            buffer("cache", BufferKind::State(0), rows * cols, 0),
        ],
        inputs: vec![
            port("x", n(cols), 0),
            port("past", Dim::sym("past") * n(cols), 1),
        ],
        outputs: vec![port("present", (Dim::sym("past") + n(1)) * n(cols), 1)],
        states: vec![StateRef {
            input: 1,
            output: 0,
            buffer: 1,
        }],
        init: vec![],
        steps: vec![step("append", b.0.k, &[], vec![0, 1], vec![])],
        arena_bytes: 0,
        far_arenas: vec![],
        constraints: vec![],
        scratch_bytes: 1 << 40,
        predicted: Cost::zero(),
    };
    block.steps[0].tasks = n(1);
    let mut p = whole(block);
    p.dims.insert("past", 0, rows - 1);
    let d = device(2);
    let e = d
        .compile(
            Arc::new(p.verify().expect("valid")),
            0,
            &Arc::new(WeightStore::new()),
            &PackedStore::new(),
        )
        .expect("compiles");
    let mut f = e.new_frame().expect("a frame");
    let mut cache = State::new((rows * cols * 4) as usize, "cache");
    for past in 0..rows {
        let x = bytes(&values(cols, past));
        let r = Request {
            symbols: &[past],
            inputs: &[&x, &[]],
            outputs: &mut [&mut []],
            states: &mut [&mut cache],
            timeline: None,
            stop_after: None,
            permit: Default::default(),
        };
        e.run(&mut f, r).expect("runs");
        let at = (past * cols * 4) as usize;
        let there = cache.host().expect("memory");
        assert_eq!(&there[at..at + x.len()], &x[..]);
    }
    let r = Request {
        symbols: &[rows],
        inputs: &[&bytes(&values(cols, 0)), &[]],
        outputs: &mut [&mut []],
        states: &mut [&mut cache],
        timeline: None,
        stop_after: None,
        permit: Default::default(),
    };
    assert!(
        matches!(e.run(&mut f, r), Err(DeviceError::Plan(_))),
        "outside the box"
    );
}
