//! The part of a kernel's text that says how it runs: schedules per target, and the user's own code. `read`
//! reads it behind the statements; the planner takes it instead of searching.
use crate::parse::{Read, axes, axis, cut, dim, dtype, fail, operand, split};
use crate::{
    AxisTile, Code, Combined, CpuMapping, Factors, Fragment, GpuMapping, Kernel, KernelError,
    Mapping, MicroKernel, Place, Schedule, Spread, Swizzle, TileId, TileProgram, text,
};
use layout::{DType, Dim};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::sync::Arc;

/// What a kernel's text says of how it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// Schedules, for a CPU or for a GPU as their mappings say.
    pub schedules: Vec<Schedule>,
    /// PTX for it.
    pub code: Option<Arc<Code>>,
}

impl Given {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.schedules.is_empty() && self.code.is_none()
    }

    /// Checks what needs no target: every schedule makes a program of `kernel`, and the code's sizes are
    /// in symbols of it.
    ///
    /// # Errors
    /// The rule that a schedule breaks, or `code` with the symbol.
    pub fn verify(&self, kernel: &Kernel) -> Result<(), KernelError> {
        let kernel = Arc::new(kernel.clone());
        for s in &self.schedules {
            TileProgram::new(kernel.clone(), s.clone())?;
        }
        match &self.code {
            Some(c) => crate::verify::code(&kernel, c),
            None => Ok(()),
        }
    }

    /// Text of `kernel` with this behind it, which [`crate::Declared::parse`] reads back.
    pub fn to_text(&self, kernel: &Kernel) -> String {
        let mut out = kernel.to_string();
        for s in &self.schedules {
            schedule(kernel, s, &mut out);
        }
        if let Some(c) = &self.code {
            let list = |d: &[Dim]| d.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
            let _ = write!(
                out,
                "\n  ptx {}\n  grid  {}\n  threads  {}\n  shared  {}\n  sizes  {}\n  text\n{}\n  end",
                c.entry,
                list(&c.grid),
                list(&c.threads),
                c.shared,
                list(&c.sizes),
                c.text.trim_end_matches('\n')
            );
        }
        out
    }
}

/// The lines of one schedule.
fn schedule(k: &Kernel, s: &Schedule, out: &mut String) {
    let grid = match s.grid.is_empty() {
        true => "one task".into(),
        false => format!("grid  {}", text::cut(k, &s.grid)),
    };
    let _ = write!(
        out,
        "\n  schedule\n  {grid}, chunk {}, raster {}",
        s.chunk, s.raster
    );
    if !s.loops.is_empty() {
        let _ = write!(out, "\n  loops  {}", text::cut(k, &s.loops));
    }
    let _ = write!(out, "\n  mapping  {}", text::mapping(k, &s.mapping));
    let mut places: Vec<(Place, Vec<TileId>)> = vec![];
    for (t, &p) in s.places.iter().enumerate() {
        match places.iter_mut().find(|known| known.0 == p) {
            Some((_, list)) => list.push(t as TileId),
            None => places.push((p, vec![t as TileId])),
        }
    }
    for (p, tiles) in places.iter().filter(|p| p.0 != Place::Register) {
        let _ = write!(out, "\n  {}  {}", text::place(*p), text::names(k, tiles));
    }
}

/// The part whose lines are read.
enum Part {
    Schedule {
        at: usize,
        made: Schedule,
        mapped: bool,
    },
    Code {
        at: usize,
        made: Code,
        verbatim: bool,
        done: bool,
    },
}

/// Reads what stands behind the statements.
#[derive(Default)]
pub(crate) struct Reader {
    given: Given,
    part: Option<Part>,
}

/// A whole number of at least `least`.
fn number<T: std::str::FromStr + PartialOrd>(text: &str, least: T) -> Read<T> {
    match text.trim().parse::<T>() {
        Ok(n) if n >= least => Ok(n),
        _ => fail(
            text.trim(),
            format!("'{}' is no number that can stand here", text.trim()),
        ),
    }
}

/// `AxB`.
fn pair(text: &str) -> Read<(u32, u32)> {
    match text.split_once('x') {
        Some((a, b)) => Ok((number(a, 0)?, number(b, 0)?)),
        None => fail(
            text,
            format!("'{text}' is no pair of numbers with an x between them"),
        ),
    }
}

/// `m by 64, n by 32`, and `chunk 1`, `raster 1` where `s` is there for them.
fn cuts(k: &Kernel, text: &str, mut s: Option<&mut Schedule>) -> Read<Vec<AxisTile>> {
    let mut out = vec![];
    for piece in split(text, ",") {
        let piece = piece.trim();
        if let Some((name, tile)) = cut(piece, " by ") {
            out.push(AxisTile {
                axis: axis(k, name)?,
                tile: number(tile, 1)?,
            });
            continue;
        }
        match (piece.split_once(' '), &mut s) {
            (Some(("chunk", n)), Some(s)) => s.chunk = number(n, 1)?,
            (Some(("raster", n)), Some(s)) => s.raster = number(n, 1)?,
            _ => {
                return fail(
                    piece,
                    "axes are cut as 'm by 64, n by 32'; behind those of a grid stand 'chunk N' and 'raster N'",
                );
            }
        }
    }
    Ok(out)
}

fn cpu(k: &Kernel, text: &str) -> Read<Mapping> {
    let pieces = split(text, ", ");
    let &[first, rows, lanes] = pieces.as_slice() else {
        return fail(
            text,
            "a CPU's mapping is written as 'micro-kernel 6x16, rows m, lanes n', or 'rows by vectors' for the first",
        );
    };
    let micro = match first.trim().strip_prefix("micro-kernel ") {
        Some(shape) => Some(pair(shape).map(|(mr, nr)| MicroKernel { mr, nr })?),
        None => None,
    };
    let (Some(rows), Some(lanes)) = (
        rows.trim().strip_prefix("rows"),
        lanes.trim().strip_prefix("lanes "),
    ) else {
        return fail(rows, "'rows AXES, lanes AXIS' is missing ('lanes -': none)");
    };
    Ok(Mapping::Cpu(CpuMapping {
        micro,
        rows: axes(k, rows)?,
        lanes: match lanes.trim() {
            "-" => None,
            name => Some(axis(k, name)?),
        },
    }))
}

/// `mma.m16n8k16 f16->f32`, `mma.m16n8k8 3xtf32->f32`, `wgmma.m64n128k16 f16->f32` and the like, or `fma`.
fn fragment(text: &str) -> Read<Option<Fragment>> {
    if text == "fma" {
        return Ok(None);
    }
    let named = text.strip_prefix("mma.m").or(text.strip_prefix("wgmma.m"));
    let parts = named.and_then(|rest| {
        let (shape, types) = rest.split_once(' ')?;
        let (m, rest) = shape.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        let (input, acc) = types.split_once("->")?;
        Some((m, n, k, input, acc))
    });
    let Some((m, n, k, input, acc)) = parts else {
        return fail(
            text,
            "an instruction is 'fma' or as 'mma.m16n8k16 f16->f32'",
        );
    };
    let (input, factors, right) = match (input, input.split_once('*')) {
        ("tf32", _) => (DType::F32, Factors::Tf32, None),
        ("3xtf32", _) => (DType::F32, Factors::Tf32x3, None),
        ("bf16(f32)", _) => (DType::F32, Factors::Bf16, None),
        ("3xbf16", _) => (DType::F32, Factors::Bf16x3, None),
        (_, Some((left, right))) => (dtype(left)?, Factors::Whole, Some(dtype(right)?)),
        (whole, None) => (dtype(whole)?, Factors::Whole, None),
    };
    Ok(Some(Fragment {
        m: number(m, 1)?,
        n: number(n, 1)?,
        k: number(k, 1)?,
        input,
        acc: dtype(acc)?,
        factors,
        right,
    }))
}

/// `m over 8x4 of 2`.
fn spread(k: &Kernel, text: &str) -> Read<Option<Spread>> {
    let Some((name, rest)) = cut(text, " over ") else {
        return Ok(None);
    };
    let (shape, each) = match rest.split_once(" of ") {
        Some((shape, each)) => (shape, number(each, 1)?),
        None => (rest, 1),
    };
    let (count, stride) = pair(shape)?;
    Ok(Some(Spread {
        axis: axis(k, name)?,
        stride,
        count,
        each,
    }))
}

fn gpu(k: &Kernel, text: &str) -> Read<Mapping> {
    const FORM: &str = "a GPU's mapping is written as 'cta 128 threads, warps 2x2, rows m, columns n, fma, m over 8x4, loads of 4 B, 64 registers'";
    let pieces = split(text, ", ");
    let [threads, warps, rows, columns, instruction, rest @ ..] = pieces.as_slice() else {
        return fail(text, FORM);
    };
    let inside = |text: &'_ str, before: &str, behind: &str| -> Option<(usize, usize)> {
        let t = text.trim();
        let inner = t.strip_prefix(before)?.strip_suffix(behind)?;
        let from = inner.as_ptr() as usize - text.as_ptr() as usize;
        Some((from, from + inner.len()))
    };
    let needed = |text: &'_ str, before: &str, behind: &str| -> Read<(usize, usize)> {
        inside(text, before, behind).map_or_else(|| fail(text, FORM), Ok)
    };
    let (a, b) = needed(threads, "cta ", " threads")?;
    let threads = number(&threads[a..b], 1)?;
    let (a, b) = needed(warps, "warps ", "")?;
    let (flat, copiers) = match warps[a..b].trim().split_once(" and ") {
        Some((flat, rest)) => {
            let (a, b) = needed(rest, "", " to copy")?;
            (flat, number(&rest[a..b], 1u32)?)
        }
        None => (warps[a..b].trim(), 0),
    };
    let (flat, deep) = match flat.strip_suffix(" deep").and_then(|w| w.rsplit_once('x')) {
        Some((flat, deep)) => (flat, number(deep, 1u32)?),
        None => (flat, 1),
    };
    let warps = pair(flat)?;
    let (a, b) = needed(rows, "rows", "")?;
    let rows = axes(k, &rows[a..b])?;
    let (a, b) = needed(columns, "columns", "")?;
    let columns = axes(k, &columns[a..b])?;
    let mut made = GpuMapping {
        threads,
        warps: [warps.0, warps.1],
        copiers,
        walkers: 0,
        cluster: 1,
        combined: Combined::ByLast,
        rows,
        columns,
        fragment: fragment(instruction.trim())?,
        load_bytes: 0,
        store_bytes: 0,
        registers: 0,
        unroll: 1,
        spread: vec![],
        code: None,
        constants: vec![],
        triggers: false,
    };
    for piece in rest {
        if let Some((a, b)) = inside(piece, "loads of ", " B") {
            made.load_bytes = number(&piece[a..b], 1)?;
        } else if let Some((a, b)) = inside(piece, "stores of ", " B") {
            made.store_bytes = number(&piece[a..b], 1)?;
        } else if let Some((a, b)) = inside(piece, "loops ", " times") {
            made.unroll = number(&piece[a..b], 1)?;
        } else if let Some((a, b)) = inside(piece, "", " registers") {
            made.registers = number(&piece[a..b], 1)?;
        } else if let Some((a, b)) = inside(piece, "", " CTAs that walk") {
            made.walkers = number(&piece[a..b], 1)?;
        } else if let Some((a, b)) = inside(piece, "clusters of ", " CTAs") {
            made.cluster = number(&piece[a..b], 1)?;
        } else if let Some((a, b)) = inside(piece, "constants ", "") {
            let names = piece[a..b].split(',');
            made.constants = names.map(|name| operand(k, name)).collect::<Read<_>>()?;
        } else if piece.trim() == text::PARTS {
            made.combined = Combined::InCluster;
        } else if piece.trim() == text::TRIGGERS {
            made.triggers = true;
        } else if let Some(s) = spread(k, piece.trim())? {
            made.spread.push(s);
        } else {
            return fail(piece, FORM);
        }
    }
    // Warps along the depth are those that the threads are more.
    if made.fragment.is_some() && made.deep() != deep {
        return fail(
            text,
            format!(
                "{} threads are {} times as many as {}x{} warps have, and not {deep} times",
                made.computing(),
                made.deep(),
                warps.0,
                warps.1
            ),
        );
    }
    match made.load_bytes > 0 && made.registers > 0 {
        true => Ok(Mapping::Gpu(made)),
        false => fail(text, FORM),
    }
}

/// `in place`, `in shared, 2 stages, swizzle(3,4,3)`, ...
fn place(text: &str) -> Read<Place> {
    match text {
        "in place" => return Ok(Place::InPlace),
        "in registers" => return Ok(Place::Register),
        "where it is used" => return Ok(Place::Recompute),
        "in the cluster" => return Ok(Place::Cluster),
        _ => {}
    }
    let shared = text
        .strip_prefix("in shared, ")
        .map(|rest| split(rest, ", "));
    let Some((first, rest)) = shared.as_deref().and_then(<[&str]>::split_first) else {
        return fail(
            text,
            "a line of a schedule begins with 'grid', 'one task', 'loops', 'mapping', or a place ('in place', 'in registers', 'in shared, N stages', 'where it is used') and two blanks before its tiles",
        );
    };
    let Some(stages) = first.strip_suffix(" stages") else {
        return fail(first, "tiles are shared in 'N stages'");
    };
    if rest == ["as it lies"] {
        let stages = number(stages, 1)?;
        return Ok(Place::Image { stages });
    }
    let (rest, boxes) = match rest.split_last() {
        Some((&"by tensor copies", rest)) => (rest, true),
        _ => (rest, false),
    };
    let mut swizzle = Swizzle::default();
    if let Some(one) = rest.first() {
        let inner = one
            .strip_prefix("swizzle(")
            .and_then(|s| s.strip_suffix(')'));
        let numbers: Vec<&str> = inner.unwrap_or_default().split(',').collect();
        let &[bits, base, shift] = numbers.as_slice() else {
            return fail(one, "a swizzle is written as 'swizzle(bits,base,shift)'");
        };
        swizzle = Swizzle {
            bits: number(bits, 0)?,
            base: number(base, 0)?,
            shift: number(shift, 0)?,
        };
    }
    let stages = number(stages, 1)?;
    Ok(match boxes {
        true => Place::Tensor { swizzle, stages },
        false => Place::Shared { swizzle, stages },
    })
}

/// A line of a schedule.
fn of_schedule(k: &Kernel, s: &mut Schedule, mapped: &mut bool, line: &str) -> Read<()> {
    if let Some(rest) = line.strip_prefix("one task") {
        return match rest.trim().strip_prefix(',') {
            None if rest.trim().is_empty() => Ok(()),
            Some(rest) if cuts(k, rest, Some(s))?.is_empty() => Ok(()),
            _ => fail(rest, "one task has no cuts; a grid has: 'grid  m by 64'"),
        };
    }
    match line.split_once(' ') {
        Some(("grid", rest)) => s.grid = cuts(k, rest, Some(s))?,
        Some(("loops", rest)) => s.loops = cuts(k, rest, None)?,
        Some(("mapping", rest)) => {
            let rest = rest.trim();
            s.mapping = match rest.starts_with("cta ") {
                true => gpu(k, rest)?,
                false => cpu(k, rest)?,
            };
            *mapped = true;
        }
        _ => {
            let (what, tiles) = line.split_once("  ").unwrap_or((line, ""));
            let place = place(what.trim())?;
            for name in split(tiles, ", ").into_iter().map(str::trim) {
                let at = k.tiles.iter().position(|t| t.name == name);
                let Some(slot) = at.and_then(|at| s.places.get_mut(at)) else {
                    return fail(name, format!("there is no tile '{name}'"));
                };
                *slot = place;
            }
        }
    }
    Ok(())
}

fn three(text: &str) -> Read<[Dim; 3]> {
    let all = split(text, ",");
    let mut out = [Dim::ONE, Dim::ONE, Dim::ONE];
    if all.len() > out.len() {
        return fail(text, "there are one to three extents: x, y, z");
    }
    for (to, d) in out.iter_mut().zip(all) {
        *to = dim(d)?;
    }
    Ok(out)
}

/// A line of code's head.
fn of_code(c: &mut Code, line: &str) -> Read<()> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "grid" => c.grid = three(rest)?,
        "threads" => c.threads = three(rest)?,
        "shared" => c.shared = dim(rest)?,
        "sizes" => {
            let all = split(rest, ",").into_iter();
            let all = all.filter(|d| !d.trim().is_empty()).map(dim);
            c.sizes = all.collect::<Read<_>>()?;
        }
        _ => {
            return fail(
                line,
                "behind 'ptx ENTRY' stand 'grid', 'threads', 'shared' and 'sizes' with dimensions, then 'text', the PTX and 'end'",
            );
        }
    }
    Ok(())
}

impl Reader {
    /// Whether `whole` is a line of code, which is kept as it is.
    pub fn verbatim(&mut self, whole: &str) -> bool {
        let Some(Part::Code {
            made,
            verbatim: on @ true,
            done,
            ..
        }) = &mut self.part
        else {
            return false;
        };
        if whole.trim() == "end" {
            (*on, *done) = (false, true);
        } else {
            made.text.push_str(whole);
            made.text.push('\n');
        }
        true
    }

    /// Reads line `number` of the text, or leaves it to the kernel's: `None`.
    pub fn line(&mut self, k: &Kernel, number: usize, line: &str) -> Option<Read<()>> {
        let entry = line.strip_prefix("ptx ").filter(|e| !e.contains(" = "));
        if line == "schedule" || entry.is_some() {
            if let Err(why) = self.close() {
                return Some(fail(line, why.1));
            }
            if entry.is_some() && self.given.code.is_some() {
                return Some(fail(line, "a kernel has PTX once"));
            }
            self.part = Some(match entry {
                Some(name) => Part::Code {
                    at: number,
                    made: Code {
                        entry: name.trim().into(),
                        grid: [Dim::ONE, Dim::ONE, Dim::ONE],
                        threads: [Dim::ZERO, Dim::ONE, Dim::ONE],
                        shared: Dim::ZERO,
                        sizes: vec![],
                        text: String::new(),
                    },
                    verbatim: false,
                    done: false,
                },
                None => Part::Schedule {
                    at: number,
                    made: Schedule {
                        grid: vec![],
                        loops: vec![],
                        places: vec![Place::Register; k.tiles.len()],
                        chunk: 1,
                        raster: 1,
                        mapping: Mapping::Cpu(CpuMapping::default()),
                    },
                    mapped: false,
                },
            });
            return Some(Ok(()));
        }
        match &mut self.part {
            None => None,
            Some(Part::Schedule { made, mapped, .. }) => Some(of_schedule(k, made, mapped, line)),
            Some(Part::Code { done: true, .. }) => Some(fail(
                line,
                "behind the PTX's 'end' only 'schedule' may follow",
            )),
            Some(Part::Code { verbatim, .. }) if line == "text" => {
                *verbatim = true;
                Some(Ok(()))
            }
            Some(Part::Code { made, .. }) => Some(of_code(made, line)),
        }
    }

    /// Takes the part that was read, or says at which line it begins and what it lacks.
    fn close(&mut self) -> Result<(), (usize, String)> {
        match self.part.take() {
            Some(Part::Schedule { made, mapped, .. }) if mapped => self.given.schedules.push(made),
            Some(Part::Schedule { at, .. }) => {
                let why = "the schedule above has no line 'mapping', which says for what it is";
                return Err((at, why.into()));
            }
            Some(Part::Code { made, at, .. }) => {
                let why = match (made.text.trim().is_empty(), made.threads[0].is_zero()) {
                    (true, _) => "the PTX has no text behind a line 'text'",
                    (_, true) => "the PTX has no line 'threads'",
                    _ => {
                        self.given.code = Some(made.into());
                        return Ok(());
                    }
                };
                return Err((at, why.into()));
            }
            None => {}
        }
        Ok(())
    }

    /// All that was said.
    pub fn finish(mut self) -> Result<Given, KernelError> {
        self.close().map_err(|(line, why)| KernelError::Text {
            line,
            column: 1,
            why,
        })?;
        Ok(self.given)
    }
}

/// Which lines of a kernel's text are code.
pub(crate) fn in_code(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let (mut behind, mut on) = (false, false);
    text.lines().map(move |whole| {
        let line = whole.trim();
        if on && line == "end" {
            (on, behind) = (false, false);
            return (whole, true);
        }
        let inside = on;
        behind |= line.starts_with("ptx ") && !line.contains(" = ");
        on |= behind && line == "text";
        (whole, inside)
    })
}
