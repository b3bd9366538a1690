//! PTX for NVIDIA GPUs: text that needs only the driver.
//!
//! One CTA runs one task: `%ctaid.x` is the task's number in raster order. Every tile program with
//! [`kernel::Mapping::Gpu`] whose statements are of the kinds below is printed, whatever its family:
//! loads staged in shared memory (`cp.async`, zero fill outside the bounds, a ring of stages in
//! loops), contractions of f16 or bf16 into f32 (`ldmatrix`, `mma.sync.m16n8k16`), maps, folds over the
//! columns of a tile, and bounded stores. GEMM, convolution as an implicit GEMM and online-softmax
//! attention are of this form.
//!
//! A schedule without a tensor-core instruction goes another way: [`crate::simt`] makes threads of it,
//! and this module prints those, for every family.
//!
//! Rules of storage: a tile in shared memory has the order of the tile's own axes, the last one
//! innermost, so a schedule that loads `load_bytes` at a time puts the operand's unit-stride axis
//! last. Swizzles count f16 elements of one stage. Coordinates and extents are below 2^31; addresses
//! are 64 bits.
mod address;
mod arch;
mod count;
mod emitter;
mod fold;
mod fragments;
mod group;
mod math;
mod mma;
mod params;
mod pressure;
mod printed;
pub mod resident;
mod source;
mod stage;
mod target;
mod text;
mod threads;
mod user_code;
mod value;
mod walk;

use crate::EmitError;
pub use arch::ARCHS;
use arch::{CAPS, limits};
pub use count::warps;
use fragments::fragments;
use kernel::{Mapping, TileProgram};
use layout::DType;
pub use params::{ParamSpec, ParamValue};
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
    let (taken, most) = (printed.shared_bytes, limits(arch).shared_bytes);
    match u64::from(taken) <= most {
        true => Ok(printed),
        false => Err(EmitError::Rule {
            kernel: program.kernel().name.clone(),
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
    if map.fragment.is_none() {
        if map.threads == 0 || map.threads > 1024 {
            return rule("threads", format!("{} threads; 1024 at most", map.threads));
        }
        return threads::print(&crate::simt::lower(program, CAPS)?, arch, &source);
    }
    if map.threads == 0
        || map.threads > 1024
        || map.warps[0]
            .checked_mul(map.warps[1])
            .and_then(|w| w.checked_mul(32))
            != Some(map.threads)
    {
        return rule(
            "threads",
            format!(
                "{} threads for {} x {} warps of 32; 1024 at most",
                map.threads, map.warps[0], map.warps[1]
            ),
        );
    }
    if arch == "sm_75" {
        return rule(
            "fragment",
            "sm_75 has no cp.async; a schedule for it has no tensor-core instruction".into(),
        );
    }
    match map.fragment {
        Some(f)
            if (f.m, f.n, f.k, f.acc) == (16, 8, 16, DType::F32)
                && matches!(f.input, DType::F16 | DType::BF16) => {}
        _ => {
            return rule(
                "fragment",
                "mma.m16n8k16 of f16 or bf16 into f32 is printed".into(),
            );
        }
    }
    if schedule.chunk != 1 {
        return rule(
            "chunk",
            format!("a CTA takes one task, not {}", schedule.chunk),
        );
    }
    if !(24..=255).contains(&map.registers) {
        return rule(
            "registers",
            format!(
                "{} registers per thread; 24 to 255 can be asked for",
                map.registers
            ),
        );
    }
    let f = fragments(program, map, source)?;
    Ok(Printed {
        name: kernel.name.clone(),
        held: pressure::estimate(&f.code, map.registers),
        code: f.code,
        params: f.params,
        threads: map.threads,
        registers: map.registers,
        shared_bytes: f.shared_bytes,
        faults: vec![],
    })
}
