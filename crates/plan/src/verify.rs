//! The verifier of plans.
use crate::{Plan, PlanError, StepWork, VerifiedPlan};
use kernel::TileProgram;

pub(crate) fn plan(plan: Plan) -> Result<VerifiedPlan, PlanError> {
    let mut programs = Vec::new();
    for b in plan.blocks() {
        let make = |steps: &[crate::Step]| {
            steps
                .iter()
                .map(|s| match &s.work {
                    StepWork::Kernel { kernel, schedule, .. } => {
                        TileProgram::new((**kernel).clone(), (**schedule).clone()).map(Some)
                    }
                    StepWork::Host { .. } => Ok(None),
                })
                .collect::<Result<Vec<_>, _>>()
        };
        programs.push((make(&b.init)?, make(&b.steps)?));
    }
    Ok(VerifiedPlan { plan, programs })
}
