//! Requests of a session that run as one.

use crate::admission::{AdmissionRequest, Admitted};
use crate::batching::{batch_symbol, shape_of};
use crate::queued::BatchFollowers;
use crate::session::Call;
use crate::slot::RequestSlot;
use crate::{RunError, Session, stack};
use std::sync::Arc;
use tensor::Tensor;

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
        let ask = self.ask(inputs, call)?;
        let put_inputs = || {
            let given = inputs.iter().flatten();
            given.map(|&t| Arc::new(t.clone())).collect()
        };
        let admitted = self.engine().admission.admit(&ask, put_inputs)?;
        self.run_as_admitted(inputs, slot, old, admitted)
    }

    /// What a request asks of the admission queue.
    pub(crate) fn ask<'a>(
        &'a self,
        inputs: &[Option<&Tensor>],
        call: Call<'a>,
    ) -> Result<AdmissionRequest<'a>, RunError> {
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
        Ok(AdmissionRequest {
            record: &self.record,
            items: u32::try_from(items).unwrap_or(u32::MAX).max(1),
            shape: match joins {
                true => shape_of(inputs, 1),
                false => self.engine().admission.unique_shape(),
            },
            deadline_s: call.deadline.map(|d| d.as_secs_f64()),
            cancel: call.cancel,
            batchable: joins,
        })
    }

    /// Runs an admitted request, in a batch or alone, where it was not run in another one's batch.
    pub(crate) fn run_as_admitted(
        &self,
        inputs: &[Option<&Tensor>],
        slot: &mut Option<RequestSlot>,
        old: Vec<Tensor>,
        admitted: Admitted<'_>,
    ) -> Result<Vec<Tensor>, RunError> {
        match admitted {
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
        parts.extend((batch_inputs.iter()).map(|l| l.iter().map(|t| &**t).collect()));
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
                    let list: Vec<Option<&Tensor>> = l.iter().map(|t| Some(&**t)).collect();
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
