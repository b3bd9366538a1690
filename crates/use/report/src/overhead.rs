//! Why requests take longer than their steps.
use crate::median::median;
use crate::units;
use plan::Timeline;
use serde::Serialize;

/// Where the time of one request went, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RequestParts {
    /// From the call to its return.
    pub request_us: f64,
    /// While some worker was at a step.
    pub steps_us: f64,
    /// While none was, between the first step and the last: hand-offs, and blocks between control flow.
    pub waited_us: f64,
    /// Before the first step and after the last: the host's own work.
    pub host_us: f64,
    /// While a worker could have run and had no processor, whatever it was at: the longest of all workers.
    /// `None` where the system does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub descheduled_us: Option<f64>,
}

impl RequestParts {
    /// The parts of one request; `None` where its steps were not timed by the host's clock.
    fn of(t: &Timeline) -> Option<RequestParts> {
        let mut spans: Vec<(u64, u64)> = t.spans.iter().map(|s| (s.start_ns, s.end_ns)).collect();
        spans.sort_unstable();
        let first = spans.first()?.0;
        let (mut steps, mut end) = (0, first);
        for (from, to) in spans {
            steps += to.saturating_sub(from.max(end));
            end = end.max(to);
        }
        let us = |ns: u64| ns as f64 * 1e-3;
        let within = end - first;
        Some(RequestParts {
            request_us: us(t.total_ns),
            steps_us: us(steps),
            waited_us: us(within - steps),
            host_us: us(t.total_ns.saturating_sub(within)),
            descheduled_us: t.descheduled_ns.iter().max().map(|&ns| us(ns)),
        })
    }
}

/// What requests take beside their steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Overhead {
    /// Medians over requests, each by itself.
    pub median: RequestParts,
    /// The slowest request.
    pub slowest: RequestParts,
    /// Requests.
    pub requests: usize,
    /// Requests in which a worker waited for a processor for longer than [`NOTICED_US`].
    pub descheduled: usize,
}

/// Microseconds without a processor that are noticed: less is the system's own interrupts.
pub const NOTICED_US: f64 = 20.0;
/// How many times the median a request takes that is slow.
const SLOW: f64 = 1.5;

impl Overhead {
    /// Of requests that were timed; `None` where none was.
    pub fn of(timelines: &[Timeline]) -> Option<Overhead> {
        let all: Vec<RequestParts> = timelines.iter().filter_map(RequestParts::of).collect();
        let middle = |part: &dyn Fn(&RequestParts) -> f64| {
            median(&mut all.iter().map(part).collect::<Vec<f64>>())
        };
        let lost = |p: &RequestParts| p.descheduled_us.unwrap_or(0.0);
        let known = all.iter().any(|p| p.descheduled_us.is_some());
        let slowest = all
            .iter()
            .max_by(|a, b| a.request_us.total_cmp(&b.request_us))?;
        Some(Overhead {
            median: RequestParts {
                request_us: middle(&|p| p.request_us),
                steps_us: middle(&|p| p.steps_us),
                waited_us: middle(&|p| p.waited_us),
                host_us: middle(&|p| p.host_us),
                descheduled_us: known.then(|| middle(&lost)),
            },
            slowest: *slowest,
            requests: all.len(),
            descheduled: all.iter().filter(|p| lost(p) > NOTICED_US).count(),
        })
    }

    /// In a sentence or two.
    pub fn sentence(&self) -> String {
        let us = |v: f64| units::seconds(v * 1e-6);
        let m = &self.median;
        let mut out = format!(
            "beside its steps a request takes {} before the first and after the last, and {} between them",
            us(m.host_us),
            us(m.waited_us)
        );
        let lost = self.slowest.descheduled_us.unwrap_or(0.0);
        if self.descheduled > 0 {
            out.push_str(&format!(
                "; in {} of {} a worker had no processor for a while ({} in the median), which its steps took longer by",
                self.descheduled,
                self.requests,
                us(m.descheduled_us.unwrap_or(0.0))
            ));
        }
        if self.slowest.request_us > SLOW * m.request_us {
            let s = &self.slowest;
            let more = [
                (lost, "without a processor for a worker"),
                (
                    s.host_us - m.host_us,
                    "more before the first and after the last",
                ),
                (s.waited_us - m.waited_us, "more between steps"),
                (s.steps_us - m.steps_us, "more in its steps"),
            ];
            let most = more.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
            // What a worker lost lengthens a step or a wait: it is named first where it explains most of them.
            let cause = match lost > 0.5 * (s.request_us - m.request_us) {
                true => Some(more[0]),
                false => most,
            };
            if let Some((time, what)) = cause {
                out.push_str(&format!(
                    "; the slowest took {}, {} {what}",
                    us(s.request_us),
                    us(time)
                ));
            }
        }
        out
    }
}
