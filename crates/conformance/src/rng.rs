/// Numbers that are the same in every run.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A sequence of its own per seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// In `0..n`, which is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.bits() >> 33) % n.max(1) as u64) as usize
    }

    /// One of `list`.
    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// In -1..1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// True once in `n`.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// An extent: often 1, a prime, odd or a power of two, now and then 0.
    pub fn extent(&mut self, most: i64) -> i64 {
        let n = self.of(&[
            0i64, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 37, 64, 67,
        ]);
        n.min(most)
    }

    /// As [`Rng::extent`], at least 1.
    pub fn some(&mut self, most: i64) -> i64 {
        self.extent(most).max(1)
    }
}
