//! Several steps in one launch: the tasks of each step but the first are run by the CTAs that end last of those that they
//! need.
//!
//! Of a step's tasks, a task `t` of the `n` of the step behind it needs `t`, `t + n`, `t + 2 n`, ... A CTA that has
//! done one of them counts itself in the word of `t`; the one whose count is the last sets it back to zero, which the
//! same instruction does, and goes on with `t`. What the others wrote it sees: their stores come before their counts
//! (barrier, fence), and its loads behind its own. No CTA waits for another, so that it does not matter how many are on
//! the device at a time. Behind a step of one task the CTA that ran it goes on without a count.

use super::arch::knows_dependents;
use super::printed::{ENTRY, Printed, declared};
use super::source::{Source, of_step};
use super::{ParamSpec, ParamValue, Ptx, print};
use crate::EmitError;
use kernel::{Mapping, TileProgram, work};

/// A module whose kernel is several steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// The module.
    pub text: String,
    /// Name of the kernel; CTAs are one per task of the first step.
    pub entry: String,
    /// Parameters with the number of the step whose they are, 8 bytes each, those of tensors 128.
    pub params: Vec<(usize, ParamSpec)>,
    /// Whether behind them come the numbers of tasks of all steps, each a multiple of the next, and for each step but the
    /// first the address of a 32-bit word for each of its tasks: zeros, which every launch leaves behind again. The CTAs of a
    /// cluster count nothing.
    pub counted: bool,
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

/// Whether a step has one task, whatever sizes it is for.
fn alone(p: &TileProgram) -> bool {
    work::tasks(p.kernel(), p.schedule()).is_one()
}

/// Threads that the first step has not, and a later one may have, wait for the kernels before as well.
const WAITS: &str = "\tgriddepcontrol.wait;\n";

/// Values of its own that the text has beside those of the steps.
const DECLARED: &str = "\
\t.reg .pred %later, %last;
\t.reg .b32 %own, %number, %count, %most;
\t.reg .b64 %wide, %word;
";

/// Goes on with step number `n`, one task of which needs some tasks of the step before: counts the CTA among those, and
/// leaves unless it is the last one. The CTAs of a `cluster` have done a task of both of the first two steps.
fn arrives(n: usize, cluster: bool) -> String {
    let number = match n {
        1 => "%ctaid.x".into(),
        2 if cluster => "%ctaid.x".into(),
        n => task(n - 1),
    };
    let (task, before) = (task(n), n - 1);
    format!(
        "\
\tld.param.s64 %wide, [tasks_{n}];
\tcvt.u32.u64 %count, %wide;
\tmov.u32 %number, {number};
\trem.u32 {task}, %number, %count;
\tmov.u32 %own, %tid.x;
\tsetp.ne.u32 %later, %own, 0;
\tsetp.ne.u32 %last, %own, %own;
\tbar.sync 0;
\t@%later bra $arrived_{n};
\tld.param.s64 %wide, [tasks_{before}];
\tcvt.u32.u64 %most, %wide;
\tdiv.u32 %most, %most, %count;
\tsub.u32 %most, %most, 1;
\tld.param.u64 %word, [arrivals_{n}];
\tcvta.to.global.u64 %word, %word;
\tmul.wide.u32 %wide, {task}, 4;
\tadd.u64 %word, %word, %wide;
\tfence.acq_rel.gpu;
\tatom.relaxed.gpu.global.inc.u32 %number, [%word], %most;
\tfence.acq_rel.gpu;
\tsetp.eq.u32 %last, %number, %most;
$arrived_{n}:
\tbar.red.or.pred %last, 0, %last;
\t@!%last bra $all_over;
"
    )
}

/// Goes on with step number `n`, which has one task as the step before has.
fn follows(n: usize) -> String {
    format!("\tmov.u32 {}, 0;\n\tbar.sync 0;\n", task(n))
}

/// The register with the task of step number `n`.
fn task(n: usize) -> String {
    format!("%{}task", of_step(n))
}

/// The kernel in which tasks of every step are run behind those of the step before it that they need.
///
/// # Errors
/// As [`super::emit`] of one of the steps, or their threads are no whole warps.
pub fn joined(steps: &[&TileProgram], arch: &str) -> Result<Joined, EmitError> {
    let cluster = match steps {
        [first, second, ..] => first.schedule().gives_parts() && second.schedule().adds_parts(),
        _ => false,
    };
    if let (true, &[first, second]) = (cluster, steps) {
        return of_cluster(first, second, arch);
    }
    let all = steps.iter().map(|p| threads(p)).max().unwrap_or(0);
    let mut together = Printed {
        threads: all,
        ..Printed::default()
    };
    together.code += DECLARED;
    let (mut params, mut list) = (vec![], vec![]);
    for (n, &p) in steps.iter().enumerate() {
        if !threads(p).is_multiple_of(32) {
            return Err(EmitError::Rule {
                kernel: p.kernel().name.clone(),
                statement: "a launch of several steps".into(),
                rule: "whole warps",
                why: format!("{} threads; a multiple of 32", threads(p)),
            });
        }
        let some = (threads(p) < all).then_some(threads(p));
        if cluster && threads(p) > threads(steps[0]) {
            return Err(EmitError::Rule {
                kernel: p.kernel().name.clone(),
                statement: "a launch that begins with a cluster".into(),
                rule: "all threads meet",
                why: format!(
                    "{} threads; at most the {} of the cluster",
                    threads(p),
                    threads(steps[0])
                ),
            });
        }
        let last = n + 1 == steps.len();
        let source = Source::Joined { n, last, some };
        // A task of the second is done by the CTAs of its cluster.
        let own = match n {
            0 if cluster => cluster_body((p, steps[1]), arch, source)?,
            1 if cluster => {
                together.name += ", then ";
                together.name += &p.kernel().name;
                continue;
            }
            _ => print(p, arch, source)?,
        };
        let code = match n {
            0 => own.code,
            n => {
                together.name += ", then ";
                together.code += &format!("\t.reg .b32 {};\n", task(n));
                together.code += &match alone(steps[n - 1]) && alone(p) {
                    true => follows(n),
                    false => arrives(n, cluster),
                };
                apart(&own.code, n)
            }
        };
        together.name += &own.name;
        together.code += &guarded(&code, some, n);
        if n == 0 && knows_dependents(arch) {
            together.code += WAITS;
        }
        together.registers = together.registers.max(own.registers);
        together.shared_bytes = together.shared_bytes.max(own.shared_bytes);
        together.held = together.held.max(own.held);
        together.cluster = together.cluster.max(own.cluster);
        list.extend(own.params.iter().map(|p| {
            declared(&ParamSpec {
                name: format!("{}{}", of_step(n), p.name),
                value: p.value.clone(),
            })
        }));
        let operands = p.kernel().operands.len();
        params.extend(own.params.into_iter().map(|p| match n {
            0 if cluster => of_one(p, operands),
            n => (n, p),
        }));
    }
    together.code += "$all_over:\n";
    let tasks = (0..steps.len()).map(|n| format!("\t.param .s64 tasks_{n}"));
    let words = (1..steps.len()).map(|n| format!("\t.param .u64 arrivals_{n}"));
    Ok(Joined {
        text: together.module(arch, list.into_iter().chain(tasks).chain(words)),
        entry: ENTRY.into(),
        params,
        counted: true,
        threads: all,
        shared_bytes: together.shared_bytes,
        early: knows_dependents(arch),
    })
}

/// A parameter of two steps in one program, the first of which has so many operands, as one of that step.
fn of_one(mut p: ParamSpec, operands: usize) -> (usize, ParamSpec) {
    match &mut p.value {
        ParamValue::Operand(o) if usize::from(*o) >= operands => {
            *o -= operands as u16;
            (1, p)
        }
        _ => (0, p),
    }
}

/// The same of a sum whose parts the CTAs of a cluster make and add, alone.
fn of_cluster(first: &TileProgram, second: &TileProgram, arch: &str) -> Result<Joined, EmitError> {
    let ptx = in_cluster(first, second, arch)?;
    let operands = first.kernel().operands.len();
    let params = ptx.params.into_iter();
    Ok(Joined {
        text: ptx.text,
        entry: ptx.entry,
        params: params.map(|p| of_one(p, operands)).collect(),
        counted: false,
        threads: ptx.threads,
        shared_bytes: ptx.shared_bytes,
        early: ptx.early,
    })
}

/// The kernel whose CTAs make parts of sums, a task of `first` each, and add those of their cluster, a task of `second`
/// each. Operands of the second are numbered behind those of the first; what both have of the parts is not touched.
///
/// # Errors
/// As [`super::emit`] of one of the two, or they do not agree on the parts.
pub fn in_cluster(first: &TileProgram, second: &TileProgram, arch: &str) -> Result<Ptx, EmitError> {
    let printed = cluster_body((first, second), arch, Source::Entry)?;
    Ok(printed.entry(arch))
}

fn cluster_body(
    (first, second): (&TileProgram, &TileProgram),
    arch: &str,
    source: Source,
) -> Result<Printed, EmitError> {
    for p in [first, second] {
        p.fits(&super::target(arch))?;
    }
    let own = (source != Source::Entry).then(|| first.without_tensors());
    let first = own.as_ref().unwrap_or(first);
    let program = crate::simt::in_cluster(first, second, super::caps(arch))?;
    let printed = super::threads::print(&program, arch, &source)?;
    super::roomy(first.kernel(), &printed, arch)?;
    Ok(printed)
}

/// `code` of step number `n` for the first `some` threads of the CTA, the others being behind it.
fn guarded(code: &str, some: Option<u32>, n: usize) -> String {
    match some {
        None => code.into(),
        Some(some) => format!(
            "\tmov.u32 %own, %tid.x;\n\tsetp.ge.u32 %later, %own, {some};\n\t@%later bra $beyond_step_{n};\n{code}$beyond_step_{n}:\n"
        ),
    }
}

/// The text of step number `n`, not the first, with names that the others' have not.
fn apart(code: &str, n: usize) -> String {
    let own = of_step(n);
    let named = code
        .replace('%', &format!("%{own}"))
        .replace('$', &format!("${own}"));
    named.replace(&format!("%{own}tid."), "%tid.")
}
