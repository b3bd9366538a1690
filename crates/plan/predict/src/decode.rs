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

/// The shape of a model by its name: a published one, else a dense one of as many weights as the name
/// says.
pub fn shape(model: &str, c: &Constants) -> Option<Shape> {
    let name = model.to_lowercase();
    let t = &c.tables.shapes;
    if let Some(s) = t.models.iter().find(|s| name.starts_with(&s.name)) {
        return Some(Shape {
            active: s.active,
            layers: s.layers,
            width: s.width,
            kv: s.kv,
        });
    }
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let mut billions = words.filter_map(|w| w.strip_suffix('b')?.parse::<f64>().ok());
    let n = billions.rfind(|n| (0.05..5000.0).contains(n))? * 1e9;
    let layers = (t.layers * (n / t.weights).cbrt()).round().max(t.least);
    Some(Shape {
        active: n,
        layers,
        width: (n / (12.0 * layers)).sqrt(),
        kv: 1.0,
    })
}

/// Bits of a stored weight with its scales, by the name of the format.
pub fn bits(quant: &str, model: &str, c: &Constants) -> Option<f64> {
    let q = quant.to_uppercase();
    let t = &c.tables.formats;
    if q.contains("OLLAMA DEFAULT") {
        return t.ollama.iter().find(|o| model.contains(&o.0)).map(|o| o.1);
    }
    if let Some(rest) = q.strip_prefix("EXL2-") {
        let bits: f64 = rest.strip_suffix("BPW")?.parse().ok()?;
        return (0.5..=64.0).contains(&bits).then_some(bits);
    }
    t.bits.iter().find(|k| q.starts_with(&k.0)).map(|k| k.1)
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
    let shape = shape(run.model, c).ok_or_else(|| format!("model {} has no size", run.model))?;
    let bits = bits(run.quant, run.model, c)
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
