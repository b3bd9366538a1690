//! Decisions as text: a change of a choice shows up as a change here.
use crate::alternatives::moved_first;
use crate::build::*;
use crate::propose::{changed, seen, serving};
use kernel::{Mapping, Place};
use plan::{Allotment, Plan, Planner as _, Step, StepWork, Wait};
use std::fmt::Write;

pub fn text(p: &Plan) -> String {
    let mut s = String::new();
    for b in p.blocks() {
        for (i, f) in b.buffers.iter().enumerate() {
            let _ = writeln!(
                s,
                "buffer {i} {} {:?} {} B at {}",
                f.name, f.kind, f.bytes, f.offset
            );
        }
        for (kind, list) in [("init", &b.init), ("step", &b.steps)] {
            for (i, x) in list.iter().enumerate() {
                let _ = writeln!(s, "{kind} {i} {}: {}", x.name, step(x));
            }
        }
        let _ = writeln!(
            s,
            "arena {} B, scratch {} B",
            b.arena_bytes, b.scratch_bytes
        );
    }
    s
}

fn step(x: &Step) -> String {
    let waits: Vec<String> = x
        .waits
        .iter()
        .map(|w| match w {
            Wait::Step(s) => s.to_string(),
            Wait::Tiles { step, .. } => format!("tiles of {step}"),
        })
        .collect();
    let StepWork::Kernel {
        kernel,
        schedule,
        args,
    } = &x.work
    else {
        return "host".into();
    };
    let name = |a: &u16| kernel.axes[*a as usize].name.clone();
    let cut = |l: &[kernel::AxisTile]| {
        l.iter()
            .map(|t| format!("{}/{}", name(&t.axis), t.tile))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut s = format!(
        "grid [{}] loops [{}] tasks {} chunk {}",
        cut(&schedule.grid),
        cut(&schedule.loops),
        x.tasks,
        schedule.chunk
    );
    if let Mapping::Cpu(m) = &schedule.mapping {
        let rows = m.rows.iter().map(name).collect::<Vec<_>>().join(" ");
        let _ = write!(
            s,
            " rows [{rows}] lanes {}",
            m.lanes.map_or("-".into(), |l| name(&l))
        );
        if let Some(m) = m.micro {
            let _ = write!(s, " micro {}x{}", m.mr, m.nr);
        }
    }
    let own: Vec<String> = kernel
        .tiles
        .iter()
        .enumerate()
        .filter(|(t, _)| schedule.place(*t as u16) != Place::InPlace)
        .map(|(_, t)| t.name.clone())
        .collect();
    let _ = write!(
        s,
        " own [{}] args {args:?} waits [{}]",
        own.join(" "),
        waits.join(" ")
    );
    s
}

/// Differences are meant to be read; `SHOPFLOOR_BLESS=1` writes what the planner says now.
#[test]
fn decisions() {
    let all = [
        ("gemm 384x768x3072", gemm(384, 768, 3072)),
        ("gemm 1x768x50000", gemm(1, 768, 50000)),
        ("gemm 3x40x10", gemm(3, 40, 10)),
        ("convolutions 56x56x64", convs(1, 56, 64)),
        ("convolutions 7x7x512", convs(1, 7, 512)),
        ("softmax 1536x384", softmax()),
        ("concat", concat()),
        ("state", state()),
    ];
    let mut s = String::new();
    for (name, p) in all {
        let plan = bind(&p, &dims());
        let _ = writeln!(s, "== {name}\n{}", text(&plan));
        plan.verify().unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    // A proposal by what steps took: another layout.
    let p = moved_first((784, 64, 64), 256);
    let (plan, all) = (bind(&p, &dims()), Allotment::default());
    let seen = seen(&plan, &changed(&["l2.bandwidth=0.125x"]));
    for c in planner().propose(&seen, &[serving(&p, &plan, &all)]) {
        let _ = writeln!(s, "== proposed with a slow L2: {}", c.why.choice);
        let _ = writeln!(
            s,
            "gain {:.0}%: {}",
            100.0 * c.gain_s / c.now_s,
            c.why.reason
        );
        let _ = writeln!(s, "{}", text(&c.changes[0].plan));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt");
    if std::env::var_os("SHOPFLOOR_BLESS").is_some() {
        std::fs::write(path, &s).unwrap();
    }
    let want = std::fs::read_to_string(path).unwrap();
    for (n, (a, b)) in want.lines().zip(s.lines()).enumerate() {
        assert_eq!(a, b, "line {}", n + 1);
    }
    assert_eq!(want.len(), s.len());
}
