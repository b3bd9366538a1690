//! Random schedules for matrix instructions.
use crate::Rng;
use expr::Scalar;
use kernel::{
    Access, AxisId, AxisTile, Factors, Fragment, GpuMapping, Kernel, Mapping, OperandId, Place,
    Schedule, Stmt, Swizzle, Term, TileId, TileProgram,
};
use layout::{DType, Dim, Leaf};
use std::sync::Arc;
use tensor::Tensor;

/// Schedules per kernel.
const TRIES: usize = 6;

/// A contraction by its tiles and summed axes.
struct Product {
    acc: TileId,
    factors: [TileId; 2],
    over: Vec<AxisId>,
}

/// The kernel's contractions and the types of their factors, where matrix instructions can compute them all.
fn products(k: &Kernel) -> Option<(Vec<Product>, [DType; 2])> {
    let mut found = vec![];
    for s in &k.body {
        if let Stmt::Contract { acc, a, b, over } = s {
            found.push(Product {
                acc: *acc,
                factors: [*a, *b],
                over: over.clone(),
            });
        }
    }
    let of = |t: TileId| k.tiles[t as usize].dtype;
    let first = found.first()?;
    let types = first.factors.map(of);
    let fits = |acc: DType| {
        let same = |p: &Product| of(p.acc) == acc && p.factors.map(of) == types;
        found.iter().all(same)
    };
    let taken = match types {
        [DType::I8 | DType::U8, DType::I8 | DType::U8] => {
            fits(DType::I32) && found.len() == 1 && lie_along_depth(k, first)
        }
        [DType::F16 | DType::BF16 | DType::F32, right] => fits(DType::F32) && right == types[0],
        _ => false,
    };
    taken.then_some((found, types))
}

/// `size` positions over `axes`, in powers of two.
fn split(axes: &[AxisId], size: i64, rng: &mut Rng) -> Vec<AxisTile> {
    let mut left = size;
    let last = axes.len().saturating_sub(1);
    let one = |(i, &axis): (usize, &AxisId)| {
        let tile = match i == last {
            true => left,
            false => 1 << rng.below(left.ilog2() as usize + 1),
        };
        left /= tile;
        AxisTile { axis, tile }
    };
    axes.iter().enumerate().map(one).collect()
}

/// Axes in single positions.
fn ones(axes: &[AxisId]) -> Vec<AxisTile> {
    let one = |&axis: &AxisId| AxisTile { axis, tile: 1 };
    axes.iter().map(one).collect()
}

/// Bytes of a load, up to so many.
fn load_bytes(most: u32, rng: &mut Rng) -> u32 {
    let all = [1, 2, 4, 8, 16].into_iter().filter(|b| *b <= most);
    rng.of(&all.collect::<Vec<u32>>())
}

/// Random schedules with matrix instructions; none where the kernel has nothing for them, and some that break a
/// rule are for the caller to leave out.
pub fn matrix_schedules(k: &Kernel, rng: &mut Rng) -> Vec<Schedule> {
    let Some((products, types)) = products(k) else {
        return vec![];
    };
    let axes = |t: TileId| &k.tiles[t as usize].axes;
    let first = &products[0];
    let [a, b] = first.factors;
    let of = |own: TileId, other: TileId| -> Vec<AxisId> {
        let list = axes(first.acc).iter().copied();
        list.filter(|x| axes(own).contains(x) && !axes(other).contains(x))
            .collect()
    };
    let (rows, scores) = (of(a, b), of(b, a));
    if rows.is_empty() || scores.is_empty() {
        return vec![];
    }
    let both = |x: &&AxisId| axes(a).contains(x) && axes(b).contains(x);
    let batch: Vec<AxisId> = axes(first.acc).iter().filter(both).copied().collect();
    let alone = products.len() == 1;
    let last = products.last().unwrap_or(first);
    let columns: Vec<AxisId> = {
        let list = axes(last.acc).iter().copied();
        list.filter(|x| axes(last.factors[1]).contains(x) && !batch.contains(x))
            .collect()
    };
    if !alone && !fits_fragments(k, &columns, &first.over) {
        return vec![];
    }
    let mut out = vec![];
    // Texts for drivers that are not the newest have none of two types.
    let made = |p: &Product| p.factors.iter().any(|&t| k.numbers_of(t).is_some());
    let groups =
        alone && types[0] == types[1] && lie_along_depth(k, first) && !products.iter().any(made);
    // Warpgroups turn right factors of 16 bits alone.
    let attends = !alone && types[0].bits() == 16 && lie_along_depth(k, first);
    for _ in 0..TRIES {
        if groups && rng.once_in(2) {
            let cut = [&rows[..], &scores, &batch];
            out.extend(warpgroups(k, &products, cut, types, rng));
            continue;
        }
        if attends && rng.once_in(2) {
            let cut = [&rows[..], &columns, &batch];
            out.push(attending(k, &products, cut, types, rng));
            continue;
        }
        let warps = [
            rng.of(&[1u32, 2, 4]),
            if alone { rng.of(&[1, 2]) } else { 1 },
        ];
        // Warps along the depth have a fragment's depth each at least.
        let least = i64::from(256 / types[0].bits()).max(16);
        let depth = least * rng.of(&[1i64, 2, 4, 8]).min(128 / least);
        let inner = last.over.last().map(|&a| &k.axes[a as usize].extent);
        let there = inner.and_then(|e| e.known()).unwrap_or(depth).min(depth);
        if alone && there < least {
            // Shorter than a fragment.
            continue;
        }
        let deep = rng.of(&[1u32, 1, 2, 4]);
        let even = there % (least * i64::from(deep)) == 0 && there.count_ones() == 1;
        let deep = if alone && even { deep } else { 1 };
        let tall = i64::from(warps[0]) * rng.of(&[16, 16, 32]);
        let wide = i64::from(warps[1]) * rng.of(&[16, 32, 64]);
        let mut grid = ones(&batch);
        grid.extend(split(&rows, tall, rng));
        let mut loops = vec![];
        if alone {
            grid.extend(split(&scores, wide, rng));
            let (whole, inner) = last.over.split_at(last.over.len().saturating_sub(1));
            loops.extend(ones(whole));
            loops.extend(inner.iter().map(|&axis| AxisTile { axis, tile: depth }));
        } else {
            // Weights are summed over the keys, a piece at a time.
            loops.extend(split(&last.over, wide, rng));
        }
        let columns = if alone { &scores } else { &columns }.clone();
        let cuts = Cuts {
            k,
            products: &products,
            grid: &grid,
            loops: &loops,
        };
        let (places, most) = cuts.places(rng);
        out.push(Schedule {
            grid,
            loops,
            places,
            chunk: 1,
            raster: rng.of(&[1, 1, 2]),
            mapping: mapping(
                (warps, deep),
                (&rows, columns),
                fragment(types, rng),
                load_bytes(most, rng),
            ),
        });
    }
    out
}

/// Whether what is not cut is as wide, and summed as deep, as fragments are.
fn fits_fragments(k: &Kernel, columns: &[AxisId], over: &[AxisId]) -> bool {
    let whole = |list: &[AxisId]| {
        let mut extents = list.iter().map(|&a| k.axes[a as usize].extent.known());
        extents.try_fold(1i64, |n, e| n.checked_mul(e?))
    };
    let wide = |n: i64| n >= 16 && n.count_ones() == 1;
    let deep = |n: i64| n > 0 && n % 16 == 0;
    whole(columns).is_some_and(wide) && whole(over).is_some_and(deep)
}

/// Whether the tiles of both factors lie along what is summed, as warpgroups read them.
fn lie_along_depth(k: &Kernel, p: &Product) -> bool {
    let last = |t: &TileId| k.tiles[*t as usize].axes.last();
    let along = |t: &TileId| last(t).is_some_and(|x| p.over.contains(x));
    p.factors.iter().all(along)
}

/// Pieces of all tasks of a schedule for warpgroups at most: an interpreter takes long for one.
const MOST_PIECES: i64 = 40;

/// A random schedule of a product by matrix instructions of warpgroups; `None` where it has many pieces.
fn warpgroups(
    k: &Kernel,
    products: &[Product],
    [rows, columns, batch]: [&[AxisId]; 3],
    types: [DType; 2],
    rng: &mut Rng,
) -> Option<Schedule> {
    let bits = types[0].bits();
    let drawn = fragment(types, rng);
    // What is multiplied of f32 is made of a piece while the one before is multiplied, words of two in registers, of lines
    // that may be as long as theirs.
    let parts = drawn.factors != Factors::Whole;
    let words = drawn.multiplied() != drawn.types();
    let line = rng.of(&[32, 64, 128]);
    let long = words && drawn.products() == 1 && line == 128 && rng.once_in(2);
    let depth = i64::from(line * 8 / bits) * if long { 2 } else { 1 };
    let (warps, wide) = (rng.of(&[4u32, 8]), rng.of(&[16i64, 32, 64]));
    let tall = i64::from(warps) * rng.of(&[16, 32]);
    let mut grid = ones(batch);
    grid.extend(split(rows, tall, rng));
    grid.extend(split(columns, wide, rng));
    let over = &products[0].over;
    let (whole, inner) = over.split_at(over.len().saturating_sub(1));
    let mut loops = ones(whole);
    loops.extend(inner.iter().map(|&axis| AxisTile { axis, tile: depth }));
    let pieces = grid.iter().chain(&loops).fold(1i64, |n, c| {
        let extent = k.axes[c.axis as usize].extent.known().unwrap_or(1);
        n.saturating_mul((extent + c.tile - 1) / c.tile)
    });
    if pieces > MOST_PIECES {
        return None;
    }
    let cuts = Cuts {
        k,
        products,
        grid: &grid,
        loops: &loops,
    };
    let (mut places, most) = cuts.places(rng);
    for p in &mut places {
        if let (Place::Shared { swizzle, .. }, Some(own)) = (p, Swizzle::of_lines(line, bits)) {
            *swizzle = own;
        }
    }
    let instruction = Fragment {
        m: 64,
        n: wide as u32,
        ..drawn
    };
    for p in &mut places {
        if let (Place::Shared { stages, .. }, true) = (p, parts) {
            *stages = (*stages).max(3);
        }
    }
    let mut mapping = mapping(
        ([warps, 1], 1),
        (rows, columns.to_vec()),
        instruction,
        load_bytes(most, rng),
    );
    let ahead = |t: &TileId| matches!(places[*t as usize], Place::Shared { stages: 2.., .. });
    // Of f32 the right factor is an image then, which a caller makes of it.
    let copied = match parts {
        // Threads make words of two in registers, where warps copy.
        true => words || rng.once_in(3),
        false => rng.of(&[true, true, false]),
    };
    if let (Mapping::Gpu(g), true) = (&mut mapping, copied)
        && products[0].factors.iter().all(ahead)
    {
        copied_by_warps(g, rng);
    }
    let schedule = Schedule {
        grid,
        loops,
        places,
        chunk: 1,
        raster: rng.of(&[1, 1, 2]),
        mapping,
    };
    Some(by_boxes(k, schedule, rng))
}

/// `s` with factors that warps copy brought by tensor copies, where their pieces are boxes.
fn by_boxes(k: &Kernel, mut s: Schedule, rng: &mut Rng) -> Schedule {
    for t in 0..s.places.len() {
        let Place::Shared { swizzle, stages } = s.places[t] else {
            continue;
        };
        let mut boxed = s.clone();
        boxed.places[t] = Place::Tensor { swizzle, stages };
        if !rng.once_in(3) && TileProgram::new(k.clone(), boxed.clone()).is_ok() {
            s = boxed;
        }
    }
    s
}

/// A random schedule of an attention by matrix instructions of warpgroups: what they read lies along the depth of scores,
/// and along the columns of what weights weigh.
fn attending(
    k: &Kernel,
    products: &[Product],
    [rows, columns, batch]: [&[AxisId]; 3],
    types: [DType; 2],
    rng: &mut Rng,
) -> Schedule {
    let (warps, wide) = (rng.of(&[4u32, 8]), rng.of(&[16i64, 32, 64, 128]));
    let mut extents = columns.iter().map(|&a| k.axes[a as usize].extent.known());
    let values = extents.try_fold(1i64, |n, e| n.checked_mul(e?));
    // Scores, weights as words of two, and values have registers: of 16 rows a thread holds half a row's.
    let held = (wide + wide / 2 + values.unwrap_or(0)) / 2;
    let tall = i64::from(warps) * if held <= 64 { rng.of(&[16, 32]) } else { 16 };
    let mut grid = ones(batch);
    grid.extend(split(rows, tall, rng));
    let last = products.last().unwrap_or(&products[0]);
    let loops = split(&last.over, wide, rng);
    let cuts = Cuts {
        k,
        products,
        grid: &grid,
        loops: &loops,
    };
    let (mut places, most) = cuts.places(rng);
    for (t, p) in places.iter_mut().enumerate() {
        let Place::Shared { swizzle, .. } = p else {
            continue;
        };
        let last = k.tiles[t].axes.last();
        let line = last.and_then(|&a| cuts.tile(a)).unwrap_or(1);
        let bytes = (line * i64::from(types[0].bits()) / 8).min(128) as u32;
        *swizzle = Swizzle::of_lines(bytes, types[0].bits()).unwrap_or_default();
    }
    let instruction = Fragment {
        m: 64,
        n: wide as u32,
        ..fragment(types, rng)
    };
    let mut mapping = mapping(
        ([warps, 1], 1),
        (rows, columns.to_vec()),
        instruction,
        load_bytes(most, rng),
    );
    let ahead = |p: &Place| matches!(p, Place::Shared { stages: 2.., .. });
    if let (Mapping::Gpu(g), true) = (&mut mapping, places.iter().any(ahead) && rng.once_in(2)) {
        copied_by_warps(g, rng);
        g.registers = (65536 / g.threads / 8 * 8).min(255);
        if !k.has_alike_tasks(&loops) {
            g.walkers = 0;
        }
    }
    let schedule = Schedule {
        grid,
        loops,
        places,
        chunk: 1,
        raster: 1,
        mapping,
    };
    by_boxes(k, schedule, rng)
}

/// Lets four more warps copy, for CTAs of any kind.
fn copied_by_warps(g: &mut GpuMapping, rng: &mut Rng) {
    g.copiers = 4;
    g.walkers = rng.of(&[0, 1, 2, 3]);
    g.store_bytes = rng.of(&[0, 16]);
    g.threads += 4 * 32;
    g.registers = rng.of(&[(65536 / g.threads / 8 * 8).min(255), 128]);
}

/// The matrix instruction for factors of a type: of f32 one or three products, of TF32 or bf16.
fn fragment(types: [DType; 2], rng: &mut Rng) -> Fragment {
    let [input, right] = types;
    let factors = match input {
        DType::F32 => rng.of(&[
            Factors::Tf32,
            Factors::Tf32x3,
            Factors::Bf16,
            Factors::Bf16x3,
        ]),
        _ => Factors::Whole,
    };
    let found = Fragment {
        m: 16,
        n: 8,
        k: 0,
        input,
        acc: match input.is_float() {
            true => DType::F32,
            false => DType::I32,
        },
        factors,
        right: (right != input).then_some(right),
    };
    Fragment {
        k: 256 / found.multiplied()[0].bits(),
        ..found
    }
}

fn mapping(
    (warps, deep): ([u32; 2], u32),
    (rows, columns): (&[AxisId], Vec<AxisId>),
    fragment: Fragment,
    load_bytes: u32,
) -> Mapping {
    Mapping::Gpu(GpuMapping {
        threads: warps[0] * warps[1] * deep * 32,
        warps,
        copiers: 0,
        walkers: 0,
        cluster: 1,
        combined: kernel::Combined::ByLast,
        store_bytes: 0,
        rows: rows.to_vec(),
        columns,
        fragment: Some(fragment),
        load_bytes,
        unroll: 1,
        registers: 255,
        spread: vec![],
        code: None,
        constants: vec![],
        triggers: false,
    })
}

/// A kernel with how it is cut.
struct Cuts<'a> {
    k: &'a Kernel,
    products: &'a [Product],
    grid: &'a [AxisTile],
    loops: &'a [AxisTile],
}

impl Cuts<'_> {
    fn tile(&self, a: AxisId) -> Option<i64> {
        let cut = self.grid.iter().chain(self.loops).find(|t| t.axis == a);
        cut.map(|t| t.tile)
            .or(self.k.axes[a as usize].extent.known())
    }

    /// The place of a loaded tile that is no factor: of what one is made of in shared memory now and then.
    fn beside(&self, t: TileId, stages: u32, rng: &mut Rng) -> Place {
        let made = |f: &TileId| self.k.widened_from(*f).is_some_and(|all| all.contains(&t));
        let mut factors = self.products.iter().flat_map(|p| p.factors);
        let axes = &self.k.tiles[t as usize].axes;
        // In the loop that copies the numbers.
        let looped = self.loops.last().is_some_and(|l| axes.contains(&l.axis));
        match factors.any(|f| made(&f)) && rng.once_in(2) {
            true => Place::Shared {
                swizzle: Swizzle::default(),
                stages: if looped { stages } else { 1 },
            },
            false => Place::InPlace,
        }
    }

    /// Places of the tiles, factors in shared memory, and the bytes that can be loaded at once of all of these.
    fn places(&self, rng: &mut Rng) -> (Vec<Place>, u32) {
        let stages = rng.of(&[1u32, 2, 3, 4]);
        let mut places = vec![Place::Register; self.k.tiles.len()];
        let mut most = 16;
        for s in &self.k.body {
            let Stmt::Load { dst, operand } = s else {
                continue;
            };
            let mut products = self.products.iter();
            let read = self.k.made_of_part(*dst);
            let Some(p) = products.find(|p| p.factors.contains(&read)) else {
                places[*dst as usize] = self.beside(*dst, stages, rng);
                continue;
            };
            let tile = &self.k.tiles[*dst as usize];
            let (axes, bits) = (&tile.axes, tile.dtype.bits());
            let looped = self.loops.iter().any(|l| axes.contains(&l.axis));
            places[*dst as usize] = Place::Shared {
                swizzle: swizzle(line(self.k, *dst, p, &|a| self.tile(a)), bits, rng),
                stages: if looped { stages } else { 1 },
            };
            if let Some(&inner) = axes.last() {
                let extent = &self.k.axes[inner as usize].extent;
                let access = &self.k.operands[*operand as usize].access;
                let run = access.run(inner, extent, self.tile(inner).unwrap_or(1), 128 / bits);
                most = most.min((run * bits / 8).max(1));
            }
        }
        // What a product makes for the next one is handed over in shared memory, unless halves of words hold it.
        let wide = |t: TileId| self.k.tiles[t as usize].dtype.bits() == 32;
        let made = self.products.iter().flat_map(|p| p.factors);
        for t in made {
            let place = &mut places[t as usize];
            if *place != Place::Register {
                continue;
            }
            if self.k.numbers_of(t).is_some() {
                *place = Place::Recompute;
            } else if wide(t) {
                *place = Place::Shared {
                    swizzle: Swizzle::default(),
                    stages: 1,
                };
            } else if kernel::recomputable(self.k, t) && rng.once_in(2) {
                *place = Place::Recompute;
            }
        }
        (places, most)
    }
}

/// A swizzle for lines of so many elements of so many bits.
fn swizzle(line: u32, bits: u32, rng: &mut Rng) -> Swizzle {
    let all = [
        (0, 0, 0),
        (1, 3, 3),
        (2, 3, 3),
        (3, 3, 3),
        (3, 3, 4),
        (3, 3, 5),
        (1, 2, 3),
        (2, 2, 3),
        (3, 2, 3),
        (3, 2, 4),
        (1, 4, 3),
        (2, 4, 3),
        (3, 4, 3),
    ];
    let halves = [(0, 0, 0), (1, 5, 3), (2, 5, 3), (3, 5, 3)];
    if bits == 4 {
        let at_once = |s: &&(u32, u32, u32)| line.is_multiple_of(1 << (s.1 + s.0)) || s.0 == 0;
        let fitting: Vec<(u32, u32, u32)> = halves.iter().filter(at_once).copied().collect();
        let (bits, base, shift) = rng.of(&fitting);
        return Swizzle { bits, base, shift };
    }
    let all = all.map(|(n, base, shift)| Swizzle {
        bits: n,
        base,
        shift,
    });
    let fitting: Vec<Swizzle> = all.into_iter().filter(|s| s.fits(line, bits)).collect();
    match fitting.is_empty() {
        true => Swizzle::default(),
        false => rng.of(&fitting),
    }
}

/// Elements of a line of factor `t`: of the axes that are summed, or are not, as its last one.
fn line(k: &Kernel, t: TileId, p: &Product, tile: &dyn Fn(AxisId) -> Option<i64>) -> u32 {
    let axes = &k.tiles[t as usize].axes;
    let Some(last) = axes.last() else { return 0 };
    let summed = p.over.contains(last);
    let own = axes.iter().filter(|a| p.over.contains(a) == summed);
    let n = own.fold(1i64, |n, &a| n.saturating_mul(tile(a).unwrap_or(1)));
    u32::try_from(n).unwrap_or(0)
}

/// A program with a factor as the image of its pieces, which then lies in shared memory as in its operand.
pub struct Imaged {
    /// The program.
    pub program: TileProgram,
    /// What it computes, of an operand that has the elements themselves.
    pub whole: Kernel,
    /// The operand that has parts of the elements in their place, and of which factors.
    pub parts: Option<(OperandId, Factors)>,
}

/// `program` with a factor as an image; `None` where no warps copy, or no factor's pieces are runs of an image. Of factors
/// of f32 it is the one with the columns.
pub fn with_image(program: &TileProgram) -> Option<Imaged> {
    let (k, s) = (program.kernel(), program.schedule());
    let Mapping::Gpu(g) = &s.mapping else {
        return None;
    };
    let factors = g.fragment.map_or(Factors::Whole, |f| f.factors);
    let may = |t: TileId| {
        let mut axes = k.tiles[t as usize].axes.iter();
        g.copiers > 0 && (factors == Factors::Whole || axes.any(|a| g.columns.contains(a)))
    };
    let mut loads = k.body.iter().filter_map(|x| match x {
        Stmt::Load { dst, operand } if may(*dst) => Some((*dst, *operand)),
        _ => None,
    });
    loads.find_map(|(tile, operand)| {
        let stages = s.place(tile).stages()?;
        let mut whole = k.clone();
        let o = &mut whole.operands[operand as usize];
        let bits = match factors {
            Factors::Whole => o.dtype.bits(),
            f => f.part_type().bits(),
        };
        let (access, elements) = image(k, s, (tile, operand), bits)?;
        (o.access, o.elements) = (access, Dim::Known(elements));
        let made = (factors != Factors::Whole).then(|| whole.with_parts(tile, factors));
        let (kernel, tiles) = match made {
            Some(made) => made?,
            None => (whole.clone(), vec![]),
        };
        let mut schedule = s.clone();
        let image = Place::Image { stages };
        schedule.places[tile as usize] = match tiles.is_empty() {
            true => image,
            false => Place::Recompute,
        };
        schedule.places.extend(tiles.iter().map(|_| image));
        Some(Imaged {
            program: TileProgram::new(Arc::new(kernel), Arc::new(schedule)).ok()?,
            whole,
            parts: (!tiles.is_empty()).then_some((operand, factors)),
        })
    })
}

/// `program` in clusters of CTAs that copy for each other, in bands of any width; `None` where neighbouring tasks have
/// nothing in common that copies bring at once, or are none.
pub fn with_clusters(program: &TileProgram, rng: &mut Rng) -> Option<TileProgram> {
    let mut rasters = [1, 2, 4];
    rasters.rotate_left(rng.below(3));
    let walkers = rng.of(&[0, 2, 4]);
    rasters.into_iter().find_map(|raster| {
        let mut s = program.schedule().clone();
        s.raster = raster;
        let Mapping::Gpu(g) = &mut s.mapping else {
            return None;
        };
        g.cluster = 2;
        g.walkers = if g.walkers == 0 { 0 } else { walkers };
        TileProgram::new(program.kernel().clone(), s).ok()
    })
}

/// `program`, in which single warps multiply words of bf16 of f32, with the factor that has the columns as these; `None`
/// where they multiply others.
pub fn with_words(program: &TileProgram) -> Option<Imaged> {
    let (k, s) = (program.kernel(), program.schedule());
    let Mapping::Gpu(g) = &s.mapping else {
        return None;
    };
    let f = g.fragment.filter(|f| f.warps() == 1)?;
    if f.multiplied() == f.types() {
        return None;
    }
    let columns = |t: TileId| {
        k.tiles[t as usize]
            .axes
            .iter()
            .any(|a| g.columns.contains(a))
    };
    let (tile, operand) = k.body.iter().find_map(|x| match x {
        Stmt::Load { dst, operand } if columns(*dst) => Some((*dst, *operand)),
        _ => None,
    })?;
    let place = Place::Shared {
        swizzle: Swizzle::default(),
        stages: s.place(tile).stages()?,
    };
    let (kernel, tiles) = k.with_parts(tile, f.factors)?;
    let mut schedule = s.clone();
    schedule.places[tile as usize] = Place::Recompute;
    schedule.places.extend(tiles.iter().map(|_| place));
    Some(Imaged {
        program: TileProgram::new(Arc::new(kernel), Arc::new(schedule)).ok()?,
        whole: k.clone(),
        parts: Some((operand, f.factors)),
    })
}

/// `buffers` with the first parts of an operand's elements in place of these, and others behind all others.
///
/// # Errors
/// The operand is not of f32.
pub fn buffers_in_parts(
    buffers: &[Tensor],
    (operand, factors): (OperandId, Factors),
) -> Result<Vec<Tensor>, String> {
    let (mut all, own) = (buffers.to_vec(), &buffers[operand as usize]);
    for (n, part) in factors.parts().into_iter().enumerate() {
        let made = Tensor::zeros(factors.part_type(), own.shape());
        let mut made = made.map_err(|e| e.to_string())?;
        for i in 0..own.len() {
            let x = Scalar::Float(own.get_f64(i));
            let v = part.eval_plain(&[x]).map_err(|e| e.to_string())?;
            match v[..] {
                [Scalar::Float(v)] => made.set_f64(i, v),
                _ => return Err("a part is no float".into()),
            }
        }
        match n {
            0 => all[operand as usize] = made,
            _ => all.push(made),
        }
    }
    Ok(all)
}

/// How an operand lies as the image of a tile, and its elements: panels of the tile's lines, in each of them 16 bytes of
/// the depth of all lines before the next 16, with elements of so many bits.
fn image(
    k: &Kernel,
    s: &Schedule,
    (tile, operand): (TileId, OperandId),
    bits: u32,
) -> Option<(Access, i64)> {
    let extent = |a: AxisId| k.axes[a as usize].extent.known().filter(|&n| n > 0);
    let over: Vec<AxisId> = k.body.iter().flat_map(Stmt::over).copied().collect();
    let sized = k.tiles[tile as usize].axes.iter().copied();
    let sized = sized.filter(|&a| s.positions(k, a) != Some(1));
    let (deep, own): (Vec<AxisId>, Vec<AxisId>) = sized.partition(|a| over.contains(a));
    let (&[deep], &[own]) = (&deep[..], &own[..]) else {
        return None;
    };
    let (depth, lines) = (extent(deep)?, s.positions(k, own)?);
    let vector = i64::from(128 / bits);
    let panels = (extent(own)? + lines - 1) / lines;
    let leaf = |extent: i64, stride: i64| Leaf {
        extent: Dim::Known(extent),
        stride: Dim::Known(stride),
    };
    let mut side = vec![leaf(panels, lines * depth), leaf(lines, vector)];
    if panels == 1 {
        side.remove(0);
    }
    let along = vec![leaf(depth / vector, lines * vector), leaf(vector, 1)];
    let mut leaves = vec![(own, side), (deep, along)];
    let mut all = panels * lines * depth;
    for t in &k.operands[operand as usize].access.terms {
        if t.axis != own && t.axis != deep {
            let n = extent(t.axis)?;
            leaves.push((t.axis, vec![leaf(n, all)]));
            all *= n;
        }
    }
    leaves.sort_by_key(|t| t.0);
    let term = |(axis, leaves)| Term { axis, leaves };
    let terms = leaves.into_iter().map(term).collect();
    Some((Access::strided(Dim::ZERO, terms), all))
}
