//! Dims as serde data: a number is a number, an expression its text. Formats that are not for people
//! say first which of the two follows.
use crate::Dim;
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;

/// Bytes of text that are remembered at most.
const REMEMBERED: usize = 1 << 20;
/// Deepest nesting of values that are read.
const DEPTH: u32 = 32;

/// Expressions read so far, by their text.
#[derive(Default)]
struct Known {
    dims: HashMap<Box<str>, Dim>,
    bytes: usize,
}

thread_local! {
    static KNOWN: RefCell<Option<Known>> = const { RefCell::new(None) };
    static DEEP: Cell<u32> = const { Cell::new(0) };
}

/// Runs `read`, within which every text of a dim is read once per thread: the same text gives the
/// same [`Dim`] in the same memory. Nothing is kept beyond it.
pub fn reading<T>(read: impl FnOnce() -> T) -> T {
    struct Before(Option<Known>);
    impl Drop for Before {
        fn drop(&mut self) {
            KNOWN.set(self.0.take());
        }
    }
    let _before = Before(KNOWN.replace(Some(Known::default())));
    read()
}

/// Reads a value that may hold values of its own kind, which are refused when they are nested too
/// deeply for the stack: for `#[serde(deserialize_with)]`.
///
/// # Errors
/// As `T`, and for nesting.
pub fn nested<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<T, D::Error> {
    struct Up;
    impl Drop for Up {
        fn drop(&mut self) {
            DEEP.set(DEEP.get() - 1);
        }
    }
    DEEP.set(DEEP.get() + 1);
    let _up = Up;
    if DEEP.get() > DEPTH {
        return Err(de::Error::custom("it is nested too deeply"));
    }
    T::deserialize(d)
}

/// What was read of this text within [`reading`].
pub(crate) fn known(text: &str) -> Option<Dim> {
    KNOWN.with_borrow(|k| k.as_ref()?.dims.get(text).cloned())
}

/// Has [`known`] know it, within [`reading`].
pub(crate) fn remember(text: &str, d: &Dim) {
    KNOWN.with_borrow_mut(|k| {
        if let Some(k) = k.as_mut().filter(|k| k.bytes + text.len() <= REMEMBERED) {
            k.bytes += text.len();
            k.dims.insert(text.into(), d.clone());
        }
    });
}

fn parsed<E: de::Error>(text: &str) -> Result<Dim, E> {
    if let Some(d) = known(text) {
        return Ok(d);
    }
    let d: Dim = text.parse().map_err(E::custom)?;
    remember(text, &d);
    Ok(d)
}

impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let people = s.is_human_readable();
        match self {
            Dim::Known(n) if people => s.serialize_i64(*n),
            Dim::Expr(_) if people => s.collect_str(self),
            Dim::Known(n) => s.serialize_newtype_variant("Dim", 0, "known", n),
            Dim::Expr(_) => s.serialize_newtype_variant("Dim", 1, "expr", &self.to_string()),
        }
    }
}

struct Form;

impl<'de> de::Visitor<'de> for Form {
    type Value = Dim;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an integer or a dimension expression")
    }

    fn visit_i64<E>(self, n: i64) -> Result<Dim, E> {
        Ok(Dim::Known(n))
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<Dim, E> {
        i64::try_from(n).map(Dim::Known).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, s: &str) -> Result<Dim, E> {
        parsed(s)
    }
}

/// What follows in a format that is not for people.
#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReadForm {
    Known(i64),
    Expr(Text),
}

/// The text of an expression, read where it lies.
struct Text(Dim);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Text, D::Error> {
        d.deserialize_str(Form).map(Text)
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Dim, D::Error> {
        if d.is_human_readable() {
            return d.deserialize_any(Form);
        }
        Ok(match ReadForm::deserialize(d)? {
            ReadForm::Known(n) => Dim::Known(n),
            ReadForm::Expr(Text(d)) => d,
        })
    }
}
