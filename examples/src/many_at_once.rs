//! Handwritten digits by one request each, all of them at once, on an executor of a few lines.
use crate::{Failure, argmax, bundled};
use shopfloor::{RunFuture, Session, Tensor};
use shopfloor_tools::data;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// What was read.
pub struct Answer {
    /// Digits that are read as a person reads them.
    pub right: usize,
    /// Digits.
    pub all: usize,
}

/// Wakes the thread that waits.
struct Wakes(Thread);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future; any executor does, tokio's among them.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Wakes(std::thread::current())));
    loop {
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(out) => return out,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Reads the 450 digits of the test set, an image a request. Requests that wait are joined, up to 50 in a run.
///
/// # Errors
/// Files that are missing or damaged.
pub fn run() -> Result<Answer, Failure> {
    let set = data::read_npz(bundled("digits_cnn", "test_set.npz"))?;
    let find = |name: &str| {
        let found = set.iter().find(|(n, _)| n == name).map(|(_, t)| t);
        found.ok_or(format!("the test set has no '{name}'"))
    };
    let (images, labels) = (find("image")?, find("label")?);
    let (count, pixels) = (images.shape()[0], images.len() / images.shape()[0]);
    let session = Session::builder()
        .with_batching(50, std::time::Duration::from_millis(1))
        .with_queue(2, count)
        .commit_from_file(bundled("digits_cnn", "model.onnx"))?;
    let send = |i: usize| -> Result<RunFuture, Failure> {
        // Ink is stored as 0 to 16.
        let ink = (0..pixels).map(|p| images.get_f64(i * pixels + p) as f32 / 16.0);
        let image = Tensor::from_array(([1, 1, 8, 8], ink.collect::<Vec<_>>()))?;
        Ok(session.run_async([("image", image)]))
    };
    // All of them are under way before the first answer is looked at.
    let sent: Vec<RunFuture> = (0..count).map(send).collect::<Result<_, _>>()?;
    let mut right = 0;
    for (i, future) in sent.into_iter().enumerate() {
        let outputs = block_on(future)?;
        let read = argmax(&outputs["probabilities"], 0, 10) as i64;
        right += usize::from(read == labels.get_i64(i));
    }
    Ok(Answer { right, all: count })
}
