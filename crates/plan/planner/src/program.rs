//! From a graph to a program: groups in order, each lowered to a kernel or a host item.
use crate::fuse;
use crate::kernels::{ConcatPlaces, Lowering, Result, copy_kernel, row_major};
use crate::located::Located;
use crate::{PlannerError, Precision};
use graph::{Graph, Op, SymbolSource, ValueId};
use layout::Inserted;
use layout::{Dim, Layout};
use plan::{
    Batch, Fate, NodeFate, Program, ProgramSymbol, ProgramValue, Segment, StatePair, SymbolOrigin,
    ValueIx, ValueOrigin,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a program is made for beside its graph.
#[derive(Clone, Debug, Default)]
pub struct ProgramOptions {
    /// How exactly products of f32 are multiplied.
    pub precision: Precision,
    /// Inputs and outputs that carry state from request to request, by name.
    pub states: Vec<(String, String)>,
    /// Every node of the model (name, operator type), for the account of what became of it.
    pub model_nodes: Vec<(String, String)>,
}

/// Lowers a graph (after `rewrite`) to fused kernels with symbolic dims.
pub fn program(graph: &Graph, options: &ProgramOptions) -> Result<Program> {
    let mut program = lower(graph, options)?;
    program.batches = batches(graph);
    Ok(program)
}

/// Symbols that the first output has as extents, with what is against joining requests along them.
fn batches(graph: &Graph) -> Vec<Batch> {
    let first = graph.outputs.first().map(|&v| &graph.value(v).shape);
    let symbols = first.into_iter().flatten().filter_map(Dim::as_sym);
    let of = |symbol: &str| Batch {
        symbol: symbol.into(),
        crosses: graph.items_apart(symbol).err(),
    };
    symbols.map(of).collect()
}

pub(crate) fn lower(graph: &Graph, options: &ProgramOptions) -> Result<Program> {
    let mut whys = Vec::new();
    let mut savings = Vec::new();
    let groups = fuse::groups(graph, &mut whys, &mut savings);
    let mut is_output = vec![false; graph.values.len()];
    for o in &graph.outputs {
        is_output[o.0 as usize] = true;
    }
    let mut grouped = vec![false; graph.nodes.len()];
    for n in groups.iter().flat_map(|g| &g.nodes) {
        grouped[n.0 as usize] = true;
    }
    let concats = ConcatPlaces::new(graph, &groups, &is_output);
    let mut lowering = Lowering {
        graph,
        program: Program {
            name: graph.name.clone(),
            symbols: vec![],
            values: vec![],
            inputs: vec![],
            outputs: vec![],
            init: vec![],
            segments: vec![],
            states: vec![],
            constraints: vec![],
            batches: vec![],
            savings,
            precision: options.precision,
            passed: vec![],
            fates: vec![],
            whys,
            weights: graph.weights.clone(),
        },
        constrained: BTreeSet::new(),
        located: vec![None; graph.values.len()],
        is_output,
        per_request: false,
        dims: Default::default(),
        grouped,
        concats,
        readers: graph.readers(),
        names: Default::default(),
    };
    for (i, &v) in graph.inputs.iter().enumerate() {
        let value = graph.value(v);
        let layout = Layout::ordered(&value.shape, &row_major(value.shape.len()), 1);
        let ix = lowering.program.values.len() as u32;
        lowering.names.insert(value.name.clone(), 1);
        lowering.program.values.push(ProgramValue {
            name: value.name.clone(),
            dtype: value.dtype,
            shape: value.shape.clone(),
            layout: layout.clone(),
            storage: value.size(),
            origin: ValueOrigin::Input(i as u32),
        });
        lowering.program.inputs.push(ix);
        lowering.located[v.0 as usize] = Some(Located { ix, layout });
    }
    for a in &graph.assumptions {
        lowering.constrain(&a.node, &a.left, &a.right);
    }
    for g in &groups {
        lowering.group(g)?;
    }
    outputs(&mut lowering)?;
    symbols(&mut lowering);
    let inputs = graph.inputs.iter().enumerate();
    let inputs: BTreeMap<&str, usize> = inputs
        .map(|(i, &v)| (graph.value(v).name.as_str(), i))
        .inserted();
    let outputs = graph.outputs.iter().enumerate();
    let outputs: BTreeMap<&str, usize> = outputs
        .map(|(o, &v)| (graph.value(v).name.as_str(), o))
        .inserted();
    for (input, output) in &options.states {
        let (i, o) = (inputs.get(input.as_str()), outputs.get(output.as_str()));
        if let (Some(&i), Some(&o)) = (i, o) {
            lowering.program.states.push(StatePair {
                input: i as u32,
                output: o as u32,
            });
        }
    }
    let (mut program, mut dims) = (lowering.program, lowering.dims);
    for v in &mut program.values {
        v.shape.iter_mut().for_each(|d| dims.share(d));
        dims.share(&mut v.storage);
    }
    short_names(&mut program);
    program.lead_in();
    program.fates = fates(graph, &program, options);
    unique_names(&mut program);
    Ok(program)
}

/// Every output gets a program value of its own, dense and row-major.
fn outputs(lowering: &mut Lowering) -> Result<()> {
    let graph = lowering.graph;
    let mut taken: BTreeSet<u32> = BTreeSet::new();
    for &v in &graph.outputs {
        let mut ix = lowering.dense(v)?;
        let made = matches!(lowering.program.value(ix).origin, ValueOrigin::Made);
        if !made || !taken.insert(ix) {
            let from = lowering.locate(v)?;
            let rank = lowering.shape(v).len();
            let to = lowering.new_value(
                &format!("{}.copy", lowering.name(v)),
                lowering.dtype(v),
                lowering.shape(v),
                &row_major(rank),
            );
            let nodes: Vec<String> = match graph.producer(v) {
                Some(n) => n.origins.iter().map(|o| o.name.clone()).collect(),
                None => vec![],
            };
            if lowering.dtype(v).is_held() {
                let item = plan::Item {
                    name: format!("{}.copy", lowering.name(v)),
                    work: plan::ItemWork::Host {
                        op: plan::HostOp {
                            name: "Identity".into(),
                            attrs: Default::default(),
                            reason: "texts and sequences are held by the host".into(),
                            made: Default::default(),
                        }
                        .into(),
                        inputs: vec![Some(ix)],
                        outputs: vec![to.ix],
                    },
                    nodes,
                    given: None,
                };
                lowering.program.segments.push(Segment::Late(item));
                let name = graph.value(v).name.clone();
                lowering.program.outputs.push((name, to.ix));
                taken.insert(to.ix);
                continue;
            }
            // A copy of a constant must run for every request: the output is the caller's memory.
            let (kernel, args) = copy_output(lowering, &from, &to, v)?;
            lowering.push(plan::Item {
                name: kernel.name.clone(),
                work: plan::ItemWork::Kernel {
                    kernel: kernel.into(),
                    args,
                },
                nodes,
                given: None,
            });
            ix = to.ix;
            taken.insert(ix);
        }
        lowering
            .program
            .outputs
            .push((graph.value(v).name.clone(), ix));
    }
    Ok(())
}

fn symbols(lowering: &mut Lowering) {
    let graph = lowering.graph;
    let mut used = BTreeSet::new();
    for v in &lowering.program.values {
        v.shape.iter().for_each(|d| d.symbols(&mut used));
    }
    for c in &lowering.program.constraints {
        c.left.symbols(&mut used);
        c.right.symbols(&mut used);
    }
    let mut declared = BTreeSet::new();
    for s in &graph.symbols {
        declared.insert(s.name.clone());
        let origin = match s.source {
            SymbolSource::Input { input, axis } => SymbolOrigin::Input { input, axis },
            SymbolSource::Late { value, axis } => match &lowering.located[value.0 as usize] {
                Some(l) => SymbolOrigin::Late { value: l.ix, axis },
                None => continue,
            },
        };
        lowering.program.symbols.push(ProgramSymbol {
            name: s.name.clone(),
            origin,
        });
    }
    for name in used.difference(&declared) {
        lowering.program.symbols.push(ProgramSymbol {
            name: name.clone(),
            origin: SymbolOrigin::Outer,
        });
    }
}

/// What became of every node of the model.
fn fates(graph: &Graph, program: &Program, options: &ProgramOptions) -> Vec<NodeFate> {
    let mut items: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut control: BTreeSet<&str> = BTreeSet::new();
    let straight = program.segments.iter().flat_map(Segment::items);
    for item in program.init.iter().chain(straight) {
        for n in &item.nodes {
            items.entry(n).or_default().push(item.name.clone());
        }
    }
    for s in &program.segments {
        if let Segment::If { node, .. } | Segment::Loop { node, .. } = s {
            control.insert(node);
        }
    }
    let mut views: BTreeSet<&str> = BTreeSet::new();
    let mut inner: BTreeSet<String> = BTreeSet::new();
    collect(graph, &mut views, &mut inner);
    options
        .model_nodes
        .iter()
        .map(|(node, op_type)| {
            let fate = if let Some(i) = items.get(node.as_str()) {
                Fate::Items(i.clone())
            } else if control.contains(node.as_str()) || inner.contains(node) {
                Fate::Control
            } else if views.contains(node.as_str()) {
                Fate::View
            } else {
                Fate::Folded
            };
            NodeFate {
                node: node.clone(),
                op_type: op_type.clone(),
                fate,
            }
        })
        .collect()
}

fn collect<'a>(graph: &'a Graph, views: &mut BTreeSet<&'a str>, inner: &mut BTreeSet<String>) {
    for n in &graph.nodes {
        match &n.op {
            Op::View(_) => views.extend(n.origins.iter().map(|o| o.name.as_str())),
            Op::If {
                then_branch,
                else_branch,
            } => {
                for g in [then_branch, else_branch] {
                    inner.extend(
                        g.nodes
                            .iter()
                            .flat_map(|n| n.origins.iter().map(|o| o.name.clone())),
                    );
                }
            }
            Op::Loop { body, .. } => {
                inner.extend(
                    body.nodes
                        .iter()
                        .flat_map(|n| n.origins.iter().map(|o| o.name.clone())),
                );
            }
            _ => {}
        }
    }
}

/// Longest name of an item, in bytes: one that stands for very many nodes does not name them all.
const MAX_NAME: usize = 1024;

fn items(program: &mut Program) -> impl Iterator<Item = &mut plan::Item> {
    let straight = program.segments.iter_mut().flat_map(|s| match s {
        Segment::Straight(i) => i.iter_mut(),
        Segment::Late(i) => std::slice::from_mut(i).iter_mut(),
        _ => Default::default(),
    });
    program.init.iter_mut().chain(straight)
}

fn short_names(program: &mut Program) {
    for name in items(program).map(|i| &mut i.name) {
        if name.len() > MAX_NAME {
            let end = (0..=MAX_NAME).rfind(|&at| name.is_char_boundary(at));
            name.truncate(end.unwrap_or(0));
            name.push_str("...");
        }
    }
}

/// Items get names that tell them apart.
fn unique_names(program: &mut Program) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for item in items(program) {
        if item.name.is_empty() {
            item.name = "step".into();
        }
        let n = seen.entry(item.name.clone()).or_insert(0);
        *n += 1;
        if *n > 1 {
            item.name = format!("{} #{n}", item.name);
        }
        if let plan::ItemWork::Kernel { kernel, .. } = &mut item.work {
            Arc::make_mut(kernel).name = item.name.clone();
        }
    }
}

/// A copy of graph value `v` between two places of its shape.
fn copy_output(
    l: &Lowering,
    from: &Located,
    to: &Located,
    v: ValueId,
) -> Result<(kernel::Kernel, Vec<ValueIx>)> {
    copy_kernel(&format!("copy {}", l.name(v)), l.dtype(v), from, to).ok_or_else(|| {
        PlannerError::Node {
            node: l.name(v).into(),
            op: "output".into(),
            why: "its layout does not fit the output's; give its symbolic dimensions sizes with --dim".into(),
        }
    })
}
