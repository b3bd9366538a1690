//! Where a body finds its parameters and its task: the one difference between a kernel that is
//! launched for a step and the same step inside a resident kernel.
use super::{ParamSpec, ParamValue, Ptx};

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

/// A body without what stands around it.
pub(crate) struct Printed {
    /// For people.
    pub name: String,
    /// Declarations and instructions.
    pub code: String,
    pub params: Vec<ParamSpec>,
    pub threads: u32,
    /// Registers per thread that a kernel of its own is given.
    pub registers: u32,
    pub shared_bytes: u32,
    /// Registers per thread, roughly.
    pub held: u32,
    /// Reasons of faults.
    pub faults: Vec<String>,
}

/// Text without what a comment cannot hold.
pub(crate) fn plain(name: &str) -> String {
    let keep = |c: char| c.is_ascii_graphic() || c == ' ';
    name.chars()
        .map(|c| if keep(c) { c } else { '?' })
        .collect()
}

/// What stands above everything in a module; version 7.8 knows `sm_90`.
pub(crate) fn module(name: &str, arch: &str) -> String {
    format!(
        "// {}\n.version 7.8\n.target {arch}\n.address_size 64\n\n.extern .shared .align 128 .b8 shared_bytes[];\n\n",
        plain(name)
    )
}

impl Printed {
    /// The body as a module with one kernel.
    pub fn entry(self, arch: &str) -> Ptx {
        let entry = "tile_program".to_string();
        let list: Vec<String> = self
            .params
            .iter()
            .map(|p| match p.value {
                ParamValue::Dim(_) => format!("\t.param .s64 {}", p.name),
                _ => format!("\t.param .u64 {}", p.name),
            })
            .collect();
        let text = format!(
            "{}.visible .entry {entry}(\n{}\n)\n.reqntid {}, 1, 1\n.maxnreg {}\n{{\n{}\tret;\n}}\n",
            module(&self.name, arch),
            list.join(",\n"),
            self.threads,
            self.registers,
            self.code,
        );
        Ptx {
            text,
            entry,
            params: self.params,
            threads: self.threads,
            shared_bytes: self.shared_bytes,
            registers_estimate: self.held,
            faults: self.faults,
            own: None,
        }
    }
}
