//! Spans for whoever listens through the crate `tracing`, with the feature of that name; without it there is
//! nothing here. Those of plans are made by `runtime`.
use std::path::Path;

/// A span that ends when this is dropped.
#[cfg(feature = "tracing")]
pub(crate) struct Entered(#[allow(dead_code)] tracing::span::EnteredSpan);

/// A span that ends when this is dropped.
#[cfg(not(feature = "tracing"))]
pub(crate) struct Entered;

/// A model is read from `path`, and made ready to be planned.
pub(crate) fn load(path: &Path) -> Entered {
    #[cfg(feature = "tracing")]
    return Entered(tracing::debug_span!("load", path = %path.display()).entered());
    #[cfg(not(feature = "tracing"))]
    {
        let _ = path;
        Entered
    }
}

/// A request of `model` runs, from its arrival to its answer.
#[inline]
pub(crate) fn run(model: &str) -> Entered {
    #[cfg(feature = "tracing")]
    return Entered(tracing::debug_span!("run", model).entered());
    #[cfg(not(feature = "tracing"))]
    {
        let _ = model;
        Entered
    }
}
