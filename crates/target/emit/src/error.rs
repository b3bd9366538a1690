//! Why a tile program cannot be printed for a target.
/// Why a tile program cannot be printed for a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// A statement or schedule that the target has no form for.
    #[error("kernel '{kernel}', {statement}: rule '{rule}' is broken: {why}")]
    Rule {
        /// Kernel's name.
        kernel: String,
        /// Statement or field of the schedule.
        statement: String,
        /// Short name of the rule.
        rule: &'static str,
        /// What is wrong and what would be right.
        why: String,
    },
    /// The target has no room for it.
    #[error(transparent)]
    Kernel(#[from] kernel::KernelError),
    /// An architecture that nothing is printed for.
    #[error(
        "architecture '{0}' is not known to the PTX emitter; use sm_75, sm_80, sm_90 or sm_90a"
    )]
    Arch(String),
}
