//! Spans and events for whoever listens through the crate `tracing`, with the feature of that name; without it
//! there is nothing here. None lies on a request's way once its plan is there.
use layout::DimBox;

/// A span that ends when this is dropped.
#[cfg(feature = "tracing")]
pub(crate) struct Entered(#[allow(dead_code)] tracing::span::EnteredSpan);

/// A span that ends when this is dropped.
#[cfg(not(feature = "tracing"))]
pub(crate) struct Entered;

/// A request waits for a plan over `dims`: the model's first, or another (`again`).
pub(crate) fn plan(model: &str, dims: &DimBox, again: bool) -> Entered {
    #[cfg(feature = "tracing")]
    {
        let span = match again {
            false => tracing::debug_span!("plan", model, %dims),
            true => tracing::debug_span!("replan", model, %dims),
        };
        Entered(span.entered())
    }
    #[cfg(not(feature = "tracing"))]
    {
        let _ = (model, dims, again);
        Entered
    }
}

/// Requests run by another plan from now on: somebody set it, or a supervisor found it faster.
pub(crate) fn changed(model: &str, epoch: u64) {
    #[cfg(feature = "tracing")]
    tracing::debug!(model, epoch, "the plan changed");
    #[cfg(not(feature = "tracing"))]
    let _ = (model, epoch);
}
