//! From a row of a file to calls of a library, or to the reason why there are none.

use crate::PredictError;
use crate::kernels::{Function, Reads};
use crate::measurements::{Row, Subject};
use crate::ops::{Library, Op, Product};
use crate::{Constants, decode, models};
use layout::DType;

/// What a source's clock shows around `seconds` on the device. Between events on an idle stream the host
/// needs its time for every call: the device's part begins somewhere within it, and is seen as far as it
/// is over later. In a loop launches overlap. A source of which nothing is known is taken to show the
/// device's time alone.
fn clocked(source: &str, op: &str, seconds: f64, c: &Constants) -> f64 {
    let event = |us: f64| {
        let host = us
            * 1e-6
            * match op {
                "add" | "mul" | "div" | "pow" => 1.0,
                "softmax" => c.get("host_softmax"),
                "layernorm" => c.get("host_layernorm"),
                "linear" | "bmm" | "gemm" => c.get("host_product"),
                "conv_fwd" => c.get("host_conv"),
                _ => c.get("host_unary"),
            };
        host.max(host * c.get("host_before_launch") + seconds)
    };
    match source {
        "neusight_test" | "neusight_train" => event(c.get("floor_event_us")),
        "neusight_amd" => event(c.get("floor_event_hip_us")),
        "deepbench_train" | "deepbench_inference" => seconds + c.get("floor_loop_us") * 1e-6,
        _ => seconds,
    }
}

/// Sizes of a row's call by name.
struct Params<'a> {
    file: &'a str,
    row: &'a Row,
    all: &'a [(String, String)],
}

impl Params<'_> {
    fn bad(&self, what: String) -> PredictError {
        PredictError::Field {
            file: self.file.into(),
            line: self.row.line,
            column: "params".into(),
            what,
        }
    }
    fn get(&self, name: &str) -> Option<&str> {
        self.all.iter().find(|p| p.0 == name).map(|p| p.1.as_str())
    }
    fn size(&self, name: &str) -> Result<u64, PredictError> {
        let text = self
            .get(name)
            .ok_or_else(|| self.bad(format!("`{}` needs {name}=", self.row.op())))?;
        match text.parse::<u64>() {
            Ok(v) if (1..=1 << 32).contains(&v) => Ok(v),
            _ => Err(self.bad(format!("{name}={text} is no size from 1 to 2^32"))),
        }
    }
    fn size_or(&self, name: &str, or: u64) -> Result<u64, PredictError> {
        match self.get(name) {
            None => Ok(or),
            Some(_) => self.size(name),
        }
    }
    fn flag(&self, name: &str) -> Result<bool, PredictError> {
        match self.get(name) {
            None | Some("0" | "N" | "n") => Ok(false),
            Some("1" | "T" | "t") => Ok(true),
            Some(v) => Err(self.bad(format!("{name}={v} is neither 0 nor 1"))),
        }
    }
}

/// Types of factors, sums and results, and whether matrix units may be used.
fn types(dtype: &str) -> Result<(DType, DType, DType, bool), String> {
    use DType as D;
    Ok(match dtype {
        "fp32" => (D::F32, D::F32, D::F32, true),
        "fp64" => (D::F64, D::F64, D::F64, true),
        "fp16acc32" | "fp16" => (D::F16, D::F32, D::F16, true),
        "bf16" => (D::BF16, D::F32, D::BF16, true),
        "fp16storage_fp32math" => (D::F16, D::F32, D::F16, false),
        "int8" => (D::I8, D::I32, D::I32, true),
        other => return Err(format!("dtype {other} is not predicted")),
    })
}

/// A convolution as the product that it is.
fn convolution(
    p: &Params,
    (input, acc, output, units): (DType, DType, DType, bool),
) -> Result<Result<Product, String>, PredictError> {
    let (n, c, h, w) = (p.size("n")?, p.size("c")?, p.size("h")?, p.size("w")?);
    let (filters, r, s) = (p.size("k")?, p.size("r")?, p.size("s")?);
    let stride = |other: &str| p.size_or(other, p.size_or("stride", 1)?);
    let pad = |other: &str| -> Result<u64, PredictError> {
        match p.get(other).or(p.get("pad")) {
            None | Some("0") => Ok(0),
            Some(_) if p.get(other).is_some() => p.size(other),
            Some(_) => p.size("pad"),
        }
    };
    let (down, across) = (stride("stride_h")?, stride("stride_w")?);
    let out = |size: u64, pad: u64, window: u64, stride: u64| {
        Some((size + 2 * pad).checked_sub(window)? / stride + 1)
    };
    let (Some(oh), Some(ow)) = (
        out(h, pad("pad_h")?, r, down),
        out(w, pad("pad_w")?, s, across),
    ) else {
        return Err(p.bad("the window is larger than the padded image".into()));
    };
    let many = |list: &[u64]| list.iter().try_fold(1u64, |a, b| a.checked_mul(*b));
    let (Some(m), Some(k), Some(e)) = (many(&[n, oh, ow]), many(&[c, r, s]), many(&[n, c, h, w]))
    else {
        return Ok(Err("a convolution of more than 2^64 elements".into()));
    };
    Ok(Ok(Product {
        batch: 1,
        m,
        n: filters,
        k,
        ta: false,
        tb: true,
        bias: false,
        input,
        acc,
        output,
        units,
        windows: e,
        fewer: r == 3 && s == 3 && down == 1 && across == 1,
    }))
}

/// What a row's call is.
///
/// # Errors
/// A size that is not there or does not read; the inner error says why the call is not predicted.
pub(crate) fn call(file: &str, row: &Row) -> Result<Result<Op, String>, PredictError> {
    let Subject::Kernel { op, params } = &row.subject else {
        return Ok(Err("not a kernel".into()));
    };
    let p = Params {
        file,
        row,
        all: params,
    };
    let (input, acc, output, units) = match types(&row.dtype) {
        Ok(t) => t,
        Err(e) => return Ok(Err(e)),
    };
    let map = |f, second| -> Result<Op, PredictError> {
        Ok(Op::Elementwise {
            f,
            second,
            rows: p.size("rows")?,
            cols: p.size("cols")?,
            dtype: input,
        })
    };
    let (both, one) = (Some(Reads::All), Some(Reads::Scalar));
    Ok(Ok(match op.as_str() {
        "linear" | "bmm" | "gemm" => {
            let mut q = Product {
                batch: p.size_or("b", 1)?,
                m: p.size("m")?,
                n: p.size("n")?,
                k: p.size("k")?,
                ta: p.flag("ta")?,
                tb: p.flag("tb")?,
                bias: p.flag("bias")?,
                input,
                acc,
                output,
                units,
                windows: 0,
                fewer: false,
            };
            if p.get("order") == Some("col") {
                // A result by columns is its transpose by rows, of the factors in turn.
                (q.m, q.n) = (q.n, q.m);
                (q.ta, q.tb) = (q.tb, q.ta);
            }
            Op::Product(q)
        }
        "conv_fwd" => match convolution(&p, (input, acc, output, units))? {
            Ok(q) => Op::Product(q),
            Err(e) => return Ok(Err(e)),
        },
        "add" => map(Function::Add, both)?,
        "mul" => map(Function::Mul, both)?,
        "div" => map(Function::Div, both)?,
        "pow" => map(Function::Pow, both)?,
        "add_scalar" => map(Function::Add, one)?,
        "mul_scalar" => map(Function::Mul, one)?,
        "div_scalar" => map(Function::Div, one)?,
        "pow_scalar" => map(Function::Pow, one)?,
        "relu" => map(Function::Relu, None)?,
        "gelu" => map(Function::Gelu, None)?,
        "tanh" => map(Function::Tanh, None)?,
        "softmax" => Op::Softmax {
            rows: p.size("rows")?,
            cols: p.size("cols")?,
            dtype: input,
        },
        "layernorm" => Op::LayerNorm {
            rows: p.size("rows")?,
            cols: p.size("cols")?,
            dtype: input,
        },
        other => return Ok(Err(format!("op {other} is not predicted"))),
    }))
}

/// Predicted seconds of a row as its source would have measured it.
///
/// # Errors
/// A field that does not read; the inner error says why the row is not covered.
pub(crate) fn seconds(
    file: &str,
    row: &Row,
    library: &Library,
    c: &Constants,
) -> Result<Result<f64, String>, PredictError> {
    match &row.subject {
        Subject::Kernel { .. } => {}
        Subject::Model {
            model,
            mode,
            batch,
            input,
            framework,
        } => {
            return Ok(whole(
                row, model, mode, *batch, input, framework, library, c,
            ));
        }
        Subject::Decode {
            gpus,
            framework,
            model,
            quant,
            test,
        } => {
            let Some(n) = test.strip_prefix("tg") else {
                return Ok(Err(format!("test {} is not predicted", row.op())));
            };
            let run = decode::Run {
                model,
                quant,
                framework,
                gpus: *gpus,
                // Where the source does not say how many: what most generate.
                tokens: n.parse().unwrap_or(c.tables.shapes.tokens),
            };
            return Ok(decode::seconds(&run, library, c));
        }
    }
    let op = match call(file, row)? {
        Ok(op) => op,
        Err(why) => return Ok(Err(why)),
    };
    let Some(s) = library.seconds(op).filter(|s| s.is_finite() && *s > 0.0) else {
        return Ok(Err(format!("op {} of this size has no program", row.op())));
    };
    Ok(Ok(clocked(&row.source, row.op(), s, c)))
}

/// Predicted seconds of a whole model's run.
#[allow(clippy::too_many_arguments)] // The fields of a row.
fn whole(
    row: &Row,
    model: &str,
    mode: &str,
    batch: Option<u64>,
    input: &str,
    framework: &str,
    library: &Library,
    c: &Constants,
) -> Result<f64, String> {
    let seq = input.strip_prefix("seq=").and_then(|s| s.parse().ok());
    let (Some(batch), Some(seq)) = (batch, seq) else {
        return Err(format!("no graph of models of {}", row.source));
    };
    if row.dtype != "fp32" {
        return Err(format!("whole models in {} are not predicted", row.dtype));
    }
    if row.note.contains("GPUs") {
        return Err("whole models over several GPUs are not predicted".into());
    }
    let train = match mode {
        "inference" => false,
        "train" | "train_fwd_bwd" => true,
        other => return Err(format!("mode {other} is not predicted")),
    };
    let layers = row
        .note
        .split([';', ' '])
        .find_map(|w| w.strip_prefix("num_layer="));
    let layers = layers
        .and_then(|l| l.parse::<u64>().ok())
        .filter(|&l| l > 0);
    let Some(layers) = layers else {
        return Err(format!("model {model} without a number of layers"));
    };
    let run = models::Run {
        model,
        batch,
        seq,
        layers,
        train,
        fused: framework.contains("compile") || row.note.contains("option=fusion"),
    };
    models::seconds(&run, library, c)
}
