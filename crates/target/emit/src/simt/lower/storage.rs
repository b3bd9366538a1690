//! Where tiles are, and their elements.
use super::state::{At, Lower, Result, Run, SharedTile, TileStorage};
use crate::simt::ir::{Inst, Op, Reg, SharedArray, Ty, Var};
use expr::Binary;
use kernel::{AxisId, Label, Node, Place, Stmt, Swizzle, TileId};
use layout::DType;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Bits of the smallest piece that is copied beside what follows.
const WORD: u32 = 32;

/// Elements per thread of one register tile at most.
pub(super) const MAX_HELD: i64 = 512;

impl Lower<'_> {
    pub fn homes(&mut self) -> Result<()> {
        for t in 0..self.kernel.tiles.len() as TileId {
            self.at = format!("tile '{}'", self.tile_name(t));
            let home = self.home(t)?;
            self.homes.push(home.into());
        }
        Ok(())
    }

    fn home(&mut self, t: TileId) -> Result<TileStorage> {
        let tile = &self.kernel.tiles[t as usize];
        let makers: Vec<&Stmt> = self
            .kernel
            .body
            .iter()
            .filter(|s| s.writes().contains(&t))
            .collect();
        let Some(ty) = Ty::of(tile.dtype) else {
            return self.fail(
                "element type",
                format!("{} has no form in a kernel", tile.dtype),
            );
        };
        let place = self.schedule.place(t);
        match (place, makers.as_slice()) {
            (_, []) => Ok(TileStorage::None),
            (Place::InPlace, [Stmt::Load { operand, .. }]) => Ok(TileStorage::Memory(*operand)),
            (Place::InPlace, _) => self.fail(
                "place",
                "only a tile that is loaded once can be its operand's own memory on a GPU; use recompute or registers",
            ),
            (Place::Recompute, [s @ (Stmt::Map { .. } | Stmt::Relabel { along: None, .. })]) => {
                Ok(TileStorage::Formula((*s).clone()))
            }
            (Place::Recompute, [Stmt::Load { operand, .. }]) => Ok(TileStorage::Memory(*operand)),
            (Place::Recompute, _) => self.fail(
                "place",
                "only what one map, or one relabelling that carries nothing, defines can be computed where it is used",
            ),
            (Place::Register | Place::Cluster, _) => {
                let mut own = vec![];
                let mut groups = BTreeSet::new();
                for &a in &tile.axes {
                    // A group's positions are counted at the first of its axes.
                    let n = match self.group_of(a) {
                        Some(g) if groups.insert(g) => Some(self.groups[g].slots),
                        Some(_) => Some(1),
                        None => self.axis(a).own(),
                    };
                    let Some(n) = n else {
                        let name = &self.kernel.axes[a as usize].name;
                        return self.fail(
                            "register tile",
                            format!("axis '{name}' is not cut and its extent is symbolic; cut it, or place the tile elsewhere"),
                        );
                    };
                    own.push(n);
                }
                let n = own.iter().try_fold(1i64, |p, n| p.checked_mul(*n));
                let n = match n {
                    Some(n) if n <= MAX_HELD => n,
                    _ => {
                        return self.fail(
                            "register tile",
                            format!("a thread would hold more than {MAX_HELD} elements"),
                        );
                    }
                };
                let vars = (0..n).map(|_| self.b.var(ty)).collect();
                Ok(TileStorage::Held { vars, own })
            }
            (Place::Shared { swizzle, stages }, _) => {
                self.shared_tile(t, (swizzle, stages), place)
            }
            (Place::Tensor { swizzle, stages }, _) => {
                self.shared_tile(t, (swizzle, stages), place)
            }
            (Place::Image { stages }, _) => {
                self.shared_tile(t, (Swizzle::default(), stages), place)
            }
        }
    }

    /// Shared tiles that contractions go through whole, and that one statement makes which can put 0 where
    /// positions do not exist.
    pub fn zeroed_tiles(&self) -> BTreeSet<TileId> {
        let mut out = BTreeSet::new();
        for s in &self.kernel.body {
            let Stmt::Contract { acc, a, b, over } = s else {
                continue;
            };
            // Matrix instructions go through whole fragments.
            let mut whole = over.iter();
            if self.map.fragment.is_some()
                || whole.any(|&x| self.schedule.sums_whole(self.kernel, *acc, x))
            {
                out.extend([*a, *b]);
            }
        }
        out.retain(|&t| {
            let mut makers = self.kernel.body.iter().filter(|s| s.writes().contains(&t));
            let one = makers.next();
            let zero = match one {
                Some(Stmt::Load { operand, .. }) => {
                    self.kernel.operands[*operand as usize].access.outside == 0.0
                }
                Some(Stmt::Map { .. }) => true,
                _ => false,
            };
            zero && makers.next().is_none()
                && matches!(*self.homes[t as usize], TileStorage::Shared(_))
        });
        out
    }

    fn shared_tile(
        &mut self,
        t: TileId,
        (swizzle, stages): (Swizzle, u32),
        place: Place,
    ) -> Result<TileStorage> {
        let image = matches!(place, Place::Image { .. });
        let tile = &self.kernel.tiles[t as usize];
        let order = match self.groups.is_empty() {
            true => None,
            false => self.factor_order(t),
        };
        let (order, lines) = order.unwrap_or_else(|| (tile.axes.clone(), tile.axes.len().min(1)));
        let mut axes = vec![];
        let mut elements = 1i64;
        for a in order {
            let Some(n) = self.axis(a).bound else {
                let name = &self.kernel.axes[a as usize].name;
                return self.fail(
                    "shared tile",
                    format!("axis '{name}' is not cut and its extent is symbolic; cut it"),
                );
            };
            axes.push((a, n));
            elements = elements.saturating_mul(n);
        }
        let all = elements.saturating_mul(stages.into());
        let Ok(all) = u32::try_from(all) else {
            return self.fail("shared tile", "it has 2^32 elements or more");
        };
        let packed = self.copied_as_it_lies(t, axes.last());
        self.shared.push(SharedArray {
            name: tile.name.clone(),
            // Threads write neighbours at once: nibbles have bytes of their own where they are not copied.
            dtype: match tile.dtype {
                d if packed => d,
                DType::I4 => DType::I8,
                DType::U4 => DType::U8,
                d => d,
            },
            elements: all,
        });
        let whole: i64 = axes[axes.len() - lines..].iter().map(|a| a.1).product();
        let line = match image {
            true => 128 / i64::from(tile.dtype.bits().max(8)),
            // Warpgroups read no longer lines than their swizzle has.
            false if self.warpgroups() && swizzle.bits > 0 => {
                let most = 1i64.checked_shl(swizzle.base + swizzle.bits);
                most.map_or(whole, |m| whole.min(m))
            }
            false => whole,
        };
        Ok(TileStorage::Shared(Rc::new(SharedTile {
            array: self.shared.len() as u32 - 1,
            axes,
            line,
            swizzle,
            stages,
            elements,
            image,
            boxes: matches!(place, Place::Tensor { .. }),
        })))
    }

    /// Whether whole words of an operand are copied to a tile of numbers of 4 bits, beside what follows; `last` is
    /// its last axis with its positions.
    fn copied_as_it_lies(&self, t: TileId, last: Option<&(AxisId, i64)>) -> bool {
        let mut makers = self.kernel.body.iter().filter(|s| s.writes().contains(&t));
        let (Some(Stmt::Load { operand, .. }), None) = (makers.next(), makers.next()) else {
            return false;
        };
        let (source, Some(&(axis, tile))) = (&self.kernel.operands[*operand as usize], last) else {
            return false;
        };
        let extent = &self.kernel.axes[axis as usize].extent;
        let most = self.map.load_bytes * 8 / source.dtype.bits().max(1);
        let run = source.access.run(axis, extent, tile, most);
        self.caps.copies
            && self.map.fragment.is_some()
            && source.access.outside == 0.0
            && source.dtype.bits() * run >= WORD
    }

    /// Type that elements of `t` are held as.
    pub fn ty(&self, t: TileId) -> Ty {
        Ty::of(self.kernel.tiles[t as usize].dtype).unwrap_or(Ty::I32)
    }

    /// Calls `f` for `t` and every tile that reading it reads.
    pub fn behind(&self, t: TileId, f: &mut dyn FnMut(TileId)) {
        f(t);
        if let Some(TileStorage::Formula(s)) = self.homes.get(t as usize).map(Rc::as_ref) {
            s.reads().iter().for_each(|&x| self.behind(x, f));
        }
    }

    /// Axes along which reading or writing `tiles` needs the numbers of a thread's own positions.
    pub fn unrolled(&self, tiles: &[TileId]) -> BTreeSet<AxisId> {
        let mut axes = BTreeSet::new();
        for &t in tiles {
            self.behind(t, &mut |x| {
                if let TileStorage::Held { .. } = &*self.homes[x as usize] {
                    axes.extend(&self.kernel.tiles[x as usize].axes);
                }
            });
        }
        axes
    }

    /// Shared arrays that reading `t` reads.
    pub fn arrays(&self, t: TileId, out: &mut BTreeSet<u32>) {
        self.behind(t, &mut |x| {
            if let Some(TileStorage::Shared(s)) = self.homes.get(x as usize).map(Rc::as_ref) {
                out.insert(s.array);
            }
        });
    }

    /// Shared arrays that statements read or write.
    pub fn touched(&self, body: &[Node], out: &mut BTreeSet<u32>) {
        for n in body {
            match n {
                Node::Loop { body, .. } => self.touched(body, out),
                Node::Stmt(s) => {
                    for t in s.reads().into_iter().chain(s.writes()) {
                        self.arrays(t, out);
                    }
                }
            }
        }
    }

    pub fn held(&self, t: TileId, vars: &[Var], own: &[i64], at: &At) -> Result<Var> {
        let mut index = 0;
        for (&a, &n) in self.kernel.tiles[t as usize].axes.iter().zip(own) {
            let slot = match at.slot[a as usize] {
                Some(s) if s < n => s,
                Some(_) if n == 1 && self.group_of(a).is_some() => 0,
                None if n == 1 && self.axis(a).spread.count == 1 => 0,
                _ => {
                    return self.fail(
                        "register tile",
                        format!(
                            "'{}' is read where this thread does not hold it (axis '{}'); place it in shared memory",
                            self.tile_name(t),
                            self.kernel.axes[a as usize].name
                        ),
                    );
                }
            };
            index = index * n + slot;
        }
        Ok(vars[index as usize])
    }

    /// Element of a shared tile at `at`.
    fn shared_index(&mut self, s: &SharedTile, at: &At) -> Reg {
        let mut stride = 1i64;
        let mut terms = vec![];
        for (i, &(a, n)) in s.axes.iter().rev().enumerate() {
            let base = self.axis(a).base;
            let p = self.b.sub(at.coord[a as usize], base);
            if i == 0 && s.panels() > 1 {
                terms.push((self.remainder(p, s.line), 1));
                terms.push((self.quotient(p, s.line), s.elements / s.panels()));
                stride = s.line;
                continue;
            }
            terms.push((p, stride));
            stride *= n;
        }
        if s.moves_in_lines() {
            return self.index_in_line(s, at, &terms);
        }
        let first = self.stage_first(s);
        if s.swizzle.bits == 0 {
            return self.sum_of(first, &terms);
        }
        let zero = self.b.int(0);
        let index = self.sum_of(zero, &terms);
        let index = self.swizzled(index, s.swizzle);
        self.b.add(index, first)
    }

    fn sum_of(&mut self, base: Reg, terms: &[(Reg, i64)]) -> Reg {
        let terms: Vec<(Reg, Reg)> = terms.iter().map(|&(p, by)| (p, self.b.int(by))).collect();
        self.b.linear(base, &terms)
    }

    /// [`Lower::shared_index`] where a swizzle changes places within lines, by bits of the line's number alone:
    /// those are computed once for lines, and once for neighbouring ones that have the same.
    fn index_in_line(&mut self, s: &SharedTile, at: &At, terms: &[(Reg, i64)]) -> Reg {
        let (inner, mut outer) = (terms[0].0, terms[1..].to_vec());
        let mut beyond = 0;
        if let (Some(&(a, size)), Some(line)) = (s.axes.iter().rev().nth(1), outer.first_mut())
            && let Some(run) = at.runs.iter().find(|r| r.axis == a)
            && run.of * line.1 <= 1 << (s.swizzle.base + s.swizzle.shift)
            && size % run.of == 0
        {
            let base = self.axis(a).base;
            line.0 = self.b.sub(run.first.0, base);
            beyond = run.number * line.1;
        }
        let zero = self.b.int(0);
        let line = self.sum_of(zero, &outer);
        let within = self.within_line(line, inner, s.swizzle);
        let line = self.staged(s, line);
        let index = self.b.add(line, within);
        let beyond = self.b.int(beyond);
        self.b.add(index, beyond)
    }

    /// Where a swizzle that changes what lies below a line's number has place `inner` of the line that begins at
    /// element `line`.
    pub fn within_line(&mut self, line: Reg, inner: Reg, s: Swizzle) -> Reg {
        if s.bits == 0 {
            return inner;
        }
        let moved = self.swizzled(line, s);
        let moved = self.b.binary(Binary::Xor, moved, line);
        self.b.binary(Binary::Xor, inner, moved)
    }

    /// The first element of the stage that is read.
    fn stage_first(&mut self, s: &SharedTile) -> Reg {
        match self.stage.filter(|_| s.stages > 1) {
            Some(stage) => {
                let each = self.b.int(s.elements);
                self.b.mul(stage, each)
            }
            None => self.b.int(0),
        }
    }

    /// The element at `index` in the stage that is read.
    pub fn staged(&mut self, s: &SharedTile, index: Reg) -> Reg {
        let first = self.stage_first(s);
        self.b.add(index, first)
    }

    /// Whether neighbours of `run` lie together in a shared tile, in one piece of memory of 16 bytes at most.
    fn beside(&self, s: &SharedTile, run: &Run) -> bool {
        let bits = self.shared[s.array as usize].dtype.bits();
        let last = s
            .axes
            .last()
            .is_some_and(|a| a.0 == run.axis && a.1 % run.of == 0);
        let kept = s.swizzle.bits == 0 || 1 << s.swizzle.base >= run.of;
        last && kept && i64::from(bits) * run.of <= 128
    }

    pub fn swizzled(&mut self, index: Reg, s: Swizzle) -> Reg {
        if s.bits == 0 {
            return index;
        }
        let shift = self.b.int(s.shift.into());
        let high = self.b.binary(Binary::Shr, index, shift);
        let mask = self.b.int(i64::from(((1u32 << s.bits) - 1) << s.base));
        let bits = self.b.binary(Binary::And, high, mask);
        self.b.binary(Binary::Xor, index, bits)
    }

    /// The element of `t` at `at`.
    pub fn value(&mut self, t: TileId, at: &At) -> Result<Reg> {
        let home = self.homes[t as usize].clone();
        match *home {
            TileStorage::None => self.fail(
                "defined",
                format!("'{}' is never defined", self.tile_name(t)),
            ),
            TileStorage::Memory(o) => self.load(o, at),
            TileStorage::Held { ref vars, ref own } => {
                let v = self.held(t, vars, own, at)?;
                Ok(self.b.get(v))
            }
            TileStorage::Shared(ref s) => {
                let (array, ty) = (s.array, self.ty(t));
                let Some(run) = self.longest_part(at, |l, r| l.beside(s, r)) else {
                    let index = self.shared_index(s, at);
                    return Ok(self.b.op(ty, Op::LoadShared { array, index }));
                };
                let first = self.first_of(at, &run);
                let index = self.shared_index(s, &first);
                let all = self.b.load_shared_run((array, index), ty, run.of as usize);
                Ok(all[run.number as usize])
            }
            TileStorage::Formula(Stmt::Map {
                ref expr, ref args, ..
            }) => {
                if let Some(half) = self.half_of_pair(t, (expr, args), at)? {
                    return Ok(half);
                }
                let args = args
                    .iter()
                    .map(|&a| self.value(a, at))
                    .collect::<Result<Vec<_>>>()?;
                let out = self.expr(expr, &args, Some(at), None)?;
                Ok(out[0])
            }
            TileStorage::Formula(Stmt::Relabel {
                src, ref labels, ..
            }) => {
                let at = self.relabelled(labels, at);
                self.value(src, &at)
            }
            TileStorage::Formula(_) => {
                self.fail("place", "this statement has no form where it is used")
            }
        }
    }

    /// Where a relabelled tile's source is read for the result's position `at`.
    pub fn relabelled(&mut self, labels: &[Label], at: &At) -> At {
        let mut to = at.clone();
        for l in labels {
            let (from, dst) = (l.from as usize, l.to as usize);
            let first = self.b.dim(&l.first, Ty::I32);
            to.coord[from] = self.b.add(at.coord[dst], first);
            to.valid[from] = at.valid[dst];
            // The thread at hand need not hold it.
            let same = l.first.is_zero() && {
                let (a, b) = (&self.axes[from], &self.axes[dst]);
                let lay = |x: &super::Axis| (x.spread.stride, x.spread.count, x.spread.each);
                a.group == b.group && lay(a) == lay(b)
            };
            to.runs.clear();
            to.slot[from] = at.slot[dst].filter(|_| same);
        }
        to
    }

    /// Those of a position's neighbours that are written to tile `t` at once.
    pub fn written_together(&mut self, t: TileId, at: &At) -> Option<Run> {
        match &*self.homes[t as usize].clone() {
            TileStorage::Shared(s) => self.longest_part(at, |l, r| r.innermost && l.beside(s, r)),
            _ => None,
        }
    }

    /// Gives neighbours of a shared tile from `at` on values.
    pub fn put_run(&mut self, t: TileId, at: &At, values: Vec<Reg>) -> Result<()> {
        let TileStorage::Shared(s) = &*self.homes[t as usize].clone() else {
            return self.fail("place", "only shared tiles are written together");
        };
        let index = self.shared_index(s, at);
        self.b.forget_shared();
        self.b.push(Inst::StoreShared {
            array: s.array,
            index,
            values,
        });
        Ok(())
    }

    /// Gives the element of `t` at `at` a value.
    pub fn put(&mut self, t: TileId, at: &At, value: Reg) -> Result<()> {
        let home = self.homes[t as usize].clone();
        match *home {
            TileStorage::Held { ref vars, ref own } => {
                let v = self.held(t, vars, own, at)?;
                self.b.set(v, value);
                Ok(())
            }
            TileStorage::Shared(ref s) => {
                let index = self.shared_index(s, at);
                self.b.forget_shared();
                self.b.push(Inst::StoreShared {
                    array: s.array,
                    index,
                    values: vec![value],
                });
                Ok(())
            }
            _ => self.fail(
                "place",
                format!("'{}' has no memory to write to", self.tile_name(t)),
            ),
        }
    }
}
