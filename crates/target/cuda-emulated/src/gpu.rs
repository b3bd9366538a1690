//! A GPU to emulate: its figures and the checks made on it.

use crate::{Checks, Link, catalog};
use cuda::{DeviceInfo, DriverError};
use std::time::Duration;

/// A GPU to emulate.
#[derive(Clone, Debug)]
pub struct EmulatedGpu {
    /// What the driver says of it. Fewer SMs run fewer CTAs at once; less memory holds less.
    pub info: DeviceInfo,
    /// What copies between host and device take.
    pub link: Link,
    /// Checks made while kernels run.
    pub checks: Checks,
    /// Decides how CTAs and warps are interleaved.
    pub seed: u64,
    /// How long nothing may move, by the host's clock, before a wait is given up as a deadlock.
    pub patience: Duration,
    /// Instructions of warps after which a launch is given up.
    pub step_limit: u64,
}

impl EmulatedGpu {
    /// A GPU by its name, one of [`crate::NAMES`], with every check.
    ///
    /// # Errors
    /// There is no such name.
    pub fn named(name: &str) -> Result<EmulatedGpu, DriverError> {
        let (info, link) = catalog::find(name)?;
        Ok(EmulatedGpu {
            info,
            link,
            checks: Checks::default(),
            seed: 0,
            patience: Duration::from_secs(2),
            step_limit: 1 << 40,
        })
    }

    /// The same with so many SMs.
    #[must_use]
    pub fn with_sms(mut self, sms: u32) -> EmulatedGpu {
        self.info.sms = sms.max(1);
        self
    }

    /// The same with so much memory.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> EmulatedGpu {
        self.info.memory_bytes = bytes;
        self
    }

    /// The same with these checks.
    #[must_use]
    pub fn with_checks(mut self, checks: Checks) -> EmulatedGpu {
        self.checks = checks;
        self
    }
}
