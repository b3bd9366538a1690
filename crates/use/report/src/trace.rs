//! Timelines as Chrome traces.
use crate::{Profile, StepProfile};
use layout::{Arrange, Inserted};
use plan::{Activity, Mark, Timeline};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Steps of a profile by name.
type ByName<'a> = BTreeMap<&'a str, &'a StepProfile>;

/// A request as Chrome trace events (Perfetto and chrome://tracing open them): workers as threads of
/// one process, the prediction, step after step, as another; decisions are instants. Times are microseconds.
pub fn chrome_trace(profile: &Profile, timeline: &Timeline) -> String {
    let by_name: ByName = profile
        .steps
        .iter()
        .map(|s| (s.step.name.as_str(), s))
        .inserted();
    let mut events: Vec<Value> = Vec::new();
    named(&mut events, profile, timeline);
    measured(&mut events, &by_name, timeline);
    predicted(&mut events, &by_name, timeline);
    device(&mut events, timeline);
    decisions(&mut events, timeline);
    json!({"displayTimeUnit": "ns", "traceEvents": events}).to_string()
}

/// What processes and threads are called.
fn named(events: &mut Vec<Value>, profile: &Profile, timeline: &Timeline) {
    let name = |pid: u32, tid: u32, what: &str, text: String| json!({"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": text}});
    events.push(name(
        1,
        0,
        "process_name",
        format!("measured: {} on {}", profile.model, profile.device),
    ));
    events.push(name(
        2,
        0,
        "process_name",
        format!("predicted: {} on {}", profile.model, profile.machine),
    ));
    events.push(name(2, 0, "thread_name", "plan".into()));
    let workers: BTreeSet<u32> = timeline.spans.iter().map(|s| s.worker).inserted();
    for w in workers {
        let text = if w == 0 {
            "worker 0 (caller)".to_string()
        } else {
            format!("worker {w}")
        };
        events.push(name(1, w, "thread_name", text));
    }
}

/// What is told of a step beside its times.
fn args(s: &StepProfile) -> Value {
    json!({
        "step": s.step.number,
        "nodes": s.step.nodes,
        "kernel": s.step.kernel,
        "shapes": s.step.shapes,
        "tiles": s.step.schedule,
        "FLOP": s.step.flop,
        "unique bytes": s.step.unique_bytes(),
        "all bytes": s.step.all_bytes(),
        "bound": s.step.bound,
        "predicted us": s.step.predicted_us,
        "median us": s.time_us,
        "reason": s.step.reason,
    })
}

/// Spans of the workers.
fn measured(events: &mut Vec<Value>, by_name: &ByName<'_>, timeline: &Timeline) {
    let mut spans: Vec<_> = timeline.spans.iter().collect();
    spans.arrange_by_key(|s| (s.start_ns, s.worker));
    for s in spans {
        let step = timeline
            .steps
            .get(s.step as usize)
            .map_or("", String::as_str);
        let known = by_name.get(step);
        let mut a = known.map_or_else(|| json!({}), |p| args(p));
        a["first task"] = json!(s.first_task);
        a["tasks"] = json!(s.tasks);
        events.push(json!({
            "name": step,
            "cat": known.map_or("step", |p| p.step.family.as_str()),
            "ph": "X",
            "pid": 1,
            "tid": s.worker,
            "ts": s.start_ns as f64 * 1e-3,
            "dur": s.end_ns.saturating_sub(s.start_ns) as f64 * 1e-3,
            "args": a,
        }));
    }
}

/// The steps as predicted, one after the other.
fn predicted(events: &mut Vec<Value>, by_name: &ByName<'_>, timeline: &Timeline) {
    let mut at = 0.0;
    for step in &timeline.steps {
        if let Some(p) = by_name.get(step.as_str()) {
            events.push(json!({
                "name": step,
                "cat": p.step.family,
                "ph": "X",
                "pid": 2,
                "tid": 0,
                "ts": at,
                "dur": p.step.predicted_us,
                "args": args(p),
            }));
            at += p.step.predicted_us;
        }
    }
}

/// Decisions as instants across all of them: they are about what every worker does.
fn decisions(events: &mut Vec<Value>, timeline: &Timeline) {
    for m in &timeline.marks {
        let others: Vec<Value> = m
            .why
            .alternatives
            .iter()
            .map(|a| json!({"what": a.what, "predicted us": a.predicted_s * 1e6}))
            .collect();
        events.push(json!({
            "name": decided(m),
            "cat": "decision",
            "ph": "i",
            "s": "g",
            "pid": 1,
            "tid": 0,
            "ts": m.at_ns as f64 * 1e-3,
            "args": {"choice": m.why.choice, "reason": m.why.reason, "alternatives": others},
        }));
    }
}

/// A decision in a few words.
pub(crate) fn decided(m: &Mark) -> String {
    format!("{} {}: {}", m.why.pass, m.why.subject, m.why.choice)
}

/// A device's queues as threads of a third process, by its own clock: kernels, copies, waits.
fn device(events: &mut Vec<Value>, timeline: &Timeline) {
    let meta = |tid: usize, what: &str, text: &str| json!({"name": what, "ph": "M", "pid": 3, "tid": tid, "args": {"name": text}});
    if !timeline.lanes.is_empty() {
        events.push(meta(0, "process_name", "measured by the device's clock"));
    }
    for (i, lane) in timeline.lanes.iter().enumerate() {
        events.push(meta(i, "thread_name", lane));
    }
    for s in &timeline.device {
        let step = timeline.steps.get(s.step as usize).map_or("", |n| n);
        let (what, cat) = match s.what {
            Activity::Kernel => (String::new(), "kernel"),
            Activity::Upload => ("to the device: ".into(), "copy"),
            Activity::Download => ("from the device: ".into(), "copy"),
            Activity::Wait => ("wait: ".into(), "wait"),
        };
        events.push(json!({
            "name": format!("{what}{step}"),
            "cat": cat,
            "ph": "X",
            "pid": 3,
            "tid": s.lane,
            "ts": s.start_ns as f64 * 1e-3,
            "dur": s.end_ns.saturating_sub(s.start_ns) as f64 * 1e-3,
            "args": {"step": s.step, "bytes": s.bytes},
        }));
    }
}
