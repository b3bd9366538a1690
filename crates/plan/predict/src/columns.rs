//! Columns of the files with measurements.

/// Columns of a file of kernels.
pub const KERNELS: &[&str] = &[
    "source",
    "gpu",
    "op",
    "params",
    "dtype",
    "measured_us",
    "note",
];

/// Columns of a file of whole models.
pub const MODELS: &[&str] = &[
    "source",
    "gpu",
    "framework",
    "model",
    "mode",
    "batch",
    "input",
    "dtype",
    "latency_ms",
    "throughput_per_s",
    "fwd_ms",
    "bwd_ms",
    "note",
];

/// Columns of a file of decoding rates.
pub const DECODE: &[&str] = &[
    "source",
    "gpu",
    "n_gpu",
    "framework",
    "model",
    "quant",
    "test",
    "tokens_per_s",
    "note",
];
