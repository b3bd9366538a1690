//! Timelines as Perfetto traces (protobuf, written by hand: a few fields of one message).
use crate::{Profile, StepProfile, units};
use layout::{Arrange, Inserted};
use plan::{Activity, Timeline};
use std::collections::{BTreeMap, BTreeSet};

/// Fields of Perfetto's protobuf messages, by the numbers of `perfetto_trace.proto`.
mod field {
    pub const TRACE_PACKET: u64 = 1;
    pub const PACKET_TIMESTAMP: u64 = 8;
    pub const PACKET_SEQUENCE: u64 = 10;
    pub const PACKET_EVENT: u64 = 11;
    pub const PACKET_SEQUENCE_FLAGS: u64 = 13;
    pub const PACKET_TRACK: u64 = 60;
    pub const TRACK_UUID: u64 = 1;
    pub const TRACK_NAME: u64 = 2;
    pub const TRACK_PROCESS: u64 = 3;
    pub const TRACK_THREAD: u64 = 4;
    pub const TRACK_PARENT: u64 = 5;
    pub const PROCESS_PID: u64 = 1;
    pub const PROCESS_NAME: u64 = 6;
    pub const THREAD_PID: u64 = 1;
    pub const THREAD_TID: u64 = 2;
    pub const THREAD_NAME: u64 = 5;
    pub const EVENT_ANNOTATION: u64 = 4;
    pub const EVENT_TYPE: u64 = 9;
    pub const EVENT_TRACK: u64 = 11;
    pub const EVENT_CATEGORY: u64 = 22;
    pub const EVENT_NAME: u64 = 23;
    pub const ANNOTATION_UINT: u64 = 3;
    pub const ANNOTATION_DOUBLE: u64 = 5;
    pub const ANNOTATION_STRING: u64 = 6;
    pub const ANNOTATION_NAME: u64 = 10;
}

/// `TrackEvent.Type`.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
/// One writer wrote the whole file.
const SEQUENCE: u64 = 1;
/// `SEQ_INCREMENTAL_STATE_CLEARED`, which the first packet of a sequence says.
const CLEARED: u64 = 1;

/// A protobuf message being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.0.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.0.push(v as u8);
    }

    fn uint(&mut self, field: u64, v: u64) {
        self.varint(field << 3);
        self.varint(v);
    }

    fn double(&mut self, field: u64, v: f64) {
        self.varint(field << 3 | 1);
        self.0.extend(v.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, v: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(v.len() as u64);
        self.0.extend_from_slice(v);
    }

    fn text(&mut self, field: u64, v: &str) {
        self.bytes(field, v.as_bytes());
    }

    fn message(&mut self, field: u64, m: &Message) {
        self.bytes(field, &m.0);
    }
}

/// What is said of an event beside its name.
enum Value {
    Count(u64),
    Number(f64),
    Text(String),
}

#[derive(Default)]
struct Trace {
    out: Message,
    packets: usize,
}

impl Trace {
    fn packet(&mut self, mut fill: impl FnMut(&mut Message)) {
        let mut p = Message::default();
        fill(&mut p);
        p.uint(field::PACKET_SEQUENCE, SEQUENCE);
        if self.packets == 0 {
            p.uint(field::PACKET_SEQUENCE_FLAGS, CLEARED);
        }
        self.packets += 1;
        self.out.message(field::TRACE_PACKET, &p);
    }

    fn process(&mut self, pid: u64, name: &str) {
        let mut process = Message::default();
        process.uint(field::PROCESS_PID, pid);
        process.text(field::PROCESS_NAME, name);
        let mut track = Message::default();
        track.uint(field::TRACK_UUID, pid);
        track.text(field::TRACK_NAME, name);
        track.message(field::TRACK_PROCESS, &process);
        self.packet(|p| p.message(field::PACKET_TRACK, &track));
    }

    /// A row of process `pid`; gives its track.
    fn thread(&mut self, pid: u64, tid: u64, name: &str) -> u64 {
        let uuid = pid << 32 | (tid + 1);
        let mut thread = Message::default();
        thread.uint(field::THREAD_PID, pid);
        // Thread 0 of a process is none to Perfetto.
        thread.uint(field::THREAD_TID, tid + 1);
        thread.text(field::THREAD_NAME, name);
        let mut track = Message::default();
        track.uint(field::TRACK_UUID, uuid);
        track.text(field::TRACK_NAME, name);
        track.message(field::TRACK_THREAD, &thread);
        track.uint(field::TRACK_PARENT, pid);
        self.packet(|p| p.message(field::PACKET_TRACK, &track));
        uuid
    }

    fn slice(
        &mut self,
        track: u64,
        category: &str,
        name: &str,
        (from, to): (u64, u64),
        about: &[(&str, Value)],
    ) {
        self.event(BEGIN, track, (category, name), from, about);
        let mut event = Message::default();
        event.uint(field::EVENT_TYPE, END);
        event.uint(field::EVENT_TRACK, track);
        self.packet(|p| {
            p.uint(field::PACKET_TIMESTAMP, to.max(from));
            p.message(field::PACKET_EVENT, &event);
        });
    }

    /// Something without a length.
    fn instant(
        &mut self,
        track: u64,
        category: &str,
        name: &str,
        at: u64,
        about: &[(&str, Value)],
    ) {
        self.event(INSTANT, track, (category, name), at, about);
    }

    fn event(
        &mut self,
        what: u64,
        track: u64,
        (category, name): (&str, &str),
        at: u64,
        about: &[(&str, Value)],
    ) {
        let mut event = Message::default();
        event.uint(field::EVENT_TYPE, what);
        event.uint(field::EVENT_TRACK, track);
        event.text(field::EVENT_CATEGORY, category);
        event.text(field::EVENT_NAME, name);
        for (key, value) in about {
            let mut a = Message::default();
            a.text(field::ANNOTATION_NAME, key);
            match value {
                Value::Count(v) => a.uint(field::ANNOTATION_UINT, *v),
                Value::Number(v) => a.double(field::ANNOTATION_DOUBLE, *v),
                Value::Text(v) => a.text(field::ANNOTATION_STRING, v),
            }
            event.message(field::EVENT_ANNOTATION, &a);
        }
        self.packet(|p| {
            p.uint(field::PACKET_TIMESTAMP, at);
            p.message(field::PACKET_EVENT, &event);
        });
    }
}

fn about(s: &StepProfile) -> Vec<(&'static str, Value)> {
    let v = &s.step;
    vec![
        ("step", Value::Count(u64::from(v.number))),
        ("nodes", Value::Text(v.nodes.join(", "))),
        ("shapes", Value::Text(v.shapes.clone())),
        ("tiles", Value::Text(v.schedule.clone())),
        ("FLOP", Value::Number(v.flop)),
        ("unique bytes", Value::Number(v.unique_bytes())),
        ("all bytes", Value::Number(v.all_bytes())),
        ("bound", Value::Text(v.bound.clone())),
        ("predicted us", Value::Number(v.predicted_us)),
        ("median us", Value::Number(s.time_us)),
        ("reason", Value::Text(v.reason.clone())),
    ]
}

/// A request as Perfetto's own protobuf of track events: what [`crate::chrome_trace`] says, smaller and
/// without its limits. Times are nanoseconds.
pub fn perfetto_trace(profile: &Profile, timeline: &Timeline) -> Vec<u8> {
    let by_name: BTreeMap<&str, &StepProfile> = profile
        .steps
        .iter()
        .map(|s| (s.step.name.as_str(), s))
        .inserted();
    let name = |step: u32| timeline.steps.get(step as usize).map_or("", String::as_str);
    let mut t = Trace::default();
    t.process(
        1,
        &format!("measured: {} on {}", profile.model, profile.device),
    );
    t.process(
        2,
        &format!("predicted: {} on {}", profile.model, profile.machine),
    );
    let workers: BTreeSet<u32> = timeline.spans.iter().map(|s| s.worker).inserted();
    let mut tracks = BTreeMap::new();
    for w in workers {
        let text = match w {
            0 => "worker 0 (caller)".to_string(),
            w => format!("worker {w}"),
        };
        tracks.insert(w, t.thread(1, u64::from(w), &text));
    }
    let mut spans: Vec<_> = timeline.spans.iter().collect();
    spans.arrange_by_key(|s| (s.worker, s.start_ns, s.end_ns));
    for s in spans {
        let known = by_name.get(name(s.step));
        let mut facts = known.map_or_else(Vec::new, |p| about(p));
        facts.push(("first task", Value::Count(u64::from(s.first_task))));
        facts.push(("tasks", Value::Count(u64::from(s.tasks))));
        let family = known.map_or("step", |p| p.step.family.as_str());
        let track = tracks.get(&s.worker).copied().unwrap_or(1);
        t.slice(track, family, name(s.step), (s.start_ns, s.end_ns), &facts);
    }
    let plan = t.thread(2, 0, "plan");
    let mut at = 0.0;
    for step in &timeline.steps {
        if let Some(p) = by_name.get(step.as_str()) {
            let to = at + p.step.predicted_us * 1e3;
            t.slice(
                plan,
                &p.step.family,
                step,
                (at as u64, to as u64),
                &about(p),
            );
            at = to;
        }
    }
    if !timeline.lanes.is_empty() {
        t.process(3, "measured by the device's clock");
    }
    let lanes: Vec<u64> = timeline
        .lanes
        .iter()
        .enumerate()
        .map(|(i, l)| t.thread(3, i as u64, l))
        .collect();
    let mut device: Vec<_> = timeline.device.iter().collect();
    device.arrange_by_key(|s| (s.lane, s.start_ns, s.end_ns));
    for s in device {
        let (what, category) = match s.what {
            Activity::Kernel => ("", "kernel"),
            Activity::Upload => ("to the device: ", "copy"),
            Activity::Download => ("from the device: ", "copy"),
            Activity::Wait => ("wait: ", "wait"),
        };
        let track = lanes.get(s.lane as usize).copied().unwrap_or(3);
        let title = format!("{what}{}", name(s.step));
        let facts = [("bytes", Value::Count(s.bytes))];
        t.slice(track, category, &title, (s.start_ns, s.end_ns), &facts);
    }
    if !timeline.marks.is_empty() {
        let row = tracks.keys().last().map_or(0, |w| u64::from(*w) + 1);
        let track = t.thread(1, row, "decisions");
        for m in &timeline.marks {
            let mut facts = vec![
                ("choice", Value::Text(m.why.choice.clone())),
                ("reason", Value::Text(m.why.reason.clone())),
            ];
            for a in &m.why.alternatives {
                let text = format!("{}, predicted {}", a.what, units::seconds(a.predicted_s));
                facts.push(("alternative", Value::Text(text)));
            }
            t.instant(
                track,
                "decision",
                &crate::trace::decided(m),
                m.at_ns,
                &facts,
            );
        }
    }
    t.out.0
}
