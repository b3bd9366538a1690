//! Choices made so far: kernels that differ in their names alone are looked at once per bind.
use super::candidate::Choice;
use super::form::Facts;
use super::{choose, one_task, quick, relaid, split};
use crate::bind::ctx::Ctx;
use crate::bind::prior::{self, Earlier};
use foldhash::HashMap;
use kernel::{Given, Kernel};
use plan::Why;
use plan::parallel;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// Device, hash of the kernel but for its names, the levels that operands are found in, and threads of one task at most.
#[derive(PartialEq, Eq, Hash)]
struct Key(u32, u64, Vec<u8>, Option<u32>);

/// A kernel that is to be run.
pub(crate) struct Asked<'a> {
    /// What decisions on its device see.
    pub ctx: Ctx<'a>,
    /// The device.
    pub place: u32,
    /// The kernel.
    pub kernel: &'a Arc<Kernel>,
    /// As in [`Ctx`].
    pub far: Vec<f64>,
    /// By operand whether it is a constant that may be packed.
    pub constants: Vec<bool>,
    /// As in [`Facts`].
    pub packings: Vec<&'a [Arc<Kernel>]>,
    /// As in [`Facts`].
    pub earlier: Option<Earlier<'a>>,
    /// As in [`Facts`].
    pub given: Option<&'a Given>,
}

impl Asked<'_> {
    fn choose(&self, whys: &mut Vec<Why>) -> Result<Choice, String> {
        self.seen(|ctx, facts| choose(ctx, self.kernel, facts, whys))
    }

    /// As [`quick`].
    pub fn quick(&self, limit: f64) -> Option<f64> {
        self.seen(|ctx, facts| quick(ctx, self.kernel, facts, limit))
    }

    /// What `f` makes of what is known of the kernel.
    fn seen<T>(&self, f: impl FnOnce(Ctx, &Facts) -> T) -> T {
        let facts = Facts {
            constant: &|o| self.constants.get(o as usize) == Some(&true),
            packings: &self.packings,
            earlier: self.earlier.clone(),
            given: self.given,
            whole: false,
        };
        let ctx = Ctx {
            far: &self.far,
            ..self.ctx
        };
        f(ctx, &facts)
    }

    /// Whether what is chosen is kept: a sweep looks at kernels by name; what a text says it says of one kernel.
    fn kept(&self) -> bool {
        self.ctx.sweep.is_none() && self.given.is_none()
    }

    /// Whether what is chosen for `other` is chosen for this one.
    fn same(&self, other: &Asked) -> bool {
        self.constants == other.constants
            && self.packed_alike(other.packings.iter().copied())
            && self.kernel.same_unnamed(other.kernel)
    }

    /// Whether its operands are packed already as `all` says, operand by operand.
    fn packed_alike<'k>(&self, all: impl ExactSizeIterator<Item = &'k [Arc<Kernel>]>) -> bool {
        let alike = |(now, then): (&&[Arc<Kernel>], &[Arc<Kernel>])| {
            now.len() == then.len() && now.iter().zip(then).all(|(a, b)| prior::alike(a, b))
        };
        all.len() == self.packings.len() && self.packings.iter().zip(all).all(alike)
    }
}

struct Known {
    kernel: Arc<Kernel>,
    constants: Vec<bool>,
    /// How an earlier plan packed each operand.
    packings: Vec<Vec<Arc<Kernel>>>,
    choice: Choice,
    whys: Vec<Why>,
    /// Whether it is for the kernel with these names alone.
    named: bool,
}

/// Choices by kernel.
type ByKernel = HashMap<Key, Vec<Known>>;

/// What one bind chose.
#[derive(Default)]
pub(crate) struct Memo {
    chosen: ByKernel,
    /// Of one task each.
    one_task: ByKernel,
    /// Where none of one task takes less than so many seconds.
    refused: HashMap<Key, f64>,
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

impl Known {
    /// The choice for `asked`, where it is this one.
    fn renamed(&self, asked: &Asked) -> Option<Choice> {
        let (ctx, kernel) = (asked.ctx, asked.kernel);
        let same = self.constants == asked.constants
            && asked.packed_alike(self.packings.iter().map(Vec::as_slice))
            && self.kernel.same_unnamed(kernel);
        if !same || self.named && self.kernel != *kernel {
            return None;
        }
        let mut choice = self.choice.clone();
        if self.named {
            return Some(choice);
        }
        choice.kernel = match (&mut choice.parts, &asked.earlier) {
            (Some(p), _) => {
                let kernel = &relaid::reading(kernel, &choice.packed);
                let [first, second] = split::halves(ctx, kernel, p)?;
                p.first.kernel = named(&p.first.kernel, &first);
                named(&choice.kernel, &second)
            }
            // The same kernel under its own names is there already.
            (None, Some(e))
                if e.kernel.name == kernel.name && e.kernel.same_unnamed(&choice.kernel) =>
            {
                e.kernel.clone()
            }
            _ => named(&choice.kernel, kernel),
        };
        Some(choice)
    }
}

impl Memo {
    /// As [`choose`].
    pub fn choose(&mut self, asked: &Asked, whys: &mut Vec<Why>) -> Result<Choice, String> {
        if !asked.kept() {
            return asked.choose(whys);
        }
        let key = self.key(asked);
        if let Some((known, choice)) = found(&self.chosen, &key, asked) {
            whys.extend(known.whys.iter().map(|w| Why {
                subject: match known.named {
                    true => w.subject.clone(),
                    false => asked.kernel.name.clone(),
                },
                ..w.clone()
            }));
            return Ok(choice);
        }
        let said = whys.len();
        let choice = asked.choose(whys)?;
        add(&mut self.chosen, key, asked, &choice, whys[said..].to_vec());
        Ok(choice)
    }

    /// As [`one_task`], with what it is called.
    pub fn one_task(
        &mut self,
        asked: &Asked,
        limit: f64,
        most: Option<u32>,
    ) -> Option<(Choice, String)> {
        if !asked.kept() {
            return None;
        }
        let mut key = self.key(asked);
        key.3 = most;
        if let Some((known, choice)) = found(&self.one_task, &key, asked) {
            return Some((choice, known.whys.first()?.choice.clone()));
        }
        if self.refused.get(&key).is_some_and(|&most| limit <= most) {
            return None;
        }
        let found = asked.seen(|ctx, facts| one_task(ctx, asked.kernel, facts, (limit, most)));
        let Some((choice, what)) = found else {
            self.refused.insert(key, limit);
            return None;
        };
        let called = Why {
            pass: "schedule".into(),
            subject: asked.kernel.name.clone(),
            choice: what.clone(),
            alternatives: vec![],
            reason: String::new(),
        };
        add(&mut self.one_task, key, asked, &choice, vec![called]);
        Some((choice, what))
    }

    /// Chooses for all of `list` on several threads, so that [`Memo::choose`] finds it.
    pub fn prepare(&mut self, list: &[Asked]) {
        let mut open: Vec<(Key, &Asked)> = vec![];
        for asked in list.iter().filter(|a| a.kept()) {
            let key = self.key(asked);
            let other = |o: &(Key, &Asked)| o.0 == key && asked.same(o.1);
            if found(&self.chosen, &key, asked).is_none() && !open.iter().any(other) {
                open.push((key, asked));
            }
        }
        let chosen = parallel::map(&open, |(_, asked)| {
            let mut whys = vec![];
            let choice = asked.choose(&mut whys);
            choice.ok().map(|c| (c, whys))
        });
        for ((key, asked), chosen) in open.into_iter().zip(chosen) {
            if let Some((choice, whys)) = chosen {
                add(&mut self.chosen, key, asked, &choice, whys);
            }
        }
    }

    fn key(&self, asked: &Asked) -> Key {
        let machine = asked.ctx.machine;
        let level = |f: &f64| machine.nearest_holding_index(*f) as u8;
        let levels = asked.far.iter().map(level).collect();
        let mut hasher = self.chosen.hasher().build_hasher();
        asked.kernel.hash_unnamed(&mut hasher);
        Key(asked.place, hasher.finish(), levels, None)
    }
}

fn found<'m>(all: &'m ByKernel, key: &Key, asked: &Asked) -> Option<(&'m Known, Choice)> {
    let known = all.get(key)?;
    known.iter().find_map(|k| Some((k, k.renamed(asked)?)))
}

fn add(all: &mut ByKernel, key: Key, asked: &Asked, choice: &Choice, whys: Vec<Why>) {
    let (ctx, kernel) = (asked.ctx, asked.kernel);
    // The operands of a sum of parts are others.
    let keeps = match &choice.parts {
        None => keeps_names(&choice.kernel, kernel),
        Some(p) => {
            let kernel = &relaid::reading(kernel, &choice.packed);
            split::halves(ctx, kernel, p).is_some_and(|[first, second]| {
                keeps_names(&p.first.kernel, &first) && keeps_names(&choice.kernel, &second)
            })
        }
    };
    all.entry(key).or_default().push(Known {
        kernel: kernel.clone(),
        constants: asked.constants.clone(),
        packings: asked.packings.iter().map(|p| p.to_vec()).collect(),
        choice: choice.clone(),
        named: !keeps || whys.len() != 1,
        whys,
    });
}
