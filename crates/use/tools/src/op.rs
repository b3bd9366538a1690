//! Models of one operator, for benchmarks.
use expr::{ExprBuilder, functions};
use graph::{ContractSpec, ConvSpec, GraphBuilder, Op, Origin, ValueId};
use layout::{DType, Dim};
use shopfloor::inputs::random_tensor;
use shopfloor::{Error, Model, ModelOptions};
use std::sync::Arc;
use tensor::{Tensor, WeightId, WeightStore};

/// How operators are written.
pub const OP_FORMS: &str = "matmul:MxNxK:f32[:dynamic], conv:N,C,H,W,OC,KH,KW,STRIDE,PAD[:f32], map:N:f32:FUNCTION or map:N:f32:Kin";

/// Functions that `map` knows.
const FUNCTIONS: &[&str] = &[
    "relu",
    "gelu",
    "gelu_tanh",
    "sigmoid",
    "silu",
    "tanh",
    "erf",
    "exp",
    "log",
    "sqrt",
    "add",
    "mul",
];

fn bad(text: &str, why: &str) -> Error {
    Error::Usage(format!("operator '{text}': {why}; write {OP_FORMS}"))
}

fn numbers(text: &str, list: &str, by: char, n: usize) -> Result<Vec<i64>, Error> {
    let v: Option<Vec<i64>> = list
        .split(by)
        .map(|s| {
            s.trim()
                .parse()
                .ok()
                .filter(|&n: &i64| (0..=1 << 32).contains(&n))
        })
        .collect();
    v.filter(|v| v.len() == n).ok_or_else(|| {
        bad(
            text,
            &format!("'{list}' should be {n} whole numbers with '{by}' between"),
        )
    })
}

fn dtype(text: &str, name: Option<&str>) -> Result<DType, Error> {
    DType::from_name(name.unwrap_or("f32"))
        .filter(|d| d.is_float())
        .ok_or_else(|| bad(text, "the element type should be f32, f64, f16 or bf16"))
}

fn dims(v: &[i64]) -> Vec<Dim> {
    v.iter().map(|&n| Dim::Known(n)).collect()
}

fn origin(op: &str) -> Origin {
    Origin {
        name: op.to_string(),
        op_type: op.to_string(),
    }
}

/// A random constant; checked before it is filled, since the sizes come from the command line.
fn constant(
    text: &str,
    weights: &mut WeightStore,
    shape: &[i64],
    d: DType,
) -> Result<WeightId, Error> {
    let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
    Tensor::byte_len(d, &shape)
        .ok()
        .filter(|&b| b <= 1 << 34)
        .ok_or_else(|| bad(text, "its weights take more than 16 GiB"))?;
    Ok(weights.add_tensor("weights", random_tensor("weights", d, &shape)?)?)
}

fn product(text: &str, sizes: &str, rest: &[&str]) -> Result<Model, Error> {
    let mut weights = WeightStore::new();
    let v = numbers(text, sizes, 'x', 3)?;
    let (m, n, k) = (v[0], v[1], v[2]);
    let d = dtype(text, rest.first().copied())?;
    let dynamic = match rest.get(1).copied() {
        None => false,
        Some("dynamic") => true,
        Some(other) => return Err(bad(text, &format!("'{other}' is not understood"))),
    };
    let w = if dynamic {
        None
    } else {
        Some(constant(text, &mut weights, &[k, n], d)?)
    };
    let mut b = GraphBuilder::new(text, Arc::new(weights));
    let a = b.input("a", d, dims(&[m, k]));
    let w = match w {
        Some(w) => b.weight(w)?,
        None => b.input("b", d, dims(&[k, n])),
    };
    let spec = ContractSpec {
        a: vec![0, 1],
        b: vec![1, 2],
        out: vec![0, 2],
    };
    let y = b.node(Op::Contract(spec), &[a, w], &["c"], &origin("matmul"))?;
    finish(text, b, &y)
}

fn convolution(text: &str, sizes: &str, rest: &[&str]) -> Result<Model, Error> {
    let mut weights = WeightStore::new();
    let v = numbers(text, sizes, ',', 9)?;
    if v[7] < 1 {
        return Err(bad(text, "the stride should be at least 1"));
    }
    let d = dtype(text, rest.first().copied())?;
    let w = constant(text, &mut weights, &[v[4], v[1], v[5], v[6]], d)?;
    let mut b = GraphBuilder::new(text, Arc::new(weights));
    let x = b.input("x", d, dims(&v[0..4]));
    let w = b.weight(w)?;
    let spec = ConvSpec {
        kernel: vec![v[5], v[6]],
        strides: vec![v[7], v[7]],
        dilations: vec![1, 1],
        before: dims(&[v[8], v[8]]),
        after: dims(&[v[8], v[8]]),
        groups: 1,
        transposed: false,
        outside: 0,
    };
    let y = b.node(Op::Conv(spec), &[x, w], &["y"], &origin("conv"))?;
    finish(text, b, &y)
}

/// The sum of as many inputs as `f` says.
fn sum(text: &str, sizes: &str, d: &str, f: &str) -> Result<Model, Error> {
    let n = numbers(text, sizes, 'x', 1)?;
    let d = dtype(text, Some(d))?;
    let k = f.trim_end_matches("in").parse::<u32>().ok();
    let k = k
        .filter(|k| (1..=64).contains(k))
        .ok_or_else(|| bad(text, "the number of inputs should be 1in to 64in"))?;
    let mut e = ExprBuilder::new();
    let mut y = e.input(0, d);
    for i in 1..k {
        let x = e.input(i, d);
        y = e.add(y, x);
    }
    if k == 1 {
        y = functions::relu(&mut e, y, d);
    }
    let program = e.finish(&[y]);
    let mut b = GraphBuilder::new(text, Arc::default());
    let inputs: Vec<ValueId> = (0..k)
        .map(|i| b.input(&format!("x{i}"), d, dims(&n)))
        .collect();
    let z = b.node(Op::Map(program), &inputs, &["z"], &origin("map"))?;
    finish(text, b, &z)
}

fn function(text: &str, sizes: &str, d: &str, f: &str) -> Result<Model, Error> {
    let n = numbers(text, sizes, 'x', 1)?;
    let d = dtype(text, Some(d))?;
    let mut e = ExprBuilder::new();
    let x = e.input(0, d);
    let mut two = false;
    let y = match f {
        "relu" => functions::relu(&mut e, x, d),
        "gelu" => functions::gelu_erf(&mut e, x, d),
        "gelu_tanh" => functions::gelu_tanh(&mut e, x, d),
        "sigmoid" => functions::sigmoid(&mut e, x),
        "silu" => functions::silu(&mut e, x),
        "tanh" => e.unary(expr::Unary::Tanh, x),
        "erf" => e.unary(expr::Unary::Erf, x),
        "exp" => e.unary(expr::Unary::Exp, x),
        "log" => e.unary(expr::Unary::Log, x),
        "sqrt" => e.unary(expr::Unary::Sqrt, x),
        "add" | "mul" => {
            two = true;
            let y = e.input(1, d);
            if f == "add" { e.add(x, y) } else { e.mul(x, y) }
        }
        other => {
            return Err(bad(
                text,
                &format!(
                    "there is no function '{other}' here, but {}",
                    FUNCTIONS.join(", ")
                ),
            ));
        }
    };
    let program = e.finish(&[y]);
    let mut b = GraphBuilder::new(text, Arc::default());
    let mut inputs = vec![b.input("x", d, dims(&n))];
    if two {
        inputs.push(b.input("y", d, dims(&n)));
    }
    let z = b.node(Op::Map(program), &inputs, &["z"], &origin("map"))?;
    finish(text, b, &z)
}

/// A model of one operator on random inputs:
/// - `matmul:MxNxK:f32`: inputs `a` [M, K] times a constant [K, N], as in a model; with `:dynamic` the
///   second factor is an input `b`.
/// - `conv:N,C,H,W,OC,KH,KW,STRIDE,PAD`: input `x` [N, C, H, W] with constant weights [OC, C, KH, KW].
/// - `map:N:f32:FUNCTION`: input `x` of N elements (and `y` for `add` and `mul`); with `Kin` for
///   FUNCTION the sum of K inputs (`x0` and on), ReLU of one.
///
/// # Errors
/// Text of another form, or sizes that do not fit.
pub fn op_model(text: &str) -> Result<Model, Error> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        ["matmul", sizes, rest @ ..] => product(text, sizes, rest),
        ["conv", sizes, rest @ ..] => convolution(text, sizes, rest),
        ["map", sizes, d, f] if f.ends_with("in") => sum(text, sizes, d, f),
        ["map", sizes, d, f] => function(text, sizes, d, f),
        _ => Err(bad(text, "it is not understood")),
    }
}

fn finish(text: &str, b: GraphBuilder, outputs: &[ValueId]) -> Result<Model, Error> {
    Model::from_graph(text, &b.finish(outputs), &ModelOptions::default())
}
