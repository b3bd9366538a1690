//! Factors of 4 bits as wide constants: where a product that reads the numbers as they lie, and widens them in
//! registers, is predicted to take longer than one that reads a wide copy made at load, the program gets that copy.
use super::ctx::Ctx;
use super::recency::Recency;
use super::{schedule, why};
use crate::kernels::builder::KernelBuilder;
use crate::kernels::simplify::simplify;
use expr::Expr;
use kernel::{Access, AxisId, Family, Kernel, Operand, OperandId, Role, Stmt, Term, TileId};
use layout::{Arrange, DType, Dim, Layout};
use machine::units;
use plan::{
    Alternative, Item, ItemWork, Program, ProgramValue, Segment, ValueIx, ValueOrigin, Why,
};
use std::sync::Arc;

/// A product of a factor that a map makes of constants, numbers of 4 bits among them.
struct Narrow<'a> {
    kernel: &'a Kernel,
    args: &'a [ValueIx],
    /// What the map makes, and how.
    wide: TileId,
    made: &'a Expr,
    /// Operands of the map's arguments, and which of them has the numbers.
    sources: Vec<OperandId>,
    numbers: OperandId,
}

/// What was decided of a kernel: seconds with numbers of 4 bits and with a wide copy, where there is code.
type Seconds = [Option<f64>; 2];

/// The program with wide copies of factors where those are better on the last device, `None` where none is.
pub(super) fn widened(program: &Program, ctxs: &[Ctx], whys: &mut Vec<Why>) -> Option<Program> {
    let ctx = ctxs.last()?;
    let narrow = |i: &Item| Narrow::of(program, i).is_some();
    let has = |s: &Segment| matches!(s, Segment::Straight(items) if items.iter().any(narrow));
    if !program.segments.iter().any(has) {
        return None;
    }
    let footprints = footprints(program, *ctx);
    let mut out = program.clone();
    let mut known: Vec<(Arc<Kernel>, Seconds)> = vec![];
    let mut changed = false;
    let mut segments = std::mem::take(&mut out.segments);
    for s in &mut segments {
        let Segment::Straight(items) = s else {
            continue;
        };
        for item in items {
            let Some((value, made, read)) = split(&out, item) else {
                continue;
            };
            let seconds = decided(*ctx, program, (item, &read), footprints, &mut known);
            let wide = chosen(*ctx, &value, seconds);
            whys.push(told(&item.name, &value, seconds, wide));
            if !wide {
                continue;
            }
            changed = true;
            *item = read;
            if let Some(made) = made {
                out.values.push(value);
                out.init.push(made);
            }
        }
    }
    out.segments = segments;
    changed.then_some(out)
}

/// The wide value that `item` can read, the item that makes it at load unless there is one, and `item` that reads it.
fn split(program: &Program, item: &Item) -> Option<(ProgramValue, Option<Item>, Item)> {
    let n = Narrow::of(program, item)?;
    let next = program.values.len() as ValueIx;
    let (value, made) = n.making(program, item, next)?;
    let there = program.init.iter().find_map(|i| same_constant(i, &made));
    let read = n.reading(item, there.unwrap_or(next))?;
    Some((value, there.is_none().then_some(made), read))
}

/// The value that `item` makes, where that is what `made` would.
fn same_constant(item: &Item, made: &Item) -> Option<ValueIx> {
    let (
        ItemWork::Kernel { kernel, args },
        ItemWork::Kernel {
            kernel: other,
            args: others,
        },
    ) = (&item.work, &made.work)
    else {
        return None;
    };
    let ((to, from), (_, other_from)) = (args.split_last()?, others.split_last()?);
    (from == other_from && kernel.same_unnamed(other)).then_some(*to)
}

/// Whether the wide copy is better: micro-kernels of CPUs take numbers of 4 bits in f32, a GPU what is predicted to be
/// faster, and less memory where weights are not copied.
fn chosen(ctx: Ctx, value: &ProgramValue, seconds: Seconds) -> bool {
    if ctx.target.gpu.is_none() {
        return value.dtype != DType::F32;
    }
    match seconds {
        [Some(_), _] if !ctx.pack => false,
        [Some(narrow), Some(wide)] => wide < narrow,
        [narrow, _] => narrow.is_none(),
    }
}

/// The decision for people.
fn told(name: &str, value: &ProgramValue, [narrow, wide]: Seconds, is_wide: bool) -> Why {
    let choices = [
        ("4 bits, widened in registers".to_string(), narrow),
        (format!("{} that is made at load", value.dtype), wide),
    ];
    let [own, other] = match is_wide {
        false => choices,
        true => {
            let [a, b] = choices;
            [b, a]
        }
    };
    let said = |s: Option<f64>| match s {
        Some(s) => format!("predicted {}", units::seconds(s)),
        None => "not predicted".into(),
    };
    let reason = format!("{}; as {} {}", said(own.1), other.0, said(other.1));
    Why {
        alternatives: other.1.map_or(vec![], |predicted_s| {
            vec![Alternative {
                what: other.0,
                predicted_s,
            }]
        }),
        ..why("weights", name, &own.0, reason)
    }
}

/// Seconds of an item as it is and of the one that reads a wide copy, on a GPU.
fn decided(
    ctx: Ctx,
    program: &Program,
    (item, read): (&Item, &Item),
    footprints: [f64; 2],
    known: &mut Vec<(Arc<Kernel>, Seconds)>,
) -> Seconds {
    let (ItemWork::Kernel { kernel, .. }, Some(_)) = (&item.work, &ctx.target.gpu) else {
        return [None; 2];
    };
    if let Some(found) = known.iter().find(|k| k.0.same_unnamed(kernel)) {
        return found.1;
    }
    let each = [(item, footprints[0]), (read, footprints[1])];
    let seconds = each.map(|(i, bytes)| seconds(ctx, program, i, bytes));
    known.push((kernel.clone(), seconds));
    seconds
}

/// What the kernel of `item` is predicted to take by the schedule it would get; `None` where it has none.
fn seconds(ctx: Ctx, program: &Program, item: &Item, everything: f64) -> Option<f64> {
    let ItemWork::Kernel { kernel, args } = &item.work else {
        return None;
    };
    // The wide copy is no value of the program yet.
    let constant = |o: OperandId| {
        let value = args.get(o as usize).map(|&v| v as usize);
        value.is_some_and(|v| program.values.get(v).is_none_or(is_constant))
    };
    let bytes = |o: &Operand| ctx.top(&o.elements) as f64 * f64::from(o.dtype.bits()) / 8.0;
    // Weights are used once by a request, the others by the steps around.
    let far = kernel.operands.iter().enumerate();
    let far: Vec<f64> = far
        .map(|(n, o)| match constant(n as OperandId) {
            true => everything + bytes(o),
            false => bytes(o),
        })
        .collect();
    let ctx = Ctx { far: &far, ..ctx };
    let facts = schedule::Facts {
        constant: &constant,
        ..schedule::Facts::NONE
    };
    let chosen = schedule::choose(ctx, kernel, &facts, &mut Vec::new()).ok()?;
    Some(match &chosen.parts {
        Some(p) => p.seconds,
        None => chosen.cost.time_s,
    })
}

/// Bytes that the steps touch, with numbers of 4 bits and with wide copies of all of them.
fn footprints(program: &Program, ctx: Ctx) -> [f64; 2] {
    let (mut narrow, mut more) = (0.0, 0.0);
    for s in &program.segments {
        let Segment::Straight(items) = s else {
            continue;
        };
        narrow += Recency::of_items(program, ctx, items).everything;
        for n in items.iter().filter_map(|i| Narrow::of(program, i)) {
            let numbers = &n.kernel.operands[n.numbers as usize];
            let wide = n.kernel.tiles[n.wide as usize].dtype.bits() - numbers.dtype.bits();
            more += ctx.top(&numbers.elements) as f64 * f64::from(wide) / 8.0;
        }
    }
    [narrow, narrow + more]
}

fn is_constant(v: &ProgramValue) -> bool {
    matches!(v.origin, ValueOrigin::Weight(_) | ValueOrigin::Init)
}

impl<'a> Narrow<'a> {
    fn of(program: &Program, item: &'a Item) -> Option<Narrow<'a>> {
        let ItemWork::Kernel { kernel, args } = &item.work else {
            return None;
        };
        if item.given.is_some() {
            return None;
        }
        let readers = |t: TileId| kernel.body.iter().filter(move |s| s.reads().contains(&t));
        kernel.body.iter().find_map(|s| {
            let Stmt::Map { dst, expr, args: tiles } = s else {
                return None;
            };
            let factor = |s: &Stmt| matches!(s, Stmt::Contract { acc, a, b, .. } if acc != dst && (a == dst) != (b == dst));
            let mut all = readers(*dst);
            if !all.next().is_some_and(factor) || all.next().is_some() {
                return None;
            }
            let source = |&t: &TileId| {
                let operand = kernel.body.iter().find_map(|s| match s {
                    Stmt::Load { dst, operand } if *dst == t => Some(*operand),
                    _ => None,
                })?;
                let o = kernel.operands.get(operand as usize)?;
                let plain = o.access.bounds.is_empty() && o.access.indexed.is_empty();
                let fixed = is_constant(program.value(*args.get(operand as usize)?));
                (plain && fixed && readers(t).count() == 1).then_some(operand)
            };
            let sources: Vec<OperandId> = tiles.iter().map(source).collect::<Option<_>>()?;
            let bits = |o: &&OperandId| kernel.operands[**o as usize].dtype.bits() == 4;
            let numbers = *sources.iter().find(bits)?;
            Some(Narrow { kernel, args, wide: *dst, made: expr, sources, numbers })
        })
    }

    /// The axes of what is made, outermost first as the numbers lie, with their extents.
    fn axes(&self) -> Option<Vec<(AxisId, Dim)>> {
        let access = &self.kernel.operands[self.numbers as usize].access;
        let step = |a: AxisId| {
            let leaves = access.term(a)?.leaves.iter();
            leaves.map(|l| l.stride.known()).max().flatten()
        };
        let mut axes = self.kernel.tiles[self.wide as usize].axes.clone();
        axes.arrange_by_key(|&a| std::cmp::Reverse(step(a)));
        let sized = |a: AxisId| {
            let extent = &self.kernel.axes[a as usize].extent;
            extent.known().map(|_| (a, extent.clone()))
        };
        axes.into_iter().map(sized).collect()
    }

    /// The wide value of number `next`, and the item that makes it.
    fn making(
        &self,
        program: &Program,
        item: &Item,
        next: ValueIx,
    ) -> Option<(ProgramValue, Item)> {
        let axes = self.axes()?;
        let numbers = program.value(self.args[self.numbers as usize]);
        let mut name = format!("{}.wide", numbers.name);
        while program.values.iter().any(|v| v.name == name) {
            name.push('\'');
        }
        let shape: Vec<Dim> = axes.iter().map(|a| a.1.clone()).collect();
        let value = ProgramValue {
            name: name.clone(),
            dtype: self.kernel.tiles[self.wide as usize].dtype,
            layout: Layout::row_major(&shape, 1),
            storage: Dim::product(&shape),
            shape,
            origin: ValueOrigin::Init,
        };
        let mut b = KernelBuilder::new(&name, Family::Map);
        let new: Vec<(AxisId, AxisId)> = axes
            .iter()
            .map(|(a, e)| (*a, b.axis(&self.kernel.axes[*a as usize].name, e)))
            .collect();
        let mut tiles = vec![];
        for &o in &self.sources {
            let Operand {
                name,
                dtype,
                access,
                elements,
                ..
            } = &self.kernel.operands[o as usize];
            let mut access = access.clone();
            for t in &mut access.terms {
                t.axis = new.iter().find(|n| n.0 == t.axis)?.1;
            }
            access.terms.arrange_by_key(|t| t.axis);
            let from = self.args[o as usize];
            tiles.push(b.load(name, *dtype, access, elements.clone(), from));
        }
        let all: Vec<AxisId> = new.iter().map(|n| n.1).collect();
        let wide = b.map("wide", value.dtype, &all, self.made.clone(), &tiles);
        let dims: Vec<Vec<AxisId>> = all.iter().map(|&a| vec![a]).collect();
        let access = b.access(&value.layout, &dims)?;
        b.store("y", access, value.storage.clone(), next, wide);
        let (kernel, args) = b.finish();
        let work = ItemWork::Kernel {
            kernel: Arc::new(kernel),
            args,
        };
        let made = Item {
            name,
            work,
            nodes: item.nodes.clone(),
            given: None,
        };
        Some((value, made))
    }

    /// The item that reads value `wide` in place of what the map makes.
    fn reading(&self, item: &Item, wide: ValueIx) -> Option<Item> {
        let axes = self.axes()?;
        let mut k = self.kernel.clone();
        let (mut terms, mut step) = (vec![], Dim::ONE);
        for (axis, extent) in axes.into_iter().rev() {
            let next = step.clone() * extent.clone();
            terms.push(Term::flat(axis, extent, step));
            step = next;
        }
        terms.arrange_by_key(|t| t.axis);
        let name = &self.kernel.tiles[self.wide as usize].name;
        let mut operand = Operand::new(
            name,
            self.kernel.tiles[self.wide as usize].dtype,
            Role::Read,
            Access::strided(Dim::ZERO, terms),
            step,
        );
        operand.name.push_str(".all");
        // It stands where the numbers stood.
        k.operands[self.numbers as usize] = operand;
        let mut args = self.args.to_vec();
        args[self.numbers as usize] = wide;
        let gone = |o: OperandId| self.sources.contains(&o) && o != self.numbers;
        let before = |o: OperandId| (0..o).filter(|&x| gone(x)).count() as OperandId;
        k.body.retain(|s| match s {
            Stmt::Load { operand, .. } => !self.sources.contains(operand),
            _ => true,
        });
        for s in &mut k.body {
            match s {
                Stmt::Map { dst, .. } if *dst == self.wide => {
                    *s = Stmt::Load {
                        dst: self.wide,
                        operand: self.numbers - before(self.numbers),
                    };
                }
                Stmt::Load { operand, .. } | Stmt::Store { operand, .. } => {
                    *operand -= before(*operand);
                }
                _ => {}
            }
        }
        for o in &mut k.operands {
            o.access
                .indexed
                .iter_mut()
                .for_each(|i| i.by -= before(i.by));
        }
        let kept = |o: usize| !gone(o as OperandId);
        let mut n = 0..;
        k.operands.retain(|_| n.next().is_some_and(kept));
        let mut n = 0..;
        args.retain(|_| n.next().is_some_and(kept));
        Some(Item {
            work: ItemWork::Kernel {
                kernel: Arc::new(simplify(k)),
                args,
            },
            ..item.clone()
        })
    }
}
