//! Contractions and folds: each thread its own positions, then threads along reduced axes together.
use super::state::{At, Lower, Result, TileStorage};
use super::walk::Guard;
use crate::simt::ir::{Inst, Op, Reg, SharedArray, Ty, Var};
use crate::simt::scalar;
use expr::{Binary, Monoid};
use kernel::{AxisId, Rescale, TileId};
use layout::{Arrange, DType, Inserted};

/// Turns the states of two sets of positions into one.
type Combine<'c, 'a> = &'c mut dyn FnMut(&mut Lower<'a>, &[Reg], &[Reg]) -> Result<Vec<Reg>>;

/// Neighbours that are gone through together along an axis that every thread goes over.
const WHOLE_EACH: u32 = 4;

/// Values that the threads of a CTA exchange through shared memory between two barriers at most.
const EXCHANGED: usize = 2048;

/// Whether sums of this type need no rounding: they have a form of their own.
fn exact_as_it_is(d: DType) -> bool {
    matches!(
        d,
        DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::I64
    )
}

impl<'a> Lower<'a> {
    /// `sum` and the product of tiles `a` and `b`, each with its type, at `at`, as `dtype`.
    fn product(
        &mut self,
        (a, a_type): (TileId, DType),
        (b, b_type): (TileId, DType),
        (dtype, ty): (DType, Ty),
        at: &At,
        sum: Reg,
    ) -> Result<Reg> {
        let mut x = self.value(a, at)?;
        let mut y = self.value(b, at)?;
        for (v, d) in [(&mut x, a_type), (&mut y, b_type)] {
            if d != dtype && !(d.is_float() && ty == Ty::F32 && self.b.ty(*v) == Ty::F32) {
                match scalar::cast(&mut self.b, *v, d, dtype) {
                    Ok(r) => *v = r,
                    Err(why) => return self.fail("element type", why),
                }
            }
        }
        Ok(self.b.op(ty, Op::MulAdd(x, y, sum)))
    }

    /// Every position that a thread has of the tile `acc`, whose axes these are.
    fn positions(&mut self, acc: TileId, axes: &[AxisId]) -> Result<Vec<At>> {
        let mut all: Vec<At> = vec![];
        let every = axes.iter().copied().inserted();
        let origin = self.origin();
        self.walk(axes, &every, Guard::Clamp, origin, &mut |_, at| {
            all.push(at.clone());
            Ok(())
        })?;
        if all.len() > super::storage::MAX_HELD as usize {
            return self.fail(
                "place",
                format!(
                    "a thread would add up {} elements of '{}' side by side; cut the tile",
                    all.len(),
                    self.tile_name(acc)
                ),
            );
        }
        Ok(all)
    }

    /// `acc += a * b` summed over `over`.
    pub fn contract(&mut self, acc: TileId, a: TileId, b: TileId, over: &[AxisId]) -> Result<()> {
        if let Some(f) = self.map.fragment {
            return self.multiply(f, acc, (a, b), over);
        }
        // What lies over the threads of the result is gone through whole by each of them.
        let before = self.axes.clone();
        for &x in over {
            if self.schedule.sums_whole(self.kernel, acc, x) {
                self.gone_through_whole(x, [a, b].iter().all(|t| self.zeroed.contains(t)));
            }
        }
        let done = self.multiply_and_add(acc, a, b, over);
        self.axes = before;
        done
    }

    /// Lets the thread go over all positions of an axis, neighbours together; over those that do not exist too,
    /// where these are 0 (`zeroed`).
    fn gone_through_whole(&mut self, x: AxisId, zeroed: bool) {
        let zero = self.b.int(0);
        let axis = &mut self.axes[x as usize];
        axis.spread.count = 1;
        axis.spread.each = WHOLE_EACH;
        axis.thread = zero;
        if let (true, Some(n)) = (zeroed, axis.bound) {
            axis.full = true;
            axis.len = self.b.int(n);
        }
    }

    fn multiply_and_add(
        &mut self,
        acc: TileId,
        a: TileId,
        b: TileId,
        over: &[AxisId],
    ) -> Result<()> {
        let tile = |t: TileId| &self.kernel.tiles[t as usize];
        let (dtype, axes) = (tile(acc).dtype, tile(acc).axes.clone());
        let types = (tile(a).dtype, tile(b).dtype);
        let ty = self.ty(acc);
        let unrolled = self.unrolled(&[acc, a, b]);
        let apart = over.iter().any(|&x| !self.directions_of(x).is_empty());
        let held = matches!(*self.homes[acc as usize], TileStorage::Held { .. });
        let product = |l: &mut Self, at: &At, sum: Reg| {
            l.product((a, types.0), (b, types.1), (dtype, ty), at, sum)
        };
        let rounded = |l: &mut Self, r: Reg| match exact_as_it_is(dtype) {
            true => r,
            false => l.b.op(ty, Op::Narrow(dtype, r)),
        };
        if !held && !apart {
            // Sums that live elsewhere are taken one after the other, each by one thread.
            let own = self.owner(acc);
            return self.guarded(own, |l| {
                l.walk(&axes, &unrolled, Guard::Skip, l.origin(), &mut |l, at| {
                    let part = l.b.var(ty);
                    let before = l.value(acc, at)?;
                    l.b.set(part, before);
                    l.walk(over, &unrolled, Guard::Skip, at.clone(), &mut |l, at| {
                        let sum = l.b.get(part);
                        let sum = product(l, at, sum)?;
                        l.b.set(part, sum);
                        Ok(())
                    })?;
                    let sum = l.b.get(part);
                    let sum = rounded(l, sum);
                    l.put(acc, at, sum)
                })
            });
        }
        // Registers: one pass over what is summed feeds all of them.
        let all = self.positions(acc, &axes)?;
        let exact = !exact_as_it_is(dtype);
        let mut parts: Vec<Var> = vec![];
        for _ in &all {
            parts.push(self.b.var(ty));
        }
        let zero = self.zero(acc);
        for (at, &part) in all.iter().zip(&parts) {
            let first = match apart || exact {
                true => zero,
                false => self.value(acc, at)?,
            };
            self.b.set(part, first);
        }
        let list: Vec<(At, Var)> = all.iter().cloned().zip(parts.iter().copied()).collect();
        let origin = self.origin();
        self.walk(over, &unrolled, Guard::Skip, origin, &mut |l, k| {
            for (at, part) in &list {
                let mut here = at.clone();
                for &x in over {
                    let i = x as usize;
                    here.coord[i] = k.coord[i];
                    here.slot[i] = k.slot[i];
                    here.valid[i] = k.valid[i];
                }
                here.runs.extend(&k.runs);
                let sum = l.b.get(*part);
                let sum = product(l, &here, sum)?;
                l.b.set(*part, sum);
            }
            Ok(())
        })?;
        let mut sums: Vec<Reg> = list.iter().map(|(_, part)| self.b.get(*part)).collect();
        if apart {
            sums = self.added_across(over, &sums)?;
        }
        for ((at, _), mut sum) in list.into_iter().zip(sums) {
            let mut own = self.owner(acc);
            if !held {
                let exists = self.exists(&axes, &at);
                own = self.b.both(own, exists);
            }
            self.guarded(own, |l| {
                if apart || exact {
                    let before = l.value(acc, &at)?;
                    sum = l.b.binary(Binary::Add, before, sum);
                }
                let sum = rounded(l, sum);
                l.put(acc, &at, sum)
            })?;
        }
        Ok(())
    }

    /// `sums` of all threads along the axes `over`, added up; several between two barriers.
    fn added_across(&mut self, over: &[AxisId], sums: &[Reg]) -> Result<Vec<Reg>> {
        let together = (EXCHANGED / self.map.threads as usize).max(1);
        let mut out = vec![];
        for some in sums.chunks(together) {
            out.extend(self.across(over, some.to_vec(), &mut |l, x, y| {
                let pairs = x.iter().zip(y);
                Ok(pairs
                    .map(|(&x, &y)| l.b.binary(Binary::Add, x, y))
                    .collect())
            })?);
        }
        Ok(out)
    }

    /// Combines the state in `parts` with what `m` lifts of `args` at `here`.
    fn lift_into(
        &mut self,
        m: &Monoid,
        args: &[TileId],
        over: &[AxisId],
        here: &At,
        parts: &[Var],
    ) -> Result<()> {
        let mut given = vec![];
        for &a in args {
            given.push(self.value(self.held_of(a), here)?);
        }
        let counts = m
            .lift
            .insts
            .iter()
            .any(|i| matches!(i, expr::Inst::Index { .. }));
        let rank = match counts {
            true => Some(self.rank(over, here)),
            false => None,
        };
        let mut lifted = self.expr(&m.lift, &given, None, rank)?;
        // Where positions are not left out that do not exist, there is what changes nothing.
        if let Some(p) = self.exists_but(over, here, |l, a| l.folds_beyond(m, args, a)) {
            let identity = self.expr(&m.identity, &[], None, None)?;
            for (l, none) in lifted.iter_mut().zip(identity) {
                *l = self.b.select(p, *l, none);
            }
        }
        let mut both: Vec<Reg> = parts.iter().map(|&v| self.b.get(v)).collect();
        both.extend(lifted);
        let next = self.expr(&m.combine, &both, None, None)?;
        for (&v, r) in parts.iter().zip(next) {
            self.b.set(v, r);
        }
        Ok(())
    }

    /// `state = combine(state, lift(args) over 'over')`, and what depends on it.
    pub fn fold(
        &mut self,
        m: &Monoid,
        state: &[TileId],
        args: &[TileId],
        over: &[AxisId],
        rescale: Option<&Rescale>,
    ) -> Result<()> {
        let Some(&first) = state.first() else {
            return self.fail("state", "a fold needs a state");
        };
        let kept = |l: &Self, t: TileId| matches!(*l.homes[t as usize], TileStorage::Held { .. });
        if state.iter().any(|&t| kept(self, t) != kept(self, first)) {
            return self.fail("place", "the tiles of a state are in different places");
        }
        let axes = self.kernel.tiles[first as usize].axes.clone();
        let mut tiles = state.to_vec();
        tiles.extend(args);
        let unrolled = self.unrolled(&tiles);
        let apart = over.iter().any(|&x| !self.directions_of(x).is_empty());
        let mut scaled = rescale.map_or(vec![], |r| r.tiles.clone());
        scaled.extend(state);
        let mut rows = self.unrolled(&scaled);
        rows.extend(&unrolled);
        let elsewhere = scaled.iter().any(|&t| !kept(self, t));
        for &t in &scaled {
            let own = self.owner(t);
            if own.is_some() && rescale.is_some() {
                return self.fail(
                    "place",
                    format!("several threads have the same elements of '{}', which a fold changes with others; hold it in registers", self.tile_name(t)),
                );
            }
        }
        // Where threads meet, all of them must come by: no position is left out.
        let guard = if apart { Guard::Clamp } else { Guard::Skip };
        let types: Vec<Ty> = state.iter().map(|&t| self.ty(t)).collect();
        if apart {
            rows.extend(&axes);
        }
        self.walk(&axes, &rows, guard, self.origin(), &mut |l, at| {
            let parts: Vec<Var> = types.iter().map(|&t| l.b.var(t)).collect();
            let identity = l.expr(&m.identity, &[], None, None)?;
            for (&v, r) in parts.iter().zip(identity) {
                l.b.set(v, r);
            }
            l.walk(over, &unrolled, Guard::Skip, at.clone(), &mut |l, here| {
                l.lift_into(m, args, over, here, &parts)
            })?;
            let mut found: Vec<Reg> = parts.iter().map(|&v| l.b.get(v)).collect();
            if apart {
                found = l.across(over, found, &mut |l, x, y| {
                    l.expr(&m.combine, &[x, y].concat(), None, None)
                })?;
            }
            // The largest multiple is the multiple of the largest.
            if let ([found], Some((_, by))) =
                (&mut found[..], args.first().and_then(|&t| l.scaled_of(t)))
            {
                let by = l.b.float(by, Ty::F32);
                *found = l.b.mul(*found, by);
            }
            let mut own = l.owner(first);
            if apart && elsewhere {
                let exists = l.exists(&axes, at);
                own = l.b.both(own, exists);
            }
            l.guarded(own, |l| {
                let mut before = vec![];
                for &t in state {
                    before.push(l.value(t, at)?);
                }
                let both = [before.clone(), found].concat();
                let after = l.expr(&m.combine, &both, None, None)?;
                if let Some(r) = rescale {
                    let both = [before, after.clone()].concat();
                    let factor = l.expr(&r.factor, &both, None, None)?[0];
                    for &t in &r.tiles {
                        l.rescaled(t, &axes, at, factor)?;
                    }
                }
                for (&t, &r) in state.iter().zip(&after) {
                    l.put(t, at, r)?;
                }
                Ok(())
            })
        })
    }

    /// Multiplies what belongs to the state's position `at` of tile `t`.
    fn rescaled(&mut self, t: TileId, axes: &[AxisId], at: &At, factor: Reg) -> Result<()> {
        let tile = &self.kernel.tiles[t as usize];
        let dtype = tile.dtype;
        let rest: Vec<AxisId> = tile
            .axes
            .iter()
            .copied()
            .filter(|a| !axes.contains(a))
            .collect();
        let unrolled = self.unrolled(&[t]);
        self.walk(&rest, &unrolled, Guard::Carry, at.clone(), &mut |l, at| {
            let v = l.value(t, at)?;
            let v = l.b.mul(v, factor);
            let v = match dtype {
                DType::F16 | DType::BF16 => l.b.op(Ty::F32, Op::Narrow(dtype, v)),
                _ => v,
            };
            l.put(t, at, v)
        })
    }

    /// Row-major rank of a position along `over`, over the whole axes, as an I64.
    fn rank(&mut self, over: &[AxisId], at: &At) -> Reg {
        let mut rank = self.b.int(0);
        for &a in over {
            let extent = self.b.dim(&self.kernel.axes[a as usize].extent, Ty::I32);
            rank = self.b.mul(rank, extent);
            rank = self.b.add(rank, at.coord[a as usize]);
        }
        match self.b.number(rank) {
            Some(v) => self.b.constant(v, Ty::I64),
            None => self.b.op(Ty::I64, Op::Convert(rank)),
        }
    }

    /// `values` of all threads along the axes `over`, combined; every one of them gets the result.
    fn across(
        &mut self,
        over: &[AxisId],
        mut values: Vec<Reg>,
        combine: Combine<'_, 'a>,
    ) -> Result<Vec<Reg>> {
        let mut directions: Vec<(u32, u32)> =
            over.iter().flat_map(|&x| self.directions_of(x)).collect();
        directions.arrange();
        directions.dedup();
        for (stride, count) in directions {
            if !stride.is_power_of_two() || !count.is_power_of_two() {
                return self.fail(
                    "spread",
                    format!("{count} threads that are {stride} apart reduce together; both must be powers of two"),
                );
            }
            let mut mask = stride;
            while mask < stride * count {
                let others = match mask < self.caps.shuffle {
                    true => self.shuffled(&values, mask),
                    false => self.exchanged(&values, mask)?,
                };
                values = combine(self, &values, &others)?;
                mask *= 2;
            }
        }
        Ok(values)
    }

    fn shuffled(&mut self, values: &[Reg], mask: u32) -> Vec<Reg> {
        let one = |&v: &Reg| self.b.op(self.b.ty(v), Op::Shuffle(v, mask));
        values.iter().map(one).collect()
    }

    /// The values of the thread whose number differs by `mask`, through shared memory.
    fn exchanged(&mut self, values: &[Reg], mask: u32) -> Result<Vec<Reg>> {
        let mut arrays = vec![];
        for (i, &v) in values.iter().enumerate() {
            let dtype = match self.b.ty(v) {
                Ty::F32 => DType::F32,
                Ty::F64 => DType::F64,
                Ty::I32 => DType::I32,
                Ty::U32 => DType::U32,
                Ty::I64 => DType::I64,
                Ty::Bool => DType::Bool,
            };
            let name = format!("exchange {i}");
            let fits = |a: &SharedArray| a.name == name && a.dtype == dtype;
            let at = self.shared.iter().position(fits).unwrap_or_else(|| {
                self.shared.push(SharedArray {
                    name: name.clone(),
                    dtype,
                    elements: self.map.threads,
                });
                self.shared.len() - 1
            });
            arrays.push(at as u32);
        }
        self.barrier();
        for (&array, &v) in arrays.iter().zip(values) {
            self.b.push(Inst::StoreShared {
                array,
                index: self.thread,
                values: vec![v],
            });
        }
        self.barrier();
        let mask = self.b.int(mask.into());
        let other = self.b.binary(Binary::Xor, self.thread, mask);
        let mut out = vec![];
        for (&array, &v) in arrays.iter().zip(values) {
            out.push(self.b.op(
                self.b.ty(v),
                Op::LoadShared {
                    array,
                    index: other,
                },
            ));
        }
        Ok(out)
    }
}
