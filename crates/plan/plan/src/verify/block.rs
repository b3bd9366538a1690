//! Rules of a block's symbols, buffers, ports and states.
use super::access::product;
use super::{Blame, MAX_BYTES, MAX_CONSTRAINTS, MAX_LIST, MAX_STEPS, MAX_SYMBOLS};
use crate::{Block, BufferKind, Plan, PlanError, Port, Step, StepWork, Wait};
use foldhash::HashSet;
use layout::{Atom, DType, Dim, DimBox, DimMap, Sym};
use std::collections::BTreeSet;

type Checked = Result<(), PlanError>;

/// The symbols of a block.
type Own<'k> = HashSet<&'k Sym>;

const MAX_ALIGN: u32 = 1 << 21;

pub(super) fn sizes(k: &Block, b: &Blame) -> Checked {
    let lists = [
        ("steps", k.steps.len(), MAX_STEPS),
        ("init steps", k.init.len(), MAX_STEPS),
        ("buffers", k.buffers.len(), MAX_LIST),
        ("inputs", k.inputs.len(), MAX_LIST),
        ("outputs", k.outputs.len(), MAX_LIST),
        ("states", k.states.len(), MAX_LIST),
        ("symbols", k.symbols.len(), MAX_SYMBOLS),
        ("constraints", k.constraints.len(), MAX_CONSTRAINTS),
        (
            "waits of one step",
            k.steps
                .iter()
                .chain(&k.init)
                .map(|s| s.waits.len())
                .max()
                .unwrap_or(0),
            k.steps.len().max(k.init.len()),
        ),
    ];
    for (what, n, most) in lists {
        b.need(n <= most, "size", || format!("{n} {what}; at most {most}"))?;
    }
    Ok(())
}

pub(super) fn check(plan: &Plan, k: &Block, b: &Blame) -> Checked {
    let own = symbols(plan, k, b)?;
    names(k, b)?;
    states(k, b)?;
    buffers(plan, k, b)?;
    ports(plan, k, &own, b)?;
    for c in &k.constraints {
        let b = b.of(format!("{}, constraint of '{}'", b.subject, c.node));
        for d in [&c.left, &c.right] {
            dimension(d, &own, &plan.dims, &b)
                .map_err(|e| b.error("constraints", e.to_string()))?;
        }
    }
    for list in [&k.init, &k.steps] {
        params(plan, &own, list, b)?;
    }
    Ok(())
}

/// The block's symbols.
fn symbols<'k>(plan: &Plan, k: &'k Block, b: &Blame) -> Result<Own<'k>, PlanError> {
    let mut seen = Own::default();
    for s in &k.symbols {
        b.need(seen.insert(s), "symbols", || {
            format!("symbol '{s}' is listed twice")
        })?;
        b.need(plan.dims.get(s).is_some(), "symbols", || {
            format!("symbol '{s}' has no range in the plan")
        })?;
    }
    Ok(seen)
}

fn names(k: &Block, b: &Blame) -> Checked {
    let lists: [(&str, Vec<&str>); 4] = [
        (
            "init step",
            k.init.iter().map(|s| s.name.as_str()).collect(),
        ),
        ("step", k.steps.iter().map(|s| s.name.as_str()).collect()),
        ("input", k.inputs.iter().map(|p| p.name.as_str()).collect()),
        (
            "output",
            k.outputs.iter().map(|p| p.name.as_str()).collect(),
        ),
    ];
    for (what, list) in lists {
        let mut seen = BTreeSet::new();
        for n in list {
            b.need(!n.is_empty(), "names", || format!("one {what} has no name"))?;
            b.need(seen.insert(n), "names", || {
                format!("two {what}s are named '{n}'")
            })?;
        }
    }
    Ok(())
}

/// Bytes that `elements` of a type take.
pub(super) fn bytes_of(d: DType, elements: i64) -> Option<u64> {
    d.bytes_for(usize::try_from(elements.max(0)).ok()?)
        .map(|b| b as u64)
}

fn buffers(plan: &Plan, k: &Block, b: &Blame) -> Checked {
    b.need(
        k.far_arenas.len() < plan.devices.len() && k.far_arenas.iter().all(|&a| a < MAX_BYTES),
        "capacity",
        || format!("arenas of {:?} bytes on further devices", k.far_arenas),
    )?;
    b.need(
        k.arena_bytes < MAX_BYTES && k.scratch_bytes < MAX_BYTES,
        "capacity",
        || {
            format!(
                "an arena of {} bytes and scratch of {}",
                k.arena_bytes, k.scratch_bytes
            )
        },
    )?;
    for (i, x) in k.buffers.iter().enumerate() {
        let b = b.of(format!("{}, buffer {i} '{}'", b.subject, x.name));
        b.need((x.place as usize) < plan.devices.len(), "buffers", || {
            format!("it lies on device {}, which is not there", x.place)
        })?;
        b.need(x.bytes < MAX_BYTES, "capacity", || {
            format!("it has {} bytes", x.bytes)
        })?;
        let natural = (x.dtype.bits() / 8).max(1);
        let aligned = x.align.is_power_of_two() && x.align <= MAX_ALIGN && x.align % natural == 0;
        b.need(aligned, "buffers", || {
            format!("{} is no alignment for {}", x.align, x.dtype)
        })?;
        let belongs = match x.kind {
            BufferKind::Arena => {
                let end = x.offset.checked_add(x.bytes);
                b.need(x.offset % u64::from(x.align) == 0, "buffers", || {
                    format!("offset {} is not aligned to {}", x.offset, x.align)
                })?;
                let arena = k.arena(x.place);
                b.need(end.is_some_and(|e| e <= arena), "arena", || {
                    format!(
                        "{} bytes at {} leave the arena of {arena}",
                        x.bytes, x.offset
                    )
                })?;
                true
            }
            BufferKind::Weight(_) | BufferKind::Init => true,
            BufferKind::Input(n) => k
                .inputs
                .get(n as usize)
                .is_some_and(|p| p.buffer as usize == i),
            BufferKind::Output(n) => k
                .outputs
                .get(n as usize)
                .is_some_and(|p| p.buffer as usize == i),
            BufferKind::State(n) => k
                .states
                .get(n as usize)
                .is_some_and(|s| s.buffer as usize == i),
        };
        let host = matches!(
            x.kind,
            BufferKind::Input(_) | BufferKind::Output(_) | BufferKind::Weight(_)
        );
        b.need(!host || x.place == 0, "place", || {
            format!("{:?} lies on device {}", x.kind, x.place)
        })?;
        b.need(belongs, "buffers", || {
            format!("{:?} is not what it belongs to", x.kind)
        })?;
        b.need(
            x.kind == BufferKind::Arena || x.offset == 0,
            "buffers",
            || "it has an offset outside the arena".into(),
        )?;
    }
    Ok(())
}

fn ports(plan: &Plan, k: &Block, own: &Own, b: &Blame) -> Checked {
    let sides = k
        .inputs
        .iter()
        .enumerate()
        .map(|p| (p, false))
        .chain(k.outputs.iter().enumerate().map(|p| (p, true)));
    for ((i, p), out) in sides {
        let b = b.of(format!("{}, port '{}'", b.subject, p.name));
        let Some(x) = k.buffers.get(p.buffer as usize) else {
            return Err(b.error("ports", format!("buffer {} is not there", p.buffer)));
        };
        let belongs = match x.kind {
            BufferKind::Input(n) => !out && n as usize == i,
            BufferKind::Output(n) => out && n as usize == i,
            BufferKind::State(n) => k
                .states
                .get(n as usize)
                .is_some_and(|s| (if out { s.output } else { s.input }) as usize == i),
            _ => false,
        };
        b.need(belongs, "ports", || {
            format!("buffer '{}' does not belong to it", x.name)
        })?;
        b.need(x.dtype == p.dtype, "ports", || {
            format!("it is {} in a buffer of {}", p.dtype, x.dtype)
        })?;
        for d in &p.shape {
            dimension(d, own, &plan.dims, &b)?;
        }
        let most = product(&p.shape, &plan.dims)
            .and_then(|n| plan.dims.bounds(&n))
            .and_then(|r| bytes_of(p.dtype, r.hi));
        b.need(most.is_some_and(|m| m <= x.bytes), "ports", || {
            format!("its shape does not fit {} bytes", x.bytes)
        })?;
    }
    Ok(())
}

fn states(k: &Block, b: &Blame) -> Checked {
    for (n, s) in k.states.iter().enumerate() {
        let b = b.of(format!("{}, state {n}", b.subject));
        let buffer = |list: &[Port], at: u32| list.get(at as usize).map(|p| p.buffer);
        let shared = buffer(&k.inputs, s.input) == Some(s.buffer)
            && buffer(&k.outputs, s.output) == Some(s.buffer);
        let kind = k.buffers.get(s.buffer as usize).map(|x| x.kind);
        b.need(
            shared && kind == Some(BufferKind::State(n as u32)),
            "states",
            || "its ports do not share its buffer".into(),
        )?;
    }
    Ok(())
}

/// Checks one dimension.
fn dimension(d: &Dim, own: &Own, dims: &DimBox, b: &Blame) -> Checked {
    if d.known().is_some() {
        return Ok(());
    }
    let mut used: BTreeSet<Sym> = BTreeSet::new();
    d.symbols(&mut used);
    if let Some(s) = used.iter().find(|s| !own.contains(s)) {
        return Err(b.error(
            "params",
            format!("'{d}' uses '{s}', which is no symbol of the block"),
        ));
    }
    b.need(dims.bounds(d).is_some(), "params", || {
        format!("'{d}' can leave 64 bits")
    })?;
    b.need(divisors(d, dims), "params", || {
        format!("'{d}' can divide by a number below 1")
    })
}

fn divisors(d: &Dim, dims: &DimBox) -> bool {
    d.terms().flat_map(|t| t.1).all(|a| match a {
        Atom::Sym(_) => true,
        Atom::FloorDiv(x, y) => {
            divisors(x, dims) && divisors(y, dims) && dims.bounds(y).is_some_and(|r| r.lo >= 1)
        }
        Atom::Min(x, y) | Atom::Max(x, y) => divisors(x, dims) && divisors(y, dims),
    })
}

fn params(plan: &Plan, own: &Own, list: &[Step], b: &Blame) -> Checked {
    let mut seen: HashSet<Dim> = HashSet::default();
    let mut met = DimMap::default();
    for s in list {
        let mut bad: Option<Dim> = None;
        let mut check = |d: &Dim| {
            if bad.is_none() && met.insert(d, ()) && !seen.contains(d) {
                match dimension(d, own, &plan.dims, b) {
                    Ok(()) => drop(seen.insert(d.clone())),
                    Err(_) => bad = Some(d.clone()),
                }
            }
        };
        match &s.work {
            StepWork::Kernel {
                kernel, schedule, ..
            } => {
                kernel.for_each_dim(&mut check);
                if let Some(code) = schedule.code() {
                    code.for_each_dim(&mut check);
                }
            }
            StepWork::Host {
                inputs, outputs, ..
            } => {
                let args = inputs.iter().flatten().chain(outputs);
                args.flat_map(|a| &a.shape).for_each(&mut check);
            }
        }
        check(&s.tasks);
        for w in &s.waits {
            if let Wait::Tiles { map, .. } = w {
                map.dims().into_iter().for_each(&mut check);
            }
        }
        if let Some(d) = bad {
            dimension(
                &d,
                own,
                &plan.dims,
                &b.of(format!("{}, step '{}'", b.subject, s.name)),
            )?;
        }
    }
    Ok(())
}
