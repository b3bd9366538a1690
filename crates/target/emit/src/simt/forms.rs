//! Which scalar operations become text, found by printing every one of them.
use super::build::Build;
use super::ir::{Inst, Reg, Ty};
use super::scalar::{self, Out};
use kernel::Form;
use layout::{DType, Inserted};
use std::collections::BTreeSet;

/// A scalar operation as threads have it.
pub(crate) struct ThreadOp {
    /// Type of every value.
    pub regs: Vec<Ty>,
    /// Type of every variable.
    pub vars: Vec<Ty>,
    /// Instructions.
    pub body: Vec<Inst>,
    /// Values of the arguments.
    pub given: Vec<Reg>,
    /// Value of the result.
    pub made: Reg,
}

impl ThreadOp {
    fn of(form: Form) -> Out<ThreadOp> {
        let mut b = Build::new();
        let mut given = vec![];
        let mut fresh = |b: &mut Build, d: DType| -> Out<Reg> {
            let ty = Ty::of(d).ok_or("a type that no value has")?;
            given.push(b.fresh(ty));
            Ok(given[given.len() - 1])
        };
        let made = match form {
            Form::Unary(f, d) => {
                let x = fresh(&mut b, d)?;
                scalar::unary(&mut b, f, x, d)
            }
            Form::Binary(f, d) => {
                let (x, y) = (fresh(&mut b, d)?, fresh(&mut b, d)?);
                scalar::binary(&mut b, f, x, y, d)
            }
            Form::Compare(f, d) => {
                let (x, y) = (fresh(&mut b, d)?, fresh(&mut b, d)?);
                scalar::compare(&mut b, f, x, y, d)
            }
            Form::Cast(from, to) => {
                let x = fresh(&mut b, from)?;
                scalar::cast(&mut b, x, from, to)
            }
        }?;
        let body = b.close();
        Ok(ThreadOp {
            regs: b.regs,
            vars: b.vars,
            body,
            given,
            made,
        })
    }
}

/// The types among all that threads hold values of.
pub(crate) fn types() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|&d| Ty::of(d).is_some())
}

/// The operations on values of `types` that the lowering or `text` has no form for.
pub(crate) fn lacking(types: &[DType], text: fn(ThreadOp) -> Out<String>) -> BTreeSet<Form> {
    let printed = |f: &Form| ThreadOp::of(*f).and_then(text).is_ok();
    Form::all(types).filter(|f| !printed(f)).inserted()
}
