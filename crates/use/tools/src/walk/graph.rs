//! From the model's graph to a tile program: what the step stands for, how it is to run, and what it says.
use super::Subject;
use super::narration::{Build, NumberFormat};
use kernel::{AxisTile, Role, TileProgram};
use layout::Arrange;
use plan::{BufferKind, StepWork};
use report::walk::{Bar, CodeLine, Decision, NodeBox, Pane, Picture, Scene, ValueBox};
use std::collections::BTreeSet;

/// Decisions and alternatives that are shown, at most.
const DECISIONS: usize = 12;

pub(super) fn kind(k: BufferKind) -> &'static str {
    match k {
        BufferKind::Input(_) => "input",
        BufferKind::Output(_) => "output",
        BufferKind::Weight(_) => "weight",
        BufferKind::Init => "init",
        BufferKind::Arena => "arena",
        BufferKind::State(_) => "state",
    }
}

/// Buffers that the step reads and writes, each once.
pub(super) fn buffers(s: &Subject) -> Vec<(u32, bool)> {
    let mut seen = BTreeSet::new();
    let all: Vec<(u32, bool)> = match &s.step.work {
        StepWork::Kernel { kernel, args, .. } => {
            let both = kernel.operands.iter().zip(args);
            both.map(|(o, &b)| (b, o.role == Role::Write)).collect()
        }
        StepWork::Host {
            inputs, outputs, ..
        } => {
            let read = inputs.iter().flatten().map(|a| (a.buffer, false));
            read.chain(outputs.iter().map(|a| (a.buffer, true)))
                .collect()
        }
    };
    all.into_iter().filter(|b| seen.insert(*b)).collect()
}

fn values(s: &Subject) -> Vec<ValueBox> {
    buffers(s)
        .into_iter()
        .filter_map(|(i, written)| {
            let v = s.block.buffers.get(i as usize)?;
            Some(ValueBox {
                name: v.name.clone(),
                kind: kind(v.kind),
                dtype: v.dtype.to_string(),
                bytes: v.bytes,
                written,
            })
        })
        .collect()
}

/// What the planner decided to fuse with the step, and what not.
fn decisions(s: &Subject) -> Vec<Decision> {
    let about = |w: &&plan::Why| {
        w.pass == "fuse" && (w.subject == s.step.name || s.step.nodes.contains(&w.subject))
    };
    s.plan
        .whys
        .iter()
        .filter(about)
        .take(DECISIONS)
        .map(|w| Decision {
            subject: w.subject.clone(),
            choice: w.choice.clone(),
            fused: !w.choice.starts_with("not"),
            reason: w.reason.clone(),
        })
        .collect()
}

/// What the step reads and writes.
fn bytes_of(values: &[ValueBox], b: &mut Build) {
    let sum = |written: bool| {
        let all = values.iter().filter(|v| v.written == written);
        all.map(|v| v.bytes).sum::<u64>() as f64
    };
    let each = |written: bool| {
        let all = values.iter().filter(|v| v.written == written);
        let all: Vec<String> = all
            .map(|v| format!("{} {}", v.name, report::units::bytes(v.bytes as f64)))
            .collect();
        all.join(" + ")
    };
    let sizes = "buffers of the plan, at the largest sizes that it covers";
    b.number(
        "reads",
        "bytes of what it reads",
        (sum(false), NumberFormat::Bytes),
        each(false),
        sizes,
    );
    b.number(
        "writes",
        "bytes of what it writes",
        (sum(true), NumberFormat::Bytes),
        each(true),
        sizes,
    );
}

/// Which nodes the step stands for.
fn say_nodes(nodes: &[NodeBox], b: &mut Build) {
    let file = "the model's file";
    if let (Some(first), Some(last)) = (nodes.first(), nodes.last()) {
        b.name("node", "first node", &first.name, file);
        b.name("op", "operator", &first.op, file);
        b.name("last", "last node", &last.name, file);
        b.name("last_op", "operator of the last node", &last.op, file);
        b.beat(
            "first",
            "Nodes of the model: {model_nodes}. One of them is {node}, of the operator {op}.",
            "An order has come in: {op}. Lines in the order book: {model_nodes}.",
        );
        match nodes.len() {
            1 => b.beat(
                "nodes",
                "Nothing was fused with it: it is a step of its own.",
                "The order is made on a line of its own.",
            ),
            _ => b.beat(
                "nodes",
                "The planner fused {nodes} into one step, up to {last} ({last_op}): what one of them hands to the next stays with the worker and is never written to memory.",
                "{nodes} share one line, so that half-finished goods never go back to the warehouse.",
            ),
        }
    } else {
        b.beat(
            "nodes",
            "This step stands for no node of the model: the planner put it in to move data.",
            "A transport between two halls that nobody ordered and that the plan needs.",
        );
    }
}

pub(super) fn node(s: &Subject) -> Scene {
    let mut b = Build::new("node", "The node");
    let op = |name: &str| {
        let found = s.fates.iter().find(|f| f.node == name);
        found.map_or_else(String::new, |f| f.op_type.clone())
    };
    let nodes: Vec<NodeBox> = s
        .step
        .nodes
        .iter()
        .map(|n| NodeBox {
            name: n.clone(),
            op: op(n),
        })
        .collect();
    let (values, decisions) = (values(s), decisions(s));
    let file = "the model's file";
    b.number(
        "model_nodes",
        "nodes of the model",
        (s.fates.len() as f64, NumberFormat::Whole),
        "",
        file,
    );
    b.number(
        "nodes",
        "nodes in this step",
        (nodes.len() as f64, NumberFormat::Of("node")),
        "",
        "the plan",
    );
    b.number(
        "number",
        "step",
        (f64::from(s.number), NumberFormat::Whole),
        "",
        "its place in the plan",
    );
    b.number(
        "of",
        "steps of the plan",
        (f64::from(s.of), NumberFormat::Whole),
        "",
        "the plan",
    );
    let (own, all) = (s.step.predicted.time_s, s.all_s());
    let share = if all > 0.0 { own / all } else { 0.0 };
    b.number(
        "share",
        "share of the steps' predicted time",
        (share, NumberFormat::Percent),
        format!(
            "{} / {}",
            report::units::seconds(own),
            report::units::seconds(all)
        ),
        "predictions of the plan's steps",
    );
    bytes_of(&values, &mut b);
    say_nodes(&nodes, &mut b);
    let not = decisions.iter().filter(|d| !d.fused).count();
    if not > 0 {
        b.number(
            "not",
            "joins that were left out",
            (not as f64, NumberFormat::Of("join")),
            "",
            "the plan's whys",
        );
        b.beat(
            "decisions",
            "The planner left {not} out; the reason stands beside each.",
            "Not everything belongs on one line: what would block it stays apart.",
        );
    }
    b.beat(
        "values",
        "It reads {reads} and writes {writes}, and is step {number} of the plan's {of}, counted from 0: {share} of the predicted time of all steps.",
        "{reads} come in at one gate and {writes} leave at the other.",
    );
    b.done(Picture::Nodes {
        nodes,
        values,
        decisions,
    })
}

pub(super) fn choice(s: &Subject) -> Scene {
    let mut b = Build::new("choice", "The choice");
    let predicted = s.step.predicted.time_s;
    let why = s.plan.whys.iter().rev();
    let why = why
        .clone()
        .find(|w| w.pass == "schedule" && w.subject == s.step.name);
    b.name("schedule", "schedule", &s.view.schedule, "the planner");
    b.number(
        "predicted",
        "predicted time",
        (predicted, NumberFormat::Seconds),
        "busy time x imbalance of the last round + first access and hand-offs + fixed costs",
        format!("cost model over {}", s.machine.name),
    );
    b.name(
        "bound",
        "bound by",
        s.step.predicted.bound.to_string(),
        "the largest part of the prediction",
    );
    let mut bars = vec![Bar {
        name: s.view.schedule.clone(),
        us: predicted * 1e6,
        role: "chosen",
    }];
    let mut alternatives = why.map(|w| w.alternatives.clone()).unwrap_or_default();
    alternatives.arrange_by(|a, b| a.predicted_s.total_cmp(&b.predicted_s));
    bars.extend(alternatives.iter().take(DECISIONS).map(|a| Bar {
        name: a.what.clone(),
        us: a.predicted_s * 1e6,
        role: "other",
    }));
    match &s.step.work {
        StepWork::Host { op, .. } => {
            b.name("reason", "reason", &op.reason, "the plan's whys");
            b.beat(
                "chosen",
                "There is nothing to choose: the step runs on the host as plain code, because {reason}.",
                "A job for the office, not for the machines.",
            );
        }
        StepWork::Kernel { .. } => {
            b.beat(
                "chosen",
                "A kernel says what is computed, a schedule says how: {schedule}. It is predicted to take {predicted}, bound by {bound}.",
                "The same goods can be made in batches of any size. The foreman chose this cut.",
            );
        }
    }
    if let Some(next) = alternatives.first() {
        b.name("next", "next best", &next.what, "the planner");
        b.number(
            "next_s",
            "predicted time of the next best",
            (next.predicted_s, NumberFormat::Seconds),
            "",
            format!("the same cost model over {}", s.machine.name),
        );
        let ratio = if predicted > 0.0 {
            next.predicted_s / predicted
        } else {
            1.0
        };
        b.number(
            "ratio",
            "next best over chosen",
            (ratio, NumberFormat::Times),
            format!(
                "{} / {}",
                report::units::seconds(next.predicted_s),
                report::units::seconds(predicted)
            ),
            "the two predictions",
        );
        b.beat(
            "other",
            match next.predicted_s >= predicted {
                true => "It beat the others that were costed; the next best, {next}, is predicted to take {next_s}, {ratio} as long.",
                false => "Of the others that were costed, {next} is predicted to take {next_s}, {ratio} as long, where arithmetic and copies overlap wholly. Candidates are ranked as if a tenth did not overlap, and what is packed already counts for something: so this one comes first.",
            },
            "Other cuts were costed on paper before anybody moved.",
        );
    }
    if let Some(w) = why {
        b.name("reason", "reason", &w.reason, "the plan's whys");
        b.beat("", "The planner's own words: {reason}.", "");
    }
    b.done(Picture::Bars {
        title: "Schedules by predicted time".into(),
        bars,
        more: vec![],
        more_title: String::new(),
    })
}

/// What a line of a tile program's text is.
fn role(line: &str) -> &'static str {
    let t = line.trim_start();
    let begins = |w: &str| t.starts_with(w);
    match () {
        () if begins("kernel ") || begins("space ") => "space",
        () if begins("read ") || begins("write ") => "operand",
        () if begins("grid ") || begins("one task") => "grid",
        () if begins("mapping ") => "mapping",
        () if begins("loop ") => "loop",
        () if begins("store ") => "store",
        () if t.contains(" += contract ") || t.contains(" = fold ") => "math",
        () if t.contains(" = load ") => "load",
        () => "map",
    }
}

/// Axes, tasks and rounds, and what is computed in them.
fn program_figures(s: &Subject, program: &TileProgram, b: &mut Build) {
    let here = "the tile program";
    let (k, schedule) = (program.kernel(), program.schedule());
    b.name("family", "kind of kernel", &s.view.family, here);
    b.name(
        "shapes",
        "extents of the axes",
        &s.view.shapes,
        "the kernel, at the largest sizes that the plan covers",
    );
    let axes = match k.axes.len() {
        1 => "1 axis".to_string(),
        n => format!("{n} axes"),
    };
    b.name("axes", "axes", axes, here);
    let cuts = |list: &[AxisTile]| -> String {
        let each = list.iter().map(|t| {
            let axis = &k.axes[t.axis as usize];
            format!("ceil({} / {}) [{}]", s.top(&axis.extent), t.tile, axis.name)
        });
        each.collect::<Vec<_>>().join(" x ")
    };
    b.number(
        "tasks",
        "tasks",
        (s.view.tasks as f64, NumberFormat::Of("task")),
        cuts(&schedule.grid),
        "the schedule's grid",
    );
    let over: f64 = schedule
        .loops
        .iter()
        .map(|t| {
            let n = s.top(&k.axes[t.axis as usize].extent);
            (n as f64 / t.tile.max(1) as f64).ceil()
        })
        .product();
    b.number(
        "rounds",
        "rounds of a task's loops",
        (over, NumberFormat::Of("round")),
        cuts(&schedule.loops),
        "the schedule's loops",
    );
    b.number(
        "flop",
        "operations of products",
        (s.view.flop, NumberFormat::Count),
        "a multiply-add is two",
        "counted over the statements of the tile program",
    );
}

pub(super) fn program(s: &Subject) -> Option<Scene> {
    let program = s.program.as_ref()?;
    let text = program.to_string();
    let lines: Vec<CodeLine> = text
        .lines()
        .enumerate()
        .map(|(i, l)| CodeLine {
            number: i as u32 + 1,
            text: l.into(),
            role: role(l),
        })
        .collect();
    let has = |role: &str| lines.iter().any(|l| l.role == role);
    let mut b = Build::new("program", "The tile program");
    program_figures(s, program, &mut b);
    b.beat(
        "space",
        "What the step does is said once, as a tile program: {axes} with the extents {shapes}. Everything from here on is read off this text.",
        "The work plan: what is made, of what, in which cut. Everybody reads the same sheet.",
    );
    b.beat(
        "operand",
        "Each operand says where its elements lie: an offset and a stride for every axis, with bounds where a tile can reach beyond the edge.",
        "For every material, the shelf and the way along it.",
    );
    match s.view.tasks {
        1 => b.beat(
            "grid",
            "The work is one task: it is too small to be cut.",
            "The order is so small that one worker makes it.",
        ),
        _ => b.beat(
            "grid",
            "The grid cuts the work into {tasks} that do not depend on one another.",
            "The order is cut into {tasks}; any worker can take any of them.",
        ),
    }
    if has("loop") {
        b.beat(
            "loop",
            "A task goes through its loop in {rounds} and works on one piece at a time.",
            "A worker takes {rounds} of material, one after another.",
        );
    }
    if has("load") {
        b.beat(
            "load",
            "Loads bring whole tiles nearer: in shared memory, in registers, or in place where nothing is copied.",
            "Pallets are brought from the warehouse to the bench.",
        );
    }
    if has("math") {
        b.beat(
            "math",
            "Here the arithmetic is: {flop} operations of products over all tasks.",
            "The machine itself.",
        );
    }
    if has("map") {
        b.beat(
            "map",
            "Maps are what was fused: they work on tiles that are in registers already.",
            "Finishing is done while the piece is still on the bench.",
        );
    }
    b.beat(
        "store",
        "And a store writes the finished tile back, once.",
        "Finished goods leave for the warehouse, once.",
    );
    b.beat(
        "mapping",
        "The mapping says how the tiles lie on this machine's hardware; code follows from it without further choices.",
        "Who stands where.",
    );
    Some(b.done(Picture::Code {
        panes: vec![Pane {
            language: "tile program".into(),
            of: lines.len() as u32,
            lines,
        }],
        note: String::new(),
    }))
}
