//! What a stream keeps between its requests.
use crate::{AlignedBytes, DeviceError, Place, Remote};
use std::sync::Arc;

/// Memory of one state (a KV cache, what a recurrent layer carries), zero at first. It is in one place,
/// the one where the last request used it: a device that keeps it moves no byte of it.
#[derive(Default)]
pub struct State {
    name: String,
    bytes: usize,
    host: Option<AlignedBytes>,
    there: Option<(Arc<dyn Place>, Arc<dyn Remote>)>,
}

impl State {
    /// `bytes` zeros for `name`, which take no memory before they are used.
    pub fn new(bytes: usize, name: &str) -> State {
        State {
            name: name.into(),
            bytes,
            ..State::default()
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether it is as large as the plan's `buffer`.
    ///
    /// # Errors
    /// It is smaller.
    pub fn covers(&self, buffer: &plan::Buffer) -> Result<(), DeviceError> {
        match self.bytes as u64 >= buffer.bytes {
            true => Ok(()),
            false => Err(DeviceError::Port {
                port: buffer.name.clone(),
                want: buffer.bytes,
                got: self.bytes as u64,
            }),
        }
    }

    /// The state in host memory, fetched where it is elsewhere.
    ///
    /// # Errors
    /// No memory is left, or a device fails.
    pub fn host(&mut self) -> Result<&mut AlignedBytes, DeviceError> {
        let mut now = match self.host.take() {
            Some(now) => now,
            None => AlignedBytes::new(self.bytes, &self.name)?,
        };
        if let Some((_, memory)) = &self.there {
            memory.download(&mut now)?;
            self.there = None;
        }
        Ok(self.host.insert(now))
    }

    /// The state in memory of `place`, brought there where it is elsewhere.
    ///
    /// # Errors
    /// No memory is left there, or a device fails.
    pub fn at(&mut self, place: &Arc<dyn Place>) -> Result<Arc<dyn Remote>, DeviceError> {
        if let Some((own, memory)) = &self.there
            && Arc::ptr_eq(own, place)
        {
            return Ok(memory.clone());
        }
        if self.there.is_some() {
            // From one device to another over the host.
            self.host()?;
        }
        let memory = place.allocate(self.bytes as u64)?;
        match &self.host {
            Some(now) => memory.upload(now)?,
            None => memory.zero()?,
        }
        self.host = None;
        self.there = Some((place.clone(), memory.clone()));
        Ok(memory)
    }

    /// Where it is: `host`, or the name of a place; `None` before its first use.
    pub fn valid_in(&self) -> Option<&str> {
        match (&self.host, &self.there) {
            (_, Some((place, _))) => Some(place.name()),
            (Some(_), None) => Some("host"),
            (None, None) => None,
        }
    }
}
