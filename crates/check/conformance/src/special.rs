//! Products of f32 by TF32 and bf16 of what these have no digits for: what is infinite, no number, too large or too small.
use crate::families::{MATRIX_FAMILIES, warpgroup_product};
use crate::suite::{Failure, Subject, wanted};
use crate::{Imaged, Rng, buffers_in_parts, matrix_schedules, with_image, with_words};
use kernel::{Factors, Kernel, Mapping, Role, Schedule, TileProgram};
use layout::DType;
use std::sync::Arc;
use tensor::Tensor;

/// What the last bits of subnormal terms come to.
const LEAST: f64 = 1e-43;

/// What matrix instructions multiply of f32 where nothing of it may be lost but last digits, with the largest difference of
/// a product relative to the sum of its terms' magnitudes, and what magnitudes count as that are less: of numbers below the
/// least normal one bf16 has nothing for certain.
const EXACT: [(Factors, f64, f64); 3] = [
    (Factors::Tf32x3, 1.0 / (1 << 20) as f64, 0.0),
    (Factors::Bf16x3, 1.0 / (1 << 14) as f64, 1e-33),
    (Factors::Bf16, 1.0 / 64.0, 1e-36),
];

/// Scales of both factors, and what stands for some of their elements.
const CLASSES: [([f64; 2], Option<f64>); 6] = [
    ([1e-40, 1e30], None),
    ([3e38, 1e-4], None),
    ([1.0, 1.0], Some(f64::INFINITY)),
    ([1.0, 1.0], Some(f64::NAN)),
    ([1.0, 1e30], Some(3e-39)),
    ([1e-30, 1e-14], Some(0.0)),
];

/// What the schedule multiplies of f32.
fn multiplied(s: &Schedule) -> Option<Factors> {
    match &s.mapping {
        Mapping::Gpu(g) => g.fragment.map(|f| f.factors),
        Mapping::Cpu(_) => None,
    }
}

fn factors(
    k: &Kernel,
    (scales, odd): ([f64; 2], Option<f64>),
    rng: &mut Rng,
) -> Result<Vec<Tensor>, String> {
    let mut scales = scales.into_iter();
    let one = |o: &kernel::Operand| {
        let n = o.elements.known().ok_or("an operand has no size")? as usize;
        let mut t = Tensor::zeros(o.dtype, &[n]).map_err(|e| e.to_string())?;
        if o.role == Role::Read {
            let scale = scales.next().unwrap_or(1.0);
            for i in 0..n {
                t.set_f64(i, rng.unit() * scale);
            }
            if let (Some(v), true) = (odd, n > 0) {
                for _ in 0..n.div_ceil(64) {
                    t.set_f64(rng.below(n), v);
                }
            }
        }
        Ok(t)
    };
    k.operands.iter().map(one).collect()
}

/// Magnitudes, at least so large.
fn magnitudes(buffers: &[Tensor], least: f64) -> Vec<Tensor> {
    let one = |t: &Tensor| {
        let mut t = t.clone();
        (0..t.len()).for_each(|i| t.set_f64(i, t.get_f64(i).abs().max(least)));
        t
    };
    buffers.iter().map(one).collect()
}

/// Whether `got` is what multiply-adds give: what is not finite is the same, and what is has a difference that is
/// small beside the terms.
fn agrees(want: &Tensor, got: &Tensor, terms: &Tensor, tolerance: f64) -> Result<(), String> {
    for i in 0..want.len() {
        let (w, g, sum) = (want.get_f64(i), got.get_f64(i), terms.get_f64(i));
        let same = w == g || (w.is_nan() && g.is_nan());
        // False where one is no number and the other is.
        let near = (w - g).abs() <= tolerance * sum + LEAST;
        if !(same || near) {
            return Err(format!(
                "element {i} is {g}, not {w}; its terms come to {sum}"
            ));
        }
    }
    Ok(())
}

/// Whether `subject` runs the program, whose outputs then agree with what is wanted.
fn tried(
    subject: &dyn Subject,
    program: &TileProgram,
    buffers: &[Tensor],
    (want, terms, tolerance): (&[Tensor], &[Tensor], f64),
) -> Result<bool, String> {
    match subject.run(program, &[], buffers) {
        Ok(got) => {
            let mut all = want.iter().zip(&got).zip(terms);
            all.try_for_each(|((w, g), t)| agrees(w, g, t, tolerance))?;
            Ok(true)
        }
        Err(Failure::Refused(_)) => Ok(false),
        Err(Failure::Broken(why)) => Err(why),
    }
}

/// A product of `factors` whose right one is an image of what is multiplied of it, which warps copy.
fn copied(factors: Factors, rng: &mut Rng) -> Option<Imaged> {
    let k = warpgroup_product(rng).kernel;
    let programs = matrix_schedules(&k, rng).into_iter();
    programs
        .filter(|s| multiplied(s) == Some(factors))
        .filter_map(|s| TileProgram::new(Arc::new(k.clone()), Arc::new(s)).ok())
        .find_map(|p| with_image(&p).filter(|i| i.parts.is_some()))
}

/// Runs `count` products of every class whose right factor was cut in parts, or rounded, before; gives how many programs
/// agreed.
///
/// # Errors
/// The first that does not, with its text and the seed that makes it again.
pub fn special_images(subject: &dyn Subject, seed: u64, count: usize) -> Result<usize, String> {
    let mut agreed = 0;
    for (exact, tolerance, least) in EXACT {
        let mut done = 0;
        for seed in seed.. {
            let mut rng = Rng::new(seed);
            let found = copied(exact, &mut rng).and_then(|i| Some((i.parts?, i)));
            let Some((parts, i)) = found else {
                continue;
            };
            for (n, class) in CLASSES.into_iter().enumerate() {
                let buffers = factors(&i.whole, class, &mut rng)?;
                let want = wanted(&i.whole, &|_| None, &buffers)?;
                let terms = wanted(&i.whole, &|_| None, &magnitudes(&buffers, least))?;
                let given = buffers_in_parts(&buffers, parts)?;
                let done = tried(subject, &i.program, &given, (&want, &terms, tolerance));
                let of = |e: String| format!("class {n}, seed {seed}: {e}\n{}", i.program);
                agreed += usize::from(done.map_err(of)?);
            }
            done += 1;
            if done >= count {
                break;
            }
        }
    }
    Ok(agreed)
}

/// Runs `count` products of every class; gives how many programs agreed.
///
/// # Errors
/// The first that does not, with its text and the seed that makes it again.
pub fn special(subject: &dyn Subject, seed: u64, count: usize) -> Result<usize, String> {
    let mut agreed = 0;
    let product = MATRIX_FAMILIES[0].1;
    for seed in seed..seed + count as u64 {
        let mut rng = Rng::new(seed);
        let mut k = product(&mut rng).kernel;
        while k.operands.iter().any(|o| o.dtype != DType::F32) {
            k = product(&mut rng).kernel;
        }
        for (exact, tolerance, least) in EXACT {
            for (n, class) in CLASSES.into_iter().enumerate() {
                let buffers = factors(&k, class, &mut rng)?;
                let want = wanted(&k, &|_| None, &buffers)?;
                let terms = wanted(&k, &|_| None, &magnitudes(&buffers, least))?;
                let mut schedules = matrix_schedules(&k, &mut rng).into_iter();
                let Some(schedule) = schedules.find(|s| multiplied(s) == Some(exact)) else {
                    continue;
                };
                let Ok(program) = TileProgram::new(Arc::new(k.clone()), Arc::new(schedule)) else {
                    continue;
                };
                let wanted = (&want[..], &terms[..], tolerance);
                let done = tried(subject, &program, &buffers, wanted);
                let of = |e: String| format!("class {n}, seed {seed}: {e}\n{program}");
                agreed += usize::from(done.map_err(of)?);
                if let Some((parts, words)) = with_words(&program).and_then(|i| Some((i.parts?, i)))
                {
                    let given = buffers_in_parts(&buffers, parts)?;
                    let done = tried(subject, &words.program, &given, wanted);
                    let of = |e: String| format!("class {n}, seed {seed}: {e}\n{}", words.program);
                    agreed += usize::from(done.map_err(of)?);
                }
            }
        }
    }
    Ok(agreed)
}
