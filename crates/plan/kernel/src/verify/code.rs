//! How code of the user's is launched.

use super::Blame;
use crate::{Code, Kernel, KernelError};

/// Checks how a user's code is launched.
pub(crate) fn code(kernel: &Kernel, code: &Code) -> Result<(), KernelError> {
    Blame::of(kernel).need(code.strange(kernel).is_none(), "code", || {
        let name = code.strange(kernel).unwrap_or_else(|| "?".into());
        format!("'{name}' is none of its dimensions; launch PTX '{}' with sizes that the operands or axes have", code.entry)
    })
}
