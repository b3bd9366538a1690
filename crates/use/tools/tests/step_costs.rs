//! What steps cost beside their arithmetic and their bytes.
use shopfloor::Session;
use shopfloor_tools::internals::{Sample, fit, models};

#[test]
fn costs_are_found_again_and_never_negative() {
    let guess = [1e-7, 4e-8, 3e-9, 1e-8];
    let sample = |counts: [f64; 4], rest_s: f64, costs: [f64; 4]| Sample {
        took_s: rest_s + counts.iter().zip(costs).map(|(n, c)| n * c).sum::<f64>(),
        rest_s,
        counts,
    };
    let of = |costs: [f64; 4]| {
        let all = [
            ([1.0, 3.0, 0.0, 200.0], 2e-6),
            ([1.0, 2.0, 900.0, 0.0], 1e-6),
            ([1.0, 40.0, 60.0, 0.0], 5e-7),
            ([1.0, 4.0, 0.0, 12.0], 2e-7),
            ([1.0, 60.0, 3000.0, 800.0], 5e-6),
            ([1.0, 1.0, 4.0, 0.0], 1e-7),
        ];
        let all: Vec<Sample> = all.map(|(n, rest)| sample(n, rest, costs)).into();
        fit(&all, guess)
    };
    for costs in [guess, [2e-8, 1e-7, 9e-9, 4e-8]] {
        for (found, cost) in of(costs).into_iter().zip(costs) {
            assert!((found / cost - 1.0).abs() < 0.1, "{found} for {cost}");
        }
    }
    assert!(of([0.0, 0.0, 9e-9, 4e-8]).iter().all(|v| *v >= 0.0));
    // Nothing measured: what was guessed.
    for (found, guess) in fit(&[], guess).into_iter().zip(guess) {
        assert!((found / guess - 1.0).abs() < 1e-9);
    }
}

#[test]
fn every_model_is_one_step_or_two() {
    for m in models() {
        let m = m.expect("a model");
        let session = Session::builder().with_threads(1);
        let session = session
            .with_machine(shopfloor::machines::find("zen5-2core").expect("of the catalog"))
            .commit(m)
            .expect("planned");
        let plan = session.plan(&Default::default()).expect("a plan");
        let steps: usize = plan.blocks().map(|b| b.steps.len()).sum();
        assert!((1..=2).contains(&steps), "{steps}");
    }
}
