//! Decoding with a language model, token by token: every weight is read once.

use crate::Constants;
use crate::ops::{Library, Op};

/// What is read of a model for one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Weights that a token passes through.
    pub active: f64,
    /// Layers.
    pub layers: f64,
    /// Width of the residual stream.
    pub width: f64,
    /// Keys' and values' share of the width (grouped queries).
    pub kv: f64,
}

/// Published shapes, by the start of a name: (name, active weights in 1e9, layers, width, kv share).
const SHAPES: &[(&str, f64, f64, f64, f64)] = &[
    ("llama-2-70b", 68.7, 80.0, 8192.0, 0.125),
    ("llama-3-70b", 70.0, 80.0, 8192.0, 0.125),
    ("llama-3.1:70b", 70.0, 80.0, 8192.0, 0.125),
    ("llama-3.1:405b", 404.0, 126.0, 16384.0, 0.0625),
    ("llama-3-8b", 7.5, 32.0, 4096.0, 0.25),
    ("llama-3.1:8b", 7.5, 32.0, 4096.0, 0.25),
    ("llama-3.2:3b", 3.2, 28.0, 3072.0, 0.333),
    ("llama-3.2:1b", 1.23, 16.0, 2048.0, 0.25),
    ("deepseek-r1-14b", 14.0, 48.0, 5120.0, 0.2),
    ("deepseek-r1-671b", 37.0, 61.0, 7168.0, 0.04),
    ("gpt-oss-20b", 3.6, 24.0, 2880.0, 0.18),
    ("gpt-oss-120b", 5.1, 36.0, 2880.0, 0.18),
];

/// The shape of a model by its name: a published one, else a dense one of as many weights as the name
/// says.
pub fn shape(model: &str) -> Option<Shape> {
    let name = model.to_lowercase();
    if let Some(s) = SHAPES.iter().find(|s| name.starts_with(s.0)) {
        return Some(Shape {
            active: s.1 * 1e9,
            layers: s.2,
            width: s.3,
            kv: s.4,
        });
    }
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let mut billions = words.filter_map(|w| w.strip_suffix('b')?.parse::<f64>().ok());
    let n = billions.rfind(|n| (0.05..5000.0).contains(n))?;
    // Seven billion have 32 layers; depth grows with the third root.
    let layers = (32.0 * (n / 6.7).cbrt()).round().max(8.0);
    Some(Shape {
        active: n * 1e9,
        layers,
        width: (n * 1e9 / (12.0 * layers)).sqrt(),
        kv: 1.0,
    })
}

/// Bits of a stored weight with its scales, by the name of the format.
pub fn bits(quant: &str, model: &str) -> Option<f64> {
    let q = quant.to_uppercase();
    let known = [
        ("Q4_0", 4.5),
        ("Q4_K_M", 4.85),
        ("Q4_K_S", 4.6),
        ("Q5_K_M", 5.7),
        ("Q6_K", 6.6),
        ("Q8_0", 8.5),
        ("MXFP4", 4.25),
        ("GPTQ-4BIT", 4.25),
        ("4BIT", 4.25),
        ("FP32", 32.0),
        ("BF16", 16.0),
        ("FP16", 16.0),
        ("F16", 16.0),
        ("FP8", 8.0),
    ];
    if q.contains("OLLAMA DEFAULT") {
        return Some(if model.contains("gpt-oss") {
            4.25
        } else {
            4.85
        });
    }
    if let Some(rest) = q.strip_prefix("EXL2-") {
        return rest.strip_suffix("BPW")?.parse().ok();
    }
    known.iter().find(|k| q.starts_with(k.0)).map(|k| k.1)
}

/// A run that decodes.
pub struct Run<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The format of its weights.
    pub quant: &'a str,
    /// The framework.
    pub framework: &'a str,
    /// GPUs together.
    pub gpus: u64,
    /// Tokens that are generated.
    pub tokens: u64,
}

/// Predicted seconds of one token.
///
/// # Errors
/// Why there is no prediction.
pub fn seconds(run: &Run, library: &Library, c: &Constants) -> Result<f64, String> {
    let shape = shape(run.model).ok_or_else(|| format!("model {} has no size", run.model))?;
    let bits = bits(run.quant, run.model)
        .ok_or_else(|| format!("weights as {} are not predicted", run.quant))?;
    // Who cuts every product over GPUs reads a share on each; layers on one GPU after the other take as
    // long as on one.
    let cut = ["mlc", "vllm"].iter().any(|f| run.framework.starts_with(f));
    let share = if cut { 1.0 / run.gpus as f64 } else { 1.0 };
    // Four products to a layer: queries with keys and values, their result, up, down.
    let layer = shape.active * bits / 8.0 / shape.layers * share;
    let width = (shape.width * bits / 8.0).max(1.0);
    let rows = (layer / 4.0 / width).ceil().max(1.0) as u64;
    let few = run.framework.contains("llama.cpp");
    let flight = few.then(|| (c.get("decode_flight_kb") * 1e3) as u64);
    let weights = Op::Reading {
        rows,
        bytes: width as u64,
        footprint: (shape.active * bits / 8.0 * share) as u64,
        flight,
    };
    // Keys and values of what was generated so far, half of it on average.
    let context = run.tokens as f64 / 2.0;
    let cache = Op::Reading {
        rows: (2.0 * context * share).ceil().max(1.0) as u64,
        bytes: (shape.width * shape.kv * 2.0).max(1.0) as u64,
        footprint: (shape.active * bits / 8.0 * share) as u64,
        flight,
    };
    let one = |op| {
        library
            .seconds(op)
            .ok_or_else(|| "decoding of this size has no program".to_string())
    };
    let busy = 4.0 * one(weights)? + one(cache)?;
    let mut between = c.get("decode_layer_us");
    if cut && run.gpus > 1 {
        between += c.get("decode_exchange_us");
    }
    Ok(shape.layers * (busy + between * 1e-6))
}
