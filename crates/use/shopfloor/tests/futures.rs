//! Requests whose answers are futures: polled by a few lines of executor, dropped under way, by thousands.

use crate::common::sums;
use shopfloor::{
    Call, Cancel, DType, Engine, Error, Outputs, RunError, RunFuture, Session, SessionBuilder,
    Tensor, default_engine, inputs,
};
use std::collections::VecDeque;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Far more than any test takes.
const LONG: Duration = Duration::from_secs(120);

/// Wakes a thread that waits, and counts.
#[derive(Default)]
struct Bell {
    rung: Mutex<usize>,
    rings: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() += 1;
        self.rings.notify_all();
    }
}

impl Bell {
    fn rung(&self) -> usize {
        *self.rung.lock().unwrap()
    }
}

pub fn block_on<F: Future + Unpin>(mut f: F) -> F::Output {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut cx = Context::from_waker(&waker);
    let until = Instant::now() + LONG;
    loop {
        let before = bell.rung();
        if let Poll::Ready(out) = Pin::new(&mut f).poll(&mut cx) {
            return out;
        }
        let mut rung = bell.rung.lock().unwrap();
        while *rung == before {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nobody woke the future");
            rung = bell.rings.wait_timeout(rung, left).unwrap().0;
        }
    }
}

fn digits(builder: SessionBuilder) -> Session {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models");
    let builder = builder.with_dim("batch", 1, 8);
    builder
        .commit_from_file(models.join("digits_cnn/model.onnx"))
        .unwrap()
}

fn image(n: usize) -> Tensor {
    let pixels: Vec<f32> = (0..64)
        .map(|i| ((i * 7 + n * 13) % 17) as f32 / 17.0)
        .collect();
    Tensor::from_array(([1, 1, 8, 8], pixels)).unwrap()
}

/// A request of some ten milliseconds.
fn slow(engine: &Arc<Engine>) -> (Session, Arc<Tensor>) {
    let n = 1 << 22;
    let builder = Session::builder().with_engine(engine.clone());
    let session = builder.commit_from_memory(sums(n)).unwrap();
    let x = Tensor::zeros(DType::F32, &[1, n as usize]).unwrap();
    (session, Arc::new(x))
}

fn near(a: &Outputs, b: &Outputs) {
    let (a, b) = (a[0].as_slice::<f32>(), b[0].as_slice::<f32>());
    for (a, b) in a.unwrap().iter().zip(b.unwrap()) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
}

#[test]
fn a_future_gives_what_a_call_gives() {
    let s = digits(Session::builder().with_threads(2));
    for n in 0..20 {
        let x = image(n);
        let want = s.run(inputs!["image" => &x]).unwrap();
        near(&block_on(s.run_async([("image", x)])).unwrap(), &want);
    }
    // Names that are owned, tensors that are shared.
    let x = Arc::new(image(3));
    let want = s.run(inputs!["image" => &x]).unwrap();
    let got = block_on(s.run_async(vec![("image".to_string(), x.clone())]));
    near(&got.unwrap(), &want);
    assert_eq!(Arc::strong_count(&x), 1);
}

/// What executors of many threads ask of a future, and threads of what they share.
#[test]
fn everything_may_go_to_other_threads() {
    fn sent<T: Send + 'static>() {}
    fn shared<T: Send + Sync + 'static>() {}
    sent::<RunFuture>();
    sent::<shopfloor::Stream>();
    sent::<shopfloor::Binding>();
    shared::<Session>();
    shared::<shopfloor::Operator>();
    shared::<Tensor>();
    shared::<Error>();
}

#[test]
fn what_is_wrong_is_the_futures_answer() {
    let s = digits(Session::builder().with_threads(1));
    let x = || Tensor::zeros(DType::F32, &[1, 1, 8, 8]).unwrap();
    let said = |f: RunFuture| block_on(f).unwrap_err().to_string();
    assert!(said(s.run_async([("picture", x())])).contains("no input 'picture'"));
    assert!(said(s.run_async::<&str, Tensor>([])).contains("'image' is missing"));
    let bytes = Tensor::zeros(DType::U8, &[1, 1, 8, 8]).unwrap();
    assert!(said(s.run_async([("image", bytes)])).contains("u8"));
    let flat = Tensor::zeros(DType::F32, &[1, 64]).unwrap();
    assert!(said(s.run_async([("image", flat)])).contains("shape"));
    // One that is polled beyond its answer says so.
    let mut f = s.run_async([("image", x())]);
    block_on(&mut f).unwrap();
    assert!(block_on(&mut f).is_err());
}

/// Polls all of them as their wakers ask, on this thread.
fn all(futures: Vec<RunFuture>) -> Vec<Result<Outputs, Error>> {
    #[derive(Default)]
    struct Due {
        queue: Mutex<VecDeque<usize>>,
        more: Condvar,
    }
    struct One(usize, Arc<Due>);
    impl Wake for One {
        fn wake(self: Arc<Self>) {
            self.1.queue.lock().unwrap().push_back(self.0);
            self.1.more.notify_all();
        }
    }
    let due = Arc::new(Due::default());
    let waker = |i: usize| Waker::from(Arc::new(One(i, due.clone())));
    let wakers: Vec<Waker> = (0..futures.len()).map(waker).collect();
    due.queue.lock().unwrap().extend(0..futures.len());
    let mut left = futures.len();
    let mut futures: Vec<Option<RunFuture>> = futures.into_iter().map(Some).collect();
    let mut out: Vec<Option<Result<Outputs, Error>>> = futures.iter().map(|_| None).collect();
    while left > 0 {
        let mut queue = due.queue.lock().unwrap();
        while queue.is_empty() {
            let (q, wait) = due.more.wait_timeout(queue, LONG).unwrap();
            assert!(!wait.timed_out(), "{left} futures were never woken");
            queue = q;
        }
        let i = queue.pop_front().unwrap();
        drop(queue);
        let Some(f) = &mut futures[i] else { continue };
        if let Poll::Ready(r) = Pin::new(f).poll(&mut Context::from_waker(&wakers[i])) {
            out[i] = Some(r);
            futures[i] = None;
            left -= 1;
        }
    }
    out.into_iter().flatten().collect()
}

#[test]
fn thousands_are_in_flight_on_few_threads() {
    let s = digits(Session::builder().with_threads(2).with_queue(4, 5000));
    let want: Vec<Outputs> = (0..17)
        .map(|n| s.run(inputs!["image" => &image(n)]).unwrap())
        .collect();
    let images: Vec<Arc<Tensor>> = (0..17).map(|n| Arc::new(image(n))).collect();
    let futures = (0..4000).map(|i| s.run_async([("image", images[i % 17].clone())]));
    let answers = all(futures.collect());
    // Those of the other tests are among them.
    assert!(threads() < 200, "{}", threads());
    for (i, a) in answers.iter().enumerate() {
        near(a.as_ref().unwrap(), &want[i % 17]);
    }
    let stats = s.runtime().view().stats;
    assert!(stats.done >= 4000, "{stats:?}");
    assert_eq!(s.runtime().load().queued, 0);
}

/// Threads of this process whose names are ours for futures; none where the system does not list them.
fn threads() -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let name = |t: std::fs::DirEntry| std::fs::read_to_string(t.path().join("comm"));
    let names = tasks.flatten().filter_map(|t| name(t).ok());
    names.filter(|n| n.starts_with("shopfloor-async")).count()
}

#[test]
fn what_waits_is_batched() {
    let builder = Session::builder().with_threads(2).with_queue(2, 1000);
    let s = digits(builder.with_batching(8, Duration::from_millis(2)));
    let want: Vec<Outputs> = (0..17)
        .map(|n| s.run(inputs!["image" => &image(n)]).unwrap())
        .collect();
    let futures = (0..300).map(|i| s.run_async([("image", image(i % 17))]));
    for (i, a) in all(futures.collect()).iter().enumerate() {
        near(a.as_ref().unwrap(), &want[i % 17]);
    }
    // The last of them is held back alone, and nobody else drives the clock.
    near(
        &block_on(s.run_async([("image", image(0))])).unwrap(),
        &want[0],
    );
}

#[test]
fn dropping_gives_a_request_up() {
    let engine = default_engine(Some(2), None, None).unwrap();
    let (s, x) = slow(&engine);
    let one = Instant::now();
    block_on(s.run_async([("x", x.clone())])).unwrap();
    let one = one.elapsed();
    // Hundreds that wait, and one that runs.
    let futures: Vec<RunFuture> = (0..400).map(|_| s.run_async([("x", x.clone())])).collect();
    std::thread::sleep(one / 4);
    let began = Instant::now();
    drop(futures);
    s.drain();
    assert!(began.elapsed() < one * 100, "{:?} {one:?}", began.elapsed());
    // Everything that they held is free again.
    let held = || Arc::strong_count(&x);
    let until = Instant::now() + LONG;
    while held() > 1 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(held(), 1);
    assert_eq!(engine.memory().sessions[0].queue, 0);
}

#[test]
fn some_are_dropped_and_the_others_are_answered() {
    let s = digits(Session::builder().with_threads(2).with_queue(4, 4096));
    let want = s.run(inputs!["image" => &image(1)]).unwrap();
    let mut futures: Vec<Option<RunFuture>> = (0..2000)
        .map(|_| Some(s.run_async([("image", image(1))])))
        .collect();
    let mut dropped = 0;
    for (i, f) in futures.iter_mut().enumerate() {
        if i % 3 != 0 {
            // Half of them polled before.
            if i % 2 == 0 {
                let waker = Waker::noop();
                let _ = Pin::new(f.as_mut().unwrap()).poll(&mut Context::from_waker(waker));
            }
            *f = None;
            dropped += 1;
        }
    }
    let answers = all(futures.into_iter().flatten().collect());
    assert_eq!(answers.len() + dropped, 2000);
    for a in &answers {
        near(a.as_ref().unwrap(), &want);
    }
}

#[test]
fn handles_and_deadlines_hold_for_futures() {
    let engine = default_engine(Some(2), None, None).unwrap();
    let (s, x) = slow(&engine);
    block_on(s.run_async([("x", x.clone())])).unwrap();
    let cancel = Cancel::new();
    let call = |deadline| Call {
        cancel: Some(&cancel),
        deadline,
    };
    let futures: Vec<RunFuture> = (0..50)
        .map(|_| s.run_async_call([("x", x.clone())], call(None)))
        .collect();
    cancel.cancel();
    let answers = all(futures);
    let off = |a: &&Result<Outputs, Error>| matches!(a, Err(Error::Run(RunError::Cancelled)));
    assert!(answers.iter().filter(off).count() >= 48);
    // One that was cancelled before it was sent.
    let late = block_on(s.run_async_call([("x", x.clone())], call(None)));
    assert!(off(&&late), "{late:?}");
    // Behind a queue of others none is done in time; nobody polls while that becomes clear.
    let others: Vec<RunFuture> = (0..50).map(|_| s.run_async([("x", x.clone())])).collect();
    let in_time = Call {
        deadline: Some(Duration::from_millis(2)),
        ..Call::default()
    };
    let late = block_on(s.run_async_call([("x", x.clone())], in_time));
    assert!(
        matches!(late, Err(Error::Run(RunError::Late { .. }))),
        "{late:?}"
    );
    drop(others);
    block_on(s.run_async([("x", x)])).unwrap();
}

#[test]
fn more_than_the_queue_holds_are_refused() {
    let s = digits(Session::builder().with_threads(1).with_queue(1, 10));
    let futures: Vec<RunFuture> = (0..500)
        .map(|_| s.run_async([("image", image(1))]))
        .collect();
    let answers = all(futures);
    let full =
        |a: &&Result<Outputs, Error>| matches!(a, Err(Error::Run(RunError::Overloaded { .. })));
    let refused = answers.iter().filter(full).count();
    let done = answers.iter().filter(|a| a.is_ok()).count();
    assert!(
        done >= 11 && refused > 0 && done + refused == 500,
        "{done} {refused}"
    );
}

#[test]
fn the_waker_that_came_last_is_woken() {
    let engine = default_engine(Some(1), None, None).unwrap();
    let (s, x) = slow(&engine);
    let mut f = s.run_async([("x", x)]);
    let bells = [0, 1].map(|_| Arc::new(Bell::default()));
    for bell in &bells {
        let waker = Waker::from(bell.clone());
        let polled = Pin::new(&mut f).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    let until = Instant::now() + LONG;
    while bells[1].rung() == 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!([bells[0].rung(), bells[1].rung()], [0, 1]);
    block_on(f).unwrap();
}

/// Panics instead of waking.
struct Broken(AtomicUsize);

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a waker of the caller's");
    }
}

#[test]
fn a_waker_that_panics_takes_nothing_from_the_others() {
    let engine = default_engine(Some(1), None, None).unwrap();
    let (s, x) = slow(&engine);
    let broken = Arc::new(Broken(AtomicUsize::new(0)));
    let waker = Waker::from(broken.clone());
    for _ in 0..5 {
        let mut f = s.run_async([("x", x.clone())]);
        let polled = Pin::new(&mut f).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        block_on(s.run_async([("x", x.clone())])).unwrap();
        block_on(f).unwrap();
    }
    assert!(broken.0.load(Ordering::SeqCst) > 0);
}

#[test]
fn the_session_may_go_before_its_answers() {
    let s = digits(Session::builder().with_threads(2).with_queue(4, 1000));
    let want = s.run(inputs!["image" => &image(2)]).unwrap();
    let futures = (0..200).map(|_| s.run_async([("image", image(2))]));
    let futures: Vec<RunFuture> = futures.collect();
    drop(s);
    for a in all(futures) {
        near(&a.unwrap(), &want);
    }
}

#[test]
fn futures_and_calls_of_several_sessions_share_the_workers() {
    let engine = default_engine(Some(2), None, None).unwrap();
    let of = |p: i32| {
        let builder = Session::builder().with_engine(engine.clone());
        digits(builder.with_queue(4, 2000).with_priority(p))
    };
    let sessions = [of(0), of(1), of(0)];
    let want = sessions[0].run(inputs!["image" => &image(5)]).unwrap();
    std::thread::scope(|scope| {
        for s in &sessions {
            scope.spawn(|| {
                for _ in 0..100 {
                    near(&s.run(inputs!["image" => &image(5)]).unwrap(), &want);
                }
            });
            scope.spawn(|| {
                let futures = (0..300).map(|_| s.run_async([("image", image(5))]));
                for a in all(futures.collect()) {
                    near(&a.unwrap(), &want);
                }
            });
        }
    });
}

#[test]
fn streams_and_bindings_hold_their_session() {
    let s = digits(Session::builder().with_threads(1));
    let want = s.run(inputs!["image" => &image(4)]).unwrap();
    let mut binding = s.bind();
    let mut dims = shopfloor::DimBox::new();
    dims.insert("batch", 1, 1);
    let mut stream = s.stream(&dims).unwrap();
    drop(s);
    let at = binding.input("image").unwrap();
    binding.set(at, image(4)).unwrap();
    assert_eq!(binding.run().unwrap()[0], want[0]);
    let e = binding.bind_input("picture", image(4)).unwrap_err();
    assert!(e.to_string().contains("picture") && e.to_string().contains("image"));
    binding.bind_input("image", image(4)).unwrap();
    binding.run().unwrap();
    assert_eq!(binding.get("probabilities"), Some(&want[0]));
    assert_eq!(binding.get("x"), None);
    let answer = std::thread::spawn(move || stream.run(&[("image", &image(4))]).unwrap());
    assert_eq!(answer.join().unwrap()[0].1, want[0]);
}

#[test]
fn outputs_are_walked_and_taken_by_name() -> shopfloor::Result<()> {
    let s = digits(Session::builder().with_threads(1));
    let mut out = s.run(inputs!["image" => &image(4)])?;
    for (name, y) in &out {
        assert_eq!((name, y), ("probabilities", &out[0]));
    }
    assert!(out.contains_key("probabilities") && !out.contains_key("x"));
    assert_eq!(out.keys().collect::<Vec<_>>(), ["probabilities"]);
    let all: Vec<(String, Tensor)> = out.clone().into_iter().collect();
    assert_eq!(out.remove("x"), None);
    assert_eq!(out.remove("probabilities").as_ref(), Some(&all[0].1));
    assert_eq!((out.remove("probabilities"), out.len()), (None, 0));
    Ok(())
}
