//! Rules of schedules.
use super::blame::{Blame, unique};
use crate::{
    AxisId, GpuMapping, Kernel, KernelError, Mapping, OperandId, Place, Role, Schedule, Stmt,
};

const MAX_STAGES: u32 = 16;
const MAX_REGISTER_TILE: u32 = 4096;
const MAX_THREADS: u32 = 1024;
const WARP: u32 = 32;
/// CTAs that a launch begins with at most, where these walk tasks.
const MAX_WALKERS: u32 = 1 << 16;
/// Warps of a warpgroup.
const WARPGROUP: u32 = 4;

type Checked = Result<(), KernelError>;

pub(super) fn check(k: &Kernel, s: &Schedule) -> Checked {
    let b = Blame::of(k);
    tiling(k, s, &b)?;
    grid(k, s, &b)?;
    ordered(k, s, &b)?;
    places(k, s, &b)?;
    mapping(k, s, &b)
}

fn name(k: &Kernel, a: AxisId) -> &str {
    k.axes.get(a as usize).map_or("?", |a| &a.name)
}

fn tiling(k: &Kernel, s: &Schedule, b: &Blame) -> Checked {
    let cut: Vec<AxisId> = s.grid.iter().chain(&s.loops).map(|t| t.axis).collect();
    b.need(cut.len() <= k.axes.len() && unique(&cut), "tiling", || {
        "an axis is cut twice".into()
    })?;
    for t in s.grid.iter().chain(&s.loops) {
        b.need((t.axis as usize) < k.axes.len(), "ids", || {
            "an axis that is not there is cut".into()
        })?;
        b.need(t.tile >= 1, "tiling", || {
            format!(
                "axis '{}' is cut into pieces of {}",
                name(k, t.axis),
                t.tile
            )
        })?;
    }
    b.need(s.chunk >= 1 && s.raster >= 1, "tiling", || {
        format!(
            "chunk {} and raster {} must be at least 1",
            s.chunk, s.raster
        )
    })
}

fn grid(k: &Kernel, s: &Schedule, b: &Blame) -> Checked {
    for t in &s.grid {
        for stmt in &k.body {
            b.need(!stmt.over().contains(&t.axis), "grid", || {
                format!(
                    "axis '{}' is reduced and cannot be split over tasks",
                    name(k, t.axis)
                )
            })?;
            if let Stmt::Store { src, .. } = stmt {
                let tile = &k.tiles[*src as usize];
                b.need(tile.axes.contains(&t.axis), "grid", || {
                    format!(
                        "tasks along '{}' would write the same elements of tile '{}'",
                        name(k, t.axis),
                        tile.name
                    )
                })?;
            }
        }
    }
    Ok(())
}

/// Ordered axes come first among the loops, in single positions; relabelled axes are whole.
fn ordered(k: &Kernel, s: &Schedule, b: &Blame) -> Checked {
    let axes = k.ordered();
    for &a in &axes {
        let at = s.loops.iter().position(|l| l.axis == a);
        b.need(at.is_some_and(|at| at < axes.len()), "ordered", || {
            format!(
                "axis '{}' is carried along and must be among the {} outermost loops",
                name(k, a),
                axes.len()
            )
        })?;
        b.need(s.tile(a) == Some(1), "ordered", || {
            format!(
                "axis '{}' is carried along and must be walked in single positions",
                name(k, a)
            )
        })?;
    }
    for stmt in &k.body {
        let Stmt::Relabel { labels, .. } = stmt else {
            continue;
        };
        for a in labels.iter().flat_map(|l| [l.from, l.to]) {
            b.need(s.tile(a).is_none(), "ordered", || {
                format!("axis '{}' gets another label and is cut", name(k, a))
            })?;
        }
    }
    Ok(())
}

fn places(k: &Kernel, s: &Schedule, b: &Blame) -> Checked {
    b.need(s.places.len() == k.tiles.len(), "places", || {
        format!("{} places for {} tiles", s.places.len(), k.tiles.len())
    })?;
    let n = k.tiles.len();
    let (mut loads, mut writes, mut stores) = (vec![0usize; n], vec![0usize; n], vec![0usize; n]);
    for stmt in &k.body {
        match stmt {
            Stmt::Load { dst, .. } => loads[*dst as usize] += 1,
            Stmt::Store { src, .. } => stores[*src as usize] += 1,
            _ => {}
        }
        stmt.writes().iter().for_each(|&t| writes[t as usize] += 1);
    }
    for (t, p) in s.places.iter().enumerate() {
        let tile = &k.tiles[t].name;
        match p {
            Place::Register => {}
            Place::Recompute => {
                let gpu = matches!(s.mapping, Mapping::Gpu(_));
                b.need(gpu && crate::recomputable(k, t as u16), "places", || {
                    format!("tile '{tile}' cannot be computed where it is used: on a GPU, one map, load or relabelling makes such a tile, of tiles that are final by then")
                })?;
            }
            Place::InPlace => {
                let loaded = loads[t] == 1 && writes[t] == 1;
                let stored = loads[t] == 0 && stores[t] == 1;
                b.need(loaded || stored, "places", || {
                    format!(
                        "tile '{tile}' is in place but neither loaded only once nor stored once"
                    )
                })?;
            }
            Place::Cluster => {
                let gpu = matches!(s.mapping, Mapping::Gpu(_));
                b.need(gpu && loads[t] == 1 && writes[t] == 1, "places", || {
                    format!("tile '{tile}' is in the cluster but not loaded once on a GPU")
                })?;
            }
            Place::Image { stages } => {
                b.need((2..=MAX_STAGES).contains(stages), "places", || {
                    format!("tile '{tile}' has {stages} stages as it lies; 2 to {MAX_STAGES}")
                })?;
            }
            Place::Tensor { stages, .. } => {
                b.need((2..=MAX_STAGES).contains(stages), "places", || {
                    format!("tile '{tile}' has {stages} stages by tensor copies; 2 to {MAX_STAGES}")
                })?;
            }
            Place::Shared { swizzle, stages } => {
                b.need((1..=MAX_STAGES).contains(stages), "places", || {
                    format!("tile '{tile}' has {stages} stages; 1 to {MAX_STAGES}")
                })?;
                let sum = [swizzle.bits, swizzle.base, swizzle.shift]
                    .into_iter()
                    .try_fold(0u32, u32::checked_add);
                b.need(sum.is_some_and(|n| n < 32), "places", || {
                    format!("the swizzle of tile '{tile}' leaves 32 bits")
                })?;
            }
        }
    }
    Ok(())
}

/// How wide memory is touched, how often loops are written out, and the registers for it.
fn accesses(g: &GpuMapping, b: &Blame) -> Checked {
    b.need(
        matches!(g.load_bytes, 1 | 2 | 4 | 8 | 16),
        "mapping",
        || format!("loads of {} bytes", g.load_bytes),
    )?;
    b.need(
        g.store_bytes == 0 || g.store_bytes == 16 && g.fragment.is_some(),
        "mapping",
        || {
            format!(
                "stores of {} bytes; 16 for results of matrix instructions",
                g.store_bytes
            )
        },
    )?;
    b.need(matches!(g.unroll, 1 | 2 | 4 | 8), "mapping", || {
        format!("loops written out {} times", g.unroll)
    })?;
    b.need((1..=255).contains(&g.registers), "mapping", || {
        format!("{} registers per thread", g.registers)
    })
}

/// What is done before the kernels before are over, and what before this one is.
fn early(k: &Kernel, g: &GpuMapping, b: &Blame) -> Checked {
    let read = |&o: &OperandId| {
        k.operands
            .get(o as usize)
            .is_some_and(|o| o.role == Role::Read)
    };
    b.need(
        g.constants.is_sorted_by(|a, b| a < b) && g.constants.iter().all(read),
        "mapping",
        || "its constants are not operands that it reads, each once and in their order".into(),
    )?;
    b.need(!g.triggers || g.walkers == 0, "mapping", || {
        "CTAs that walk say that the next kernel may be launched while they have tasks left".into()
    })
}

fn mapping(k: &Kernel, s: &Schedule, b: &Blame) -> Checked {
    let fits = |list: &[AxisId]| unique(list) && list.iter().all(|&a| (a as usize) < k.axes.len());
    let shape = |n: u32| (1..=MAX_REGISTER_TILE).contains(&n);
    match &s.mapping {
        Mapping::Cpu(c) => {
            let lanes: Vec<AxisId> = c.lanes.into_iter().collect();
            b.need(
                fits(&c.rows) && fits(&lanes) && !lanes.iter().any(|a| c.rows.contains(a)),
                "mapping",
                || "rows and lanes are not different axes of the kernel".into(),
            )?;
            b.need(
                c.micro.is_none_or(|m| shape(m.mr) && shape(m.nr)),
                "mapping",
                || "the register tile is empty or too large".into(),
            )
        }
        Mapping::Gpu(g) => {
            let both = [g.rows.clone(), g.columns.clone()].concat();
            b.need(fits(&both), "mapping", || {
                "rows and columns are not different axes of the kernel".into()
            })?;
            b.need((1..=MAX_THREADS).contains(&g.threads), "mapping", || {
                format!("{} threads in a CTA; 1 to {MAX_THREADS}", g.threads)
            })?;
            let warps = g.warps[0]
                .checked_mul(g.warps[1])
                .and_then(|w| w.checked_mul(WARP));
            b.need(
                warps.is_some_and(|w| {
                    let all = w.checked_mul(g.deep()) == Some(g.computing());
                    w >= 1 && (g.fragment.is_none() || all && g.deep().is_power_of_two())
                }),
                "mapping",
                || {
                    format!(
                        "{}x{} warps are not the CTA's {} threads",
                        g.warps[0],
                        g.warps[1],
                        g.computing()
                    )
                },
            )?;
            let group = g.fragment.is_some_and(|f| f.warps() > 1);
            b.need(
                g.copiers == 0 || group && g.copiers.is_multiple_of(WARPGROUP) && g.computing() > 0,
                "mapping",
                || {
                    format!(
                        "{} warps copy; as many times {WARPGROUP} do beside products of warpgroups",
                        g.copiers
                    )
                },
            )?;
            b.need(
                g.walkers == 0 || g.copiers > 0 && g.walkers <= MAX_WALKERS,
                "mapping",
                || {
                    format!(
                        "{} CTAs walk tasks; up to {MAX_WALKERS} do where some of their warps only copy",
                        g.walkers
                    )
                },
            )?;
            b.need(g.walkers == 0 || k.has_alike_tasks(&s.loops), "mapping", || {
                "CTAs walk tasks that have as many pieces each, and a mask hides some of a task's; let a CTA take one".into()
            })?;
            let products = k.body.iter();
            let products = products.filter(|s| matches!(s, Stmt::Contract { .. }));
            b.need(g.deep() == 1 || products.count() == 1, "mapping", || {
                "warps lie along the depth of a kernel that is not one product".into()
            })?;
            accesses(g, b)?;
            early(k, g, b)?;
            b.need(
                g.fragment
                    .is_none_or(|f| shape(f.m) && shape(f.n) && shape(f.k)),
                "mapping",
                || "the fragment is empty or too large".into(),
            )?;
            if let Some(c) = &g.code {
                super::code::code(k, c)?;
            }
            super::gpu::check(k, s, g, b)
        }
    }
}
