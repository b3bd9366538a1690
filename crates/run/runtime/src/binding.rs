//! Bound inputs and outputs of one caller, reused from request to request without allocation.
use crate::slot::RequestSlot;
use crate::{RunError, Session};
use std::sync::Arc;
use tensor::Tensor;

/// Inputs and outputs that stay with one caller from request to request: names are resolved once,
/// and a request of the same shapes as the one before allocates nothing.
///
/// Made by [`Session::bind`]; it keeps the session alive. Outputs are written where the last request's lay.
pub struct Binding {
    session: Arc<Session>,
    inputs: Vec<Option<Tensor>>,
    outputs: Vec<Tensor>,
    slot: Option<RequestSlot>,
}

impl Binding {
    pub(crate) fn new(session: &Arc<Session>) -> Binding {
        Binding {
            session: session.clone(),
            inputs: session.program().inputs.iter().map(|_| None).collect(),
            outputs: Vec::new(),
            slot: None,
        }
    }

    /// Number of the input `name`, for [`Binding::set`] and [`Binding::input_mut`].
    pub fn input(&self, name: &str) -> Option<usize> {
        let program = self.session.program();
        let named = |&v: &u32| program.value(v).name == name;
        program.inputs.iter().position(named)
    }

    /// Number of the output `name`, for [`Binding::outputs`].
    pub fn output(&self, name: &str) -> Option<usize> {
        self.session.output_names().iter().position(|n| n == name)
    }

    /// Gives input number `input` a tensor; it keeps it until another one is given.
    ///
    /// # Errors
    /// No such input.
    pub fn set(&mut self, input: usize, tensor: Tensor) -> Result<(), RunError> {
        let inputs = self.inputs.len();
        match self.inputs.get_mut(input) {
            Some(slot) => {
                *slot = Some(tensor);
                Ok(())
            }
            None => Err(RunError::Unknown {
                name: format!("number {input}"),
                has: format!("{inputs} inputs"),
            }),
        }
    }

    /// Gives the input `name` a tensor, as [`Binding::set`] does by number.
    ///
    /// # Errors
    /// No such input.
    pub fn bind_input(&mut self, name: &str, tensor: Tensor) -> Result<(), RunError> {
        match self.input(name) {
            Some(at) => self.set(at, tensor),
            None => Err(RunError::Unknown {
                name: name.into(),
                has: self.session.input_names(),
            }),
        }
    }

    /// The output `name` of the last request, if there was one.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.outputs.get(self.output(name)?)
    }

    /// The tensor of input number `input`, to be changed in place.
    pub fn input_mut(&mut self, input: usize) -> Option<&mut Tensor> {
        self.inputs.get_mut(input)?.as_mut()
    }

    /// Runs a request on the inputs given so far; [`Binding::outputs`] has its results.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run(&mut self) -> Result<&[Tensor], RunError> {
        let mut few = [None; 16];
        let mut many;
        let list: &mut [Option<&Tensor>] = if self.inputs.len() <= few.len() {
            &mut few[..self.inputs.len()]
        } else {
            many = vec![None; self.inputs.len()];
            &mut many
        };
        for (slot, t) in list.iter_mut().zip(&self.inputs) {
            *slot = t.as_ref();
        }
        let old = std::mem::take(&mut self.outputs);
        self.outputs = self
            .session
            .run_listed(list, &mut self.slot, old, None, None)?;
        Ok(&self.outputs)
    }

    /// Outputs of the last request in the model's order; none before the first and after one that
    /// failed.
    pub fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.session.give_back(slot);
        }
    }
}

impl Session {
    /// Inputs and outputs that stay with one caller from request to request.
    pub fn bind(self: &Arc<Session>) -> Binding {
        Binding::new(self)
    }
}
