//! Memory stated before loading against memory measured, and over many requests.
//!
//! What is measured is the whole process's, so each model needs a process of its own: [`figures`]
//! runs in it, and whoever starts it reads the line that it prints.
use crate::random::Rng;
use crate::zoo::ZooModel;
use serde::{Deserialize, Serialize};
use shopfloor::{Model, ModelOptions, Session, Tensor, inputs, planview};

/// What one process saw of a model, in bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Constants in the model's file that the plan uses.
    pub weights: u64,
    /// Weights that requests read where they lie.
    pub in_place: u64,
    /// Packed weights and other results of the init segment.
    pub packed: u64,
    /// Weights of what is planned when the data gives its sizes.
    pub late: u64,
    /// Arenas of all requests that may run at once.
    pub arena: u64,
    /// Scratch of all workers.
    pub scratch: u64,
    /// The caller's inputs and outputs of one request.
    pub ports: u64,
    /// What `plan` states as the total.
    pub total: u64,
    /// What `plan` states that a process may take beside, whatever the model.
    pub beside: u64,
    /// Highest resident size before anything was loaded: the program itself.
    pub before: u64,
    /// Highest resident size after the plan was made and stated.
    pub planned: u64,
    /// Highest resident size after a request.
    pub peak: u64,
}

impl Figures {
    /// True when the peak stays inside what was stated. The caller's own tensors count as stated.
    pub fn kept(&self) -> bool {
        self.peak <= self.total + self.ports + self.beside
    }
}

/// Plans `model`, whose file lies at `path`, for the sizes of its reference, notes what the plan
/// states, then runs one request in this process.
///
/// # Errors
/// A model that does not load, plan or run, as one text.
pub fn figures(
    model: &ZooModel,
    path: &std::path::Path,
    threads: usize,
) -> Result<Figures, String> {
    let text = |e: &dyn std::fmt::Display| format!("{}: {e}", model.name());
    let peak = || shopfloor::peak_rss().ok_or("this system does not say how much is resident");
    let before = peak()?;
    let named = model.inputs().map_err(|e| text(&e))?;
    let opened = Model::open(path, &ModelOptions::default()).map_err(|e| text(&e))?;
    let session = Session::builder()
        .with_threads(threads)
        .commit(opened)
        .map_err(|e| text(&e))?;
    let sizes = inputs::sizes_of(session.model(), &named);
    let dims = inputs::box_of(session.model(), &sizes);
    let plan = session.plan(&dims).map_err(|e| text(&e))?;
    let view = planview::view(&session, &plan).memory;
    let planned = peak()?;
    session.swap_plan(plan).map_err(|e| text(&e))?;
    let outputs = session
        .run(&inputs::borrowed(&named))
        .map_err(|e| text(&e))?;
    drop(outputs);
    Ok(Figures {
        weights: view.weights,
        in_place: view.weights_in_place,
        packed: view.packed,
        late: view.late,
        arena: view.arena * view.requests,
        scratch: view.scratch * (view.workers + view.requests).saturating_sub(1),
        ports: view.ports,
        total: view.total,
        beside: view.beside,
        before,
        planned,
        peak: peak()?,
    })
}

/// Resident bytes of this process now; `None` where the system does not say.
pub fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Resident bytes after the largest shapes and some random ones, and again after `runs` requests of
/// random shapes: each of `dims` between 1 and its number.
///
/// # Errors
/// A model that does not load or run, as one text.
pub fn over_shapes(
    model: &ZooModel,
    path: &std::path::Path,
    dims: &[(&str, usize)],
    runs: usize,
) -> Result<(u64, u64), String> {
    let text = |e: &dyn std::fmt::Display| format!("{}: {e}", model.name());
    let session = Session::builder()
        .with_threads(2)
        .commit_from_file(path)
        .map_err(|e| text(&e))?;
    let mut rng = Rng::new(7);
    let mut request = |largest: bool| -> Result<(), String> {
        let (mut sizes, _) = inputs::sizes(session.model());
        for (name, most) in dims {
            let n = if largest { *most } else { 1 + rng.below(*most) };
            sizes.insert((*name).into(), n as i64);
        }
        let named: Vec<(String, Tensor)> =
            inputs::random_inputs(session.model(), &sizes).map_err(|e| text(&e))?;
        let out = session.run(&inputs::borrowed(&named));
        out.map(drop).map_err(|e| text(&e))
    };
    let now = || resident().ok_or("this system does not say how much is resident");
    request(true)?;
    for _ in 0..runs / 10 {
        request(false)?;
    }
    let before = now()?;
    for _ in 0..runs {
        request(false)?;
    }
    Ok((before, now()?))
}
