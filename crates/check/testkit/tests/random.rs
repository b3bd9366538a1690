//! Random small graphs over all core ops, planned for random boxes and machines, against the
//! oracle. `SHOPFLOOR_SEED` runs one; `cargo xtask fuzz --graphs 100000` runs many.
use testing::Share;
use testkit::random::{Case, Engines, Outcome, check, check_schedules};

/// This run's seeds, `each` of 48 shares, above `from`.
fn seeds(from: u64, each: u64) -> std::ops::Range<u64> {
    let own = Share::cases(48, each);
    println!("seeds {} to {} above {from}", own.start + 1, own.end);
    from + 1 + own.start..from + 1 + own.end
}

/// The planner takes the cheapest schedules; the others have to be right as well.
#[test]
fn random_graphs_agree_under_random_schedules() {
    let engines = Engines::start().unwrap();
    let seeds = match std::env::var("SHOPFLOOR_SEED").map(|s| s.parse::<u64>()) {
        Ok(Ok(s)) => s..s + 1,
        _ => seeds(9000, 42),
    };
    let failed: Vec<String> = seeds
        .filter_map(|s| {
            let case = Case::new(s).ok()?;
            check_schedules(&case, &engines, 2).err()
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// An output that widens a bf16 value which a sum in another order rounded the other way.
#[test]
fn a_rounding_is_seen_through_a_wider_type() {
    let case = Case::new(903730).unwrap();
    check(&case, &Engines::start().unwrap()).unwrap();
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    let engines = Engines::start().unwrap();
    let seeds = match std::env::var("SHOPFLOOR_SEED").map(|s| s.parse::<u64>()) {
        Ok(Ok(s)) => s..s + 1,
        _ => seeds(0, 167),
    };
    let one = seeds.end - seeds.start == 1;
    let (mut agree, mut all, mut failed) = (0, 0, Vec::new());
    for s in seeds {
        all += 1;
        if let (true, Ok(c)) = (one, Case::new(s)) {
            println!("{}", c.graph.to_text());
        }
        match Case::new(s).and_then(|c| check(&c, &engines)) {
            Ok(Outcome::Agrees) => agree += 1,
            Ok(Outcome::Refused) => {}
            Err(why) => failed.push(why),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    // Cases that both sides refuse say nothing about results: there may be few of them only.
    assert!(
        one || agree * 100 >= all * 95,
        "only {agree} of {all} cases ran"
    );
}
