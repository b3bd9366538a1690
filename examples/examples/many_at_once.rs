//! Reads 450 digits by as many requests at once, whose answers are futures.
use shopfloor_examples::{Failure, many_at_once};

fn main() -> Result<(), Failure> {
    let a = many_at_once::run()?;
    println!("{} of {} are right", a.right, a.all);
    Ok(())
}
