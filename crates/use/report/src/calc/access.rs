//! The access calculator's report: coalescing, bank conflicts, remedies.
use super::because;
use crate::table::{Align, Style, Table};
use crate::units;
use expr::Expr;
use layout::Arrange;
use machine::calc::access::{self, Divergence, GlobalAccess, IndexError, Remedy, SharedAccess};
use serde::Serialize;
use std::fmt::Write;

/// What lanes access.
#[derive(Clone, Debug, Default)]
pub struct AccessInput {
    /// Lanes of the warp.
    pub lanes: u64,
    /// Bytes of an element.
    pub width: u64,
    /// Elements from lane to lane, where no index is given.
    pub stride: u64,
    /// The element of each lane, as an expression of `lane`.
    pub index: Option<String>,
    /// Lanes for which it holds take part.
    pub predicate: Option<String>,
    /// Byte at which element 0 lies.
    pub base: u64,
}

/// Why there is no answer.
pub type Refused = IndexError;

/// Shared memory at one width.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BanksView {
    /// Bits that a lane accesses.
    pub bits: u64,
    /// Passes over the banks.
    pub passes: u64,
    /// The fewest that this width takes.
    pub ideal: u64,
    /// Conflict degree: passes where one would do.
    pub degree: u64,
}

/// A change that takes bank conflicts away.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RemedyView {
    /// `padding` or `swizzle`.
    pub kind: String,
    /// Elements of a row.
    pub row: u64,
    /// Elements of padding, or columns that rows are swizzled over.
    pub by: u64,
    /// Where an element goes.
    pub formula: String,
    /// Shared memory it costs.
    pub overhead: f64,
    /// Passes afterwards.
    pub passes: u64,
}

/// One memory instruction of a warp.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccessView {
    /// Lanes of the warp.
    pub lanes: u64,
    /// Lanes that take part.
    pub active: u64,
    /// Bytes of an element.
    pub width: u64,
    /// The pattern in words.
    pub pattern: String,
    /// Distinct sectors of 32 bytes.
    pub sectors: u64,
    /// The fewest that as many distinct elements need.
    pub ideal_sectors: u64,
    /// Distinct lines of 128 bytes.
    pub lines: u64,
    /// Transactions: one a line.
    pub transactions: u64,
    /// Distinct bytes wanted.
    pub bytes_wanted: u64,
    /// Bytes moved.
    pub bytes_moved: u64,
    /// Coalescing efficiency.
    pub efficiency: f64,
    /// Shared memory with elements of this width.
    pub shared: BanksView,
    /// Shared memory with the same elements 4, 8 and 16 bytes wide.
    pub shared_by_width: Vec<BanksView>,
    /// What would take the conflicts away, verified.
    pub remedies: Vec<RemedyView>,
    /// Lanes on both sides of the predicate and the sides that are walked.
    pub divergence: Option<DivergenceView>,
    /// The reasons.
    pub explanation: Vec<String>,
    #[serde(skip)]
    global: GlobalAccess,
    #[serde(skip)]
    banks: SharedAccess,
}

/// What a branch on the predicate costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DivergenceView {
    /// Lanes for which it holds.
    pub taken: u64,
    /// The others.
    pub not_taken: u64,
    /// Sides the warp walks.
    pub sides: u64,
    /// Useful lanes over issued lanes.
    pub efficiency: f64,
}

fn banks(s: &SharedAccess, bits: u64) -> BanksView {
    BanksView {
        bits,
        passes: s.passes,
        ideal: s.ideal,
        degree: s.degree,
    }
}

impl AccessView {
    /// Counts a warp's access.
    ///
    /// # Errors
    /// An expression that does not read or gives no element.
    pub fn new(input: &AccessInput) -> Result<AccessView, Refused> {
        let read = |t: &Option<String>| t.as_deref().map(access::parse_index).transpose();
        let (index, only): (Option<Expr>, Option<Expr>) =
            (read(&input.index)?, read(&input.predicate)?);
        let width = input.width.max(1);
        if input.stride >= 1 << 46 {
            return Err(IndexError::Range {
                lane: 1,
                value: input.stride.to_string(),
            });
        }
        let lanes = match (&index, &only) {
            (None, None) => access::strided(input.lanes, input.stride),
            (Some(i), only) => access::indexed(input.lanes, i, only.as_ref())?,
            (None, only) => {
                let i = access::parse_index(&format!("lane * {}", input.stride))?;
                access::indexed(input.lanes, &i, only.as_ref())?
            }
        };
        let global = access::global_access(&lanes, width, input.base);
        let own = access::shared_access(&lanes, width);
        let by_width = [4, 8, 16].map(|w| banks(&access::shared_access(&lanes, w), w * 8));
        let found: Vec<Remedy> = if index.is_none() && only.is_none() {
            access::row_remedies(input.lanes.min(32), input.stride, width)
        } else {
            access::remedies(&lanes, width)
        };
        let divergence: Option<Divergence> = only
            .as_ref()
            .map(|p| access::divergence(input.lanes, p))
            .transpose()?;
        let mut view = AccessView {
            lanes: lanes.len() as u64,
            active: global.active,
            width,
            pattern: match &input.index {
                Some(i) => format!("element {i}"),
                None => format!("element lane * {}", input.stride),
            },
            sectors: global.sectors,
            ideal_sectors: global.ideal_sectors,
            lines: global.lines,
            transactions: global.lines,
            bytes_wanted: global.wanted,
            bytes_moved: global.moved,
            efficiency: global.efficiency,
            shared: banks(&own, width * 8),
            shared_by_width: by_width.to_vec(),
            remedies: found
                .into_iter()
                .map(|r| RemedyView {
                    kind: r.kind.into(),
                    row: r.row,
                    by: r.by,
                    formula: r.formula,
                    overhead: r.overhead,
                    passes: r.after.passes,
                })
                .collect(),
            divergence: divergence.map(|d| DivergenceView {
                taken: d.taken,
                not_taken: d.not_taken,
                sides: d.sides,
                efficiency: d.efficiency,
            }),
            explanation: Vec::new(),
            global,
            banks: own,
        };
        view.explanation = view.reasons();
        Ok(view)
    }

    fn reasons(&self) -> Vec<String> {
        let mut out = vec![format!(
            "Global memory moves whole sectors of 32 bytes: {} for {} bytes that are wanted, {} of what is moved.",
            units::plural(self.sectors, "sector"),
            self.bytes_wanted,
            units::percent(self.efficiency)
        )];
        if self.sectors > self.ideal_sectors {
            out.push(format!(
                "{} would do if the lanes' elements lay side by side: let neighbouring lanes take neighbouring elements, or fetch rows and turn the tile around in shared memory.",
                units::plural(self.ideal_sectors, "sector")
            ));
        } else {
            out.push("That is the least there is: the access is coalesced.".into());
        }
        let s = &self.shared;
        if s.passes > s.ideal {
            out.push(format!(
                "In shared memory up to {} lanes want different words of one bank, so the request takes {} passes instead of {}.",
                s.degree, s.passes, s.ideal
            ));
            for r in &self.remedies {
                out.push(match r.kind.as_str() {
                    "padding" => format!(
                        "Padding: {} unused after every row of {} ({}) brings it to {}; it costs {} of the tile.",
                        units::plural(r.by, "element"),
                        r.row,
                        r.formula,
                        r.passes,
                        units::percent(r.overhead)
                    ),
                    _ => format!(
                        "Swizzle: {} brings it to {} and costs no memory.",
                        r.formula, r.passes
                    ),
                });
            }
        } else {
            out.push("In shared memory there are no bank conflicts.".into());
        }
        if let Some(d) = &self.divergence {
            out.push(if d.sides > 1 {
                format!(
                    "The predicate holds for {} lanes and not for {}: a warp walks both sides, {} of its lanes' time is useful.",
                    d.taken,
                    d.not_taken,
                    units::percent(d.efficiency)
                )
            } else {
                "All lanes agree on the predicate: the branch costs nothing.".into()
            });
        }
        out
    }

    /// The counts, the reasons and drawings of lanes onto sectors and banks.
    pub fn render(&self, style: Style) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}",
            style.heading(&format!(
                "{} lanes of {}, {} of {} bytes",
                self.active, self.lanes, self.pattern, self.width
            ))
        );
        let _ = writeln!(
            out,
            "  global   {}, {} = transactions, {} of {} bytes wanted: {}",
            units::plural(self.sectors, "sector"),
            units::plural(self.lines, "line"),
            self.bytes_wanted,
            self.bytes_moved,
            units::percent(self.efficiency)
        );
        let mut t = Table::new(&[
            ("  shared, elements of", Align::Left),
            ("passes", Align::Right),
            ("at best", Align::Right),
            ("conflict degree", Align::Right),
        ]);
        for b in &self.shared_by_width {
            let own = if b.bits == self.width * 8 { " <-" } else { "" };
            t.row(vec![
                format!("  {} bits{own}", b.bits),
                b.passes.to_string(),
                b.ideal.to_string(),
                b.degree.to_string(),
            ]);
        }
        out.push_str(&t.render(style));
        let _ = writeln!(out, "\n{}", style.heading("why"));
        out.push_str(&because(&self.explanation, style));
        let _ = writeln!(
            out,
            "\n{}",
            style.heading("lanes on sectors of 32 bytes (a row is a line of 128)")
        );
        self.draw_sectors(&mut out, style);
        let _ = writeln!(
            out,
            "\n{}",
            style.heading(
                "words in every bank (of the lanes that take the most passes), banks below"
            )
        );
        self.draw_banks(&mut out, style);
        out
    }

    /// As many banks side by side as fit, in equal rows.
    fn draw_banks(&self, out: &mut String, style: Style) {
        let words = &self.banks.words;
        let top = words.iter().copied().max().unwrap_or(0);
        let most = top.min(8);
        let mut beside = words.len().max(1);
        while beside > 8 && 3 * beside > style.width {
            beside = beside.div_ceil(2);
        }
        for (row, part) in words.chunks(beside).enumerate() {
            for level in (1..=most).rev() {
                // More than eight are drawn as eight; the numbers below are exact.
                let cell = |w: &u64| match w * most / top.max(1) >= level && *w > 0 {
                    true => " # ",
                    false => "   ",
                };
                let cells: String = part.iter().map(cell).collect();
                let _ = writeln!(out, "  {}", cells.trim_end());
            }
            let first = row * beside;
            let line = |f: &dyn Fn(usize, u64) -> u64| -> String {
                let cells = part.iter().enumerate();
                let cells = cells.map(|(i, w)| format!("{:>2} ", f(first + i, *w)));
                cells.collect()
            };
            let _ = writeln!(out, "  {}", line(&|_, w| w).trim_end());
            let _ = writeln!(out, "  {}", line(&|i, _| i as u64).trim_end());
        }
    }

    fn draw_sectors(&self, out: &mut String, style: Style) {
        let mut rows: Vec<(u64, [Vec<usize>; 4])> = Vec::new();
        for (lane, s) in self.global.by_lane.iter().enumerate() {
            let Some((first, last)) = s else { continue };
            for sector in *first..=(*last).min(first + 3) {
                let (line, k) = (sector / 4, (sector % 4) as usize);
                let at = match rows.iter().position(|r| r.0 == line) {
                    Some(at) => at,
                    None => {
                        rows.push((line, Default::default()));
                        rows.len() - 1
                    }
                };
                rows[at].1[k].push(lane);
            }
        }
        rows.arrange_by_key(|r| r.0);
        const SHOWN: usize = 8;
        for (line, sectors) in rows.iter().take(SHOWN) {
            let cells: Vec<String> = sectors
                .iter()
                .map(|l| format!("{:^SECTOR$}", span(l)))
                .collect();
            let _ = match style.width < LINE {
                true => {
                    let spans: Vec<String> = sectors.iter().map(|l| span(l)).collect();
                    writeln!(out, "  line {line}: {}", spans.join(" | "))
                }
                false => writeln!(out, "  line {line:>8} |{}|", cells.join("|")),
            };
        }
        if rows.len() > SHOWN {
            let _ = writeln!(out, "  and {} lines more", rows.len() - SHOWN);
        }
    }
}

/// Columns of a sector, and of a line of four.
const SECTOR: usize = 14;
const LINE: usize = 17 + 4 * (SECTOR + 1);

/// Lanes as `0-7`, `3`, `0,2,4,6`, or where these are too many `16 of 0-30`.
fn span(lanes: &[usize]) -> String {
    let (Some(first), Some(last)) = (lanes.first(), lanes.last()) else {
        return String::new();
    };
    if lanes.len() == 1 {
        first.to_string()
    } else if lanes.windows(2).all(|w| w[1] == w[0] + 1) {
        format!("{first}-{last}")
    } else {
        let all: Vec<String> = lanes.iter().map(ToString::to_string).collect();
        match all.join(",") {
            text if text.len() <= SECTOR => text,
            _ => format!("{} of {first}-{last}", lanes.len()),
        }
    }
}
