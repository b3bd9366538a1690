//! Factors in shared memory: where they lie there, and what that takes.
use super::super::candidate::Widened;
use super::super::gpu_swizzle::{
    group_lines, line_swizzle, number_lines, parted_lines, word_swizzle,
};
use super::shape::{Gpu, Renumbered, Shape};
use super::spread::summed;
use kernel::{AxisId, Kernel, OperandId, Place, Stmt, Swizzle, TileId};

impl Gpu<'_> {
    /// Places of tiles before any is staged: loads where they lie, the others in registers or computed anew.
    pub(super) fn unstaged_places(&self, kernel: &Kernel) -> Vec<Place> {
        let of = |t: TileId| {
            let packed = self.fragment.is_none() || self.packed(kernel, t);
            match packed && kernel::recomputable(kernel, t) {
                true => Place::Recompute,
                false => Place::Register,
            }
        };
        let mut places: Vec<Place> = (0..kernel.tiles.len() as TileId).map(of).collect();
        for st in &kernel.body {
            if let Stmt::Load { dst, .. } = st {
                places[*dst as usize] = Place::InPlace;
            }
        }
        places
    }

    /// Whether `t` is read as a left factor of 16 bits alone, which is packed from what threads hold.
    fn packed(&self, kernel: &Kernel, t: TileId) -> bool {
        let whole = self
            .fragment
            .is_some_and(|f| f.input.bits() == 16 && f.input == kernel.tiles[t as usize].dtype);
        let mut readers = kernel.body.iter().filter(|s| s.reads().contains(&t));
        let left = |s: &Stmt| matches!(s, Stmt::Contract { a, b, .. } if *a == t && *b != t);
        whole && readers.next().is_some_and(left) && readers.next().is_none()
    }

    /// Puts the staged tiles into shared memory; the bytes that they take there, and the longest run of bytes, up
    /// to 16, that lies together in every source.
    pub(super) fn stage(
        &self,
        r: &Renumbered,
        s: &Shape,
        places: &mut [Place],
    ) -> Option<(i64, u32)> {
        let kernel = r.kernel;
        let (mut bytes, mut run) = (0i64, 16);
        for (&(tile, stages), &(_, operand)) in s.staged.iter().zip(r.sources) {
            let axes = &kernel.tiles[tile as usize].axes;
            let mut elements = 1i64;
            for &a in axes {
                elements = elements.checked_mul(r.tile_of(a)?)?;
            }
            let &last = axes.last()?;
            // A line is what lies along the last axis and its neighbours of the same group.
            let read = kernel.made_of_part(tile);
            let group = self.group_of(kernel, read, last, &r.rows, &r.columns);
            let line = group
                .iter()
                .try_fold(1i64, |n, &a| n.checked_mul(r.tile_of(a)?))?;
            // Bits per element; swizzles are those of lines of 2-byte elements.
            let least = if self.fragment.is_some() { 4 } else { 32 };
            let bits = kernel.tiles[tile as usize].dtype.bits().max(least);
            // What a factor is made of beside its numbers is read as it lies.
            let beside = |w: Widened| read == tile && tile != w.tile && self.makes(kernel, w, tile);
            let beside = self.widened.is_some_and(beside);
            let swizzle = match self.fragment {
                _ if beside => Swizzle::default(),
                Some(_) if bits == 4 => number_lines(line),
                Some(f) if f.warps() > 1 => parted_lines(f, u32::try_from(line).ok()?)?,
                Some(_) if bits == 16 => self.swizzle(u32::try_from(line).ok()?)?,
                Some(_) if bits == 32 => word_swizzle(line, summed(kernel, tile, last)),
                Some(f) if f.along_depth() => {
                    group_lines(f, u32::try_from(line).ok()?).unwrap_or_default()
                }
                Some(_) => Swizzle::default(),
                // Rows and columns that lie along lines are read as they are.
                None if !summed(kernel, tile, last) => Swizzle::default(),
                None => {
                    // A piece has no more positions than the axis.
                    let there = kernel.axes[last as usize].extent.known();
                    let whole = there.is_none_or(|n| n >= line);
                    match whole && r.tile_of(last) == Some(line) {
                        true => line_swizzle(line, i64::from(bits / 8)),
                        false => Swizzle::default(),
                    }
                }
            };
            let image = self.image.is_some_and(|i| i.has(kernel, tile));
            let boxes = || self.is_boxed(r, s, tile, operand, (swizzle, stages));
            places[tile as usize] = match image {
                true => Place::Image { stages },
                false if boxes() => Place::Tensor { swizzle, stages },
                false => Place::Shared { swizzle, stages },
            };
            let copies = self.fragment.map_or(0, |f| f.copies_beside(s.copiers));
            // One piece is copied, one made ready and one multiplied.
            if copies > 0 && stages < 3 {
                return None;
            }
            let size = i64::from(bits) * i64::from(stages + copies);
            bytes = bytes.checked_add(elements.checked_mul(size)? / 8)?;
            // Its copies are no loads of threads.
            if image || beside {
                continue;
            }
            let source = &kernel.operands[operand as usize];
            let extent = &kernel.axes[last as usize].extent;
            let each = source.dtype.bits();
            let most = (128 / each).max(1);
            let n = source.access.run(last, extent, r.tile_of(last)?, most);
            // Less than words of numbers of 4 bits are not copied as they lie.
            if each < 8 && self.fragment.is_some() && n * each < 32 {
                return None;
            }
            run = run.min((n * each / 8).max(1));
        }
        Some((bytes, run))
    }

    /// Whether a warp brings the pieces of a factor, as boxes of its operand.
    fn is_boxed(
        &self,
        r: &Renumbered,
        s: &Shape,
        tile: TileId,
        operand: OperandId,
        (swizzle, stages): (Swizzle, u32),
    ) -> bool {
        let (kernel, own) = (r.kernel, &r.kernel.tiles[tile as usize]);
        let source = &kernel.operands[operand as usize];
        let group = self.fragment.is_some_and(|f| f.warps() > 1);
        let alone = kernel.made_of_part(tile) == tile && source.dtype == own.dtype;
        if !self.gpu.boxes || s.copiers == 0 || stages < 2 || !group || !alone {
            return false;
        }
        let (bits, sized) = (own.dtype.bits(), own.axes.iter());
        let piece: Option<Vec<_>> = sized.map(|&a| Some((a, r.tile_of(a)?))).collect();
        let view = |(piece, line): (Vec<_>, i64)| {
            let axes = &kernel.axes;
            source.access.tensor(axes, &piece, line, bits)
        };
        piece.zip(swizzle.line(bits)).and_then(view).is_some()
    }

    /// Whether a widened factor is made of `tile`.
    fn makes(&self, kernel: &Kernel, w: Widened, tile: TileId) -> bool {
        kernel
            .widened_from(w.tile)
            .is_some_and(|f| f.contains(&tile))
    }

    /// Axes of `tile` that are summed, rows or columns together with `axis`.
    fn group_of(
        &self,
        kernel: &Kernel,
        tile: TileId,
        axis: AxisId,
        rows: &[AxisId],
        columns: &[AxisId],
    ) -> Vec<AxisId> {
        let over = kernel.body.iter().find_map(|s| match s {
            Stmt::Contract { a, b, over, .. } if *a == tile || *b == tile => Some(over.clone()),
            _ => None,
        });
        let over = over.unwrap_or_default();
        let axes = &kernel.tiles[tile as usize].axes;
        if over.contains(&axis) {
            return over;
        }
        for g in [rows, columns] {
            if g.contains(&axis) {
                return g.to_vec();
            }
        }
        axes.iter()
            .copied()
            .filter(|a| !over.contains(a) && !rows.contains(a))
            .collect()
    }

    /// The swizzle that spreads lines of `inner` elements over most banks.
    fn swizzle(&self, inner: u32) -> Option<Swizzle> {
        self.gpu
            .swizzles
            .iter()
            .copied()
            .filter(|s| s.fits(inner, 16))
            .max_by_key(|s| s.bits)
    }
}
