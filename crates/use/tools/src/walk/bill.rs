//! Results back through the levels, and where the time went.
use super::Subject;
use super::narration::{Build, NumberFormat, source};
use report::units;
use report::walk::{Bar, Picture, Scene, Traffic};

pub(super) fn levels(s: &Subject) -> Option<Scene> {
    s.program.as_ref()?;
    let work = &s.step.cost_work;
    let alone = |name: &str| {
        let all = &s.step.predicted.levels;
        all.iter()
            .find(|l| l.name == name)
            .map_or(0.0, |l| l.seconds)
    };
    let levels: Vec<Traffic> = s
        .machine
        .levels
        .iter()
        .enumerate()
        .map(|(i, l)| {
            let t = work.traffic_at(i);
            Traffic {
                level: l.name.clone(),
                capacity: l.bytes.value,
                loaded: t.loaded,
                stored: t.stored,
                us: alone(&l.name) * 1e6,
            }
        })
        .filter(|t| t.loaded + t.stored > 0.0)
        .collect();
    let mut b = Build::new("levels", "Back through the levels");
    work_figures(s, &mut b);
    b.beat("store", "The results go back as they came: from registers to memory, {written} of distinct bytes for {read} read.", "Out of the hand, off the bench, into the hall, onto the lorry.");
    if let (Some(near), Some(far)) = (levels.first(), levels.last()) {
        near_and_far(s, (near, far), &mut b);
        slowest_level(s, &levels, &mut b);
    }
    b.beat("", "{intensity} operations for every distinct byte: this, against what the machine can compute for each byte that it can fetch, says what bounds the step.", "How much work there is in each pallet.");
    Some(b.done(Picture::Levels { levels }))
}

/// What the tile program reads, writes and computes.
fn work_figures(s: &Subject, b: &mut Build) {
    let work = &s.step.cost_work;
    b.number(
        "read",
        "distinct bytes read",
        (work.unique_read, NumberFormat::Bytes),
        "every element that is touched, once",
        "the tile program",
    );
    b.number(
        "written",
        "distinct bytes written",
        (work.unique_written, NumberFormat::Bytes),
        "every element that is written, once",
        "the tile program",
    );
    b.number(
        "ops",
        "operations",
        (work.ops_total(), NumberFormat::Count),
        "a multiply-add is two",
        "counted over the statements of the tile program",
    );
    b.number(
        "intensity",
        "operations per distinct byte",
        (work.intensity(), NumberFormat::Number),
        format!(
            "{} / {}",
            units::count(work.ops_total()),
            units::bytes(work.unique_bytes())
        ),
        "the tile program",
    );
}

/// What crosses the nearest and the farthest level.
fn near_and_far(s: &Subject, (near, far): (&Traffic, &Traffic), b: &mut Build) {
    let program = "read off the tile program with the sizes of the machine's levels";
    let bytes = |t: &Traffic| t.loaded + t.stored;
    b.name(
        "near_level",
        "nearest level",
        &near.level,
        format!("levels of {}", s.machine.name),
    );
    b.name(
        "far_level",
        "farthest level",
        &far.level,
        format!("levels of {}", s.machine.name),
    );
    let sum = |t: &Traffic| {
        format!(
            "{} loaded + {} stored",
            units::bytes(t.loaded),
            units::bytes(t.stored)
        )
    };
    b.number(
        "near",
        "bytes through the nearest level",
        (bytes(near), NumberFormat::Bytes),
        sum(near),
        program,
    );
    b.number(
        "far",
        "bytes through the farthest level",
        (bytes(far), NumberFormat::Bytes),
        sum(far),
        program,
    );
    if !std::ptr::eq(near, far) && bytes(far) > 0.0 {
        b.number(
            "reuse",
            "near over far",
            (bytes(near) / bytes(far), NumberFormat::Times),
            format!(
                "{} / {}",
                units::bytes(bytes(near)),
                units::bytes(bytes(far))
            ),
            "the two figures beside it",
        );
        b.beat("levels", "{near} crossed {near_level} and {far} crossed {far_level}: tiles let a byte that came from afar be used {reuse} where it is near.", "What the lorry brought once was taken from the shelf {reuse}.");
    } else {
        b.beat(
            "levels",
            "{near} crossed {near_level}; nothing went farther.",
            "It never left the hall.",
        );
    }
}

/// The level that would take longest alone.
fn slowest_level(s: &Subject, levels: &[Traffic], b: &mut Build) {
    let Some(slow) = levels.iter().max_by(|a, b| a.us.total_cmp(&b.us)) else {
        return;
    };
    b.name(
        "slow",
        "slowest level",
        &slow.level,
        "the step's prediction",
    );
    b.number(
        "slow_s",
        "what it would take alone",
        (slow.us * 1e-6, NumberFormat::Seconds),
        rate(s, slow),
        source_of(s, &slow.level),
    );
    b.beat(
        "slow",
        "Alone, {slow} would take longest: {slow_s}.",
        "The narrowest door on the way.",
    );
}

fn source_of(s: &Subject, level: &str) -> String {
    s.machine.level(level).map_or_else(String::new, |l| {
        source(
            &format!("bandwidth of {level}"),
            &s.machine.name,
            &l.read.all,
        )
    })
}

fn rate(s: &Subject, t: &Traffic) -> String {
    let Some(l) = s.machine.level(&t.level) else {
        return String::new();
    };
    format!(
        "({} / {} + {} / {}) / efficiency of our kernels",
        units::bytes(t.loaded),
        units::byte_rate(l.read.all.value),
        units::bytes(t.stored),
        units::byte_rate(l.write.all.value)
    )
}

/// The parts of the predicted time.
fn prediction(s: &Subject, busy: f64, b: &mut Build) {
    let c = &s.step.predicted;
    let model = format!("cost model over {}", s.machine.name);
    b.number(
        "predicted",
        "predicted time",
        (c.time_s, NumberFormat::Seconds),
        format!(
            "{} + {} + {}",
            units::seconds(busy),
            units::seconds(c.latency_s),
            units::seconds(c.launch_s)
        ),
        model.clone(),
    );
    b.number("busy", "busy: arithmetic and bytes", (busy, NumberFormat::Seconds), "the longest of arithmetic and each level's bytes, statement by statement, x imbalance of the last round", model.clone());
    b.number(
        "latency",
        "first access and hand-offs",
        (c.latency_s, NumberFormat::Seconds),
        match (&s.step.cost_work.warps, s.is_gpu()) {
            (Some(_), _) => "what rounds of CTAs take beyond that: warps that wait for what they asked for + messages",
            (None, true) => "latency of the farthest level x waves + messages",
            (None, false) => "latency of the farthest level + messages",
        },
        model.clone(),
    );
    b.number(
        "fixed",
        "fixed costs",
        (c.launch_s, NumberFormat::Seconds),
        "launches + steps + tasks of the busiest worker + statements, rows and calls",
        model.clone(),
    );
    b.name(
        "bound",
        "bound by",
        c.bound.to_string(),
        "the largest part of the prediction",
    );
    b.number(
        "least",
        "everything overlapped at peak",
        (c.interval.0, NumberFormat::Seconds),
        "without fixed costs",
        model.clone(),
    );
    b.number(
        "most",
        "nothing overlapped",
        (c.interval.1, NumberFormat::Seconds),
        "all parts one after another",
        model,
    );
}

/// What the step took where it was run.
fn measured(s: &Subject, b: &mut Build) {
    let Some(m) = &s.measured else { return };
    let predicted = s.step.predicted.time_s;
    let measured = m.time_us * 1e-6;
    b.number(
        "measured",
        "measured time",
        (measured, NumberFormat::Seconds),
        format!("median over {} requests", m.requests),
        format!("clocks of the workers of {}", m.device),
    );
    let error = if predicted > 0.0 {
        measured / predicted - 1.0
    } else {
        0.0
    };
    b.name("device", "device", &m.device, "the engine");
    b.name(
        "error",
        "measured over predicted, less 1",
        units::signed_percent(error),
        format!(
            "{} / {} - 1",
            units::seconds(measured),
            units::seconds(predicted)
        ),
    );
    b.beat(
        "measured",
        "It was run on {device}: {measured}, {error} against the prediction.",
        "And that is what the clock said.",
    );
}

pub(super) fn bill(s: &Subject) -> Scene {
    let c = &s.step.predicted;
    let mut b = Build::new("bill", "The bill");
    let busy = (c.time_s - c.latency_s - c.launch_s).max(0.0);
    prediction(s, busy, &mut b);
    if let Some(w) = &s.step.cost_work.warps {
        b.number(
            "issued",
            "machine instructions of all warps",
            (w.turns.iter().sum(), NumberFormat::Count),
            "lines of the step's PTX, as often as they run, each with the machine instructions that an assembler makes of it for sm_80, whichever GPU it is",
            "the PTX that is printed for the step",
        );
        b.beat("issued", "The prediction counts {issued} machine instructions in what is printed for the step, as sm_80 has them: each takes a scheduler's slot.", "Every handgrip is on the list, the walks between two shelves too.");
    }
    b.beat("parts", "Predicted: {predicted}. Of that {busy} are arithmetic and bytes, {latency} waiting for first accesses and hand-offs, {fixed} fixed costs.", "The bill: work, waiting, and what every order costs whatever its size.");
    let longest = c
        .levels
        .iter()
        .chain(&c.units)
        .max_by(|a, b| a.seconds.total_cmp(&b.seconds));
    if let Some(l) = longest {
        b.name(
            "longest",
            "longest part",
            l.name.as_str(),
            "the step's prediction",
        );
        b.number(
            "longest_s",
            "what it would take alone",
            (l.seconds, NumberFormat::Seconds),
            "",
            "the step's prediction",
        );
        b.beat("alone", "Most of the busy time is {longest}: {longest_s} by itself, beside which the rest is hidden.", "Whoever is slowest sets the pace; the others work in his shadow.");
    }
    b.beat("bound", "The step is bound by {bound}. It could take from {least}, all overlapped, to {most}, nothing overlapped.", "To be faster, widen this; nothing else helps.");
    measured(s, &mut b);
    let bar = |name: &str, seconds: f64, role: &'static str| Bar {
        name: name.into(),
        us: seconds * 1e6,
        role,
    };
    let alone = c
        .units
        .iter()
        .map(|u| bar(&u.name, u.seconds, "unit"))
        .chain(c.levels.iter().map(|l| bar(&l.name, l.seconds, "level")));
    b.done(Picture::Bill {
        parts: vec![
            bar("arithmetic and bytes", busy, "busy"),
            bar("first access and hand-offs", c.latency_s, "latency"),
            bar("fixed costs", c.launch_s, "fixed"),
        ],
        alone: alone.collect(),
        predicted_us: c.time_s * 1e6,
        measured_us: s.measured.as_ref().map(|m| m.time_us),
    })
}
