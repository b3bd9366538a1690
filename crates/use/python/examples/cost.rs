//! What requests cost in Rust alone, for `tests/cost.py` to set beside Python:
//!
//!     cost MODEL THREADS SECONDS
//!
//! prints how many requests all threads did in one session, and in how many seconds.
use shopfloor::{Session, inputs};
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, threads, seconds] = &args[..] else {
        return Err("usage: cost MODEL THREADS SECONDS".into());
    };
    let (threads, seconds): (usize, f64) = (threads.parse()?, seconds.parse()?);
    // As the wheel makes its sessions; one worker a request, so that threads are what scales.
    let session = Session::builder()
        .with_queue(64, 1 << 16)
        .with_workers(1)
        .commit_from_file(model)?;
    let (sizes, _) = inputs::sizes(session.model());
    let tensors = inputs::random_inputs(session.model(), &sizes)?;
    let named = inputs::borrowed(&tensors);
    for _ in 0..100 {
        session.run(&named)?;
    }
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(seconds);
    let work = || -> Result<u64, shopfloor::Error> {
        let mut done = 0;
        while Instant::now() < end {
            // The clock is read now and then.
            for _ in 0..10 {
                std::hint::black_box(session.run(&named)?);
            }
            done += 10;
        }
        Ok(done)
    };
    let done: Result<u64, shopfloor::Error> = std::thread::scope(|s| {
        let all: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        let joined = all.into_iter().map(|t| t.join().expect("no thread panics"));
        joined.sum()
    });
    println!("{} {}", done?, began.elapsed().as_secs_f64());
    Ok(())
}
