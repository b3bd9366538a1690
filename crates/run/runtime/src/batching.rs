//! Batching of requests: several requests run as one, concatenated along the first extent of every input and
//! output. `Session::run` uses it; `streams` batches stream messages. It decides no waiting: `supervisor` does.
use layout::{DType, Dim, DimBox, Sym};
use plan::{Batch, Program, SymbolOrigin};
use tensor::Tensor;

/// The symbol along which requests of `program` may be batched: the first extent of every input and every
/// output, along which items are proved not to influence each other; `None` where there is no such.
pub fn batch_symbol(program: &Program) -> Option<&Sym> {
    let batch = leading(program)?;
    let free = batch.crosses.is_none() && !is_constrained(program, &batch.symbol);
    free.then_some(&batch.symbol)
}

/// Why requests of `program` may not be batched, in a sentence without its end; `None` where they may.
pub fn why_not_batched(program: &Program) -> Option<&str> {
    match leading(program) {
        Some(batch) if is_constrained(program, &batch.symbol) => {
            Some("the model holds for certain batches only")
        }
        Some(batch) => batch.crosses.as_deref(),
        None => Some("not every input and output begins with one open batch dimension"),
    }
}

/// Whether something that the model takes to be equal depends on the batch: others may run with one that breaks it.
fn is_constrained(program: &Program, batch: &Sym) -> bool {
    let mut symbols = std::collections::BTreeSet::new();
    for c in &program.constraints {
        c.left.symbols(&mut symbols);
        c.right.symbols(&mut symbols);
    }
    symbols.contains(batch)
}

/// What is known of the symbol that is the first extent of every input and every output.
fn leading(program: &Program) -> Option<&Batch> {
    let first = *program.inputs.first()?;
    let b = program.value(first).shape.first()?.as_sym()?;
    let of_input = |s: &&plan::ProgramSymbol| {
        *s.name == *b && matches!(s.origin, SymbolOrigin::Input { axis: 0, .. })
    };
    let symbol = program.symbols.iter().find(of_input)?;
    let outputs = program.outputs.iter().map(|o| &o.1);
    let leads = |&v: &plan::ValueIx| {
        let value = program.value(v);
        let whole = !matches!(value.dtype, DType::Str | DType::Host) && value.dtype.bits() >= 8;
        whole && value.shape.first().and_then(Dim::as_sym) == Some(b)
    };
    let all = program.inputs.iter().all(leads) && outputs.clone().all(leads);
    let known = program.batches.iter().find(|k| k.symbol == symbol.name);
    known.filter(|_| all && program.states.is_empty())
}

/// Items that a plan for `dims` covers at most.
pub(crate) fn max_items(program: &Program, dims: &DimBox) -> i64 {
    batch_symbol(program)
        .and_then(|b| dims.get(b))
        .map_or(1, |r| r.hi)
}

/// Items that inputs are made of.
pub(crate) fn count_items(program: &Program, inputs: &[Option<&Tensor>]) -> u32 {
    let first = inputs.first().copied().flatten();
    let extent = first.and_then(|t| t.shape().first().copied());
    let joins = batch_symbol(program).is_some();
    let items = extent.filter(|_| joins).unwrap_or(1);
    u32::try_from(items).unwrap_or(u32::MAX)
}

/// A number that is equal for inputs that differ in nothing but their first `skip` extents.
pub(crate) fn shape_of(inputs: &[Option<&Tensor>], skip: usize) -> u64 {
    // FNV-1a over the extents.
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |n: usize| {
        h = (h ^ n as u64).wrapping_mul(0x0100_0000_01b3);
    };
    for t in inputs.iter().flatten() {
        add(usize::MAX);
        t.shape().iter().skip(skip).for_each(|&n| add(n));
    }
    // The other half of the numbers are of requests that are never batched.
    h | 1 << 63
}
