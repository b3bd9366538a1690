//! Says where somebody speaks in the bundled sound.
use shopfloor_examples::{Failure, detect_speech};

fn main() -> Result<(), Failure> {
    let a = detect_speech::run()?;
    let bar: String = a
        .speech
        .iter()
        .map(|p| if *p > 0.5 { '#' } else { '.' })
        .collect();
    println!(
        "{} chunks of 512 samples at {} Hz:\n{bar}",
        a.speech.len(),
        a.rate
    );
    for (from, to) in a.stretches() {
        println!("speech from {from:.2} s to {to:.2} s");
    }
    Ok(())
}
