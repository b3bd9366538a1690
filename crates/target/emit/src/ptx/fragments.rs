//! The body of a program with matrix instructions.

use super::ParamSpec;
use super::emitter::{Cache, Emitter, Ids};
use super::group::Group;
use super::params::Params;
use super::source::Source;
use super::text::{Kind, Text};
use crate::EmitError;
use kernel::{GpuMapping, TileProgram};
use std::collections::BTreeMap;

/// The body of a program with matrix instructions.
pub(super) struct Fragments {
    pub(super) code: String,
    pub(super) params: Vec<ParamSpec>,
    /// Its loops' first labels and passes.
    pub(super) loops: Vec<(String, layout::Dim)>,
    pub(super) shared_bytes: u32,
}

pub(super) fn fragments(
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
        cache: Cache::default(),
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
