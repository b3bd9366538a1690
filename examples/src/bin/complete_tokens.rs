//! Completes 16 tokens with a cache of keys and values that stays in place.
use shopfloor_examples::Failure;
use shopfloor_examples::complete_tokens::{Answer, run};

fn main() -> Result<(), Failure> {
    match run(&[11, 42, 7, 99], 16)? {
        Answer::LeftOut(why) => println!("{why}"),
        Answer::Tokens(tokens, bytes) => {
            println!("after 11 42 7 99 come {tokens:?}");
            println!("{bytes} bytes of keys and values stayed in place");
        }
    }
    Ok(())
}
