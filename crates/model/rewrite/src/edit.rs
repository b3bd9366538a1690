//! A graph under edit: passes change nodes in place, and order and numbering are restored at the end.
use crate::{Change, Error, Fuel, Rewritten};
use graph::{
    Assumption, GUESSES_RANK, Graph, Node, NodeId, Op, Origin, SymbolSource, Value, ValueId,
    ValueSource,
};
use layout::{DType, Dim, Few, Inserted, Sym};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tensor::Tensor;

/// Edits nodes in place and adds new ones; order and numbering are restored by [`Edit::finish`].
pub(crate) struct Edit<'f> {
    pass: &'static str,
    graph: Graph,
    dead: Vec<bool>,
    /// Reading nodes per value, each with the places of the value among its inputs.
    readers: Vec<BTreeMap<u32, Few<u32, 2>>>,
    /// Origins of nodes that were given more of them, as sets.
    credited: HashMap<u32, BTreeSet<Origin>>,
    /// Where each value stands among the outputs, and among the values that symbols are read from.
    outputs: HashMap<ValueId, Vec<usize>>,
    late: HashMap<ValueId, Vec<usize>>,
    /// The assumptions, once more were added.
    assumed: Option<BTreeSet<(Dim, Dim)>>,
    /// Names of all values, once a new one was asked for; looked up only, never walked.
    names: Option<HashSet<String>>,
    fresh: u32,
    /// Whether the graph is another than the one this was made with.
    touched: bool,
    changes: Vec<Change>,
    fuel: &'f mut Fuel,
}

pub(crate) type Type = (DType, Vec<Dim>);

impl<'f> Edit<'f> {
    pub(crate) fn new(pass: &'static str, graph: Graph, fuel: &'f mut Fuel) -> Edit<'f> {
        let mut readers: Vec<BTreeMap<u32, Few<u32, 2>>> =
            vec![BTreeMap::new(); graph.values.len()];
        for (n, node) in graph.nodes.iter().enumerate() {
            for (at, i) in node.inputs.iter().enumerate() {
                let places = readers[i.0 as usize].entry(n as u32).or_default();
                places.push(at as u32);
            }
        }
        let mut outputs: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (at, &v) in graph.outputs.iter().enumerate() {
            outputs.entry(v).or_default().push(at);
        }
        let late = late(&graph);
        Edit {
            pass,
            dead: vec![false; graph.nodes.len()],
            readers,
            credited: HashMap::new(),
            outputs,
            late,
            assumed: None,
            names: None,
            graph,
            fresh: 0,
            touched: false,
            changes: Vec::new(),
            fuel,
        }
    }

    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(crate) fn value(&self, id: ValueId) -> &Value {
        self.graph.value(id)
    }

    /// Nodes that are not dead, in order of their numbers (new ones last).
    pub(crate) fn live(&self) -> Vec<NodeId> {
        (0..self.graph.nodes.len() as u32)
            .filter(|n| !self.dead[*n as usize])
            .map(NodeId)
            .collect()
    }

    pub(crate) fn is_dead(&self, n: NodeId) -> bool {
        self.dead[n.0 as usize]
    }

    pub(crate) fn node(&self, n: NodeId) -> &Node {
        self.graph.node(n)
    }

    /// The node that writes `v`.
    pub(crate) fn writer(&self, v: ValueId) -> Option<NodeId> {
        match self.value(v).source {
            ValueSource::Node(n, _) => Some(n),
            _ => None,
        }
    }

    /// Op and only input of the node that writes `v`, when it has one input and one output.
    pub(crate) fn unary(&self, v: ValueId) -> Option<(&Op, ValueId)> {
        let node = self.node(self.writer(v)?);
        match (node.inputs.as_slice(), node.outputs.len()) {
            ([x], 1) => Some((&node.op, *x)),
            _ => None,
        }
    }

    pub(crate) fn is_output(&self, v: ValueId) -> bool {
        self.outputs.contains_key(&v)
    }

    /// True when something besides nodes needs the value: the caller, or a symbol read from it.
    pub(crate) fn is_pinned(&self, v: ValueId) -> bool {
        self.is_output(v) || self.late.contains_key(&v)
    }

    /// Whether a symbol is read from the value's shape.
    pub(crate) fn gives_sizes(&self, v: ValueId) -> bool {
        self.late.contains_key(&v)
    }

    /// Nodes that read `v`, each once.
    pub(crate) fn readers(&self, v: ValueId) -> BTreeSet<NodeId> {
        let all = self.readers[v.0 as usize].keys();
        all.map(|n| NodeId(*n)).inserted()
    }

    /// The only node that reads `v`, when nothing else needs it.
    pub(crate) fn only_reader(&self, v: ValueId) -> Option<NodeId> {
        let r = &self.readers[v.0 as usize];
        match (r.len(), self.is_pinned(v)) {
            (1, false) => r.keys().next().map(|n| NodeId(*n)),
            _ => None,
        }
    }

    /// Name of a node for people.
    pub(crate) fn title(&self, n: NodeId) -> String {
        let node = self.node(n);
        match (node.origins.first(), node.outputs.first()) {
            (Some(o), _) => o.name.clone(),
            (None, Some(v)) => self.value(*v).name.clone(),
            (None, None) => format!("#{}", n.0),
        }
    }

    /// Asks for leave to do one rewrite and records it.
    pub(crate) fn may(&mut self, subject: String, why: impl Into<String>) -> bool {
        let yes = self.fuel.take();
        if yes {
            self.note(subject, true, why.into());
        }
        yes
    }

    /// Asks for leave to do a rewrite that nobody needs to be told of, and that takes no fuel.
    pub(crate) fn may_silently(&mut self) -> bool {
        self.fuel.allows()
    }

    /// Records why something was not done.
    pub(crate) fn why_not(&mut self, subject: String, why: impl Into<String>) {
        self.note(subject, false, why.into());
    }

    fn note(&mut self, subject: String, done: bool, why: String) {
        self.changes.push(Change {
            pass: self.pass,
            subject,
            done,
            why,
        });
    }

    fn fail(&self, op: &Op, why: String) -> Error {
        Error::Build {
            pass: self.pass,
            op: op.name(),
            why,
        }
    }

    /// Output types of `op` on `inputs`.
    pub(crate) fn infer(&self, op: &Op, inputs: &[ValueId]) -> Result<Vec<Type>, Error> {
        self.graph
            .infer(op, inputs)
            .map_err(|why| self.fail(op, why))
    }

    /// Element type of the products of two values, taken from the first when they do not fit.
    pub(crate) fn infer_product(&self, a: ValueId, b: ValueId) -> DType {
        let (a, b) = (self.value(a).dtype, self.value(b).dtype);
        graph::product_type(a, b).unwrap_or(a)
    }

    /// Adds a node; its only output's name begins with `hint`.
    pub(crate) fn add(
        &mut self,
        op: Op,
        inputs: &[ValueId],
        hint: &str,
        origins: &[Origin],
    ) -> Result<ValueId, Error> {
        let types = self.infer(&op, inputs)?;
        self.add_typed(op, inputs, types, hint, origins)
    }

    /// Adds a node whose output types are given; gives its first output.
    pub(crate) fn add_typed(
        &mut self,
        op: Op,
        inputs: &[ValueId],
        types: Vec<Type>,
        hint: &str,
        origins: &[Origin],
    ) -> Result<ValueId, Error> {
        self.touched = true;
        let ints = self.graph.contents(&op, inputs, &types);
        let n = NodeId(self.graph.nodes.len() as u32);
        let mut outputs = Vec::new();
        for (o, ((dtype, shape), ints)) in types.into_iter().zip(ints).enumerate() {
            let source = ValueSource::Node(n, o as u32);
            outputs.push(self.add_value(hint, dtype, shape, source, ints));
        }
        let first = match outputs.first() {
            Some(v) => *v,
            None => return Err(self.fail(&op, "it has no outputs".into())),
        };
        self.reads(n, inputs);
        self.dead.push(false);
        self.graph.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs,
            origins: origins.to_vec(),
        });
        Ok(first)
    }

    fn add_value(
        &mut self,
        hint: &str,
        dtype: DType,
        shape: Vec<Dim>,
        source: ValueSource,
        ints: Option<Vec<Dim>>,
    ) -> ValueId {
        let values = &self.graph.values;
        let names = self
            .names
            .get_or_insert_with(|| values.iter().map(|v| v.name.clone()).collect());
        let mut name = hint.to_string();
        while name.is_empty() || names.contains(&name) {
            self.fresh += 1;
            name = format!("{hint}.{}", self.fresh);
        }
        names.insert(name.clone());
        let id = ValueId(self.graph.values.len() as u32);
        self.graph.values.push(Value {
            name,
            dtype,
            shape,
            source,
            ints,
        });
        self.readers.push(BTreeMap::new());
        id
    }

    /// Adds a constant with its known contents.
    pub(crate) fn constant(
        &mut self,
        hint: &str,
        t: Tensor,
        ints: Option<Vec<Dim>>,
    ) -> Result<ValueId, Error> {
        self.touched = true;
        let shape: Vec<Dim> = t.shape().iter().map(|&d| Dim::from(d)).collect();
        let dtype = t.dtype();
        let id = Arc::make_mut(&mut self.graph.weights).add_tensor(hint, t)?;
        Ok(self.add_value(hint, dtype, shape, ValueSource::Weight(id), ints))
    }

    /// Gives node `n` another op and other inputs; its outputs stay. What only the old inputs
    /// needed dies.
    pub(crate) fn set(&mut self, n: NodeId, op: Op, inputs: &[ValueId]) {
        self.touched = true;
        let old = std::mem::replace(&mut self.graph.nodes[n.0 as usize].inputs, inputs.to_vec());
        self.graph.nodes[n.0 as usize].op = op;
        for i in &old {
            self.readers[i.0 as usize].remove(&n.0);
        }
        self.reads(n, inputs);
        for i in old {
            if let Some(w) = self.writer(i) {
                self.bury(w);
            }
        }
    }

    /// Notes that `n` reads `inputs`, which are all of its inputs.
    fn reads(&mut self, n: NodeId, inputs: &[ValueId]) {
        for (at, i) in inputs.iter().enumerate() {
            let places = self.readers[i.0 as usize].entry(n.0).or_default();
            places.push(at as u32);
        }
    }

    /// Removes `n` if nothing needs its outputs, nor that it may refuse a request, and then its inputs' writers likewise.
    pub(crate) fn bury(&mut self, n: NodeId) {
        let mut work = vec![n];
        while let Some(n) = work.pop() {
            if self.is_dead(n) || refuses(&self.graph.nodes[n.0 as usize].op) {
                continue;
            }
            let outputs = &self.graph.nodes[n.0 as usize].outputs;
            if outputs
                .iter()
                .any(|&o| !self.readers[o.0 as usize].is_empty() || self.is_pinned(o))
            {
                continue;
            }
            self.dead[n.0 as usize] = true;
            self.touched = true;
            self.inherit(n);
            for i in self.graph.nodes[n.0 as usize].inputs.clone() {
                self.readers[i.0 as usize].remove(&n.0);
                if let Some(w) = self.writer(i) {
                    work.push(w);
                }
            }
        }
    }

    /// Keeps what the bodies of `n`, which goes, are taken for: its shapes may have been read, and no one else asks for
    /// what they rest on.
    fn inherit(&mut self, n: NodeId) {
        let pair = |a: &Assumption| (a.left.clone(), a.right.clone());
        for a in of_bodies(&self.graph, &self.graph.nodes[n.0 as usize].op) {
            let assumed = &mut self.assumed;
            let known =
                assumed.get_or_insert_with(|| self.graph.assumptions.iter().map(pair).inserted());
            if known.insert(pair(&a)) {
                self.graph.assumptions.push(a);
            }
        }
    }

    /// True when `old` may be replaced by `new` everywhere.
    pub(crate) fn can_replace(&self, old: ValueId, new: ValueId) -> bool {
        let (o, n) = (self.value(old), self.value(new));
        if o.dtype != n.dtype || o.shape.len() != n.shape.len() {
            return false;
        }
        // A result keeps its name, so its replacement must be free to take it.
        !self.is_output(old) || (self.writer(new).is_some() && !self.is_output(new))
    }

    /// Lets every reader of `old` read `new`; its writer dies when nothing else needs it.
    pub(crate) fn replace(&mut self, old: ValueId, new: ValueId) {
        self.touched = true;
        if self.is_output(old) {
            let (o, n) = (old.0 as usize, new.0 as usize);
            let taken = std::mem::take(&mut self.graph.values[o].name);
            let other = std::mem::replace(&mut self.graph.values[n].name, taken);
            self.graph.values[o].name = other;
            let places = self.outputs.remove(&old).unwrap_or_default();
            places.iter().for_each(|&at| self.graph.outputs[at] = new);
            self.outputs.entry(new).or_default().extend(places);
        }
        let places = self.late.remove(&old).unwrap_or_default();
        for &at in &places {
            if let SymbolSource::Late { value, .. } = &mut self.graph.symbols[at].source {
                *value = new;
            }
        }
        if !places.is_empty() {
            self.late.entry(new).or_default().extend(places);
        }
        let moved = std::mem::take(&mut self.readers[old.0 as usize]);
        for (n, places) in moved {
            let inputs = &mut self.graph.nodes[n as usize].inputs;
            places.iter().for_each(|&at| inputs[at as usize] = new);
            self.readers[new.0 as usize]
                .entry(n)
                .or_default()
                .extend(places);
        }
        if let Some(n) = self.writer(old) {
            self.bury(n);
        }
    }

    /// Adds model nodes that `n` stands for too.
    pub(crate) fn credit(&mut self, n: NodeId, origins: &[Origin]) {
        let list = &mut self.graph.nodes[n.0 as usize].origins;
        let known = self.credited.entry(n.0);
        let known = known.or_insert_with(|| list.iter().cloned().inserted());
        for o in origins {
            if known.insert(o.clone()) {
                self.touched = true;
                list.push(o.clone());
            }
        }
    }

    /// Drops symbols that are read from values that no one else needs.
    pub(crate) fn drop_symbols(&mut self, unused: &BTreeSet<Sym>) {
        let before = self.graph.symbols.len();
        self.graph.symbols.retain(|s| !unused.contains(&s.name));
        self.touched |= self.graph.symbols.len() != before;
        self.late = late(&self.graph);
    }

    /// The graph in order, with dead nodes and unused constants left out and values numbered as
    /// they appear. One that nothing was done to is given back as it is: every pass takes what
    /// another one finished.
    pub(crate) fn finish(self) -> Rewritten {
        Rewritten {
            touched: self.touched,
            graph: match self.touched {
                true => ordered(self.graph, &self.dead),
                false => self.graph,
            },
            changes: self.changes,
        }
    }
}

/// Symbols that are read from each value, by their places.
fn late(g: &Graph) -> HashMap<ValueId, Vec<usize>> {
    let mut out: HashMap<ValueId, Vec<usize>> = HashMap::new();
    for (at, s) in g.symbols.iter().enumerate() {
        if let SymbolSource::Late { value, .. } = s.source {
            out.entry(value).or_default().push(at);
        }
    }
    out
}

/// `g` in the order and numbering that passes take and give.
pub(crate) fn tidy(g: Graph) -> Graph {
    let dead = vec![false; g.nodes.len()];
    ordered(g, &dead)
}

/// An order in which every node comes after those that write what it reads, or give sizes that it works with.
fn order(g: &Graph, dead: &[bool]) -> Vec<usize> {
    let sizes = g.sizes_from();
    let mut order: Vec<usize> = Vec::new();
    let mut state = vec![0u8; g.nodes.len()];
    let mut stack = Vec::new();
    for root in 0..g.nodes.len() {
        stack.push(root);
        while let Some(&n) = stack.last() {
            if state[n] == 2 || dead[n] {
                stack.pop();
                continue;
            }
            let mut ready = true;
            if state[n] == 0 {
                state[n] = 1;
                // Reversed, so that the first input's writer comes first.
                for i in sizes[n].iter().chain(g.nodes[n].inputs.iter().rev()) {
                    if let ValueSource::Node(w, _) = g.value(*i).source
                        && state[w.0 as usize] == 0
                    {
                        stack.push(w.0 as usize);
                        ready = false;
                    }
                }
            }
            if ready {
                state[n] = 2;
                order.push(n);
                stack.pop();
            }
        }
    }
    order
}

/// Moves values from one numbering to another in the order in which they are met.
struct Placing {
    /// New number of each old value.
    to: Vec<Option<ValueId>>,
    from: Vec<Value>,
    values: Vec<Value>,
}

impl Placing {
    /// The new number of `v`, whose source becomes `source` unless it was met before.
    fn place(&mut self, v: ValueId, source: Option<ValueSource>) -> ValueId {
        let at = v.0 as usize;
        *self.to[at].get_or_insert_with(|| {
            let old = &mut self.from[at];
            // What is left behind is not read again.
            self.values.push(Value {
                name: std::mem::take(&mut old.name),
                dtype: old.dtype,
                shape: std::mem::take(&mut old.shape),
                source: source.unwrap_or(old.source),
                ints: old.ints.take(),
            });
            ValueId(self.values.len() as u32 - 1)
        })
    }
}

fn ordered(mut g: Graph, dead: &[bool]) -> Graph {
    let order = order(&g, dead);
    let mut p = Placing {
        to: vec![None; g.values.len()],
        values: Vec::with_capacity(g.values.len()),
        from: std::mem::take(&mut g.values),
    };
    for v in &mut g.inputs {
        *v = p.place(*v, None);
    }
    let mut from: Vec<Option<Node>> = g.nodes.into_iter().map(Some).collect();
    let mut nodes = Vec::with_capacity(order.len());
    for n in order {
        let Some(mut node) = from[n].take() else {
            continue;
        };
        for v in &mut node.inputs {
            *v = p.place(*v, None);
        }
        let id = NodeId(nodes.len() as u32);
        for (o, v) in node.outputs.iter_mut().enumerate() {
            *v = p.place(*v, Some(ValueSource::Node(id, o as u32)));
        }
        nodes.push(node);
    }
    for v in &mut g.outputs {
        *v = p.place(*v, None);
    }
    for s in &mut g.symbols {
        if let SymbolSource::Late { value, .. } = &mut s.source {
            *value = p.place(*value, None);
        }
    }
    Graph {
        values: p.values,
        nodes,
        ..g
    }
}

/// What the bodies of `op`, a node of `g`, are taken for, where it speaks of symbols that mean something in `g`.
pub(crate) fn of_bodies(g: &Graph, op: &Op) -> Vec<Assumption> {
    let bodies = match op {
        Op::If {
            then_branch,
            else_branch,
        } => vec![then_branch, else_branch],
        Op::Loop { body, .. } => vec![body],
        _ => return vec![],
    };
    let names =
        |g: &Graph| -> BTreeSet<Sym> { g.symbols.iter().map(|s| s.name.clone()).inserted() };
    let outer = names(g);
    let mut out = Vec::new();
    for b in bodies {
        // A body declares the symbols of what it captures too, under the names that they have outside.
        let own: BTreeSet<Sym> = names(b).difference(&outer).cloned().inserted();
        let inner = b.nodes.iter().flat_map(|n| of_bodies(b, &n.op));
        out.extend(b.assumptions.iter().cloned().chain(inner).filter(|a| {
            let used = symbols_of(a);
            // Of numbers alone it says that the body is not to run, which it does not then.
            !used.is_empty() && used.is_disjoint(&own)
        }));
    }
    out
}

/// The symbols of both extents.
pub(crate) fn symbols_of(a: &Assumption) -> BTreeSet<Sym> {
    let mut used = BTreeSet::new();
    a.left.symbols(&mut used);
    a.right.symbols(&mut used);
    used
}

/// Whether running the op may show that the rest is made for another request: it, or one in a branch or body of it.
pub(crate) fn refuses(op: &Op) -> bool {
    match op {
        Op::Host { name, attrs } => name == "Refuse" || attrs.contains_key(GUESSES_RANK),
        Op::If {
            then_branch,
            else_branch,
        } => [then_branch, else_branch]
            .iter()
            .any(|g| g.nodes.iter().any(|n| refuses(&n.op))),
        Op::Loop { body, .. } => body.nodes.iter().any(|n| refuses(&n.op)),
        _ => false,
    }
}
