//! The driver's functions, looked up by name in its library. Signatures are those of `cuda.h`.
use crate::DriverError;
use libloading::{Library, Symbol};
use std::ffi::{c_char, c_int, c_uint, c_void};

/// `CUresult`
pub type Status = c_int;
/// `CUdevice`
pub type Device = c_int;
/// `CUcontext`, `CUmodule`, `CUfunction`, `CUstream`, `CUevent`, `CUgraph`, `CUgraphExec`,
/// `CUlinkState`
pub type Handle = *mut c_void;
/// `CUdeviceptr`
pub type Address = u64;

/// `CUlaunchAttribute`: a number that says what it is, and a value of 64 bytes.
#[repr(C)]
pub struct LaunchAttribute {
    pub id: c_uint,
    pub pad: c_uint,
    pub value: [u64; 8],
}

/// `CUlaunchConfig`
#[repr(C)]
pub struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub stream: Handle,
    pub attributes: *const LaunchAttribute,
    pub count: c_uint,
}

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION` and its value: a launch may begin before the one ahead
/// of it in the stream is over.
pub const EARLY: LaunchAttribute = LaunchAttribute {
    id: 6,
    pad: 0,
    value: [1, 0, 0, 0, 0, 0, 0, 0],
};

/// `cuTensorMapEncodeTiled`: the map, the type of elements, dimensions, address, extents, distances, those of boxes, every
/// how manieth element; interleaving, swizzle, promotion to L2, and what is outside.
pub type EncodeTiled = unsafe extern "system" fn(
    *mut c_void,
    c_uint,
    c_uint,
    *mut c_void,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
) -> Status;

/// `CU_TENSOR_MAP_L2_PROMOTION_L2_128B`
pub const PROMOTION: c_uint = 2;

/// Names of the library, the one that comes with the driver first.
#[cfg(windows)]
const NAMES: [&str; 1] = ["nvcuda.dll"];
#[cfg(not(windows))]
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($arg:ty),*);)*) => {
        /// Every function that is called, none of them missing.
        pub struct Functions {
            $(pub $field: unsafe extern "system" fn($($arg),*) -> Status,)*
            /// `cuTensorMapEncodeTiled`, which drivers before 12.0 lack.
            pub encode_tiled: Option<EncodeTiled>,
            /// Keeps the functions where they are.
            _library: Library,
        }

        /// The names of the functions that are called.
        pub const SYMBOLS: &[&str] = &[$($symbol),*];

        impl Functions {
            /// Looks all of them up.
            fn of(library: Library) -> Result<Functions, DriverError> {
                $(
                    // SAFETY: the type is that of the function of this name in `cuda.h`.
                    let $field: Symbol<'_, unsafe extern "system" fn($($arg),*) -> Status> =
                        unsafe { library.get($symbol.as_bytes()) }
                            .map_err(|_| DriverError::NoSymbol { symbol: $symbol })?;
                    let $field = *$field;
                )*
                // SAFETY: the type is that of the function of this name in `cuda.h`.
                let tiled = unsafe { library.get::<EncodeTiled>(b"cuTensorMapEncodeTiled") };
                let encode_tiled = tiled.ok().map(|f| *f);
                Ok(Functions { $($field,)* encode_tiled, _library: library })
            }
        }
    };
}

functions! {
    init = "cuInit" (c_uint);
    driver_version = "cuDriverGetVersion" (*mut c_int);
    error_name = "cuGetErrorName" (Status, *mut *const c_char);
    error_string = "cuGetErrorString" (Status, *mut *const c_char);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device_get = "cuDeviceGet" (*mut Device, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, Device);
    device_memory = "cuDeviceTotalMem_v2" (*mut usize, Device);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, Device);
    context_retain = "cuDevicePrimaryCtxRetain" (*mut Handle, Device);
    context_release = "cuDevicePrimaryCtxRelease_v2" (Device);
    context_set = "cuCtxSetCurrent" (Handle);
    memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    allocate = "cuMemAlloc_v2" (*mut Address, usize);
    free = "cuMemFree_v2" (Address);
    host_allocate = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost" (*mut c_void);
    host_pointer = "cuMemHostGetDevicePointer_v2" (*mut Address, *mut c_void, c_uint);
    upload = "cuMemcpyHtoD_v2" (Address, *const c_void, usize);
    download = "cuMemcpyDtoH_v2" (*mut c_void, Address, usize);
    upload_async = "cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Handle);
    download_async = "cuMemcpyDtoHAsync_v2" (*mut c_void, Address, usize, Handle);
    copy_async = "cuMemcpyDtoDAsync_v2" (Address, Address, usize, Handle);
    fill_async = "cuMemsetD8Async" (Address, u8, usize, Handle);
    module_load = "cuModuleLoadDataEx" (*mut Handle, *const c_void, c_uint, *const c_int, *mut *mut c_void);
    link_create = "cuLinkCreate_v2" (c_uint, *const c_int, *mut *mut c_void, *mut Handle);
    link_add = "cuLinkAddData_v2" (Handle, c_int, *const c_void, usize, *const c_char, c_uint, *const c_int, *mut *mut c_void);
    link_complete = "cuLinkComplete" (Handle, *mut *mut c_void, *mut usize);
    link_destroy = "cuLinkDestroy" (Handle);
    module_unload = "cuModuleUnload" (Handle);
    module_function = "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    function_attribute = "cuFuncGetAttribute" (*mut c_int, c_int, Handle);
    function_set = "cuFuncSetAttribute" (Handle, c_int, c_int);
    occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor" (*mut c_int, Handle, c_int, usize);
    launch = "cuLaunchKernelEx" (*const LaunchConfig, Handle, *const *mut c_void, *const *mut c_void);
    stream_create = "cuStreamCreateWithPriority" (*mut Handle, c_uint, c_int);
    stream_destroy = "cuStreamDestroy_v2" (Handle);
    stream_synchronize = "cuStreamSynchronize" (Handle);
    stream_query = "cuStreamQuery" (Handle);
    stream_wait = "cuStreamWaitEvent" (Handle, Handle, c_uint);
    capture_begin = "cuStreamBeginCapture_v2" (Handle, c_uint);
    capture_end = "cuStreamEndCapture" (Handle, *mut Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
    graph_launch = "cuGraphLaunch" (Handle, Handle);
    graph_destroy = "cuGraphDestroy" (Handle);
    graph_exec_destroy = "cuGraphExecDestroy" (Handle);
    event_create = "cuEventCreate" (*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2" (Handle);
    event_record = "cuEventRecord" (Handle, Handle);
    event_synchronize = "cuEventSynchronize" (Handle);
    event_elapsed = "cuEventElapsedTime" (*mut f32, Handle, Handle);
}

/// Opens the driver's library.
///
/// # Errors
/// There is none, or it lacks a function.
pub fn load() -> Result<Functions, DriverError> {
    open(&NAMES)
}

/// Opens the first of `names` that there is.
///
/// # Errors
/// There is none, or it lacks a function.
pub fn open(names: &[&str]) -> Result<Functions, DriverError> {
    let mut why = String::new();
    for name in names {
        // SAFETY: the driver's library has initialisers that may run at any time, as in any program
        // that links it.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Functions::of(library),
            Err(e) => why = e.to_string(),
        }
    }
    Err(DriverError::NoLibrary {
        tried: names.join(", "),
        why,
    })
}

/// `CU_DEVICE_ATTRIBUTE_*`
pub mod attribute {
    pub const CLOCK: i32 = 13;
    pub const SMS: i32 = 16;
    pub const INTEGRATED: i32 = 18;
    pub const MAPS_HOST: i32 = 19;
    pub const MEMORY_CLOCK: i32 = 36;
    pub const BUS: i32 = 37;
    pub const L2: i32 = 38;
    pub const THREADS_PER_SM: i32 = 39;
    pub const MAJOR: i32 = 75;
    pub const MINOR: i32 = 76;
    pub const SHARED_PER_SM: i32 = 81;
    pub const REGISTERS_PER_SM: i32 = 82;
    pub const SHARED_OPTIN: i32 = 97;
    pub const BLOCKS_PER_SM: i32 = 106;
}

/// `CU_FUNC_ATTRIBUTE_*`
pub mod function {
    pub const MAX_THREADS: i32 = 0;
    pub const SHARED: i32 = 1;
    pub const LOCAL: i32 = 3;
    pub const REGISTERS: i32 = 4;
    pub const MAX_DYNAMIC_SHARED: i32 = 8;
}

/// `CUresult`
pub mod status {
    pub const OUT_OF_MEMORY: i32 = 2;
    pub const NO_DEVICE: i32 = 100;
    pub const INVALID_PTX: i32 = 218;
    pub const UNSUPPORTED_PTX: i32 = 222;
    pub const INVALID_IMAGE: i32 = 200;
    pub const NO_BINARY: i32 = 209;
    pub const NOT_READY: i32 = 600;
    /// From this to the next a kernel failed, and the context is of no use any more.
    pub const ILLEGAL_ADDRESS: i32 = 700;
    pub const LAST_FATAL: i32 = 719;
    pub const ECC: i32 = 214;
}

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`
pub const HOST_PORTABLE_MAPPED: c_uint = 1 | 2;
/// `CU_STREAM_NON_BLOCKING`
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: what other threads call meanwhile is no part of it.
pub const CAPTURE_RELAXED: c_uint = 2;
/// `CU_JIT_INPUT_PTX`
pub const PTX_INPUT: c_int = 1;
/// `CU_JIT_ERROR_LOG_BUFFER`, `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`
pub const JIT_ERROR_LOG: [c_int; 2] = [5, 6];
