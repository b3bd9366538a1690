//! Options of the provider: `threads`, `memory` and `precision`.
use crate::abi::code;
use crate::boundary::Failure;
use crate::graph::Graph;
use shopfloor::{ModelOptions, Precision, Session, SessionBuilder};

/// What onnxruntime puts before the names of the provider's options.
pub(crate) const PREFIX: &str = "ep.shopfloorexecutionprovider.";
/// The options that there are.
const NAMES: &[&str] = &["threads", "memory", "precision"];

/// How the provider's sessions are made.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// Workers, the thread that runs a request included.
    pub threads: Option<usize>,
    /// Bytes that a plan may take.
    pub memory: Option<u64>,
    /// In what type f32 products multiply.
    pub precision: Precision,
}

impl Options {
    /// Those among the entries of a session's configuration.
    pub(crate) fn of<'t>(
        entries: impl Iterator<Item = (&'t str, &'t str)>,
    ) -> Result<Options, Failure> {
        let mut out = Options::default();
        for (key, value) in entries {
            let Some(name) = key.strip_prefix(PREFIX) else {
                continue;
            };
            let wrong = |takes: &str| {
                let text = format!(
                    "option '{name}' of ShopfloorExecutionProvider cannot be '{value}'; give {takes}"
                );
                Failure::new(code::INVALID_ARGUMENT, text)
            };
            match name {
                "threads" => {
                    let n = value.parse().ok().filter(|n| (1..=4096).contains(n));
                    out.threads = Some(n.ok_or_else(|| wrong("a number from 1 to 4096"))?);
                }
                "memory" => {
                    let n = value.parse().ok().filter(|&n: &u64| n > 0);
                    out.memory = Some(n.ok_or_else(|| wrong("a number of bytes"))?);
                }
                "precision" => {
                    let parsed = value.parse();
                    out.precision =
                        parsed.map_err(|_| wrong("exact, f32, bf16x3, tf32 or bf16"))?;
                }
                _ => {
                    return Err(Failure::new(
                        code::INVALID_ARGUMENT,
                        format!(
                            "ShopfloorExecutionProvider has no option '{name}'; it has {}",
                            NAMES.join(", ")
                        ),
                    ));
                }
            }
        }
        Ok(out)
    }

    /// How the model of a group of `graph` is read. Sizes that a body states may hold in its first round alone.
    pub(crate) fn model(&self, graph: &Graph<'_>) -> ModelOptions {
        ModelOptions {
            precision: self.precision,
            open_dims: graph.body_of.is_some(),
            ..ModelOptions::default()
        }
    }

    /// How sessions are made, but for their engine.
    pub(crate) fn builder(&self) -> SessionBuilder {
        let b = Session::builder().with_precision(self.precision);
        match self.memory {
            Some(bytes) => b.with_memory_limit(bytes),
            None => b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, &str)]) -> Result<Options, String> {
        Options::of(entries.iter().copied()).map_err(|e| e.message)
    }

    #[test]
    fn options_are_read_and_others_are_refused_by_name() {
        let p = |name: &str| format!("{PREFIX}{name}");
        let read = of(&[
            (&p("threads"), "2"),
            ("session.disable_cpu_ep_fallback", "1"),
            (&p("memory"), "1000000"),
            (&p("precision"), "bf16"),
        ])
        .expect("they are options");
        assert_eq!((read.threads, read.memory), (Some(2), Some(1_000_000)));
        assert_eq!(read.precision, Precision::Bf16);
        let e = of(&[(&p("thread"), "2")]).expect_err("it is none");
        assert!(
            e.contains("'thread'") && e.contains("threads, memory, precision"),
            "{e}"
        );
        for (name, value) in [
            ("threads", "0"),
            ("threads", "x"),
            ("memory", "-1"),
            ("precision", "half"),
        ] {
            let e = of(&[(&p(name), value)]).expect_err("it is wrong");
            assert!(e.contains(name) && e.contains(value), "{e}");
        }
    }
}
