//! What one memory instruction of a warp asks of the memory: sectors and lines of global memory, passes
//! over the banks of shared memory, and what would make them fewer.
//!
//! Rules (CUDA programming and best practices guides): global memory moves whole sectors of 32 bytes,
//! four to a line of 128; shared memory has 32 banks of 4 bytes, each of which gives one word in a pass
//! to all lanes that want it. Accesses of 8 bytes go by half warps, of 16 bytes by quarters.

mod index;
mod remedy;

pub use index::{IndexError, parse_index};
pub use remedy::{Remedy, remedies, row_remedies};

use expr::{Binary, CompiledExpr, EvalContext, Expr, Inst, Scalar};

/// Bytes of a sector, the least that global memory moves.
pub const SECTOR: u64 = 32;
/// Bytes of a line.
pub const LINE: u64 = 128;
/// Banks of shared memory.
pub const BANKS: u64 = 32;
/// Bytes that a bank gives in one pass.
pub const BANK_BYTES: u64 = 4;
/// The most lanes of a warp that are looked at.
pub const MAX_LANES: u64 = 128;

/// The elements that the lanes of a warp access; `None` for a lane that is switched off.
pub type Lanes = Vec<Option<u64>>;

/// Lane `i` accesses element `i * stride`.
pub fn strided(lanes: u64, stride: u64) -> Lanes {
    (0..lanes.min(MAX_LANES))
        .map(|i| i.checked_mul(stride))
        .collect()
}

/// An expression of the lane, and what it divides by.
struct OfLane {
    value: CompiledExpr,
    divisors: CompiledExpr,
    count: usize,
}

impl OfLane {
    fn new(e: &Expr) -> Result<OfLane, IndexError> {
        let wrong = |e: expr::ExprError| IndexError::Eval(e.to_string());
        // What a selection leaves out may divide by anything.
        let selects = e.insts.iter().any(|i| matches!(i, Inst::Select(..)));
        let by = e.insts.iter().filter_map(|i| match i {
            Inst::Binary(Binary::Div | Binary::Mod, _, by) if !selects => Some(*by),
            _ => None,
        });
        let outputs: Vec<_> = by.collect();
        Ok(OfLane {
            value: CompiledExpr::new(e).map_err(wrong)?,
            count: outputs.len(),
            divisors: CompiledExpr::new(&Expr {
                insts: e.insts.clone(),
                outputs,
            })
            .map_err(wrong)?,
        })
    }

    /// Its value; scalar programs make 0 of a division by 0, an address cannot.
    fn at(&self, lane: i64, scratch: &mut Vec<Scalar>) -> Result<Scalar, IndexError> {
        let wrong = |e: expr::EvalError| IndexError::Eval(e.to_string());
        let ctx = EvalContext {
            inputs: &[Scalar::Int(lane)],
            index: &[lane],
            symbols: &|s| (s == "lane").then_some(lane),
        };
        let mut by = vec![Scalar::Int(1); self.count];
        self.divisors
            .eval_into(&ctx, scratch, &mut by)
            .map_err(wrong)?;
        match by.contains(&Scalar::Int(0)) {
            true => Err(IndexError::Division { lane: lane as u64 }),
            false => self.value.eval_one(&ctx, scratch).map_err(wrong),
        }
    }
}

/// Lane `i` accesses the element that `index` gives for it; lanes for which `only` gives 0 are off.
///
/// # Errors
/// An expression that does not evaluate, divides by 0, or gives an element below 0 or beyond 2^53.
pub fn indexed(lanes: u64, index: &Expr, only: Option<&Expr>) -> Result<Lanes, IndexError> {
    let value = OfLane::new(index)?;
    let on = only.map(OfLane::new).transpose()?;
    let mut scratch = Vec::new();
    let mut out = Lanes::new();
    for lane in 0..lanes.min(MAX_LANES) as i64 {
        if let Some(on) = &on
            && !truth(on.at(lane, &mut scratch)?)
        {
            out.push(None);
            continue;
        }
        let v = value.at(lane, &mut scratch)?;
        match v {
            Scalar::Int(i) if (0..1 << 53).contains(&i) => out.push(Some(i as u64)),
            other => {
                return Err(IndexError::Range {
                    lane: lane as u64,
                    value: match other {
                        Scalar::Int(i) => i.to_string(),
                        Scalar::Float(f) => f.to_string(),
                    },
                });
            }
        }
    }
    Ok(out)
}

fn truth(v: Scalar) -> bool {
    v != Scalar::Int(0) && v != Scalar::Float(0.0)
}

/// One request of a warp to global memory.
#[derive(Clone, Debug, PartialEq)]
pub struct GlobalAccess {
    /// Lanes that take part.
    pub active: u64,
    /// Distinct bytes that the lanes want.
    pub wanted: u64,
    /// Distinct sectors of 32 bytes that are moved.
    pub sectors: u64,
    /// Distinct lines of 128 bytes that they lie in; each is one transaction.
    pub lines: u64,
    /// Bytes moved: whole sectors.
    pub moved: u64,
    /// Coalescing efficiency: wanted over moved; 1 when nothing is asked for.
    pub efficiency: f64,
    /// The fewest sectors that as many lanes of this width need.
    pub ideal_sectors: u64,
    /// The sectors that each lane touches, as numbers of 32 bytes from 0.
    pub by_lane: Vec<Option<(u64, u64)>>,
}

/// Counts what one request of a warp to global memory moves; element `e` lies at byte
/// `base + e * width`.
pub fn global_access(lanes: &[Option<u64>], width: u64, base: u64) -> GlobalAccess {
    let width = width.max(1);
    let at = |e: u64| base.saturating_add(e.saturating_mul(width));
    let mut elements: Vec<u64> = lanes.iter().flatten().copied().collect();
    let active = elements.len() as u64;
    elements.sort_unstable();
    elements.dedup();
    let span = |e: u64| (at(e) / SECTOR, at(e).saturating_add(width - 1) / SECTOR);
    let mut sectors: Vec<u64> = elements
        .iter()
        .flat_map(|e| {
            let (first, last) = span(*e);
            first..=last.min(first + MAX_LANES)
        })
        .collect();
    sectors.sort_unstable();
    sectors.dedup();
    let mut lines: Vec<u64> = sectors.iter().map(|s| s / (LINE / SECTOR)).collect();
    lines.dedup();
    let wanted = elements.len() as u64 * width;
    let moved = sectors.len() as u64 * SECTOR;
    GlobalAccess {
        active,
        wanted,
        sectors: sectors.len() as u64,
        lines: lines.len() as u64,
        moved,
        efficiency: if moved > 0 {
            wanted as f64 / moved as f64
        } else {
            1.0
        },
        ideal_sectors: wanted.div_ceil(SECTOR),
        by_lane: lanes.iter().map(|l| l.map(span)).collect(),
    }
}

/// One request of a warp to shared memory.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedAccess {
    /// Lanes that take part.
    pub active: u64,
    /// Passes over the banks that the request takes.
    pub passes: u64,
    /// The fewest that as many lanes of this width take.
    pub ideal: u64,
    /// The conflict degree: passes that the worst group of lanes takes where one would do.
    pub degree: u64,
    /// Distinct 4-byte words in every bank, of the group of lanes that takes the most passes.
    pub words: Vec<u64>,
    /// The bank of each lane's first word.
    pub by_lane: Vec<Option<u64>>,
}

/// Counts the passes of one request of a warp to shared memory; element `e` lies at byte `e * width`.
/// Widths are 1, 2, 4, 8 or 16 bytes; wider ones count as 16.
pub fn shared_access(lanes: &[Option<u64>], width: u64) -> SharedAccess {
    let width = width.clamp(1, 16);
    let group = match width {
        9..=16 => 8,
        5..=8 => 16,
        _ => 32,
    };
    let (mut passes, mut ideal) = (0, 0);
    let mut worst = vec![0u64; BANKS as usize];
    for g in lanes.chunks(group) {
        let mut words: Vec<u64> = g
            .iter()
            .flatten()
            .flat_map(|e| {
                let a = e.saturating_mul(width);
                a / BANK_BYTES..=a.saturating_add(width - 1) / BANK_BYTES
            })
            .collect();
        if words.is_empty() {
            continue;
        }
        words.sort_unstable();
        words.dedup();
        let mut banks = vec![0u64; BANKS as usize];
        for w in &words {
            banks[(w % BANKS) as usize] += 1;
        }
        let most = |b: &[u64]| b.iter().copied().max().unwrap_or(0);
        passes += most(&banks);
        ideal += 1;
        if most(&banks) > most(&worst) {
            worst = banks;
        }
    }
    SharedAccess {
        active: lanes.iter().flatten().count() as u64,
        passes,
        ideal,
        degree: worst.iter().copied().max().unwrap_or(0),
        words: worst,
        by_lane: lanes
            .iter()
            .map(|l| l.map(|e| e.saturating_mul(width) / BANK_BYTES % BANKS))
            .collect(),
    }
}

/// What a branch on a predicate costs a warp.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// Lanes for which it holds.
    pub taken: u64,
    /// Lanes for which it does not.
    pub not_taken: u64,
    /// Sides that the warp walks through: 2 when lanes differ.
    pub sides: u64,
    /// Useful lanes over issued lanes when both sides are equally long.
    pub efficiency: f64,
}

/// The cost of `if (predicate) A else B` in one warp.
///
/// # Errors
/// An expression that does not evaluate.
pub fn divergence(lanes: u64, predicate: &Expr) -> Result<Divergence, IndexError> {
    let zero = parse_index("0")?;
    let on = indexed(lanes, &zero, Some(predicate))?;
    let taken = on.iter().flatten().count() as u64;
    let all = on.len() as u64;
    let sides = u64::from(taken > 0) + u64::from(taken < all);
    Ok(Divergence {
        taken,
        not_taken: all - taken,
        sides,
        efficiency: 1.0 / sides.max(1) as f64,
    })
}
