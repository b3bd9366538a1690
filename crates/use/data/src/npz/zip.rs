//! The part of the zip format that archives of arrays use.
//!
//! Reading goes by the central directory alone, takes stored and deflated members and the 64-bit
//! extension, and refuses members that overlap, so that what is unpacked stays in proportion to the
//! file. Writing stores members without compression, at a fixed date.

use super::crc::Crc;
use crate::npy;
use std::borrow::Cow;
use std::io::Write;
use tensor::Tensor;

/// Sizes and offsets from here on take the 64-bit extension.
pub(super) const ZIP64_FROM: u64 = 0xFFFF_FFFF;
const END: u32 = 0x0605_4B50;
const END64: u32 = 0x0606_4B50;
const LOCATOR64: u32 = 0x0706_4B50;
const CENTRAL: u32 = 0x0201_4B50;
const LOCAL: u32 = 0x0403_4B50;
/// Bytes that one byte of deflated data can stand for at most.
const DENSEST: usize = 1032;
/// 1 January 1980, the first date the format can say.
const DATE: u16 = 0x21;

/// One member of an archive.
pub(super) struct Member {
    pub(super) name: String,
    deflated: bool,
    crc: u32,
    packed: usize,
    unpacked: usize,
    header: usize,
    data: usize,
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(
        b.get(at..at.checked_add(2)?)?.try_into().ok()?,
    ))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        b.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        b.get(at..at.checked_add(8)?)?.try_into().ok()?,
    ))
}

/// Members in the order of the central directory.
pub(super) fn members(b: &[u8]) -> Result<Vec<Member>, String> {
    let (mut at, end, count) =
        directory(b).ok_or("its end record is missing or damaged; copy or save it again")?;
    let mut members = Vec::new();
    for k in 0..count {
        let damaged = || format!("entry {k} of its directory is damaged; copy or save it again");
        let (member, next) = entry(b, at).ok_or_else(damaged)??;
        members.push(member);
        at = next;
    }
    if at != end {
        return Err(
            "its directory holds more entries than its end record says; save it again".into(),
        );
    }
    let mut ranges: Vec<(usize, usize)> = members
        .iter()
        .map(|m| (m.header, m.data + m.packed))
        .collect();
    ranges.sort_unstable();
    if ranges.windows(2).any(|w| w[1].0 < w[0].1) {
        return Err("two of its members share bytes; save it again".into());
    }
    Ok(members)
}

/// Start and end of the central directory, and its number of entries.
fn directory(b: &[u8]) -> Option<(usize, usize, u64)> {
    let last = b.len().checked_sub(22)?;
    // A comment of up to 65,535 bytes may follow; its length must fit what follows.
    let end = (last.saturating_sub(usize::from(u16::MAX))..=last)
        .rev()
        .find(|&i| {
            u32_at(b, i) == Some(END)
                && u16_at(b, i + 20).is_some_and(|n| i + 22 + usize::from(n) == b.len())
        })?;
    let (mut count, mut size, mut start) = (
        u64::from(u16_at(b, end + 10)?),
        u64::from(u32_at(b, end + 12)?),
        u64::from(u32_at(b, end + 16)?),
    );
    let mut limit = end;
    let locator = end
        .checked_sub(20)
        .filter(|&l| u32_at(b, l) == Some(LOCATOR64));
    if let Some(locator) = locator {
        let at = usize::try_from(u64_at(b, locator + 8)?).ok()?;
        if at >= locator || u32_at(b, at)? != END64 {
            return None;
        }
        (count, size, start) = (
            u64_at(b, at.checked_add(32)?)?,
            u64_at(b, at + 40)?,
            u64_at(b, at + 48)?,
        );
        limit = at;
    }
    let (start, size) = (usize::try_from(start).ok()?, usize::try_from(size).ok()?);
    let end = start.checked_add(size)?;
    (end <= limit).then_some((start, end, count))
}

/// The directory entry at `at`, and where the next one starts.
fn entry(b: &[u8], at: usize) -> Option<Result<(Member, usize), String>> {
    if u32_at(b, at)? != CENTRAL {
        return None;
    }
    let (flags, method, crc) = (u16_at(b, at + 8)?, u16_at(b, at + 10)?, u32_at(b, at + 16)?);
    let lens = [
        u16_at(b, at + 28)?,
        u16_at(b, at + 30)?,
        u16_at(b, at + 32)?,
    ]
    .map(usize::from);
    let raw = b.get(at + 46..at + 46 + lens[0])?;
    let extra = b.get(at + 46 + lens[0]..at + 46 + lens[0] + lens[1])?;
    let next = at + 46 + lens.iter().sum::<usize>();
    let mut sizes = [
        u32_at(b, at + 24)?,
        u32_at(b, at + 20)?,
        u32_at(b, at + 42)?,
    ]
    .map(u64::from);
    wide_fields(extra, &mut sizes)?;
    let Ok(name) = std::str::from_utf8(raw) else {
        return Some(Err(
            "the name of a member is not UTF-8; save it with numpy.savez".into(),
        ));
    };
    if flags & 1 != 0 {
        return Some(Err(format!(
            "its member {name:?} is encrypted; save it without a password"
        )));
    }
    if method != 0 && method != 8 {
        return Some(Err(format!(
            "its member {name:?} is packed by method {method}; save it with numpy.savez or savez_compressed"
        )));
    }
    let [unpacked, packed, header] = sizes;
    let header = usize::try_from(header).ok()?;
    if u32_at(b, header)? != LOCAL {
        return None;
    }
    let local = header + 30;
    let name_len = usize::from(u16_at(b, header + 26)?);
    if b.get(local..local + name_len)? != raw {
        return None;
    }
    let data = local + name_len + usize::from(u16_at(b, header + 28)?);
    let packed = usize::try_from(packed).ok()?;
    b.get(data..data.checked_add(packed)?)?;
    let unpacked = usize::try_from(unpacked).ok()?;
    let member = Member {
        name: name.to_string(),
        deflated: method == 8,
        crc,
        packed,
        unpacked,
        header,
        data,
    };
    Some(Ok((member, next)))
}

/// Replaces fields that say 0xFFFFFFFF by those of the 64-bit extension.
fn wide_fields(mut extra: &[u8], fields: &mut [u64; 3]) -> Option<()> {
    if fields.iter().all(|&f| f != 0xFFFF_FFFF) {
        return Some(());
    }
    while extra.len() >= 4 {
        let len = usize::from(u16_at(extra, 2)?);
        let body = extra.get(4..4 + len)?;
        if u16_at(extra, 0)? == 1 {
            let mut at = 0;
            for f in fields.iter_mut().filter(|f| **f == 0xFFFF_FFFF) {
                *f = u64_at(body, at)?;
                at += 8;
            }
            return Some(());
        }
        extra = &extra[4 + len..];
    }
    None
}

impl Member {
    /// Its bytes when unpacked, as the directory says.
    pub(super) fn unpacked(&self) -> u64 {
        self.unpacked as u64
    }

    /// The member's bytes, unpacked and checked.
    pub(super) fn contents<'a>(&self, archive: &'a [u8]) -> Result<Cow<'a, [u8]>, String> {
        let damaged = |what: &str| {
            format!(
                "{what} of its member {:?} is damaged; copy or save it again",
                self.name
            )
        };
        let packed = archive
            .get(self.data..self.data + self.packed)
            .ok_or_else(|| damaged("the place"))?;
        let data: Cow<[u8]> = if self.deflated {
            self.inflate(packed)?.into()
        } else {
            packed.into()
        };
        if data.len() != self.unpacked {
            return Err(damaged("the size"));
        }
        let mut crc = Crc::new();
        crc.update(&data);
        if crc.finish() != self.crc {
            return Err(damaged("the data (its checksum differs)"));
        }
        Ok(data)
    }
}

impl Member {
    /// Unpacks into memory that was asked for at once and may be refused.
    fn inflate(&self, packed: &[u8]) -> Result<Vec<u8>, String> {
        use miniz_oxide::inflate::decompress_slice_iter_to_slice;
        // The format cannot say more in fewer bytes: a larger size is none that the data has.
        if self.unpacked / DENSEST > packed.len() {
            return Err(format!(
                "its member {:?} states a size that its data cannot have; copy or save it again",
                self.name
            ));
        }
        let mut data = Vec::new();
        data.try_reserve_exact(self.unpacked).map_err(|_| {
            format!(
                "there is no memory for the {} B of its member {:?}; save less in it",
                self.unpacked, self.name
            )
        })?;
        data.resize(self.unpacked, 0);
        let read = decompress_slice_iter_to_slice(&mut data, std::iter::once(packed), false, true);
        match read {
            Ok(n) if n == self.unpacked => Ok(data),
            _ => Err(format!(
                "the compressed data of its member {:?} is damaged; copy or save it again",
                self.name
            )),
        }
    }
}

/// Writes `tensors` as an archive; sizes and offsets of `wide` or more take the 64-bit extension.
pub(super) fn write(
    mut out: impl Write,
    tensors: &[(String, Tensor)],
    wide: u64,
) -> std::io::Result<()> {
    let mut central = Vec::new();
    let mut offset = 0u64;
    for (key, tensor) in tensors {
        let name = format!("{key}.npy");
        let (header, data) = npy::parts(tensor);
        let size = (header.len() + data.len()) as u64;
        let mut crc = Crc::new();
        crc.update(&header);
        crc.update(&data);
        let crc = crc.finish();
        let narrow = |v: u64| if v >= wide { u32::MAX } else { v as u32 };
        let version: u16 = if size >= wide || offset >= wide {
            45
        } else {
            20
        };
        // Bit 11 says that the name is UTF-8.
        let flags: u16 = if name.is_ascii() { 0 } else { 0x800 };
        let mut common = Vec::new();
        common.extend_from_slice(&version.to_le_bytes());
        common.extend_from_slice(&flags.to_le_bytes());
        common.extend_from_slice(&[0; 4]); // stored; time 0:00
        common.extend_from_slice(&DATE.to_le_bytes());
        common.extend_from_slice(&crc.to_le_bytes());
        common.extend_from_slice(&narrow(size).to_le_bytes());
        common.extend_from_slice(&narrow(size).to_le_bytes());
        common.extend_from_slice(&(name.len() as u16).to_le_bytes());

        let sizes = if size >= wide {
            vec![size, size]
        } else {
            Vec::new()
        };
        let local_extra = extension(&sizes);
        let mut local = LOCAL.to_le_bytes().to_vec();
        local.extend_from_slice(&common);
        local.extend_from_slice(&(local_extra.len() as u16).to_le_bytes());
        local.extend_from_slice(name.as_bytes());
        local.extend_from_slice(&local_extra);
        out.write_all(&local)?;
        out.write_all(&header)?;
        out.write_all(&data)?;

        let mut fields = sizes;
        fields.extend((offset >= wide).then_some(offset));
        let extra = extension(&fields);
        central.extend_from_slice(&CENTRAL.to_le_bytes());
        central.extend_from_slice(&version.to_le_bytes());
        central.extend_from_slice(&common);
        central.extend_from_slice(&(extra.len() as u16).to_le_bytes());
        central.extend_from_slice(&[0; 10]); // no comment, first disk, no attributes
        central.extend_from_slice(&narrow(offset).to_le_bytes());
        central.extend_from_slice(name.as_bytes());
        central.extend_from_slice(&extra);
        offset += local.len() as u64 + size;
    }
    out.write_all(&central)?;
    let (count, size) = (tensors.len() as u64, central.len() as u64);
    if count >= 0xFFFF || size >= wide || offset >= wide {
        let mut end = END64.to_le_bytes().to_vec();
        end.extend_from_slice(&44u64.to_le_bytes());
        end.extend_from_slice(&[45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for v in [count, count, size, offset] {
            end.extend_from_slice(&v.to_le_bytes());
        }
        end.extend_from_slice(&LOCATOR64.to_le_bytes());
        end.extend_from_slice(&0u32.to_le_bytes());
        end.extend_from_slice(&(offset + size).to_le_bytes());
        end.extend_from_slice(&1u32.to_le_bytes());
        out.write_all(&end)?;
    }
    let mut end = END.to_le_bytes().to_vec();
    end.extend_from_slice(&[0; 4]);
    for _ in 0..2 {
        end.extend_from_slice(&(count.min(0xFFFF) as u16).to_le_bytes());
    }
    end.extend_from_slice(&(size.min(0xFFFF_FFFF) as u32).to_le_bytes());
    end.extend_from_slice(
        &(if offset >= wide {
            u32::MAX
        } else {
            offset as u32
        })
        .to_le_bytes(),
    );
    end.extend_from_slice(&[0; 2]);
    out.write_all(&end)?;
    out.flush()
}

/// The 64-bit extension with `fields`; empty without any.
fn extension(fields: &[u64]) -> Vec<u8> {
    let mut extra = Vec::new();
    if !fields.is_empty() {
        extra.extend_from_slice(&1u16.to_le_bytes());
        extra.extend_from_slice(&((fields.len() * 8) as u16).to_le_bytes());
        fields
            .iter()
            .for_each(|f| extra.extend_from_slice(&f.to_le_bytes()));
    }
    extra
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_64_bit_extension_is_written_and_read() {
        let tensors: Vec<(String, Tensor)> = (0..3)
            .map(|i| (format!("a{i}"), Tensor::from_i32(&[2], &[i, -i]).unwrap()))
            .collect();
        for wide in [100, 150, 300, 400, 600] {
            let mut bytes = Vec::new();
            write(&mut bytes, &tensors, wide).unwrap();
            let back = members(&bytes).unwrap();
            for (m, (name, t)) in back.iter().zip(&tensors) {
                assert_eq!(m.name, format!("{name}.npy"));
                assert_eq!(
                    npy::npy_from_bytes("x", &m.contents(&bytes).unwrap()).unwrap(),
                    *t
                );
            }
            assert_eq!(back.len(), 3);
        }
    }

    #[test]
    fn members_that_share_bytes_are_refused() {
        let tensors: Vec<(String, Tensor)> = ["a", "b"]
            .map(|n| (n.to_string(), Tensor::from_i32(&[1], &[7]).unwrap()))
            .to_vec();
        let mut bytes = Vec::new();
        write(&mut bytes, &tensors, ZIP64_FROM).unwrap();
        let second = bytes
            .windows(4)
            .rposition(|w| w == CENTRAL.to_le_bytes())
            .unwrap();
        // Both entries point at the first member now, and the names agree.
        bytes[second + 42..second + 46].copy_from_slice(&[0; 4]);
        bytes[second + 46] = b'a';
        assert!(members(&bytes).err().unwrap().contains("share bytes"));
    }
}
