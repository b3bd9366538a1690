//! Hierarchical layouts: from coordinates to bit addresses, and the algebra of views (reshape, permute, slice,
//! compose). The planner states where every value lies by them; they hold no data.
use crate::Dim;
use serde::{Deserialize, Serialize};

/// One extent with the distance, in bits, between neighbours along it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Leaf {
    /// Number of positions.
    pub extent: Dim,
    /// Distance between neighbours in bits; 0 for a broadcast.
    pub stride: Dim,
}

/// A mode of a layout: leaves from outermost to innermost (`m = (n, oh, ow)`). The mode's
/// coordinate is the row-major rank of the leaves' coordinates. No leaves: extent 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mode {
    /// Leaves, outermost first.
    pub leaves: Vec<Leaf>,
}

/// A function from coordinates (one per mode) to a bit address: offset plus, for every leaf,
/// coordinate times stride.
///
/// Reshape, transpose, slice, broadcast, packed and blocked forms are all layouts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Layout {
    /// Address of coordinate 0 in bits.
    pub offset: Dim,
    /// One per logical dimension.
    pub modes: Vec<Mode>,
}

impl Mode {
    /// A mode of one leaf.
    pub fn flat(extent: Dim, stride: Dim) -> Mode {
        Mode {
            leaves: vec![Leaf { extent, stride }],
        }
    }

    /// Number of positions: the product of the leaves' extents.
    pub fn extent(&self) -> Dim {
        Dim::product(self.leaves.iter().map(|l| &l.extent))
    }

    /// Neighbouring leaves merged where the outer one continues the inner one; extents of 1 dropped.
    pub fn coalesce(&self) -> Mode {
        let mut out: Vec<Leaf> = Vec::new();
        for l in self.leaves.iter().filter(|l| !l.extent.is_one()) {
            match out.last_mut() {
                Some(o) if o.stride == l.stride.clone() * l.extent.clone() => {
                    o.extent = o.extent.clone() * l.extent.clone();
                    o.stride = l.stride.clone();
                }
                _ => out.push(l.clone()),
            }
        }
        Mode { leaves: out }
    }

    /// The same positions with leaf extents exactly `extents` (outermost first); `None` when a
    /// boundary falls inside a leaf in a way that no strides can express.
    pub fn refine(&self, extents: &[Dim]) -> Option<Mode> {
        let mut out = Vec::new();
        let mut pending: Vec<Leaf> = self.coalesce().leaves;
        for want in extents.iter().rev() {
            if want.is_one() {
                out.push(Leaf {
                    extent: Dim::ONE,
                    stride: Dim::ZERO,
                });
                continue;
            }
            let leaf = pending.pop()?;
            if leaf.extent == *want {
                out.push(leaf);
                continue;
            }
            let outer = leaf.extent.exact_div(want)?;
            // 12 / 64 symbols divide only as far as the normal form shows; a quotient below 1 is no split.
            if outer.known().is_some_and(|n| n < 1) {
                return None;
            }
            pending.push(Leaf {
                extent: outer,
                stride: leaf.stride.clone() * want.clone(),
            });
            out.push(Leaf {
                extent: want.clone(),
                stride: leaf.stride,
            });
        }
        if !pending.is_empty() {
            return None;
        }
        out.reverse();
        Some(Mode { leaves: out })
    }
}

impl Layout {
    /// Row-major (last dimension contiguous) layout of elements of `bits` bits.
    pub fn row_major(shape: &[Dim], bits: u32) -> Layout {
        let order: Vec<usize> = (0..shape.len()).collect();
        Layout::ordered(shape, &order, bits)
    }

    /// Dense layout whose memory order is `order`: dimension numbers, outermost first. Channels-last
    /// for `[n, c, h, w]` is `[0, 2, 3, 1]`.
    pub fn ordered(shape: &[Dim], order: &[usize], bits: u32) -> Layout {
        let mut strides = vec![Dim::ZERO; shape.len()];
        let mut step = Dim::Known(bits as i64);
        for &d in order.iter().rev() {
            strides[d] = step.clone();
            // A tensor without elements keeps strides that tell its dimensions apart.
            if !shape[d].is_zero() {
                step = step * shape[d].clone();
            }
        }
        Layout {
            offset: Dim::ZERO,
            modes: shape
                .iter()
                .zip(strides)
                .map(|(e, s)| Mode::flat(e.clone(), s))
                .collect(),
        }
    }

    /// Blocked dense layout: dimension `d` of `shape` is split into ceil(extent/block) blocks of
    /// `block`, the block coordinate kept at `d`'s place in `order`, the inner one innermost.
    /// The last block is padded to full size.
    pub fn blocked(shape: &[Dim], order: &[usize], d: usize, block: usize, bits: u32) -> Layout {
        let b = Dim::from(block);
        let mut padded: Vec<Dim> = shape.to_vec();
        padded[d] = shape[d].ceil_div(&b);
        let unit = bits.saturating_mul(u32::try_from(block).unwrap_or(u32::MAX));
        let mut l = Layout::ordered(&padded, order, unit);
        l.modes[d].leaves.push(Leaf {
            extent: b,
            stride: Dim::Known(bits as i64),
        });
        l
    }

    /// Extents, one per mode.
    pub fn shape(&self) -> Vec<Dim> {
        self.modes.iter().map(Mode::extent).collect()
    }

    /// Number of positions.
    pub fn size(&self) -> Dim {
        Dim::product(&self.shape())
    }

    /// Modes in the order `perm`: new mode `i` is old mode `perm[i]`.
    pub fn permute(&self, perm: &[usize]) -> Layout {
        Layout {
            offset: self.offset.clone(),
            modes: perm.iter().map(|&p| self.modes[p].clone()).collect(),
        }
    }

    /// Positions `start, start+step, ...` (`extent` of them) of mode `d`; `None` when the mode is
    /// hierarchical in a way that a slice cannot cut.
    pub fn slice(&self, d: usize, start: &Dim, step: i64, extent: &Dim) -> Option<Layout> {
        let mut out = self.clone();
        let mode = self.modes[d].coalesce();
        match mode.leaves.as_slice() {
            [] => {
                // Extent 1 (or 0): only position 0 exists.
                out.modes[d] = Mode::flat(extent.clone(), Dim::ZERO);
                Some(out)
            }
            [leaf] => {
                out.offset = out.offset + start.clone() * leaf.stride.clone();
                out.modes[d] = Mode::flat(extent.clone(), leaf.stride.clone() * Dim::Known(step));
                Some(out)
            }
            leaves if extent.is_one() => {
                let digits = digits(leaves, start);
                for (q, l) in digits.iter().zip(leaves) {
                    out.offset = out.offset + q.clone() * l.stride.clone();
                }
                out.modes[d] = Mode::flat(Dim::ONE, Dim::ZERO);
                Some(out)
            }
            [outer, inner @ ..] if step == 1 => {
                // A cut along the outermost leaf only.
                let block = Dim::product(inner.iter().map(|l| &l.extent));
                let (s, e) = (start.exact_div(&block)?, extent.exact_div(&block)?);
                out.offset = out.offset + s * outer.stride.clone();
                let mut leaves = vec![Leaf {
                    extent: e,
                    stride: outer.stride.clone(),
                }];
                leaves.extend_from_slice(inner);
                out.modes[d] = Mode { leaves };
                Some(out)
            }
            _ => None,
        }
    }

    /// Mode `d`, of extent 1, repeated `extent` times.
    pub fn broadcast(&self, d: usize, extent: &Dim) -> Layout {
        let mut out = self.clone();
        out.modes[d] = Mode::flat(extent.clone(), Dim::ZERO);
        out
    }

    /// Right-aligned broadcast to `shape`; `None` when an extent is neither equal nor 1.
    pub fn expand(&self, shape: &[Dim]) -> Option<Layout> {
        let missing = shape.len().checked_sub(self.modes.len())?;
        let mut modes = Vec::with_capacity(shape.len());
        for (d, want) in shape.iter().enumerate() {
            modes.push(match d.checked_sub(missing).map(|i| &self.modes[i]) {
                Some(m) if m.extent() == *want => m.clone(),
                Some(m) if !m.extent().is_one() => return None,
                _ => Mode::flat(want.clone(), Dim::ZERO),
            });
        }
        Some(Layout {
            offset: self.offset.clone(),
            modes,
        })
    }

    /// The same positions, in row-major rank, under a new shape; `None` when strides cannot express
    /// it (the tensor must then be moved).
    pub fn reshape(&self, shape: &[Dim]) -> Option<Layout> {
        if self.size() != Dim::product(shape) {
            return None;
        }
        let all = Mode {
            leaves: self
                .modes
                .iter()
                .flat_map(|m| m.leaves.iter().cloned())
                .collect(),
        };
        let mut pending: Vec<Leaf> = all.coalesce().leaves;
        let mut modes = vec![Mode::default(); shape.len()];
        for (d, want) in shape.iter().enumerate().rev() {
            let mut need = want.clone();
            let mut leaves = Vec::new();
            while !need.is_one() {
                let leaf = pending.pop()?;
                if leaf.extent == need {
                    leaves.push(leaf);
                    need = Dim::ONE;
                } else if let Some(outer) = leaf.extent.exact_div(&need) {
                    pending.push(Leaf {
                        extent: outer,
                        stride: leaf.stride.clone() * need.clone(),
                    });
                    leaves.push(Leaf {
                        extent: need,
                        stride: leaf.stride,
                    });
                    need = Dim::ONE;
                } else if let Some(rest) = need.exact_div(&leaf.extent) {
                    leaves.push(leaf);
                    need = rest;
                } else {
                    return None;
                }
            }
            leaves.reverse();
            modes[d] = if leaves.is_empty() {
                Mode::flat(want.clone(), Dim::ZERO)
            } else {
                Mode { leaves }
            };
        }
        pending.is_empty().then_some(Layout {
            offset: self.offset.clone(),
            modes,
        })
    }

    /// The first layout applied after the second: `self`'s modes are read through `inner`, whose
    /// addresses (with `bits` per position of `self`) are row-major ranks of `self`. `None` when
    /// the result has no strided form, or when sums of `inner`'s steps may carry from one leaf of
    /// `self` into the next (strides cannot follow that).
    pub fn compose(&self, inner: &Layout, bits: u32) -> Option<Layout> {
        let flat = self.flattened().coalesce();
        let b = Dim::Known(bits as i64);
        // Largest coordinate that the parts of `inner` reach together, per leaf of `flat`.
        let start = digits(&flat.leaves, &inner.offset.exact_div(&b)?);
        let mut offset = self.offset.clone();
        for (q, l) in start.iter().zip(&flat.leaves) {
            offset = offset + q.clone() * l.stride.clone();
        }
        let mut reach = start;
        let mut modes = Vec::new();
        for m in &inner.modes {
            let mut leaves = Vec::new();
            for l in &m.leaves {
                let step = l.stride.exact_div(&b)?;
                leaves.extend(strided(&flat, &step, &l.extent, &mut reach)?);
            }
            modes.push(Mode { leaves });
        }
        let mut inside = reach.iter().zip(&flat.leaves).skip(1);
        inside
            .all(|(r, l)| r.provably_lt(&l.extent))
            .then_some(Layout { offset, modes })
    }

    /// All leaves as one mode: its coordinate is the row-major rank over all modes.
    pub fn flattened(&self) -> Mode {
        Mode {
            leaves: self
                .modes
                .iter()
                .flat_map(|m| m.leaves.iter().cloned())
                .collect(),
        }
    }

    /// What this layout leaves out: a layout of one mode whose addresses, each added to each of
    /// this one's (without the offset), visit every position of `bits` bits below `size` exactly
    /// once (and some beyond, where `size` is no multiple). `None` when this layout visits a
    /// position twice or its strides cannot be put in order.
    pub fn complement(&self, size: &Dim, bits: u32) -> Option<Layout> {
        let b = Dim::Known(bits as i64);
        let mut leaves = Vec::new();
        for l in self.flattened().coalesce().leaves {
            leaves.push(Leaf {
                stride: l.stride.exact_div(&b)?,
                extent: l.extent,
            });
        }
        let mut out = Vec::new();
        let mut covered = Dim::ONE;
        while !leaves.is_empty() {
            let least = (0..leaves.len()).find(|&i| {
                leaves
                    .iter()
                    .all(|o| leaves[i].stride.provably_le(&o.stride))
            })?;
            let leaf = leaves.remove(least);
            let gap = leaf.stride.exact_div(&covered)?;
            if gap.known().is_some_and(|n| n < 1) {
                return None;
            }
            if !gap.is_one() {
                out.push(Leaf {
                    extent: gap,
                    stride: covered * b.clone(),
                });
            }
            covered = leaf.stride * leaf.extent;
        }
        let rest = size.ceil_div(&covered);
        if !rest.is_one() {
            out.push(Leaf {
                extent: rest,
                stride: covered * b,
            });
        }
        out.reverse();
        Some(Layout {
            offset: Dim::ZERO,
            modes: vec![Mode { leaves: out }],
        })
    }

    /// Cuts every mode into tiles of `tile` positions: gives the layout of the tiles (with the
    /// offset) and the layout inside a tile (offset 0); the address of coordinate `c` is that of
    /// tile `c / tile` plus that of `c % tile` inside. `None` when a tile does not divide its mode
    /// or cuts a leaf in a way that strides cannot express; pad first.
    pub fn divide(&self, tile: &[Dim]) -> Option<(Layout, Layout)> {
        if tile.len() != self.modes.len() {
            return None;
        }
        let (mut grid, mut inside) = (Vec::new(), Vec::new());
        for (m, t) in self.modes.iter().zip(tile) {
            let count = m.extent().exact_div(t)?;
            let mode = Layout {
                offset: Dim::ZERO,
                modes: vec![m.clone()],
            };
            let split = mode.reshape(&[count, t.clone()])?;
            let [outer, inner]: [Mode; 2] = split.modes.try_into().ok()?;
            grid.push(outer);
            inside.push(inner);
        }
        let grid = Layout {
            offset: self.offset.clone(),
            modes: grid,
        };
        Some((
            grid,
            Layout {
                offset: Dim::ZERO,
                modes: inside,
            },
        ))
    }

    /// This layout's row-major ranks rearranged by `tiler`, whose addresses (of `bits` bits per
    /// position) are the ranks of one tile: mode 0 counts the tiles, mode 1 the positions inside
    /// one. `None` when that has no strided form.
    pub fn divide_by(&self, tiler: &Layout, bits: u32) -> Option<Layout> {
        let [rest]: [Mode; 1] = tiler
            .complement(&self.size(), bits)?
            .modes
            .try_into()
            .ok()?;
        let both = Layout {
            offset: tiler.offset.clone(),
            modes: vec![rest, tiler.flattened()],
        };
        self.compose(&both, bits)
    }

    /// Bit address of integer coordinates (one per mode) under `lookup` for the symbols; `None`
    /// when a symbol is missing or a coordinate is outside its mode.
    pub fn address(&self, coords: &[i64], lookup: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
        if coords.len() != self.modes.len() {
            return None;
        }
        let mut addr = self.offset.eval(lookup)?;
        for (m, &c) in self.modes.iter().zip(coords) {
            let mut rank = c;
            for l in m.leaves.iter().rev() {
                let e = l.extent.eval(lookup)?;
                if e <= 0 {
                    return None;
                }
                addr = addr.checked_add(rank.rem_euclid(e).checked_mul(l.stride.eval(lookup)?)?)?;
                rank = rank.div_euclid(e);
            }
            if rank != 0 {
                return None;
            }
        }
        Some(addr)
    }

    /// True when addresses are exactly the row-major ranks times `bits`, from offset 0.
    pub fn is_row_major(&self, bits: u32) -> bool {
        let want = Layout::row_major(&self.shape(), bits);
        self.offset.is_zero()
            && self
                .modes
                .iter()
                .zip(&want.modes)
                .all(|(a, b)| a.coalesce() == b.coalesce())
    }
}

/// Coordinates of row-major rank `rank` along `leaves`; the outermost takes what is left.
fn digits(leaves: &[Leaf], rank: &Dim) -> Vec<Dim> {
    let mut left = rank.clone();
    let mut out = Vec::with_capacity(leaves.len());
    for i in 0..leaves.len() {
        let below = Dim::product(leaves[i + 1..].iter().map(|l| &l.extent));
        let q = left.floor_div(&below);
        left = left - q.clone() * below;
        out.push(q);
    }
    out
}

/// The leaves that visit ranks `0, step, 2*step, ...` (`extent` of them) of `flat`; adds to
/// `reach` the largest coordinate used along each leaf of `flat`.
fn strided(flat: &Mode, step: &Dim, extent: &Dim, reach: &mut [Dim]) -> Option<Vec<Leaf>> {
    if extent.is_one() || step.is_zero() {
        return Some(vec![Leaf {
            extent: extent.clone(),
            stride: Dim::ZERO,
        }]);
    }
    if let [leaf] = flat.leaves.as_slice() {
        // One leaf is linear, whatever the step.
        return Some(vec![Leaf {
            extent: extent.clone(),
            stride: leaf.stride.clone() * step.clone(),
        }]);
    }
    if !step.provably_nonneg() {
        return None;
    }
    let mut out = Vec::new();
    let (mut step, mut left) = (step.clone(), extent.clone());
    for (at, leaf) in flat.leaves.iter().enumerate().rev() {
        if left.is_one() {
            break;
        }
        if at == 0 {
            // Nothing lies outside of the outermost leaf: any step and any extent will do.
            let stride = leaf.stride.clone() * step.clone();
            out.push(Leaf {
                extent: left,
                stride,
            });
            left = Dim::ONE;
            break;
        }
        if let Some(skip) = step.exact_div(&leaf.extent) {
            step = skip;
            continue;
        }
        let stride = leaf.stride.clone() * step.clone();
        let last = (left.clone() - Dim::ONE) * step.clone();
        let (taken, rest) = if last.provably_lt(&leaf.extent) {
            (left, Dim::ONE)
        } else {
            let here = leaf.extent.exact_div(&step)?;
            let rest = left.exact_div(&here)?;
            (here, rest)
        };
        reach[at] = reach[at].clone() + (taken.clone() - Dim::ONE) * step;
        out.push(Leaf {
            extent: taken,
            stride,
        });
        (step, left) = (Dim::ONE, rest);
    }
    out.reverse();
    left.is_one().then_some(out)
}
