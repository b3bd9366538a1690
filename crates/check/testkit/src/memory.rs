//! Memory stated before loading against memory measured, and over many requests.
//!
//! What is measured is the whole process's, so each model needs a process of its own: [`figures`]
//! runs in it, and whoever starts it reads the line that it prints.
use crate::random::Rng;
use crate::zoo::ZooModel;
use serde::{Deserialize, Serialize};
use shopfloor::{Model, ModelOptions, Session, Tensor, inputs};
use shopfloor_tools::planview;

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
    pub fn within_statement(&self) -> bool {
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
    let peak =
        || shopfloor_tools::peak_rss().ok_or("this system does not say how much is resident");
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

/// Memory over requests of random shapes, in bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Shapes {
    /// Symbolic dims with the largest size that was drawn.
    pub dims: Vec<(String, usize)>,
    /// Resident after the largest shapes and a tenth of the random ones.
    pub before: u64,
    /// Resident after all.
    pub after: u64,
    /// Highest resident size.
    pub peak: u64,
    /// What `plan` states for the largest shapes, inputs and outputs included.
    pub total: u64,
    /// What `plan` states that a process may take beside.
    pub beside: u64,
}

impl Shapes {
    /// True when the peak stays inside what was stated for the largest shapes.
    pub fn within_statement(&self) -> bool {
        self.peak <= self.total + self.beside
    }
}

/// Looks at memory after the largest shapes and some random ones, and again after `runs` requests of
/// random shapes. Sizes of batches are drawn up to 2, or 16 where there is nothing else to draw;
/// others up to `longest`.
///
/// # Errors
/// A model that does not load or run, or has no symbolic dims, as one text.
pub fn over_shapes(
    model: &ZooModel,
    path: &std::path::Path,
    runs: usize,
    longest: usize,
) -> Result<Shapes, String> {
    let text = |e: &dyn std::fmt::Display| format!("{}: {e}", model.name());
    let session = Session::builder()
        .with_threads(2)
        .commit_from_file(path)
        .map_err(|e| text(&e))?;
    let (sizes, _) = inputs::sizes(session.model());
    let most = |name: &str| match name.to_lowercase().contains("batch") || name == "n" {
        true if sizes.len() == 1 => 16,
        true => 2,
        false => longest,
    };
    let dims: Vec<(String, usize)> = sizes.keys().map(|s| (s.clone(), most(s))).collect();
    if dims.is_empty() {
        return Err(format!("{}: it has no symbolic dims", model.name()));
    }
    let mut rng = Rng::new(7);
    let mut drawn = |largest: bool| {
        let mut sizes = sizes.clone();
        for (name, most) in &dims {
            let n = if largest { *most } else { 1 + rng.below(*most) };
            sizes.insert(name.clone(), n as i64);
        }
        sizes
    };
    let request = |sizes: &std::collections::BTreeMap<String, i64>| -> Result<(), String> {
        let named: Vec<(String, Tensor)> =
            inputs::random_inputs(session.model(), sizes).map_err(|e| text(&e))?;
        let out = session.run(&inputs::borrowed(&named));
        out.map(drop).map_err(|e| text(&e))
    };
    let now = || resident().ok_or("this system does not say how much is resident");
    let largest = drawn(true);
    let plan = session
        .plan(&inputs::box_of(session.model(), &largest))
        .map_err(|e| text(&e))?;
    let view = planview::view(&session, &plan).memory;
    drop(plan);
    request(&largest)?;
    for _ in 0..runs / 10 {
        request(&drawn(false))?;
    }
    let before = now()?;
    for _ in 0..runs {
        request(&drawn(false))?;
    }
    Ok(Shapes {
        before,
        after: now()?,
        peak: shopfloor_tools::peak_rss().unwrap_or_default(),
        total: view.total + view.ports,
        beside: view.beside,
        dims,
    })
}
