//! Decisions as text: a change of a choice shows up as a change here.
use super::*;
use kernel::{Mapping, Place};
use plan::{Step, StepWork, Wait};
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

#[test]
fn print_all() {
    for p in [
        gemm(384, 768, 3072),
        gemm(1, 768, 50000),
        gemm(3, 40, 10),
        convs(1, 56, 64),
        convs(1, 7, 512),
        softmax(),
        concat(),
    ] {
        let plan = bind(&p, &DimBox::new());
        println!("== {} {:?}", p.name, plan.predicted.time_s);
        println!("{}", text(&plan));
        for w in &plan.whys {
            println!("{} | {} | {}", w.subject, w.choice, w.reason);
            for a in &w.alternatives {
                println!("      {} {:.1}", a.what, a.predicted_s * 1e6);
            }
        }
    }
}
