//! The last program of a run: what tests did not run here, and why.

fn main() {
    let all = testing::skipped();
    if all.is_empty() {
        println!("\nno test was skipped");
        return;
    }
    println!("\nskipped in this run: {}", all.len());
    let width = all
        .iter()
        .map(|(n, _)| n.chars().count())
        .max()
        .unwrap_or(0);
    for (name, why) in all {
        println!("  {name:width$}  {why}");
    }
}
