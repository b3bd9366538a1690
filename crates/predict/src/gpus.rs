//! From the names of sources to machines of the catalog.

use machine::Machine;

/// Names of which a source does not say which card is meant, and the card that is taken. Where a
/// source says so little the forms differ by less than its own spread for what it measured:
/// bandwidth (PCIe and SXM cards of one memory size are within 5%), or sizes that fit both.
pub const TAKEN_FOR: &[(&str, &str)] = &[
    ("A100", "A100-SXM4-40GB"),
    ("A100-40GB", "A100-SXM4-40GB"),
    ("A100-80GB", "A100-SXM4-80GB"),
    ("A100-PCIE", "A100-PCIE-40GB"),
    ("A100-SXM", "A100-SXM4-80GB"),
    ("P100", "P100-SXM2-16GB"),
    ("V100", "V100-SXM2-16GB"),
    ("V100-SXM2", "V100-SXM2-16GB"),
    ("V100-PCIE", "V100-PCIE-16GB"),
    ("H100", "H100-SXM5-80GB"),
    ("H100-80GB", "H100-SXM5-80GB"),
    ("H100-PCIE", "H100-PCIE-80GB"),
];

/// Letters and digits alone, in lower case.
fn key(name: &str) -> String {
    let kept = name.chars().filter(|c| c.is_alphanumeric());
    kept.flat_map(char::to_lowercase).collect()
}

/// The machine that a source's name of a GPU stands for: one of the catalog with that very name or
/// alias, by [`TAKEN_FOR`] where the name leaves open which. A name that only begins like another
/// card's is no name of it.
///
/// # Errors
/// Why there is none, for counting.
pub fn machine_of(name: &str) -> Result<Machine, String> {
    let taken = TAKEN_FOR.iter().find(|t| key(t.0) == key(name));
    let asked = taken.map_or(name, |t| t.1);
    let unknown = || format!("GPU {name} is not in the catalog");
    let found = machine::lookup(asked).map_err(|_| unknown())?;
    let vendor = key(&found.vendor);
    let same = |n: &str| {
        let (a, b) = (key(n), key(asked));
        a == b || a.strip_prefix(&vendor) == Some(&b) || b.strip_prefix(&vendor) == Some(&a)
    };
    let known = same(&found.name) || found.aliases.iter().any(|a| same(a));
    if known { Ok(found) } else { Err(unknown()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_card_or_nothing() {
        for (asked, found) in [
            ("V100-PCIE-32GB", "V100-PCIE-32GB"),
            ("P100", "P100-SXM2-16GB"),
            ("A100-80GB", "A100-SXM4-80GB"),
            ("MI100", "MI100"),
        ] {
            assert_eq!(machine_of(asked).unwrap().name, found);
        }
        for none in ["RTX-30", "TITAN-BLACK-2", "A", ""] {
            assert!(machine_of(none).is_err(), "{none}");
        }
    }

    #[test]
    fn every_card_taken_for_another_is_there() {
        for (name, card) in TAKEN_FOR {
            assert!(machine::lookup(card).is_ok(), "{name} stands for {card}");
        }
    }
}
