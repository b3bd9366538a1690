//! How the steps of a plan reach a GPU.
use std::fmt;
use std::str::FromStr;

/// How the steps of a plan reach a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Launch {
    /// The host launches every step.
    #[default]
    Steps,
    /// One kernel stays on an NVIDIA GPU and takes requests from a ring in memory that host and GPU share.
    Resident,
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launch::Steps => "steps",
            Launch::Resident => "resident",
        })
    }
}

impl FromStr for Launch {
    type Err = String;

    fn from_str(text: &str) -> Result<Launch, String> {
        match text {
            "steps" => Ok(Launch::Steps),
            "resident" => Ok(Launch::Resident),
            _ => Err(format!(
                "'{text}' is no way to launch steps; there are steps and resident"
            )),
        }
    }
}
