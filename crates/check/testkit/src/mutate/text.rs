//! Damage to texts (JSON, TOML, graphs): tokens change, lines move.
use crate::random::Rng;

/// Numbers that readers trip over.
const NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "2",
    "65536",
    "2147483648",
    "4294967296",
    "-9223372036854775808",
    "9223372036854775807",
    "18446744073709551616",
    "1e308",
    "-1e999",
    "0.5",
    "null",
];

/// Tokens: runs of letters and digits, runs of spaces, single other characters.
pub fn tokens(text: &str) -> Vec<&str> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || matches!(c, '_' | '.' | '-') => 0,
        c if c.is_whitespace() => 1,
        _ => 2,
    };
    let (mut out, mut from) = (Vec::new(), 0);
    let mut last: Option<u8> = None;
    for (i, c) in text.char_indices() {
        let k = kind(c);
        if last.is_some_and(|l| l != k || k == 2) {
            out.push(&text[from..i]);
            from = i;
        }
        last = Some(k);
    }
    out.push(&text[from..]);
    out
}

/// A copy of a text with one to four tokens or lines changed, doubled, removed or swapped; what is no
/// text is damaged as bytes are.
pub fn damaged_text(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return super::damaged(bytes, rng);
    };
    if rng.once_in(8) {
        return super::damaged(bytes, rng);
    }
    // Lines where there are some, else tokens; numbers are tokens.
    let by_lines = rng.once_in(4) && text.lines().count() > 3;
    let mut parts: Vec<&str> = match by_lines {
        true => text.split_inclusive('\n').collect(),
        false => tokens(text),
    };
    for _ in 0..1 + rng.below(4) {
        if parts.is_empty() {
            break;
        }
        let at = rng.below(parts.len());
        let numbers: Vec<usize> = (0..parts.len())
            .filter(|&i| parts[i].starts_with(|c: char| c.is_ascii_digit() || c == '-'))
            .collect();
        match rng.below(7) {
            0 => drop(parts.remove(at)),
            1 => parts.insert(rng.below(parts.len() + 1), parts[at]),
            2 => {
                let other = rng.below(parts.len());
                parts.swap(at, other);
            }
            3 => parts[at] = parts[rng.below(parts.len())],
            _ if by_lines || numbers.is_empty() => parts[at] = rng.of(&NUMBERS),
            // A number for a number: the form stays.
            4 => {
                let other = parts[rng.of(&numbers)];
                parts[rng.of(&numbers)] = other;
            }
            _ => parts[rng.of(&numbers)] = rng.of(&NUMBERS),
        }
    }
    parts.concat().into_bytes()
}
