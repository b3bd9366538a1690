//! Arena offsets and waits against brute force on random lives.
use crate::bind::memory::{Life, assign};
use crate::bind::waits::{Bytes, DisjointWrites, Touch, lives, waits};
use plan::{BufferId, Pieces, StepSet, Wait};

/// No two writers are known to be apart.
struct Never;

impl DisjointWrites for Never {
    fn pair(&self, _: usize, _: usize, _: BufferId) -> bool {
        false
    }
    fn piece(&self, _: &mut Pieces, _: usize, _: BufferId) -> StepSet {
        StepSet::new()
    }
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

#[test]
fn buffers_that_live_together_lie_apart() {
    let mut r = fastrand::Rng::with_seed(0x9e37_79b9_7f4a_7c15);
    for round in 0..500 {
        let n = 1 + r.u64(..24) as usize;
        let life: Vec<Life> = (0..n)
            .map(|_| {
                let first = r.u64(..20) as u32;
                Life {
                    first,
                    last: first + r.u64(..8) as u32,
                    bytes: r.u64(..5000),
                }
            })
            .collect();
        let (offsets, top) = assign(&life, 64);
        let mut peak = 0;
        for step in 0..32 {
            let live = life.iter().filter(|l| l.first <= step && step <= l.last);
            peak = peak.max(live.map(|l| l.bytes.div_ceil(64) * 64).sum::<u64>());
        }
        assert!(top >= peak, "round {round}");
        assert!(top <= life.iter().map(|l| l.bytes.div_ceil(64) * 64).sum());
        for i in 0..n {
            assert_eq!(offsets[i] % 64, 0);
            assert!(offsets[i] + life[i].bytes <= top);
            for j in 0..i {
                let together = life[i].first <= life[j].last && life[j].first <= life[i].last;
                let bytes = overlap((offsets[i], life[i].bytes), (offsets[j], life[j].bytes));
                assert!(
                    !(together && bytes && life[i].bytes > 0 && life[j].bytes > 0),
                    "round {round}"
                );
            }
        }
    }
}

#[test]
fn waits_order_all_that_share_bytes_and_none_is_needless() {
    let mut r = fastrand::Rng::with_seed(0x1234_5678_9abc_def1);
    for round in 0..300 {
        let (steps, buffers) = (1 + r.u64(..16) as usize, 1 + r.u64(..8));
        let touches: Vec<Touch> = (0..steps)
            .map(|_| {
                let mut some = |n| {
                    (0..r.u64(..n))
                        .map(|_| r.u64(..buffers) as BufferId)
                        .collect::<Vec<_>>()
                };
                Touch {
                    reads: some(3),
                    writes: some(3),
                }
            })
            .collect();
        let l = lives(&touches);
        let life: Vec<Life> = (0..buffers as u32)
            .map(|b| {
                let (first, last) = l.get(&b).copied().unwrap_or((0, 0));
                Life {
                    first,
                    last,
                    bytes: 64 * (1 + u64::from(b) % 3),
                }
            })
            .collect();
        let (offsets, _) = assign(&life, 64);
        let arena: Vec<(BufferId, u64, Life)> = (0..buffers as usize)
            .map(|b| (b as u32, offsets[b], life[b]))
            .collect();
        let mut bytes = Bytes::default();
        bytes.add(0, &arena);
        let (w, _) = waits(&touches, &bytes, &Never);
        let list: Vec<Vec<usize>> = w
            .iter()
            .map(|w| {
                w.iter()
                    .map(|w| match w {
                        Wait::Step(s) | Wait::Tiles { step: s, .. } => *s as usize,
                    })
                    .collect()
            })
            .collect();
        let reach = |skip: Option<(usize, usize)>| {
            let mut m = vec![vec![false; steps]; steps];
            for i in 0..steps {
                for &j in list[i].iter().filter(|&&j| skip != Some((i, j))) {
                    assert!(j < i);
                    m[i][j] = true;
                    let row = m[j].clone();
                    m[i].iter_mut().zip(row).for_each(|(a, b)| *a |= b);
                }
            }
            m
        };
        let m = reach(None);
        let share = |a: BufferId, b: BufferId| {
            let at = |x: BufferId| (offsets[x as usize], life[x as usize].bytes);
            a == b || overlap(at(a), at(b))
        };
        let clash = |i: usize, j: usize| {
            let (x, y) = (&touches[i], &touches[j]);
            let any =
                |p: &[BufferId], q: &[BufferId]| p.iter().any(|&a| q.iter().any(|&b| share(a, b)));
            any(&x.writes, &y.writes) || any(&x.writes, &y.reads)
        };
        for i in 0..steps {
            for j in 0..i {
                let must = clash(i, j)
                    || touches[i]
                        .reads
                        .iter()
                        .any(|a| touches[j].writes.contains(a));
                assert!(
                    !must || m[i][j],
                    "round {round}: step {i} does not wait for {j}"
                );
            }
            for &j in &list[i] {
                assert!(
                    !reach(Some((i, j)))[i][j],
                    "round {round}: {i} waits for {j} twice"
                );
            }
        }
    }
}
