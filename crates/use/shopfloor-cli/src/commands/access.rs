//! `shopfloor access`: how a warp's accesses meet memory.
use crate::args;
use crate::output::{self, Done, Failure};
use shopfloor_tools::report::calc::{AccessInput, AccessView};

#[derive(clap::Args)]
pub struct Args {
    /// Bytes of an element: 1, 2, 4, 8 or 16
    #[arg(long, value_name = "BYTES", default_value_t = 4, value_parser = args::whole::<u64>(0..))]
    width: u64,
    /// Elements from one lane to the next
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        conflicts_with = "index",
        value_parser = args::whole::<u64>(0..=(1 << 46) - 1)
    )]
    stride: u64,
    /// The element of each lane, such as "lane*33 % 1024" or "lane ^ (lane / 8)"
    #[arg(long, value_name = "EXPR")]
    index: Option<String>,
    /// Lanes that take part, such as "lane % 2 == 0"; also tells what the branch costs
    #[arg(long, value_name = "EXPR")]
    predicate: Option<String>,
    /// Lanes of the warp
    #[arg(
        long,
        value_name = "N",
        default_value_t = 32,
        value_parser = args::whole::<u64>(1..=64)
    )]
    lanes: u64,
    /// Byte at which element 0 lies
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = args::bytes)]
    base: u64,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub fn run(a: Args) -> Done {
    if !matches!(a.width, 1 | 2 | 4 | 8 | 16) {
        return Err(Failure::Usage(format!(
            "a lane accesses 1, 2, 4, 8 or 16 bytes, not {}",
            a.width
        )));
    }
    let input = AccessInput {
        lanes: a.lanes,
        width: a.width,
        stride: a.stride,
        index: a.index,
        predicate: a.predicate,
        base: a.base,
    };
    let view = AccessView::new(&input).map_err(|e| Failure::Usage(e.to_string()))?;
    if a.json {
        output::json(&view)
    } else {
        output::page(&view.render(output::style()))
    }
}
