//! Ridge points and roofs (Williams, Waterman and Patterson's roofline, one for every level).

use crate::{Machine, NumType, UnitClass};

/// The intensity at which a level stops being what bounds a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Ridge {
    /// Level name.
    pub level: String,
    /// Operations per byte: the unit's rate divided by the level's peak bandwidth, all workers.
    pub ops_per_byte: f64,
}

/// The ridge point of every level but the registers for the machine's fastest unit of a class and
/// format; empty when it has none.
pub fn ridge_points(m: &Machine, class: UnitClass, dtype: NumType) -> Vec<Ridge> {
    let Some(unit) = m.unit(class, dtype) else {
        return Vec::new();
    };
    m.levels
        .iter()
        .filter(|l| l.name != "register")
        .map(|l| Ridge {
            level: l.name.clone(),
            ops_per_byte: unit.all.value / l.peak(),
        })
        .collect()
}

/// Operations per second at the roof: `min(unit rate, intensity * level peak)` with all workers;
/// `None` when the machine lacks the unit or the level.
pub fn roof(
    m: &Machine,
    class: UnitClass,
    dtype: NumType,
    level: &str,
    ops_per_byte: f64,
) -> Option<f64> {
    let unit = m.unit(class, dtype)?;
    let l = m.level(level)?;
    Some(unit.all.value.min(ops_per_byte * l.peak()))
}
