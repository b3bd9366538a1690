//! Ops over windows of spatial dimensions: convolution, pooling, resampling.
use super::{ReliedEqualities, Type, list, product_type, same_len};
use crate::{ConvSpec, PoolSpec, ResampleSpec, Value};
use layout::Dim;

/// Distance from the first to one past the last tap of a window.
fn reach(kernel: i64, dilation: i64) -> Dim {
    Dim::Known(
        kernel
            .saturating_sub(1)
            .saturating_mul(dilation)
            .saturating_add(1),
    )
}

fn positive(what: &str, v: &[i64]) -> Result<(), String> {
    match v.iter().all(|&n| n > 0) {
        true => Ok(()),
        false => Err(format!("{what} {v:?} must be positive")),
    }
}

fn lengths(
    x: &Value,
    kernel: &[i64],
    strides: &[i64],
    dilations: &[i64],
    before: &[Dim],
    after: &[Dim],
) -> Result<usize, String> {
    let spatial = x
        .shape
        .len()
        .checked_sub(2)
        .ok_or_else(|| format!("'{}' {} is not [n, c, spatial..]", x.name, list(&x.shape)))?;
    for (what, n) in [
        ("kernel", kernel.len()),
        ("strides", strides.len()),
        ("dilations", dilations.len()),
        ("padding", before.len()),
        ("padding", after.len()),
    ] {
        same_len(what, n, spatial)?;
    }
    positive("kernel", kernel)?;
    positive("strides", strides)?;
    positive("dilations", dilations)?;
    Ok(spatial)
}

pub(super) fn conv(
    s: &ConvSpec,
    v: &[&Value],
    relied: &mut ReliedEqualities,
) -> Result<Type, String> {
    let (x, w) = (v[0], v[1]);
    let spatial = lengths(x, &s.kernel, &s.strides, &s.dilations, &s.before, &s.after)?;
    if w.shape.len() != spatial + 2 {
        return Err(format!(
            "the weight {} does not fit {spatial} spatial dimensions",
            list(&w.shape)
        ));
    }
    if s.outside != 0 && (s.transposed || !x.dtype.is_int()) {
        return Err(format!(
            "only the padding of a plain convolution of integers holds {}",
            s.outside
        ));
    }
    if s.groups <= 0 {
        return Err(format!("{} groups are not positive", s.groups));
    }
    let groups = Dim::Known(s.groups);
    let (oc, channels) = match s.transposed {
        false => (w.shape[0].clone(), w.shape[1].clone() * groups.clone()),
        true => (w.shape[1].clone() * groups.clone(), w.shape[0].clone()),
    };
    if !relied.same(&channels, &x.shape[1]) {
        return Err(format!(
            "the weight {} in {} groups takes {channels} channels, the input has {}",
            list(&w.shape),
            s.groups,
            x.shape[1]
        ));
    }
    for n in [&oc, &channels, &x.shape[1]] {
        if n.exact_div(&groups).is_none()
            && !relied.same(&(n.floor_div(&groups) * groups.clone()), n)
        {
            return Err(format!(
                "{n} channels do not split into {} groups",
                s.groups
            ));
        }
    }
    let mut shape = vec![x.shape[0].clone(), oc];
    for d in 0..spatial {
        if !relied.same(&w.shape[d + 2], &Dim::Known(s.kernel[d])) {
            return Err(format!(
                "the weight's extent {} is not the kernel's {}",
                w.shape[d + 2],
                s.kernel[d]
            ));
        }
        let n = x.shape[d + 2].clone();
        let (before, after) = (s.before[d].clone(), s.after[d].clone());
        let reach = reach(s.kernel[d], s.dilations[d]);
        let stride = Dim::Known(s.strides[d]);
        shape.push(match s.transposed {
            false => (n + before + after - reach).floor_div(&stride) + Dim::ONE,
            true => (n - Dim::ONE) * stride - before - after + reach,
        });
    }
    Ok((product_type(x.dtype, w.dtype)?, shape))
}

pub(super) fn pool(s: &PoolSpec, x: &Value) -> Result<Type, String> {
    let spatial = lengths(x, &s.kernel, &s.strides, &s.dilations, &s.before, &s.after)?;
    let mut shape = x.shape[..2].to_vec();
    for d in 0..spatial {
        let padded = x.shape[d + 2].clone() + s.before[d].clone() + s.after[d].clone();
        let rest = padded - reach(s.kernel[d], s.dilations[d]);
        shape.push(rest.floor_div(&Dim::Known(s.strides[d])) + Dim::ONE);
    }
    Ok((x.dtype, shape))
}

/// Whether a resampling may give `out`: sizes that a model states outright need not follow from
/// its scales, and a scale of 0 stands for the quotient of the extents.
pub(super) fn resample_fits(s: &ResampleSpec, x: &Value, out: &Type) -> Result<(), String> {
    same_len("scales", s.scales.len(), x.shape.len())?;
    same_len("output dimensions", out.1.len(), x.shape.len())?;
    if let Some(k) = s.scales.iter().find(|k| !(**k >= 0.0 && k.is_finite())) {
        return Err(format!("scale {k} is not positive"));
    }
    if out.0 != x.dtype {
        return Err(format!("its output is {}, its input {}", out.0, x.dtype));
    }
    Ok(())
}

pub(super) fn resample(s: &ResampleSpec, x: &Value) -> Result<Type, String> {
    same_len("scales", s.scales.len(), x.shape.len())?;
    let mut shape = Vec::new();
    for (n, &scale) in x.shape.iter().zip(&s.scales) {
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(format!("scale {scale} is not positive"));
        }
        let inverse = 1.0 / scale;
        shape.push(match n.known() {
            Some(n) => Dim::Known((n as f64 * scale).floor() as i64),
            None if scale.fract() == 0.0 && scale < 1e9 => n.clone() * Dim::Known(scale as i64),
            None if inverse.fract() == 0.0 && inverse < 1e9 => {
                n.floor_div(&Dim::Known(inverse as i64))
            }
            None => {
                // Scales of models are fractions of small numbers; others need explicit sizes.
                let (p, q) = fraction(scale).ok_or_else(|| {
                    format!("extent {n} times {scale} is no dimension; give shapes with node_with_shapes")
                })?;
                (n.clone() * Dim::Known(p)).floor_div(&Dim::Known(q))
            }
        });
    }
    Ok((x.dtype, shape))
}

fn fraction(scale: f64) -> Option<(i64, i64)> {
    (2..=256i64).find_map(|q| {
        let p = scale * q as f64;
        (p.fract() == 0.0 && p < 1e9).then_some((p as i64, q))
    })
}
