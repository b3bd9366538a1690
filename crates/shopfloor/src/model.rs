use crate::Error;
use graph::Graph;
use layout::{Dim, DimBox};
use plan::{Program, Why};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is bound before a model is planned.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// Shapes of inputs, by name.
    pub shapes: BTreeMap<String, Vec<Dim>>,
    /// Ranges of symbolic dims; a range of one value binds the dim at import.
    pub dims: DimBox,
    /// State: input and output that carry on from request to request, by name.
    pub states: Vec<(String, String)>,
    /// Most rewrites to do, to find a bad one by bisection.
    pub fuel: Option<usize>,
}

/// A model imported, rewritten and fused; not yet bound to dims or a machine.
#[derive(Clone, Debug)]
pub struct Model {
    path: PathBuf,
    graph: Arc<Graph>,
    program: Arc<Program>,
    report: onnx::Report,
    dims: DimBox,
    /// Everything that was bound, as text.
    options: String,
}

impl Model {
    /// Reads the ONNX model at `path`.
    ///
    /// # Errors
    /// The file cannot be read or contradicts itself; operators that are not covered (one list of
    /// them all); bound shapes that do not fit.
    pub fn open(path: impl AsRef<Path>, options: &ModelOptions) -> Result<Model, Error> {
        let path = path.as_ref();
        let mut import = onnx::ImportOptions {
            shapes: options.shapes.clone(),
            dims: BTreeMap::new(),
        };
        for (name, r) in options.dims.iter() {
            if r.lo == r.hi {
                import.dims.insert(name.to_string(), r.lo);
            }
        }
        let imported = onnx::import(path, &import)?;
        let mut name = path
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or("model")
            .to_string();
        if name == "model"
            && let Some(folder) = path
                .parent()
                .and_then(|p| p.file_name())
                .and_then(|s| s.to_str())
        {
            name = folder.to_string();
        }
        let model = Model::made(
            path.to_path_buf(),
            &name,
            &imported.graph,
            imported.report,
            options,
        )?;
        // Import checks bound dims; a range it does not see.
        for (dim, r) in options.dims.iter().filter(|(_, r)| r.lo != r.hi) {
            if !model.program.symbols.iter().any(|s| s.name == *dim) {
                let all: Vec<String> = model
                    .program
                    .symbols
                    .iter()
                    .map(|s| format!("'{}'", s.name))
                    .collect();
                let has = if all.is_empty() {
                    "it has none".into()
                } else {
                    format!("it has {}", all.join(", "))
                };
                return Err(Error::Usage(format!(
                    "model '{}' has no symbolic dimension '{dim}' to range over {}..{}; {has}",
                    model.program.name, r.lo, r.hi
                )));
            }
        }
        Ok(model)
    }

    /// A model of core ops that were put together by hand; `name` is used in tables and errors.
    ///
    /// # Errors
    /// The graph cannot be rewritten or planned.
    pub fn from_graph(name: &str, graph: &Graph, options: &ModelOptions) -> Result<Model, Error> {
        Model::made(
            PathBuf::from(name),
            name,
            graph,
            onnx::Report::default(),
            options,
        )
    }

    fn made(
        path: PathBuf,
        name: &str,
        graph: &Graph,
        report: onnx::Report,
        options: &ModelOptions,
    ) -> Result<Model, Error> {
        let (graph, changes) = rewrite::run(
            graph,
            &rewrite::Options {
                fuel: options.fuel,
                ..Default::default()
            },
        )?;
        let model_nodes = report
            .nodes
            .iter()
            .map(|o| (o.name.clone(), o.op_type.clone()))
            .collect();
        let mut program = planner::program(
            &graph,
            &planner::ProgramOptions {
                states: options.states.clone(),
                model_nodes,
            },
        )?;
        program.name = name.to_string();
        // What import took for granted is checked for every request, but for bodies of control flow,
        // which may be skipped: they check it themselves.
        for a in report.assumptions.iter().filter(|a| !a.inner) {
            let c = plan::Constraint {
                node: a.node.clone(),
                left: a.extent.clone(),
                right: a.must_be.clone(),
            };
            if !program.constraints.contains(&c) {
                program.constraints.push(c);
            }
        }
        program.whys.splice(
            0..0,
            changes.into_iter().map(|c| Why {
                pass: format!("rewrite:{}", c.pass),
                subject: c.subject,
                choice: if c.done {
                    "done".into()
                } else {
                    "not done".into()
                },
                alternatives: vec![],
                reason: c.why,
            }),
        );
        Ok(Model {
            path,
            graph: Arc::new(graph),
            program: Arc::new(program),
            report,
            dims: options.dims.clone(),
            options: format!("{name} {options:?}"),
        })
    }

    /// Where it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that it was read from.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.report.files
    }

    /// What it was bound to, as text: equal for equal options.
    pub(crate) fn options_text(&self) -> &str {
        &self.options
    }

    /// Names of the inputs, in the model's order.
    pub fn input_names(&self) -> Vec<String> {
        self.program
            .inputs
            .iter()
            .map(|&v| self.program.value(v).name.clone())
            .collect()
    }

    /// Core ops after rewriting.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Fused kernels with symbolic dims.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What import found.
    pub fn report(&self) -> &onnx::Report {
        &self.report
    }

    /// Ranges that were asked for.
    pub fn dims(&self) -> &DimBox {
        &self.dims
    }
}
