//! Tile programs: a kernel with its schedule, as loops over statements on whole tiles. Made only by
//! [`TileProgram::new`], which verifies; executors, emitters and the cost model read it.
use crate::{Kernel, KernelError, Node, Schedule, lower};
use std::sync::Arc;

/// A kernel with its schedule as a program over tiles: the one description that every reader uses.
///
/// Made only by [`TileProgram::new`], so its statements are the kernel's, in order, with loops
/// around those that depend on a looped axis. It is not stored in plans: kernel and schedule are.
#[derive(Clone, Debug, PartialEq)]
pub struct TileProgram {
    kernel: Arc<Kernel>,
    schedule: Arc<Schedule>,
    body: Arc<[Node]>,
}

impl TileProgram {
    /// Places `kernel`'s statements into loops as `schedule` says and verifies the result: when
    /// this is Ok, the program can be executed, emitted and costed without failing.
    ///
    /// Kernel and schedule are shared with whoever holds them too: plans hold thousands.
    ///
    /// # Errors
    /// A rule of the two that is broken.
    pub fn new(
        kernel: impl Into<Arc<Kernel>>,
        schedule: impl Into<Arc<Schedule>>,
    ) -> Result<TileProgram, KernelError> {
        let (kernel, schedule) = (kernel.into(), schedule.into());
        crate::verify::parts(&kernel, &schedule)?;
        let body = lower::place(&kernel, &schedule.loops);
        crate::verify::placed(&kernel, &schedule.loops, &body)?;
        Ok(TileProgram {
            kernel,
            schedule,
            body: body.into(),
        })
    }

    /// As [`TileProgram::new`] of the very kernel of this program, for less where the schedule is
    /// this one's, but for how many tasks are handed out at a time: what was verified of the two is
    /// not verified again. `None` for another kernel or schedule.
    pub fn with_equal_schedule(
        &self,
        kernel: &Arc<Kernel>,
        schedule: &Arc<Schedule>,
    ) -> Option<TileProgram> {
        if !Arc::ptr_eq(kernel, &self.kernel) {
            return None;
        }
        if Arc::ptr_eq(schedule, &self.schedule) {
            return Some(self.clone());
        }
        let chunk = self.schedule.chunk;
        let same = Schedule {
            chunk,
            ..Schedule::clone(schedule)
        };
        (same == *self.schedule && schedule.chunk >= 1).then(|| TileProgram {
            schedule: schedule.clone(),
            ..self.clone()
        })
    }

    /// What is computed.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// How.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Statements and loops of one task.
    pub fn body(&self) -> &[Node] {
        &self.body
    }
}
