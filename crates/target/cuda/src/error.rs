//! Errors of the driver, with the call that failed.
/// Why the driver did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// No driver library.
    #[error(
        "no NVIDIA driver: none of {tried} could be opened ({why}); install the GPU's driver, or use \
         another device"
    )]
    NoLibrary {
        /// Names tried, in order.
        tried: String,
        /// What the loader said last.
        why: String,
    },
    /// A library without a function that is needed.
    #[error(
        "the NVIDIA driver library has no '{symbol}': the driver is too old; 525 and later have it"
    )]
    NoSymbol {
        /// The function.
        symbol: &'static str,
    },
    /// The driver is there and no GPU is.
    #[error("there is no GPU {ordinal}: the driver knows {count}")]
    NoDevice {
        /// Number asked for, from 0.
        ordinal: u32,
        /// GPUs there are.
        count: u32,
    },
    /// Not enough device memory.
    #[error(
        "out of device memory: {asked} bytes asked for, {free} of {total} free; plan with a smaller \
         --memory, or close what else uses the GPU"
    )]
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
        /// Bytes free, as the driver says.
        free: u64,
        /// Bytes in all.
        total: u64,
    },
    /// PTX that the driver does not compile.
    #[error("the driver does not take the module ({code}): {log}")]
    Module {
        /// The driver's name for the error.
        code: String,
        /// What its compiler printed.
        log: String,
    },
    /// A kernel, or a launch of one, failed.
    #[error("kernel '{kernel}' failed at its launch ({code}): {why}")]
    Launch {
        /// Entry.
        kernel: String,
        /// The driver's name for the error.
        code: String,
        /// What it means.
        why: String,
    },
    /// After this the context is of no use any more: a kernel read or wrote where nothing is, or the
    /// GPU fell off its bus.
    #[error("the GPU is lost ({code}): {why}; open it again")]
    Lost {
        /// The driver's name for the error.
        code: String,
        /// What it means.
        why: String,
    },
    /// A handle, a range or a size that the caller may not use.
    #[error("{call}: {why}")]
    Argument {
        /// What was called.
        call: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Any other failure.
    #[error("{call} failed ({code}): {why}")]
    Call {
        /// The driver's function.
        call: &'static str,
        /// The driver's name for the error.
        code: String,
        /// What it means.
        why: String,
    },
}
