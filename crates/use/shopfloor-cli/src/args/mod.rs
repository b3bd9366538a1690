//! Options that commands share.

mod engine;
mod given;
mod model;
mod values;

pub use engine::{EngineArgs, KernelsArgs, Place, refuse};
pub use given::{Given, OF_MODEL};
pub use model::{GraphArgs, ModelArgs, tell_assumed};
pub use values::{
    bytes, calibration_seconds, measuring_seconds, mode, seconds, some_bytes, tolerance, whole,
};

use crate::output::{Failure, note};
use clap::Args;
use shopfloor::{Cache, Session, SessionBuilder, Tensor, inputs, machines};
use shopfloor_tools::{
    pages, planview,
    report::page::{Baseline, PageData},
    report::units,
};

/// A page about it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct ReportArgs {
    /// Write a page that explains everything, for a browser; its data alone to a name that ends in .json
    #[arg(long, value_name = "FILE")]
    pub report: Option<String>,
    /// Show in the page what is different from another report (.html or .json), or from what
    /// `profile --json` or `plan --json` printed
    #[arg(long, value_name = "FILE", requires = "report")]
    pub against: Option<String>,
}

impl ReportArgs {
    /// What to compare with, read before anything takes time.
    pub fn baseline(&self) -> Result<Option<Baseline>, Failure> {
        Ok(self
            .against
            .as_deref()
            .map(pages::read_against)
            .transpose()?)
    }

    /// Writes the page that `make` makes, if one was asked for.
    pub fn write(
        &self,
        other: Option<Baseline>,
        make: impl FnOnce() -> Result<PageData, shopfloor::Error>,
    ) -> Result<(), Failure> {
        let Some(path) = &self.report else {
            return Ok(());
        };
        let mut page = make()?;
        if let Some(other) = other {
            page = page.with_against(other);
        }
        pages::save(&page, path)?;
        crate::output::note(&format!("wrote {path}"));
        Ok(())
    }
}

/// What is kept between processes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Kept between processes")]
pub struct CacheArgs {
    /// Folder to keep plans, packed weights and GPU code in [default: shopfloor in the user's cache folder]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<std::path::PathBuf>,
    /// Keep nothing, and use nothing that was kept
    #[arg(long, conflicts_with = "cache")]
    pub no_cache: bool,
    /// What the cache may take in all, such as 500MiB; what was not used for longest goes first
    /// [default: 4GiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes, conflicts_with = "no_cache")]
    pub cache_limit: Option<u64>,
}

impl CacheArgs {
    /// `builder` with the cache asked for.
    ///
    /// # Errors
    /// A limit for a cache that there is not.
    pub fn apply(&self, builder: SessionBuilder) -> Result<SessionBuilder, Failure> {
        let cache = match &self.cache {
            Some(folder) => Some(Cache::new(folder)),
            None => Cache::of_user(),
        };
        match (cache.filter(|_| !self.no_cache), self.cache_limit) {
            (Some(c), Some(n)) => Ok(builder.with_cache(c.with_limit(n))),
            (Some(c), None) => Ok(builder.with_cache(c)),
            (None, Some(_)) => Err(Failure::Usage(
                "--cache-limit does nothing: the system names no folder for a cache; name one with --cache"
                    .into(),
            )),
            (None, None) => Ok(builder),
        }
    }
}

/// Says why nothing is kept for the next load, where that is so.
pub fn tell_cache(session: &Session) {
    if let Some(why) = session.cache_problem() {
        note(why);
    }
}

/// Says where predictions could be closer, since nobody measured the CPU that they are for.
pub fn tell_machine(session: &Session) {
    let engine = session.runtime().engine();
    let machine = engine.device().machine();
    if machines::is_assumed(machine) {
        note(&format!(
            "the rates of {} are assumed; `shopfloor machines calibrate` measures them once, and predictions get closer",
            machine.name
        ));
    }
}

/// A saved plan.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Plan")]
pub struct PlanArgs {
    /// Run by this saved plan (`shopfloor plan --out`)
    #[arg(long, value_name = "FILE")]
    pub plan: Option<String>,
    /// Take the plan of --plan although it was changed after it was saved: its rules are checked, and that
    /// it is of this model, but not that it computes what the model does
    #[arg(long, requires = "plan")]
    pub plan_unchecked: bool,
}

impl PlanArgs {
    /// Loads the plan, if there is one, and makes it the session's, verified. It must be for the sizes of the request
    /// of `given`.
    pub fn apply(&self, session: &Session, given: &[(String, Tensor)]) -> Result<(), Failure> {
        let Some(path) = &self.plan else {
            return Ok(());
        };
        let plan = match self.plan_unchecked {
            true => planview::load_unchecked(path)?,
            false => planview::load(path)?,
        };
        let sizes = inputs::sizes_of(session.model(), given);
        if let Some((name, size)) = plan.dims.outside(&|s| sizes.get(s).copied()) {
            return Err(Failure::Usage(format!(
                "{path} is a plan for {}, and the request has {name}={size}; give inputs of its sizes, or make a plan by `shopfloor plan --dim {name}={size} --out FILE`",
                plan.dims
            )));
        }
        let device = session.runtime().engine().device();
        let (target, workers) = (&device.target().name, device.workers() as u32);
        if let Some(of) = plan.devices.last()
            && (of.target != *target || of.workers != workers)
        {
            note(&format!(
                "{path} was made for {} of {}, and {workers} of {target} run it: what it predicts is for the former",
                units::plural(of.workers.into(), "worker"),
                of.target
            ));
        }
        session.swap_plan(plan)?;
        Ok(())
    }
}
