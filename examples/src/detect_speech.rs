//! Where somebody speaks in a sound file.
use crate::{Failure, bundled};
use shopfloor::{DType, Session, Tensor};
use shopfloor_tools::data;

/// Samples that the model sees at once.
const CHUNK: usize = 512;
/// Samples of the chunk before that go in front.
const CONTEXT: usize = 64;

/// What was heard.
pub struct Answer {
    /// Samples per second.
    pub rate: u32,
    /// Probability of speech in each chunk of 512 samples.
    pub speech: Vec<f64>,
}

impl Answer {
    /// Stretches of speech as (from, to) in seconds.
    pub fn stretches(&self) -> Vec<(f64, f64)> {
        let at = |chunk: usize| (chunk * CHUNK) as f64 / f64::from(self.rate);
        let mut out: Vec<(f64, f64)> = Vec::new();
        for (i, _) in self.speech.iter().enumerate().filter(|(_, p)| **p > 0.5) {
            match out.last_mut() {
                Some(last) if (at(i) - last.1).abs() < 1e-9 => last.1 = at(i + 1),
                _ => out.push((at(i), at(i + 1))),
            }
        }
        out
    }
}

/// Goes through `models/silero_vad/speech.wav` chunk by chunk, the recurrent state carried on.
///
/// `input` is f32 [1, 576]: 64 samples of context and 512 new ones, -1 to 1; `state` is f32
/// [2, 1, 128], zeros at first; `sr` is the sample rate, i64 []. `output` is f32 [1, 1], `stateN`
/// the next `state`.
///
/// # Errors
/// Files that are missing or damaged.
pub fn run() -> Result<Answer, Failure> {
    let sound = data::read_wav(bundled("silero_vad", "speech.wav"))?;
    let session = Session::builder().commit_from_file(bundled("silero_vad", "model.onnx"))?;
    let samples = &sound.samples;
    let count = samples.shape()[1];
    let rate = Tensor::from_i64(&[], &[i64::from(sound.rate)])?;
    let mut state = Tensor::zeros(DType::F32, &[2, 1, 128])?;
    let mut speech = Vec::new();
    for first in (0..count).step_by(CHUNK) {
        let mut input = Tensor::zeros(DType::F32, &[1, CONTEXT + CHUNK])?;
        for i in 0..CONTEXT + CHUNK {
            // Silence before the beginning and after the end.
            if let Some(s) = (first + i).checked_sub(CONTEXT).filter(|s| *s < count) {
                input.set_f64(i, samples.get_f64(s));
            }
        }
        let outputs =
            session.run(shopfloor::inputs!["input" => &input, "state" => &state, "sr" => &rate])?;
        speech.push(
            outputs
                .get("output")
                .ok_or("the model has no output 'output'")?
                .get_f64(0),
        );
        state = outputs
            .get("stateN")
            .ok_or("the model has no output 'stateN'")?
            .clone();
    }
    Ok(Answer {
        rate: sound.rate,
        speech,
    })
}
