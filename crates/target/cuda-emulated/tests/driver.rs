//! The emulated driver keeps the rules of a real one.
use cuda::{
    Arg, Context, DevicePtr, Driver, DriverError, Event, FunctionId, Graph, Launch, ModuleCode,
    Modules, Pool, Stream, StreamId,
};
use device::{EmptyShelf, PackedKey, Shelf};
use shopfloor_cuda_emulated::{EmulatedDriver, EmulatedGpu, Fault};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HEAD: &str = ".version 7.8\n.target sm_75\n.address_size 64\n";

/// Adds `by` to `n` words.
const ADD: &str = r#"
.visible .entry add(.param .u64 at, .param .u32 n, .param .u32 by)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [at];
    ld.param.u32 %r0, [n];
    ld.param.u32 %r1, [by];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r0;
    @%p ret;
    mul.wide.u32 %d1, %r5, 4;
    add.s64 %d2, %d0, %d1;
    ld.global.u32 %r6, [%d2];
    add.s32 %r7, %r6, %r1;
    st.global.u32 [%d2], %r7;
    ret;
}
"#;

/// Answers each new value of the word `ask` with twice of it in `answer`, until it is `end`.
const SERVE: &str = r#"
.visible .entry serve(.param .u64 ask, .param .u64 answer, .param .u32 end)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [ask];
    ld.param.u64 %d1, [answer];
    ld.param.u32 %r0, [end];
    mov.u32 %r1, 0;
wait:
    ld.acquire.sys.global.u32 %r2, [%d0];
    setp.eq.s32 %p, %r2, %r1;
    @%p bra wait;
    setp.eq.s32 %p, %r2, %r0;
    @%p bra done;
    mov.u32 %r1, %r2;
    add.s32 %r3, %r2, %r2;
    st.release.sys.global.u32 [%d1], %r3;
    bra wait;
done:
    ret;
}
"#;

const END: u32 = 999;

fn gpu() -> EmulatedGpu {
    let mut g = EmulatedGpu::named("a100").unwrap().with_sms(4);
    g.info.memory_bytes = 1 << 20;
    g.patience = Duration::from_millis(100);
    g
}

fn open() -> (EmulatedDriver, Arc<dyn Context>) {
    let driver = EmulatedDriver::new(vec![gpu()]);
    let context = driver.open(0).unwrap();
    (driver, context)
}

fn function(c: &Arc<dyn Context>, body: &str, entry: &str) -> FunctionId {
    let m = c
        .load_module(ModuleCode::Text(&format!("{HEAD}{body}")))
        .unwrap();
    c.function(m, entry).unwrap()
}

fn add(c: &Arc<dyn Context>, f: FunctionId, at: DevicePtr, by: u32, s: &Stream) {
    let shape = Launch {
        grid: [2, 1, 1],
        block: [32, 1, 1],
        shared_bytes: 0,
        early: false,
    };
    c.launch(
        f,
        shape,
        &[Arg::Pointer(at), Arg::U32(64), Arg::U32(by)],
        s.id(),
    )
    .unwrap();
}

fn words(c: &Arc<dyn Context>, at: DevicePtr, n: usize) -> Vec<u32> {
    let mut b = vec![0; n * 4];
    c.download(&mut b, at).unwrap();
    b.chunks_exact(4)
        .map(|w| u32::from_le_bytes(w.try_into().unwrap()))
        .collect()
}

#[test]
fn gpus_are_what_their_names_say() {
    let named = |n| EmulatedGpu::named(n).unwrap();
    let driver = EmulatedDriver::new(vec![named("a100"), named("h100"), named("t4")]);
    let all = driver.devices().unwrap();
    let brief: Vec<(u32, u32, String)> = all
        .iter()
        .map(|i| (i.ordinal, i.sms, i.compute.arch()))
        .collect();
    let want = [(0, 108, "sm_80"), (1, 132, "sm_90"), (2, 40, "sm_75")];
    let want: Vec<_> = want.map(|(n, s, a)| (n, s, a.to_string())).into();
    assert_eq!(brief, want);
    assert!(matches!(
        driver.open(3),
        Err(DriverError::NoDevice {
            ordinal: 3,
            count: 3
        })
    ));
    assert!(EmulatedGpu::named("z80").is_err());
    assert_eq!(
        EmulatedDriver::new(vec![gpu()]).devices().unwrap()[0].sms,
        4
    );
}

#[test]
fn a_stream_keeps_its_order_and_pinned_memory_is_read_when_its_turn_comes() {
    let (_d, c) = open();
    let f = function(&c, ADD, "add");
    let at = c.allocate(256).unwrap();
    let p = c.pinned(256).unwrap();
    let s = Stream::new(&c, 0).unwrap();
    p.write(0, &1u32.to_le_bytes().repeat(64)).unwrap();
    c.upload_from(at, &p, 0..256, s.id()).unwrap();
    add(&c, f, at, 5, &s);
    // The copy has not begun: it will see this.
    p.write(0, &2u32.to_le_bytes().repeat(64)).unwrap();
    s.synchronize().unwrap();
    assert!(c.is_done(s.id()).unwrap());
    assert_eq!(words(&c, at, 64), [7; 64]);
    c.fill(at, 1, 128, s.id()).unwrap();
    c.copy(at.offset(128), at, 4, s.id()).unwrap();
    c.download_into(&p, 0..256, at, s.id()).unwrap();
    s.synchronize().unwrap();
    let mut got = [0; 256];
    p.read(0, &mut got).unwrap();
    assert!(got[..132].iter().all(|b| *b == 1) && got[132..136] == [7, 0, 0, 0]);
}

#[test]
fn events_order_streams_and_tell_the_devices_time() {
    let (_d, c) = open();
    let f = function(&c, ADD, "add");
    let at = c.allocate(256).unwrap();
    c.upload(at, &[0; 256]).unwrap();
    let (a, b) = (Stream::new(&c, 0).unwrap(), Stream::new(&c, 0).unwrap());
    let (from, ready, to) = (
        Event::new(&c).unwrap(),
        Event::new(&c).unwrap(),
        Event::new(&c).unwrap(),
    );
    from.record(&a).unwrap();
    assert!(matches!(to.since_ms(&from), Err(DriverError::Call { .. })));
    // The second stream is asked first and has to wait.
    for _ in 0..3 {
        add(&c, f, at, 1, &a);
    }
    ready.record(&a).unwrap();
    b.wait(&ready).unwrap();
    add(&c, f, at, 10, &b);
    to.record(&b).unwrap();
    to.synchronize().unwrap();
    b.synchronize().unwrap();
    assert_eq!(words(&c, at, 64), [13; 64]);
    let (three, four) = (ready.since_ms(&from).unwrap(), to.since_ms(&from).unwrap());
    assert!(
        three > 3.0 * 2e-3 && four > three && four < 1.0,
        "{three} {four}"
    );
    // Copies take what the link takes.
    let p = c.pinned(1 << 19).unwrap();
    let large = c.allocate(1 << 19).unwrap();
    from.record(&a).unwrap();
    c.upload_from(large, &p, 0..1 << 19, a.id()).unwrap();
    to.record(&a).unwrap();
    a.synchronize().unwrap();
    let us = f64::from(to.since_ms(&from).unwrap()) * 1e3;
    assert!((us - 23.0).abs() < 0.1, "{us}");
}

#[test]
fn kernels_of_two_streams_run_at_once_beside_the_host() {
    let (_d, c) = open();
    let serve = function(&c, SERVE, "serve");
    let add_f = function(&c, ADD, "add");
    let at = c.allocate(256).unwrap();
    c.upload(at, &[0; 256]).unwrap();
    let p = c.pinned(256).unwrap();
    let (a, b) = (Stream::new(&c, 0).unwrap(), Stream::new(&c, 0).unwrap());
    let one = Launch {
        grid: [1, 1, 1],
        block: [1, 1, 1],
        shared_bytes: 0,
        early: false,
    };
    let ask = Arg::Pointer(p.device_ptr());
    let answer = Arg::Pointer(p.device_ptr().offset(128));
    c.launch(serve, one, &[ask, answer, Arg::U32(END)], a.id())
        .unwrap();
    for n in 1..20u32 {
        p.store_release(0, n).unwrap();
        let mut polls = 0;
        while p.load_acquire(128).unwrap() != 2 * n {
            polls += 1;
            assert!(polls < 10_000);
        }
        add(&c, add_f, at, 1, &b);
        b.synchronize().unwrap();
    }
    assert!(!c.is_done(a.id()).unwrap());
    assert_eq!(words(&c, at, 64), [19; 64]);

    // While it runs, what may block does, and here that is for ever.
    let blocked: [Result<(), DriverError>; 4] = [
        c.load_module(ModuleCode::Text(&format!("{HEAD}{ADD}")))
            .map(drop),
        c.allocate(4).map(drop),
        c.free(at),
        c.synchronize(a.id()),
    ];
    for e in blocked {
        match e {
            Err(DriverError::Call { code, why, .. }) => {
                assert_eq!(code, "EMULATED_DEADLOCK");
                assert!(why.contains("'serve'") && why.contains("polls"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
    // Another thread may still stop it.
    let waiting = c.clone();
    let t = std::thread::spawn(move || {
        waiting
            .load_module(ModuleCode::Text(&format!("{HEAD}{ADD}")))
            .map(drop)
    });
    std::thread::sleep(Duration::from_millis(20));
    p.store_release(0, END).unwrap();
    t.join().unwrap().unwrap();
    a.synchronize().unwrap();
    c.free(at).unwrap();
}

#[test]
fn memory_has_an_end_and_is_accounted_for() {
    let (d, c) = open();
    let pool = Pool::new(c.clone());
    let a = pool.take(100_000).unwrap();
    let b = pool.take(1000).unwrap();
    let used = pool.used();
    assert_eq!(used.allocated, 100_352 + 1024);
    assert_eq!((used.reserved, used.peak), (used.allocated, used.allocated));
    assert_eq!(c.memory().unwrap().free, (1 << 20) - used.reserved);
    drop(a);
    let after = pool.used();
    assert_eq!((after.allocated, after.reserved), (1024, 101_376));
    // The free block is used again, up to an eighth too large, and given back for what does not fit.
    let again = pool.take(95_000).unwrap();
    assert_eq!(pool.used().reserved, 101_376);
    drop(again);
    let large = pool.take(1_000_000).unwrap();
    assert_eq!(pool.used().reserved, 1024 + 1_000_448);
    let e = pool.take(100_000).map(drop).unwrap_err();
    assert!(
        matches!(e, DriverError::OutOfMemory { asked: 100_352, .. }),
        "{e}"
    );
    drop((b, large));
    pool.trim().unwrap();
    assert_eq!(pool.used().reserved, 0);
    assert_eq!(c.memory().unwrap().free, 1 << 20);

    // Injected.
    d.inject(0, Fault::OutOfMemory { at: 2 });
    let first = pool.take(600).unwrap();
    assert!(matches!(
        pool.take(2000).map(drop),
        Err(DriverError::OutOfMemory { .. })
    ));
    assert!(pool.take(2000).is_ok());
    d.inject(0, Fault::Largest { bytes: 4096 });
    assert!(matches!(
        pool.take(5000).map(drop),
        Err(DriverError::OutOfMemory { .. })
    ));
    d.clear(0);
    assert!(pool.take(5000).is_ok());
    drop(first);
    assert!(c.free(DevicePtr(12)).is_err());
}

#[test]
fn modules_are_loaded_once_per_text() {
    let (_d, c) = open();
    let m = Modules::new(c.clone(), 0);
    let text = format!("{HEAD}{ADD}");
    let (a, b) = (
        m.load(&text, &EmptyShelf).unwrap(),
        m.load(&text, &EmptyShelf).unwrap(),
    );
    assert!(Arc::ptr_eq(&a, &b) && m.len() == 1);
    m.load(&format!("{HEAD}{SERVE}"), &EmptyShelf).unwrap();
    assert_eq!(m.len(), 2);
    m.clear();
    assert_eq!(m.len(), 1);
    assert!(a.function("nothing").is_err());
    let e = c.load_module(ModuleCode::Text("nonsense")).unwrap_err();
    assert!(matches!(e, DriverError::Module { .. }), "{e}");
    let e = c.load_module(ModuleCode::Text(
        ".version 7.8\n.target sm_90\n.address_size 64\n",
    ));
    assert!(e.unwrap_err().to_string().contains("sm_90"));
}

/// Code by key.
#[derive(Default)]
struct Kept(Mutex<BTreeMap<PackedKey, Vec<u8>>>);

impl Shelf for Kept {
    fn get(&self, _: &PackedKey, _: usize) -> Option<tensor::Bytes> {
        None
    }

    fn code(&self, key: &PackedKey, make: &mut dyn FnMut() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        let mut kept = self.0.lock().unwrap();
        if let Some(code) = kept.get(key) {
            return Some(code.clone());
        }
        let made = make()?;
        kept.insert(*key, made.clone());
        Some(made)
    }
}

#[test]
fn code_that_was_kept_is_loaded_and_not_made_again() {
    let texts = [ADD, SERVE].map(|body| format!("{HEAD}{body}"));
    let kept = Kept::default();
    let made = |driver: u32, kept: &Kept| {
        let (d, c) = open();
        let m = Modules::new(c, driver);
        for text in &texts {
            m.load(text, kept).unwrap();
        }
        d.calls(0).get("cuLinkComplete").copied().unwrap_or(0)
    };
    assert_eq!(made(12_040, &kept), 2);
    assert_eq!(made(12_040, &kept), 0);
    // Another driver may make other code of a text.
    assert_eq!(made(12_050, &kept), 2);
    assert_eq!(kept.0.lock().unwrap().len(), 4);
    // What the driver does not load is compiled from the text.
    for code in kept.0.lock().unwrap().values_mut() {
        *code = b"of a driver that is gone".to_vec();
    }
    assert_eq!(made(12_040, &kept), 0);
    let (_d, c) = open();
    let m = Modules::new(c, 12_040);
    let e = m.load("nonsense", &kept).map(drop).unwrap_err();
    assert!(matches!(e, DriverError::Module { .. }), "{e}");
}

#[test]
fn threads_that_ask_at_once_share_what_one_compiles() {
    let (_d, c) = open();
    for _ in 0..20 {
        let m = Modules::new(c.clone(), 0);
        let texts = [ADD, SERVE].map(|body| format!("{HEAD}{body}"));
        let asked: Vec<&String> = texts.iter().cycle().take(12).collect();
        let got = plan::parallel::map(&asked, |text| m.load(text, &EmptyShelf).unwrap());
        for (i, a) in got.iter().enumerate() {
            assert!(Arc::ptr_eq(a, &got[i % 2]));
        }
        assert_eq!(m.len(), 2);
        m.clear();
        assert_eq!(m.len(), 2);
        drop(got);
        m.clear();
        assert!(m.is_empty());
    }
    let m = Modules::new(c, 0);
    assert!(m.load("nonsense", &EmptyShelf).is_err() && m.is_empty());
}

/// Errors of a launch and of what is queued behind it.
fn outcome(launched: Result<(), DriverError>, on: &Stream) -> Result<(), String> {
    launched.map_err(|e| e.to_string())?;
    on.synchronize().map_err(|e| e.to_string())
}

#[test]
fn what_begins_early_touches_nothing_that_the_kernel_before_writes() {
    let (_d, c) = open();
    let shape = |early| Launch {
        grid: [2, 1, 1],
        block: [32, 1, 1],
        shared_bytes: 0,
        early,
    };
    let text = |body: &str| {
        format!(
            "{}\n.visible .entry k(.param .u64 a)\n{{\n\t.reg .b64 %rd<2>;\n\t.reg .b32 %r<3>;\n\tld.param.u64 %rd1, [a];\n\tmov.u32 %r2, 7;\n{body}\tret;\n}}\n",
            HEAD.replace("sm_75", "sm_90")
        )
    };
    let h100 = EmulatedDriver::new(vec![EmulatedGpu::named("h100").unwrap().with_sms(4)]);
    let g = h100.open(0).unwrap();
    let at = g.allocate(256).unwrap();
    g.upload(at, &[0; 256]).unwrap();
    let on = Stream::new(&g, 0).unwrap();
    const WAIT: &str = "\tgriddepcontrol.wait;\n";
    const NEXT: &str = "\tgriddepcontrol.launch_dependents;\n";
    const READ: &str = "\tld.global.u32 %r1, [%rd1];\n";
    const OTHER: &str = "\tld.global.u32 %r1, [%rd1+128];\n";
    const WRITE: &str = "\tst.global.u32 [%rd1], %r2;\n";
    const ADD: &str = "\tred.relaxed.gpu.global.add.u32 [%rd1], %r2;\n";
    let run = |body: &[&str], early: bool| {
        let m = g
            .load_module(ModuleCode::Text(&text(&body.concat())))
            .unwrap();
        let f = g.function(m, "k").unwrap();
        outcome(g.launch(f, shape(early), &[Arg::Pointer(at)], on.id()), &on)
    };
    let found = |body: &[&str], what: &str| {
        let why = run(body, true).unwrap_err();
        assert!(why.contains(what), "{body:?}: {why}");
    };
    // All that is there was written by the host.
    run(&[READ, WAIT], true).unwrap();
    run(&[WAIT, ADD], false).unwrap();
    run(&[OTHER, WAIT, NEXT, READ], true).unwrap();
    run(&[WAIT, ADD], true).unwrap();
    found(&[READ, WAIT], "which a kernel before writes");
    run(&[WAIT, ADD], true).unwrap();
    found(&[ADD, WAIT], "while a kernel before may use them");
    found(&[WRITE, WAIT], "while a kernel before may use them");
    found(&[READ], "does not wait for it");
    // A kernel before that is over, behind one that waited before it let the next begin, and behind one that did not.
    for (between, fine) in [([WAIT, NEXT], true), ([NEXT, WAIT], false)] {
        run(&[WAIT, ADD], false).unwrap();
        run(&between, true).unwrap();
        match fine {
            true => run(&[READ, WAIT], true).unwrap(),
            false => found(&[READ, WAIT], "which a kernel before writes"),
        }
    }
    // Behind something else than a kernel nothing is under way.
    run(&[WAIT, ADD], false).unwrap();
    g.upload(at.offset(128), &[0; 4]).unwrap();
    g.copy(at.offset(128), at.offset(64), 4, on.id()).unwrap();
    run(&[READ, WAIT], true).unwrap();
    // Nothing else of it is different.
    let f = function(&c, self::ADD, "add");
    let args = [
        Arg::Pointer(c.allocate(256).unwrap()),
        Arg::U32(64),
        Arg::U32(1),
    ];
    let s = Stream::new(&c, 0).unwrap();
    assert!(c.launch(f, shape(true), &args, s.id()).is_err());
}

#[test]
fn launches_fail_where_a_gpu_would_refuse_them() {
    let (d, c) = open();
    let f = function(&c, ADD, "add");
    let at = c.allocate(256).unwrap();
    c.upload(at, &[0; 256]).unwrap();
    let s = Stream::new(&c, 0).unwrap();
    let args = [Arg::Pointer(at), Arg::U32(64), Arg::U32(1)];
    let launch = |grid, threads, shared_bytes, args: &[Arg]| {
        let shape = Launch {
            grid: [grid, 1, 1],
            block: [threads, 1, 1],
            shared_bytes,
            early: false,
        };
        c.launch(f, shape, args, s.id())
    };
    assert!(launch(1, 2048, 0, &args).is_err());
    assert!(launch(0, 32, 0, &args).is_err());
    assert!(launch(1, 32, 0, &args[..2]).is_err());
    assert!(launch(1, 32, 100 << 10, &args).is_err());
    c.allow_shared(f, 100 << 10).unwrap();
    launch(1, 32, 100 << 10, &args).unwrap();
    assert!(c.allow_shared(f, 200 << 10).is_err());
    assert_eq!(c.blocks_per_sm(f, 1024, 0).unwrap(), 2);
    assert_eq!(c.blocks_per_sm(f, 32, 100 << 10).unwrap(), 1);
    assert_eq!(c.function_info(f).unwrap().max_threads, 1024);
    s.synchronize().unwrap();
    d.inject(0, Fault::Launch { at: 2 });
    launch(1, 32, 0, &args).unwrap();
    assert!(matches!(
        launch(1, 32, 0, &args),
        Err(DriverError::Launch { .. })
    ));
    launch(1, 32, 0, &args).unwrap();
    s.synchronize().unwrap();
    assert_eq!(words(&c, at, 1), [3]);
    assert!(c.synchronize(StreamId(77)).is_err());
}

#[test]
fn findings_fail_the_stream_and_illegal_accesses_lose_the_gpu() {
    let (_d, c) = open();
    let f = function(&c, ADD, "add");
    let s = Stream::new(&c, 0).unwrap();
    // Nothing wrote what is read.
    let raw = c.allocate(256).unwrap();
    add(&c, f, raw, 1, &s);
    let e = s.synchronize().unwrap_err();
    assert!(
        matches!(&e, DriverError::Launch { why, .. } if why.contains("uninitialised")),
        "{e}"
    );
    s.synchronize().unwrap();
    // Half of it is not there.
    let short = c.allocate(128).unwrap();
    c.upload(short, &[0; 128]).unwrap();
    add(&c, f, short, 1, &s);
    let e = s.synchronize().unwrap_err();
    assert!(
        matches!(&e, DriverError::Lost { code, .. } if code == "CUDA_ERROR_ILLEGAL_ADDRESS"),
        "{e}"
    );
    assert!(e.to_string().contains("line "), "{e}");
    for e in [
        c.allocate(4).map(drop),
        c.memory().map(drop),
        c.new_stream(0).map(drop),
        c.upload(raw, &[0]),
        s.synchronize(),
    ] {
        assert!(matches!(e, Err(DriverError::Lost { .. })), "{e:?}");
    }
}

#[test]
fn a_gpu_is_lost_when_it_is_made_to_be() {
    let (d, c) = open();
    d.inject(0, Fault::Lost { at: 3 });
    let at = c.allocate(4).unwrap();
    c.upload(at, &[1, 2, 3, 4]).unwrap();
    let lost = |r: Result<(), DriverError>| assert!(matches!(r, Err(DriverError::Lost { .. })));
    lost(c.download(&mut [0; 4], at));
    lost(c.download(&mut [0; 4], at));
    lost(c.allocate(4).map(drop));
    d.clear(0);
    lost(c.free(at));
}

#[test]
fn a_graph_keeps_launches_and_runs_them_as_often_as_it_is_launched() {
    let (driver, c) = open();
    let f = function(&c, ADD, "add");
    let s = Stream::new(&c, 0).unwrap();
    let at = c.allocate(256).unwrap();
    c.upload(at, &[0; 256]).unwrap();
    let keep = || {
        add(&c, f, at, 3, &s);
        add(&c, f, at, 4, &s);
        Ok(())
    };
    let graph = Graph::of(&c, &s, keep, |e: DriverError| e).unwrap();
    s.synchronize().unwrap();
    assert_eq!(words(&c, at, 64), [0; 64]);
    graph.launch(&s).unwrap();
    add(&c, f, at, 100, &s);
    graph.launch(&s).unwrap();
    s.synchronize().unwrap();
    assert_eq!(words(&c, at, 64), [114; 64]);
    assert_eq!(driver.calls(0)["cuGraphLaunch"], 2);
    // What waits is no part of one, and the stream goes on.
    let e = Event::new(&c).unwrap();
    let none = Graph::of(&c, &s, || e.record(&s), |e| e).err().unwrap();
    assert!(none.to_string().contains("no part of a graph"), "{none}");
    add(&c, f, at, 1, &s);
    s.synchronize().unwrap();
    assert_eq!(words(&c, at, 64), [115; 64]);
    drop(graph);
    assert!(c.launch_graph(cuda::GraphId(9999), s.id()).is_err());
}
