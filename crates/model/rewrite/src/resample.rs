//! Resampling as gathers and sums: for every dimension that changes, the neighbours of each output
//! coordinate and their weights are small tables computed from its index, and the rest is what
//! kernels do anyway. Dimensions go one after the other, those that shrink first.
use crate::edit::Edit;
use crate::{Error, Fuel, Rewritten};
use expr::{Binary, Compare, ExprBuilder, Ref, Unary};
use graph::{Graph, NodeId, Op, Origin, ResampleMode, ResampleSpec, ValueId, View};
use layout::Arrange;
use layout::{DType, Dim};

const F: DType = DType::F32;
/// Neighbours of one coordinate beyond which plain code runs.
const TAPS: i64 = 16;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("resample", graph, fuel);
    for n in e.live() {
        let Op::Resample(spec) = e.node(n).op.clone() else {
            continue;
        };
        let x = e.node(n).inputs[0];
        let (s, out) = (
            e.value(x).shape.clone(),
            e.value(e.node(n).outputs[0]).shape.clone(),
        );
        let axes = match axes(&spec, &s, &out, e.value(x).dtype) {
            Ok(axes) => axes,
            Err(why) => {
                e.why_not(e.title(n), why);
                continue;
            }
        };
        if !e.may(e.title(n), "its positions and weights are tables") {
            break;
        }
        lower(&mut e, n, &spec, &axes, &out)?;
    }
    Ok(e.finish())
}

/// A dimension that changes.
struct Axis {
    dim: usize,
    /// As the model gives it, or output over input extent; `None`: that quotient is not known.
    scale: Option<f32>,
    /// The model gives sizes and no scale.
    sized: bool,
    from: Dim,
    to: Dim,
    /// How much a filter for shrinking is widened.
    squeeze: f64,
    /// Neighbours relative to the one at or before the position.
    first: i64,
    last: i64,
}

/// Dimensions in the order in which they are resampled.
fn axes(spec: &ResampleSpec, s: &[Dim], out: &[Dim], dtype: DType) -> Result<Vec<Axis>, String> {
    let nearest = matches!(spec.mode, ResampleMode::Nearest { .. });
    if dtype.bits() < 8
        || dtype.is_held()
        || (!nearest && !matches!(dtype, F | DType::F16 | DType::BF16))
    {
        return Err(format!("elements of {dtype} are rounded by plain code"));
    }
    if s.iter().chain(out).any(Dim::is_zero) || s.len() != out.len() || spec.scales.len() != s.len()
    {
        return Err("it is empty".into());
    }
    let known = [
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
    ];
    let tf = spec.coordinates == "tf_half_pixel_for_nn";
    if !known.contains(&spec.coordinates.as_str()) && !tf {
        return Err(format!(
            "coordinates '{}' are for plain code",
            spec.coordinates
        ));
    }
    let mut axes = Vec::new();
    for d in 0..s.len() {
        let given = (spec.scales[d] != 0.0).then(|| spec.scales[d] as f32);
        let scale = match (given, s[d].known(), out[d].known()) {
            (None, Some(i), Some(o)) => Some(o as f32 / i as f32),
            (g, ..) => g,
        };
        if s[d] == out[d] && scale.is_none_or(|k| k == 1.0) {
            continue;
        }
        if let Some(k) = scale
            && !(1e-6..1e6).contains(&k)
        {
            return Err(format!("its scale {k} is out of range"));
        }
        if tf && scale.is_none_or(|k| k == 1.0) {
            return Err("a dimension that may keep its size moves when it does".into());
        }
        let squeeze = match (spec.antialias && !nearest, scale, s[d].known()) {
            (false, ..) => 1.0,
            (true, Some(k), Some(n)) => (k as f64).clamp(1.0 / (n as f64 + 1.0), 1.0),
            _ => return Err("its filter is as wide as a size that is not known".into()),
        };
        let reach = match &spec.mode {
            ResampleMode::Cubic { .. } => 2.0,
            _ => 1.0,
        };
        let first = (-reach / squeeze).floor() as i64 + 1;
        let last = 1 - first;
        if last - first >= TAPS {
            return Err(format!(
                "each of its positions has more than {TAPS} neighbours"
            ));
        }
        axes.push(Axis {
            dim: d,
            scale,
            sized: given.is_none(),
            from: s[d].clone(),
            to: out[d].clone(),
            squeeze,
            first,
            last,
        });
    }
    // What shrinks comes first, outer dimensions before inner ones; what grows the other way round,
    // so that whole rows are combined where most of the work is.
    let shrinks = |a: &Axis| a.scale.is_some_and(|k| k < 1.0);
    axes.arrange_by_key(|a| match shrinks(a) {
        true => (0, a.dim as i64),
        false => (1, -(a.dim as i64)),
    });
    Ok(axes)
}

/// An extent as a float.
fn extent(b: &mut ExprBuilder, d: &Dim) -> Ref {
    match d.known() {
        Some(n) => b.constant(n as f64, F),
        None => {
            let d = b.dim(d);
            b.cast(d, F)
        }
    }
}

/// Position in the input of output coordinate `Index(0)`.
fn position(b: &mut ExprBuilder, spec: &ResampleSpec, a: &Axis) -> Ref {
    let x = b.index(0);
    let x = b.cast(x, F);
    let (from, to) = (extent(b, &a.from), extent(b, &a.to));
    let scale = match a.scale {
        Some(k) => b.constant(k as f64, F),
        None => b.div(to, from),
    };
    let half = b.constant(0.5, F);
    let one = b.constant(1.0, F);
    let zero = b.constant(0.0, F);
    let centre = |b: &mut ExprBuilder| {
        let x = b.add(x, half);
        b.div(x, scale)
    };
    // One output only has the position 0.
    let many = |b: &mut ExprBuilder, y: Ref| match a.to.known() {
        Some(1) => zero,
        Some(_) => y,
        None => {
            let c = b.compare(Compare::Gt, to, one);
            b.select(c, y, zero)
        }
    };
    match spec.coordinates.as_str() {
        "half_pixel_symmetric" => {
            // i / 2 * (1 - out / (scale * i)) + (x + 0.5) / scale - 0.5
            let k = b.mul(scale, from);
            let adjust = b.div(to, k);
            let rest = b.sub(one, adjust);
            let two = b.constant(2.0, F);
            let mid = b.div(from, two);
            let offset = b.mul(mid, rest);
            let y = centre(b);
            let y = b.add(offset, y);
            b.sub(y, half)
        }
        "pytorch_half_pixel" => {
            let y = centre(b);
            let y = b.sub(y, half);
            many(b, y)
        }
        "align_corners" => {
            if a.to.known() == Some(1) {
                return zero;
            }
            let (i, o) = (b.sub(from, one), b.sub(to, one));
            let y = b.mul(x, i);
            let y = b.div(y, o);
            many(b, y)
        }
        "asymmetric" => b.div(x, scale),
        "tf_half_pixel_for_nn" => centre(b),
        _ => {
            let y = centre(b);
            b.sub(y, half)
        }
    }
}

/// `i` as an index inside the dimension.
fn inside(b: &mut ExprBuilder, i: Ref, a: &Axis) -> Ref {
    let zero = b.int(0, DType::I64);
    let i = b.binary(Binary::Max, i, zero);
    let end = a.from.clone() - Dim::ONE;
    let end = b.dim(&end);
    b.binary(Binary::Min, i, end)
}

/// The same where sizes are given: the position is a fraction of whole numbers.
fn nearest_by_sizes(b: &mut ExprBuilder, spec: &ResampleSpec, a: &Axis, rounding: &str) -> Ref {
    let x = b.index(0);
    let (from, to) = (b.dim(&a.from), b.dim(&a.to));
    let (zero, one) = (b.int(0, DType::I64), b.int(1, DType::I64));
    let twice = |b: &mut ExprBuilder, x: Ref| b.add(x, x);
    let centre = |b: &mut ExprBuilder| {
        let x = twice(b, x);
        let x = b.add(x, one);
        (b.mul(x, from), twice(b, to))
    };
    // Negative quotients are rounded toward 0 here, where they are put anyway.
    let (n, d) = match spec.coordinates.as_str() {
        "align_corners" => {
            let last = b.sub(from, one);
            (b.mul(x, last), b.sub(to, one))
        }
        "asymmetric" => (b.mul(x, from), to),
        "tf_half_pixel_for_nn" => centre(b),
        _ => {
            let (n, d) = centre(b);
            (b.sub(n, to), d)
        }
    };
    let (n, d) = match rounding {
        "floor" => (n, d),
        "ceil" => {
            let n = b.add(n, d);
            (b.sub(n, one), d)
        }
        nearest => {
            let n = twice(b, n);
            let n = b.add(n, d);
            let down = nearest != "round_prefer_ceil";
            (if down { b.sub(n, one) } else { n }, twice(b, d))
        }
    };
    let i = b.binary(Binary::Div, n, d);
    // One output only has the position 0.
    if !matches!(
        spec.coordinates.as_str(),
        "pytorch_half_pixel" | "align_corners"
    ) {
        return i;
    }
    let many = b.compare(Compare::Gt, to, one);
    b.select(many, i, zero)
}

/// Index of the nearest neighbour.
fn nearest(b: &mut ExprBuilder, spec: &ResampleSpec, a: &Axis, rounding: &str) -> Ref {
    if a.sized {
        let i = nearest_by_sizes(b, spec, a, rounding);
        return inside(b, i, a);
    }
    let x = position(b, spec, a);
    let half = b.constant(0.5, F);
    let i = match spec.rounding(a.dim, rounding) {
        "floor" => b.unary(Unary::Floor, x),
        "ceil" => b.unary(Unary::Ceil, x),
        "round_prefer_ceil" => {
            let x = b.add(x, half);
            b.unary(Unary::Floor, x)
        }
        _ => {
            let x = b.sub(x, half);
            b.unary(Unary::Ceil, x)
        }
    };
    let i = b.cast(i, DType::I64);
    inside(b, i, a)
}

/// Weight of a neighbour at `distance`.
fn filter(b: &mut ExprBuilder, mode: &ResampleMode, distance: Ref) -> Ref {
    let d = b.unary(Unary::Abs, distance);
    let (zero, one) = (b.constant(0.0, F), b.constant(1.0, F));
    let ResampleMode::Cubic { a, .. } = mode else {
        let w = b.sub(one, d);
        return b.binary(Binary::Max, w, zero);
    };
    let mut polynomial = |c: [f64; 4]| {
        let mut y = b.constant(c[0], F);
        for v in &c[1..] {
            y = b.mul(y, d);
            let v = b.constant(*v, F);
            y = b.add(y, v);
        }
        y
    };
    let near = polynomial([a + 2.0, -(a + 3.0), 0.0, 1.0]);
    let far = polynomial([*a, -5.0 * a, 8.0 * a, -4.0 * a]);
    let two = b.constant(2.0, F);
    let c = b.compare(Compare::Lt, d, two);
    let far = b.select(c, far, zero);
    let c = b.compare(Compare::Le, d, one);
    b.select(c, near, far)
}

/// Indices and weights of all neighbours, in order.
fn taps(b: &mut ExprBuilder, spec: &ResampleSpec, a: &Axis) -> (Vec<Ref>, Vec<Ref>) {
    let x = position(b, spec, a);
    let base = b.unary(Unary::Floor, x);
    let ratio = b.sub(x, base);
    let exclude = spec.exclude_outside;
    let (mut at, mut weights) = (Vec::new(), Vec::new());
    for k in a.first..=a.last {
        let step = b.constant(k as f64, F);
        let mut distance = b.sub(step, ratio);
        if a.squeeze != 1.0 {
            let q = b.constant(a.squeeze, F);
            distance = b.mul(distance, q);
        }
        let mut w = filter(b, &spec.mode, distance);
        let i = b.add(base, step);
        if exclude {
            let (zero, end) = (b.constant(0.0, F), extent(b, &a.from));
            let low = b.compare(Compare::Ge, i, zero);
            let high = b.compare(Compare::Lt, i, end);
            let both = b.binary(Binary::And, low, high);
            w = b.select(both, w, zero);
        }
        let i = b.cast(i, DType::I64);
        at.push(inside(b, i, a));
        weights.push(w);
    }
    if exclude || spec.antialias {
        let mut sum = weights[0];
        for w in &weights[1..] {
            sum = b.add(sum, *w);
        }
        // Weights that are all 0 stay so.
        let (zero, one) = (b.constant(0.0, F), b.constant(1.0, F));
        let none = b.compare(Compare::Eq, sum, zero);
        let sum = b.select(none, one, sum);
        for w in &mut weights {
            *w = b.div(*w, sum);
        }
    }
    (at, weights)
}

fn lower(
    e: &mut Edit,
    n: NodeId,
    spec: &ResampleSpec,
    axes: &[Axis],
    out: &[Dim],
) -> Result<(), Error> {
    let origins = e.node(n).origins.clone();
    let (mut x, y) = (e.node(n).inputs[0], e.node(n).outputs[0]);
    let name = e.value(y).name.clone();
    let dtype = e.value(x).dtype;
    for (i, a) in axes.iter().enumerate() {
        let hint = format!("{name}.d{}", a.dim);
        x = match &spec.mode {
            ResampleMode::Nearest { rounding } => {
                let mut b = ExprBuilder::new();
                let at = nearest(&mut b, spec, a, rounding);
                let table = table(e, b, at, DType::I64, a, &format!("{hint}.at"), &origins)?;
                e.add(
                    Op::Gather {
                        axis: a.dim,
                        batch: 0,
                    },
                    &[x, table],
                    &hint,
                    &origins,
                )?
            }
            _ => {
                // Sums stay in f32 until the last dimension is done.
                let last = if i + 1 == axes.len() { dtype } else { F };
                sum(e, x, spec, a, last, &hint, &origins)?
            }
        };
    }
    // Extents that differ in form only are declared as they were.
    if e.value(x).shape != out || axes.is_empty() {
        let spell = Op::View(View::Reshape(out.to_vec()));
        x = e.add_typed(spell, &[x], vec![(dtype, out.to_vec())], &name, &origins)?;
    }
    e.replace(y, x);
    Ok(())
}

/// A vector along the output's dimension.
fn table(
    e: &mut Edit,
    b: ExprBuilder,
    value: Ref,
    dtype: DType,
    a: &Axis,
    hint: &str,
    origins: &[Origin],
) -> Result<ValueId, Error> {
    let op = Op::Map(b.finish(&[value]));
    e.add_typed(op, &[], vec![(dtype, vec![a.to.clone()])], hint, origins)
}

/// One dimension resampled: every neighbour gathered, weighted and summed.
fn sum(
    e: &mut Edit,
    x: ValueId,
    spec: &ResampleSpec,
    a: &Axis,
    to: DType,
    hint: &str,
    origins: &[Origin],
) -> Result<ValueId, Error> {
    let count = (a.last - a.first + 1) as usize;
    let from = e.value(x).dtype;
    let behind = e.value(x).shape.len() - a.dim - 1;
    let (mut values, mut weights) = (Vec::new(), Vec::new());
    for k in 0..count {
        let mut b = ExprBuilder::new();
        let (at, _) = taps(&mut b, spec, a);
        let at = table(
            e,
            b,
            at[k],
            DType::I64,
            a,
            &format!("{hint}.at{k}"),
            origins,
        )?;
        let tap = format!("{hint}.tap{k}");
        values.push(e.add(
            Op::Gather {
                axis: a.dim,
                batch: 0,
            },
            &[x, at],
            &tap,
            origins,
        )?);
        let mut b = ExprBuilder::new();
        let (_, w) = taps(&mut b, spec, a);
        let w = table(e, b, w[k], F, a, &format!("{hint}.weight{k}"), origins)?;
        let mut thin = vec![a.to.clone()];
        thin.resize(behind + 1, Dim::ONE);
        let op = Op::View(View::Reshape(thin));
        weights.push(e.add(op, &[w], &format!("{hint}.weight{k}.thin"), origins)?);
    }
    let mut b = ExprBuilder::new();
    let mut total: Option<Ref> = None;
    for k in 0..count {
        let v = b.input(k as u32, from);
        let v = if from == F { v } else { b.cast(v, F) };
        let w = b.input((count + k) as u32, F);
        let part = b.mul(w, v);
        total = Some(match total {
            Some(t) => b.add(t, part),
            None => part,
        });
    }
    let zero = b.constant(0.0, F);
    let total = total.unwrap_or(zero);
    let total = if to == F { total } else { b.cast(total, to) };
    let op = Op::Map(b.finish(&[total]));
    values.extend(weights);
    e.add(op, &values, hint, origins)
}
