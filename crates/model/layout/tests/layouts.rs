//! Layout algebra: address equality at every coordinate, at random sizes.

use fastrand::Rng;
use shopfloor_layout::{Dim, Layout, Leaf, Mode};

fn none(_: &str) -> Option<i64> {
    None
}

fn numbers(l: &Layout) -> Vec<i64> {
    l.shape().iter().map(|d| d.known().unwrap()).collect()
}

fn known(v: &[i64]) -> Vec<Dim> {
    v.iter().map(|&n| Dim::Known(n)).collect()
}

/// Every coordinate of `shape`, in row-major order.
fn coords(shape: &[i64]) -> Vec<Vec<i64>> {
    shape.iter().fold(vec![vec![]], |all, &n| {
        all.iter()
            .flat_map(|c| (0..n).map(|i| [c.as_slice(), &[i]].concat()))
            .collect()
    })
}

fn at(l: &Layout, c: &[i64]) -> i64 {
    l.address(c, &none)
        .unwrap_or_else(|| panic!("{l} has no {c:?}"))
}

/// A layout of up to three modes with up to two leaves each, dense in random order or with holes.
fn random(r: &mut Rng) -> Layout {
    let rank = r.usize(..3) + 1;
    let mut modes: Vec<Mode> = (0..rank)
        .map(|_| Mode {
            leaves: (0..r.usize(..3))
                .map(|_| Leaf {
                    extent: Dim::Known(r.i64(1..=4)),
                    stride: Dim::ZERO,
                })
                .collect(),
        })
        .collect();
    let mut places: Vec<(usize, usize)> = modes
        .iter()
        .enumerate()
        .flat_map(|(m, x)| (0..x.leaves.len()).map(move |l| (m, l)))
        .collect();
    if r.usize(..2) == 0 {
        for i in (1..places.len()).rev() {
            places.swap(i, r.usize(..i + 1));
        }
    }
    let mut step = 8;
    for (m, l) in places.into_iter().rev() {
        let leaf = &mut modes[m].leaves[l];
        if r.usize(..6) > 0 {
            leaf.stride = Dim::Known(step);
            step *= leaf.extent.known().unwrap();
            if r.usize(..4) == 0 {
                step *= 2;
            }
        }
    }
    Layout {
        offset: Dim::Known(8 * r.i64(0..=5)),
        modes,
    }
}

/// A factorisation of `n` in random order.
fn factors(r: &mut Rng, mut n: i64) -> Vec<i64> {
    let mut out = Vec::new();
    while n > 1 {
        let divisors: Vec<i64> = (2..=n).filter(|d| n % d == 0).collect();
        let d = divisors[r.usize(..divisors.len())];
        out.push(d);
        n /= d;
    }
    if r.usize(..3) == 0 {
        out.insert(r.usize(..out.len() + 1), 1);
    }
    out
}

#[test]
fn permute_slice_broadcast() {
    for seed in 0..3000 {
        let mut r = Rng::with_seed(seed);
        let l = random(&mut r);
        let shape = numbers(&l);
        let mut perm: Vec<usize> = (0..shape.len()).collect();
        perm.rotate_left(r.usize(..shape.len()));
        let p = l.permute(&perm);
        let d = r.usize(..shape.len());
        let (start, step) = (r.i64(0..=shape[d] - 1), r.i64(1..=2));
        let extent = r.i64(1..=(shape[d] - 1 - start) / step + 1);
        let s = l.slice(d, &Dim::Known(start), step, &Dim::Known(extent));
        assert!(
            s.is_some() || extent > 1,
            "seed {seed}: one position can always be cut from {l}"
        );
        for c in coords(&shape) {
            let q: Vec<i64> = perm.iter().map(|&i| c[i]).collect();
            assert_eq!(
                at(&l, &c),
                at(&p, &q),
                "seed {seed}: {l} permuted by {perm:?}"
            );
            if let Some(s) = &s
                && c[d] < extent
            {
                let mut o = c.clone();
                o[d] = start + c[d] * step;
                assert_eq!(
                    at(s, &c),
                    at(&l, &o),
                    "seed {seed}: {l} cut at {d}: {start} by {step}"
                );
            }
        }
        if shape[d] == 1 {
            let b = l.broadcast(d, &Dim::Known(3));
            for c in coords(&numbers(&b)) {
                let mut o = c.clone();
                o[d] = 0;
                assert_eq!(at(&b, &c), at(&l, &o), "seed {seed}");
            }
        }
    }
}

#[test]
fn reshape_keeps_ranks() {
    let mut done = 0;
    for seed in 0..4000 {
        let mut r = Rng::with_seed(seed);
        let l = random(&mut r);
        let want = factors(&mut r, numbers(&l).iter().product());
        let Some(n) = l.reshape(&known(&want)) else {
            continue;
        };
        done += 1;
        assert_eq!(numbers(&n), want, "seed {seed}");
        for (c, o) in coords(&want).iter().zip(coords(&numbers(&l))) {
            assert_eq!(at(&n, c), at(&l, &o), "seed {seed}: {l} as {n}");
        }
    }
    assert!(done > 2000, "{done}");
    // Dense layouts take every shape.
    for seed in 0..500 {
        let mut r = Rng::with_seed(seed);
        let shape: Vec<i64> = (0..3).map(|_| r.i64(1..=6)).collect();
        let want = factors(&mut r, shape.iter().product());
        let n = Layout::row_major(&known(&shape), 32).reshape(&known(&want));
        assert!(
            n.is_some_and(|n| n.is_row_major(32)),
            "seed {seed}: {shape:?} as {want:?}"
        );
    }
}

#[test]
fn modes_refine_and_coalesce() {
    for seed in 0..3000 {
        let mut r = Rng::with_seed(seed);
        let m = random(&mut r).modes.remove(0);
        let n = m.extent().known().unwrap();
        let one = |m: &Mode| Layout {
            offset: Dim::ZERO,
            modes: vec![m.clone()],
        };
        let c = m.coalesce();
        assert!(c.leaves.len() <= m.leaves.len());
        let parts = known(&factors(&mut r, n));
        let f = m.refine(&parts);
        if let Some(f) = &f {
            assert_eq!(
                f.leaves
                    .iter()
                    .map(|l| l.extent.clone())
                    .collect::<Vec<_>>(),
                parts,
                "seed {seed}"
            );
        }
        for i in 0..n {
            assert_eq!(at(&one(&m), &[i]), at(&one(&c), &[i]), "seed {seed}");
            if let Some(f) = &f {
                assert_eq!(
                    at(&one(&m), &[i]),
                    at(&one(f), &[i]),
                    "seed {seed}: {m:?} as {f:?}"
                );
            }
        }
    }
}

/// For all c: (a ∘ b)(c) = a(b(c)).
#[test]
fn composition() {
    let mut done = 0;
    for seed in 0..8000 {
        let mut r = Rng::with_seed(seed);
        let (a, b) = (random(&mut r), random(&mut r));
        let outer = coords(&numbers(&a));
        let Some(c) = a.compose(&b, 8) else { continue };
        let mut inside = true;
        for x in coords(&numbers(&b)) {
            let rank = at(&b, &x) / 8;
            match outer.get(rank as usize) {
                Some(o) => assert_eq!(
                    at(&c, &x),
                    at(&a, o),
                    "seed {seed}: {a} after {b} is {c}, at {x:?}"
                ),
                None => inside = false,
            }
        }
        done += inside as usize;
    }
    assert!(done > 300, "{done}");
}

#[test]
fn blocked_layouts() {
    for seed in 0..300 {
        let mut r = Rng::with_seed(seed);
        let shape = [r.i64(1..=5), r.i64(1..=9), r.i64(1..=4)];
        let block = r.i64(1..=4);
        let l = Layout::blocked(&known(&shape), &[0, 1, 2], 1, block as usize, 16);
        let blocks = (shape[1] + block - 1) / block;
        for c in coords(&shape) {
            let rank = ((c[0] * blocks + c[1] / block) * shape[2] + c[2]) * block + c[1] % block;
            assert_eq!(at(&l, &c), rank * 16, "seed {seed}: {l} at {c:?}");
        }
    }
}

#[test]
fn complements_and_tiles() {
    let mut done = 0;
    for seed in 0..4000 {
        let mut r = Rng::with_seed(seed);
        let l = random(&mut r);
        let size = r.i64(1..=60);
        if let Some(k) = l.complement(&Dim::Known(size), 8) {
            done += 1;
            let base = l.offset.known().unwrap();
            let mut seen: Vec<i64> = Vec::new();
            for x in coords(&numbers(&l)) {
                for y in coords(&numbers(&k)) {
                    seen.push(at(&l, &x) - base + at(&k, &y));
                }
            }
            seen.sort_unstable();
            let want: Vec<i64> = (0..seen.len() as i64).map(|i| i * 8).collect();
            assert_eq!(seen, want, "seed {seed}: {l} and {k}");
            assert!(
                seen.len() as i64 >= size,
                "seed {seed}: {l} and {k} below {size}"
            );
        }
        let shape = numbers(&l);
        let tile: Vec<i64> = shape
            .iter()
            .map(|&n| {
                let d: Vec<i64> = (1..=n).filter(|d| n % d == 0).collect();
                d[r.usize(..d.len())]
            })
            .collect();
        if let Some((grid, inside)) = l.divide(&known(&tile)) {
            assert_eq!(numbers(&inside), tile, "seed {seed}");
            for c in coords(&shape) {
                let q: Vec<i64> = c.iter().zip(&tile).map(|(c, t)| c / t).collect();
                let m: Vec<i64> = c.iter().zip(&tile).map(|(c, t)| c % t).collect();
                assert_eq!(
                    at(&grid, &q) + at(&inside, &m),
                    at(&l, &c),
                    "seed {seed}: {l} by {tile:?}"
                );
            }
        }
    }
    assert!(done > 1000, "{done}");
    // Every other of 24 positions, three to a tile.
    let l = Layout::row_major(&known(&[24]), 8);
    let tiler: Layout = "(3):(16)+0".parse().unwrap();
    let t = l.divide_by(&tiler, 8).unwrap();
    assert_eq!(numbers(&t), [8, 3]);
    assert_eq!(at(&t, &[1, 2]), 5 * 8);
    assert_eq!(at(&t, &[2, 0]), 6 * 8);
}

#[test]
fn symbols() {
    let d = |s: &str| s.parse::<Dim>().unwrap();
    let l = Layout::row_major(&[d("n"), d("s"), d("64*h")], 16);
    let heads = l
        .reshape(&[d("n"), d("s"), d("h"), d("64")])
        .unwrap()
        .permute(&[0, 2, 1, 3]);
    assert_eq!(heads.to_string(), "(n,h,s,64):(1024*h*s,1024,1024*h,16)+0");
    assert_eq!(heads.to_string().parse::<Layout>(), Ok(heads.clone()));
    let look = |s: &str| Some(if s == "n" { 2 } else { 3 });
    assert_eq!(
        heads.address(&[1, 2, 1, 5], &look),
        Some((3 * 192 + 192 + 2 * 64 + 5) * 16)
    );
    let flat = l.reshape(&[d("n*s"), d("64*h")]).unwrap();
    assert!(flat.is_row_major(16));
    let (grid, tile) = flat.divide(&[d("s"), d("64")]).unwrap();
    assert_eq!(grid.to_string(), "(n,h):(1024*h*s,1024)+0");
    assert_eq!(tile.to_string(), "(s,64):(1024*h,16)+0");
    assert_eq!(
        l.compose(&Layout::row_major(&[d("n*s"), d("64*h")], 1), 1)
            .map(|c| c.shape()),
        Some(flat.shape())
    );
}

#[test]
fn text_reads_back() {
    for seed in 0..2000 {
        let l = random(&mut Rng::with_seed(seed));
        assert_eq!(
            l.to_string().parse::<Layout>(),
            Ok(l.clone()),
            "seed {seed}: {l}"
        );
    }
    let l: Layout = "(4, (2,3)):(24, (12,4))".parse().unwrap();
    assert_eq!(l.to_string(), "(4,(2,3)):(24,(12,4))+0");
    assert_eq!(at(&l, &[1, 4]), 24 + 12 + 4);
    let l: Layout = "(floordiv(n, 2),`a,b)`):(min(n, m),0)+8*n".parse().unwrap();
    assert_eq!(l.to_string().parse::<Layout>(), Ok(l));
    for t in [
        "",
        "(4)",
        "(4):",
        "(4):(1,2)",
        "(4):(1)x",
        "((4):(1)",
        "(4):((1,2))",
        "(4):(1)+",
        "(4,):(1,1)",
        "((1)2):(3)",
    ] {
        assert!(t.parse::<Layout>().is_err(), "{t}");
    }
}
