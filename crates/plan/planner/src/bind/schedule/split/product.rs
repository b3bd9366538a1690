//! A product as partial sums and their sum.
use super::pieces::{Two, Workspace, after, constant, counts, in_parts, store_parts, two_of};
use crate::bind::ctx::Space;
use crate::bind::schedule::product::Product;
use expr::Monoid;
use kernel::{AxisId, Family, Kernel, OperandId, Role, Stmt, TileId};
use layout::{DType, Dim};
use std::collections::BTreeSet;

/// The longest of the summed axes of a kernel that is one product, and its extent.
pub(super) fn longest(k: &Kernel) -> Option<(AxisId, i64)> {
    let p = Product::of(k)?;
    let known = |a: &AxisId| k.axes[*a as usize].extent.known();
    let axis = p.over.iter().copied().max_by_key(|a| (known(a), *a))?;
    Some((axis, known(&axis)?))
}

/// The product in `parts` along `axis`, whose extent is a multiple of them, and the sum of the parts with what
/// follows; `None` where the kernel has another form.
pub(super) fn two(space: &Space, axis: AxisId, parts: i64) -> Option<Two> {
    let k = space.kernel;
    let p = &Product::of(k)?;
    let around = Around::of(k, p, axis)?;
    let workspace = Workspace::of(space, p.acc, "parts".into(), parts)?;
    let first = partial_sums(k, axis, &around, &workspace)?;
    let second = sum_of_parts(k, p, axis, &around, &workspace);
    let between = vec![workspace.between()];
    Some(two_of(k, [first, second], between, (axis, parts)))
}

/// The statements of a kernel around its product.
struct Around<'k> {
    /// Where the product is in the body.
    at: usize,
    fill: &'k Stmt,
    /// What makes the factors.
    feeds: Vec<&'k Stmt>,
    /// The product and what is left for afterwards, each with its place in the body.
    rest: Vec<(usize, &'k Stmt)>,
}

impl<'k> Around<'k> {
    /// `None` where the kernel has another form than a product along `axis` with what feeds and follows it.
    fn of(k: &'k Kernel, p: &Product, axis: AxisId) -> Option<Around<'k>> {
        let product = |s: &Stmt| matches!(s, Stmt::Contract { .. });
        let at = k.body.iter().position(product)?;
        let mut before = k.body[..at].iter().filter(|s| s.writes().contains(&p.acc));
        let zeros = |s: &&Stmt| s.as_fill().and_then(|f| constant(f.1)) == Some(0.0);
        let fill = before.next().filter(zeros)?;
        let dtype = k.tiles[p.acc as usize].dtype;
        if before.next().is_some() || !matches!(dtype, DType::F32 | DType::I32) {
            return None;
        }
        let mut need: BTreeSet<TileId> = BTreeSet::from([p.a, p.b]);
        let mut feeds: Vec<&Stmt> = vec![];
        for s in k.body[..at].iter().rev() {
            if !s.writes().iter().any(|t| need.contains(t)) {
                continue;
            }
            match s {
                Stmt::Load { .. } => {}
                Stmt::Map { expr, .. } if !counts(expr, axis) => need.extend(s.reads()),
                _ => return None,
            }
            feeds.push(s);
        }
        feeds.reverse();
        if need.contains(&p.acc) {
            return None;
        }
        let rest = after(k, axis, &[at])?;
        let goes_on = |r: &(usize, &Stmt)| r.0 > at && r.1.reads().contains(&p.acc);
        rest.iter().any(goes_on).then_some(())?;
        Some(Around {
            at,
            fill,
            feeds,
            rest,
        })
    }
}

/// The first kernel: the sum of each part.
fn partial_sums(
    k: &Kernel,
    axis: AxisId,
    around: &Around<'_>,
    workspace: &Workspace,
) -> Option<Kernel> {
    let parts = workspace.parts;
    let length = k.axes[axis as usize].extent.known()?;
    (length % parts == 0).then_some(())?;
    let piece = Dim::Known(length / parts);
    let workspaces = std::slice::from_ref(workspace);
    let (mut first, part) = in_parts(k, (axis, &piece), workspaces)?;
    first.body = around.feeds.iter().map(|&s| s.clone()).collect();
    first
        .body
        .extend([around.fill.clone(), k.body[around.at].clone()]);
    store_parts(&mut first, part, workspaces);
    Some(first)
}

/// The second kernel: the summed axis is that of the parts, and the product a fold over them.
fn sum_of_parts(
    k: &Kernel,
    p: &Product,
    axis: AxisId,
    around: &Around<'_>,
    workspace: &Workspace,
) -> Kernel {
    let acc = &k.tiles[p.acc as usize];
    let mut second = k.clone();
    second.family = Family::Row;
    second.axes[axis as usize] = workspace.axis(k);
    second.operands.push(workspace.operand(k, axis, Role::Read));
    second.tiles.push(workspace.tile(k, axis));
    let loaded = k.tiles.len() as TileId;
    second.body = vec![];
    for &(i, s) in &around.rest {
        if i != around.at {
            second.body.push(s.clone());
            continue;
        }
        second.body.push(Stmt::Load {
            dst: loaded,
            operand: k.operands.len() as OperandId,
        });
        second.body.push(Stmt::Fold {
            monoid: Monoid::sum(acc.dtype, acc.dtype),
            state: vec![p.acc],
            args: vec![loaded],
            over: vec![axis],
            rescale: None,
        });
    }
    second
}
