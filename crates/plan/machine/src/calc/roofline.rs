//! The roofline at every memory level: what arithmetic and each level's bytes would take alone, at peak.

use crate::cost::unit_for;
use crate::{Bound, Machine, NumType, UnitClass, Work};

/// What one memory level does to a computation.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelRoof {
    /// Level name.
    pub level: String,
    /// Bytes that cross its near side.
    pub bytes: f64,
    /// Operations for each of them; infinite when no byte crosses.
    pub ops_per_byte: f64,
    /// Peak bandwidth of the level, all workers, bytes per second.
    pub peak: f64,
    /// Intensity at which the level and the arithmetic take equally long.
    pub ridge: f64,
    /// Operations per second at the roof: `min(arithmetic, intensity * peak)`.
    pub roof: f64,
    /// Seconds that its bytes take at peak.
    pub seconds: f64,
    /// Whether it counts: what lies beyond the main memory is shown, and takes no part in the bound.
    pub counts: bool,
}

/// What one unit does of a computation.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitRoof {
    /// Unit name.
    pub unit: String,
    /// Class of the operations.
    pub class: UnitClass,
    /// Format of their inputs.
    pub dtype: NumType,
    /// How many, with those that the model has not ([`Work::repeated`]).
    pub ops: f64,
    /// Operations per second of all workers.
    pub rate: f64,
    /// Seconds at that rate.
    pub seconds: f64,
}

/// A computation under a machine's roofs.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// Arithmetic operations of the model; a multiply-add counts as two.
    pub ops: f64,
    /// By unit.
    pub units: Vec<UnitRoof>,
    /// Seconds of arithmetic: vector units share their pipes, matrix units run beside them.
    pub compute_s: f64,
    /// From near to far.
    pub levels: Vec<LevelRoof>,
    /// Seconds at the roof: the longest of arithmetic and of the levels that count.
    pub seconds: f64,
    /// Which of them that is.
    pub bound: Bound,
}

impl Roofline {
    /// The arithmetic's roof, operations per second; 0 when there is no arithmetic.
    pub fn compute_rate(&self) -> f64 {
        if self.compute_s > 0.0 {
            self.ops / self.compute_s
        } else {
            0.0
        }
    }

    /// A level by name.
    pub fn level(&self, name: &str) -> Option<&LevelRoof> {
        self.levels.iter().find(|l| l.level == name)
    }

    /// The farthest level that counts: the main memory.
    pub fn memory(&self) -> Option<&LevelRoof> {
        self.levels.iter().rev().find(|l| l.counts)
    }
}

/// `work` under the roofs of `m` with all its workers: peak rates, everything overlapped, no fixed costs.
/// Elements that lie apart are no arithmetic and do not count.
pub fn roofline(m: &Machine, work: &Work) -> Roofline {
    let mut units: Vec<UnitRoof> = Vec::new();
    for &(class, dtype, ops) in &work.ops {
        if ops <= 0.0 || class == UnitClass::Element {
            continue;
        }
        if let Some((i, factor)) = unit_for(m, class, dtype) {
            let rate = m.units[i].all.value * factor;
            units.push(UnitRoof {
                unit: m.units[i].name.clone(),
                class: m.units[i].class,
                dtype,
                ops,
                rate,
                seconds: ops / rate,
            });
        }
    }
    let bytes = |i: usize| {
        let t = work.traffic_at(i);
        t.loaded + t.stored
    };
    build(m, (units, work.repeated), &bytes)
}

/// A computation that textbooks reason with: all of it on the fastest unit of a class and format, every
/// operand across every level once. `None` when the machine has no such unit.
pub fn roofline_of(
    m: &Machine,
    class: UnitClass,
    dtype: NumType,
    of: &super::Ideal,
) -> Option<Roofline> {
    let u = m.unit(class, dtype)?;
    let units = vec![UnitRoof {
        unit: u.name.clone(),
        class,
        dtype,
        ops: of.ops,
        rate: u.all.value,
        seconds: of.ops / u.all.value,
    }];
    Some(build(m, (units, 0.0), &|_| of.bytes))
}

/// `repeated` are the operations among those of the units that the model has not.
fn build(
    m: &Machine,
    (units, repeated): (Vec<UnitRoof>, f64),
    bytes: &dyn Fn(usize) -> f64,
) -> Roofline {
    let ops = (units.iter().map(|u| u.ops).sum::<f64>() - repeated).max(0.0);
    let side = |tensor: bool| -> f64 {
        let own = units
            .iter()
            .filter(|u| (u.class == UnitClass::Tensor) == tensor);
        own.map(|u| u.seconds).sum()
    };
    let (vector_s, tensor_s) = (side(false), side(true));
    let compute_s = vector_s.max(tensor_s);
    let rate = if compute_s > 0.0 {
        ops / compute_s
    } else {
        0.0
    };
    let memory = m.memory_index();
    let levels: Vec<LevelRoof> = m
        .levels
        .iter()
        .enumerate()
        .filter(|(i, l)| {
            let same = l.name == "host" && m.is_unified() && *i != memory;
            l.name != "register" && !same
        })
        .map(|(i, l)| {
            let (bytes, peak) = (bytes(i), l.peak());
            let ops_per_byte = match bytes > 0.0 {
                true => ops / bytes,
                false => f64::INFINITY,
            };
            LevelRoof {
                level: l.name.clone(),
                bytes,
                ops_per_byte,
                peak,
                ridge: rate / peak,
                roof: rate.min(ops_per_byte * peak),
                seconds: bytes / peak,
                counts: i <= memory,
            }
        })
        .collect();
    let mut seconds = compute_s;
    let busiest = units
        .iter()
        .filter(|u| (u.class == UnitClass::Tensor) == (tensor_s > vector_s))
        .max_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let mut bound = busiest.map_or(Bound::Launch, |u| Bound::Compute(u.unit.as_str().into()));
    for l in levels.iter().filter(|l| l.counts) {
        if l.seconds > seconds {
            seconds = l.seconds;
            bound = Bound::Memory(l.level.as_str().into());
        }
    }
    Roofline {
        ops,
        units,
        compute_s,
        levels,
        seconds,
        bound,
    }
}
