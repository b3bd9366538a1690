//! The comparison with the reference.
use crate::{
    CPU_FAMILIES, Case, Limits, MATRIX_FAMILIES, Rng, buffers_in_parts, cases, cpu_schedules,
    families, gpu_schedules, matrix_schedules, with_clusters, with_image,
};
use kernel::{GpuMapping, Kernel, Mapping, OperandId, Place, Role, Stmt, TargetKind, TileProgram};
use layout::DType;
use reference::{Memory, RefError, run_kernel, run_tiles};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use tensor::Tensor;

/// Why a subject did not run a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It says that it cannot: counted, and fine for what it never claimed.
    Refused(String),
    /// It claimed to run it and did not.
    Broken(String),
}

/// Something that runs tile programs.
pub trait Subject {
    /// For messages.
    fn name(&self) -> String;
    /// Whose schedules it takes.
    fn kind(&self) -> TargetKind;
    /// Runs `program` on `buffers`, one per operand (those of written ones hold what was there
    /// before); gives those of the written operands, in order, or nothing where it runs no program.
    ///
    /// # Errors
    /// It refuses the program, or failed.
    fn run(
        &self,
        program: &TileProgram,
        symbols: &[(&str, i64)],
        buffers: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure>;
}

/// What a run of the suite came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Programs that agreed, by family.
    pub agreed: BTreeMap<String, usize>,
    /// Reasons of refusals with their number.
    pub refused: BTreeMap<String, usize>,
}

impl Outcome {
    /// Programs that agreed.
    pub fn total(&self) -> usize {
        self.agreed.values().sum()
    }
}

/// A tensor of random values within limits: floats of either sign, integers from 0.
fn random(d: DType, n: usize, l: Limits, rng: &mut Rng) -> Result<Tensor, String> {
    let mut t = Tensor::zeros(d, &[n]).map_err(|e| e.to_string())?;
    for i in 0..n {
        if d.is_float() {
            t.set_f64(i, rng.unit() * l.floats);
        } else {
            t.set_i64(i, rng.below(l.top.max(1) as usize) as i64);
        }
    }
    Ok(t)
}

/// Whether `got` is as near `want` as `l` says, by the largest finite magnitude in `want`.
pub(crate) fn agrees(want: &Tensor, got: &Tensor, l: Limits) -> Result<(), String> {
    if want.len() != got.len() {
        return Err(format!("{} elements, {} wanted", got.len(), want.len()));
    }
    if !want.dtype().is_float() {
        for i in 0..want.len() {
            if want.get_i64(i) != got.get_i64(i) {
                return Err(format!(
                    "element {i} is {}, not {}",
                    got.get_i64(i),
                    want.get_i64(i)
                ));
            }
        }
        return Ok(());
    }
    let all = (0..want.len()).map(|i| want.get_f64(i).abs());
    let scale = all.filter(|v| v.is_finite()).fold(l.least, f64::max);
    for i in 0..want.len() {
        let (w, g) = (want.get_f64(i), got.get_f64(i));
        let same = w == g || (w.is_nan() && g.is_nan());
        if !same
            && (w - g).abs().partial_cmp(&(l.tolerance * scale)) != Some(std::cmp::Ordering::Less)
        {
            return Err(format!(
                "element {i} is {g}, not {w} (largest magnitude {scale})"
            ));
        }
    }
    Ok(())
}

/// Random buffers for a kernel's operands, and what the reference makes of those that are written.
pub(crate) fn asked(
    k: &Kernel,
    symbols: &[(String, i64)],
    limits: Limits,
    rng: &mut Rng,
) -> Result<(Vec<Tensor>, Vec<Tensor>), String> {
    let lookup = |s: &str| symbols.iter().find(|x| x.0 == s).map(|x| x.1);
    let mut buffers = vec![];
    for o in &k.operands {
        let n = o.elements.eval(&lookup).ok_or("an operand has no size")?;
        let mut limits = limits;
        if o.dtype == DType::Bool {
            limits.top = 2;
        }
        let b = random(o.dtype, n.max(0) as usize, limits, rng)?;
        buffers.push(b);
    }
    let want = wanted(k, &lookup, &buffers)?;
    Ok((buffers, want))
}

/// What the reference makes of `buffers`, the operands of `k`, in those that are written.
pub(crate) fn wanted(
    k: &Kernel,
    lookup: &dyn Fn(&str) -> Option<i64>,
    buffers: &[Tensor],
) -> Result<Vec<Tensor>, String> {
    written(k, buffers, &|memory| run_kernel(k, lookup, memory))
}

/// What `run` makes of `buffers`, the operands of `k`, in those that are written.
fn written(
    k: &Kernel,
    buffers: &[Tensor],
    run: &dyn Fn(&mut Memory) -> Result<(), RefError>,
) -> Result<Vec<Tensor>, String> {
    let mut memory = Memory::new();
    for (i, b) in buffers.iter().enumerate() {
        memory.bind(i as u16, b.clone());
    }
    run(&mut memory).map_err(|e| format!("the reference: {e}"))?;
    let written = (0..k.operands.len() as u16)
        .filter(|&o| k.operands[o as usize].role == Role::Write)
        .filter_map(|o| memory.get(o).cloned());
    Ok(written.collect())
}

/// `program` with some of what it reads as constants, and with what lets the next kernel begin early, where a GPU's mapping
/// may have that; the same for the same schedule.
fn early(program: &TileProgram) -> Result<TileProgram, String> {
    let (kernel, mut schedule) = (program.kernel(), program.schedule().clone());
    let mut hash = DefaultHasher::new();
    schedule.hash(&mut hash);
    let mut rng = Rng::new(hash.finish());
    if let Mapping::Gpu(g) = &mut schedule.mapping {
        let operands = kernel.operands.iter().enumerate();
        let read = operands.filter(|(_, o)| o.role == Role::Read);
        g.constants = read
            .filter(|_| rng.once_in(2))
            .map(|(n, _)| n as OperandId)
            .collect();
        g.triggers = g.walkers == 0 && rng.once_in(2);
    }
    TileProgram::new(kernel.clone(), schedule).map_err(|e| e.to_string())
}

/// Whether a subject gives of a program what is wanted; the inner error says why it cannot run it.
pub(crate) fn agreed(
    subject: &dyn Subject,
    program: &TileProgram,
    symbols: &[(String, i64)],
    (buffers, want): &(Vec<Tensor>, Vec<Tensor>),
    limits: Limits,
) -> Result<Result<(), String>, String> {
    let symbols: Vec<(&str, i64)> = symbols.iter().map(|x| (x.0.as_str(), x.1)).collect();
    let program = &early(program)?;
    match subject.run(program, &symbols, buffers) {
        Ok(got) if !got.is_empty() && got.len() != want.len() => Err(format!(
            "{} results, not {}\n{program}",
            got.len(),
            want.len()
        )),
        Ok(got) => {
            let mut each = want.iter().zip(&got);
            let all = each.try_for_each(|(w, g)| agrees(w, g, limits));
            all.map(Ok).map_err(|e| format!("{e}\n{program}"))
        }
        Err(Failure::Refused(why)) => Ok(Err(why)),
        Err(Failure::Broken(why)) => Err(format!("{why}\n{program}")),
    }
}

fn one(subject: &dyn Subject, case: &Case, rng: &mut Rng, out: &mut Outcome) -> Result<(), String> {
    let k = &case.kernel;
    let lookup = |s: &str| case.symbols.iter().find(|x| x.0 == s).map(|x| x.1);
    let asked = asked(k, &case.symbols, case.limits, rng)?;
    let schedules = match subject.kind() {
        TargetKind::Cpu => cpu_schedules(k, rng),
        TargetKind::Wgsl => gpu_schedules(k, &lookup, rng),
        TargetKind::Ptx => {
            let mut all = gpu_schedules(k, &lookup, rng);
            all.extend(matrix_schedules(k, rng));
            all
        }
    };
    for s in schedules {
        let Ok(program) = TileProgram::new(k.clone(), s) else {
            continue;
        };
        let limits = case.limits.of(&program);
        match agreed(subject, &program, &case.symbols, &asked, limits)? {
            Ok(()) => *out.agreed.entry(format!("{:?}", k.family)).or_default() += 1,
            Err(why) => *out.refused.entry(why).or_default() += 1,
        }
    }
    Ok(())
}

/// Runs products by warpgroups whose factors other warps copy, of many pieces, as they are and with a factor that lies as
/// warpgroups read it, from a seed on until `wanted` programs agreed, a quarter of which copy boxes; gives the last seed.
///
/// # Errors
/// The first that does not agree, with its text and the seed that makes it again, or there are fewer.
pub fn copied_ahead(subject: &dyn Subject, seed: u64, wanted: usize) -> Result<u64, String> {
    let (mut done, mut boxed) = (0, 0);
    for seed in seed..seed + 10 * wanted as u64 {
        let mut rng = Rng::new(seed);
        let case = families::warpgroup_product(&mut rng);
        for s in matrix_schedules(&case.kernel, &mut rng) {
            let plain = TileProgram::new(case.kernel.clone(), s).ok();
            let Some((plain, image)) = plain.and_then(|p| with_image(&p).map(|i| (p, i))) else {
                continue;
            };
            for (program, whole, parts) in [
                (&plain, plain.kernel(), None),
                (&image.program, &image.whole, image.parts),
            ] {
                // What parts are of is asked for.
                let mut asked = asked(whole, &case.symbols, case.limits, &mut rng)?;
                if let Some(parts) = parts {
                    asked.0 = buffers_in_parts(&asked.0, parts)?;
                }
                let limits = case.limits.of(program);
                let came = agreed(subject, program, &case.symbols, &asked, limits);
                let came = came.map_err(|e| format!("{}, seed {seed}: {e}", subject.name()))?;
                // What needs more registers than a CTA has is refused.
                done += usize::from(came.is_ok());
                let boxes = |p: &Place| matches!(p, Place::Tensor { .. });
                let boxes = program.schedule().places.iter().any(boxes);
                boxed += usize::from(came.is_ok() && boxes);
            }
        }
        if done >= wanted && 4 * boxed >= wanted {
            return Ok(seed);
        }
    }
    Err(format!(
        "{done} programs agreed from seed {seed} on, {boxed} of them with boxes; {wanted} are wanted"
    ))
}

/// Runs products, convolutions and attentions by warpgroups in clusters of CTAs that copy for each other, from a seed on
/// until `wanted` programs agreed; gives the last seed. At least a quarter of them copy runs of images together, as many
/// boxes of tensors, and as many walk tasks.
///
/// # Errors
/// The first that does not agree, with its text and the seed that makes it again, or there are fewer.
pub fn in_clusters(subject: &dyn Subject, seed: u64, wanted: usize) -> Result<u64, String> {
    let makes = [
        families::clustered_product,
        families::clustered_product,
        families::clustered_product,
        families::warpgroup_conv,
        families::matrix_attention,
    ];
    let (mut done, mut kinds) = (0, [0; 3]);
    for seed in seed..seed + 40 * wanted as u64 {
        let mut rng = Rng::new(seed);
        let case = rng.of(&makes)(&mut rng);
        for s in matrix_schedules(&case.kernel, &mut rng) {
            let Ok(plain) = TileProgram::new(case.kernel.clone(), s) else {
                continue;
            };
            let image = with_image(&plain);
            let whole = image.as_ref().map(|i| (&i.program, &i.whole, i.parts));
            for (program, whole, parts) in [(&plain, plain.kernel(), None)].into_iter().chain(whole)
            {
                let Some(program) = with_clusters(program, &mut rng) else {
                    continue;
                };
                let mut asked = asked(whole, &case.symbols, case.limits, &mut rng)?;
                if let Some(parts) = parts {
                    asked.0 = buffers_in_parts(&asked.0, parts)?;
                }
                let limits = case.limits.of(&program);
                let came = agreed(subject, &program, &case.symbols, &asked, limits);
                let came = came.map_err(|e| format!("{}, seed {seed}: {e}", subject.name()))?;
                if came.is_err() {
                    continue;
                }
                done += 1;
                for (kind, own) in kinds.iter_mut().zip(kinds_of(&program)) {
                    *kind += usize::from(own);
                }
            }
        }
        if done >= wanted && kinds.iter().all(|n| 4 * n >= wanted) {
            return Ok(seed);
        }
    }
    Err(format!(
        "{done} programs agreed from seed {seed} on, images, boxes and walks among them {kinds:?}; {wanted} are wanted"
    ))
}

/// Whether CTAs of a cluster copy runs of images together, boxes of tensors, and whether they walk tasks.
fn kinds_of(program: &TileProgram) -> [bool; 3] {
    let (k, s) = (program.kernel(), program.schedule());
    let copies = |boxes: bool| {
        k.body.iter().any(|x| match x {
            Stmt::Load { dst, operand } => {
                let own = matches!(s.place(*dst), Place::Tensor { .. }) == boxes;
                own && s.is_multicast(k, *dst, *operand)
            }
            _ => false,
        })
    };
    let walks = matches!(&s.mapping, Mapping::Gpu(g) if g.walkers > 0);
    [copies(false), copies(true), walks]
}

/// Runs convolutions by warpgroups whose windows are boxes of tensors, from a seed on until `wanted` programs agreed, most
/// of them with padding; gives the last seed.
///
/// # Errors
/// The first that does not agree, with its text and the seed that makes it again, or there are fewer.
pub fn boxed_windows(subject: &dyn Subject, seed: u64, wanted: usize) -> Result<u64, String> {
    let (mut done, mut padded) = (0, 0);
    for seed in seed..seed + 20 * wanted as u64 {
        let mut rng = Rng::new(seed);
        let case = families::warpgroup_conv(&mut rng);
        let asked = asked(&case.kernel, &case.symbols, case.limits, &mut rng)?;
        for s in matrix_schedules(&case.kernel, &mut rng) {
            if !s.places.iter().any(|p| matches!(p, Place::Tensor { .. })) {
                continue;
            }
            let program = TileProgram::new(case.kernel.clone(), s).map_err(|e| e.to_string())?;
            let limits = case.limits.of(&program);
            let came = agreed(subject, &program, &case.symbols, &asked, limits);
            let came = came.map_err(|e| format!("{}, seed {seed}: {e}", subject.name()))?;
            done += usize::from(came.is_ok());
            let bounds = &case.kernel.operands[0].access.bounds;
            let pads = bounds.iter().any(|b| !b.base.is_zero());
            padded += usize::from(came.is_ok() && pads);
        }
        if done >= wanted && 3 * padded >= wanted {
            return Ok(seed);
        }
    }
    Err(format!(
        "{done} programs agreed from seed {seed} on, {padded} of them with padding; {wanted} are wanted"
    ))
}

/// Runs attention by warpgroups, every other one of values some of which are infinite or no number, from a seed on until
/// `wanted` programs agreed; gives the last seed.
///
/// # Errors
/// The first that does not agree, with its text and the seed that makes it again, or there are fewer.
pub fn attending(subject: &dyn Subject, seed: u64, wanted_programs: usize) -> Result<u64, String> {
    let mut done = 0;
    for seed in seed..seed + 10 * wanted_programs as u64 {
        let mut rng = Rng::new(seed);
        let case = families::matrix_attention(&mut rng);
        let k = &case.kernel;
        let mut asked = asked(k, &case.symbols, case.limits, &mut rng)?;
        let lookup = |s: &str| case.symbols.iter().find(|x| x.0 == s).map(|x| x.1);
        let odd_ones = seed % 2 == 1;
        if odd_ones {
            let odd = rng.of(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN]);
            let read = k.operands.iter().zip(&mut asked.0);
            for (_, b) in read.filter(|(o, _)| o.role == Role::Read) {
                for _ in 0..rng.below(3) {
                    b.set_f64(rng.below(b.len()), odd);
                }
            }
        }
        for s in matrix_schedules(k, &mut rng) {
            let group = |g: &GpuMapping| g.fragment.is_some_and(|f| f.warps() > 1);
            if !matches!(&s.mapping, Mapping::Gpu(g) if group(g)) {
                continue;
            }
            let program = TileProgram::new(k.clone(), s).map_err(|e| e.to_string())?;
            if odd_ones {
                // Which hidden ones of them are read, the program says.
                let run = |memory: &mut Memory| run_tiles(&program, &lookup, memory, 0);
                asked.1 = written(k, &asked.0, &run)?;
            }
            let limits = case.limits.of(&program);
            let came = agreed(subject, &program, &case.symbols, &asked, limits);
            let came = came.map_err(|e| format!("{}, seed {seed}: {e}", subject.name()))?;
            match came {
                Ok(()) => done += 1,
                Err(why) => println!("seed {seed}: {why}"),
            }
        }
        if done >= wanted_programs {
            return Ok(seed);
        }
    }
    Err(format!(
        "{done} programs agreed from seed {seed} on, {wanted_programs} are wanted"
    ))
}

/// Seeds that a test runs: `count`, or that many times `SHOPFLOOR_CONFORMANCE` in a campaign.
pub fn seeds(count: usize) -> usize {
    let times = std::env::var("SHOPFLOOR_CONFORMANCE");
    let times = times.ok().and_then(|t| t.parse::<usize>().ok());
    count.saturating_mul(times.unwrap_or(1).max(1))
}

/// What hears of each case before it runs (`None`) and what came of it, with all that came so far, and
/// says whether to go on.
pub type Seen<'a> = dyn FnMut(&Case, Option<Result<(), String>>, &Outcome) -> bool + 'a;

/// Which of a seed's cases are run, by their numbers.
pub type Picks<'a> = dyn Fn(u64) -> bool + 'a;

/// Runs those cases that `seed` makes, one or more of every family, that `picks` picks, each under several schedules.
pub fn each(
    subject: &dyn Subject,
    picks: &Picks<'_>,
    seed: u64,
    out: &mut Outcome,
    seen: &mut Seen<'_>,
) {
    let mut rng = Rng::new(seed);
    let mut all = cases(&mut rng);
    let more: &[_] = match subject.kind() {
        TargetKind::Cpu => &CPU_FAMILIES,
        TargetKind::Ptx => &MATRIX_FAMILIES,
        TargetKind::Wgsl => &[],
    };
    all.extend(more.iter().map(|(_, make)| make(&mut rng)));
    for (_, case) in (0..).zip(all).filter(|(n, _)| picks(*n)) {
        if !seen(&case, None, out) {
            return;
        }
        let came = one(subject, &case, &mut rng, out);
        let of = |e| format!("{}, seed {seed}, {}: {e}", subject.name(), case.kernel.name);
        if !seen(&case, Some(came.map_err(of)), out) {
            return;
        }
    }
}

/// Runs those cases of `count` seeds that `picks` picks, each under several schedules.
///
/// # Errors
/// The first program that disagrees or fails, with its text and the seed that makes it again.
pub fn run(
    subject: &dyn Subject,
    picks: &Picks<'_>,
    seed: u64,
    count: usize,
) -> Result<Outcome, String> {
    let mut out = Outcome::default();
    for n in 0..count as u64 {
        let mut failed = None;
        each(subject, picks, seed + n, &mut out, &mut |_, came, _| {
            failed = came.and_then(Result::err);
            failed.is_none()
        });
        if let Some(e) = failed {
            return Err(e);
        }
    }
    Ok(out)
}
