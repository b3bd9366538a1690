//! `shopfloor tensorcore`: the tensor-core calculator.
use crate::output::{self, Done};
use shopfloor::machines;
use shopfloor_tools::calc::Product;
use shopfloor_tools::report::calc::TensorView;

#[derive(clap::Args)]
pub struct Args {
    /// Machine that is planned for: cpu, a name such as h100 (`shopfloor machines list`), or a TOML file
    #[arg(long, value_name = "MACHINE")]
    on: String,
    /// The product: matmul:MxNxK:TYPE, where TYPE is f64, f32, tf32, bf16, f16, f8, i8 or i4
    #[arg(long, value_name = "OP")]
    op: Product,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub fn run(a: Args) -> Done {
    let view = TensorView::new(&machines::find(&a.on)?, &a.op);
    if a.json {
        output::json(&view)
    } else {
        output::page(&view.render(output::style()))
    }
}
