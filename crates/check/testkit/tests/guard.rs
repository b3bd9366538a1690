//! Kernels touch nothing but their operands: a share of the cases of `cargo xtask guard`, which runs all. Products
//! without elements, whole.
#![cfg(target_os = "linux")]
use graph::GraphBuilder;
use layout::{DType, Dim};
use shopfloor::{Model, ModelOptions, Session};
use std::path::Path;
use std::sync::Arc;
use tensor::{Tensor, WeightStore};
use testing::Share;
use testkit::guard::{Asked, Commands, Outcome, repeat_command, run};
use testkit::handwritten::{node, product, values};

/// Shares that the cases are in: a share takes some seconds.
const SHARES: u64 = 1800;

/// The share of this run; none: all.
fn share() -> Option<(u64, u64)> {
    match Share::of_run(SHARES) {
        Share::ALL => None,
        s => Some((s.number, s.of)),
    }
}

#[test]
fn a_share_of_all_kernels_touches_nothing_beside_its_operands() {
    let asked = Asked {
        share: share(),
        ..Asked::default()
    };
    let (o, names) = looked_at(&asked, false);
    assert!(o.cases > 100 && o.cases == names.len(), "{o:?}");
}

/// Runs what is asked for, in one process or recorded by one and run by another: nothing goes wrong. Gives what came of
/// it, and the names of the cases.
fn looked_at(asked: &Asked, recorded: bool) -> (Outcome, Vec<String>) {
    let command = [Path::new(env!("CARGO_BIN_EXE_guard-cases"))];
    let (mut wrong, mut names) = (String::new(), vec![]);
    let mut told = |case: &str, why: Option<&str>| match why {
        None => names.push(case.to_string()),
        Some(why) => {
            let again = repeat_command("guard", asked, case);
            wrong += &format!("{case}: {why}\n  again: {again}\n");
        }
    };
    let commands = Commands {
        run: &command,
        record: recorded.then_some(&command[..]),
    };
    let o = run(&commands, asked, &mut told).expect("cases");
    assert!(o.wrong == 0, "{wrong}");
    (o, names)
}

#[test]
fn cases_that_are_recorded_are_those_that_run_at_once() {
    let asked = Asked {
        share: Some((3, 4000)),
        heap: true,
        ..Asked::default()
    };
    let ((at_once, first), (recorded, second)) =
        (looked_at(&asked, false), looked_at(&asked, true));
    assert!(first.len() > 50, "{first:?}");
    assert_eq!(first, second);
    assert_eq!(at_once.refused, recorded.refused);
}

/// The product of `[m, k]` and `[k, n]`, the second factor a constant or given.
fn of_sizes(d: DType, [m, k, n]: [usize; 3], constant: bool, symbols: bool) -> Vec<Tensor> {
    let (x, w) = (values(d, &[m, k], 1), values(d, &[k, n], 2));
    let mut weights = WeightStore::new();
    let kept = weights.add_tensor("w", w.clone()).expect("a weight");
    let mut b = GraphBuilder::new("product", Arc::new(weights));
    let dims = |names: [&str; 2], sizes: [usize; 2]| -> Vec<Dim> {
        let dims = names.into_iter().zip(sizes);
        let dim = |(s, v)| if symbols { Dim::sym(s) } else { Dim::from(v) };
        dims.map(dim).collect()
    };
    // A constant has no symbols: what meets it has none either.
    let own = match constant {
        true => vec![dims(["m", "k"], [m, k])[0].clone(), Dim::from(k)],
        false => dims(["m", "k"], [m, k]),
    };
    let a = b.input("x", d, own);
    let c = match constant {
        true => b.weight(kept).expect("a weight"),
        false => b.input("w", d, dims(["k", "n"], [k, n])),
    };
    let y = node(&mut b, product(&[0, 1], &[1, 2], &[0, 2]), &[a, c], "y");
    let graph = b.finish(&[y]);
    let model = Model::from_graph("product", &graph, &ModelOptions::default()).expect("a model");
    let session = Session::builder().commit(model).expect("a session");
    let mut given = vec![("x", &x)];
    if !constant {
        given.push(("w", &w));
    }
    let got = session.run(&given).expect("a result").into_vec();
    got.into_iter().map(|(_, t)| t).collect()
}

#[test]
fn products_without_elements_are_planned_and_sums_of_nothing_are_zeros() {
    use DType::{BF16, F16, F32, F64, I32};
    for d in [F32, F16, BF16, F64, I32] {
        for sizes in [
            [0, 4, 3],
            [3, 0, 5],
            [3, 4, 0],
            [0, 0, 0],
            [0, 64, 64],
            [7, 64, 0],
        ] {
            for (constant, symbols) in [(true, false), (true, true), (false, false), (false, true)]
            {
                let got = of_sizes(d, sizes, constant, symbols);
                let what = format!("{d} {sizes:?}, constant {constant}, symbols {symbols}");
                assert_eq!(got[0].shape(), [sizes[0], sizes[2]], "{what}");
                if sizes.contains(&0) {
                    assert!(
                        (0..got[0].len()).all(|i| got[0].get_f64(i) == 0.0),
                        "{what}"
                    );
                }
            }
        }
    }
}
