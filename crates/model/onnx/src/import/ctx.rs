//! The state of an import: graphs under construction, scopes of names, weights.
use super::num::Num;
use super::types::{dtype_of, narrow_name, unpack_codes};
use super::{CustomOps, ImportError, Kind, LowerError, Lowered, NodeView, UnsupportedNode};
use crate::proto::{
    AttributeValue, DataType, Function, Graph, Node, SparseTensor, TensorData, ValueInfo,
};
use crate::{ModelFile, proto::OpsetImport};
use ::graph::{GraphBuilder, Origin, ValueId, ValueSource};
use layout::Inserted;
use layout::{DType, Dim};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tensor::{Bytes, Tensor, WeightId, WeightStore};

/// Nodes of one import, inlined ones counted each time.
const MAX_NODES: usize = 1_000_000;
/// Nodes lowered in one import, where bodies are lowered again until what they carry has settled.
const MAX_LOWERED: usize = 4 * MAX_NODES;
/// Nodes and carried values of the rounds that one import lowers one by one, those of loops in each other together:
/// each loop's own limit is taken to the power of their depth.
pub(crate) const MAX_UNROLLED: usize = 100_000;
/// Nesting of functions and bodies.
const MAX_DEPTH: usize = 48;

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    /// A value of the frame's graph.
    Value(ValueId),
    /// The result of an unsupported node.
    Poisoned,
}

/// Names of one graph, function or branch.
#[derive(Default)]
pub(crate) struct Scope<'m> {
    pub values: BTreeMap<&'m str, Item>,
    pub weights: BTreeMap<&'m str, &'m TensorData>,
    pub sparse: BTreeMap<&'m str, &'m SparseTensor>,
    /// Inputs of a function that its call leaves out: nodes that read them have them left out too.
    pub left_out: BTreeSet<&'m str>,
    /// Names outside are not seen (a function's body).
    pub barrier: bool,
    /// Put before names that values get in the graph.
    pub prefix: String,
    /// Values that get another name in the graph.
    pub rename: BTreeMap<&'m str, String>,
    /// Values whose types the model states.
    pub stated: BTreeMap<&'m str, &'m ValueInfo>,
}

/// A graph under construction.
pub(crate) struct Frame<'m> {
    pub b: GraphBuilder,
    pub scopes: Vec<Scope<'m>>,
    /// Values of the outer frame and what stands for them here.
    pub captures: Vec<(ValueId, ValueId)>,
    /// The same, by the outer value.
    captured: BTreeMap<ValueId, ValueId>,
    /// What is known of the contents of small tensors where they are no integers that are all known.
    pub numbers: BTreeMap<ValueId, Vec<Option<Num>>>,
    /// What held values hold.
    pub kinds: BTreeMap<ValueId, Kind>,
    /// Values whose elements are codes of a type that no kernel knows.
    pub narrow: BTreeMap<ValueId, &'static str>,
}

/// Attributes and operator sets of the function that is being inlined.
pub(crate) struct Call<'m> {
    pub attrs: BTreeMap<&'m str, &'m AttributeValue>,
    pub opsets: &'m [OpsetImport],
}

/// What is put back when a body has to be lowered again.
pub(crate) struct Mark {
    named: usize,
    nodes: usize,
    records: usize,
    unsupported: usize,
}

/// The state of an import.
pub(crate) struct Ctx<'m> {
    pub file: &'m ModelFile,
    /// Functions by domain, name and overload.
    functions: BTreeMap<(&'m str, &'m str, &'m str), &'m Function>,
    /// Operators that the caller brings.
    pub customs: CustomOps,
    pub frames: Vec<Frame<'m>>,
    pub calls: Vec<Call<'m>>,
    pub unsupported: Vec<UnsupportedNode>,
    /// Every model node lowered, in order.
    pub records: Vec<Origin>,
    store: Arc<WeightStore>,
    weight_of: BTreeMap<*const TensorData, WeightId>,
    /// Bytes of the sparse constants that were written out.
    pub written_out: usize,
    /// Names of nodes, with the last number that was put behind each to make another.
    origins: BTreeMap<String, usize>,
    /// What each name stood for before a node got it, so that a body can be lowered again.
    named: Vec<(String, Option<usize>)>,
    nodes: usize,
    /// Nodes lowered, those that were lowered again each time.
    pub(super) lowered: usize,
    /// Nodes lowered and values carried in rounds that are lowered one by one, of all loops.
    pub(super) unrolled: usize,
    /// Rounds in each other that are being lowered so.
    in_rounds: usize,
    depth: usize,
    /// What nodes whose values may have several ranks are taken for.
    pub ranks: Ranks,
    /// What the rest of the model is made for, by node ([`super::ImportOptions::taken`]).
    pub taken: BTreeMap<String, i64>,
    /// Numbers of extents that only the data gives ([`super::ImportOptions::late`]).
    pub late: Arc<BTreeMap<String, i64>>,
}

/// A value has one rank, also where the request decides it: one is guessed, and where the rest of the model does not
/// fit that, the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ranks {
    /// Which of its ranks, from the lowest on, every such node is lowered for; the last where it has no more.
    pub guess: usize,
    /// Some node has more.
    pub more: bool,
    /// Nodes whose ranks were guessed, or told by the caller.
    pub guessed: usize,
}

impl Ranks {
    /// Which of a node's `count` possible ranks is guessed.
    pub fn guess(&mut self, count: usize) -> usize {
        self.more |= self.guess + 1 < count;
        self.guess.min(count.saturating_sub(1))
    }
}

impl<'m> Ctx<'m> {
    pub fn new(file: &'m ModelFile, customs: &CustomOps) -> Ctx<'m> {
        let mut functions = BTreeMap::new();
        for f in &file.model.functions {
            let of = (f.domain.as_str(), f.name.as_str(), f.overload.as_str());
            functions.entry(of).or_insert(f);
        }
        Ctx {
            file,
            functions,
            customs: customs.clone(),
            frames: Vec::new(),
            calls: vec![Call {
                attrs: BTreeMap::new(),
                opsets: &file.model.opset_imports,
            }],
            unsupported: Vec::new(),
            records: Vec::new(),
            store: Arc::new(WeightStore::new()),
            weight_of: BTreeMap::new(),
            written_out: 0,
            origins: BTreeMap::new(),
            named: Vec::new(),
            nodes: 0,
            lowered: 0,
            unrolled: 0,
            in_rounds: 0,
            depth: 0,
            ranks: Ranks::default(),
            taken: BTreeMap::new(),
            late: Arc::default(),
        }
    }

    /// Begins a graph inside the present one.
    pub fn push_frame(&mut self, name: &str, scope: Scope<'m>) {
        self.frames.push(Frame {
            b: GraphBuilder::new(name, self.store.clone()).with_late(self.late.clone()),
            scopes: vec![scope],
            captures: Vec::new(),
            captured: BTreeMap::new(),
            numbers: BTreeMap::new(),
            kinds: BTreeMap::new(),
            narrow: BTreeMap::new(),
        });
    }

    /// All weights so far.
    pub fn store(&self) -> Arc<WeightStore> {
        self.store.clone()
    }

    /// The innermost frame.
    pub fn frame(&mut self) -> &mut Frame<'m> {
        // An import never pops its first frame before it is done.
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    /// The builder of the innermost graph.
    pub fn b(&mut self) -> &mut GraphBuilder {
        &mut self.frame().b
    }

    fn graph(&self) -> &::graph::Graph {
        self.frames[self.frames.len() - 1].b.graph()
    }

    /// Shape of a value.
    pub fn shape(&self, v: ValueId) -> Vec<Dim> {
        self.graph().value(v).shape.clone()
    }

    /// Rank of a value.
    pub fn rank(&self, v: ValueId) -> usize {
        self.graph().value(v).shape.len()
    }

    /// Element type of a value.
    pub fn dtype(&self, v: ValueId) -> DType {
        self.graph().value(v).dtype
    }

    /// Known contents of an integer value.
    pub fn ints(&self, v: ValueId) -> Option<Vec<Dim>> {
        self.graph().value(v).ints.clone()
    }

    /// Known contents that are numbers.
    pub fn const_ints(&self, v: ValueId) -> Option<Vec<i64>> {
        self.ints(v)?.iter().map(Dim::known).collect()
    }

    /// The only element of an integer value, where it is a known number.
    pub fn const_int(&self, v: ValueId) -> Option<i64> {
        let [k] = <[i64; 1]>::try_from(self.const_ints(v)?).ok()?;
        Some(k)
    }

    /// The value's name.
    pub fn value_name(&self, v: ValueId) -> String {
        self.graph().value(v).name.clone()
    }

    /// True when the value is the body's own view of a weight.
    pub fn weight_id(&self, v: ValueId) -> Option<WeightId> {
        match self.graph().value(v).source {
            ValueSource::Weight(w) => Some(w),
            _ => None,
        }
    }

    fn add_to_store(
        &mut self,
        name: &str,
        d: DType,
        shape: &[usize],
        bytes: Bytes,
    ) -> Lowered<WeightId> {
        // Nobody else holds the store while it grows, so nothing is copied.
        for f in &mut self.frames {
            f.b.set_weights(Arc::default());
        }
        let id = Arc::make_mut(&mut self.store).add(name, d, shape, bytes);
        for f in &mut self.frames {
            f.b.set_weights(self.store.clone());
        }
        Ok(id?)
    }

    /// A constant made during import.
    pub fn constant(&mut self, name: &str, t: tensor::Tensor) -> Lowered<ValueId> {
        let (d, shape) = (t.dtype(), t.shape().to_vec());
        let id = self.add_to_store(name, d, &shape, Bytes::from(t.into_bytes()))?;
        Ok(self.b().weight(id)?)
    }

    /// The weight made of a tensor of the model, if it was met before.
    pub fn known_weight(&self, t: &'m TensorData) -> Option<WeightId> {
        self.weight_of.get(&std::ptr::from_ref(t)).copied()
    }

    /// A weight that stands for the tensor `t` of the model from now on.
    pub fn keep_weight(
        &mut self,
        t: &'m TensorData,
        name: &str,
        d: DType,
        shape: &[usize],
        bytes: Bytes,
    ) -> Lowered<WeightId> {
        let id = self.add_to_store(name, d, shape, bytes)?;
        self.weight_of.insert(std::ptr::from_ref(t), id);
        Ok(id)
    }

    /// The value of a tensor of the model in frame `frame`; its bytes are borrowed.
    pub fn tensor(&mut self, frame: usize, t: &'m TensorData, name: &str) -> Lowered<ValueId> {
        if DataType::from_code(t.dtype) == Some(DataType::String) {
            return self.text(frame, t, name);
        }
        let at: *const TensorData = t;
        let id = match self.weight_of.get(&at) {
            Some(id) => *id,
            None => {
                let d = dtype_of(t.dtype).map_err(|why| format!("tensor '{name}': {why}"))?;
                t.elements()
                    .map_err(|why| format!("tensor '{name}': {why}"))?;
                let shape: Option<Vec<usize>> =
                    t.dims.iter().map(|&d| usize::try_from(d).ok()).collect();
                let shape = shape.ok_or_else(|| {
                    format!("tensor '{name}' has a negative dimension; export the model again")
                })?;
                let mut bytes = self.file.tensor_bytes(t)?;
                if let Some(coded) = DataType::from_code(t.dtype) {
                    let count = Tensor::byte_len(DType::U8, &shape)
                        .map_err(|e| format!("tensor '{name}': {e}"))?;
                    if let Some(codes) = unpack_codes(&bytes, count, coded) {
                        bytes = Bytes::from(codes);
                    }
                }
                let id = self.add_to_store(name, d, &shape, bytes)?;
                self.weight_of.insert(at, id);
                id
            }
        };
        let f = &mut self.frames[frame];
        let v = f.b.weight(id)?;
        if let Some(name) = narrow_name(t.dtype) {
            f.narrow.insert(v, name);
        }
        Ok(v)
    }

    /// The bytes of a constant as unsigned 4-bit numbers, two per byte, of another shape; shared,
    /// not copied. `None` when the value is no constant of bytes.
    pub fn as_nibbles(&mut self, v: ValueId, shape: &[i64]) -> Lowered<Option<ValueId>> {
        let Some(bytes) = self.raw_bytes(v) else {
            return Ok(None);
        };
        if self.dtype(v) != DType::U8 {
            return Ok(None);
        }
        let shape: Option<Vec<usize>> = shape.iter().map(|&d| usize::try_from(d).ok()).collect();
        let shape = shape.ok_or("a shape is negative")?;
        let name = format!("{}.nibbles", self.value_name(v));
        let id = self.add_to_store(&name, DType::U4, &shape, bytes)?;
        Ok(Some(self.b().weight(id)?))
    }

    /// The bytes of a constant, or of one seen in another shape.
    fn raw_bytes(&self, v: ValueId) -> Option<Bytes> {
        let g = self.graph();
        let mut v = v;
        for _ in 0..8 {
            match g.value(v).source {
                ValueSource::Weight(w) => return self.store.get(w).map(|w| w.bytes.clone()),
                ValueSource::Node(..) => {
                    let n = g.producer(v)?;
                    match n.op {
                        ::graph::Op::View(::graph::View::Reshape(_)) => v = *n.inputs.first()?,
                        _ => return None,
                    }
                }
                ValueSource::Input(_) => return None,
            }
        }
        None
    }

    /// The value of a tensor of texts: no weight, for a host operator holds it.
    fn text(&mut self, frame: usize, t: &'m TensorData, name: &str) -> Lowered<ValueId> {
        let wrong = |why: String| LowerError::Node(format!("tensor '{name}': {why}"));
        let shape: Option<Vec<Option<Dim>>> = t
            .dims
            .iter()
            .map(|&d| usize::try_from(d).ok().map(|d| Some(Dim::from(d))))
            .collect();
        let shape = shape.ok_or_else(|| wrong("it has a negative dimension".into()))?;
        let texts = t.texts().map_err(wrong)?;
        let attrs = tensor::attrs(vec![
            ("dims", tensor::Attr::Ints(t.dims.clone())),
            ("texts", tensor::Attr::Strs(texts)),
        ]);
        let op = ::graph::Op::Host {
            name: "text.constant".into(),
            attrs,
        };
        let origin = Origin {
            name: name.into(),
            op_type: "Constant".into(),
        };
        let vs =
            self.frames[frame]
                .b
                .node_with_shapes(op, &[], &[(name, DType::Str, shape)], &origin);
        vs.first()
            .copied()
            .ok_or_else(|| "a constant has no value".into())
    }

    fn lookup_at(&mut self, frame: usize, name: &str) -> Lowered<Option<Item>> {
        for s in (0..self.frames[frame].scopes.len()).rev() {
            let scope = &self.frames[frame].scopes[s];
            if let Some(item) = scope.values.get(name) {
                return Ok(Some(*item));
            }
            if let Some((&key, &t)) = scope.weights.get_key_value(name) {
                let full = format!("{}{name}", scope.prefix);
                let item = Item::Value(self.tensor(frame, t, &full)?);
                self.frames[frame].scopes[s].values.insert(key, item);
                return Ok(Some(item));
            }
            if let Some((&key, &t)) = scope.sparse.get_key_value(name) {
                let full = format!("{}{name}", scope.prefix);
                let item = Item::Value(self.sparse(frame, t, &full)?);
                self.frames[frame].scopes[s].values.insert(key, item);
                return Ok(Some(item));
            }
            if scope.barrier {
                return Ok(None);
            }
        }
        if frame == 0 {
            return Ok(None);
        }
        Ok(match self.lookup_at(frame - 1, name)? {
            Some(Item::Value(v)) => Some(Item::Value(self.capture(frame, v)?)),
            other => other,
        })
    }

    /// The outer frame's value `v` inside frame `frame`: the same weight, or an input for it.
    pub fn capture(&mut self, frame: usize, v: ValueId) -> Lowered<ValueId> {
        if let Some(inner) = self.frames[frame].captured.get(&v) {
            return Ok(*inner);
        }
        let outer = self.frames[frame - 1].b.value(v).clone();
        let narrow = self.frames[frame - 1].narrow.get(&v).copied();
        if let ValueSource::Weight(id) = outer.source {
            let f = &mut self.frames[frame];
            let inner = f.b.weight(id)?;
            f.narrow.extend(narrow.map(|name| (inner, name)));
            return Ok(inner);
        }
        let numbers = self.frames[frame - 1].numbers.get(&v).cloned();
        let kind = self.frames[frame - 1].kinds.get(&v).cloned();
        let f = &mut self.frames[frame];
        let inner =
            f.b.input_with_ints(&outer.name, outer.dtype, outer.shape, outer.ints);
        if let Some(x) = numbers {
            f.numbers.insert(inner, x);
        }
        if let Some(k) = kind {
            f.kinds.insert(inner, k);
        }
        f.narrow.extend(narrow.map(|name| (inner, name)));
        f.captures.push((v, inner));
        f.captured.insert(v, inner);
        Ok(inner)
    }

    /// What `name` stands for here.
    pub fn lookup(&mut self, name: &str) -> Lowered<Item> {
        let at = self.frames.len() - 1;
        self.lookup_at(at, name)?.ok_or_else(|| {
            LowerError::Node(format!(
                "reads '{name}', which nothing before it defines; export the model again"
            ))
        })
    }

    /// Whether `name` is an input that the call of the function at hand leaves out.
    pub(super) fn is_left_out(&self, name: &str) -> bool {
        let scopes = self.frames.iter().rev().flat_map(|f| f.scopes.iter().rev());
        for s in scopes {
            if s.left_out.contains(name) {
                return true;
            }
            if s.barrier
                || s.values.contains_key(name)
                || s.weights.contains_key(name)
                || s.sparse.contains_key(name)
            {
                return false;
            }
        }
        false
    }

    /// Binds output `i` of a node.
    pub fn set(&mut self, n: &NodeView<'m>, i: usize, v: ValueId) {
        if let Some(&name) = n.outputs.get(i)
            && !name.is_empty()
        {
            self.bind(name, Item::Value(v));
        }
    }

    /// Binds a name in the innermost scope.
    pub fn bind(&mut self, name: &'m str, item: Item) {
        if let Some(s) = self.frame().scopes.last_mut() {
            s.values.insert(name, item);
        }
    }

    /// The graph's name for the model's `name` in the innermost scope.
    pub fn graph_name(&mut self, name: &str) -> String {
        let Some(s) = self.frame().scopes.last() else {
            return name.to_string();
        };
        match (name, s.rename.get(name)) {
            ("", _) => String::new(),
            (_, Some(r)) => r.clone(),
            _ => format!("{}{name}", s.prefix),
        }
    }

    /// What the caller says that `n` takes, where the ranks of its values depend on that.
    pub fn told(&mut self, n: &NodeView<'m>) -> Option<i64> {
        self.ranks.guessed += 1;
        self.taken.get(&n.origin.name).copied()
    }

    /// Notes that the graph at hand is the model only where `extent` is `must_be`.
    pub fn assume(&mut self, n: &NodeView<'m>, extent: &Dim, must_be: &Dim) {
        self.b().assume(&n.origin.name, extent, must_be);
    }

    /// Notes that the graph at hand is the model only where `a` is no larger than `b`.
    pub fn assume_at_most(&mut self, n: &NodeView<'m>, a: &Dim, b: &Dim) {
        if !a.provably_le(b) {
            self.assume(n, &a.max_with(b), b);
        }
    }

    /// Enters one more level of nesting.
    pub fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Lowered<T>) -> Lowered<T> {
        if self.depth >= MAX_DEPTH {
            return Err(format!(
                "functions and bodies are nested deeper than {MAX_DEPTH}; flatten the model"
            )
            .into());
        }
        self.depth += 1;
        let r = f(self);
        self.depth -= 1;
        r
    }

    /// Whether another round may be lowered by itself.
    pub fn may_unroll(&self) -> bool {
        self.unrolled < MAX_UNROLLED
    }

    /// Lowers by `f` one round of a loop that carries `carried` values.
    pub fn one_round<T>(
        &mut self,
        carried: usize,
        f: impl FnOnce(&mut Self) -> Lowered<T>,
    ) -> Lowered<T> {
        // A round without any node costs something too.
        self.unrolled += 1 + carried;
        self.in_rounds += 1;
        let r = f(self);
        self.in_rounds -= 1;
        r
    }

    pub fn mark(&self) -> Mark {
        Mark {
            named: self.named.len(),
            nodes: self.nodes,
            records: self.records.len(),
            unsupported: self.unsupported.len(),
        }
    }

    pub fn rewind(&mut self, m: Mark) {
        for (name, before) in self.named.drain(m.named..).rev() {
            match before {
                Some(n) => drop(self.origins.insert(name, n)),
                None => drop(self.origins.remove(&name)),
            }
        }
        self.nodes = m.nodes;
        self.records.truncate(m.records);
        self.unsupported.truncate(m.unsupported);
    }

    fn origin(&mut self, node: &Node) -> Origin {
        let own = match (
            node.name.as_str(),
            node.outputs.iter().find(|o| !o.is_empty()),
        ) {
            ("", Some(o)) => o.as_str(),
            ("", None) => node.op_type.as_str(),
            (n, _) => n,
        };
        let prefix = self
            .frame()
            .scopes
            .last()
            .map(|s| s.prefix.clone())
            .unwrap_or_default();
        let base = format!("{prefix}{own}");
        let mut name = base.clone();
        if let Some(&last) = self.origins.get(&base) {
            let mut k = last;
            while self.origins.contains_key(&name) {
                k += 1;
                name = format!("{base}#{k}");
            }
            self.named
                .push((base.clone(), self.origins.insert(base, k)));
        }
        let before = self.origins.insert(name.clone(), 1);
        self.named.push((name.clone(), before));
        Origin {
            name,
            op_type: node.op_type.clone(),
        }
    }

    /// Version of `domain`'s operator set for the node at hand.
    pub fn opset(&self, domain: &str) -> Option<i64> {
        let find =
            |sets: &[OpsetImport]| sets.iter().find(|s| s.domain == domain).map(|s| s.version);
        let call = self.calls.last()?;
        find(call.opsets).or_else(|| find(&self.file.model.opset_imports))
    }

    /// The function a node calls, if it is one.
    pub fn function(&self, node: &Node) -> Option<&'m Function> {
        let of = (
            node.domain.as_str(),
            node.op_type.as_str(),
            node.overload.as_str(),
        );
        self.functions.get(&of).copied()
    }

    /// Lowers nodes in order.
    pub fn nodes(&mut self, nodes: &'m [Node]) -> Lowered {
        let frames = self.frames.len();
        for node in nodes {
            self.nodes += 1;
            self.lowered += 1;
            self.unrolled += usize::from(self.in_rounds > 0);
            if self.lowered > MAX_LOWERED {
                return Err(format!("bodies nested in each other would have to be lowered more than {MAX_LOWERED} times, node by node, until the shapes that they carry settle; make those fixed").into());
            }
            if self.nodes > MAX_NODES {
                return Err(format!("the model has more than {MAX_NODES} nodes once functions are inlined; make it smaller").into());
            }
            let origin = self.origin(node);
            let result = self.node(node, origin.clone());
            match result {
                Ok(()) => {}
                Err(LowerError::Unsupported(remedy)) => {
                    // A body that it had begun is given up with it.
                    self.frames.truncate(frames);
                    self.unsupported.push(UnsupportedNode {
                        node: origin.name,
                        operator: node.op_type.clone(),
                        domain: node.domain.clone(),
                        opset: self.opset(&node.domain).unwrap_or(0),
                        remedy,
                    });
                    self.poison(node);
                }
                Err(LowerError::Node(why)) => {
                    return Err(LowerError::Import(ImportError::Node {
                        file: self.file.name().to_string(),
                        node: origin.name,
                        op: node.op_type.clone(),
                        why,
                    }));
                }
                Err(LowerError::Graph(source)) => {
                    let file = self.file.name().to_string();
                    return Err(LowerError::Import(ImportError::Graph { file, source }));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub(super) fn poison(&mut self, node: &'m Node) {
        for o in node.outputs.iter().filter(|o| !o.is_empty()) {
            self.bind(o, Item::Poisoned);
        }
    }

    /// Inputs of a body with initialisers taken out.
    pub fn real_inputs(g: &'m Graph) -> Vec<&'m ValueInfo> {
        let weights: BTreeSet<&str> = g.initializers.iter().map(|t| t.name.as_str()).inserted();
        g.inputs
            .iter()
            .filter(|i| !weights.contains(i.name.as_str()))
            .collect()
    }

    /// A scope with a graph's initialisers.
    pub fn scope_of(&self, g: &'m Graph, prefix: String) -> Lowered<Scope<'m>> {
        let sparse = g
            .sparse_initializers
            .iter()
            .flat_map(|s| [&s.values, &s.indices]);
        for t in g.initializers.iter().chain(sparse) {
            t.check_length()
                .map_err(|why| format!("tensor '{}' {why}", t.label()))?;
        }
        let weights = g
            .initializers
            .iter()
            .map(|t| (t.name.as_str(), t))
            .inserted();
        let sparse = g
            .sparse_initializers
            .iter()
            .map(|s| (s.values.name.as_str(), s))
            .inserted();
        let stated = g.value_info.iter().chain(&g.outputs);
        Ok(Scope {
            weights,
            sparse,
            stated: stated.map(|i| (i.name.as_str(), i)).inserted(),
            prefix,
            ..Scope::default()
        })
    }
}
