//! The data of schedules: tiles, grid and loop order, places of tiles, and the backend's mapping. The planner
//! chooses them, `lower` makes loops of them; no executor or emitter chooses anything else.
use crate::{AxisId, AxisTile, Code, OperandId, TileId};
use layout::{Arrange, DType};
use machine::NumType;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where a tile lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A loaded tile that is the operand's own memory: nothing is copied. On a stored tile: the
    /// tile is written straight into the operand.
    InPlace,
    /// Registers (a CPU: the innermost cache, as far as micro-kernels spill there).
    Register,
    /// The level shared by a CTA; on a CPU scratch memory in L1 or L2.
    Shared {
        /// Bank-conflict swizzle.
        swizzle: Swizzle,
        /// Buffers in flight: 1 without a pipeline.
        stages: u32,
    },
    /// The same for a factor of a warpgroup's products that lies in its operand as these read it
    /// ([`crate::Access::image`]): one copy brings a piece, which a warp of [`GpuMapping::copiers`] begins.
    Image {
        /// Buffers in flight.
        stages: u32,
    },
    /// The same for a factor of a warpgroup's products of which each piece is a box of its operand as a tensor
    /// ([`crate::Access::tensor`]): one copy brings it, which a warp of [`GpuMapping::copiers`] begins, in a step that is a
    /// launch of its own.
    Tensor {
        /// How warpgroups read its lines ([`Swizzle::of_lines`]).
        swizzle: Swizzle,
        /// Buffers in flight.
        stages: u32,
    },
    /// Nowhere: a tile that a `Map` or `Relabel` defines is computed anew wherever it is read.
    Recompute,
    /// A loaded tile of the parts of a sum: each part is in the shared memory of one CTA of the cluster, where the step
    /// before in the same launch left it ([`Combined::InCluster`]). In a launch of its own the step reads the operand.
    Cluster,
}

/// How the parts of a sum, which the tasks of a kernel make, come together in one launch with the step that adds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Combined {
    /// Through memory: of the CTAs that make parts of one sum the last to arrive adds them.
    #[default]
    ByLast,
    /// The CTAs of a cluster make the parts of one sum, and each adds its share of the elements, which it reads from the
    /// shared memory of all of them.
    InCluster,
}

impl Place {
    /// Buffers in flight of a tile that a CTA shares.
    pub fn stages(self) -> Option<u32> {
        match self {
            Place::Shared { stages, .. }
            | Place::Image { stages }
            | Place::Tensor { stages, .. } => Some(stages),
            Place::InPlace | Place::Register | Place::Recompute | Place::Cluster => None,
        }
    }

    /// The same place, to which threads copy.
    pub fn by_threads(self) -> Place {
        match self {
            Place::Tensor { swizzle, stages } => Place::Shared { swizzle, stages },
            place => place.alone(),
        }
    }

    /// The same place for a CTA without a cluster.
    pub fn alone(self) -> Place {
        match self {
            Place::Cluster => Place::Register,
            place => place,
        }
    }
}

/// The CuTe-style swizzle (bits, base, shift): XOR of address bits; (0, 0, 0) is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Swizzle {
    pub bits: u32,
    pub base: u32,
    pub shift: u32,
}

/// A CPU micro-kernel's register tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MicroKernel {
    /// Rows of the accumulator held in registers.
    pub mr: u32,
    /// Columns (a multiple of the vector width).
    pub nr: u32,
}

/// What the CPU backend needs beside tiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CpuMapping {
    /// Register tile of contractions; `None` for programs without one.
    pub micro: Option<MicroKernel>,
    /// The axes whose product is the accumulator's rows (outermost first).
    pub rows: Vec<AxisId>,
    /// The axis that runs along vector lanes.
    pub lanes: Option<AxisId>,
}

/// What a tensor-core instruction multiplies of its factors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Factors {
    /// The elements.
    #[default]
    Whole,
    /// f32 elements near numbers of TF32, which have 11 bits: one product.
    Tf32,
    /// f32 elements in two parts of TF32 each: three products, the one of both lower parts left out. As exact as
    /// multiply-adds, which take over where a part would be no finite or no normal number.
    Tf32x3,
    /// f32 elements near numbers of bf16, which have 8 bits and the range of f32: one product. What is finite stays
    /// finite; of subnormal numbers and their products matrix units may keep nothing.
    Bf16,
    /// f32 elements in two parts of bf16 each, some 16 bits: three products, the one of both lower parts left out.
    /// Multiply-adds take over where a part would be no finite number. Below 2^-117 lower parts are no normal numbers, and
    /// fewer bits count.
    Bf16x3,
}

/// A tensor-core instruction's shape and types: `m` is 16 for one that a warp executes (`mma`), 64 for one of a
/// warpgroup (`wgmma`), whose factors lie along `k` in shared memory, in lines of 32, 64 or 128 bytes that
/// [`Swizzle::of_lines`] spreads over the banks; longer ones in parts behind each other. Of an attention, whose weights are
/// a left factor in registers, it is the instruction of the scores ([`Fragment::of_columns`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Fragment {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub input: DType,
    pub acc: DType,
    #[serde(default)]
    pub factors: Factors,
    /// Type of the right factor, with the columns, where it is another than `input`.
    #[serde(default)]
    pub right: Option<DType>,
}

/// Rows that a warp has of a tensor-core instruction's sums.
pub const WARP_ROWS: u32 = 16;

impl Fragment {
    /// Warps that execute one instruction together: 1, or the 4 of a warpgroup, which read their factors from shared
    /// memory, weights and the left one of f32 that other warps copy from registers, where the instruction goes on beside what
    /// follows.
    pub fn warps(&self) -> u32 {
        (self.m / WARP_ROWS).max(1)
    }

    /// What it is called in texts: `mma.m16n8k16 f16->f32`, or `wgmma` in front where a warpgroup executes it.
    pub fn name(&self) -> String {
        let executed = if self.warps() == 1 { "mma" } else { "wgmma" };
        let (factors, acc) = (self.factor_name(), self.acc);
        format!(
            "{executed}.m{}n{}k{} {factors}->{acc}",
            self.m, self.n, self.k
        )
    }

    /// Types of the left factor, with the rows, and of the right one.
    pub fn types(&self) -> [DType; 2] {
        [self.input, self.right.unwrap_or(self.input)]
    }

    /// Types of both factors as the words of fragments have them.
    pub fn multiplied(&self) -> [DType; 2] {
        match self.factors {
            Factors::Whole | Factors::Tf32 | Factors::Tf32x3 => self.types(),
            Factors::Bf16 | Factors::Bf16x3 => [DType::BF16; 2],
        }
    }

    /// The instruction for sums of so many columns, where a warpgroup executes it: it has all of them.
    pub fn of_columns(self, n: u32) -> Fragment {
        match self.warps() {
            1 => self,
            _ => Fragment { n, ..self },
        }
    }

    /// Whether a right factor may lie across what is summed though both factors of a product of such instructions alone
    /// lie along it: a warpgroup's turn elements of 16 bits.
    pub fn turns_right(&self) -> bool {
        self.warps() > 1 && self.input.bits() == 16
    }

    /// Whether both factors have to lie along what is summed: no instruction turns elements of 8 bits, or what a
    /// warpgroup reads of others than 16, and of these the right factor alone.
    pub fn along_depth(&self) -> bool {
        self.warps() > 1 || self.input.bits() == 8
    }

    /// Instructions for one product of its size.
    pub fn products(&self) -> u32 {
        match self.factors {
            Factors::Whole | Factors::Tf32 | Factors::Bf16 => 1,
            Factors::Tf32x3 | Factors::Bf16x3 => 3,
        }
    }

    /// Copies of a piece of each factor that lie beside its stages in shared memory where so many warps only copy: what a
    /// warpgroup multiplies of f32, one part or two, of the piece that is multiplied and of the one that is made ready
    /// meanwhile. Where warps copy, threads make it of the left factor in registers, and the right one lies as it is
    /// multiplied ([`Place::Image`]).
    pub fn copies_beside(&self, copiers: u32) -> u32 {
        match self.factors {
            _ if self.warps() == 1 || copiers > 0 => 0,
            // Words of bf16 are made in registers.
            Factors::Whole | Factors::Bf16 | Factors::Bf16x3 => 0,
            Factors::Tf32 => 2,
            Factors::Tf32x3 => 4,
        }
    }

    /// What its factors are to execution units.
    pub fn number(&self) -> NumType {
        match self.factors {
            Factors::Whole if self.input.bits() == 8 => NumType::I8,
            Factors::Whole => NumType::from(self.input),
            Factors::Tf32 | Factors::Tf32x3 => NumType::Tf32,
            Factors::Bf16 | Factors::Bf16x3 => NumType::Bf16,
        }
    }

    /// What its factors are called in texts.
    pub fn factor_name(&self) -> String {
        match self.factors {
            Factors::Whole => match self.right {
                Some(right) => format!("{}*{right}", self.input),
                None => self.input.to_string(),
            },
            Factors::Tf32 => "tf32".into(),
            Factors::Tf32x3 => "3xtf32".into(),
            Factors::Bf16 => "bf16(f32)".into(),
            Factors::Bf16x3 => "3xbf16".into(),
        }
    }
}

/// How the positions of an axis lie over the threads of a CTA, the same for every tile that has it:
/// position `p` of a piece belongs to the threads with `(thread / stride) % count == (p / each) %
/// count`. An axis without a spread has all its positions in every thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Spread {
    /// The axis.
    pub axis: AxisId,
    /// Distance between threads with neighbouring shares.
    pub stride: u32,
    /// Threads along the axis.
    pub count: u32,
    /// Neighbouring positions that one thread has together.
    pub each: u32,
}

/// What a GPU backend needs beside tiles.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GpuMapping {
    /// Threads per CTA.
    pub threads: u32,
    /// Warps along the accumulator's rows and columns. With a tensor-core instruction there may be several times
    /// as many: then as many of each place share the depth of every piece ([`GpuMapping::deep`]).
    pub warps: [u32; 2],
    /// Warps, the last ones of the CTA, that copy the pieces of a product's factors ahead of those that multiply them,
    /// and do nothing else; 0: all threads copy, and meet for every piece. A multiple of a warpgroup's four, which hand
    /// over the registers that they do not need.
    #[serde(default)]
    pub copiers: u32,
    /// CTAs that a launch has at most, each of which walks tasks so many apart: its warps that copy bring pieces of the
    /// next task while the others store what they computed for the last one. 0: a CTA for every task. Where a kernel
    /// stays, its CTAs take tasks by rules of their own, one at a time.
    #[serde(default)]
    pub walkers: u32,
    /// CTAs of a cluster, which have neighbouring tasks ([`Schedule::neighbours`]): of each piece of a factor that these
    /// read alike ([`Schedule::is_multicast`]) each CTA copies its share, to the shared memory of all of them; or they make
    /// the parts of one sum ([`GpuMapping::combined`]), or add them ([`Place::Cluster`]). 1: each CTA is for itself, as it is
    /// in a launch of other steps and where a kernel stays.
    #[serde(default = "once")]
    pub cluster: u32,
    /// How the parts of sums that it makes come together, where it makes such: the parts of one sum are those of a cluster,
    /// or go through memory.
    #[serde(default)]
    pub combined: Combined,
    /// The accumulator's row axes (outermost first).
    pub rows: Vec<AxisId>,
    /// The accumulator's column axes.
    pub columns: Vec<AxisId>,
    /// Tensor-core instruction; `None`: fused multiply-add.
    pub fragment: Option<Fragment>,
    /// Bytes per global load instruction.
    pub load_bytes: u32,
    /// Bytes per global store instruction of a matrix instruction's results at most, for which lanes exchange them where
    /// neighbours lie together; 0: each lane stores what it has.
    #[serde(default)]
    pub store_bytes: u32,
    /// Registers per thread that the kernel may use.
    pub registers: u32,
    /// Times that the innermost loops over a thread's own positions are written out (without a
    /// tensor-core instruction, whose loops over fragments are written out whole).
    #[serde(default = "once")]
    pub unroll: u32,
    /// Axes that lie over threads (without a tensor-core instruction, whose fragments say it).
    #[serde(default)]
    pub spread: Vec<Spread>,
    /// PTX that its user wrote for the kernel, which is launched in place of what is printed of the rest;
    /// what the kernel computes and what it is predicted to take are read off the tile program still.
    #[serde(default)]
    pub code: Option<Arc<Code>>,
    /// Operands that nothing writes while requests run, in their order: what the first stages in shared memory hold of
    /// them is copied before the CTA waits for the kernels before it.
    #[serde(default)]
    pub constants: Vec<OperandId>,
    /// Whether it says, as soon as it has waited for the kernels before it, that the kernel behind it may be launched
    /// (programmatic dependent launch); else that one is launched when all CTAs are over.
    #[serde(default)]
    pub triggers: bool,
}

/// CTAs of a launch for so many tasks, of [`GpuMapping::walkers`].
pub fn ctas(walkers: u32, tasks: u64) -> u64 {
    match walkers {
        0 => tasks,
        n => tasks.min(n.into()),
    }
}

fn once() -> u32 {
    1
}

/// Threads of a warp.
const WARP: u32 = 32;
/// Registers of a thread that copies.
const COPIER_REGISTERS: u32 = 56;
/// Registers of a thread that computes beside such ones: more cannot be addressed.
const MOST_COMPUTING: u32 = 248;

impl GpuMapping {
    /// Warps along the depth of a product by a tensor-core instruction.
    pub fn deep(&self) -> u32 {
        let flat = self.warps[0]
            .saturating_mul(self.warps[1])
            .saturating_mul(32);
        match self.fragment.is_some() && flat > 0 {
            true => (self.computing() / flat).max(1),
            false => 1,
        }
    }

    /// What the warps do, as texts of schedules say it: `8x1 and 4 to copy`.
    pub fn warps_text(&self) -> String {
        let [rows, columns] = self.warps;
        let deep = match self.deep() {
            1 => String::new(),
            n => format!("x{n} deep"),
        };
        let copying = match self.copiers {
            0 => String::new(),
            n => format!(" and {n} to copy"),
        };
        format!("{rows}x{columns}{deep}{copying}")
    }

    /// Threads that compute, from 0 on: all but those of [`GpuMapping::copiers`].
    pub fn computing(&self) -> u32 {
        self.threads
            .saturating_sub(self.copiers.saturating_mul(WARP))
    }

    /// Pieces of a loop that are copied before the first one is read, where so many stages hold them: by warps of their
    /// own one each, else as many as no thread reads meanwhile.
    pub fn pieces_ahead(&self, stages: u32) -> u32 {
        let group = self.fragment.is_some_and(|f| f.warps() > 1);
        match self.copiers {
            0 => stages.saturating_sub(1 + u32::from(group && stages > 2)),
            n => n.min(stages),
        }
    }

    /// The same for the threads that compute, without those that only copy.
    pub fn of_computing(&self) -> GpuMapping {
        GpuMapping {
            threads: self.computing(),
            copiers: 0,
            walkers: 0,
            cluster: 1,
            combined: Combined::ByLast,
            ..self.clone()
        }
    }

    /// Registers of each thread while some warps copy: of those that compute, and of those that copy. All threads
    /// together keep the [`GpuMapping::registers`] that each of them begins with.
    pub fn shared_out(&self) -> [u32; 2] {
        let (computing, all) = (self.computing(), self.threads);
        // Where each begins with all that it can address, none are handed over.
        if self.copiers == 0 || computing == 0 || self.registers >= MOST_COMPUTING {
            return [self.registers; 2];
        }
        let copying = COPIER_REGISTERS.min(self.registers);
        let left = (self.registers * all).saturating_sub(copying * (all - computing));
        [(left / computing / 8 * 8).min(MOST_COMPUTING), copying]
    }

    /// How `axis` lies over threads; one thread along it where nothing says so.
    pub fn spread(&self, axis: AxisId) -> Spread {
        let found = self.spread.iter().find(|s| s.axis == axis);
        found.copied().unwrap_or(Spread {
            axis,
            stride: 1,
            count: 1,
            each: 1,
        })
    }

    /// Strides and counts of the directions that threads are numbered along, innermost first;
    /// several axes may share one.
    pub fn directions(&self) -> Vec<(u32, u32)> {
        let mut all: Vec<(u32, u32)> = self
            .spread
            .iter()
            .filter(|s| s.count > 1)
            .map(|s| (s.stride, s.count))
            .collect();
        all.arrange();
        all.dedup();
        all
    }
}

/// The backend's part of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mapping {
    /// For the CPU.
    Cpu(CpuMapping),
    /// For PTX and WGSL.
    Gpu(GpuMapping),
}

/// How a kernel runs, completely: an emitter or executor chooses nothing.
///
/// Axes in `grid` become tasks, axes in `loops` become sequential loops inside a task (both
/// outermost first), all others are whole in every tile. A task is one grid point; neighbours in
/// raster order are handed out `chunk` at a time.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Schedule {
    /// Parallel axes, outermost first; the last varies fastest from task to task.
    pub grid: Vec<AxisTile>,
    /// Sequential axes, outermost first.
    pub loops: Vec<AxisTile>,
    /// Place of every tile of the kernel, by [`TileId`].
    pub places: Vec<Place>,
    /// Consecutive tasks that one worker takes at once.
    pub chunk: i64,
    /// Width, in tiles of the last grid axis but one, of the bands that raster order walks
    /// (1: plain row-major order).
    pub raster: i64,
    /// The backend's part.
    pub mapping: Mapping,
}

impl Schedule {
    /// Tile of `axis` in grid or loops, if it is cut.
    pub fn tile(&self, axis: AxisId) -> Option<i64> {
        self.grid
            .iter()
            .chain(&self.loops)
            .find(|t| t.axis == axis)
            .map(|t| t.tile)
    }

    /// Positions of `axis` that a tile has room for on a GPU: those of a piece, of which there are no more than the
    /// axis has, but fragments are whole; `None` where that is not known.
    pub fn positions(&self, kernel: &crate::Kernel, axis: AxisId) -> Option<i64> {
        let extent = kernel.axes.get(axis as usize)?.extent.known();
        let fragments = matches!(&self.mapping, Mapping::Gpu(g) if g.fragment.is_some());
        match (self.tile(axis), extent) {
            (Some(t), _) if fragments => Some(t),
            (Some(t), Some(e)) => Some(t.min(e.max(1))),
            (t, e) => t.or(e.map(|e| e.max(1))),
        }
    }

    /// The axis along which neighbouring tasks lie: the last one of the grid, or where tasks go in bands the one before it.
    pub fn neighbours(&self) -> Option<AxisTile> {
        let back = usize::from(self.raster > 1 && self.grid.len() > 1);
        self.grid.iter().rev().nth(back).copied()
    }

    /// CTAs of a cluster.
    pub fn cluster(&self) -> u32 {
        match &self.mapping {
            Mapping::Gpu(g) => g.cluster,
            Mapping::Cpu(_) => 1,
        }
    }

    /// Whether the CTAs of a cluster make the parts of one sum, each in its shared memory.
    pub fn gives_parts(&self) -> bool {
        matches!(&self.mapping, Mapping::Gpu(g) if g.combined == Combined::InCluster)
    }

    /// Whether the CTAs of a cluster add what the step before left in their shared memory.
    pub fn adds_parts(&self) -> bool {
        self.places.contains(&Place::Cluster)
    }

    /// CTAs that copy to each other's shared memory.
    pub fn among(&self) -> u32 {
        match self.gives_parts() || self.adds_parts() {
            true => 1,
            false => self.cluster(),
        }
    }

    /// Whether the CTAs of a cluster copy tile `t`, as which `operand` is loaded, together: one copy brings a piece, and it is
    /// the same for tasks that are neighbours.
    pub fn is_multicast(&self, kernel: &crate::Kernel, t: TileId, operand: OperandId) -> bool {
        let at_once = matches!(self.place(t), Place::Image { .. } | Place::Tensor { .. });
        let alike = |c: AxisTile| !kernel.depends(operand).contains(&c.axis);
        self.cluster() > 1 && !self.gives_parts() && at_once && self.neighbours().is_some_and(alike)
    }

    /// PTX of the user's that is launched in place of what is printed.
    pub fn code(&self) -> Option<&Arc<Code>> {
        match &self.mapping {
            Mapping::Gpu(g) => g.code.as_ref(),
            Mapping::Cpu(_) => None,
        }
    }

    /// Whether every thread of a CTA goes over all positions of the summed axis `x` in a contraction into `acc`:
    /// it lies over the same threads as an axis of `acc`, of which each thread has its own.
    pub fn sums_whole(&self, kernel: &crate::Kernel, acc: TileId, x: AxisId) -> bool {
        let Mapping::Gpu(g) = &self.mapping else {
            return true;
        };
        let over = g.spread(x);
        let same = |a: &AxisId| {
            let own = g.spread(*a);
            (own.stride, own.count) == (over.stride, over.count)
        };
        over.count > 1 && kernel.tiles[acc as usize].axes.iter().any(same)
    }

    /// Place of `tile`.
    pub fn place(&self, tile: TileId) -> Place {
        self.places
            .get(tile as usize)
            .copied()
            .unwrap_or(Place::Register)
    }
}
