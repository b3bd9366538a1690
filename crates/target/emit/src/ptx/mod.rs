//! PTX for NVIDIA GPUs: text that needs only the driver.
//!
//! One CTA runs one task: `%ctaid.x` is the task's number in raster order. What its threads do is said by
//! [`crate::simt`], for every family and with matrix instructions or without; this module prints it, counts its
//! instructions and estimates its registers. Matrix instructions are `mma.sync.m16n8k16` of f16 or bf16 into f32,
//! whose fragments `ldmatrix` loads, and `wgmma` for sm_90a, which reads shared memory itself; copies that go on beside what follows are `cp.async`, from sm_80 on.
//!
//! Rules of storage: a tile in shared memory has the order of the tile's own axes, the last one innermost; one that
//! a matrix instruction reads has the axes of its rows or columns, and those that are summed, together. Swizzles
//! count elements of one stage. Coordinates, extents and elements of an operand are below 2^31.
mod arch;
mod count;
mod joined;
mod lines;
mod params;
mod pressure;
mod printed;
#[cfg(test)]
mod programs;
pub mod resident;
mod source;
mod target;
mod threads;
mod user_code;

use crate::EmitError;
pub use arch::{ARCHS, arch_of, arch_under};
use arch::{caps, limits};
pub use count::warps;
pub(crate) use count::{Code, counted};
pub use joined::{Joined, in_cluster, joined};
use kernel::{Kernel, Mapping, TileProgram};
pub use params::{ParamSpec, ParamValue, TensorLayout, TensorParam};
use printed::Printed;
pub use printed::Ptx;
use source::Source;
pub use target::target;
pub use user_code::{Shape, check};

/// Prints `program` for `arch`. Nothing is chosen here: what the schedule says is printed, or the
/// error names the statement and the rule.
///
/// Where the schedule holds PTX of the user's that is what is given, with its parameters checked.
pub fn emit(program: &TileProgram, arch: &str) -> Result<Ptx, EmitError> {
    if let Mapping::Gpu(map) = &program.schedule().mapping
        && let Some(code) = &map.code
    {
        program.fits(&target(arch))?;
        return user_code::ptx(program.kernel(), code);
    }
    print(program, arch, Source::Entry).map(|p| p.entry(arch))
}

/// The body of `program`: what one CTA does for one task.
fn print(program: &TileProgram, arch: &str, source: Source) -> Result<Printed, EmitError> {
    if !ARCHS.contains(&arch) {
        return Err(EmitError::Arch(arch.into()));
    }
    program.fits(&target(arch))?;
    let printed = body(program, arch, source)?;
    roomy(program.kernel(), &printed, arch)?;
    Ok(printed)
}

/// Whether a CTA has the shared memory that a body takes.
fn roomy(kernel: &Kernel, printed: &Printed, arch: &str) -> Result<(), EmitError> {
    let (taken, most) = (printed.shared_bytes, limits(arch).shared_bytes);
    match u64::from(taken) <= most {
        true => Ok(()),
        false => Err(EmitError::Rule {
            kernel: kernel.name.clone(),
            statement: "the mapping".into(),
            rule: "limits",
            why: format!(
                "tiles and what threads exchange take {taken} bytes of shared memory; a CTA of {arch} has {most}"
            ),
        }),
    }
}

fn body(program: &TileProgram, arch: &str, source: Source) -> Result<Printed, EmitError> {
    let (kernel, schedule) = (program.kernel(), program.schedule());
    let rule = |rule: &'static str, why: String| {
        Err(EmitError::Rule {
            kernel: kernel.name.clone(),
            statement: "the mapping".into(),
            rule,
            why,
        })
    };
    let Mapping::Gpu(map) = &schedule.mapping else {
        return rule(
            "GPU mapping",
            "the schedule is for a CPU; bind the program to a PTX target".into(),
        );
    };
    if map.threads == 0 || map.threads > 1024 {
        return rule("threads", format!("{} threads; 1024 at most", map.threads));
    }
    if map.fragment.is_some() && arch == "sm_75" {
        return rule(
            "fragment",
            "sm_75 has no cp.async; a schedule for it has no tensor-core instruction".into(),
        );
    }
    // A record and a launch of several steps have no place for what describes a tensor.
    let program = &match source {
        Source::Entry => program.alone(),
        _ => program.by_threads(),
    };
    threads::print(&crate::simt::lower(program, caps(arch))?, arch, &source)
}
