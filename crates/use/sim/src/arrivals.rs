//! When requests come.
use crate::Rng;
use crate::scenario::{Traffic, TrafficKind};

/// One stream of requests.
#[derive(Debug)]
pub(crate) struct Arrivals {
    traffic: Traffic,
    until: f64,
    rng: Rng,
    now: f64,
    at: usize,
}

impl Arrivals {
    pub fn new(traffic: &Traffic, end: f64, rng: Rng) -> Arrivals {
        Arrivals {
            until: traffic.until.unwrap_or(end).min(end),
            now: traffic.from,
            traffic: traffic.clone(),
            rng,
            at: 0,
        }
    }

    /// When the next request comes; `None` when none does. Those of callers who wait for answers come
    /// by [`Arrivals::again`].
    pub fn next(&mut self) -> Option<f64> {
        use TrafficKind as K;
        let from = self.traffic.from;
        let t = match &self.traffic.kind {
            K::Steady { rate } => {
                self.at += 1;
                from + self.at as f64 / none_is_never(*rate)?
            }
            K::Poisson { rate } => self.now + self.rng.exponential() / none_is_never(*rate)?,
            K::HeavyTail { rate, alpha } => {
                self.now + self.rng.pareto(*alpha) / none_is_never(*rate)?
            }
            K::Bursts { rate, on, off } => {
                // Time that counts runs while it is on.
                let gap = self.rng.exponential() / none_is_never(*rate)?;
                let period = on + off;
                let since = self.now - from;
                let busy = (since / period).floor() * on + (since % period).min(*on) + gap;
                from + (busy / on).floor() * period + busy % on
            }
            K::Diurnal {
                rate,
                swing,
                period,
            } => {
                let most = none_is_never(*rate * (1.0 + swing))?;
                let mut t = self.now;
                loop {
                    t += self.rng.exponential() / most;
                    if t >= self.until {
                        return None;
                    }
                    let now =
                        rate * (1.0 + swing * (std::f64::consts::TAU * (t - from) / period).sin());
                    if self.rng.unit() * most <= now {
                        break t;
                    }
                }
            }
            K::Recorded { times } => {
                let t = from + *times.get(self.at)?;
                self.at += 1;
                t
            }
            K::Callers { callers, .. } => {
                if self.at >= *callers as usize {
                    return None;
                }
                self.at += 1;
                from
            }
        };
        // Rounding must not stop time.
        let t = t.max(self.now);
        self.now = t;
        (t < self.until).then_some(t)
    }

    /// When a caller that has its answer at `now` asks again.
    pub fn again(&self, now: f64) -> Option<f64> {
        let TrafficKind::Callers { think, .. } = &self.traffic.kind else {
            return None;
        };
        let t = now + think;
        (t < self.until).then_some(t)
    }
}

fn none_is_never(rate: f64) -> Option<f64> {
    (rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(kind: TrafficKind, end: f64) -> Vec<f64> {
        let t = Traffic {
            from: 1.0,
            until: None,
            size: None,
            items: 1,
            kind,
        };
        let mut a = Arrivals::new(&t, end, Rng::new(3, 0));
        std::iter::from_fn(|| a.next()).collect()
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
}
