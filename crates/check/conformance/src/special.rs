//! Products of f32 in parts on what has no parts: what is infinite, no number, too large or too small.
use crate::families::{MATRIX_FAMILIES, warpgroup_product};
use crate::suite::{Failure, Subject, wanted};
use crate::{Rng, buffers_in_parts, matrix_schedules, with_image, with_parts};
use kernel::{Factors, Kernel, Mapping, OperandId, Role, Schedule, TileProgram};
use layout::DType;
use std::sync::Arc;
use tensor::Tensor;

/// Largest difference of a product in parts, relative to the sum of its terms' magnitudes.
const TOLERANCE: f64 = 1.0 / (1 << 20) as f64;
/// What the last bits of subnormal terms come to.
const LEAST: f64 = 1e-43;

/// Scales of both factors, and what stands for some of their elements.
const CLASSES: [([f64; 2], Option<f64>); 6] = [
    ([1e-40, 1e30], None),
    ([3e38, 1e-4], None),
    ([1.0, 1.0], Some(f64::INFINITY)),
    ([1.0, 1.0], Some(f64::NAN)),
    ([1.0, 1e30], Some(3e-39)),
    ([1e-30, 1e-14], Some(0.0)),
];

/// Whether the schedule has products in parts.
fn in_parts(s: &Schedule) -> bool {
    match &s.mapping {
        Mapping::Gpu(g) => g.fragment.is_some_and(|f| f.factors == Factors::Tf32x3),
        Mapping::Cpu(_) => false,
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

fn magnitudes(buffers: &[Tensor]) -> Vec<Tensor> {
    let one = |t: &Tensor| {
        let mut t = t.clone();
        (0..t.len()).for_each(|i| t.set_f64(i, t.get_f64(i).abs()));
        t
    };
    buffers.iter().map(one).collect()
}

/// Whether `got` is what multiply-adds give: what is not finite is the same, and what is has a difference that is
/// small beside the terms.
fn agrees(want: &Tensor, got: &Tensor, terms: &Tensor) -> Result<(), String> {
    for i in 0..want.len() {
        let (w, g, sum) = (want.get_f64(i), got.get_f64(i), terms.get_f64(i));
        let same = w == g || (w.is_nan() && g.is_nan());
        // False where one is no number and the other is.
        let near = (w - g).abs() <= TOLERANCE * sum + LEAST;
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
    (want, terms): (&[Tensor], &[Tensor]),
) -> Result<bool, String> {
    match subject.run(program, &[], buffers) {
        Ok(got) => {
            let mut all = want.iter().zip(&got).zip(terms);
            all.try_for_each(|((w, g), t)| agrees(w, g, t))?;
            Ok(true)
        }
        Err(Failure::Refused(_)) => Ok(false),
        Err(Failure::Broken(why)) => Err(why),
    }
}

/// A product in parts whose right factor is an image of them: the kernel that reads its elements, the program, and the
/// operand that has them.
type Copied = (Kernel, TileProgram, OperandId);

/// One whose factors warps copy.
fn copied(rng: &mut Rng) -> Option<Copied> {
    let k = warpgroup_product(rng).kernel;
    let programs = matrix_schedules(&k, rng).into_iter().filter(in_parts);
    programs
        .filter_map(|s| TileProgram::new(Arc::new(k.clone()), Arc::new(s)).ok())
        .find_map(|p| {
            let image = with_image(&p)?;
            let (parts, operand) = with_parts(&image)?;
            Some((image.kernel().clone(), parts, operand))
        })
}

/// Runs `count` products in parts of every class whose right factor was cut in parts before; gives how many programs
/// agreed.
///
/// # Errors
/// The first that does not, with its text and the seed that makes it again.
pub fn special_images(subject: &dyn Subject, seed: u64, count: usize) -> Result<usize, String> {
    let (mut agreed, mut done) = (0, 0);
    for seed in seed.. {
        let mut rng = Rng::new(seed);
        let Some((k, program, operand)) = copied(&mut rng) else {
            continue;
        };
        for (n, class) in CLASSES.into_iter().enumerate() {
            let buffers = factors(&k, class, &mut rng)?;
            let want = wanted(&k, &|_| None, &buffers)?;
            let terms = wanted(&k, &|_| None, &magnitudes(&buffers))?;
            let given = buffers_in_parts(&buffers, operand)?;
            let done = tried(subject, &program, &given, (&want, &terms));
            let of = |e: String| format!("class {n}, seed {seed}: {e}\n{program}");
            agreed += usize::from(done.map_err(of)?);
        }
        done += 1;
        if done >= count {
            break;
        }
    }
    Ok(agreed)
}

/// Runs `count` products in parts of every class; gives how many programs agreed.
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
        for (n, class) in CLASSES.into_iter().enumerate() {
            let buffers = factors(&k, class, &mut rng)?;
            let want = wanted(&k, &|_| None, &buffers)?;
            let terms = wanted(&k, &|_| None, &magnitudes(&buffers))?;
            let Some(schedule) = matrix_schedules(&k, &mut rng).into_iter().find(in_parts) else {
                continue;
            };
            let Ok(program) = TileProgram::new(Arc::new(k.clone()), Arc::new(schedule)) else {
                continue;
            };
            let done = tried(subject, &program, &buffers, (&want, &terms));
            let of = |e: String| format!("class {n}, seed {seed}: {e}\n{program}");
            agreed += usize::from(done.map_err(of)?);
        }
    }
    Ok(agreed)
}
