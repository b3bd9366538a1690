//! How a kernel is to run where its text says so: a schedule is taken as it is where it is legal, and PTX
//! stands for what is printed on GPUs that run it.
use super::candidate::Choice;
use super::form::Facts;
use super::renumber::lanes_last;
use crate::bind::ctx::Ctx;
use crate::bind::predict::predict_step;
use kernel::{
    Given, GpuMapping, Kernel, KernelError, Mapping, Schedule, Target, TargetKind, TileProgram,
};
use layout::Arrange;
use machine::units;
use plan::{Alternative, Why};
use std::sync::Arc;

/// The choice for `kernel`, of whose text `given` is a part; what the planner finds where that has nothing
/// legal for the device. Whatever is decided is said.
///
/// # Errors
/// As [`super::choose`].
pub(super) fn choose(
    ctx: Ctx,
    kernel: &Kernel,
    given: &Given,
    facts: &Facts,
    whys: &mut Vec<Why>,
) -> Result<Choice, String> {
    let said = Why {
        pass: "schedule".into(),
        subject: kernel.name.clone(),
        choice: String::new(),
        alternatives: vec![],
        reason: String::new(),
    };
    let gpu = ctx.target.gpu.is_some();
    let ptx = ctx.target.kind == TargetKind::Ptx;
    let code = given.code.as_ref().filter(|_| ptx);
    let ours = |s: &&Schedule| matches!(s.mapping, Mapping::Gpu(_)) == gpu;
    let (mut legal, mut refused) = (vec![], vec![]);
    for s in given.schedules.iter().filter(ours) {
        match legal_choice(ctx, kernel, s) {
            Ok(c) => legal.push(c),
            Err(why) => refused.push(why),
        }
    }
    legal.arrange_by(|a, b| a.cost.time_s.total_cmp(&b.cost.time_s));
    let others = legal.iter().skip(1).map(|c| Alternative {
        what: "another schedule of its text".into(),
        predicted_s: c.cost.time_s,
    });
    let alternatives = others.collect();
    let mut choice = match legal.into_iter().next() {
        Some(c) => {
            whys.push(Why {
                choice: "as the kernel's text says".into(),
                reason: format!(
                    "predicted {}, bound by {}",
                    units::seconds(c.cost.time_s),
                    c.cost.bound
                ),
                alternatives,
                ..said.clone()
            });
            c
        }
        None => {
            if !given.schedules.is_empty() {
                whys.push(Why {
                    choice: "the planner's own".into(),
                    reason: match refused.first() {
                        Some(why) => format!(
                            "the schedule in the kernel's text is not legal on {}: {why}",
                            ctx.target.name
                        ),
                        None => {
                            format!("the kernel's text has no schedule for {}", ctx.target.name)
                        }
                    },
                    ..said.clone()
                });
            }
            let own = Facts {
                given: None,
                constant: facts.constant,
                packings: facts.packings,
                earlier: None,
                // One launch of its PTX computes the whole.
                whole: code.is_some(),
            };
            super::choose(ctx, kernel, &own, whys)?
        }
    };
    let Some(code) = code else {
        return Ok(choice);
    };
    if let Mapping::Gpu(g) = &mut Arc::make_mut(&mut choice.schedule).mapping {
        g.code = Some(code.clone());
    }
    whys.push(Why {
        choice: format!("PTX of the kernel's own, entry '{}'", code.entry),
        reason: "its text has it for this device; what it is predicted to take is read off the tile program. It is launched for every request, so that its block runs step by step where others run in a kernel that stays".into(),
        ..said
    });
    Ok(choice)
}

/// `schedule` with what it costs, or why it is not legal here.
fn legal_choice(ctx: Ctx, kernel: &Kernel, schedule: &Schedule) -> Result<Choice, String> {
    let (kernel, schedule) = (Arc::new(kernel.clone()), Arc::new(schedule.clone()));
    // Axes are numbered as executors want them; that changes no other word of it.
    let (kernel, schedule) = lanes_last(&kernel, &schedule).unwrap_or((kernel, schedule));
    let said = |e: KernelError| e.to_string();
    let program = TileProgram::new(kernel.clone(), schedule.clone()).map_err(said)?;
    program.fits(ctx.target).map_err(said)?;
    listed(&schedule, ctx.target)?;
    let (work, cost) = predict_step(ctx, &kernel, &schedule)
        .ok_or("its sizes have no value at the largest sizes that the plan covers")?;
    if let (Some(prints), Mapping::Gpu(_)) = (ctx.prints(), &schedule.mapping) {
        prints(&program, ctx.target)?;
    }
    Ok(Choice {
        kernel,
        schedule,
        packed: vec![],
        parts: None,
        work,
        cost,
        taken: false,
    })
}

/// Whether what the schedule asks the target for is on the target's lists.
fn listed(schedule: &Schedule, target: &Target) -> Result<(), String> {
    match &schedule.mapping {
        Mapping::Cpu(c) => {
            let there = |m: &kernel::MicroKernel| {
                let mut all = target.micro.iter();
                all.any(|s| (s.mr, s.nr) == (m.mr, m.nr))
            };
            match c.micro.filter(|m| !there(m)) {
                Some(m) => Err(format!("it has no micro-kernel {}x{}", m.mr, m.nr)),
                None => Ok(()),
            }
        }
        Mapping::Gpu(g) => on_gpu(schedule, g, target),
    }
}

fn on_gpu(schedule: &Schedule, g: &GpuMapping, target: &Target) -> Result<(), String> {
    let Some(gpu) = &target.gpu else {
        return Err("it is no GPU".into());
    };
    if let Some(f) = g.fragment.filter(|f| !gpu.fragments.contains(f)) {
        return Err(format!("it has no instruction {}", f.name()));
    }
    if schedule.chunk != 1 {
        return Err(format!("a CTA takes one task, not {}", schedule.chunk));
    }
    Ok(())
}
