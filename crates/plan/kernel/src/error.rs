//! The error of invalid kernels, schedules and tile programs.
/// Why a kernel, schedule or tile program is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// A rule of the verifier is broken.
    #[error("kernel '{kernel}' breaks rule {rule}: {why}")]
    Rule {
        /// Kernel's name.
        kernel: String,
        /// Short name of the rule, as listed in the verifier's header.
        rule: &'static str,
        /// What is wrong and what would be right.
        why: String,
    },
    /// A text form that cannot be read.
    #[error("line {line}, column {column} of the kernel cannot be read: {why}")]
    Text {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// Reason.
        why: String,
    },
    /// What a text is called with does not fit it.
    #[error("{0}")]
    Call(String),
}
