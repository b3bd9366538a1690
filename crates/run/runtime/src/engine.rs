//! The engine: a device, a planner and the admission queue, shared by all sessions, and its view of them
//! (memory, load, decisions). Requests are run by `session`.
use crate::SessionHandle;
use crate::admission::AdmissionQueue;
use crate::attendants::AttendantsHandle;
use crate::background::BackgroundThread;
use crate::record::SessionRecord;
use crate::stats::SessionStats;
use device::{Device, PackedStore, Worked};
use layout::Arrange;
use machine::Way;
use plan::{Mark, Planner, Precision, Program, Span, Timeline};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use supervisor::admission::{SessionId, SessionLoad, SessionPolicy};
use supervisor::supervise::{Decision, Mode};
use tensor::WeightStore;

/// Devices with resident workers, shared by all sessions.
pub struct Engine {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) planner: Arc<dyn Planner>,
    pub(crate) packed: PackedStore,
    pub(crate) background: BackgroundThread,
    /// Nanoseconds.
    planning: AtomicU64,
    pub(crate) admission: AdmissionQueue,
    /// The threads of requests that no caller waits for.
    pub(crate) attendants: AttendantsHandle,
    programs: Mutex<Vec<(String, Weak<Program>)>>,
    handles: Mutex<Vec<Weak<SessionHandle>>>,
    /// Workers that requests may have at most.
    limit: AtomicU32,
    /// Whether some workers leave work to the others.
    avoids: AtomicBool,
    supervised: Mutex<Supervised>,
}

/// What supervises an engine, and what it decided last.
#[derive(Default)]
struct Supervised {
    mode: Option<Mode>,
    /// With when.
    decisions: VecDeque<(Instant, Decision)>,
}

/// Decisions that are kept.
const DECISIONS: usize = 256;

/// Requests that run at once on a device whose workers are not the host's.
const AT_ONCE: u32 = 8;

/// What everything takes, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Weights of all sessions in mapped files or in memory, those that share them counted once.
    pub weights: u64,
    /// Init results (packed weights, folded constants), shared ones once.
    pub packed: u64,
    /// Session by session.
    pub sessions: Vec<SessionMemory>,
    /// Everything together.
    pub total: u64,
}

/// What a session takes for itself, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMemory {
    /// The session's name.
    pub name: String,
    /// Weights that its program refers to; others may share them.
    pub weights: u64,
    /// Memory of request slots: what requests that ran at once worked in.
    pub arenas: u64,
    /// State of its streams.
    pub states: u64,
    /// Inputs of requests that wait to be batched with others.
    pub queue: u64,
}

/// A session as the engine sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionView {
    /// Its number on this engine.
    pub id: SessionId,
    /// Its name.
    pub name: String,
    /// How its requests are treated.
    pub policy: SessionPolicy,
    /// What it is at.
    pub load: SessionLoad,
    /// What its requests came to.
    pub stats: SessionStats,
    /// Predicted seconds of an item by the last plan that was made ready.
    pub predicted_s: f64,
    /// Nanoseconds by family of step of what workers did for it last, the largest first.
    pub families: Vec<(String, u64)>,
    /// How exactly f32 is multiplied, as was asked for.
    #[serde(default)]
    pub precision: Precision,
    /// The ways by which steps reach an NVIDIA GPU; none on other devices, and before a request has run.
    #[serde(default)]
    pub launched: BTreeSet<Way>,
}

impl Engine {
    /// An engine on one device.
    pub fn new(device: Arc<dyn Device>, planner: Arc<dyn Planner>) -> Arc<Engine> {
        let workers = match device.target().gpu {
            None => device.workers() as u32,
            Some(_) => AT_ONCE,
        };
        let background = match device.workers() {
            0 | 1 => BackgroundThread::disabled(),
            _ => BackgroundThread::new(),
        };
        // Elsewhere the system has idle processors to wake a caller on.
        let all = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        let follow = device.target().gpu.is_none() && device.workers() >= all;
        Arc::new(Engine {
            admission: AdmissionQueue::new(workers.max(1), follow),
            attendants: AttendantsHandle::default(),
            programs: Mutex::new(Vec::new()),
            handles: Mutex::new(Vec::new()),
            limit: AtomicU32::new(u32::MAX),
            avoids: AtomicBool::new(false),
            supervised: Mutex::default(),
            device,
            planner,
            packed: PackedStore::new(),
            background,
            planning: AtomicU64::new(0),
        })
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The planner.
    pub fn planner(&self) -> &Arc<dyn Planner> {
        &self.planner
    }

    /// What requests of all sessions have spent so far on plans that did not exist yet: schedules, proof,
    /// compiling, and packing of weights.
    pub fn planning(&self) -> Duration {
        Duration::from_nanos(self.planning.load(Ordering::Relaxed))
    }

    pub(crate) fn planned(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.planning.fetch_add(ns, Ordering::Relaxed);
    }

    /// Workers that requests are shared out over.
    pub fn workers(&self) -> u32 {
        match self.device.target().gpu {
            None => self.device.workers().max(1) as u32,
            Some(_) => AT_ONCE,
        }
    }

    /// Lets requests have at most `workers` of the workers from now on: cores were taken from this
    /// process, or given back.
    pub fn limit_workers(&self, workers: u32) {
        let workers = workers.clamp(1, self.workers());
        self.limit.store(workers, Ordering::Relaxed);
        self.device.limit_workers(workers as usize);
        self.admission.limit(workers);
    }

    /// Has these workers leave work to the others from now on, and no further ones: see
    /// [`Device::avoid_workers`].
    pub fn avoid_workers(&self, workers: &[u32]) {
        self.avoids.store(!workers.is_empty(), Ordering::Relaxed);
        self.device.avoid_workers(workers);
    }

    /// Whether requests have fewer workers than they are granted.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) < self.workers() || self.avoids.load(Ordering::Relaxed)
    }

    pub(crate) fn opened(&self, handle: &Arc<SessionHandle>) {
        let mut all = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|s| s.strong_count() > 0);
        all.push(Arc::downgrade(handle));
    }

    /// The sessions that live, as whoever supervises them sees them.
    pub fn session_handles(&self) -> Vec<Arc<SessionHandle>> {
        let all = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    fn supervised(&self) -> MutexGuard<'_, Supervised> {
        self.supervised
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Who supervises it goes so far; `None`: nobody does. False where it is supervised already.
    pub fn set_supervision(&self, mode: Option<Mode>) -> bool {
        let mut s = self.supervised();
        if s.mode.is_some() && mode.is_some() {
            return false;
        }
        s.mode = mode;
        true
    }

    /// How far who supervises it goes, if anybody does.
    pub fn supervision(&self) -> Option<Mode> {
        self.supervised().mode
    }

    /// A decision was taken about this engine.
    pub fn note(&self, decision: Decision) {
        let at = Instant::now();
        let mut s = self.supervised();
        while s.decisions.len() >= DECISIONS {
            s.decisions.pop_front();
        }
        s.decisions.push_back((at, decision));
    }

    /// The last decisions about this engine, oldest first.
    pub fn decisions(&self) -> Vec<Decision> {
        let s = self.supervised();
        s.decisions.iter().map(|d| d.1.clone()).collect()
    }

    /// The last decisions about this engine as marks of a timeline that began at `began`; those before it
    /// are left out.
    pub fn marks(&self, began: Instant) -> Vec<Mark> {
        let s = self.supervised();
        let mark = |(at, d): &(Instant, Decision)| {
            let since = at.checked_duration_since(began)?;
            Some(Mark {
                at_ns: since.as_nanos() as u64,
                why: d.why.clone(),
            })
        };
        s.decisions.iter().filter_map(mark).collect()
    }

    /// What workers did last, as far as the device's rings hold it, with the last decisions; it begins with
    /// the first of either. Steps have their session's name in front. Tasks are not recorded, nor what was
    /// predicted to be very short.
    pub fn timeline(&self) -> Timeline {
        let (now, now_ns) = (Instant::now(), self.device.clock_ns());
        let mut named: BTreeMap<(u64, u32), u32> = BTreeMap::new();
        let mut out = Timeline::default();
        for record in self.admission.records() {
            for (executable, names) in record.steps() {
                for (i, name) in names.into_iter().enumerate() {
                    named.insert((executable, i as u32), out.steps.len() as u32);
                    out.steps.push(format!("{}: {name}", record.name));
                }
            }
        }
        // What belongs to a plan that is gone is left out.
        let known = |w: Worked| Some((w, *named.get(&(w.executable, w.step))?));
        let worked: Vec<(Worked, u32)> = self
            .device
            .history()
            .into_iter()
            .filter_map(known)
            .collect();
        // Nanoseconds before now.
        let ago = |ns: u64| now_ns.saturating_sub(ns);
        let decided =
            |d: &(Instant, Decision)| now.saturating_duration_since(d.0).as_nanos() as u64;
        let first = self.supervised().decisions.front().map(decided);
        let all = worked.iter().map(|w| ago(w.0.start_ns)).chain(first);
        let length = all.max().unwrap_or(0);
        for (w, step) in worked {
            out.spans.push(Span {
                step,
                worker: w.worker,
                first_task: 0,
                tasks: 0,
                start_ns: length - ago(w.start_ns),
                end_ns: length.saturating_sub(ago(w.end_ns)),
            });
        }
        out.spans.arrange_by_key(|s| (s.start_ns, s.worker));
        let began = now.checked_sub(Duration::from_nanos(length));
        out.marks = began.map_or_else(Vec::new, |b| self.marks(b));
        out.total_ns = length;
        out
    }

    /// Takes no further requests of any session, and waits until those there are are done.
    pub fn drain(&self) {
        self.admission
            .records()
            .iter()
            .for_each(|b| self.admission.drain(b));
    }

    /// The sessions that live, each with what it is at.
    pub fn sessions(&self) -> Vec<SessionView> {
        let records = self.admission.records();
        let history = self.device.history();
        let handles = self.session_handles();
        let each = |b: &Arc<SessionRecord>| {
            let handle = handles.iter().find(|h| h.record.id == b.id);
            self.view(b, handle, &history)
        };
        records.iter().map(each).collect()
    }

    pub(crate) fn view(
        &self,
        b: &SessionRecord,
        handle: Option<&Arc<SessionHandle>>,
        history: &[Worked],
    ) -> SessionView {
        SessionView {
            id: b.id,
            name: b.name.clone(),
            policy: b.policy().clone(),
            load: self.admission.load(b.id),
            stats: b.stats.read(),
            predicted_s: b.cost_s(),
            families: b.families(history),
            precision: handle.map_or_else(Default::default, |h| h.plan_set.program.precision),
            launched: handle.map_or_else(Default::default, |h| h.launched()),
        }
    }

    /// The program that some session of this engine has under `key`, else `program`, which has that name
    /// from now on: sessions of one file share its weights. `key` says where the program comes from and
    /// everything that went into it.
    pub fn share(&self, key: &str, program: &Arc<Program>) -> Arc<Program> {
        let mut all = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|p| p.1.strong_count() > 0);
        let known = all.iter().find(|p| p.0 == key);
        if let Some(p) = known.and_then(|p| p.1.upgrade()) {
            return p;
        }
        all.push((key.into(), Arc::downgrade(program)));
        program.clone()
    }

    /// Memory in use.
    pub fn memory(&self) -> Memory {
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        let mut stores: Vec<*const WeightStore> = vec![];
        let (mut weights, mut sessions) = (0u64, vec![]);
        for b in self.admission.records() {
            let own = b.weights.iter().map(|w| w.bytes.len() as u64).sum();
            let at = Arc::as_ptr(&b.weights);
            if !stores.contains(&at) {
                stores.push(at);
                weights += own;
            }
            sessions.push(SessionMemory {
                name: b.name.clone(),
                weights: own,
                arenas: get(&b.arenas),
                states: get(&b.states),
                queue: get(&b.queue),
            });
        }
        let packed = self.packed.bytes();
        let own = sessions.iter().map(|s| s.arenas + s.states + s.queue);
        Memory {
            weights,
            packed,
            total: weights + packed + own.sum::<u64>(),
            sessions,
        }
    }
}
