//! Buffers that a caller gives.
use crate::DeviceError;
use plan::Size;

/// Whether a caller's buffer of `got` bytes is of the size of port `name` under the parameters `p`.
///
/// # Errors
/// It is larger or smaller.
pub fn check_port(name: &str, size: &Size, p: &[i64], got: usize) -> Result<(), DeviceError> {
    match size.bytes(p) {
        Some(want) if want == got => Ok(()),
        want => Err(DeviceError::Port {
            port: name.to_string(),
            want: want.unwrap_or(usize::MAX) as u64,
            got: got as u64,
        }),
    }
}
