//! Report pages: a profile or a plan with everything that explains it, as one file.
use crate::planview;
use crate::targets::{Kernels, Planning};
use layout::Inserted;
use machine::Work;
use plan::Plan;
use report::page::{Baseline, PageData, PageInput};
use report::{AdviceView, PlanView, Profile};
use shopfloor::{Error, Machine, Model, ModelOptions, Session, Timeline, inputs, machines};
use std::collections::BTreeMap;
use std::path::Path;
use tensor::Tensor;

/// What made a page.
const TOOL: &str = concat!("shopfloor ", env!("CARGO_PKG_VERSION"));

/// The machines that a plan's devices are: of `known`, else as the catalog and detection have them.
fn machines_of(plan: &Plan, known: &[Machine]) -> Vec<Machine> {
    let mut out: Vec<Machine> = Vec::new();
    for d in &plan.devices {
        let own = known.iter().find(|m| m.name == d.machine).cloned();
        let own = own.or_else(|| {
            let mut names = ["cpu", "detected", &d.machine].into_iter();
            names.find_map(|n| machines::find(n).ok().filter(|m| m.name == d.machine))
        });
        out.extend(own);
    }
    out
}

/// What the exporter left of modules; a model without a file has names alone.
fn modules(model: &Model) -> BTreeMap<String, String> {
    let file = onnx::ModelFile::open(model.path());
    file.and_then(|f| f.modules()).unwrap_or_default()
}

/// What would help, where that can be said: a model put together by hand has no file to plan again.
fn advice(
    model: &Model,
    sizes: &BTreeMap<String, i64>,
    machine: &Machine,
    kernels: Kernels,
) -> Option<AdviceView> {
    let mut options: ModelOptions = model.options().clone();
    for (name, &v) in sizes {
        options.dims.insert(name.as_str(), v, v);
    }
    let planning = Planning {
        kernels,
        ..Planning::default()
    };
    let found = crate::advise(model.path(), &options, machine, &planning);
    found.ok().map(|(_, view)| view)
}

/// The page of a profile that [`shopfloor::profile`] made of `session` and `named`.
///
/// # Errors
/// No plan was made, which a session that ran has.
pub fn of_profile(
    session: &Session,
    named: &[(String, Tensor)],
    profile: &Profile,
    timeline: &Timeline,
) -> Result<PageData, Error> {
    let plans = session.runtime().plans();
    let plans: Vec<&Plan> = plans.iter().map(|p| p.plan()).collect();
    let Some(first) = plans.first() else {
        return Err(Error::Usage(
            "nothing has run, so there is nothing to report; run a request first".into(),
        ));
    };
    let engine = session.runtime().engine();
    let machine = engine.device().machine().clone();
    let view = planview::view(session, first);
    let model = session.model();
    // The planner may cut a plan between devices as it sees fit; what would help is said of one alone.
    let advice = advice(
        model,
        &inputs::sizes_of(model, named),
        &machine,
        Kernels::Ours,
    );
    Ok(PageData::new(PageInput {
        plans: &plans,
        machines: &machines_of(first, &[machine]),
        view: &view,
        fates: &model.program().fates,
        measured: Some((profile, timeline)),
        works: works(session, named),
        modules: modules(model),
        advice,
        tool: TOOL,
    }))
}

/// The work of every step for the sizes that ran.
fn works(session: &Session, named: &[(String, Tensor)]) -> BTreeMap<String, Work> {
    let engine = session.runtime().engine();
    let sizes = inputs::sizes_of(session.model(), named);
    let mut out = BTreeMap::new();
    for plan in session.runtime().plans() {
        for (view, work) in shopfloor::step_views(&plan, engine.device().machine(), &sizes) {
            if let Some(w) = work {
                out.entry(view.name).or_insert(w);
            }
        }
    }
    out
}

/// The page of a plan of `model` for `machine`, which need not be here; `view` is the plan as a table
/// shows it.
pub fn of_plan(
    model: &Model,
    plan: &Plan,
    view: &PlanView,
    machine: &Machine,
    kernels: Kernels,
) -> PageData {
    let sizes: BTreeMap<String, i64> = plan
        .dims
        .iter()
        .map(|(n, r)| (n.to_string(), r.hi))
        .inserted();
    PageData::new(PageInput {
        plans: &[plan],
        machines: &machines_of(plan, std::slice::from_ref(machine)),
        view,
        fates: &model.program().fates,
        measured: None,
        works: BTreeMap::new(),
        modules: modules(model),
        advice: advice(model, &sizes, machine, kernels),
        tool: TOOL,
    })
}

/// Reads what a page is to be compared with: another page, its data, or JSON of a profile or plan.
///
/// # Errors
/// A file that cannot be read, or that is none of these.
pub fn read_against(path: impl AsRef<Path>) -> Result<Baseline, Error> {
    let path = path.as_ref();
    let text = shopfloor::read_text(path, files::MADE)?;
    Baseline::read(&text).map_err(|e| Error::Other(format!("{}: {e}", path.display()).into()))
}

/// Writes a page; to a file whose name ends in `.json` its data alone.
///
/// # Errors
/// A file that cannot be written.
pub fn save(page: &PageData, path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    let io = |source| Error::Io {
        path: path.display().to_string(),
        source,
    };
    let json = path.extension().is_some_and(|e| e == "json");
    let text = if json { page.json() } else { page.html() };
    let text = text.map_err(|e| io(std::io::Error::other(e)))?;
    shopfloor::write_file(path, text)
}
