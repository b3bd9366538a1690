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

/// Boards of several devices that the catalog describes whole, of which a program runs on one.
pub const DEVICES_OF: &[(&str, u64)] = &[("MI250", 2), ("MI250X", 2)];

/// One of `n` like devices of a board.
fn one_of(mut m: Machine, n: u64) -> Machine {
    let part = n as f64;
    m.name = format!("{}, one of {n} devices", m.name);
    m.workers.count.value = (m.workers.count.value / n).max(1);
    if let Some(p) = &mut m.power_w {
        p.value /= part;
    }
    for l in m.levels.iter_mut().filter(|l| l.name != "host") {
        if l.shared_by > 1 {
            l.bytes.value /= part;
            l.shared_by = (l.shared_by / n).max(1);
        }
        l.read.all.value /= part;
        l.write.all.value /= part;
        if let Some(b) = &mut l.bus {
            b.bits.value /= n;
        }
    }
    m.units.iter_mut().for_each(|u| u.all.value /= part);
    m
}

/// Letters and digits alone, in lower case.
fn key(name: &str) -> String {
    let kept = name.chars().filter(|c| c.is_alphanumeric());
    kept.flat_map(char::to_lowercase).collect()
}

/// The machine that a source's name of a GPU stands for: one of the catalog with that very name or
/// alias, by `TAKEN_FOR` where the name leaves open which. A name that only begins like another
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
    if !known {
        return Err(unknown());
    }
    let several = DEVICES_OF.iter().find(|d| key(d.0) == key(&found.name));
    Ok(several.map_or(found.clone(), |d| one_of(found, d.1)))
}
