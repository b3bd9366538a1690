//! What explains measured times.
use shopfloor_machine::{
    Change, Efficiencies, Machine, NumType, UnitClass, Work, catalog, explain, lookup, predict,
};

/// Steps of several kinds: sums from memory, products in cache, many small ones.
fn work(m: &Machine, i: usize) -> Work {
    let mut w = Work {
        tasks: 16,
        steps: 1,
        ..Work::default()
    };
    let bytes = [3e8, 5e7, 4e5, 2e5, 2e4, 1.2e6][i % 6];
    let flop = [1e8, 1e7, 1e9, 4e8, 1e5, 1e7][i % 6];
    let level = m.nearest_holding_index(bytes);
    w.add_traffic(level, bytes, bytes / 10.0);
    w.add_ops(UnitClass::Fma, NumType::F32, flop);
    w
}

fn found(lies: &[&str]) -> (Vec<Change>, f64) {
    let told = lookup("zen5-2core").unwrap();
    let mut truth = told.clone();
    for l in lies {
        l.parse::<Change>().unwrap().apply(&mut truth).unwrap();
    }
    let eff = Efficiencies::default();
    let time = |m: &Machine, i: usize| predict(m, &eff, &work(m, i), 2).time_s;
    let measured: Vec<f64> = (0..12)
        .map(|i| time(&truth, i) * (1.0 + 0.02 * (i % 3) as f64))
        .collect();
    let changes = explain(&told, &measured, &|m, i| Some(time(m, i)));
    let mut after = told.clone();
    for c in &changes {
        c.apply(&mut after).unwrap();
    }
    let error = (0..12)
        .map(|i| (measured[i] / time(&after, i)).ln().abs())
        .fold(0.0, f64::max);
    (changes, error)
}

#[test]
fn what_is_right_needs_no_explanation() {
    assert_eq!(found(&[]).0, []);
}

#[test]
fn lies_are_found() {
    for lies in [
        &["bandwidth=0.25x"][..],
        &["clock=0.6x"],
        &["bandwidth=0.25x", "clock=0.7x"],
    ] {
        let (changes, error) = found(lies);
        assert!(!changes.is_empty(), "{lies:?}");
        assert!(error < 0.15, "{lies:?} {changes:?} {error}");
    }
    let (changes, _) = found(&["bandwidth=0.25x"]);
    let text = changes[0].to_string();
    assert!(text.starts_with("bandwidth=0.2"), "{text}");
}

#[test]
fn what_cannot_be_predicted_is_left_out() {
    let m = &catalog()[0].machine;
    assert_eq!(explain(m, &[], &|_, _| Some(1.0)), []);
    assert_eq!(explain(m, &[1.0, f64::NAN], &|_, _| None), []);
}
