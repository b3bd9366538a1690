//! Where each value of a program is made, taken in and used, over all its segments. Computed once per bind;
//! blocks ask it.
use foldhash::{HashMap, HashSet};
use layout::DimBox;
use plan::{Program, Segment, ValueIx};

/// Where a program's values are made, given and taken.
#[derive(Debug, Default)]
pub(crate) struct ValueUses {
    /// Init items that make a value.
    pub makers: HashMap<ValueIx, Vec<usize>>,
    /// First place among the inputs and the outputs.
    pub inputs: HashMap<ValueIx, usize>,
    pub outputs: HashMap<ValueIx, usize>,
    /// What control flow reads.
    pub controls: HashSet<ValueIx>,
    /// What goes on as it lies, though it is an output.
    pub passed: HashSet<ValueIx>,
    /// Whether the box lacks symbols.
    pub open: bool,
}

impl ValueUses {
    pub fn new(program: &Program, dims: &DimBox) -> ValueUses {
        let mut out = ValueUses {
            controls: program.segments.iter().flat_map(control_reads).collect(),
            passed: program.passed.iter().copied().collect(),
            open: program.symbols.iter().any(|s| dims.get(&s.name).is_none()),
            ..ValueUses::default()
        };
        for (i, item) in program.init.iter().enumerate() {
            for v in item.writes() {
                out.makers.entry(v).or_default().push(i);
            }
        }
        for (i, &v) in program.inputs.iter().enumerate() {
            out.inputs.entry(v).or_insert(i);
        }
        for (i, o) in program.outputs.iter().enumerate() {
            out.outputs.entry(o.1).or_insert(i);
        }
        out
    }
}

/// Values that a control segment reads.
pub(super) fn control_reads(s: &Segment) -> Vec<ValueIx> {
    match s {
        Segment::Straight(_) => vec![],
        Segment::If { cond, captures, .. } => std::iter::once(*cond)
            .chain(captures.iter().copied())
            .collect(),
        Segment::Loop {
            trip,
            cond,
            carried,
            captures,
            ..
        } => trip
            .iter()
            .chain(cond)
            .chain(carried)
            .chain(captures)
            .copied()
            .collect(),
        Segment::Late(item) => item.reads(),
    }
}
