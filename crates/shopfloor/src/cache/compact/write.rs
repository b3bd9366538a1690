use super::{
    Error, FALSE, FLOAT, KNOWN, LIST, MAP, NEGATIVE, NEW, NONE, OLD, POSITIVE, SMALL, TRUE,
};
use serde::ser::{self, Serialize};
use std::collections::HashMap;

/// Writes values one after the other.
#[derive(Default)]
pub(super) struct Writer {
    pub out: Vec<u8>,
    /// Texts so far with their numbers.
    texts: HashMap<String, u64>,
}

impl Writer {
    fn count(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.out.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.out.push(n as u8);
    }

    fn text(&mut self, s: &str) {
        match self.texts.get(s) {
            Some(&n) if n < 0x80 => self.out.push(KNOWN + n as u8),
            Some(&n) => {
                self.out.push(OLD);
                self.count(n);
            }
            None => {
                let n = self.texts.len() as u64;
                self.texts.insert(s.to_string(), n);
                self.out.push(NEW);
                self.count(s.len() as u64);
                self.out.extend_from_slice(s.as_bytes());
            }
        }
    }

    fn begin(&mut self, tag: u8, len: Option<usize>) -> Result<(), Error> {
        let n = len.ok_or_else(|| Error("a list of unknown length".into()))?;
        self.out.push(tag);
        self.count(n as u64);
        Ok(())
    }

    /// The name of a variant that holds something.
    fn variant(&mut self, name: &str) {
        self.out.push(MAP);
        self.count(1);
        self.text(name);
    }
}

type Done = Result<(), Error>;

impl<'a> ser::Serializer for &'a mut Writer {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = &'a mut Writer;
    type SerializeTuple = &'a mut Writer;
    type SerializeTupleStruct = &'a mut Writer;
    type SerializeTupleVariant = &'a mut Writer;
    type SerializeMap = &'a mut Writer;
    type SerializeStruct = &'a mut Writer;
    type SerializeStructVariant = &'a mut Writer;

    fn serialize_bool(self, v: bool) -> Done {
        self.out.push(if v { TRUE } else { FALSE });
        Ok(())
    }
    fn serialize_i8(self, v: i8) -> Done {
        self.serialize_i64(v.into())
    }
    fn serialize_i16(self, v: i16) -> Done {
        self.serialize_i64(v.into())
    }
    fn serialize_i32(self, v: i32) -> Done {
        self.serialize_i64(v.into())
    }
    fn serialize_i64(self, v: i64) -> Done {
        if let Ok(n) = u64::try_from(v) {
            return self.serialize_u64(n);
        }
        self.out.push(NEGATIVE);
        self.count(!v as u64);
        Ok(())
    }
    fn serialize_u8(self, v: u8) -> Done {
        self.serialize_u64(v.into())
    }
    fn serialize_u16(self, v: u16) -> Done {
        self.serialize_u64(v.into())
    }
    fn serialize_u32(self, v: u32) -> Done {
        self.serialize_u64(v.into())
    }
    fn serialize_u64(self, v: u64) -> Done {
        if v < u64::from(SMALL) {
            self.out.push(SMALL + v as u8);
        } else {
            self.out.push(POSITIVE);
            self.count(v);
        }
        Ok(())
    }
    fn serialize_f32(self, v: f32) -> Done {
        self.serialize_f64(v.into())
    }
    fn serialize_f64(self, v: f64) -> Done {
        self.out.push(FLOAT);
        self.out.extend_from_slice(&v.to_le_bytes());
        Ok(())
    }
    fn serialize_char(self, v: char) -> Done {
        self.text(v.encode_utf8(&mut [0; 4]));
        Ok(())
    }
    fn serialize_str(self, v: &str) -> Done {
        self.text(v);
        Ok(())
    }
    fn serialize_bytes(self, v: &[u8]) -> Done {
        v.serialize(self)
    }
    fn serialize_none(self) -> Done {
        self.serialize_unit()
    }
    fn serialize_some<T: Serialize + ?Sized>(self, v: &T) -> Done {
        v.serialize(self)
    }
    fn serialize_unit(self) -> Done {
        self.out.push(NONE);
        Ok(())
    }
    fn serialize_unit_struct(self, _: &'static str) -> Done {
        self.serialize_unit()
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Done {
        self.text(name);
        Ok(())
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, v: &T) -> Done {
        v.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        v: &T,
    ) -> Done {
        self.variant(name);
        v.serialize(self)
    }
    fn serialize_seq(self, len: Option<usize>) -> Result<Self, Error> {
        self.begin(LIST, len)?;
        Ok(self)
    }
    fn serialize_tuple(self, len: usize) -> Result<Self, Error> {
        self.serialize_seq(Some(len))
    }
    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Self, Error> {
        self.serialize_seq(Some(len))
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        len: usize,
    ) -> Result<Self, Error> {
        self.variant(name);
        self.serialize_seq(Some(len))
    }
    fn serialize_map(self, len: Option<usize>) -> Result<Self, Error> {
        self.begin(MAP, len)?;
        Ok(self)
    }
    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Self, Error> {
        self.serialize_map(Some(len))
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        len: usize,
    ) -> Result<Self, Error> {
        self.variant(name);
        self.serialize_map(Some(len))
    }
}

macro_rules! elements {
    ($($of:ident $f:ident),*) => {
        $(impl ser::$of for &mut Writer {
            type Ok = ();
            type Error = Error;
            fn $f<T: Serialize + ?Sized>(&mut self, v: &T) -> Done {
                v.serialize(&mut **self)
            }
            fn end(self) -> Done {
                Ok(())
            }
        })*
    };
}

elements!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);

impl ser::SerializeMap for &mut Writer {
    type Ok = ();
    type Error = Error;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, v: &T) -> Done {
        v.serialize(&mut **self)
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, v: &T) -> Done {
        v.serialize(&mut **self)
    }
    fn end(self) -> Done {
        Ok(())
    }
}

macro_rules! fields {
    ($($of:ident),*) => {
        $(impl ser::$of for &mut Writer {
            type Ok = ();
            type Error = Error;
            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, v: &T) -> Done {
                self.text(name);
                v.serialize(&mut **self)
            }
            fn end(self) -> Done {
                Ok(())
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);
