//! The report page's first sentence.
use super::PageData;
use crate::units;
use layout::Arrange;

/// What a bound is in words.
pub(crate) fn words(bound: &str) -> String {
    match bound.split_once(':') {
        Some(("compute", "issue")) => "issuing instructions".into(),
        Some(("compute", unit)) => format!("arithmetic on {unit} units"),
        Some(("memory", level)) => format!("bytes through {level}"),
        _ => match bound {
            "latency" => "waiting for first accesses and hand-offs".into(),
            "launch" => "fixed costs of launches, steps and tasks".into(),
            other => other.into(),
        },
    }
}

/// How many steps, the slowest first, make half of the time.
fn half(times: &mut [f64]) -> usize {
    times.arrange_by(|a, b| b.total_cmp(a));
    let total: f64 = times.iter().sum();
    let mut sum = 0.0;
    for (i, t) in times.iter().enumerate() {
        sum += t;
        if sum >= total / 2.0 {
            return i + 1;
        }
    }
    times.len()
}

/// The model in a few sentences: how long, bound by what, how near to that bound, where, and what would help.
pub(super) fn of(d: &PageData) -> String {
    let us = |v: f64| units::seconds(v * 1e-6);
    let mut times: Vec<f64> = d.steps.iter().map(|s| d.step_us(s)).collect();
    let total: f64 = times.iter().sum();
    let on = d.device.as_deref().unwrap_or(&d.machine);
    let mut out = match &d.measured {
        Some(m) if m.request_us > 1.25 * m.steps_us => format!(
            "A request takes {} on {on}, its steps {} of that{}.",
            us(m.request_us),
            us(m.steps_us),
            (m.overhead).map_or(String::new(), |o| format!("; {}", o.sentence()))
        ),
        Some(m) => format!("A request takes {} on {on}.", us(m.request_us)),
        None => format!(
            "A request is predicted to take {} on {on}.",
            us(d.predicted_us)
        ),
    };
    let Some((bound, share)) = d.bounds.first().filter(|_| total > 0.0) else {
        return out;
    };
    // How near to the roof the steps come that this bounds.
    let own = d.steps.iter().filter(|s| s.view.bound == *bound);
    let (mut roof, mut time) = (0.0, 0.0);
    for s in own {
        if let Some(r) = s.roof_us {
            roof += r * s.measured.map_or(1.0, |m| m.runs);
            time += d.step_us(s);
        }
    }
    let near = match bound.as_str() {
        "launch" | "latency" => {
            let n = d.steps.iter().filter(|s| s.view.bound == *bound).count();
            format!(
                ": {} of {} a step",
                units::plural(n as u64, "step"),
                us(share * total / n.max(1) as f64)
            )
        }
        _ if time > 0.0 => format!(
            ", at {} of what the machine's peak allows",
            units::percent(roof / time)
        ),
        _ => String::new(),
    };
    let n = half(&mut times);
    out.push_str(&format!(
        " {} of its steps' time is bound by {}{near}. {} of {} make half of it.",
        units::percent(*share),
        words(bound),
        n,
        units::plural(d.steps.len() as u64, "step"),
    ));
    let best = d
        .advice
        .as_ref()
        .and_then(|a| a.advice.iter().find(|a| a.gain >= 1.1));
    if let Some(a) = best {
        out.push_str(&format!(
            " Most would help: {} ({} times as fast).",
            a.what,
            units::number(a.gain)
        ));
    }
    out
}
