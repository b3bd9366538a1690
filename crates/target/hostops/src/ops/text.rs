//! Operators on texts.
use crate::args::Args;
use crate::data;
use crate::error::R;
use layout::DType;
use std::collections::BTreeMap;
use tensor::Tensor;

/// The texts of input `i` with its shape.
fn texts<'a>(a: &Args<'a>, i: usize) -> R<(&'a [usize], &'a [String])> {
    let t: &'a Tensor = a.input(i)?;
    match t.text() {
        Some(s) if s.len() == data::count(t.shape())? => Ok((t.shape(), s)),
        _ => Err(format!("input {i} is {t:?}, not texts").into()),
    }
}

/// All distinct texts of inputs `from..`, sorted.
fn pool<'a>(a: &Args<'a>, from: usize) -> R<Vec<&'a str>> {
    let mut all = Vec::new();
    for i in from..a.inputs.len() {
        all.extend(texts(a, i)?.1.iter().map(String::as_str));
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// For every input its texts' ranks among all: equal texts have equal numbers.
pub(crate) fn ids(a: &Args) -> R<Vec<Tensor>> {
    a.input(0)?;
    let pool = pool(a, 0)?;
    (0..a.inputs.len())
        .map(|i| {
            let (shape, t) = texts(a, i)?;
            let ranks: Vec<i64> = t
                .iter()
                .map(|s| pool.binary_search(&s.as_str()).map_or(-1, |r| r as i64))
                .collect();
            data::from_i64s(shape, &ranks)
        })
        .collect()
}

/// The texts of inputs 1.. that have the ranks of input 0.
pub(crate) fn pick(a: &Args) -> R<Vec<Tensor>> {
    let pool = pool(a, 1)?;
    let r = a.input(0)?;
    let text = data::ints(r).into_iter().map(|i| {
        let known = usize::try_from(i).ok().and_then(|i| pool.get(i));
        known.copied().unwrap_or("")
    });
    Ok(vec![data::texts(r.shape(), text)?])
}

pub(crate) fn constant(a: &Args) -> R<Vec<Tensor>> {
    let dims = a.attr_ints("dims")?.unwrap_or_default();
    let shape: Vec<usize> = dims.into_iter().map(data::extent).collect::<R<_>>()?;
    Ok(vec![data::texts(&shape, &a.texts("texts")?)?])
}

pub(crate) fn concat(a: &Args) -> R<Vec<Tensor>> {
    let ((xs, x), (ys, y)) = (texts(a, 0)?, texts(a, 1)?);
    let shape = data::broadcast(xs, ys)?;
    let (bx, by) = (
        data::broadcast_strides(xs, &shape)?,
        data::broadcast_strides(ys, &shape)?,
    );
    let count = data::count(&shape)?;
    // Each text of an input stands in as many results as it is repeated.
    let bytes = |t: &[String]| {
        let times = count.checked_div(t.len()).unwrap_or(0);
        data::text_bytes(t)?.checked_mul(times)
    };
    let all = bytes(x).and_then(|n| n.checked_add(bytes(y)?));
    let mut out = data::text_room(count, all)?;
    if count > 0 {
        let mut at = vec![0; shape.len()];
        loop {
            let pos =
                |by: &[i64]| -> usize { at.iter().zip(by).map(|(c, s)| c * *s as usize).sum() };
            out.push(format!("{}{}", x[pos(&bx)], y[pos(&by)]));
            if !data::next(&mut at, &shape) {
                break;
            }
        }
    }
    Ok(vec![Tensor::from_text(&shape, out)?])
}

pub(crate) fn split(a: &Args) -> R<Vec<Tensor>> {
    let (shape, x) = texts(a, 0)?;
    let delimiter = a.text("delimiter", "")?;
    let most = match a.opt_int("maxsplit")? {
        None => usize::MAX,
        Some(n) => data::extent(n)?,
    };
    let counted = x.iter().map(|s| pieces(s, delimiter, most).count());
    let counts: Vec<i64> = counted.map(|n| n as i64).collect();
    let widest = counts.iter().max().map_or(0, |&n| n as usize);
    let mut wide = shape.to_vec();
    wide.push(widest);
    // The pieces are parts of the texts.
    let mut out = data::text_room(data::count(&wide)?, data::text_bytes(x))?;
    for s in x {
        let row = pieces(s, delimiter, most).chain(std::iter::repeat(""));
        out.extend(row.take(widest).map(str::to_string));
    }
    Ok(vec![
        Tensor::from_text(&wide, out)?,
        data::from_i64s(shape, &counts)?,
    ])
}

/// As Python splits: by runs of white space when no delimiter is given.
fn pieces<'t>(s: &'t str, delimiter: &str, most: usize) -> Box<dyn Iterator<Item = &'t str> + 't> {
    if !delimiter.is_empty() {
        let whole = if s.is_empty() {
            0
        } else {
            most.saturating_add(1)
        };
        let delimiter = delimiter.to_string();
        let mut rest = Some(s);
        return Box::new((0..whole).map_while(move |i| {
            let text = rest?;
            let cut = text.split_once(delimiter.as_str()).filter(|_| i < most);
            rest = cut.map(|c| c.1);
            Some(cut.map_or(text, |c| c.0))
        }));
    }
    let mut rest = s.trim_start();
    let mut made = 0;
    Box::new(std::iter::from_fn(move || {
        let end = match made == most {
            true => rest.trim_end().len(),
            false => rest.find(char::is_whitespace).unwrap_or(rest.len()),
        };
        let piece = &rest[..end];
        rest = match made == most {
            true => "",
            false => rest[end..].trim_start(),
        };
        made += 1;
        (!piece.is_empty()).then_some(piece)
    }))
}

pub(crate) fn normalize(a: &Args) -> R<Vec<Tensor>> {
    let (shape, x) = texts(a, 0)?;
    let sensitive = a.int("is_case_sensitive", 0)? != 0;
    let change = a.text("case_change_action", "NONE")?;
    let stop = a.texts("stopwords")?;
    let same = |s: &str, w: &str| {
        if sensitive {
            s == w
        } else {
            s.to_lowercase() == w.to_lowercase()
        }
    };
    let mut out: Vec<String> = x
        .iter()
        .filter(|s| !stop.iter().any(|w| same(s, w)))
        .map(|s| match change {
            "LOWER" => s.to_lowercase(),
            "UPPER" => s.to_uppercase(),
            _ => s.clone(),
        })
        .collect();
    if !stop.is_empty() && out.is_empty() {
        out.push(String::new());
    }
    let mut shape = shape.to_vec();
    match shape.as_mut_slice() {
        [n] => *n = out.len(),
        [1, n] => *n = out.len(),
        [_, _] if stop.is_empty() => {}
        _ => return Err("its input must be one row of texts".into()),
    }
    Ok(vec![Tensor::from_text(&shape, out)?])
}

pub(crate) fn cast(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let to = match a.text("to", "")? {
        "str" => DType::Str,
        t => DType::from_name(t).ok_or("it casts to no type")?,
    };
    if to == DType::Str {
        let text = match x.text() {
            Some(t) => data::texts(x.shape(), t)?,
            None => data::texts(x.shape(), (0..x.len()).map(|i| shown(x, i)))?,
        };
        return Ok(vec![text]);
    }
    let (shape, t) = texts(a, 0)?;
    let mut y = data::alloc(to, shape)?;
    for (i, s) in t.iter().enumerate() {
        let wrong = || format!("'{s}' is no number");
        if to.is_float() {
            y.set_f64(i, number(s).ok_or_else(wrong)?);
        } else if let Ok(v) = s.trim().parse::<i64>() {
            y.set_i64(i, v);
        } else {
            y.set_f64(i, number(s).ok_or_else(wrong)?);
        }
    }
    Ok(vec![y])
}

fn number(s: &str) -> Option<f64> {
    let t = s.trim();
    match t.to_ascii_lowercase().as_str() {
        "inf" | "+inf" | "infinity" => Some(f64::INFINITY),
        "-inf" | "-infinity" => Some(f64::NEG_INFINITY),
        "nan" => Some(f64::NAN),
        _ => t.parse().ok(),
    }
}

/// Digits of a float as text, whatever its type, as onnxruntime writes it.
const DIGITS: i32 = 8;

/// A number as text.
fn shown(x: &Tensor, i: usize) -> String {
    match x.dtype() {
        DType::Bool => (if x.get_i64(i) != 0 { "1" } else { "0" }).into(),
        DType::U64 => (x.get_i64(i) as u64).to_string(),
        d if !d.is_float() => x.get_i64(i).to_string(),
        _ => {
            let v = x.get_f64(i);
            if v.is_nan() {
                "NaN".into()
            } else if v.is_infinite() {
                (if v > 0.0 { "INF" } else { "-INF" }).into()
            } else {
                plain(v)
            }
        }
    }
}

/// As C's `%g` has it: an exponent for very large and very small numbers only, and no zeros at the end.
fn plain(v: f64) -> String {
    let scientific = format!("{v:.*e}", DIGITS as usize - 1);
    let (mantissa, e) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
    let e: i32 = e.parse().unwrap_or(0);
    if v == 0.0 {
        return if v.is_sign_negative() { "-0" } else { "0" }.into();
    }
    if !(-4..DIGITS).contains(&e) {
        let sign = if e < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", e.abs());
    }
    let negative = mantissa.starts_with('-');
    let d: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let mut s = if e < 0 {
        format!("0.{}{d}", "0".repeat((-e - 1) as usize))
    } else {
        let whole = e as usize + 1;
        match d.len() > whole {
            true => format!("{}.{}", &d[..whole], &d[whole..]),
            false => format!("{d}{}", "0".repeat(whole - d.len())),
        }
    };
    if negative {
        s.insert(0, '-');
    }
    s
}

pub(crate) fn tf_idf(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let mode = a.text("mode", "TF")?;
    let least = data::extent(a.int("min_gram_length", 1)?)?.max(1);
    let most = data::extent(a.int("max_gram_length", 1)?)?;
    let skips = data::extent(a.int("max_skip_count", 0)?)?;
    let counts = a
        .attr_ints("ngram_counts")?
        .ok_or("ngram_counts is missing")?;
    let indexes = a
        .attr_ints("ngram_indexes")?
        .ok_or("ngram_indexes is missing")?;
    let weights = a.floats("weights")?;
    let pool: Vec<String> = match a.attr_ints("pool_int64s")? {
        Some(v) => v.into_iter().map(|i| i.to_string()).collect(),
        None => a.texts("pool_strings")?,
    };
    let width = indexes
        .iter()
        .map(|i| data::extent(*i).map(|i| i + 1))
        .try_fold(0usize, |m, i| i.map(|i| m.max(i)))?;
    // Every n-gram of the pool and which output counts it.
    let mut grams: BTreeMap<&[String], usize> = BTreeMap::new();
    let mut id = 0;
    for (k, &start) in counts.iter().enumerate() {
        let length = k + 1;
        let start = data::extent(start)?;
        let end = match counts.get(k + 1) {
            Some(e) => data::extent(*e)?,
            None => pool.len(),
        };
        let part = pool
            .get(start..end)
            .ok_or("ngram_counts lies outside the pool")?;
        for gram in part.chunks_exact(length) {
            if length >= least && length <= most {
                grams.insert(gram, id);
            }
            id += 1;
        }
    }
    if id > indexes.len() {
        return Err(format!("{id} n-grams need as many ngram_indexes").into());
    }
    let all: Vec<String> = match x.text() {
        Some(t) => t.to_vec(),
        None => data::ints(x).into_iter().map(|i| i.to_string()).collect(),
    };
    let (rows, columns) = match *x.shape() {
        [c] => (1, c),
        [r, c] => (r, c),
        _ => return Err(format!("X has shape {:?}, not rows", x.shape()).into()),
    };
    let mut shape = x.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = width;
    }
    let mut y = data::alloc(DType::F32, &shape)?;
    for r in 0..rows {
        let row = &all[r * columns..(r + 1) * columns];
        let mut found = vec![0u64; indexes.len()];
        for length in least..=most.min(columns) {
            // A single item skips nothing.
            let steps = if length == 1 {
                1
            } else {
                skips.saturating_add(1)
            };
            for step in 1..=steps {
                let span = match (length - 1).checked_mul(step) {
                    Some(s) if s < columns => s,
                    _ => break,
                };
                for start in 0..columns - span {
                    let gram: Vec<String> =
                        (0..length).map(|i| row[start + i * step].clone()).collect();
                    if let Some(&g) = grams.get(gram.as_slice()) {
                        found[g] += 1;
                    }
                }
            }
        }
        for (g, &n) in found.iter().enumerate().filter(|f| *f.1 > 0) {
            let w = weights.get(g).copied().unwrap_or(1.0);
            let v = match mode {
                "TF" => n as f64,
                "IDF" => w,
                "TFIDF" => n as f64 * w,
                m => return Err(format!("mode '{m}' is not one that ONNX lists").into()),
            };
            let at = r * width + indexes[g] as usize;
            y.set_f64(at, y.get_f64(at) + v);
        }
    }
    Ok(vec![y])
}
