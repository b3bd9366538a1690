//! How many bytes a request touches between two uses of a value: what a cache must hold for the second
//! to find it there.
use super::ctx::Ctx;
use kernel::{Kernel, Role};
use layout::DimMap;
use plan::{Item, ItemWork, Program, ValueIx, ValueOrigin};
use std::collections::BTreeMap;

/// Values of a kernel's operands with the bytes that it may touch of each, whether it writes them, and
/// whether they lie in a request's own memory.
fn touched(
    program: &Program,
    ctx: Ctx,
    kernel: &Kernel,
    args: &[ValueIx],
    tops: &mut DimMap<i64>,
) -> Vec<(u32, f64, bool, bool)> {
    let one = |(o, &v): (&kernel::Operand, &ValueIx)| {
        let top = tops.get(&o.elements).copied().unwrap_or_else(|| {
            let top = ctx.top(&o.elements);
            tops.insert(&o.elements, top);
            top
        });
        let elements = top.max(0) as f64;
        let bytes = elements * f64::from(o.dtype.bits()) / 8.0;
        let made = matches!(program.value(v).origin, ValueOrigin::Made);
        (v, bytes, o.role == Role::Write, made)
    };
    kernel.operands.iter().zip(args).map(one).collect()
}

/// Values by number, in the order in which steps touch them.
#[derive(Clone, Debug, Default)]
pub struct Recency {
    /// Bytes touched so far.
    clock: f64,
    last: BTreeMap<u32, f64>,
    /// Bytes of everything that a request touches: what lies between two requests' uses of a weight.
    pub everything: f64,
    /// Bytes that what a request makes lies in.
    pub arena: f64,
    /// Sizes of operands at the top of the box.
    tops: DimMap<i64>,
}

impl Recency {
    /// Of steps given as their values with bytes and whether a request makes them, in order. `arena`:
    /// bytes of the memory that those lie in, where it is known.
    pub fn of(steps: &[Vec<(u32, f64, bool)>], arena: Option<f64>) -> Recency {
        let mut known: BTreeMap<u32, (f64, bool, usize, usize)> = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            for &(v, bytes, made) in step {
                let e = known.entry(v).or_insert((bytes, made, at, at));
                (e.0, e.3) = (e.0.max(bytes), at);
            }
        }
        let kept: f64 = known.values().filter(|k| !k.1).map(|k| k.0).sum();
        let arena = arena.unwrap_or_else(|| {
            let mut grows = vec![0.0; steps.len() + 1];
            for &(bytes, _, from, to) in known.values().filter(|k| k.1) {
                grows[from] += bytes;
                grows[to + 1] -= bytes;
            }
            let (mut now, mut most) = (0.0, 0.0f64);
            for g in grows {
                now += g;
                most = most.max(now);
            }
            most
        });
        Recency {
            clock: 0.0,
            last: BTreeMap::new(),
            everything: kept + arena,
            arena,
            tops: DimMap::default(),
        }
    }

    /// Of a block's items in their order.
    pub(crate) fn of_items(program: &Program, ctx: Ctx, items: &[Item]) -> Recency {
        let mut tops = DimMap::default();
        let step = |i: &Item| match &i.work {
            ItemWork::Kernel { kernel, args } => {
                let all = touched(program, ctx, kernel, args, &mut tops).into_iter();
                all.map(|(v, b, _, made)| (v, b, made)).collect()
            }
            ItemWork::Host { .. } => vec![],
        };
        let steps: Vec<Vec<(u32, f64, bool)>> = items.iter().map(step).collect();
        Recency {
            tops,
            ..Recency::of(&steps, None)
        }
    }

    /// Goes on to the next step: how far away each of its operands is.
    pub(crate) fn next(
        &mut self,
        program: &Program,
        ctx: Ctx,
        kernel: &Kernel,
        args: &[ValueIx],
    ) -> Vec<f64> {
        let list = touched(program, ctx, kernel, args, &mut self.tops);
        let far =
            |&(v, b, written, made): &(u32, f64, bool, bool)| self.distance(v, b, written && made);
        let out = list.iter().map(far).collect();
        let values: Vec<(u32, f64)> = list.iter().map(|t| (t.0, t.1)).collect();
        self.touch(&values);
        out
    }

    /// Bytes touched since `value` was, this step's own among them. What the step makes takes memory
    /// of the arena that was used before.
    pub fn distance(&self, value: u32, bytes: f64, made: bool) -> f64 {
        let since = match made {
            true => self.arena,
            false => self
                .last
                .get(&value)
                .map_or(self.everything, |l| self.clock - l),
        };
        since.min(self.everything) + bytes
    }

    /// A step that touches `values`.
    pub fn touch(&mut self, values: &[(u32, f64)]) {
        self.clock += values.iter().map(|v| v.1).sum::<f64>();
        for v in values {
            self.last.insert(v.0, self.clock);
        }
    }
}
