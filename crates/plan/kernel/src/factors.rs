//! What tensor-core instructions of TF32 and bf16 multiply of f32.
use crate::{Factors, Kernel, OperandId, Stmt, Tile, TileId};
use expr::{Binary, Compare, Expr, ExprBuilder, Ref, Unary};
use layout::DType;
use std::sync::LazyLock;

/// Depth of the sums of products in parts that a matrix unit adds up alone.
pub const PARTS_DEPTH: u32 = 32;

/// What a number times this is added to before its last 13 bits are left out: ln 2 half units of TF32's last bit, so
/// that the mean of numbers of any size stays as it is. What TF32 has stays the same, and so does what is no number.
pub const NEAR_TF32: f64 = std::f64::consts::LN_2 / 2048.0;

/// The same for bf16, of which the last 16 bits are left out; with few bits, so that sums of products with it are exact.
pub const NEAR_BF16: f64 = 2839.0 / 1_048_576.0;

/// How many times as large f32 is before it is cut in two parts of TF32: 2^24, with which the last bit of any f32 is a
/// normal number.
pub const PARTS_SCALE: f64 = 16_777_216.0;

/// An f32 times this, less itself and what it has changed by, is the number of 11 bits nearest to it.
const UPPER_BITS: f64 = 8193.0;

/// What multiplies factors that are made of parts of other types or in other operands.
const IN_PARTS: [Factors; 3] = [Factors::Tf32x3, Factors::Bf16, Factors::Bf16x3];

/// The greatest finite number of bf16.
const MOST_BF16: f64 = 3.3895313892515355e38;

/// The greatest number of bf16 that makes a finite f32 with it.
const MOST_REST: f64 = 1.324035698926381e36;

impl Factors {
    /// How many times as large an f32 is before it is cut in parts.
    pub fn scale(self) -> f64 {
        match self {
            Factors::Tf32x3 => PARTS_SCALE,
            Factors::Whole | Factors::Tf32 | Factors::Bf16 | Factors::Bf16x3 => 1.0,
        }
    }

    /// What stands for an f32 in a constant that is laid out as it is multiplied: one number, or the upper and the lower
    /// part; none for the elements as they are.
    pub fn parts(self) -> Vec<Expr> {
        match self {
            Factors::Whole => vec![],
            Factors::Tf32 => vec![near_tf32()],
            Factors::Tf32x3 => [true, false].map(part_of_tf32).into(),
            Factors::Bf16 => vec![part_of_bf16(true)],
            Factors::Bf16x3 => [true, false].map(part_of_bf16).into(),
        }
    }

    /// The f32 of which these are the parts; of bf16 as near as they are.
    pub fn whole(self) -> &'static Expr {
        // Every candidate of a product is compared with them.
        static MADE: LazyLock<[Expr; 4]> = LazyLock::new(|| {
            let same = Expr::identity(DType::F32);
            [same, whole_of_tf32(), whole_of_bf16(1), whole_of_bf16(2)]
        });
        let [same, tf32, bf16, bf16_parts] = &*MADE;
        match self {
            Factors::Whole | Factors::Tf32 => same,
            Factors::Tf32x3 => tf32,
            Factors::Bf16 => bf16,
            Factors::Bf16x3 => bf16_parts,
        }
    }

    /// The type of parts.
    pub fn part_type(self) -> DType {
        match self {
            Factors::Bf16 | Factors::Bf16x3 => DType::BF16,
            Factors::Whole | Factors::Tf32 | Factors::Tf32x3 => DType::F32,
        }
    }
}

/// An f32 of which an instruction that leaves out its last 13 bits takes a number of TF32 near it.
fn near_tf32() -> Expr {
    let mut b = ExprBuilder::new();
    let x = b.input(0, DType::F32);
    let by = b.constant(NEAR_TF32, DType::F32);
    let more = b.mul(x, by);
    let near = b.add(x, more);
    b.finish(&[near])
}

/// The upper or the lower part of an f32, [`PARTS_SCALE`] times as large. Where it is too large for that, infinite or no
/// number, the upper part is no number and the lower one the f32 as it is.
fn part_of_tf32(upper: bool) -> Expr {
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
}

/// The f32 of which these are the parts, exactly.
fn whole_of_tf32() -> Expr {
    let mut b = ExprBuilder::new();
    let [upper, lower] = [0, 1].map(|slot| b.input(slot, DType::F32));
    let none = b.unary(Unary::IsNan, upper);
    let both = b.add(upper, lower);
    let back = b.constant(1.0 / PARTS_SCALE, DType::F32);
    let whole = b.mul(both, back);
    let out = b.select(none, lower, whole);
    b.finish(&[out])
}

/// The number of bf16 nearest to an f32, of finite ones the nearest finite, or that nearest to what is left; nothing is
/// left of what is infinite.
fn part_of_bf16(upper: bool) -> Expr {
    let mut b = ExprBuilder::new();
    let x = b.input(0, DType::F32);
    let [most, least, zero] = [MOST_BF16, -MOST_BF16, 0.0].map(|v| b.constant(v, DType::F32));
    let size = b.unary(Unary::Abs, x);
    let far = b.compare(Compare::Gt, size, most);
    let infinite = b.unary(Unary::IsInf, x);
    let above = b.compare(Compare::Gt, x, zero);
    let end = b.select(above, most, least);
    let near = b.select(far, end, x);
    let near = b.select(infinite, x, near);
    let first = b.cast(near, DType::BF16);
    let out = match upper {
        true => first,
        false => {
            let first = b.cast(first, DType::F32);
            let rest = b.sub(x, first);
            // Rounded up, what is left of the greatest f32 would make an infinite sum.
            let [most, least] = [MOST_REST, -MOST_REST].map(|v| b.constant(v, DType::F32));
            let rest = b.binary(Binary::Min, rest, most);
            let rest = b.binary(Binary::Max, rest, least);
            let rest = b.select(infinite, zero, rest);
            b.cast(rest, DType::BF16)
        }
    };
    b.finish(&[out])
}

/// The sum of so many parts in bf16.
fn whole_of_bf16(parts: u32) -> Expr {
    let mut b = ExprBuilder::new();
    let each: Vec<Ref> = (0..parts)
        .map(|slot| {
            let part = b.input(slot, DType::BF16);
            b.cast(part, DType::F32)
        })
        .collect();
    let whole = each[1..]
        .iter()
        .fold(each[0], |sum, &part| b.add(sum, part));
    b.finish(&[whole])
}

impl Kernel {
    /// The kernel with `tile` made of what `factors` multiplies in place of loaded, and the tiles of the parts: the first
    /// are those of the operand that it was loaded from, others those of one behind all others, which is addressed alike.
    /// No tiles where what is loaded has the type of what is made.
    pub fn with_parts(&self, tile: TileId, factors: Factors) -> Option<(Kernel, Vec<TileId>)> {
        let (mut k, dtype, count) = (self.clone(), factors.part_type(), factors.parts().len());
        if count == 0 || count == 1 && dtype == k.tiles[tile as usize].dtype {
            return Some((k, vec![]));
        }
        let loads = |s: &Stmt| matches!(s, Stmt::Load { dst, .. } if *dst == tile);
        let at = k.body.iter().position(loads)?;
        let Stmt::Load { operand, .. } = k.body[at] else {
            return None;
        };
        k.operands[operand as usize].dtype = dtype;
        let (mut tiles, mut body) = (vec![], vec![]);
        for (n, part) in ["upper", "lower"].into_iter().enumerate().take(count) {
            let mut source = operand;
            if n > 0 {
                source = OperandId::try_from(k.operands.len()).ok()?;
                let mut added = k.operands[operand as usize].clone();
                added.name = format!("{} {part}", added.name);
                k.operands.push(added);
            }
            let made = &k.tiles[tile as usize];
            let part = Tile {
                name: format!("{} {part}", made.name),
                dtype,
                ..made.clone()
            };
            let dst = TileId::try_from(k.tiles.len()).ok()?;
            k.tiles.push(part);
            tiles.push(dst);
            body.push(Stmt::Load {
                dst,
                operand: source,
            });
        }
        body.push(Stmt::Map {
            dst: tile,
            expr: factors.whole().clone(),
            args: tiles.clone(),
        });
        k.body.splice(at..=at, body);
        Some((k, tiles))
    }

    /// The tiles of the parts that the factor `tile` of a product is made of, and by what this multiplies them.
    pub fn parts_of(&self, tile: TileId) -> Option<(Factors, &[TileId])> {
        let factor =
            |s: &Stmt| matches!(s, Stmt::Contract { a, b, .. } if *a == tile || *b == tile);
        self.body.iter().find_map(|s| match s {
            Stmt::Map { dst, expr, args } if *dst == tile => {
                let mut all = IN_PARTS.into_iter();
                let found = all.find(|f| f.whole() == expr)?;
                self.body
                    .iter()
                    .any(factor)
                    .then_some((found, args.as_slice()))
            }
            _ => None,
        })
    }

    /// The tile that statements read where `tile` is read: itself, or what is made of it and of other parts, or, of
    /// numbers of 4 bits, the factor of a product that is made of them.
    pub fn made_of_part(&self, tile: TileId) -> TileId {
        let made = self.body.iter().find_map(|s| match s {
            Stmt::Map { dst, args, .. } if args.contains(&tile) => {
                let part = self.parts_of(*dst).is_some();
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
