//! Completes 16 tokens with the model named, a cache of its keys and values staying in place.
use shopfloor_examples::{Failure, complete_tokens};

fn main() -> Result<(), Failure> {
    let model = std::env::args_os().nth(1);
    let model =
        model.ok_or("give the model's file: cargo run --example complete_tokens -- MODEL")?;
    let a = complete_tokens::run(model.as_ref(), &[11, 42, 7, 99], 16)?;
    println!("after 11 42 7 99 come {:?}", a.tokens);
    println!("{} bytes of keys and values stayed in place", a.state_bytes);
    Ok(())
}
