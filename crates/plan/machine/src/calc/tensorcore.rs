//! Whether a matrix product can use a machine's matrix units, on which tile, and what padding costs.

use crate::{Machine, NumType, Unit, UnitClass};

/// A matrix product C[m, n] = A[m, k] B[k, n].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Rows of A and C.
    pub m: u64,
    /// Columns of B and C.
    pub n: u64,
    /// Columns of A, rows of B.
    pub k: u64,
    /// Format of A and B.
    pub dtype: NumType,
}

impl std::str::FromStr for Product {
    type Err = String;

    /// Reads `matmul:MxNxK:DTYPE`, such as `matmul:4096x4096x4096:f16`.
    fn from_str(text: &str) -> Result<Product, String> {
        let wrong =
            || format!("'{text}' should be matmul:MxNxK:DTYPE, such as matmul:4096x4096x4096:f16");
        let mut parts = text.split(':');
        let (Some("matmul"), Some(sizes), Some(dtype), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let sizes: Option<Vec<u64>> = sizes
            .split('x')
            .map(|s| s.parse().ok().filter(|v| *v < 1 << 40))
            .collect();
        let Some(&[m, n, k]) = sizes.as_deref() else {
            return Err(wrong());
        };
        let dtype = NumType::from_name(dtype).ok_or_else(|| {
            format!(
                "'{dtype}' is no number format; they are f64 f32 tf32 bf16 f16 f8 i8 i4 and so on"
            )
        })?;
        Ok(Product { m, n, k, dtype })
    }
}

/// One way to compute the product on matrix units.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorWay {
    /// Format the operands are read in.
    pub dtype: NumType,
    /// Format of the sums.
    pub accumulator: NumType,
    /// One instruction's m, n, k.
    pub tile: (u64, u64, u64),
    /// Extents rounded up to whole tiles.
    pub padded: (u64, u64, u64),
    /// Useful operations over operations done.
    pub useful: f64,
    /// Seconds at the units' full rate, padding included.
    pub seconds: f64,
    /// Operations per second of all workers.
    pub rate: f64,
    /// Whether results differ from the product in its own format (a narrower format of the operands).
    pub rounds: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorFit {
    /// Whether the product as it stands uses matrix units.
    pub uses: bool,
    /// The way it does, or the best it could after a change of format.
    pub ways: Vec<TensorWay>,
    /// Seconds on the vector units at full rate; `None` when they lack the format.
    pub vector_s: Option<f64>,
    /// Leading dimensions (k of A, n of B and C) that are no multiple of 16 bytes, and what they would
    /// be rounded up to.
    pub unaligned: Vec<(&'static str, u64, u64)>,
    /// Sentences that say why, one a line.
    pub reasons: Vec<String>,
}

/// Bits of an element; tf32 is stored as f32.
pub fn bits(d: NumType) -> u64 {
    match d {
        NumType::F64 | NumType::I64 => 64,
        NumType::F32 | NumType::Tf32 | NumType::I32 => 32,
        NumType::F16 | NumType::Bf16 | NumType::I16 => 16,
        NumType::F8 | NumType::I8 | NumType::Bool => 8,
        NumType::I4 => 4,
    }
}

fn way(u: &Unit, p: &Product) -> TensorWay {
    let up = |v: u64, t: u64| v.div_ceil(t.max(1)).saturating_mul(t.max(1));
    let padded = (up(p.m, u.tile.0), up(p.n, u.tile.1), up(p.k, u.tile.2));
    let volume = |t: (u64, u64, u64)| t.0 as f64 * t.1 as f64 * t.2 as f64;
    let done = volume(padded);
    TensorWay {
        dtype: u.dtype_in,
        accumulator: u.dtype_acc,
        tile: u.tile,
        padded,
        useful: if done > 0.0 {
            volume((p.m, p.n, p.k)) / done
        } else {
            1.0
        },
        seconds: 2.0 * done / u.all.value,
        rate: u.all.value,
        rounds: u.dtype_in != p.dtype,
    }
}

/// Why a product is not on matrix units, and the way that would bring it off them.
fn lacking(
    machine: &Machine,
    p: &Product,
    vector: bool,
    narrower: Option<&TensorWay>,
) -> Vec<String> {
    let runs = match vector {
        true => "the product runs on the vector units".to_string(),
        false => format!(
            "no vector unit takes {} either, so that operands are converted first",
            p.dtype
        ),
    };
    let mut has: Vec<String> = Vec::new();
    let tensor = machine.units.iter();
    for u in tensor.filter(|u| u.class == UnitClass::Tensor) {
        let d = u.dtype_in.to_string();
        if !has.contains(&d) {
            has.push(d);
        }
    }
    if has.is_empty() {
        return vec![format!("{} has no matrix units; {runs}.", machine.name)];
    }
    let mut reasons = vec![format!(
        "The matrix units of {} take {}, not {}: as it stands {runs}.",
        machine.name,
        has.join(", "),
        p.dtype
    )];
    if p.dtype == NumType::F32 && has.iter().any(|h| h == "tf32") {
        reasons.push("Three products of tf32 in its place are as exact: that is how plans compute f32 with `--precision f32`, the default, where it is predicted to be faster.".into());
    }
    reasons.extend(narrower.map(|w| {
        format!(
            "Rounding the operands to {} would bring it onto them.",
            w.dtype
        )
    }));
    reasons
}

/// What an instruction multiplies, and what is padded for it.
fn tiling(w: &TensorWay, p: &Product) -> [String; 2] {
    let (m, n, k) = w.tile;
    let tile = format!(
        "One instruction multiplies {m}x{k} by {k}x{n} {} and sums in {}.",
        w.dtype, w.accumulator
    );
    let padding = match w.useful < 1.0 {
        true => format!(
            "{}x{}x{} is padded to {}x{}x{}: {:.1}% of the work is on zeros.",
            p.m,
            p.n,
            p.k,
            w.padded.0,
            w.padded.1,
            w.padded.2,
            100.0 * (1.0 - w.useful)
        ),
        false => "All extents are whole tiles: no padding.".into(),
    };
    [tile, padding]
}

/// Judges a product on a machine. A format without matrix units of its own is judged in the formats it
/// could be rounded to (f32 in tf32, bf16 and f16; f16 in f8; integers not at all).
pub fn tensor_fit(machine: &Machine, p: &Product) -> TensorFit {
    let units = |d: NumType| {
        machine
            .units
            .iter()
            .filter(move |u| u.class == UnitClass::Tensor && u.dtype_in == d)
    };
    let own: Vec<TensorWay> = units(p.dtype).map(|u| way(u, p)).collect();
    let narrower: &[NumType] = match p.dtype {
        NumType::F32 => &[NumType::Tf32, NumType::Bf16, NumType::F16],
        NumType::F16 | NumType::Bf16 => &[NumType::F8],
        _ => &[],
    };
    let mut ways = own.clone();
    for d in narrower {
        ways.extend(units(*d).map(|u| way(u, p)));
    }
    let vector = machine.unit(UnitClass::Fma, p.dtype);
    let ops = 2.0 * p.m as f64 * p.n as f64 * p.k as f64;
    let vector_s = vector.map(|u| ops / u.all.value);
    let mut reasons = Vec::new();
    if own.is_empty() {
        reasons.extend(lacking(machine, p, vector.is_some(), ways.first()));
    }
    if let Some(w) = own.first() {
        reasons.extend(tiling(w, p));
    }
    let per_16_bytes = (128 / bits(p.dtype)).max(1);
    let unaligned: Vec<(&'static str, u64, u64)> = [("k", p.k), ("n", p.n)]
        .into_iter()
        .filter(|(_, v)| v % per_16_bytes != 0)
        .map(|(name, v)| {
            (
                name,
                v,
                v.div_ceil(per_16_bytes).saturating_mul(per_16_bytes),
            )
        })
        .collect();
    for (name, v, to) in &unaligned {
        reasons.push(format!(
            "Rows of {v} elements along {name} do not begin at multiples of 16 bytes, so tiles are loaded in narrower pieces; {to} would."
        ));
    }
    if let (Some(w), Some(v)) = (own.first(), vector_s)
        && w.seconds >= v
        && ops > 0.0
    {
        reasons.push("Padding eats the gain: the vector units are as fast.".into());
    }
    let uses = own
        .first()
        .is_some_and(|w| vector_s.is_none_or(|v| w.seconds < v || ops == 0.0));
    TensorFit {
        uses,
        ways,
        vector_s,
        unaligned,
        reasons,
    }
}
