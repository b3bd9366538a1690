//! One handle for a value, wherever it lies.
use crate::DeviceError;
use layout::DType;
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tensor::Tensor;

/// Memory of a [`Place`], let go of when dropped.
pub trait Remote: Send + Sync {
    /// Bytes.
    fn bytes(&self) -> u64;
    /// Fills it.
    ///
    /// # Errors
    /// The device fails.
    fn upload(&self, from: &[u8]) -> Result<(), DeviceError>;
    /// Copies it.
    ///
    /// # Errors
    /// The device fails.
    fn download(&self, to: &mut [u8]) -> Result<(), DeviceError>;
    /// Fills it with zeros.
    ///
    /// # Errors
    /// The device fails.
    fn zero(&self) -> Result<(), DeviceError> {
        self.upload(&vec![0; self.bytes() as usize])
    }
    /// For the device, which knows its own memory.
    fn as_any(&self) -> &dyn Any;
}

/// Somewhere other than the host where values can lie.
pub trait Place: Send + Sync {
    /// `cuda:0`.
    fn name(&self) -> &str;
    /// Whether the host reads and writes this memory itself, so that nothing crosses a link.
    fn shares_host(&self) -> bool;
    /// Memory for a value; its contents mean nothing.
    ///
    /// # Errors
    /// There is none left.
    fn allocate(&self, bytes: u64) -> Result<Arc<dyn Remote>, DeviceError>;
}

/// Bytes that crossed a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// From the host to a device.
    pub to_device: u64,
    /// From a device to the host.
    pub to_host: u64,
}

struct There {
    place: Arc<dyn Place>,
    memory: Arc<dyn Remote>,
    valid: bool,
}

#[derive(Default)]
struct State {
    /// Present only while it is valid.
    host: Option<Arc<Tensor>>,
    places: Vec<There>,
}

/// A value with its validity per place: it is copied only when a reader needs a place where it is not
/// valid, and what is written in one place is valid nowhere else.
pub struct UnifiedBuffer {
    dtype: DType,
    shape: Vec<usize>,
    state: Mutex<State>,
    to_device: AtomicU64,
    to_host: AtomicU64,
}

impl From<Tensor> for UnifiedBuffer {
    fn from(t: Tensor) -> UnifiedBuffer {
        let b = UnifiedBuffer::new(t.dtype(), t.shape());
        b.lock().host = Some(Arc::new(t));
        b
    }
}

impl std::fmt::Debug for UnifiedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = self.valid_in();
        write!(f, "{} {:?} in {places:?}", self.dtype, self.shape)
    }
}

impl UnifiedBuffer {
    /// A buffer without a value yet: valid nowhere.
    pub fn new(dtype: DType, shape: &[usize]) -> UnifiedBuffer {
        UnifiedBuffer {
            dtype,
            shape: shape.to_vec(),
            state: Mutex::default(),
            to_device: AtomicU64::new(0),
            to_host: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> u64 {
        Tensor::byte_len(self.dtype, &self.shape).unwrap_or(0) as u64
    }

    /// Names of the places where it is valid, `host` first.
    pub fn valid_in(&self) -> Vec<String> {
        let s = self.lock();
        let host = s.host.iter().map(|_| "host".to_string());
        let there = s.places.iter().filter(|p| p.valid);
        host.chain(there.map(|p| p.place.name().into())).collect()
    }

    /// Bytes that this buffer moved over links so far.
    pub fn moved(&self) -> Transfers {
        Transfers {
            to_device: self.to_device.load(Ordering::Relaxed),
            to_host: self.to_host.load(Ordering::Relaxed),
        }
    }

    /// The value on the host, brought there if it is not. The view stays as it is when the buffer is
    /// written to later.
    ///
    /// # Errors
    /// It has no value yet, or the device fails.
    pub fn host(&self) -> Result<Arc<Tensor>, DeviceError> {
        let mut s = self.lock();
        if let Some(t) = &s.host {
            return Ok(t.clone());
        }
        let Some(there) = s.places.iter().find(|p| p.valid) else {
            return Err(self.nowhere());
        };
        let mut t = self.blank()?;
        there.memory.download(t.bytes_mut())?;
        if !there.place.shares_host() {
            self.to_host.fetch_add(self.bytes(), Ordering::Relaxed);
        }
        let t = Arc::new(t);
        s.host = Some(t.clone());
        Ok(t)
    }

    /// The value on the host, to be written: afterwards it is valid there only.
    ///
    /// # Errors
    /// It has no value yet, or the device fails.
    pub fn host_mut(&mut self) -> Result<&mut Tensor, DeviceError> {
        self.host()?;
        let nowhere = self.nowhere();
        let s = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        s.places.iter_mut().for_each(|p| p.valid = false);
        // Views that somebody still holds keep what they saw.
        s.host.as_mut().map(Arc::make_mut).ok_or(nowhere)
    }

    /// The value on the host, taken out.
    ///
    /// # Errors
    /// As [`UnifiedBuffer::host`].
    pub fn into_tensor(self) -> Result<Tensor, DeviceError> {
        let t = self.host()?;
        drop(self);
        Ok(Arc::try_unwrap(t).unwrap_or_else(|t| (*t).clone()))
    }

    /// The memory at `place` with the value in it, brought there if it is not.
    ///
    /// # Errors
    /// It has no value yet, no memory is left there, or the device fails.
    pub fn at(&self, place: &Arc<dyn Place>) -> Result<Arc<dyn Remote>, DeviceError> {
        let host = {
            let s = self.lock();
            let own = s.places.iter().find(|p| Arc::ptr_eq(&p.place, place));
            if let Some(p) = own.filter(|p| p.valid) {
                return Ok(p.memory.clone());
            }
            drop(s);
            // Between two devices it goes over the host.
            self.host()?
        };
        let mut s = self.lock();
        let known = s.places.iter().position(|p| Arc::ptr_eq(&p.place, place));
        let i = match known {
            Some(i) => i,
            None => {
                s.places.push(There {
                    place: place.clone(),
                    memory: place.allocate(self.bytes())?,
                    valid: false,
                });
                s.places.len() - 1
            }
        };
        let p = &mut s.places[i];
        p.memory.upload(host.bytes())?;
        p.valid = true;
        let memory = p.memory.clone();
        if !place.shares_host() {
            self.to_device.fetch_add(self.bytes(), Ordering::Relaxed);
        }
        Ok(memory)
    }

    /// The value is now what `memory` of `place` holds, and valid nowhere else.
    pub fn set_at(&mut self, place: &Arc<dyn Place>, memory: Arc<dyn Remote>) {
        let s = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        s.host = None;
        s.places.retain(|p| !Arc::ptr_eq(&p.place, place));
        s.places.iter_mut().for_each(|p| p.valid = false);
        s.places.push(There {
            place: place.clone(),
            memory,
            valid: true,
        });
    }

    /// The value is now `t`, and valid on the host only.
    ///
    /// # Errors
    /// `t` is of another type or shape.
    pub fn set_host(&mut self, t: Tensor) -> Result<(), DeviceError> {
        if t.dtype() != self.dtype || t.shape() != self.shape {
            return Err(DeviceError::Port {
                port: "a buffer".into(),
                want: self.bytes(),
                got: t.bytes().len() as u64,
            });
        }
        let s = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        s.places.iter_mut().for_each(|p| p.valid = false);
        s.host = Some(Arc::new(t));
        Ok(())
    }

    fn blank(&self) -> Result<Tensor, DeviceError> {
        Tensor::zeros(self.dtype, &self.shape).map_err(|_| DeviceError::Memory {
            what: "a buffer on the host".into(),
            bytes: self.bytes(),
        })
    }

    fn nowhere(&self) -> DeviceError {
        DeviceError::Port {
            port: "a buffer without a value yet".into(),
            want: self.bytes(),
            got: 0,
        }
    }
}
