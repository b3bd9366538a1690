//! Errors about a kernel, and what lists are asked.

use crate::{Kernel, KernelError};
use layout::Arrange;

/// Kernel's name and a rule, to make errors of.
pub(crate) struct Blame<'a>(&'a Kernel);

impl<'a> Blame<'a> {
    pub(crate) fn of(kernel: &'a Kernel) -> Blame<'a> {
        Blame(kernel)
    }

    pub(crate) fn error(&self, rule: &'static str, why: impl Into<String>) -> KernelError {
        KernelError::Rule {
            kernel: self.0.name.clone(),
            rule,
            why: why.into(),
        }
    }

    pub(crate) fn need(
        &self,
        ok: bool,
        rule: &'static str,
        why: impl FnOnce() -> String,
    ) -> Result<(), KernelError> {
        if ok {
            Ok(())
        } else {
            Err(self.error(rule, why()))
        }
    }
}

/// Whether every element of a sorted list is above the one before.
pub(crate) fn strictly_rising<T: PartialOrd>(list: &[T]) -> bool {
    list.windows(2).all(|w| w[0] < w[1])
}

/// Whether nothing is listed twice.
pub(crate) fn unique<T: Ord + Clone>(list: &[T]) -> bool {
    let mut sorted = list.to_vec();
    sorted.arrange();
    strictly_rising(&sorted)
}
