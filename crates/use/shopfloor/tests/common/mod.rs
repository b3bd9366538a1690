//! Models that tests write themselves.

pub type Field = Vec<u8>;

fn number(mut v: u64) -> Field {
    let mut out = Vec::new();
    while v >= 128 {
        out.push(v as u8 | 128);
        v >>= 7;
    }
    out.push(v as u8);
    out
}

#[allow(dead_code)] // Not every test's.
pub fn field(f: u64, bytes: &[u8]) -> Field {
    [&number(f << 3 | 2)[..], &number(bytes.len() as u64), bytes].concat()
}

#[allow(dead_code)] // Not every test's.
pub fn int(f: u64, v: u64) -> Field {
    [number(f << 3), number(v)].concat()
}

#[allow(dead_code)] // Not every test's.
pub fn text(f: u64, t: &str) -> Field {
    field(f, t.as_bytes())
}

fn node(op: &str, from: &[&str], to: &str) -> Field {
    node_with(op, from, to, &[])
}

/// A node with attributes that are lists of numbers.
fn node_with(op: &str, from: &[&str], to: &str, lists: &[(&str, &[u64])]) -> Field {
    let mut all: Vec<Field> = from.iter().map(|v| text(1, v)).collect();
    all.extend([text(2, to), text(3, to), text(4, op)]);
    for (name, list) in lists {
        let numbers: Field = list.iter().flat_map(|&i| int(8, i)).collect();
        all.push(field(5, &[text(1, name), numbers, int(20, 7)].concat()));
    }
    field(1, &all.concat())
}

/// A constant of numbers between -0.1 and 0.1.
fn weight(name: &str, dims: &[u64]) -> Field {
    let mut state = 1u32;
    let mut data = Field::new();
    for _ in 0..dims.iter().product() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let v = (state >> 8) as f32 / (1 << 24) as f32;
        data.extend((0.2 * v - 0.1).to_le_bytes());
    }
    let shape: Field = dims.iter().flat_map(|&d| int(1, d)).collect();
    field(
        5,
        &[shape, int(2, 1), text(8, name), field(9, &data)].concat(),
    )
}

/// An input (11) or output (12) of numbers.
fn port(f: u64, name: &str, dims: &[u64]) -> Field {
    let dims: Field = dims.iter().flat_map(|&d| field(1, &int(1, d))).collect();
    let tensor = [int(1, 1), field(2, &dims)].concat();
    field(f, &[text(1, name), field(2, &field(1, &tensor))].concat())
}

fn model(graph: &[Field]) -> Vec<u8> {
    let opset = [text(1, ""), int(2, 13)].concat();
    [int(1, 8), field(7, &graph.concat()), field(8, &opset)].concat()
}

/// An ONNX file with x + b, neither of whose ranks is stated.
#[allow(dead_code)] // Not every test's.
pub fn unranked() -> Vec<u8> {
    let open = |f: u64, name: &str| {
        let tensor = field(1, &int(1, 1));
        field(f, &[text(1, name), field(2, &tensor)].concat())
    };
    model(&[
        node("Add", &["x", "b"], "y"),
        text(2, "unranked"),
        open(11, "x"),
        open(11, "b"),
        open(12, "y"),
    ])
}

/// An ONNX file with the sum over all of exp(tanh(x)) for `n` numbers.
#[allow(dead_code)] // Not every test's.
pub fn sums(n: u64) -> Vec<u8> {
    model(&[
        node("Tanh", &["x"], "t"),
        node("Exp", &["t"], "e"),
        node("ReduceSum", &["e"], "y"),
        text(2, "sums"),
        port(11, "x", &[1, n]),
        port(12, "y", &[1, 1]),
    ])
}

/// An ONNX file with `wide` numbers z times the sum over all `n` numbers x: the result spans more than the
/// sum's space, so that no rule puts the two in one kernel.
#[allow(dead_code)] // Not every test's.
pub fn spread(n: u64, wide: u64) -> Vec<u8> {
    model(&[
        node("ReduceSum", &["x"], "r"),
        node("Mul", &["z", "r"], "y"),
        text(2, "spread"),
        port(11, "x", &[1, n]),
        port(11, "z", &[1, wide]),
        port(12, "y", &[1, wide]),
    ])
}

/// An ONNX file with a convolution of 3x3 from `from` to `to` channels, pooled and flattened for a product.
#[allow(dead_code)] // Not every test's.
pub fn pooled(from: u64, to: u64, side: u64) -> Vec<u8> {
    let half = side / 2;
    let two: &[u64] = &[2, 2];
    model(&[
        node_with("Conv", &["x", "w0"], "a", &[("pads", &[1, 1, 1, 1])]),
        node_with(
            "MaxPool",
            &["a"],
            "p",
            &[("kernel_shape", two), ("strides", two)],
        ),
        node("Flatten", &["p"], "f"),
        node("MatMul", &["f", "w1"], "y"),
        text(2, "pooled"),
        weight("w0", &[to, from, 3, 3]),
        weight("w1", &[to * half * half, 64]),
        port(11, "x", &[1, from, side, side]),
        port(12, "y", &[1, 64]),
    ])
}

/// An ONNX file with a recurrence over `time` steps of `wide` numbers each, forwards and backwards: two
/// kernels of one task each, neither of which waits for the other.
#[allow(dead_code)] // Not every test's.
pub fn both_ways(time: u64, wide: u64) -> Vec<u8> {
    let hidden = [text(1, "hidden_size"), int(3, wide), int(20, 2)].concat();
    let ways = [text(1, "direction"), text(4, "bidirectional"), int(20, 3)].concat();
    let ports = ["x", "w", "r"].map(|v| text(1, v)).concat();
    let lstm = [ports, text(2, "y"), text(3, "y"), text(4, "LSTM")].concat();
    model(&[
        field(1, &[lstm, field(5, &hidden), field(5, &ways)].concat()),
        text(2, "both_ways"),
        weight("w", &[2, 4 * wide, wide]),
        weight("r", &[2, 4 * wide, wide]),
        port(11, "x", &[time, 1, wide]),
        port(12, "y", &[time, 2, 1, wide]),
    ])
}

/// An ONNX file of a sequence `s` of tensors whose ranks are not stated: `y` is the shape of its first item, `v` has the
/// positive part of each.
#[allow(dead_code)] // Not every test's.
pub fn items() -> Vec<u8> {
    let tensor = field(1, &int(1, 1));
    let port = |f: u64, name: &str, ty: &[u8]| field(f, &[text(1, name), field(2, ty)].concat());
    let many = field(4, &field(1, &tensor));
    let first = [int(2, 7), text(8, "p"), field(9, &[0; 8])].concat();
    let body = [
        node("Relu", &["b"], "o"),
        text(2, "body"),
        port(11, "b", &tensor),
        port(12, "o", &tensor),
    ];
    let body = [text(1, "body"), field(6, &body.concat()), int(20, 5)].concat();
    let map = [
        text(1, "s"),
        text(2, "v"),
        text(3, "v"),
        text(4, "SequenceMap"),
        field(5, &body),
    ];
    let graph = [
        node("SequenceAt", &["s", "p"], "a"),
        node("Shape", &["a"], "y"),
        field(1, &map.concat()),
        text(2, "items"),
        field(5, &first),
        port(11, "s", &many),
        port(12, "y", &field(1, &int(1, 7))),
        port(12, "v", &many),
    ];
    let opset = [text(1, ""), int(2, 18)].concat();
    [int(1, 9), field(7, &graph.concat()), field(8, &opset)].concat()
}
