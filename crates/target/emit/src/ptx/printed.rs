//! A body without what stands around it, and the module around it.

use super::arch::{knows_dependents, warpgroups};
use super::params::MAP_BYTES;
use super::{ParamSpec, ParamValue};
use kernel::Code;
use std::sync::Arc;

/// A body without what stands around it.
#[derive(Default)]
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
    /// See [`Ptx::walkers`].
    pub walkers: u32,
    /// See [`Ptx::cluster`]; 0 or 1: none.
    pub cluster: u32,
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

/// What stands above everything in a module; version 7.8 knows `sm_90`, 8.4 `sm_90a` with products of signs with none.
pub(crate) fn module(name: &str, arch: &str) -> String {
    let (version, align) = match warpgroups(arch) {
        true => ("8.4", 1024),
        false => ("7.8", 128),
    };
    format!(
        "// {}\n.version {version}\n.target {arch}\n.address_size 64\n\n.extern .shared .align {align} .b8 shared_bytes[];\n\n",
        plain(name)
    )
}

/// Name of the kernel of a step.
pub(crate) const ENTRY: &str = "tile_program";

/// A parameter as a kernel declares it.
pub(crate) fn declared(p: &ParamSpec) -> String {
    match p.value {
        ParamValue::Dim(_) | ParamValue::Tasks(_) => format!("\t.param .s64 {}", p.name),
        ParamValue::Tensor(_) => format!("\t.param .align 64 .b8 {}[{MAP_BYTES}]", p.name),
        _ => format!("\t.param .u64 {}", p.name),
    }
}

impl Ptx {
    /// CTAs of a launch for so many tasks.
    pub fn ctas(&self, tasks: u64) -> u64 {
        kernel::ctas(self.walkers, tasks)
    }
}

impl Printed {
    /// The body as a module with one kernel.
    pub fn entry(self, arch: &str) -> Ptx {
        Ptx {
            text: self.module(arch, self.params.iter().map(declared)),
            entry: ENTRY.into(),
            params: self.params,
            threads: self.threads,
            shared_bytes: self.shared_bytes,
            walkers: self.walkers,
            cluster: self.cluster.max(1),
            registers_estimate: self.held,
            faults: self.faults,
            early: knows_dependents(arch),
            own: None,
        }
    }

    /// The text of a module with one kernel, whose parameters are `declared`.
    pub fn module(&self, arch: &str, declared: impl Iterator<Item = String>) -> String {
        let list: Vec<String> = declared.collect();
        let cluster = match self.cluster {
            0 | 1 => String::new(),
            n => format!(".reqnctapercluster {n}, 1, 1\n"),
        };
        format!(
            "{}.visible .entry {ENTRY}(\n{}\n)\n.reqntid {}, 1, 1\n{cluster}.maxnreg {}\n{{\n{}\tret;\n}}\n",
            module(&self.name, arch),
            list.join(",\n"),
            self.threads,
            self.registers,
            self.code,
        )
    }
}

/// A module with one entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Ptx {
    /// The module.
    pub text: String,
    /// Name of the entry.
    pub entry: String,
    /// Parameters in order, 8 bytes each, those of tensors 128.
    pub params: Vec<ParamSpec>,
    /// Threads per CTA; CTAs are one per task, or those of `walkers`.
    pub threads: u32,
    /// Dynamic shared memory per CTA, in bytes.
    pub shared_bytes: u32,
    /// CTAs of a launch at most, where each walks tasks so many apart; 0: one per task.
    pub walkers: u32,
    /// CTAs of a cluster, which a launch has whole numbers of: the text says so, and its tasks and `walkers` are such numbers.
    pub cluster: u32,
    /// Registers per thread that an assembler is expected to take, read off the text.
    pub registers_estimate: u32,
    /// Reasons of faults, whose numbers go to [`ParamValue::Fault`].
    pub faults: Vec<String>,
    /// Whether it may be launched while the kernel before it runs: it waits for its end by itself.
    pub early: bool,
    /// The user's code that this is, which says how it is launched in place of tasks, `threads` and
    /// `shared_bytes`.
    pub own: Option<Arc<Code>>,
}
