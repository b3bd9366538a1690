//! Programs that targets know a shorter form of, and programs without roundings.
use layout::DType;
use shopfloor_expr::{Compare, Expr, ExprBuilder, Inst, Scalar, Unary, changed_exp, shifted_exp};

/// `s == -inf ? 0 : exp(s - m)`, with `masked` in place of 0.
fn weight(masked: f64) -> Expr {
    let mut b = ExprBuilder::new();
    let (s, m) = (b.input(0, DType::F32), b.input(1, DType::F32));
    let low = b.constant(f64::NEG_INFINITY, DType::F32);
    let hidden = b.compare(Compare::Eq, s, low);
    let d = b.sub(s, m);
    let p = b.unary(Unary::Exp, d);
    let zero = b.constant(masked, DType::F32);
    let r = b.select(hidden, zero, p);
    b.finish(&[r])
}

#[test]
fn weights_of_a_softmax_are_found() {
    let e = weight(0.0);
    let (s, m) = shifted_exp(&e.insts, e.outputs[0]).unwrap();
    let slot = |r: u32| match e.insts[r as usize] {
        Inst::Input { slot, .. } => slot,
        _ => panic!("no input"),
    };
    assert_eq!((slot(s), slot(m)), (0, 1));
    let other = weight(1.0);
    assert_eq!(shifted_exp(&other.insts, other.outputs[0]), None);
    assert_eq!(shifted_exp(&e.insts, 0), None);
}

#[test]
fn factors_of_a_maximum_that_changes_are_found() {
    let factor = |one: f64| {
        let mut b = ExprBuilder::new();
        let (old, new) = (b.input(0, DType::F32), b.input(1, DType::F32));
        let same = b.compare(Compare::Eq, old, new);
        let d = b.sub(old, new);
        let f = b.unary(Unary::Exp, d);
        let one = b.constant(one, DType::F32);
        let r = b.select(same, one, f);
        b.finish(&[r])
    };
    let e = factor(1.0);
    assert_eq!(changed_exp(&e.insts, e.outputs[0]), Some((0, 1)));
    let other = factor(0.0);
    assert_eq!(changed_exp(&other.insts, other.outputs[0]), None);
}

#[test]
fn products_of_16_bits_need_no_rounding_and_sums_do() {
    let program = |adds: bool| {
        let mut b = ExprBuilder::new();
        let (s, mask) = (b.input(0, DType::F16), b.input(1, DType::Bool));
        let by = b.constant(0.3, DType::F16);
        let scaled = b.mul(s, by);
        let low = b.constant(f64::NEG_INFINITY, DType::F16);
        let mut y = b.select(mask, scaled, low);
        if adds {
            let more = b.input(2, DType::F16);
            y = b.add(y, more);
        }
        b.finish(&[y])
    };
    assert_eq!(program(true).unrounded(0), None);
    let e = program(false).unrounded(0).unwrap();
    assert_eq!(e.output_types().unwrap(), [DType::F32]);
    // 2049 is no number of f16.
    let seen = |mask: i64| {
        e.eval_plain(&[Scalar::Float(2049.0), Scalar::Int(mask)])
            .unwrap()[0]
    };
    let Scalar::Float(y) = seen(1) else {
        panic!("no float");
    };
    assert!((y - 2049.0 * 0.3).abs() < 0.2, "{y}");
    assert_eq!(seen(0), Scalar::Float(f64::NEG_INFINITY));
}
