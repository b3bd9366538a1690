//! When requests come.
use shopfloor_sim::internals::Arrivals;
use shopfloor_sim::{Rng, Traffic, TrafficKind};

fn all(kind: TrafficKind, end: f64) -> Vec<f64> {
    let t = Traffic {
        from: 1.0,
        until: None,
        size: None,
        items: 1,
        kind,
    };
    Arrivals::new(&t, end, Rng::new(3, 0)).collect()
}

#[test]
fn rates_are_kept_and_times_rise() {
    let kinds = [
        TrafficKind::Steady { rate: 100.0 },
        TrafficKind::Poisson { rate: 100.0 },
        TrafficKind::Bursts {
            rate: 200.0,
            on: 0.5,
            off: 0.5,
        },
        TrafficKind::Diurnal {
            rate: 100.0,
            swing: 0.8,
            period: 10.0,
        },
        TrafficKind::HeavyTail {
            rate: 100.0,
            alpha: 2.2,
        },
    ];
    for kind in kinds {
        let t = all(kind.clone(), 101.0);
        assert!((t.len() as f64 - 1e4).abs() < 900.0, "{kind:?} {}", t.len());
        assert!(t.windows(2).all(|w| w[0] <= w[1]));
        assert!(t.iter().all(|t| (1.0..101.0).contains(t)));
    }
    let t = all(
        TrafficKind::Bursts {
            rate: 200.0,
            on: 0.5,
            off: 0.5,
        },
        50.0,
    );
    assert!(t.iter().all(|t| (t - 1.0) % 1.0 < 0.5 + 1e-9));
    assert_eq!(
        all(
            TrafficKind::Recorded {
                times: vec![0.5, 0.5, 9.0]
            },
            5.0
        ),
        [1.5, 1.5]
    );
    assert!(all(TrafficKind::Poisson { rate: 0.0 }, 5.0).is_empty());
}
