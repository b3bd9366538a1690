//! The factory: says which hardware can be used and makes providers.
//!
//! # Safety
//! onnxruntime calls the functions here with a factory that [`Factory::handed`] made and that was not released, and with
//! pointers of its own, or to room for results, that stay while it calls.
use crate::abi::slots::Status;
use crate::abi::tables::{OrtEp, OrtEpFactory};
use crate::abi::{
    FILLED, OrtAllocator, OrtEpDevice, OrtHardwareDevice, OrtKeyValuePairs, OrtLogger,
    OrtMemoryInfo, OrtSessionOptions, hardware,
};
use crate::boundary::{Failure, Ort, text};
use crate::options::Options;
use crate::provider::Provider;
use shopfloor::Engine;
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The provider's name.
pub(crate) const NAME: &std::ffi::CStr = c"ShopfloorExecutionProvider";
const VENDOR: &std::ffi::CStr = c"shopfloor";
const PROVIDER_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// A factory: onnxruntime's table, and what is ours behind it.
#[repr(C)]
pub(crate) struct Factory {
    table: OrtEpFactory,
    ort: Ort,
    engines: Engines,
}

/// Engines that providers share, by their number of workers, as long as one uses them.
#[derive(Default)]
struct Engines(Mutex<Vec<(Option<usize>, Weak<Engine>)>>);

impl Engines {
    fn of(&self, options: &Options) -> Result<Arc<Engine>, Failure> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, e)| e.strong_count() > 0);
        let found = all.iter().find(|(n, _)| *n == options.threads);
        if let Some(engine) = found.and_then(|(_, e)| e.upgrade()) {
            return Ok(engine);
        }
        let mut builder = shopfloor::Session::builder();
        if let Some(n) = options.threads {
            builder = builder.with_threads(n);
        }
        let engine = builder.engine().map_err(|e| e.to_string())?;
        all.push((options.threads, Arc::downgrade(&engine)));
        Ok(engine)
    }
}

impl Factory {
    /// A factory, to be handed to onnxruntime.
    pub(crate) fn handed(ort: Ort) -> *mut OrtEpFactory {
        let factory = Factory {
            table: OrtEpFactory {
                version: FILLED,
                get_name,
                get_vendor,
                get_supported_devices,
                create_ep,
                release_ep,
                get_vendor_id,
                get_version,
                validate_compiled_model: None,
                create_allocator,
                release_allocator,
                create_data_transfer,
                is_stream_aware,
                create_sync_stream: None,
            },
            ort,
            engines: Engines::default(),
        };
        Box::into_raw(Box::new(factory)).cast()
    }

    /// Frees a factory; null is nothing.
    ///
    /// # Safety
    /// It is null, or [`Factory::handed`] made it and it was not freed.
    pub(crate) unsafe fn free(factory: *mut OrtEpFactory) {
        if !factory.is_null() {
            // SAFETY: it is a box's.
            let drop = || drop(unsafe { Box::from_raw(factory.cast::<Factory>()) });
            let _ = catch_unwind(AssertUnwindSafe(drop));
        }
    }

    /// What lies behind the table.
    ///
    /// # Safety
    /// As the file's head says.
    unsafe fn at<'a>(table: *const OrtEpFactory) -> &'a Factory {
        // SAFETY: the table is the first member of a factory of ours.
        unsafe { &*table.cast::<Factory>() }
    }
}

unsafe extern "system" fn get_name(_: *const OrtEpFactory) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "system" fn get_vendor(_: *const OrtEpFactory) -> *const c_char {
    VENDOR.as_ptr()
}

unsafe extern "system" fn get_vendor_id(_: *const OrtEpFactory) -> u32 {
    0
}

unsafe extern "system" fn get_version(_: *const OrtEpFactory) -> *const c_char {
    PROVIDER_VERSION.as_ptr().cast()
}

unsafe extern "system" fn get_supported_devices(
    factory: *mut OrtEpFactory,
    devices: *const *const OrtHardwareDevice,
    count: usize,
    usable: *mut *mut OrtEpDevice,
    room: usize,
    found: *mut usize,
) -> Status {
    // SAFETY: as the file's head says.
    let ort = unsafe { Factory::at(factory) }.ort;
    ort.guarded(|| {
        let mut at = 0;
        for i in 0..count {
            if at == room {
                break;
            }
            // SAFETY: there are so many devices, and room for as many results as it says.
            unsafe {
                let device = *devices.add(i);
                if (ort.api.hardware_device_type)(device) != hardware::CPU {
                    continue;
                }
                let made = ort.got(ptr::null_mut(), |out| {
                    (ort.ep.create_ep_device)(factory, device, ptr::null(), ptr::null(), out)
                })?;
                *usable.add(at) = made;
            }
            at += 1;
        }
        // SAFETY: there is room for the number.
        unsafe { *found = at };
        Ok(())
    })
}

/// The options among a session's.
///
/// # Safety
/// They are onnxruntime's.
unsafe fn options_of(ort: &Ort, options: *const OrtSessionOptions) -> Result<Options, Failure> {
    // SAFETY: they are onnxruntime's; the entries that it gives are freed once, after they were copied.
    let entries = unsafe {
        let pairs = ort.got(ptr::null_mut(), |out| {
            (ort.api.get_session_options_config_entries)(options, out)
        })?;
        let (mut keys, mut values, mut count) = (ptr::null(), ptr::null(), 0);
        (ort.api.get_key_value_pairs)(pairs, &raw mut keys, &raw mut values, &raw mut count);
        let entry = |i: usize| (text(*keys.add(i)), text(*values.add(i)));
        let entries: Vec<(String, String)> = (0..count).map(entry).collect();
        (ort.api.release_key_value_pairs)(pairs);
        entries
    };
    Options::of(entries.iter().map(|(k, v)| (k.as_str(), v.as_str())))
}

unsafe extern "system" fn create_ep(
    factory: *mut OrtEpFactory,
    _devices: *const *const OrtHardwareDevice,
    _metadata: *const *const OrtKeyValuePairs,
    _count: usize,
    options: *const OrtSessionOptions,
    _logger: *const OrtLogger,
    ep: *mut *mut OrtEp,
) -> Status {
    // SAFETY: as the file's head says.
    let this = unsafe { Factory::at(factory) };
    this.ort.guarded(|| {
        // SAFETY: they are onnxruntime's.
        let options = unsafe { options_of(&this.ort, options)? };
        let engine = this.engines.of(&options)?;
        // SAFETY: there is room for it.
        unsafe { *ep = Provider::handed(this.ort, options, engine) };
        Ok(())
    })
}

unsafe extern "system" fn release_ep(_: *mut OrtEpFactory, ep: *mut OrtEp) {
    // SAFETY: `create_ep` made it, and it is released once.
    unsafe { Provider::free(ep) };
}

unsafe extern "system" fn create_allocator(
    _: *mut OrtEpFactory,
    _memory: *const OrtMemoryInfo,
    _options: *const OrtKeyValuePairs,
    allocator: *mut *mut OrtAllocator,
) -> Status {
    // SAFETY: there is room for it; null stands for the processor's own memory.
    unsafe { *allocator = ptr::null_mut() };
    ptr::null_mut()
}

unsafe extern "system" fn release_allocator(_: *mut OrtEpFactory, _: *mut OrtAllocator) {}

unsafe extern "system" fn create_data_transfer(
    _: *mut OrtEpFactory,
    transfer: *mut *mut c_void,
) -> Status {
    // SAFETY: there is room for it; null stands for none.
    unsafe { *transfer = ptr::null_mut() };
    ptr::null_mut()
}

unsafe extern "system" fn is_stream_aware(_: *const OrtEpFactory) -> bool {
    false
}
