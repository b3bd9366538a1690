//! The conformance suite on the device.
use crate::broken::BROKEN;
use crate::device::{self, Gpu};
use crate::lines::{Line, check, item, now, say};
use crate::options::Options;
use ::device::Device as _;
use conformance::{OnDevice, Outcome, Subject, each, scalars};
use layout::DType;
use std::collections::BTreeMap;

/// Columns of the table.
pub const COLUMNS: &[&str] = &["family", "programs that agree", "cases that differ or fail"];
/// The first seed.
const SEED: u64 = 40_000;
/// Failures that are listed; more say the same.
const LISTED: usize = 12;

/// Runs seed after seed until the time is over or `most` are done, `sound` saying after a failure whether
/// the device is any good.
pub fn suite(
    o: &Options,
    subject: &dyn Subject,
    most: u64,
    sound: &dyn Fn() -> bool,
) -> Result<(), String> {
    let mut listed = 0;
    let mut n = o.past;
    while n < most && !o.rest().is_zero() {
        let seed = SEED + n;
        item(n, format!("seed {seed}"));
        let mut told = Outcome::default();
        each(
            subject,
            &|_| true,
            seed,
            &mut Outcome::default(),
            &mut |case, came, so_far| {
                let family = format!("{:?}", case.kernel.family);
                match came {
                    None => {
                        now(format!("{family}, seed {seed}, {}", case.kernel.name));
                        return true;
                    }
                    Some(Ok(())) => {}
                    Some(Err(why)) => {
                        count(format!("failed {family}"), 1);
                        if listed < LISTED {
                            listed += 1;
                            // The program's text is long, and the seed makes it again.
                            let why: String = why.lines().next().unwrap_or_default().into();
                            check(format!("{family}, seed {seed}"), Err(why));
                        }
                        if !sound() {
                            std::process::exit(i32::from(BROKEN));
                        }
                    }
                }
                report(&told, so_far);
                told = so_far.clone();
                !o.rest().is_zero()
            },
        );
        n += 1;
    }
    Ok(())
}

fn count(what: String, n: usize) {
    if n > 0 {
        say(&Line::Count { what, n });
    }
}

/// Says what came beside what was told.
fn report(told: &Outcome, now: &Outcome) {
    for (family, n) in &now.agreed {
        let before = told.agreed.get(family).unwrap_or(&0);
        count(format!("agreed {family}"), n - before);
    }
    let refused = |o: &Outcome| o.refused.values().sum::<usize>();
    count("refused".into(), refused(now) - refused(told));
}

/// The table of what was counted.
pub fn rows(counts: &BTreeMap<String, usize>) -> Vec<Vec<String>> {
    let mut all: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (what, n) in counts {
        match what.split_once(' ') {
            Some(("agreed", f)) => all.entry(f).or_default().0 += n,
            Some(("failed", f)) => all.entry(f).or_default().1 += n,
            _ => {}
        }
    }
    let cells =
        |(f, (a, b)): (&str, (usize, usize))| vec![f.to_lowercase(), a.to_string(), b.to_string()];
    all.into_iter().map(cells).collect()
}

/// The suite on the GPU.
pub fn run(o: &Options) -> Result<(), String> {
    let gpu = Gpu::open(o)?;
    let context = gpu.context()?;
    let d = gpu.device(device::described(o)?)?;
    let (target, few) = (d.target(), [DType::F32, DType::I32]);
    // Plans read nibbles there, and write them by host steps.
    let bytes = target.dtypes.iter().copied().filter(|d| d.bits() >= 8);
    let bytes: Vec<DType> = bytes.collect();
    // An emulated GPU takes its time.
    let types = if o.emulated() { &few[..] } else { &bytes[..] };
    if o.past == 0 {
        let mut picks = |f| {
            now(format!("{f} at the edges of its type"));
            true
        };
        match scalars(&OnDevice(&d), target, types, SEED, &mut picks) {
            Ok(n) => check("scalar operations", Ok(format!("{n} agree"))),
            Err(why) => {
                let told = why.lines().take(LISTED).map(|l| ("scalar operation", l));
                told.fold(false, |_, (what, l)| check(what, Err(l.into())))
            }
        };
    }
    let most = if o.emulated() { 3 } else { 100_000 };
    suite(o, &OnDevice(&d), most, &|| context.memory().is_ok())
}
