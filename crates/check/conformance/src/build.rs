//! Kernels by hand, with operands and tiles that need no names.
use expr::{Expr, ExprBuilder, Ref};
use kernel::{Access, Bound, Family, KernelBuilder, Role, Stmt, Term};
use layout::{DType, Dim, Leaf};
use std::ops::{Deref, DerefMut};

/// A kernel under construction: a [`KernelBuilder`] that names what it makes by number.
pub struct B(pub KernelBuilder);

impl Deref for B {
    type Target = KernelBuilder;

    fn deref(&self) -> &KernelBuilder {
        &self.0
    }
}

impl DerefMut for B {
    fn deref_mut(&mut self) -> &mut KernelBuilder {
        &mut self.0
    }
}

/// A known extent, stride or count of elements.
pub fn n(v: i64) -> Dim {
    Dim::Known(v)
}

/// A program of one result.
pub fn expr(f: impl FnOnce(&mut ExprBuilder) -> Ref) -> Expr {
    let mut b = ExprBuilder::new();
    let r = f(&mut b);
    b.finish(&[r])
}

/// An access from (axis, stride) pairs.
pub fn at(terms: &[(u16, i64)]) -> Access {
    Access::strided(
        n(0),
        terms
            .iter()
            .map(|&(a, s)| Term::flat(a, n(1 << 30), n(s)))
            .collect(),
    )
}

impl B {
    /// A kernel without statements over axes with their extents.
    pub fn new(name: &str, family: Family, axes: &[(&str, Dim)]) -> B {
        B(KernelBuilder::new(name, family, axes))
    }

    fn next_operand(&mut self, dtype: DType, role: Role, elements: Dim, access: Access) -> u16 {
        let name = format!("o{}", self.k.operands.len());
        self.operand(&name, dtype, role, access, elements)
    }

    fn next_tile(&self) -> String {
        format!("t{}", self.k.tiles.len())
    }

    /// An operand of `elements` elements that is read.
    pub fn read(&mut self, dtype: DType, elements: i64, access: Access) -> u16 {
        self.next_operand(dtype, Role::Read, n(elements), access)
    }

    /// An operand of `elements` elements that is written.
    pub fn write(&mut self, dtype: DType, elements: i64, access: Access) -> u16 {
        self.next_operand(dtype, Role::Write, n(elements), access)
    }

    /// As [`B::read`], of a symbolic size.
    pub fn read_dim(&mut self, dtype: DType, elements: Dim, access: Access) -> u16 {
        self.next_operand(dtype, Role::Read, elements, access)
    }

    /// As [`B::write`], of a symbolic size.
    pub fn write_dim(&mut self, dtype: DType, elements: Dim, access: Access) -> u16 {
        self.next_operand(dtype, Role::Write, elements, access)
    }

    /// Loads an operand into a tile over `axes`.
    pub fn load(&mut self, operand: u16, axes: &[u16]) -> u16 {
        let (d, name) = (self.k.operands[operand as usize].dtype, self.next_tile());
        let dst = self.tile(&name, d, axes);
        self.k.body.push(Stmt::Load { dst, operand });
        dst
    }

    /// Stores a tile.
    pub fn store(&mut self, operand: u16, src: u16) {
        self.k.body.push(Stmt::Store { operand, src });
    }

    /// A tile computed element by element from others.
    pub fn map(&mut self, dtype: DType, axes: &[u16], args: &[u16], e: Expr) -> u16 {
        let name = self.next_tile();
        self.0.map(&name, dtype, axes, e, args)
    }

    /// A tile of one value.
    pub fn fill(&mut self, dtype: DType, axes: &[u16], v: f64) -> u16 {
        let name = self.next_tile();
        self.0.fill(&name, dtype, axes, v)
    }
}

/// `0 <= sum + base < extent`.
pub fn bound(terms: &[(u16, i64)], base: i64, extent: i64) -> Bound {
    Bound {
        terms: terms.iter().map(|&(a, c)| (a, n(c))).collect(),
        base: n(base),
        extent: n(extent),
    }
}

/// A term in blocks.
pub fn blocked(axis: u16, blocks: i64, outer: i64, size: i64, inner: i64) -> Term {
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
