//! A copy of a model with its plan's facts in `metadata_props`, which graph viewers show.
use layout::Inserted;
use plan::{Fate, NodeFate, Plan};
use report::{PlanView, StepView, units};
use shopfloor::{Error, Model};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the keys begin with.
pub const PREFIX: &str = "shopfloor.";
/// Reasons of one kind that a node is given at most.
const REASONS: usize = 4;

struct Facts<'a> {
    view: &'a PlanView,
    steps: BTreeMap<&'a str, &'a StepView>,
    fates: BTreeMap<&'a str, &'a NodeFate>,
    /// Fusion's decisions by the node they are about: choice and reason.
    fused: BTreeMap<&'a str, Vec<(&'a str, &'a str)>>,
}

fn us(v: f64) -> String {
    units::seconds(v * 1e-6)
}

impl<'a> Facts<'a> {
    fn new(model: &'a Model, plan: &'a Plan, view: &'a PlanView) -> Facts<'a> {
        let mut fused: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for w in plan.whys.iter().filter(|w| w.pass == "fuse") {
            let own = fused.entry(&w.subject).or_default();
            own.push((&w.choice, &w.reason));
        }
        Facts {
            view,
            steps: view.steps.iter().map(|s| (s.name.as_str(), s)).inserted(),
            fates: model
                .program()
                .fates
                .iter()
                .map(|f| (f.node.as_str(), f))
                .inserted(),
            fused,
        }
    }

    /// A node's own fate, or those of what a function call was inlined to.
    fn fates(&self, node: &str) -> Vec<&'a NodeFate> {
        if let Some(f) = self.fates.get(node) {
            return vec![f];
        }
        let inner = format!("{node}/");
        let from = self.fates.range::<str, _>((
            std::ops::Bound::Included(inner.as_str()),
            std::ops::Bound::Unbounded,
        ));
        from.take_while(|(n, _)| n.starts_with(&inner))
            .map(|(_, f)| *f)
            .collect()
    }

    fn of(&self, node: &str) -> Vec<(String, String)> {
        let fates = self.fates(node);
        let mut out: Vec<(String, String)> = Vec::new();
        let mut put = |key: &str, value: String| out.push((format!("{PREFIX}{key}"), value));
        let mut names: Vec<&str> = Vec::new();
        let mut kinds: Vec<&str> = Vec::new();
        for f in &fates {
            let kind = match &f.fate {
                Fate::Items(items) => {
                    names.extend(items.iter().map(String::as_str));
                    "part of a step"
                }
                Fate::View => "a view, which costs nothing",
                Fate::Folded => "done at import or load",
                Fate::Dead => "not needed",
                Fate::Control => "control flow",
            };
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if kinds.is_empty() {
            return out;
        }
        put("fate", kinds.join("; "));
        names.dedup();
        let mut steps: Vec<&StepView> = names
            .iter()
            .filter_map(|n| self.steps.get(n).copied())
            .collect();
        // A step that was split in planning keeps its node, not its name.
        if steps.is_empty() && !names.is_empty() {
            let own = self.view.steps.iter();
            steps = own.filter(|s| s.nodes.iter().any(|n| n == node)).collect();
        }
        let list = |f: &dyn Fn(&StepView) -> String| {
            let all: Vec<String> = steps.iter().map(|s| f(s)).collect();
            all.join("; ")
        };
        if !steps.is_empty() {
            let n = self.view.steps.len();
            put(
                "step",
                list(&|s| format!("{} of {n} ({})", s.number, s.family)),
            );
            put(
                "predicted",
                list(&|s| {
                    let whole = match s.nodes.len() {
                        0 | 1 => String::new(),
                        n => format!(" for the step's {n} nodes"),
                    };
                    format!("{}{whole}, bound by {}", us(s.predicted_us), s.bound)
                }),
            );
            put("tiles", list(&|s| s.schedule.clone()));
            put(
                "work",
                list(&|s| {
                    format!(
                        "{}, {} of distinct bytes",
                        units::flop(s.flop),
                        units::bytes(s.unique_bytes())
                    )
                }),
            );
            let with = list(&|s| {
                let others: Vec<&str> = s
                    .nodes
                    .iter()
                    .map(String::as_str)
                    .filter(|n| *n != node)
                    .collect();
                others.join(", ")
            });
            if !with.trim_matches([';', ' ']).is_empty() {
                put("with", with);
            }
            let why = list(&|s| s.reason.clone());
            if !why.trim_matches([';', ' ']).is_empty() {
                put("why", why);
            }
        }
        let decided = self.fused.get(node).map_or(&[][..], Vec::as_slice);
        for (key, not) in [("fused", false), ("not_fused", true)] {
            let own = decided.iter().filter(|d| d.0.starts_with("not") == not);
            let texts: Vec<String> = own
                .take(REASONS)
                .map(|(c, r)| format!("{c}: {r}"))
                .collect();
            if !texts.is_empty() {
                put(key, texts.join("; "));
            }
        }
        out
    }

    /// Of the model as a whole.
    fn whole(&self) -> Vec<(String, String)> {
        let v = self.view;
        let mut out = vec![
            ("machine", format!("{} ({})", v.machine, v.target)),
            (
                "predicted",
                format!(
                    "{} a request in {}, between {} and {}",
                    us(v.predicted_us),
                    units::plural(v.steps.len() as u64, "step"),
                    us(v.interval_us.0),
                    us(v.interval_us.1)
                ),
            ),
            (
                "memory",
                format!("{} at most", units::bytes(v.memory.total as f64)),
            ),
        ];
        if !v.dims.is_empty() {
            out.push(("dims", v.dims.clone()));
        }
        out.into_iter()
            .map(|(k, v)| (format!("{PREFIX}{k}"), v))
            .collect()
    }
}

/// The folder of a path.
fn folder(path: &Path) -> PathBuf {
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf())
}

/// Writes the file of `model` to `out` with what `plan`, shown as `view`, makes of each node of its main
/// graph; gives how many nodes that is.
///
/// # Errors
/// A model that was not read from a file; `out` is one of its files, or lies elsewhere than its external
/// data; a file that cannot be read or written.
pub fn annotate(
    model: &Model,
    plan: &Plan,
    view: &PlanView,
    out: impl AsRef<Path>,
) -> Result<usize, Error> {
    let (path, out) = (model.path(), out.as_ref());
    let files = model.files();
    let same = |a: &Path| match (a.canonicalize(), out.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    };
    if same(path) || files.iter().any(|f| same(f)) {
        return Err(Error::Usage(format!(
            "{} is a file of the model itself; write the annotated model to another name",
            out.display()
        )));
    }
    if let Some(f) = files.iter().find(|f| !same_path(f, path))
        && folder(path) != folder(out)
    {
        return Err(Error::Usage(format!(
            "{} has data in {}, which is found from the model's own folder only; write the annotated model into that folder",
            path.display(),
            f.display()
        )));
    }
    let file = onnx::ModelFile::open(path).map_err(onnx::ImportError::from)?;
    let facts = Facts::new(model, plan, view);
    let annotated = file
        .annotated(PREFIX, &|node| facts.of(node), &facts.whole())
        .map_err(onnx::ImportError::from)?;
    let io = |source| Error::Io {
        path: out.display().to_string(),
        source,
    };
    // The model may be mapped under another name of the same file.
    files::replace(out, |to| annotated.write_to(to)).map_err(io)?;
    Ok(annotated.nodes())
}

fn same_path(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}
