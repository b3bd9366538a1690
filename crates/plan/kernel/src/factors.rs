//! What tensor-core instructions of TF32 multiply of f32.
use crate::{Kernel, OperandId, Stmt, Tile, TileId};
use expr::{Expr, ExprBuilder, Unary};
use layout::DType;

/// What a number times this is added to before its last 13 bits are left out: ln 2 half units of TF32's last bit, so
/// that the mean of numbers of any size stays as it is. What TF32 has stays the same, and so does what is no number.
pub const NEAR_TF32: f64 = std::f64::consts::LN_2 / 2048.0;

/// How many times as large f32 is before it is cut in two parts of TF32: 2^24, with which the last bit of any f32 is a
/// normal number.
pub const PARTS_SCALE: f64 = 16_777_216.0;

/// An f32 times this, less itself and what it has changed by, is the number of 11 bits nearest to it.
const UPPER_BITS: f64 = 8193.0;

/// An f32 of which an instruction that leaves out its last 13 bits takes a number of TF32 near it.
pub fn near_tf32() -> Expr {
    let mut b = ExprBuilder::new();
    let x = b.input(0, DType::F32);
    let by = b.constant(NEAR_TF32, DType::F32);
    let more = b.mul(x, by);
    let near = b.add(x, more);
    b.finish(&[near])
}

/// The upper and the lower part of an f32, [`PARTS_SCALE`] times as large. Where it is too large for that, infinite or no
/// number, the upper part is no number and the lower one the f32 as it is.
pub fn parts_of_f32() -> [Expr; 2] {
    [true, false].map(|upper| {
        let mut b = ExprBuilder::new();
        let x = b.input(0, DType::F32);
        let [scale, bits] = [PARTS_SCALE, UPPER_BITS].map(|v| b.constant(v, DType::F32));
        let whole = b.mul(x, scale);
        let far = b.mul(whole, bits);
        let beyond = b.sub(far, whole);
        let near = b.sub(far, beyond);
        let out = match upper {
            true => near,
            false => {
                let none = b.unary(Unary::IsNan, near);
                let rest = b.sub(whole, near);
                b.select(none, x, rest)
            }
        };
        b.finish(&[out])
    })
}

/// The f32 of which these are the parts, exactly.
pub fn whole_of_parts() -> Expr {
    let mut b = ExprBuilder::new();
    let [upper, lower] = [0, 1].map(|slot| b.input(slot, DType::F32));
    let none = b.unary(Unary::IsNan, upper);
    let both = b.add(upper, lower);
    let back = b.constant(1.0 / PARTS_SCALE, DType::F32);
    let whole = b.mul(both, back);
    let out = b.select(none, lower, whole);
    b.finish(&[out])
}

impl Kernel {
    /// The kernel with `tile` made of two parts in place of loaded, and the tiles of the parts: the upper ones are those
    /// of the operand that it was loaded from, the lower ones those of one behind all others, which is addressed alike.
    pub fn with_parts(&self, tile: TileId) -> Option<(Kernel, [TileId; 2])> {
        let mut k = self.clone();
        let loads = |s: &Stmt| matches!(s, Stmt::Load { dst, .. } if *dst == tile);
        let at = k.body.iter().position(loads)?;
        let Stmt::Load { operand, .. } = k.body[at] else {
            return None;
        };
        let added = OperandId::try_from(k.operands.len()).ok()?;
        let mut lower = k.operands[operand as usize].clone();
        lower.name.push_str(" lower");
        k.operands.push(lower);
        let first = TileId::try_from(k.tiles.len()).ok()?;
        let parts = [first, first.checked_add(1)?];
        for part in ["upper", "lower"] {
            let made = &k.tiles[tile as usize];
            let name = format!("{} {part}", made.name);
            k.tiles.push(Tile {
                name,
                ..made.clone()
            });
        }
        let load = |(dst, operand)| Stmt::Load { dst, operand };
        let made = Stmt::Map {
            dst: tile,
            expr: whole_of_parts(),
            args: parts.to_vec(),
        };
        let [upper, lower] = [(parts[0], operand), (parts[1], added)].map(load);
        k.body.splice(at..=at, [upper, lower, made]);
        Some((k, parts))
    }

    /// The tiles of the parts that `tile` is made of.
    pub fn parts_of(&self, tile: TileId) -> Option<[TileId; 2]> {
        self.body.iter().find_map(|s| match s {
            Stmt::Map { dst, expr, args } if *dst == tile && *expr == whole_of_parts() => {
                args.as_slice().try_into().ok()
            }
            _ => None,
        })
    }

    /// The tile that statements read where `tile` is read: itself, or what is made of it and of the other part, or, of
    /// numbers of 4 bits, the factor of a product that is made of them.
    pub fn made_of_part(&self, tile: TileId) -> TileId {
        let made = self.body.iter().find_map(|s| match s {
            Stmt::Map { dst, expr, args } if args.contains(&tile) => {
                let part = *expr == whole_of_parts();
                (part || self.numbers_of(*dst) == Some(tile)).then_some(*dst)
            }
            _ => None,
        });
        made.unwrap_or(tile)
    }

    /// What the factor `tile` of one product is made of by a map whose arguments are loaded, numbers of 4 bits among
    /// them: the tiles of the arguments.
    pub fn widened_from(&self, tile: TileId) -> Option<&[TileId]> {
        let args = self.body.iter().find_map(|s| match s {
            Stmt::Map { dst, args, .. } if *dst == tile => Some(args),
            _ => None,
        })?;
        let readers = |t: TileId| self.body.iter().filter(move |s| s.reads().contains(&t));
        let factor = |s: &Stmt| matches!(s, Stmt::Contract { acc, a, b, .. } if *acc != tile && (*a == tile) != (*b == tile));
        let mut own = readers(tile);
        let one = own.next().is_some_and(factor) && own.next().is_none();
        let loaded = |t: &TileId| {
            let mut made = self.body.iter().filter(|s| s.writes().contains(t));
            let first = made.next();
            matches!(first, Some(Stmt::Load { .. }))
                && made.next().is_none()
                && readers(*t).count() == 1
        };
        let narrow = |t: &&TileId| self.tiles[**t as usize].dtype.bits() == 4;
        let numbers = args.iter().filter(narrow).count() == 1;
        (one && numbers && args.iter().all(loaded)).then_some(args)
    }

    /// The tile of numbers of 4 bits that such a factor is made of.
    pub fn numbers_of(&self, tile: TileId) -> Option<TileId> {
        let args = self.widened_from(tile)?;
        let narrow = |t: &TileId| self.tiles[*t as usize].dtype.bits() == 4;
        args.iter().copied().find(narrow)
    }
}
