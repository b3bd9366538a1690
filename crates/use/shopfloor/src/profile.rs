//! Predicted beside measured.
use crate::{Error, Session, Timeline, inputs};
use kernel::TileProgram;
use layout::Arrange;
use machine::Work;
use plan::{Decisions, VerifiedPlan};
use report::{HowRun, Profile, ProfileInput, StepView};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use tensor::Tensor;

/// How the names of resident threads begin.
const RESIDENT: &str = "shopfloor-";
/// Most timelines kept: each holds every span of a request.
const KEPT: usize = 4096;

/// Runs `warmup` and then `active` requests of the same inputs and joins what was measured with the
/// plans; beside it gives the timeline of the last request.
///
/// # Errors
/// As [`Session::run`].
pub fn profile(
    session: &Session,
    named: &[(String, Tensor)],
    warmup: usize,
    active: usize,
) -> Result<(Profile, Timeline), Error> {
    let borrowed = inputs::borrowed(named);
    let engine = session.runtime().engine();
    for _ in 0..warmup {
        session.run_timed(&borrowed, &mut Timeline::default())?;
    }
    let mut timelines = Vec::new();
    let threads = Threads::find();
    for _ in 0..active.clamp(1, KEPT) {
        let mut t = Timeline::default();
        let (before, then) = (threads.delays_ns(), engine.device().emulated_ns());
        let began = std::time::Instant::now();
        session.run_timed(&borrowed, &mut t)?;
        // The whole request as its caller sees it, transfers and control flow included.
        let took = began.elapsed().as_nanos() as u64;
        match then.zip(emulated_ns(session, &t)) {
            // What emulating took here says nothing about the device, nor about its host.
            Some((then, now)) => t.total_ns = now.saturating_sub(then),
            None => {
                t.total_ns = took.saturating_sub(t.held_ns);
                t.descheduled_ns = since(&before, &threads.delays_ns());
            }
        }
        t.marks = engine.marks(began);
        timelines.push(t);
    }
    let sizes = inputs::sizes_of(session.model(), named);
    let profile = profile_of(session, &sizes, warmup, &timelines);
    Ok((profile, timelines.pop().unwrap_or_default()))
}

/// The clock of an emulated device that the request of `timeline` reached.
fn emulated_ns(session: &Session, timeline: &Timeline) -> Option<u64> {
    let now = session.runtime().engine().device().emulated_ns();
    now.filter(|_| !timeline.launched.is_empty())
}

/// Joins the timelines of requests that ran with `sizes` of the model's symbolic dimensions, after
/// `warmup` others, with the session's plans.
pub fn profile_of(
    session: &Session,
    sizes: &BTreeMap<String, i64>,
    warmup: usize,
    timelines: &[Timeline],
) -> Profile {
    let engine = session.runtime().engine();
    let device = engine.device();
    let (mut steps, mut range) = (Vec::new(), String::new());
    let mut seen = BTreeSet::new();
    // Plans of other sizes did not run these requests.
    let size = |name: &str| sizes.get(name).copied();
    let plans = session.runtime().plans();
    for plan in plans
        .iter()
        .filter(|p| p.plan().dims.outside(&size).is_none())
    {
        let dims = &plan.plan().dims;
        if steps.is_empty() && dims.iter().any(|(_, r)| r.lo != r.hi) {
            range = dims.to_string();
        }
        for (view, work) in step_views(plan, device.machine(), sizes) {
            if seen.insert(view.name.clone()) {
                steps.push((
                    StepView {
                        number: steps.len() as u32,
                        ..view
                    },
                    work,
                ));
            }
        }
    }
    // As pages about plans have it: all devices of the plan.
    let machine = plans.first().map_or_else(
        || device.machine().name.clone(),
        |p| {
            let all = p.plan().devices.iter().map(|d| d.machine.as_str());
            all.collect::<Vec<_>>().join(" + ")
        },
    );
    let program = session.model().program();
    let mut profile = Profile::new(ProfileInput {
        model: &program.name,
        device: &format!("{} ({})", device.name(), device.target().name),
        machine: &machine,
        threads: device.workers(),
        warmup,
        steps,
        timelines,
        fates: &program.fates,
        dims: range,
    });
    let untimed = how_run(session);
    profile.how = match timelines.last() {
        Some(last) => how_ran(session, last),
        None => how_run(session),
    };
    let last = timelines.last();
    profile.emulated = last.is_some_and(|t| emulated_ns(session, t).is_some());
    profile.threads = profile.how.threads(device.workers());
    profile.launch_untimed = untimed
        .launch
        .filter(|l| profile.how.launch.as_ref() != Some(l));
    profile
}

/// How requests of `session` run: by which way their steps reach its device, read off what its plans were
/// compiled to, and how exactly they multiply. To be asked when a request has run.
pub fn how_run(session: &Session) -> HowRun {
    how(session, &session.runtime().launched())
}

/// The same of the request that `timeline` is of.
pub fn how_ran(session: &Session, timeline: &Timeline) -> HowRun {
    how(session, &timeline.launched)
}

/// Of several plans the first stands for all: they differ in sizes.
fn how(session: &Session, ways: &BTreeSet<machine::Way>) -> HowRun {
    let first = session.runtime().plans().into_iter().next();
    let device = session.runtime().engine().device().clone();
    first.map_or_else(HowRun::default, |p| {
        HowRun::of((p.plan(), &[]), Some(session.model().program()), ways).run_by(
            p.plan(),
            device.machine(),
            device.workers(),
        )
    })
}

/// The calling thread and the residents of this process, as the system accounts for them.
struct Threads(Vec<PathBuf>);

impl Threads {
    /// The caller first, then residents by their names. None where the system keeps no accounts.
    fn find() -> Threads {
        let mut residents: Vec<(u64, PathBuf)> = std::fs::read_dir("/proc/self/task")
            .into_iter()
            .flatten()
            .filter_map(|t| {
                let folder = t.ok()?.path();
                let name = std::fs::read_to_string(folder.join("comm")).ok()?;
                let number = name.trim().strip_prefix(RESIDENT)?.parse().ok()?;
                Some((number, folder.join("schedstat")))
            })
            .collect();
        residents.arrange();
        let caller = PathBuf::from("/proc/thread-self/schedstat");
        let all = std::iter::once(caller).chain(residents.into_iter().map(|r| r.1));
        Threads(all.filter(|p| p.is_file()).collect())
    }

    /// Nanoseconds so far for which each could run and had no processor: the second number of its account.
    fn delays_ns(&self) -> Vec<Option<u64>> {
        let delay = |p: &PathBuf| {
            let account = std::fs::read_to_string(p).ok()?;
            account.split_whitespace().nth(1)?.parse().ok()
        };
        self.0.iter().map(delay).collect()
    }
}

fn since(before: &[Option<u64>], now: &[Option<u64>]) -> Vec<u64> {
    let both = before.iter().zip(now);
    both.map_while(|(a, b)| Some((*b)?.saturating_sub((*a)?)))
        .collect()
}

/// Steps of a plan with the work that they do for `sizes`, read off their tile programs.
pub fn step_views(
    plan: &VerifiedPlan,
    machine: &machine::Machine,
    sizes: &BTreeMap<String, i64>,
) -> Vec<(StepView, Option<Work>)> {
    let p = plan.plan();
    let lookup = |s: &str| {
        sizes
            .get(s)
            .copied()
            .or_else(|| p.dims.get(s).map(|r| r.hi))
    };
    let decisions = Decisions::of(&p.whys);
    let mut out = Vec::new();
    for (b, block) in p.blocks().enumerate() {
        for (step, program) in block.steps.iter().zip(plan.step_programs(b)) {
            let view = StepView::new(out.len() as u32, step, &p.dims, &decisions);
            let work = program
                .as_ref()
                .and_then(|t: &TileProgram| kernel::work::work(t, machine, &lookup));
            out.push((view, work));
        }
    }
    out
}
