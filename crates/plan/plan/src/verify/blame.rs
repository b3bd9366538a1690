//! Errors about one subject of a plan.

use crate::{Maker, PlanError};

/// Makes errors about one subject of a plan.
pub(crate) struct Blame<'a> {
    pub model: &'a str,
    pub subject: String,
}

impl Blame<'_> {
    pub fn error(&self, rule: &'static str, why: impl Into<String>) -> PlanError {
        PlanError::Rule {
            model: self.model.into(),
            subject: self.subject.clone(),
            rule,
            why: why.into(),
            maker: Maker::default(),
        }
    }

    pub fn need(
        &self,
        ok: bool,
        rule: &'static str,
        why: impl FnOnce() -> String,
    ) -> Result<(), PlanError> {
        if ok {
            Ok(())
        } else {
            Err(self.error(rule, why()))
        }
    }

    pub fn of(&self, subject: impl Into<String>) -> Blame<'_> {
        Blame {
            model: self.model,
            subject: subject.into(),
        }
    }
}
