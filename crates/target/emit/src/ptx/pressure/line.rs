//! The lines of a text as instructions that define and use registers.

use layout::Few;

/// Registers of an instruction. A kernel has thousands of instructions with few registers each, and many kernels are
/// looked at for one plan: they lie in the line itself.
pub(super) type Registers = Few<u32, 4>;

/// What matters of an instruction beside its registers.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Other,
    /// What others wait for: a load, or a function of the special unit.
    Load,
    /// What comes out of the constant bank into registers.
    Read,
    /// A store: other accesses to memory do not move across it.
    Store,
    /// Nothing moves across it: a barrier, a jump.
    Fence,
    /// A division or root with a subroutine for the odd cases.
    Slow,
}

/// How a value can be had a second time.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Rematerialised {
    #[default]
    No,
    /// It is a special register, which can be read at any time.
    Special,
    /// By one instruction that adds a number, or multiplies by one.
    Number,
}

/// An instruction: registers it defines and uses, whether it defines them wholly.
#[derive(Clone, Default)]
pub(super) struct Line {
    pub(super) defs: Registers,
    pub(super) uses: Registers,
    pub(super) partial: bool,
    /// The number of the label that it jumps to.
    pub(super) jump: Option<u32>,
    /// Nothing runs into the next one.
    pub(super) ends: bool,
    pub(super) kind: Kind,
    pub(super) rematerialised: Rematerialised,
    /// Nothing but another name for what it reads.
    pub(super) copy: bool,
    pub(super) truth: PredicateSource,
}

/// How a truth value comes about.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum PredicateSource {
    #[default]
    Otherwise,
    /// By one comparison.
    Compared,
    /// From two truth values.
    Joined,
}

#[derive(Clone, Default)]
pub(super) struct Parsed {
    pub(super) lines: Vec<Line>,
    /// The line that each label stands before, by the label's number, where it is jumped to.
    pub(super) labels: Vec<Option<usize>>,
    /// 32-bit registers of each name.
    pub(super) width: Vec<u32>,
    /// 1 for the name of a truth value.
    pub(super) truth: Vec<u32>,
}

impl Parsed {
    /// A register of the assembler's own.
    pub(super) fn fresh(&mut self, width: u32) -> u32 {
        self.width.push(width);
        self.truth.push(0);
        self.width.len() as u32 - 1
    }

    /// The line that `l` jumps to.
    pub(super) fn target(&self, l: &Line) -> Option<usize> {
        target(&self.labels, l)
    }
}

/// The line that `l` jumps to, where `labels` are.
pub(super) fn target(labels: &[Option<usize>], l: &Line) -> Option<usize> {
    labels.get(l.jump? as usize).copied().flatten()
}

/// How many lines put something into each name.
pub(super) fn written(p: &Parsed) -> Vec<u32> {
    let mut out = vec![0; p.width.len()];
    for &d in p.lines.iter().flat_map(|l| &l.defs) {
        out[d as usize] += 1;
    }
    out
}

/// First line of every basic block.
pub(super) fn starts(p: &Parsed) -> Vec<usize> {
    let mut starts = vec![0];
    for (i, l) in p.lines.iter().enumerate() {
        if l.jump.is_some() || l.ends {
            starts.push(i + 1);
        }
    }
    starts.extend(p.labels.iter().flatten());
    starts.sort_unstable();
    starts.dedup();
    starts.retain(|&s| s < p.lines.len());
    starts
}
