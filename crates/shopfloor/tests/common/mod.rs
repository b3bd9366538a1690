//! Models that tests write themselves.

/// An ONNX file with the sum over all of exp(tanh(x)) for `n` numbers.
pub fn sums(n: u64) -> Vec<u8> {
    fn number(mut v: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while v >= 128 {
            out.push(v as u8 | 128);
            v >>= 7;
        }
        out.push(v as u8);
        out
    }
    let field = |f: u64, bytes: &[u8]| {
        [&number(f << 3 | 2)[..], &number(bytes.len() as u64), bytes].concat()
    };
    let int = |f: u64, v: u64| [number(f << 3), number(v)].concat();
    let text = |f: u64, t: &str| field(f, t.as_bytes());
    let node = |op: &str, from: &str, to: &str| {
        let all = [text(1, from), text(2, to), text(3, to), text(4, op)];
        field(1, &all.concat())
    };
    let port = |f: u64, name: &str, dims: &[u64]| {
        let dims: Vec<u8> = dims.iter().flat_map(|&d| field(1, &int(1, d))).collect();
        let tensor = [int(1, 1), field(2, &dims)].concat();
        field(f, &[text(1, name), field(2, &field(1, &tensor))].concat())
    };
    let graph = [
        node("Tanh", "x", "t"),
        node("Exp", "t", "e"),
        node("ReduceSum", "e", "y"),
        text(2, "sums"),
        port(11, "x", &[1, n]),
        port(12, "y", &[1, 1]),
    ];
    let opset = [text(1, ""), int(2, 13)].concat();
    [int(1, 8), field(7, &graph.concat()), field(8, &opset)].concat()
}
