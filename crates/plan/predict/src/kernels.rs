//! The kernels that rows of measurements are about, with symbols for sizes: one for each form, so that a
//! tile program is made once for all sizes.

use expr::{Binary, Expr, ExprBuilder, Monoid, Unary};
use kernel::{Access, AxisId, Family, Kernel, KernelBuilder, Stmt, Term, TileId};
use layout::{Arrange, DType, Dim};

/// A kernel over axes whose extents are symbols of their names.
fn over(name: &str, family: Family, axes: &[&str]) -> KernelBuilder {
    let axes: Vec<(&str, Dim)> = axes.iter().map(|n| (*n, Dim::sym(n))).collect();
    KernelBuilder::new(name, family, &axes)
}

/// Loads an operand whose axes lie these strides apart.
fn load(make: &mut KernelBuilder, name: &str, dtype: DType, terms: &[(AxisId, Dim)]) -> TileId {
    let elements = terms.iter().map(|t| make.extent(t.0));
    let elements = elements.fold(Dim::ONE, |a, b| a * b);
    let mut terms: Vec<Term> = terms
        .iter()
        .map(|(a, stride)| Term::flat(*a, make.extent(*a), stride.clone()))
        .collect();
    terms.arrange_by_key(|t| t.axis);
    make.load(name, dtype, Access::strided(Dim::ZERO, terms), elements)
}

fn expr(
    n: usize,
    dtype: DType,
    f: impl FnOnce(&mut ExprBuilder, &[expr::Ref]) -> expr::Ref,
) -> Expr {
    let mut b = ExprBuilder::new();
    let args: Vec<_> = (0..n as u32).map(|s| b.input(s, dtype)).collect();
    let out = f(&mut b, &args);
    b.finish(&[out])
}

/// What tells one product's kernel from another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProductForm {
    /// Type of the factors.
    pub input: DType,
    /// Type of sums.
    pub acc: DType,
    /// Type of the result.
    pub output: DType,
    /// The left factor lies k x m.
    pub ta: bool,
    /// The right factor lies n x k.
    pub tb: bool,
    /// A bias per column is added.
    pub bias: bool,
    /// The left factor is what windows of `e` elements make of them: a convolution as a product.
    pub windows: bool,
    /// The sum is cut into `s` parts of `k` each, written side by side.
    pub parts: bool,
}

/// Axes of a product.
pub const B: AxisId = 0;
#[allow(missing_docs)]
pub const S: AxisId = 1;
#[allow(missing_docs)]
pub const M: AxisId = 2;
#[allow(missing_docs)]
pub const N: AxisId = 3;
#[allow(missing_docs)]
pub const K: AxisId = 4;

/// `b` products of `m` x `k` by `k` x `n`.
pub fn product(f: ProductForm) -> Kernel {
    let mut make = over("product", Family::Contract, &["b", "s", "m", "n", "k"]);
    let (m, n, k) = (make.extent(M), make.extent(N), make.extent(K));
    let all = k.clone() * make.extent(S);
    let left = match f.ta {
        false => [(M, all.clone()), (K, Dim::ONE), (S, k.clone())],
        true => [(M, Dim::ONE), (K, m.clone()), (S, k.clone() * m.clone())],
    };
    let right = match f.tb {
        false => [(N, Dim::ONE), (K, n.clone()), (S, k.clone() * n.clone())],
        true => [(N, all.clone()), (K, Dim::ONE), (S, k.clone())],
    };
    let with = |list: &[(AxisId, Dim)], each: Dim| {
        let mut v = vec![(B, each)];
        v.extend_from_slice(list);
        v
    };
    let a = load(&mut make, "a", f.input, &with(&left, all.clone() * m));
    let b = load(&mut make, "b", f.input, &with(&right, all * n));
    let result = [B, S, M, N];
    if f.windows {
        make.k.operands[0].elements = Dim::sym("e");
    }
    let acc = make.fill("acc", f.acc, &result, 0.0);
    make.k.body.push(Stmt::Contract {
        acc,
        a,
        b,
        over: vec![K],
    });
    let mut out = acc;
    if f.bias && !f.parts {
        let bias = make.load_dense("bias", f.acc, &[N]);
        let add = expr(2, f.acc, |b, x| b.add(x[0], x[1]));
        out = make.map("sum", f.acc, &result, add, &[acc, bias]);
    }
    let kept = if f.parts { f.acc } else { f.output };
    if kept != f.acc {
        let cast = expr(1, f.acc, |b, x| b.cast(x[0], kept));
        out = make.map("out", kept, &result, cast, &[out]);
    }
    make.store_dense("Y", out, &result);
    make.k
}

/// The function of an element-wise kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // The names are the functions'.
pub enum Function {
    Add,
    Mul,
    Div,
    Pow,
    Relu,
    Gelu,
    Tanh,
    Copy,
}

/// How an input of an element-wise kernel is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reads {
    /// An element of its own for each of the result.
    All,
    /// The same row for every row.
    Row,
    /// One number, which lies in the kernel's arguments.
    Scalar,
}

/// Axes of rows.
pub const ROWS: AxisId = 0;
#[allow(missing_docs)]
pub const COLS: AxisId = 1;

/// `r` x `c` elements, each from one or two.
pub fn elementwise(f: Function, second: Option<Reads>, dtype: DType) -> Kernel {
    let mut make = over("elementwise", Family::Map, &["r", "c"]);
    let mut args = vec![make.load_dense("x", dtype, &[ROWS, COLS])];
    match second {
        Some(Reads::All) => args.push(make.load_dense("z", dtype, &[ROWS, COLS])),
        Some(Reads::Row) => args.push(make.load_dense("z", dtype, &[COLS])),
        Some(Reads::Scalar) | None => {}
    }
    let e = expr(args.len(), dtype, |b, x| {
        let second = match x.get(1) {
            Some(&z) => z,
            None => b.constant(1.5, dtype),
        };
        match f {
            Function::Add => b.add(x[0], second),
            Function::Mul => b.mul(x[0], second),
            Function::Div => b.div(x[0], second),
            Function::Pow => b.binary(Binary::Pow, x[0], second),
            Function::Relu => expr::functions::relu(b, x[0], dtype),
            Function::Gelu => expr::functions::gelu_erf(b, x[0], dtype),
            Function::Tanh => b.unary(Unary::Tanh, x[0]),
            Function::Copy => x[0],
        }
    });
    let y = match f {
        Function::Copy => args[0],
        _ => make.map("y", dtype, &[ROWS, COLS], e, &args),
    };
    make.store_dense("Y", y, &[ROWS, COLS]);
    make.k
}

/// Softmax along rows: the maximum, the sum of exponentials, the quotients, each from `x` anew; `whole`
/// rows are at hand, and so are their exponentials.
pub fn softmax(dtype: DType, whole: bool) -> Kernel {
    let mut make = over("softmax", Family::Row, &["r", "c"]);
    let x = make.load_dense("x", dtype, &[ROWS, COLS]);
    let exp = |b: &mut ExprBuilder, x: &[expr::Ref]| {
        let d = b.sub(x[0], x[1]);
        b.unary(Unary::Exp, d)
    };
    let most = make.fill("most", dtype, &[ROWS], 0.0);
    make.fold(Monoid::max(dtype, dtype), most, x, &[COLS], None);
    let e = make.map("e", dtype, &[ROWS, COLS], expr(2, dtype, exp), &[x, most]);
    let sum = make.fill("sum", dtype, &[ROWS], 0.0);
    make.fold(Monoid::sum(dtype, dtype), sum, e, &[COLS], None);
    let y = match whole {
        true => {
            let quotient = expr(2, dtype, |b, x| b.div(x[0], x[1]));
            make.map("y", dtype, &[ROWS, COLS], quotient, &[e, sum])
        }
        false => {
            let quotient = expr(3, dtype, |b, x| {
                let e = exp(b, x);
                b.div(e, x[2])
            });
            make.map("y", dtype, &[ROWS, COLS], quotient, &[x, most, sum])
        }
    };
    make.store_dense("Y", y, &[ROWS, COLS]);
    make.k
}

/// Layer norm along rows with scale and shift: moments in one pass, results in a second.
pub fn layernorm(dtype: DType) -> Kernel {
    let mut make = over("layernorm", Family::Row, &["r", "c"]);
    let x = make.load_dense("x", dtype, &[ROWS, COLS]);
    let scale = make.load_dense("scale", dtype, &[COLS]);
    let shift = make.load_dense("shift", dtype, &[COLS]);
    let state: Vec<TileId> = ["count", "mean", "moment"]
        .into_iter()
        .map(|n| make.fill(n, dtype, &[ROWS], 0.0))
        .collect();
    make.folds(
        Monoid::welford(dtype, dtype, 0),
        state.clone(),
        x,
        &[COLS],
        None,
    );
    let rate = expr(1, dtype, |b, x| b.unary(Unary::Rsqrt, x[0]));
    let rate = make.map("rate", dtype, &[ROWS], rate, &[state[2]]);
    let norm = expr(5, dtype, |b, x| {
        let d = b.sub(x[0], x[1]);
        let n = b.mul(d, x[2]);
        let s = b.mul(n, x[3]);
        b.add(s, x[4])
    });
    let args = [x, state[1], rate, scale, shift];
    let y = make.map("y", dtype, &[ROWS, COLS], norm, &args);
    make.store_dense("Y", y, &[ROWS, COLS]);
    make.k
}

/// A product of one row: `n` rows of `k` bytes of weights are read once and summed.
pub fn reading() -> Kernel {
    let mut make = over("reading", Family::Row, &["r", "c"]);
    let w = make.load_dense("w", DType::U8, &[ROWS, COLS]);
    let wide = {
        let mut b = ExprBuilder::new();
        let x = b.input(0, DType::U8);
        let y = b.cast(x, DType::F32);
        b.finish(&[y])
    };
    let f = make.map("f", DType::F32, &[ROWS, COLS], wide, &[w]);
    let sum = make.fill("sum", DType::F32, &[ROWS], 0.0);
    make.fold(Monoid::sum(DType::F32, DType::F32), sum, f, &[COLS], None);
    make.store_dense("Y", sum, &[ROWS]);
    make.k
}
