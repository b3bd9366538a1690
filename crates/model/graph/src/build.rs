//! Building graphs: every added node gets its outputs' shapes and known contents at once.
use crate::assume::Assumptions;
use crate::graph::*;
use crate::shape::ReliedEqualities;
use crate::{GraphError, Op, shape};
use layout::{DType, Dim, Sym};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tensor::{Tensor, WeightId, WeightStore};

/// Adds values and nodes in order; infers shapes, dtypes and known integer contents.
#[derive(Clone, Debug)]
pub struct GraphBuilder {
    graph: Graph,
    names: BTreeMap<String, ValueId>,
    weight_values: BTreeMap<WeightId, ValueId>,
    /// Names of the symbols.
    declared: BTreeSet<Sym>,
    fresh: u32,
    assumptions: Assumptions,
    /// Numbers of late symbols, by name.
    late: Arc<BTreeMap<String, i64>>,
}

impl GraphBuilder {
    /// An empty graph over `weights`.
    pub fn new(name: &str, weights: Arc<WeightStore>) -> GraphBuilder {
        GraphBuilder {
            graph: Graph {
                name: name.into(),
                values: Vec::new(),
                nodes: Vec::new(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                symbols: Vec::new(),
                assumptions: Vec::new(),
                weights,
            },
            names: BTreeMap::new(),
            weight_values: BTreeMap::new(),
            declared: BTreeSet::new(),
            fresh: 0,
            assumptions: Assumptions::default(),
            late: Arc::default(),
        }
    }

    /// The graph for requests in which extents that only the data gives are these numbers, by the symbols' names;
    /// that they are is an assumption.
    #[must_use]
    pub fn with_late(mut self, late: Arc<BTreeMap<String, i64>>) -> GraphBuilder {
        self.late = late;
        self
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The value `id`.
    pub fn value(&self, id: ValueId) -> &Value {
        self.graph.value(id)
    }

    fn add_value(
        &mut self,
        name: &str,
        dtype: DType,
        shape: Vec<Dim>,
        source: ValueSource,
        ints: Option<Vec<Dim>>,
    ) -> ValueId {
        let mut unique = name.to_string();
        while unique.is_empty() || self.names.contains_key(&unique) {
            self.fresh += 1;
            unique = format!("{name}.{}", self.fresh);
        }
        let id = ValueId(self.graph.values.len() as u32);
        self.names.insert(unique.clone(), id);
        self.graph.values.push(Value {
            name: unique,
            dtype,
            shape,
            source,
            ints,
        });
        id
    }

    /// Gives `id` the name `name`, which an output must have: a value made during import that took it
    /// gets another. Names of inputs stay; the result says whether `id` has the name now.
    pub fn claim(&mut self, id: ValueId, name: &str) -> bool {
        let holder = self.names.get(name).copied();
        if holder == Some(id) {
            return true;
        }
        if let Some(h) = holder {
            let value = &mut self.graph.values[h.0 as usize];
            if matches!(value.source, ValueSource::Input(_)) {
                return false;
            }
            let mut other = name.to_string();
            while self.names.contains_key(&other) {
                self.fresh += 1;
                other = format!("{name}.{}", self.fresh);
            }
            value.name = other.clone();
            self.names.insert(other, h);
        }
        let value = &mut self.graph.values[id.0 as usize];
        self.names.remove(&value.name);
        value.name = name.to_string();
        self.names.insert(name.to_string(), id);
        true
    }

    /// Adds an input; symbols of its shape that are not known yet are declared as read from it.
    pub fn input(&mut self, name: &str, dtype: DType, shape: Vec<Dim>) -> ValueId {
        let n = self.graph.inputs.len() as u32;
        for (axis, d) in shape.iter().enumerate() {
            if let Some(s) = d.as_sym() {
                let source = SymbolSource::Input {
                    input: n,
                    axis: axis as u32,
                };
                self.declare(s.into(), source);
            }
        }
        let id = self.add_value(name, dtype, shape, ValueSource::Input(n), None);
        self.graph.inputs.push(id);
        id
    }

    /// Adds a body input whose contents are known (a captured shape tensor).
    pub fn input_with_ints(
        &mut self,
        name: &str,
        dtype: DType,
        shape: Vec<Dim>,
        ints: Option<Vec<Dim>>,
    ) -> ValueId {
        let id = self.input(name, dtype, shape);
        self.graph.values[id.0 as usize].ints = ints;
        id
    }

    /// Notes the contents of `id`, row-major, where the caller knows what the ops do not show.
    pub fn set_ints(&mut self, id: ValueId, ints: Vec<Dim>) {
        if let Some(v) = self.graph.values.get_mut(id.0 as usize) {
            v.ints = Some(ints);
        }
    }

    /// Adds a symbol unless it is there.
    pub fn declare(&mut self, name: Sym, source: SymbolSource) {
        if self.declared.insert(name.clone()) {
            self.graph.symbols.push(Symbol { name, source });
        }
    }

    /// Whether symbol `name` is declared here.
    pub fn declares(&self, name: &str) -> bool {
        self.declared.contains(name)
    }

    /// The value that stands for weight `id`; small integer contents become known.
    pub fn weight(&mut self, id: WeightId) -> Result<ValueId, GraphError> {
        if let Some(v) = self.weight_values.get(&id) {
            return Ok(*v);
        }
        let store = self.graph.weights.clone();
        let w = store.get(id).ok_or_else(|| GraphError::Structure {
            graph: self.graph.name.clone(),
            why: format!("weight {id} does not exist"),
        })?;
        let shape: Vec<Dim> = w.shape.iter().map(|&d| Dim::from(d)).collect();
        let n: usize = w.shape.iter().product();
        let ints = ((w.dtype.is_int() || w.dtype == DType::Bool) && n <= Value::MAX_INTS)
            .then(|| store.tensor(id))
            .flatten()
            .map(|t| (0..n).map(|i| Dim::Known(t.get_i64(i))).collect());
        let v = self.add_value(&w.name, w.dtype, shape, ValueSource::Weight(id), ints);
        self.weight_values.insert(id, v);
        Ok(v)
    }

    /// Adds a constant made during import (it joins the weight store).
    pub fn constant(&mut self, name: &str, t: Tensor) -> Result<ValueId, GraphError> {
        let id = Arc::make_mut(&mut self.graph.weights).add_tensor(name, t)?;
        self.weight(id)
    }

    /// Replaces the weight store by one that begins with the same weights (bodies share theirs with
    /// the outer graph: after a body is built, the outer builder takes over what it added).
    pub fn set_weights(&mut self, weights: Arc<WeightStore>) {
        self.graph.weights = weights;
    }

    /// Adds a node with outputs named `names` (as many as the op has); shapes, dtypes and known
    /// contents follow from the op. Ops whose output shapes cannot follow from their inputs
    /// (`Host`, `If`, `Loop`) are added with [`GraphBuilder::node_with_shapes`].
    pub fn node(
        &mut self,
        op: Op,
        inputs: &[ValueId],
        names: &[&str],
        origin: &Origin,
    ) -> Result<Vec<ValueId>, GraphError> {
        let types = shape::infer(&self.graph, &op, inputs, &mut ReliedEqualities::default())
            .map_err(|why| GraphError::Op {
                node: origin.name.clone(),
                op: op.name().into(),
                why,
            })?;
        let ints = shape::contents(&self.graph, &op, inputs, &types);
        Ok(self.push(op, inputs, names, origin, types, ints))
    }

    /// Adds a node whose outputs have the given dtypes and shapes; `None` extents become fresh
    /// late symbols, or numbers ([`GraphBuilder::with_late`]). Contents that follow all the same (a fill's) become
    /// known.
    pub fn node_with_shapes(
        &mut self,
        op: Op,
        inputs: &[ValueId],
        outputs: &[(&str, DType, Vec<Option<Dim>>)],
        origin: &Origin,
    ) -> Vec<ValueId> {
        let mut types = Vec::new();
        let first = self.graph.values.len() as u32;
        for (o, (name, dtype, shape)) in outputs.iter().enumerate() {
            let mut dims = Vec::new();
            for (axis, d) in shape.iter().enumerate() {
                dims.push(match d {
                    Some(d) => d.clone(),
                    None => {
                        let mut s = format!("{name}.d{axis}");
                        while self.declared.contains(s.as_str()) {
                            s.push('_');
                        }
                        let source = SymbolSource::Late {
                            value: ValueId(first + o as u32),
                            axis: axis as u32,
                        };
                        self.declare(s.as_str().into(), source);
                        Dim::sym(&s)
                    }
                });
            }
            types.push((*dtype, dims));
        }
        let names: Vec<&str> = outputs.iter().map(|o| o.0).collect();
        let ints = shape::contents(&self.graph, &op, inputs, &types);
        let made = self.push(op, inputs, &names, origin, types, ints);
        made.into_iter().map(|v| self.bound(v, origin)).collect()
    }

    /// `v` with numbers for those of its late symbols that have some.
    fn bound(&mut self, v: ValueId, origin: &Origin) -> ValueId {
        let late = self.late.clone();
        let value = self.graph.value(v);
        let number = |d: &Dim| late.get(d.as_sym()?).map(|&n| Dim::Known(n));
        let shape = value.shape.iter();
        let shape: Vec<Dim> = shape
            .map(|d| number(d).unwrap_or_else(|| d.clone()))
            .collect();
        // Texts have no views.
        if shape == value.shape || value.dtype.is_held() {
            return v;
        }
        let (name, dtype, from) = (value.name.clone(), value.dtype, value.shape.clone());
        for (d, n) in from.iter().zip(&shape) {
            self.assume(&origin.name, d, n);
        }
        let name = format!("{name}.sized");
        let view = Op::View(crate::View::Reshape(shape.clone()));
        self.push(
            view,
            &[v],
            &[&name],
            origin,
            vec![(dtype, shape)],
            vec![None],
        )[0]
    }

    fn push(
        &mut self,
        op: Op,
        inputs: &[ValueId],
        names: &[&str],
        origin: &Origin,
        types: Vec<(DType, Vec<Dim>)>,
        ints: Vec<Option<Vec<Dim>>>,
    ) -> Vec<ValueId> {
        let n = NodeId(self.graph.nodes.len() as u32);
        let mut outputs = Vec::new();
        for (o, ((dtype, shape), ints)) in types.into_iter().zip(ints).enumerate() {
            let name = names.get(o).copied().unwrap_or("");
            let name = if name.is_empty() {
                format!("{}.{o}", origin.name)
            } else {
                name.to_string()
            };
            outputs.push(self.add_value(&name, dtype, shape, ValueSource::Node(n, o as u32), ints));
        }
        self.graph.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            origins: vec![origin.clone()],
        });
        outputs
    }

    /// Notes that the graph is the model only where `left` and `right` are equal.
    pub fn assume(&mut self, node: &str, left: &Dim, right: &Dim) {
        self.assumptions.add(node, left, right);
    }

    /// The shape of `a` and `b` broadcast against each other. Where one of two extents that cannot
    /// be told apart stands for both, that they are equal is an assumption of `node`'s.
    ///
    /// # Errors
    /// Two numbers that differ, neither of which is 1.
    pub fn broadcast(&mut self, node: &str, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, String> {
        let mut relied = ReliedEqualities::default();
        let shape = relied.broadcast(a, b)?;
        for (left, right) in relied.0 {
            self.assume(node, &left, &right);
        }
        Ok(shape)
    }

    /// Declares the outputs and gives the graph, with what its shapes rely on as assumptions.
    pub fn finish(mut self, outputs: &[ValueId]) -> Graph {
        self.graph.outputs = outputs.to_vec();
        self.graph.assumptions = std::mem::take(&mut self.assumptions).of(&self.graph);
        self.graph
    }
}

impl Op {
    /// Name for people and text forms.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Map(_) => "map",
            Op::View(View::Reshape(_)) => "reshape",
            Op::View(View::Permute(_)) => "permute",
            Op::View(View::Slice { .. }) => "slice",
            Op::View(View::Expand(_)) => "expand",
            Op::Concat { .. } => "concat",
            Op::Pad { .. } => "pad",
            Op::Gather { .. } => "gather",
            Op::ScatterNd(_) => "scatter_nd",
            Op::Contract(_) => "contract",
            Op::Conv(_) => "conv",
            Op::Pool(_) => "pool",
            Op::Reduce { .. } => "reduce",
            Op::Scan { .. } => "scan",
            Op::Attention(_) => "attention",
            Op::Recurrent(_) => "recurrent",
            Op::Sort { .. } => "sort",
            Op::Resample(_) => "resample",
            Op::Kernel(_) => "kernel",
            Op::Host { .. } => "host",
            Op::If { .. } => "if",
            Op::Loop { .. } => "loop",
        }
    }
}

use crate::View;
