//! Requests that are recorded, for a trace that is written when the caller asks for it.
use shopfloor::{Error, Outputs, Session, Tensor, Timeline, inputs};
use shopfloor_tools::report::chrome_trace;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Most requests kept: each holds every span of one.
const MOST: usize = 1024;

/// One request.
struct One {
    at_us: f64,
    sizes: BTreeMap<String, i64>,
    timeline: Timeline,
}

/// Requests since the session began.
pub struct Recording {
    began: Instant,
    all: Vec<One>,
}

impl Default for Recording {
    fn default() -> Recording {
        Recording {
            began: Instant::now(),
            all: Vec::new(),
        }
    }
}

fn lock(kept: &Mutex<Recording>) -> std::sync::MutexGuard<'_, Recording> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a request and keeps its timeline, unless as many as are kept are there.
pub fn run(
    session: &Session,
    named: &[(&str, &Tensor)],
    kept: &Mutex<Recording>,
) -> Result<Outputs, Error> {
    let (began, full) = {
        let kept = lock(kept);
        (kept.began, kept.all.len() >= MOST)
    };
    if full {
        return session.run(named);
    }
    let at_us = began.elapsed().as_secs_f64() * 1e6;
    let mut timeline = Timeline::default();
    let start = Instant::now();
    let outputs = session.run_timed(named, &mut timeline)?;
    timeline.total_ns = start.elapsed().as_nanos() as u64;
    let sizes = inputs::sizes_given(session.model(), named);
    lock(kept).all.push(One {
        at_us,
        sizes,
        timeline,
    });
    Ok(outputs)
}

/// When each request began, in microseconds, and its trace; they are kept no longer.
pub fn taken(session: &Session, kept: &Mutex<Recording>) -> Vec<(f64, String)> {
    let all = std::mem::take(&mut lock(kept).all);
    let trace = |one: One| {
        let timelines = [one.timeline];
        let profile = shopfloor::profile_of(session, &one.sizes, 0, &timelines);
        (one.at_us, chrome_trace(&profile, &timelines[0]))
    };
    all.into_iter().map(trace).collect()
}
