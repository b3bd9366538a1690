//! What was executed, by line and in total.

/// Classes of instructions.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    Integer,
    Float,
    Half,
    Double,
    Special,
    Convert,
    Move,
    Compare,
    Load,
    Store,
    Atomic,
    Async,
    Matrix,
    Warp,
    Barrier,
    Fence,
    Control,
}

impl Class {
    /// All classes, in the order they are printed.
    pub const ALL: [Class; 17] = [
        Class::Integer,
        Class::Float,
        Class::Half,
        Class::Double,
        Class::Special,
        Class::Convert,
        Class::Move,
        Class::Compare,
        Class::Load,
        Class::Store,
        Class::Atomic,
        Class::Async,
        Class::Matrix,
        Class::Warp,
        Class::Barrier,
        Class::Fence,
        Class::Control,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Class::Integer => "integer",
            Class::Float => "f32",
            Class::Half => "f16/bf16",
            Class::Double => "f64",
            Class::Special => "special function",
            Class::Convert => "convert",
            Class::Move => "move",
            Class::Compare => "compare/select",
            Class::Load => "load",
            Class::Store => "store",
            Class::Atomic => "atomic",
            Class::Async => "async copy",
            Class::Matrix => "matrix",
            Class::Warp => "warp",
            Class::Barrier => "barrier",
            Class::Fence => "fence",
            Class::Control => "control",
        }
    }
}

/// Counts of one line, or of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Instructions issued, by warps.
    pub issued: u64,
    /// Lanes active in them.
    pub lanes: u64,
    /// Warp-wide requests to global memory.
    pub global_requests: u64,
    /// 32-byte sectors they touch.
    pub sectors: u64,
    /// 128-byte lines they touch.
    pub lines: u64,
    /// Bytes they ask for.
    pub global_bytes: u64,
    /// Warp-wide requests to shared memory.
    pub shared_requests: u64,
    /// Passes over the 32 banks that they take.
    pub wavefronts: u64,
    /// Passes beyond those that a layout without conflicts takes.
    pub conflicts: u64,
    /// Times a warp came to a CTA barrier.
    pub barriers: u64,
    /// Times it had to wait there.
    pub waits: u64,
}

impl Counts {
    /// Adds `other`.
    pub fn add(&mut self, other: &Counts) {
        self.issued += other.issued;
        self.lanes += other.lanes;
        self.global_requests += other.global_requests;
        self.sectors += other.sectors;
        self.lines += other.lines;
        self.global_bytes += other.global_bytes;
        self.shared_requests += other.shared_requests;
        self.wavefronts += other.wavefronts;
        self.conflicts += other.conflicts;
        self.barriers += other.barriers;
        self.waits += other.waits;
    }
}

/// Counts of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Everything.
    pub total: Counts,
    /// Instructions issued of each class, those with any.
    pub classes: Vec<(Class, u64)>,
    /// By line of the text, ascending, those executed.
    pub by_line: Vec<(u32, Counts)>,
}

/// A request of a warp to global or shared memory, lane by lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Line of the text.
    pub line: u32,
    /// Whether it goes to shared memory; else to global memory.
    pub shared: bool,
    /// The CTA.
    pub cta: [u32; 3],
    /// The warp in its CTA.
    pub warp: u32,
    /// Bytes that each lane asks for.
    pub bytes: u32,
    /// Address of every lane that takes part.
    pub lanes: [Option<u64>; 32],
}

impl Request {
    /// Distinct 32-byte sectors and 128-byte lines of global memory that it touches.
    pub fn sectors(&self) -> (u64, u64) {
        let at: Vec<u64> = self.lanes.iter().flatten().copied().collect();
        sectors(&at, u64::from(self.bytes).max(1))
    }

    /// Passes over the 32 banks of shared memory that it takes, and the fewest it could.
    pub fn passes(&self) -> (u64, u64) {
        let all = self.lanes.iter().enumerate();
        let at: Vec<(u32, u32)> = all
            .filter_map(|(l, a)| Some((l as u32, (*a)? as u32)))
            .collect();
        wavefronts(&at, self.bytes)
    }
}

/// Distinct 32-byte sectors and 128-byte lines that `bytes` at each of `addresses` touch.
pub(crate) fn sectors(addresses: &[u64], bytes: u64) -> (u64, u64) {
    let mut list = [0u64; 64];
    let mut n = 0;
    let mut sorted = true;
    for &a in addresses {
        let (first, last) = (a >> 5, a.saturating_add(bytes - 1) >> 5);
        for s in first..=last {
            if n > 0 && list[n - 1] == s {
                continue;
            }
            sorted &= n == 0 || list[n - 1] < s;
            if n < list.len() {
                list[n] = s;
                n += 1;
            }
        }
    }
    if !sorted {
        list[..n].sort_unstable();
    }
    let (mut s, mut l) = (0, 0);
    for k in 0..n {
        s += u64::from(k == 0 || list[k] != list[k - 1]);
        l += u64::from(k == 0 || list[k] >> 2 != list[k - 1] >> 2);
    }
    (s, l)
}

/// Passes over the banks that one request to shared memory takes, and the fewest it could:
/// accesses of 8 bytes go by half warps, of 16 bytes by quarters; within each pass group, every
/// bank gives one word a pass, to all that want it.
pub(crate) fn wavefronts(lanes: &[(u32, u32)], bytes: u32) -> (u64, u64) {
    let group = match bytes {
        16 => 8,
        8 => 16,
        _ => 32,
    };
    let (mut passes, mut ideal) = (0, 0);
    let mut at = 0;
    while at < lanes.len() {
        let g = lanes[at].0 / group;
        let mut end = at;
        while end < lanes.len() && lanes[end].0 / group == g {
            end += 1;
        }
        passes += pass(&lanes[at..end], bytes);
        ideal += 1;
        at = end;
    }
    (passes, ideal)
}

fn pass(lanes: &[(u32, u32)], bytes: u32) -> u64 {
    let words = bytes.div_ceil(4);
    let mut list = [0u32; 64];
    let mut n = 0;
    let (mut least, mut most) = (u32::MAX, 0);
    for &(_, a) in lanes {
        for w in 0..words {
            let word = (a >> 2) + w;
            if n > 0 && list[n - 1] == word {
                continue;
            }
            least = least.min(word);
            most = most.max(word);
            if n < list.len() {
                list[n] = word;
                n += 1;
            }
        }
    }
    // As many words in a row as there are banks lie in different ones.
    if most - least < 32 {
        return 1;
    }
    list[..n].sort_unstable();
    let mut banks = [0u8; 32];
    let mut most = 0;
    for k in 0..n {
        if k == 0 || list[k] != list[k - 1] {
            let b = &mut banks[(list[k] & 31) as usize];
            *b += 1;
            most = most.max(*b);
        }
    }
    u64::from(most)
}
