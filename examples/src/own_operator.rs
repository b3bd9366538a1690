//! An operator whose code is a closure: nodes of its domain and name run it.
use crate::Failure;
use shopfloor::{Operator, Session, Tensor};

/// Numbers below the attribute `lambd` in size become 0.
fn hard_shrink() -> Operator {
    Operator::new(
        "example.org",
        "HardShrink",
        // Type and extents of what comes out, for all sizes: those of what goes in.
        |node| Ok(vec![node.input(0)?.clone()]),
        |call| {
            let lambd = call.attributes.float("lambd").unwrap_or(0.5) as f32;
            let x = call.input(0)?;
            let shrink = |x: &f32| if x.abs() <= lambd { 0.0 } else { *x };
            let y: Vec<f32> = x.as_slice()?.iter().map(shrink).collect();
            Ok(vec![Tensor::from_array((x.shape(), y))?])
        },
    )
}

/// Runs a model that has such nodes on `x`, f32 `[n]`; its output `y` is of the same shape.
///
/// # Errors
/// The model or the operator.
pub fn run(model: &[u8], x: &[f32]) -> Result<Vec<f32>, Failure> {
    let session = Session::builder()
        .with_operator(hard_shrink())
        .commit_from_memory(model.to_vec())?;
    let x = Tensor::from_array(([x.len()], x))?;
    let outputs = session.run(shopfloor::inputs!["x" => x])?;
    Ok(outputs["y"].as_slice()?.to_vec())
}

/// A field of a protobuf message.
fn field(number: u8, body: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, body.len() as u8], body].concat()
}

/// An ONNX file of one node, `y = example.org.HardShrink(x)`, over any number of floats: what an exporter writes.
pub fn model() -> Vec<u8> {
    let value = |name: &[u8]| {
        let shape = field(1, &field(2, b"n"));
        let tensor = [vec![8, 1], field(2, &shape)].concat();
        [field(1, name), field(2, &field(1, &tensor))].concat()
    };
    let node = [
        field(1, b"x"),
        field(2, b"y"),
        field(4, b"HardShrink"),
        field(7, b"example.org"),
    ];
    let graph = [
        field(1, &node.concat()),
        field(2, b"g"),
        field(11, &value(b"x")),
        field(12, &value(b"y")),
    ];
    let own = [field(1, b"example.org"), vec![16, 1]].concat();
    let model = [
        vec![8, 8],
        field(7, &graph.concat()),
        field(8, &[16, 17]),
        field(8, &own),
    ];
    model.concat()
}
