//! ai.onnx.ml SVMRegressor and SVMClassifier: kernels as products and reductions, votes as products
//! with constant matrices.
use super::ml_linear::{Labels, both, floats, largest, power, rows, transformed};
use super::{OpDef, op_of};
use crate::import::{Ctx, Lowered, NodeView, monoids};
use expr::{Compare, Unary};
use graph::{Op, ValueId};
use layout::{DType, Dim};
use tensor::Attr;

const ML: &str = "ai.onnx.ml";
const F: DType = DType::F32;

pub(crate) const OPS: &[OpDef] = &[op_of(ML, "SVMClassifier", classifier), op_of(ML, "SVMRegressor", regressor)];

/// The kernel of every row with every support vector, [rows, supports].
fn kernel<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, v: ValueId) -> Lowered<ValueId> {
    let p = n.floats("kernel_params")?.unwrap_or_default();
    let (gamma, shift, degree) = match p[..] {
        [g, s, d, ..] => (g, s, d),
        _ => (0.0, 0.0, 3.0),
    };
    let kind = n.text("kernel_type", "LINEAR")?;
    if kind == "RBF" {
        let s = c.shape(x);
        let a = c.reshape(n, n.tmp("x.wide"), x, vec![s[0].clone(), Dim::ONE, s[1].clone()])?;
        let d = c.map(n, n.tmp("squares"), &[a, v], |e, a| {
            let d = e.sub(a[0], a[1]);
            e.mul(d, d)
        })?;
        let sum = c.reduce(n, n.tmp("distances"), d, monoids::sum(F), &[2], false)?;
        return c.map(n, n.tmp("kernel"), &[sum], |e, a| {
            let g = e.constant(-gamma, F);
            let y = e.mul(g, a[0]);
            e.unary(Unary::Exp, y)
        });
    }
    let dot = c.contract(n, n.tmp("products"), (x, b"mk"), (v, b"nk"), b"mn")?;
    if !["LINEAR", "POLY", "SIGMOID"].contains(&kind.as_str()) {
        return Err(format!("kernel '{kind}' is not one that ONNX lists").into());
    }
    if kind == "LINEAR" {
        return Ok(dot);
    }
    c.map(n, n.tmp("kernel"), &[dot], |e, a| {
        let (g, s) = (e.constant(gamma, F), e.constant(shift, F));
        let y = e.mul(g, a[0]);
        let y = e.add(y, s);
        match kind.as_str() {
            "POLY" => power(e, y, degree),
            _ => e.unary(Unary::Tanh, y),
        }
    })
}

/// `k` times a constant [inner, outer], plus `rho`.
fn weighted<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, k: ValueId, w: &[f64], (inner, outer): (usize, usize), rho: &[f64]) -> Lowered<ValueId> {
    let w = floats(c, n, "coefficients", &[inner, outer], w)?;
    let y = c.contract(n, n.tmp("sums"), (k, b"mk"), (w, b"kn"), b"mn")?;
    let r = floats(c, n, "rho", &[rho.len()], rho)?;
    c.map(n, n.tmp("scores"), &[y, r], |e, a| e.add(a[0], a[1]))
}

fn regressor<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let (x, _, width) = rows(c, n)?;
    let supports = usize::try_from(n.int("n_supports", 0)?).map_err(|_| "attribute 'n_supports' is negative")?;
    let coefficients = n.floats("coefficients")?.unwrap_or_default();
    let vectors = n.floats("support_vectors")?.unwrap_or_default();
    let rho = n.floats("rho")?.unwrap_or_default();
    let one_class = n.flag("one_class", false)?;
    let post = n.text("post_transform", "NONE")?;
    let rho = [rho.first().copied().unwrap_or(0.0)];
    let count = if supports > 0 { supports } else { width };
    if coefficients.len() != count || (supports > 0 && Some(vectors.len()) != supports.checked_mul(width)) {
        return Err(format!("{} coefficients and {} numbers of support vectors do not fit {supports} vectors of {width} columns", coefficients.len(), vectors.len()).into());
    }
    let k = if supports > 0 {
        let v = floats(c, n, "supports", &[supports, width], &vectors)?;
        kernel(c, n, x, v)?
    } else {
        n.text("kernel_type", "LINEAR")?;
        n.floats("kernel_params")?;
        x
    };
    let mut y = weighted(c, n, k, &coefficients, (count, 1), &rho)?;
    if one_class {
        y = c.map(n, n.tmp("side"), &[y], |e, a| {
            let (zero, plus, minus) = (e.constant(0.0, F), e.constant(1.0, F), e.constant(-1.0, F));
            let inside = e.compare(Compare::Gt, a[0], zero);
            e.select(inside, plus, minus)
        })?;
    }
    let y = transformed(c, n, n.name(0), y, &post)?;
    c.set(n, 0, y);
    Ok(())
}

/// A classifier without support vectors: one row of coefficients per class.
fn linear<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    labels: Labels,
    (x, width): (ValueId, usize),
    coefficients: &[f64],
    (rho, post): (&[f64], &str),
) -> Lowered {
    n.text("kernel_type", "LINEAR")?;
    n.floats("kernel_params")?;
    let k = labels.len();
    if coefficients.len() != k * width {
        return Err(format!("{} coefficients do not fit {k} classes of {width} columns", coefficients.len()).into());
    }
    let w: Vec<f64> = (0..width).flat_map(|f| (0..k).map(move |j| (f, j))).map(|(f, j)| coefficients[j * width + f]).collect();
    let rho = vec![rho.first().copied().unwrap_or(0.0); k];
    let s = weighted(c, n, x, &w, (width, k), &rho)?;
    let mut at = largest(c, n, s)?;
    if k == 2 {
        at = second_if_any(c, n, s, at, coefficients.iter().all(|w| *w >= 0.0))?;
    }
    labels.set(c, n, at)?;
    // One score stays as it is, as onnxruntime has it.
    let post = if k == 1 && post != "PROBIT" { "NONE" } else { post };
    let y = transformed(c, n, n.name(1), s, post)?;
    c.set(n, 1, y);
    Ok(())
}

/// The second of two classes where the larger score speaks for any, as onnxruntime has it; else class `at`.
fn second_if_any<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, s: ValueId, at: ValueId, positive: bool) -> Lowered<ValueId> {
    let top = c.reduce(n, n.tmp("top"), s, monoids::max(F), &[1], false)?;
    let d = c.dtype(at);
    c.map(n, n.tmp("class"), &[top, at], |e, a| {
        let (zero, half, one) = (e.constant(0.0, F), e.constant(0.5, F), e.int(1, d));
        let any = if positive { e.compare(Compare::Ge, a[0], half) } else { e.compare(Compare::Gt, a[0], zero) };
        e.select(any, one, a[1])
    })
}

fn classifier<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let labels = Labels::of(n)?;
    let (x, rows, width) = rows(c, n)?;
    let coefficients = n.floats("coefficients")?.unwrap_or_default();
    let vectors = n.floats("support_vectors")?.unwrap_or_default();
    let per_class = n.ints("vectors_per_class")?.unwrap_or_default();
    let rho = n.floats("rho")?.unwrap_or_default();
    let (pa, pb) = (n.floats("prob_a")?.unwrap_or_default(), n.floats("prob_b")?.unwrap_or_default());
    let post = n.text("post_transform", "NONE")?;
    if per_class.is_empty() {
        return linear(c, n, labels, (x, width), &coefficients, (&rho, &post));
    }
    let sizes: Option<Vec<usize>> = per_class.iter().map(|&v| usize::try_from(v).ok()).collect();
    let sizes = sizes.ok_or("attribute 'vectors_per_class' has a negative entry")?;
    let classes = sizes.len();
    let supports = sizes.iter().try_fold(0usize, |s, v| s.checked_add(*v)).ok_or("too many support vectors")?;
    let pairs = classes * classes.saturating_sub(1) / 2;
    if classes < 2
        || labels.len() != classes
        || Some(vectors.len()) != supports.checked_mul(width)
        || Some(coefficients.len()) != supports.checked_mul(classes - 1)
        || rho.len() != pairs
    {
        return Err(format!("its attributes do not fit {classes} classes with {supports} support vectors of {width} columns").into());
    }
    let starts: Vec<usize> = sizes.iter().scan(0, |at, &s| Some(std::mem::replace(at, *at + s))).collect();
    // Every pair of classes is told apart by the support vectors of both.
    let mut weights = vec![0.0; supports * pairs];
    let (mut first, mut second) = (vec![0.0; pairs * classes], vec![0.0; pairs * classes]);
    let mut p = 0;
    for i in 0..classes {
        for j in i + 1..classes {
            for s in starts[i]..starts[i] + sizes[i] {
                weights[s * pairs + p] = coefficients[(j - 1) * supports + s];
            }
            for s in starts[j]..starts[j] + sizes[j] {
                weights[s * pairs + p] = coefficients[i * supports + s];
            }
            first[p * classes + i] = 1.0;
            second[p * classes + j] = 1.0;
            p += 1;
        }
    }
    let v = floats(c, n, "supports", &[supports, width], &vectors)?;
    let k = kernel(c, n, x, v)?;
    let s = weighted(c, n, k, &weights, (supports, pairs), &rho)?;
    // Probabilities are given beside the votes, which still decide.
    let voted = !pa.is_empty();
    if voted {
        if pa.len() != pairs || pb.len() != pairs {
            return Err(format!("prob_a and prob_b must have {pairs} entries").into());
        }
        let attrs = tensor::attrs(vec![
            ("prob_a", Attr::Floats(pa)),
            ("prob_b", Attr::Floats(pb)),
            ("classes", Attr::Int(classes as i64)),
        ]);
        let op = Op::Host { name: "ml.svm_probabilities".into(), attrs };
        let name = n.tmp("probabilities");
        let shape = vec![Some(rows), Some(Dim::from(classes))];
        let vs = c.b().node_with_shapes(op, &[s], &[(&name, F, shape)], &n.origin);
        let probabilities = vs.first().copied().ok_or("a host operator has no output")?;
        let y = transformed(c, n, n.name(1), probabilities, &post)?;
        c.set(n, 1, y);
    }
    let won = c.map(n, n.tmp("won"), &[s], |e, a| {
        let zero = e.constant(0.0, F);
        let more = e.compare(Compare::Gt, a[0], zero);
        e.cast(more, F)
    })?;
    // A pair votes for its first class, or for its second: the second's votes are those not won.
    let change: Vec<f64> = first.iter().zip(&second).map(|(a, b)| a - b).collect();
    let base: Vec<f64> = (0..classes).map(|j| (0..pairs).map(|p| second[p * classes + j]).sum()).collect();
    let change = floats(c, n, "votes", &[pairs, classes], &change)?;
    let base = floats(c, n, "votes.base", &[classes], &base)?;
    let votes = c.contract(n, n.tmp("counted"), (won, b"mk"), (change, b"kn"), b"mn")?;
    let votes = c.map(n, n.tmp("all"), &[votes, base], |e, a| e.add(a[0], a[1]))?;
    let at = largest(c, n, votes)?;
    labels.set(c, n, at)?;
    if voted {
        return Ok(());
    }
    let y = match classes {
        // After any other transform than this they are taken for shares, as onnxruntime has it.
        2 => both(c, n, n.name(1), s, !["NONE", "LOGISTIC"].contains(&post.as_str()), post == "LOGISTIC")?,
        _ => transformed(c, n, n.name(1), s, &post)?,
    };
    c.set(n, 1, y);
    Ok(())
}
