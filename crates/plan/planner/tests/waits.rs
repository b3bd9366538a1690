//! Waits against brute force on random steps.
use crate::memory::overlap;
use plan::{BufferId, Pieces, StepSet, Wait};
use shopfloor_planner::internals::{Bytes, DisjointWrites, Life, Touch, assign, lives, waits};

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
