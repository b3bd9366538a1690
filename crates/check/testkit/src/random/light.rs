//! Element-wise nodes, views, gathers and joins.
use super::Gen;
use expr::{Binary, Compare, Unary};
use graph::{Op, PadMode, ScatterReduce, ValueId, View};
use layout::{DType, Dim};

/// Functions that stay bounded and do not jump.
const SMOOTH: &[Unary] = &[
    Unary::Tanh,
    Unary::Neg,
    Unary::Abs,
    Unary::Sin,
    Unary::Cos,
    Unary::Atan,
    Unary::Erf,
    Unary::Sigmoid,
    Unary::Asinh,
];

/// One or a few nodes of a random kind; nothing when the values picked do not suit it.
pub(super) fn step(g: &mut Gen) -> Option<Vec<ValueId>> {
    let x = g.pick();
    let v = match g.r.below(12) {
        0 | 1 => unary(g, x),
        2 | 3 => binary(g, x),
        4 => select(g, x),
        5 => cast(g, x),
        6 => permute(g, x),
        7 => reshape(g, x),
        8 => slice(g, x),
        9 => expand(g, x),
        10 => join(g, x),
        _ => move_some(g, x),
    }?;
    Some(vec![v])
}

fn unary(g: &mut Gen, x: ValueId) -> Option<ValueId> {
    let d = g.dtype(x);
    if d == DType::Bool {
        return g.map(&[x], |e, a| e.unary(Unary::Not, a[0]));
    }
    if d.is_int() {
        let c = g.r.below(7) as i64;
        let f = g.r.of(&[
            Binary::Add,
            Binary::Mul,
            Binary::Max,
            Binary::Mod,
            Binary::Div,
        ]);
        return g.map(&[x], |e, a| {
            let c = e.int(c, d);
            e.binary(f, a[0], c)
        });
    }
    match g.r.below(4) {
        0 => {
            let c = f64::from(g.r.float());
            let f = g.r.of(&[Binary::Add, Binary::Mul, Binary::Min]);
            g.map(&[x], |e, a| {
                let c = e.constant(c, d);
                e.binary(f, a[0], c)
            })
        }
        1 => g.map(&[x], |e, a| {
            // A bounded exponential, as in an activation.
            let m = e.unary(Unary::Abs, a[0]);
            let m = e.unary(Unary::Neg, m);
            let m = e.unary(Unary::Exp, m);
            let one = e.constant(1.0, d);
            let m = e.add(one, m);
            e.unary(Unary::Log, m)
        }),
        _ => {
            let f = g.r.of(SMOOTH);
            g.map(&[x], |e, a| e.unary(f, a[0]))
        }
    }
}

/// Whether the shapes broadcast for certain, whatever the symbols are.
fn fits(a: &[Dim], b: &[Dim]) -> bool {
    a.iter()
        .rev()
        .zip(b.iter().rev())
        .all(|(a, b)| a == b || a.is_one() || b.is_one())
}

fn partner(g: &mut Gen, x: ValueId) -> Option<ValueId> {
    let (s, d) = (g.shape(x), g.dtype(x));
    if g.r.once_in(4) {
        // A channel's weight: along one known dimension.
        let shape: Vec<usize> = match s.iter().rev().take(2).next_back().and_then(Dim::known) {
            Some(c) if g.r.once_in(2) => vec![c as usize, 1],
            _ => s
                .last()
                .and_then(Dim::known)
                .map(|n| n as usize)
                .into_iter()
                .collect(),
        };
        let w = g.weight(d, &shape)?;
        return fits(&s, &g.shape(w)).then_some(w);
    }
    g.find(|t, y| t == d && fits(&s, y))
}

fn binary(g: &mut Gen, x: ValueId) -> Option<ValueId> {
    let y = partner(g, x)?;
    let d = g.dtype(x);
    let f = if d == DType::Bool {
        g.r.of(&[Binary::And, Binary::Or, Binary::Xor])
    } else {
        g.r.of(&[
            Binary::Add,
            Binary::Sub,
            Binary::Mul,
            Binary::Max,
            Binary::Min,
        ])
    };
    let v = g.map(&[x, y], |e, a| e.binary(f, a[0], a[1]))?;
    // Products of integers soon wrap, which is exact; those of floats should stay small.
    if d.is_float() && f == Binary::Mul {
        return g.map(&[v], |e, a| e.unary(Unary::Tanh, a[0]));
    }
    Some(v)
}

fn select(g: &mut Gen, x: ValueId) -> Option<ValueId> {
    let s = g.shape(x);
    let c = g.find(|t, y| !t.is_float() && fits(&s, y))?;
    let (d, cd) = (g.dtype(x), g.dtype(c));
    let at = g.r.below(s.len().max(1)) as u32;
    let by_place = !s.is_empty() && g.r.once_in(2);
    g.map(&[x, c], |e, a| {
        let mut on = a[1];
        if cd != DType::Bool {
            let k = e.int(1, cd);
            on = e.compare(Compare::Gt, on, k);
        }
        if by_place {
            let i = e.index(at);
            let two = e.int(2, DType::I64);
            let near = e.compare(Compare::Lt, i, two);
            on = e.binary(Binary::Or, on, near);
        }
        let zero = if d.is_float() {
            e.constant(0.25, d)
        } else {
            e.int(0, d)
        };
        e.select(on, a[0], zero)
    })
}

fn cast(g: &mut Gen, x: ValueId) -> Option<ValueId> {
    let from = g.dtype(x);
    // A float to an integer would turn a rounding into a step.
    let to = if from.is_float() {
        g.r.of(&[DType::F32, DType::F64, DType::F16, DType::BF16])
    } else {
        g.r.of(&[
            DType::F32,
            DType::I64,
            DType::I32,
            DType::I8,
            DType::U8,
            DType::F32,
            DType::Bool,
        ])
    };
    let v = g.map(&[x], |e, a| e.cast(a[0], to))?;
    if to == DType::F32 && from.is_int() {
        return g.map(&[v], |e, a| e.unary(Unary::Sin, a[0]));
    }
    Some(v)
}

fn permute(g: &mut Gen, x: ValueId) -> Option<ValueId> {
    let rank = g.shape(x).len();
    let mut perm: Vec<usize> = (0..rank).collect();
    for i in (1..rank).rev() {
        perm.swap(i, g.r.below(i + 1));
    }
    g.view(x, View::Permute(perm))
}

fn reshape(g: &mut Gen, x: ValueId) -> Option<ValueId> {
    let s = g.shape(x);
    let mut to = s.clone();
    match g.r.below(3) {
        0 if s.len() >= 2 => {
            let i = g.r.below(s.len() - 1);
            let d = to.remove(i + 1);
            to[i] = to[i].clone() * d;
        }
        1 if s.len() < 5 => to.insert(g.r.below(s.len() + 1), Dim::ONE),
        _ => {
            let i = s
                .iter()
                .position(|d| d.known().is_some_and(|n| n % 2 == 0 && n > 0))?;
            to[i] = Dim::Known(to[i].known()? / 2);
            to.insert(i, Dim::Known(2));
        }
    }
    g.view(x, View::Reshape(to))
}

fn slice(g: &mut Gen, x: ValueId) -> Option<ValueId> {
    let s = g.shape(x);
    let (mut starts, mut steps, mut extents) =
        (vec![Dim::ZERO; s.len()], vec![1; s.len()], s.clone());
    for d in 0..s.len() {
        let Some(n) = s[d].known().filter(|n| *n > 0) else {
            if g.r.once_in(4) {
                // Backwards over a symbolic extent.
                starts[d] = s[d].clone() - Dim::ONE;
                steps[d] = -1;
            }
            continue;
        };
        if g.r.once_in(2) {
            let from = g.r.below(n as usize) as i64;
            let step = g.r.of(&[1, 1, 2, 3, -1, -2]);
            let most = if step > 0 {
                (n - from + step - 1) / step
            } else {
                from / -step + 1
            };
            starts[d] = Dim::Known(from);
            steps[d] = step;
            extents[d] = Dim::Known(1 + g.r.below(most as usize) as i64);
        }
    }
    g.view(
        x,
        View::Slice {
            starts,
            steps,
            extents,
        },
    )
}

fn expand(g: &mut Gen, x: ValueId) -> Option<ValueId> {
    let mut to = g.shape(x);
    for d in &mut to {
        if d.is_one() && g.r.once_in(2) {
            *d = g.r.of(&[Dim::Known(3), Dim::sym("s")]);
        }
    }
    if to.len() < 4 && g.r.once_in(2) {
        to.insert(0, Dim::Known(2));
    }
    g.view(x, View::Expand(to))
}

fn join(g: &mut Gen, x: ValueId) -> Option<ValueId> {
    let (s, d) = (g.shape(x), g.dtype(x));
    if s.is_empty() {
        return None;
    }
    let axis = g.r.below(s.len());
    let mut parts = vec![x];
    for _ in 0..1 + g.r.below(3) {
        let y = g.pick();
        let t = g.shape(y);
        let alike = t.len() == s.len() && (0..s.len()).all(|i| i == axis || s[i] == t[i]);
        parts.push(if g.dtype(y) == d && alike { y } else { x });
    }
    g.node(Op::Concat { axis }, &parts)
}

fn move_some(g: &mut Gen, x: ValueId) -> Option<ValueId> {
    let (s, d) = (g.shape(x), g.dtype(x));
    if s.is_empty() {
        return None;
    }
    match g.r.below(3) {
        0 => {
            // The last as often as the first: those before it may be common with the indices.
            let long = |d: &Dim| d.known().is_some_and(|n| n >= 2);
            let axis = match g.r.once_in(2) {
                true => s.iter().position(long)?,
                false => s.iter().rposition(long)?,
            };
            let most = s[axis].known()?;
            let i = if g.r.once_in(2) {
                let t = tensor::Tensor::from_i64(&[3], &[1, 0, -1]).ok()?;
                g.b.constant("at", t).ok()?
            } else {
                // Indices from the data, always inside.
                let y = g.find(|t, _| matches!(t, DType::I64 | DType::I32))?;
                let id = g.dtype(y);
                g.map(&[y], |e, a| {
                    let n = e.int(most, id);
                    e.binary(Binary::Mod, a[0], n)
                })?
            };
            let by = g.shape(i);
            let common = (0..axis.min(by.len())).take_while(|&k| s[k] == by[k]);
            let batch = common.count();
            let batch = g.r.below(batch + 1);
            g.node(Op::Gather { axis, batch }, &[x, i])
        }
        1 => {
            let mode = g.r.of(&[
                PadMode::Constant,
                PadMode::Constant,
                PadMode::Edge,
                PadMode::Reflect,
                PadMode::Wrap,
            ]);
            // Rows are cut only where there certainly are some.
            let mut rim = |n: &Dim| match (mode, n.known()) {
                (PadMode::Constant, Some(n)) if n >= 2 => g.r.below(4) as i64 - 1,
                (PadMode::Constant, _) => g.r.below(3) as i64,
                (_, Some(n)) if n >= 3 => g.r.below(3) as i64,
                _ => 0,
            };
            let before: Vec<Dim> = s.iter().map(|n| Dim::Known(rim(n))).collect();
            let after: Vec<Dim> = s.iter().map(|n| Dim::Known(rim(n).max(0))).collect();
            g.node(
                Op::Pad {
                    before,
                    after,
                    mode,
                },
                &[x],
            )
        }
        _ => {
            let rows = s[0].known().filter(|&n| n >= 2)?;
            let how = g.r.of(&[
                ScatterReduce::Replace,
                ScatterReduce::Add,
                ScatterReduce::Max,
            ]);
            if d == DType::Bool || d == DType::F16 || d == DType::BF16 {
                return None;
            }
            let t = tensor::Tensor::from_i64(&[2, 1], &[rows - 1, 0]).ok()?;
            let i = g.b.constant("rows", t).ok()?;
            let two = View::Slice {
                starts: vec![Dim::ZERO; s.len()],
                steps: vec![1; s.len()],
                extents: std::iter::once(Dim::Known(2))
                    .chain(s[1..].iter().cloned())
                    .collect(),
            };
            let u = g.view(x, two)?;
            g.node(Op::ScatterNd(how), &[x, i, u])
        }
    }
}
