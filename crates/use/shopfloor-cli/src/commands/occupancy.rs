//! `shopfloor occupancy`: the occupancy calculator.
use crate::args;
use crate::output::{self, Done, Failure};
use shopfloor::machines;
use shopfloor_tools::calc::{self, Launch, OutOfRange};
use shopfloor_tools::report::calc::OccupancyView;

#[derive(clap::Args)]
pub struct Args {
    /// GPU that is planned for: a name such as h100, or a TOML file
    #[arg(long, value_name = "MACHINE")]
    on: Option<String>,
    /// A compute capability instead, such as 9.0
    #[arg(long, value_name = "X.Y", conflicts_with = "on")]
    cc: Option<String>,
    /// Threads of a CTA
    #[arg(long, value_name = "N", value_parser = args::whole::<u64>(0..))]
    threads: u64,
    /// Registers of a thread
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = args::whole::<u64>(0..))]
    registers: u64,
    /// Static shared memory of a CTA
    #[arg(long, value_name = "SIZE", default_value = "0", allow_hyphen_values = true, value_parser = args::bytes)]
    shared: u64,
    /// Dynamic shared memory of a CTA
    #[arg(long, value_name = "SIZE", default_value = "0", allow_hyphen_values = true, value_parser = args::bytes)]
    dynamic_shared: u64,
    /// The kernel opts in to more than 48 KiB of shared memory (1; 0 is not)
    #[arg(
        long,
        value_name = "0|1",
        num_args = 0..=1,
        default_value = "0",
        default_missing_value = "1",
        value_parser = args::whole::<u8>(0..=1)
    )]
    optin: u8,
    /// Share of the joint L1 and shared memory preferred for shared memory, per cent; -1 leaves it
    /// to the driver
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = -1,
        value_parser = args::whole::<i64>(-1..=100)
    )]
    carveout: i64,
    /// CTA barriers that the kernel uses
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = args::whole::<u64>(0..))]
    barriers: u64,
    /// Bytes that each lane asks for before it waits
    #[arg(long, value_name = "SIZE", default_value = "16", value_parser = args::some_bytes)]
    per_lane: u64,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// What no launch can have on the GPU called `name`, with what it can.
fn refused(name: &str, o: &OutOfRange) -> Failure {
    let most = o
        .most
        .map_or_else(|| "any number".into(), |n| n.to_string());
    Failure::Usage(format!(
        "--{} {} is out of range for {name}: it takes {} to {most}",
        o.what, o.given, o.least
    ))
}

pub fn run(a: Args) -> Done {
    let launch = Launch {
        threads: a.threads,
        registers: a.registers,
        shared: a.shared,
        dynamic_shared: a.dynamic_shared,
        opt_in: a.optin == 1,
        carveout: u64::try_from(a.carveout).ok(),
        barriers: a.barriers,
    };
    let machine = a.on.as_deref().map(machines::find).transpose()?;
    let (name, limits) = match (&machine, &a.cc) {
        (Some(m), _) => (m.name.clone(), m.limits.clone()),
        (None, None) => {
            return Err(Failure::Usage(
                "there is no GPU to ask about: name one with --on, such as --on h100, or a compute capability with --cc, such as --cc 9.0"
                    .into(),
            ));
        }
        (None, Some(cc)) => {
            let found = calc::parse_capability(cc).and_then(calc::limits_of_capability);
            let Some(limits) = found else {
                let known: Vec<String> = calc::known_capabilities()
                    .iter()
                    .map(|c| format!("{}.{}", c / 10, c % 10))
                    .collect();
                return Err(Failure::Usage(format!(
                    "'{cc}' is no compute capability with known limits; they are {}",
                    known.join(" ")
                )));
            };
            (format!("compute capability {cc}"), limits)
        }
    };
    if let Some(o) = calc::out_of_range(&limits, &launch) {
        return Err(refused(&name, &o));
    }
    let view = OccupancyView::new(&name, &limits, machine.as_ref(), &launch, a.per_lane);
    let Some(view) = view else {
        return Err(Failure::Usage(format!(
            "{name} does not say how many CTAs an SM holds: its limits lack {}; name a GPU with --on, or a compute capability with --cc",
            calc::occupancy_lacks(&limits).join(", ")
        )));
    };
    if a.json {
        output::json(&view)
    } else {
        output::page(&view.render(output::style()))
    }
}
