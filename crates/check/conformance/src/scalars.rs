//! Every scalar operation at the edges of its types: zeros, ones, infinities, what is no number, denormal
//! and huge numbers, the ends of integers, and random bits.
use crate::build::{B, at, expr, n};
use crate::{Failure, Rng, Subject, cpu_schedules, gpu_schedules};
use expr::{Binary, Unary};
use kernel::{Family, Form, Kernel, Target, TargetKind, TileProgram};
use layout::DType;
use reference::{Memory, run_kernel};
use tensor::Tensor;

/// Random values beside the listed ones.
const RANDOM: usize = 40;

/// Numbers that arithmetic on floats stumbles over.
#[rustfmt::skip]
const FLOATS: [f64; 57] = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, 2.5, -2.5, 3.0, 7.0, -7.0, 0.1, 1e-3, -1e-3, 0.65,
    0.7, 4.0, 10.0, 88.5, 89.5, -88.0, -104.0, 127.0, 128.0, 255.0, 256.0, 300.0, 1e3, 8191.0,
    8193.0, 65504.0, 65535.0, -65536.0, 1e5, 2147483647.0, -2147483648.0, 4294967296.0, 1e10,
    -1e10, 1.1e15, 1e20, -3e25, 1e35, 3.4e38, -3.4e38, 1e-30, -1e-37, 1e-40, 1e-45, -1e-45,
    9.3e18, 1.9e19, f64::INFINITY, f64::NEG_INFINITY, f64::NAN,
];

/// Values of `d` that arithmetic stumbles over, as floats or as integers.
fn values(d: DType, rng: &mut Rng) -> Tensor {
    let bits = d.bits();
    let count = |list: usize| list + RANDOM;
    let fill = |n: usize| Tensor::zeros(d, &[n]).expect("a small tensor");
    if d.is_float() {
        let mut t = fill(count(FLOATS.len()));
        for (i, v) in FLOATS.into_iter().enumerate() {
            t.set_f64(i, v);
        }
        for i in 0..RANDOM {
            // Of every magnitude that the type has.
            let v = match d {
                DType::F64 => f64::from_bits(rng.bits()),
                _ => f64::from(f32::from_bits(rng.bits() as u32)),
            };
            t.set_f64(FLOATS.len() + i, v);
        }
        return t;
    }
    if d == DType::Bool {
        let mut t = fill(2);
        t.set_i64(1, 1);
        return t;
    }
    let (least, most) = match d.is_signed_int() {
        true => (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits)),
        false => (0, (u64::MAX >> (64 - bits)) as i64),
    };
    let list = [
        0,
        1,
        2,
        3,
        5,
        7,
        -1,
        -2,
        -7,
        8,
        15,
        16,
        31,
        32,
        33,
        63,
        64,
        100,
        least,
        least + 1,
        most,
        most - 1,
        most / 2,
        2049,
        1 << 24,
        (1 << 24) + 1,
        (1 << 30) + (1 << 22) + 1,
        (1 << 54) + (1 << 46) + 1,
    ];
    let mut t = fill(count(list.len()));
    let random = (0..RANDOM).map(|_| (rng.bits() as i64) >> rng.below(64));
    let random: Vec<i64> = random.collect();
    for (i, v) in list.into_iter().chain(random).enumerate() {
        t.set_i64(i, v);
    }
    t
}

/// Element `i` of `from` at element `to` of `t`.
fn copy(t: &mut Tensor, to: usize, from: &Tensor, i: usize) {
    match from.dtype().is_float() {
        true => t.set_f64(to, from.get_f64(i)),
        false => t.set_i64(to, from.get_i64(i)),
    }
}

/// Arguments of `form`: all values, or all pairs of them.
fn arguments(form: Form, rng: &mut Rng) -> Vec<Tensor> {
    let (Form::Unary(_, d) | Form::Cast(d, _) | Form::Binary(_, d) | Form::Compare(_, d)) = form;
    let one = values(d, rng);
    if matches!(form, Form::Unary(..) | Form::Cast(..)) {
        return vec![one];
    }
    let other = values(d, rng);
    let n = one.len() * other.len();
    let mut pair = [0, 1].map(|_| Tensor::zeros(d, &[n]).expect("a small tensor"));
    for i in 0..one.len() {
        for j in 0..other.len() {
            copy(&mut pair[0], i * other.len() + j, &one, i);
            copy(&mut pair[1], i * other.len() + j, &other, j);
        }
    }
    pair.into()
}

/// A kernel that does `form` and nothing else, on `count` elements.
fn kernel(form: Form, count: usize) -> Kernel {
    let count = count as i64;
    let mut b = B::new(&form.to_string(), Family::Map, &[("i", n(count))]);
    let (args, d, to) = match form {
        Form::Unary(Unary::IsNan | Unary::IsInf, d) => (1, d, DType::Bool),
        Form::Unary(_, d) => (1, d, d),
        Form::Cast(d, to) => (1, d, to),
        Form::Binary(_, d) => (2, d, d),
        Form::Compare(_, d) => (2, d, DType::Bool),
    };
    let e = expr(|e| {
        let x = e.input(0, d);
        match form {
            Form::Unary(f, _) => e.unary(f, x),
            Form::Cast(_, to) => e.cast(x, to),
            Form::Binary(f, _) => {
                let y = e.input(1, d);
                e.binary(f, x, y)
            }
            Form::Compare(f, _) => {
                let y = e.input(1, d);
                e.compare(f, x, y)
            }
        }
    });
    let read: Vec<u16> = (0..args).map(|_| b.read(d, count, at(&[(0, 1)]))).collect();
    let written = b.write(to, count, at(&[(0, 1)]));
    let given: Vec<u16> = read.into_iter().map(|o| b.load(o, &[0])).collect();
    let made = b.map(to, &[0], &given, e);
    b.store(written, made);
    b.0.k
}

/// What `form` may be off by, relative to the result and absolutely; nothing for what is exact.
fn off(form: Form) -> (f64, f64) {
    let (f32_relative, absolute) = match form {
        Form::Compare(..) | Form::Cast(..) => (0.0, 0.0),
        Form::Binary(Binary::Pow, _) => (3e-5, 0.0),
        Form::Binary(Binary::Atan2, _) => (2e-6, 1e-6),
        Form::Binary(..) => (0.0, 0.0),
        Form::Unary(f, _) => match f {
            Unary::Exp | Unary::Sigmoid | Unary::Tanh | Unary::Erf => (2e-6, 4e-7),
            Unary::Rsqrt => (2e-7, 0.0),
            Unary::Sinh | Unary::Cosh => (1e-5, 0.0),
            Unary::Tan => (4e-6, 0.0),
            Unary::Log
            | Unary::Sin
            | Unary::Cos
            | Unary::Asin
            | Unary::Acos
            | Unary::Atan
            | Unary::Asinh
            | Unary::Acosh
            | Unary::Atanh => (2e-6, 1e-6),
            _ => (0.0, 0.0),
        },
    };
    let d = match form {
        Form::Unary(_, d) | Form::Binary(_, d) | Form::Compare(_, d) | Form::Cast(d, _) => d,
    };
    // What lies between two of a narrow type may be rounded to either.
    let own = match (d, f32_relative > 0.0) {
        (DType::F16, true) => 2f64.powi(-10),
        (DType::BF16, true) => 2f64.powi(-7),
        (DType::F64, true) => 2f64.powi(-51),
        _ => f32_relative,
    };
    (
        own.max(if d == DType::F64 { 0.0 } else { f32_relative }),
        absolute,
    )
}

/// The largest finite number of `d`.
fn largest(d: DType) -> f64 {
    match d {
        DType::F16 => 65504.0,
        DType::F64 => f64::MAX,
        _ => f64::from(f32::MAX),
    }
}

/// Compares two results element by element.
fn compared(form: Form, args: &[Tensor], want: &Tensor, got: &Tensor) -> Result<(), String> {
    let (relative, absolute) = off(form);
    let float = want.dtype().is_float();
    let show = |t: &Tensor, i: usize| match t.dtype().is_float() {
        true => format!("{:e}", t.get_f64(i)),
        false => t.get_i64(i).to_string(),
    };
    for i in 0..want.len() {
        let fine = match float {
            false => want.get_i64(i) == got.get_i64(i),
            true => {
                let (w, g) = (want.get_f64(i), got.get_f64(i));
                let bound = relative * w.abs() + absolute;
                // At the end of the range what is a little more is infinite.
                let beyond = |v: f64| v.abs() * (1.0 + relative) >= largest(want.dtype());
                let ends = relative > 0.0 && w.signum() == g.signum() && beyond(w) && beyond(g);
                // Denormal numbers have a fixed last place.
                let last = if relative > 0.0 { 2f64.powi(-148) } else { 0.0 };
                let last = if want.dtype() == DType::F16 && relative > 0.0 {
                    2f64.powi(-23)
                } else {
                    last
                };
                w == g || (w.is_nan() && g.is_nan()) || (w - g).abs() <= bound.max(last) || ends
            }
        };
        if !fine {
            let given: Vec<String> = args.iter().map(|a| show(a, i)).collect();
            return Err(format!(
                "{form}: ({}) gives {}, not {}",
                given.join(", "),
                show(got, i),
                show(want, i)
            ));
        }
    }
    Ok(())
}

/// Runs every operation of `types` that `target` has a form for, and compares with the reference's
/// arithmetic; `picks` hears of each before it runs, and says whether it does. Gives how many ran.
///
/// # Errors
/// Every operation that differs or is refused, a line each, with the seed.
pub fn scalars(
    subject: &dyn Subject,
    target: &Target,
    types: &[DType],
    seed: u64,
    picks: &mut dyn FnMut(Form) -> bool,
) -> Result<usize, String> {
    let mut rng = Rng::new(seed);
    let (mut wrong, mut done) = (vec![], 0);
    for form in Form::all(types).filter(|f| !target.lacks.contains(f)) {
        if !picks(form) {
            continue;
        }
        match one(subject, target, form, &mut rng) {
            Ok(()) => done += 1,
            Err(why) => wrong.push(format!("seed {seed}, {}: {why}", subject.name())),
        }
    }
    match wrong.is_empty() {
        true => Ok(done),
        false => Err(wrong.join("\n")),
    }
}

fn one(subject: &dyn Subject, target: &Target, form: Form, rng: &mut Rng) -> Result<(), String> {
    let args = arguments(form, rng);
    let k = kernel(form, args[0].len());
    if let Some(what) = target.lacking(&k) {
        return Err(format!("{form}: it is said to lack {what}"));
    }
    let out = k.operands.last().map_or(DType::F32, |o| o.dtype);
    let empty = Tensor::zeros(out, &[args[0].len()]).map_err(|e| e.to_string())?;
    let buffers: Vec<Tensor> = args.iter().cloned().chain([empty]).collect();
    let mut memory = Memory::new();
    for (i, b) in buffers.iter().enumerate() {
        memory.bind(i as u16, b.clone());
    }
    run_kernel(&k, &|_| None, &mut memory).map_err(|e| format!("{form}: the reference: {e}"))?;
    let want = memory.get(args.len() as u16).ok_or("no result")?;
    let mut refused = String::new();
    let schedules = match subject.kind() {
        TargetKind::Cpu => cpu_schedules(&k, rng),
        _ => gpu_schedules(&k, &|_| None, rng),
    };
    for s in schedules {
        let Ok(program) = TileProgram::new(k.clone(), s) else {
            continue;
        };
        match subject.run(&program, &[], &buffers) {
            Ok(got) => return compared(form, &args, want, &got[0]),
            Err(Failure::Refused(why)) => refused = why,
            Err(Failure::Broken(why)) => return Err(format!("{form}: {why}")),
        }
    }
    Err(format!("{form}: no schedule of it runs: {refused}"))
}
