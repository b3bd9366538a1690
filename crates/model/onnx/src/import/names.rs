//! Names of the whole model, branches that are not taken and functions that are not called
//! included: each is defined once, and before it is read.
use super::ImportError;
use crate::proto::{AttributeValue, DataType, Function, Graph, Model, Node, Type, ValueInfo};
use std::collections::{HashMap, HashSet};

/// Names that are defined where the walk is, by how many scopes define them: a body's own inputs
/// and initialisers may have the name of an outer value.
struct Walk<'m> {
    file: &'m str,
    defined: HashMap<&'m str, usize>,
}

/// What one graph or function defines.
type Own<'m> = HashSet<&'m str>;

/// Refuses a model with a name that is defined twice, or read and not defined.
pub(super) fn check(file: &str, model: &Model) -> Result<(), ImportError> {
    let mut functions = HashSet::new();
    for f in &model.functions {
        if !functions.insert((&f.domain, &f.name, &f.overload)) {
            let name = match f.overload.as_str() {
                "" => format!("{}:{}", f.domain, f.name),
                o => format!("{}:{}:{o}", f.domain, f.name),
            };
            return Err(twice(file, &format!("function '{name}'")));
        }
        Walk::new(file).function(f)?;
    }
    Walk::new(file).graph(&model.graph)
}

fn twice(file: &str, what: &str) -> ImportError {
    ImportError::Model {
        file: file.into(),
        why: format!("{what} is defined twice; export the model again"),
    }
}

impl<'m> Walk<'m> {
    fn new(file: &'m str) -> Walk<'m> {
        Walk {
            file,
            defined: HashMap::new(),
        }
    }

    fn graph(&mut self, g: &'m Graph) -> Result<(), ImportError> {
        let mut own = Own::new();
        for i in &g.inputs {
            self.define(&mut own, "input", &i.name)?;
        }
        // An initialiser of an input's name is its default.
        let inputs = own.clone();
        let dense = g.initializers.iter().map(|t| t.name.as_str());
        let sparse = g.sparse_initializers.iter().map(|s| s.values.name.as_str());
        let mut weights = Own::new();
        for name in dense.chain(sparse) {
            if !weights.insert(name) {
                return Err(twice(self.file, &format!("initialiser '{name}'")));
            }
            if !inputs.contains(name) {
                self.define(&mut own, "initialiser", name)?;
            }
        }
        self.defaults(g)?;
        self.nodes(&g.nodes, &mut own)?;
        if let Some(o) = g.outputs.iter().find(|o| !self.is_defined(&o.name)) {
            return Err(ImportError::Model {
                file: self.file.into(),
                why: format!(
                    "output '{}' of graph '{}' is never computed; export the model again",
                    o.name, g.name
                ),
            });
        }
        self.leave(&own);
        Ok(())
    }

    /// An input and its default have one type.
    fn defaults(&self, g: &Graph) -> Result<(), ImportError> {
        let stated = |i: &ValueInfo| match &i.ty {
            Some(Type::Tensor(t)) if t.dtype != 0 => Some(t.dtype),
            _ => None,
        };
        let types: HashMap<&str, i32> = g
            .inputs
            .iter()
            .filter_map(|i| Some((i.name.as_str(), stated(i)?)))
            .collect();
        let name = |code: i32| DataType::from_code(code).map_or("of no type", DataType::name);
        let wrong = g.initializers.iter().find_map(|t| {
            let d = *types.get(t.name.as_str())?;
            (d != t.dtype).then(|| {
                format!(
                    "initialiser '{}' is {}, and the input of its name {}; export the model again",
                    t.name,
                    name(t.dtype),
                    name(d)
                )
            })
        });
        match wrong {
            None => Ok(()),
            Some(why) => Err(ImportError::Model {
                file: self.file.into(),
                why,
            }),
        }
    }

    fn function(&mut self, f: &'m Function) -> Result<(), ImportError> {
        let mut own = Own::new();
        for i in &f.inputs {
            self.define(&mut own, "input", i)?;
        }
        self.nodes(&f.nodes, &mut own)
    }

    fn nodes(&mut self, nodes: &'m [Node], own: &mut Own<'m>) -> Result<(), ImportError> {
        for n in nodes {
            if let Some(i) = n
                .inputs
                .iter()
                .find(|i| !i.is_empty() && !self.is_defined(i))
            {
                return Err(self.node(
                    n,
                    format!("reads '{i}', which nothing before it defines; export the model again"),
                ));
            }
            for a in &n.attributes {
                match &a.value {
                    AttributeValue::Graph(g) => self.graph(g)?,
                    AttributeValue::Graphs(all) => all.iter().try_for_each(|g| self.graph(g))?,
                    _ => {}
                }
            }
            for o in n.outputs.iter().filter(|o| !o.is_empty()) {
                if self.is_defined(o) {
                    return Err(self.node(
                        n,
                        format!(
                            "defines '{o}', which is defined before it; export the model again"
                        ),
                    ));
                }
                self.define(own, "value", o)?;
            }
        }
        Ok(())
    }

    fn is_defined(&self, name: &str) -> bool {
        self.defined.get(name).is_some_and(|n| *n > 0)
    }

    fn define(&mut self, own: &mut Own<'m>, what: &str, name: &'m str) -> Result<(), ImportError> {
        if !own.insert(name) {
            return Err(twice(self.file, &format!("{what} '{name}'")));
        }
        *self.defined.entry(name).or_default() += 1;
        Ok(())
    }

    fn leave(&mut self, own: &Own<'m>) {
        for name in own {
            if let Some(n) = self.defined.get_mut(name) {
                *n -= 1;
            }
        }
    }

    fn node(&self, n: &Node, why: String) -> ImportError {
        let node = match n.name.as_str() {
            "" => n.outputs.first().unwrap_or(&n.op_type),
            _ => &n.name,
        };
        ImportError::Node {
            file: self.file.into(),
            node: node.clone(),
            op: n.op_type.clone(),
            why,
        }
    }
}
