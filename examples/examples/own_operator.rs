//! Runs a model with an operator that is a closure of this program.
use shopfloor_examples::{Failure, own_operator};

fn main() -> Result<(), Failure> {
    let model = own_operator::model();
    let y = own_operator::run(&model, &[0.5, -2.0, 3.0])?;
    println!("hardshrink of 0.5, -2 and 3 is {y:?}");
    Ok(())
}
