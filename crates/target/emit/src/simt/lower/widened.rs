//! Right factors of matrix instructions that threads make of numbers of 4 bits in shared memory, in registers: each lane
//! reads the numbers of its own words of a fragment, and what scales them, and packs what is made of them.
use super::matrix::Staged;
use super::state::{At, Lower, Result, Run, SharedTile, TileStorage};
use crate::simt::ir::{Op, Reg, Ty};
use expr::{Binary, Dequantise, Expr, Zero};
use kernel::{AxisId, Stmt, TileId};
use layout::DType;
use std::rc::Rc;

/// Neighbours along the depth that a lane has together of a fragment of 16 bits.
const PAIR: i64 = 2;
/// Depths of a fragment's half: of 16 bits, and of f32.
const HALVES: [i64; 2] = [8, 4];
/// An f16 whose last bit is worth 1, and its bits.
const THOUSAND: f64 = 1024.0;
const THOUSAND_BITS: i64 = 0x6400;
/// Zero points up to which that is so of it and them.
const MOST_ZERO: f64 = 512.0;
/// Threads of a warp: those of targets with words of two f16.
const LANES_OF_WARP: u32 = 32;
/// Columns of a fragment.
const COLUMNS: i64 = 8;

/// How a factor is made.
pub(super) struct Widened {
    numbers: TileId,
    expr: Expr,
    args: Vec<TileId>,
    /// The group of its columns.
    group: usize,
    /// Summed axes with their positions per piece, outermost first.
    over: Vec<(AxisId, i64)>,
    /// Positions that a warp sums per piece.
    depth: i64,
    /// What is made.
    dtype: DType,
}

/// How words of two f16 are made.
#[derive(Clone, Copy)]
struct Halves {
    /// The scale, twice.
    by: Reg,
    zero: f64,
    /// Whether numbers have signs.
    signed: bool,
}

impl Lower<'_> {
    /// The numbers that `t` is made of in shared memory, and how, where it is made of such.
    pub(super) fn widened(
        &self,
        t: TileId,
        (group, over): (usize, &[AxisId]),
        depth: i64,
    ) -> Option<(Rc<SharedTile>, Widened)> {
        let TileStorage::Formula(Stmt::Map { expr, args, .. }) = &*self.homes[t as usize] else {
            return None;
        };
        let numbers = self.kernel.numbers_of(t)?;
        let TileStorage::Shared(home) = &*self.homes[numbers as usize] else {
            return None;
        };
        let sized = home.axes.iter().filter(|a| over.contains(&a.0));
        let made = Widened {
            numbers,
            expr: expr.clone(),
            args: args.clone(),
            group,
            over: sized.copied().collect(),
            depth,
            dtype: self.kernel.tiles[t as usize].dtype,
        };
        Some((home.clone(), made))
    }

    /// The tile of the numbers.
    pub(super) fn numbers(&self, made: &Widened) -> TileId {
        made.numbers
    }

    /// The line of this lane's first column, and the place in it of its first number of a fragment.
    pub(super) fn number_line(
        &mut self,
        made: &Widened,
        home: &SharedTile,
        from: Reg,
    ) -> (Reg, Reg) {
        let column = self.lane_column(made, 0);
        let own = self.lane_depth(made);
        let inner = self.b.add(own, from);
        let width = self.b.int(home.line);
        let line = self.b.mul(column, width);
        (line, self.within_line(line, inner, home.swizzle))
    }

    /// This lane's column of the fragments that begin `own` columns from the warp's first.
    fn lane_column(&mut self, made: &Widened, own: i64) -> Reg {
        let (each, lane, warp) = (
            self.groups[made.group].warp,
            self.lane(),
            self.warp_number(false),
        );
        let (each, own) = (self.b.int(each), self.b.int(own));
        let first = self.b.mul(warp, each);
        let column = self.quotient(lane, 4);
        let column = self.b.add(first, column);
        self.b.add(column, own)
    }

    /// This lane's first depth in a fragment's half.
    fn lane_depth(&mut self, made: &Widened) -> Reg {
        let lane = self.lane();
        let own = self.remainder(lane, 4);
        match made.dtype.bits() {
            16 => {
                let pair = self.b.int(PAIR);
                self.b.mul(own, pair)
            }
            _ => own,
        }
    }

    /// The words of the block of 16 columns, as deep as a fragment, at (`own`, `depth`) of this warp's part.
    pub(super) fn widened_block(
        &mut self,
        s: &Staged,
        made: &Widened,
        (own, depth): (i64, i64),
    ) -> Result<[Reg; 4]> {
        let half = HALVES[usize::from(made.dtype.bits() == 32)];
        let mut words = [0; 4];
        for (n, word) in words.iter_mut().enumerate() {
            let own = own + COLUMNS * (n as i64 / 2);
            let depth = depth + half * (n as i64 % 2);
            let column = self.lane_column(made, own);
            let first = self.lane_depth(made);
            let at = self.widened_at(made, column, (s.from, depth, first));
            let index = self.place_beyond(s.home(), s.number_line(), (own, depth));
            let (array, ty) = (s.home().array, self.ty(made.numbers));
            *word = match made.dtype {
                DType::F32 => {
                    let v = self.b.op(ty, Op::LoadShared { array, index });
                    let v = self.made(made, v, &at)?;
                    self.b.op(Ty::U32, Op::Bits(v))
                }
                d => {
                    let both = self.b.load_shared_run((array, index), ty, PAIR as usize);
                    let both = [both[0], both[1]];
                    let inner = made.over.last().map_or(0, |a| a.0);
                    let halves = self.halves_of((&made.expr, &made.args), inner, &at)?;
                    match halves.map(|h| self.halves(h, both)) {
                        Some(word) => word,
                        None => {
                            let [x, y] = [
                                self.made(made, both[0], &at)?,
                                self.made(made, both[1], &at)?,
                            ];
                            self.b.op(Ty::U32, Op::Pack(d, x, y))
                        }
                    }
                }
            };
        }
        Ok(words)
    }

    /// The element at a column of the piece and a depth.
    pub(super) fn widened_element(
        &mut self,
        s: &Staged,
        made: &Widened,
        (column, depth): (Reg, Reg),
    ) -> Result<Reg> {
        let zero = self.b.int(0);
        let at = self.widened_at(made, column, (depth, 0, zero));
        let width = self.b.int(s.home().line);
        let line = self.b.mul(column, width);
        let within = self.within_line(line, depth, s.home().swizzle);
        let line = self.staged(s.home(), line);
        let index = self.b.add(line, within);
        let (array, ty) = (s.home().array, self.ty(made.numbers));
        let v = self.b.op(ty, Op::LoadShared { array, index });
        self.made(made, v, &at)
    }

    /// How words of two f16 are made of numbers at `at` with the same scale, where the zero point is a small whole number;
    /// `inner` is the axis along which the numbers are neighbours.
    fn halves_of(
        &mut self,
        (expr, args): (&Expr, &[TileId]),
        inner: AxisId,
        at: &At,
    ) -> Result<Option<Halves>> {
        let tile = |slot: u32| {
            args.get(slot as usize)
                .map(|&t| (t, &self.kernel.tiles[t as usize]))
        };
        let steps = expr.as_dequantise().filter(|s| s.dtype == DType::F16);
        let Some(Dequantise {
            x,
            scale,
            zero: Zero::Known(zero),
            ..
        }) = steps
        else {
            return Ok(None);
        };
        let (Some((numbers, _)), Some((scale, scales))) = (tile(x), tile(scale)) else {
            return Ok(None);
        };
        let fits = scales.dtype == DType::F16 && !scales.axes.contains(&inner);
        let small = zero.fract() == 0.0 && zero.abs() <= MOST_ZERO;
        if !fits || !small || self.caps.shuffle < LANES_OF_WARP {
            return Ok(None);
        }
        let by = self.value(scale, at)?;
        Ok(Some(Halves {
            by: self.b.op(Ty::U32, Op::Pack(DType::F16, by, by)),
            zero,
            signed: self.ty(numbers) == Ty::I32,
        }))
    }

    /// The word of two f16 that are made of neighbouring numbers: these in the last bits of two floats, from which what
    /// they have more and the zero point go at once, exactly, and the product rounded once.
    fn halves(&mut self, h: Halves, numbers: [Reg; 2]) -> Reg {
        let numbers = numbers.map(|r| match h.signed {
            true => {
                let (bits, mask) = (
                    self.b.op(Ty::U32, Op::Bits(r)),
                    self.b.constant(15, Ty::U32),
                );
                self.b.binary(Binary::And, bits, mask)
            }
            false => r,
        });
        let upper = self.b.constant(1 << 16, Ty::U32);
        let both = self
            .b
            .op(Ty::U32, Op::MulAdd(numbers[1], upper, numbers[0]));
        // The sign of a number counts as 8 more.
        let (flip, more) = if h.signed { (8, 8.0) } else { (0, 0.0) };
        let whole = self.b.constant((THOUSAND_BITS ^ flip) * 0x1_0001, Ty::U32);
        let both = self.b.binary(Binary::Xor, both, whole);
        let beyond = self.b.float(THOUSAND + h.zero + more, Ty::F32);
        let beyond = self.b.op(Ty::U32, Op::Pack(DType::F16, beyond, beyond));
        let both = self.b.op(Ty::U32, Op::Halves(Binary::Sub, both, beyond));
        self.b.op(Ty::U32, Op::Halves(Binary::Mul, both, h.by))
    }

    /// The element at `at` of a factor that is made of numbers of 4 bits two at a time, where it is: neighbours are asked
    /// for one after the other, and their word is made once.
    pub(super) fn half_of_pair(
        &mut self,
        t: TileId,
        (expr, args): (&Expr, &[TileId]),
        at: &At,
    ) -> Result<Option<Reg>> {
        let Some(numbers) = self.kernel.numbers_of(t) else {
            return Ok(None);
        };
        let axes = &self.kernel.tiles[numbers as usize].axes;
        let pairs =
            |r: &&Run| r.of % PAIR == 0 && axes.contains(&r.axis) && self.whole(r.axis, r.of);
        let Some(run) = at.runs.iter().find(pairs).copied() else {
            return Ok(None);
        };
        let Some(halves) = self.halves_of((expr, args), run.axis, at)? else {
            return Ok(None);
        };
        let first = run.number / PAIR * PAIR;
        let mut both = [0; 2];
        for (n, number) in both.iter_mut().zip(first..) {
            let mut beside = at.clone();
            let by = self.b.int(number);
            let i = run.axis as usize;
            beside.coord[i] = self.b.add(run.first.0, by);
            beside.slot[i] = at.slot[i].map(|s| s - run.number + number);
            for r in beside.runs.iter_mut().filter(|r| r.axis == run.axis) {
                r.number = number;
            }
            *n = self.value(numbers, &beside)?;
        }
        let word = self.halves(halves, both);
        let second = run.number % PAIR == 1;
        Ok(Some(self.b.op(Ty::F32, Op::Half(word, second))))
    }

    /// What is made of a number at `at`.
    fn made(&mut self, made: &Widened, number: Reg, at: &At) -> Result<Reg> {
        let mut args = vec![];
        for &t in &made.args {
            args.push(match t == made.numbers {
                true => number,
                false => self.value(t, at)?,
            });
        }
        Ok(self.expr(&made.expr, &args, Some(at), None)?[0])
    }

    /// The position of a column of the piece at a depth, which is a first one, a number that is known and a lane's own
    /// that leads over no axis' end.
    fn widened_at(
        &mut self,
        made: &Widened,
        column: Reg,
        (from, depth, own): (Reg, i64, Reg),
    ) -> At {
        let mut at = self.origin();
        let columns = self.groups[made.group].axes.clone();
        let sizes: Vec<i64> = columns.iter().map(|a| a.1).collect();
        let parts = self.parts(column, &sizes);
        let sizes: Vec<i64> = made.over.iter().map(|a| a.1).collect();
        let inner = sizes.last().copied().unwrap_or(1).max(1);
        // Warps begin where blocks do, or have a part of one: none leads over a block's end.
        let apart = made.depth % inner == 0 || inner % made.depth.max(1) == 0;
        let mut deep: Vec<Reg> = match apart {
            true => {
                let (mut rest, mut known) = (depth, vec![]);
                for &n in sizes.iter().rev() {
                    known.push(rest % n);
                    rest /= n;
                }
                let first = match self.b.number(from) {
                    Some(0) => vec![from; sizes.len()],
                    _ => self.parts(from, &sizes),
                };
                let all = first.into_iter().zip(known.into_iter().rev());
                all.map(|(first, n)| {
                    let n = self.b.int(n);
                    self.b.add(first, n)
                })
                .collect()
            }
            false => {
                let depth = self.b.int(depth);
                let depth = self.b.add(from, depth);
                self.parts(depth, &sizes)
            }
        };
        if let Some(last) = deep.last_mut() {
            *last = self.b.add(*last, own);
        }
        let all = columns.iter().zip(parts).chain(made.over.iter().zip(deep));
        for (&(a, _), p) in all.collect::<Vec<_>>() {
            let i = a as usize;
            let axis = self.axes[i].clone();
            at.coord[i] = self.b.add(axis.base, p);
            at.slot[i] = None;
            at.valid[i] = (!axis.full).then(|| self.b.compare(expr::Compare::Lt, p, axis.len));
        }
        at
    }
}
