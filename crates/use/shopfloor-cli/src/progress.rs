//! Signs of life on standard error while something takes its time.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two lines where standard error is no terminal.
const EVERY: Duration = Duration::from_secs(3);
/// Steps of a bar.
const WHOLE: f64 = 1000.0;

/// What is under way, on standard error until it is dropped: a bar or a spinner on a terminal, and elsewhere a line
/// from time to time, so that a log shows that something goes on.
pub enum Progress {
    /// On a terminal.
    Terminal(ProgressBar),
    /// Elsewhere.
    Lines(Lines),
}

impl Progress {
    /// With a share of what is to be done, which [`Progress::done`] tells.
    pub fn bar(what: &str) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress::Lines(Lines::new(what));
        }
        let bar = ProgressBar::new(WHOLE as u64);
        if let Ok(s) = ProgressStyle::with_template("{msg} [{bar:40}] {percent}%") {
            bar.set_style(s.progress_chars("=> "));
        }
        bar.set_message(what.to_string());
        Progress::Terminal(bar)
    }

    /// Without a share.
    pub fn spinner(what: &str) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress::Lines(Lines::new(what));
        }
        let bar = ProgressBar::new_spinner();
        bar.set_message(what.to_string());
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress::Terminal(bar)
    }

    /// Hears the share done, 0 to 1.
    pub fn done(&self, share: f64) {
        match self {
            Progress::Terminal(bar) => bar.set_position((share * WHOLE) as u64),
            Progress::Lines(l) => l.state().share = Some(share.clamp(0.0, 1.0)),
        }
    }

    /// Says what is done now.
    pub fn now(&self, what: String) {
        match self {
            Progress::Terminal(bar) => bar.set_message(what),
            Progress::Lines(l) => l.state().what = what,
        }
    }

    /// Prints something while the bar stands aside.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match self {
            Progress::Terminal(bar) => bar.suspend(print),
            Progress::Lines(_) => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Progress::Terminal(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// What the next line says.
struct State {
    what: String,
    share: Option<f64>,
    over: bool,
}

impl State {
    fn line(&self, passed: Duration) -> String {
        let seconds = passed.as_secs();
        match self.share {
            Some(share) => format!("{}: {:.0}% after {seconds} s", self.what, share * 100.0),
            None => format!("{}: {seconds} s so far", self.what),
        }
    }
}

/// Lines that a thread writes every few seconds.
pub struct Lines {
    shared: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// Nothing that holds the lock can leave half a state behind.
fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lines {
    fn new(what: &str) -> Lines {
        let shared = Arc::new((
            Mutex::new(State {
                what: what.into(),
                share: None,
                over: false,
            }),
            Condvar::new(),
        ));
        let heard = Arc::clone(&shared);
        let write = move || {
            let (state, ended) = &*heard;
            let began = Instant::now();
            let mut now = locked(state);
            loop {
                let due = Instant::now() + EVERY;
                while !now.over && Instant::now() < due {
                    let left = due.saturating_duration_since(Instant::now());
                    let woken = ended.wait_timeout(now, left);
                    now = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
                if now.over {
                    return;
                }
                let line = now.line(began.elapsed());
                // Who tells the share done does not wait for standard error.
                drop(now);
                // Nobody is left to tell when it is gone.
                let _ = writeln!(std::io::stderr(), "{line}");
                now = locked(state);
            }
        };
        // Without a thread there are no lines, and nothing else is lost.
        let thread = std::thread::Builder::new().name("progress".into());
        let thread = thread.spawn(write).ok();
        Lines { shared, thread }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.shared.0)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.state().over = true;
        self.shared.1.notify_all();
        if let Some(t) = self.thread.take() {
            // It returns at once, and has nothing to tell.
            let _ = t.join();
        }
    }
}
