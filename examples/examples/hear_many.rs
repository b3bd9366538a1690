//! Says where somebody speaks in the bundled sound, for four microphones that hear it one after another.
use shopfloor_examples::{Failure, hear_many};

fn main() -> Result<(), Failure> {
    for (m, speech) in hear_many::run(4)?.iter().enumerate() {
        let bar: String = (speech.iter())
            .map(|p| if *p > 0.5 { '#' } else { '.' })
            .collect();
        println!("microphone {m}: {bar}");
    }
    Ok(())
}
