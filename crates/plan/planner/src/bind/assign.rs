//! Which device runs each item of a block, decided before any of them is lowered.
//!
//! Items that write into one value (what a concatenation joins, state in place) are on one device: two
//! halves of a value on two devices are no value.
use super::block::{BlockBuilder, BlockInterface, Homes};
use super::cut::{CutValue, NEVER, Problem};
use super::predict::predict_step;
use super::recency::Recency;
use super::{Placement, schedule, why};
use crate::state::StateValue;
use kernel::Kernel;
use layout::Dim;
use machine::units;
use plan::{Alternative, Item, ItemWork, PlanError, ValueIx, ValueOrigin, Why};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An item's time on one device, or why it has no form there.
type Priced = Result<f64, String>;

impl<'a> BlockBuilder<'a> {
    /// Decides where `items` and `states` are, and says why.
    pub(super) fn assign(
        &mut self,
        items: &[Item],
        rim: &BlockInterface,
        states: &[StateValue],
    ) -> Result<Homes, PlanError> {
        let last = self.ctxs.len() as u32 - 1;
        if last == 0 {
            return Ok(Homes {
                items: vec![0; items.len()],
                states: vec![0; states.len()],
            });
        }
        let first_writer = writers(items);
        let far = self.distances(items)?;
        let cut = *self.placement == Placement::Cut;
        self.choose_ahead(items, &far, cut);
        let mut homes = vec![];
        let mut prices: Vec<[Priced; 2]> = vec![];
        for (i, (item, far)) in items.iter().zip(&far).enumerate() {
            let ItemWork::Kernel { kernel, args } = &item.work else {
                homes.push(0);
                prices.push([Ok(0.0), Err("a host operator".into())]);
                continue;
            };
            let mut wanted = self.placement.of(i, self.ctxs.len());
            let there = self.price(item, kernel, args, wanted, far);
            if wanted != 0
                && let Err(e) = &there
            {
                let refused = why("place", &item.name, "on the host", e.clone());
                self.whys.push(refused);
                wanted = 0;
            }
            homes.push(wanted);
            prices.push(match cut {
                true => [self.price(item, kernel, args, 0, far), there],
                false => [Ok(0.0), there],
            });
        }
        let mut out = Homes {
            items: homes,
            states: vec![last; states.len()],
        };
        match cut {
            true => self.cut(items, rim, states, &prices, &mut out),
            false => self.together(items, states, &first_writer, &mut out),
        }
        Ok(out)
    }

    /// How far away the operands of each item are.
    fn distances(&mut self, items: &[Item]) -> Result<Vec<Vec<f64>>, PlanError> {
        let mut recency = Recency::of_items(self.program, self.ctx, items);
        let of = |item: &Item| match &item.work {
            ItemWork::Kernel { kernel, args } => {
                self.check_dims(&item.name, kernel)?;
                Ok(recency.next(self.program, self.ctx, kernel, args))
            }
            ItemWork::Host { .. } => Ok(vec![]),
        };
        items.iter().map(of).collect()
    }

    /// Chooses how every device that may get an item runs it.
    fn choose_ahead(&mut self, items: &[Item], far: &[Vec<f64>], cut: bool) {
        let mut all = vec![];
        for (i, (item, far)) in items.iter().zip(far).enumerate() {
            let ItemWork::Kernel { kernel, args } = &item.work else {
                continue;
            };
            let wanted = self.placement.of(i, self.ctxs.len());
            let places = [wanted, 0].into_iter().take(if cut { 2 } else { 1 });
            let own = places.map(|p| self.asked(item, (kernel, args), p, far.clone(), false));
            all.extend(own);
        }
        self.memo.prepare(&all);
    }

    /// Items that write one value go where one of them has to be, else to the first's device.
    fn together(
        &mut self,
        items: &[Item],
        states: &[StateValue],
        first_writer: &BTreeMap<ValueIx, usize>,
        out: &mut Homes,
    ) {
        let state = |v| states.iter().position(|s| s.present == v);
        loop {
            let mut changed = false;
            for (i, item) in items.iter().enumerate() {
                for v in item.writes() {
                    let first = first_writer[&v];
                    let least = match out.items[i] == 0 || out.items[first] == 0 {
                        true => 0,
                        false => out.items[first],
                    };
                    for other in [i, first] {
                        if out.items[other] != least {
                            out.items[other] = least;
                            changed = true;
                            let reason = "it writes into the same value as a step that runs there";
                            let name = &items[other].name;
                            self.whys.push(why("place", name, "with another", reason));
                        }
                    }
                    if let Some(s) = state(v) {
                        out.states[s] = out.items[i];
                    }
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Seconds of `item` on device `place`, with what it packs in every request.
    fn price(
        &mut self,
        item: &Item,
        kernel: &Arc<Kernel>,
        args: &[ValueIx],
        place: u32,
        far: &[f64],
    ) -> Priced {
        let said = self.whys.len();
        let choice = self.choice(item, (kernel, args), place, far, false);
        self.whys.truncate(said);
        let choice = choice?;
        let whole = choice.cost.time_s;
        let mut seconds = choice.parts.as_ref().map_or(whole, |p| p.seconds);
        for (_, packed) in &choice.packed {
            if !self.constant(args[packed.of as usize]) {
                let ctx = self.ctxs[place as usize];
                let step = predict_step(ctx, &packed.kernel, &packed.schedule);
                seconds += step.map_or(0.0, |s| s.1.time_s);
            }
        }
        Ok(seconds)
    }

    /// The placement of least predicted time.
    fn cut(
        &mut self,
        items: &[Item],
        rim: &BlockInterface,
        states: &[StateValue],
        prices: &[[Priced; 2]],
        out: &mut Homes,
    ) {
        let mut p = Problem::default();
        let seconds = |p: &Priced| *p.as_ref().unwrap_or(&NEVER);
        let both = |pair: &[Priced; 2]| [seconds(&pair[0]), seconds(&pair[1])];
        p.things = prices.iter().map(both).collect();
        let caller = p.fixed();
        let first_state = p.things.len();
        p.things.extend(states.iter().map(|_| [0.0, 0.0]));
        let state = |v| states.iter().position(|s| s.past == v || s.present == v);
        // A value as it is after its last write so far.
        let mut now: BTreeMap<ValueIx, usize> = BTreeMap::new();
        let mut first: BTreeMap<ValueIx, usize> = BTreeMap::new();
        for (i, item) in items.iter().enumerate() {
            for v in item.reads() {
                if self.constant(v) {
                    continue;
                }
                let made = state(v).map_or(caller, |s| first_state + s);
                let at = *now.entry(v).or_insert_with(|| {
                    p.values.push(self.passed(v, made));
                    p.values.len() - 1
                });
                p.values[at].read.push(i);
            }
            for v in item.writes() {
                match state(v) {
                    Some(s) => p.tied.push((first_state + s, i)),
                    None => {
                        let one = *first.entry(v).or_insert(i);
                        if one != i {
                            p.tied.push((one, i));
                        }
                    }
                }
                now.insert(v, p.values.len());
                let mut passed = self.passed(v, i);
                if rim.outputs.contains(&v) && state(v).is_none() {
                    passed.read.push(caller);
                }
                p.values.push(passed);
            }
        }
        let far = p.solve();
        for (i, home) in out.items.iter_mut().enumerate() {
            *home = u32::from(far[i]);
        }
        for (s, home) in out.states.iter_mut().enumerate() {
            *home = u32::from(far[first_state + s]);
        }
        self.tell(items, prices, &p, &far);
    }

    fn passed(&self, v: ValueIx, made: usize) -> CutValue {
        let value = self.program.value(v);
        let elements = self.elements(&value.storage).unwrap_or(0).max(0) as usize;
        let bytes = value.dtype.bytes_for(elements).unwrap_or(0) as f64;
        let link = |from, to| self.transfer_cost(from, to, bytes).time_s;
        CutValue {
            made,
            read: vec![],
            seconds: [link(0, 1), link(1, 0)],
        }
    }

    /// Elements that a buffer for `storage` has.
    pub(super) fn elements(&self, storage: &Dim) -> Option<i64> {
        let r = self.ctx.dims.bounds(storage)?;
        Some(r.hi.max(self.ctx.top(storage)))
    }

    /// Whether `v` is the same in every request.
    pub(super) fn constant(&self, v: ValueIx) -> bool {
        matches!(
            self.program.value(v).origin,
            ValueOrigin::Weight(_) | ValueOrigin::Init
        )
    }

    /// Whys of a cut: of the whole, and of every item that could have been elsewhere.
    fn tell(&mut self, items: &[Item], prices: &[[Priced; 2]], p: &Problem, far: &[bool]) {
        if items.is_empty() {
            return;
        }
        let names = [0, 1].map(|d: usize| self.ctxs[d].machine.name.clone());
        let name = |far: bool| &names[usize::from(far)];
        let count = far[..items.len()].iter().filter(|f| **f).count();
        let crosses = |v: &&CutValue| v.read.iter().any(|&r| far[r] != far[v.made]);
        let copies = p.values.iter().filter(crosses).count();
        let (link, all) = p.seconds(far);
        let alone = [false, true].map(|side| Alternative {
            what: format!("whatever {} has a form for, there", name(side)),
            predicted_s: p.seconds(&p.all_on(side)).1,
        });
        self.whys.push(Why {
            pass: "cut".into(),
            subject: self.program.name.clone(),
            choice: format!(
                "{} steps on {}, {count} on {}, {copies} copies between",
                items.len() - count,
                names[0],
                names[1]
            ),
            alternatives: alone.into_iter().collect(),
            reason: format!(
                "predicted {}, of which {} copying between the two: the least of all placements",
                units::seconds(all),
                units::seconds(link)
            ),
        });
        for ((item, price), &side) in items.iter().zip(prices).zip(far) {
            if let [Ok(here), Ok(there)] = price {
                let (own, other) = match side {
                    false => (here, there),
                    true => (there, here),
                };
                let reason = match own <= other {
                    true => "it takes less time here",
                    false => "what it reads and writes is here: the copies would take longer",
                };
                self.whys.push(Why {
                    pass: "cut".into(),
                    subject: item.name.clone(),
                    choice: format!("on {}, predicted {}", name(side), units::seconds(*own)),
                    alternatives: vec![Alternative {
                        what: format!("on {}", name(!side)),
                        predicted_s: *other,
                    }],
                    reason: reason.into(),
                });
            }
        }
    }

    /// How device `place` runs `item`'s kernel.
    pub(super) fn choice(
        &mut self,
        item: &Item,
        (kernel, args): (&Arc<Kernel>, &[ValueIx]),
        place: u32,
        far: &[f64],
        init: bool,
    ) -> Result<schedule::Choice, String> {
        let asked = self.asked(item, (kernel, args), place, far.to_vec(), init);
        self.memo.choose(&asked, self.whys)
    }

    /// What is asked of `item`'s kernel on device `place`.
    pub(super) fn asked<'s>(
        &self,
        item: &'s Item,
        (kernel, args): (&'s Arc<Kernel>, &[ValueIx]),
        place: u32,
        far: Vec<f64>,
        init: bool,
    ) -> schedule::Asked<'s>
    where
        'a: 's,
    {
        let (program, prior) = (self.program, self.prior);
        let may = self.ctx.pack && !init;
        let constant = |&v: &ValueIx| {
            let origin = &program.value(v).origin;
            may && matches!(origin, ValueOrigin::Weight(_) | ValueOrigin::Init)
        };
        let of = |&v: &ValueIx| prior.packings(&program.value(v).name);
        schedule::Asked {
            ctx: self.ctxs[place as usize],
            place,
            kernel,
            far,
            constants: args.iter().map(constant).collect(),
            packings: args.iter().map(of).collect(),
            earlier: prior.step(&item.name, kernel, place),
            given: item.given.as_deref(),
        }
    }
}

/// The first item that writes each value.
fn writers(items: &[Item]) -> BTreeMap<ValueIx, usize> {
    let mut out = BTreeMap::new();
    for (i, item) in items.iter().enumerate() {
        for v in item.writes() {
            out.entry(v).or_insert(i);
        }
    }
    out
}
