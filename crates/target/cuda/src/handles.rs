//! Streams and events that let go of themselves.
use crate::{Context, DriverError, EventId, StreamId};
use std::sync::Arc;

/// A stream, let go of when dropped.
pub struct Stream {
    context: Arc<dyn Context>,
    id: StreamId,
}

impl Stream {
    /// A new one; lower priorities come first.
    ///
    /// # Errors
    /// The driver fails.
    pub fn new(context: &Arc<dyn Context>, priority: i32) -> Result<Stream, DriverError> {
        Ok(Stream {
            id: context.new_stream(priority)?,
            context: context.clone(),
        })
    }

    /// For the calls of [`Context`].
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Waits until all that is queued is done.
    ///
    /// # Errors
    /// A kernel of it failed.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.context.synchronize(self.id)
    }

    /// Lets what is queued from now on wait for `event`.
    ///
    /// # Errors
    /// The driver fails.
    pub fn wait(&self, event: &Event) -> Result<(), DriverError> {
        self.context.wait_event(self.id, event.id)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and a lost GPU has let go already.
        let _ = self.context.drop_stream(self.id);
    }
}

/// An event, let go of when dropped.
pub struct Event {
    context: Arc<dyn Context>,
    id: EventId,
}

impl Event {
    /// A new one, not recorded yet.
    ///
    /// # Errors
    /// The driver fails.
    pub fn new(context: &Arc<dyn Context>) -> Result<Event, DriverError> {
        Ok(Event {
            id: context.new_event()?,
            context: context.clone(),
        })
    }

    /// Records it in `stream`.
    ///
    /// # Errors
    /// The driver fails.
    pub fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        self.context.record(self.id, stream.id)
    }

    /// Waits until it has happened.
    ///
    /// # Errors
    /// A kernel before it failed.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.context.synchronize_event(self.id)
    }

    /// Milliseconds since `earlier`; both have happened.
    ///
    /// # Errors
    /// One of them has not.
    pub fn since_ms(&self, earlier: &Event) -> Result<f32, DriverError> {
        self.context.elapsed_ms(earlier.id, self.id)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.drop_event(self.id);
    }
}
