//! Kernels by hand.
use expr::{Expr, ExprBuilder, Ref};
use kernel::{Access, Axis, Bound, Family, Kernel, Operand, Role, Stmt, Term, Tile};
use layout::{DType, Dim, Leaf};

pub(crate) struct B {
    pub(crate) k: Kernel,
}

pub(crate) fn n(v: i64) -> Dim {
    Dim::Known(v)
}

pub(crate) fn expr(f: impl FnOnce(&mut ExprBuilder) -> Ref) -> Expr {
    let mut b = ExprBuilder::new();
    let r = f(&mut b);
    b.finish(&[r])
}

/// An access from (axis, stride) pairs.
pub(crate) fn at(terms: &[(u16, i64)]) -> Access {
    Access::strided(
        n(0),
        terms
            .iter()
            .map(|&(a, s)| Term::flat(a, n(1 << 30), n(s)))
            .collect(),
    )
}

impl B {
    pub(crate) fn new(name: &str, family: Family, axes: &[(&str, Dim)]) -> B {
        let axes = axes
            .iter()
            .map(|(a, e)| Axis {
                name: a.to_string(),
                extent: e.clone(),
            })
            .collect();
        B {
            k: Kernel {
                name: name.into(),
                family,
                axes,
                operands: vec![],
                tiles: vec![],
                body: vec![],
            },
        }
    }

    fn operand(&mut self, dtype: DType, role: Role, elements: Dim, access: Access) -> u16 {
        let name = format!("o{}", self.k.operands.len());
        self.k.operands.push(Operand {
            name,
            dtype,
            role,
            access,
            elements,
        });
        self.k.operands.len() as u16 - 1
    }

    pub(crate) fn read(&mut self, dtype: DType, elements: i64, access: Access) -> u16 {
        self.operand(dtype, Role::Read, n(elements), access)
    }

    pub(crate) fn write(&mut self, dtype: DType, elements: i64, access: Access) -> u16 {
        self.operand(dtype, Role::Write, n(elements), access)
    }

    pub(crate) fn read_dim(&mut self, dtype: DType, elements: Dim, access: Access) -> u16 {
        self.operand(dtype, Role::Read, elements, access)
    }

    pub(crate) fn write_dim(&mut self, dtype: DType, elements: Dim, access: Access) -> u16 {
        self.operand(dtype, Role::Write, elements, access)
    }

    pub(crate) fn tile(&mut self, dtype: DType, axes: &[u16]) -> u16 {
        let name = format!("t{}", self.k.tiles.len());
        self.k.tiles.push(Tile {
            name,
            dtype,
            axes: axes.to_vec(),
        });
        self.k.tiles.len() as u16 - 1
    }

    pub(crate) fn load(&mut self, operand: u16, axes: &[u16]) -> u16 {
        let d = self.k.operands[operand as usize].dtype;
        let dst = self.tile(d, axes);
        self.k.body.push(Stmt::Load { dst, operand });
        dst
    }

    pub(crate) fn store(&mut self, operand: u16, src: u16) {
        self.k.body.push(Stmt::Store { operand, src });
    }

    pub(crate) fn map(&mut self, dtype: DType, axes: &[u16], args: &[u16], e: Expr) -> u16 {
        let dst = self.tile(dtype, axes);
        self.k.body.push(Stmt::Map {
            dst,
            expr: e,
            args: args.to_vec(),
        });
        dst
    }

    pub(crate) fn fill(&mut self, dtype: DType, axes: &[u16], v: f64) -> u16 {
        self.map(dtype, axes, &[], expr(|b| b.constant(v, dtype)))
    }

    pub(crate) fn contract(&mut self, acc: u16, a: u16, b: u16, over: &[u16]) {
        self.k.body.push(Stmt::Contract {
            acc,
            a,
            b,
            over: over.to_vec(),
        });
    }
}

/// `0 <= sum + base < extent`.
pub(crate) fn bound(terms: &[(u16, i64)], base: i64, extent: i64) -> Bound {
    Bound {
        terms: terms.iter().map(|&(a, c)| (a, n(c))).collect(),
        base: n(base),
        extent: n(extent),
    }
}

/// A term in blocks.
pub(crate) fn blocked(axis: u16, blocks: i64, outer: i64, size: i64, inner: i64) -> Term {
    Term {
        axis,
        leaves: vec![
            Leaf {
                extent: n(blocks),
                stride: n(outer),
            },
            Leaf {
                extent: n(size),
                stride: n(inner),
            },
        ],
    }
}
