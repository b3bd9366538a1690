use super::{
    DEPTH, Error, FALSE, FLOAT, KNOWN, LIST, MAP, NEGATIVE, NEW, NONE, OLD, POSITIVE, SMALL, TRUE,
};
use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};

/// Reads values one after the other.
pub(super) struct Reader<'de> {
    rest: &'de [u8],
    texts: Vec<&'de str>,
    depth: u32,
}

fn bad(what: &str) -> Error {
    Error(what.into())
}

impl<'de> Reader<'de> {
    pub fn new(bytes: &'de [u8]) -> Reader<'de> {
        Reader {
            rest: bytes,
            texts: Vec::new(),
            depth: 0,
        }
    }

    pub fn ended(&self) -> bool {
        self.rest.is_empty()
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let (&b, rest) = self.rest.split_first().ok_or_else(|| bad("too short"))?;
        self.rest = rest;
        Ok(b)
    }

    fn count(&mut self) -> Result<u64, Error> {
        let (mut n, mut shift) = (0u64, 0);
        loop {
            let b = self.byte()?;
            let part = u64::from(b & 0x7F);
            if shift >= 64 || (part << shift) >> shift != part {
                return Err(bad("a number is too large"));
            }
            n |= part << shift;
            if b < 0x80 {
                return Ok(n);
            }
            shift += 7;
        }
    }

    fn take(&mut self, n: u64) -> Result<&'de [u8], Error> {
        let n = usize::try_from(n).map_err(|_| bad("too short"))?;
        let (taken, rest) = (self.rest.split_at_checked(n)).ok_or_else(|| bad("too short"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn old(&self, n: u64) -> Result<&'de str, Error> {
        let text = usize::try_from(n).ok().and_then(|n| self.texts.get(n));
        text.copied().ok_or_else(|| bad("a text that is not there"))
    }

    /// The text that begins with `tag`, if one does.
    fn text(&mut self, tag: u8) -> Result<Option<&'de str>, Error> {
        match tag {
            KNOWN.. => self.old(u64::from(tag - KNOWN)).map(Some),
            OLD => {
                let n = self.count()?;
                self.old(n).map(Some)
            }
            NEW => {
                let n = self.count()?;
                let bytes = self.take(n)?;
                let text = std::str::from_utf8(bytes).map_err(|_| bad("a text is no text"))?;
                self.texts.push(text);
                Ok(Some(text))
            }
            _ => Ok(None),
        }
    }

    fn deeper(&mut self) -> Result<(), Error> {
        self.depth += 1;
        match self.depth <= DEPTH {
            true => Ok(()),
            false => Err(bad("nested too deeply")),
        }
    }
}

impl<'de> de::Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let tag = self.byte()?;
        if let Some(text) = self.text(tag)? {
            return visitor.visit_borrowed_str(text);
        }
        match tag {
            NONE => visitor.visit_unit(),
            FALSE => visitor.visit_bool(false),
            TRUE => visitor.visit_bool(true),
            POSITIVE => visitor.visit_u64(self.count()?),
            NEGATIVE => match i64::try_from(self.count()?) {
                Ok(n) => visitor.visit_i64(!n),
                Err(_) => Err(bad("a number is too large")),
            },
            FLOAT => {
                let bytes = self.take(8)?.try_into().map_err(|_| bad("too short"))?;
                visitor.visit_f64(f64::from_le_bytes(bytes))
            }
            LIST => {
                let left = self.count()?;
                self.deeper()?;
                let mut part = Part { of: self, left };
                let v = visitor.visit_seq(&mut part)?;
                part.end()?;
                Ok(v)
            }
            MAP => {
                let left = self.count()?;
                self.deeper()?;
                let mut part = Part { of: self, left };
                let v = visitor.visit_map(&mut part)?;
                part.end()?;
                Ok(v)
            }
            SMALL.. => visitor.visit_u64(u64::from(tag - SMALL)),
            _ => Err(bad("an unknown tag")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.rest.first() {
            Some(&NONE) => {
                self.byte()?;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let tag = self.byte()?;
        if let Some(name) = self.text(tag)? {
            let name: de::value::BorrowedStrDeserializer<'de, Error> =
                de::value::BorrowedStrDeserializer::new(name);
            return visitor.visit_enum(name);
        }
        if tag != MAP || self.count()? != 1 {
            return Err(bad("no variant"));
        }
        self.deeper()?;
        let v = visitor.visit_enum(&mut *self)?;
        self.depth -= 1;
        Ok(v)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// What of a list or map is left.
struct Part<'a, 'de> {
    of: &'a mut Reader<'de>,
    left: u64,
}

impl Part<'_, '_> {
    fn next(&mut self) -> bool {
        let more = self.left > 0;
        self.left -= u64::from(more);
        more
    }

    fn hint(&self) -> Option<usize> {
        // Each takes a byte at least.
        usize::try_from(self.left)
            .ok()
            .map(|n| n.min(self.of.rest.len()))
    }

    fn end(self) -> Result<(), Error> {
        self.of.depth -= 1;
        match self.left {
            0 => Ok(()),
            _ => Err(bad("a list is longer than what it is for")),
        }
    }
}

impl<'de> de::SeqAccess<'de> for &mut Part<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        match self.next() {
            true => seed.deserialize(&mut *self.of).map(Some),
            false => Ok(None),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

impl<'de> de::MapAccess<'de> for &mut Part<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        match self.next() {
            true => seed.deserialize(&mut *self.of).map(Some),
            false => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(&mut *self.of)
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

impl<'de> de::EnumAccess<'de> for &mut Reader<'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let tag = self.byte()?;
        let name = self.text(tag)?.ok_or_else(|| bad("no name of a variant"))?;
        Ok((seed.deserialize(name.into_deserializer())?, self))
    }
}

impl<'de> de::VariantAccess<'de> for &mut Reader<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        de::Deserialize::deserialize(self)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_any(self, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        de::Deserializer::deserialize_any(self, visitor)
    }
}
