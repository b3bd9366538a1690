//! Random small graphs over all core ops, planned for random boxes and machines, against the
//! oracle. `SHOPFLOOR_SEED` runs one; `cargo xtask fuzz --graphs 100000` runs many.
extern crate shopfloor_testkit as testkit;
use testkit::random::{Case, Engines, check};

#[test]
fn random_graphs_agree_with_the_oracle() {
    let engines = Engines::start().unwrap();
    let seeds = match std::env::var("SHOPFLOOR_SEED").map(|s| s.parse::<u64>()) {
        Ok(Ok(s)) => s..s + 1,
        _ => 1..4001,
    };
    let failed: Vec<String> = seeds
        .filter_map(|s| Case::new(s).and_then(|c| check(&c, &engines)).err())
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
