//! A binary form of whatever serde writes, several times faster to read than text: a tag byte per
//! value, numbers by seven bits a byte, and every text once; where it comes again its number stands.
//!
//! | tag | what follows |
//! |---|---|
//! | 0, 1, 2 | nothing: none, false, true |
//! | 3 | a number from 0 up |
//! | 4 | -1 minus a negative number |
//! | 5 | 8 bytes of a float |
//! | 6 | a new text: length and bytes |
//! | 7 | the number of an old text |
//! | 8 | a list: how many values, and they |
//! | 9 | a map: how many pairs, and they |
//! | 0x40 + n | nothing: the number n, below 64 |
//! | 0x80 + n | nothing: old text n, below 128 |
//!
//! A variant is its name, or a map from its name to what it holds.
mod read;
mod write;

use std::fmt;

const NONE: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const POSITIVE: u8 = 3;
const NEGATIVE: u8 = 4;
const FLOAT: u8 = 5;
const NEW: u8 = 6;
const OLD: u8 = 7;
const LIST: u8 = 8;
const MAP: u8 = 9;
const SMALL: u8 = 0x40;
const KNOWN: u8 = 0x80;

/// Deepest nesting that is read.
const DEPTH: u32 = 128;

/// What went wrong.
#[derive(Debug)]
pub(super) struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl serde::ser::Error for Error {
    fn custom<T: fmt::Display>(m: T) -> Error {
        Error(m.to_string())
    }
}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(m: T) -> Error {
        Error(m.to_string())
    }
}

/// `v` in this form.
///
/// # Errors
/// A list or map whose length is not known before it is written.
pub(super) fn to_vec<T: serde::Serialize>(v: &T) -> Result<Vec<u8>, Error> {
    let mut w = write::Writer::default();
    v.serialize(&mut w)?;
    Ok(w.out)
}

/// The value whose form `bytes` are, all of them.
///
/// # Errors
/// Bytes that are no such form.
pub(super) fn from_slice<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    let mut r = read::Reader::new(bytes);
    let v = T::deserialize(&mut r)?;
    match r.ended() {
        true => Ok(v),
        false => Err(Error("more bytes than values".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};
    use std::collections::BTreeMap;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Plain,
        One(i64),
        Two(u8, String),
        Named { a: f32, b: Option<bool> },
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Unit;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Wrapped(u64);

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct All {
        numbers: Vec<i64>,
        large: u64,
        floats: Vec<f64>,
        texts: Vec<String>,
        kinds: Vec<Kind>,
        map: BTreeMap<String, Vec<u8>>,
        by_number: BTreeMap<u32, char>,
        pair: (u8, String),
        hash: [u8; 32],
        none: Option<Box<All>>,
        some: Option<Wrapped>,
        unit: Unit,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left_out: Vec<u8>,
    }

    fn all() -> All {
        let mut texts: Vec<String> = (0..300).map(|i| format!("text {}", i % 200)).collect();
        texts.push(String::new());
        All {
            numbers: vec![0, 63, 64, 127, 128, -1, -64, -65, i64::MAX, i64::MIN],
            large: u64::MAX,
            floats: vec![
                0.0,
                -0.0,
                1.5,
                f64::MAX,
                f64::MIN_POSITIVE,
                f64::NEG_INFINITY,
            ],
            texts,
            kinds: vec![
                Kind::Plain,
                Kind::One(-5),
                Kind::Two(7, "seven".into()),
                Kind::Named {
                    a: 0.1,
                    b: Some(true),
                },
                Kind::Named { a: -2.0, b: None },
            ],
            map: [("x".to_string(), vec![1, 2]), ("numbers".into(), vec![])].into(),
            by_number: [(3, 'c'), (900, '\u{20AC}')].into(),
            pair: (9, "large".into()),
            hash: [200; 32],
            none: None,
            some: Some(Wrapped(5)),
            unit: Unit,
            left_out: vec![],
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut v = all();
        v.none = Some(Box::new(all()));
        let bytes = to_vec(&v).unwrap();
        assert_eq!(from_slice::<All>(&bytes).unwrap(), v);
        assert!(bytes.len() < serde_json::to_vec(&v).unwrap().len() / 2);
        // A reader of anything gets the same as through text.
        let any: serde_json::Value = from_slice(&to_vec(&v.texts).unwrap()).unwrap();
        assert_eq!(any, serde_json::to_value(&v.texts).unwrap());
        let any: serde_json::Value = from_slice(&to_vec(&v.kinds).unwrap()).unwrap();
        assert_eq!(any, serde_json::to_value(&v.kinds).unwrap());
    }

    #[test]
    fn damage_is_an_error_or_another_value() {
        let bytes = to_vec(&all()).unwrap();
        for i in 0..bytes.len() {
            assert!(from_slice::<All>(&bytes[..i]).is_err(), "cut at {i}");
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[i] ^= 1 << bit;
                let _ = from_slice::<All>(&bad);
                let _ = from_slice::<serde_json::Value>(&bad);
            }
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(from_slice::<All>(&longer).is_err());
        // Nesting ends, and a length that nothing follows takes no memory.
        let deep = [LIST, SMALL + 1].repeat(100_000);
        assert!(from_slice::<serde_json::Value>(&deep).is_err());
        let long = [LIST, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F];
        assert!(from_slice::<Vec<u64>>(&long).is_err());
    }
}
