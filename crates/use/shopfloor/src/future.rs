//! Answers as futures: requests that no thread of the caller's waits for.
use crate::{Call, Error, Outputs, Session};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tensor::Tensor;

/// The answer to [`Session::run_async`]: a standard future, which any executor polls and which needs none of a
/// certain kind. Dropping it gives the request up: one that waits leaves its queue, one that runs ends at its
/// next task or step. An answer is given once.
#[must_use = "the request is given up when this is dropped"]
pub struct RunFuture(Sent);

enum Sent {
    Waits {
        answer: runtime::RunFuture,
        names: Arc<[String]>,
    },
    Failed(Option<Error>),
}

impl Future for RunFuture {
    type Output = Result<Outputs, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Sent::Waits { answer, names } => Pin::new(answer).poll(cx).map(|out| {
                Ok(Outputs {
                    names: names.clone(),
                    tensors: out?,
                })
            }),
            Sent::Failed(e) => {
                let taken = || Error::Usage("the answer was taken before; poll it no more".into());
                Poll::Ready(Err(e.take().unwrap_or_else(taken)))
            }
        }
    }
}

impl Session {
    /// Sends a request whose answer a future gives; see [`RunFuture`]. It is under way when this returns, whether
    /// or not the future is polled: it waits in the session's queue as all requests do (where the queue is full it
    /// is refused, see [`crate::SessionBuilder::with_queue`]), and a thread of the engine runs it, plans for new
    /// sizes included. No thread of the caller's waits. Inputs are handed over, as tensors or as `Arc`s of them,
    /// and not copied.
    ///
    /// ```no_run
    /// # async fn f(session: &shopfloor::Session) -> Result<(), shopfloor::Error> {
    /// let x = shopfloor::Tensor::from_array(([1, 2], vec![1.0f32, 2.0]))?;
    /// let outputs = session.run_async([("x", x)]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The future's errors are those of [`Session::run`].
    pub fn run_async<N, T>(&self, inputs: impl IntoIterator<Item = (N, T)>) -> RunFuture
    where
        N: AsRef<str>,
        T: Into<Arc<Tensor>>,
    {
        self.run_async_call(inputs, Call::default())
    }

    /// [`Session::run_async`] of a request that others can give up, or that must be done in time; the deadline
    /// counts from now.
    ///
    /// The future's errors are those of [`Session::run_call`].
    pub fn run_async_call<N, T>(
        &self,
        inputs: impl IntoIterator<Item = (N, T)>,
        call: Call<'_>,
    ) -> RunFuture
    where
        N: AsRef<str>,
        T: Into<Arc<Tensor>>,
    {
        let inputs = inputs.into_iter().map(|(n, t)| (n, t.into()));
        let owned: Vec<(N, Arc<Tensor>)> = inputs.collect();
        let named: Vec<(&str, Arc<Tensor>)> =
            owned.iter().map(|(n, t)| (n.as_ref(), t.clone())).collect();
        let names = named.iter().map(|(n, _)| *n);
        let ranks = named.iter().map(|(n, t)| (*n, t.shape().len()));
        let found = self.session_ranked(ranks).and_then(|ranked| {
            let other = ranked.as_deref().unwrap_or(self).session_giving(names)?;
            Ok(other.or(ranked))
        });
        RunFuture(match found {
            Err(e) => Sent::Failed(Some(e)),
            Ok(other) => {
                let session = other.as_deref().unwrap_or(self).shared();
                Sent::Waits {
                    answer: session.run_async(&named, call),
                    names: session.output_names().clone(),
                }
            }
        })
    }
}
