//! Callers of several priorities that come and go: whoever is left behind is worked for again.
use super::sharing::{compiled, device, run};
use super::{K, M, N, values, want};
use device::Permit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Requests of each caller above the others.
const URGENT: u64 = 1000;
/// After so long nothing goes on any more.
const HUNG: Duration = Duration::from_secs(30);

/// A helper of one urgent request leaves for a more urgent one, and may do so as the first ends; what it says then
/// must not keep its place free for good.
#[test]
fn those_below_go_on_when_two_levels_of_urgent_requests_are_done() {
    for threads in [2, 3] {
        let seed = u64::from(std::process::id()) * 31 + threads as u64;
        println!("seed {seed}");
        let task = |_: &str| {
            let until = Instant::now() + Duration::from_micros(5);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            Ok(())
        };
        let d = Arc::new(device(threads, Arc::new(task)));
        let w = Arc::new(values(N * K, 3));
        let done = Arc::new(AtomicBool::new(false));
        let below: Arc<[AtomicUsize; 2]> = Arc::default();
        let failed: Arc<Mutex<Option<String>>> = Arc::default();
        let (tell, ended) = channel();
        let caller = |number: u64, priority: i32| {
            let (d, w, done) = (d.clone(), w.clone(), done.clone());
            let (below, failed, tell) = (below.clone(), failed.clone(), tell.clone());
            let name = ["low", "low", "urgent", "most"][number as usize];
            std::thread::spawn(move || {
                let e = compiled(&d, &w, name, 1 + number as i64);
                let mut f = e.new_frame().expect("a frame");
                let x = values(M * K, number as i64);
                let right = want(&x, &w);
                let mut drawn = fastrand::Rng::with_seed(seed + number);
                for i in 0.. {
                    let over = match priority {
                        0 => done.load(Ordering::SeqCst),
                        _ => i >= URGENT,
                    };
                    if over {
                        break;
                    }
                    let permit = Permit {
                        priority,
                        ..Permit::default()
                    };
                    match run(&*e, &mut f, &x, permit) {
                        Ok(y) if y == right => {}
                        Ok(_) => *failed.lock().unwrap() = Some(format!("{name}: wrong")),
                        Err(e) => *failed.lock().unwrap() = Some(format!("{name}: {e}")),
                    }
                    if priority == 0 {
                        below[number as usize].fetch_add(1, Ordering::SeqCst);
                    } else {
                        std::thread::sleep(Duration::from_micros(drawn.u64(..150)));
                    }
                }
                let _ = tell.send(name);
            })
        };
        // Threads that hang are left behind: to join them would hang the test.
        let _callers: Vec<_> = [0, 0, 1, 2]
            .into_iter()
            .enumerate()
            .map(|(n, priority)| caller(n as u64, priority))
            .collect();
        for _ in 0..2 {
            ended
                .recv_timeout(HUNG)
                .expect("an urgent request never ended");
        }
        let before: Vec<usize> = below.iter().map(|b| b.load(Ordering::SeqCst)).collect();
        let start = Instant::now();
        let stuck = || {
            let now = below.iter().map(|b| b.load(Ordering::SeqCst));
            now.zip(&before).any(|(now, before)| now < before + 3)
        };
        while stuck() {
            assert!(
                start.elapsed() < HUNG,
                "{threads} workers: nobody works for those below"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        done.store(true, Ordering::SeqCst);
        for _ in 0..2 {
            ended.recv_timeout(HUNG).expect("a request never ended");
        }
        assert_eq!(*failed.lock().unwrap(), None);
    }
}
