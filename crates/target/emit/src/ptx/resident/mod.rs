//! A kernel that never leaves: the bodies of a plan's steps in one module, with an entry that takes
//! requests from a ring, runs their tasks with dependency counters in device memory and answers.
//!
//! # Who does what
//!
//! The launch has `1 + W` CTAs that are all on the device at once. CTA 0 is the dispatcher; it runs no
//! tasks, so that a request is seen while others run, and it alone looks across the bus, which many CTAs
//! that poll the host's memory would load. Its stop word may say 1, finish what was pushed, or 2, leave at
//! once: then workers leave too, also from a wait that is late. Requests that were called off it marks in
//! their slots. The others are
//! workers. Of a request's tasks, counted through the plan's steps in plan order, worker `w` takes those
//! whose number is `w` modulo `W`.
//!
//! ```text
//!  host                       dispatcher (CTA 0)                  worker (CTA 1..=W)
//!  ────                       ──────────────────                  ──────────────────
//!  tables, inputs   (weak)
//!  ticket           release.sys ──▶ idle: ld.acquire.sys ticket
//!                             │  ▲       (spins, then nanosleep to a cap; reads the stop word too)
//!                             │  └─ none, stop = 0
//!                             │  none, stop = 1, none at a second look ──────────────▶ leave
//!                             │  ticket of another epoch (its kernel is next) ───────▶ leave
//!                             ▼
//!                       take: fresh tables → device memory, counters := 0, turn := 1
//!                             else turn += 1;  faults := 0
//!                             │
//!                             └─ st.release.gpu feed ───────────▶ idle: looks at feed (relaxed), ld.acquire.gpu
//!                                                                 │  no task of it is mine ─▶ idle
//!                                                                 ▼
//!                                                          ┌▶ wait: looks at counters (relaxed), fence.acq_rel.gpu
//!                                                          │      │ (late after `patience` polls:
//!                                                          │      │  status words, late flag)
//!                                                          │   bar.sync
//!                                                          │  run: the step's body
//!                                                          │   bar.sync
//!                                                          │  done: fence.acq_rel.gpu, counters += tasks
//!                                                          └──────┤ another task of mine
//!                                                                 ▼
//!                                                           arrive: atom.acq_rel.gpu; the last one
//!  ld.acquire.sys answer ◀──────────────────────────────── st.release.sys answer
//!                                                                 └─▶ idle (next request)
//!
//!  leave: feed := end; state := gone  ────────────────────▶ a worker that reads the end leaves too
//! ```
//!
//! # Why it is right
//!
//! - *No deadlock*: waits name earlier tasks only, every worker goes through its tasks in order, and all
//!   CTAs are on the device: the earliest task that is not done can always run.
//! - *Counters are monotonic*: a task adds one, or a worker adds all its tasks of a step of which nobody waits
//!   for some, once they are done. The `turn`-th request with the same tables waits for
//!   `turn` times as many. They are set to zero only with fresh tables, by the dispatcher, after the
//!   answer of the slot's last request was read by the host, so nobody is in the slot.
//! - *Nothing is overtaken*: the host has at most as many requests under way as the ring has entries.
//!   The feed has twice as many, and its word holds the number of tasks: a worker that has none of a
//!   request's tasks touches nothing of it, and one that comes so late that its entry was taken again
//!   knows that it had no part in what it missed.
//! - *A failed task* leaves the number of its fault in a word of the step; worker 0 of the arrival puts
//!   the first failed step's into the answer. The request runs to its end.
//! - *A request that was called off* has its number in a word of its slot, which a worker reads behind
//!   every wait: it then counts the tasks that waited without running them. Who waited for that task acquired
//!   its counter and so reads the number too, hence no task runs on what was left out. The host lists such
//!   requests beside the tickets; the dispatcher looks at their number whenever it looks for a ticket.
//! - *Times*: a request with a place for them has the clock at every worker's first task of a step and
//!   behind its last one written there, before the worker arrives.
//! - *Results are seen*: a worker's writes come before its counters (barrier, fence), these before what
//!   acquires them; the last arrival's release at system scope carries all of them to the host.
//!
//! The bodies are printed by what prints a step's own kernel ([`super::emit`]); only where parameters and
//! the task's number come from differs, so that both ways give the same bits.
mod abi;
mod copy;
mod entry;

use super::printed::{Printed, module};
use super::source::Source;
use super::{ARCHS, ParamSpec};
use crate::EmitError;
pub use abi::{Abi, AnswerAbi, HeaderAbi, PARAMS, SlotAbi, StatusAbi, StepAbi, WaitAbi};
use kernel::{Mapping, TileProgram};
use std::collections::HashMap;

/// Registers of an SM.
const SM_REGISTERS: u32 = 65536;
/// Registers that the entry keeps while a body runs, roughly.
const OWN_REGISTERS: u32 = 16;
/// Bodies of a module at most.
const MAX_BODIES: usize = 4096;

/// What every CTA of a resident kernel has: the most of what its steps need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentShape {
    /// Threads per CTA.
    pub threads: u32,
    /// Registers per thread at most.
    pub registers: u32,
    /// Dynamic shared memory per CTA, in bytes.
    pub shared_bytes: u32,
}

/// What the resident kernel does while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Polls without a pause before the first one.
    pub spins: u32,
    /// Longest pause between polls, in nanoseconds.
    pub pause_ns: u32,
}

impl Default for Idle {
    fn default() -> Idle {
        Idle {
            spins: 1024,
            pause_ns: 256,
        }
    }
}

/// One step's body.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// What its record holds, in order, 8 bytes each.
    pub params: Vec<ParamSpec>,
    /// Threads that work; the others wait for them.
    pub threads: u32,
    /// Reasons of its faults, by number from 1; without any it has no fault word.
    pub faults: Vec<String>,
}

/// A module whose kernel stays.
#[derive(Clone, Debug, PartialEq)]
pub struct Resident {
    /// The module.
    pub text: String,
    /// Name of the entry; its parameters are [`PARAMS`], 8 bytes each.
    pub entry: String,
    /// Bodies. The one behind the last copies memory: its record holds source, target and number of
    /// bytes, all multiples of 16 but the number, and the bytes that one task copies, a multiple of 16.
    pub bodies: Vec<Body>,
    /// Body of every program given.
    pub of_program: Vec<u32>,
    /// What a CTA has.
    pub shape: ResidentShape,
    /// Static shared memory per CTA beside the shape's, in bytes.
    pub static_shared: u32,
}

impl Resident {
    /// Number of the body that copies.
    pub fn copy_body(&self) -> u32 {
        self.bodies.len() as u32
    }
}

fn refuse<T>(kernel: &str, rule: &'static str, why: String) -> Result<T, EmitError> {
    Err(EmitError::Rule {
        kernel: kernel.into(),
        statement: "the resident kernel".into(),
        rule,
        why,
    })
}

/// Lines that are not comments: what decides whether two bodies are one.
fn essence(code: &str) -> String {
    code.lines()
        .filter(|l| !l.trim_start().starts_with("//"))
        .fold(String::new(), |s, l| s + l + "\n")
}

/// Threads that `programs` need together; registers and shared memory are those of none.
fn shape_of(programs: &[&TileProgram]) -> Result<ResidentShape, EmitError> {
    let mut shape = ResidentShape {
        threads: 32,
        registers: 40,
        shared_bytes: 0,
    };
    for p in programs {
        let name = &p.kernel().name;
        let Mapping::Gpu(map) = &p.schedule().mapping else {
            return refuse(
                name,
                "GPU mapping",
                "the schedule is for a CPU; bind the plan to a PTX target".into(),
            );
        };
        if map.code.is_some() {
            return refuse(
                name,
                "code",
                "PTX of its user's is launched for every request; run the plan step by step".into(),
            );
        }
        if !map.threads.is_multiple_of(32) {
            return refuse(
                name,
                "whole warps",
                format!("{} threads; a multiple of 32", map.threads),
            );
        }
        shape.threads = shape.threads.max(map.threads);
    }
    Ok(shape)
}

/// Prints `programs` as one module with a resident entry, for a GPU on which a CTA may have `most_shared` bytes
/// of shared memory. Programs that print alike share a body.
///
/// # Errors
/// As [`super::emit`]; or the steps need more than one CTA can have together.
pub fn emit(
    programs: &[&TileProgram],
    (arch, most_shared): (&str, u32),
    abi: &Abi,
    idle: Idle,
) -> Result<Resident, EmitError> {
    if !ARCHS.contains(&arch) {
        return Err(EmitError::Arch(arch.into()));
    }
    if !abi.capacity.is_power_of_two() || abi.capacity > 1 << 12 {
        return refuse(
            "ring",
            "capacity",
            format!("{} entries; a power of two up to 4096", abi.capacity),
        );
    }
    let mut shape = shape_of(programs)?;
    let mut known: HashMap<String, u32> = HashMap::new();
    let (mut bodies, mut of_program, mut functions) = (vec![], vec![], String::new());
    let mut held = 0;
    for p in programs {
        let threads = match &p.schedule().mapping {
            Mapping::Gpu(m) => m.threads,
            Mapping::Cpu(_) => 32,
        };
        let some = (threads < shape.threads).then_some(threads);
        let printed = super::print(p, arch, Source::Record { some })?;
        shape.shared_bytes = shape.shared_bytes.max(printed.shared_bytes);
        held = held.max(super::pressure::given(printed.held, 255));
        let key = format!(
            "{threads} {:?} {:?}\n{}",
            printed.params,
            printed.faults,
            essence(&printed.code)
        );
        let next = bodies.len() as u32;
        let at = *known.entry(key).or_insert(next);
        of_program.push(at);
        if at < next {
            continue;
        }
        if bodies.len() >= MAX_BODIES {
            return refuse(
                &printed.name,
                "bodies",
                format!("more than {MAX_BODIES} different ones"),
            );
        }
        functions += &function(next, &printed);
        bodies.push(Body {
            faults: printed.faults,
            params: printed.params,
            threads,
        });
    }
    // One CTA at least has to fit on an SM, and the assembler gives registers by eights.
    let most = (SM_REGISTERS / shape.threads.max(1)).min(255) / 8 * 8;
    shape.registers = (held + OWN_REGISTERS)
        .next_multiple_of(8)
        .clamp(40, most.max(40));
    let threads: Vec<u32> = bodies.iter().map(|b| b.threads).collect();
    let kept = entry::record_bytes(most_shared, shape.shared_bytes);
    let text = module("resident", arch)
        + &functions
        + &copy::body(bodies.len() as u32, shape.threads)
        + &entry::entry(&threads, (&shape, kept), abi, idle);
    Ok(Resident {
        text,
        entry: entry::NAME.into(),
        bodies,
        of_program,
        shape,
        static_shared: entry::static_shared(kept),
    })
}

fn function(n: u32, p: &Printed) -> String {
    format!(
        "// {}\n.func body_{n}(.reg .b64 %record, .reg .b32 %task)\n{{\n{}\tret;\n}}\n\n",
        super::printed::plain(&p.name),
        p.code
    )
}
