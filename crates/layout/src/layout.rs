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
            step = step * shape[d].clone();
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
        let mut l = Layout::ordered(&padded, order, bits * block as u32);
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
    /// the result has no strided form.
    pub fn compose(&self, inner: &Layout, bits: u32) -> Option<Layout> {
        let flat = Mode {
            leaves: self
                .modes
                .iter()
                .flat_map(|m| m.leaves.iter().cloned())
                .collect(),
        }
        .coalesce();
        let b = Dim::Known(bits as i64);
        let at = |rank: &Dim| -> Option<Dim> {
            // Address of a rank that is a multiple of whole leaves.
            let mut left = rank.clone();
            let mut addr = Dim::ZERO;
            for (i, l) in flat.leaves.iter().enumerate() {
                let below = Dim::product(flat.leaves[i + 1..].iter().map(|l| &l.extent));
                let q = left.floor_div(&below);
                left = left - q.clone() * below;
                addr = addr + q * l.stride.clone();
            }
            Some(addr)
        };
        let mut modes = Vec::new();
        for m in &inner.modes {
            let mut leaves = Vec::new();
            for l in &m.leaves {
                let step = l.stride.exact_div(&b)?;
                leaves.extend(strided(&flat, &step, &l.extent)?);
            }
            modes.push(Mode { leaves });
        }
        Some(Layout {
            offset: self.offset.clone() + at(&inner.offset.exact_div(&b)?)?,
            modes,
        })
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

/// The leaves that visit ranks `0, step, 2*step, ...` (`extent` of them) of `flat`.
fn strided(flat: &Mode, step: &Dim, extent: &Dim) -> Option<Vec<Leaf>> {
    if extent.is_one() || step.is_zero() {
        return Some(vec![Leaf {
            extent: extent.clone(),
            stride: Dim::ZERO,
        }]);
    }
    let mut out = Vec::new();
    let (mut step, mut left) = (step.clone(), extent.clone());
    for leaf in flat.leaves.iter().rev() {
        if left.is_one() {
            break;
        }
        if let Some(skip) = step.exact_div(&leaf.extent) {
            step = skip;
            continue;
        }
        let here = leaf.extent.exact_div(&step)?;
        let stride = leaf.stride.clone() * step.clone();
        step = Dim::ONE;
        if here == left {
            out.push(Leaf {
                extent: here,
                stride,
            });
            left = Dim::ONE;
        } else if let Some(rest) = left.exact_div(&here) {
            out.push(Leaf {
                extent: here,
                stride,
            });
            left = rest;
        } else if here.exact_div(&left).is_some() {
            out.push(Leaf {
                extent: left,
                stride,
            });
            left = Dim::ONE;
        } else {
            return None;
        }
    }
    out.reverse();
    left.is_one().then_some(out)
}
