//! Models that tests write themselves.

type Field = Vec<u8>;

fn number(mut v: u64) -> Field {
    let mut out = Vec::new();
    while v >= 128 {
        out.push(v as u8 | 128);
        v >>= 7;
    }
    out.push(v as u8);
    out
}

fn field(f: u64, bytes: &[u8]) -> Field {
    [&number(f << 3 | 2)[..], &number(bytes.len() as u64), bytes].concat()
}

fn int(f: u64, v: u64) -> Field {
    [number(f << 3), number(v)].concat()
}

fn text(f: u64, t: &str) -> Field {
    field(f, t.as_bytes())
}

fn node(op: &str, from: &[&str], to: &str) -> Field {
    let mut all: Vec<Field> = from.iter().map(|v| text(1, v)).collect();
    all.extend([text(2, to), text(3, to), text(4, op)]);
    field(1, &all.concat())
}

/// An input (11) or output (12) of [1, `n`] numbers.
fn port(f: u64, name: &str, n: u64) -> Field {
    let dims = [1, n].map(|d| field(1, &int(1, d))).concat();
    let tensor = [int(1, 1), field(2, &dims)].concat();
    field(f, &[text(1, name), field(2, &field(1, &tensor))].concat())
}

fn model(graph: &[Field]) -> Vec<u8> {
    let opset = [text(1, ""), int(2, 13)].concat();
    [int(1, 8), field(7, &graph.concat()), field(8, &opset)].concat()
}

/// An ONNX file with the sum over all of exp(tanh(x)) for `n` numbers.
pub fn sums(n: u64) -> Vec<u8> {
    model(&[
        node("Tanh", &["x"], "t"),
        node("Exp", &["t"], "e"),
        node("ReduceSum", &["e"], "y"),
        text(2, "sums"),
        port(11, "x", n),
        port(12, "y", 1),
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
        port(11, "x", n),
        port(11, "z", wide),
        port(12, "y", wide),
    ])
}
