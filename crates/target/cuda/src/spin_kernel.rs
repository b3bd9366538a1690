//! A kernel that lets a stream's queue fill: what is queued behind it meanwhile runs back to back, so that
//! events between launches tell what kernels take, and not how fast the host calls the driver.
use crate::driver::{Arg, Context, FunctionId, Launch, StreamId};
use crate::{DriverError, Modules};
use device::EmptyShelf;

const TEXT: &str = r".version 7.8
.target sm_75
.address_size 64
.visible .entry hold(.param .u64 ns)
{
    .reg .pred %p;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [ns];
    mov.u64 %d1, %globaltimer;
wait:
    mov.u64 %d2, %globaltimer;
    sub.s64 %d3, %d2, %d1;
    setp.lt.u64 %p, %d3, %d0;
    @%p bra wait;
    ret;
}
";

/// The kernel; its module stays loaded in `modules`.
///
/// # Errors
/// The driver does not compile it.
pub(crate) fn function(modules: &Modules) -> Result<FunctionId, DriverError> {
    modules.load(TEXT, &EmptyShelf)?.function("hold")
}

/// Queues so many nanoseconds of nothing.
///
/// # Errors
/// The driver fails.
pub(crate) fn launch(
    context: &dyn Context,
    function: FunctionId,
    ns: u64,
    stream: StreamId,
) -> Result<(), DriverError> {
    let one = Launch {
        grid: [1; 3],
        block: [32, 1, 1],
        shared_bytes: 0,
        early: false,
    };
    context.launch(function, one, &[Arg::U64(ns)], stream)
}
