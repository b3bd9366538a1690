/// Why a program could not be bound, or a plan is not valid or cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A rule of the verifier is broken.
    #[error(
        "plan '{model}', {subject}: breaks rule {rule}: {why}; make the plan anew with `shopfloor plan`"
    )]
    Rule {
        /// Model.
        model: String,
        /// Step, buffer or field.
        subject: String,
        /// Short name of the rule, as listed in the verifier's header.
        rule: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A plan file that cannot be read.
    #[error("plan file cannot be read: {0}; make the plan anew with `shopfloor plan`")]
    File(String),
    /// The program cannot be bound.
    #[error("model '{model}' cannot be planned: {subject}: {why}")]
    Bind {
        /// Model.
        model: String,
        /// Node, value or dimension.
        subject: String,
        /// What is wrong and what to do.
        why: String,
    },
    /// A dimension has no value, or one outside the plan's box.
    #[error(
        "dimension '{name}' is {value}, outside the plan's {range}; plan again with --dim {name}=..."
    )]
    Dim {
        /// Symbol.
        name: String,
        /// Value given (or `missing`).
        value: String,
        /// Range of the box.
        range: String,
    },
    /// Arithmetic on dims failed.
    #[error(transparent)]
    Eval(#[from] layout::EvalError),
    /// A kernel is not valid.
    #[error(transparent)]
    Kernel(#[from] kernel::KernelError),
}
