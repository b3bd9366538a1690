//! Archives with right lengths and check sums around whatever they hold.

/// The check sum of CRC-32.
pub fn crc(bytes: &[u8]) -> u32 {
    let mut c = !0u32;
    for b in bytes {
        c ^= u32::from(*b);
        for _ in 0..8 {
            c = (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg());
        }
    }
    !c
}

/// A zip archive of `entries` by name, stored without compression.
pub fn stored(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in entries {
        let at = out.len() as u32;
        let mut common = Vec::new();
        // Version, flags, method, time and date.
        common.extend([20u16, 0, 0, 0, 0x21].map(u16::to_le_bytes).concat());
        let n = bytes.len() as u32;
        common.extend([crc(bytes), n, n].map(u32::to_le_bytes).concat());
        common.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(bytes);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&common);
        // Comment, disk, attributes.
        directory.extend([0u8; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let n = entries.len() as u16;
    let sizes = [directory.len() as u32, out.len() as u32];
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([n, n].map(u16::to_le_bytes).concat());
    out.extend(sizes.map(u32::to_le_bytes).concat());
    out.extend([0, 0]);
    out
}

/// The entries of an archive that [`stored`] made; `None` for others.
pub fn unstored(bytes: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let (mut out, mut at) = (Vec::new(), 0usize);
    while bytes.get(at..at + 4)? == b"PK\x03\x04" {
        let number = |from: usize, n: usize| -> Option<usize> {
            let b = bytes.get(at + from..at + from + n)?;
            Some(b.iter().rev().fold(0, |v, b| v << 8 | usize::from(*b)))
        };
        if number(8, 2)? != 0 {
            return None;
        }
        let (len, name) = (number(18, 4)?, number(26, 2)?);
        let start = at + 30 + name + number(28, 2)?;
        let text = std::str::from_utf8(bytes.get(at + 30..at + 30 + name)?).ok()?;
        out.push((text.into(), bytes.get(start..start + len)?.to_vec()));
        at = start + len;
    }
    Some(out)
}
