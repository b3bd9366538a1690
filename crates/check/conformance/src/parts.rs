//! Sums whose parts the CTAs of a cluster make and add.
use crate::build::{B, at, expr, n};
use crate::suite::{agrees, asked, wanted};
use crate::{Case, Failure, Rng, gpu_schedules, matrix_schedules};
use expr::{Monoid, functions};
use kernel::{
    AxisTile, Combined, Family, GpuMapping, Kernel, Mapping, Place, Schedule, Spread, Stmt, TileId,
    TileProgram,
};
use layout::DType;
use std::sync::Arc;
use tensor::Tensor;

const F: DType = DType::F32;

/// A product as the kernel that sums parts and the one that adds them, and programs of both for clusters.
pub struct InParts {
    /// The two.
    pub programs: [TileProgram; 2],
    /// Their operands' buffers, one kernel's behind the other's.
    pub buffers: Vec<Tensor>,
    /// What the reference makes of the last one's results.
    want: Vec<Tensor>,
    limits: crate::Limits,
}

/// Sizes of a product: rows, columns, and what is summed in each of so many parts.
struct Sizes {
    m: i64,
    nn: i64,
    k: i64,
    parts: i64,
    types: (DType, DType, DType),
    /// Whether parts lie row by row.
    rows: bool,
}

/// Axes of the first kernel: the parts and the rows.
const PART: u16 = 0;
const ROW: u16 = 1;

impl Sizes {
    fn random(rng: &mut Rng) -> Sizes {
        let types = rng.of(&[
            (F, F, F),
            (DType::F16, DType::F16, F),
            (DType::BF16, DType::BF16, F),
            (DType::I8, DType::I8, DType::I32),
        ]);
        Sizes {
            m: rng.of(&[1, 1, 7, 16, 40, 64, 130]),
            nn: rng.of(&[16, 64, 64, 128, 192, 40]),
            k: 128 * rng.some(2),
            parts: rng.of(&[2, 2, 4, 8]),
            types,
            rows: rng.once_in(2),
        }
    }

    /// Where a part lies.
    fn access(&self, [m, nn, part]: [u16; 3]) -> kernel::Access {
        let (row, column) = if self.rows { (self.nn, 1) } else { (1, self.m) };
        at(&[(m, row), (nn, column), (part, self.m * self.nn)])
    }

    /// The kernel that sums parts.
    fn first(&self, rng: &mut Rng) -> Kernel {
        // Tiles lie along what is summed, as matrix instructions want them, or along the columns.
        let deep = rng.once_in(2);
        let [nx, kx] = if deep { [2, 3] } else { [3, 2] };
        let mut axes = [
            ("part", n(self.parts)),
            ("m", n(self.m)),
            ("n", n(self.nn)),
            ("k", n(self.k)),
        ];
        if !deep {
            axes.swap(2, 3);
        }
        let mut b = B::new("product in parts", Family::Contract, &axes);
        let whole = self.k * self.parts;
        let a = at(&[(ROW, whole), (kx, 1), (PART, self.k)]);
        let w = match deep || rng.once_in(2) {
            true => at(&[(nx, whole), (kx, 1), (PART, self.k)]),
            false => at(&[(nx, 1), (kx, self.nn), (PART, self.k * self.nn)]),
        };
        let (ta, tw, acc) = self.types;
        let oa = b.read(ta, self.m * whole, a);
        let ow = b.read(tw, self.nn * whole, w);
        let y = b.fill(acc, &sorted([PART, ROW, nx]), 0.0);
        let x = b.load(oa, &sorted([PART, ROW, kx]));
        let v = b.load(ow, &sorted([PART, nx, kx]));
        b.contract(y, x, v, &[kx]);
        let elements = self.m * self.nn * self.parts;
        let oy = b.write(acc, elements, self.access([ROW, nx, PART]));
        b.store(oy, y);
        b.0.k
    }

    /// The kernel that adds them, and does what follows.
    fn second(&self, rng: &mut Rng) -> Kernel {
        let acc = self.types.2;
        let axes = [("m", n(self.m)), ("n", n(self.nn)), ("part", n(self.parts))];
        let mut b = B::new("sum of parts", Family::Row, &axes);
        let elements = self.m * self.nn * self.parts;
        let oy = b.read(acc, elements, self.access([0, 1, 2]));
        let y = b.fill(acc, &[0, 1], 0.0);
        let parts = b.load(oy, &[0, 1, 2]);
        b.k.body.push(Stmt::Fold {
            monoid: Monoid::sum(acc, acc),
            state: vec![y],
            args: vec![parts],
            over: vec![2],
            rescale: None,
        });
        let mut last = y;
        if acc == F && rng.once_in(2) {
            let oc = b.read(F, self.nn, at(&[(1, 1)]));
            let c = b.load(oc, &[1]);
            let e = expr(|e| {
                let (x, c) = (e.input(0, F), e.input(1, F));
                let s = e.add(x, c);
                functions::relu(e, s, F)
            });
            last = b.map(F, &[0, 1], &[y, c], e);
        }
        let out = b.write(acc, self.m * self.nn, at(&[(0, self.nn), (1, 1)]));
        b.store(out, last);
        b.0.k
    }
}

fn sorted(mut axes: [u16; 3]) -> [u16; 3] {
    axes.sort_unstable();
    axes
}

/// The program for a cluster of the kernel that sums parts, whose tasks these are.
fn given(k: &Kernel, mut s: Schedule, parts: i64, rng: &mut Rng) -> Option<TileProgram> {
    s.grid.retain(|c| c.axis != PART);
    s.loops.retain(|c| c.axis != PART);
    if rng.once_in(2) {
        s.grid.reverse();
    }
    s.grid.push(AxisTile {
        axis: PART,
        tile: 1,
    });
    s.raster = 1;
    let Mapping::Gpu(g) = &mut s.mapping else {
        return None;
    };
    g.spread.retain(|x| x.axis != PART);
    g.walkers = 0;
    g.cluster = u32::try_from(parts).ok()?;
    g.combined = Combined::InCluster;
    TileProgram::new(k.clone(), s).ok()
}

/// The grid of the kernel that adds parts: of each tile of the first each CTA has a share.
fn shares(first: &TileProgram, k: &Kernel) -> Option<Vec<AxisTile>> {
    let (own, s) = (first.kernel(), first.schedule());
    let mut grid = vec![];
    for c in &s.grid[..s.grid.len() - 1] {
        let a = &own.axes[c.axis as usize];
        if a.extent.known()? > c.tile {
            let at = k.axes.iter().position(|x| x.name == a.name)?;
            grid.push(AxisTile {
                axis: at as u16,
                tile: c.tile,
            });
        }
    }
    let n = i64::from(s.cluster());
    match grid.last_mut() {
        Some(last) if last.tile % n == 0 => last.tile /= n,
        Some(_) => return None,
        // One cluster has all tasks.
        None => grid.push(AxisTile {
            axis: 1,
            tile: k.axes[1].extent.known().filter(|e| e % n == 0)? / n,
        }),
    }
    Some(grid)
}

/// The program of the kernel that adds what `first` gives.
fn taken(first: &TileProgram, k: &Kernel, rng: &mut Rng) -> Option<TileProgram> {
    let Mapping::Gpu(g) = &first.schedule().mapping else {
        return None;
    };
    let grid = shares(first, k)?;
    // Few positions for each thread, which holds all parts of them.
    let (threads, mut spread, mut used) = (g.computing(), vec![], 1);
    for axis in [1, 0] {
        let count = rng.of(&[4u32, 8, 16, 32]).min(threads / used);
        let tile = grid.iter().find(|c| c.axis == axis).map(|c| c.tile);
        let tile = tile.or(k.axes[axis as usize].extent.known())?;
        let most = u32::try_from(tile).unwrap_or(1);
        let each = [4, 2, 1].into_iter().find(|&e| e <= most)?;
        spread.push(Spread {
            axis,
            stride: used,
            count,
            each: rng.of(&[1, 1, 2, 4]).min(each),
        });
        used *= count;
    }
    let places = (0..k.tiles.len() as TileId).map(|t| {
        let load = |s: &Stmt| matches!(s, Stmt::Load { dst, operand: 0 } if *dst == t);
        match k.body.iter().any(load) {
            true => Place::Cluster,
            false => Place::Register,
        }
    });
    let schedule = Schedule {
        grid,
        loops: vec![],
        places: places.collect(),
        chunk: 1,
        raster: 1,
        mapping: Mapping::Gpu(GpuMapping {
            threads,
            warps: [1, threads / 32],
            copiers: 0,
            fragment: None,
            rows: vec![],
            columns: vec![],
            store_bytes: 0,
            combined: Combined::ByLast,
            load_bytes: 16,
            spread,
            constants: vec![],
            triggers: rng.once_in(2),
            ..g.clone()
        }),
    };
    let second = TileProgram::new(k.clone(), Arc::new(schedule)).ok()?;
    kernel::in_cluster(first, &second).ok()?;
    Some(second)
}

/// Random products in parts with programs for clusters.
///
/// # Errors
/// The reference cannot run one.
pub fn in_parts(rng: &mut Rng) -> Result<Vec<InParts>, String> {
    let sizes = Sizes::random(rng);
    let (one, two) = (sizes.first(rng), sizes.second(rng));
    let case = Case::new(one.clone(), 2e-5).of_sums();
    let lookup = |_: &str| None;
    let mut schedules = matrix_schedules(&one, rng);
    schedules.extend(gpu_schedules(&one, &lookup, rng).into_iter().take(1));
    let mut out = vec![];
    for s in schedules {
        let Some(first) = given(&one, s, sizes.parts, rng) else {
            continue;
        };
        let Some(second) = taken(&first, &two, rng) else {
            continue;
        };
        let (mut buffers, parts) = asked(&one, &[], case.limits, rng)?;
        let (mut own, _) = asked(&two, &[], case.limits, rng)?;
        let between = parts.into_iter().next().ok_or("no parts")?;
        let nothing = Tensor::zeros(between.dtype(), between.shape());
        own[0] = between;
        let want = wanted(&two, &lookup, &own)?;
        // What lies between the two is in no memory.
        own[0] = nothing.map_err(|e| e.to_string())?;
        buffers.extend(own);
        out.push(InParts {
            limits: case.limits.of(&first),
            programs: [first, second],
            buffers,
            want,
        });
    }
    Ok(out)
}

/// What runs both steps; gives the last one's results behind others, or nothing where it runs no program.
pub type RunParts<'a> = dyn Fn(&InParts) -> Result<Vec<Tensor>, Failure> + 'a;

/// Runs products in parts in clusters of every size, from a seed on until `wanted` of each size agreed, a quarter as many by
/// warpgroups whose factors other warps copy; gives the last seed.
///
/// # Errors
/// The first that does not agree, with its text and the seed that makes it again, or there are fewer.
pub fn parts_in_clusters(run: &RunParts<'_>, seed: u64, wanted: usize) -> Result<u64, String> {
    let (mut done, mut copied) = ([0; 3], 0);
    for seed in seed..seed + 60 * wanted as u64 {
        for case in in_parts(&mut Rng::new(seed))? {
            let [first, second] = &case.programs;
            let fail = |why: String| format!("seed {seed}: {why}\n{first}\n{second}");
            let got = match run(&case) {
                Ok(got) => got,
                Err(Failure::Refused(_)) => continue,
                Err(Failure::Broken(why)) => return Err(fail(why)),
            };
            let mut each = case.want.iter().zip(got.last());
            let all = each.try_for_each(|(w, g)| agrees(w, g, case.limits));
            all.map_err(fail)?;
            let size = first.schedule().cluster().trailing_zeros() as usize;
            done[size - 1] += 1;
            let copies = |g: &GpuMapping| g.copiers > 0;
            let copies = matches!(&first.schedule().mapping, Mapping::Gpu(g) if copies(g));
            copied += usize::from(copies);
        }
        if done.iter().all(|&n| n >= wanted) && 4 * copied >= wanted {
            return Ok(seed);
        }
    }
    Err(format!(
        "{done:?} programs in clusters of 2, 4 and 8 agreed, warps copied in {copied} of them; {wanted} are wanted"
    ))
}
