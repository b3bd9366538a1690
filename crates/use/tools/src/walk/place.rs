//! How the step is started, where its buffers lie, and how its tasks go onto workers.
use super::Subject;
use super::graph::{buffers, kind};
use super::narration::{Build, NumberFormat, source};
use machine::calc::{Batches, compare_transfers, launch_stages};
use report::units;
use report::walk::{Bar, GridAxis, MemoryBlock, Picture, PlaceBox, Scene};

/// Requests in a row that the ways of launching are compared for.
const ROW: u64 = 1000;
/// Buffers that are shown beside the step's own.
const BLOCKS: usize = 60;

fn bar(name: &str, seconds: f64, role: &'static str) -> Bar {
    Bar {
        name: name.into(),
        us: seconds * 1e6,
        role,
    }
}

/// The parts of a launch, and a request of the step by each way of starting it.
fn by_launches(s: &Subject, bars: &mut Vec<Bar>, b: &mut Build) -> Vec<Bar> {
    let (m, c) = (s.machine, &s.machine.costs);
    let mut more = Vec::new();
    for st in launch_stages(c.launch_s.value) {
        bars.push(bar(st.name, st.seconds, "launch"));
    }
    let io: f64 = buffers(s)
        .iter()
        .filter_map(|(i, _)| s.block.buffers.get(*i as usize))
        .map(|b| b.bytes as f64)
        .sum();
    // Data stays on the device: only starts and answers are compared.
    let batches = Batches::on(m, 0.0, ROW, s.step.predicted.time_s);
    let ways = compare_transfers(&batches);
    b.number(
        "ring",
        "a message through the ring, one way",
        (batches.handoff_s, NumberFormat::Seconds),
        "",
        "calculator `transfer`: a posted write over the link and the poll that sees it (assumed)",
    );
    b.number(
        "io",
        "bytes of its operands",
        (io, NumberFormat::Bytes),
        "",
        "buffers of the plan",
    );
    let say = "calculator `transfer`, 1,000 requests of this step alone, data left on the device";
    for w in &ways.ways {
        more.push(bar(w.name, w.per_batch_s, "way"));
    }
    let of = |name: &str| {
        ways.ways
            .iter()
            .find(|w| w.name == name)
            .map_or(0.0, |w| w.per_batch_s)
    };
    b.number(
        "launched",
        "a request by launches",
        (of("one by one"), NumberFormat::Seconds),
        "launch + step",
        say,
    );
    b.number(
        "resident",
        "a request by the ring",
        (of("resident, ring"), NumberFormat::Seconds),
        "step + 2 messages",
        say,
    );
    b.beat("launch", "A kernel launch from the host costs {launch}: the driver, the command buffer, the dispatch, the first thread. How it splits is assumed; the sum is the machine's.", "Calling a worker in from home for every single order.");
    b.beat("way", "A kernel that stays needs none: the request is a message in a ring that host and device both see, {ring} each way. In a row of 1,000, a request then takes {resident} where launches take {launched}.", "The workers stay at their benches and look at one tray for the next slip.");
    b.beat("", "Within a running plan the step itself costs {step}, and each task {task} to find its parameters: {fixed} in this prediction.", "Reading the slip takes a moment too.");
    more
}

/// What messages to workers that are there already cost.
fn by_messages(s: &Subject, bars: &mut Vec<Bar>, b: &mut Build) {
    let (m, c) = (s.machine, &s.machine.costs);
    b.number(
        "wake",
        "waking a parked worker",
        (c.wake_s.value, NumberFormat::Seconds),
        "",
        source("wake-up cost", &m.name, &c.wake_s),
    );
    bars.push(bar("message through the ring", c.launch_s.value, "launch"));
    bars.push(bar(
        "hand-off between workers",
        c.handoff_s.value,
        "handoff",
    ));
    bars.push(bar("waking a parked worker", c.wake_s.value, "wake"));
    bars.push(bar("a step", c.step_s.value, "step"));
    bars.push(bar("a task", c.task_s.value, "step"));
    b.beat("launch", "No thread is started: the request is a message to workers that are there already, {launch}, and the caller works with them.", "The workers stay at their benches and look at one tray for the next slip.");
    b.beat(
        "handoff",
        "A worker that is spinning sees it after {handoff}.",
        "Who stands at the tray reads at once.",
    );
    b.beat(
        "wake",
        "One that has parked must be woken first: {wake}.",
        "Who went for a coffee is called back.",
    );
    b.beat("step", "Then the step costs {step} and each task a ticket, {task}: {fixed} of fixed costs in this prediction.", "Reading the slip takes a moment too.");
}

pub(super) fn launch(s: &Subject) -> Scene {
    let (m, c) = (s.machine, &s.machine.costs);
    let mut b = Build::new(
        "launch",
        if s.is_gpu() {
            "The launch"
        } else {
            "The message"
        },
    );
    let mut bars = Vec::new();
    let mut more = vec![];
    b.number(
        "launch",
        "one start from the host",
        (c.launch_s.value, NumberFormat::Seconds),
        "",
        source("launch cost", &m.name, &c.launch_s),
    );
    b.number(
        "step",
        "fixed cost of a step",
        (c.step_s.value, NumberFormat::Seconds),
        "",
        source("cost of a step within a plan", &m.name, &c.step_s),
    );
    b.number(
        "task",
        "fixed cost of a task",
        (c.task_s.value, NumberFormat::Seconds),
        "",
        source("cost of a task", &m.name, &c.task_s),
    );
    b.number(
        "handoff",
        "a message between running workers",
        (c.handoff_s.value, NumberFormat::Seconds),
        "",
        source("hand-off cost", &m.name, &c.handoff_s),
    );
    let own = s.step.predicted.launch_s;
    b.number(
        "fixed",
        "fixed costs of this step",
        (own, NumberFormat::Seconds),
        "launches + steps + tasks of the busiest worker + statements, rows and calls",
        "the step's prediction",
    );
    if s.is_gpu() {
        more = by_launches(s, &mut bars, &mut b);
    } else {
        by_messages(s, &mut bars, &mut b);
    }
    let waits = s.step.waits.len();
    b.number(
        "waits",
        "steps it waits for",
        (waits as f64, NumberFormat::Of("earlier step")),
        "",
        "the plan",
    );
    if waits > 0 {
        b.beat(
            "",
            "It waits for {waits}, or only for the tasks there that it needs.",
            "It waits for what it builds on, and for nothing else.",
        );
    }
    b.done(Picture::Bars {
        title: if s.is_gpu() {
            "A launch, part by part".into()
        } else {
            "What a message costs".into()
        },
        bars,
        more_title: if more.is_empty() {
            String::new()
        } else {
            "A request of this step, 1,000 in a row".into()
        },
        more,
    })
}

/// The step's buffers, and others that live meanwhile.
fn blocks(s: &Subject) -> Vec<MemoryBlock> {
    let own = buffers(s);
    let role = |i: usize| match own.iter().find(|o| o.0 as usize == i) {
        Some((_, true)) => "write",
        Some((_, false)) => "read",
        None => "",
    };
    // Others' buffers that live while this step runs: touched before or at it and after or at it.
    let at = s
        .block
        .steps
        .iter()
        .position(|x| std::ptr::eq(x, s.step))
        .unwrap_or(0);
    let touches = |i: usize| -> Option<(usize, usize)> {
        let all = s
            .block
            .steps
            .iter()
            .enumerate()
            .filter(|(_, st)| match &st.work {
                plan::StepWork::Kernel { args, .. } => args.contains(&(i as u32)),
                plan::StepWork::Host {
                    inputs, outputs, ..
                } => inputs
                    .iter()
                    .flatten()
                    .chain(outputs)
                    .any(|a| a.buffer as usize == i),
            });
        let mut all = all.map(|(n, _)| n);
        let first = all.next()?;
        Some((first, all.next_back().unwrap_or(first)))
    };
    let mut blocks = Vec::new();
    for (i, v) in s.block.buffers.iter().enumerate() {
        let role = role(i);
        let lives = || touches(i).is_some_and(|(f, l)| f <= at && at <= l);
        let arena = v.kind == plan::BufferKind::Arena;
        if role.is_empty() && !(arena && blocks.len() < BLOCKS && lives()) {
            continue;
        }
        blocks.push(MemoryBlock {
            name: v.name.clone(),
            kind: kind(v.kind),
            place: v.place,
            offset: v.offset,
            bytes: v.bytes,
            role,
        });
    }
    blocks
}

pub(super) fn memory(s: &Subject) -> Scene {
    let mut b = Build::new("memory", "The memory");
    let places: Vec<PlaceBox> = s
        .plan
        .devices
        .iter()
        .enumerate()
        .map(|(i, d)| {
            let m = s.machines.get(i.min(s.machines.len().saturating_sub(1)));
            PlaceBox {
                name: d.machine.clone(),
                arena: s.block.arena(i as u32),
                capacity: m.map_or(0.0, |m| m.memory().bytes.value),
            }
        })
        .collect();
    let blocks = blocks(s);
    let place = s.step.device;
    let arena = s.block.arena(place);
    b.number(
        "arena",
        "arena of a request",
        (arena as f64, NumberFormat::Bytes),
        "offsets from lifetimes: what is never alive together may share bytes",
        "the plan's memory",
    );
    let sum = |role: &str| {
        blocks
            .iter()
            .filter(|b| b.role == role)
            .map(|b| b.bytes as f64)
            .sum::<f64>()
    };
    b.number(
        "read",
        "bytes of what it reads",
        (sum("read"), NumberFormat::Bytes),
        "",
        "buffers of the plan",
    );
    b.number(
        "written",
        "bytes of what it writes",
        (sum("write"), NumberFormat::Bytes),
        "",
        "buffers of the plan",
    );
    let beside = blocks.iter().filter(|b| b.role.is_empty()).count();
    b.number(
        "beside",
        "others alive meanwhile",
        (beside as f64, NumberFormat::Of("other buffer")),
        "",
        "lifetimes in the plan",
    );
    let memory = s.machine.memory();
    b.number(
        "capacity",
        "memory",
        (memory.bytes.value, NumberFormat::Bytes),
        "",
        source(&memory.name, &s.machine.name, &memory.bytes),
    );
    b.beat(
        "read",
        "Before anything runs, every buffer has its place. What the step reads, {read}, lies here.",
        "Every shelf has its number before the first lorry comes.",
    );
    if blocks.iter().any(|b| b.kind == "init") {
        b.beat(
            "read",
            "Some of it was made once, at load: weights packed in the order in which they are read.",
            "What every order needs was sorted beforehand, once.",
        );
    }
    b.beat(
        "write",
        "It writes {written} to a place of its own.",
        "And a free shelf waits for what will be made.",
    );
    b.beat("arena", "A request has one arena of {arena} in the {capacity} there are; buffers that are never alive together share bytes, and the verifier proves that none is overwritten too early.", "Shelves are given out again as soon as they are empty: the hall stays small.");
    if beside > 0 {
        b.beat(
            "beside",
            "{beside} live in it while this step runs.",
            "Others' goods stand there meanwhile.",
        );
    }
    b.done(Picture::Memory { places, blocks })
}

/// Rounds of tasks over workers, as the prediction counts them.
pub(super) fn waves(s: &Subject) -> (u64, u64, u64, u64) {
    let device = s.plan.devices.get(s.step.device as usize);
    let workers = device.map_or(1, |d| u64::from(d.workers)).max(1);
    let per = s.step.cost_work.ctas_per_worker.max(1);
    let tasks = s.view.tasks.max(0) as u64;
    (
        workers,
        per,
        tasks,
        tasks.div_ceil(workers.saturating_mul(per).max(1)),
    )
}

/// How many waves CTAs take, and how full those are.
fn waves_of_ctas(s: &Subject, b: &mut Build) {
    let (workers, per, tasks, waves) = waves(s);
    let slots = workers.saturating_mul(per);
    let last = tasks.saturating_sub(slots.saturating_mul(waves.saturating_sub(1)));
    let used = if waves > 0 {
        tasks as f64 / (waves as f64 * slots as f64)
    } else {
        0.0
    };
    b.number(
        "per",
        "CTAs on one SM",
        (per as f64, NumberFormat::Of("CTA")),
        "",
        "calculator `occupancy`, as the planner used it",
    );
    b.number(
        "slots",
        "CTAs at once",
        (slots as f64, NumberFormat::Of("CTA")),
        format!("{workers} x {per}"),
        "the two figures beside it",
    );
    b.number(
        "waves",
        "waves",
        (waves as f64, NumberFormat::Of("wave")),
        format!("ceil({tasks} / {slots})"),
        "tasks and CTAs at once",
    );
    b.number(
        "last",
        "CTAs of the last wave",
        (last as f64, NumberFormat::Of("CTA")),
        format!("{tasks} - {} x {slots}", waves.saturating_sub(1)),
        "tasks and CTAs at once",
    );
    b.number(
        "used",
        "share of the waves' slots that work",
        (used, NumberFormat::Percent),
        format!("{tasks} / ({waves} x {slots})"),
        "tasks and slots",
    );
    b.beat(
        "grid",
        "The grid has {tasks}, one for each tile of the result.",
        "{tasks} of work are on the list.",
    );
    b.beat(
        "first",
        "The {workers} hold {per} each: {slots} run at once.",
        "The hall has {workers}, each with room for {per}.",
    );
    if waves > 1 {
        b.beat(
            "waves",
            "So it takes {waves}; as soon as a CTA is done the next one takes its place.",
            "Who is done takes the next slip; the list is gone through {waves} long.",
        );
    }
    match waves {
        0 | 1 => b.beat("last", "One wave does it, with {last}: {used} of the slots work, the rest is idle.", "One round does it, and whoever has no slip stands idle."),
        _ => b.beat("last", "The last wave has {last}: over all of them {used} of the slots work, the rest is paid for and idle.", "In the last round some stand idle, and the round takes no less time for it."),
    }
}

/// How a CPU's workers share the tasks.
fn shares_of_workers(s: &Subject, b: &mut Build) {
    let (workers, _, tasks, _) = waves(s);
    let each = tasks.div_ceil(workers);
    b.number(
        "each",
        "tasks of the busiest worker",
        (each as f64, NumberFormat::Of("task")),
        format!("ceil({tasks} / {workers})"),
        "tasks and workers",
    );
    let largest = s.step.cost_work.largest;
    if largest > 0.0 {
        b.number(
            "largest",
            "share of the largest task",
            (largest, NumberFormat::Percent),
            "largest task / all",
            "read off the tile program",
        );
    }
    b.beat(
        "grid",
        "The grid has {tasks}; they are handed out {chunk} at a time.",
        "The list has {tasks} of work.",
    );
    b.beat("first", "Each of {workers} begins with a contiguous share of its own, at most {each}, so that its cache stays warm from step to step.", "Everybody begins with his own stack, next to his own shelf.");
    b.beat(
        "last",
        "Who is done first helps with the others' shares: a ticket is one atomic addition.",
        "Who is done helps the neighbour.",
    );
    if let Some(m) = &s.measured {
        b.number(
            "took",
            "workers that took part",
            (f64::from(m.workers), NumberFormat::Of("worker")),
            "",
            "measured: workers' own clocks",
        );
        b.beat("", "When it was run, {took} took part.", "");
    }
}

pub(super) fn grid(s: &Subject) -> Option<Scene> {
    let program = s.program.as_ref()?;
    let (workers, per, tasks, waves) = waves(s);
    let gpu = s.is_gpu();
    let (worker, task) = if gpu {
        ("SM", "CTA")
    } else {
        ("worker", "task")
    };
    let mut b = Build::new(
        "grid",
        if gpu {
            "CTAs onto SMs"
        } else {
            "Tasks onto workers"
        },
    );
    let axes: Vec<GridAxis> = program
        .schedule()
        .grid
        .iter()
        .map(|t| {
            let axis = &program.kernel().axes[t.axis as usize];
            let extent = s.top(&axis.extent);
            GridAxis {
                name: axis.name.clone(),
                extent,
                tile: t.tile,
                pieces: extent.max(0).div_euclid(t.tile.max(1))
                    + i64::from(extent.rem_euclid(t.tile.max(1)) > 0),
            }
        })
        .collect();
    let grid: Vec<String> = axes
        .iter()
        .map(|a| format!("{} [{}]", a.pieces, a.name))
        .collect();
    b.number(
        "tasks",
        "tasks",
        (tasks as f64, NumberFormat::Of(task)),
        grid.join(" x "),
        "the schedule's grid",
    );
    b.number(
        "workers",
        "workers",
        (workers as f64, NumberFormat::Of(worker)),
        "",
        source("workers", &s.machine.name, &s.machine.workers.count),
    );
    let chunk = program.schedule().chunk;
    b.number(
        "chunk",
        "tasks handed out at a time",
        (chunk as f64, NumberFormat::Of("task")),
        "",
        "the schedule",
    );
    if gpu {
        waves_of_ctas(s, &mut b);
    } else {
        shares_of_workers(s, &mut b);
    }
    let of = axes
        .iter()
        .map(|a| format!("{} = ceil({} / {})", a.name, a.extent, a.tile));
    b.name(
        "axes",
        "axes of the grid",
        match axes.is_empty() {
            true => "none: one task".into(),
            false => of.collect::<Vec<_>>().join(", "),
        },
        "the schedule",
    );
    let text = units::plural(waves, "round");
    b.name("rounds", "rounds", text, "tasks over workers");
    Some(b.done(Picture::Waves {
        workers,
        per_worker: per,
        tasks,
        waves,
        axes,
        worker,
        task,
    }))
}
