//! The kernel that copies a value.

use kernel::{Access, Axis, Family, Kernel, Operand, Role, Stmt, Term, Tile};
use layout::{DType, Dim};

/// A move of `storage` elements from one buffer to another.
pub(super) fn copy_kernel(name: &str, dtype: DType, storage: &Dim) -> Kernel {
    let access = || Access::strided(Dim::ZERO, vec![Term::flat(0, storage.clone(), Dim::ONE)]);
    let op = |name: &str, role| Operand {
        name: name.into(),
        dtype,
        role,
        access: access(),
        elements: storage.clone(),
    };
    Kernel {
        name: name.into(),
        family: Family::Move,
        axes: vec![Axis {
            name: "i".into(),
            extent: storage.clone(),
        }],
        operands: vec![op("x", Role::Read), op("y", Role::Write)],
        tiles: vec![Tile {
            name: "x".into(),
            dtype,
            axes: vec![0],
        }],
        body: vec![
            Stmt::Load { dst: 0, operand: 0 },
            Stmt::Store { operand: 1, src: 0 },
        ],
    }
}
