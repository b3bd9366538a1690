//! The work a kernel asks of a machine.

use crate::{NumType, UnitClass, Warps};
use serde::{Deserialize, Serialize};

/// Bytes that cross the near side of one memory level: what the level above it was given and gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes loaded from the level, of all workers together.
    pub loaded: f64,
    /// Bytes stored to the level, of all workers together.
    pub stored: f64,
}

/// What one step (or many: the type is additive) asks of a machine. Read off a tile program for a
/// machine by the kernel crate's walker; no formula beside the program repeats it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Traffic of each level, indexed as `Machine::levels`; levels beyond the end have none.
    pub traffic: Vec<Traffic>,
    /// Distinct bytes read: what would cross every level if each operand were loaded once.
    pub unique_read: f64,
    /// Distinct bytes written.
    pub unique_written: f64,
    /// Operations by class and input format, sorted by that key; see [`Work::add_ops`].
    pub ops: Vec<(UnitClass, NumType, f64)>,
    /// Tasks (grid points).
    pub tasks: u64,
    /// Rounds of tasks when every worker takes one share per round; 0 lets the prediction divide
    /// tasks by workers.
    pub waves: u64,
    /// CTAs resident on one worker; 0 and 1 mean one (always so on a CPU).
    pub ctas_per_worker: u64,
    /// Messages between workers on the critical path.
    pub handoffs: u64,
    /// Barriers among all workers.
    pub barriers: u64,
    /// Steps within a running plan.
    pub steps: u64,
    /// Launches from the host.
    pub launches: u64,
    /// Share of the whole that the largest task is; 0 when tasks are alike.
    #[serde(default)]
    pub largest: f64,
    /// How much longer the task with the most pieces in its loops takes than the mean one, as a share of that; 0 where
    /// all have as many.
    #[serde(default)]
    pub uneven: f64,
    /// Statements on tiles that all tasks together execute, one for every pass of their loops, and copies of rows that they make
    /// first.
    #[serde(default)]
    pub statements: u64,
    /// Operations among those of contractions that the model has not: a product of f32 in parts takes three for one,
    /// and tiles of a GPU reach beyond the extents.
    #[serde(default)]
    pub repeated: f64,
    /// Rows that statements go through on a CPU: neighbours in memory that one inner loop takes.
    #[serde(default)]
    pub rows: f64,
    /// Calls of a CPU's micro-kernel.
    #[serde(default)]
    pub calls: f64,
    /// What the warps of a GPU kernel of ours do, read off its instructions; none for a kernel whose
    /// instructions are not known: nothing but its arithmetic and its bytes is then taken to cost.
    #[serde(default)]
    pub warps: Option<Box<Warps>>,
}

impl Work {
    /// Adds operations of a class in an input format.
    pub fn add_ops(&mut self, class: UnitClass, dtype: NumType, n: f64) {
        match self
            .ops
            .binary_search_by_key(&(class, dtype), |o| (o.0, o.1))
        {
            Ok(i) => self.ops[i].2 += n,
            Err(i) => self.ops.insert(i, (class, dtype, n)),
        }
    }

    /// Adds traffic at a level, by index into `Machine::levels`.
    pub fn add_traffic(&mut self, level: usize, loaded: f64, stored: f64) {
        if self.traffic.len() <= level {
            self.traffic.resize(level + 1, Traffic::default());
        }
        self.traffic[level].loaded += loaded;
        self.traffic[level].stored += stored;
    }

    /// Traffic at a level, by index into `Machine::levels`.
    pub fn traffic_at(&self, level: usize) -> Traffic {
        self.traffic.get(level).copied().unwrap_or_default()
    }

    /// Operations of one class over all formats.
    pub fn ops_of(&self, class: UnitClass) -> f64 {
        self.ops.iter().filter(|o| o.0 == class).map(|o| o.2).sum()
    }

    /// Contraction FLOP of the model (multiply-adds counted twice), on vector and matrix units together.
    pub fn flop(&self) -> f64 {
        self.ops_of(UnitClass::Fma) + self.ops_of(UnitClass::Tensor) - self.repeated
    }

    /// Arithmetic operations of all classes: what the model computes. Elements that are moved one by one
    /// are no operations of it, and how many there are is a schedule's affair.
    pub fn ops_total(&self) -> f64 {
        let arithmetic = self.ops.iter().filter(|o| o.0 != UnitClass::Element);
        arithmetic.map(|o| o.2).sum::<f64>() - self.repeated
    }

    /// Distinct bytes read and written.
    pub fn unique_bytes(&self) -> f64 {
        self.unique_read + self.unique_written
    }

    /// Arithmetic intensity: operations per distinct byte; 0 when no byte is touched.
    pub fn intensity(&self) -> f64 {
        let b = self.unique_bytes();
        if b > 0.0 { self.ops_total() / b } else { 0.0 }
    }
}

impl std::ops::AddAssign<&Work> for Work {
    fn add_assign(&mut self, o: &Work) {
        for (i, t) in o.traffic.iter().enumerate() {
            self.add_traffic(i, t.loaded, t.stored);
        }
        for &(c, d, n) in &o.ops {
            self.add_ops(c, d, n);
        }
        self.unique_read += o.unique_read;
        self.unique_written += o.unique_written;
        self.tasks = self.tasks.saturating_add(o.tasks);
        self.waves = self.waves.saturating_add(o.waves);
        self.ctas_per_worker = self.ctas_per_worker.max(o.ctas_per_worker);
        self.handoffs = self.handoffs.saturating_add(o.handoffs);
        self.barriers = self.barriers.saturating_add(o.barriers);
        self.steps = self.steps.saturating_add(o.steps);
        self.launches = self.launches.saturating_add(o.launches);
        self.largest = self.largest.max(o.largest);
        self.uneven = self.uneven.max(o.uneven);
        self.statements = self.statements.saturating_add(o.statements);
        self.repeated += o.repeated;
        self.rows += o.rows;
        self.calls += o.calls;
        if let Some(w) = &o.warps {
            match &mut self.warps {
                Some(own) => **own += w,
                none => *none = Some(w.clone()),
            }
        }
    }
}

impl std::ops::Add for Work {
    type Output = Work;
    fn add(mut self, o: Work) -> Work {
        self += &o;
        self
    }
}
