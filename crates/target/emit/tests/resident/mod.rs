//! The resident kernel on the emulator: the same bits as step by step, several requests at once, full
//! rings, failing tasks, late waits, swaps, and what the checks say of broken variants.
mod assembled;
mod rig;

use conformance::{Rng, cases, chain, gpu_schedules, is_fault};
use kernel::{Role, TileProgram, work};
use layout::Dim;
use plan::{TileMap, Wait};
use ptx_emulator::{Finding, HostOrder, Launch, Machine, MemoryKind, Status};
use rig::{Buffer, Model, Rig, Step, Work};
use shopfloor_emit::ptx;
use workers::ring::{Failed, Phase, RingError};

fn floats(n: usize, rng: &mut Rng) -> Vec<u8> {
    (0..n)
        .flat_map(|_| (rng.unit() as f32).to_le_bytes())
        .collect()
}

/// The seeds of this run, of so many.
fn shared_out(seeds: u64) -> impl Iterator<Item = u64> {
    let share = testing::Share::of_run(4);
    println!("{share}");
    (0..seeds).filter(move |&s| share.picks(s))
}

/// A chain with copies in and out, each step waiting for the rows that it needs. Buffers: those of the
/// chain, then the host's input and output.
fn model(rng: &mut Rng, tiles: bool) -> Model {
    let (m, k, c) = (rng.some(40), rng.some(9), rng.some(9));
    let (links, sizes) = loop {
        if let Some(found) = chain(m, k, c, rng) {
            break found;
        }
    };
    let mut buffers: Vec<Buffer> = sizes
        .iter()
        .enumerate()
        .map(|(i, &bytes)| Buffer {
            bytes,
            host: false,
            shared: i == 1,
        })
        .collect();
    let host = |bytes| Buffer {
        bytes,
        host: true,
        shared: false,
    };
    buffers.push(host(sizes[0]));
    buffers.push(host(sizes[5]));
    let mut steps = vec![Step {
        name: "input".into(),
        work: Work::Copy(6, 0),
        waits: vec![],
    }];
    let mut before: Option<i64> = None;
    for link in links {
        let at = steps.len() as u32 - 1;
        let known = Dim::Known;
        let wait = match before.filter(|_| tiles) {
            Some(rows) => Wait::Tiles {
                step: at,
                map: TileMap::Spans {
                    tasks: known(1),
                    span: known(link.rows),
                    before: known(0),
                    after: known(0),
                    earlier_tasks: known(1),
                    earlier_span: known(rows),
                },
            },
            None => Wait::Step(at),
        };
        before = Some(link.rows);
        steps.push(Step {
            name: link.program.kernel().name.clone(),
            work: Work::Program(Box::new(link.program), link.args, vec![]),
            waits: vec![wait],
        });
    }
    steps.push(Step {
        name: "output".into(),
        work: Work::Copy(5, 7),
        waits: vec![Wait::Step(4)],
    });
    Model { steps, buffers }
}

/// Runs one program by itself on the emulator; `buffers` are changed.
fn alone(
    machine: &mut Machine,
    p: &TileProgram,
    symbols: &[(String, i64)],
    args: &[u64],
) -> Result<(), String> {
    let lookup = |n: &str| symbols.iter().find(|x| x.0 == n).map(|x| x.1);
    let tasks = work::tasks(p.kernel(), p.schedule())
        .eval(&lookup)
        .unwrap_or(0);
    if tasks < 1 {
        return Ok(());
    }
    let text = ptx::emit(p, "sm_80").map_err(|e| e.to_string())?;
    let fault = machine.memory.allocate(16, MemoryKind::Device).unwrap();
    machine.memory.write(fault, &[0; 16]).unwrap();
    let module = machine.load(&text.text).map_err(|e| e.to_string())?;
    let mut l = Launch {
        grid: [tasks as u32, 1, 1],
        block: [text.threads, 1, 1],
        shared: text.shared_bytes,
        ..Launch::new(&text.entry)
    };
    for s in &text.params {
        l = l.u64(match &s.value {
            ptx::ParamValue::Operand(o) => args[*o as usize],
            ptx::ParamValue::Dim(d) | ptx::ParamValue::Tasks(d) => {
                d.eval(&lookup).unwrap_or(0) as u64
            }
            ptx::ParamValue::Fault | ptx::ParamValue::Tensor(_) => fault,
        });
    }
    let out = machine.run(&module, &l).map_err(|e| e.to_string())?;
    let wrong: Vec<_> = out.reports.into_iter().filter(is_fault).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("{wrong:#?}")),
    }
}

/// The chain step by step.
fn step_by_step(model: &Model, input: &[u8], factor: &[u8]) -> Vec<u8> {
    let mut m = Machine::new();
    let at: Vec<u64> = model
        .buffers
        .iter()
        .map(|b| {
            m.memory
                .allocate(b.bytes.max(16) as u64, MemoryKind::Device)
                .unwrap()
        })
        .collect();
    m.memory.write(at[0], input).unwrap();
    m.memory.write(at[1], factor).unwrap();
    for s in &model.steps {
        if let Work::Program(p, args, symbols) = &s.work {
            let args: Vec<u64> = args.iter().map(|&a| at[a]).collect();
            alone(&mut m, p, symbols, &args).unwrap();
        }
    }
    m.memory.read(at[5], model.buffers[5].bytes).unwrap()
}

#[test]
fn requests_in_flight_give_the_bits_of_step_by_step() {
    if !testing::turn("requests_in_flight_give_the_bits_of_step_by_step") {
        return;
    }
    for seed in shared_out(12) {
        let mut rng = Rng::new(500 + seed);
        let model = model(&mut rng, seed % 3 != 0);
        let workers = [1, 2, 5, 8][seed as usize % 4];
        let mut rig = Rig::new(&model, "sm_80", workers, 3, 4);
        rig.seed = seed;
        rig.patience = 200;
        let factor = floats(model.buffers[1].bytes / 4, &mut rng);
        rig.world.write(rig.buffer(0, 1), &factor, HostOrder::Weak);
        rig.start();
        let mut wanted = vec![];
        for round in 0..3 {
            let mut open = vec![];
            for slot in 0..3 {
                let input = floats(model.buffers[0].bytes / 4, &mut rng);
                wanted.push(step_by_step(&model, &input, &factor));
                rig.world
                    .write(rig.buffer(slot, 6), &input, HostOrder::Weak);
                // Fresh tables at first and again later; in between the counters go on.
                let fresh = round != 1;
                if fresh {
                    rig.prepare(&model, slot);
                }
                open.push((slot, rig.ring.push(slot as u32, fresh).unwrap()));
            }
            for (slot, seq) in open {
                let a = rig.answer(seq);
                assert_eq!(a.failed, None);
                assert!(a.clock_ns.1 >= a.clock_ns.0);
                let bytes = model.buffers[7].bytes;
                let got = rig.world.read(rig.buffer(slot, 7), bytes, HostOrder::Weak);
                assert_eq!(got, wanted[round * 3 + slot], "seed {seed}, request {seq}");
            }
        }
        let found = rig.stop();
        assert!(found.is_empty(), "seed {seed}: {found:#?}");
    }
}

/// One kernel of every family, each a step with buffers of its own and perhaps a wait that nothing
/// needs.
struct Families {
    model: Model,
    families: Vec<String>,
    contents: Vec<Vec<u8>>,
    /// Step, buffer, and what it holds when the step ran by itself.
    outputs: Vec<(String, usize, Vec<u8>)>,
}

fn families(rng: &mut Rng, run: bool) -> Families {
    let mut families = vec![];
    let mut model = Model {
        steps: vec![],
        buffers: vec![],
    };
    let (mut contents, mut outputs) = (vec![], vec![]);
    let mut machine = Machine::new();
    for case in cases(rng) {
        let lookup = |s: &str| case.symbols.iter().find(|x| x.0 == s).map(|x| x.1);
        let k = &case.kernel;
        let mut tries = gpu_schedules(k, &lookup, rng);
        tries.extend(gpu_schedules(k, &lookup, rng));
        let found = tries.into_iter().find_map(|s| {
            let p = TileProgram::new(k.clone(), s).ok()?;
            ptx::emit(&p, "sm_80").ok()?;
            Some(p)
        });
        let Some(p) = found else { continue };
        let mut args = vec![];
        let mut own = vec![];
        for o in &k.operands {
            let n = o.elements.eval(&lookup).unwrap_or(0).max(0) as usize;
            let bytes = o.dtype.bytes_for(n).unwrap_or(0);
            let data: Vec<u8> = match (o.role, o.dtype.is_float(), o.dtype.bits()) {
                (Role::Write, ..) => vec![0; bytes],
                (_, true, 32) => floats(n, rng),
                (_, true, 16) => (0..n).flat_map(|_| [rng.below(256) as u8, 0x3c]).collect(),
                (_, _, bits) => {
                    let size = bits as usize / 8;
                    let mut v = vec![0; bytes];
                    for e in v.chunks_mut(size.max(1)) {
                        e[0] = rng.below(case.limits.top.min(2) as usize) as u8;
                    }
                    v
                }
            };
            args.push(model.buffers.len());
            model.buffers.push(Buffer {
                bytes,
                host: false,
                shared: false,
            });
            // Whole words are reached where elements are narrower.
            let room = bytes.next_multiple_of(4).max(16);
            let at = machine
                .memory
                .allocate(room as u64, MemoryKind::Device)
                .unwrap();
            machine.memory.write(at, &vec![0; room]).unwrap();
            machine.memory.write(at, &data).unwrap();
            own.push(at);
            contents.push(data);
        }
        if run {
            alone(&mut machine, &p, &case.symbols, &own).unwrap();
        }
        for (i, o) in k.operands.iter().enumerate() {
            if run && o.role == Role::Write {
                let bytes = contents[args[i]].len();
                let want = machine.memory.read(own[i], bytes).unwrap();
                outputs.push((k.name.clone(), args[i], want));
            }
        }
        families.push(format!("{:?}", k.family));
        // A few waits that nothing needs, across families.
        let at = model.steps.len();
        let waits = match rng.below(3) {
            0 if at > 0 => vec![Wait::Step(rng.below(at) as u32)],
            _ => vec![],
        };
        model.steps.push(Step {
            name: k.name.clone(),
            work: Work::Program(Box::new(p), args, case.symbols.clone()),
            waits,
        });
    }
    Families {
        model,
        families,
        contents,
        outputs,
    }
}

/// Makes records too long for a worker to keep a copy of them.
const KEPT: (&str, &str) = ("setp.gt.u32 %p, %r1, 6144;", "setp.gt.u32 %p, %r1, 0;");

#[test]
fn every_family_gives_the_same_bits_inside_a_resident_kernel() {
    if !testing::turn("every_family_gives_the_same_bits_inside_a_resident_kernel") {
        return;
    }
    let mut agreed = std::collections::BTreeMap::new();
    let mut kept = std::collections::BTreeMap::new();
    for seed in testing::Share::cases(12, 1) {
        let mut rng = Rng::new(9000 + seed);
        let Families {
            model,
            families,
            contents,
            outputs,
        } = families(&mut rng, true);
        for f in families {
            *agreed.entry(f).or_insert(0) += 1;
        }
        let mut rig = Rig::new(&model, "sm_80", 4, 1, 2);
        rig.seed = seed;
        rig.patience = 300;
        // Some bodies leave no room for a copy of the records.
        let keeps = model.emit("sm_80", 2, rig::IDLE).text.contains(KEPT.0);
        *kept.entry(keeps).or_insert(0) += 1;
        if keeps && seed % 2 == 1 {
            rig.edit(KEPT.0, KEPT.1);
        }
        for (b, data) in contents.iter().enumerate() {
            rig.world.write(rig.buffer(0, b), data, HostOrder::Weak);
        }
        rig.prepare(&model, 0);
        rig.start();
        for turn in 0..2 {
            let seq = rig.ring.push(0, turn == 0).unwrap();
            assert_eq!(rig.answer(seq).failed, None);
        }
        for (name, b, want) in &outputs {
            let got = rig
                .world
                .read(rig.buffer(0, *b), want.len(), HostOrder::Weak);
            assert_eq!(&got, want, "seed {seed}, {name}");
        }
        let found = rig.stop();
        assert!(found.is_empty(), "seed {seed}: {found:#?}");
    }
    println!("{agreed:?}, with and without a copy of the records {kept:?}");
    assert!(agreed.len() >= 6, "{agreed:?}");
    // Bodies that leave no room for a copy are rare: not every share of the seeds has one.
    assert!(kept.contains_key(&true), "{kept:?}");
}

/// A chain on a device, its factor in place, ready to start.
fn ready(seed: u64, workers: u32, slots: usize, capacity: u32) -> (Model, Rig) {
    let mut rng = Rng::new(seed);
    let model = model(&mut rng, true);
    let rig = Rig::new(&model, "sm_80", workers, slots, capacity);
    let factor = floats(model.buffers[1].bytes / 4, &mut rng);
    rig.world.write(rig.buffer(0, 1), &factor, HostOrder::Weak);
    for slot in 0..slots {
        let input = floats(model.buffers[0].bytes / 4, &mut rng);
        rig.world
            .write(rig.buffer(slot, 6), &input, HostOrder::Weak);
        rig.prepare(&model, slot);
    }
    (model, rig)
}

#[test]
fn a_full_ring_refuses_and_a_stop_drains() {
    let (_, mut rig) = ready(1, 3, 4, 4);
    rig.start();
    let seqs: Vec<u32> = (0..4).map(|s| rig.ring.push(s, true).unwrap()).collect();
    assert_eq!(
        rig.ring.push(0, false),
        Err(RingError::Full { capacity: 4 })
    );
    // Stopped before anything was looked at: what was pushed is done nevertheless.
    let found = rig.stop();
    assert!(found.is_empty(), "{found:#?}");
    for seq in seqs {
        assert_eq!(rig.ring.poll(seq).unwrap().unwrap().failed, None);
    }
    let standing = rig.ring.standing().unwrap();
    assert!(!standing.running && standing.epoch == 0);
}

#[test]
fn an_idle_kernel_sleeps() {
    let (_, mut rig) = ready(2, 4, 1, 2);
    rig.start();
    let seq = rig.ring.push(0, true).unwrap();
    rig.answer(seq);
    let mut status = Status::Running;
    for _ in 0..200 {
        status = rig.slice(1000);
    }
    assert_eq!(status, Status::Parked);
    let idle = rig.steps();
    rig.slice(100_000);
    assert_eq!(rig.steps(), idle);
    assert!(rig.dump().workers.iter().all(|w| w.phase == Phase::Idle));
    let seq = rig.ring.push(0, false).unwrap();
    rig.answer(seq);
    let found = rig.stop();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_swap_of_plans_is_drain_leave_and_start() {
    let (first, mut a) = ready(3, 3, 2, 4);
    a.start();
    let old: Vec<u32> = (0..2).map(|s| a.ring.push(s, true).unwrap()).collect();
    // The next plan's requests are pushed while the old one's run.
    let mut rng = Rng::new(77);
    let second = model(&mut rng, true);
    let factor = floats(second.buffers[1].bytes / 4, &mut rng);
    let input = floats(second.buffers[0].bytes / 4, &mut rng);
    let world = a.world.clone();
    let next = a.ring.next();
    assert_eq!(a.ring.next_epoch(), Ok(1));
    let new = a.ring.push(0, true).unwrap();
    assert_eq!(new, next);
    let found = a.leave();
    assert!(found.is_empty(), "{found:#?}");
    for seq in old {
        assert_eq!(a.ring.poll(seq).unwrap().unwrap().failed, None);
    }
    assert_eq!(a.ring.poll(new), Ok(None));
    drop(first);
    let ring = a.ring;
    let mut b = Rig::beside(&world, Some(ring), &second, "sm_80", 2, 1, 4);
    b.world.write(b.buffer(0, 1), &factor, HostOrder::Weak);
    b.world.write(b.buffer(0, 6), &input, HostOrder::Weak);
    b.prepare(&second, 0);
    b.first = Some(new);
    b.start();
    assert_eq!(b.answer(new).failed, None);
    let got = b
        .world
        .read(b.buffer(0, 7), second.buffers[7].bytes, HostOrder::Weak);
    assert_eq!(got, step_by_step(&second, &input, &factor));
    let found = b.stop();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_failed_task_is_that_requests_error() {
    // A gather with an index beyond its table, between requests that are well.
    let mut rng = Rng::new(5);
    let (case, p) = loop {
        let found = cases(&mut rng).into_iter().find_map(|c| {
            if !c
                .kernel
                .operands
                .iter()
                .any(|o| !o.access.indexed.is_empty())
            {
                return None;
            }
            let lookup = |s: &str| c.symbols.iter().find(|x| x.0 == s).map(|x| x.1);
            let p = gpu_schedules(&c.kernel, &lookup, &mut rng)
                .into_iter()
                .find_map(|s| {
                    let p = TileProgram::new(c.kernel.clone(), s).ok()?;
                    let t = ptx::emit(&p, "sm_80").ok()?;
                    (!t.faults.is_empty()).then_some(p)
                })?;
            let tasks = work::tasks(p.kernel(), p.schedule()).eval(&lookup)?;
            (tasks > 1).then_some((c, p))
        });
        if let Some(f) = found {
            break f;
        }
    };
    let lookup = |s: &str| case.symbols.iter().find(|x| x.0 == s).map(|x| x.1);
    let k = &case.kernel;
    let index = k
        .operands
        .iter()
        .position(|o| o.dtype.is_int() && o.role == Role::Read);
    let index = index.expect("an index");
    let buffers: Vec<Buffer> = k
        .operands
        .iter()
        .map(|o| Buffer {
            bytes: o
                .dtype
                .bytes_for(o.elements.eval(&lookup).unwrap_or(0) as usize)
                .unwrap_or(0),
            host: false,
            shared: false,
        })
        .collect();
    let model = Model {
        steps: vec![Step {
            name: "gather".into(),
            work: Work::Program(
                Box::new(p),
                (0..buffers.len()).collect(),
                case.symbols.clone(),
            ),
            waits: vec![],
        }],
        buffers: buffers.clone(),
    };
    let mut rig = Rig::new(&model, "sm_80", 3, 2, 4);
    for slot in 0..2 {
        for (b, buffer) in buffers.iter().enumerate() {
            let fill = if slot == 1 && b == index { 0x7f } else { 0 };
            let data = vec![fill; buffer.bytes];
            rig.world.write(rig.buffer(slot, b), &data, HostOrder::Weak);
        }
        rig.prepare(&model, slot);
    }
    rig.start();
    for turn in 0..2 {
        let seqs: Vec<u32> = (0..2)
            .map(|s| rig.ring.push(s, turn == 0).unwrap())
            .collect();
        let well = rig.answer(seqs[0]);
        let ill = rig.answer(seqs[1]);
        assert_eq!(well.failed, None);
        assert_eq!(ill.failed.map(|f: Failed| f.step), Some(0));
        let number = ill.failed.map_or(0, |f| f.fault) as usize;
        assert!((1..=rig.resident.bodies[0].faults.len()).contains(&number));
    }
    let found = rig.stop();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_request_that_is_called_off_leaves_the_rest_out_and_the_next_one_is_right() {
    if !testing::turn("a_request_that_is_called_off_leaves_the_rest_out_and_the_next_one_is_right")
    {
        return;
    }
    let (mut early, mut left_out) = (0, 0);
    for seed in shared_out(8) {
        let mut rng = Rng::new(700 + seed);
        let model = model(&mut rng, seed % 3 != 0);
        let mut rig = Rig::new(&model, "sm_80", 1 + seed as u32 % 4, 3, 4);
        rig.seed = seed;
        let factor = floats(model.buffers[1].bytes / 4, &mut rng);
        rig.world.write(rig.buffer(0, 1), &factor, HostOrder::Weak);
        let mut inputs = vec![];
        for slot in 0..3 {
            let input = floats(model.buffers[0].bytes / 4, &mut rng);
            rig.world
                .write(rig.buffer(slot, 6), &input, HostOrder::Weak);
            inputs.push(input);
            rig.prepare(&model, slot);
        }
        rig.start();
        let mut whole = 0;
        for round in 0..12u64 {
            // Two others are under way; the one between them is called off, ever later.
            let open: Vec<u32> = (0..3)
                .map(|s| rig.ring.push(s, round == 0).unwrap())
                .collect();
            let before = rig.steps();
            if round > 0 {
                rig.slice(1 + whole * (round - 1) / 10);
                rig.ring.call_off(open[1]).unwrap();
            }
            let off = rig.answer(open[1]);
            let took = rig.steps() - before;
            assert_eq!(off.failed, None);
            for slot in [0, 2] {
                let a = rig.answer(open[slot]);
                assert!(a.failed.is_none() && !a.called_off, "seed {seed}");
            }
            let right = |slot: usize| {
                let bytes = model.buffers[7].bytes;
                let got = rig.world.read(rig.buffer(slot, 7), bytes, HostOrder::Weak);
                assert_eq!(got, step_by_step(&model, &inputs[slot], &factor));
            };
            if round == 0 {
                whole = took;
            }
            early += u32::from(round > 0);
            left_out += u32::from(off.called_off);
            (0..3)
                .filter(|&s| s != 1 || !off.called_off)
                .for_each(right);
        }
        // Called off before anybody looks at its ticket, and told of one that is over.
        let seq = rig.ring.push(1, false).unwrap();
        rig.ring.call_off(seq).unwrap();
        assert!(rig.answer(seq).called_off);
        let seq = rig.ring.push(1, false).unwrap();
        assert!(!rig.answer(seq).called_off);
        let found = rig.stop();
        assert!(found.is_empty(), "seed {seed}: {found:#?}");
    }
    println!("{left_out} of {early} were called off in time");
    assert!(left_out * 3 > early, "{left_out} of {early}");
}

#[test]
fn a_wait_that_never_ends_is_shown() {
    let (_, mut rig) = ready(8, 3, 1, 2);
    rig.patience = 40;
    // Tasks no longer count.
    rig.edit("\tred.relaxed.gpu.global.add.u32 [%x], 1;\n", "");
    rig.edit("\t@!%p red.relaxed.gpu.global.add.u32 [%x], 1;\n", "");
    rig.edit("\tred.relaxed.gpu.global.add.u32 [%x], %count;\n", "");
    rig.start();
    let seq = rig.ring.push(0, true).unwrap();
    for _ in 0..2000 {
        rig.slice(1000);
    }
    assert_eq!(rig.ring.poll(seq), Ok(None));
    assert_eq!(rig.ring.take_late(), Ok(true));
    let dump = rig.dump();
    println!("{dump}");
    let late: Vec<_> = dump
        .workers
        .iter()
        .filter(|w| w.phase == Phase::Late)
        .collect();
    assert!(!late.is_empty(), "{dump}");
    assert!(
        late.iter()
            .all(|w| w.waits_for.is_some_and(|(_, goal, seen)| goal > seen))
    );
    assert!(
        dump.to_string()
            .contains("waits for all of 'input' to reach"),
        "{dump}"
    );
    assert!(rig.reports().is_empty(), "{:#?}", rig.reports());
    // Whoever is late leaves when told to, and so does everybody.
    rig.ring.abort().unwrap();
    let found = rig.leave();
    assert!(found.is_empty(), "{found:#?}");
    rig.ring.abandon();
    assert_eq!(rig.ring.poll(seq), Err(RingError::Unknown { seq }));
    assert_eq!(rig.ring.under_way(), 0);
}

/// Runs requests with a broken text; the kinds of what is found.
fn broken(from: &str, to: &str) -> Vec<Finding> {
    broken_by(&[(from, to)])
}

fn broken_by(edits: &[(&str, &str)]) -> Vec<Finding> {
    let mut kinds = vec![];
    for seed in 0..6 {
        let (_, mut rig) = ready(20 + seed, 4, 2, 4);
        rig.seed = seed;
        for (from, to) in edits {
            rig.edit(from, to);
        }
        rig.start();
        for _ in 0..3 {
            let mut open: Vec<u32> = vec![];
            for slot in 0..2 {
                open.extend(rig.ring.push(slot, true).ok());
            }
            for _ in 0..400 {
                if rig.slice(500) == Status::Fault {
                    break;
                }
                open.retain(|&seq| matches!(rig.ring.poll(seq), Ok(None)));
                if open.is_empty() {
                    break;
                }
            }
            for slot in 0..2 {
                let out = rig.buffer(slot, 7);
                if rig.world.is_written(out, 4) {
                    rig.world.read(out, 4, HostOrder::Weak);
                }
            }
        }
        kinds.extend(rig.reports().iter().map(|r| r.kind));
    }
    kinds.sort();
    kinds.dedup();
    kinds
}

#[test]
fn broken_variants_are_found() {
    if !testing::turn("broken_variants_are_found") {
        return;
    }
    // No release before the counters.
    let counted = "\tfence.acq_rel.gpu;\n\tsetp.eq.u32 %p, %r1, 0;\n";
    let kinds = broken(counted, "\tsetp.eq.u32 %p, %r1, 0;\n");
    assert!(kinds.contains(&Finding::GlobalRace), "{kinds:?}");
    // A release that reaches the CTA only.
    let kinds = broken(counted, "\tfence.acq_rel.cta;\n\tsetp.eq.u32 %p, %r1, 0;\n");
    assert!(kinds.contains(&Finding::GlobalRace), "{kinds:?}");
    // The same of tasks that count together.
    let counted = "\tfence.acq_rel.gpu;\n\tcvt.u64.u32 %x, %r1;\n";
    let kinds = broken(counted, "\tcvt.u64.u32 %x, %r1;\n");
    assert!(kinds.contains(&Finding::GlobalRace), "{kinds:?}");
    // Waits that acquire nothing.
    let kinds = broken(
        "\tfence.acq_rel.gpu;\n\tbar.warp.sync -1;\n",
        "\tbar.warp.sync -1;\n",
    );
    assert!(kinds.contains(&Finding::GlobalRace), "{kinds:?}");
    // An answer that the device alone sees.
    let kinds = broken(
        "st.release.sys.global.u32 [%y+",
        "st.release.gpu.global.u32 [%y+",
    );
    assert!(kinds.contains(&Finding::NarrowScope), "{kinds:?}");
    // Tickets read without an order.
    let kinds = broken(
        "ld.acquire.sys.global.u32 %ticket",
        "ld.relaxed.sys.global.u32 %ticket",
    );
    assert!(kinds.contains(&Finding::GlobalRace), "{kinds:?}");
    // A last worker that does not know what the others wrote.
    let kinds = broken("atom.acq_rel.gpu", "atom.relaxed.gpu");
    assert!(kinds.contains(&Finding::GlobalRace), "{kinds:?}");
    // Warps that read tables, of which there is no copy, after their worker said that it is through.
    let early = (
        "\tbar.sync 0;\n\t@!%one bra WORKER_PASS;",
        "\t@!%one bra WORKER_PASS;",
    );
    let kinds = broken_by(&[KEPT, early]);
    assert!(kinds.contains(&Finding::GlobalRace), "{kinds:?}");
    // A copy that is read before all of it is there.
    let kinds = broken("WORKER_COPIED:\n\tbar.sync 0;\n", "WORKER_COPIED:\n");
    assert!(kinds.contains(&Finding::SharedRace), "{kinds:?}");
    // No barrier between the waiting warp and the others.
    let kinds = broken("READY:\n\tbar.sync 0;\n", "READY:\n");
    assert!(
        kinds
            .iter()
            .any(|k| matches!(k, Finding::GlobalRace | Finding::SharedRace)),
        "{kinds:?}"
    );
}
