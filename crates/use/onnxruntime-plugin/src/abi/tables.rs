//! The tables that a plugin fills, as onnxruntime 1.23 has them ([`FILLED`]). It reads no further than the version says
//! that stands first in each.
use super::slots::Status;
use super::*;
use std::ffi::{c_char, c_void};

/// Where a plugin gets onnxruntime's functions from.
#[repr(C)]
pub struct OrtApiBase {
    /// The table of functions of a version; null where it is not there.
    pub get_api: unsafe extern "system" fn(version: u32) -> *const c_void,
    /// Its version as text.
    pub get_version_string: unsafe extern "system" fn() -> *const c_char,
}

/// A function that is not offered.
type Nothing = Option<unsafe extern "system" fn()>;

/// Makes providers.
#[repr(C)]
pub struct OrtEpFactory {
    /// Version of the interface.
    pub version: u32,
    /// The provider's name.
    pub get_name: unsafe extern "system" fn(*const OrtEpFactory) -> *const c_char,
    /// Who made it.
    pub get_vendor: unsafe extern "system" fn(*const OrtEpFactory) -> *const c_char,
    /// Which of the hardware it can use.
    pub get_supported_devices: unsafe extern "system" fn(
        factory: *mut OrtEpFactory,
        devices: *const *const OrtHardwareDevice,
        count: usize,
        usable: *mut *mut OrtEpDevice,
        room: usize,
        found: *mut usize,
    ) -> Status,
    /// A provider for a session.
    pub create_ep: unsafe extern "system" fn(
        factory: *mut OrtEpFactory,
        devices: *const *const OrtHardwareDevice,
        metadata: *const *const OrtKeyValuePairs,
        count: usize,
        options: *const OrtSessionOptions,
        logger: *const OrtLogger,
        ep: *mut *mut OrtEp,
    ) -> Status,
    /// Frees a provider.
    pub release_ep: unsafe extern "system" fn(*mut OrtEpFactory, *mut OrtEp),
    /// Number of its vendor.
    pub get_vendor_id: unsafe extern "system" fn(*const OrtEpFactory) -> u32,
    /// The provider's version.
    pub get_version: unsafe extern "system" fn(*const OrtEpFactory) -> *const c_char,
    /// Whether a model that was compiled before can be used.
    pub validate_compiled_model: Nothing,
    /// Memory; null stands for the processor's own.
    pub create_allocator: unsafe extern "system" fn(
        factory: *mut OrtEpFactory,
        memory: *const OrtMemoryInfo,
        options: *const OrtKeyValuePairs,
        allocator: *mut *mut OrtAllocator,
    ) -> Status,
    /// Frees what `create_allocator` made.
    pub release_allocator: unsafe extern "system" fn(*mut OrtEpFactory, *mut OrtAllocator),
    /// Copies between devices; null stands for none.
    pub create_data_transfer:
        unsafe extern "system" fn(*mut OrtEpFactory, *mut *mut c_void) -> Status,
    /// Whether its providers know streams.
    pub is_stream_aware: unsafe extern "system" fn(*const OrtEpFactory) -> bool,
    /// A stream.
    pub create_sync_stream: Nothing,
}

/// A provider.
#[repr(C)]
pub struct OrtEp {
    /// Version of the interface.
    pub version: u32,
    /// Its name.
    pub get_name: unsafe extern "system" fn(*const OrtEp) -> *const c_char,
    /// Says which nodes of a graph it takes.
    pub get_capability: unsafe extern "system" fn(
        ep: *mut OrtEp,
        graph: *const OrtGraph,
        info: *mut OrtEpGraphSupportInfo,
    ) -> Status,
    /// Makes the groups of nodes that it took ready.
    pub compile: unsafe extern "system" fn(
        ep: *mut OrtEp,
        graphs: *const *const OrtGraph,
        fused: *const *const OrtNode,
        count: usize,
        infos: *mut *mut OrtNodeComputeInfo,
        contexts: *mut *mut OrtNode,
    ) -> Status,
    /// Frees what `compile` made.
    pub release_node_compute_infos:
        unsafe extern "system" fn(*mut OrtEp, *mut *mut OrtNodeComputeInfo, usize),
    /// The order of the axes that it wants; null stands for the standard's.
    pub get_preferred_data_layout: Nothing,
    /// Whether a node's axes are to be put in that order.
    pub should_convert_data_layout: Nothing,
    /// Takes options while a session is in use.
    pub set_dynamic_options: Nothing,
    /// Hears that a request begins.
    pub on_run_start: Nothing,
    /// Hears that a request ends.
    pub on_run_end: Nothing,
    /// Memory; null stands for the factory's.
    pub create_allocator: Nothing,
    /// A stream.
    pub create_sync_stream: Nothing,
    /// What compiled models are marked with.
    pub get_compatibility_info: Nothing,
}

/// How a group of nodes becomes one.
#[repr(C)]
pub struct OrtNodeFusionOptions {
    /// Version of the interface.
    pub version: u32,
    /// Whether the constants of the group are not to be given with every request.
    pub drop_constant_initializers: bool,
}

/// What runs a group of nodes.
#[repr(C)]
pub struct OrtNodeComputeInfo {
    /// Version of the interface.
    pub version: u32,
    /// Makes what stays between requests.
    pub create_state: unsafe extern "system" fn(
        info: *mut OrtNodeComputeInfo,
        context: *mut OrtNodeComputeContext,
        state: *mut *mut c_void,
    ) -> Status,
    /// Runs a request.
    pub compute: unsafe extern "system" fn(
        info: *mut OrtNodeComputeInfo,
        state: *mut c_void,
        context: *mut OrtKernelContext,
    ) -> Status,
    /// Frees what `create_state` made.
    pub release_state: unsafe extern "system" fn(info: *mut OrtNodeComputeInfo, state: *mut c_void),
}
