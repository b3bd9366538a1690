//! Random programs: text and simplification keep their meaning. Failures print the seed.

use layout::{DType, Dim};
use shopfloor_expr::{
    Binary, Compare, CompiledExpr, EvalContext, Expr, ExprBuilder, Inst, Ref, Scalar, Unary,
};

struct Rng(fastrand::Rng);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(fastrand::Rng::with_seed(seed))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn float(&mut self) -> f64 {
        match self.below(6) {
            0 => self.pick(&[
                0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 4.0, 1e-40, -1e-310, 65504.0, 3e38, 1.7e308,
            ]),
            1 => self.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
            2 => f64::from_bits(self.0.u64(..)),
            3 => (self.below(41) as f64 - 20.0) / 4.0,
            _ => (self.0.u64(..) as i64 as f64) / 2f64.powi(61),
        }
    }

    fn int(&mut self) -> i64 {
        match self.below(4) {
            0 => self.pick(&[
                0,
                1,
                -1,
                2,
                127,
                -128,
                255,
                i32::MIN as i64,
                i64::MIN,
                i64::MAX,
            ]),
            1 => self.0.u64(..) as i64,
            _ => self.below(21) as i64 - 10,
        }
    }

    fn scalar(&mut self, d: DType) -> Scalar {
        if d.is_float() {
            Scalar::Float(self.float()).of(d)
        } else {
            Scalar::Int(self.int()).of(d)
        }
    }
}

fn random_program(r: &mut Rng) -> (Expr, Vec<DType>) {
    let slots: Vec<DType> = (0..3).map(|_| r.pick(&DType::ALL)).collect();
    let mut insts: Vec<Inst> = Vec::new();
    let mut types: Vec<DType> = Vec::new();
    for _ in 0..r.below(25) + 1 {
        let n = insts.len();
        let same = |r: &mut Rng, types: &[DType], a: Ref| {
            let like: Vec<Ref> = (0..n as Ref)
                .filter(|&i| types[i as usize] == types[a as usize])
                .collect();
            r.pick(&like)
        };
        let (inst, d) = match r.below(if n == 0 { 5 } else { 14 }) {
            0 | 1 => {
                let slot = r.below(3);
                (
                    Inst::Input {
                        slot: slot as u32,
                        dtype: slots[slot],
                    },
                    slots[slot],
                )
            }
            2 => {
                let d = r.pick(&DType::ALL);
                (
                    Inst::Float {
                        bits: r.float().to_bits(),
                        dtype: d,
                    },
                    d,
                )
            }
            3 => {
                let d = r.pick(&DType::ALL);
                (
                    Inst::Int {
                        value: r.int(),
                        dtype: d,
                    },
                    d,
                )
            }
            4 => {
                let d = [
                    Inst::Index { axis: 0 },
                    Inst::Dim(Dim::sym("n") + Dim::Known(3)),
                    Inst::Dim(Dim::Known(4)),
                ];
                (d[r.below(3)].clone(), DType::I64)
            }
            5..=7 => {
                let (f, a) = (r.pick(Unary::ALL), r.below(n));
                let d = if matches!(f, Unary::IsNan | Unary::IsInf) {
                    DType::Bool
                } else {
                    types[a]
                };
                (Inst::Unary(f, a as Ref), d)
            }
            8 | 9 => {
                let (f, a) = (r.pick(Binary::ALL), r.below(n) as Ref);
                (Inst::Binary(f, a, same(r, &types, a)), types[a as usize])
            }
            10 => {
                let (f, a) = (r.pick(Compare::ALL), r.below(n) as Ref);
                (Inst::Compare(f, a, same(r, &types, a)), DType::Bool)
            }
            11 => {
                let conditions: Vec<Ref> = (0..n as Ref)
                    .filter(|&i| types[i as usize] == DType::Bool)
                    .collect();
                let a = r.below(n) as Ref;
                if conditions.is_empty() {
                    (Inst::Cast(a, DType::Bool), DType::Bool)
                } else {
                    (
                        Inst::Select(r.pick(&conditions), a, same(r, &types, a)),
                        types[a as usize],
                    )
                }
            }
            _ => {
                let (a, d) = (r.below(n) as Ref, r.pick(&DType::ALL));
                (Inst::Cast(a, d), d)
            }
        };
        insts.push(inst);
        types.push(d);
    }
    let outputs = (0..3).map(|_| r.below(insts.len()) as Ref).collect();
    (Expr { insts, outputs }, slots)
}

#[test]
fn text_round_trips() {
    for seed in 0..3000 {
        let (e, _) = random_program(&mut Rng::new(seed));
        let text = e.to_string();
        assert_eq!(text.parse::<Expr>().as_ref(), Ok(&e), "seed {seed}: {text}");
        assert!(e.pretty(&["a"]).chars().count() <= 161, "seed {seed}");
    }
}

#[test]
fn simplified_programs_are_equal_and_final() {
    for seed in 0..6000 {
        let mut r = Rng::new(seed);
        let (e, slots) = random_program(&mut r);
        let s = e.simplified();
        assert_eq!(s.simplified(), s, "seed {seed}: not final: {e}");
        assert!(
            s.insts.len() <= e.insts.len(),
            "seed {seed}: grew: {e}\n{s}"
        );
        let (ce, cs) = match (CompiledExpr::new(&e), CompiledExpr::new(&s)) {
            (Ok(a), Ok(b)) => (a, b),
            other => panic!("seed {seed}: {other:?}"),
        };
        assert_eq!(ce.output_types(), cs.output_types(), "seed {seed}");
        for _ in 0..40 {
            let inputs: Vec<Scalar> = slots.iter().map(|&d| r.scalar(d)).collect();
            let n = r.below(9) as i64;
            let ctx = EvalContext {
                inputs: &inputs,
                index: &[n - 4],
                symbols: &|_| Some(n),
            };
            let (mut scratch, mut a, mut b) =
                (Vec::new(), [Scalar::Int(0); 3], [Scalar::Int(0); 3]);
            ce.eval_into(&ctx, &mut scratch, &mut a).unwrap();
            cs.eval_into(&ctx, &mut scratch, &mut b).unwrap();
            for (x, y) in a.iter().zip(&b) {
                let nans = x.as_f64().is_nan() && y.as_f64().is_nan();
                assert!(
                    nans || x.same_bits(*y),
                    "seed {seed}: {inputs:?} give {x:?} and {y:?}\n{e}\n{s}"
                );
            }
        }
    }
}

#[test]
fn symbolic_evaluation_agrees_with_numbers() {
    let mut decided = 0;
    for seed in 0..6000 {
        let mut r = Rng::new(seed);
        let mut b = ExprBuilder::new();
        let mut refs: Vec<Ref> = (0..3).map(|i| b.input(i, DType::I64)).collect();
        refs.push(b.int(r.below(7) as i64 - 3, DType::I64));
        for _ in 0..r.below(8) + 1 {
            let (x, y) = (r.pick(&refs), r.pick(&refs));
            let i = match r.below(6) {
                0..=3 => {
                    let fs = [
                        Binary::Add,
                        Binary::Sub,
                        Binary::Mul,
                        Binary::Div,
                        Binary::Mod,
                        Binary::Fmod,
                        Binary::Min,
                        Binary::Max,
                    ];
                    let f = r.pick(&fs);
                    let divides = matches!(f, Binary::Div | Binary::Mod | Binary::Fmod);
                    let y = if divides { r.pick(&refs[..4]) } else { y };
                    b.binary(f, x, y)
                }
                4 => b.unary(r.pick(&[Unary::Neg, Unary::Abs, Unary::Sign]), x),
                _ => {
                    let (p, q) = (r.pick(&refs), r.pick(&refs));
                    let c = b.compare(r.pick(Compare::ALL), p, q);
                    b.select(c, x, y)
                }
            };
            refs.push(i);
        }
        let outs = refs[refs.len() - 1..].to_vec();
        let e = b.finish(&outs);
        // Sizes are positive here, since exact division takes its divisor to be.
        let dims = [
            Some(Dim::sym("n")),
            Some(Dim::sym("n") * Dim::Known(2) + Dim::ONE),
            Some(Dim::sym("m")),
        ];
        let Some(d) = e.eval_dims(&dims, &[])[0].clone() else {
            continue;
        };
        decided += 1;
        for n in 1..6 {
            for m in 1..4 {
                let inputs = [n, 2 * n + 1, m].map(Scalar::Int);
                let look = |s: &str| Some(if s == "n" { n } else { m });
                let want = e.eval_plain(&inputs).unwrap()[0];
                // None: a divisor that is not positive for these sizes.
                if let Some(got) = d.eval(&look) {
                    assert_eq!(
                        Scalar::Int(got),
                        want,
                        "seed {seed}, n = {n}, m = {m}: {d}\n{e}"
                    );
                }
            }
        }
    }
    assert!(decided > 2000, "only {decided} programs were decided");
}
