//! Runs a model on random inputs and prints what comes out: `cargo run -p minimal -- MODEL`.
//!
//! A program on nothing but the library: see what it weighs with `cargo build --profile dist -p minimal`.
use shopfloor::{Error, Session, inputs};

fn main() -> Result<(), Error> {
    let usage = || Error::Usage("usage: minimal MODEL.onnx".into());
    let path = std::env::args_os().nth(1).ok_or_else(usage)?;
    let session = Session::builder().commit_from_file(path)?;
    let (sizes, _) = inputs::sizes(session.model());
    let given = inputs::random_inputs(session.model(), &sizes)?;
    let outputs = session.run(&inputs::borrowed(&given))?;
    for (name, tensor) in outputs.iter() {
        println!("{name}: {} {:?}", tensor.dtype(), tensor.shape());
    }
    Ok(())
}
