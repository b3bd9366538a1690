//! Handwritten digits: images in, a label for each out.
use crate::{Failure, argmax, bundled};
use shopfloor::{DType, Session, Tensor};
use shopfloor_tools::data;

/// What was read.
pub struct Answer {
    /// One digit per image.
    pub read: Vec<usize>,
    /// What a person says they are.
    pub truth: Vec<usize>,
}

/// Reads the 450 digits of the test set, 50 images a request.
///
/// `image` is f32 [batch, 1, 8, 8], 0 (paper) to 1 (ink); `probabilities` is f32 [batch, 10].
///
/// # Errors
/// Files that are missing or damaged.
pub fn run() -> Result<Answer, Failure> {
    let set = data::read_npz(bundled("digits_cnn", "test_set.npz"))?;
    let find = |name: &str| {
        set.iter()
            .find(|(n, _)| n == name)
            .map(|(_, t)| t)
            .ok_or(format!("the test set has no '{name}'"))
    };
    let (images, labels) = (find("image")?, find("label")?);
    let (count, pixels) = (images.shape()[0], images.len() / images.shape()[0]);
    // One plan covers every batch up to 50; the last one may be smaller.
    let session = Session::builder()
        .with_dim("batch", 1, 50)
        .commit_from_file(bundled("digits_cnn", "model.onnx"))?;
    let mut read = Vec::new();
    for first in (0..count).step_by(50) {
        let n = 50.min(count - first);
        let mut batch = Tensor::zeros(DType::F32, &[n, 1, 8, 8])?;
        for i in 0..n * pixels {
            // Ink is stored as 0 to 16.
            batch.set_f64(i, images.get_f64(first * pixels + i) / 16.0);
        }
        let outputs = session.run(shopfloor::inputs!["image" => &batch])?;
        let p = outputs
            .get("probabilities")
            .ok_or("the model has no output 'probabilities'")?;
        read.extend((0..n).map(|i| argmax(p, i * 10, 10)));
    }
    Ok(Answer {
        read,
        truth: (0..count).map(|i| labels.get_i64(i) as usize).collect(),
    })
}
