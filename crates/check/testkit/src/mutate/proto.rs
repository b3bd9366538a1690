//! Damage to protobuf messages that stay well-formed: lengths are made anew around what changed.
use crate::random::Rng;

/// A field: its key, and its value as it stands on the wire (without a length).
#[derive(Clone)]
pub struct Field {
    key: u64,
    value: Vec<u8>,
}

/// Nesting that is looked into.
const DEEPEST: usize = 8;
/// Numbers that readers trip over.
const NUMBERS: [u64; 12] = [
    0,
    1,
    2,
    7,
    63,
    127,
    255,
    0x7fff_ffff,
    0x8000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut v = 0u64;
    for shift in (0..64).step_by(7) {
        let b = *bytes.get(*at)?;
        *at += 1;
        v |= u64::from(b & 0x7f) << shift;
        if b < 0x80 {
            return Some(v);
        }
    }
    None
}

fn put_varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// The fields of a message; `None` when the bytes are none.
pub fn fields(bytes: &[u8]) -> Option<Vec<Field>> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let key = varint(bytes, &mut at)?;
        let from = at;
        let end = match key & 7 {
            0 => {
                varint(bytes, &mut at)?;
                at
            }
            1 => at.checked_add(8)?,
            2 => {
                let n = usize::try_from(varint(bytes, &mut at)?).ok()?;
                at.checked_add(n)?
            }
            5 => at.checked_add(4)?,
            _ => return None,
        };
        let start = if key & 7 == 2 { at } else { from };
        if key >> 3 == 0 {
            return None;
        }
        out.push(Field {
            key,
            value: bytes.get(start..end)?.to_vec(),
        });
        at = end;
    }
    Some(out)
}

/// The message of these fields.
pub fn message(fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for f in fields {
        put_varint(f.key, &mut out);
        if f.key & 7 == 2 {
            put_varint(f.value.len() as u64, &mut out);
        }
        out.extend(&f.value);
    }
    out
}

/// A copy of a message with one to four fields changed, doubled, removed, swapped or renumbered, at
/// any depth; bytes that are no message are damaged as such.
pub fn damaged_proto(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..1 + rng.below(4) {
        out = match fields(&out) {
            Some(f) if !f.is_empty() => message(&changed(f, rng, 0)),
            _ => super::damaged(&out, rng),
        };
    }
    out
}

fn changed(mut list: Vec<Field>, rng: &mut Rng, depth: usize) -> Vec<Field> {
    let at = rng.below(list.len());
    // Down into what may be a message itself, most of the time.
    if list[at].key & 7 == 2 && depth < DEEPEST && !rng.once_in(4) {
        match fields(&list[at].value) {
            Some(f) if !f.is_empty() => {
                list[at].value = message(&changed(f, rng, depth + 1));
                return list;
            }
            _ => {
                // A text, packed numbers or raw elements.
                list[at].value = super::damaged(&list[at].value, rng);
                return list;
            }
        }
    }
    match rng.below(6) {
        0 => drop(list.remove(at)),
        1 => {
            let copy = list[at].clone();
            list.insert(rng.below(list.len() + 1), copy);
        }
        2 => {
            let other = rng.below(list.len());
            list.swap(at, other);
        }
        // Another field's value under this number.
        3 => {
            let other = rng.below(list.len());
            if list[at].key & 7 == list[other].key & 7 {
                list[at].value = list[other].value.clone();
            }
        }
        4 => {
            let wire = list[at].key & 7;
            list[at].key = (1 + rng.below(24) as u64) << 3 | wire;
        }
        _ => {
            let f = &mut list[at];
            match f.key & 7 {
                0 => {
                    f.value.clear();
                    put_varint(rng.of(&NUMBERS), &mut f.value);
                }
                2 => f.value = super::damaged(&f.value, rng),
                _ => f.value.fill(rng.of(&[0, 0xff, 0x7f, 0x80])),
            }
        }
    }
    list
}
