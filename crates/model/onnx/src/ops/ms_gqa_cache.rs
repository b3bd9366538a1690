//! Caches of keys and values that are kept quantised: numbers of 8 bits, or two of 4 bits to a byte,
//! times a scale for the whole cache or for every channel, and without a zero point.
use super::ms_nbits::parts;
use crate::import::{Ctx, LowerError, Lowered, NodeView};
use expr::{Binary, Unary};
use graph::ValueId;
use layout::{DType, Dim};

const F: DType = DType::F32;

/// How one of the two caches is kept.
pub(super) struct QuantisedCache {
    /// Scales, to be broadcast against [batch, heads, positions, columns].
    scale: ValueId,
    /// 8 or 4.
    bits: i64,
}

/// How the cache `what` ("k" or "v") is kept, whose scales are input `at`; `None` where as floats.
pub(super) fn cache_form<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    what: &str,
    at: usize,
    past: Option<ValueId>,
) -> Lowered<Option<QuantisedCache>> {
    let kind = n.text(&format!("{what}_quant_type"), "NONE")?;
    let bits = n.int("kv_cache_bit_width", 0)?;
    let scale = n.opt(at);
    let (scale, whole) = match (kind.as_str(), scale) {
        ("NONE", None) => return Ok(None),
        ("PER_TENSOR", Some(s)) => (s, true),
        ("PER_CHANNEL", Some(s)) => (s, false),
        ("NONE" | "PER_TENSOR" | "PER_CHANNEL", _) => {
            return Err(format!("attribute '{what}_quant_type' is '{kind}', so {what}_scale must be given exactly where it is not NONE").into());
        }
        _ => return Err(format!(
            "attribute '{what}_quant_type' is '{kind}', it must be NONE, PER_TENSOR or PER_CHANNEL"
        )
        .into()),
    };
    let (bits, held) = match bits {
        8 => (8, DType::I8),
        4 => (4, DType::U8),
        b => {
            return Err(format!(
                "attribute 'kv_cache_bit_width' is {b}, a quantised cache needs 8 or 4"
            )
            .into());
        }
    };
    if past.is_none_or(|p| c.dtype(p) != held) {
        return Err(LowerError::Unsupported(format!(
            "needs a cache of {held} for {bits} bits per number, even where it is empty"
        )));
    }
    let shape = c.shape(scale);
    let scale = if whole {
        if Dim::product(&shape).known() != Some(1) {
            return Err(format!(
                "{what}_scale must be one number where '{what}_quant_type' is PER_TENSOR"
            )
            .into());
        }
        c.reshape(n, n.tmp(&format!("{what}.scale")), scale, vec![])?
    } else {
        if shape.len() != 4 || !shape[0].is_one() || !shape[2].is_one() {
            return Err(format!("{what}_scale must be [1, heads, 1, columns] where '{what}_quant_type' is PER_CHANNEL").into());
        }
        scale
    };
    Ok(Some(QuantisedCache { scale, bits }))
}

/// New positions [b, h, s, d] as the cache holds them.
pub(super) fn packed<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    what: &str,
    x: ValueId,
    k: &QuantisedCache,
) -> Lowered<ValueId> {
    let (low, high) = if k.bits == 8 {
        (-128.0, 127.0)
    } else {
        (-8.0, 7.0)
    };
    let scale = k.scale;
    let q = c.map(n, n.tmp(&format!("{what}.steps")), &[x, scale], |e, a| {
        let (x, s) = (e.cast(a[0], F), e.cast(a[1], F));
        let q = e.div(x, s);
        let q = e.unary(Unary::Round, q);
        let (low, high) = (e.constant(low, F), e.constant(high, F));
        let q = e.binary(Binary::Max, q, low);
        let q = e.binary(Binary::Min, q, high);
        if k.bits == 8 {
            return e.cast(q, DType::I8);
        }
        // Numbers of 4 bits are kept without their sign.
        let eight = e.constant(8.0, F);
        let q = e.add(q, eight);
        e.cast(q, DType::I32)
    })?;
    if k.bits == 8 {
        return Ok(q);
    }
    let mut s = c.shape(q);
    let half = s[3]
        .known()
        .filter(|d| d % 2 == 0)
        .ok_or("its head size must be even to be kept in 4 bits")?
        / 2;
    s[3] = Dim::Known(half);
    let mut pairs = s.clone();
    pairs.push(Dim::Known(2));
    let pairs = c.reshape(n, n.tmp(&format!("{what}.pairs")), q, pairs)?;
    let mut both = Vec::new();
    for i in 0..2 {
        let t = c.slice(
            n,
            n.tmp(&format!("{what}.half{i}")),
            pairs,
            4,
            Dim::Known(i),
            Dim::ONE,
        )?;
        both.push(c.reshape(n, n.tmp(&format!("{what}.nibble{i}")), t, s.clone())?);
    }
    c.map(n, n.tmp(&format!("{what}.bytes")), &both, |e, a| {
        let four = e.int(4, DType::I32);
        let high = e.binary(Binary::Shl, a[1], four);
        let b = e.binary(Binary::Or, a[0], high);
        e.cast(b, DType::U8)
    })
}

/// The whole cache as floats of `d`: [b, h, t, columns].
pub(super) fn unpacked<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    what: &str,
    x: ValueId,
    k: &QuantisedCache,
    d: DType,
) -> Lowered<ValueId> {
    let x = if k.bits == 4 {
        parts(c, n, &format!("{what}.cache"), x, 4)?
    } else {
        x
    };
    let scale = k.scale;
    let middle = if k.bits == 4 { 8.0 } else { 0.0 };
    c.map(n, n.tmp(&format!("{what}.floats")), &[x, scale], |e, a| {
        let (q, s) = (e.cast(a[0], F), e.cast(a[1], F));
        let zero = e.constant(middle, F);
        let q = e.sub(q, zero);
        let y = e.mul(q, s);
        e.cast(y, d)
    })
}
