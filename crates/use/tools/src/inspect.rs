//! What there is to know of a model before it is planned.
use kernel::{CpuMapping, Kernel, Mapping, Place, Schedule, TileProgram};
use layout::{Dim, Inserted};
use onnx::proto::{
    AttributeValue, DataType, Dimension, Graph as ModelGraph, Node as ModelNode, TensorData, Type,
};
use onnx::{ImportError, ModelFile};
use plan::{Item, ItemWork, Program, Segment};
use report::{InspectedKernel, InspectedValue, Inspection, Unsupported};
use shopfloor::{Error, Machine, Model, ModelOptions, inputs};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn domain(d: &str) -> &str {
    if d.is_empty() { "ai.onnx" } else { d }
}

fn count(nodes: &[ModelNode], into: &mut BTreeMap<String, usize>, depth: usize) {
    for n in nodes {
        let name = if n.domain.is_empty() {
            n.op_type.clone()
        } else {
            format!("{}::{}", n.domain, n.op_type)
        };
        *into.entry(name).or_default() += 1;
        // A damaged file may nest without end.
        if depth < 32 {
            for a in &n.attributes {
                match &a.value {
                    AttributeValue::Graph(g) => count(&g.nodes, into, depth + 1),
                    AttributeValue::Graphs(gs) => {
                        gs.iter().for_each(|g| count(&g.nodes, into, depth + 1))
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Nodes by operator, those of functions as well.
fn counted(file: &ModelFile) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    count(&file.model.graph.nodes, &mut out, 0);
    for f in &file.model.functions {
        count(&f.nodes, &mut out, 0);
    }
    out
}

/// Operators of the nodes of the model at `path`, as `Name` or `domain::Name`.
///
/// # Errors
/// The file cannot be read.
pub fn operators(path: &Path) -> Result<Vec<String>, Error> {
    let file = ModelFile::open(path).map_err(ImportError::from)?;
    Ok(counted(&file).into_keys().collect())
}

/// Elements of the constants of a graph and its bodies. Wide integers are shapes and indices, not what was trained.
fn parameters(g: &ModelGraph, depth: usize) -> u64 {
    let elements = |t: &TensorData| {
        let trained = !matches!(
            DataType::from_code(t.dtype),
            Some(DataType::Int64 | DataType::Bool | DataType::String)
        );
        let n = t
            .dims
            .iter()
            .try_fold(1u64, |n, &d| n.checked_mul(u64::try_from(d).ok()?));
        // A number by itself is a setting, not a parameter.
        let scalar = t.dims.is_empty();
        if trained && !scalar {
            n.unwrap_or(0)
        } else {
            0
        }
    };
    let mut sum: u64 = g
        .initializers
        .iter()
        .map(elements)
        .fold(0, u64::saturating_add);
    for n in &g.nodes {
        for a in &n.attributes {
            sum = sum.saturating_add(match &a.value {
                AttributeValue::Tensor(t) if n.op_type == "Constant" => elements(t),
                AttributeValue::Graph(body) if depth < 32 => parameters(body, depth + 1),
                _ => 0,
            });
        }
    }
    sum
}

fn stated(values: &[onnx::proto::ValueInfo], g: &ModelGraph) -> Vec<InspectedValue> {
    let weights: BTreeSet<&str> = g.initializers.iter().map(|t| t.name.as_str()).inserted();
    values
        .iter()
        .filter(|v| !weights.contains(v.name.as_str()))
        .map(|v| {
            let (dtype, shape) = match &v.ty {
                Some(Type::Tensor(t)) => (
                    DataType::from_code(t.dtype)
                        .map_or_else(|| "unknown".into(), |d| format!("{d:?}").to_lowercase()),
                    t.shape
                        .as_ref()
                        .map_or_else(|| vec!["...".into()], |s| s.iter().map(dimension).collect()),
                ),
                Some(_) => ("no tensor".into(), vec![]),
                None => ("unknown".into(), vec!["...".into()]),
            };
            InspectedValue {
                name: v.name.clone(),
                dtype,
                shape,
            }
        })
        .collect()
}

fn dimension(d: &Dimension) -> String {
    match d {
        Dimension::Value(v) => v.to_string(),
        Dimension::Param(p) => p.clone(),
        Dimension::Unknown => "?".into(),
    }
}

/// `kernel` as one task with everything in place: the work that no schedule can take away.
pub(crate) fn unscheduled(kernel: &Kernel) -> Option<TileProgram> {
    let schedule = Schedule {
        grid: vec![],
        loops: kernel.ordered_loops(),
        places: vec![Place::Register; kernel.tiles.len()],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping::default()),
    };
    TileProgram::new(kernel.clone(), schedule).ok()
}

struct Walk<'a> {
    machine: &'a Machine,
    sizes: &'a BTreeMap<String, i64>,
    out: Vec<InspectedKernel>,
}

impl Walk<'_> {
    fn program(&mut self, p: &Program, in_control: bool) {
        for s in &p.segments {
            match s {
                Segment::Straight(items) => items.iter().for_each(|i| self.item(p, i, in_control)),
                Segment::Late(i) => self.item(p, i, in_control),
                Segment::If {
                    then_branch,
                    else_branch,
                    ..
                } => {
                    self.program(then_branch, true);
                    self.program(else_branch, true);
                }
                Segment::Loop { body, .. } => self.program(body, true),
            }
        }
    }

    fn item(&mut self, p: &Program, i: &Item, in_control: bool) {
        // Sizes that only a run can tell count as 1, as those do that were not given.
        let lookup = |s: &str| Some(self.sizes.get(s).copied().unwrap_or(1));
        let (family, work) = match &i.work {
            ItemWork::Kernel { kernel, .. } => {
                let work =
                    unscheduled(kernel).and_then(|t| kernel::work::work(&t, self.machine, &lookup));
                (
                    format!("{:?}", kernel.family).to_lowercase(),
                    work.unwrap_or_default(),
                )
            }
            ItemWork::Host {
                inputs, outputs, ..
            } => {
                let bytes = |v: u32| {
                    let value = p.value(v);
                    let elements = Dim::product(&value.shape).eval(&lookup).unwrap_or(0).max(0);
                    elements as f64 * f64::from(value.dtype.bits()) / 8.0
                };
                let work = machine::Work {
                    unique_read: inputs.iter().flatten().map(|&v| bytes(v)).sum(),
                    unique_written: outputs.iter().map(|&v| bytes(v)).sum(),
                    ..Default::default()
                };
                ("host".into(), work)
            }
        };
        self.out.push(InspectedKernel {
            name: i.name.clone(),
            family,
            nodes: i.nodes.clone(),
            flop: work.flop() + 0.0,
            ops: work.ops_total() + 0.0,
            bytes: work.unique_bytes(),
            intensity: work.intensity(),
            in_control,
        });
    }
}

/// The graph as imported, before any rewrite.
fn imported(path: &Path, options: &ModelOptions) -> Result<graph::Graph, Error> {
    Ok(onnx::import(path, &options.import()?)?.graph)
}

/// Reads the model at `path` and says what is in it. Operators that are not covered are listed in
/// [`Inspection::unsupported`]; figures of work are then missing.
///
/// # Errors
/// The file cannot be read or contradicts itself; bound shapes that do not fit.
pub fn inspect(path: impl AsRef<Path>, options: &ModelOptions) -> Result<Inspection, Error> {
    let path = path.as_ref();
    let file = ModelFile::open(path).map_err(ImportError::from)?;
    let m = &file.model;
    let mut out = Inspection {
        model: m.graph.name.clone(),
        file: path.display().to_string(),
        ir_version: m.ir_version,
        opset: m
            .opset_imports
            .iter()
            .map(|o| (domain(&o.domain).to_string(), o.version))
            .inserted(),
        producer: format!("{} {}", m.producer_name, m.producer_version)
            .trim()
            .to_string(),
        inputs: stated(&m.graph.inputs, &m.graph),
        outputs: stated(&m.graph.outputs, &m.graph),
        ..Inspection::default()
    };
    out.operators = counted(&file);
    out.parameters = parameters(&m.graph, 0);
    drop(file);
    let model = match Model::open(path, options) {
        Ok(model) => model,
        Err(Error::Model(e)) => {
            let Some(ImportError::Unsupported(list)) = e.downcast_ref() else {
                return Err(Error::Model(e));
            };
            out.unsupported = list
                .iter()
                .map(|u| Unsupported {
                    node: u.node.clone(),
                    operator: format!("{}::{}", domain(&u.domain), u.operator),
                    opset: u.opset,
                    remedy: u.remedy.clone(),
                })
                .collect();
            return Ok(out);
        }
        Err(e) => return Err(e),
    };
    let program = model.program();
    out.model = program.name.clone();
    let value = |name: &str, v: u32| {
        let value = program.value(v);
        InspectedValue {
            name: name.into(),
            dtype: value.dtype.to_string(),
            shape: value.shape.iter().map(ToString::to_string).collect(),
        }
    };
    out.inputs = program
        .inputs
        .iter()
        .map(|&v| value(&program.value(v).name, v))
        .collect();
    out.outputs = program.outputs.iter().map(|(n, v)| value(n, *v)).collect();
    (out.dims, out.assumed) = inputs::sizes(&model);
    let machine = cpu::detect::detect();
    let mut walk = Walk {
        machine: &machine,
        sizes: &out.dims,
        out: Vec::new(),
    };
    walk.program(program, false);
    out.kernels = walk.out;
    out.nodes = crate::nodes::nodes(&imported(path, options)?, &machine, &out.dims);
    let sum = |f: fn(&InspectedKernel) -> f64| out.kernels.iter().map(f).sum::<f64>();
    (out.flop, out.ops, out.bytes) = (sum(|k| k.flop), sum(|k| k.ops), sum(|k| k.bytes));
    out.intensity = if out.bytes > 0.0 {
        out.ops / out.bytes
    } else {
        0.0
    };
    Ok(out)
}
