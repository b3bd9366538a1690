//! The simulator's random numbers: seeded, the same everywhere.
/// Random numbers that are the same everywhere for the same seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Numbers of stream `stream` under `seed`: streams do not disturb each other.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut r = Rng(seed ^ stream.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        r.bits();
        r
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Between 0 (included) and 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Pareto distributed with mean 1 and tail exponent `alpha` above 1.
    pub fn pareto(&mut self, alpha: f64) -> f64 {
        let least = (alpha - 1.0) / alpha;
        least / (1.0 - self.unit()).powf(1.0 / alpha)
    }

    /// Normally distributed with mean 0 and deviation 1, cut at 4.
    pub fn normal(&mut self) -> f64 {
        let r = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        (r * (std::f64::consts::TAU * self.unit()).cos()).clamp(-4.0, 4.0)
    }
}
