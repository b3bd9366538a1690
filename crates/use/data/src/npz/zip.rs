//! The part of the zip format that archives of arrays use.
//!
//! Reading goes by the central directory alone, takes stored and deflated members and the 64-bit
//! extension, and refuses members that overlap, so that what is unpacked stays in proportion to the
//! file. Writing stores members without compression, at a fixed date, with their sizes in front of them:
//! readers that go from header to header need those, and the library that reads here puts them behind.

use crate::npy;
use flate2::{Crc, Decompress, FlushDecompress, Status};
use layout::Arrange;
use rawzip::{CompressionMethod, ZipArchive, ZipFileHeaderRecord, ZipSliceArchive};
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
pub(super) struct Member<'a> {
    pub(super) name: String,
    deflated: bool,
    crc: u32,
    packed: &'a [u8],
    unpacked: usize,
    /// Where its header begins and its data end.
    range: (u64, u64),
}

/// Members in the order of the central directory.
pub(super) fn members(b: &[u8]) -> Result<Vec<Member<'_>>, String> {
    let archive = ZipArchive::from_slice(b).map_err(|e| {
        format!("its end record is missing or damaged ({e}); copy or save it again")
    })?;
    let mut members = Vec::new();
    for (k, record) in archive.entries().enumerate() {
        let damaged =
            |e| format!("entry {k} of its directory is damaged ({e}); copy or save it again");
        members.push(member(b, &archive, &record.map_err(damaged)?)?);
    }
    if members.len() as u64 != archive.entries_hint() {
        return Err(
            "its directory does not hold as many entries as its end record says; save it again"
                .into(),
        );
    }
    let mut ranges: Vec<_> = members.iter().map(|m| m.range).collect();
    ranges.arrange();
    if ranges.windows(2).any(|w| w[1].0 < w[0].1) {
        return Err("two of its members share bytes; save it again".into());
    }
    Ok(members)
}

/// What an entry of the directory stands for, where its own header agrees.
fn member<'a>(
    b: &'a [u8],
    archive: &ZipSliceArchive<&'a [u8]>,
    record: &ZipFileHeaderRecord<'_>,
) -> Result<Member<'a>, String> {
    let raw = record.file_path();
    let name = std::str::from_utf8(raw.as_bytes())
        .map_err(|_| "the name of a member is not UTF-8; save it with numpy.savez")?;
    let damaged = || format!("the header of its member {name:?} is damaged; copy or save it again");
    if record.flags().is_encrypted() {
        return Err(format!(
            "its member {name:?} is encrypted; save it without a password"
        ));
    }
    let deflated = match record.compression_method() {
        CompressionMethod::STORE => false,
        CompressionMethod::DEFLATE => true,
        method => {
            return Err(format!(
                "its member {name:?} is packed by {method}; save it with numpy.savez or savez_compressed"
            ));
        }
    };
    let entry = archive
        .get_entry(record.wayfinder())
        .map_err(|_| damaged())?;
    if entry.local_header().file_path().as_bytes() != raw.as_bytes() {
        return Err(damaged());
    }
    let (data, end) = entry.compressed_data_range();
    let bytes = |at: u64| usize::try_from(at).map_err(|_| damaged());
    Ok(Member {
        name: name.to_string(),
        deflated,
        crc: record.crc32(),
        packed: b.get(bytes(data)?..bytes(end)?).ok_or_else(damaged)?,
        unpacked: bytes(record.uncompressed_size_hint())?,
        range: (record.local_header_offset(), end),
    })
}

impl<'a> Member<'a> {
    /// Its bytes when unpacked, as the directory says.
    pub(super) fn unpacked(&self) -> u64 {
        self.unpacked as u64
    }

    /// The member's bytes, unpacked and checked.
    pub(super) fn contents(&self) -> Result<Cow<'a, [u8]>, String> {
        let damaged = |what: &str| {
            format!(
                "{what} of its member {:?} is damaged; copy or save it again",
                self.name
            )
        };
        let data: Cow<[u8]> = if self.deflated {
            self.inflate()?.into()
        } else {
            self.packed.into()
        };
        if data.len() != self.unpacked {
            return Err(damaged("the size"));
        }
        let mut crc = Crc::new();
        crc.update(&data);
        if crc.sum() != self.crc {
            return Err(damaged("the data (its checksum differs)"));
        }
        Ok(data)
    }

    /// Unpacks into memory that was asked for at once and may be refused.
    fn inflate(&self) -> Result<Vec<u8>, String> {
        // The format cannot say more in fewer bytes: a larger size is none that the data has.
        if self.unpacked / DENSEST > self.packed.len() {
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
        let mut state = Decompress::new(false);
        let read = state.decompress(self.packed, &mut data, FlushDecompress::Finish);
        match read {
            Ok(Status::StreamEnd) if state.total_out() == self.unpacked() => Ok(data),
            _ => Err(format!(
                "the compressed data of its member {:?} is damaged; copy or save it again",
                self.name
            )),
        }
    }
}

/// Writes `tensors` as an archive; sizes and offsets of `wide` or more take the 64-bit extension.
pub fn write(mut out: impl Write, tensors: &[(String, Tensor)], wide: u64) -> std::io::Result<()> {
    let mut central = Vec::new();
    let mut offset = 0u64;
    for (key, tensor) in tensors {
        let name = format!("{key}.npy");
        let (header, data) = npy::parts(tensor);
        let size = (header.len() + data.len()) as u64;
        let mut crc = Crc::new();
        crc.update(&header);
        crc.update(&data);
        let crc = crc.sum();
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
