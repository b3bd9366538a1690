//! Batching of streams whose caches have different lengths: shorter caches are padded, and the model's mask
//! input hides the padding.
use crate::RunError;
use crate::slab;
use crate::streams::StreamSetup;
use layout::{Dim, Sym};
use plan::Program;
use std::collections::BTreeSet;

/// How caches of different lengths are batched: shorter ones are filled up at their front, and so is the input
/// that says which of their rows count, with zeros.
#[derive(Clone)]
pub(crate) struct Mask {
    /// The input, and its axis that is as long as the caches are after the message.
    pub input: usize,
    pub axis: usize,
    /// How long the caches are before it.
    pub symbol: Sym,
    /// The axis of the first state in place that grows.
    pub grows: usize,
}

impl Mask {
    /// That of the input called `name` for streams of `setup`.
    ///
    /// # Errors
    /// What keeps their caches from being joined, with the input or output at fault.
    pub fn of(program: &Program, setup: &StreamSetup, name: &str) -> Result<Mask, RunError> {
        let no = |why: String| RunError::Stream { why };
        let named = |&v: &u32| program.value(v).name == name;
        let Some(input) = program.inputs.iter().position(named) else {
            return Err(no(format!("the model has no input '{name}'")));
        };
        let Some(block) = setup.block().filter(|_| setup.batch_axes.is_some()) else {
            return Err(no(
                "the states of these streams cannot be joined: there is no batch that all of them have, or they do not stay in place".into(),
            ));
        };
        let mut symbol: Option<(&Sym, &Dim, usize)> = None;
        for (s, layout) in block.states.iter().zip(&setup.layouts) {
            let past = &block.inputs[s.input as usize];
            let present = &block.outputs[s.output as usize];
            let grows = slab::grows_along(past, present);
            let Some((axis, p)) = grows.and_then(|g| Some((g, past.shape[g].as_sym()?))) else {
                return Err(no(format!(
                    "state '{}' does not grow along one axis",
                    past.name
                )));
            };
            let p = program.symbols.iter().find(|s| *s.name == *p);
            let Some(p) = p.filter(|_| layout.lists().is_some()) else {
                return Err(no(format!(
                    "state '{}' grows outside of its items",
                    past.name
                )));
            };
            let next = &present.shape[axis];
            match symbol {
                Some((known, then, _)) if *known != p.name || then != next => {
                    return Err(no(format!(
                        "state '{}' does not grow as the others do",
                        past.name
                    )));
                }
                Some(_) => {}
                None => symbol = Some((&p.name, next, axis)),
            }
        }
        let Some((symbol, next, grows)) = symbol else {
            return Err(no(
                "no state of these streams stays in place and grows".into()
            ));
        };
        let shape = &program.value(program.inputs[input]).shape;
        let Some(axis) = shape.iter().position(|d| d == next) else {
            return Err(no(format!(
                "input '{name}' has no extent {next}, which is how long the caches are after a message"
            )));
        };
        // Whatever else is as long as a cache would have to be filled up as well, and nobody knows with what.
        let uses = |v: u32| {
            let mut all = BTreeSet::new();
            program
                .value(v)
                .shape
                .iter()
                .for_each(|d| d.symbols(&mut all));
            all.contains(symbol)
        };
        let state = |i: usize| setup.is_state(i);
        let inputs = program.inputs.iter().enumerate();
        let given = inputs
            .filter(|(i, _)| *i != input && !state(*i))
            .map(|i| *i.1);
        let kept = |o: usize| program.states.iter().any(|p| p.output as usize == o);
        let outputs = program.outputs.iter().enumerate();
        let made = outputs.filter(|(o, _)| !kept(*o)).map(|o| o.1.1);
        if let Some(v) = given.chain(made).find(|&v| uses(v)) {
            return Err(no(format!(
                "'{}' is as long as the caches too: only caches and '{name}' can be filled up",
                program.value(v).name
            )));
        }
        Ok(Mask {
            input,
            axis,
            symbol: symbol.clone(),
            grows,
        })
    }
}
