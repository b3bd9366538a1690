//! A GPU in numbers.

/// A level of memory, as SMs see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// What it holds, of one SM for shared memory and L1, of all for the others.
    pub bytes: f64,
    /// Cycles from a lone load to its value.
    pub latency: f64,
    /// Bytes a cycle that one SM loads from it at most.
    pub per_sm: f64,
    /// Bytes a cycle that all SMs load from it.
    pub read: f64,
    /// Bytes a cycle that all SMs store to it.
    pub write: f64,
}

/// Operations (multiply-adds counted twice) per cycle of an SM's matrix units, by the format of the factors;
/// 0 where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MatrixRates {
    /// f16.
    pub half: f64,
    /// bf16.
    pub bf16: f64,
    /// tf32.
    pub tf32: f64,
    /// 8-bit integers.
    pub int8: f64,
}

/// A GPU in numbers, in cycles of its SMs' clock, with as many CTAs on an SM as the launch's registers and
/// shared memory let be there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// SMs.
    pub sms: u32,
    /// Schedulers of an SM: instructions that it issues per cycle.
    pub schedulers: u32,
    /// CTAs of the launch that are on an SM together.
    pub ctas_per_sm: u32,
    /// Registers of a thread: how many values an assembler lets be under way at once.
    pub registers: u32,
    /// Cycles from a CTA's place being free to its first instruction.
    pub cta_start: f64,
    /// Lanes of an SM that begin an f32 instruction per cycle.
    pub fma: f64,
    /// The same for f16, of which an instruction has one or two a lane; 0 where there is none.
    pub half: f64,
    /// The same for f64; 0 where there is none.
    pub double: f64,
    /// The same for integers, comparisons and logic.
    pub alu: f64,
    /// The same for special functions and conversions.
    pub special: f64,
    /// The same for addresses of loads and stores.
    pub memory: f64,
    /// The matrix units.
    pub matrix: MatrixRates,
    /// Cycles from an instruction to one that needs its result.
    pub dependent: f64,
    /// The same for special functions, besides their turn in the pipe.
    pub special_latency: f64,
    /// The same for matrix instructions, besides their turn in the pipe.
    pub matrix_latency: f64,
    /// Cycles from the last warp's coming to a barrier to all warps' going on.
    pub barrier: f64,
    /// Shared memory.
    pub shared: Level,
    /// L1, what shared memory leaves of it.
    pub l1: Level,
    /// L2.
    pub l2: Level,
    /// Device memory.
    pub device: Level,
}

impl Timing {
    /// The first number that no machine can have.
    pub(super) fn wrong(&self) -> Option<&'static str> {
        let levels = [self.shared, self.l1, self.l2, self.device];
        let rate = |v: f64| v.is_finite() && v > 0.0;
        let cost = |v: f64| v.is_finite() && (0.0..=1e9).contains(&v);
        if self.sms == 0 || self.sms > 4096 || self.schedulers == 0 || self.schedulers > 16 {
            return Some("1 to 4096 SMs with 1 to 16 schedulers each are possible");
        }
        if self.ctas_per_sm == 0 {
            return Some("no CTA fits on an SM");
        }
        if ![self.fma, self.alu, self.special, self.memory]
            .into_iter()
            .all(rate)
        {
            return Some("f32, integer, special and memory pipes need a rate");
        }
        if !levels
            .iter()
            .all(|l| rate(l.per_sm) && rate(l.read) && rate(l.write))
        {
            return Some("every level needs a rate");
        }
        let costs = [
            self.cta_start,
            self.dependent,
            self.special_latency,
            self.matrix_latency,
            self.barrier,
        ];
        let latencies = levels.iter().map(|l| l.latency);
        if !latencies.chain(costs).all(cost) {
            return Some("latencies are numbers of cycles from 0");
        }
        if !levels
            .iter()
            .all(|l| l.bytes.is_finite() && (0.0..=1e15).contains(&l.bytes))
        {
            return Some("every level needs a size");
        }
        None
    }
}
