//! Reading the text form.
use super::cursor::{Cursor, dims, split};
use super::ops;
use crate::shape::MAX_RANK;
use crate::verify::MAX_NESTING;
use crate::{
    Assumption, Graph, GraphError, Node, NodeId, Op, Origin, Symbol, SymbolSource, Value, ValueId,
    ValueSource,
};
use layout::{DType, Dim};
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

/// Bytes that constants without given contents may take together.
const MAX_ZEROS: usize = 1 << 28;

impl Graph {
    /// Reads [`Graph::to_text`]'s form. Constants whose contents the text does not show are zeros
    /// (at most 256 MiB of them); attach the real ones with [`Graph::parse_with`]. The result is
    /// not verified.
    pub fn parse(text: &str) -> Result<Graph, GraphError> {
        let mut r = Reader::new(text);
        let mut g = r.body(0)?;
        r.end()?;
        let store = Arc::new(r.constants()?);
        attach(&mut g, &store);
        Ok(g)
    }

    /// Reads the text form with constants taken from `weights` by number; [`Graph::verify`] tells
    /// when they do not fit.
    pub fn parse_with(text: &str, weights: Arc<WeightStore>) -> Result<Graph, GraphError> {
        let mut r = Reader::new(text);
        let mut g = r.body(0)?;
        r.end()?;
        attach(&mut g, &weights);
        Ok(g)
    }
}

fn attach(g: &mut Graph, weights: &Arc<WeightStore>) {
    g.weights = weights.clone();
    for n in &mut g.nodes {
        match &mut n.op {
            Op::If {
                then_branch,
                else_branch,
            } => {
                attach(then_branch, weights);
                attach(else_branch, weights);
            }
            Op::Loop { body, .. } => attach(body, weights),
            _ => {}
        }
    }
}

struct Constant {
    line: usize,
    name: String,
    dtype: DType,
    shape: Vec<Dim>,
    contents: Option<String>,
}

struct Reader<'a> {
    /// Lines that hold something, with their numbers.
    lines: Vec<(usize, &'a str)>,
    at: usize,
    constants: BTreeMap<u32, Constant>,
}

type Typed = (String, DType, Vec<Dim>, Option<Vec<Dim>>);

fn typed(c: &mut Cursor) -> Result<Typed, String> {
    let name = c.value()?;
    c.expect(":")?;
    let word = c.key()?;
    let dtype = DType::from_name(word).ok_or_else(|| format!("'{word}' is no element type"))?;
    let shape = c.dims()?;
    if shape.len() > MAX_RANK {
        return Err(format!("more than {MAX_RANK} dimensions"));
    }
    let ints = match c.rest.starts_with('{') {
        true => Some(dims(c.enclosed('{', '}')?)?),
        false => None,
    };
    Ok((name, dtype, shape, ints))
}

/// A graph while its lines are read.
struct Partial {
    graph: Graph,
    names: BTreeMap<String, ValueId>,
    /// Late symbols whose value may come later: symbol number and name.
    late: Vec<(usize, String)>,
}

impl Partial {
    fn add(&mut self, t: Typed, source: ValueSource) -> Result<ValueId, String> {
        let id = ValueId(self.graph.values.len() as u32);
        let (name, dtype, shape, ints) = t;
        if self.names.insert(name.clone(), id).is_some() {
            return Err(format!("%{name} is defined twice"));
        }
        self.graph.values.push(Value {
            name,
            dtype,
            shape,
            source,
            ints,
        });
        Ok(id)
    }

    fn find(&self, name: &str) -> Result<ValueId, String> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| format!("%{name} is not defined before"))
    }

    fn find_list(&self, c: &mut Cursor) -> Result<Vec<ValueId>, String> {
        let mut ids = Vec::new();
        if c.peek("%") {
            ids.push(self.find(&c.value()?)?);
            while c.eat(",") {
                ids.push(self.find(&c.value()?)?);
            }
        }
        Ok(ids)
    }
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Reader<'a> {
        let lines = text
            .lines()
            .enumerate()
            .map(|(i, l)| (i + 1, l.trim()))
            .filter(|(_, l)| !l.is_empty() && !l.starts_with('#'))
            .collect();
        Reader {
            lines,
            at: 0,
            constants: BTreeMap::new(),
        }
    }

    fn next(&mut self) -> Result<(usize, &'a str), GraphError> {
        let l = self.lines.get(self.at).copied();
        self.at += 1;
        l.ok_or_else(|| GraphError::Text {
            line: self.lines.last().map_or(0, |l| l.0),
            why: "the text ends before 'output'".into(),
        })
    }

    fn end(&self) -> Result<(), GraphError> {
        match self.lines.get(self.at) {
            None => Ok(()),
            Some((line, _)) => Err(GraphError::Text {
                line: *line,
                why: "nothing may follow 'output'".into(),
            }),
        }
    }

    fn body(&mut self, depth: usize) -> Result<Graph, GraphError> {
        let (line, text) = self.next()?;
        let fail = |why: String| GraphError::Text { line, why };
        if depth > MAX_NESTING {
            return Err(fail(format!("bodies are nested deeper than {MAX_NESTING}")));
        }
        let mut c = Cursor::new(text);
        c.expect("graph").map_err(fail)?;
        let name = c.word(None).map_err(fail)?;
        let mut p = Partial {
            graph: Graph {
                name,
                values: vec![],
                nodes: vec![],
                inputs: vec![],
                outputs: vec![],
                symbols: vec![],
                assumptions: vec![],
                weights: Arc::new(WeightStore::new()),
            },
            names: BTreeMap::new(),
            late: vec![],
        };
        loop {
            let (line, text) = self.next()?;
            let fail = |why: String| GraphError::Text { line, why };
            let mut c = Cursor::new(text);
            if text.starts_with('%') || text.starts_with('=') {
                let bodies = self.node(&mut p, &mut c).map_err(fail)?;
                self.bodies(&mut p, bodies, depth)?;
                continue;
            }
            let done = self.entry(&mut p, line, &mut c).map_err(fail)?;
            if !c.at_end() {
                return Err(fail(format!("'{}' cannot be read", c.rest)));
            }
            if done {
                break;
            }
        }
        for (s, name) in std::mem::take(&mut p.late) {
            let id = p.find(&name).map_err(fail)?;
            if let SymbolSource::Late { value, .. } = &mut p.graph.symbols[s].source {
                *value = id;
            }
        }
        Ok(p.graph)
    }

    /// A line that is no node; true at the last one.
    fn entry(&mut self, p: &mut Partial, line: usize, c: &mut Cursor) -> Result<bool, String> {
        match c.key()? {
            "symbol" => {
                let name = c.word(None)?;
                c.expect("=")?;
                let source = match c.key()? {
                    "input" => {
                        let input = c.number()?;
                        c.expect("axis")?;
                        SymbolSource::Input {
                            input,
                            axis: c.number()?,
                        }
                    }
                    "late" => {
                        p.late.push((p.graph.symbols.len(), c.value()?));
                        c.expect("axis")?;
                        SymbolSource::Late {
                            value: ValueId(0),
                            axis: c.number()?,
                        }
                    }
                    other => return Err(format!("a symbol is no '{other}'")),
                };
                p.graph.symbols.push(Symbol {
                    name: name.as_str().into(),
                    source,
                });
            }
            "assume" => {
                let dim = |t: &str| {
                    t.trim()
                        .parse::<Dim>()
                        .map_err(|e| format!("'{t}' is no dimension: {e}"))
                };
                let left = dim(c.take(|x| x != '='))?;
                c.expect("=")?;
                let right = dim(c.take(|x| x != '#'))?;
                c.expect("#")?;
                p.graph.assumptions.push(Assumption {
                    node: c.word(None)?,
                    left,
                    right,
                });
            }
            "input" => {
                let n = p.graph.inputs.len() as u32;
                let id = p.add(typed(c)?, ValueSource::Input(n))?;
                p.graph.inputs.push(id);
            }
            "weight" => {
                let mut t = typed(c)?;
                c.expect("@")?;
                let id: u32 = c.number()?;
                if id >= 1 << 20 {
                    return Err(format!("constant number {id} is too large"));
                }
                let contents = c.eat("=").then(|| std::mem::take(&mut c.rest).to_string());
                if !t.1.is_float()
                    && let Some(text) = &contents
                {
                    t.3 = Some(dims(text)?);
                }
                if t.3.is_none() && !t.1.is_float() && t.2.contains(&Dim::ZERO) {
                    t.3 = Some(vec![]);
                }
                let constant = Constant {
                    line,
                    name: t.0.clone(),
                    dtype: t.1,
                    shape: t.2.clone(),
                    contents,
                };
                // Bodies may name the same constant again.
                let slot = self.constants.entry(id).or_insert(constant);
                if slot.dtype != t.1 || slot.shape != t.2 {
                    return Err(format!(
                        "constant {id} has another type on line {}",
                        slot.line
                    ));
                }
                p.add(t, ValueSource::Weight(id))?;
            }
            "output" => {
                p.graph.outputs = p.find_list(c)?;
                return Ok(true);
            }
            other => return Err(format!("no line starts with '{other}'")),
        }
        Ok(false)
    }

    /// Reads a node's line; gives how many bodies follow.
    fn node(&mut self, p: &mut Partial, c: &mut Cursor) -> Result<usize, String> {
        let mut outs = Vec::new();
        while !c.peek("=") {
            if !outs.is_empty() {
                c.expect(",")?;
            }
            outs.push(typed(c)?);
        }
        c.expect("=")?;
        let op = ops::read(c)?;
        let bodies = match op {
            Op::If { .. } => 2,
            Op::Loop { .. } => 1,
            _ => 0,
        };
        let inputs = p.find_list(c)?;
        if bodies > 0 {
            c.expect("{")?;
        }
        let mut origins = Vec::new();
        if c.eat("#") {
            while !c.at_end() {
                let name = c.word(Some(':'))?;
                c.expect(":")?;
                origins.push(Origin {
                    name,
                    op_type: c.word(None)?,
                });
            }
        }
        if !c.at_end() {
            return Err(format!("'{}' cannot be read", c.rest));
        }
        let n = NodeId(p.graph.nodes.len() as u32);
        let mut outputs = Vec::new();
        for (o, t) in outs.into_iter().enumerate() {
            outputs.push(p.add(t, ValueSource::Node(n, o as u32))?);
        }
        p.graph.nodes.push(Node {
            op,
            inputs,
            outputs,
            origins,
        });
        Ok(bodies)
    }

    fn bodies(&mut self, p: &mut Partial, n: usize, depth: usize) -> Result<(), GraphError> {
        let mut graphs = Vec::new();
        for i in 0..n {
            graphs.push(self.body(depth + 1)?);
            let (line, text) = self.next()?;
            let want = if i + 1 < n { "} {" } else { "}" };
            if text != want {
                return Err(GraphError::Text {
                    line,
                    why: format!("expected '{want}' after a body"),
                });
            }
        }
        let mut graphs = graphs.into_iter();
        if let Some(node) = p.graph.nodes.last_mut() {
            match &mut node.op {
                Op::If {
                    then_branch,
                    else_branch,
                } => {
                    for b in [then_branch, else_branch] {
                        if let Some(g) = graphs.next() {
                            **b = g;
                        }
                    }
                }
                Op::Loop { body, .. } => {
                    if let Some(g) = graphs.next() {
                        **body = g;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The store that the text describes; numbers that it skips are empty.
    fn constants(&self) -> Result<WeightStore, GraphError> {
        let mut store = WeightStore::new();
        let mut left = MAX_ZEROS;
        for (&id, k) in &self.constants {
            while store.len() < id as usize {
                store.add_tensor("", Tensor::zeros(DType::U8, &[0])?)?;
            }
            let fail = |why: String| GraphError::Text { line: k.line, why };
            let shape: Option<Vec<usize>> = k
                .shape
                .iter()
                .map(|d| d.known().and_then(|d| usize::try_from(d).ok()))
                .collect();
            let shape = shape.ok_or_else(|| fail("a constant has a symbolic shape".into()))?;
            let bytes = Tensor::byte_len(k.dtype, &shape)?;
            left = left.checked_sub(bytes).ok_or_else(|| {
                fail(format!(
                    "constants without contents take more than {MAX_ZEROS} bytes; give the weights"
                ))
            })?;
            let mut t = Tensor::zeros(k.dtype, &shape)?;
            if let Some(text) = &k.contents {
                let parts = split(text);
                if parts.len() != t.len() {
                    return Err(fail(format!(
                        "{} contents for {} elements",
                        parts.len(),
                        t.len()
                    )));
                }
                for (i, p) in parts.into_iter().enumerate() {
                    let p = p.trim();
                    let bad = |_| fail(format!("'{p}' is no {}", k.dtype));
                    match k.dtype.is_float() {
                        true => t.set_f64(i, p.parse::<f64>().map_err(|_| bad(()))?),
                        false => t.set_i64(i, p.parse::<i64>().map_err(|_| bad(()))?),
                    }
                }
            }
            store.add_tensor(&k.name, t)?;
        }
        Ok(store)
    }
}
