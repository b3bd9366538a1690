//! `shopfloor transfer`: the transfer calculator.
use crate::args;
use crate::output::{self, Done};
use shopfloor::machines;
use shopfloor_tools::calc::Batches;
use shopfloor_tools::report::calc::TransferView;

#[derive(clap::Args)]
pub struct Args {
    /// Machine that is planned for: cpu, a name such as h100 (`shopfloor machines list`), or a TOML file
    #[arg(long, value_name = "MACHINE")]
    on: String,
    /// Bytes of a batch, each way
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = args::bytes)]
    bytes: u64,
    /// How many batches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = args::whole::<u64>(1..=1_000_000_000))]
    batches: u64,
    /// Time of the kernel on one batch, such as 10us; a plain number is seconds, here and below
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::seconds)]
    kernel: f64,
    /// Time of a launch [default: the machine's]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::seconds)]
    launch: Option<f64>,
    /// Time of one copy [default: bytes over the machine's link to the host]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::seconds)]
    copy: Option<f64>,
    /// Time of a hand-off through a ring, one way
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::seconds)]
    handoff: Option<f64>,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub fn run(a: Args) -> Done {
    let m = machines::find(&a.on)?;
    let mut b = Batches::on(&m, a.bytes as f64, a.batches, a.kernel);
    if let Some(v) = a.launch {
        b.launch_s = v;
    }
    if let Some(v) = a.copy {
        (b.copy_in_s, b.copy_out_s) = (v, v);
    }
    if let Some(v) = a.handoff {
        b.handoff_s = v;
    }
    let view = TransferView::new(&m.name, a.bytes, &b);
    if a.json {
        output::json(&view)
    } else {
        output::page(&view.render(output::style()))
    }
}
