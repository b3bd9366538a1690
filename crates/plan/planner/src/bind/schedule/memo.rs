//! Choices made so far: kernels that differ in their names alone are looked at once per bind.
use super::candidate::Choice;
use super::form::Facts;
use super::{choose, relaid, split};
use crate::bind::ctx::Ctx;
use crate::bind::prior;
use foldhash::HashMap;
use kernel::{Kernel, OperandId};
use plan::Why;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// Device, hash of the kernel but for its names, and the levels that operands are found in.
type Key = (u32, u64, Vec<u8>);

struct Known {
    kernel: Arc<Kernel>,
    constants: Vec<bool>,
    /// How an earlier plan packed each operand.
    packings: Vec<Vec<Arc<Kernel>>>,
    choice: Choice,
    why: Why,
}

/// What one bind chose.
#[derive(Default)]
pub(crate) struct Memo(HashMap<Key, Vec<Known>>);

/// Whether two kernels are one but for names.
fn same(a: &Kernel, b: &Kernel) -> bool {
    a.family == b.family
        && a.axes == b.axes
        && a.body == b.body
        && a.operands.len() == b.operands.len()
        && a.tiles.len() == b.tiles.len()
        && a.tiles
            .iter()
            .zip(&b.tiles)
            .all(|(x, y)| x.dtype == y.dtype && x.axes == y.axes)
        && a.operands.iter().zip(&b.operands).all(|(x, y)| {
            x.dtype == y.dtype
                && x.role == y.role
                && x.access == y.access
                && x.elements == y.elements
        })
}

/// Whether operands and tiles of `chosen` are called as in `given`, and others stand behind them: then another kernel's
/// names can be put in their place.
fn keeps_names(chosen: &Kernel, given: &Kernel) -> bool {
    chosen.operands.len() >= given.operands.len()
        && chosen.tiles.len() >= given.tiles.len()
        && chosen
            .operands
            .iter()
            .zip(&given.operands)
            .all(|(x, y)| x.name == y.name)
        && chosen
            .tiles
            .iter()
            .zip(&given.tiles)
            .all(|(x, y)| x.name == y.name)
}

/// `chosen` with the names of `given`.
fn named(chosen: &Kernel, given: &Kernel) -> Arc<Kernel> {
    let mut out = chosen.clone();
    out.name.clone_from(&given.name);
    for (o, named) in out.operands.iter_mut().zip(&given.operands) {
        o.name.clone_from(&named.name);
    }
    for (t, named) in out.tiles.iter_mut().zip(&given.tiles) {
        t.name.clone_from(&named.name);
    }
    out.into()
}

impl Memo {
    /// As [`choose`] for a kernel on device `place`.
    pub fn choose(
        &mut self,
        ctx: Ctx,
        place: u32,
        kernel: &Arc<Kernel>,
        facts: &Facts,
        whys: &mut Vec<Why>,
    ) -> Result<Choice, String> {
        // A sweep looks at kernels by name; what a text says it says of one kernel.
        if ctx.sweep.is_some() || facts.given.is_some() {
            return choose(ctx, kernel, facts, whys);
        }
        let level = |f: &f64| ctx.machine.nearest_holding_index(*f) as u8;
        let levels = ctx.far.iter().map(level).collect();
        let mut hasher = self.0.hasher().build_hasher();
        kernel.hash_unnamed(&mut hasher);
        let key = (place, hasher.finish(), levels);
        let operands = 0..kernel.operands.len() as OperandId;
        let constants: Vec<bool> = operands.clone().map(facts.constant).collect();
        let alike = |k: &[Vec<Arc<Kernel>>]| {
            let mut each = operands.clone().zip(k);
            each.all(|(o, k)| {
                let now = facts.packings(o);
                now.len() == k.len() && now.iter().zip(k).all(|(a, b)| prior::alike(a, b))
            })
        };
        let known = self.0.entry(key).or_default();
        let hit = known
            .iter()
            .find(|k| k.constants == constants && alike(&k.packings) && same(&k.kernel, kernel));
        let renamed = |k: &Known| -> Option<Choice> {
            let mut choice = k.choice.clone();
            choice.kernel = match (&mut choice.parts, &facts.earlier) {
                (Some(p), _) => {
                    let kernel = &relaid::reading(kernel, &choice.packed);
                    let [first, second] = split::halves(ctx, kernel, p)?;
                    p.first.kernel = named(&p.first.kernel, &first);
                    named(&choice.kernel, &second)
                }
                // The same kernel under its own names is there already.
                (None, Some(e))
                    if e.kernel.name == kernel.name && same(e.kernel, &choice.kernel) =>
                {
                    e.kernel.clone()
                }
                _ => named(&choice.kernel, kernel),
            };
            Some(choice)
        };
        if let Some((k, choice)) = hit.and_then(|k| Some((k, renamed(k)?))) {
            whys.push(Why {
                subject: kernel.name.clone(),
                ..k.why.clone()
            });
            return Ok(choice);
        }
        let said = whys.len();
        let choice = choose(ctx, kernel, facts, whys)?;
        // The operands of a sum of parts are others.
        let kept = match &choice.parts {
            None => keeps_names(&choice.kernel, kernel),
            Some(p) => {
                let kernel = &relaid::reading(kernel, &choice.packed);
                split::halves(ctx, kernel, p).is_some_and(|[first, second]| {
                    keeps_names(&p.first.kernel, &first) && keeps_names(&choice.kernel, &second)
                })
            }
        };
        if let [why] = &whys[said..]
            && kept
        {
            known.push(Known {
                kernel: kernel.clone(),
                constants,
                packings: operands.map(|o| facts.packings(o).to_vec()).collect(),
                choice: choice.clone(),
                why: why.clone(),
            });
        }
        Ok(choice)
    }
}
