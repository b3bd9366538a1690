//! A protobuf writer that also writes what a proper one would not.

use shopfloor_onnx::{Error, ModelFile};

/// A message under construction.
#[derive(Clone, Default)]
pub struct Msg(pub Vec<u8>);

pub fn msg() -> Msg {
    Msg::default()
}

pub fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

impl Msg {
    fn tag(&mut self, field: u32, wire: u32) {
        varint(u64::from(field << 3 | wire), &mut self.0);
    }

    pub fn int(mut self, field: u32, value: i64) -> Msg {
        self.tag(field, 0);
        varint(value as u64, &mut self.0);
        self
    }

    pub fn bytes(mut self, field: u32, bytes: &[u8]) -> Msg {
        self.tag(field, 2);
        varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn text(self, field: u32, text: &str) -> Msg {
        self.bytes(field, text.as_bytes())
    }

    pub fn sub(self, field: u32, message: Msg) -> Msg {
        self.bytes(field, &message.0)
    }

    pub fn fixed32(mut self, field: u32, bytes: [u8; 4]) -> Msg {
        self.tag(field, 5);
        self.0.extend_from_slice(&bytes);
        self
    }

    pub fn fixed64(mut self, field: u32, bytes: [u8; 8]) -> Msg {
        self.tag(field, 1);
        self.0.extend_from_slice(&bytes);
        self
    }

    pub fn packed(self, field: u32, values: &[i64]) -> Msg {
        let mut bytes = Vec::new();
        values.iter().for_each(|&v| varint(v as u64, &mut bytes));
        self.bytes(field, &bytes)
    }

    pub fn ints(self, field: u32, values: &[i64]) -> Msg {
        values.iter().fold(self, |m, &v| m.int(field, v))
    }

    /// Any bytes, such as a broken tag.
    pub fn raw(mut self, bytes: &[u8]) -> Msg {
        self.0.extend_from_slice(bytes);
        self
    }
}

pub fn opset(domain: &str, version: i64) -> Msg {
    msg().text(1, domain).int(2, version)
}

/// A model of IR version 8 around a graph.
pub fn model(graph: Msg) -> Msg {
    msg().int(1, 8).sub(8, opset("", 17)).sub(7, graph)
}

/// The head of a tensor: name, dtype, dims.
pub fn tensor(name: &str, dtype: i64, dims: &[i64]) -> Msg {
    msg().packed(1, dims).int(2, dtype).text(8, name)
}

pub fn entry(key: &str, value: &str) -> Msg {
    msg().text(1, key).text(2, value)
}

/// Shape with one number, one symbol and one unstated dim.
pub fn value_info(name: &str, dtype: i64) -> Msg {
    let dim = |m: Msg| m;
    let shape = msg()
        .sub(1, dim(msg().int(1, 3)))
        .sub(1, dim(msg().text(2, "batch")))
        .sub(1, dim(msg()));
    msg()
        .text(1, name)
        .sub(2, msg().sub(1, msg().int(1, dtype).sub(2, shape)))
}

fn attribute(name: &str, kind: i64) -> Msg {
    msg().text(1, name).int(20, kind)
}

fn sparse() -> Msg {
    msg()
        .sub(1, tensor("sparse", 1, &[1]).bytes(4, &1f32.to_le_bytes()))
        .sub(2, tensor("", 7, &[1]).packed(7, &[2]))
        .packed(3, &[9])
}

/// A node with attributes of every kind.
fn rich_node() -> Msg {
    let subgraph = msg()
        .text(2, "branch")
        .sub(1, msg().text(1, "x").text(2, "b").text(4, "Neg"))
        .sub(12, value_info("b", 1));
    msg()
        .text(1, "x")
        .text(1, "")
        .text(2, "y")
        .text(3, "node")
        .text(4, "If")
        .text(7, "ai.onnx")
        .text(8, "second")
        .text(6, "documentation")
        .sub(5, attribute("f", 1).fixed32(2, 0.5f32.to_le_bytes()))
        .sub(5, attribute("i", 2).int(3, -7))
        .sub(5, attribute("s", 3).bytes(4, b"NOTSET"))
        .sub(
            5,
            attribute("t", 4).sub(5, tensor("", 6, &[2]).packed(5, &[-1, 5])),
        )
        .sub(5, attribute("g", 5).sub(6, subgraph.clone()))
        .sub(
            5,
            attribute("fs", 6).bytes(7, &[0, 0, 128, 63, 0, 0, 0, 64]),
        )
        .sub(5, attribute("is", 7).ints(8, &[1, -1, 300]))
        .sub(5, attribute("ss", 8).text(9, "a").text(9, ""))
        .sub(
            5,
            attribute("ts", 9).sub(10, tensor("", 7, &[]).packed(7, &[4])),
        )
        .sub(5, attribute("gs", 10).sub(11, subgraph))
        .sub(5, attribute("sp", 11).sub(22, sparse()))
        .sub(5, attribute("sps", 12).sub(23, sparse()))
        .sub(5, attribute("tp", 13).sub(14, msg().sub(4, msg())))
        .sub(
            5,
            attribute("tps", 14).sub(15, msg().sub(7, msg().text(1, "d").text(2, "n"))),
        )
}

/// A model with every message that this reader knows.
pub fn rich_model() -> Msg {
    let nested = |field, inner: Msg| msg().sub(field, msg().sub(1, inner));
    let tensor_type = || msg().sub(1, msg().int(1, 8));
    let graph = msg()
        .text(2, "main")
        .sub(1, rich_node())
        .sub(
            5,
            tensor("w", 1, &[2]).bytes(9, &[0, 0, 128, 63, 0, 0, 0, 64]),
        )
        .sub(15, sparse())
        .sub(11, value_info("x", 1))
        .sub(11, msg().text(1, "seq").sub(2, nested(4, tensor_type())))
        .sub(
            11,
            msg()
                .text(1, "opt")
                .sub(2, nested(9, nested(4, tensor_type()))),
        )
        .sub(
            11,
            msg()
                .text(1, "map")
                .sub(2, msg().sub(5, msg().int(1, 7).sub(2, tensor_type()))),
        )
        .sub(12, msg().text(1, "y"))
        .sub(13, value_info("mid", 10));
    let function = msg()
        .text(1, "Twice")
        .text(10, "local")
        .text(13, "o")
        .text(4, "a")
        .text(5, "b")
        .text(6, "alpha")
        .sub(11, attribute("beta", 1).fixed32(2, 2f32.to_le_bytes()))
        .sub(
            7,
            msg()
                .text(1, "a")
                .text(2, "b")
                .text(4, "Elu")
                .sub(5, attribute("alpha", 1).text(21, "alpha")),
        )
        .sub(9, opset("", 18))
        .sub(12, value_info("b", 1));
    msg()
        .int(1, 10)
        .text(2, "maker")
        .text(3, "1.0")
        .text(4, "example.org")
        .int(5, 3)
        .text(6, "documentation")
        .sub(8, opset("ai.onnx", 21))
        .sub(8, opset("local", 1))
        .sub(14, entry("key", "value"))
        .sub(25, function)
        .sub(7, graph)
}

pub fn read(message: Msg) -> Result<ModelFile, Error> {
    ModelFile::from_bytes(message.0, None)
}
