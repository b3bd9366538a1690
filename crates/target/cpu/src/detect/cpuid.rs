//! What an x86 CPU says about itself.

use super::probe::{Cache, Facts};
use layout::Arrange;
use std::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

/// The leaf of a number, where there is one.
fn leaf(number: u32) -> Option<CpuidResult> {
    // The first leaf of a range says which is its last.
    let last = __cpuid(number & 0x8000_0000).eax;
    (number <= last).then(|| __cpuid(number))
}

/// Bits `first..=last` of a register.
fn bits(register: u32, first: u32, last: u32) -> u32 {
    (register >> first) & (u32::MAX >> (31 - (last - first)))
}

/// The text in registers, without what is empty around it.
fn text(registers: impl IntoIterator<Item = u32>) -> String {
    let bytes: Vec<u8> = registers.into_iter().flat_map(u32::to_le_bytes).collect();
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_string()
}

/// The maker in its own words.
fn maker() -> String {
    let first = __cpuid(0);
    text([first.ebx, first.edx, first.ecx])
}

/// Maker, name, family, model, frequency, and whether this is a virtual machine.
pub(super) fn identity(f: &mut Facts) {
    f.vendor = match maker().as_str() {
        "AuthenticAMD" => "AMD".into(),
        "GenuineIntel" => "Intel".into(),
        other => other.into(),
    };
    let name: Option<Vec<CpuidResult>> = (0x8000_0002..=0x8000_0004).map(leaf).collect();
    let registers = name
        .iter()
        .flatten()
        .flat_map(|l| [l.eax, l.ebx, l.ecx, l.edx]);
    f.brand = text(registers);
    if let Some(l) = leaf(1) {
        (f.family, f.model) = family_and_model(l.eax);
        f.hypervisor = bits(l.ecx, 31, 31) == 1;
    }
    let mhz = leaf(0x16).map(|l| bits(l.ebx, 0, 15));
    f.nominal_hz = mhz.map(|m| f64::from(m) * 1e6).filter(|hz| *hz > 1e8);
}

/// Family and model of a signature, with their extensions.
fn family_and_model(signature: u32) -> (u32, u32) {
    let (family, model) = (bits(signature, 8, 11), bits(signature, 4, 7));
    let extended = bits(signature, 16, 19) << 4 | model;
    match family {
        0xf => (family + bits(signature, 20, 27), extended),
        6 => (family, extended),
        _ => (family, model),
    }
}

/// Data and unified caches, nearest first, for a thread that may run on these CPUs.
pub(super) fn caches(affinity: &[usize]) -> Vec<Cache> {
    let number = match maker().as_str() {
        "AuthenticAMD" => 0x8000_001d,
        _ => 4,
    };
    if leaf(number).is_none() {
        return Vec::new();
    }
    let all = (0..16).map(|k| __cpuid_count(number, k));
    let mut caches: Vec<Cache> = all
        .take_while(|l| bits(l.eax, 0, 4) != 0)
        .filter_map(|l| cache(l, affinity))
        .collect();
    caches.arrange_by_key(|c| c.level);
    caches.dedup_by_key(|c| c.level);
    caches
}

/// A cache as its leaf describes it; none of instructions.
fn cache(l: CpuidResult, affinity: &[usize]) -> Option<Cache> {
    const DATA: u32 = 1;
    const UNIFIED: u32 = 3;
    if ![DATA, UNIFIED].contains(&bits(l.eax, 0, 4)) {
        return None;
    }
    // All are written less one.
    let more = |register, first, last| u64::from(bits(register, first, last)) + 1;
    let line = more(l.ebx, 0, 11);
    let (ways, parts, sets) = (more(l.ebx, 22, 31), more(l.ebx, 12, 21), more(l.ecx, 0, 31));
    // Ids are not told here; the nearest ones are taken, which is how threads are numbered.
    let sharing = more(l.eax, 14, 25) as usize;
    Some(Cache {
        level: bits(l.eax, 5, 7),
        bytes: (ways * parts) as f64 * line as f64 * sets as f64,
        line,
        shared: affinity.iter().copied().take(sharing).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_models_take_their_extensions_where_they_have_some() {
        // Zen 5, Sapphire Rapids, and a 486.
        assert_eq!(family_and_model(0x00b0_0f21), (0x1a, 0x02));
        assert_eq!(family_and_model(0x000c_06f2), (6, 0xcf));
        assert_eq!(family_and_model(0x0000_0480), (4, 8));
    }

    #[test]
    fn a_cache_is_read_off_its_leaf() {
        // The L1 of data of a Zen 5: 48 KiB, 12 ways, two threads.
        let l1 = CpuidResult {
            eax: 0x4121,
            ebx: 0x02c0_003f,
            ecx: 0x3f,
            edx: 0,
        };
        let read = cache(l1, &[4, 5, 6]).unwrap();
        let shared = vec![4, 5];
        let known = Cache {
            level: 1,
            bytes: 49152.0,
            line: 64,
            shared,
        };
        assert_eq!(read, known);
        assert_eq!(cache(CpuidResult { eax: 0x4122, ..l1 }, &[4]), None);
    }

    #[test]
    fn this_cpu_has_a_maker_and_caches() {
        let mut f = Facts::default();
        identity(&mut f);
        assert!(!f.vendor.is_empty() && f.family > 0, "{f:?}");
        // A virtual machine may hide them.
        assert!(caches(&[0]).iter().all(|c| c.bytes > 0.0 && c.level > 0));
    }
}
