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

/// Names of values of its own that the text has beside those of both steps.
const DECLARED: &str = "\t.reg .pred %later, %last;\n\t.reg .b32 %own, %number, %count, %most, %needs, %second_task;\n\t.reg .b64 %wide, %word;\n";

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
        &arrives(),
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

/// Counts the CTA among those that the second step's task needs, and leaves unless it is the last one.
fn arrives() -> String {
    let param = |to: &str, name: &str| {
        format!("\tld.param.s64 %wide, [{name}];\n\tcvt.u32.u64 {to}, %wide;\n")
    };
    [
        &param("%count", "second_tasks"),
        "\tmov.u32 %number, %ctaid.x;\n\trem.u32 %second_task, %number, %count;\n",
        "\tmov.u32 %own, %tid.x;\n\tsetp.ne.u32 %later, %own, 0;\n\tsetp.ne.u32 %last, %own, %own;\n",
        "\tbar.sync 0;\n\t@%later bra $arrived;\n",
        &param("%needs", "first_tasks"),
        "\tdiv.u32 %needs, %needs, %count;\n\tsub.u32 %most, %needs, 1;\n",
        "\tld.param.u64 %word, [arrivals];\n\tcvta.to.global.u64 %word, %word;\n",
        "\tmul.wide.u32 %wide, %second_task, 4;\n\tadd.u64 %word, %word, %wide;\n",
        "\tfence.acq_rel.gpu;\n\tatom.relaxed.gpu.global.inc.u32 %number, [%word], %most;\n\tfence.acq_rel.gpu;\n",
        "\tsetp.eq.u32 %last, %number, %most;\n",
        "$arrived:\n\tbar.red.or.pred %last, 0, %last;\n\t@!%last bra $all_over;\n",
    ]
    .concat()
}
