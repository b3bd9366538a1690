//! Tile programs: a kernel with its schedule, as loops over statements on whole tiles. Made only by
//! [`TileProgram::new`], which verifies; executors, emitters and the cost model read it.
use crate::{AxisTile, Combined, Kernel, KernelError, Mapping, Node, Place, Schedule, lower};
use std::sync::{Arc, Mutex, PoisonError};

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

/// Loops with the statements in them.
type Body = (Vec<AxisTile>, Arc<[Node]>);

/// A kernel that keeps every rule that needs no schedule: programs of many schedules are made of it without looking at
/// it again, nor at what loops do to its statements where another schedule had the same loops.
#[derive(Debug)]
pub struct VerifiedKernel {
    kernel: Arc<Kernel>,
    /// Those of programs so far.
    bodies: Mutex<Vec<Body>>,
}

impl VerifiedKernel {
    /// Verifies `kernel`.
    ///
    /// # Errors
    /// As [`Kernel::verify`].
    pub fn new(kernel: Arc<Kernel>) -> Result<VerifiedKernel, KernelError> {
        kernel.verify()?;
        Ok(VerifiedKernel {
            kernel,
            bodies: Mutex::default(),
        })
    }

    /// The kernel with `schedule`, as [`TileProgram::new`] makes it.
    ///
    /// # Errors
    /// A rule of the schedule that is broken.
    pub fn scheduled(&self, schedule: Arc<Schedule>) -> Result<TileProgram, KernelError> {
        crate::verify::scheduled(&self.kernel, &schedule)?;
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        let known = bodies.iter().find(|b| b.0 == schedule.loops);
        let body = match known {
            Some((_, body)) => body.clone(),
            None => {
                let body = placed(&self.kernel, &schedule.loops)?;
                bodies.push((schedule.loops.clone(), body.clone()));
                body
            }
        };
        Ok(TileProgram {
            kernel: self.kernel.clone(),
            schedule,
            body,
        })
    }
}

/// The statements of `kernel` in `loops`.
fn placed(kernel: &Kernel, loops: &[AxisTile]) -> Result<Arc<[Node]>, KernelError> {
    let body = lower::place(kernel, loops);
    crate::verify::placed(kernel, loops, &body)?;
    Ok(body.into())
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
        kernel.verify()?;
        crate::verify::scheduled(&kernel, &schedule)?;
        let body = placed(&kernel, &schedule.loops)?;
        Ok(TileProgram {
            kernel,
            schedule,
            body,
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

    /// The same with threads that copy what tensor copies bring, each CTA by itself, for steps that are no launch of their own.
    pub fn by_threads(&self) -> TileProgram {
        let places = self.schedule.places.iter();
        let mut schedule = Schedule {
            places: places.map(|p| p.by_threads()).collect(),
            ..Schedule::clone(&self.schedule)
        };
        if let Mapping::Gpu(g) = &mut schedule.mapping {
            g.cluster = 1;
            g.combined = Combined::ByLast;
        }
        TileProgram {
            schedule: schedule.into(),
            ..self.clone()
        }
    }

    /// The same with threads that copy what tensor copies bring, in the same clusters.
    pub fn without_tensors(&self) -> TileProgram {
        let threads = |p: &Place| match p {
            Place::Tensor { .. } => p.by_threads(),
            p => *p,
        };
        let schedule = Schedule {
            places: self.schedule.places.iter().map(threads).collect(),
            ..Schedule::clone(&self.schedule)
        };
        TileProgram {
            schedule: schedule.into(),
            ..self.clone()
        }
    }

    /// The same with parts of sums that go through memory, for a launch of this step alone.
    pub fn alone(&self) -> TileProgram {
        let s = &self.schedule;
        if !s.gives_parts() && !s.adds_parts() {
            return self.clone();
        }
        let mut schedule = Schedule {
            places: s.places.iter().map(|p| p.alone()).collect(),
            ..Schedule::clone(s)
        };
        if let Mapping::Gpu(g) = &mut schedule.mapping {
            g.cluster = 1;
            g.combined = Combined::ByLast;
        }
        TileProgram {
            schedule: schedule.into(),
            ..self.clone()
        }
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
