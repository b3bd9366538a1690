//! The driver of real GPUs.
mod pinned;

use crate::driver::{
    Arg, Compute, Context, DeviceInfo, DevicePtr, Driver, EventId, FunctionId, FunctionInfo,
    GraphId, Launch, MemoryInfo, ModuleCode, ModuleId, Pinned, StreamId, TensorMap,
};
use crate::error::DriverError;
use crate::sys::{self, Device, Functions, Handle, Status, attribute, function, status};
use emit::ptx::TensorLayout;
use pinned::PinnedHost;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;
use std::ptr::{NonNull, null, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes of the driver's compiler's log that are kept.
const LOG: usize = 8192;

/// The driver of NVIDIA GPUs at this machine.
pub struct Nvidia {
    api: Arc<Functions>,
    version: u32,
}

impl Nvidia {
    /// Opens the driver's library, looks up all that is called, and initialises it.
    ///
    /// # Errors
    /// There is no driver, it is too old, or it does not start.
    pub fn load() -> Result<Nvidia, DriverError> {
        let api = Arc::new(sys::load()?);
        // SAFETY: takes flags, of which there are none.
        check(&api, "cuInit", unsafe { (api.init)(0) })?;
        let mut version = 0;
        // SAFETY: writes one number.
        let r = unsafe { (api.driver_version)(&mut version) };
        check(&api, "cuDriverGetVersion", r)?;
        Ok(Nvidia {
            api,
            version: version as u32,
        })
    }

    fn info(&self, ordinal: u32) -> Result<(Device, DeviceInfo), DriverError> {
        let api = &*self.api;
        let mut device: Device = 0;
        // SAFETY: writes one number; the driver checks the ordinal.
        let r = unsafe { (api.device_get)(&mut device, ordinal as c_int) };
        check(api, "cuDeviceGet", r)?;
        let mut name = [0; 256];
        // SAFETY: writes at most so many bytes, the last one 0.
        let r = unsafe { (api.device_name)(name.as_mut_ptr(), name.len() as c_int, device) };
        check(api, "cuDeviceGetName", r)?;
        let mut memory = 0usize;
        // SAFETY: writes one number.
        let r = unsafe { (api.device_memory)(&mut memory, device) };
        check(api, "cuDeviceTotalMem", r)?;
        let get = |what: c_int| {
            let mut value = 0;
            // SAFETY: writes one number; an attribute that the driver does not know is an error.
            let r = unsafe { (api.device_attribute)(&mut value, what, device) };
            check(api, "cuDeviceGetAttribute", r).map(|()| value.max(0) as u32)
        };
        let info = DeviceInfo {
            ordinal,
            // SAFETY: the driver has put a 0 at its end.
            name: unsafe { CStr::from_ptr(name.as_ptr()) }
                .to_string_lossy()
                .into_owned(),
            compute: Compute {
                major: get(attribute::MAJOR)?,
                minor: get(attribute::MINOR)?,
            },
            sms: get(attribute::SMS)?,
            memory_bytes: memory as u64,
            threads_per_sm: get(attribute::THREADS_PER_SM)?,
            blocks_per_sm: get(attribute::BLOCKS_PER_SM)?,
            registers_per_sm: get(attribute::REGISTERS_PER_SM)?,
            shared_per_sm: get(attribute::SHARED_PER_SM)?,
            shared_per_block_optin: get(attribute::SHARED_OPTIN)?,
            clock_khz: get(attribute::CLOCK)?,
            memory_clock_khz: get(attribute::MEMORY_CLOCK)?,
            bus_bits: get(attribute::BUS)?,
            l2_bytes: u64::from(get(attribute::L2)?),
            integrated: get(attribute::INTEGRATED)? != 0,
            maps_host_memory: get(attribute::MAPS_HOST)? != 0,
        };
        Ok((device, info))
    }

    fn count(&self) -> Result<u32, DriverError> {
        let mut count = 0;
        // SAFETY: writes one number.
        let r = unsafe { (self.api.device_count)(&mut count) };
        if r == status::NO_DEVICE {
            return Ok(0);
        }
        check(&self.api, "cuDeviceGetCount", r)?;
        Ok(count.max(0) as u32)
    }
}

impl Driver for Nvidia {
    fn version(&self) -> u32 {
        self.version
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, DriverError> {
        (0..self.count()?).map(|n| Ok(self.info(n)?.1)).collect()
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Context>, DriverError> {
        let count = self.count()?;
        if ordinal >= count {
            return Err(DriverError::NoDevice { ordinal, count });
        }
        let (device, info) = self.info(ordinal)?;
        let mut handle = null_mut();
        // SAFETY: writes a handle that is given back when `Gpu` is dropped.
        let r = unsafe { (self.api.context_retain)(&mut handle, device) };
        check(&self.api, "cuDevicePrimaryCtxRetain", r)?;
        Ok(Arc::new(Gpu {
            open: Arc::new(Open {
                api: self.api.clone(),
                device,
                handle: Shared(handle),
                pinned: Mutex::default(),
                gone: DeferredFrees::of(device),
            }),
            info,
            names: Mutex::default(),
            held: Mutex::default(),
        }))
    }
}

/// A handle of the driver, which any thread may use.
#[derive(Clone, Copy)]
struct Shared(Handle);

// SAFETY: the driver's handles belong to the process, not to a thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The primary context, retained.
struct Open {
    api: Arc<Functions>,
    device: Device,
    handle: Shared,
    /// Pinned memory there is, by address, with its size.
    pinned: Mutex<HashMap<u64, usize>>,
    gone: Arc<Mutex<DeferredFrees>>,
}

/// What was let go of in a GPU's primary context, which all who open the GPU share: giving it back may
/// block behind a kernel that stays, so it waits for a call that may as well.
#[derive(Default)]
struct DeferredFrees {
    /// Sizes of all device memory there is, by address.
    sizes: HashMap<u64, u64>,
    memory: Vec<u64>,
    pinned: Vec<Shared>,
    modules: Vec<Shared>,
}

static GONE: Mutex<BTreeMap<Device, Weak<Mutex<DeferredFrees>>>> = Mutex::new(BTreeMap::new());

impl DeferredFrees {
    fn of(device: Device) -> Arc<Mutex<DeferredFrees>> {
        let mut all = GONE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(g) = all.get(&device).and_then(Weak::upgrade) {
            return g;
        }
        let new = Arc::new(Mutex::default());
        all.insert(device, Arc::downgrade(&new));
        new
    }
}

impl Open {
    fn gone(&self) -> MutexGuard<'_, DeferredFrees> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back what was let go of.
    fn settle(&self, api: &Functions) {
        let (memory, pinned, modules) = {
            let mut g = self.gone();
            let memory = std::mem::take(&mut g.memory);
            for at in &memory {
                g.sizes.remove(at);
            }
            (
                memory,
                std::mem::take(&mut g.pinned),
                std::mem::take(&mut g.modules),
            )
        };
        // Nothing can be done about a failure here, and a lost GPU has let go already.
        for at in memory {
            // SAFETY: from `cuMemAlloc`, let go of once; nothing of Rust's lies in device memory.
            unsafe { (api.free)(at) };
        }
        for p in pinned {
            // SAFETY: from `cuMemHostAlloc`, and nobody else has it.
            unsafe { (api.host_free)(p.0) };
        }
        for m in modules {
            // SAFETY: a module of this context that nobody has any more.
            unsafe { (api.module_unload)(m.0) };
        }
    }

    fn pinned(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the context that of the calling thread.
    fn enter(&self) -> Result<&Functions, DriverError> {
        // SAFETY: the context is retained.
        let r = unsafe { (self.api.context_set)(self.handle.0) };
        check(&self.api, "cuCtxSetCurrent", r)?;
        Ok(&self.api)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Others who have the GPU open give it back later: a kernel of theirs may stay for long.
        if Arc::strong_count(&self.gone) == 1
            && let Ok(api) = self.enter()
        {
            self.settle(api);
        }
        // SAFETY: retained once, when it was opened.
        unsafe { (self.api.context_release)(self.device) };
    }
}

/// An open GPU.
struct Gpu {
    open: Arc<Open>,
    info: DeviceInfo,
    /// Entries by function, for messages.
    names: Mutex<HashMap<u64, String>>,
    /// Pinned memory that copies in a stream still use.
    held: Mutex<HashMap<u64, Vec<Arc<dyn Pinned>>>>,
}

fn check(api: &Functions, call: &'static str, r: Status) -> Result<(), DriverError> {
    if r == 0 {
        return Ok(());
    }
    let (code, why) = name(api, r);
    let fatal = (status::ILLEGAL_ADDRESS..=status::LAST_FATAL).contains(&r);
    Err(match fatal || r == status::ECC {
        true => DriverError::Lost { code, why },
        false => DriverError::Call { call, code, why },
    })
}

/// A text with the 0 that the driver's compiler wants behind it.
fn terminated(call: &'static str, ptx: &str) -> Result<CString, DriverError> {
    CString::new(ptx).map_err(|_| DriverError::Argument {
        call,
        why: "the module's text has a zero byte".into(),
    })
}

/// What became of compiling or loading code, with what the compiler wrote to `log`.
fn compiled(api: &Functions, call: &'static str, r: Status, log: &[u8]) -> Result<(), DriverError> {
    let refused = [
        status::INVALID_PTX,
        status::UNSUPPORTED_PTX,
        status::INVALID_IMAGE,
        status::NO_BINARY,
    ];
    if !refused.contains(&r) {
        return check(api, call, r);
    }
    let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(&log[..end]).trim().to_string();
    let (code, why) = name(api, r);
    Err(DriverError::Module {
        code,
        log: if log.is_empty() { why } else { log },
    })
}

/// The driver's name for an error, and what it says of it.
fn name(api: &Functions, r: Status) -> (String, String) {
    let text = |f: unsafe extern "system" fn(Status, *mut *const std::ffi::c_char) -> Status| {
        let mut p = null();
        // SAFETY: writes a pointer to a text that lives as long as the library, or null.
        if unsafe { f(r, &mut p) } != 0 || p.is_null() {
            return format!("error {r}");
        }
        // SAFETY: as above.
        unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned()
    };
    (text(api.error_name), text(api.error_string))
}

fn handle(id: u64) -> Handle {
    id as usize as Handle
}

fn inside(call: &'static str, range: &Range<usize>, len: usize) -> Result<(), DriverError> {
    match range.start <= range.end && range.end <= len {
        true => Ok(()),
        false => Err(DriverError::Argument {
            call,
            why: format!("bytes {} to {} of {len}", range.start, range.end),
        }),
    }
}

impl Gpu {
    fn held(&self) -> MutexGuard<'_, HashMap<u64, Vec<Arc<dyn Pinned>>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of pinned memory of this GPU. That of another driver is refused: its address would
    /// mean nothing here.
    fn host(&self, call: &'static str, p: &Arc<dyn Pinned>) -> Result<*mut u8, DriverError> {
        let at = p.device_ptr().0;
        match self.open.pinned().get(&at) {
            Some(len) if *len == p.len() => Ok(at as usize as *mut u8),
            _ => Err(DriverError::Argument {
                call,
                why: "the pinned memory is not of this GPU".into(),
            }),
        }
    }
}

impl Context for Gpu {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn key(&self) -> usize {
        self.open.handle.0 as usize
    }

    fn memory(&self) -> Result<MemoryInfo, DriverError> {
        let api = self.open.enter()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: writes two numbers.
        let r = unsafe { (api.memory_info)(&mut free, &mut total) };
        check(api, "cuMemGetInfo", r)?;
        let gone = self.open.gone();
        let back: u64 = gone.memory.iter().filter_map(|at| gone.sizes.get(at)).sum();
        Ok(MemoryInfo {
            free: free as u64 + back,
            total: total as u64,
        })
    }

    fn allocate(&self, bytes: u64) -> Result<DevicePtr, DriverError> {
        let api = self.open.enter()?;
        self.open.settle(api);
        let mut at = 0;
        // SAFETY: writes an address.
        let r = unsafe { (api.allocate)(&mut at, bytes.max(1) as usize) };
        if r == status::OUT_OF_MEMORY {
            let m = self.memory()?;
            return Err(DriverError::OutOfMemory {
                asked: bytes,
                free: m.free,
                total: m.total,
            });
        }
        check(api, "cuMemAlloc", r)?;
        self.open.gone().sizes.insert(at, bytes);
        Ok(DevicePtr(at))
    }

    fn free(&self, ptr: DevicePtr) -> Result<(), DriverError> {
        let mut gone = self.open.gone();
        if !gone.sizes.contains_key(&ptr.0) || gone.memory.contains(&ptr.0) {
            return Err(DriverError::Argument {
                call: "cuMemFree",
                why: format!("no memory begins at {:#x}", ptr.0),
            });
        }
        gone.memory.push(ptr.0);
        Ok(())
    }

    fn pinned(&self, bytes: usize) -> Result<Arc<dyn Pinned>, DriverError> {
        let api = self.open.enter()?;
        self.open.settle(api);
        if !self.info.maps_host_memory {
            return Err(DriverError::Argument {
                call: "cuMemHostAlloc",
                why: format!("{} cannot see host memory", self.info.name),
            });
        }
        let mut p = null_mut();
        let size = bytes.max(4);
        // SAFETY: writes a pointer to `size` bytes, freed when `PinnedHost` is dropped.
        let r = unsafe { (api.host_allocate)(&mut p, size, sys::HOST_PORTABLE_MAPPED) };
        check(api, "cuMemHostAlloc", r)?;
        let Some(at) = NonNull::new(p.cast::<u8>()) else {
            return Err(DriverError::Argument {
                call: "cuMemHostAlloc",
                why: "the driver gave no memory".into(),
            });
        };
        // SAFETY: `size` bytes that nobody else knows yet.
        unsafe { at.as_ptr().write_bytes(0, size) };
        // Unified addressing: host and device see it at one address, on every GPU since 2010 in a
        // 64-bit process. Registered, so that copies are of such memory only.
        let address = at.as_ptr() as usize as u64;
        self.open.pinned().insert(address, bytes);
        let host = PinnedHost {
            open: self.open.clone(),
            at,
            len: bytes,
        };
        let mut device = 0;
        // SAFETY: writes an address.
        let r = unsafe { (api.host_pointer)(&mut device, p, 0) };
        check(api, "cuMemHostGetDevicePointer", r)?;
        if device != address {
            return Err(DriverError::Argument {
                call: "cuMemHostGetDevicePointer",
                why: "host and device have no common addresses".into(),
            });
        }
        Ok(Arc::new(host))
    }

    fn upload(&self, to: DevicePtr, from: &[u8]) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        // SAFETY: reads `from`, and is through with it when it returns.
        let r = unsafe { (api.upload)(to.0, from.as_ptr().cast(), from.len()) };
        check(api, "cuMemcpyHtoD", r)?;
        // The copy may still be under way to the device then, and kernels in streams of their own do not
        // wait for the default stream, in which it is.
        // SAFETY: 0 is the default stream.
        let r = unsafe { (api.stream_synchronize)(null_mut()) };
        check(api, "cuStreamSynchronize", r)
    }

    fn download(&self, to: &mut [u8], from: DevicePtr) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        // SAFETY: writes `to`, and is over when it returns.
        let r = unsafe { (api.download)(to.as_mut_ptr().cast(), from.0, to.len()) };
        check(api, "cuMemcpyDtoH", r)
    }

    fn upload_from(
        &self,
        to: DevicePtr,
        from: &Arc<dyn Pinned>,
        range: Range<usize>,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        const CALL: &str = "cuMemcpyHtoDAsync";
        inside(CALL, &range, from.len())?;
        let at = self.host(CALL, from)?;
        let api = self.open.enter()?;
        self.held().entry(stream.0).or_default().push(from.clone());
        // SAFETY: the range is inside memory that is held until the stream was waited for.
        let r = unsafe {
            let at = at.add(range.start).cast_const().cast();
            (api.upload_async)(to.0, at, range.len(), handle(stream.0))
        };
        check(api, CALL, r)
    }

    fn download_into(
        &self,
        to: &Arc<dyn Pinned>,
        range: Range<usize>,
        from: DevicePtr,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        const CALL: &str = "cuMemcpyDtoHAsync";
        inside(CALL, &range, to.len())?;
        let at = self.host(CALL, to)?;
        let api = self.open.enter()?;
        self.held().entry(stream.0).or_default().push(to.clone());
        // SAFETY: the range is inside memory that is held until the stream was waited for.
        let r = unsafe {
            let at = at.add(range.start).cast();
            (api.download_async)(at, from.0, range.len(), handle(stream.0))
        };
        check(api, CALL, r)
    }

    fn copy(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        bytes: u64,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        // SAFETY: touches device memory only, whose addresses the driver checks.
        let r = unsafe { (api.copy_async)(to.0, from.0, bytes as usize, handle(stream.0)) };
        check(api, "cuMemcpyDtoDAsync", r)
    }

    fn fill(
        &self,
        at: DevicePtr,
        value: u8,
        bytes: u64,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        // SAFETY: as `copy`.
        let r = unsafe { (api.fill_async)(at.0, value, bytes as usize, handle(stream.0)) };
        check(api, "cuMemsetD8Async", r)
    }

    fn tensor_map(&self, at: DevicePtr, t: &TensorLayout) -> Result<TensorMap, DriverError> {
        const CALL: &str = "cuTensorMapEncodeTiled";
        let api = self.open.enter()?;
        let encode = api
            .encode_tiled
            .ok_or(DriverError::NoSymbol { symbol: CALL })?;
        let n = t.extents.len();
        let rest = [t.strides.len() + 1, t.boxes.len(), t.steps.len()];
        if n == 0 || rest != [n; 3] {
            return Err(DriverError::Argument {
                call: CALL,
                why: format!("{n} dimensions, and {rest:?} numbers of them"),
            });
        }
        let swizzle = (t.swizzle_bytes / 16).checked_ilog2().unwrap_or(0);
        let mut out = TensorMap([0; 128]);
        // SAFETY: writes 128 bytes, which are aligned to 64; reads as many numbers of each list as there are dimensions,
        // one less of the distances. The address is only kept.
        let r = unsafe {
            encode(
                out.0.as_mut_ptr().cast(),
                t.data_type(),
                n as u32,
                at.offset(t.offset).0 as usize as *mut c_void,
                t.extents.as_ptr(),
                t.strides.as_ptr(),
                t.boxes.as_ptr(),
                t.steps.as_ptr(),
                0,
                swizzle,
                sys::PROMOTION,
                0,
            )
        };
        check(api, CALL, r)?;
        Ok(out)
    }

    fn assemble(&self, ptx: &str) -> Result<Vec<u8>, DriverError> {
        let api = self.open.enter()?;
        let text = terminated("cuLinkAddData", ptx)?;
        let mut log = vec![0u8; LOG];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), LOG as *mut c_void];
        let mut link = null_mut();
        // SAFETY: the options are a buffer for the compiler's log and its size, the latter as a number in place of a
        // pointer, for which the driver puts how much it wrote; both live until the link is destroyed.
        let r = unsafe {
            (api.link_create)(
                2,
                sys::JIT_ERROR_LOG.as_ptr(),
                values.as_mut_ptr(),
                &mut link,
            )
        };
        check(api, "cuLinkCreate", r)?;
        let bytes = text.as_bytes_with_nul();
        // SAFETY: a link that was just made, and a text with its 0, which is read during the call.
        let added = unsafe {
            (api.link_add)(
                link,
                sys::PTX_INPUT,
                bytes.as_ptr().cast(),
                bytes.len(),
                c"ptx".as_ptr(),
                0,
                null(),
                null_mut(),
            )
        };
        let (mut code, mut size) = (null_mut(), 0usize);
        let done = match added {
            // SAFETY: writes an address and a number.
            0 => unsafe { (api.link_complete)(link, &mut code, &mut size) },
            failed => failed,
        };
        let made = (done == 0 && !code.is_null()).then(|| {
            // SAFETY: so many bytes, which the link owns until it is destroyed.
            unsafe { std::slice::from_raw_parts(code.cast::<u8>(), size) }.to_vec()
        });
        // SAFETY: made above, destroyed once; the log's buffer is alive.
        unsafe { (api.link_destroy)(link) };
        compiled(api, "cuLinkComplete", done, &log)?;
        made.ok_or_else(|| DriverError::Argument {
            call: "cuLinkComplete",
            why: "the driver gave no code".into(),
        })
    }

    fn load_module(&self, code: ModuleCode) -> Result<ModuleId, DriverError> {
        const CALL: &str = "cuModuleLoadDataEx";
        let api = self.open.enter()?;
        self.open.settle(api);
        let text;
        let image: *const c_void = match code {
            ModuleCode::Text(ptx) => {
                text = terminated(CALL, ptx)?;
                text.as_ptr().cast()
            }
            ModuleCode::Binary(code) => code.as_ptr().cast(),
        };
        let mut log = vec![0u8; LOG];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), LOG as *mut c_void];
        let mut module = null_mut();
        // SAFETY: a text that ends in a 0, or code that a driver made, whose header says how long it is and which was
        // found whole; the options are a buffer for the compiler's log and its size, the latter as a number in place of
        // a pointer, for which the driver puts how much it wrote.
        let r = unsafe {
            (api.module_load)(
                &mut module,
                image,
                2,
                sys::JIT_ERROR_LOG.as_ptr(),
                values.as_mut_ptr(),
            )
        };
        compiled(api, CALL, r, &log)?;
        Ok(ModuleId(module as usize as u64))
    }

    fn unload_module(&self, module: ModuleId) -> Result<(), DriverError> {
        self.open.gone().modules.push(Shared(handle(module.0)));
        Ok(())
    }

    fn function(&self, module: ModuleId, entry: &str) -> Result<FunctionId, DriverError> {
        const CALL: &str = "cuModuleGetFunction";
        let api = self.open.enter()?;
        let name = CString::new(entry).map_err(|_| DriverError::Argument {
            call: CALL,
            why: "the entry's name has a zero byte".into(),
        })?;
        let mut f = null_mut();
        // SAFETY: a module of this context and a name that ends in a 0.
        let r = unsafe { (api.module_function)(&mut f, handle(module.0), name.as_ptr()) };
        check(api, CALL, r)?;
        let id = f as usize as u64;
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(id, entry.into());
        Ok(FunctionId(id))
    }

    fn function_info(&self, f: FunctionId) -> Result<FunctionInfo, DriverError> {
        let api = self.open.enter()?;
        let get = |what: c_int| {
            let mut v = 0;
            // SAFETY: writes one number.
            let r = unsafe { (api.function_attribute)(&mut v, what, handle(f.0)) };
            check(api, "cuFuncGetAttribute", r).map(|()| v.max(0) as u32)
        };
        Ok(FunctionInfo {
            registers: get(function::REGISTERS)?,
            shared_bytes: get(function::SHARED)?,
            local_bytes: get(function::LOCAL)?,
            max_threads: get(function::MAX_THREADS)?,
        })
    }

    fn allow_shared(&self, f: FunctionId, bytes: u32) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: a function of this context; the driver checks the size.
        let r = unsafe { (api.function_set)(handle(f.0), function::MAX_DYNAMIC_SHARED, bytes) };
        check(api, "cuFuncSetAttribute", r)
    }

    fn blocks_per_sm(&self, f: FunctionId, threads: u32, shared: u32) -> Result<u32, DriverError> {
        let api = self.open.enter()?;
        let mut n = 0;
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: writes one number.
        let r = unsafe { (api.occupancy)(&mut n, handle(f.0), threads, shared as usize) };
        check(api, "cuOccupancyMaxActiveBlocksPerMultiprocessor", r)?;
        Ok(n.max(0) as u32)
    }

    fn launch(
        &self,
        f: FunctionId,
        shape: Launch,
        args: &[Arg],
        stream: StreamId,
    ) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        let mut values: Vec<TensorMap> = args.iter().map(|a| a.bytes()).collect();
        let pointers = values.iter_mut().map(|v| v.0.as_mut_ptr().cast());
        let pointers: Vec<*mut c_void> = pointers.collect();
        let attributes = [sys::EARLY];
        let config = sys::LaunchConfig {
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared_bytes,
            stream: handle(stream.0),
            attributes: attributes.as_ptr(),
            count: u32::from(shape.early),
        };
        // SAFETY: the driver reads the configuration and as many attributes as it says, and copies as many bytes
        // per argument as the kernel declares, 128 at most of the types of `Arg`, before it returns.
        let r = unsafe { (api.launch)(&config, handle(f.0), pointers.as_ptr(), null()) };
        match check(api, "cuLaunchKernelEx", r) {
            Err(DriverError::Call { code, why, .. }) => {
                let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                let kernel = names.get(&f.0).cloned().unwrap_or_default();
                Err(DriverError::Launch { kernel, code, why })
            }
            r => r,
        }
    }

    fn begin_graph(&self, stream: StreamId) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        // SAFETY: a stream of this context.
        let r = unsafe { (api.capture_begin)(handle(stream.0), sys::CAPTURE_RELAXED) };
        check(api, "cuStreamBeginCapture", r)
    }

    fn end_graph(&self, stream: StreamId) -> Result<GraphId, DriverError> {
        let api = self.open.enter()?;
        let (mut graph, mut made) = (null_mut(), null_mut());
        // SAFETY: a stream of this context; writes a handle.
        let r = unsafe { (api.capture_end)(handle(stream.0), &mut graph) };
        check(api, "cuStreamEndCapture", r)?;
        // SAFETY: writes a handle, of the graph that was just made.
        let r = unsafe { (api.graph_instantiate)(&mut made, graph, 0) };
        let done = check(api, "cuGraphInstantiate", r);
        // SAFETY: the graph was just made; what was instantiated of it does not need it.
        let r = unsafe { (api.graph_destroy)(graph) };
        done.and(check(api, "cuGraphDestroy", r))?;
        Ok(GraphId(made as usize as u64))
    }

    fn launch_graph(&self, graph: GraphId, stream: StreamId) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        // SAFETY: a graph and a stream of this context.
        let r = unsafe { (api.graph_launch)(handle(graph.0), handle(stream.0)) };
        check(api, "cuGraphLaunch", r)
    }

    fn drop_graph(&self, graph: GraphId) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        // SAFETY: a graph of this context.
        let r = unsafe { (api.graph_exec_destroy)(handle(graph.0)) };
        check(api, "cuGraphExecDestroy", r)
    }

    fn new_stream(&self, priority: i32) -> Result<StreamId, DriverError> {
        let api = self.open.enter()?;
        let mut s = null_mut();
        // SAFETY: writes a handle; the driver brings the priority into its range.
        let r = unsafe { (api.stream_create)(&mut s, sys::STREAM_NON_BLOCKING, priority) };
        check(api, "cuStreamCreateWithPriority", r)?;
        Ok(StreamId(s as usize as u64))
    }

    fn drop_stream(&self, stream: StreamId) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        if self.held().contains_key(&stream.0) {
            // Copies that still run use pinned memory that is held for them.
            self.synchronize(stream)?;
        }
        // SAFETY: a stream of this context.
        let r = unsafe { (api.stream_destroy)(handle(stream.0)) };
        check(api, "cuStreamDestroy", r)
    }

    fn synchronize(&self, stream: StreamId) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        // What is queued now is over afterwards; what others queue meanwhile is not.
        let over = self.held().remove(&stream.0);
        // SAFETY: a stream of this context.
        let r = unsafe { (api.stream_synchronize)(handle(stream.0)) };
        drop(over);
        check(api, "cuStreamSynchronize", r)
    }

    fn is_done(&self, stream: StreamId) -> Result<bool, DriverError> {
        let api = self.open.enter()?;
        // SAFETY: a stream of this context.
        match unsafe { (api.stream_query)(handle(stream.0)) } {
            status::NOT_READY => Ok(false),
            r => check(api, "cuStreamQuery", r).map(|()| true),
        }
    }

    fn wait_event(&self, stream: StreamId, event: EventId) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        // SAFETY: a stream and an event of this context.
        let r = unsafe { (api.stream_wait)(handle(stream.0), handle(event.0), 0) };
        check(api, "cuStreamWaitEvent", r)
    }

    fn new_event(&self) -> Result<EventId, DriverError> {
        let api = self.open.enter()?;
        let mut e = null_mut();
        // SAFETY: writes a handle.
        let r = unsafe { (api.event_create)(&mut e, 0) };
        check(api, "cuEventCreate", r)?;
        Ok(EventId(e as usize as u64))
    }

    fn drop_event(&self, event: EventId) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        // SAFETY: an event of this context.
        let r = unsafe { (api.event_destroy)(handle(event.0)) };
        check(api, "cuEventDestroy", r)
    }

    fn record(&self, event: EventId, stream: StreamId) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        // SAFETY: an event and a stream of this context.
        let r = unsafe { (api.event_record)(handle(event.0), handle(stream.0)) };
        check(api, "cuEventRecord", r)
    }

    fn synchronize_event(&self, event: EventId) -> Result<(), DriverError> {
        let api = self.open.enter()?;
        // SAFETY: an event of this context.
        let r = unsafe { (api.event_synchronize)(handle(event.0)) };
        check(api, "cuEventSynchronize", r)
    }

    fn elapsed_ms(&self, from: EventId, to: EventId) -> Result<f32, DriverError> {
        let api = self.open.enter()?;
        let mut ms = 0.0;
        // SAFETY: writes one number.
        let r = unsafe { (api.event_elapsed)(&mut ms, handle(from.0), handle(to.0)) };
        check(api, "cuEventElapsedTime", r)?;
        Ok(ms)
    }
}
