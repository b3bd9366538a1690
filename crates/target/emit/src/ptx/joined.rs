//! Two steps in one launch: the second one's tasks are run by the CTAs that end last of those that they need.
//!
//! Of the first step's tasks, a task `t` of the `n` of the second needs `t`, `t + n`, `t + 2 n`, ... A CTA that has
//! done one of them counts itself in the word of `t`; the one whose count is the last sets it back to zero, which the
//! same instruction does, and goes on with `t`. What the others wrote it sees: their stores come before their counts
//! (barrier, fence), and its loads behind its own. No CTA waits for another, so that it does not matter how many are on
//! the device at a time.

use super::arch::knows_dependents;
use super::printed::{ENTRY, Printed, declared};
use super::source::{SECOND, Source};
use super::{ParamSpec, print};
use crate::EmitError;
use kernel::{Mapping, TileProgram};

/// A module whose kernel is two steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// The module.
    pub text: String,
    /// Name of the kernel; CTAs are one per task of the first step.
    pub entry: String,
    /// Parameters of the first step, then of the second, 8 bytes each. Behind them come the numbers of tasks of both,
    /// a multiple of the second in the first, and the address of a 32-bit word for each task of the second: zeros,
    /// which every launch leaves behind again.
    pub params: [Vec<ParamSpec>; 2],
    /// Threads per CTA.
    pub threads: u32,
    /// Dynamic shared memory per CTA, in bytes.
    pub shared_bytes: u32,
    /// See [`super::Ptx::early`].
    pub early: bool,
}

/// Threads of a CTA of `p`.
fn threads(p: &TileProgram) -> u32 {
    match &p.schedule().mapping {
        Mapping::Gpu(m) => m.threads,
        Mapping::Cpu(_) => 0,
    }
}

/// Threads that the first step has not, and the second one may have, wait for the kernels before as well.
const WAITS: &str = "\tgriddepcontrol.wait;\n";

/// Values of its own that the text has beside those of both steps.
const DECLARED: &str = "\
\t.reg .pred %later, %last;
\t.reg .b32 %own, %number, %count, %most, %second_task;
\t.reg .b64 %wide, %word;
";

/// Counts the CTA among those that the second step's task needs, and leaves unless it is the last one.
const ARRIVES: &str = "\
\tld.param.s64 %wide, [second_tasks];
\tcvt.u32.u64 %count, %wide;
\tmov.u32 %number, %ctaid.x;
\trem.u32 %second_task, %number, %count;
\tmov.u32 %own, %tid.x;
\tsetp.ne.u32 %later, %own, 0;
\tsetp.ne.u32 %last, %own, %own;
\tbar.sync 0;
\t@%later bra $arrived;
\tld.param.s64 %wide, [first_tasks];
\tcvt.u32.u64 %most, %wide;
\tdiv.u32 %most, %most, %count;
\tsub.u32 %most, %most, 1;
\tld.param.u64 %word, [arrivals];
\tcvta.to.global.u64 %word, %word;
\tmul.wide.u32 %wide, %second_task, 4;
\tadd.u64 %word, %word, %wide;
\tfence.acq_rel.gpu;
\tatom.relaxed.gpu.global.inc.u32 %number, [%word], %most;
\tfence.acq_rel.gpu;
\tsetp.eq.u32 %last, %number, %most;
$arrived:
\tbar.red.or.pred %last, 0, %last;
\t@!%last bra $all_over;
";

/// The kernel in which tasks of `second` are run behind those of `first` that they need.
///
/// # Errors
/// As [`super::emit`] of one of the two, or their threads are no whole warps.
pub fn joined(first: &TileProgram, second: &TileProgram, arch: &str) -> Result<Joined, EmitError> {
    let all = threads(first).max(threads(second));
    for p in [first, second] {
        if !threads(p).is_multiple_of(32) {
            return Err(EmitError::Rule {
                kernel: p.kernel().name.clone(),
                statement: "a launch of two steps".into(),
                rule: "whole warps",
                why: format!("{} threads; a multiple of 32", threads(p)),
            });
        }
    }
    let some = |p: &TileProgram| (threads(p) < all).then_some(threads(p));
    let body = |p: &TileProgram, second: bool| {
        let some = some(p);
        print(p, arch, Source::Joined { second, some })
    };
    let (one, two) = (body(first, false)?, body(second, true)?);
    let code = [
        DECLARED,
        &guarded(&one.code, some(first), "$first_over"),
        match knows_dependents(arch) {
            true => WAITS,
            false => "",
        },
        ARRIVES,
        &guarded(&apart(&two.code), some(second), "$second_over"),
        "$all_over:\n",
    ];
    let together = Printed {
        name: format!("{}, then {}", one.name, two.name),
        code: code.concat(),
        params: vec![],
        threads: all,
        registers: one.registers.max(two.registers),
        shared_bytes: one.shared_bytes.max(two.shared_bytes),
        walkers: 0,
        held: one.held.max(two.held),
        faults: vec![],
    };
    let own = one.params.iter().map(declared);
    let of_second = two.params.iter().map(|p| {
        let name = format!("{SECOND}{}", p.name);
        declared(&ParamSpec {
            name,
            value: p.value.clone(),
        })
    });
    let more = ["s64 first_tasks", "s64 second_tasks", "u64 arrivals"];
    let more = more.map(|p| format!("\t.param .{p}"));
    Ok(Joined {
        text: together.module(arch, own.chain(of_second).chain(more)),
        entry: ENTRY.into(),
        params: [one.params, two.params],
        threads: all,
        shared_bytes: together.shared_bytes,
        early: knows_dependents(arch),
    })
}

/// `code` for the first `some` threads of the CTA, the others being at `label` behind it.
fn guarded(code: &str, some: Option<u32>, label: &str) -> String {
    match some {
        None => code.into(),
        Some(n) => format!(
            "\tmov.u32 %own, %tid.x;\n\tsetp.ge.u32 %later, %own, {n};\n\t@%later bra {label};\n{code}{label}:\n"
        ),
    }
}

/// The text of the second step with names that the first one's has not.
fn apart(code: &str) -> String {
    let named = code.replace('%', "%second_").replace('$', "$second_");
    named.replace("%second_tid.", "%tid.")
}
