//! Where somebody speaks, heard by several microphones at once: one stream each, which come and go.
use crate::{Failure, bundled};
use shopfloor::{DType, DimBox, Session, Stream, Tensor, inputs};
use shopfloor_tools::data;

/// Samples that the model sees at once, and those of the chunk before that go in front.
const CHUNK: usize = 512;
const CONTEXT: usize = 64;
/// Chunks after which the next microphone begins to hear the same.
const DELAY: usize = 3;

/// Probability of speech in each chunk, by microphone, for `microphones` of them.
///
/// Each microphone has a stream of its own, whose `state` is found by its name (`stateN` carries it on)
/// and stays with it. What is sent before anybody receives runs together, where the model lets it.
///
/// # Errors
/// Files that are missing or damaged.
pub fn run(microphones: usize) -> Result<Vec<Vec<f64>>, Failure> {
    let sound = data::read_wav(bundled("silero_vad", "speech.wav"))?;
    let session = Session::builder()
        .with_found_states()
        .commit_from_file(bundled("silero_vad", "model.onnx"))?;
    let samples = &sound.samples;
    let count = samples.shape()[1];
    let rate = Tensor::from_i64(&[], &[i64::from(sound.rate)])?;
    let mut dims = DimBox::new();
    // The file does not say that the state's batch is one.
    dims.insert("state.d1", 1, 1);
    let chunks = count.div_ceil(CHUNK);
    let mut streams: Vec<Option<Stream>> = (0..microphones).map(|_| None).collect();
    let mut heard = vec![vec![]; microphones];
    for now in 0..chunks + DELAY * microphones.saturating_sub(1) {
        for (m, stream) in streams.iter_mut().enumerate() {
            // Each begins so much later than the one before; its stream ends with its sound.
            let own = now.checked_sub(m * DELAY).filter(|c| *c < chunks);
            let Some(chunk) = own else {
                *stream = None;
                continue;
            };
            if chunk == 0 {
                *stream = Some(session.stream(&dims)?);
            }
            let mut input = Tensor::zeros(DType::F32, &[1, CONTEXT + CHUNK])?;
            for i in 0..CONTEXT + CHUNK {
                let at = (chunk * CHUNK + i).checked_sub(CONTEXT);
                if let Some(s) = at.filter(|s| *s < count) {
                    input.set_f64(i, samples.get_f64(s));
                }
            }
            if let Some(stream) = stream {
                stream.send(inputs!["input" => &input, "sr" => &rate])?;
            }
        }
        for (stream, heard) in streams.iter_mut().zip(&mut heard) {
            if let Some(stream) = stream {
                let answer = stream.receive()?;
                let (_, speech) = answer.first().ok_or("the model has no output")?;
                heard.push(speech.get_f64(0));
            }
        }
    }
    Ok(heard)
}
