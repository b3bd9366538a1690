//! Arena offsets against brute force on random lives.
use shopfloor_planner::internals::{Life, assign, in_time, placed};

/// Whether two ranges, given as start and length, share anything.
pub fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
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
fn placing_in_time_is_the_order_of_first_steps() {
    let seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut state = seed;
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    for round in 0..300 {
        let life = |below: &mut dyn FnMut(u64) -> u64| {
            let first = below(60) as u32;
            let last = first + below(20) as u32;
            let bytes = below(1000);
            Life { first, last, bytes }
        };
        let lives: Vec<Life> = (0..1 + below(80)).map(|_| life(&mut below)).collect();
        let mut order: Vec<usize> = (0..lives.len()).collect();
        order.sort_by_key(|&i| (lives[i].first, u64::MAX - lives[i].bytes, lives[i].last, i));
        let want = placed(&lives, &order, 64);
        assert_eq!(in_time(&lives, 64), want, "seed {seed} round {round}");
    }
}
