//! `shopfloor predict`: measurement files against predictions.
use crate::output::{self, Done};
use crate::progress::Progress;
use shopfloor_tools::measured_table;
use shopfloor_tools::predict::{Constants, Measurements, Options, compare, pairs};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// Measurements, as CSV or CSV in gzip, told apart by their first line: of kernels
    /// (source,gpu,op,params,dtype,measured_us,note), of whole models
    /// (source,gpu,framework,model,mode,batch,...), or of decoding (source,gpu,n_gpu,framework,model,quant,...).
    /// Kernels: op is linear, bmm, gemm, conv_fwd, add, mul, div, pow, each also with _scalar, relu, gelu, tanh,
    /// softmax or layernorm; params such as m=64;n=64;k=64, b=8 or rows=64;cols=64; dtype is fp32, fp64, fp16,
    /// fp16acc32, fp16storage_fp32math, bf16 or int8
    #[arg(long, value_name = "FILE")]
    measurements: PathBuf,
    /// Only rows of this GPU, as the column gpu of the file names it or as the catalog does, such as a100
    #[arg(long, value_name = "NAME")]
    gpu: Option<String>,
    /// Every row with its prediction, as CSV
    #[arg(long, conflicts_with = "json")]
    rows: bool,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub fn run(a: Args) -> Done {
    let waiting = Progress::spinner("predicting");
    let m = Measurements::open(&a.measurements)?;
    let options = Options { gpu: a.gpu };
    let constants = Constants::published();
    if a.rows {
        let mut out = String::from("line,source,gpu,op,measured_us,predicted_us,why_not\n");
        for p in pairs(&m, &options, constants)? {
            let (us, why) = match &p.predicted {
                Ok(s) => (format!("{:.4}", s * 1e6), ""),
                Err(why) => (String::new(), why.as_str()),
            };
            out += &format!(
                "{},{},{},{},{:.4},{us},\"{}\"\n",
                p.row.line,
                p.row.source,
                p.row.gpu,
                p.row.op(),
                p.row.seconds * 1e6,
                why.replace('"', "\"\"")
            );
        }
        drop(waiting);
        return output::print(&out);
    }
    let report = compare(&m, &options, constants)?;
    drop(waiting);
    if a.json {
        output::json(&report)
    } else {
        output::page(&measured_table(&report, output::style()))
    }
}
