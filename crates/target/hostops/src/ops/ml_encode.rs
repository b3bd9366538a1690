//! ai.onnx.ml look-ups among categories, maps of scores, and the probabilities of support vector
//! classifiers.
use crate::args::Args;
use crate::data;
use crate::error::{R, Why};
use layout::DType;
use layout::Inserted;
use std::collections::BTreeMap;
use tensor::{Attr, HostValue, Tensor};

fn tensor<'a>(a: &Args<'a>, name: &str) -> R<&'a Tensor> {
    match a.attrs.get(name) {
        Some(Attr::Tensor(t)) => Ok(t),
        _ => Err(format!("attribute '{name}' must be a tensor").into()),
    }
}

/// A key that can be compared: text, or the bits of a number. All NaN are one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Text(&'a str),
    Int(i64),
    Bits(u64),
}

fn key(t: &Tensor, i: usize) -> Key<'_> {
    match t.text() {
        Some(s) => Key::Text(s.get(i).map_or("", String::as_str)),
        None if t.dtype().is_float() => {
            let v = t.get_f64(i);
            // 0 and -0 are equal.
            Key::Bits(if v.is_nan() {
                u64::MAX
            } else {
                (v + 0.0).to_bits()
            })
        }
        None => Key::Int(t.get_i64(i)),
    }
}

/// `values` at the position of each element among `keys`.
pub(crate) fn look_up(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let (keys, values, default) = (
        tensor(a, "keys")?,
        tensor(a, "values")?,
        tensor(a, "default")?,
    );
    let n = keys.len().min(values.len());
    // Keys of another number type are compared as that type.
    let same = keys.dtype() == x.dtype();
    let mut table = BTreeMap::new();
    for i in 0..n {
        table.entry(key(keys, i)).or_insert(i);
    }
    let find = |i: usize| {
        let k = match (same, x.dtype().is_float()) {
            (false, _) if x.text().is_none() && keys.dtype().is_float() => {
                Key::Bits((x.get_f64(i) + 0.0).to_bits())
            }
            (false, _) if x.text().is_none() => Key::Int(x.get_i64(i)),
            _ => key(x, i),
        };
        table.get(&k).copied()
    };
    if let Some(texts) = values.text() {
        let other = default.text().and_then(|t| t.first());
        let other = other.map_or("", String::as_str);
        let all = (0..x.len()).map(|i| {
            find(i)
                .and_then(|p| texts.get(p))
                .map_or(other, String::as_str)
        });
        return Ok(vec![data::texts(x.shape(), all)?]);
    }
    let mut y = data::alloc(values.dtype(), x.shape())?;
    if default.is_empty() {
        return Err("attribute 'default' holds nothing".into());
    }
    for i in 0..x.len() {
        let (from, at) = find(i).map_or((default, 0), |p| (values, p));
        match y.dtype().is_float() {
            true => y.set_f64(i, from.get_f64(at)),
            false => y.set_i64(i, from.get_i64(at)),
        }
    }
    Ok(vec![y])
}

/// The texts of attribute `texts` at the positions of input 0.
pub(crate) fn choose(a: &Args) -> R<Vec<Tensor>> {
    let at = a.input(0)?;
    let texts = a.texts("texts")?;
    let all = data::ints(at)
        .into_iter()
        .map(|i| Ok(&texts[data::index(i, texts.len())?]))
        .collect::<R<Vec<&String>>>()?;
    Ok(vec![data::texts(at.shape(), all)?])
}

pub(crate) fn one_hot(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let zeros = a.int("zeros", 1)? != 0;
    let cats = match a.attr_ints("cats_int64s")?.filter(|v| !v.is_empty()) {
        Some(v) => Tensor::from_i64(&[v.len()], &v)?,
        None => {
            let t = a.texts("cats_strings")?;
            Tensor::from_text(&[t.len()], t)?
        }
    };
    let count = cats.len();
    let mut shape = x.shape().to_vec();
    shape.push(count);
    let mut y = data::alloc(DType::F32, &shape)?;
    for i in 0..x.len() {
        let k = if x.text().is_some() {
            key(x, i)
        } else {
            Key::Int(x.get_i64(i))
        };
        match (0..count).find(|&c| key(&cats, c) == k) {
            Some(c) => y.set_f64(i * count + c, 1.0),
            None if zeros => {}
            None => {
                return Err(
                    "an element is none of the categories; set 'zeros' to allow that".into(),
                );
            }
        }
    }
    Ok(vec![y])
}

pub(crate) fn zip_map(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let keys = match a.attr_ints("classlabels_int64s")?.filter(|v| !v.is_empty()) {
        Some(v) => Tensor::from_i64(&[v.len()], &v)?,
        None => {
            let t = a.texts("classlabels_strings")?;
            Tensor::from_text(&[t.len()], t)?
        }
    };
    let (rows, columns) = match *x.shape() {
        [c] => (1, c),
        [r, c] => (r, c),
        _ => return Err(format!("its input has shape {:?}, not rows", x.shape()).into()),
    };
    if columns != keys.len() {
        return Err(format!("{columns} columns do not fit {} labels", keys.len()).into());
    }
    let v = data::f32s(x);
    let maps = (0..rows)
        .map(|r| {
            let values = Tensor::from_f32(&[columns], &v[r * columns..(r + 1) * columns])?;
            Ok(Tensor::from_host_value(HostValue::Map {
                keys: Box::new(keys.clone()),
                values: Box::new(values),
            }))
        })
        .collect::<R<Vec<_>>>()?;
    Ok(vec![Tensor::sequence(maps)])
}

/// The values of a map in the order of its keys, or at their keys, as another type.
pub(crate) fn cast_map(a: &Args) -> R<Vec<Tensor>> {
    let Some(HostValue::Map { keys, values }) = a.input(0)?.host_value() else {
        return Err("its input is no map".into());
    };
    let (cast, form) = (a.text("cast_to", "TO_FLOAT")?, a.text("map_form", "DENSE")?);
    // Of keys that are there twice the last one counts, as in a dict.
    let places = (0..keys.len().min(values.len())).map(|i| (keys.get_i64(i), i));
    let places: BTreeMap<i64, usize> = places.inserted();
    let from: Vec<Option<usize>> = match form == "SPARSE" {
        false => places.values().map(|&i| Some(i)).collect(),
        true => {
            if let Some((least, _)) = places.first_key_value().filter(|(k, _)| **k < 0) {
                return Err(format!(
                    "its map has the key {least}; negative keys have no place in a sparse form"
                )
                .into());
            }
            let count = data::extent(a.int("max_map", 1)?)?;
            // Whether there may be so many.
            drop(data::alloc(DType::I64, &[1, count])?);
            let at = |k| i64::try_from(k).ok().and_then(|k| places.get(&k).copied());
            (0..count).map(at).collect()
        }
    };
    let shape = [1, from.len()];
    let texts = values.text();
    let float = |i: usize| match texts {
        Some(t) => t
            .get(i)
            .map(String::as_str)
            .unwrap_or_default()
            .trim()
            .parse(),
        None => Ok(values.get_f64(i) as f32),
    };
    let wrong = |i: usize| {
        let text = texts.and_then(|t| t.get(i)).map_or("", String::as_str);
        Why(format!(
            "its map has '{text}', which is no number; give it numbers"
        ))
    };
    if cast == "TO_STRING" {
        let text = |i: &Option<usize>| match (i, texts) {
            // What onnxruntime fills up with.
            (None, _) => "0.f".to_string(),
            (Some(i), Some(t)) => t.get(*i).cloned().unwrap_or_default(),
            (Some(i), None) => format!("{:.6}", values.get_f64(*i)),
        };
        let all: Vec<String> = from.iter().map(text).collect();
        return Ok(vec![data::texts(&shape, all.iter().map(String::as_str))?]);
    }
    let dtype = if cast == "TO_INT64" {
        DType::I64
    } else {
        DType::F32
    };
    let mut y = data::alloc(dtype, &shape)?;
    for (to, i) in from.iter().enumerate() {
        let Some(i) = *i else { continue };
        let f: f32 = float(i).map_err(|_| wrong(i))?;
        match dtype {
            DType::I64 => y.set_i64(to, f as i64),
            _ => y.set_f64(to, f64::from(f)),
        }
    }
    Ok(vec![y])
}

pub(crate) fn dict_vectorizer(a: &Args) -> R<Vec<Tensor>> {
    let Some(HostValue::Map { keys, values }) = a.input(0)?.host_value() else {
        return Err("its input is no map".into());
    };
    let wanted = match a.attr_ints("int64_vocabulary")?.filter(|v| !v.is_empty()) {
        Some(v) => Tensor::from_i64(&[v.len()], &v)?,
        None => {
            let t = a.texts("string_vocabulary")?;
            Tensor::from_text(&[t.len()], t)?
        }
    };
    let count = wanted.len();
    if values.text().is_some() {
        let t = values.text().unwrap_or_default();
        let all = (0..count).map(|i| {
            let at = (0..keys.len()).find(|&k| key(keys, k) == key(&wanted, i));
            at.and_then(|k| t.get(k)).map_or("", String::as_str)
        });
        return Ok(vec![data::texts(&[1, count], all)?]);
    }
    let mut y = data::alloc(values.dtype(), &[1, count])?;
    for i in 0..count {
        if let Some(k) =
            (0..keys.len().min(values.len())).find(|&k| key(keys, k) == key(&wanted, i))
        {
            match y.dtype().is_float() {
                true => y.set_f64(i, values.get_f64(k)),
                false => y.set_i64(i, values.get_i64(k)),
            }
        }
    }
    Ok(vec![y])
}

/// Class probabilities from the scores of every pair of classes: pairwise logistic models, joined
/// by the second method of Wu, Lin and Weng (2004).
pub(crate) fn svm_probabilities(a: &Args) -> R<Vec<Tensor>> {
    let s = a.input(0)?;
    let k = data::extent(a.int("classes", 0)?)?;
    let (pa, pb) = (a.floats("prob_a")?, a.floats("prob_b")?);
    if !(2..=4096).contains(&k) {
        return Err(format!("it tells {k} classes apart; use 2 to 4096").into());
    }
    let pairs = k * (k - 1) / 2;
    let [rows, columns] = *s.shape() else {
        return Err(format!("its scores have shape {:?}", s.shape()).into());
    };
    if columns != pairs || pa.len() != pairs || pb.len() != pairs {
        return Err(format!("{columns} scores do not fit {k} classes").into());
    }
    let mut y = data::alloc(DType::F32, &[rows, k])?;
    let mut p = vec![0.0f64; k * k];
    for r in 0..rows {
        let mut at = 0;
        for i in 0..k {
            for j in i + 1..k {
                let v = s.get_f64(r * pairs + at) * pa[at] + pb[at];
                let q = (1.0 / (1.0 + v.exp())).clamp(1e-7, 1.0 - 1e-7);
                p[i * k + j] = q;
                p[j * k + i] = 1.0 - q;
                at += 1;
            }
        }
        for (c, v) in couple_probabilities(&p, k).into_iter().enumerate() {
            y.set_f64(r * k + c, v);
        }
    }
    Ok(vec![y])
}

/// Minimises the disagreement of class probabilities with those of pairs.
fn couple_probabilities(r: &[f64], k: usize) -> Vec<f64> {
    let mut p = vec![1.0 / k as f64; k];
    let mut q = vec![0.0; k * k];
    for t in 0..k {
        for j in 0..k {
            if j != t {
                q[t * k + t] += r[j * k + t] * r[j * k + t];
                q[t * k + j] = -r[j * k + t] * r[t * k + j];
            }
        }
    }
    let limit = 0.005 / k as f64;
    let mut qp = vec![0.0; k];
    for _ in 0..k.max(100) {
        let mut whole = 0.0;
        for t in 0..k {
            qp[t] = (0..k).map(|j| q[t * k + j] * p[j]).sum();
            whole += p[t] * qp[t];
        }
        if qp.iter().all(|v| (v - whole).abs() < limit) {
            break;
        }
        for t in 0..k {
            let diff = (whole - qp[t]) / q[t * k + t];
            p[t] += diff;
            whole =
                (whole + diff * (diff * q[t * k + t] + 2.0 * qp[t])) / (1.0 + diff) / (1.0 + diff);
            for j in 0..k {
                qp[j] = (qp[j] + diff * q[t * k + j]) / (1.0 + diff);
                p[j] /= 1.0 + diff;
            }
        }
    }
    p
}
