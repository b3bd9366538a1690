//! `shopfloor profile`: a measured run beside its prediction.
use crate::args::{
    CacheArgs, EngineArgs, ModelArgs, PlanArgs, ReportArgs, tell_assumed, tell_cache, tell_machine,
};
use crate::first;
use crate::output::{self, Done};
use crate::progress::Progress;
use shopfloor::inputs;
use shopfloor_tools::{pages, report, roofline};

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    /// Requests before measuring
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = crate::args::whole::<usize>(0..))]
    warmup: usize,
    /// Requests to measure
    #[arg(long = "iterations", alias = "active", value_name = "N", default_value_t = 20, value_parser = crate::args::whole::<u32>(1..=4096))]
    active: u32,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    report: ReportArgs,
    #[command(flatten)]
    plan: PlanArgs,
    /// Save the last request for Perfetto: as its protobuf where the name ends in .pftrace or .pb, else as
    /// Chrome trace events, which chrome://tracing reads too
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    trace: Option<String>,
    /// Steps to list, those that take most time first
    #[arg(long, value_name = "N", default_value_t = 15, help_heading = "Output", value_parser = crate::args::whole::<u32>(1..))]
    top: u32,
    /// List what became of every node of the model
    #[arg(long, help_heading = "Output")]
    nodes: bool,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub fn run(a: Args) -> Done {
    let baseline = a.report.baseline()?;
    first::measure(&a.engine)?;
    let waiting = Progress::spinner("measuring");
    let session = a
        .cache
        .apply(a.engine.builder()?)?
        .with_model_options(a.bound.options()?)
        .commit_from_file(&a.model)?;
    let named = if a.bound.inputs.is_empty() {
        let (sizes, assumed) = inputs::sizes(session.model());
        tell_assumed(&session.model().program().name, &assumed);
        a.bound.tell_sizes();
        inputs::random_inputs(session.model(), &sizes)?
    } else {
        shopfloor_tools::read_inputs_of(session.model(), &a.bound.inputs, a.engine.memory)?
    };
    a.bound.check(session.model())?;
    a.plan.apply(&session, &named)?;
    let (profile, timeline) = shopfloor::profile(&session, &named, a.warmup, a.active as usize)?;
    a.engine.launched(&session)?;
    a.report.write(baseline, || {
        pages::of_profile(&session, &named, &profile, &timeline)
    })?;
    drop(waiting);
    tell_cache(&session);
    tell_machine(&session);
    if let Some(path) = &a.trace {
        let bytes = match path.ends_with(".pftrace") || path.ends_with(".pb") {
            true => report::perfetto_trace(&profile, &timeline),
            false => report::chrome_trace(&profile, &timeline).into_bytes(),
        };
        shopfloor::write_file(path, bytes)?;
        output::note(&format!("wrote {path}"));
    }
    if a.json {
        output::json(&profile)
    } else {
        let style = output::style();
        output::page(&profile.render(style, a.top as usize, a.nodes))?;
        let lanes = report::timeline_text(&profile, &timeline, style);
        let roofs = roofline::of_profile(&session, &profile)
            .map_or_else(String::new, |r| r.measured_plot(style));
        for part in [lanes, roofs].iter().filter(|p| !p.is_empty()) {
            output::page(&format!("\n{part}"))?;
        }
        Ok(())
    }
}
