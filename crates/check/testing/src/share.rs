//! Which part of a large set of cases a test run looks at: another one with every commit.
use sha2::{Digest, Sha256};
use std::path::Path;
use std::process::Command;

/// The variable that says another share: a number, or `all`.
const VARIABLE: &str = "SHOPFLOOR_SHARE";
/// The variable that says whose turn it is, in the same way; where it is not set, the one of shares says it.
const TURNS: &str = "SHOPFLOOR_TURNS";

/// One of `of` parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which, below `of`.
    pub number: u64,
    /// How many there are.
    pub of: u64,
}

fn number(text: &[u8]) -> u64 {
    let hash = Sha256::digest(text);
    hash.iter().take(8).fold(0, |n, b| n << 8 | u64::from(*b))
}

/// What chooses: what the first of `variables` that is set says, `None` for everything, else the commit's number behind
/// `salt`; 0 without git.
fn chosen(variables: &[&str], salt: &str) -> Option<u64> {
    let said = variables
        .iter()
        .find_map(|v| std::env::var(v).ok())
        .unwrap_or_default();
    if said == "all" {
        return None;
    }
    if let Ok(n) = said.parse() {
        return Some(n);
    }
    let git = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output();
    let commit = git.ok().filter(|o| o.status.success());
    let text = |o: std::process::Output| [salt.as_bytes(), o.stdout.trim_ascii()].concat();
    Some(commit.map_or(0, |o| number(&text(o))))
}

impl Share {
    /// Everything.
    pub const ALL: Share = Share { number: 0, of: 1 };

    /// The share of `of` that `SHOPFLOOR_SHARE` says, else the commit's; without git the first.
    pub fn of_run(of: u64) -> Share {
        Share::chosen_by(&[VARIABLE], "", of)
    }

    /// As [`Share::of_run`] for the turns that tests take. A commit chooses both apart: a test that takes turns and
    /// runs a share when it is its turn would else never run the others.
    pub(crate) fn of_turns(of: u64) -> Share {
        Share::chosen_by(&[TURNS, VARIABLE], "turns", of)
    }

    fn chosen_by(variables: &[&str], salt: &str, of: u64) -> Share {
        let of = of.max(1);
        chosen(variables, salt).map_or(Share::ALL, |n| Share { number: n % of, of })
    }

    /// Numbers of the cases of this run, of `of` shares with `each` cases; all of them where `SHOPFLOOR_SHARE` is
    /// `all`.
    pub fn cases(of: u64, each: u64) -> std::ops::Range<u64> {
        match Share::of_run(of) {
            Share::ALL => 0..of * each,
            s => s.number * each..(s.number + 1) * each,
        }
    }

    /// Whether the case of this number is in it.
    pub fn picks(self, case: u64) -> bool {
        case % self.of == self.number
    }

    /// A share as `3/40`.
    pub fn parse(text: &str) -> Option<Share> {
        let (number, of) = text.split_once('/')?;
        let (number, of) = (number.parse().ok()?, of.parse().ok()?);
        (number < of).then_some(Share { number, of })
    }

    /// Whether the case called `name` is in it.
    pub fn has(self, name: &str) -> bool {
        number(name.as_bytes()) % self.of == self.number
    }
}

/// With what repeats it.
impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Share { number, of } = self;
        write!(f, "share {number} of {of}, again with {VARIABLE}={number}")
    }
}
