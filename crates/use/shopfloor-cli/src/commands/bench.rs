//! `shopfloor bench`: latency, throughput, load and fixed costs.
use crate::args::{CacheArgs, EngineArgs, Given, ModelArgs, OF_MODEL, tell_assumed};
use crate::first;
use crate::output::{self, Done, Failure};
use shopfloor::{Cache, Launch, Model, SuperviseOptions, Supervision, inputs};
use shopfloor_tools::supervisor::supervise::Mode;
use shopfloor_tools::{BenchOptions, Bind, Subject, data, report::WaysReport, report::units};
use std::process::Command;

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    #[arg(conflicts_with = "op")]
    model: Option<String>,
    /// One operator instead of a model: matmul:MxNxK:TYPE[:dynamic] (dynamic: both factors are inputs),
    /// conv:N,C,H,W,OC,KH,KW,STRIDE,PAD[:TYPE], map:N:TYPE:FUNCTION or map:N:TYPE:Kin (the sum of K inputs).
    /// TYPE is f32, f16, bf16 or f64; FUNCTION relu, gelu, gelu_tanh, sigmoid, silu, tanh, erf, exp, log, sqrt,
    /// add or mul
    #[arg(long, value_name = "OP")]
    op: Option<String>,
    /// A measurement of the engine itself: fixed-cost (what a request costs beside its arithmetic), load (how long
    /// MODEL takes to be ready in new processes), launch (a short kernel on a GPU, launched and resident), ring (a
    /// hand-off to a worker) or streams (messages of recurrent state, alone and joined)
    #[arg(long, value_name = "DEMO", value_parser = ["fixed-cost", "load", "launch", "ring", "streams"], hide_possible_values = true, conflicts_with = "op")]
    demo: Option<String>,
    /// Requests before measuring, of every caller
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = crate::args::whole::<usize>(0..))]
    warmup: usize,
    /// Requests to measure [default: as many as fit into --seconds]
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = crate::args::whole::<u32>(1..))]
    iterations: Option<u32>,
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = crate::args::measuring_seconds)]
    seconds: f64,
    /// Callers at once, on one session
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::args::whole::<u32>(1..=1024))]
    concurrency: u32,
    /// Where inputs and outputs are: host, from where every request copies them to a device and back, or device,
    /// where they stay
    #[arg(long, value_name = "WHERE", default_value = "host", value_parser = bind, conflicts_with_all = ["demo", "sweep"])]
    bind: Bind,
    /// Answer questions of `shopfloor top --attach SOCKET` while it measures
    #[cfg(unix)]
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["demo", "sweep"])]
    status: Option<String>,
    /// How far a supervisor of the engine may go: off, observe or on; what it decides goes to standard error
    #[arg(long, value_name = "HOW", value_parser = crate::args::mode, conflicts_with_all = ["demo", "sweep"])]
    supervise: Option<Mode>,
    /// Measures every way to run the model (batch, runs at once, workers of each) beside the one that is
    /// chosen for --goal throughput, each for --seconds
    #[arg(long, conflicts_with_all = ["demo", "op", "inputs"])]
    sweep: bool,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// The figures as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

fn bind(text: &str) -> Result<Bind, String> {
    match text {
        "host" => Ok(Bind::Host),
        "device" => Ok(Bind::Device),
        _ => Err("inputs and outputs are on the host or on the device: give host or device".into()),
    }
}

/// `engine` with one way to launch.
fn launching(engine: &EngineArgs, launch: Launch) -> EngineArgs {
    EngineArgs {
        launch: vec![launch],
        ..engine.clone()
    }
}

/// The model in processes of its own, with a cache that is empty at first.
fn load(a: &Args) -> Done {
    let Some(model) = &a.model else {
        return Err(Failure::Usage(
            "--demo load measures a model: give its file".into(),
        ));
    };
    let options = a.bound.options()?;
    let m = Model::open(model, &options)?;
    a.bound.check(&m)?;
    let given = match a.bound.inputs.is_empty() {
        true => {
            let (sizes, assumed) = inputs::sizes(&m);
            tell_assumed(&m.program().name, &assumed);
            inputs::random_inputs(&m, &sizes)?
        }
        false => shopfloor_tools::read_inputs_of(&m, &a.bound.inputs, a.engine.memory)?,
    };
    let folder = match &a.cache.cache {
        Some(f) => f.clone(),
        None => std::env::temp_dir().join(format!("shopfloor-load-{}", std::process::id())),
    };
    if folder.exists() {
        return Err(Failure::Usage(format!(
            "{} is there already, but the first load needs an empty cache; name another folder with --cache",
            folder.display()
        )));
    }
    let io = |source| {
        Failure::Library(shopfloor::Error::Io {
            path: folder.display().to_string(),
            source,
        })
    };
    std::fs::create_dir_all(&folder).map_err(io)?;
    let file = folder.join("inputs.npz");
    let measured = data::write_npz(&file, &given)
        .map_err(Failure::from)
        .and_then(|()| {
            let program = std::env::current_exe().map_err(io)?;
            let builder = a.engine.builder()?;
            let command = |cache: &Cache| {
                let mut c = Command::new(&program);
                c.arg("run").arg(model).args(["--json", "--steady"]);
                c.arg("--inputs").arg(&file);
                c.arg("--cache").arg(cache.folder());
                c.args(a.bound.to_arguments()).args(a.engine.to_arguments());
                c
            };
            let cache = Cache::new(folder.join("cache"));
            let (model, given) = (model.as_ref(), Some(given));
            let report = output::measuring(|bar| {
                let planned = shopfloor_tools::planning_times(&builder, model, &options, given)?;
                shopfloor_tools::load_times(&[planned], &cache, &command, bar)
            });
            Ok(report?)
        });
    let _ = std::fs::remove_dir_all(&folder);
    let report = measured?;
    output::report(a.json, &report, |r, style| r.render(style))
}

/// Many batches of a short kernel, launched and by a kernel that stays.
fn both_launches(a: &Args) -> Done {
    let engine = EngineArgs {
        on: Some(
            a.engine
                .on
                .clone()
                .unwrap_or_else(|| "emulated:a100".into()),
        ),
        ..a.engine.clone()
    };
    let with = |launch| launching(&engine, launch).builder();
    let (launched, resident) = (with(Launch::Steps)?, with(Launch::Resident)?);
    let batches = a.iterations.map(|n| n as usize);
    let report =
        output::measuring(|bar| shopfloor_tools::persistent(launched, resident, batches, bar))?;
    output::report(a.json, &report, |r, style| r.render(style))
}

/// What a request costs beside its arithmetic.
fn fixed_cost(a: &Args) -> Done {
    let builder = a.engine.builder()?;
    let report = output::measuring(|bar| shopfloor_tools::fixed_cost(builder, 0.5, bar))?;
    output::report(a.json, &report, |r, style| r.render(style))
}

/// A small task handed to another thread, in every way.
fn ring(a: &Args) -> Done {
    let report = output::measuring(|bar| shopfloor_tools::handoff(a.seconds / 4.0, bar))?;
    output::report(a.json, &report, |r, style| r.render(style))
}

/// Messages of several streams, each by itself and joined.
fn streams(a: &Args) -> Done {
    let builder = a.engine.builder()?;
    let report = output::measuring(|bar| shopfloor_tools::streams(builder, a.seconds / 4.0, bar))?;
    output::report(a.json, &report, |r, style| r.render(style))
}

/// Options of where it runs that do something in a demonstration.
const PLACE: &[&str] = &[
    "--on",
    "--threads",
    "--isa",
    "--machine",
    "--memory",
    "--no-streaming",
    "--json",
];

/// Options of what is kept.
const CACHE: &[&str] = &["--cache", "--no-cache", "--cache-limit"];

/// A demonstration, and what does something in it.
fn demo(a: &Args, name: &str, given: &Given) -> Done {
    type Demo = fn(&Args) -> Done;
    let (run, known): (Demo, Vec<&[&str]>) = match name {
        "streams" => (streams, vec![PLACE, &["--seconds", "--launch"]]),
        "ring" => (ring, vec![&["--seconds", "--json"]]),
        "load" => (load, vec![PLACE, OF_MODEL, &["--launch", "--cache"]]),
        "launch" => (both_launches, vec![PLACE, &["--iterations"]]),
        _ => (fixed_cost, vec![PLACE, &["--launch"]]),
    };
    let known = [&["--demo"][..], &known.concat()].concat();
    given.only(&known, &format!("bench --demo {name}"))?;
    run(a)
}

/// Refuses what does nothing for what is measured.
fn check(a: &Args, typed: &Given) -> Done {
    if a.op.is_some() {
        typed.without(&OF_MODEL[2..], "bench --op")?;
        typed.without(CACHE, "bench --op, which keeps nothing")?;
    }
    if a.sweep {
        typed.without(CACHE, "bench --sweep")?;
        typed.without(
            &["--concurrency", "--launch"],
            "bench --sweep, which tries callers and workers",
        )?;
    }
    let file = a.model.as_ref();
    file.map_or(Ok(()), |path| a.bound.check_file(path))
}

pub fn run(mut a: Args, typed: &Given) -> Done {
    let bound = a.engine.take_latency_bound();
    if let Some(name) = &a.demo {
        return demo(&a, name, typed);
    }
    check(&a, typed)?;
    first::measure(&a.engine)?;
    if !a.sweep {
        a.bound.tell_sizes();
    }
    let given = if a.bound.inputs.is_empty() {
        None
    } else {
        Some(shopfloor_tools::read_inputs(&a.bound.inputs)?)
    };
    let subject = match (&a.op, &a.model) {
        (Some(op), _) => Subject::Op(op),
        (None, Some(path)) => Subject::File(path.as_ref()),
        (None, None) => {
            return Err(Failure::Usage(
                "there is nothing to measure: give an ONNX file, an operator with --op matmul:64x64x64:f32, or the engine itself with --demo fixed-cost"
                    .into(),
            ));
        }
    };
    let options = BenchOptions {
        warmup: a.warmup,
        iterations: a.iterations.map(|n| n as usize),
        seconds: a.seconds,
        concurrency: a.concurrency as usize,
        bind: a.bind,
    };
    if let (true, Subject::File(path)) = (a.sweep, &subject) {
        let (builder, goal) = (a.engine.builder()?, a.engine.goal().goal);
        let bound = a.bound.options()?;
        let report = output::measuring(|bar| {
            shopfloor_tools::sweep(&builder, path, &bound, options, goal, bar)
        })?;
        return output::report(a.json, &report, |r, style| r.render(style));
    }
    let measured = |engine: &EngineArgs, subject, given| {
        let builder = a.cache.apply(engine.builder()?)?;
        let engine = builder.engine()?;
        #[cfg(unix)]
        let _server = (a.status.as_ref())
            .map(|path| shopfloor::status::StatusServer::start(engine.clone(), path))
            .transpose()?;
        let supervision = (a.supervise)
            .filter(|m| *m != Mode::Off)
            .map(|mode| {
                let mut o = SuperviseOptions::of(mode);
                o.hear = Some(Box::new(|d| {
                    output::note(output::decision(d, output::style().width).trim())
                }));
                Supervision::start(&engine, o)
            })
            .transpose()?;
        let (builder, bound) = (builder.with_engine(engine), a.bound.options()?);
        let report = output::measuring(|bar| {
            shopfloor_tools::bench(builder, subject, &bound, given, options, bar)
        })?;
        supervision.map(Supervision::finish).transpose()?;
        Ok::<_, Failure>(report)
    };
    if let [first, second] = a.engine.launch[..] {
        if first == second || [first, second].contains(&Launch::Graph) {
            return Err(Failure::Usage(format!(
                "bench compares steps,resident and not {first},{second}; give --launch steps,resident or one way"
            )));
        }
        let again = match (&a.op, &a.model) {
            (Some(op), _) => Subject::Op(op),
            (None, path) => Subject::File(path.as_deref().unwrap_or_default().as_ref()),
        };
        let stays = launching(&a.engine, Launch::Resident);
        let report = WaysReport {
            steps: measured(&launching(&a.engine, Launch::Steps), subject, given.clone())?,
            resident: measured(&stays, again, given)?,
        };
        tell_assumed(&report.steps.model, &report.steps.assumed);
        return output::report(a.json, &report, |r, style| r.render(style));
    }
    let report = measured(&a.engine, subject, given)?;
    tell_assumed(&report.model, &report.assumed);
    output::report(a.json, &report, |r, style| r.render(style))?;
    match bound {
        Some(bound) if report.latency_ms.p99 > bound * 1e3 => Err(Failure::Missed(format!(
            "{}: the goal was {} for 99 of 100 requests, and they took up to {}; allow more time, more threads or less concurrency",
            report.model,
            units::seconds(bound),
            units::seconds(report.latency_ms.p99 * 1e-3)
        ))),
        _ => Ok(()),
    }
}
