//! Tokens completed one by one, the keys and values of those before kept in place.
use crate::{Failure, argmax};
use shopfloor::{Dim, DimBox, ModelOptions, Session, Tensor};
use std::path::Path;

/// Longest text in tokens.
const LONGEST: i64 = 64;

/// What came of it.
pub struct Answer {
    /// The tokens that follow the prompt.
    pub tokens: Vec<i64>,
    /// Bytes of keys and values that stayed in place.
    pub state_bytes: u64,
}

/// Completes `prompt` by `count` tokens, always the likeliest one, with a model of six layers of grouped-query
/// attention.
///
/// `input_ids` and `position_ids` are i64 [1, tokens]; `attention_mask` is i64 [1, past + tokens] of
/// ones; `logits` is f32 [1, tokens, 8192]. `past_key_values.N.key` and `.value`, f32 [1, 2, past, 64],
/// are state: the stream keeps them.
///
/// # Errors
/// Files that are missing or damaged.
pub fn run(model: &Path, prompt: &[i64], count: usize) -> Result<Answer, Failure> {
    let mut options = ModelOptions::default();
    for layer in 0..6 {
        for part in ["key", "value"] {
            options.states.push((
                format!("past_key_values.{layer}.{part}"),
                format!("present.{layer}.{part}"),
            ));
        }
    }
    // The file gives the mask a length of its own; that it covers what was and what is new lets one
    // plan serve every length.
    let (past, new) = (
        Dim::sym("past_sequence_length"),
        Dim::sym("sequence_length"),
    );
    options
        .shapes
        .insert("attention_mask".into(), vec![Dim::from(1usize), past + new]);
    options.dims.insert("batch_size", 1, 1);
    let session = Session::builder()
        .with_model_options(options)
        .commit_from_file(model)?;
    // One plan for the prompt and for every token after it.
    let mut dims = DimBox::new();
    dims.insert("sequence_length", 1, prompt.len().max(1) as i64);
    dims.insert("past_sequence_length", 0, LONGEST - 1);
    let mut stream = session.stream(&dims)?;
    let mut tokens = prompt.to_vec();
    let (mut new, mut past) = (prompt.to_vec(), 0);
    while tokens.len() < prompt.len() + count {
        let n = new.len();
        let ids = Tensor::from_i64(&[1, n], &new)?;
        let positions: Vec<i64> = (past..past + n).map(|p| p as i64).collect();
        let positions = Tensor::from_i64(&[1, n], &positions)?;
        let mask = Tensor::from_i64(&[1, past + n], &vec![1; past + n])?;
        let outputs = stream.run(&[
            ("input_ids", &ids),
            ("attention_mask", &mask),
            ("position_ids", &positions),
        ])?;
        let logits = outputs
            .iter()
            .find(|(name, _)| name == "logits")
            .map(|(_, t)| t)
            .ok_or("the model has no output 'logits'")?;
        let words = logits.shape().last().copied().unwrap_or(0);
        let next = argmax(logits, (n - 1) * words, words) as i64;
        tokens.push(next);
        past += n;
        new = vec![next];
    }
    Ok(Answer {
        tokens: tokens.split_off(prompt.len()),
        state_bytes: stream.state_bytes(),
    })
}
