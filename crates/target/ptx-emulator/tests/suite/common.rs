//! Running kernels in few words.

use shopfloor_ptx_emulator::*;

/// The head of every module.
pub const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// A machine with one module.
pub struct Bench {
    pub machine: Machine,
    pub module: Module,
}

impl Bench {
    pub fn new(source: &str) -> Bench {
        let mut machine = Machine::new();
        let module = match machine.load(source) {
            Ok(m) => m,
            Err(e) => panic!("{e}\n{}", numbered(source)),
        };
        Bench { machine, module }
    }

    pub fn buffer(&mut self, bytes: usize) -> u64 {
        self.machine
            .memory
            .allocate(bytes as u64, MemoryKind::Device)
            .unwrap()
    }

    pub fn bytes(&mut self, data: &[u8]) -> u64 {
        let at = self.buffer(data.len());
        self.machine.memory.write(at, data).unwrap();
        at
    }

    pub fn words(&mut self, data: &[u32]) -> u64 {
        let all: Vec<u8> = data.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.bytes(&all)
    }

    pub fn floats(&mut self, data: &[f32]) -> u64 {
        let bits: Vec<u32> = data.iter().map(|v| v.to_bits()).collect();
        self.words(&bits)
    }

    pub fn run(&mut self, l: &Launch) -> Outcome {
        match self.machine.run(&self.module, l) {
            Ok(o) => o,
            Err(e) => panic!("{e}"),
        }
    }

    /// Runs and wants no findings.
    pub fn clean(&mut self, l: &Launch) -> Outcome {
        let o = self.run(l);
        let all: Vec<String> = o.reports.iter().map(ToString::to_string).collect();
        assert!(o.clean(), "{}", all.join("\n"));
        o
    }

    pub fn read(&self, at: u64, n: usize) -> Vec<u32> {
        let b = self.machine.memory.read(at, 4 * n).unwrap();
        b.chunks_exact(4)
            .map(|c| u32::from_le_bytes(c.try_into().unwrap()))
            .collect()
    }

    pub fn read_floats(&self, at: u64, n: usize) -> Vec<f32> {
        self.read(at, n).into_iter().map(f32::from_bits).collect()
    }
}

pub fn numbered(source: &str) -> String {
    let lines = source.lines().enumerate();
    lines
        .map(|(k, l)| format!("{:4} {l}\n", k + 1))
        .collect::<String>()
}

/// A launch of `kernel` with these dimensions along x.
pub fn launch(kernel: &str, grid: u32, block: u32) -> Launch {
    Launch {
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        ..Launch::new(kernel)
    }
}

/// The line (from 1) that contains `mark`, the first behind `after` (a kernel's name).
pub fn line_of(source: &str, after: &str, mark: &str) -> u32 {
    let mut lines = source
        .lines()
        .enumerate()
        .skip_while(|(_, l)| !(l.contains(".entry") && l.split(['(', ' ']).any(|w| w == after)));
    let found = lines.find(|(_, l)| l.contains(mark));
    found.map_or_else(
        || panic!("no '{mark}' behind {after}"),
        |(k, _)| k as u32 + 1,
    )
}

/// The one finding of a run, of this kind and at this line.
pub fn only(o: &Outcome, kind: Finding, line: u32) -> Report {
    let all: Vec<String> = o.reports.iter().map(ToString::to_string).collect();
    let found = o.reports.iter().find(|r| r.kind == kind && r.line == line);
    assert!(
        found.is_some() && o.reports.iter().all(|r| r.kind == kind),
        "wanted {kind:?} at line {line}, found:\n{}",
        all.join("\n")
    );
    found.unwrap().clone()
}

/// Numbers that repeat from run to run.
pub struct Rng(fastrand::Rng);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(fastrand::Rng::with_seed(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// In -1..1, a multiple of 1/256.
    pub fn small(&mut self) -> f32 {
        self.0.i16(-256..=256) as f32 / 256.0
    }
}

/// f16 bits of a number that f16 holds exactly.
pub fn f16(v: f32) -> u16 {
    let b = v.to_bits();
    let e = (b >> 23 & 0xff) as i32 - 112;
    if b & 0x7fff_ffff == 0 {
        return (b >> 16) as u16;
    }
    assert!(e > 0 && e < 31 && b & 0x1fff == 0, "{v} is no f16");
    ((b >> 16 & 0x8000) | (e as u32) << 10 | (b >> 13 & 0x3ff)) as u16
}
