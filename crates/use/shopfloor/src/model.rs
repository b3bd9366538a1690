//! Models: an ONNX file read, rewritten and made a program, or taken from the cache. Sessions run it
//! (`session`).
use crate::cache::Store;
use crate::{Cache, Error, Operator};
use graph::Graph;
use layout::{Dim, DimBox, Inserted, Sym};
use plan::{Program, Why};
pub use planner::Precision;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tensor::{Bytes, Owner};

/// What is bound before a model is planned.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// Shapes of inputs, by name.
    pub shapes: BTreeMap<String, Vec<Dim>>,
    /// Ranges of symbolic dims; a range of one value binds the dim at import.
    pub dims: DimBox,
    /// Whether every dimension of every input is a symbol, those included for which the model has a
    /// number: a model that was exported with fixed sizes runs with others where its operators allow.
    pub open_dims: bool,
    /// Initialisers that are inputs too and that every request gives; one that is not named here is a
    /// constant.
    pub given: std::collections::BTreeSet<String>,
    /// State: input and output that carry on from request to request, by name.
    pub states: Vec<(String, String)>,
    /// Where no state is declared, pairs are looked for by the names that exporters leave
    /// (`past_key_values.0.key` and `present.0.key`, `h0` and `hn`, `state` and `stateN`).
    pub find_states: bool,
    /// Most rewrites to do, to find a bad one by bisection.
    pub fuel: Option<usize>,
    /// How exactly products of f32 are multiplied; anything but f32 has to be asked for. What a device has no instructions
    /// for is multiplied more exactly.
    pub precision: Precision,
    /// By a node's name, what the ranks of its values depend on and the model is planned for: for an If
    /// 1 for the first branch and 0 for the second, for a Loop how many rounds run, for an operator that
    /// takes a tensor out of a sequence or an optional value its rank. A request that takes another is
    /// planned for that.
    pub taken: BTreeMap<String, i64>,
    /// Numbers for extents that only the data gives, by their symbols' names, which the model is planned for. A request
    /// that comes to others is planned for those.
    pub late: BTreeMap<String, i64>,
    /// Ranks of inputs for which the model states none. Requests of other ranks are run by sessions of those, which are
    /// made when the first such request comes. Where nothing is said, the first rank is taken that the model can be
    /// read with.
    pub ranks: BTreeMap<String, usize>,
    /// Kernels of one's own for operators: their texts by domain (empty: ONNX's own) and name.
    pub kernels: BTreeMap<(String, String), String>,
    /// Operators whose code is a closure, by domain (empty: ONNX's own) and name.
    pub operators: BTreeMap<(String, String), Operator>,
}

impl ModelOptions {
    /// Nodes of operator `name` of `domain` run this kernel (`docs/custom-kernels.md`), whatever else is
    /// known of that operator. Tensors that the kernel reads are a node's inputs in their order, those
    /// that it writes its outputs; its symbols are the extents that the inputs have, its attributes the
    /// node's. The text is looked at when a model is opened.
    #[must_use]
    pub fn with_kernel(mut self, domain: &str, name: &str, text: &str) -> ModelOptions {
        let domain = if domain == "ai.onnx" { "" } else { domain };
        self.kernels
            .insert((domain.into(), name.into()), text.into());
        self
    }

    /// Nodes of this operator run its code; see [`Operator`].
    #[must_use]
    pub fn with_operator(mut self, operator: Operator) -> ModelOptions {
        self.operators.insert(operator.key(), operator);
        self
    }

    /// What import is told.
    #[doc(hidden)]
    pub fn import(&self) -> Result<onnx::ImportOptions, Error> {
        let fixed = self.dims.iter().filter(|(_, r)| r.lo == r.hi);
        let mut shapes = self.shapes.clone();
        for (name, &rank) in &self.ranks {
            let open = || (0..rank).map(|axis| open_dim(name, axis)).collect();
            shapes.entry(name.clone()).or_insert_with(open);
        }
        Ok(onnx::ImportOptions {
            shapes,
            dims: fixed.map(|(name, r)| (name.to_string(), r.lo)).inserted(),
            customs: crate::custom::operators(self)?,
            taken: self.taken.clone(),
            late: self.late.clone(),
            open_dims: self.open_dims,
            given: self.given.clone(),
        })
    }
}

/// A model imported, rewritten and fused; not yet bound to dims or a machine.
#[derive(Clone, Debug)]
pub struct Model {
    path: PathBuf,
    /// The file itself, of a model that was read from memory.
    memory: Option<Bytes>,
    /// Not there while the program is one that a cache kept.
    graph: Arc<OnceLock<Arc<Graph>>>,
    program: Arc<Program>,
    report: onnx::Report,
    options: ModelOptions,
    /// Name and everything that was bound, as text.
    bound: String,
    /// It is a kernel that was written by hand: there is no graph.
    kernel: bool,
}

/// The bytes of a model, held by whoever gave them.
struct InMemory<T>(T);

impl<T: AsRef<[u8]>> AsRef<[u8]> for InMemory<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl<T: AsRef<[u8]> + Send + Sync> Owner for InMemory<T> {}

/// What tables and errors call the model at `path`.
fn name_of(path: &Path) -> String {
    let text = |s: Option<&std::ffi::OsStr>| s.and_then(|s| s.to_str()).map(str::to_string);
    let name = text(path.file_stem()).unwrap_or_else(|| "model".into());
    match text(path.parent().and_then(|p| p.file_name())) {
        Some(folder) if name == "model" => folder,
        _ => name,
    }
}

/// The largest size that a range may reach: with larger ones products of sizes would leave 64 bits.
const LARGEST: i64 = 1 << 40;

/// Whether these are ranges of sizes.
pub(crate) fn check_ranges(dims: &DimBox) -> Result<(), Error> {
    let wrong = dims
        .iter()
        .find(|(_, r)| r.lo < 0 || r.lo > r.hi || r.hi > LARGEST);
    match wrong {
        Some((name, r)) => Err(Error::Usage(format!(
            "dimension '{name}' cannot range from {} to {}; give a range of sizes, of {LARGEST} at most",
            r.lo, r.hi
        ))),
        None => Ok(()),
    }
}

/// Whether every range is one of a dimension that `program` has. One of a single size may be of a dimension that
/// import bound.
pub(crate) fn check_names(program: &Program, dims: &DimBox) -> Result<(), Error> {
    let has = |dim: &Sym| program.symbols.iter().any(|s| s.name == *dim);
    let mut ranges = dims.iter().filter(|(_, r)| r.lo != r.hi);
    let Some((dim, r)) = ranges.find(|(dim, _)| !has(dim)) else {
        return Ok(());
    };
    let all = program.symbols.iter().map(|s| format!("'{}'", s.name));
    let has = match all.collect::<Vec<_>>() {
        none if none.is_empty() => "it has none".into(),
        all => format!("it has {}", all.join(", ")),
    };
    Err(Error::Usage(format!(
        "model '{}' has no symbolic dimension '{dim}' to range over {}..{}; {has}",
        program.name, r.lo, r.hi
    )))
}

/// Ranks that inputs are taken to have for which nothing states one, in the order in which they are tried.
const RANKS: [usize; 6] = [2, 4, 3, 1, 0, 5];

/// The size of a dimension of an input whose rank the model does not state.
fn open_dim(input: &str, axis: usize) -> Dim {
    let known = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name: String = input
        .chars()
        .map(|c| if known(c) { c } else { '_' })
        .collect();
    Dim::sym(&format!("{name}.d{axis}"))
}

fn states_rank(port: &onnx::proto::ValueInfo) -> bool {
    !matches!(&port.ty, Some(onnx::proto::Type::Tensor(t)) if t.shape.is_none())
}

/// Names of the inputs whose rank neither the model nor the caller states.
fn unstated(file: &onnx::ModelFile, options: &ModelOptions) -> Vec<String> {
    let graph = &file.model.graph;
    let open = graph.inputs.iter().filter(|i| !states_rank(i));
    open.filter(|i| !options.shapes.contains_key(&i.name) && !options.ranks.contains_key(&i.name))
        .filter(|i| !graph.initializers.iter().any(|t| t.name == i.name))
        .map(|i| i.name.clone())
        .collect()
}

fn bound(name: &str, options: &ModelOptions) -> String {
    format!("{name} {options:?}")
}

impl Model {
    /// Reads the ONNX model at `path`.
    ///
    /// # Errors
    /// The file cannot be read or contradicts itself; operators that are not covered (one list of
    /// them all); bound shapes that do not fit.
    pub fn open(path: impl AsRef<Path>, options: &ModelOptions) -> Result<Model, Error> {
        Model::open_with(path, options, None)
    }

    /// As [`Model::open`], with what `cache` kept of this model if its files have not changed, and
    /// keeping what is made otherwise.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open_with(
        path: impl AsRef<Path>,
        options: &ModelOptions,
        cache: Option<&Cache>,
    ) -> Result<Model, Error> {
        Model::open_in(path.as_ref(), options, cache.map(|c| c as &dyn Store))
    }

    /// [`Model::open_with`] for any store.
    pub(crate) fn open_in(
        path: &Path,
        options: &ModelOptions,
        cache: Option<&dyn Store>,
    ) -> Result<Model, Error> {
        check_ranges(&options.dims)?;
        // A closure is neither kept nor compared with one of another process.
        let cache = cache.filter(|_| options.operators.is_empty());
        let text = bound(&name_of(path), options);
        if let Some(c) = cache
            && let Some((program, report)) = c.find(path, &text)
        {
            return Ok(Model {
                path: path.to_path_buf(),
                memory: None,
                graph: Arc::default(),
                program: Arc::new(program),
                report,
                options: options.clone(),
                bound: text,
                kernel: false,
            });
        }
        let _span = crate::spans::load(path);
        let file = onnx::ModelFile::open(path).map_err(onnx::ImportError::from)?;
        let model = Model::of_file(&file, path, options)?;
        // What is kept is found by the options given, and ranks were added to those.
        if let Some(c) = cache.filter(|_| model.options.ranks == options.ranks) {
            c.keep(path, &text, &model.program, &model.report);
        }
        Ok(model)
    }

    /// Reads an ONNX model that lies in memory; `bytes` is the whole file, which is shared and not copied.
    /// Tables and errors call it `name`. Its tensors lie in it: there is no folder to look for others in.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_memory(
        name: &str,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
        options: &ModelOptions,
    ) -> Result<Model, Error> {
        Model::from_shared(
            Path::new(name),
            Bytes::new(Arc::new(InMemory(bytes))),
            options,
        )
    }

    fn from_shared(path: &Path, bytes: Bytes, options: &ModelOptions) -> Result<Model, Error> {
        check_ranges(&options.dims)?;
        let _span = crate::spans::load(path);
        let file = onnx::ModelFile::from_memory(bytes.clone(), None);
        let file = file.map_err(onnx::ImportError::from)?;
        let mut model = Model::of_file(&file, path, options)?;
        model.memory = Some(bytes);
        Ok(model)
    }

    /// The same model with other options, read again from where it was read.
    pub(crate) fn reload(
        &self,
        options: &ModelOptions,
        cache: Option<&dyn Store>,
    ) -> Result<Model, Error> {
        Model::read(&self.path, self.memory.as_ref(), options, cache)
    }

    /// Reads a model from `memory` where that is given, else from the file at `path`.
    pub(crate) fn read(
        path: &Path,
        memory: Option<&Bytes>,
        options: &ModelOptions,
        cache: Option<&dyn Store>,
    ) -> Result<Model, Error> {
        match memory {
            Some(bytes) => Model::from_shared(path, bytes.clone(), options),
            None => Model::open_in(path, options, cache),
        }
    }

    fn of_file(
        file: &onnx::ModelFile,
        path: &Path,
        options: &ModelOptions,
    ) -> Result<Model, Error> {
        let unstated = unstated(file, options);
        if unstated.is_empty() {
            return Model::of_ranks(file, path, options);
        }
        let of = |rank: usize| {
            let mut options = options.clone();
            let ranks = unstated.iter().map(|name| (name.clone(), rank));
            options.ranks.extend(ranks);
            Model::of_ranks(file, path, &options)
        };
        let mut model = match of(RANKS[0]) {
            Ok(model) => model,
            Err(e) => RANKS[1..].iter().find_map(|&r| of(r).ok()).ok_or(e)?,
        };
        // Outputs are not of the rank that was taken.
        for (port, stated) in model
            .report
            .outputs
            .iter_mut()
            .zip(&file.model.graph.outputs)
        {
            if !states_rank(stated) {
                port.dims = None;
            }
        }
        Ok(model)
    }

    /// A model that states the ranks of all inputs, or is told them.
    fn of_ranks(
        file: &onnx::ModelFile,
        path: &Path,
        options: &ModelOptions,
    ) -> Result<Model, Error> {
        let name = name_of(path);
        let model = match Model::imported(file, path, &name, options) {
            Err(e) => Model::refused(file, path, &name, options, e)?,
            made => made?,
        };
        // Import checks bound dims; a range it does not see.
        check_names(&model.program, &options.dims)?;
        Ok(model)
    }

    fn imported(
        file: &onnx::ModelFile,
        path: &Path,
        name: &str,
        options: &ModelOptions,
    ) -> Result<Model, Error> {
        let imported = onnx::import_file(file, &options.import()?)?;
        let (graph, report) = (&imported.graph, imported.report);
        Model::made(path.to_path_buf(), name, graph, report, options)
    }

    /// What stands for a model that cannot be planned for all sizes at once for the reason `e`: each
    /// request is planned for its own. Gives `e` where it does not lie in the sizes.
    fn refused(
        file: &onnx::ModelFile,
        path: &Path,
        name: &str,
        options: &ModelOptions,
        e: Error,
    ) -> Result<Model, Error> {
        let why = e.to_string();
        let Ok(stub) = onnx::import_refused(file, &options.import()?, &why) else {
            return Err(e);
        };
        // What is said in the same words of several sizes holds for all of them.
        let sizes: [fn(u32) -> u32; 3] = [|_| 1, |axis| axis + 1, |axis| axis + 2];
        let depends = sizes.iter().any(|size| {
            let mut some = options.clone();
            for s in &stub.graph.symbols {
                if let graph::SymbolSource::Input { axis, .. } = s.source {
                    let n = i64::from(size(axis));
                    some.dims.insert(s.name.clone(), n, n);
                }
            }
            let made = || Model::imported(file, path, name, &some);
            some.dims != options.dims && !made().is_err_and(|e| e.to_string() == why)
        });
        if !depends {
            return Err(e);
        }
        let (graph, report) = (&stub.graph, stub.report);
        Model::made(path.to_path_buf(), name, graph, report, options)
    }

    /// Why it cannot be planned for all sizes at once, where it cannot.
    pub fn refusal(&self) -> Option<String> {
        self.program.refusal().map(|r| r.why)
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
        let states = match options.find_states && options.states.is_empty() {
            true => crate::states::by_name(&graph),
            false => options.states.clone(),
        };
        crate::states::known(&graph, &states)?;
        let mut program = planner::program(
            &graph,
            &planner::ProgramOptions {
                states,
                model_nodes,
                precision: options.precision,
            },
        )?;
        program.name = name.to_string();
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
            memory: None,
            graph: Arc::new(OnceLock::from(Arc::new(graph))),
            program: Arc::new(program),
            report,
            options: options.clone(),
            bound: bound(name, options),
            kernel: false,
        })
    }

    /// A model of a program that no graph was planned to.
    pub(crate) fn of_program(name: &str, program: Program, options: &ModelOptions) -> Model {
        Model {
            path: PathBuf::from(name),
            memory: None,
            graph: Arc::default(),
            program: Arc::new(program),
            report: onnx::Report::default(),
            options: options.clone(),
            bound: bound(name, options),
            kernel: true,
        }
    }

    /// Where it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that it was read from; none for a model that was read from memory.
    pub fn files(&self) -> &[PathBuf] {
        match self.memory {
            Some(_) => &[],
            None => &self.report.files,
        }
    }

    /// The bytes that it was read from, where it was read from memory.
    pub(crate) fn memory(&self) -> Option<&Bytes> {
        self.memory.as_ref()
    }

    /// What it was bound to, as text: equal for equal options.
    pub(crate) fn options_text(&self) -> &str {
        &self.bound
    }

    /// Where the model comes from and everything that went into it; `None` for one that was made here, or
    /// whose files are gone.
    pub(crate) fn sharing_key(&self) -> Option<String> {
        Some(format!("{}\n{}", self.bound, self.files_key()?))
    }

    /// The files that it was read from, as they are now; `None` as for [`Model::sharing_key`].
    pub(crate) fn files_key(&self) -> Option<String> {
        if self.memory.is_some() {
            return None;
        }
        let mut key = String::new();
        for f in std::iter::once(&self.path).chain(&self.report.files) {
            let meta = std::fs::metadata(f).ok()?;
            let changed = meta.modified().ok()?;
            key += &format!("{} {} {changed:?}\n", f.display(), meta.len());
        }
        Some(key)
    }

    pub(crate) fn set_program(&mut self, program: Arc<Program>) {
        self.program = program;
    }

    /// Names of the inputs, in the model's order.
    pub fn input_names(&self) -> Vec<String> {
        self.program
            .inputs
            .iter()
            .map(|&v| self.program.value(v).name.clone())
            .collect()
    }

    /// Core ops after rewriting. A model that a cache kept as a program is imported now.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn graph(&self) -> Result<&Arc<Graph>, Error> {
        if let Some(g) = self.graph.get() {
            return Ok(g);
        }
        if self.kernel {
            return Err(Error::Usage(format!(
                "'{}' is a kernel written by hand and has no graph of operators; ask for its plan",
                self.program.name
            )));
        }
        let again = self.reload(&self.options, None)?;
        let graph = again.graph()?.clone();
        Ok(self.graph.get_or_init(|| graph))
    }

    /// Fused kernels with symbolic dims.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What import found.
    pub fn report(&self) -> &onnx::Report {
        &self.report
    }

    /// What it was bound to.
    pub fn options(&self) -> &ModelOptions {
        &self.options
    }

    /// Ranges that were asked for.
    pub fn dims(&self) -> &DimBox {
        &self.options.dims
    }
}
