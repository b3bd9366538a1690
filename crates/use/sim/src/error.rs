//! Errors of scenarios.
/// Why a scenario cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The file cannot be read as a scenario.
    #[error("the scenario cannot be read: {0}")]
    Text(String),
    /// A field makes no sense.
    #[error("scenario '{scenario}', {field}: {why}")]
    Field {
        /// Scenario.
        scenario: String,
        /// Field.
        field: String,
        /// What is wrong and what to do.
        why: String,
    },
    /// A machine.
    #[error(transparent)]
    Machine(#[from] machine::MachineError),
    /// The log of the supervisor.
    #[error(transparent)]
    Log(#[from] supervisor::supervise::LogError),
}
