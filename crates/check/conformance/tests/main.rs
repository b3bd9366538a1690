//! The tests of this crate, in one program.
mod cpu;
mod cuda;
mod emulated;
#[cfg(feature = "webgpu")]
mod models;
mod ptx;
mod simt;
#[cfg(feature = "webgpu")]
mod webgpu;

use shopfloor_conformance::{Outcome, Subject, run, seeds};

/// What comes of this run's share of `count` seeds from `first` on, of which every one is cut into `parts` with some
/// cases each. A campaign asks for more seeds with as many parts.
fn part_of_seeds(subject: &dyn Subject, first: u64, count: u64, parts: u64) -> Vec<Outcome> {
    let one = |n: u64| {
        let picks = |case| case % parts == n % parts;
        let out = run(subject, &picks, first + n / parts, seeds(1));
        let out = out.unwrap_or_else(|e| panic!("{e}"));
        println!("{:?}, refused {:?}", out.agreed, out.refused);
        out
    };
    testing::Share::cases(count * parts, 1).map(one).collect()
}

#[cfg(not(feature = "webgpu"))]
#[test]
fn what_needs_wgpu_is_skipped() {
    testing::skip(
        "webgpu: the suite and models",
        "built without it; add --features shopfloor-conformance/webgpu",
    );
}
