//! `cargo xtask fit`: fits the constants and writes docs/accuracy.md; `rows FILE` and `table FILE` for
//! a look without the command line's build.
use shopfloor_predict::{Constants, Measurements, Options, compare, pairs};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let m = Measurements::open(std::path::Path::new(&args[2])).unwrap();
    let c = Constants::parse(&std::fs::read_to_string("crates/predict/constants.toml").unwrap())
        .unwrap();
    if args[1] == "rows" {
        println!("line,measured_us,predicted_us");
        for p in pairs(&m, &Options::default(), &c).unwrap() {
            println!(
                "{},{},{}",
                p.row.line,
                p.row.seconds * 1e6,
                p.predicted.map_or(String::new(), |s| (s * 1e6).to_string())
            );
        }
    } else {
        print!("{}", compare(&m, &Options::default(), &c).unwrap().table());
    }
}
