//! Outputs against a reference.
use layout::{DType, Inserted};
use serde::Serialize;
use std::collections::BTreeMap;
use tensor::Tensor;

/// What an output may differ by: `|got - want| <= atol + rtol * max|want|` for every element, the
/// largest magnitude being that of the whole output. Integers and booleans must be equal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tolerance {
    /// Relative to the output's largest magnitude.
    pub rtol: f64,
    /// Absolute.
    pub atol: f64,
}

impl Default for Tolerance {
    fn default() -> Tolerance {
        Tolerance {
            rtol: 1e-4,
            atol: 0.0,
        }
    }
}

impl Tolerance {
    /// The default for outputs of a type: that of [`Tolerance::default`], or two units in the last place of the largest
    /// element where that is more, as it is for f16 and bf16.
    pub fn of(dtype: DType) -> Tolerance {
        let digits = match dtype {
            DType::F16 => 10,
            DType::BF16 => 7,
            _ => return Tolerance::default(),
        };
        Tolerance {
            rtol: 2.0 * 0.5f64.powi(digits),
            ..Tolerance::default()
        }
    }
}

/// An element.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Element {
    /// Coordinates.
    pub at: Vec<usize>,
    /// Value given.
    pub got: f64,
    /// Value of the reference.
    pub want: f64,
}

/// One output against its reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutputComparison {
    /// Output's name.
    pub name: String,
    /// Allowed difference.
    pub tolerance: Tolerance,
    /// Whether it is within the tolerance.
    pub agrees: bool,
    /// `max|got - want| / max|want|`; none where shapes or dtypes differ.
    pub difference: Option<f64>,
    /// The element that is farthest off.
    pub worst: Option<Element>,
    /// What else is wrong.
    pub problem: Option<String>,
}

/// All outputs against a reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Whether all agree.
    pub agrees: bool,
    /// Each output of the reference.
    pub outputs: Vec<OutputComparison>,
}

impl Comparison {
    /// The first disagreement as one sentence that names output and element.
    pub fn complaint(&self) -> Option<String> {
        let o = self.outputs.iter().find(|o| !o.agrees)?;
        Some(match (&o.problem, &o.worst) {
            (Some(p), _) => format!("output '{}' {p}", o.name),
            (None, Some(w)) => format!(
                "output '{}' differs from the reference: element {:?} is {} and should be {} (allowed: {} of the largest magnitude, plus {}); \
                 if that is expected, raise --rtol or --atol",
                o.name, w.at, w.got, w.want, o.tolerance.rtol, o.tolerance.atol
            ),
            (None, None) => format!("output '{}' differs from the reference", o.name),
        })
    }
}

fn coordinates(shape: &[usize], mut i: usize) -> Vec<usize> {
    let mut at = vec![0; shape.len()];
    for d in (0..shape.len()).rev() {
        at[d] = i % shape[d].max(1);
        i /= shape[d].max(1);
    }
    at
}

fn one(name: &str, got: Option<&Tensor>, want: &Tensor, tolerance: Tolerance) -> OutputComparison {
    let mut out = OutputComparison {
        name: name.into(),
        tolerance,
        agrees: false,
        difference: None,
        worst: None,
        problem: None,
    };
    let Some(got) = got else {
        out.problem = Some(
            "is in the reference, but the model does not give it; take it out of the reference"
                .into(),
        );
        return out;
    };
    if got.shape() != want.shape() {
        let remedy = match (want.shape(), got.len().div_ceil(want.len().max(1))) {
            ([n], every) if *n == got.len().div_ceil(every) => {
                format!("where it holds every {every}th element, say --stride {every}")
            }
            _ => "compare with a reference for the same inputs".into(),
        };
        out.problem = Some(format!(
            "has shape {:?}, but the reference has {:?}; {remedy}",
            got.shape(),
            want.shape()
        ));
        return out;
    }
    if got.dtype() != want.dtype() {
        out.problem = Some(format!(
            "is {}, but the reference is {}; convert the reference",
            got.dtype(),
            want.dtype()
        ));
        return out;
    }
    if want.dtype().is_held() {
        // Texts and sequences are equal or not.
        out.agrees = got.host_value() == want.host_value();
        out.difference = out.agrees.then_some(0.0);
        if !out.agrees {
            out.problem = Some("holds other texts or items than the reference".into());
        }
        return out;
    }
    let mut worst: Option<(f64, usize)> = None;
    let mut note = |d: f64, i: usize| {
        if worst.is_none_or(|w| d > w.0) {
            worst = Some((d, i));
        }
    };
    let mut size = 0f64;
    for i in 0..want.len() {
        if !want.dtype().is_float() {
            let apart = got.get_i64(i).abs_diff(want.get_i64(i));
            note(apart as f64, i);
            continue;
        }
        let (a, b) = (got.get_f64(i), want.get_f64(i));
        if b.is_finite() {
            size = size.max(b.abs());
        }
        let same = a == b || (a.is_nan() && b.is_nan());
        note(
            if same {
                0.0
            } else if a.is_finite() && b.is_finite() {
                (a - b).abs()
            } else {
                f64::INFINITY
            },
            i,
        );
    }
    let apart = worst.map_or(0.0, |w| w.0);
    let allowed = if want.dtype().is_float() {
        tolerance.atol + tolerance.rtol * size
    } else {
        0.0
    };
    out.agrees = apart <= allowed;
    out.difference = Some(if apart == 0.0 {
        0.0
    } else {
        apart / size.max(1e-30)
    });
    out.worst = worst.filter(|w| w.0 > 0.0).map(|(_, i)| Element {
        at: coordinates(want.shape(), i),
        got: got.get_f64(i),
        want: want.get_f64(i),
    });
    out
}

/// Compares every tensor of `want` with the one of its name in `got`.
pub fn compare(
    got: &[(String, Tensor)],
    want: &[(String, Tensor)],
    tolerance: Tolerance,
) -> Comparison {
    compare_by_type(got, want, |_| tolerance)
}

/// As [`compare`], with a tolerance for each type of output, such as [`Tolerance::of`].
pub fn compare_by_type(
    got: &[(String, Tensor)],
    want: &[(String, Tensor)],
    tolerance: impl Fn(DType) -> Tolerance,
) -> Comparison {
    // The first of a name counts.
    let named: BTreeMap<&str, &Tensor> = got.iter().rev().map(|(n, t)| (n.as_str(), t)).inserted();
    let outputs: Vec<OutputComparison> = want
        .iter()
        .map(|(name, w)| {
            let got = named.get(name.as_str()).copied();
            one(name, got, w, tolerance(w.dtype()))
        })
        .collect();
    Comparison {
        agrees: outputs.iter().all(|o| o.agrees),
        outputs,
    }
}

/// Elements 0, `stride`, 2 x `stride`, ... of a tensor of whole bytes in row-major order, as one dimension: what a
/// reference holds that was thinned out. A tensor of 4-bit elements, or a stride of 0 or 1, comes back as it is.
pub fn thinned(t: &Tensor, stride: usize) -> Tensor {
    let width = t.dtype().bits() as usize / 8;
    if stride <= 1 || width == 0 {
        return t.clone();
    }
    let bytes: Vec<u8> = (0..t.len())
        .step_by(stride)
        .flat_map(|i| &t.bytes()[i * width..(i + 1) * width])
        .copied()
        .collect();
    Tensor::from_bytes(t.dtype(), &[t.len().div_ceil(stride)], bytes).unwrap_or_else(|_| t.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_element_is_named() {
        let want = vec![(
            "y".to_string(),
            Tensor::from_f32(&[2, 2], &[1.0, 2.0, -4.0, 0.0]).unwrap(),
        )];
        let mut got = want.clone();
        got[0].1.set_f64(3, 1e-4);
        assert!(compare(&got, &want, Tolerance::default()).agrees);
        got[0].1.set_f64(3, 1e-2);
        let c = compare(&got, &want, Tolerance::default());
        assert!(!c.agrees);
        let w = c.outputs[0].worst.clone().unwrap();
        assert_eq!(w.at, [1, 1]);
        assert!(c.complaint().unwrap().contains("element [1, 1]"));
        assert!(
            compare(
                &got,
                &want,
                Tolerance {
                    rtol: 0.0,
                    atol: 0.1
                }
            )
            .agrees
        );
        got[0].1.set_f64(0, f64::NAN);
        assert!(
            !compare(
                &got,
                &want,
                Tolerance {
                    rtol: 1.0,
                    atol: 1.0
                }
            )
            .agrees
        );
        assert!(
            compare(&[], &want, Tolerance::default())
                .complaint()
                .unwrap()
                .contains("does not give it")
        );
    }

    #[test]
    fn every_third() {
        let t = Tensor::from_f32(&[7], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!(
            thinned(&t, 3),
            Tensor::from_f32(&[3], &[0.0, 3.0, 6.0]).unwrap()
        );
    }
}
