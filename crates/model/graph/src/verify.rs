//! What makes a graph valid. [`Graph::verify`] checks, and never panics on whatever a file holds:
//!
//! 1. ids of values, nodes, inputs, outputs and weights are in range, names are not empty and
//!    unique;
//! 2. every value is written once, where its source says, and defined before it is read (SSA in
//!    topological order);
//! 3. weights exist with the value's dtype and shape;
//! 4. arity, dtypes and shapes of every node fit its op;
//! 5. known contents are as many as elements;
//! 6. every symbol in a shape, attribute or program is declared (here or in an enclosing graph)
//!    and its source exists;
//! 7. bodies are valid, share the weights' numbering, and their inputs and outputs fit the node's.
use crate::shape::{self, ReliedEqualities, Type, list, may_equal};
use crate::{Graph, GraphError, Node, Op, SymbolSource, Value, ValueId, ValueSource};
use layout::{DType, Dim, Sym};
use std::collections::BTreeSet;
use tensor::WeightStore;

/// Deepest nesting of bodies.
pub(crate) const MAX_NESTING: usize = 32;

impl Graph {
    /// Output dtypes and shapes of `op` on values of this graph; the error says what does not fit.
    /// Ops whose shapes do not follow (fills, `Host`, `If`, `Loop`) give an error.
    pub fn infer(&self, op: &Op, inputs: &[ValueId]) -> Result<Vec<(DType, Vec<Dim>)>, String> {
        shape::infer(self, op, inputs, &mut ReliedEqualities::default())
    }

    /// Known contents of the outputs of `op`, which have the given dtypes and shapes.
    pub fn contents(
        &self,
        op: &Op,
        inputs: &[ValueId],
        types: &[(DType, Vec<Dim>)],
    ) -> Vec<Option<Vec<Dim>>> {
        shape::contents(self, op, inputs, types)
    }

    /// Checks everything that passes and readers rely on; the error names the node or value.
    pub fn verify(&self) -> Result<(), GraphError> {
        self.verify_in(&self.weights, None, 0)
    }

    fn broken<T>(&self, why: impl Into<String>) -> Result<T, GraphError> {
        Err(GraphError::Structure {
            graph: self.name.clone(),
            why: why.into(),
        })
    }

    fn verify_in(
        &self,
        weights: &WeightStore,
        outer: Option<&Scope>,
        depth: usize,
    ) -> Result<(), GraphError> {
        if depth > MAX_NESTING {
            return self.broken(format!("bodies are nested deeper than {MAX_NESTING}"));
        }
        let mut symbols = Scope {
            own: BTreeSet::new(),
            outer,
        };
        for s in &self.symbols {
            let (value, axis) = match &s.source {
                SymbolSource::Input { input, axis } => {
                    (self.inputs.get(*input as usize).copied(), *axis)
                }
                SymbolSource::Late { value, axis } => (Some(*value), *axis),
            };
            let rank = value
                .and_then(|v| self.values.get(v.0 as usize))
                .map_or(0, |v| v.shape.len());
            if axis as usize >= rank {
                return self.broken(format!("the source of symbol '{}' does not exist", s.name));
            }
            symbols.own.insert(&s.name);
        }
        self.check_values(weights, &symbols)?;
        for a in &self.assumptions {
            if let Some(s) = [&a.left, &a.right]
                .iter()
                .find_map(|d| missing(d, &symbols))
            {
                return self.broken(format!(
                    "an assumption of node '{}' speaks of symbol '{s}', which is not declared",
                    a.node
                ));
            }
        }
        for (i, o) in self.outputs.iter().enumerate() {
            if o.0 as usize >= self.values.len() {
                return self.broken(format!("output {i} is no value"));
            }
        }
        let mut defined: Vec<bool> = self
            .values
            .iter()
            .map(|v| !matches!(v.source, ValueSource::Node(..)))
            .collect();
        for (n, node) in self.nodes.iter().enumerate() {
            let fail = |why: String| GraphError::Op {
                node: title(self, n, node),
                op: node.op.name().into(),
                why,
            };
            for i in &node.inputs {
                if !defined.get(i.0 as usize).is_some_and(|d| *d) {
                    let name = self.values.get(i.0 as usize).map_or("?", |v| &v.name);
                    return Err(fail(format!(
                        "input {} ('{name}') is not defined before it",
                        i.0
                    )));
                }
            }
            let mut types: Vec<Type> = Vec::new();
            for (o, id) in node.outputs.iter().enumerate() {
                let v = match self.values.get(id.0 as usize) {
                    Some(v) => v,
                    None => return Err(fail(format!("output {o} is no value"))),
                };
                if v.source != ValueSource::Node(crate::NodeId(n as u32), o as u32)
                    || std::mem::replace(&mut defined[id.0 as usize], true)
                {
                    return Err(fail(format!(
                        "output {o} ('{}') is written elsewhere too",
                        v.name
                    )));
                }
                types.push((v.dtype, v.shape.clone()));
            }
            if let Some(s) = undeclared(&node.op, &symbols) {
                return Err(fail(format!("symbol '{s}' is not declared")));
            }
            let relied = &mut ReliedEqualities::default();
            shape::check(self, &node.op, &node.inputs, &types, relied).map_err(fail)?;
            self.check_bodies(node, weights, &symbols, depth)
                .map_err(|e| match e {
                    Body::Misfit(why) => fail(why),
                    Body::Inside(e) => e,
                })?;
        }
        match defined.iter().position(|d| !d) {
            Some(v) => self.broken(format!("value '{}' is never written", self.values[v].name)),
            None => Ok(()),
        }
    }

    fn check_values(&self, weights: &WeightStore, symbols: &Scope) -> Result<(), GraphError> {
        let mut names = BTreeSet::new();
        for (i, v) in self.values.iter().enumerate() {
            let fault = |why: String| self.broken(format!("value '{}' {why}", v.name));
            if v.name.is_empty() || !names.insert(v.name.as_str()) {
                return fault(format!("(number {i}) has no name of its own"));
            }
            if v.shape.len() > shape::MAX_RANK {
                return fault(format!("has more than {} dimensions", shape::MAX_RANK));
            }
            for d in v.shape.iter().chain(v.ints.iter().flatten()) {
                if let Some(s) = missing(d, symbols) {
                    return fault(format!("speaks of symbol '{s}', which is not declared"));
                }
            }
            if let Some(ints) = &v.ints {
                let n = v.size();
                if v.dtype.is_float() || ints.len() > Value::MAX_INTS || n != Dim::from(ints.len())
                {
                    return fault(format!(
                        "has {} known contents for {n} elements",
                        ints.len()
                    ));
                }
            }
            match v.source {
                ValueSource::Input(n) => {
                    if self.inputs.get(n as usize) != Some(&ValueId(i as u32)) {
                        return fault(format!("is not input {n}, as it says"));
                    }
                }
                ValueSource::Weight(id) => {
                    let Some(w) = weights.get(id) else {
                        return fault(format!("is weight {id}, which does not exist"));
                    };
                    let shape: Vec<Dim> = w.shape.iter().map(|&d| Dim::from(d)).collect();
                    if w.dtype != v.dtype || shape != v.shape {
                        return fault(format!(
                            "is {}{}, but weight {id} is {}{}",
                            v.dtype,
                            list(&v.shape),
                            w.dtype,
                            list(&shape)
                        ));
                    }
                }
                ValueSource::Node(n, o) => {
                    let written = self
                        .nodes
                        .get(n.0 as usize)
                        .and_then(|n| n.outputs.get(o as usize));
                    if written != Some(&ValueId(i as u32)) {
                        return fault(format!("is not output {o} of node {}, as it says", n.0));
                    }
                }
            }
        }
        let mut seen = BTreeSet::new();
        for (i, id) in self.inputs.iter().enumerate() {
            let source = self.values.get(id.0 as usize).map(|v| v.source);
            if source != Some(ValueSource::Input(i as u32)) || !seen.insert(id) {
                return self.broken(format!("input {i} is no value of its own"));
            }
        }
        Ok(())
    }

    fn check_bodies(
        &self,
        node: &Node,
        weights: &WeightStore,
        symbols: &Scope,
        depth: usize,
    ) -> Result<(), Body> {
        let inputs: Vec<&Value> = node.inputs.iter().map(|&i| self.value(i)).collect();
        let outputs: Vec<&Value> = node.outputs.iter().map(|&i| self.value(i)).collect();
        match &node.op {
            Op::If {
                then_branch,
                else_branch,
            } => {
                let [cond, rest @ ..] = inputs.as_slice() else {
                    return misfit("it has no condition");
                };
                scalar(cond, DType::Bool)?;
                for body in [then_branch, else_branch] {
                    body.verify_in(weights, Some(symbols), depth + 1)
                        .map_err(Body::Inside)?;
                    fits("branch input", &body.inputs, body, rest)?;
                    fits("branch output", &body.outputs, body, &outputs)?;
                }
                Ok(())
            }
            Op::Loop { body, carried, .. } => {
                let [trip, cond, rest @ ..] = inputs.as_slice() else {
                    return misfit("it has no trip count and condition");
                };
                scalar(trip, DType::I64)?;
                scalar(cond, DType::Bool)?;
                body.verify_in(weights, Some(symbols), depth + 1)
                    .map_err(Body::Inside)?;
                if *carried > rest.len()
                    || body.inputs.len() != rest.len() + 2
                    || *carried >= body.outputs.len()
                    || outputs.len() != body.outputs.len() - 1
                {
                    return misfit(format!(
                        "{} inputs and {} outputs do not fit a body of {} and {} that carries {carried}",
                        inputs.len(),
                        outputs.len(),
                        body.inputs.len(),
                        body.outputs.len()
                    ));
                }
                scalar(body.value(body.inputs[0]), DType::I64)?;
                scalar(body.value(body.inputs[1]), DType::Bool)?;
                scalar(body.value(body.outputs[0]), DType::Bool)?;
                // Carried shapes may change from round to round, so only types are compared.
                for c in 0..*carried {
                    let types = [
                        rest[c].dtype,
                        body.value(body.inputs[c + 2]).dtype,
                        body.value(body.outputs[c + 1]).dtype,
                        outputs[c].dtype,
                    ];
                    if types.iter().any(|t| *t != types[0]) {
                        return misfit(format!("carried value {c} changes its type"));
                    }
                }
                for (i, o) in outputs.iter().enumerate().skip(*carried) {
                    let scanned = body.value(body.outputs[i + 1]);
                    if o.dtype != scanned.dtype || o.shape.len() != scanned.shape.len() + 1 {
                        return misfit(format!("stacked output {i} does not fit the body's"));
                    }
                }
                fits(
                    "captured input",
                    &body.inputs[carried + 2..],
                    body,
                    &rest[*carried..],
                )
            }
            _ => Ok(()),
        }
    }
}

/// Symbols of a graph and of those around it.
struct Scope<'a> {
    own: BTreeSet<&'a Sym>,
    outer: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    fn contains(&self, s: &Sym) -> bool {
        self.own.contains(s) || self.outer.is_some_and(|o| o.contains(s))
    }
}

enum Body {
    Misfit(String),
    Inside(GraphError),
}

fn misfit<T>(why: impl Into<String>) -> Result<T, Body> {
    Err(Body::Misfit(why.into()))
}

fn scalar(v: &Value, dtype: DType) -> Result<(), Body> {
    let one = v.size().known().is_none_or(|n| n == 1);
    match v.dtype == dtype && one {
        true => Ok(()),
        false => misfit(format!("'{}' is not a scalar of {dtype}", v.name)),
    }
}

fn fits(what: &str, ids: &[ValueId], body: &Graph, outer: &[&Value]) -> Result<(), Body> {
    if ids.len() != outer.len() {
        return misfit(format!(
            "there are {} of kind {what} in '{}', but {} here",
            ids.len(),
            body.name,
            outer.len()
        ));
    }
    for (i, (id, o)) in ids.iter().zip(outer).enumerate() {
        let b = body.value(*id);
        let same = b.dtype == o.dtype
            && b.shape.len() == o.shape.len()
            && b.shape.iter().zip(&o.shape).all(|(x, y)| may_equal(x, y));
        if !same {
            return misfit(format!(
                "{what} {i} is {}{} in '{}', but {}{} here",
                b.dtype,
                list(&b.shape),
                body.name,
                o.dtype,
                list(&o.shape)
            ));
        }
    }
    Ok(())
}

fn missing(d: &Dim, symbols: &Scope) -> Option<Sym> {
    if d.known().is_some() {
        return None;
    }
    let mut used = BTreeSet::new();
    d.symbols(&mut used);
    used.into_iter().find(|s| !symbols.contains(s))
}

/// A symbol that the attributes of `op` use without declaration; bodies are verified by themselves.
fn undeclared(op: &Op, symbols: &Scope) -> Option<Sym> {
    if matches!(op, Op::If { .. } | Op::Loop { .. }) {
        return None;
    }
    let mut found = None;
    op.for_each_dim(&mut |d| {
        if found.is_none() {
            found = missing(d, symbols);
        }
    });
    found
}

/// What to call node `n` in messages: its model node, or its first output.
fn title(g: &Graph, n: usize, node: &Node) -> String {
    if let Some(o) = node.origins.first() {
        return o.name.clone();
    }
    node.outputs
        .first()
        .and_then(|o| g.values.get(o.0 as usize))
        .map_or_else(|| format!("#{n}"), |v| v.name.clone())
}
