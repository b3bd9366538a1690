//! The kernels that rows of measurements are about, with symbols for sizes: one for each form, so that a
//! tile program is made once for all sizes.

use expr::{Binary, Expr, ExprBuilder, Monoid, Unary};
use kernel::{
    Access, Axis, AxisId, Family, Kernel, Operand, OperandId, Role, Stmt, Term, Tile, TileId,
};
use layout::{DType, Dim};

/// Assembles a kernel statement by statement.
struct Make {
    k: Kernel,
}

impl Make {
    fn new(name: &str, family: Family, axes: &[&str]) -> Make {
        let axis = |n: &&str| Axis {
            name: n.to_string(),
            extent: Dim::sym(n),
        };
        Make {
            k: Kernel {
                name: name.into(),
                family,
                axes: axes.iter().map(axis).collect(),
                operands: vec![],
                tiles: vec![],
                body: vec![],
            },
        }
    }

    fn extent(&self, a: AxisId) -> Dim {
        self.k.axes[a as usize].extent.clone()
    }

    fn tile(&mut self, name: &str, dtype: DType, axes: &[AxisId]) -> TileId {
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        self.k.tiles.push(Tile {
            name: name.into(),
            dtype,
            axes,
        });
        (self.k.tiles.len() - 1) as TileId
    }

    fn operand(
        &mut self,
        name: &str,
        dtype: DType,
        role: Role,
        terms: &[(AxisId, Dim)],
    ) -> OperandId {
        let mut terms: Vec<Term> = terms
            .iter()
            .map(|(a, stride)| Term::flat(*a, self.extent(*a), stride.clone()))
            .collect();
        terms.sort_by_key(|t| t.axis);
        let elements = terms.iter().map(|t| self.extent(t.axis));
        self.k.operands.push(Operand {
            name: name.into(),
            dtype,
            role,
            elements: elements.fold(Dim::ONE, |a, b| a * b),
            access: Access::strided(Dim::ZERO, terms),
        });
        (self.k.operands.len() - 1) as OperandId
    }

    /// Strides of a row-major tensor over `axes`.
    fn dense(&self, axes: &[AxisId]) -> Vec<(AxisId, Dim)> {
        let mut stride = Dim::ONE;
        let mut out = vec![];
        for &a in axes.iter().rev() {
            out.push((a, stride.clone()));
            stride = stride * self.extent(a);
        }
        out
    }

    fn load(&mut self, name: &str, dtype: DType, terms: &[(AxisId, Dim)]) -> TileId {
        let operand = self.operand(&name.to_uppercase(), dtype, Role::Read, terms);
        let axes: Vec<AxisId> = terms.iter().map(|t| t.0).collect();
        let dst = self.tile(name, dtype, &axes);
        self.k.body.push(Stmt::Load { dst, operand });
        dst
    }

    fn store(&mut self, src: TileId, dtype: DType, axes: &[AxisId]) {
        let terms = self.dense(axes);
        let operand = self.operand("Y", dtype, Role::Write, &terms);
        self.k.body.push(Stmt::Store { operand, src });
    }

    fn map(
        &mut self,
        name: &str,
        dtype: DType,
        axes: &[AxisId],
        expr: Expr,
        args: &[TileId],
    ) -> TileId {
        let dst = self.tile(name, dtype, axes);
        let args = args.to_vec();
        self.k.body.push(Stmt::Map { dst, expr, args });
        dst
    }

    fn fill(&mut self, name: &str, dtype: DType, axes: &[AxisId]) -> TileId {
        let mut b = ExprBuilder::new();
        let zero = b.constant(0.0, dtype);
        self.map(name, dtype, axes, b.finish(&[zero]), &[])
    }

    fn fold(&mut self, monoid: Monoid, state: Vec<TileId>, arg: TileId, over: AxisId) {
        self.k.body.push(Stmt::Fold {
            monoid,
            state,
            args: vec![arg],
            over: vec![over],
            rescale: None,
        });
    }
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
    let mut make = Make::new("product", Family::Contract, &["b", "s", "m", "n", "k"]);
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
    let a = make.load("a", f.input, &with(&left, all.clone() * m));
    let b = make.load("b", f.input, &with(&right, all * n));
    let result = [B, S, M, N];
    if f.windows {
        make.k.operands[0].elements = Dim::sym("e");
    }
    let acc = make.fill("acc", f.acc, &result);
    make.k.body.push(Stmt::Contract {
        acc,
        a,
        b,
        over: vec![K],
    });
    let mut out = acc;
    if f.bias && !f.parts {
        let bias = make.load("bias", f.acc, &[(N, Dim::ONE)]);
        let add = expr(2, f.acc, |b, x| b.add(x[0], x[1]));
        out = make.map("sum", f.acc, &result, add, &[acc, bias]);
    }
    let kept = if f.parts { f.acc } else { f.output };
    if kept != f.acc {
        let cast = expr(1, f.acc, |b, x| b.cast(x[0], kept));
        out = make.map("out", kept, &result, cast, &[out]);
    }
    make.store(out, kept, &result);
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
    let mut make = Make::new("elementwise", Family::Map, &["r", "c"]);
    let all = make.dense(&[ROWS, COLS]);
    let mut args = vec![make.load("x", dtype, &all)];
    match second {
        Some(Reads::All) => args.push(make.load("z", dtype, &all)),
        Some(Reads::Row) => args.push(make.load("z", dtype, &[(COLS, Dim::ONE)])),
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
    make.store(y, dtype, &[ROWS, COLS]);
    make.k
}

/// Softmax along rows: the maximum, the sum of exponentials, the quotients, each from `x` anew; `whole`
/// rows are at hand, and so are their exponentials.
pub fn softmax(dtype: DType, whole: bool) -> Kernel {
    let mut make = Make::new("softmax", Family::Row, &["r", "c"]);
    let all = make.dense(&[ROWS, COLS]);
    let x = make.load("x", dtype, &all);
    let exp = |b: &mut ExprBuilder, x: &[expr::Ref]| {
        let d = b.sub(x[0], x[1]);
        b.unary(Unary::Exp, d)
    };
    let most = make.fill("most", dtype, &[ROWS]);
    make.fold(Monoid::max(dtype, dtype), vec![most], x, COLS);
    let e = make.map("e", dtype, &[ROWS, COLS], expr(2, dtype, exp), &[x, most]);
    let sum = make.fill("sum", dtype, &[ROWS]);
    make.fold(Monoid::sum(dtype, dtype), vec![sum], e, COLS);
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
    make.store(y, dtype, &[ROWS, COLS]);
    make.k
}

/// Layer norm along rows with scale and shift: moments in one pass, results in a second.
pub fn layernorm(dtype: DType) -> Kernel {
    let mut make = Make::new("layernorm", Family::Row, &["r", "c"]);
    let all = make.dense(&[ROWS, COLS]);
    let x = make.load("x", dtype, &all);
    let scale = make.load("scale", dtype, &[(COLS, Dim::ONE)]);
    let shift = make.load("shift", dtype, &[(COLS, Dim::ONE)]);
    let state: Vec<TileId> = ["count", "mean", "moment"]
        .into_iter()
        .map(|n| make.fill(n, dtype, &[ROWS]))
        .collect();
    make.fold(Monoid::welford(dtype, dtype, 0), state.clone(), x, COLS);
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
    make.store(y, dtype, &[ROWS, COLS]);
    make.k
}

/// A product of one row: `n` rows of `k` bytes of weights are read once and summed.
pub fn reading() -> Kernel {
    let mut make = Make::new("reading", Family::Row, &["r", "c"]);
    let all = make.dense(&[ROWS, COLS]);
    let w = make.load("w", DType::U8, &all);
    let wide = {
        let mut b = ExprBuilder::new();
        let x = b.input(0, DType::U8);
        let y = b.cast(x, DType::F32);
        b.finish(&[y])
    };
    let f = make.map("f", DType::F32, &[ROWS, COLS], wide, &[w]);
    let sum = make.fill("sum", DType::F32, &[ROWS]);
    make.fold(Monoid::sum(DType::F32, DType::F32), vec![sum], f, COLS);
    make.store(sum, DType::F32, &[ROWS]);
    make.k
}
