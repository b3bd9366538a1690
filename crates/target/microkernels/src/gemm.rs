//! The contract micro-kernel: a tile of C from rows of A and panels of B, all f32.
//!
//! One register tile of MR rows x NR columns (NR a whole number of vectors) is kept in registers over the whole
//! of k. [`GemmKernel`] loops it over as many rows and panels as the caller gives, so one call does a macro tile.
//! Row counts that MR does not divide are shared out evenly over specialised smaller tiles; a last panel of
//! fewer columns uses tiles of fewer vectors, the last vector masked.
//!
//! There are two ways to name A. [`Gemm`] has a base and strides. [`Indirect`] has a table with one pointer per
//! row and block of k, which turns a convolution into a product without materialising anything: a block of k is
//! the channels of one tap, and a tap in the padding points to zeros.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::simd::{Simd, held};
use crate::isa::Isa;

/// The most rows of any register tile.
pub const MAX_MR: usize = 16;

/// Operands of `C[i][j] (+)= sum_p A[i][p] * B[p][j]` for i < m, j < n, p < k.
///
/// Strides count elements.
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    /// Rows of C; any number.
    pub m: usize,
    /// Columns of C; any number, taken in panels of NR.
    pub n: usize,
    /// Terms of each sum; 0 gives zeros (or leaves C as it is when accumulating).
    pub k: usize,
    /// A\[0\]\[0\].
    pub a: *const f32,
    /// From A\[i\]\[p\] to A\[i + 1\]\[p\].
    pub lda: usize,
    /// From A\[i\]\[p\] to A\[i\]\[p + 1\]; 1 is the fast case.
    pub a_ks: usize,
    /// The other operand.
    pub b: Panels,
    /// C\[0\]\[0\]; a row's columns are contiguous.
    pub c: *mut f32,
    /// From C\[i\]\[j\] to C\[i + 1\]\[j\].
    pub ldc: usize,
    /// Whether to add to what C holds, or to overwrite it without reading.
    pub accumulate: bool,
    /// What is done to the sums before they are stored: one call must then do them whole.
    pub post: Post,
}

/// What is done to finished sums on their way to C.
#[derive(Clone, Copy, Debug)]
pub struct Post {
    /// One number per column, added; or null.
    pub bias: *const f32,
    /// Bytes from an element of C to what is added to it, when `added`.
    pub from: isize,
    /// Whether something that lies like C is added.
    pub added: bool,
    /// Results are at least this (-inf: no bound); a NaN stays.
    pub lo: f32,
    /// Results are at most this (inf: no bound).
    pub hi: f32,
}

impl Post {
    /// Nothing.
    pub const NONE: Post = Post {
        bias: std::ptr::null(),
        from: 0,
        added: false,
        lo: f32::NEG_INFINITY,
        hi: f32::INFINITY,
    };

    /// The same for columns from `n` on.
    #[inline(always)]
    fn column(mut self, n: usize) -> Post {
        if !self.bias.is_null() {
            self.bias = self.bias.wrapping_add(n);
        }
        self
    }

    /// Whether anything is to be done.
    #[inline(always)]
    #[must_use]
    pub fn any(&self) -> bool {
        !self.bias.is_null() || self.added || self.lo > f32::NEG_INFINITY || self.hi < f32::INFINITY
    }
}

/// Where B lies.
#[derive(Clone, Copy, Debug)]
pub struct Panels {
    /// The first element of the first panel.
    pub b: *const f32,
    /// From one row of a panel to the next: NR when packed, the matrix's row stride when read in place.
    pub ldb: usize,
    /// From one panel to the next: k * NR when packed, NR when read in place.
    pub panel: usize,
    /// Whether the columns of the last panel may be read up to a whole vector (packed panels are zero-padded).
    pub padded: bool,
}

/// Operands of `C[i][j] (+)= sum over kb < nkb, p < kc of table[kb * table_ld + i][p * a_ks] * B[kb * kc + p][j]`.
///
/// Strides count elements.
#[derive(Clone, Copy, Debug)]
pub struct Indirect {
    /// Rows of C; any number.
    pub m: usize,
    /// Columns of C; any number, taken in panels of NR.
    pub n: usize,
    /// Blocks of k (taps of a convolution).
    pub nkb: usize,
    /// Terms per block (channels of a group).
    pub kc: usize,
    /// Pointers to the rows' elements, block by block.
    pub table: *const *const f32,
    /// From a row's pointer in one block to its pointer in the next; at least m.
    pub table_ld: usize,
    /// Added to every pointer of the table, in elements; lets one table serve every group or image.
    pub a_offset: usize,
    /// From one element of a row's block to the next; 1 is the fast case.
    pub a_ks: usize,
    /// The other operand, nkb * kc rows.
    pub b: Panels,
    /// C\[0\]\[0\]; a row's columns are contiguous.
    pub c: *mut f32,
    /// From C\[i\]\[j\] to C\[i + 1\]\[j\].
    pub ldc: usize,
    /// Whether to add to what C holds, or to overwrite it without reading.
    pub accumulate: bool,
    /// What is done to the sums before they are stored: one call must then do them whole.
    pub post: Post,
}

/// One register tile's operands.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    table: *const *const f32,
    table_ld: usize,
    a_offset: usize,
    nkb: usize,
    kc: usize,
    a_ks: usize,
    b: *const f32,
    ldb: usize,
    c: *mut f32,
    ldc: usize,
    /// Columns in the last vector, 1..=W.
    last: usize,
    accumulate: bool,
    pub(super) post: Post,
    ahead: Ahead,
}

/// What a tile asks for of the panel after its own, a line or less with each step of k: a panel that lies far
/// away is near when its turn comes. The tiles of a panel have equal shares of the next.
#[derive(Clone, Copy)]
struct Ahead {
    /// From where on.
    from: *const f32,
    /// Elements with each step.
    step: usize,
}

/// Elements of a line.
const LINE: usize = 16;

/// Whether panels that one tile each goes through come as fast when nobody asks for them: such products wait for
/// memory alone, and what is asked for beside them gets in its way where the processor looks far enough ahead.
/// Measured with gpt2_kv on a Zen 4 (a quarter longer when asked for) and an Emerald Rapids (an eighth less).
fn streams_alone() -> bool {
    static AMD: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *AMD.get_or_init(is_amd)
}

#[cfg(target_arch = "x86_64")]
fn is_amd() -> bool {
    let leaf = std::arch::x86_64::__cpuid(0);
    [leaf.ebx, leaf.edx, leaf.ecx]
        .map(u32::to_le_bytes)
        .concat()
        == b"AuthenticAMD"
}

#[cfg(not(target_arch = "x86_64"))]
fn is_amd() -> bool {
    false
}

impl Ahead {
    /// For tile `block` of the `blocks` of panel `panel`, with `k` steps each.
    fn of(b: &Panels, nr: usize, panel: usize, (block, blocks): (usize, usize), k: usize) -> Ahead {
        let own = b.b.wrapping_add(panel * b.panel);
        // A panel in place is not in one piece.
        if b.ldb != nr || k == 0 || blocks == 1 && streams_alone() {
            return Ahead { from: own, step: 0 };
        }
        let step = nr.div_ceil(blocks).min(LINE);
        Ahead {
            from: own.wrapping_add(b.panel + block * step * k),
            step,
        }
    }
}

pub(super) type TileFn = unsafe fn(&Tile);

/// Tiles of one count of vectors, by `[reads B masked][rows - 1]`.
pub(super) type TileTable = [&'static [TileFn]; 2];

/// A micro-kernel of one register shape, cheap to copy and to keep in a plan's executable.
#[derive(Clone, Copy)]
pub struct GemmKernel {
    tiles: &'static [TileTable],
    lanes: usize,
    mr: usize,
    nr: usize,
}

impl std::fmt::Debug for GemmKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "GemmKernel {}x{} of {} lanes",
            self.mr, self.nr, self.lanes
        )
    }
}

/// The kernel with register tiles of `mr` x `nr` (elements), or None where `isa` has no such shape ([`shapes`]).
#[must_use]
pub fn gemm_kernel(isa: Isa, mr: usize, nr: usize) -> Option<GemmKernel> {
    let (tiles, lanes) = table(isa);
    shaped(tiles, lanes, mr, nr)
}

pub(super) fn shaped(
    tiles: &'static [TileTable],
    lanes: usize,
    mr: usize,
    nr: usize,
) -> Option<GemmKernel> {
    let vectors = nr / lanes;
    if vectors == 0
        || !nr.is_multiple_of(lanes)
        || vectors > tiles.len()
        || mr == 0
        || mr > tiles[vectors - 1][0].len()
    {
        return None;
    }
    Some(GemmKernel {
        tiles,
        lanes,
        mr,
        nr,
    })
}

/// Every legal register shape (MR, NR) of `isa`, widest last. Any smaller row count is legal too.
#[must_use]
pub fn shapes(isa: Isa) -> Vec<(usize, usize)> {
    let (tiles, lanes) = table(isa);
    let each = tiles.iter().zip(1..);
    each.flat_map(|(rows, vectors)| (1..=rows[0].len()).map(move |mr| (mr, vectors * lanes)))
        .collect()
}

/// The register tiles of `isa`, by the count of vectors less one, and the lanes of a vector.
fn table(isa: Isa) -> (&'static [TileTable], usize) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => (&avx512::TILES, 16),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => (&avx2::TILES, 8),
        _ => (&portable::TILES, 8),
    }
}

impl GemmKernel {
    /// Rows of the register tile.
    #[must_use]
    pub fn mr(&self) -> usize {
        self.mr
    }

    /// Columns of the register tile, which is the width of packed panels.
    #[must_use]
    pub fn nr(&self) -> usize {
        self.nr
    }

    /// Address of the loop that whole register tiles over packed panels run, for tools that show its code.
    #[must_use]
    pub fn code(&self) -> usize {
        self.pick(self.nr, true).0[self.mr - 1] as *const () as usize
    }

    /// Multiplies with A given by strides.
    ///
    /// The order of each sum depends on the kernel's shape and on m and n, never on the data.
    ///
    /// # Safety
    ///
    /// The CPU has the instruction set the kernel was made for. For all i < m, p < k, j < n: A\[i\]\[p\] and B\[p\]\[j\]
    /// are readable (with `padded`, B up to the next multiple of the lane count), C\[i\]\[j\] is writable, and
    /// initialised when `accumulate`; C overlaps neither A nor B, and rows of C do not overlap one another.
    pub unsafe fn gemm(&self, g: &Gemm) {
        let blocks = g.m.div_ceil(self.mr);
        let mut panel = 0;
        while panel * self.nr < g.n {
            let first = panel * self.nr;
            let (tiles, last) = self.pick(g.n - first, g.b.padded);
            let mut row = 0;
            for block in 0..blocks {
                let rows = (g.m - row).div_ceil(blocks - block);
                let mut table = [std::ptr::null::<f32>(); MAX_MR];
                for (i, p) in table.iter_mut().enumerate().take(rows) {
                    *p = g.a.wrapping_add((row + i) * g.lda);
                }
                let tile = Tile {
                    table: table.as_ptr(),
                    table_ld: 0,
                    a_offset: 0,
                    nkb: 1,
                    kc: g.k,
                    a_ks: g.a_ks,
                    b: g.b.b.wrapping_add(panel * g.b.panel),
                    ldb: g.b.ldb,
                    c: g.c.wrapping_add(row * g.ldc + first),
                    ldc: g.ldc,
                    last,
                    accumulate: g.accumulate,
                    post: g.post.column(first),
                    ahead: Ahead::of(&g.b, self.nr, panel, (block, blocks), g.k),
                };
                // SAFETY: 1 <= rows <= mr, and the tile lies inside the operands that the caller vouches for.
                unsafe { tiles[rows - 1](&tile) };
                row += rows;
            }
            panel += 1;
        }
    }

    /// Multiplies with A given by a table of row pointers.
    ///
    /// # Safety
    ///
    /// As for [`GemmKernel::gemm`], and the table holds `(nkb - 1) * table_ld + m` pointers, each of which, moved by
    /// `a_offset`, has kc readable elements `a_ks` apart.
    pub unsafe fn indirect(&self, g: &Indirect) {
        let blocks = g.m.div_ceil(self.mr);
        let mut panel = 0;
        while panel * self.nr < g.n {
            let first = panel * self.nr;
            let (tiles, last) = self.pick(g.n - first, g.b.padded);
            let mut row = 0;
            for block in 0..blocks {
                let rows = (g.m - row).div_ceil(blocks - block);
                let tile = Tile {
                    table: g.table.wrapping_add(row),
                    table_ld: g.table_ld,
                    a_offset: g.a_offset,
                    nkb: g.nkb,
                    kc: g.kc,
                    a_ks: g.a_ks,
                    b: g.b.b.wrapping_add(panel * g.b.panel),
                    ldb: g.b.ldb,
                    c: g.c.wrapping_add(row * g.ldc + first),
                    ldc: g.ldc,
                    last,
                    accumulate: g.accumulate,
                    post: g.post.column(first),
                    ahead: Ahead::of(&g.b, self.nr, panel, (block, blocks), g.nkb * g.kc),
                };
                // SAFETY: 1 <= rows <= mr, and the tile lies inside the operands that the caller vouches for.
                unsafe { tiles[rows - 1](&tile) };
                row += rows;
            }
            panel += 1;
        }
    }

    /// The tiles for a panel of which `n` columns are left, and the columns of their last vector.
    fn pick(&self, n: usize, padded: bool) -> (&'static [TileFn], usize) {
        let n = n.min(self.nr);
        let vectors = n.div_ceil(self.lanes);
        let last = n - (vectors - 1) * self.lanes;
        let masked = last < self.lanes && !padded;
        (self.tiles[vectors - 1][usize::from(masked)], last)
    }
}

/// What a step of k multiplies and adds. Everything else treats elements as bits.
pub(super) trait Product<S: Simd> {
    /// Whether sums are f32, to which more can be added.
    const POST: bool;
    /// Instructions of [`Product::mac`] for each register of a vector, and of loading `a` where the first has no
    /// place for that.
    const INSTRUCTIONS: usize;
    /// `a * b + c`.
    unsafe fn mac(a: S::F, b: S::F, c: S::F) -> S::F;
    /// `a + b`.
    unsafe fn plus(a: S::F, b: S::F) -> S::F;
}

/// Elements are f32.
struct Floats;

impl<S: Simd> Product<S> for Floats {
    const POST: bool = true;
    const INSTRUCTIONS: usize = if S::FUSED { 1 } else { 2 };
    #[inline(always)]
    unsafe fn mac(a: S::F, b: S::F, c: S::F) -> S::F {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { S::fma(a, b, c) }
    }

    #[inline(always)]
    unsafe fn plus(a: S::F, b: S::F) -> S::F {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { S::add(a, b) }
    }
}

/// One step of k: NV vectors of B, MR broadcasts of A.
#[inline(always)]
unsafe fn step<S: Simd, P: Product<S>, const MR: usize, const NV: usize, const MASKED: bool>(
    acc: &mut [[S::F; NV]; MR],
    rows: &[*const f32; MR],
    at: usize,
    b: *const f32,
    tail: S::T,
) {
    // SAFETY: the caller vouches for element `at` of each row and for a row of B at `b`.
    unsafe {
        let mut bv = [S::zero(); NV];
        for (j, v) in bv.iter_mut().enumerate() {
            *v = if MASKED && j == NV - 1 {
                S::load_t(b.add(j * S::W), tail)
            } else {
                S::load(b.add(j * S::W))
            };
        }
        for i in 0..MR {
            // Groups of small integers lie at any byte.
            let a = S::splat(rows[i].add(at).read_unaligned());
            for j in 0..NV {
                acc[i][j] = P::mac(a, bv[j], acc[i][j]);
            }
        }
    }
}

/// Whether steps are written out one after the other. Where sums and the vectors of a step take all `registers`, or
/// the rows' places all others, the compiler keeps some in memory then, to have what the next step reads early: a
/// tile of 14 rows and two vectors takes half as long again on a Zen 4. Beside a step of many instructions those of a
/// loop are few.
const fn written_out<S: Simd, P: Product<S>>(rows: usize, vectors: usize) -> bool {
    let sums = rows * vectors;
    rows <= 12 && held::<S>(sums, vectors) && sums * P::INSTRUCTIONS * S::PARTS <= LONG
}

/// Most instructions of a step that is written out: one for each register of AVX-512.
const LONG: usize = 32;

/// One register tile. SETS copies of the accumulators hide the latency of FMA where MR * NV is small.
#[inline(always)]
pub(super) unsafe fn tile<
    S: Simd,
    P: Product<S>,
    const MR: usize,
    const NV: usize,
    const SETS: usize,
    const MASKED: bool,
>(
    t: &Tile,
) {
    // SAFETY: see `GemmKernel::gemm`: every address below is one of the operands' elements, but for those of
    // lines that are only asked for, which need not be valid.
    unsafe {
        let tail = S::tail(t.last);
        let mut acc = [[[S::zero(); NV]; MR]; SETS];
        let mut b = t.b;
        let mut ahead = t.ahead.from;
        for kb in 0..t.nkb {
            let mut rows = [std::ptr::null::<f32>(); MR];
            for (i, p) in rows.iter_mut().enumerate() {
                *p = (*t.table.add(kb * t.table_ld + i)).add(t.a_offset);
            }
            let mut k = 0;
            // Eight steps when there are eight sets, else four; written out because accumulators are constants.
            let unroll = if SETS == 8 { 8 } else { 4 };
            macro_rules! each {
                ($($n:literal)*) => {$(
                    {
                        let b = b.add($n * t.ldb);
                        step::<S, P, MR, NV, MASKED>(&mut acc[$n % SETS], &rows, k + $n, b, tail);
                    }
                )*};
            }
            let unrolled = if t.a_ks == 1 && const { written_out::<S, P>(MR, NV) } {
                t.kc / unroll * unroll
            } else {
                0
            };
            while k < unrolled {
                for _ in 0..unroll {
                    S::prefetch(ahead);
                    ahead = ahead.wrapping_add(t.ahead.step);
                }
                each!(0 1 2 3);
                if SETS == 8 {
                    each!(4 5 6 7);
                }
                k += unroll;
                b = b.wrapping_add(unroll * t.ldb);
            }
            // A distance that is known leaves one register for all rows' places.
            while const { !written_out::<S, P>(MR, NV) } && t.a_ks == 1 && k < t.kc {
                S::prefetch(ahead);
                ahead = ahead.wrapping_add(t.ahead.step);
                step::<S, P, MR, NV, MASKED>(&mut acc[0], &rows, k, b, tail);
                k += 1;
                b = b.wrapping_add(t.ldb);
            }
            let mut at = k;
            for _ in k..t.kc {
                step::<S, P, MR, NV, MASKED>(&mut acc[0], &rows, at, b, tail);
                at += t.a_ks;
                b = b.wrapping_add(t.ldb);
            }
        }
        let mut width = SETS;
        while width > 1 {
            width /= 2;
            for s in 0..width {
                for i in 0..MR {
                    for j in 0..NV {
                        acc[s][i][j] = P::plus(acc[s][i][j], acc[s + width][i][j]);
                    }
                }
            }
        }
        stored::<S, P, MR, NV, MASKED>(t, &acc[0], tail);
    }
}

/// Writes a tile's sums to C, or adds them to what is there.
#[inline(always)]
unsafe fn stored<S: Simd, P: Product<S>, const MR: usize, const NV: usize, const MASKED: bool>(
    t: &Tile,
    acc: &[[S::F; NV]; MR],
    tail: S::T,
) {
    // SAFETY: the tile's own elements of C.
    unsafe {
        let partial = MASKED || t.last < S::W;
        for i in 0..MR {
            for j in 0..NV {
                let p = t.c.add(i * t.ldc + j * S::W);
                if j == NV - 1 && partial {
                    let v = if t.accumulate {
                        P::plus(acc[i][j], S::load_t(p, tail))
                    } else {
                        acc[i][j]
                    };
                    S::store_t(p, v, tail);
                } else {
                    let v = if t.accumulate {
                        P::plus(acc[i][j], S::load(p))
                    } else {
                        acc[i][j]
                    };
                    S::store(p, v);
                }
            }
        }
    }
}

/// What is done to the sums of a tile, which are stored by now: a pass of its own over memory that is in
/// the nearest cache, so that the loop over k keeps all registers.
#[inline(always)]
pub(super) unsafe fn finish<S: Simd>(t: &Tile, rows: usize, vectors: usize) {
    let p = &t.post;
    // SAFETY: the tile's own elements, and what lies like them.
    unsafe {
        let tail = S::tail(t.last);
        let (lo, hi) = (S::splat(p.lo), S::splat(p.hi));
        for i in 0..rows {
            for j in 0..vectors {
                let cut = j == vectors - 1 && t.last < S::W;
                let c = t.c.add(i * t.ldc + j * S::W);
                if cut {
                    let mut v = S::load_t(c, tail);
                    if !p.bias.is_null() {
                        v = S::add(v, S::load_t(p.bias.add(j * S::W), tail));
                    }
                    if p.added {
                        v = S::add(v, S::load_t(c.wrapping_byte_offset(p.from), tail));
                    }
                    S::store_t(c, S::min(hi, S::max(lo, v)), tail);
                } else {
                    let mut v = S::load(c);
                    if !p.bias.is_null() {
                        v = S::add(v, S::load(p.bias.add(j * S::W)));
                    }
                    if p.added {
                        v = S::add(v, S::load(c.wrapping_byte_offset(p.from)));
                    }
                    S::store(c, S::min(hi, S::max(lo, v)));
                }
            }
        }
    }
}

/// Sets of accumulators for a tile of `n` accumulators: FMA takes four cycles and two start per cycle.
pub(super) const fn sets(n: usize) -> usize {
    match n {
        1 => 8,
        2 | 3 => 4,
        4..8 => 2,
        _ => 1,
    }
}

/// Instantiates the tiles of one instruction set and product: for each count of vectors the row counts 1..=max.
/// `own` where reading a whole last vector costs less than reading it masked, so that both have tiles. One row has
/// them always: what it reads once is an operand of its multiplication, which a masked vector cannot be.
macro_rules! tiles {
    ($module:ident, $simd:ty, $product:ident, $features:literal, own = $own:literal, $count:literal,
     [$($nv:literal : [$($mr:literal)*]),*]) => {
        mod $module {
            use $crate::gemm::{Product, Tile, TileFn, TileTable, finish, sets, tile};

            #[target_feature(enable = $features)]
            unsafe fn run<const MR: usize, const NV: usize, const SETS: usize, const MASKED: bool>(t: &Tile) {
                // SAFETY: the caller's contract is that of `tile`.
                unsafe { tile::<$simd, super::$product, MR, NV, SETS, MASKED>(t) };
                if <super::$product as Product<$simd>>::POST && t.post.any() {
                    // SAFETY: as above.
                    unsafe { finished(t, MR, NV) };
                }
            }

            /// One for all tiles, since it costs little beside their loops over k.
            #[target_feature(enable = $features)]
            #[inline(never)]
            unsafe fn finished(t: &Tile, rows: usize, vectors: usize) {
                // SAFETY: the caller's contract is that of `tile`.
                unsafe { finish::<$simd>(t, rows, vectors) }
            }

            pub(super) static TILES: [TileTable; $count] = [$({
                const WHOLE: &[TileFn] = &[$(run::<$mr, $nv, { sets($mr * $nv) }, { !$own && $mr > 1 }>),*];
                const MASKED: &[TileFn] = &[$(run::<$mr, $nv, { sets($mr * $nv) }, true>),*];
                [WHOLE, MASKED]
            }),*];
        }
    };
}
pub(super) use tiles;

#[cfg(target_arch = "x86_64")]
tiles!(avx512, crate::avx512::Avx512, Floats, "avx512f,avx512vl,avx512dq,avx512bw,fma,avx2", own = false, 8, [
    1: [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16],
    2: [1 2 3 4 5 6 7 8 9 10 11 12 13 14],
    3: [1 2 3 4 5 6 7 8],
    4: [1 2 3 4 5 6],
    5: [1 2 3 4 5],
    6: [1 2 3 4],
    7: [1 2 3],
    // As below: three rows of eight vectors take 33 registers of 32.
    8: [1 2]
]);

#[cfg(target_arch = "x86_64")]
tiles!(avx2, crate::avx2::Avx2, Floats, "avx2,fma", own = true, 4, [
    1: [1 2 3 4 5 6 7 8 9 10 11 12],
    2: [1 2 3 4 5 6],
    3: [1 2 3 4],
    // Three rows of four vectors take 17 registers of 16, and twice the time.
    4: [1 2]
]);

// There are sixteen registers of 128 bits on any x86-64 CPU, so tiles stay small.
#[cfg(target_arch = "x86_64")]
tiles!(portable, crate::sse2::Sse2, Floats, "sse2", own = true, 2, [1: [1 2 3 4 5 6], 2: [1 2 3]]);
#[cfg(target_arch = "aarch64")]
tiles!(portable, crate::portable::Portable, Floats, "neon", own = true, 2, [1: [1 2 3 4 5 6], 2: [1 2 3]]);
