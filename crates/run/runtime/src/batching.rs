//! Batching of requests: several requests run as one, concatenated along the first extent of every input and
//! output. `Session::run` uses it; `streams` batches stream messages. It decides no waiting: `supervisor` does.
use crate::admission::{AdmissionRequest, Admitted};
use crate::queued::BatchFollowers;
use crate::session::Call;
use crate::slot::RequestSlot;
use crate::{RunError, Session, stack};
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

/// Runs a request that is admitted.
type Run<'r> = &'r mut dyn FnMut(&[Option<&Tensor>]) -> Result<Vec<Tensor>, RunError>;

impl Session {
    /// Whether requests may be batched: whether all inputs and outputs have the batch as their first
    /// extent, and it is proved that the items of a batch do not influence each other.
    pub fn is_batchable(&self) -> bool {
        batch_symbol(self.program()).is_some()
    }

    /// Runs a request, in a batch or alone, once it is admitted.
    pub(crate) fn run_batched(
        &self,
        inputs: &[Option<&Tensor>],
        slot: &mut Option<RequestSlot>,
        old: Vec<Tensor>,
        call: Call<'_>,
    ) -> Result<Vec<Tensor>, RunError> {
        let most = self.record.policy().batching.max_items;
        let items = if most > 1 && batch_symbol(self.program()).is_some() {
            // Wrong shapes are found before anybody else has to do with them.
            self.shapes(inputs)?;
            let extent = inputs.first().copied().flatten();
            extent.and_then(|t| t.shape().first().copied()).unwrap_or(0)
        } else {
            0
        };
        let joins = items > 0 && items < most as usize;
        let ask = AdmissionRequest {
            record: &self.record,
            items: u32::try_from(items).unwrap_or(u32::MAX).max(1),
            shape: match joins {
                true => shape_of(inputs, 1),
                false => self.engine().admission.unique_shape(),
            },
            deadline_s: call.deadline.map(|d| d.as_secs_f64()),
            cancel: call.cancel,
            batchable: joins,
        };
        let put_inputs = || inputs.iter().flatten().map(|&t| t.clone()).collect();
        match self.engine().admission.admit(&ask, put_inputs)? {
            Admitted::Ran(outputs) => Ok(outputs),
            Admitted::Runs(guard, followers) if followers.is_empty() => {
                self.run_at(inputs, slot, old, None, None, guard.permit())
            }
            Admitted::Runs(guard, followers) => self.run_batch(inputs, followers, &mut |all| {
                self.run_at(all, slot, Vec::new(), None, None, guard.permit_of_all())
            }),
        }
    }

    /// Runs a request in a batch, and gives each its part of the outputs.
    fn run_batch(
        &self,
        inputs: &[Option<&Tensor>],
        mut followers: BatchFollowers,
        run: Run<'_>,
    ) -> Result<Vec<Tensor>, RunError> {
        let batch_inputs = followers.batch_inputs();
        let mut parts: Vec<Vec<&Tensor>> = vec![inputs.iter().flatten().copied().collect()];
        parts.extend(batch_inputs.iter().map(|l| l.iter().collect()));
        let extent = |t: &&Tensor| t.shape().first().copied().unwrap_or(0);
        let items: Vec<usize> = parts.iter().map(|p| p.first().map_or(0, extent)).collect();
        let outputs = self.join(&parts).and_then(|joined| {
            let list: Vec<Option<&Tensor>> = joined.iter().map(Some).collect();
            let outs = run(&list)?;
            self.split(&outs, &items)
        });
        match outputs {
            Ok(mut all) => {
                let own = all.remove(0);
                followers.done(all);
                Ok(own)
            }
            Err(RunError::Cancelled) => {
                followers.each(std::iter::repeat_with(|| Err(RunError::Cancelled)));
                Err(RunError::Cancelled)
            }
            Err(_) if parts.len() > 1 => {
                // What is wrong with one (an index out of range) is not the others' fault: each runs by
                // itself, so that the error finds its owner.
                let own = run(inputs);
                let each = batch_inputs.iter().map(|l| {
                    let list: Vec<Option<&Tensor>> = l.iter().map(Some).collect();
                    run(&list)
                });
                followers.each(each);
                own
            }
            Err(e) => Err(e),
        }
    }

    /// Inputs of all parts, one behind the other.
    fn join(&self, parts: &[Vec<&Tensor>]) -> Result<Vec<Tensor>, RunError> {
        let inputs = parts.first().map_or(0, Vec::len);
        let joined = (0..inputs).map(|i| {
            let each: Vec<&Tensor> = parts.iter().filter_map(|p| p.get(i).copied()).collect();
            stack::join(self.buffers(), &each, 0, "an input")
        });
        joined.collect()
    }

    /// The outputs of each part.
    fn split(&self, outs: &[Tensor], items: &[usize]) -> Result<Vec<Vec<Tensor>>, RunError> {
        let mut all: Vec<Vec<Tensor>> = items.iter().map(|_| Vec::new()).collect();
        for (o, name) in outs.iter().zip(self.output_names().iter()) {
            let parts = stack::split(self.buffers(), o, 0, items, name)?;
            for (own, part) in all.iter_mut().zip(parts) {
                own.push(part);
            }
        }
        Ok(all)
    }
}
