//! Lengths that data gives, as they are; one that is negative or beyond what there is refuses the request.
use crate::args::Args;
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (lengths, most) = (a.input(0)?, a.scalar(1)?);
    for i in 0..lengths.len() {
        let n = lengths.get_i64(i);
        if !(0..=most).contains(&n) {
            return Err(format!(
                "length {n} is outside 0 to {most}; give lengths within the sequence"
            )
            .into());
        }
    }
    Ok(vec![lengths.clone()])
}
