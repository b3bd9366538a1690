//! Programs at extents beside the edges of their tiles, from memory that ends where their operands do.
//!
//! A [`Source`] makes programs by choices (types, layouts) that are gone through one after the other. Of each, the
//! schedule's tiles say which extents are looked at: 0, 1, one less and one more than each tile, along every axis.
use crate::suite::{agreed, asked};
use crate::{CPU_FAMILIES, FAMILIES, Limits, Make, Rng, Subject, cpu_schedules};
use device::Device;
use kernel::{Mapping, MicroKernel, TileProgram};
use std::collections::BTreeSet;

/// A program with what it runs on.
pub struct Programmed {
    /// The program.
    pub program: TileProgram,
    /// Values of its symbols.
    pub symbols: Vec<(String, i64)>,
    /// What it is run on, and how near the results must be.
    pub limits: Limits,
}

/// What makes programs of a kind.
pub trait Source {
    /// For the names of cases.
    fn name(&self) -> &str;
    /// Makes the choices that [`Source::programs`] makes, and nothing of them.
    fn choose(&self, rng: &mut Rng);
    /// The programs for `device` of the choices and extents that `rng` makes in turn, numbered alike at any extents.
    /// What is drawn besides is drawn by `seed`.
    ///
    /// There may be none of such extents.
    ///
    /// # Errors
    /// They are not planned, or what was planned is not proved: says why.
    fn programs(
        &self,
        rng: &mut Rng,
        device: &dyn Device,
        seed: u64,
    ) -> Result<Vec<(usize, Programmed)>, String>;
}

/// A family of the suite as a source: kernels by hand under schedules that are drawn.
struct Family(&'static str, Make);

impl Source for Family {
    fn name(&self) -> &str {
        self.0
    }

    fn choose(&self, rng: &mut Rng) {
        (self.1)(rng);
    }

    fn programs(
        &self,
        rng: &mut Rng,
        device: &dyn Device,
        seed: u64,
    ) -> Result<Vec<(usize, Programmed)>, String> {
        let (case, mut draw) = ((self.1)(rng), Rng::new(seed));
        let micro = &device.target().micro;
        let schedules = cpu_schedules(&case.kernel, &mut draw).into_iter();
        let made = schedules.enumerate().filter_map(|(i, mut s)| {
            // Register tiles of this instruction set.
            if let (Mapping::Cpu(m), false) = (&mut s.mapping, micro.is_empty()) {
                let shape = &micro[draw.below(micro.len())];
                m.micro = m.micro.is_some().then_some(MicroKernel {
                    mr: shape.mr,
                    nr: shape.nr,
                });
            }
            let program = TileProgram::new(case.kernel.clone(), s).ok()?;
            Some((
                i,
                Programmed {
                    program,
                    symbols: case.symbols.clone(),
                    limits: case.limits,
                },
            ))
        });
        Ok(made.collect())
    }
}

/// The families of the suite as sources.
pub fn families() -> Vec<Box<dyn Source>> {
    let boxed =
        |&(name, make): &(&'static str, Make)| -> Box<dyn Source> { Box::new(Family(name, make)) };
    FAMILIES.iter().chain(&CPU_FAMILIES).map(boxed).collect()
}

/// Extents above this are left out, and programs of more positions than this squared.
pub const MOST: i64 = 300;

/// Extents beside the edges of a schedule's tiles.
fn edges(program: &TileProgram, device: &dyn Device, out: &mut BTreeSet<i64>) {
    let (s, lanes) = (program.schedule(), device.target().vector_bytes / 4);
    let mut tiles: Vec<i64> = s.grid.iter().chain(&s.loops).map(|t| t.tile).collect();
    tiles.push(lanes.into());
    if let Mapping::Cpu(m) = &s.mapping {
        let micro = m.micro.iter().flat_map(|m| [m.mr, m.nr]).map(i64::from);
        tiles.extend(micro);
    }
    out.extend([0, 1]);
    let beside = tiles.iter().flat_map(|t| [t - 1, t + 1]);
    out.extend(beside.filter(|e| (0..=MOST).contains(e)));
}

/// What came of a case.
pub enum Came {
    /// It agreed with the reference.
    Agreed,
    /// The device or the plan's verifier says that it cannot be run.
    Refused(String),
    /// It disagreed, or failed.
    Wrong(String),
}

/// What runs each program, with the word for it that ends the names of cases.
pub type Subjects<'a> = [(&'static str, &'a dyn Subject)];

/// What hears of each case before it runs (`None`), and says whether it is to, and of what came of it.
pub type Hears<'a> = dyn FnMut(&str, Option<Came>) -> bool + 'a;

/// Runs the cases of `source`, made for `device`, of those units (a choice of types and layouts) that `picks` picks by
/// name, by each of `subjects`.
pub fn edge_cases(
    source: &dyn Source,
    device: &dyn Device,
    subjects: &Subjects<'_>,
    picks: &dyn Fn(&str) -> bool,
    hears: &mut Hears<'_>,
) {
    let (mut rng, mut known) = (Rng::in_turn(), BTreeSet::new());
    for number in 0.. {
        let unit = format!("{}.{number} {}", source.name(), device.target().name);
        if picks(&unit) {
            rng.begin(&[]);
            let plain = source.programs(&mut rng, device, seed_of(&unit));
            let text = plain.iter().flatten();
            let text: String = text.map(|(_, p)| p.program.to_string()).collect();
            if known.insert(text) {
                one_unit((source, device, subjects), &unit, &mut rng, hears);
            }
        }
        // At plain extents, whatever was looked at: every choice is there to go on from.
        rng.begin(&[]);
        source.choose(&mut rng);
        if !rng.advance() {
            return;
        }
    }
}

/// A number that a name has anywhere and always.
pub fn seed_of(name: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    let fnv = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(start, fnv)
}

/// What makes programs, what they are made for, and what runs them.
type On<'a> = (&'a dyn Source, &'a dyn Device, &'a Subjects<'a>);

fn one_unit(on: On<'_>, unit: &str, rng: &mut Rng, hears: &mut Hears<'_>) {
    let (seed, (source, device, _)) = (seed_of(unit), on);
    let mut all = BTreeSet::new();
    rng.begin(&[]);
    for (_, p) in source.programs(rng, device, seed).iter().flatten() {
        edges(&p.program, device, &mut all);
    }
    let (axes, mut draw) = (rng.extents(), Rng::new(seed));
    let small: Vec<i64> = all
        .iter()
        .copied()
        .filter(|e| (1..20).contains(e))
        .collect();
    let mut seen = BTreeSet::new();
    for axis in 0..axes {
        for &edge in &all {
            let mut extents: Vec<i64> = (0..axes).map(|_| draw.of(&small)).collect();
            extents[axis] = edge;
            if seen.insert(extents.clone()) {
                at_extents(on, unit, rng, &extents, hears);
            }
        }
    }
}

/// Positions of a program's axes together.
fn positions(p: &Programmed) -> i64 {
    let value = |s: &str| p.symbols.iter().find(|x| x.0 == s).map(|x| x.1);
    let extents = p.program.kernel().axes.iter();
    let extents = extents.map(|a| a.extent.eval(&value).unwrap_or(i64::MAX).max(1));
    extents.fold(1, i64::saturating_mul)
}

fn at_extents(
    (source, device, subjects): On<'_>,
    unit: &str,
    rng: &mut Rng,
    extents: &[i64],
    hears: &mut Hears<'_>,
) {
    rng.begin(extents);
    let by = extents.iter().map(i64::to_string);
    let by = by.collect::<Vec<String>>().join("x");
    let programs = match source.programs(rng, device, seed_of(unit)) {
        Ok(p) => p,
        Err(why) => {
            let name = format!("{unit} plan {by}");
            if hears(&name, None) {
                hears(&name, Some(Came::Wrong(why)));
            }
            return;
        }
    };
    for (i, p) in programs {
        if positions(&p) > MOST * MOST {
            continue;
        }
        let mut wanted = None;
        for (word, subject) in subjects {
            let name = format!("{unit} {i} {by} {word}");
            if !hears(&name, None) {
                continue;
            }
            let wanted = wanted.get_or_insert_with(|| {
                let mut draw = Rng::new(seed_of(&format!("{unit} {i} {by}")));
                asked(p.program.kernel(), &p.symbols, p.limits, &mut draw)
            });
            let came = match wanted {
                // What the reference refuses is no program of such extents.
                Err(why) => Came::Refused(why.clone()),
                Ok(w) => match agreed(*subject, &p.program, &p.symbols, w, p.limits) {
                    Ok(Ok(())) => Came::Agreed,
                    Ok(Err(why)) => Came::Refused(why),
                    Err(why) => Came::Wrong(why),
                },
            };
            hears(&name, Some(came));
        }
    }
}
