//! Where a body finds its parameters and its task: the one difference between a kernel that is
//! launched for a step and the same step inside a resident kernel.
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
}

impl Source {
    /// The instruction that reads parameter `name`, number `index`, into `to`.
    pub fn param(self, ty: &str, to: &str, name: &str, index: usize) -> String {
        match self {
            Source::Entry => format!("ld.param.{ty} {to}, [{name}]"),
            Source::Record { .. } => format!("ld.global.{ty} {to}, [%record+{}]", 8 * index),
        }
    }

    /// Where the task's number stands.
    pub fn task(self) -> &'static str {
        match self {
            Source::Entry => "%ctaid.x",
            Source::Record { .. } => "%task",
        }
    }

    /// All threads of the task meet. Barrier 0 is the whole CTA's.
    pub fn barrier(self) -> String {
        match self {
            Source::Record { some: Some(n) } => format!("bar.sync 1, {n}"),
            _ => "bar.sync 0".into(),
        }
    }
}
