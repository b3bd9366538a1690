//! When requests come.
use crate::Rng;
use crate::scenario::{Traffic, TrafficKind};

/// One stream of requests.
#[derive(Debug)]
pub struct Arrivals {
    traffic: Traffic,
    until: f64,
    rng: Rng,
    now: f64,
    at: usize,
}

impl Arrivals {
    /// The requests of `traffic` up to second `end`.
    pub fn new(traffic: &Traffic, end: f64, rng: Rng) -> Arrivals {
        Arrivals {
            until: traffic.until.unwrap_or(end).min(end),
            now: traffic.from,
            traffic: traffic.clone(),
            rng,
            at: 0,
        }
    }

    /// When a caller that has its answer at `now` asks again.
    pub fn next_of_caller(&self, now: f64) -> Option<f64> {
        let TrafficKind::Callers { think, .. } = &self.traffic.kind else {
            return None;
        };
        let t = now + think;
        (t < self.until).then_some(t)
    }
}

impl Iterator for Arrivals {
    type Item = f64;

    /// When the next request comes; `None` when none does. Those of callers who wait for answers come
    /// by [`Arrivals::next_of_caller`].
    fn next(&mut self) -> Option<f64> {
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
}

fn none_is_never(rate: f64) -> Option<f64> {
    (rate > 0.0).then_some(rate)
}
