//! What the warps of a GPU kernel do beyond its arithmetic and its bytes, and how fast a machine does it.
//!
//! Units and levels say what a kernel takes that wastes nothing. What instructions are issued for addresses
//! and loops, what lanes that lie apart ask of the caches, and how long a warp waits for what it asked for
//! is in the kernel's instructions: whoever prints them reads it off there ([`Warps`]), a prediction adds it
//! up by the machine's figures ([`WarpRates`]).

use crate::{Machine, MachineKind, NumType, UnitClass, Work};
use serde::{Deserialize, Serialize};

/// What runs an instruction of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pipe {
    /// f32 arithmetic and integer products.
    Fma,
    /// f16 arithmetic.
    Half,
    /// f64 arithmetic.
    Double,
    /// Integers, comparisons, selections.
    Alu,
    /// Special functions and conversions.
    Special,
    /// Matrix instructions of a warp.
    Matrix,
    /// Matrix instructions of a warpgroup, in as many turns of a warp's share as one of [`Pipe::Matrix`] has products.
    Warpgroup,
    /// Loads, stores, exchanges between lanes.
    Memory,
    /// Jumps and barriers: a scheduler's slot and nothing else.
    Slot,
}

impl Pipe {
    /// All of them.
    pub const ALL: [Pipe; 9] = [
        Pipe::Fma,
        Pipe::Half,
        Pipe::Double,
        Pipe::Alu,
        Pipe::Special,
        Pipe::Matrix,
        Pipe::Warpgroup,
        Pipe::Memory,
        Pipe::Slot,
    ];
}

/// What all warps of a kernel do together, and how long one of them takes alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Warps {
    /// Machine instructions by what runs them, as [`Pipe::ALL`] lists it.
    pub turns: [f64; Pipe::ALL.len()],
    /// Bytes that shared memory and L1 are busy for: whole sectors, and a turn of the banks for each line.
    pub l1: f64,
    /// Bytes that loads want of operands, and bytes of the sectors that hold them.
    pub wanted: f64,
    /// See [`Warps::wanted`].
    pub loaded: f64,
    /// Bytes of the sectors that stores touch.
    pub stored: f64,
    /// Warps of a task.
    pub per_task: u64,
    /// Tasks that a multiprocessor holds at a time, by the registers and the shared memory of the code.
    pub resident: u64,
    /// Cycles that one warp takes alone.
    pub alone: f64,
    /// Cycles that the CTAs which a multiprocessor holds take when their warps go in step, so that what they
    /// do between two points where they wait overlaps nothing else.
    pub in_step: f64,
}

impl Warps {
    /// Adds instructions.
    pub fn add(&mut self, pipe: Pipe, turns: f64) {
        self.turns[pipe as usize] += turns;
    }

    /// As often: what is added up grows, what one warp takes stays.
    pub fn times(mut self, n: f64) -> Warps {
        self.turns.iter_mut().for_each(|t| *t *= n);
        for v in [
            &mut self.l1,
            &mut self.wanted,
            &mut self.loaded,
            &mut self.stored,
        ] {
            *v *= n;
        }
        self
    }
}

impl std::ops::AddAssign<&Warps> for Warps {
    fn add_assign(&mut self, o: &Warps) {
        self.turns
            .iter_mut()
            .zip(o.turns)
            .for_each(|(a, b)| *a += b);
        self.l1 += o.l1;
        self.wanted += o.wanted;
        self.loaded += o.loaded;
        self.stored += o.stored;
        self.per_task = self.per_task.max(o.per_task);
        self.resident = self.resident.max(o.resident);
        self.alone += o.alone;
        self.in_step += o.in_step;
    }
}

/// How fast a GPU's multiprocessor does what warps ask, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarpRates {
    /// Schedulers of a multiprocessor, each of which issues an instruction per cycle.
    pub schedulers: f64,
    /// Cycles of a scheduler's pipe per instruction, as [`Pipe::ALL`] lists them.
    turns: [f64; Pipe::ALL.len()],
    /// Cycles from an arithmetic instruction to one that needs its result.
    pub dependent: f64,
    /// The same for special functions and for matrix instructions, besides their turn.
    pub special: f64,
    /// See [`WarpRates::special`].
    pub matrix: f64,
    /// Cycles from the last warp's coming to a barrier to all warps' going on.
    pub barrier: f64,
    /// Cycles until a lone load is there, from shared memory, the nearest cache and main memory.
    pub shared: f64,
    /// See [`WarpRates::shared`].
    pub l1: f64,
    /// See [`WarpRates::shared`].
    pub memory: f64,
    /// Bytes of the nearest cache per cycle: a line's tag is looked up in one.
    pub line: f64,
}

impl WarpRates {
    /// Cycles that one instruction keeps its pipe of a scheduler; that of memory belongs to all of them.
    pub fn turn(&self, pipe: Pipe) -> f64 {
        self.turns[pipe as usize]
    }

    /// Cycles from an instruction's last turn to its result.
    pub fn latency(&self, pipe: Pipe) -> f64 {
        match pipe {
            Pipe::Special => self.special,
            Pipe::Matrix | Pipe::Warpgroup => self.matrix,
            _ => self.dependent,
        }
    }

    /// From where loads are answered that ask the nearest cache for `asked` bytes, those of `work` beyond:
    /// shares of these bytes with the cycles that it takes, the farthest first.
    pub fn answers(&self, m: &Machine, work: &Work, asked: f64) -> Vec<(f64, f64)> {
        let clock = m.workers.clock_hz.value;
        let (mut out, mut before, mut nearer) = (vec![], 1.0, self.l1);
        for (i, loaded) in beyond(m, work) {
            let share = (loaded / asked.max(1.0)).min(before);
            out.push((before - share, nearer));
            (before, nearer) = (share, m.levels[i].latency_s.value * clock);
        }
        out.push((before, nearer));
        out.reverse();
        out
    }

    /// Cycles that the levels beyond a multiprocessor's own are busy for what `active` of them load and store
    /// of `work`, of which `stored` bytes in whole sectors go through the caches.
    pub fn beyond(&self, m: &Machine, work: &Work, stored: f64, active: usize) -> [f64; 2] {
        let clock = m.workers.clock_hz.value;
        let mut out = [0.0f64; 2];
        for (i, loaded) in beyond(m, work) {
            let l = &m.levels[i];
            let stored = match i == m.memory_index() {
                true => work.traffic_at(i).stored,
                false => stored,
            };
            out[0] = out[0].max(loaded / l.read.at(active) * clock);
            out[1] = out[1].max(stored / l.write.at(active) * clock);
        }
        out
    }

    /// Cycles from an instruction to the next of a warp that has its scheduler for itself, at best. Measured on an H100
    /// on 27 November 2026: products and attention with one warp per scheduler took 1.2 to 1.6 times as long as one
    /// instruction per cycle would say, those with two what it says.
    pub const LONE: f64 = 1.3;

    /// Cycles that a warp takes alone at least which issues these turns: whatever it waits for comes on top. A product
    /// of a warpgroup has many turns and is issued once.
    pub fn least_alone(&self, turns: &[f64; Pipe::ALL.len()]) -> f64 {
        let issued = turns.iter().zip(Pipe::ALL);
        let issued = issued.filter(|(_, pipe)| *pipe != Pipe::Warpgroup);
        let issued: f64 = issued.map(|(n, _)| n).sum();
        let pipes = turns.iter().zip(&self.turns).map(|(n, each)| n * each);
        // A pipe that is never idle goes on while nothing is issued.
        pipes.fold(Self::LONE * issued, f64::max)
    }

    /// Cycles that a multiprocessor is busy issuing `turns` of instructions.
    pub fn issue(&self, turns: &[f64; Pipe::ALL.len()]) -> f64 {
        let slots: f64 = turns.iter().sum::<f64>() / self.schedulers;
        let own = turns.iter().zip(&self.turns).zip(Pipe::ALL);
        let pipes = own.map(|((n, each), pipe)| match pipe {
            Pipe::Memory => n * each,
            _ => n * each / self.schedulers,
        });
        pipes.fold(slots, f64::max)
    }
}

/// Cycles from an arithmetic instruction to one that needs its result: published for Volta and later (4)
/// and for Maxwell and Pascal (6); taken to be 4 for other vendors' GPUs, which have no compute capability. What follows
/// is in these, as published for A100: a special function and a barrier take about three and five of them besides their
/// turns, `mma` four.
fn dependent(cc: u32) -> f64 {
    match cc {
        1..70 => 6.0,
        _ => 4.0,
    }
}

/// Levels beyond a multiprocessor's own, up to main memory, with the bytes that `work` loads from each.
fn beyond<'a>(m: &'a Machine, work: &'a Work) -> impl Iterator<Item = (usize, f64)> + 'a {
    let own = |name: &str| matches!(name, "register" | "shared" | "L1");
    let all = m.levels.iter().enumerate().take(m.memory_index() + 1);
    all.filter(move |(_, l)| !own(&l.name))
        .map(|(i, _)| (i, work.traffic_at(i).loaded))
}

impl Machine {
    /// The figures that warps of 32 threads are timed by, which wider ones count as several of; `None` for a machine
    /// that is no GPU or lacks one.
    pub fn warp_rates(&self) -> Option<WarpRates> {
        if self.kind != MachineKind::Gpu {
            return None;
        }
        let clock = self.workers.clock_hz.value;
        let schedulers = self.limits.register_files.map_or(4, |f| f.value).max(1) as f64;
        let lanes = |class: UnitClass, dtype: NumType, operations: f64| {
            let unit = self.unit(class, dtype)?;
            let lanes = unit.per_worker.value / clock / operations;
            (lanes > 0.0).then_some(lanes)
        };
        let shared = self.level("shared")?;
        let l1 = self.level("L1").unwrap_or(shared);
        let fma = lanes(UnitClass::Fma, NumType::F32, 2.0)?;
        let alu = lanes(UnitClass::Simple, NumType::I32, 1.0)
            .or(lanes(UnitClass::Simple, NumType::F32, 1.0))
            .unwrap_or(fma);
        let special = lanes(UnitClass::Transcendental, NumType::F32, 1.0)
            .or(lanes(UnitClass::Divsqrt, NumType::F32, 1.0))
            .unwrap_or(fma / 4.0);
        // Lanes of an instruction over those that begin it per cycle and scheduler.
        let turn = |lanes: f64| 32.0 * schedulers / lanes;
        // Multiply-adds counted twice, of one m16n8k16.
        let matrix = |rows: u64| {
            let unit = self.matrix_unit(NumType::F16, rows)?;
            let rate = unit.per_worker.value / clock;
            (rate > 0.0).then(|| schedulers * 2.0 * 16.0 * 8.0 * 16.0 / rate)
        };
        let warp = matrix(16).or(matrix(64)).unwrap_or(0.0);
        let per_cycle = |l: &crate::Level| l.read.per_worker.value / clock;
        let steps = dependent(self.limits.cc);
        Some(WarpRates {
            schedulers,
            turns: [
                turn(fma),
                turn(lanes(UnitClass::Fma, NumType::F16, 4.0).unwrap_or(fma)),
                turn(lanes(UnitClass::Fma, NumType::F64, 2.0).unwrap_or(fma)),
                turn(alu),
                turn(special),
                warp,
                matrix(64).unwrap_or(warp),
                // A lane a word of what shared memory gives.
                32.0 * 4.0 / per_cycle(shared),
                1.0,
            ],
            dependent: steps,
            special: 3.0 * steps,
            matrix: 4.0 * steps,
            barrier: 5.0 * steps,
            shared: shared.latency_s.value * clock,
            l1: l1.latency_s.value * clock,
            memory: self.memory().latency_s.value * clock,
            line: per_cycle(l1),
        })
    }
}
