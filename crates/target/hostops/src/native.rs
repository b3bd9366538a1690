//! Operators whose code is the caller's.
use crate::error::{R, named};
use crate::{HostError, In, Out};
use tensor::{Attr, Attrs, NATIVE, Native, Tensor};

/// The caller's code, where the operator with these attributes is such a one.
pub(crate) fn code(attrs: &Attrs) -> Option<&Native> {
    match attrs.get(NATIVE) {
        Some(Attr::Native(n)) => Some(n),
        _ => None,
    }
}

/// Runs it on the inputs that its node gives, none of which is left out: the attributes say which it gives.
pub(crate) fn run(
    native: &Native,
    attrs: &Attrs,
    inputs: &[Option<&Tensor>],
) -> Result<Vec<Tensor>, HostError> {
    let given: Option<Vec<&Tensor>> = inputs.iter().copied().collect();
    let done = match given {
        Some(given) => native.run(attrs, &given),
        None => Err("an input is missing that its node gives".into()),
    };
    named(native.operator(), done.map_err(Into::into))
}

/// Runs it on a plan's memory: inputs are copied for it, and what it gives is copied into the outputs, whose
/// types and shapes it must have.
pub(crate) fn run_in_place(
    native: &Native,
    attrs: &Attrs,
    inputs: &[Option<In<'_>>],
    outputs: &mut [Out<'_>],
) -> R<()> {
    let mut given = Vec::with_capacity(inputs.len());
    for i in inputs.iter().flatten() {
        let t = Tensor::from_bytes(i.dtype, i.shape, i.bytes.to_vec())?;
        given.push(t.aligned());
    }
    let refs: Vec<&Tensor> = given.iter().collect();
    let made = native.run(attrs, &refs)?;
    for (i, o) in outputs.iter_mut().enumerate() {
        let fits = |t: &&Tensor| t.dtype() == o.dtype && t.shape() == o.shape;
        let Some(t) = made.get(i).filter(fits) else {
            let stated = format!("{}{:?}", o.dtype, o.shape);
            return Err(match made.get(i) {
                Some(t) => format!("its code gave {t:?} as output {i}, which it states to be {stated}; make the two agree"),
                None => format!("its code gave {} outputs, and states output {i} to be {stated}; give all of them", made.len()),
            }
            .into());
        };
        o.bytes.copy_from_slice(t.bytes());
    }
    Ok(())
}
