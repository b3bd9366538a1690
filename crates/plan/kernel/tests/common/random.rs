//! Seeded mutations of JSON values.
use serde_json::Value;

use fastrand::Rng;

fn count(v: &Value) -> usize {
    1 + match v {
        Value::Array(a) => a.iter().map(count).sum(),
        Value::Object(o) => o.values().map(count).sum(),
        _ => 0,
    }
}

fn nth(v: &mut Value, n: &mut usize, f: &mut dyn FnMut(&mut Value)) {
    if *n == 0 {
        f(v);
        *n = usize::MAX;
        return;
    }
    *n -= 1;
    let children: Vec<&mut Value> = match v {
        Value::Array(a) => a.iter_mut().collect(),
        Value::Object(o) => o.values_mut().collect(),
        _ => vec![],
    };
    for c in children {
        nth(c, n, f);
        if *n == usize::MAX {
            return;
        }
    }
}

/// Changes one random part of `v`.
pub fn mutate(v: &mut Value, rng: &mut Rng) {
    let mut at = rng.usize(..count(v));
    let mut other = Value::Null;
    let mut from = rng.usize(..count(v));
    nth(v, &mut from, &mut |x| other = x.clone());
    nth(v, &mut at, &mut |x| match x {
        Value::Number(n) => {
            let old = n.as_i64().unwrap_or(0);
            *x = match rng.usize(..8) {
                0 => 0.into(),
                1 => (-1).into(),
                2 => i64::MAX.into(),
                3 => i64::MIN.into(),
                4 => old.wrapping_add(1).into(),
                5 => old.wrapping_sub(1).into(),
                6 => u32::MAX.into(),
                _ => (rng.usize(..20) as i64).into(),
            };
        }
        Value::String(s) => match rng.usize(..5) {
            0 => s.clear(),
            1 => *s = "b*b*b".into(),
            2 => *s = "register".into(),
            3 => *s = ["i64", "f32", "f16", "bool", "read", "write", "i4"][rng.usize(..7)].into(),
            _ => *x = other.clone(),
        },
        Value::Array(a) if !a.is_empty() => match rng.usize(..5) {
            0 => a.clear(),
            1 => {
                a.remove(rng.usize(..a.len()));
            }
            2 => {
                let c = a[rng.usize(..a.len())].clone();
                a.push(c);
            }
            3 => {
                let (i, j) = (rng.usize(..a.len()), rng.usize(..a.len()));
                a.swap(i, j);
            }
            _ => *x = other.clone(),
        },
        _ => *x = other.clone(),
    });
}
