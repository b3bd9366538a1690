//! Seeded mutations of JSON values.
use serde_json::Value;

/// A small generator (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E3779B97F4A7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D049BB133111EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.draw() % n.max(1) as u64) as usize
    }
}

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
    let mut at = rng.below(count(v));
    let mut other = Value::Null;
    let mut from = rng.below(count(v));
    nth(v, &mut from, &mut |x| other = x.clone());
    nth(v, &mut at, &mut |x| match x {
        Value::Number(n) => {
            let old = n.as_i64().unwrap_or(0);
            *x = match rng.below(8) {
                0 => 0.into(),
                1 => (-1).into(),
                2 => i64::MAX.into(),
                3 => i64::MIN.into(),
                4 => old.wrapping_add(1).into(),
                5 => old.wrapping_sub(1).into(),
                6 => u32::MAX.into(),
                _ => (rng.below(20) as i64).into(),
            };
        }
        Value::String(s) => match rng.below(5) {
            0 => s.clear(),
            1 => *s = "b*b*b".into(),
            2 => *s = "register".into(),
            3 => *s = ["i64", "f32", "f16", "bool", "read", "write", "i4"][rng.below(7)].into(),
            _ => *x = other.clone(),
        },
        Value::Array(a) if !a.is_empty() => match rng.below(5) {
            0 => a.clear(),
            1 => {
                a.remove(rng.below(a.len()));
            }
            2 => {
                let c = a[rng.below(a.len())].clone();
                a.push(c);
            }
            3 => {
                let (i, j) = (rng.below(a.len()), rng.below(a.len()));
                a.swap(i, j);
            }
            _ => *x = other.clone(),
        },
        _ => *x = other.clone(),
    });
}
