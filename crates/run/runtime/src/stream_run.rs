//! Running messages of streams.
use crate::compiled::Epoch;
use crate::dims::{Env, shape_of};
use crate::slab::{self, BatchPart};
use crate::streams::Answer;
use crate::streams::{
    BatchAxes, BatchMember, MessageBatch, StreamSetup, StreamState, given_extent,
};
use crate::{Cancel, RunError, Session, stack};
use layout::{Inserted, Sym};
use tensor::Tensor;

/// The inputs of several messages as those of one request: `pads` rows of zeros stand in front of each one's cache,
/// which makes it as long as that of message `longest`.
fn batch_inputs(
    session: &Session,
    members: &[&mut BatchMember],
    axes: &BatchAxes,
    (longest, pads): (usize, &[usize]),
) -> Result<Vec<Tensor>, RunError> {
    let setup = &members[0].setup;
    let (program, buffers) = (session.program(), session.buffers());
    let shapes = in_place_shapes(session, members[longest]);
    let mut inputs: Vec<Tensor> = vec![];
    for (i, axis) in axes.inputs.iter().enumerate() {
        let value = program.value(program.inputs[i]);
        // State in place enters as zeros of its shape: only the shape is looked at.
        let own = setup.in_place.iter().position(|&p| p as usize == i);
        if let (Some(s), Some(axis)) = (own, axis) {
            let mut shape = shapes[s].clone();
            shape[*axis] = members.iter().map(|m| m.message.items).sum();
            inputs.push(Tensor::zeros(value.dtype, &shape)?);
            continue;
        }
        if let (Some(m), Some(axis)) = (setup.mask.as_ref().filter(|m| m.input == i), axis) {
            let each: Vec<Tensor> = members
                .iter()
                .zip(pads)
                .filter_map(|(own, &pad)| Some((own.message.inputs[i].as_ref()?, pad)))
                .map(|(t, pad)| stack::padded(buffers, t, m.axis, pad, &value.name))
                .collect::<Result<_, _>>()?;
            let each: Vec<&Tensor> = each.iter().collect();
            inputs.push(stack::join(buffers, &each, *axis, &value.name)?);
            continue;
        }
        let state = setup.carried.iter().position(|p| p.input as usize == i);
        let each: Vec<&Tensor> = members
            .iter()
            .filter_map(|m| match state {
                Some(s) => m.state.carried[s].as_ref(),
                None => m.message.inputs[i].as_ref(),
            })
            .collect();
        inputs.push(match (axis, each.first()) {
            (Some(axis), _) => stack::join(buffers, &each, *axis, &value.name)?,
            // Its bytes are equal: they are part of the key.
            (None, Some(t)) => (*t).clone(),
            (None, None) => return Err(RunError::Abandoned),
        });
    }
    Ok(inputs)
}

/// Runs several messages as one request.
fn run_batch(session: &Session, members: &mut [&mut BatchMember]) -> Result<(), RunError> {
    let setup = members[0].setup.clone();
    let Some(batch_axes) = &setup.batch_axes else {
        return Err(RunError::Abandoned);
    };
    let buffers = session.buffers();
    let items: Vec<usize> = members.iter().map(|m| m.message.items).collect();
    // How long each one's caches are, where that may differ.
    let length = |m: &BatchMember| -> usize {
        let grows = setup.mask.as_ref().map(|m| m.grows);
        let first = m.state.shapes.first();
        let n = first.zip(grows).and_then(|(s, g)| s.get(g));
        n.copied().unwrap_or(0)
    };
    let lengths: Vec<usize> = members.iter().map(|m| length(m)).collect();
    let longest = (0..members.len()).max_by_key(|&i| lengths[i]).unwrap_or(0);
    let pads: Vec<usize> = lengths.iter().map(|n| lengths[longest] - n).collect();
    let inputs = batch_inputs(session, members, batch_axes, (longest, &pads))?;
    let list: Vec<Option<&Tensor>> = inputs.iter().map(Some).collect();
    let began: Vec<_> = members
        .iter()
        .map(|_| session.record.stats.begin())
        .collect();
    let mut env = Env::new();
    let outs = {
        let guard = session.admit()?;
        match &setup.epoch {
            Some(epoch) => {
                env = sizes_in_plan(session, epoch, &list)?;
                let storages = members.iter_mut().map(|m| &mut m.state.in_place).collect();
                let parts = items.iter().zip(&pads);
                let parts: Vec<BatchPart> = parts
                    .map(|(&items, &pad)| BatchPart { items, pad })
                    .collect();
                let slab = slab::share(storages, &parts, &setup.layouts)?;
                let mut states = slab.states();
                session.run_placed(epoch, &list, &env, &mut states, guard.permit_of_all())?
            }
            None => {
                let mut slot = None;
                let permit = guard.permit_of_all();
                let outs = session.run_within(&setup.dims, &list, &mut slot, permit);
                if let Some(l) = slot {
                    session.give_back(l);
                }
                outs?
            }
        }
    };
    let mut parts: Vec<Vec<(usize, Tensor)>> = members.iter().map(|_| vec![]).collect();
    let in_place = setup.outputs_in_place();
    let names = session.output_names();
    for (i, o) in outs.iter().enumerate() {
        if !in_place.contains(&names[i].as_str()) {
            let split = stack::split(buffers, o, batch_axes.outputs[i], &items, &names[i])?;
            parts
                .iter_mut()
                .zip(split)
                .for_each(|(p, t)| p.push((i, t)));
        }
    }
    let mut next: Vec<Vec<Vec<usize>>> = vec![];
    for (n, length) in items.iter().zip(&lengths) {
        let ragged = |s: &Sym| setup.mask.as_ref().is_some_and(|m| m.symbol == *s);
        let own = env.iter().map(|(s, v)| match *s == batch_axes.symbol {
            true => (s.clone(), *n as i64),
            false if ragged(s) => (s.clone(), *length as i64),
            false => (s.clone(), *v),
        });
        next.push(next_shapes(&setup, &own.inserted())?);
    }
    for (((m, outs), began), shapes) in members.iter_mut().zip(parts).zip(began).zip(next) {
        m.state.shapes = shapes;
        m.state.items = Some(m.message.items);
        let out = store_outputs(session, &m.setup, &mut m.state, outs);
        m.answer = Some(session.account(began, Ok(out)));
    }
    Ok(())
}

/// Puts outputs, by their numbers, that are state where the next message finds them, and names the others.
fn store_outputs(
    session: &Session,
    setup: &StreamSetup,
    state: &mut StreamState,
    outs: Vec<(usize, Tensor)>,
) -> Answer {
    let mut answer = vec![];
    for (i, t) in outs {
        match setup.carried.iter().position(|p| p.output as usize == i) {
            Some(s) => state.carried[s] = Some(t),
            None => answer.push((session.output_names()[i].clone(), t)),
        }
    }
    state.count();
    answer
}

/// Shapes with which the states in place of a message's stream enter, in the order of its block's states.
fn in_place_shapes(session: &Session, m: &BatchMember) -> Vec<Vec<usize>> {
    let states = m.setup.block().into_iter().flat_map(|b| {
        let ports = b.states.iter().map(|s| &b.inputs[s.input as usize]);
        ports.zip(&m.state.shapes)
    });
    let follow = |(port, shape): (&plan::Port, &Vec<usize>)| {
        let extents = port.shape.iter().zip(shape).map(|(d, &n)| {
            // Symbolic extents that another input gives (a batch) follow that input.
            let given = d.as_sym();
            let given = given.and_then(|s| given_extent(session.program(), &m.message.inputs, s));
            given.unwrap_or(n)
        });
        extents.collect()
    };
    states.map(follow).collect()
}

/// The sizes of a request, all in the plan that keeps state in place.
fn sizes_in_plan(
    session: &Session,
    epoch: &Epoch,
    list: &[Option<&Tensor>],
) -> Result<Env, RunError> {
    let env = session.shapes(list)?;
    match epoch.covers(&env) {
        true => Ok(env),
        false => Err(RunError::Stream {
            why: format!(
                "its plan covers {}, and this message is outside; open a stream over a larger range",
                epoch.plan.plan().dims
            ),
        }),
    }
}

/// Shapes of the states in place after a request of these sizes.
fn next_shapes(setup: &StreamSetup, env: &Env) -> Result<Vec<Vec<usize>>, RunError> {
    let states = setup.block().into_iter().flat_map(|b| {
        let ports = b.states.iter();
        ports.map(|s| &b.outputs[s.output as usize])
    });
    states.map(|p| shape_of(&p.shape, env, &p.name)).collect()
}

/// Runs one message whose state goes from output to input as tensors.
fn run_carried(session: &Session, m: &mut BatchMember) -> Result<Answer, RunError> {
    let setup = m.setup.clone();
    let mut list: Vec<Option<&Tensor>> = m.message.inputs.iter().map(Option::as_ref).collect();
    for (pair, t) in setup.carried.iter().zip(&m.state.carried) {
        list[pair.input as usize] = t.as_ref();
    }
    let call = crate::Call {
        cancel: m.message.cancel.as_ref(),
        deadline: None,
    };
    let guard = session.admit_call(call)?;
    let mut slot = None;
    let outs = session.run_within(&setup.dims, &list, &mut slot, guard.permit());
    if let Some(l) = slot {
        session.give_back(l);
    }
    drop(guard);
    let outs = outs?.into_iter().enumerate().collect();
    Ok(store_outputs(session, &setup, &mut m.state, outs))
}

/// Runs one message on the plan that keeps its state in place.
fn run_in_place(session: &Session, m: &mut BatchMember) -> Result<Answer, RunError> {
    let setup = m.setup.clone();
    let (Some(epoch), Some(block)) = (&setup.epoch, setup.block()) else {
        return Err(RunError::Abandoned);
    };
    // State in place enters as zeros of its shape: only the shape is looked at.
    let mut own: Vec<(u32, Tensor)> = vec![];
    let shapes = in_place_shapes(session, m);
    for ((s, shape), &input) in block.states.iter().zip(&shapes).zip(&setup.in_place) {
        let dtype = block.inputs[s.input as usize].dtype;
        own.push((input, Tensor::zeros(dtype, shape)?));
    }
    let mut list: Vec<Option<&Tensor>> = m.message.inputs.iter().map(Option::as_ref).collect();
    for (pair, t) in setup.carried.iter().zip(&m.state.carried) {
        list[pair.input as usize] = t.as_ref();
    }
    for (i, t) in &own {
        list[*i as usize] = Some(t);
    }
    let env = sizes_in_plan(session, epoch, &list)?;
    let call = crate::Call {
        cancel: m.message.cancel.as_ref(),
        deadline: None,
    };
    let guard = session.admit_call(call)?;
    let states = m.state.in_place.own(&setup.layouts)?;
    let outs = session.run_placed(epoch, &list, &env, states, guard.permit());
    drop(guard);
    let outs = outs?;
    m.state.shapes = next_shapes(&setup, &env)?;
    m.state.items = Some(m.message.items);
    let in_place = setup.outputs_in_place();
    let names = session.output_names();
    let outs = outs.into_iter().enumerate();
    let outs = outs.filter(|(i, _)| !in_place.contains(&names[*i].as_str()));
    Ok(store_outputs(session, &setup, &mut m.state, outs.collect()))
}

impl MessageBatch<'_> {
    /// Runs the messages.
    pub fn run(mut self, session: &Session) {
        for m in &mut self.members {
            if m.message.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
                m.answer = Some(session.account(None, Err(RunError::Cancelled)));
            }
        }
        let mut left: Vec<&mut BatchMember> = (self.members.iter_mut())
            .filter(|m| m.answer.is_none())
            .collect();
        if left.len() > 1 && run_batch(session, &mut left).is_ok() {
            return;
        }
        // What is wrong with one message is not the others' fault.
        for m in left {
            let began = session.record.stats.begin();
            let out = match m.setup.block() {
                Some(_) => run_in_place(session, m),
                None => run_carried(session, m),
            };
            m.answer = Some(session.account(began, out));
        }
    }
}
