//! What a scheduler does while warps wait: the emulator's clock over CTAs of the step, and where it cannot
//! run them, Little's law.
use super::Subject;
use super::emulated::Counted;
use super::narration::{Build, NumberFormat, source};
use super::place::waves;
use crate::stalls::{Reason, Stalls, StepStalls};
use layout::Arrange;
use machine::calc;
use report::units;
use report::walk::{Picture, Scene, StallRow, WarpRow};

/// CTAs that are timed at most.
const TIMED: u64 = 32;
/// Instructions of their warps at most.
const INSTRUCTIONS: u64 = 2_000_000;
/// Stretches of one scheduler's warps that are drawn.
const STRETCHES: usize = 900;

/// Where warps' cycles go, or what would have to be under way to hide their waiting.
pub(super) fn scene(s: &Subject, counted: &Result<Counted, String>) -> Option<Scene> {
    s.gpu()?;
    // What had no PTX, operands that are too large or no end for counting has none for timing either.
    let one = counted.as_ref().ok().filter(|c| c.whole);
    let ctas = one.map(|c| INSTRUCTIONS / c.outcome.counters.total.issued.max(1));
    let stalls = ctas
        .filter(|n| *n > 0)
        .and_then(|n| crate::stalls::of_step(s.plan, &s.step.name, s.machine, n.min(TIMED)).ok());
    match stalls {
        Some(t) => Some(timed(s, &t)),
        None => hiding(s),
    }
}

/// What was timed, and where its cycles went.
fn timed_figures(s: &Subject, t: &StepStalls, b: &mut Build) {
    let st = &t.stalls;
    let here = "the emulator's clock: `shopfloor::stalls`, over buffers of zeros";
    b.number(
        "ctas",
        "CTAs that were timed",
        (t.ctas.0 as f64, NumberFormat::Of("CTA")),
        format!("the first of {}", t.ctas.1),
        here,
    );
    b.number(
        "sms",
        "SMs that they ran on",
        (t.sms.0 as f64, NumberFormat::Of("SM")),
        format!("of {}, with their share of L2 and memory", t.sms.1),
        here,
    );
    b.number(
        "cycles",
        "cycles",
        (st.cycles as f64, NumberFormat::Count),
        "from the first CTA's start until all is stored",
        here,
    );
    b.number(
        "seconds",
        "the whole step by these cycles",
        (t.seconds, NumberFormat::Seconds),
        format!(
            "{} cycles / {} x ({} / {} CTAs) x ({} / {} SMs)",
            st.cycles,
            units::hertz(s.machine.workers.clock_hz.value),
            t.ctas.1,
            t.ctas.0,
            t.sms.0,
            t.sms.1
        ),
        here,
    );
    b.number(
        "predicted",
        "predicted without its launch",
        (t.predicted_s, NumberFormat::Seconds),
        "predicted time - launches - steps",
        "the step's prediction",
    );
    b.number(
        "schedulers",
        "schedulers of an SM",
        (
            f64::from(t.timing.schedulers),
            NumberFormat::Of("scheduler"),
        ),
        "",
        format!("limits of {}", s.machine.name),
    );
    let share = |r: Reason| st.share(r);
    b.number(
        "issued",
        "share of warps' cycles in which they issue",
        (share(Reason::Issued), NumberFormat::Percent),
        "issued / cycles of all warps",
        here,
    );
    b.number(
        "issue",
        "share of schedulers' cycles in which they issue",
        (st.issue, NumberFormat::Percent),
        "instructions / (schedulers x cycles)",
        here,
    );
    let worst = st.worst();
    b.name("worst", "what warps wait for most", worst.meaning(), here);
    b.number(
        "worst_share",
        "share of warps' cycles that go there",
        (share(worst), NumberFormat::Percent),
        "cycles for this reason / cycles of all warps",
        here,
    );
}

/// What the warps of one scheduler do, by numbers of `reasons`.
fn stretches(st: &Stalls, reasons: &[(Reason, u64)]) -> Vec<WarpRow> {
    let index = |r: Reason| reasons.iter().position(|x| x.0 == r).unwrap_or(0) as u32;
    let mut scheduler: Vec<WarpRow> = Vec::new();
    for i in st.intervals.iter().take(STRETCHES) {
        let at = scheduler
            .iter()
            .position(|w| (w.cta, w.warp) == (i.cta, i.warp));
        let at = at.unwrap_or_else(|| {
            scheduler.push(WarpRow {
                cta: i.cta,
                warp: i.warp,
                stretches: vec![],
            });
            scheduler.len() - 1
        });
        let own = &mut scheduler[at].stretches;
        match own.last_mut() {
            Some(l) if l.1 == i.from && l.2 == index(i.reason) => l.1 = i.to,
            _ => own.push((i.from, i.to, index(i.reason))),
        }
    }
    scheduler
}

fn timed(s: &Subject, t: &StepStalls) -> Scene {
    let st = &t.stalls;
    let mut b = Build::new("waiting", "While a warp waits");
    let worst = st.worst();
    timed_figures(s, t, &mut b);
    b.beat("wait", "The emulator ran {ctas} of this text under the latencies and rates of the machine, cycle by cycle: {cycles} cycles, which makes {seconds} of the whole step. The cost model predicts {predicted}.", "The shift was walked through with a stopwatch, on paper.");
    b.beat("scheduler", "An SM has {schedulers}. Each issues at most one instruction a cycle, of a warp that is ready; below are the warps of one of them. While one waits, another goes on.", "The foreman gives the machine to whichever team has its material.");
    b.beat("issued", "A warp issues in {issued} of its cycles; a scheduler has something to issue in {issue} of its own.", "So much of a shift is work of the hands.");
    if worst != Reason::Issued {
        b.beat(
            "waits",
            "What warps wait for most is {worst}: {worst_share} of their cycles.",
            "And this is what they wait for most.",
        );
    }
    let mut reasons: Vec<(Reason, u64)> = st.reasons.iter().filter(|r| r.1 > 0).copied().collect();
    reasons.arrange_by_key(|r| (r.0 != Reason::Issued, std::cmp::Reverse(r.1)));
    let scheduler = stretches(st, &reasons);
    b.done(Picture::Stalls {
        rows: reasons
            .iter()
            .map(|r| StallRow {
                reason: r.0.name().into(),
                cycles: r.1 as f64,
            })
            .collect(),
        cycles: st.cycles as f64,
        warps: st.warps,
        scheduler,
    })
}

/// What keeps the schedulers busy while warps wait: the bytes that must be under way, and those that are.
fn hiding(s: &Subject) -> Option<Scene> {
    let g = s.gpu()?;
    let lanes = s.machine.limits.warp.map_or(32, |w| w.value.max(1));
    let per_cta = u64::from(g.threads).div_ceil(lanes);
    let (_, per, _, _) = waves(s);
    let warps = per * per_cta;
    let bytes = u64::from(g.load_bytes).max(4);
    let levels = calc::hiding(s.machine, warps, bytes);
    let far = levels.last()?;
    let mut b = Build::new("waiting", "What hides the waiting");
    let calc = "calculator `hiding` (Little's law)";
    b.number(
        "warps",
        "warps on an SM",
        (warps as f64, NumberFormat::Of("warp")),
        format!("{per} CTAs x {per_cta}"),
        "occupancy as planned",
    );
    b.number(
        "bytes",
        "bytes of a lane's load",
        (bytes as f64, NumberFormat::Bytes),
        "",
        "the schedule",
    );
    b.name(
        "level",
        "farthest level",
        &far.level,
        format!("levels of {}", s.machine.name),
    );
    if let Some(l) = s.machine.level(&far.level) {
        b.number(
            "latency",
            "latency of an access",
            (far.latency_s, NumberFormat::Seconds),
            "",
            source(
                &format!("latency of {}", l.name),
                &s.machine.name,
                &l.latency_s,
            ),
        );
    }
    b.number(
        "need",
        "bytes under way that keep it busy, of one SM",
        (far.bytes_per_worker, NumberFormat::Bytes),
        format!(
            "{} x {} / SMs",
            units::byte_rate(far.bandwidth),
            units::seconds(far.latency_s)
        ),
        calc,
    );
    b.number(
        "have",
        "bytes under way when every lane has one load out",
        (far.has_bytes, NumberFormat::Bytes),
        format!("{warps} x {lanes} x {bytes}"),
        calc,
    );
    b.number(
        "share",
        "share of the bandwidth that this reaches",
        (far.share, NumberFormat::Percent),
        "have / need, at most all",
        calc,
    );
    b.beat("wait", "A load from {level} takes {latency}. The warp that asked waits; the scheduler issues from another one that is ready.", "The lorry takes its time. Meanwhile the foreman gives the machine to another team.");
    b.beat(
        "need",
        "For the memory never to idle, {need} must be under way for each SM at any moment.",
        "So many pallets must be on the link that one arrives every moment.",
    );
    b.beat("have", "{warps} with one load of {bytes} out in every lane have {have} under way, which reaches {share} of its bandwidth; asynchronous copies of further stages add to that.", "With one order each, {have} are on the link.");
    Some(
        b.done(Picture::Hiding {
            levels: levels
                .iter()
                .map(|l| (l.level.clone(), l.bytes_per_worker, l.has_bytes))
                .collect(),
        }),
    )
}
