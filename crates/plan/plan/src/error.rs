//! Errors of plans, with who made the plan at fault: the planner, a file or the caller.
/// Who made a plan that breaks a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maker {
    /// The planner: no caller can help it.
    #[default]
    Planner,
    /// The caller, who gave the plan.
    Caller,
}

impl Maker {
    fn remedy(self) -> &'static str {
        match self {
            Maker::Planner => "this is a fault of shopfloor, please report it with the model",
            Maker::Caller => "make the plan anew with `shopfloor plan`",
        }
    }
}

/// Why a program could not be bound, or a plan is not valid or cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A rule of the verifier is broken.
    #[error("plan '{model}', {subject}: breaks rule {rule}: {why}; {}", maker.remedy())]
    Rule {
        /// Model.
        model: String,
        /// Step, buffer or field.
        subject: String,
        /// Short name of the rule, as listed in the verifier's header.
        rule: &'static str,
        /// What is wrong.
        why: String,
        /// Who made the plan.
        maker: Maker,
    },
    /// A plan file that cannot be read.
    #[error("plan file cannot be read: {0}; make the plan anew with `shopfloor plan`")]
    File(String),
    /// A plan file whose contents do not have its checksum.
    #[error(
        "the plan was changed after it was saved: its contents do not have its checksum; make the plan anew with `shopfloor plan`, or give --plan-unchecked if the change is meant"
    )]
    Changed,
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
    /// Dimensions differ that the model needs to be equal.
    #[error(
        "node '{node}' needs {left} and {right} to be equal, but for these inputs they are {} and {}; change the inputs' sizes",
        values.0, values.1
    )]
    Constraint {
        /// Model node.
        node: String,
        /// One extent.
        left: String,
        /// The other.
        right: String,
        /// Their values.
        values: (i64, i64),
    },
    /// Arithmetic on dims failed.
    #[error(transparent)]
    Eval(#[from] layout::EvalError),
    /// A kernel is not valid.
    #[error(transparent)]
    Kernel(#[from] kernel::KernelError),
}

impl PlanError {
    /// The error about a plan that the caller gave.
    #[must_use]
    pub fn of_caller(mut self) -> PlanError {
        if let PlanError::Rule { maker, .. } = &mut self {
            *maker = Maker::Caller;
        }
        self
    }
}
