//! Reads the bundled picture of a line of text.
use shopfloor_examples::{Failure, read_line};

fn main() -> Result<(), Failure> {
    println!("the line reads: {}", read_line::run()?);
    Ok(())
}
