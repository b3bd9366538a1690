//! Resize, Upsample: whole factors of the nearest neighbour as views, the rest as Resample.
use super::{OpDef, op};
use crate::import::{Ctx, LowerError, Lowered, NodeView, Num, axis_of};
use graph::{Op, ResampleMode, ResampleSpec, ValueId};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("Resize", resize), op("Upsample", upsample)];

/// Largest denominator by which a stated scale is taken for a fraction.
const MAX_DENOMINATOR: i64 = 64;

/// `floor(d * scale)`, if it is known.
fn scaled(d: &Dim, scale: f64) -> Lowered<Option<Dim>> {
    if !(scale.is_finite() && scale > 0.0) {
        return Err(format!("has the scale {scale}, which is not positive").into());
    }
    if let Some(n) = d.known() {
        // Scales are 32-bit floats.
        return Ok(Some(Dim::Known((n as f32 * scale as f32).floor() as i64)));
    }
    Ok((1..=MAX_DENOMINATOR).find_map(|q| {
        let p = scale * q as f64;
        ((p - p.round()).abs() < 1e-6 * q as f64 && p.round() >= 1.0)
            .then(|| (d.clone() * Dim::Known(p.round() as i64)).floor_div(&Dim::Known(q)))
    }))
}

fn upsample<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    let mode = n.text("mode", "nearest")?;
    let scales = match n.opset {
        ..7 => {
            let along = |name: &str| n.float_opt(name)?.ok_or_else(|| format!("attribute '{name}' is missing").into());
            let lead = c.rank(x).checked_sub(2).ok_or("needs rank 2 or more")?;
            let both: [Lowered<f64>; 2] = [along("height_scale"), along("width_scale")];
            Some([vec![1.0; lead], both.into_iter().collect::<Lowered<Vec<f64>>>()?].concat())
        }
        7..9 => n.floats("scales")?,
        _ => {
            let s = n.input(1)?;
            c.floats(s)
        }
    };
    let s = c.shape(x);
    let Some(scales) = scales else {
        let given = c.some_sizes(n.input(1)?, s.len());
        let kept = |(k, d): (Option<Dim>, &Dim)| k.filter(Dim::is_one).map(|_| d.clone());
        return by_host(c, n, given.into_iter().zip(&s).map(kept).collect());
    };
    if scales.len() != s.len() {
        return Err(format!("has {} scales for a tensor of rank {}", scales.len(), s.len()).into());
    }
    let out = s.iter().zip(&scales).map(|(d, &k)| scaled(d, k)).collect::<Lowered<Option<Vec<Dim>>>>()?;
    let out = out.ok_or_else(|| LowerError::Unsupported("scales a symbolic dimension by an odd factor; give it with --dim".into()))?;
    let mode = if mode == "linear" || mode == "bilinear" { ResampleMode::Linear } else { ResampleMode::Nearest { rounding: "floor".into() } };
    let spec = ResampleSpec { mode, coordinates: "asymmetric".into(), scales, antialias: false, exclude_outside: false };
    emit(c, n, x, spec, out)
}

fn resize<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    let s = c.shape(x);
    let rank = s.len();
    let first = n.opset < 11;
    n.at_most(if first { 2 } else { 4 })?;
    let coordinates = n.text("coordinate_transformation_mode", if first { "asymmetric" } else { "half_pixel" })?;
    let nearest = match first {
        true if n.op == "Resize" => graph::ROUNDED_BY_SCALE,
        true => "floor",
        false => "round_prefer_floor",
    };
    let rounding = n.text("nearest_mode", nearest)?;
    let (a, exclude_outside) = (n.float("cubic_coeff_a", -0.75)?, n.flag("exclude_outside", false)?);
    // It stands outside a crop only, which the host resizes.
    n.float("extrapolation_value", 0.0)?;
    let antialias = n.flag("antialias", false)?;
    let policy = n.text("keep_aspect_ratio_policy", "stretch")?;
    let axes: Vec<usize> = match n.ints("axes")? {
        Some(a) => a.iter().map(|&a| axis_of(a, rank)).collect::<Lowered<_>>()?,
        None => (0..rank).collect(),
    };
    let mode = match n.text("mode", "nearest")?.as_str() {
        "nearest" => ResampleMode::Nearest { rounding },
        "linear" => ResampleMode::Linear,
        "cubic" => ResampleMode::Cubic { a },
        m => return Err(format!("attribute 'mode' is '{m}', it must be nearest, linear or cubic").into()),
    };
    let given = |c: &Ctx<'m>, v: Option<ValueId>| v.filter(|&v| !c.shape(v).iter().any(Dim::is_zero));
    let mut scales_in = given(c, n.opt(if first { 1 } else { 2 }));
    let mut sizes_in = given(c, if first { None } else { n.opt(3) });
    if let (Some(a), Some(b)) = (scales_in, sizes_in) {
        // Of two that are there one has no elements.
        let counts = [a, b].map(|v| Dim::product(&c.shape(v)));
        let none = usize::from(counts[0].known().is_some());
        if counts[none].known().is_none() {
            c.assume(n, &counts[none], &Dim::ZERO);
            *[&mut scales_in, &mut sizes_in][none] = None;
        }
    }
    let late = late_extents(c, (scales_in, sizes_in.filter(|_| policy == "stretch")), &s, &axes);
    let cropped = coordinates == "tf_crop_and_resize";
    let (mut out, mut scales) = (s.clone(), vec![1.0; rank]);
    match (scales_in, sizes_in) {
        (Some(v), None) => {
            let known = c.known(v).filter(|k| k.len() == axes.len());
            let Some(known) = known else { return by_host(c, n, late); };
            for (&i, k) in axes.iter().zip(&known) {
                let o = match k {
                    Num::Ratio(p, q) => Some((s[i].clone() * p.clone()).floor_div(q)),
                    k => match k.float() {
                        Some(f) => {
                            scales[i] = f;
                            scaled(&s[i], f)?
                        }
                        None => k.dim().map(|k| s[i].clone() * k),
                    },
                };
                if k.float().is_none() {
                    scales[i] = 0.0;
                }
                let Some(o) = o else { return by_host(c, n, late); };
                out[i] = o;
            }
        }
        (None, Some(v)) => {
            let sizes = c.sizes(v)?.filter(|k| k.len() == axes.len());
            let Some(sizes) = sizes else { return by_host(c, n, late); };
            for (&i, o) in axes.iter().zip(&sizes) {
                out[i] = o.clone();
            }
            if policy != "stretch" {
                let ratio = axes.iter().map(|&i| Some(out[i].known()? as f64 / s[i].known()? as f64)).collect::<Option<Vec<_>>>();
                let Some(ratio) = ratio else { return by_host(c, n, late); };
                let k = match policy.as_str() {
                    "not_larger" => ratio.into_iter().fold(f64::INFINITY, f64::min),
                    "not_smaller" => ratio.into_iter().fold(0.0, f64::max),
                    p => return Err(format!("attribute 'keep_aspect_ratio_policy' is '{p}'").into()),
                };
                for &i in &axes {
                    let Some(x) = s[i].known() else { continue };
                    out[i] = Dim::Known((x as f64 * k + 0.5).floor() as i64);
                    scales[i] = k;
                }
            } else {
                axes.iter().for_each(|&i| scales[i] = 0.0);
            }
        }
        _ => return Err("needs either scales or sizes".into()),
    }
    if cropped {
        return by_host(c, n, out.into_iter().map(Some).collect());
    }
    emit(c, n, x, ResampleSpec { mode, coordinates, scales, antialias, exclude_outside }, out)
}

/// What extents `s` become along `axes` where scales or sizes are known in part.
fn late_extents(c: &mut Ctx, (scales, sizes): (Option<ValueId>, Option<ValueId>), s: &[Dim], axes: &[usize]) -> Vec<Option<Dim>> {
    let mut out: Vec<Option<Dim>> = s.iter().cloned().map(Some).collect();
    let given = scales.or(sizes).map_or(vec![None; axes.len()], |v| c.some_sizes(v, axes.len()));
    for (&i, k) in axes.iter().zip(given) {
        out[i] = match scales {
            Some(_) => k.filter(Dim::is_one).map(|_| s[i].clone()),
            None => k,
        };
    }
    out
}

/// A resize whose sizes come from data, or that crops.
fn by_host<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, out: Vec<Option<Dim>>) -> Lowered {
    let d = c.dtype(n.input(0)?);
    c.host(n, &[(d, out)])
}

/// The whole factor along a dimension for which the nearest neighbour repeats each element.
fn repeats(spec: &ResampleSpec, axis: usize, from: &Dim, to: &Dim) -> Option<i64> {
    let scale = spec.scales[axis];
    let ResampleMode::Nearest { rounding } = &spec.mode else { return None };
    let k = to.exact_div(from)?.known()?;
    if k < 1 || (scale != 0.0 && scale != k as f64) {
        return None;
    }
    let same = match spec.coordinates.as_str() {
        _ if k == 1 => true,
        "half_pixel" | "half_pixel_symmetric" => rounding.starts_with("round"),
        "pytorch_half_pixel" => rounding.starts_with("round") && from.known().is_none_or(|n| n * k > 1),
        "asymmetric" => spec.rounding(axis, rounding) == "floor" || (rounding == "round_prefer_floor" && k <= 2),
        _ => false,
    };
    same.then_some(k)
}

fn emit<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, spec: ResampleSpec, out: Vec<Dim>) -> Lowered {
    let s = c.shape(x);
    let factors: Option<Vec<i64>> = (0..s.len()).map(|i| repeats(&spec, i, &s[i], &out[i])).collect();
    let same = spec.scales.iter().all(|&k| k == 1.0 || k == 0.0) && out == s;
    let y = match factors {
        _ if same => c.reshape(n, n.name(0), x, s)?,
        Some(f) => {
            let (mut thin, mut wide) = (Vec::new(), Vec::new());
            for (d, k) in s.iter().zip(&f) {
                thin.push(d.clone());
                wide.push(d.clone());
                if *k > 1 {
                    thin.push(Dim::ONE);
                    wide.push(Dim::Known(*k));
                }
            }
            let y = c.reshape(n, n.tmp("thin"), x, thin)?;
            let y = c.expand(n, n.tmp("wide"), y, wide)?;
            c.reshape(n, n.name(0), y, out)?
        }
        None => {
            let d = c.dtype(x);
            let shape = out.into_iter().map(Some).collect();
            let name = n.name(0);
            let ys = c.b().node_with_shapes(Op::Resample(spec), &[x], &[(&name, d, shape)], &n.origin);
            ys.first().copied().ok_or("a resample has no output")?
        }
    };
    c.set(n, 0, y);
    Ok(())
}
