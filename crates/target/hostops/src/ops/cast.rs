//! Conversions from and to element types that kernels do not store: floats of 8, 6 and 4 bits and
//! integers of 2, held as codes, and integers of 4 bits.
use crate::args::Args;
use crate::data::{alloc, get, set};
use crate::error::{R, Why};
use crate::small_float::{Float, named, power};
use expr::Scalar;
use layout::DType;
use tensor::Tensor;

/// An element type by name.
#[derive(Clone, Copy)]
enum Kind {
    Float(Float),
    /// Powers of two, 255 is the NaN.
    Power,
    /// Integers of 2 bits, signed or not, one per byte.
    Pair(bool),
    Own(DType),
}

fn kind(name: &str) -> R<Kind> {
    if let Some(f) = named(name) {
        return Ok(Kind::Float(f));
    }
    Ok(match name {
        "float8e8m0" => Kind::Power,
        "int2" => Kind::Pair(true),
        "uint2" => Kind::Pair(false),
        other => Kind::Own(
            DType::from_name(other)
                .filter(|d| !d.is_held())
                .ok_or_else(|| Why(format!("element type '{other}' is not known")))?,
        ),
    })
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let own = x.dtype().name();
    let from = kind(a.text("from", own)?)?;
    let to = kind(a.text("to", own)?)?;
    let saturate = a.int("saturate", 1)? != 0;
    let round = a.text("round_mode", "up")?;
    let d = match to {
        Kind::Float(f) if f.exponent + f.mantissa < 4 => DType::U4,
        Kind::Float(_) | Kind::Power | Kind::Pair(false) => DType::U8,
        Kind::Pair(true) => DType::I8,
        Kind::Own(d) => d,
    };
    let mut y = alloc(d, x.shape())?;
    for i in 0..x.len() {
        let v = match from {
            Kind::Float(f) => Scalar::Float(f.decode(x.get_i64(i) as u8)),
            Kind::Power => Scalar::Float(match x.get_i64(i) as u8 {
                255 => f64::NAN,
                c => f64::powi(2.0, i32::from(c) - 127),
            }),
            Kind::Pair(_) | Kind::Own(_) => get(x, i),
        };
        let was = match from {
            Kind::Own(d) => d,
            Kind::Pair(_) => x.dtype(),
            _ => DType::F64,
        };
        match to {
            Kind::Float(f) => y.set_i64(i, i64::from(f.encode(v.as_f64(), saturate))),
            Kind::Power => y.set_i64(i, i64::from(power(v.as_f64(), saturate, round))),
            Kind::Pair(signed) => {
                let v = v.cast(was, DType::I64).as_i64() & 3;
                y.set_i64(i, if signed && v > 1 { v - 4 } else { v });
            }
            // Integers of 4 bits keep the low ones, as of 2 bits.
            Kind::Own(DType::I4 | DType::U4) => y.set_i64(i, v.cast(was, DType::I64).as_i64()),
            Kind::Own(d) => set(&mut y, i, v.cast(was, d)),
        }
    }
    Ok(vec![y])
}
