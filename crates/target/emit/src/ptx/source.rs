//! Where a body finds its parameters and its task: the one difference between a kernel that is
//! launched for a step, the same step in one launch with others, and inside a resident kernel.

/// What names begin with that are of step number `n` of a launch.
pub(crate) fn of_step(n: usize) -> String {
    match n {
        0 => String::new(),
        n => format!("step{n}_"),
    }
}

/// Where a body's parameters and task number come from, and how its threads meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Source {
    /// A kernel's own parameters; the CTA's number is the task.
    #[default]
    Entry,
    /// A record in device memory at `%record`, 8 bytes per parameter, and `%task`.
    Record {
        /// Threads that meet, where the CTA has more.
        some: Option<u32>,
    },
    /// Parameters of a kernel that is several steps. The first one's task is the CTA's number, the others' `%task`.
    Joined {
        /// The step's number in the launch.
        n: usize,
        /// Whether it is the last one.
        last: bool,
        /// Threads that meet, where the CTA has more.
        some: Option<u32>,
    },
}

impl Source {
    /// The instruction that reads parameter `name`, number `index`, into `to`.
    pub fn param(self, ty: &str, to: &str, name: &str, index: usize) -> String {
        match self {
            Source::Record { .. } => format!("ld.global.{ty} {to}, [%record+{}]", 8 * index),
            Source::Joined { n, .. } => format!("ld.param.{ty} {to}, [{}{name}]", of_step(n)),
            Source::Entry => format!("ld.param.{ty} {to}, [{name}]"),
        }
    }

    /// Whether a launch begins with the step.
    pub fn begins(self) -> bool {
        matches!(self, Source::Entry | Source::Joined { n: 0, .. })
    }

    /// Whether a launch ends with the step.
    pub fn ends(self) -> bool {
        matches!(self, Source::Entry | Source::Joined { last: true, .. })
    }

    /// Where the task's number stands.
    pub fn task(self) -> &'static str {
        match self {
            Source::Entry | Source::Joined { n: 0, .. } => "%ctaid.x",
            Source::Record { .. } | Source::Joined { .. } => "%task",
        }
    }

    /// All threads of the task meet. Barrier 0 is the whole CTA's.
    pub fn barrier(self) -> String {
        match self {
            Source::Record { some: Some(n) } | Source::Joined { some: Some(n), .. } => {
                format!("bar.sync 1, {n}")
            }
            _ => "bar.sync 0".into(),
        }
    }
}
