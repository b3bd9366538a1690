//! The NVIDIA driver as traits: [`Driver`] opens a GPU, [`Context`] has memory, streams, events, modules and
//! launches. `nvidia` implements them on the real library, the `cuda-emulated` crate on the emulator.
use crate::DriverError;
use emit::ptx::TensorLayout;
use std::ops::Range;
use std::sync::Arc;

/// An address in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// The address `bytes` further.
    pub fn offset(self, bytes: u64) -> DevicePtr {
        DevicePtr(self.0.wrapping_add(bytes))
    }
}

/// A queue of work; 0 is the default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub u64);

/// A point in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId(pub u64);

/// A loaded module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModuleId(pub u64);

/// A kernel of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionId(pub u64);

/// Launches that one call queues together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphId(pub u64);

/// Compute capability: 9.0 of an H100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Compute {
    /// 9
    pub major: u32,
    /// 0
    pub minor: u32,
}

impl Compute {
    /// `sm_90`.
    pub fn arch(self) -> String {
        format!("sm_{}{}", self.major, self.minor)
    }
}

/// What the driver says of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// Number, from 0.
    pub ordinal: u32,
    /// Name.
    pub name: String,
    /// Compute capability.
    pub compute: Compute,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// Threads per SM.
    pub threads_per_sm: u32,
    /// CTAs per SM.
    pub blocks_per_sm: u32,
    /// 32-bit registers per SM.
    pub registers_per_sm: u32,
    /// Bytes of shared memory per SM.
    pub shared_per_sm: u32,
    /// Bytes of shared memory that a CTA may ask for.
    pub shared_per_block_optin: u32,
    /// Highest clock of the SMs, in kHz.
    pub clock_khz: u32,
    /// Highest clock of the memory, in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus, in bits.
    pub bus_bits: u32,
    /// Bytes of L2 cache.
    pub l2_bytes: u64,
    /// Whether host and device share one memory.
    pub integrated: bool,
    /// Whether a kernel may read and write pinned host memory.
    pub maps_host_memory: bool,
}

/// Device memory as the driver counts it, other programs' included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes free.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// What the compiler made of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of static shared memory per CTA.
    pub shared_bytes: u32,
    /// Bytes of local memory per thread: spills.
    pub local_bytes: u32,
    /// Threads per CTA at most.
    pub max_threads: u32,
}

/// An argument of a kernel, in the order of its `.param`s.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Arg {
    Pointer(DevicePtr),
    U64(u64),
    I64(i64),
    U32(u32),
    I32(i32),
    F32(f32),
    Map(TensorMap),
}

/// A tensor that kernels copy boxes of, as [`Context::tensor_map`] makes it (`CUtensorMap`).
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct TensorMap(pub [u8; 128]);

impl Arg {
    /// The value's bytes in the order of the machine; of 32-bit values the first four count, of all but tensors the first
    /// eight.
    pub fn bytes(self) -> TensorMap {
        let mut out = TensorMap([0; 128]);
        let wide = match self {
            Arg::Map(m) => return m,
            Arg::Pointer(p) => p.0.to_ne_bytes(),
            Arg::U64(x) => x.to_ne_bytes(),
            Arg::I64(x) => x.to_ne_bytes(),
            Arg::U32(x) => u64::from(x).to_ne_bytes(),
            Arg::I32(x) => u64::from(x as u32).to_ne_bytes(),
            Arg::F32(x) => u64::from(x.to_bits()).to_ne_bytes(),
        };
        out.0[..8].copy_from_slice(&wide);
        out
    }
}

/// What a module is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleCode<'a> {
    /// PTX text.
    Text(&'a str),
    /// What [`Context::assemble`] made under the same version of the driver.
    Binary(&'a [u8]),
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// CTAs along x, y, z.
    pub grid: [u32; 3],
    /// Threads per CTA along x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory per CTA.
    pub shared_bytes: u32,
    /// Whether it may begin while the kernel queued before it runs, for whose end it waits by itself.
    pub early: bool,
}

/// Host memory that the device reads and writes too, at [`Pinned::device_ptr`].
///
/// It is only copied from and to, or accessed word by word with an order: a kernel may be writing.
pub trait Pinned: Send + Sync {
    /// Bytes.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Where kernels find it.
    fn device_ptr(&self) -> DevicePtr;
    /// Copies from `offset` on into `to`.
    ///
    /// # Errors
    /// The range is not inside.
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DriverError>;
    /// Copies `from` to `offset` on.
    ///
    /// # Errors
    /// The range is not inside.
    fn write(&self, offset: usize, from: &[u8]) -> Result<(), DriverError>;
    /// The 32-bit word at `offset` (a multiple of 4): what the device released with it at system
    /// scope is visible afterwards.
    ///
    /// # Errors
    /// The word is not inside or not aligned.
    fn load_acquire(&self, offset: usize) -> Result<u32, DriverError>;
    /// Stores the 32-bit word at `offset` (a multiple of 4) after everything stored before it.
    ///
    /// # Errors
    /// The word is not inside or not aligned.
    fn store_release(&self, offset: usize, value: u32) -> Result<(), DriverError>;
}

/// GPUs of one kind.
pub trait Driver: Send + Sync {
    /// The driver's version, 12040 for 12.4.
    fn version(&self) -> u32;
    /// The GPUs there are.
    ///
    /// # Errors
    /// The driver fails.
    fn devices(&self) -> Result<Vec<DeviceInfo>, DriverError>;
    /// Opens one.
    ///
    /// # Errors
    /// There is none of this number, or the driver fails.
    fn open(&self, ordinal: u32) -> Result<Arc<dyn Context>, DriverError>;
}

/// An open GPU. All calls may come from any thread.
///
/// Functions without a stream return when they are done. Loading a module and getting memory may block
/// until running kernels are over, those of every context with the same [`Context::key`]: what a resident
/// kernel needs is made before it starts. What is let go of, pinned memory too, goes back to the driver
/// with the next such call, because that may block as well and comes at any time.
pub trait Context: Send + Sync {
    /// What it is.
    fn info(&self) -> &DeviceInfo;
    /// The same number for all contexts in which calls wait for each other's kernels.
    fn key(&self) -> usize;
    /// Of a GPU that exists only here: its clock in nanoseconds, as far as the host has waited for it.
    fn emulated_ns(&self) -> Option<u64> {
        None
    }
    /// Memory, other programs' included.
    ///
    /// # Errors
    /// The driver fails.
    fn memory(&self) -> Result<MemoryInfo, DriverError>;
    /// Device memory, aligned to 256 bytes at least; its contents mean nothing.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`].
    fn allocate(&self, bytes: u64) -> Result<DevicePtr, DriverError>;
    /// Lets go of memory.
    ///
    /// # Errors
    /// `ptr` is not from [`Context::allocate`].
    fn free(&self, ptr: DevicePtr) -> Result<(), DriverError>;
    /// Host memory that the device sees, zeroed.
    ///
    /// # Errors
    /// The host has none left, or the device cannot see host memory.
    fn pinned(&self, bytes: usize) -> Result<Arc<dyn Pinned>, DriverError>;
    /// Copies to the device.
    ///
    /// # Errors
    /// The driver fails.
    fn upload(&self, to: DevicePtr, from: &[u8]) -> Result<(), DriverError>;
    /// Copies from the device.
    ///
    /// # Errors
    /// The driver fails.
    fn download(&self, to: &mut [u8], from: DevicePtr) -> Result<(), DriverError>;
    /// Queues a copy of `range` of `from` to the device.
    ///
    /// # Errors
    /// The range is not inside, or the driver fails.
    fn upload_from(
        &self,
        to: DevicePtr,
        from: &Arc<dyn Pinned>,
        range: Range<usize>,
        stream: StreamId,
    ) -> Result<(), DriverError>;
    /// Queues a copy from the device into `range` of `to`.
    ///
    /// # Errors
    /// The range is not inside, or the driver fails.
    fn download_into(
        &self,
        to: &Arc<dyn Pinned>,
        range: Range<usize>,
        from: DevicePtr,
        stream: StreamId,
    ) -> Result<(), DriverError>;
    /// Queues a copy inside device memory.
    ///
    /// # Errors
    /// The driver fails.
    fn copy(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        bytes: u64,
        stream: StreamId,
    ) -> Result<(), DriverError>;
    /// Queues setting `bytes` bytes to `value`.
    ///
    /// # Errors
    /// The driver fails.
    fn fill(
        &self,
        at: DevicePtr,
        value: u8,
        bytes: u64,
        stream: StreamId,
    ) -> Result<(), DriverError>;
    /// Describes the tensor of such a layout in the buffer at `at` to kernels that copy boxes of it.
    ///
    /// # Errors
    /// The driver is too old, or does not make such a one.
    fn tensor_map(&self, at: DevicePtr, layout: &TensorLayout) -> Result<TensorMap, DriverError>;
    /// Compiles PTX text to code of this GPU, which this version of the driver loads ([`ModuleCode::Binary`]).
    ///
    /// # Errors
    /// [`DriverError::Module`] with what the compiler printed.
    fn assemble(&self, ptx: &str) -> Result<Vec<u8>, DriverError>;
    /// Loads a module; PTX text is compiled first.
    ///
    /// # Errors
    /// [`DriverError::Module`] with what the compiler printed, or that the code is not for this GPU and driver.
    fn load_module(&self, code: ModuleCode) -> Result<ModuleId, DriverError>;
    /// Lets go of a module; its functions are gone.
    ///
    /// # Errors
    /// The driver fails.
    fn unload_module(&self, module: ModuleId) -> Result<(), DriverError>;
    /// A kernel by its entry's name.
    ///
    /// # Errors
    /// There is none.
    fn function(&self, module: ModuleId, entry: &str) -> Result<FunctionId, DriverError>;
    /// What the compiler made of it.
    ///
    /// # Errors
    /// The driver fails.
    fn function_info(&self, function: FunctionId) -> Result<FunctionInfo, DriverError>;
    /// Lets launches of `function` ask for so much dynamic shared memory: more than 48 KiB need it.
    ///
    /// # Errors
    /// It is more than a CTA may have.
    fn allow_shared(&self, function: FunctionId, bytes: u32) -> Result<(), DriverError>;
    /// CTAs of `function` that fit on an SM at once.
    ///
    /// # Errors
    /// The driver fails.
    fn blocks_per_sm(
        &self,
        function: FunctionId,
        threads: u32,
        shared_bytes: u32,
    ) -> Result<u32, DriverError>;
    /// Queues a launch. What the kernel does with its memory is its own affair: it reaches device
    /// memory and pinned memory only, and neither is ever borrowed as Rust memory.
    ///
    /// # Errors
    /// The shape is not possible, or an earlier kernel failed.
    fn launch(
        &self,
        function: FunctionId,
        shape: Launch,
        args: &[Arg],
        stream: StreamId,
    ) -> Result<(), DriverError>;
    /// Keeps what this thread queues in `stream` from now on for a graph, in place of running it: launches,
    /// copies inside device memory and fills, nothing that waits.
    ///
    /// # Errors
    /// The driver fails.
    fn begin_graph(&self, stream: StreamId) -> Result<(), DriverError>;
    /// Ends that, whatever came of it, and makes the graph.
    ///
    /// # Errors
    /// Something that was queued cannot be part of a graph, or the driver fails.
    fn end_graph(&self, stream: StreamId) -> Result<GraphId, DriverError>;
    /// Queues all of a graph.
    ///
    /// # Errors
    /// There is no such graph, or an earlier kernel failed.
    fn launch_graph(&self, graph: GraphId, stream: StreamId) -> Result<(), DriverError>;
    /// Lets go of a graph; what is queued of it still runs.
    ///
    /// # Errors
    /// The driver fails.
    fn drop_graph(&self, graph: GraphId) -> Result<(), DriverError>;
    /// A stream that does not wait for the default one; lower numbers come first.
    ///
    /// # Errors
    /// The driver fails.
    fn new_stream(&self, priority: i32) -> Result<StreamId, DriverError>;
    /// Lets go of a stream; what is queued still runs.
    ///
    /// # Errors
    /// The driver fails.
    fn drop_stream(&self, stream: StreamId) -> Result<(), DriverError>;
    /// Waits until all that is queued is done.
    ///
    /// # Errors
    /// A kernel of it failed.
    fn synchronize(&self, stream: StreamId) -> Result<(), DriverError>;
    /// Whether all that is queued is done.
    ///
    /// # Errors
    /// A kernel of it failed.
    fn is_done(&self, stream: StreamId) -> Result<bool, DriverError>;
    /// Lets what is queued in `stream` from now on wait for `event`.
    ///
    /// # Errors
    /// The driver fails.
    fn wait_event(&self, stream: StreamId, event: EventId) -> Result<(), DriverError>;
    /// An event with a time.
    ///
    /// # Errors
    /// The driver fails.
    fn new_event(&self) -> Result<EventId, DriverError>;
    /// Lets go of an event.
    ///
    /// # Errors
    /// The driver fails.
    fn drop_event(&self, event: EventId) -> Result<(), DriverError>;
    /// Records `event` in `stream`.
    ///
    /// # Errors
    /// The driver fails.
    fn record(&self, event: EventId, stream: StreamId) -> Result<(), DriverError>;
    /// Waits until `event` has happened.
    ///
    /// # Errors
    /// A kernel before it failed.
    fn synchronize_event(&self, event: EventId) -> Result<(), DriverError>;
    /// Milliseconds between two events that have happened.
    ///
    /// # Errors
    /// One of them has not.
    fn elapsed_ms(&self, from: EventId, to: EventId) -> Result<f32, DriverError>;
}
