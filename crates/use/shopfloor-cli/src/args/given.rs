//! Which options of a call were given.

use crate::output::Failure;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// The model and its options.
pub const OF_MODEL: &[&str] = &[
    "MODEL",
    "--inputs",
    "--dim",
    "--shape",
    "--state",
    "--open-dims",
    "--precision",
    "--kernel",
    "--fuel",
];

/// The options that a call gave, and its positional arguments, by name.
#[derive(Default)]
pub struct Given(Vec<String>);

impl Given {
    /// What `matches` of `command` were given rather than taken by default.
    pub fn of(command: &Command, matches: &ArgMatches) -> Given {
        let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let args = command
            .get_arguments()
            .filter(|a| given(a.get_id().as_str()));
        Given(
            args.map(|a| match a.get_long() {
                Some(long) => format!("--{long}"),
                None => a.get_id().as_str().to_uppercase(),
            })
            .collect(),
        )
    }

    /// Refuses what was given of `useless`, by name, since it does nothing for `what`.
    ///
    /// # Errors
    /// One of them was given.
    pub fn without(&self, useless: &[&str], what: &str) -> Result<(), Failure> {
        match self.0.iter().find(|g| useless.contains(&g.as_str())) {
            None => Ok(()),
            Some(option) => Err(Failure::Usage(format!(
                "{option} does nothing for {what}; leave it out"
            ))),
        }
    }

    /// Refuses what was given beside `known`, by name, since it does nothing for `what`.
    ///
    /// # Errors
    /// Something else was given.
    pub fn only(&self, known: &[&str], what: &str) -> Result<(), Failure> {
        match self.0.iter().find(|g| !known.contains(&g.as_str())) {
            None => Ok(()),
            Some(option) => Err(Failure::Usage(format!(
                "{option} does nothing for {what}; leave it out"
            ))),
        }
    }
}
