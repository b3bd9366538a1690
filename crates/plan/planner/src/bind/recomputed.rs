//! Steps that their one reader makes for itself, on GPUs, where every step costs its launch: where one step alone reads
//! what another writes, and is predicted to take less with what each of its tasks needs of that made by the task than both
//! take, the program gets one step for the two. The fusion rule knows no machine and keeps such pairs apart.
use super::alike::Alike;
use super::ctx::Ctx;
use super::launch::joins;
use super::prior::Prior;
use super::recency::Recency;
use super::schedule::{Asked, Memo};
use crate::merge::{ItemMerge, Joinable, LESS, Paired, join, joinings};
use crate::state::StateValue;
use kernel::Kernel;
use layout::Arrange;
use machine::units;
use plan::{Alternative, Item, ItemWork, Program, Segment, ValueIx, ValueOrigin, Why};
use std::sync::Arc;

/// What is known where it is decided.
struct Deciding<'a> {
    program: &'a Program,
    ctx: Ctx<'a>,
    place: u32,
    prior: &'a Prior<'a>,
    /// How far away the operands of every item of a segment are.
    far: Vec<Vec<Vec<f64>>>,
}

/// A kind of pairs, with the seconds of both steps and of the one for the two.
struct Gain {
    apart: f64,
    one: f64,
    kind: Vec<ItemMerge>,
}

/// The program with such steps on the last device, `None` where there are none; `states` lie in place. `known` says
/// whether all sizes of items are.
pub(super) fn recomputed(
    program: &Program,
    states: &[StateValue],
    ctxs: &[Ctx],
    prior: &Prior,
    known: impl Fn(&[Item]) -> bool,
    (memo, whys): (&mut Memo, &mut Vec<Why>),
) -> Option<Program> {
    let &ctx = ctxs.last()?;
    if !joins(ctx) || ctx.sweep.is_some() {
        return None;
    }
    // What is known only while a request runs is planned for then.
    let known = |s: &Segment| known(s.items());
    let which = match ctx.target.efficiencies.products {
        Some(_) => Joinable::Productless,
        None => Joinable::All,
    };
    let mut pairs = joinings(program, which);
    // No step reads the past while it writes the present.
    let overwrites = |item: &Item| {
        let (reads, writes) = (item.reads(), item.writes());
        let both = |s: &StateValue| reads.contains(&s.past) && writes.contains(&s.present);
        states.iter().any(both)
    };
    pairs.retain(|j| known(&program.segments[j.at.0]) && !overwrites(&j.item));
    if pairs.is_empty() {
        return None;
    }
    let far = program.segments.iter().map(|s| match s {
        Segment::Straight(items) if known(s) => distances(program, ctx, items),
        _ => vec![],
    });
    let d = Deciding {
        program,
        ctx,
        place: ctxs.len() as u32 - 1,
        prior,
        far: far.collect(),
    };
    let gains = d.gains(pairs, memo);
    if gains.is_empty() {
        return None;
    }
    let mut part = Paired::default();
    let mut chosen: Vec<ItemMerge> = vec![];
    for Gain {
        apart,
        one,
        mut kind,
    } in gains
    {
        part.take(&mut kind);
        for j in &kind {
            let (s, a, b) = j.at;
            let items = program.segments[s].items();
            whys.push(Why {
                pass: "merge".into(),
                subject: j.item.name.clone(),
                choice: format!(
                    "'{}' is made by the tasks of '{}'",
                    items[a].name, items[b].name
                ),
                alternatives: vec![Alternative {
                    what: "in two steps, as the model's fusion has them".into(),
                    predicted_s: apart,
                }],
                reason: format!("predicted {}", units::seconds(one)),
            });
        }
        chosen.extend(kind);
    }
    let list: Vec<&ItemMerge> = chosen.iter().collect();
    Some(join(program, &list))
}

/// How far away the operands of each item are.
fn distances(program: &Program, ctx: Ctx, items: &[Item]) -> Vec<Vec<f64>> {
    let mut recency = Recency::of_items(program, ctx, items);
    let of = |item: &Item| match &item.work {
        ItemWork::Kernel { kernel, args } => recency.next(program, ctx, kernel, args),
        ItemWork::Host { .. } => vec![],
    };
    items.iter().map(of).collect()
}

impl Deciding<'_> {
    /// The pairs whose kernels differ in names alone, together.
    fn kinds(&self, pairs: Vec<ItemMerge>) -> Vec<Vec<ItemMerge>> {
        let mut kinds: Vec<Vec<ItemMerge>> = vec![];
        let mut alike = Alike::default();
        for j in pairs {
            let (s, a, b) = j.at;
            let items = self.program.segments[s].items();
            let kernels = [&items[a], &items[b]].map(kernel);
            let [Some((first, _)), Some((second, _))] = kernels else {
                continue;
            };
            let kind = alike.number(&[first, second]);
            if kind == kinds.len() {
                kinds.push(vec![]);
            }
            kinds[kind].push(j);
        }
        kinds
    }

    /// What gains of `pairs`, the most first.
    fn gains(&self, pairs: Vec<ItemMerge>, memo: &mut Memo) -> Vec<Gain> {
        let kinds = self.kinds(pairs);
        // Both steps are chosen for anyway.
        let two = kinds.iter().flat_map(|k| {
            let [first, second, _] = self.asked(&k[0]);
            [first, second]
        });
        memo.prepare(&two.flatten().collect::<Vec<_>>());
        let each = kinds.iter().map(|k| self.apart(&k[0], memo));
        let apart: Vec<Option<f64>> = each.collect();
        let one = kinds.iter().zip(&apart).map(|(kind, apart)| {
            let [.., one] = self.asked(&kind[0]);
            one.zip(*apart)
        });
        let one: Vec<Option<(Asked, f64)>> = one.collect();
        let one = plan::parallel::map(&one, |asked| {
            let (one, apart) = asked.as_ref()?;
            one.quick((1.0 - LESS) * apart)
        });
        let all = kinds.into_iter().zip(apart).zip(one);
        let mut out: Vec<Gain> = all
            .filter_map(|((kind, apart), one)| {
                Some(Gain {
                    apart: apart?,
                    one: one?,
                    kind,
                })
            })
            .collect();
        out.arrange_by(|a, b| (b.apart - b.one).total_cmp(&(a.apart - a.one)));
        out
    }

    /// What is asked of both steps, and of the one for the two.
    fn asked<'s>(&'s self, j: &'s ItemMerge) -> [Option<Asked<'s>>; 3] {
        let (s, a, b) = j.at;
        let items = self.program.segments[s].items();
        let far = &self.far[s];
        let of = |i: usize| {
            let (kernel, args) = kernel(&items[i])?;
            Some(self.about(kernel, args, far[i].clone()))
        };
        let one = || {
            let (kernel, args) = kernel(&j.item)?;
            let known = |v: &ValueIx| {
                [b, a].into_iter().find_map(|i| {
                    let (_, all) = self::kernel(&items[i])?;
                    far[i].get(all.iter().position(|x| x == v)?).copied()
                })
            };
            let far: Option<Vec<f64>> = args.iter().map(known).collect();
            Some(self.about(kernel, args, far?))
        };
        [of(a), of(b), one()]
    }

    fn about<'s>(&'s self, kernel: &'s Arc<Kernel>, args: &[ValueIx], far: Vec<f64>) -> Asked<'s> {
        let constant = |&v: &ValueIx| {
            let origin = &self.program.value(v).origin;
            self.ctx.pack && matches!(origin, ValueOrigin::Weight(_) | ValueOrigin::Init)
        };
        let packings = |&v: &ValueIx| self.prior.packings(&self.program.value(v).name);
        Asked {
            ctx: self.ctx,
            place: self.place,
            kernel,
            far,
            constants: args.iter().map(constant).collect(),
            packings: args.iter().map(packings).collect(),
            earlier: None,
            given: None,
        }
    }

    /// Whether `item`, which stands where the first of the pair does, reads what the item before writes.
    fn follows(&self, j: &ItemMerge, item: &Item) -> bool {
        let (s, a, _) = j.at;
        let before = a
            .checked_sub(1)
            .and_then(|i| self.program.segments[s].items().get(i));
        before.is_some_and(|x| x.writes().iter().any(|v| item.reads().contains(v)))
    }

    /// Seconds of both steps; `None` where one of them does not run there.
    fn apart(&self, j: &ItemMerge, memo: &mut Memo) -> Option<f64> {
        let (s, a, _) = j.at;
        let [first, second, _] = self.asked(j);
        let first_follows = self.follows(j, &self.program.segments[s].items()[a]);
        let one = self.least(&first?, first_follows, memo)?;
        Some(one + self.least(&second?, true, memo)?)
    }

    /// Seconds of a step, in the launch of the one before where it follows that and takes less so.
    fn least(&self, asked: &Asked, follows: bool, memo: &mut Memo) -> Option<f64> {
        let own = memo.choose(asked, &mut vec![]).ok()?;
        let seconds = own.parts.as_ref().map_or(own.cost.time_s, |p| p.seconds);
        let joined = self.ctx.machine.joined_s(1);
        let one_task = match follows {
            true => memo.one_task(asked, seconds + joined, None),
            false => None,
        };
        let beside = one_task.map_or(f64::INFINITY, |(c, _)| c.cost.time_s - joined);
        Some(seconds.min(beside))
    }
}

/// Kernel and arguments of an item.
fn kernel(item: &Item) -> Option<(&Arc<Kernel>, &[ValueIx])> {
    match &item.work {
        ItemWork::Kernel { kernel, args } => Some((kernel, args)),
        ItemWork::Host { .. } => None,
    }
}
