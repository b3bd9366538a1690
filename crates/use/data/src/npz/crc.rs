//! CRC-32 as zip uses it (reflected 0xEDB88320), eight bytes per round.

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut t = [[0; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 == 1 {
                0xEDB8_8320 ^ (c >> 1)
            } else {
                c >> 1
            };
            bit += 1;
        }
        t[0][i] = c;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            t[k][i] = (t[k - 1][i] >> 8) ^ t[0][(t[k - 1][i] & 255) as usize];
            i += 1;
        }
        k += 1;
    }
    t
}

/// Checksum of data that comes in pieces.
pub(super) struct Crc(u32);

impl Crc {
    pub(super) fn new() -> Crc {
        Crc(!0)
    }

    pub(super) fn update(&mut self, data: &[u8]) {
        let mut chunks = data.chunks_exact(8);
        for c in &mut chunks {
            let lo = self.0 ^ u32::from_le_bytes([c[0], c[1], c[2], c[3]]);
            self.0 = TABLES[7][(lo & 255) as usize]
                ^ TABLES[6][(lo >> 8 & 255) as usize]
                ^ TABLES[5][(lo >> 16 & 255) as usize]
                ^ TABLES[4][(lo >> 24) as usize]
                ^ TABLES[3][c[4] as usize]
                ^ TABLES[2][c[5] as usize]
                ^ TABLES[1][c[6] as usize]
                ^ TABLES[0][c[7] as usize];
        }
        for &b in chunks.remainder() {
            self.0 = TABLES[0][((self.0 ^ u32::from(b)) & 255) as usize] ^ (self.0 >> 8);
        }
    }

    pub(super) fn finish(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Crc;

    #[test]
    fn the_standard_check_value() {
        let mut c = Crc::new();
        c.update(b"12345");
        c.update(b"6789");
        assert_eq!(c.finish(), 0xCBF4_3926);
        let mut c = Crc::new();
        c.update(b"The quick brown fox jumps over the lazy dog");
        assert_eq!(c.finish(), 0x414F_A339);
    }
}
