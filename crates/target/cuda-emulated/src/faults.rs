//! Calls that fail because a test wants them to.
use cuda::DriverError;

/// What is to go wrong. Calls are counted from when it was injected, the next one being 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The allocation of this number finds no memory.
    OutOfMemory {
        /// Which.
        at: u64,
    },
    /// No allocation finds more than so many bytes at once.
    Largest {
        /// Bytes.
        bytes: u64,
    },
    /// The launch of this number fails.
    Launch {
        /// Which.
        at: u64,
    },
    /// Modules loaded from now on have `from` replaced by `to` in their text, as if a compiler had got it
    /// wrong.
    Compiled {
        /// What is there.
        from: &'static str,
        /// What is there instead.
        to: &'static str,
    },
    /// With the call of this number, of whatever kind, the GPU is lost for good.
    Lost {
        /// Which.
        at: u64,
    },
}

/// Faults injected so far.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    allocations: Vec<u64>,
    largest: Option<u64>,
    launches: Vec<u64>,
    edits: Vec<(&'static str, &'static str)>,
    lost: Option<u64>,
}

/// Counts a call in `list` and says whether it is to fail.
fn due(list: &mut Vec<u64>) -> bool {
    list.iter_mut().for_each(|n| *n -= 1);
    let before = list.len();
    list.retain(|n| *n > 0);
    list.len() < before
}

impl Faults {
    pub fn add(&mut self, f: Fault) {
        match f {
            Fault::OutOfMemory { at } => self.allocations.push(at.max(1)),
            Fault::Largest { bytes } => self.largest = Some(bytes),
            Fault::Launch { at } => self.launches.push(at.max(1)),
            Fault::Compiled { from, to } => self.edits.push((from, to)),
            Fault::Lost { at } => self.lost = Some(at.max(1)),
        }
    }

    /// Whether an allocation of `bytes` is to fail.
    pub fn allocation(&mut self, bytes: u64) -> bool {
        due(&mut self.allocations) || self.largest.is_some_and(|l| bytes > l)
    }

    /// What becomes of a module's text.
    pub fn compiled(&self, ptx: &str) -> String {
        let edits = self.edits.iter();
        edits.fold(ptx.into(), |p: String, (from, to)| p.replace(from, to))
    }

    /// Whether a launch is to fail.
    pub fn launch(&mut self) -> bool {
        due(&mut self.launches)
    }

    /// Counts a call; the error with which the GPU is lost, if it is now.
    pub fn call(&mut self) -> Option<DriverError> {
        let n = self.lost.as_mut()?;
        *n -= 1;
        if *n > 0 {
            return None;
        }
        self.lost = None;
        Some(DriverError::Lost {
            code: "CUDA_ERROR_DEVICE_UNAVAILABLE".into(),
            why: "the emulated GPU was made to fall off its bus".into(),
        })
    }
}
