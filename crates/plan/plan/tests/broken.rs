//! 20,000 deliberately broken plans, at least one kind per rule: none is accepted.
use crate::common;
#[path = "breaks/devices.rs"]
mod devices;
use common::*;
use fastrand::Rng;
use kernel::{Kernel, Place, Role, Stmt};
use layout::{DType, Dim};
use shopfloor_plan::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Breaks a plan in one place that `rng` picks; false when the plan has no such place.
type Break = fn(&mut Plan, &mut Rng) -> bool;

fn block(p: &mut Plan) -> &mut Block {
    match &mut p.segments[0] {
        PlanSegment::Block(b) => b,
        _ => panic!("a block"),
    }
}

fn pick<'a, T>(list: &'a mut [T], rng: &mut Rng) -> Option<&'a mut T> {
    let n = list.len();
    if n == 0 {
        None
    } else {
        Some(&mut list[rng.usize(..n)])
    }
}

fn step<'a>(p: &'a mut Plan, rng: &mut Rng) -> &'a mut Step {
    let b = block(p);
    let init = rng.usize(..5) == 0 && !b.init.is_empty();
    let list = if init { &mut b.init } else { &mut b.steps };
    let n = list.len();
    &mut list[rng.usize(..n)]
}

type KernelParts<'a> = (
    &'a mut Kernel,
    &'a mut kernel::Schedule,
    &'a mut Vec<BufferId>,
);

fn kernel_of(s: &mut Step) -> Option<KernelParts<'_>> {
    match &mut s.work {
        StepWork::Kernel {
            kernel,
            schedule,
            args,
        } => Some((Arc::make_mut(kernel), Arc::make_mut(schedule), args)),
        StepWork::Host { .. } => None,
    }
}

/// Runs `f` on a random kernel step.
fn on_kernel(
    p: &mut Plan,
    rng: &mut Rng,
    f: &mut dyn FnMut(KernelParts, &mut Rng) -> bool,
) -> bool {
    let s = step(p, rng);
    kernel_of(s).is_some_and(|k| f(k, rng))
}

fn kind_of(p: &mut Plan, buffer: BufferId) -> BufferKind {
    block(p).buffers[buffer as usize].kind
}

fn up(rng: &mut Rng) -> u64 {
    1 + rng.u64(..1000)
}

const BREAKS: &[(&str, Break)] = &[
    ("another version", |p, r| {
        p.version += up(r) as u32;
        true
    }),
    ("no devices", |p, _| {
        p.devices.clear();
        true
    }),
    ("a device without name", |p, r| {
        match r.usize(..2) {
            0 => p.devices[0].machine.clear(),
            _ => p.devices[0].target.clear(),
        }
        true
    }),
    ("no or too many workers", |p, r| {
        p.devices[0].workers = if r.usize(..2) == 0 {
            0
        } else {
            4096 + up(r) as u32
        };
        true
    }),
    ("a range that is none", |p, r| {
        let (lo, hi) = [(5, 4), (-1, 3), (1, i64::MAX), (i64::MIN, 8)][r.usize(..4)];
        p.dims.insert("m", lo, hi);
        true
    }),
    ("a larger box", |p, r| {
        let uses = block(p).buffers.len() > 3 && p.model != "blocked";
        p.dims.insert("m", 1, 8 + up(r) as i64);
        uses
    }),
    ("parts after a deferred one", |p, _| {
        p.segments.insert(0, PlanSegment::Deferred { segment: 0 });
        true
    }),
    ("too many waits", |p, r| {
        let s = step(p, r);
        s.waits = vec![Wait::Step(0); 70_000];
        true
    }),
    ("a nameless step", |p, r| {
        step(p, r).name.clear();
        true
    }),
    ("two steps of one name", |p, _| {
        let b = block(p);
        b.steps[1].name = b.steps[0].name.clone();
        true
    }),
    ("ports without or of one name", |p, r| {
        let b = block(p);
        match r.usize(..3) {
            0 => b.inputs[0].name.clear(),
            1 => b.outputs[0].name.clear(),
            _ => {
                let other = b.inputs[0].clone();
                match b.inputs.get_mut(1) {
                    Some(x) => x.name = other.name,
                    None => return false,
                }
            }
        }
        true
    }),
    ("a symbol twice", |p, _| {
        block(p).symbols.push("m".into());
        true
    }),
    ("a symbol without range", |p, _| {
        block(p).symbols.push("zz".into());
        true
    }),
    ("a symbol that is not listed", |p, _| {
        block(p).symbols.clear();
        p.model != "blocked"
    }),
    (
        "dims that overflow, divide by zero or name nothing",
        |p, r| {
            let m = Dim::sym("m");
            let big = (0..30).fold(Dim::ONE, |x, _| x * Dim::sym("m")) * Dim::Known(1 << 40);
            let bad = [
                Dim::Known(9).floor_div(&(m - Dim::ONE)),
                Dim::sym("nothing"),
                big,
            ][r.usize(..3)]
            .clone();
            on_kernel(p, r, &mut |(k, _, _), r| {
                let n = k.operands.len();
                k.operands[r.usize(..n)].elements = bad.clone();
                true
            })
        },
    ),
    ("a buffer on no device", |p, r| {
        let place = up(r) as u32;
        pick(&mut block(p).buffers, r).unwrap().place = place;
        true
    }),
    ("an alignment that is none", |p, r| {
        let align = [0, 3, 24, 1 << 30, u32::MAX][r.usize(..5)];
        pick(&mut block(p).buffers, r).unwrap().align = align;
        true
    }),
    ("an offset outside the arena", |p, r| {
        let by = 64 * up(r);
        match pick(&mut block(p).buffers, r) {
            Some(b) if b.kind != BufferKind::Arena => b.offset += by,
            _ => return false,
        }
        true
    }),
    ("an offset that is not aligned", |p, r| {
        let by = 1 + r.u64(..63);
        match pick(&mut block(p).buffers, r) {
            Some(b) if b.kind == BufferKind::Arena => b.offset += by,
            _ => return false,
        }
        true
    }),
    ("a buffer beyond the arena", |p, r| {
        let b = block(p);
        let end = b.far_arenas.iter().fold(b.arena_bytes, |a, x| a.max(*x));
        let far = [end, end.next_multiple_of(64) + 64 * up(r), u64::MAX - 63][r.usize(..3)];
        match pick(&mut b.buffers, r) {
            Some(b) if b.kind == BufferKind::Arena => b.offset = far,
            _ => return false,
        }
        true
    }),
    ("a smaller arena", |p, r| {
        let b = block(p);
        let top = b
            .buffers
            .iter()
            .filter(|b| b.kind == BufferKind::Arena && b.place == 0)
            .map(|b| b.offset + b.bytes)
            .max()
            .unwrap();
        b.arena_bytes = r.u64(..top);
        true
    }),
    ("a smaller buffer", |p, r| {
        let x = pick(&mut block(p).buffers, r).unwrap();
        x.bytes -= (1 + r.u64(..x.bytes.max(1))).min(x.bytes);
        true
    }),
    ("a buffer beyond all memory", |p, r| {
        let x = pick(&mut block(p).buffers, r).unwrap();
        x.bytes = u64::MAX - r.u64(..1000);
        true
    }),
    ("an arena beyond all memory", |p, _| {
        block(p).arena_bytes = 1 << 60;
        true
    }),
    ("a buffer of another type", |p, r| {
        let x = pick(&mut block(p).buffers, r).unwrap();
        x.dtype = if x.dtype == DType::I32 {
            DType::U8
        } else {
            DType::I32
        };
        true
    }),
    ("a buffer of a kind that is not there", |p, r| {
        let n = 50 + up(r) as u32;
        let kind = [
            BufferKind::Input(n),
            BufferKind::Output(n),
            BufferKind::State(n),
        ][r.usize(..3)];
        pick(&mut block(p).buffers, r).unwrap().kind = kind;
        true
    }),
    ("a port's buffer taken away", |p, r| {
        let b = block(p);
        let port = if r.usize(..2) == 0 {
            pick(&mut b.inputs, r)
        } else {
            pick(&mut b.outputs, r)
        };
        let at = port.unwrap().buffer as usize;
        b.buffers[at].kind = [BufferKind::Init, BufferKind::Weight(0)][r.usize(..2)];
        true
    }),
    ("a port with another buffer", |p, r| {
        let b = block(p);
        let n = b.buffers.len();
        let port = if r.usize(..2) == 0 {
            pick(&mut b.inputs, r)
        } else {
            pick(&mut b.outputs, r)
        }
        .unwrap();
        port.buffer = (port.buffer + 1 + (r.u64(..n as u64 + 5)) as u32) % (n as u32 + 7);
        true
    }),
    ("a port of another type", |p, r| {
        let b = block(p);
        let port = if r.usize(..2) == 0 {
            pick(&mut b.inputs, r)
        } else {
            pick(&mut b.outputs, r)
        }
        .unwrap();
        port.dtype = DType::U16;
        true
    }),
    ("a larger port", |p, r| {
        let b = block(p);
        let port = if r.usize(..2) == 0 {
            pick(&mut b.inputs, r)
        } else {
            pick(&mut b.outputs, r)
        }
        .unwrap();
        let n = port.shape.len();
        let at = r.usize(..n);
        port.shape[at] = port.shape[at].clone() + Dim::Known(up(r) as i64);
        true
    }),
    ("a smaller port", |p, r| {
        // The caller's memory is then smaller than what the steps touch.
        let b = block(p);
        let ports = b.inputs.iter_mut().chain(&mut b.outputs);
        let mut plain: Vec<&mut Port> = ports
            .filter(|p| !["past", "present"].contains(&p.name.as_str()))
            .collect();
        let n = plain.len();
        let port = &mut plain[r.usize(..n)];
        let at = r.usize(..port.shape.len());
        port.shape[at] = port.shape[at].clone() - Dim::ONE;
        true
    }),
    ("a state of other ports", |p, r| {
        match pick(&mut block(p).states, r) {
            Some(s) => match r.usize(..3) {
                0 => s.input += 1 + r.usize(..3) as u32,
                1 => s.output += 1 + r.usize(..3) as u32,
                _ => s.buffer += 1 + r.usize(..3) as u32,
            },
            None => return false,
        }
        true
    }),
    ("a step on no device", |p, r| {
        let n = up(r) as u32;
        step(p, r).device = n;
        true
    }),
    ("a wait for itself or a later step", |p, r| {
        let b = block(p);
        let at = r.usize(..b.steps.len());
        let to = [at, at + 1, u32::MAX as usize][r.usize(..3)] as u32;
        b.steps[at].waits.push(Wait::Step(to));
        true
    }),
    ("joined on a CPU", |p, r| {
        step(p, r).joined = true;
        true
    }),
    ("waits dropped", |p, r| {
        // Steps of these plans wait only for what they need.
        match pick(&mut block(p).steps, r) {
            Some(s) if !s.waits.is_empty() => {
                let n = s.waits.len();
                s.waits.remove(r.usize(..n));
            }
            _ => return false,
        }
        true
    }),
    ("a wait for tiles instead", |p, r| {
        match pick(&mut block(p).steps, r) {
            Some(s) if !s.waits.is_empty() => {
                let ratio = Dim::Known(r.usize(..3) as i64);
                if let Wait::Step(step) = s.waits[0] {
                    s.waits[0] = Wait::Tiles {
                        step,
                        map: TileMap::Range { ratio },
                    };
                }
            }
            _ => return false,
        }
        true
    }),
    ("steps in another order", |p, r| {
        let b = block(p);
        let at = 1 + r.usize(..b.steps.len() - 1);
        if b.steps[at]
            .waits
            .iter()
            .any(|w| matches!(w, Wait::Step(s) if *s as usize == at - 1))
        {
            b.steps.swap(at - 1, at);
            return true;
        }
        false
    }),
    ("a missing or surplus buffer", |p, r| {
        on_kernel(p, r, &mut |(_, _, args), r| {
            match r.usize(..3) {
                0 => {
                    args.pop();
                }
                1 => args.push(args[0]),
                _ => {
                    let n = args.len();
                    args[r.usize(..n)] = 1000 + r.usize(..1000) as u32;
                }
            }
            true
        })
    }),
    ("a write to what may not be written", |p, r| {
        let bad: Vec<BufferId> = (0..block(p).buffers.len() as u32)
            .filter(|&b| {
                matches!(
                    kind_of(p, b),
                    BufferKind::Input(_) | BufferKind::Weight(_) | BufferKind::Init
                )
            })
            .collect();
        let b = block(p);
        let at = r.usize(..b.steps.len());
        let to = bad[r.usize(..bad.len())];
        match &mut b.steps[at].work {
            StepWork::Kernel { kernel, args, .. } => {
                let o = kernel
                    .operands
                    .iter()
                    .position(|o| o.role == Role::Write)
                    .unwrap();
                args[o] = to;
            }
            StepWork::Host { outputs, .. } => outputs[0].buffer = to,
        }
        true
    }),
    ("an init step that uses a request's memory", |p, r| {
        let bad: Vec<BufferId> = (0..block(p).buffers.len() as u32)
            .filter(|&b| !matches!(kind_of(p, b), BufferKind::Weight(_) | BufferKind::Init))
            .collect();
        match block(p).init.first_mut().and_then(kernel_of) {
            Some((_, _, args)) => {
                let n = args.len();
                args[r.usize(..n)] = bad[r.usize(..bad.len())];
            }
            None => return false,
        }
        true
    }),
    ("another number of tasks", |p, r| {
        let s = step(p, r);
        s.tasks = match r.usize(..3) {
            0 => s.tasks.clone() + Dim::Known(up(r) as i64),
            1 => Dim::ZERO,
            _ => s.tasks.clone() * Dim::Known(2) + Dim::ONE,
        };
        true
    }),
    ("too little scratch", |p, r| {
        let b = block(p);
        let worst = b
            .steps
            .iter()
            .chain(&b.init)
            .map(|s| s.scratch)
            .max()
            .unwrap();
        if r.usize(..2) == 0 && worst > 0 {
            b.scratch_bytes = r.u64(..worst);
            return true;
        }
        let s = step(p, r);
        if s.scratch == 0 {
            return false;
        }
        s.scratch = r.u64(..s.scratch);
        true
    }),
    ("an address before or behind the buffer", |p, r| {
        let by = if r.usize(..2) == 0 {
            up(r) as i64
        } else {
            -(up(r) as i64)
        };
        on_kernel(p, r, &mut |(k, _, _), r| {
            let n = k.operands.len();
            let a = &mut k.operands[r.usize(..n)].access;
            a.offset = a.offset.clone() + Dim::Known(by);
            true
        })
    }),
    ("a wider stride", |p, r| {
        let dims = p.dims.clone();
        on_kernel(p, r, &mut |(k, _, _), r| {
            let n = k.operands.len();
            let o = r.usize(..n);
            let n = k.operands[o].access.terms.len();
            let t = &mut k.operands[o].access.terms[r.usize(..n)];
            let long = dims.at_top(&k.axes[t.axis as usize].extent).unwrap_or(0) > 1;
            let n = t.leaves.len();
            let l = &mut t.leaves[r.usize(..n)];
            l.stride = l.stride.clone() + Dim::Known(up(r) as i64);
            long
        })
    }),
    ("an access backwards", |p, r| {
        let dims = p.dims.clone();
        on_kernel(p, r, &mut |(k, _, _), r| {
            let n = k.operands.len();
            let o = r.usize(..n);
            // Behind an offset there may be room to go back.
            let first = k.operands[o].access.offset.is_zero();
            let n = k.operands[o].access.terms.len();
            let t = &mut k.operands[o].access.terms[r.usize(..n)];
            let long = dims.at_top(&k.axes[t.axis as usize].extent).unwrap_or(0) > 1;
            t.leaves[0].stride = -t.leaves[0].stride.clone();
            long && first
        })
    }),
    ("tasks that write the same elements", |p, r| {
        let dims = p.dims.clone();
        let s = step(p, r);
        let many = dims.at_top(&s.tasks).unwrap_or(0) > 1;
        let Some((k, ..)) = kernel_of(s) else {
            return false;
        };
        let o = k
            .operands
            .iter_mut()
            .find(|o| o.role == Role::Write)
            .unwrap();
        let n = o.access.terms.len();
        let t = &mut o.access.terms[r.usize(..n)];
        let long = dims.at_top(&k.axes[t.axis as usize].extent).unwrap_or(0) > 1;
        t.leaves[0].stride = Dim::ZERO;
        many && long
    }),
    ("a longer axis", |p, r| {
        on_kernel(p, r, &mut |(k, _, _), r| {
            let n = k.axes.len();
            let a = &mut k.axes[r.usize(..n)];
            a.extent = a.extent.clone() + Dim::Known(up(r) as i64);
            true
        })
    }),
    ("a negative extent", |p, r| {
        on_kernel(p, r, &mut |(k, _, _), r| {
            let n = k.axes.len();
            k.axes[r.usize(..n)].extent = Dim::sym("m") - Dim::Known(20);
            true
        })
    }),
    ("leaves that do not cover their axis", |p, r| {
        on_kernel(p, r, &mut |(k, _, _), r| {
            let mut terms = k.operands.iter_mut().flat_map(|o| &mut o.access.terms);
            match terms.find(|t| t.leaves.len() > 1) {
                Some(t) => t.leaves[r.usize(..2)].extent = Dim::ONE,
                None => return false,
            }
            true
        })
    }),
    ("a bound dropped or widened", |p, r| {
        on_kernel(p, r, &mut |(k, _, _), r| {
            let Some(o) = k.operands.iter_mut().find(|o| !o.access.bounds.is_empty()) else {
                return false;
            };
            let at = r.usize(..o.access.bounds.len());
            match r.usize(..3) {
                0 => drop(o.access.bounds.remove(at)),
                1 => {
                    o.access.bounds[at].extent =
                        o.access.bounds[at].extent.clone() + Dim::Known(up(r) as i64)
                }
                _ => {
                    o.access.bounds[at].base =
                        o.access.bounds[at].base.clone() + Dim::Known(1 + up(r) as i64)
                }
            }
            true
        })
    }),
    ("more valid indices than rows", |p, r| {
        on_kernel(p, r, &mut |(k, _, _), r| {
            let Some(o) = k.operands.iter_mut().find(|o| !o.access.indexed.is_empty()) else {
                return false;
            };
            o.access.indexed[0].extent = Dim::Known(10 + up(r) as i64);
            true
        })
    }),
    ("a kernel that is none", |p, r| {
        on_kernel(p, r, &mut |(k, s, _), r| {
            match r.usize(..9) {
                0 => k.name.clear(),
                1 => k.tiles[0].axes.reverse(),
                2 => drop(k.body.pop()),
                3 => k.operands[0].role = Role::Write,
                4 => k.body.push(Stmt::Load {
                    dst: 900,
                    operand: 0,
                }),
                5 => s.chunk = 0,
                6 => s.places.push(Place::Register),
                7 => s.grid[0].tile = -1,
                _ => k.body.swap(0, 1),
            }
            // Swapped loads and scalars' axes mean the same.
            TileMade::new(k, s).broken
        })
    }),
    ("an operand of another type", |p, r| {
        on_kernel(p, r, &mut |(k, _, _), r| {
            let n = k.operands.len();
            k.operands[r.usize(..n)].dtype = DType::U64;
            true
        })
    }),
    (
        "host arguments of other shapes, types or buffers",
        |p, r| {
            let b = block(p);
            let n = b.buffers.len() as u32;
            for s in &mut b.steps {
                if let StepWork::Host {
                    inputs, outputs, ..
                } = &mut s.work
                {
                    let a = if r.usize(..2) == 0 {
                        inputs[0].as_mut().unwrap()
                    } else {
                        &mut outputs[0]
                    };
                    match r.usize(..3) {
                        0 => a.shape[0] = a.shape[0].clone() + Dim::Known(up(r) as i64),
                        1 => a.dtype = DType::F64,
                        _ => a.buffer = n + r.usize(..9) as u32,
                    }
                    return true;
                }
            }
            false
        },
    ),
    ("memory that is still in use", |p, r| {
        // The result of a step on the bytes of what it reads.
        let b = block(p);
        let at = r.usize(..b.steps.len());
        let Some((k, _, args)) = kernel_of(&mut b.steps[at]) else {
            return false;
        };
        let w = args[k
            .operands
            .iter()
            .position(|o| o.role == Role::Write)
            .unwrap()];
        let from: Vec<BufferId> = args.iter().copied().filter(|&x| x != w).collect();
        let arena = |x: &BufferId| b.buffers[*x as usize].kind == BufferKind::Arena;
        let Some(&x) = from.iter().find(|x| arena(x)) else {
            return false;
        };
        let place = |x: BufferId| b.buffers[x as usize].place;
        if !arena(&w) || place(w) != place(x) {
            return false;
        }
        b.buffers[w as usize].offset = b.buffers[x as usize].offset;
        true
    }),
    ("a program in place that is not element-wise", |p, r| {
        let b = block(p);
        let at = r.usize(..b.steps.len());
        let Some((k, _, args)) = kernel_of(&mut b.steps[at]) else {
            return false;
        };
        let w = k
            .operands
            .iter()
            .position(|o| o.role == Role::Write)
            .unwrap();
        let folds = k.body.iter().any(|s| !s.over().is_empty());
        let from = args[0];
        args[w] = from;
        folds && b.buffers[from as usize].kind == BufferKind::Arena
    }),
    ("joined pieces that overlap", |p, r| {
        if p.model != "join" {
            return false;
        }
        let Some((k, ..)) = kernel_of(&mut block(p).steps[1]) else {
            return false;
        };
        k.operands[1].access.offset =
            [Dim::ZERO, Dim::sym("m") - Dim::ONE, Dim::ONE][r.usize(..3)].clone();
        true
    }),
    ("rows appended where others read", |p, _| {
        if p.model != "stateful" {
            return false;
        }
        let b = block(p);
        b.steps[1].waits.clear();
        true
    }),
    ("an output that nobody writes", |p, _| {
        let b = block(p);
        let n = b.steps.len();
        b.steps.remove(n - 1);
        true
    }),
    ("packed weights that nobody packs", |p, _| {
        let b = block(p);
        let any = !b.init.is_empty();
        b.init.clear();
        any
    }),
    ("work that is never done", |p, r| {
        // A step between others left out, waits renumbered.
        let b = block(p);
        let needed: Vec<usize> = (0..b.steps.len())
            .filter(|&i| {
                b.steps
                    .iter()
                    .any(|s| s.waits.contains(&Wait::Step(i as u32)))
            })
            .collect();
        if needed.is_empty() || p.model == "stateful" {
            return false;
        }
        let mut at = needed[r.usize(..needed.len())];
        if p.model == "join" {
            at = 2; // what is joined can also be joined in part, and an update left out
        }
        block(p).steps.remove(at);
        let b = block(p);
        for s in &mut b.steps {
            s.waits.retain(|w| *w != Wait::Step(at as u32));
            for w in &mut s.waits {
                if let Wait::Step(x) = w
                    && *x as usize > at
                {
                    *x -= 1;
                }
            }
        }
        true
    }),
];

/// Whether kernel and schedule still make a program.
struct TileMade {
    broken: bool,
}

impl TileMade {
    fn new(k: &Kernel, s: &kernel::Schedule) -> TileMade {
        TileMade {
            broken: kernel::TileProgram::new(k.clone(), s.clone()).is_err(),
        }
    }
}

#[test]
fn broken_plans_are_refused() {
    if !testing::turn("broken_plans_are_refused") {
        return;
    }
    let originals = good();
    let breaks: Vec<(&str, Break)> = [BREAKS, devices::BREAKS].concat();
    let mut by_rule: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut by_break = vec![0usize; breaks.len()];
    let mut seed = 0u64;
    let mut done = 0;
    while done < 20_000 {
        seed += 1;
        let mut rng = Rng::with_seed(seed);
        let at = rng.usize(..breaks.len());
        // Plans over two devices or with constraints (the last two) get breaks of their own.
        let plans = if at < BREAKS.len() {
            originals.len() - 2
        } else {
            originals.len()
        };
        let mut p = originals[rng.usize(..plans)].clone();
        if !(breaks[at].1)(&mut p, &mut rng) {
            continue;
        }
        done += 1;
        by_break[at] += 1;
        let model = p.model.clone();
        match p.verify() {
            Ok(_) => panic!("seed {seed}: '{model}' with {} is accepted", breaks[at].0),
            Err(PlanError::Rule { rule, .. }) => *by_rule.entry(rule).or_default() += 1,
            Err(e) => panic!("seed {seed}: '{model}' with {}: {e}", breaks[at].0),
        }
    }
    for (n, b) in by_break.iter().zip(&breaks) {
        assert!(*n > 0, "'{}' was never tried", b.0);
    }
    // Every rule of the header has caught something.
    let header: Vec<&str> = include_str!("../src/verify/mod.rs")
        .lines()
        .filter_map(|l| l.strip_prefix("//! - `"))
        .filter_map(|l| l.split('`').next())
        .collect();
    assert!(header.len() > 20, "{header:?}");
    for rule in header {
        assert!(
            by_rule.contains_key(rule),
            "rule {rule} caught nothing: {by_rule:?}"
        );
    }
    println!("{done} broken plans of {seed} seeds refused: {by_rule:?}");
}

#[test]
fn errors_name_the_step_and_the_remedy() {
    let mut p = chain();
    block(&mut p).steps[2].waits.clear();
    let e = p.verify().unwrap_err();
    let both = format!("{e} / {}", e.clone().of_caller());
    for part in ["chain", "order", "fault of shopfloor", "make the plan anew"] {
        assert!(both.contains(part), "{both}");
    }
}
