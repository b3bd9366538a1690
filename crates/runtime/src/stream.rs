use crate::epoch::Epoch;
use crate::interpret::{Context, run, shape_of};
use crate::{RunError, Session};
use device::State;
use plan::{Block, PlanSegment};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tensor::Tensor;

/// Requests in a row whose state (KV caches, recurrent state) stays in place in device memory.
pub struct Stream<'a> {
    session: &'a Session,
    epoch: Arc<Epoch>,
    states: Vec<State>,
    /// Current shape of each state input.
    shapes: Vec<Vec<usize>>,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(session: &'a Session, epoch: Arc<Epoch>) -> Result<Stream<'a>, RunError> {
        let program = session.program();
        let block = block_of(&epoch).ok_or_else(|| RunError::Control {
            node: program.name.clone(),
            why: "a stream needs a plan of one block: the model has control flow".into(),
        })?;
        let (mut states, mut shapes) = (Vec::new(), Vec::new());
        for s in &block.states {
            let port = &block.inputs[s.input as usize];
            let buffer = &block.buffers[s.buffer as usize];
            states.push(State::new(buffer.bytes as usize, &port.name));
            // The growing dimension starts at the bottom of its range: an empty cache.
            let dims = &epoch.plan.plan().dims;
            let shape: Vec<usize> = port
                .shape
                .iter()
                .map(|d| {
                    dims.bounds(d).map_or(0, |r| {
                        usize::try_from(if d.known().is_some() { r.hi } else { r.lo }).unwrap_or(0)
                    })
                })
                .collect();
            shapes.push(shape);
        }
        let s = Stream {
            session,
            epoch,
            states,
            shapes,
        };
        let bytes = s.state_bytes();
        session.book.states.fetch_add(bytes, Ordering::Relaxed);
        Ok(s)
    }

    /// Names of the inputs that this stream keeps itself.
    pub fn state_inputs(&self) -> Vec<String> {
        block_of(&self.epoch)
            .map(|b| {
                b.states
                    .iter()
                    .map(|s| b.inputs[s.input as usize].name.clone())
                    .collect()
            })
            .unwrap_or_default()
    }

    /// Bytes of state.
    pub fn state_bytes(&self) -> u64 {
        self.states.iter().map(|s| s.len() as u64).sum()
    }

    /// Where each state is: `host`, or the device's name; left out before the first request.
    pub fn state_places(&self) -> Vec<&str> {
        self.states.iter().filter_map(State::valid_in).collect()
    }

    /// Runs one request; state inputs are left out, and outputs that are state are not given.
    /// `shape` of a state's fixed dims that are symbolic (batch) come from the other inputs.
    pub fn run(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Vec<(String, Tensor)>, RunError> {
        let session = self.session;
        let program = session.program().clone();
        let block = block_of(&self.epoch).ok_or_else(|| RunError::Control {
            node: program.name.clone(),
            why: "the plan has no block".into(),
        })?;
        // State inputs enter as empty tensors of the right shape: only their shape is looked at.
        let mut own = Vec::new();
        for (s, shape) in block.states.iter().zip(&self.shapes) {
            let port = &block.inputs[s.input as usize];
            let number = program
                .inputs
                .iter()
                .position(|&v| v == port.value)
                .unwrap_or(0) as u32;
            let mut shape = shape.clone();
            // Symbolic extents that another input gives (a batch) follow that input.
            for (d, n) in port.shape.iter().zip(&mut shape) {
                if let Some(sym) = d.as_sym() {
                    for &v in &program.inputs {
                        let value = program.value(v);
                        if let Some((_, t)) = inputs.iter().find(|(name, _)| *name == value.name)
                            && let Some(axis) =
                                value.shape.iter().position(|x| x.as_sym() == Some(sym))
                        {
                            *n = t.shape().get(axis).copied().unwrap_or(*n);
                        }
                    }
                }
            }
            own.push((number, Tensor::zeros(port.dtype, &shape)?));
        }
        let (tensors, env) = session.check(inputs, &own)?;
        if !self.epoch.covers(&env) {
            return Err(RunError::Control {
                node: program.name.clone(),
                why: format!(
                    "the stream's plan covers {}, and this request is outside; open a stream over a larger range",
                    self.epoch.plan.plan().dims
                ),
            });
        }
        let began = session.book.stats.begin();
        let turn = session.admit()?;
        session.unit().swap(self.epoch.clone());
        let options = session.options();
        let mut lane = session.any_lane()?;
        let mut ctx = Context {
            engine: session.engine(),
            allotment: &options.allotment,
            dims: &options.dims,
            timeline: None,
            stop_after: None,
            memory: &mut lane.memory,
            buffers: session.buffers(),
            permit: turn.permit(),
            began: Instant::now(),
            recorded: Vec::new(),
        };
        let outs = run(
            &mut ctx,
            session.unit(),
            tensors,
            env.clone(),
            Some(&mut self.states),
            0,
        );
        session.give_back(lane);
        drop(turn);
        let outs = session.account(began, outs)?;
        let block = block_of(&self.epoch).ok_or_else(|| RunError::Control {
            node: program.name.clone(),
            why: "the plan has no block".into(),
        })?;
        for (s, shape) in block.states.iter().zip(&mut self.shapes) {
            let port = &block.outputs[s.output as usize];
            *shape = shape_of(&port.shape, &env, &port.name)?;
        }
        let state_values: Vec<_> = block
            .states
            .iter()
            .map(|s| block.outputs[s.output as usize].name.clone())
            .collect();
        let names = session.output_names().iter().cloned();
        Ok(names
            .zip(outs)
            .filter(|(n, _)| !state_values.contains(n))
            .map(|(n, t)| (n, t.into_tensor()))
            .collect())
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        let bytes = self.state_bytes();
        self.session.book.states.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn block_of(epoch: &Epoch) -> Option<&Block> {
    match epoch.plan.plan().segments.as_slice() {
        [PlanSegment::Block(b)] => Some(b),
        _ => None,
    }
}
