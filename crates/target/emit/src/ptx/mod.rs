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
mod count;
mod fold;
mod group;
mod math;
mod mma;
mod params;
mod pressure;
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
pub use count::warps;
use group::Group;
use kernel::{Code, GpuMapping, Mapping, TileProgram};
use layout::DType;
use params::Params;
pub use params::{ParamSpec, ParamValue};
use source::{Printed, Source};
use std::collections::BTreeMap;
use std::sync::Arc;
pub use target::target;
use text::{Kind, Text};
pub use user_code::{Shape, check};
use walk::{Emitter, Ids};

/// Architectures that are printed for.
pub const ARCHS: [&str; 3] = ["sm_75", "sm_80", "sm_90"];

/// What threads can do beyond the common ground: 32 of them exchange values directly.
const CAPS: crate::simt::Caps = crate::simt::Caps { shuffle: 32 };

/// A module with one entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Ptx {
    /// The module.
    pub text: String,
    /// Name of the entry.
    pub entry: String,
    /// Parameters in order, 8 bytes each.
    pub params: Vec<ParamSpec>,
    /// Threads per CTA; CTAs are one per task.
    pub threads: u32,
    /// Dynamic shared memory per CTA, in bytes.
    pub shared_bytes: u32,
    /// Registers per thread that an assembler is expected to take, read off the text.
    pub registers_estimate: u32,
    /// Reasons of faults, whose numbers go to [`ParamValue::Fault`].
    pub faults: Vec<String>,
    /// The user's code that this is, which says how it is launched in place of tasks, `threads` and
    /// `shared_bytes`.
    pub own: Option<Arc<Code>>,
}

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

/// The name in [`ARCHS`] of what a GPU of compute capability `cc` runs.
fn arch_of(cc: u32) -> &'static str {
    match cc {
        90.. => ARCHS[2],
        80.. => ARCHS[1],
        _ => ARCHS[0],
    }
}

/// The body of `program`: what one CTA does for one task.
fn print(program: &TileProgram, arch: &str, source: Source) -> Result<Printed, EmitError> {
    if !ARCHS.contains(&arch) {
        return Err(EmitError::Arch(arch.into()));
    }
    program.fits(&target(arch))?;
    let printed = body(program, arch, source)?;
    let (taken, most) = (printed.shared_bytes, target::limits(arch).shared_bytes);
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

/// The body of a program with matrix instructions.
struct Fragments {
    code: String,
    params: Vec<ParamSpec>,
    /// Its loops' first labels and passes.
    loops: Vec<(String, layout::Dim)>,
    shared_bytes: u32,
}

fn fragments(
    program: &TileProgram,
    map: &GpuMapping,
    source: Source,
) -> Result<Fragments, EmitError> {
    let (kernel, schedule) = (program.kernel(), program.schedule());
    let mut t = Text::default();
    t.source = source;
    let tid = t.r("mov.u32", format_args!("%tid.x"));
    let lane = t.r("and.b32", format_args!("{tid}, 31"));
    let warp = t.r("shr.u32", format_args!("{tid}, 5"));
    let warp_m = t.r("div.u32", format_args!("{warp}, {}", map.warps[1]));
    let warp_n = t.r("rem.u32", format_args!("{warp}, {}", map.warps[1]));
    let quad = t.r("shr.u32", format_args!("{lane}, 2"));
    let pair = t.r("and.b32", format_args!("{lane}, 3"));
    let pair = t.r("shl.b32", format_args!("{pair}, 1"));
    let shared = t.def(Kind::R, |d| format!("mov.u32 {d}, shared_bytes"));
    let mut e = Emitter {
        kernel,
        schedule,
        map,
        t,
        params: Params::default(),
        ids: Ids {
            tid,
            lane,
            warp: [warp_m, warp_n],
            quad,
            pair,
        },
        base: BTreeMap::new(),
        rows: Group { axes: vec![] },
        tiles: BTreeMap::new(),
        staged: BTreeMap::new(),
        cache: address::Cache::default(),
        shared,
        shared_bytes: 0,
        read_stage: None,
        unwaited: false,
        at: "the mapping".into(),
    };
    for cut in schedule.grid.iter().chain(&schedule.loops) {
        e.tile_size(cut.axis)?;
    }
    let narrow = |d: &layout::Dim| d.known().is_none_or(|v| i32::try_from(v).is_ok());
    let bounds = kernel.operands.iter().flat_map(|o| &o.access.bounds);
    let sizes = bounds.flat_map(|b| b.terms.iter().map(|t| &t.1).chain([&b.base, &b.extent]));
    if !kernel
        .axes
        .iter()
        .map(|a| &a.extent)
        .chain(sizes)
        .all(narrow)
    {
        return Err(EmitError::Rule {
            kernel: kernel.name.clone(),
            statement: "the mapping".into(),
            rule: "coordinates",
            why: "an extent or bound is 2^31 or more; coordinates have 32 bits".into(),
        });
    }
    e.rows = e.group(&map.rows)?;
    e.grid()?;
    e.nodes(program.body())?;
    let (code, loops) = e.t.finish();
    Ok(Fragments {
        code,
        loops,
        params: e.params.specs,
        shared_bytes: e.shared_bytes,
    })
}
