//! Reads the 450 handwritten digits of the bundled test set.
use shopfloor_examples::{Failure, classify_digit};

fn main() -> Result<(), Failure> {
    let a = classify_digit::run()?;
    let right = a.read.iter().zip(&a.truth).filter(|(r, t)| r == t).count();
    println!("the first 20 images read {:?}", &a.read[..20]);
    println!("{right} of {} are right", a.truth.len());
    Ok(())
}
