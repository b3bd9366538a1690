//! Streams and events that let go of themselves.
use crate::{Context, DriverError, EventId, GraphId, StreamId};
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

/// Launches that one call queues together, let go of when dropped.
pub struct Graph {
    context: Arc<dyn Context>,
    id: GraphId,
}

impl Graph {
    /// What `queue` queues in `stream`, which is none of it run.
    ///
    /// # Errors
    /// `queue` fails, or the driver does, of which `failed` makes an error.
    pub fn of<E>(
        context: &Arc<dyn Context>,
        stream: &Stream,
        queue: impl FnOnce() -> Result<(), E>,
        failed: impl Fn(DriverError) -> E,
    ) -> Result<Graph, E> {
        context.begin_graph(stream.id).map_err(&failed)?;
        let queued = queue();
        // The stream runs what is queued again only when this has ended.
        let made = context.end_graph(stream.id).map(|id| Graph {
            context: context.clone(),
            id,
        });
        queued?;
        made.map_err(failed)
    }

    /// Queues all of it in `stream`.
    ///
    /// # Errors
    /// The driver fails.
    pub fn launch(&self, stream: &Stream) -> Result<(), DriverError> {
        self.context.launch_graph(self.id, stream.id)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.context.drop_graph(self.id);
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
