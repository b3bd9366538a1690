//! Functions, inlined branches and bodies that stay graphs of their own.
use super::ctx::{Call, Scope};
use super::{Ctx, Item, Kind, Lowered, NodeView};
use crate::proto::{Function, Graph, ValueInfo};
use ::graph::{Op, ValueId, View};
use layout::{DType, Dim};
use std::collections::BTreeMap;

/// An input of a body that the control operator itself feeds.
pub(crate) struct BodyInput {
    pub dtype: DType,
    pub shape: Vec<Dim>,
    pub ints: Option<Vec<Dim>>,
    /// What a held value holds.
    pub kind: Option<Kind>,
    /// The type that its elements code.
    pub narrow: Option<&'static str>,
    /// What the body sees added to it.
    pub plus: i64,
}

impl<'m> Ctx<'m> {
    /// Inlines a call of a function of the model.
    pub fn call(&mut self, n: &NodeView<'m>, f: &'m Function) -> Lowered {
        if n.inputs.len() > f.inputs.len() || n.outputs.len() > f.outputs.len() {
            return Err(format!(
                "calls function '{}' with {} inputs and {} outputs, it has {} and {}",
                f.name,
                n.inputs.len(),
                n.outputs.len(),
                f.inputs.len(),
                f.outputs.len()
            )
            .into());
        }
        let mut attrs = BTreeMap::new();
        for d in &f.attribute_defaults {
            attrs.insert(d.name.as_str(), &d.value);
        }
        for (&k, &v) in &n.attrs {
            let known = f.attributes.iter().any(|a| a == k)
                || f.attribute_defaults.iter().any(|d| d.name == k);
            if !known {
                return Err(format!(
                    "attribute '{k}' is not one of function '{}'; remove it",
                    f.name
                )
                .into());
            }
            attrs.insert(k, v);
        }
        let mut scope = Scope {
            barrier: true,
            prefix: format!("{}/", n.origin.name),
            ..Scope::default()
        };
        for (i, name) in f.inputs.iter().enumerate() {
            match n.opt(i) {
                Some(v) => drop(scope.values.insert(name, Item::Value(v))),
                None => drop(scope.left_out.insert(name)),
            }
        }
        for (i, o) in f.outputs.iter().enumerate() {
            if n.wants(i) {
                scope.rename.insert(o, n.name(i));
            }
        }
        self.frame().scopes.push(scope);
        self.calls.push(Call {
            attrs,
            opsets: &f.opset_imports,
        });
        let outs = self
            .nodes(&f.nodes)
            .and_then(|()| self.results(f.outputs.iter().map(String::as_str)));
        self.calls.pop();
        self.frame().scopes.pop();
        self.finish_inlined(n, outs?)
    }

    fn results(&mut self, names: impl Iterator<Item = &'m str>) -> Lowered<Vec<Item>> {
        names.map(|o| self.lookup(o)).collect()
    }

    fn finish_inlined(&mut self, n: &NodeView<'m>, outs: Vec<Item>) -> Lowered {
        for (i, item) in outs.into_iter().enumerate() {
            let Some(&name) = n.outputs.get(i).filter(|o| !o.is_empty()) else {
                continue;
            };
            self.bind(name, item);
        }
        Ok(())
    }

    /// Lowers a body in place of its node, on these values; gives its outputs, or nothing when one depends on an
    /// unsupported node. `prefix` tells its nodes from those of other rounds.
    pub fn inline_body(
        &mut self,
        g: &'m Graph,
        prefix: String,
        inputs: &[ValueId],
    ) -> Lowered<Option<Vec<ValueId>>> {
        let mut scope = self.scope_of(g, prefix)?;
        for (f, &v) in Ctx::formals(g, inputs.len())?.iter().zip(inputs) {
            scope.values.insert(&f.name, Item::Value(v));
        }
        let outs = self.inlined(g, scope)?;
        let value = |item| match item {
            Item::Value(v) => Some(v),
            Item::Poisoned => None,
        };
        Ok(outs.into_iter().map(value).collect())
    }

    /// Lowers a graph where it stands.
    fn inlined(&mut self, g: &'m Graph, scope: Scope<'m>) -> Lowered<Vec<Item>> {
        self.frame().scopes.push(scope);
        let outs = self
            .nodes(&g.nodes)
            .and_then(|()| self.results(g.outputs.iter().map(|o| o.name.as_str())));
        self.frame().scopes.pop();
        outs
    }

    /// The inputs of a body to which `count` values are fed.
    fn formals(g: &'m Graph, count: usize) -> Lowered<Vec<&'m ValueInfo>> {
        let formals = Ctx::real_inputs(g);
        match formals.len() == count {
            true => Ok(formals),
            false => Err(format!(
                "the body '{}' has {} inputs, {count} are fed",
                g.name,
                formals.len()
            )
            .into()),
        }
    }

    /// Lowers a branch in place of its node.
    pub fn inline_branch(&mut self, n: &NodeView<'m>, g: &'m Graph) -> Lowered {
        if g.outputs.len() < n.outputs.len() {
            return Err(format!(
                "the branch has {} outputs, the node {}",
                g.outputs.len(),
                n.outputs.len()
            )
            .into());
        }
        let mut scope = self.scope_of(g, format!("{}/", n.origin.name))?;
        for (i, o) in g.outputs.iter().enumerate() {
            if n.wants(i) {
                scope.rename.insert(&o.name, n.name(i));
            }
        }
        let outs = self.inlined(g, scope)?;
        self.finish_inlined(n, outs)
    }

    /// Begins a body: its own inputs first, then `captured` outer values. Lowers its nodes; gives
    /// its outputs, or nothing when one depends on an unsupported node. The frame stays.
    pub fn open_body(
        &mut self,
        n: &NodeView<'m>,
        g: &'m Graph,
        inputs: &[BodyInput],
        captured: &[ValueId],
    ) -> Lowered<Option<Vec<ValueId>>> {
        let scope = self.scope_of(g, String::new())?;
        let formals = Ctx::formals(g, inputs.len())?;
        self.push_frame(&format!("{}/{}", n.origin.name, g.name), scope);
        for (f, i) in formals.iter().zip(inputs) {
            let v = self.body_input(n, &f.name, i)?;
            self.bind(&f.name, Item::Value(v));
        }
        let at = self.frames.len() - 1;
        for &c in captured {
            // Its name in the body comes from the outer scopes when it is looked up.
            self.capture(at, c)?;
        }
        self.nodes(&g.nodes)?;
        let mut outs = Vec::new();
        for (i, o) in g.outputs.iter().enumerate() {
            match self.lookup(&o.name)? {
                // A value that is given twice is given under another name the second time.
                Item::Value(v) if outs.contains(&v) => {
                    let name = format!("{}.again{i}", self.value_name(v));
                    outs.push(self.rename(v, &name, &n.origin)?);
                }
                Item::Value(v) => outs.push(v),
                Item::Poisoned => return Ok(None),
            }
        }
        Ok(Some(outs))
    }

    /// Adds an input of the innermost body.
    pub fn body_input(&mut self, n: &NodeView<'m>, name: &str, i: &BodyInput) -> Lowered<ValueId> {
        let v = self
            .b()
            .input_with_ints(name, i.dtype, i.shape.clone(), i.ints.clone());
        if let Some(k) = &i.kind {
            self.set_kind(v, k.clone());
        }
        self.set_narrow(v, i.narrow);
        match i.plus {
            0 => Ok(v),
            plus => self.map(n, format!("{name}.from{plus}"), &[v], |e, a| {
                let plus = e.int(plus, i.dtype);
                e.add(a[0], plus)
            }),
        }
    }

    /// Ends the innermost body.
    pub fn close_body(&mut self, outputs: &[ValueId]) -> (::graph::Graph, Vec<ValueId>) {
        let Some(f) = self.frames.pop() else {
            let empty = ::graph::GraphBuilder::new("", Default::default());
            return (empty.finish(&[]), Vec::new());
        };
        let mut g = f.b.finish(outputs);
        // Put back at the end, so that the store can grow without being copied.
        g.weights = Default::default();
        (g, f.captures.iter().map(|c| c.0).collect())
    }

    /// Gives up the innermost body.
    pub fn drop_body(&mut self) {
        self.frames.pop();
    }

    /// Whether a dimension of a body means something outside it.
    pub fn visible(&self, d: &Dim) -> bool {
        let mut used = Default::default();
        d.symbols(&mut used);
        let frames = self.frames.iter();
        used.iter().all(|s| frames.clone().any(|f| f.b.declares(s)))
    }

    /// Whether a dimension may change from round to round: a body's own input has it.
    pub fn changes_by_round(&self, d: &Dim) -> bool {
        let mut used = Default::default();
        d.symbols(&mut used);
        used.iter().any(|s| !self.frames[0].b.declares(s))
    }

    /// A node that gives `v` under the exact name `name`.
    pub fn rename(&mut self, v: ValueId, name: &str, origin: &::graph::Origin) -> Lowered<ValueId> {
        let shape = self.shape(v);
        if self.dtype(v).is_held() {
            // There are no bytes to view.
            let op = Op::Host {
                name: "Identity".into(),
                attrs: Default::default(),
            };
            let like = (name, self.dtype(v), shape.into_iter().map(Some).collect());
            let out = self.b().node_with_shapes(op, &[v], &[like], origin);
            return out
                .first()
                .copied()
                .ok_or_else(|| "a node has no output".into());
        }
        let out = self
            .b()
            .node(Op::View(View::Reshape(shape)), &[v], &[name], origin)?;
        out.first()
            .copied()
            .ok_or_else(|| "a view has no output".into())
    }
}
