//! Reasons of decisions, and errors.

use plan::{PlanError, Program, Why};

pub(crate) fn bind_error(program: &Program, subject: &str, why: impl Into<String>) -> PlanError {
    PlanError::Bind {
        model: program.name.clone(),
        subject: subject.into(),
        why: why.into(),
    }
}

/// A why of this pass.
pub(crate) fn why(pass: &str, subject: &str, choice: &str, reason: impl Into<String>) -> Why {
    Why {
        pass: pass.into(),
        subject: subject.into(),
        choice: choice.into(),
        alternatives: vec![],
        reason: reason.into(),
    }
}
