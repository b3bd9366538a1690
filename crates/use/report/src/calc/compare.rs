//! Machines side by side in one table.
use crate::table::{Align, Style, Table};
use crate::units;
use machine::calc::ridge_points;
use machine::{Machine, NumType, UnitClass};

/// What a row is called, where its figure stands, and how it is printed.
type Figure = (&'static str, fn(&Machine) -> Option<f64>, fn(f64) -> String);

const FIGURES: &[Figure] = &[
    (
        "workers",
        |m| Some(m.workers.count.value as f64),
        |v| format!("{v}"),
    ),
    ("clock", |m| Some(m.workers.clock_hz.value), units::hertz),
    ("memory", |m| Some(m.memory().bytes.value), units::bytes),
    (
        "bandwidth, peak",
        |m| Some(m.memory().peak()),
        units::byte_rate,
    ),
    (
        "bandwidth, read",
        |m| Some(m.memory().read.all.value),
        units::byte_rate,
    ),
    (
        "memory latency",
        |m| Some(m.memory().latency_s.value),
        units::seconds,
    ),
    (
        "shared memory",
        |m| level(m, "shared", |l| l.bytes.value),
        units::bytes,
    ),
    ("L2", |m| level(m, "L2", |l| l.bytes.value), units::bytes),
    (
        "L2 read",
        |m| level(m, "L2", |l| l.read.all.value),
        units::byte_rate,
    ),
    (
        "L2 latency",
        |m| level(m, "L2", |l| l.latency_s.value),
        units::seconds,
    ),
    (
        "last level",
        |m| level(m, "LLC", |l| l.bytes.value),
        units::bytes,
    ),
    (
        "f32",
        |m| m.unit(UnitClass::Fma, NumType::F32).map(|u| u.all.value),
        units::flop_rate,
    ),
    ("f16 matrix", |m| tensor(m, NumType::F16), units::flop_rate),
    (
        "bf16 matrix",
        |m| tensor(m, NumType::Bf16),
        units::flop_rate,
    ),
    (
        "tf32 matrix",
        |m| tensor(m, NumType::Tf32),
        units::flop_rate,
    ),
    ("i8 matrix", |m| tensor(m, NumType::I8), units::flop_rate),
    ("f8 matrix", |m| tensor(m, NumType::F8), units::flop_rate),
    (
        "ridge f32",
        |m| ridge(m, UnitClass::Fma, NumType::F32),
        |v| format!("{} op/B", units::number(v)),
    ),
    (
        "ridge f16 matrix",
        |m| ridge(m, UnitClass::Tensor, NumType::F16),
        |v| format!("{} op/B", units::number(v)),
    ),
    ("to the host", |m| link(m, "host"), units::byte_rate),
    ("to others", |m| link(m, "remote"), units::byte_rate),
    (
        "power",
        |m| m.power_w.map(|p| p.value),
        |v| format!("{v} W"),
    ),
    ("launch", |m| Some(m.costs.launch_s.value), units::seconds),
];

fn tensor(m: &Machine, d: NumType) -> Option<f64> {
    m.unit(UnitClass::Tensor, d).map(|u| u.all.value)
}

fn level(m: &Machine, n: &str, f: fn(&machine::Level) -> f64) -> Option<f64> {
    m.level(n).map(f)
}

fn link(m: &Machine, to: &str) -> Option<f64> {
    let link = m.links.iter().find(|l| l.to == to);
    link.map(|l| l.bandwidth.value)
}

/// Machines side by side, a column each; figures of the others also as a ratio to the first.
pub fn machine_comparison(machines: &[Machine], style: Style) -> String {
    let mut columns = vec![("", Align::Left)];
    columns.extend(machines.iter().map(|m| (m.name.as_str(), Align::Right)));
    let mut t = Table::new(&columns);
    for (name, get, text) in FIGURES {
        let values: Vec<Option<f64>> = machines.iter().map(get).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let first = values.first().copied().flatten();
        let cell = |(i, v): (usize, &Option<f64>)| match (v, first) {
            (None, _) => "-".to_string(),
            (Some(v), Some(f)) if i > 0 && f > 0.0 => {
                format!("{} ({}x)", text(*v), units::number(v / f))
            }
            (Some(v), _) => text(*v),
        };
        let mut row = vec![name.to_string()];
        row.extend(values.iter().enumerate().map(cell));
        t.row(row);
    }
    t.render(style)
}

fn ridge(m: &Machine, class: UnitClass, d: NumType) -> Option<f64> {
    let memory = &m.memory().name;
    ridge_points(m, class, d)
        .into_iter()
        .find(|r| &r.level == memory)
        .map(|r| r.ops_per_byte)
}
