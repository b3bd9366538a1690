//! ONNX files under construction, message by message: fields are those of `onnx.proto`.

/// A protobuf message under construction.
#[derive(Clone, Default)]
pub struct Msg(pub Vec<u8>);

fn varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

impl Msg {
    /// It with a whole number as a field.
    pub fn int(mut self, field: u64, v: u64) -> Msg {
        varint(field << 3, &mut self.0);
        varint(v, &mut self.0);
        self
    }

    /// It with bytes as a field.
    pub fn bytes(mut self, field: u64, bytes: &[u8]) -> Msg {
        varint(field << 3 | 2, &mut self.0);
        varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
        self
    }

    /// It with a text as a field.
    pub fn text(self, field: u64, text: &str) -> Msg {
        self.bytes(field, text.as_bytes())
    }

    /// It with a message as a field.
    pub fn sub(self, field: u64, m: &Msg) -> Msg {
        self.bytes(field, &m.0)
    }
}

/// A node of operator `op`.
pub fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> Msg {
    let m = inputs.iter().fold(Msg::default(), |m, i| m.text(1, i));
    let m = outputs.iter().fold(m, |m, o| m.text(2, o));
    m.text(4, op)
}

/// A whole number as an attribute.
pub fn int_attribute(name: &str, v: u64) -> Msg {
    Msg::default().text(1, name).int(3, v).int(20, 2)
}

/// A graph as an attribute.
pub fn graph_attribute(name: &str, g: &Msg) -> Msg {
    Msg::default().text(1, name).sub(6, g).int(20, 5)
}

/// What a graph takes or gives: sizes that are numbers are known, others names.
pub fn value(name: &str, dtype: u64, shape: &[&str]) -> Msg {
    let shape = shape.iter().fold(Msg::default(), |m, d| {
        let dim = match d.parse() {
            Ok(n) => Msg::default().int(1, n),
            Err(_) => Msg::default().text(2, d),
        };
        m.sub(1, &dim)
    });
    let tensor = Msg::default().int(1, dtype).sub(2, &shape);
    Msg::default()
        .text(1, name)
        .sub(2, &Msg::default().sub(1, &tensor))
}

/// A float as an attribute.
pub fn float_attribute(name: &str, v: f32) -> Msg {
    let mut m = Msg::default().text(1, name);
    // Field 2, four bytes.
    m.0.push(2 << 3 | 5);
    m.0.extend(v.to_le_bytes());
    m.int(20, 1)
}

/// Whole numbers as an attribute.
pub fn ints_attribute(name: &str, all: &[i64]) -> Msg {
    let m = Msg::default().text(1, name);
    let m = all.iter().fold(m, |m, &v| m.int(8, v as u64));
    m.int(20, 7)
}
