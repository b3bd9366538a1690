//! Programs that tests of this crate go through: some of every family of the suite.
use super::arch::{ARCHS, caps};
use super::lines::Lines;
use super::source::Source;
use super::threads;
use crate::simt;
use conformance::{Case, FAMILIES, MATRIX_FAMILIES, Make, Rng};
use kernel::TileProgram;

/// A program and the values of its symbols.
pub struct Tried {
    pub program: TileProgram,
    symbols: Vec<(String, i64)>,
}

impl Tried {
    /// The value of a symbol.
    pub fn value(&self, name: &str) -> Option<i64> {
        let found = self.symbols.iter().find(|s| s.0 == name);
        found.map(|s| s.1)
    }
}

/// Random programs of a case of every family, with and without matrix instructions.
pub fn tried(seed: u64) -> Vec<Tried> {
    let makes = FAMILIES.iter().chain(&MATRIX_FAMILIES).map(|f| f.1);
    let makes = makes.chain([conformance::warpgroup_product as Make]);
    makes.flat_map(|make| of(make, seed)).collect()
}

fn of(make: Make, seed: u64) -> Vec<Tried> {
    let mut rng = Rng::new(seed);
    let Case {
        kernel, symbols, ..
    } = make(&mut rng);
    let lookup = |n: &str| symbols.iter().find(|s| s.0 == n).map(|s| s.1);
    let mut all = conformance::gpu_schedules(&kernel, &lookup, &mut rng);
    all.extend(conformance::matrix_schedules(&kernel, &mut rng));
    let programs = all
        .into_iter()
        .filter_map(|s| TileProgram::new(kernel.clone(), s).ok());
    let tried = |program| Tried {
        program,
        symbols: symbols.clone(),
    };
    programs.map(tried).collect()
}

/// Everything that is read of lines, as text.
fn read(l: &Lines) -> Vec<String> {
    let line = |x| {
        let (op, guard) = (l.op(x), l.guard(x));
        let (defs, uses) = (l.defs(x), l.operands(x));
        format!(
            "{op} {:?} {:?} {defs:?} {uses:?} {guard:?}",
            x.form, x.label
        )
    };
    let lines = l.lines.iter().map(line);
    let rest = format!(
        "{:?} {:?} {:?}",
        l.labels,
        l.names.width,
        l.names.of_kind("l_")
    );
    lines.chain([rest]).collect()
}

#[test]
fn lines_that_are_counted_are_those_of_the_text() {
    let mut compared = 0;
    for t in tried(1) {
        compared += usize::from(compare(&t.program, ARCHS[compared % ARCHS.len()]));
    }
    assert!(compared > 100, "{compared} programs");
}

/// Compares both for a program; whether there is one.
fn compare(program: &TileProgram, arch: &str) -> bool {
    let Ok(p) = simt::lower(program, caps(arch)) else {
        return false;
    };
    let printed = threads::print(&p, arch, &Source::Entry);
    let counted = threads::counted(&p, arch);
    let (Ok(printed), Ok(counted)) = (&printed, &counted) else {
        assert!(printed.is_err() && counted.is_err());
        return false;
    };
    let text = Lines::of(&printed.code);
    assert_eq!(read(&text), read(&counted.lines), "{}", printed.code);
    assert_eq!(printed.shared_bytes, counted.shared_bytes);
    true
}
