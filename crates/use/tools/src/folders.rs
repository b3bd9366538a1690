//! Test folders in ONNX's own form: a model, inputs and the outputs expected of it.
use layout::{Arrange, Inserted};
use onnx::proto::ValueInfo;
use shopfloor::{Error, Model, ModelOptions, SessionBuilder};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tensor::{HostValue, Tensor};

/// Operators whose outputs no two libraries share; only types and shapes of what a model with them
/// gives are compared.
const RANDOM: &[&str] = &[
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
];

/// Deepest nesting of folders that is searched.
const DEPTH: usize = 64;

/// What each element may differ by: `|got - want| <= atol + rtol * |want|`, the rule of the
/// standard's own tests. What is not a float must be equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Closeness {
    /// Relative to the element.
    pub rtol: f64,
    /// Absolute.
    pub atol: f64,
}

impl Default for Closeness {
    /// The standard's own.
    fn default() -> Closeness {
        Closeness {
            rtol: 1e-3,
            atol: 1e-7,
        }
    }
}

/// What became of a test folder.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Every data set agrees.
    Passed,
    /// The model does not run or disagrees: why.
    Failed(String),
    /// There is nothing to compare: why.
    Skipped(String),
}

/// A folder with `model.onnx` and `test_data_set_N` folders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TestFolder {
    /// The folder.
    pub path: PathBuf,
}

impl TestFolder {
    /// The folder's own name.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }
}

fn io(path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        path: path.display().to_string(),
        source,
    }
}

/// Folders and files in `folder`, sorted.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut out = Vec::new();
    for e in std::fs::read_dir(folder).map_err(|e| io(folder, e))? {
        out.push(e.map_err(|e| io(folder, e))?.path());
    }
    out.arrange();
    Ok(out)
}

/// Test folders at or below each of `dirs`, sorted.
///
/// # Errors
/// A folder cannot be read, or they are nested too deep.
pub fn find_test_folders(dirs: &[PathBuf]) -> Result<Vec<TestFolder>, Error> {
    let mut out = Vec::new();
    let mut open: Vec<(PathBuf, usize)> = dirs.iter().map(|d| (d.clone(), 0)).collect();
    while let Some((dir, depth)) = open.pop() {
        if depth > DEPTH {
            let why = format!(
                "{}: folders are nested deeper than {DEPTH}; name the folder of the tests itself",
                dir.display()
            );
            return Err(Error::Other(why.into()));
        }
        let inside = entries(&dir)?;
        if inside
            .iter()
            .any(|p| p.file_name().is_some_and(|n| n == "model.onnx"))
        {
            out.push(TestFolder { path: dir });
            continue;
        }
        // A link is not followed: it may lead back.
        let below = |p: &PathBuf| p.symlink_metadata().is_ok_and(|m| m.is_dir());
        open.extend(inside.into_iter().filter(below).map(|p| (p, depth + 1)));
    }
    out.arrange();
    out.dedup();
    Ok(out)
}

/// The numbered files `PREFIX_N.pb` of a data set, in the order of their numbers.
fn numbered(files: &[PathBuf], prefix: &str) -> Vec<(usize, PathBuf)> {
    let number = |p: &PathBuf| -> Option<usize> {
        let name = p.file_name()?.to_str()?;
        name.strip_prefix(prefix)?.strip_suffix(".pb")?.parse().ok()
    };
    let mut found: Vec<(usize, PathBuf)> = files
        .iter()
        .filter_map(|p| Some((number(p)?, p.clone())))
        .collect();
    found.arrange();
    found
}

/// Values of the files; `values` are the model's declarations of them, where there are as many.
fn read_all(files: &[(usize, PathBuf)], values: &[&ValueInfo]) -> Result<Vec<Tensor>, Error> {
    files
        .iter()
        .enumerate()
        .map(
            |(i, (_, p))| match values.get(i).and_then(|v| v.ty.as_ref()) {
                Some(ty) => Ok(data::read_pb_as(p, ty).map_err(Error::other)?.1),
                None => Ok(data::read_pb(p).map_err(Error::other)?.1),
            },
        )
        .collect()
}

/// Runs all data sets of `folder` in sessions that `builder` makes. The model is opened with `options`.
pub fn run_test_folder(
    folder: &TestFolder,
    builder: &SessionBuilder,
    options: &ModelOptions,
    close: Closeness,
) -> Verdict {
    match run(folder, builder, options, close) {
        Ok(v) => v,
        Err(e) => Verdict::Failed(e.to_string()),
    }
}

fn run(
    folder: &TestFolder,
    builder: &SessionBuilder,
    options: &ModelOptions,
    close: Closeness,
) -> Result<Verdict, Error> {
    let sets: Vec<PathBuf> = entries(&folder.path)?
        .into_iter()
        .filter(|p| {
            p.is_dir()
                && p.file_name()
                    .is_some_and(|n| n.to_string_lossy().starts_with("test_data_set_"))
        })
        .collect();
    if sets.is_empty() {
        return Ok(Verdict::Skipped("it has no test_data_set_N".into()));
    }
    let path = folder.path.join("model.onnx");
    let model = Model::open(&path, options)?;
    let file = onnx::ModelFile::open(&path).map_err(onnx::ImportError::from)?;
    let g = &file.model.graph;
    let weights: BTreeSet<&str> = g.initializers.iter().map(|t| t.name.as_str()).inserted();
    let weight = |v: &&ValueInfo| !weights.contains(v.name.as_str());
    let own: Vec<&ValueInfo> = g.inputs.iter().filter(weight).collect();
    let all: Vec<&ValueInfo> = g.inputs.iter().collect();
    let outs: Vec<&ValueInfo> = g.outputs.iter().collect();
    let random = model
        .report()
        .nodes
        .iter()
        .any(|o| RANDOM.contains(&o.op_type.as_str()));
    let session = builder.clone().commit(model)?;
    let mut compared = 0;
    for set in sets {
        let files = entries(&set)?;
        let given = numbered(&files, "input_");
        // A file's number counts initialisers that are inputs too only where one of them is given.
        let ins: Vec<&ValueInfo> = match given.len() > own.len() {
            true => given
                .iter()
                .filter_map(|(i, _)| all.get(*i).copied())
                .collect(),
            false => own.clone(),
        };
        let inputs = read_all(&given, &ins)?;
        let wants = read_all(&numbered(&files, "output_"), &outs)?;
        let at = set.file_name().unwrap_or_default().to_string_lossy();
        if inputs.len() != ins.len() {
            return Ok(Verdict::Failed(format!(
                "{at}: it has {} inputs, the model takes {}",
                inputs.len(),
                ins.len()
            )));
        }
        let named: Vec<(&str, &Tensor)> =
            ins.iter().map(|i| i.name.as_str()).zip(&inputs).collect();
        let outputs = session.run(&named)?;
        if outputs.len() < wants.len() {
            return Ok(Verdict::Failed(format!(
                "{at}: it has {} outputs, the model gives {}",
                wants.len(),
                outputs.len()
            )));
        }
        compared += wants.len();
        for ((name, got), want) in outputs.iter().zip(&wants) {
            if let Some(problem) = differs(got, want, close, random) {
                return Ok(Verdict::Failed(format!("{at}: output '{name}' {problem}")));
            }
        }
    }
    Ok(match compared {
        0 => Verdict::Skipped("its data sets expect nothing: they have no output_N.pb".into()),
        _ => Verdict::Passed,
    })
}

/// Why `got` is not `want`; `form`: only type and shape count.
fn differs(got: &Tensor, want: &Tensor, close: Closeness, form: bool) -> Option<String> {
    if got.shape() != want.shape() || got.dtype() != want.dtype() {
        return Some(format!("is {got:?} and should be {want:?}"));
    }
    match (got.host_value(), want.host_value()) {
        (None, None) => {}
        (Some(a), Some(b)) => return host_value_differs(a, b, close, form),
        _ => return Some(format!("is {got:?} and should be {want:?}")),
    }
    if form {
        return None;
    }
    let (mut off, mut first) = (0, None);
    for i in 0..want.len() {
        let same = if want.dtype().is_float() {
            let (a, b) = (got.get_f64(i), want.get_f64(i));
            a == b
                || (a.is_nan() && b.is_nan())
                || (a.is_finite()
                    && b.is_finite()
                    && (a - b).abs() <= close.atol + close.rtol * b.abs())
        } else {
            got.get_i64(i) == want.get_i64(i)
        };
        if !same {
            off += 1;
            first = first.or(Some(i));
        }
    }
    let i = first?;
    Some(format!(
        "differs in {off} of {} elements; element {i} is {} and should be {}",
        want.len(),
        got.get_f64(i),
        want.get_f64(i)
    ))
}

/// As [`differs`] for texts, sequences, optional values and maps.
fn host_value_differs(
    got: &HostValue,
    want: &HostValue,
    close: Closeness,
    form: bool,
) -> Option<String> {
    match (got, want) {
        (HostValue::Text(a), HostValue::Text(b)) => {
            let i = (0..b.len()).find(|&i| a.get(i) != b.get(i))?;
            let held = a.get(i).map_or("", String::as_str);
            Some(format!(
                "has the text '{held}' as element {i}; it should be '{}'",
                b[i]
            ))
        }
        (HostValue::Sequence(a), HostValue::Sequence(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| {
                differs(a, b, close, form).map(|why| format!("item {i} {why}"))
            })
        }
        (HostValue::Optional(None), HostValue::Optional(None)) => None,
        (HostValue::Optional(Some(a)), HostValue::Optional(Some(b))) => differs(a, b, close, form),
        (HostValue::Map { keys: a, values: x }, HostValue::Map { keys: b, values: y }) => {
            differs(a, b, close, form).or_else(|| differs(x, y, close, form))
        }
        _ => Some(format!("holds {got:?} and should hold {want:?}")),
    }
}
